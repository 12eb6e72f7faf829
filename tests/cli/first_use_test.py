#!/usr/bin/env python3
"""What somebody does with ptdecode on the first day, on programs of the system and small ones of our own, recorded under the emulator.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import collections
import fnmatch
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


def folded(path, *words):
    """stack -> amount"""
    lines = run("flame", "-q", "-i", path, "--format", "folded", *words).stdout.splitlines()
    return {line.rsplit(" ", 1)[0]: int(line.rsplit(" ", 1)[1]) for line in lines}


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

    def test_the_flame_graph_has_each_program_under_its_own_name(self):
        own = collections.Counter()
        for stack, amount in folded(self.path).items():
            own[stack.split(";")[0]] += amount
        self.assertEqual(set(own), {"sh", "first_one", "second_one"})
        for name, amount in own.items():
            self.assertEqual(amount, sum(line["self_ns"] for line in functions(self.path, "--comm", name)), name)
        self.assertTrue(any(stack.startswith("second_one;") and stack.endswith(";main;step") for stack in folded(self.path)))

    def test_a_call_is_below_the_name_that_its_thread_had(self):
        path, _ = record("renamed", self.first, "3000", "other name")
        steps = {stack.split(";")[0]: stack.split(";")[-2:] for stack in folded(path) if stack.endswith(";step")}
        self.assertEqual(steps, {"first_one": ["main", "step"], "other_name": ["main", "step"]})

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

    def test_folded_stacks_have_one_blank(self):
        program = build("blanks", """
            #include <map>
            template <class A, class B> int take(std::map<A, B> const& all, unsigned long long n) { int s = 0; for (auto& e : all) s += e.second; return s + n; }
            int main() { std::map<int, int> m; for (int i = 0; i < 100; i++) m[i] = i; return take<int, int>(m, 3) == 4953 ? 0 : 1; }
            """, suffix=".cc")
        path, done = record("blanks", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = run("flame", "-q", "-i", path, "--format", "folded").stdout.splitlines()
        self.assertTrue(any("take<int,_int>" in line for line in lines))
        for line in lines:
            self.assertEqual(line.count(" "), 1, line)

    @unittest.skipUnless(shutil.which("node"), "node is not installed")
    def test_searching_the_flame_graph_tells_the_share_of_time(self):
        svg = WORK / "search.svg"
        self.assertEqual(run("flame", "-q", "-i", self.path, "-o", svg).returncode, 0)
        text = svg.read_text()
        # What a browser would give the script: frames with attributes, and no more of them.
        frames = [dict(re.findall(r'(data-\w+)="([^"]*)"', group)) for group in re.findall(r'<g class="f"[^>]*>', text)]
        script = re.search(r"<script><!\[CDATA\[(.*)\]\]></script>", text, re.S).group(1)
        stub = """
            var info = {}, style = function () { return { style: {}, setAttribute: function () {}, addEventListener: function () {} }; };
            var made = FRAMES.map(function (a) { var g = style(); g.getAttribute = function (k) { return a[k]; }; g.querySelector = style; return g; });
            var document = { documentElement: { querySelectorAll: function () { return made; } },
                             getElementById: function (id) { return id === 'info' ? info : style(); } };
            var window = { addEventListener: function () {} };
            """.replace("FRAMES", json.dumps(frames))
        stacks = folded(self.path)
        whole = sum(stacks.values())
        for word in ("^step$", "main", "second_one", "^nobody$"):
            done = subprocess.run(["node", "-e", stub + script + f"search({json.dumps(word)}); console.log(info.textContent);"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            share = 100 * sum(amount for stack, amount in stacks.items() if any(re.search(word, name) for name in stack.split(";"))) / whole
            said = re.match(r".*: ([0-9.]+) % in \d+ frames?$", done.stdout)
            self.assertTrue(said, done.stdout)
            self.assertAlmostEqual(float(said.group(1)), share, delta=0.2)  # frames that are too narrow to draw are not searched


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    unittest.main(verbosity=2)
