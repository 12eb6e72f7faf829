#!/usr/bin/env python3
"""Plans and units against the whole recording, through the C API: every table, row for row. Usage: units_test.py LIBRARY SOURCE COMMAND

The second source is the decode of the recording itself, in one piece. Environment: PTDECODE_PLUGIN, CC.
"""
import collections
import ctypes
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

LIBRARY, SOURCE, COMMAND = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
sys.path.insert(0, str(SOURCE / "tests" / "tables"))
from arrow_reader import ArrowArrayStream, Library, c_char_p, c_void_p  # noqa: E402

NONE = 0xFFFFFFFF
#: Units without any step, in the loop, and some with many.
PROGRAM = """
#define APART __attribute__((noinline))
volatile int sum;
APART int loop(int n) { for (int i = 0; i < n; i++) if (i % 3) sum += i; else sum ^= i; return sum; }
APART int leaf(int n) { sum += n; return n; }
APART int calls(int n) { for (int i = 0; i < n; i++) sum += leaf(i); return sum; }
int main() { calls(3000); loop(40000); calls(3000); return 0; }
"""
CODE = ["code", "code_offset"]
TABLES = {
    "edges": ["count", "uncertain", "flags", "space", "ip", "symbol", "to", "to_symbol", "first_ns", *CODE, "to_code", "to_code_offset"],
    "block_counts": ["count", "uncertain", "space", "ip", "symbol", "instructions", "size_bytes", "hash", "first_ns", *CODE],
    "blocks": ["time_ns", "stream", "cpu", "pid", "tid", "comm", "ip", "symbol", "offset", "module", "instructions", "size_bytes", "taken", "marks"],
    "branches": ["time_ns", "stream", "cpu", "pid", "tid", "flags", "ip", "symbol", "to", "to_symbol", "marks"],
    "gaps": ["time_ns", "stream", "cpu", "pid", "tid", "reason", "ip", "symbol", "offset_bytes", "lost_bytes"],
    "events": ["time_ns", "stream", "cpu", "pid", "tid", "event", "ip", "to", "symbol", "to_symbol", "payload", "aux", "offset_bytes"],
}
SUMMED = {"edges", "block_counts"}
CALLS = ["pid", "tid", "comm", "cpu", "call", "module", "kind", "depth", "start_ns", "end_ns", "self_ns", "off_cpu_ns", "untraced_ns", "lost_ns",
         "instructions", "self_instructions", "cycles", "self_cycles", "start_seen", "end_seen"]
FUNCTIONS = ["function", "module", "calls", "partial", "self_instructions", "total_instructions", "self_ns", "total_ns", "off_cpu_ns", "untraced_ns",
             "lost_ns", "self_cycles", "total_cycles", "p50_ns", "p99_ns", "max_ns", "no_start", "no_end", *CODE]
#: The tables that one decode of a unit makes; the one with most rows first.
SHARED = {"calls": [*CALLS, "group"], **{name: TABLES[name] for name in ("edges", "block_counts", "gaps", "events")}}


class Control(ctypes.Structure):
    """ptd_control, with counts of the calls of its callbacks."""
    CANCELLED, PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p), ctypes.CFUNCTYPE(None, c_void_p, ctypes.c_uint64, ctypes.c_uint64)
    _fields_ = [("size", ctypes.c_size_t), ("user", c_void_p), ("cancelled", CANCELLED), ("progress", PROGRESS), ("cancel_flag", c_void_p)]

    def __init__(self, cancel=False):
        self.calls = collections.Counter()

        def cancelled(_):
            self.calls["cancelled"] += 1
            return int(cancel)

        def progress(*_):
            self.calls["progress"] += 1

        super().__init__(size=ctypes.sizeof(Control), cancelled=self.CANCELLED(cancelled), progress=self.PROGRESS(progress))


class CursorOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("kind", ctypes.c_int32), ("stream", ctypes.c_uint32), ("first_ns", ctypes.c_int64), ("last_ns", ctypes.c_int64),
                ("control", c_void_p), ("threads", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


class PlanOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("unit_bytes", ctypes.c_uint64), ("units", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("open", c_void_p)]


class Plans(Library):
    """The functions of plans."""

    def __init__(self, path):
        super().__init__(path)
        self.lib.ptd_plan_write.argtypes = [c_char_p, c_char_p, c_void_p, c_void_p]
        self.lib.ptd_plan_open.argtypes = [c_char_p, c_void_p, ctypes.c_uint64, c_void_p, c_void_p]
        self.lib.ptd_plan_json.argtypes = [c_void_p, c_void_p, c_void_p]
        self.lib.ptd_unit_steps.argtypes = [c_void_p, ctypes.c_uint32, c_char_p, c_void_p, c_void_p]
        self.lib.ptd_plan_table.argtypes = [c_void_p, c_char_p, ctypes.c_uint32, c_void_p, c_void_p, c_void_p, c_void_p]
        self.lib.ptd_unit_tables.argtypes = [c_void_p, ctypes.c_uint32, c_void_p, c_void_p, c_char_p, c_void_p, c_void_p]
        self.lib.ptd_cursor_open.argtypes = [c_void_p, c_void_p, c_void_p, c_void_p]
        self.opened = None  # a stream that is there already
        self.part = None  # (unit, steps): tables are read from a plan

    def plan(self, recording, output, unit_bytes):
        options, message = PlanOptions(size=ctypes.sizeof(PlanOptions), unit_bytes=unit_bytes), c_void_p()
        self.check(self.lib.ptd_plan_write(str(recording).encode(), str(output).encode(), ctypes.byref(options), ctypes.byref(message)), message)

    def open_plan(self, path, traces=None, flags=0):
        plan, message = c_void_p(), c_void_p()
        names = (c_char_p * (len(traces) + 1))(*[str(name).encode() for name in traces], None) if traces else None
        self.check(self.lib.ptd_plan_open(str(path).encode(), names, flags, ctypes.byref(plan), ctypes.byref(message)), message)
        return plan

    def describe(self, plan):
        text, message = c_void_p(), c_void_p()
        self.check(self.lib.ptd_plan_json(plan, ctypes.byref(text), ctypes.byref(message)), message)
        out = json.loads(ctypes.cast(text, c_char_p).value)
        self.lib.ptd_free(text)
        return out

    def steps(self, plan, unit, path):
        message = c_void_p()
        self.check(self.lib.ptd_unit_steps(plan, unit, str(path).encode(), None, ctypes.byref(message)), message)

    def stream(self, recording, table, columns=None, functions=None, **filters):
        if self.opened is not None:
            return self.opened
        if self.part is None:
            return super().stream(recording, table, columns, functions, **filters)
        unit, steps = self.part
        options = self.TableOptions(size=ctypes.sizeof(self.TableOptions), stream=NONE, cpu=-1, pid=-1, tid=-1, threads=1)
        if columns is not None:
            options.columns = (c_char_p * (len(columns) + 1))(*[name.encode() for name in columns], None)
        files = (c_char_p * (len(steps) + 1))(*[str(name).encode() for name in steps], None) if steps else None
        stream, message = ArrowArrayStream(), c_void_p()
        self.check(self.lib.ptd_plan_table(recording, table.encode(), unit, files, ctypes.byref(options), ctypes.byref(stream), ctypes.byref(message)),
                   message)
        return stream

    def rows(self, recording, table, unit=None, steps=None, columns=None):
        """All rows as tuples. `recording` is a plan if a unit or steps are given."""
        self.part = None if unit is None and steps is None else (NONE if unit is None else unit, steps)
        try:
            return [row for batch in self.batches(recording, table, columns=columns) for row in zip(*batch.values())]
        finally:
            self.part = None

    def unit_streams(self, plan, unit, path, tables, controls=None):
        """Streams of several tables of a unit, from one decode, which writes its steps to `path`. `tables`: (name, columns); `controls`: of each."""
        options, names = [], [name.encode() for name, _ in tables]
        for _, columns in tables:
            options.append(self.TableOptions(size=ctypes.sizeof(self.TableOptions), stream=NONE, cpu=-1, pid=-1, tid=-1, threads=1))
            options[-1].columns = (c_char_p * (len(columns) + 1))(*[name.encode() for name in columns], None)
            if controls:
                options[-1].control = ctypes.addressof(controls[len(options) - 1])
        pointers = (c_void_p * len(options))(*[ctypes.addressof(each) for each in options])
        streams, message = (ArrowArrayStream * len(names))(), c_void_p()
        self.check(self.lib.ptd_unit_tables(plan, unit, (c_char_p * (len(names) + 1))(*names, None), pointers, str(path).encode() if path else None, streams,
                                            ctypes.byref(message)), message)
        return streams

    def read(self, plan, name, stream):
        """All rows of a stream, which is released."""
        self.opened = stream
        try:
            return [row for batch in self.batches(plan, name) for row in zip(*batch.values())]
        finally:
            self.opened = None

    def unit_tables(self, plan, unit, path, tables):
        """All rows of several tables of a unit, from one decode, which writes its steps to `path`."""
        return {name: self.read(plan, name, stream) for name, stream in zip(tables, self.unit_streams(plan, unit, path, list(tables.items())))}


def summed(table, rows):
    """Adds up rows of several units."""
    names = TABLES[table]
    sums = {}
    at = {name: names.index(name) for name in names}
    mutable = {"count", "uncertain", "first_ns", "symbol", "to_symbol"}
    for row in rows:
        key = tuple(value for name, value in zip(names, row) if name not in mutable)
        known = sums.get(key)
        if known is None:
            sums[key] = list(row)
            continue
        early = lambda values: (values[at["first_ns"]] is None, values[at["first_ns"]] or 0)
        best = list(row) if early(row) < early(known) else list(known)
        for name in ("count", "uncertain"):
            best[at[name]] = row[at[name]] + known[at[name]]
        sums[key] = best
    return [tuple(row) for row in sums.values()]


def difference(want, got, limit=4):
    """Rows that only one of the two has, as text; empty: none."""
    more, fewer = collections.Counter(got) - collections.Counter(want), collections.Counter(want) - collections.Counter(got)
    if not more and not fewer:
        return ""
    return "\n".join([f"{sum(fewer.values())} rows are missing, {sum(more.values())} are new (of {len(want)})",
                      *(f"missing {row}" for row in list(fewer)[:limit]), *(f"new     {row}" for row in list(more)[:limit])])


def compare(library, recording, unit_bytes, folder, seed=1, trace=None):
    """Returns the differences between the units of a recording and the whole, by table, and the number of units."""
    plan_path = pathlib.Path(folder) / "run.plan"
    library.plan(recording, plan_path, unit_bytes)
    whole = library.open(recording)
    plan = library.open_plan(plan_path, trace)
    units = [unit["unit"] for unit in library.describe(plan)["units"]]
    order = units * 2  # in any order, with repeats
    random.Random(seed).shuffle(order)
    found = {}
    shared, files = {}, []
    for unit in order:
        files.append(pathlib.Path(folder) / f"unit-{unit}.steps")
        rows = library.unit_tables(plan, unit, files[-1], SHARED)
        contents = (rows, files[-1].read_bytes())
        if shared.setdefault(unit, contents) != contents:
            found["repeat"] = f"unit {unit} differs when it is decoded again"
    for table, columns in TABLES.items():
        parts = {unit: shared[unit][0][table] if table in SHARED else library.rows(plan, table, unit=unit, columns=columns) for unit in units}
        got = [row for unit in units for row in parts[unit]]
        want = library.rows(whole, table, columns=columns)
        text = difference(summed(table, want) if table in SUMMED else want, summed(table, got) if table in SUMMED else got)
        if text:
            found[table] = text
    for unit, path in zip(units, [pathlib.Path(folder) / f"unit-{unit}.steps" for unit in units]):
        library.steps(plan, unit, path)  # all steps too, which the table calls needs
        if path.read_bytes() != shared[unit][1]:
            found["steps"] = f"the steps of unit {unit} differ"
    library.close(plan)
    merged = library.open_plan(plan_path, flags=1)
    for table, columns in (("calls", CALLS), ("functions", FUNCTIONS),
                           ("threads", ["pid", "tid", "first_ns", "last_ns", "running_ns", "off_cpu_ns", "untraced_ns", "lost_ns", "instructions", "cycles", "gaps"])):
        text = difference(library.rows(whole, table, columns=columns), library.rows(merged, table, steps=files, columns=columns))
        if text:
            found[table] = text
    # The same calls from those of the units and those that no unit has.
    depths = {(unit, group): depth for unit, group, depth in library.rows(merged, "call_groups", steps=files)}
    depth_at, group_at = CALLS.index("depth"), len(CALLS)
    calls = library.rows(merged, "open_calls", steps=files, columns=CALLS)
    figures = {"open": len(calls)}
    for unit in units:
        for row in shared[unit][0]["calls"]:
            if (unit, row[group_at]) in depths:
                calls.append((*row[:depth_at], row[depth_at] + depths[unit, row[group_at]], *row[depth_at + 1:group_at]))
    text = difference(library.rows(whole, "calls", columns=CALLS), calls)
    if text:
        found["finished calls"] = text
    if os.environ.get("PTDECODE_FIGURES"):
        print(recording, len(units), "units", len(calls), "calls", figures, "groups", len(depths), "of", sum(len({row[group_at] for row in shared[unit][0]["calls"]}) for unit in units))
    text = difference(library.rows(whole, "findings"), library.rows(merged, "findings", unit=NONE))
    if text:
        found["findings"] = text
    library.close(whole)
    library.close(merged)
    return found, len(units)


class Units(unittest.TestCase):
    def setUp(self):
        self.library = Plans(LIBRARY)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="units-")))

    def test_equal(self):
        """Intel PT of a program that patches itself, of generated code and of a kernel; ETMv4 with changes of code."""
        for name, unit_bytes in (("user/patch.bundle", 2000), ("user/plain.bundle", 1000), ("user/jit.bundle", 9000), ("demo/data", 20000),
                                 ("arm/changes.bundle", 4000)):
            with self.subTest(recording=name):
                found, units = compare(self.library, SOURCE / "data" / name, unit_bytes, self.folder)
                self.assertEqual(found, {})
                self.assertGreater(units, 1)

    @unittest.skipUnless(shutil.which("qemu-x86_64") and "PTDECODE_PLUGIN" in os.environ, "needs qemu-x86_64 and the plugin")
    def test_cycles(self):
        """Cycles that a unit counts after its last step, or without any step, are in the merged tables."""
        source, program, recording = (self.folder / name for name in ("program.c", "program", "run.data"))
        source.write_text(PROGRAM)
        subprocess.run([os.environ.get("CC", "cc"), "-O1", source, "-o", program], check=True)
        self.command("record", "--emulate", "--no-stash", "--plugin", os.environ["PTDECODE_PLUGIN"], "--psb-period", 0, "--cyc", "-o", recording, "--", program)
        found, units = compare(self.library, recording, 3000, self.folder)
        self.assertEqual(found, {})
        self.assertGreater(units, 5)
        whole = self.library.open(recording)
        cycles = dict(self.library.rows(whole, "functions", columns=["function", "self_cycles"]))
        self.library.close(whole)
        self.assertGreater(cycles["loop"], 0)

    def test_whole_plan(self):
        """A plan opens like the recording that it was made from."""
        recording = SOURCE / "data/user/patch.bundle"
        self.library.plan(recording, self.folder / "run.plan", 3000)
        for table in ("branches", "functions", "versions", "findings"):
            whole, plan = self.library.open(recording), self.library.open(self.folder / "run.plan")
            self.assertEqual(difference(self.library.rows(whole, table), self.library.rows(plan, table)), "", table)
            self.library.close(whole)
            self.library.close(plan)

    def test_misuse(self):
        """What cannot be decoded is named."""
        recording = SOURCE / "data/demo/data"
        self.library.plan(recording, self.folder / "run.plan", 20000)
        plan = self.library.open_plan(self.folder / "run.plan")
        units = len(self.library.describe(plan)["units"])
        for unit in range(units - 1):
            self.library.steps(plan, unit, self.folder / f"{unit}.steps")
        files = [self.folder / f"{unit}.steps" for unit in range(units - 1)]
        with self.assertRaisesRegex(self.library.Failed, f"1 of {units} units are missing: {units - 1}"):
            self.library.rows(plan, "calls", steps=files)
        with self.assertRaisesRegex(self.library.Failed, "no such unit"):
            self.library.steps(plan, units, self.folder / "no.steps")
        with self.assertRaisesRegex(self.library.Failed, "not a plan"):
            self.library.rows(self.library.open(recording), "calls", unit=0)
        self.library.plan(recording, self.folder / "other.plan", 9000)
        with self.assertRaisesRegex(self.library.Failed, "of another plan"):
            self.library.rows(self.library.open_plan(self.folder / "other.plan"), "calls", steps=files)
        with self.assertRaisesRegex(self.library.Failed, "recording itself"):
            self.library.plan(self.folder / "run.plan", self.folder / "run.plan", 0)
        empty = self.folder / "empty"
        empty.write_bytes(b"")
        with self.assertRaisesRegex(self.library.Failed, "has 0 bytes, and had"):
            self.library.open_plan(self.folder / "run.plan", [empty])
        other = self.folder / "zeros"
        other.write_bytes(bytes(recording.stat().st_size))
        with self.assertRaisesRegex(self.library.Failed, "is not the one that was planned"):
            self.library.steps(self.library.open_plan(self.folder / "run.plan", [other]), 0, self.folder / "no.steps")

    def test_other_trace(self):
        """A plan does not decode a file that is not the trace that was planned, whichever way it is opened."""
        trace = self.folder / "data"
        trace.write_bytes((SOURCE / "data/demo/data").read_bytes())
        self.library.plan(trace, self.folder / "run.plan", 9000)
        trace.write_bytes(bytes(trace.stat().st_size))
        wrong = "is not the one that was planned"
        with self.assertRaisesRegex(self.library.Failed, wrong):
            self.library.open(self.folder / "run.plan")
        plan = self.library.open_plan(self.folder / "run.plan")
        for table in (*TABLES, "calls", "functions"):
            for unit in (None, NONE, 1):
                with self.subTest(table=table, unit=unit), self.assertRaisesRegex(self.library.Failed, wrong):
                    self.library.rows(plan, table, unit=unit)
        with self.assertRaisesRegex(self.library.Failed, wrong):
            self.library.rows(plan, "threads", columns=["tid", "instructions"])
        self.assertGreater(len(self.library.rows(plan, "threads")), 0)  # needs no trace
        self.library.rows(plan, "findings")
        for kind in (0, 1, 2):
            cursor, message = c_void_p(), c_void_p()
            options = CursorOptions(size=ctypes.sizeof(CursorOptions), kind=kind, stream=NONE)
            with self.assertRaisesRegex(self.library.Failed, wrong):
                self.library.check(self.library.lib.ptd_cursor_open(plan, ctypes.byref(options), ctypes.byref(cursor), ctypes.byref(message)), message)
        self.library.close(plan)

    def test_callbacks(self):
        """Of streams that share a decode, only the one that is read calls its callbacks; if it is cancelled, the others can be read."""
        self.library.plan(SOURCE / "data/demo/data", self.folder / "run.plan", 1 << 20)
        plan = self.library.open_plan(self.folder / "run.plan")
        tables = [(name, TABLES[name]) for name in ("edges", "gaps", "events")]
        want = self.library.unit_tables(plan, 0, None, dict(tables))
        controls = [Control(), Control(cancel=True), Control()]
        streams = self.library.unit_streams(plan, 0, None, tables, controls)
        streams[0].release(ctypes.byref(streams[0]))  # from here on, its callbacks may be gone
        with self.assertRaisesRegex(self.library.Failed, "cancelled"):
            self.library.read(plan, "gaps", streams[1])
        self.assertEqual(self.library.read(plan, "events", streams[2]), want["events"])
        self.assertEqual(controls[0].calls, {})
        self.assertEqual(controls[1].calls, {"cancelled": 1})
        self.assertGreater(controls[2].calls["cancelled"], 0)
        self.assertGreater(controls[2].calls["progress"], 0)

    def test_calls_twice(self):
        """The rows of `calls` go to one stream."""
        self.library.plan(SOURCE / "data/user/patch.bundle", self.folder / "run.plan", 2000)
        plan = self.library.open_plan(self.folder / "run.plan")
        with self.assertRaisesRegex(self.library.Failed, "'calls' of a unit is named twice"):
            self.library.unit_streams(plan, 0, None, [("calls", CALLS), ("edges", TABLES["edges"]), ("calls", CALLS)])

    def test_damaged(self):
        """Damaged plans and files of steps give an error or rows, and no crash."""
        recording = SOURCE / "data/user/plain.bundle"
        self.library.plan(recording, self.folder / "run.plan", 1000)
        plan = self.library.open_plan(self.folder / "run.plan")
        steps = [self.folder / f"{unit['unit']}.steps" for unit in self.library.describe(plan)["units"]]
        for unit, path in enumerate(steps):
            self.library.steps(plan, unit, path)
        chance, failed = random.Random(7), 0
        follow = lambda: [self.library.rows(plan, table, steps=steps) for table in ("functions", "call_groups", "calls")]
        for path, read in ((steps[0], follow), (self.folder / "0.steps.all", follow), (self.folder / "run.plan", self.read_plan)):
            good = path.read_bytes()
            for _ in range(150):
                bad = bytearray(good)
                for _ in range(chance.choice((1, 1, 3))):
                    bad[chance.randrange(len(bad))] = chance.randrange(256)
                path.write_bytes(bad[:chance.randrange(len(bad))] if chance.random() < 0.3 else bad)
                try:
                    read()
                except self.library.Failed:
                    failed += 1
            path.write_bytes(good)
        self.assertGreater(failed, 200)  # all parts have checksums

    def read_plan(self):
        plan = self.library.open_plan(self.folder / "run.plan")
        try:
            for unit in self.library.describe(plan)["units"]:
                self.library.rows(plan, "edges", unit=unit["unit"])
        finally:
            self.library.close(plan)

    def test_commands(self):
        """The command line gives the rows of the C API."""
        recording, plan, results, merged = self.folder / "run.ptb", self.folder / "run.plan", self.folder / "results", self.folder / "all"
        shutil.copy(SOURCE / "data/user/patch.bundle", recording)
        self.command("plan", recording, "-o", plan, "--units", 4, "--quiet")
        moved = recording.rename(self.folder / "elsewhere")
        units = [json.loads(line) for line in self.command("unit", plan, "--json").splitlines()]  # which ranges a machine needs
        moved.rename(recording)
        self.assertGreater(len(units), 3)
        for unit in reversed(units):
            self.command("unit", plan, unit["unit"], "-o", results)
        before = {path.name: path.read_bytes() for path in results.iterdir()}
        self.command("unit", plan, 1, "-o", results)
        self.assertEqual({path.name: path.read_bytes() for path in results.iterdir()}, before)
        self.command("merge", plan, results, "-o", merged)
        whole = self.library.open(recording)
        for table in ("edges", "block_counts", "gaps", "events", "calls", "functions", "findings"):
            columns = TABLES.get(table)
            rows = [json.loads(line) for line in (merged / f"{table}.jsonl").read_text().splitlines()]
            got = [tuple(row[name] for name in columns or row) for row in rows] if table not in ("gaps", "events") else [
                tuple(row[name] for name in row) for row in rows]
            if table in ("gaps", "events"):
                columns = list(rows[0]) if rows else columns
            self.assertEqual(difference(self.library.rows(whole, table, columns=columns), got), "", table)
        (results / "unit-00002.steps").unlink()
        failed = subprocess.run([COMMAND, "merge", plan, results, "-o", merged], capture_output=True, text=True, check=False)
        self.assertEqual(failed.returncode, 1, failed.stderr)
        self.assertIn(f"1 of {len(units)} units are missing there: 2", failed.stderr)

    def command(self, *words):
        done = subprocess.run([COMMAND, *(str(word) for word in words)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
