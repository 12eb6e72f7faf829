"""Questions about the results of a fleet, answered by DuckDB over its Parquet files."""
from __future__ import annotations

from typing import Any, Optional

from .store import is_url, plain_glob, sql_text

#: Tables of a query: where their files are. `edges` and `block_counts` are those of whole recordings.
TABLES = {"edges": "merged/edges", "block_counts": "merged/block_counts", "open_calls": "open_calls", "call_groups": "call_groups", "finished_calls": "calls", "functions": "functions", "gaps": "gaps", "events": "events",
          "findings": "findings", "samples": "samples", "sections": "sections", "versions": "versions", "recordings": "recordings"}

#: SQL of the view `calls`: calls of open_calls, and calls of units, to whose depth call_groups adds. Includes the code of their functions.
CALLS = """create view calls as
with every as (
  select * from open_calls
  union all by name
  select c.* exclude ("group", unit, depth), (c.depth + g.depth)::uinteger as depth
  from finished_calls c join call_groups g on c.recording = g.recording and c.unit::uinteger = g.unit and c."group" = g."group")
select e.*, f.code, f.code_offset
from every e left join functions f on e.recording = f.recording and e.call is not distinct from f.function and e.module is not distinct from f.module"""

_DAY = "strftime(make_timestamp((r.first_ns + r.utc_offset_ns) // 1000), '%Y-%m-%d')"
_RAN = "quantile_disc(end_ns - start_ns, {share}) filter (start_seen and end_seen)"

#: Saved queries: what they answer, and their text. Names in braces are parameters.
SAVED = {
    "hottest": ("functions of the fleet by the time that they took themselves",
                "select function, module, sum(calls)::ubigint as calls, sum(self_ns)::ubigint as self_ns, sum(total_ns)::ubigint as total_ns, "
                "sum(self_instructions)::ubigint as self_instructions, max(max_ns) as max_ns, count(distinct recording) as recordings "
                "from functions group by all order by self_ns desc, function, module limit {limit}"),
    "profile": ("near branches of one build, for profiles of compilers: offsets in its file",
                "select code_offset as \"from\", to_code_offset as \"to\", sum(\"count\")::ubigint as \"count\" from edges "
                "where code = '{build_id}' and to_code = code and flags in ('call', 'return', 'jcc', 'jmp') group by all order by all"),
    "builds": ("builds and the branches counted in them",
               "select code, sum(\"count\")::ubigint as branches, count(distinct recording) as recordings from edges group by all order by branches desc"),
    "latency": ("duration of the calls of one function, by host and day",
                f"select r.host, {_DAY} as day, count(*) as calls, {_RAN.format(share=0.5)} as p50_ns, {_RAN.format(share=0.99)} as p99_ns, "
                "max(end_ns - start_ns) filter (start_seen and end_seen) as max_ns from calls c join recordings r using (recording) "
                "where call = '{function}' and start_seen group by all order by all"),
    "pokes": ("which contents of changed code were live, and where",
              "select r.host, symbol, \"offset\", version, hex(bytes) as bytes, count(*) as times, min(possible_first_ns) as first_ns, "
              "max(possible_last_ns) as last_ns from versions v join recordings r using (recording) group by all order by all"),
    "gaps": ("lost flow by reason and host",
             "select r.host, reason, count(*) as gaps, sum(lost_bytes)::ubigint as lost_bytes from gaps g join recordings r using (recording) "
             "group by all order by gaps desc, reason, host"),
}


def connect(root: str) -> Any:
    """A DuckDB connection with a view for each table that has files."""
    import duckdb

    connection = duckdb.connect()
    views = set()
    if is_url(root):
        from .store import filesystem

        system, _ = filesystem(root)
        connection.register_filesystem(system)
    for view, folder in TABLES.items():
        pattern = f"{plain_glob(str(root).rstrip('/'))}/{folder}/**/*.parquet"
        files = connection.execute("select count(*) from glob(?)", [pattern]).fetchall()[0][0]
        if files:
            views.add(view)
            connection.execute(f"create view {view} as select * from read_parquet({sql_text(pattern)}, hive_partitioning = true, hive_types_autocast = false, "
                               "union_by_name = true)").fetchall()
    if {"open_calls", "call_groups", "finished_calls", "functions"} <= views:
        connection.execute(CALLS).fetchall()
    return connection


def text_of(query: str, **parameters: Any) -> str:
    """The SQL of a saved query, or the query itself."""
    if query not in SAVED:
        return query
    values = {"limit": "40", "build_id": "", "function": ""}
    values.update({key: str(value).replace("'", "''") for key, value in parameters.items() if value is not None})
    values["limit"] = str(int(values["limit"]))
    return SAVED[query][1].format(**values)


def run(root: str, query: str, **parameters: Any) -> "tuple[list[str], list[tuple]]":
    """The names of the columns and the rows."""
    with connect(root) as connection:
        result = connection.execute(text_of(query, **parameters))
        return [column[0] for column in result.description], result.fetchall()
