#!/usr/bin/env python3
"""Rows per second of processor time of one core from the table `branches` into duckdb, polars and pyarrow, and the peak of memory.

usage: tests/bench/tables.py RECORDING [ROUNDS]     (needs the installed package, pyarrow, polars and duckdb)

Each reading runs in a process of its own; the time includes decoding.
"""
import os
import resource
import subprocess
import sys
import time

COLUMNS = ["flags", "instructions"]
# polars makes a data frame of each batch, which takes less time for each row of a larger one.
BATCH_ROWS = {"polars": 1 << 18}


def into_duckdb(table):
    import duckdb
    import pyarrow
    stream = pyarrow.RecordBatchReader.from_stream(table)  # pylint: disable=unused-variable
    duckdb.sql("set threads = 1")
    return sum(row[1] for row in duckdb.sql("select flags, count(*), sum(instructions) from stream group by flags").fetchall())


def into_polars(table):
    import polars
    import pyarrow
    total = None
    for batch in pyarrow.RecordBatchReader.from_stream(table):
        part = polars.DataFrame(batch).group_by("flags").agg(polars.len(), polars.col("instructions").sum().cast(polars.UInt64))
        part = part.with_columns(polars.col("flags").cast(polars.String), polars.col("len").cast(polars.UInt64))
        total = part if total is None else polars.concat([total, part]).group_by("flags").agg(polars.col("len", "instructions").sum())
    return total["len"].sum()


def into_arrow(table):
    import pyarrow
    return sum(batch.num_rows for batch in pyarrow.RecordBatchReader.from_stream(table))


def measure(reader, path, columns):
    import duckdb
    import polars
    import ptdecode
    import pyarrow
    assert duckdb and polars and pyarrow
    recording = ptdecode.open(path)
    before = time.process_time()
    rows = globals()[f"into_{reader}"](recording.branches(columns=columns.split(",") if columns else None, progress=False,
                                                              batch_rows=BATCH_ROWS.get(reader, 1 << 16)))
    used = time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{reader:7} {columns or 'default columns':20} {rows} rows, {rows / used / 1e6:.1f} M rows/s, peak {peak} MB, file {os.path.getsize(path) >> 20} MB",
          flush=True)


def main():
    if sys.argv[1] == "--one":
        return measure(*sys.argv[2:])
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
        for reader, columns in (("arrow", ""), ("arrow", ",".join(COLUMNS)), ("duckdb", ",".join(COLUMNS)), ("polars", ",".join(COLUMNS))):
            subprocess.run([sys.executable, __file__, "--one", reader, sys.argv[1], columns], check=True,
                           env={**os.environ, "POLARS_MAX_THREADS": "1"})
    return None


if __name__ == "__main__":
    main()
