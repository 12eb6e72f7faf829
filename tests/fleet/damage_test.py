#!/usr/bin/env python3
"""Damaged, mixed and hostile plans and results of units. Usage: damage_test.py COMMAND SOURCE

The second source is the merge of undamaged results, and the content of the planned files.
"""
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

COMMAND, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
sys.path.insert(0, str(SOURCE / "tests/bundle"))
import parts  # noqa: E402
from parts import number  # noqa: E402


def run(*words):
    return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, check=False, timeout=120)


def contents_of(plan):
    return {kind: parts.content_of(part) for kind, part in parts.parts_of(plan.read_bytes()) if kind != b"END "}


def write_plan(path, contents):
    all_parts = [*contents.items(), (b"END ", struct.pack("<I", len(contents)))]
    path.write_bytes(b"PTDBUNDL" + struct.pack("<II", 1, 0) + b"".join(parts.part(kind, content) for kind, content in all_parts))


class Damage(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="damage-")))
        shutil.copytree(SOURCE / "data/demo", self.folder / "rec")
        self.plan = self.folder / "run.plan"
        self.good(run("plan", self.folder / "rec", "-o", self.plan, "--units", 4, "--quiet"))

    def good(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def planned_trace(self, path, size):
        """A plan in a folder of its own that says that its trace is the file `path`."""
        contents = contents_of(self.plan)
        old = str(self.folder / "rec/data").encode()
        record = number(len(old)) + old + number((self.folder / "rec/data").stat().st_size)
        self.assertEqual(contents[b"PLAN"].count(record), 1)
        name = str(path).encode()
        contents[b"PLAN"] = contents[b"PLAN"].replace(record, number(len(name)) + name + number(size))
        plan = self.folder / "elsewhere/evil.plan"
        plan.parent.mkdir(exist_ok=True)
        write_plan(plan, contents)
        return plan

    def test_results(self):
        """A merge names tables that are damaged, cut, of another unit, or of another plan, and does not add them up."""
        units = len(run("unit", self.plan).stdout.splitlines()) - 1
        results = self.folder / "results"
        for unit in range(units):
            self.good(run("unit", self.plan, unit, "-o", results))
        self.good(run("merge", self.plan, results, "-o", self.folder / "all"))
        edges, events, sums = (results / f"unit-00001.{name}" for name in ("edges.jsonl", "events.jsonl", "sums.json"))
        lines = edges.read_text().splitlines(keepends=True)
        nested = '{"count":1,"uncertain":0,"first_ns":null,"deep":' + "[" * 200000 + "]" * 200000 + "}\n"
        for path, content in ((edges, "".join(lines[:len(lines) // 2])), (edges, ""), (edges, (results / "unit-00000.edges.jsonl").read_text()),
                              (edges, "".join(lines) + nested), (events, events.read_text() + "[[["), (sums, "{}"), (sums, "[" * 60000),
                              (sums, (results / "unit-00000.sums.json").read_text())):
            before = path.read_text()
            path.write_text(content)
            done = run("merge", self.plan, results, "-o", self.folder / "bad")
            self.assertIn(done.returncode, (1, 2), (path.name, content[:40], done.stderr))
            self.assertIn(path.name, done.stderr)
            self.assertIn("decode unit 1 again", done.stderr)
            path.write_text(before)
            self.assertFalse((self.folder / "bad").exists())
        self.good(run("merge", self.plan, results, "-o", self.folder / "all"))
        sums.unlink()
        self.assertIn("1 of 4 units are missing there: 1", run("merge", self.plan, results, "-o", self.folder / "bad").stderr)
        self.assertFalse((self.folder / "bad").exists())

    def test_results_of_other_plans(self):
        """A merge refuses units of a plan of the same trace with other code or options. Equal inputs give an equal plan, whose results stay valid."""
        results, again, kcore = self.folder / "results", self.folder / "again.plan", self.folder / "rec/kcore_dir/kcore"
        for unit in range(4):
            self.good(run("unit", self.plan, unit, "-o", results))

        def plan_again(*words):
            self.good(run("plan", self.folder / "rec", "-o", again, "--units", 4, "--quiet", *words))

        plan_again()
        self.assertEqual(again.read_bytes(), self.plan.read_bytes())
        self.good(run("merge", again, results, "-o", self.folder / "all"))
        for words, code in (((), b"damaged"), (("--freeze",), None), (("--no-time",), None), (("--no-anchors",), None)):
            with self.subTest(words=words, code=code):
                kcore.rename(kcore.with_name("away"))
                kcore.write_bytes(code or kcore.with_name("away").read_bytes())
                plan_again(*words)
                kcore.with_name("away").rename(kcore)
                self.assertIn("of another plan", run("merge", again, results, "-o", self.folder / "bad").stderr)
                self.good(run("unit", again, 1, "-o", results))
                for plan in (self.plan, again):
                    done = run("merge", plan, results, "-o", self.folder / "bad")
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn("the steps are of another plan; decode its units again", done.stderr)
                self.good(run("unit", self.plan, 1, "-o", results))
                self.good(run("merge", self.plan, results, "-o", self.folder / "all"))

    def test_frozen(self):
        """A plan that was made with --freeze is decoded so, as the recording is."""
        self.good(run("plan", self.folder / "rec", "-o", self.folder / "frozen.plan", "--units", 4, "--quiet", "--freeze"))
        self.good(run("plan", "-i", self.folder / "frozen.plan", "-o", self.folder / "second.plan", "--units", 2, "--quiet"))
        want = run("functions", "-i", self.folder / "rec", "--freeze")
        self.assertNotEqual(want.stdout, run("functions", "-i", self.folder / "rec").stdout)
        for plan in ("frozen.plan", "second.plan"):
            self.assertEqual(run("functions", "-i", self.folder / plan).stdout, want.stdout)

    def test_nested_rows(self):
        """A row whose sums are right, but which is nested too deeply to be written, is refused."""
        units = len(run("unit", self.plan).stdout.splitlines()) - 1
        results = self.folder / "results"
        for unit in range(units):
            self.good(run("unit", self.plan, unit, "-o", results))
        edges, sums = results / "unit-00000.edges.jsonl", results / "unit-00000.sums.json"
        before = edges.read_bytes()
        content = b'{"count":1,"uncertain":0,"first_ns":null,"deep":' + b"[" * 200000 + b"]" * 200000 + b"}\n"
        edges.write_bytes(content)
        text = sums.read_text().replace(f"{parts.checksum(before):016x}", f"{parts.checksum(content):016x}").replace(f'"size_bytes":{len(before)},', f'"size_bytes":{len(content)},')
        sums.write_text(text)
        done = run("merge", self.plan, results, "-o", self.folder / "bad")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("a line is not a row of the table", done.stderr)
        self.assertFalse((self.folder / "bad").exists())
        (self.folder / "bad").mkdir()
        run("merge", self.plan, results, "-o", self.folder / "bad")
        self.assertTrue((self.folder / "bad").exists(), "it was there before")

    def test_leak(self):
        """A bundle of a plan does not contain a file outside of the plan's folder that the plan names as its trace."""
        size = (self.folder / "rec/data").stat().st_size
        secret = self.folder / "secret"
        secret.write_bytes((b"TOPSECRET " * size)[:size])
        plan, bundle = self.planned_trace(secret, size), self.folder / "out.ptb"
        for words in ((), ("--format", "lldb")):
            done = run("bundle", "-i", plan, "-o", bundle, *words)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(f"{secret}: outside the recording's folder", done.stderr)
            self.assertFalse(bundle.exists())
        self.good(run("bundle", "-i", self.plan, "-o", bundle))  # its trace is in its folder
        self.assertIn(b"AUX ", contents_of(bundle))

    def test_other_trace(self):
        """A plan whose trace file is another one of the same size is refused, by all commands."""
        trace = self.folder / "rec/data"
        trace.write_bytes(bytes(trace.stat().st_size))
        for words in (("stat", "-i", self.plan), ("functions", "-i", self.plan), ("unit", self.plan, 0, "-o", self.folder / "out")):
            done = run(*words)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn("is not the one that was planned", done.stderr)
        self.good(run("unit", self.plan))  # the list reads no trace

    def test_shared_pieces(self):
        """Pieces of one file, under any name, are together no larger than the file: a stream would be larger than all files."""
        trace = self.folder / "rec/data"
        other = self.folder / "rec/other"
        other.hardlink_to(trace)
        size, contents = trace.stat().st_size, contents_of(self.plan)
        for files, pieces, status in (((trace,), ((1, size // 2),) * 2, 0), ((trace,), ((1, size),) * 2, 1), ((trace, other), ((1, size), (2, size)), 1)):
            names = [str(path).encode() for path in files]
            listed = number(len(files)) + b"".join(number(len(name)) + name + number(size) for name in names)
            places = b"".join(number(file) + number(0) for file, _ in pieces)
            contents[b"PLAN"] = listed + number(1) + number(len(pieces)) + places + number(0) * 4
            sizes = b"".join(number(i * size) + number(piece) for i, (_, piece) in enumerate(pieces))
            contents[b"STRM"] = number(1) + number(0) + number(1) + number(0) + number(len(pieces)) + sizes + number(0) * 2
            contents[b"AUX "], contents[b"INDX"] = b"", number(0) * 7
            contents.pop(b"SPAN", None)
            write_plan(self.folder / "rec/evil.plan", contents)
            done = run("info", "-i", self.folder / "rec/evil.plan")
            self.assertEqual(done.returncode, status, (files, pieces, done.stderr))
            if status:
                self.assertIn("part 'STRM' of the bundle: its content is inconsistent", done.stderr)

    def test_units_without_streams(self):
        """A plan with units of a stream that it does not have is refused."""
        contents = contents_of(self.plan)
        unit = b"".join(map(number, (0, 0, 0, 1, 1, 1, 0, 1, 1)))  # stream, from, first, last, to, end, hash, interval
        contents[b"PLAN"] = number(0) + number(0) + number(1) + unit + number(0) + number(0) + number(0)
        contents[b"STRM"], contents[b"AUX "], contents[b"INDX"] = number(0), b"", number(0) * 3
        del contents[b"SPAN"]  # optional, and of as many streams
        write_plan(self.folder / "evil.plan", contents)
        for words in (("unit", self.folder / "evil.plan"), ("unit", self.folder / "evil.plan", 0, "-o", self.folder / "out"),
                      ("stat", "-i", self.folder / "evil.plan")):
            done = run(*words)
            self.assertEqual(done.returncode, 1, (words, done.returncode, done.stderr))
            self.assertIn("part 'PLAN' of the bundle: its content is inconsistent", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
