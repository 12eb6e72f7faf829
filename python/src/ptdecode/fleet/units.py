"""Plans, and the decode of one unit: what every engine calls."""
from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import tempfile
import time
from typing import Any, Iterator, Optional, Sequence

import pyarrow
import pyarrow.parquet

from .. import Error, Recording, Table, _arguments, _native, _number, _path, _shown
from .store import Store, filesystem, is_url, read_ranges

CODE = ["code", "code_offset"]
CODE_FOLDER = "_code"  # downloaded files
_DOWNLOADS = "DEBUGINFOD_CACHE_PATH"  # of libdebuginfod
ALL_STEPS = ".all"  # beside the file of a unit's groups: all its steps
#: The tables that a unit writes, with their columns (docs/TABLES.md).
UNIT_TABLES = {
    "edges": ["count", "uncertain", "flags", "space", "ip", "symbol", "to", "to_symbol", "first_ns", *CODE, "to_code", "to_code_offset"],
    "block_counts": ["count", "uncertain", "space", "ip", "symbol", "instructions", "size_bytes", "hash", "first_ns", *CODE],
    "gaps": ["time_ns", "stream", "cpu", "pid", "tid", "reason", "ip", "symbol", "offset_bytes", "lost_bytes"],
    "events": ["time_ns", "stream", "cpu", "pid", "tid", "event", "ip", "to", "payload", "aux", "offset_bytes"],
}
_CALLS = ["pid", "tid", "comm", "cpu", "call", "module", "kind", "depth", "start_ns", "end_ns", "self_ns", "off_cpu_ns", "untraced_ns", "lost_ns",
          "instructions", "self_instructions", "cycles", "self_cycles", "start_seen", "end_seen", "estimated"]
#: The tables of calls. A unit writes those calls that begin and end in one group of it. The others, and the depth of each group, come from the merge.
CALL_COLUMNS = {
    "calls": [*_CALLS, "group"],
    "open_calls": _CALLS,
    "call_groups": ["unit", "group", "depth"],
    "functions": ["function", "module", "calls", "partial", "self_instructions", "total_instructions", "self_ns", "total_ns", "off_cpu_ns", "untraced_ns",
                  "lost_ns", "self_cycles", "total_cycles", "p50_ns", "p99_ns", "max_ns", "no_start", "no_end", "estimated", *CODE],
}
#: The tables that are read once, when a recording is planned.
RECORDING_TABLES = ("samples", "findings", "sections", "versions")
#: Tables that are made from the steps of all units of a recording. All but `functions` are made only if calls are wanted.
CALL_TABLES = ("functions", "open_calls", "call_groups")
#: Columns with Parquet dictionaries: those of names. For other columns, dictionaries cost time and save no space.
_NAMES = {"comm", "call", "function", "module", "kind", "code", "to_code", "flags", "symbol", "to_symbol", "reason", "event"}


def recording_id(path: str) -> str:
    """Names a recording: the end of its path, and a hash of where it is, its size and its time."""
    path = _path(path)
    if path != _shown(path):
        raise ValueError(f"{path!r} is not UTF-8, in which plans and results have the paths of their recordings; rename it")
    if is_url(path):
        system, inner = filesystem(path)
        facts = system.info(inner)
        key = [path, facts.get("size"), str(facts.get("mtime") or facts.get("LastModified") or facts.get("ETag") or "")]
    else:
        path = os.path.abspath(path)
        status = os.stat(os.path.join(path, "data") if os.path.isdir(path) and os.path.exists(os.path.join(path, "data")) else path)
        key = [path, status.st_size, status.st_mtime_ns]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:12]
    stem = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in pathlib.PurePath(path).name)
    return f"{stem}-{digest}"


def write_table(table: Table, store: Store, name: str, **constants: Any) -> int:
    """Writes a table as a Parquet file; the number of rows. `constants`: columns that have one value."""
    with store.scratch() as folder:
        local = os.path.join(folder, "part.parquet")
        reader = pyarrow.RecordBatchReader.from_stream(table)
        schema, rows = reader.schema, 0
        for key, value in constants.items():
            schema = schema.append(pyarrow.field(key, pyarrow.scalar(value).type))
        names = [name for name in schema.names if name in _NAMES]
        with pyarrow.parquet.ParquetWriter(local, schema, compression="zstd", use_dictionary=names) as writer:
            for batch in reader:
                for key, value in constants.items():
                    batch = batch.append_column(key, pyarrow.array([value] * batch.num_rows, pyarrow.scalar(value).type))
                writer.write_batch(batch)
                rows += batch.num_rows
        store.put(local, name)
    return rows


@contextlib.contextmanager
def local_copy(path: str) -> "Iterator[str]":
    """A local path of a recording: of a URL, a copy that is removed afterwards."""
    if not is_url(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="ptdecode-") as folder:
        system, inner = filesystem(path)
        copy = os.path.join(folder, pathlib.PurePath(inner).name)
        system.get_file(inner, copy)
        yield copy


class Plan:
    """An opened plan. `traces`: where its trace files are; None: where they were when it was planned."""

    def __init__(self, path: str, traces: "Optional[Sequence[str]]" = None, without_trace: bool = False) -> None:
        self._native = _native.plan_open(_path(path), None if traces is None else [_path(trace) for trace in traces], without_trace)
        self.facts = json.loads(self._native.plan_json())
        self.recording = Recording(self._native, _path(path))

    @property
    def units(self) -> "list[dict[str, Any]]":
        return self.facts["units"]

    def _unit(self, unit: int) -> int:
        """Returns the number of a unit of this plan."""
        return _number("unit", unit, len(self.units) - 1)

    def table(self, name: str, *, unit: Optional[int] = None, steps: "Optional[Sequence[str]]" = None,
              columns: "Optional[Sequence[str]]" = None) -> Table:
        """A table of one unit, or one that is made from the steps of all units."""
        arguments = _native.TableArguments()
        arguments.columns = None if columns is None else list(columns)
        arguments.unit = None if unit is None else self._unit(unit)
        arguments.steps = None if steps is None else [_path(step) for step in steps]
        arguments.cpu = arguments.pid = arguments.tid = -1
        arguments.threads = 1
        return Table(name, lambda: self._native.table(name, arguments, None))

    def write_steps(self, unit: int, output: str) -> None:
        """Writes all steps of a unit to a file beside `output`."""
        self._native.unit_steps(self._unit(unit), _path(output))

    def unit_tables(self, unit: int, tables: "Sequence[tuple[str, list[str]]]", steps: str) -> "list[Table]":
        """Returns several tables of one unit, from one decode. Read each once, and `calls` first, on one thread at a time. The file `steps` is complete
        when one table has been read to its end."""
        streams = self._native.unit_tables(self._unit(unit), list(tables), _path(steps))
        return [Table(name, functools.partial(lambda stream: stream, stream)) for (name, _), stream in zip(tables, streams)]


def write_plan(path: str, store: Store, unit_bytes: int = 0, options: "Optional[dict[str, Any]]" = None, calls: bool = True) -> "dict[str, Any]":
    """Plans a recording and writes the tables that are read only once. Returns the facts of the plan, which are stored beside it. `calls`: whether its
    units write the table calls."""
    started, used = time.monotonic(), time.process_time()
    path, name = _path(path), recording_id(path)
    given = options or {}
    forget(store, name)
    with local_copy(path) as local, store.scratch() as folder, shared_downloads(store):
        if given.get("debuginfod"):
            fetch_code(local, store, _arguments(**given))
        plan = os.path.join(folder, "run.plan")
        _native.plan_write(local, plan, _arguments(**given), _number("unit_bytes", unit_bytes, 2**64 - 1), 0, None)
        with Recording(_native.open(local, _arguments(**given), None), local) as recording:
            rows = {table: write_table(recording.table(table, progress=False), store, f"{table}/recording={name}/part.parquet")
                    for table in RECORDING_TABLES if table != "samples" or has_samples(recording)}
            info = recording.info()
        opened = Plan(plan)
        traces = [file["path"] for file in opened.facts["files"]]
        facts = {"recording": name, "source": path, "id": opened.facts["id"], "utc_offset_ns": opened.facts["utc_offset_ns"], "units": len(opened.units),
                 "unit_bytes": [unit["end_offset_bytes"] - unit["first_offset_bytes"] for unit in opened.units],
                 # Of a URL, the trace is the file that was planned.
                 "traces": [path for _ in traces] if is_url(path) else [os.path.abspath(trace) for trace in traces],
                 "files": opened.facts["files"], "host": info.get("host"), "kernel": info.get("kernel"), "time_ns": info.get("time_ns"), "rows": rows,
                 "calls": calls, "how": {"unit_bytes": unit_bytes, "options": given}}
        store.put(plan, f"_plans/{name}.plan")
    facts["seconds"], facts["processor_seconds"] = time.monotonic() - started, time.process_time() - used
    table = pyarrow.table({"recording": [name], "source": [path], "host": [facts["host"]], "kernel": [facts["kernel"]],
                           "utc_offset_ns": pyarrow.array([facts["utc_offset_ns"]], pyarrow.int64()),
                           "first_ns": pyarrow.array([(facts["time_ns"] or [None])[0]], pyarrow.int64()), "units": [facts["units"]]})
    with store.scratch() as folder:
        local_table = os.path.join(folder, "part.parquet")
        pyarrow.parquet.write_table(table, local_table)
        store.put(local_table, f"recordings/recording={name}/part.parquet")
    store.put_json(facts, f"_plans/{name}.json")
    return facts


@contextlib.contextmanager
def shared_downloads(store: Store) -> "Iterator[None]":
    """Within it, libdebuginfod keeps its downloads in the folder of the results, unless the environment names another folder. If the results are at a URL,
    each machine downloads for itself."""
    if store.is_remote or _DOWNLOADS in os.environ:
        yield
        return
    os.environ[_DOWNLOADS] = store.path(CODE_FOLDER)
    try:
        yield
    finally:
        os.environ.pop(_DOWNLOADS, None)


def fetch_code(path: str, store: Store, arguments: Any) -> None:
    """Downloads the missing code of a recording. Workers take turns, so that each file is downloaded once."""
    if store.is_remote:
        return
    folder = pathlib.Path(store.path(CODE_FOLDER))
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Recording(_native.open(path, arguments, None), path).close()


def forget(store: Store, name: str) -> None:
    """Removes the results of an earlier plan of a recording: its units may be others."""
    for marker in (f"_merged/{name}.json", f"_plans/{name}.json"):
        store.remove(marker)
    for folder in (f"_done/{name}", f"_steps/{name}", f"_tree/{name}", *(f"{table}/recording={name}" for table in (*UNIT_TABLES, *CALL_COLUMNS))):
        for file in store.list(folder):
            store.remove(file)


def has_samples(recording: Recording) -> bool:
    try:
        next(iter(recording.table("samples", progress=False).batches()), None)
    except Error:
        return False
    return True


@functools.lru_cache(maxsize=4)
def _opened(path: str, size: int, modified: int) -> Plan:
    """Plans stay open: a worker decodes many units of one."""
    return Plan(path)


atexit.register(_opened.cache_clear)


@contextlib.contextmanager
def plan_of(store: Store, name: str, unit: int, traces: "Optional[Sequence[str]]") -> "Iterator[Plan]":
    """The plan with the bytes of one unit. Ranges of URLs are copied to sparse files, which are removed afterwards."""
    facts = store.get_json(f"_plans/{name}.json")
    where = list(traces or facts["traces"])
    with tempfile.TemporaryDirectory(prefix="ptdecode-") as folder:
        local = store.fetch(f"_plans/{name}.plan", folder)
        if not any(is_url(trace) for trace in where):
            same = not traces and local == store.path(f"_plans/{name}.plan")
            status = os.stat(local)
            yield _opened(local, status.st_size, status.st_mtime_ns) if same else Plan(local, where or None)
            return
        described = Plan(local, without_trace=True)
        ranges = described.units[described._unit(unit)]["ranges"]
        copies = []
        for index, (trace, file) in enumerate(zip(where, facts["files"])):
            copies.append(os.path.join(folder, f"trace-{index}"))
            wanted = [(offset, size) for number, offset, size in ranges if number == index]
            with open(copies[-1], "wb") as out:
                out.truncate(file["size_bytes"])
                for (offset, _), data in zip(wanted, read_ranges(trace, wanted)):
                    out.seek(offset)
                    out.write(data)
        yield Plan(local, copies)


def decode_steps(store: Store, name: str, unit: int, traces: "Optional[Sequence[str]]" = None) -> None:
    """Decodes a unit again and writes all its steps, for a merge that cannot use its groups."""
    with plan_of(store, name, unit, traces) as plan, store.scratch() as folder:
        steps = os.path.join(folder, "unit.steps")
        plan.write_steps(unit, steps)
        store.put(steps + ALL_STEPS, f"_steps/{name}/unit-{unit:05}.steps{ALL_STEPS}")


def decode_unit(store: Store, name: str, unit: int, traces: "Optional[Sequence[str]]" = None) -> "dict[str, Any]":
    """Decodes a unit and writes its tables and steps. Its marker in `_done` comes last. Decoding it again gives the same files."""
    started, used = time.monotonic(), time.process_time()
    facts: "dict[str, Any]" = {"recording": name, "unit": unit}
    calls = store.get_json(f"_plans/{name}.json").get("calls", True)
    tables = [*([("calls", CALL_COLUMNS["calls"])] if calls else []), *UNIT_TABLES.items()]
    with plan_of(store, name, unit, traces) as plan, store.scratch() as folder:
        described = plan.units[plan._unit(unit)]
        facts["bytes"] = described["end_offset_bytes"] - described["first_offset_bytes"]
        steps = os.path.join(folder, "unit.steps")
        facts["rows"] = {table.name: write_table(table, store, f"{table.name}/recording={name}/unit={unit:05}/part.parquet")
                         for table in plan.unit_tables(unit, tables, steps)}
        facts["steps_bytes"] = os.path.getsize(steps)
        store.put(steps, f"_steps/{name}/unit-{unit:05}.steps")
    facts["seconds"], facts["processor_seconds"] = time.monotonic() - started, time.process_time() - used
    store.put_json(facts, f"_done/{name}/unit-{unit:05}.json")
    return facts
