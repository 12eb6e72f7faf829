"""Puts the results of units together: counts are added up in a tree, calls are followed through the steps of all units."""
from __future__ import annotations

import os
import re
import tempfile
from typing import Any

from .. import Error
from .store import Store, sql_file, sql_text
from .units import ALL_STEPS, CALL_COLUMNS, CALL_TABLES, UNIT_TABLES, Plan, decode_steps, write_table

FANOUT = 32  # files that one step of the tree adds up
SUMMED = ("edges", "block_counts")
_KEYS = {table: [name for name in columns if name not in ("count", "uncertain", "first_ns", "symbol", "to_symbol")]
         for table, columns in UNIT_TABLES.items() if table in SUMMED}


def groups(files: "list[str]", fanout: int = FANOUT) -> "list[list[str]]":
    return [files[at:at + fanout] for at in range(0, len(files), fanout)]


def add_up(store: Store, table: str, files: "list[str]", output: str) -> int:
    """Adds up files of counts: rows that differ only in counts, first moment and names become one, with the names of the first. The number of
    rows."""
    import duckdb

    names = [name for name in UNIT_TABLES[table] if name in ("symbol", "to_symbol")]
    keys = ", ".join(f'"{name}"' for name in _KEYS[table])
    # Of equal moments, the earlier file decides: files are given in the order of the trace.
    first = "arg_min({" + ", ".join(f"'{name}': \"{name}\"" for name in names) + "}, {'time': coalesce(first_ns, 9223372036854775807), 'file': filename})"
    columns = ", ".join({"count": 'sum("count")::ubigint as "count"', "uncertain": "sum(uncertain)::ubigint as uncertain", "first_ns": "min(first_ns) as first_ns",
                         **{name: f"named.{name} as {name}" for name in names}}.get(name, f'"{name}"') for name in UNIT_TABLES[table])
    with store.scratch() as folder, tempfile.TemporaryDirectory(prefix="ptdecode-") as copies:
        local = [store.fetch(name, copies) for name in files]
        result = os.path.join(folder, "part.parquet")
        with duckdb.connect() as connection:
            connection.execute("set preserve_insertion_order = false").fetchall()
            inner = f"select {keys}, sum(\"count\") as \"count\", sum(uncertain) as uncertain, min(first_ns) as first_ns, {first} as named " \
                    f"from read_parquet([{', '.join(sql_file(name) for name in local)}], filename = true, hive_partitioning = false) group by {keys}"
            order = "order by \"count\" desc, " + keys
            columns = columns.replace('sum("count")', '"count"').replace("sum(uncertain)", "uncertain").replace("min(first_ns)", "first_ns")
            connection.execute(f"copy (select {columns} from ({inner}) {order}) to {sql_text(result)} (format parquet, compression zstd)").fetchall()
            rows = connection.execute(f"select count(*) from read_parquet({sql_file(result)})").fetchall()[0][0]
        store.put(result, output)
    return rows


def follow_calls(store: Store, name: str, tables: "tuple[str, ...]" = CALL_TABLES) -> "dict[str, int]":
    """Writes tables of calls of a recording from the steps of all its units."""
    with tempfile.TemporaryDirectory(prefix="ptdecode-") as folder:
        plan = Plan(store.fetch(f"_plans/{name}.plan", folder), without_trace=True)
        names = store.list(f"_steps/{name}", ".steps")
        steps = [store.fetch(step, folder) for step in names]
        tried: "set[str]" = set()
        while True:
            try:
                return {table: write_table(plan.table(table, steps=steps, columns=CALL_COLUMNS[table]), store, f"{table}/recording={name}/part.parquet")
                        for table in tables}
            except (Error, OSError) as error:  # an Arrow stream reports any error as OSError
                missing = re.search(rf"unit-(\d+)\.steps{re.escape(ALL_STEPS)} is missing", str(error))
                if missing is None or missing[1] in tried:
                    raise
            # Rare: clocks of cpus disagree about a thread that moved.
            tried.add(missing[1])
            unit = int(missing[1])
            all_steps = f"_steps/{name}/unit-{unit:05}.steps{ALL_STEPS}"
            if not store.list(f"_steps/{name}", f"unit-{unit:05}.steps{ALL_STEPS}"):
                decode_steps(store, name, unit)
            store.fetch(all_steps, folder)


def call_tables(facts: "dict[str, Any]") -> "tuple[str, ...]":
    """Returns the names of the tables that follow_calls() writes for a recording."""
    return CALL_TABLES if facts.get("calls", True) else ("functions",)


def unit_files(store: Store, table: str, name: str, units: int) -> "list[str]":
    return [f"{table}/recording={name}/unit={unit:05}/part.parquet" for unit in range(units)]


def merge(store: Store, name: str) -> "dict[str, Any]":
    """Merges one recording on this machine; run.py does the same steps as tasks."""
    facts = store.get_json(f"_plans/{name}.json")
    rows: "dict[str, Any]" = {}
    for table in SUMMED:
        files, level = unit_files(store, table, name, facts["units"]), 0
        while len(files) > 1 or level == 0:
            outputs = tree_outputs(table, name, len(files), level)
            for part, output in zip(groups(files), outputs):
                rows[table] = add_up(store, table, part, output)
            files, level = outputs, level + 1
    rows.update(follow_calls(store, name, call_tables(facts)))
    store.put_json({"recording": name, "rows": rows}, f"_merged/{name}.json")
    return rows


def tree_outputs(table: str, name: str, files: int, level: int) -> "list[str]":
    """Where a level of the tree writes: the last one writes the result."""
    count = max(1, -(-files // FANOUT))
    if count == 1:
        return [f"merged/{table}/recording={name}/part.parquet"]
    return [f"_tree/{name}/{table}-{level}-{index:05}.parquet" for index in range(count)]
