"""Decodes recordings on many machines with Dask, and queries the results with DuckDB.

``python -m ptdecode.fleet --help`` lists the commands. docs/FLEET.md explains plans, units and the layout of the results.
Needs pyarrow; ``run`` needs distributed, ``query`` and ``merge`` need duckdb, URLs need fsspec (``pip install ptdecode[fleet]``).
"""
from .units import Plan, decode_unit, write_plan

__all__ = ["Plan", "decode_unit", "write_plan"]
