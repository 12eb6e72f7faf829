#!/usr/bin/env python3
"""Functions that clang splits into sections (NAME.__part.N, NAME.cold, NAME.eh): calls, coverage and profiles are those of the program that is not split.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE. Exit status 77 without qemu-x86_64 or clang.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from recorded_programs import PROGRAMS, RecordedPrograms  # noqa: E402

CLANG = next(filter(None, map(shutil.which, ("clang++", "clang++-14", "clang++-19"))), None)
FUNCTIONS = {"leaf", "plain", "recurses(int)", "throws(int)", "catches(int)", "ends_in_call(int)", "main"}
# Blocks by section; of the other blocks, what catches exceptions is in NAME.eh, and the rest in NAME.cold.
SECTIONS = """!plain
!!0 1
!!3 4
!_Z8recursesi
!!0 2
!_Z7catchesi
!!0
!!2
!!3
!!4
!!6
"""


class Split(RecordedPrograms):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "sections").write_text(SECTIONS)
        cls.split = []
        for dwarf in ("-gdwarf-4", "-gdwarf-5"):
            for sections in ("all", "list=sections"):
                cls.split.append(f"split{dwarf}-{sections[:4].strip('=')}")
                cls.build(cls.split[-1], CLANG, "-O2", dwarf, f"-fbasic-block-sections={sections}", source="split")
        cls.build("whole", CLANG, "-O2", source="split")

    def run_it(self, name, *words):
        done = subprocess.run([os.environ["PTDECODE"], *map(str, words), "-q", "-i", self.data(name)], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def symbols(self, name):
        return subprocess.run(["nm", self.folder / name], capture_output=True, text=True, check=True).stdout

    def test_the_programs_are_split(self):
        for name in self.split:
            self.assertRegex(self.symbols(name), r" plain\.__part\.1\n", name)
            self.assertRegex(self.symbols(name), r" _Z7catchesi\.eh\n", name)
        self.assertNotIn(".__part", self.symbols("whole"))

    def calls(self, name):
        rows = [json.loads(line) for line in self.run_it(name, "functions", "--format", "json").splitlines()]
        return {row["function"]: (row["calls"], row["no_start"], row["no_end"]) for row in rows if row.get("module") == name}

    def test_calls(self):
        want = self.calls("whole")
        self.assertLessEqual(FUNCTIONS, set(want))
        for name in self.split:
            self.assertEqual(self.calls(name), want, name)

    def coverage(self, name):
        record = self.run_it(name, "coverage", "--format", "lcov", "--source", PROGRAMS.resolve())
        return dict(reversed(each.split(",")) for each in re.findall(r"^FNDA:(.*)$", record, re.M)), re.findall(r"^DA:(.*)$", record, re.M)

    def test_coverage(self):
        functions, lines = self.coverage("whole")
        self.assertEqual(set(functions), FUNCTIONS)
        self.assertEqual({name for name, count in functions.items() if count == "0"}, set())
        for name in self.split:
            self.assertEqual(self.coverage(name)[0], functions, name)
            self.assertEqual(len(self.coverage(name)[1]), len(lines), name)

    def contexts(self, name):
        text = self.run_it(name, "profile", "--format", "csspgo")
        contexts = re.findall(r"^\[(.*)\]:\d+:\d+$", text, re.M)
        return {each for each in contexts if re.search(r"(^| @ )(leaf|plain|_Z8recursesi|_Z6throwsi|_Z7catchesi)[^@]*$", each)}

    def test_profiles_by_context(self):
        want = self.contexts("whole")
        self.assertTrue(any(each.endswith("@ main:4 @ _Z7catchesi:3 @ _Z6throwsi") for each in want), want)
        for name in self.split:
            self.assertEqual(self.contexts(name), want, name)


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64") or not CLANG:
        print("skipped: no qemu-x86_64 or no clang")
        sys.exit(77)
    unittest.main()
