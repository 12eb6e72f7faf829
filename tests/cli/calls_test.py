#!/usr/bin/env python3
"""`ptdecode functions` against a replay of the ground truth: calls, own and total instructions of every function of three programs.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import call_replay  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
NAMES = ("calls", "sorter", "parser")


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300)


def json_lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.symbols = {}
        for name in NAMES:
            program = cls.folder / name
            subprocess.run([os.environ.get("CC", "cc"), "-O2", "-fno-inline", "-w", "-static", "-g", SOURCE / "tests/cli/programs" / (name + ".c"), "-o", program],
                           check=True)
            done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--cyc", "--truth", cls.folder / (name + ".truth"), "-o",
                       cls.folder / (name + ".data"), "--", program)
            assert done.returncode == 0, done.stderr
            cls.symbols[name] = call_replay.Symbols(program)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def data(self, name):
        return self.folder / (name + ".data")

    def replayed(self, name):
        truths = list((self.folder / (name + ".truth")).glob("*.ptt"))
        self.assertEqual(len(truths), 1)
        return call_replay.replay(truths[0], self.symbols[name])

    def test_functions_equal_the_replay_of_the_truth(self):
        for name in NAMES:
            totals, executed = self.replayed(name)
            done = run("functions", "-i", self.data(name), "--limit", "0", "--format", "json")
            self.assertEqual(done.returncode, 0, done.stderr)
            ours = {line["function"]: line for line in json_lines(done) if "function" in line}
            self.assertEqual(sum(line["self_instructions"] for line in ours.values()), executed)
            want = collections.defaultdict(lambda: [0, 0, 0])
            for start, counts in totals.items():
                known = [each for each in self.symbols[name].names(start) if each in ours]
                self.assertTrue(known, (name, hex(start), self.symbols[name].names(start)))
                want[known[0]] = [a + b for a, b in zip(want[known[0]], counts)]
            got = {function: [line["calls"], line["self_instructions"], line["total_instructions"]] for function, line in ours.items()
                   if function != "[not traced]"}
            different = {function: (got.get(function), want.get(function)) for function in {*got, *want} if got.get(function) != want.get(function)}
            self.assertEqual(different, {}, name)
            print(f"{name}: {executed} instructions, {len(got)} functions, {sum(each[0] for each in got.values())} calls: equal", flush=True)

    def test_times_add_up(self):
        for name in NAMES:
            lines = [line for line in json_lines(run("functions", "-i", self.data(name), "--limit", "0", "--format", "json")) if "function" in line]
            outer = max(lines, key=lambda line: line["total_ns"])
            self.assertEqual(sum(line["self_ns"] for line in lines), outer["total_ns"] - outer["off_cpu_ns"] - outer["untraced_ns"] - outer["lost_ns"])
            for line in lines:
                self.assertLessEqual(line["p50_ns"], line["p99_ns"])
                self.assertLessEqual(line["p99_ns"], line["max_ns"])
                self.assertLessEqual(line["max_ns"], outer["total_ns"])

    def test_slowest_calls_are_found_again_by_their_time(self):
        done = run("functions", "-i", self.data("sorter"), "--func", "by_length", "--slowest", "5", "--format", "json")
        calls = [line for line in json_lines(done) if "call" in line]
        self.assertEqual(len(calls), 5)
        spans = [call["end_ns"] - call["start_ns"] for call in calls]
        self.assertEqual(spans, sorted(spans, reverse=True))
        whole = [line for line in json_lines(done) if "function" in line][0]
        self.assertEqual(spans[0], whole["max_ns"])
        again = run("functions", "-i", self.data("sorter"), "--func", "by_length", "--format", "json", "--time", f"{calls[0]['start']},{calls[0]['end']}", "--tid",
                    calls[0]["tid"])
        found = [line for line in json_lines(again) if "function" in line][0]
        self.assertEqual(found["max_ns"], spans[0])

    def test_a_function_that_never_ran_is_named(self):
        done = run("functions", "-i", self.data("sorter"), "--func", "nobody")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'nobody' was not called", done.stderr)


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    unittest.main(verbosity=2)
