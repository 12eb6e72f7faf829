#!/usr/bin/env python3
"""What somebody does with ptdecode on the first day, on programs of the system and small ones of our own, recorded under the emulator.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import fnmatch
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
FOLDER = tempfile.TemporaryDirectory()
WORK = pathlib.Path(FOLDER.name)


def run(*words, **more):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=600, **more)


def json_lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def build(name, text, *flags, suffix=".c"):
    source, program = WORK / (name + suffix), WORK / name
    source.write_text(text)
    compiler = os.environ.get("CXX", "c++") if suffix == ".cc" else os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O1", "-fno-inline", "-w", "-g", *flags, source, "-o", program], check=True)
    return program


def record(name, *command, words=(), **more):
    path = WORK / (name + ".data")
    done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], *words, "-o", path, "--", *command, **more)
    assert path.exists(), done.stderr
    return path, done


def functions(path, *words):
    """The rows that `functions` lists, and a failure if it cannot."""
    done = run("functions", "-q", "-i", path, "--limit", "0", "--format", "json", *words)
    assert done.returncode == 0, done.stderr
    return [line for line in json_lines(done) if "function" in line]


WORKER = """
#include <sys/prctl.h>
#include <stdlib.h>
volatile int sink;
void step(int n) { for (int i = 0; i < n; i++) sink += i; }
int main(int argc, char** argv) {
  step(100);
  if (argc > 2) prctl(PR_SET_NAME, argv[2]);
  step(atoi(argv[1]));
  return 0;
}
"""


class Shell(unittest.TestCase):
    """Two programs that a shell starts, in two processes."""

    @classmethod
    def setUpClass(cls):
        cls.first, cls.second = build("first_one", WORKER), build("second_one", WORKER)
        cls.path, _ = record("shell", "/bin/sh", "-c", f"{cls.first} 1000; {cls.second} 3000; exit 0")

    def test_a_file_without_a_command_is_described(self):
        done = run("-i", self.path)
        self.assertEqual((done.returncode, done.stdout), (0, run("info", "-i", self.path).stdout))
        self.assertEqual(run(f"--input={self.path}", "-q").stdout, done.stdout)
        self.assertEqual(run("-i", WORK / "absent").returncode, 1)
        self.assertEqual(run("-i").returncode, 2)
        self.assertEqual(run("-i", self.path, "stat").returncode, 2)  # a command comes first
        self.assertIn("usage", run("--help").stdout.lower())

    def test_functions_are_chosen_by_wildcards(self):
        called = {line["function"] for line in functions(self.path)}
        for pattern in ("_*", "*tep", "st?p", "[ms]*", "main"):
            want = {name for name in called if fnmatch.fnmatchcase(name, pattern)}
            self.assertTrue(want, pattern)
            self.assertEqual({line["function"] for line in functions(self.path, "--func", pattern)}, want)
            listed = json_lines(run("script", "-q", "-i", self.path, "-S", pattern, "--format", "json"))
            self.assertEqual({line["call"] for line in listed if "call" in line}, want, pattern)
            listed = run("script", "-q", "-i", self.path, "--itrace=b", "-F", "sym", "-S", pattern).stdout.split()
            self.assertTrue(listed, pattern)
            self.assertTrue(all(fnmatch.fnmatchcase(name, pattern) for name in listed[::2] if name != "=>"), pattern)
        slow = run("functions", "-q", "-i", self.path, "--func", "st?p", "--slowest", "2").stdout.splitlines()
        self.assertTrue(slow[-1].endswith("  step"), slow)
        none = run("functions", "-i", self.path, "--func", "nobody*")
        self.assertEqual(none.returncode, 2)

    def test_one_is_no_plural(self):
        path, _ = record("alone", self.first, "10")
        for words in (["functions"], ["info"], ["stat"], ["stat", "--losses"], ["script"], ["check"], ["functions", "--limit", "1"],
                      ["functions", "--limit", str(len(functions(path)) - 1)]):
            done = run(*words, "-i", path)
            self.assertNotRegex(done.stdout + done.stderr, r"\b1 (?!ns|us|ms)[a-z]+( [a-z]+)?s\b(?! of| with)", words)


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    unittest.main(verbosity=2)
