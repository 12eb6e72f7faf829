#!/usr/bin/env python3
"""Perf maps of real run-times: Node.js, OpenJDK and CPython name their generated code in /tmp/perf-PID.map, and the calls of each function are counted.

The counts follow from the programs, in which each function calls another a known number of times. All code is compiled before it runs first, so
that no call is interpreted. A run-time that is not installed is skipped with a message.
Environment: PTDECODE, PTDECODE_PLUGIN. Exit status 77 without qemu-x86_64.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PTDECODE, PLUGIN = os.environ["PTDECODE"], os.environ["PTDECODE_PLUGIN"]
SCRIPT = """\
function leaf(i) { let s = 0; for (let k = 0; k < 5; k++) s += (i ^ k) % 7; return s; }
function middle(i) { return leaf(i) + leaf(i + 1); }
let total = 0;
for (let i = 0; i < 400; i++) total += middle(i);
"""
JAVA = """\
public class T {
  static long leaf(long i) { long s = 0; for (int k = 0; k < 5; k++) s += (i ^ k) % 7; return s; }
  static long middle(long i) { return leaf(i) + leaf(i + 1); }
  public static void main(String[] words) { long t = 0; for (int i = 0; i < 400; i++) t += middle(i); System.exit((int) (t & 0)); }
}
"""
PYTHON = """\
def leaf(i): return i * i
def middle(i): return leaf(i) + leaf(i + 1)
def main():
    for i in range(400): middle(i)
main()
"""


def program(*names):
    return next((path for path in map(shutil.which, names) if path), None)


def python_with_trampolines():
    for name in ("python3.14", "python3.13", "python3.12", "python3"):
        path = shutil.which(name)
        done = path and subprocess.run([path, "-X", "perf", "-c", "import sys; print(sys.executable, sys.is_stack_trampoline_active())"],
                                       capture_output=True, text=True, check=False)
        if done and done.returncode == 0 and done.stdout.endswith(" True\n"):
            return done.stdout.split()[0]
    return None


class PerfMaps(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def calls(self, *command):
        """Returns {function: calls} of the names in the program's perf map."""
        recording = self.folder / "recording"
        made = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", PLUGIN, "-o", recording, "--", *map(str, command)], capture_output=True,
                              text=True, check=False, cwd=self.folder)
        self.assertEqual(0, made.returncode, made.stderr)
        done = subprocess.run([PTDECODE, "functions", "-i", recording, "--limit", "0", "--format", "json"], capture_output=True, text=True, check=False)
        self.assertEqual(0, done.returncode, done.stderr)
        map_path = re.search(r"/tmp/perf-\d+\.map", done.stderr)
        self.assertTrue(map_path, done.stderr)
        pathlib.Path(map_path.group()).unlink()
        rows = [json.loads(line) for line in done.stdout.splitlines()[1:]]
        return {row["function"]: row["calls"] for row in rows if "calls" in row}

    def assert_counts(self, calls, leaf, middle, main):
        self.assertEqual((800, 400, 1), (calls.get(leaf), calls.get(middle), calls.get(main)), sorted(calls.items(), key=lambda row: -row[1])[:40])

    def test_node(self):
        node = program("node", "nodejs")
        if not node:
            self.skipTest("Node.js is not installed (apt install nodejs)")
        path = self.folder / "t.js"
        path.write_text(SCRIPT)
        calls = self.calls(node, "--perf-basic-prof", "--no-opt", "--always-sparkplug", "--single-threaded", path)
        self.assert_counts(calls, f"JS:^leaf {path}:1:14", f"JS:^middle {path}:2:16", f"JS:^ {path}:1:1")

    def test_java(self):
        if not program("javac") or not program("java"):
            self.skipTest("OpenJDK is not installed (apt install openjdk-17-jdk-headless)")
        (self.folder / "T.java").write_text(JAVA)
        subprocess.run(["javac", "T.java"], cwd=self.folder, check=True)
        # The launcher's symbolic link is /etc/alternatives; the path of the program is what the map's process has.
        java = pathlib.Path(program("java")).resolve()
        calls = self.calls(java, "-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit", "-XX:TieredStopAtLevel=1", "-Xcomp",
                           "-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,T::*", "-XX:CompileCommand=compileonly,T::*", "T")
        self.assert_counts(calls, "long T.leaf(long)", "long T.middle(long)", "void T.main(java.lang.String[])")

    def test_python(self):
        python = python_with_trampolines()
        if not python:
            self.skipTest("no CPython with perf trampolines (3.12 or later)")
        path = self.folder / "t.py"
        path.write_text(PYTHON)
        calls = self.calls(python, "-X", "perf", path)
        self.assert_counts(calls, f"py::leaf:{path}", f"py::middle:{path}", f"py::main:{path}")


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed")
        sys.exit(77)
    unittest.main()
