"""Tables of the C API against the JSON of the command line, row by row, read with ctypes and by a C program.

usage: tables_test.py LIBPTDECODE PTDECODE SOURCE [PRINT_TABLE]
"""
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from arrow_reader import Library

LIBRARY, PTDECODE, SOURCE, PRINT_TABLE = [*sys.argv[1:5], None][:4]
DATA = pathlib.Path(SOURCE) / "data"
sys.path.insert(0, str(pathlib.Path(SOURCE) / "tests/capi"))
import lossy_demo  # noqa: E402

TEMPORARY = tempfile.TemporaryDirectory()
LOSSY = lossy_demo.make(DATA / "demo", pathlib.Path(TEMPORARY.name) / "lossy")
CORPUS = pathlib.Path(os.environ.get("PTDECODE_CORPUS", pathlib.Path(SOURCE) / ".." / "shared" / "corpus"))
UNTIMED = CORPUS / "ete_mem/snapshot"


def recordings():
    """User and kernel Intel PT, ETMv4, ETE, and recordings with gaps."""
    own = [DATA / "user/plain.bundle", DATA / "user/jit.bundle", DATA / "user/pair.bundle", DATA / "demo/data", DATA / "arm/threads.bundle"]
    shared = [CORPUS / "pt-perfdata-skylake/perf.data", CORPUS / "cs-simpleperf-etm/perf.data", CORPUS / "ete-tme_tcancel/snapshot"]
    return own + [LOSSY] + [path for path in shared if path.exists()]


def command(*words):
    """Returns the lines of JSON after the first, which names the schema."""
    made = subprocess.run([PTDECODE, *words, "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert made.returncode in (0, 1, 3), made.stderr.decode()
    return [json.loads(line) for line in made.stdout.splitlines()][1:]


def numbers(row):
    """Converts a JSON row, which has addresses as text, and marks as a list."""
    row = {name: int(value, 16) if name in ("ip", "to") else value for name, value in row.items()}
    if "marks" in row:
        row["marks"] = " ".join(row["marks"])
    return row


def known(row):
    """Returns the row without the fields of an unknown thread, as in tables."""
    return {name: value for name, value in row.items() if not (name in ("pid", "tid") and value < 0) and not (name == "comm" and not value)}


class CProgram:
    """Has the interface of Library; a recording is a path."""

    @staticmethod
    def open(path):
        return path

    @staticmethod
    def close(recording):
        pass

    @staticmethod
    def rows(recording, table, columns=()):
        done = subprocess.run([PRINT_TABLE, recording, table, *columns], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]


class Rows:
    """What the command line lists as rows: the same for each reader of tables."""
    maxDiff = 2000
    reader = None

    @classmethod
    def setUpClass(cls):
        cls.library = cls.reader()

    def each(self, check):
        """Calls check(path, recording) for each recording."""
        for path in recordings():
            with self.subTest(path=str(path)):
                recording = self.library.open(path)
                try:
                    check(path, recording)
                finally:
                    self.library.close(recording)

    def same_by_stream(self, ours, theirs):
        """The orders within streams agree; the interleaving of streams may differ."""
        def split(rows):
            streams = {}
            for row in rows:
                streams.setdefault((row.get("cpu"), None if "cpu" in row else row.get("tid")), []).append(row)
            return streams
        ours, theirs = split(ours), split(theirs)
        self.assertEqual({key: len(rows) for key, rows in ours.items()}, {key: len(rows) for key, rows in theirs.items()})
        for key, rows in ours.items():
            for mine, other in zip(rows, theirs[key]):
                if mine != other:
                    self.assertEqual(mine, other)

    FIELDS = "comm,pid,tid,cpu,time,ip,sym,symoff,dso,addr,flags"
    PLACES = ["ip", "symbol", "offset", "module"]
    CONTEXT = ["time_ns", "cpu", "pid", "tid", "comm"]

    def test_branches(self):
        def check(path, recording):
            columns = self.CONTEXT + self.PLACES + ["to", "to_symbol", "to_offset", "to_module", "flags", "marks"]
            ours = self.library.rows(recording, "branches", columns=columns)
            lines = command("script", "-i", path, "--format", "json", "--itrace=b", "-F", self.FIELDS)
            theirs = [known(numbers({k: v for k, v in line.items() if k != "kind"})) for line in lines if line["kind"] == "branch"]
            self.same_by_stream(ours, theirs)
        self.each(check)

    def test_gaps(self):
        found = []
        def check(path, recording):
            columns = self.CONTEXT + self.PLACES + ["reason", "offset_bytes", "lost_bytes"]
            ours = self.library.rows(recording, "gaps", columns=columns)
            lines = command("script", "-i", path, "--format", "json", "--itrace=e", "-F", self.FIELDS)
            theirs = [known(numbers({k: v for k, v in line.items() if k != "kind"})) for line in lines if line["kind"] == "gap"]
            self.same_by_stream(ours, theirs)
            found.extend(ours)
        self.each(check)
        self.assertGreater(len(found), 10)

    def test_calls(self):
        def check(path, recording):
            lines = command("script", "-i", path, "--format", "json")
            theirs = [known(line) for line in lines if "call" in line]
            ours = [dict(row) for row in self.library.rows(recording, "calls")]
            self.assertEqual(len(ours), len(theirs))
            for mine, other in zip(ours, theirs):
                if mine != other:
                    self.assertEqual(mine, other)
        self.each(check)

    @unittest.skipUnless(UNTIMED.exists(), "no corpus")
    def test_calls_without_time_have_none(self):
        recording = self.library.open(UNTIMED)
        calls = self.library.rows(recording, "calls")
        functions = self.library.rows(recording, "functions")
        threads = self.library.rows(recording, "threads", columns=["tid", "first_ns", "last_ns", "running_ns", "off_cpu_ns", "untraced_ns", "lost_ns", "instructions"])
        self.library.close(recording)
        for rows in (calls, functions, threads):
            self.assertGreater(len(rows), 0)
            self.assertGreater(sum(row["instructions" if "instructions" in row else "self_instructions"] for row in rows), 0)
            self.assertEqual([row for row in rows if any(name.endswith("_ns") for name in row)], [])
        self.assertEqual(calls, [known(line) for line in command("script", "-i", UNTIMED, "--format", "json") if "call" in line])

    def test_functions(self):
        def check(path, recording):
            lines = command("functions", "-i", path, "--format", "json", "--limit", "0")
            theirs = [line for line in lines if "function" in line]
            ours = self.library.rows(recording, "functions")
            self.assertEqual(len(ours), len(theirs))
            for mine, other in zip(ours, theirs):
                # The JSON omits times if there are none, and has null where the table leaves a value out.
                mine = {name: value for name, value in mine.items() if name in other}
                other = {name: value for name, value in other.items() if name in mine or value not in (0, None)}
                if mine != other:
                    self.assertEqual(mine, other)
        self.each(check)


@unittest.skipIf(PRINT_TABLE is None, "no PRINT_TABLE")
class RowsOfC(Rows, unittest.TestCase):
    reader = CProgram


class Tables(Rows, unittest.TestCase):
    reader = functools.partial(Library, LIBRARY)

    def test_edges_count_branches(self):
        def check(path, recording):
            counts = {}
            for row in self.library.rows(recording, "branches", columns=["ip", "to", "flags"]):
                if "ip" in row and "to" in row:
                    key = (row["ip"], row["to"], row["flags"])
                    counts[key] = counts.get(key, 0) + 1
            edges = {}
            for row in self.library.rows(recording, "edges", columns=["count", "ip", "to", "flags"]):
                key = (row["ip"], row["to"], row["flags"])
                edges[key] = edges.get(key, 0) + row["count"]
            self.assertEqual(edges, counts)
        self.each(check)

    def test_blocks_sum_to_stat(self):
        def check(path, recording):
            made = subprocess.run([PTDECODE, "stat", "-i", path, "--json", "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
            total = sum(row["instructions"] for row in self.library.rows(recording, "blocks", columns=["instructions"]))
            self.assertEqual(total, sum(stream["instructions"] for stream in json.loads(made.stdout)["streams"]))
        self.each(check)

    def test_findings(self):
        def check(path, recording):
            made = subprocess.run([PTDECODE, "check", "-i", path, "--json", "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
            theirs = [finding["kind"] for finding in json.loads(made.stdout)["findings"] if finding["kind"] not in ("flow_contradicts", "times_contradict", "trace_damaged")]
            self.assertEqual([row["kind"] for row in self.library.rows(recording, "findings")], theirs)
        self.each(check)

    def test_versions_are_of_code_that_changed(self):
        recording = self.library.open(DATA / "demo/data")
        rows = self.library.rows(recording, "versions")
        sites = {}
        for row in rows:
            sites.setdefault(row["site"], []).append(row)
        self.assertTrue(sites)
        for versions in sites.values():
            self.assertEqual([row["version"] for row in versions], list(range(len(versions))))
            for row in versions:
                self.assertEqual(len(row.get("bytes", b"x" * row["size_bytes"])), row["size_bytes"])
            for before, after in zip(versions, versions[1:]):
                self.assertNotEqual(before.get("bytes"), after.get("bytes"))
                if "certain_last_ns" in before and "certain_first_ns" in after:
                    self.assertLess(before["certain_last_ns"], after["certain_first_ns"])
        self.library.close(recording)

    def test_batches_and_filters(self):
        recording = self.library.open(DATA / "demo/data")
        all_rows = self.library.rows(recording, "branches")
        sizes = [len(next(iter(batch.values()))) for batch in self.library.batches(recording, "branches", batch_rows=1000)]
        self.assertEqual(sum(sizes), len(all_rows))
        self.assertEqual(set(sizes[:-1]), {1000})
        times = sorted(row["time_ns"] for row in all_rows)
        first, last = times[len(times) // 3], times[len(times) // 2]
        some = self.library.rows(recording, "branches", first_ns=first, last_ns=last, cpu=1)
        inside = [row for row in all_rows if first <= row["time_ns"] <= last and row["cpu"] == 1]
        self.assertTrue(inside)
        # The number of instructions executed before the first branch of the window depends on where decoding began.
        drop = lambda rows: [{k: v for k, v in row.items() if k != "instructions"} for row in rows]
        self.assertEqual(drop(some), drop(inside))
        names = {row["symbol"] for row in all_rows if "symbol" in row}
        self.assertTrue(names)
        calls = self.library.rows(recording, "calls")
        name = calls[0]["call"]
        self.assertEqual(self.library.rows(recording, "calls", functions=[name]), [row for row in calls if row["call"] == name])
        self.library.close(recording)

    def test_each_call_is_of_a_cpu(self):
        """Also those that are open at the end of the trace."""
        recording = self.library.open(DATA / "kernel/kernel.bundle")
        calls = self.library.rows(recording, "calls", columns=["cpu", "end_seen"])
        self.assertGreater(len([row for row in calls if not row["end_seen"]]), 10)
        cpus = sorted({row.get("cpu", -1) for row in calls})
        self.assertEqual(cpus, [0, 1])
        rows = [self.library.rows(recording, "functions", columns=["self_instructions"], cpu=cpu) for cpu in (*cpus, -1)]
        *parts, whole = [sum(row["self_instructions"] for row in each) for each in rows]
        self.assertEqual(sum(parts), whole)
        self.library.close(recording)

    def test_filters_choose_the_idle_task(self):
        """By its pid, its tid and both. Its rows have one name in all tables."""
        for path in (DATA / "kernel/kernel.bundle", DATA / "arm_kernel/kernel.bundle"):
            recording = self.library.open(path)
            ask = functools.partial(self.library.rows, recording)
            for table, columns in (("calls", ["pid", "tid", "comm"]), ("branches", ["pid", "tid", "comm"]), ("blocks", ["pid", "tid", "instructions"]),
                                   ("functions", ["self_instructions"]), ("threads", ["pid", "tid", "comm", "instructions"])):
                with self.subTest(path=path, table=table):
                    rows = ask(table, columns=columns, pid=0, tid=0)
                    self.assertTrue(rows)
                    self.assertEqual({(row["pid"], row["tid"]) for row in rows if "pid" in columns}, {(0, 0)} if "pid" in columns else set())
                    self.assertEqual({row["comm"] for row in rows if "comm" in columns}, {"swapper"} if "comm" in columns else set())
                    for who in ({"pid": 0}, {"tid": 0}):
                        self.assertTrue(rows == ask(table, columns=columns, **who), who)
            executed = [sum(row[name] for row in ask(table, columns=[name], pid=0))
                        for table, name in (("threads", "instructions"), ("functions", "self_instructions"), ("blocks", "instructions"))]
            self.assertGreater(executed[0], 0)
            self.assertEqual(executed[0], executed[1])
            self.assertGreaterEqual(executed[2], executed[0])
            self.library.close(recording)

    def test_filters_of_threads_choose_among_its_rows(self):
        recording = self.library.open(DATA / "arm_kernel/kernel.bundle")
        columns = ["pid", "tid", "comm", "instructions"]
        rows = self.library.rows(recording, "threads", columns=columns)
        self.assertGreater(len(rows), 10)
        for row in rows[:3]:
            for some in (columns[:3], columns):
                self.assertEqual(self.library.rows(recording, "threads", columns=some, pid=row["pid"], tid=row["tid"]), [{name: row[name] for name in some if name in row}])
        self.library.close(recording)

    def test_blocks_of_all_streams_are_those_of_each(self):
        """A stream's code is freed when it ends; rows that wait for the rest of their batch have its bytes. MALLOC_PERTURB_ overwrites what is freed."""
        recording = self.library.open(DATA / "arm/threads.bundle")
        columns = ["stream", "ip", "bytes"]
        by_stream = {}
        for row in self.library.rows(recording, "blocks", columns=columns):
            by_stream.setdefault(row["stream"], []).append(row)
        self.assertGreater(len(by_stream), 2)
        for stream, rows in by_stream.items():
            self.assertTrue(rows == self.library.rows(recording, "blocks", columns=columns, stream=stream), stream)
        self.library.close(recording)

    def test_rows_do_not_depend_on_batches_and_columns(self):
        names = ["marks", "instructions", "to_module", "to_offset", "to_symbol", "to", "module", "offset", "symbol", "ip", "flags", "comm", "tid",
                 "pid", "cpu", "stream", "time_ns"]
        for path in (DATA / "demo/data", LOSSY):
            recording = self.library.open(path)
            window = {"cpu": 1}
            rows = self.library.rows(recording, "branches", columns=names, **window)
            defaults = self.library.rows(recording, "branches", **window)
            self.assertTrue(rows)
            extra = ("comm", "stream", "offset", "module", "to_offset", "to_module")
            self.assertEqual(defaults, [{name: value for name, value in row.items() if name not in extra} for row in rows])
            for batch_rows in (1, 7, 512, 1000):
                self.assertEqual(self.library.rows(recording, "branches", columns=names, batch_rows=batch_rows, **window), rows)
            for some in (["to_symbol"], ["offset", "flags"], ["marks", "to"], ["ip", "ip", "tid", "tid", "comm", "comm"]):
                want = [{name: row[name] for name in some if name in row} for row in rows]
                self.assertEqual(self.library.rows(recording, "branches", columns=some, batch_rows=100, **window), want)
                for batch in self.library.batches(recording, "branches", columns=some, batch_rows=100, **window):
                    self.assertEqual(len({len(values) for values in batch.values()}), 1)
            self.library.close(recording)

    def test_the_page_has_all_columns(self):
        """docs/TABLES.md: the tables, their columns in order, and the optional ones."""
        text = (pathlib.Path(SOURCE) / "docs/TABLES.md").read_text()
        pages = {part.split("\n")[0]: part for part in text.split("\n## ")[1:]}
        recording = self.library.open(DATA / "demo/data")
        self.assertEqual(sorted(pages), sorted(self.library.lib.ptd_table_names().decode().split()))
        for table, page in pages.items():
            rows, _, more = page.partition("\nOn request")
            by_default = [name for line in rows.split("\n") if line.startswith("| `") for name in re.findall("`([^`]+)`", line.split("|")[1])]
            on_request = [name for name in re.findall("`([a-z0-9_]+)`", more)]
            with self.subTest(table=table):
                schema = self.library.schema(recording, table)
                self.assertEqual([name for name, _ in schema], by_default) if table not in self.GROUPED else self.assertEqual(
                    sorted(name for name, _ in schema), sorted(by_default))
                every = by_default + on_request
                self.assertEqual([name for name, _ in self.library.schema(recording, table, columns=every)], every)
                with self.assertRaises(Library.Failed) as failed:
                    self.library.schema(recording, table, columns=["-"])
                known = failed.exception.args[1].partition("it has ")[2].split(", ")
                self.assertEqual(sorted(known), sorted(every))
        self.library.close(recording)

    GROUPED = ("edges", "calls")  # a row of the page names columns that are not adjacent

    def test_refusals(self):
        recording = self.library.open(DATA / "demo/data")
        for table, options, words in (("nonsense", {}, "the tables are blocks, branches"), ("gaps", {"columns": ["no"]}, "it has time_ns"),
                                      ("blocks", {"stream": 99}, "no stream 99"), ("gaps", {"functions": ["x"]}, "calls"),
                                      ("gaps", {"first_ns": 5, "last_ns": 2}, "first_ns"), ("gaps", {"size": 3}, "size")):
            with self.subTest(table=table, **options), self.assertRaises(Library.Failed) as failed:
                self.library.stream(recording, table, **options)
            self.assertIn(words, failed.exception.args[1])
        self.library.close(recording)
        with self.assertRaises(Library.Failed):
            self.library.stream(recording, "gaps")

    def test_streams_outlive_the_handle_and_end_early(self):
        recording = self.library.open(DATA / "demo/data")
        batches = self.library.batches(recording, "calls", batch_rows=10)
        self.assertEqual(len(next(batches)["call"]), 10)
        self.library.close(recording)
        self.assertEqual(len(next(batches)["call"]), 10)
        batches.close()  # released while its thread has more rows


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:], verbosity=1)
