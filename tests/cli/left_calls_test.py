#!/usr/bin/env python3
"""Exceptions, longjmp and siglongjmp out of recursive calls. The program knows how many calls of its function are open, and says so by the
function that it calls: its level.

Environment: PTDECODE, PTDECODE_LIBRARY (may be empty), PTDECODE_PLUGIN, PTDECODE_SOURCE, CXX. Exit status 77 without qemu-x86_64.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests" / "tables"))
from arrow_reader import Library  # noqa: E402

PROGRAM = SOURCE / "tests" / "cli" / "programs" / "left_calls.cc"
CXX = os.environ.get("CXX", "c++")
CLANG = next(filter(None, map(shutil.which, ("clang++", "clang++-14", "clang++-19"))), None)
EXCEPTIONS = ("cleans", "passes", "nests")
JUMPS = ("from_first", "chained", "retries", "signalled")


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    assert done.returncode == 0, (words, done.stderr)
    return done


class LeftCalls(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def build(self, *words):
        run(*words, PROGRAM, "-o", self.folder / "left_calls")

    def record(self, kind, *options):
        """Records the program. Returns how often it called each mark."""
        program = self.folder / "left_calls"
        done = run(PTDECODE, "record", "-q", "--emulate", *options, "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", self.folder / "data", "--",
                   program, *kind.split())
        return [int(word) for word in done.stdout.split()]

    def check(self, path, counts):
        """Each mark is as much deeper than mark0 as its level says. Returns the messages."""
        done = run(PTDECODE, "script", "--format", "json", "-S", "mark*", "-i", path)
        marks = [json.loads(line) for line in done.stdout.splitlines()[1:]]
        found = collections.Counter((mark["call"], mark["depth"]) for mark in marks)
        base = next(mark["depth"] for mark in marks if mark["call"] == "mark0")
        self.assertEqual(found, {(f"mark{level}", base + level): count for level, count in enumerate(counts) if count != 0})
        self.check_listing(path, counts)
        return done.stderr

    def check_listing(self, path, counts):
        """The same of the listing of calls, which are indented by two columns for each open call."""
        found = collections.Counter()
        for line in run(PTDECODE, "script", "--call-trace", "-q", "-i", path).stdout.splitlines():
            mark = re.search(r"^.*\) ( *)(mark\d)\b", line)
            if mark and "<-" not in line:
                found[mark[2], len(mark[1]) // 2] += 1
        base = next(depth for name, depth in found if name == "mark0")
        self.assertEqual(found, {(f"mark{level}", base + level): count for level, count in enumerate(counts) if count != 0})

    def check_all(self, kinds, *words):
        self.build(*words)
        for kind in kinds:
            with self.subTest(kind=kind, build=words):
                said = self.check(self.folder / "data", self.record(kind))
                # Only these have called setjmp in several open calls.
                self.assertEqual("may have been meant" in said, kind == "chained", said)
                self.check_table(said)

    def check_table(self, said):
        """The table threads has the same number of guesses as the message."""
        if not os.environ.get("PTDECODE_LIBRARY"):
            return
        library = Library(os.environ["PTDECODE_LIBRARY"])
        recording = library.open(self.folder / "data")
        self.addCleanup(library.close, recording)
        guessed = re.search(r"a recursive function (?:(\d+) times|once)", said)
        self.assertEqual(sum(row["guessed_longjmps"] for row in library.rows(recording, "threads", columns=["guessed_longjmps"])), int(guessed[1] or 1) if guessed else 0)

    def test_exceptions(self):
        self.check_all(EXCEPTIONS, CXX, "-O0", "-static")
        self.check_all(EXCEPTIONS, CXX, "-O2", "-shared-libgcc", "-s", "-rdynamic")

    def test_jumps(self):
        self.check_all(JUMPS, CXX, "-O0")
        self.check_all(JUMPS, CXX, "-O2", "-static", "-D_FORTIFY_SOURCE=2")

    @unittest.skipUnless(CLANG, "no clang++")
    def test_clang(self):
        self.check_all(EXCEPTIONS + JUMPS, CLANG, "-O2")

    @unittest.skipUnless(shutil.which("aarch64-linux-gnu-g++") and shutil.which("qemu-aarch64"), "no compiler or emulator for aarch64")
    def test_aarch64(self):
        self.check_all(("cleans", "nests", "from_first", "chained", "dives 1000"), "aarch64-linux-gnu-g++", "-O2", "-static")

    def test_jumps_out_of_any_number_of_calls(self):
        """Of more than 65536 open calls, the deepest ones only count."""
        self.build(CXX, "-O1")
        for depth in (252, 253, 1000, 60000, 65540):
            with self.subTest(depth=depth):
                said = self.check(self.folder / "data", self.record(f"dives {depth}"))
                self.assertNotIn("may have been meant", said)
                rows = [json.loads(line) for line in run(PTDECODE, "functions", "--format", "json", "-i", self.folder / "data").stdout.splitlines()]
                dives, deeper = next(row for row in rows if row.get("function", "").startswith("dives")), rows[0]["calls_too_deep"]
                self.assertEqual(dives["no_end"], 0)
                if depth <= 60000:
                    self.assertEqual((dives["calls"], deeper), (4 * (depth + 1), 0))
                else:
                    self.assertLess(dives["calls"], 4 * (depth + 1))
                    self.assertGreaterEqual(dives["calls"] + deeper, 4 * (depth + 1))

    def test_bundles_and_units(self):
        """A bundle, which has no file of the program, gives the same calls, and so does a merge of units, which follows groups of calls."""
        for kind in ("cleans", "chained", "dives 1000", "dives 65540"):
            with self.subTest(kind):
                self.build(CXX, "-O2")
                counts = self.record(kind)
                run(PTDECODE, "bundle", "-q", "-i", self.folder / "data", "-o", self.folder / "small.bundle")
                run(PTDECODE, "plan", "-q", "-i", self.folder / "data", "-o", self.folder / "run.plan", "--units", "3")
                said = run(PTDECODE, "functions", "--no-inline", "--format", "json", "-i", self.folder / "data").stdout
                (self.folder / "left_calls").unlink()
                self.check(self.folder / "small.bundle", counts)
                self.check(self.folder / "run.plan", counts)
                units, tables = self.folder / (kind.replace(" ", "") + ".units"), self.folder / (kind.replace(" ", "") + ".tables")
                for unit in range(len(run(PTDECODE, "unit", self.folder / "run.plan").stdout.splitlines()) - 1):
                    run(PTDECODE, "unit", self.folder / "run.plan", unit, "-o", units)
                run(PTDECODE, "merge", self.folder / "run.plan", units, "-o", tables)
                self.assertEqual(self.sums((tables / "functions.jsonl").read_text()), self.sums(said))

    @staticmethod
    def sums(lines):
        rows = [json.loads(line) for line in lines.splitlines()]
        return sorted((row["function"], row["module"], row["calls"], row["total_ns"], row["total_instructions"], row["p99_ns"]) for row in rows if row.get("calls"))


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("qemu-x86_64 is not installed")
        sys.exit(77)
    unittest.main(verbosity=2)
