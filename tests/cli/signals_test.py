#!/usr/bin/env python3
"""Calls of a program whose system calls and code signals interrupt, against its own counters and the ground truth.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import call_replay  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
# Faults again after the handler has returned, which ends it. With an argument: calls address 0.
CRASHES = r"""
#include <signal.h>
static void handler(int number) { signal(number, SIG_DFL); }
int main(int count, char **words) {
  void (*volatile nowhere)(void) = 0;
  if (count > 1) nowhere();
  signal(SIGSEGV, handler);
  __asm__ volatile(".globl faulting\n faulting: movl 16, %%eax" ::: "eax");
  return words == 0;
}
"""
UNTRACED = ("[kernel]", "[not traced]")


def run(*words):
    done = subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def json_lines(*words):
    return [json.loads(line) for line in run(*words).splitlines()][1:]


class Recorded:
    def __init__(self, folder, program):
        self.data, self.truth = folder / (program.name + ".data"), folder / (program.name + ".truth")
        printed = run("record", "--emulate", "--cyc", "--plugin", os.environ["PTDECODE_PLUGIN"], "--truth", self.truth, "-o", self.data, "--", program)
        self.counted = {name: int(number) for name, number in (line.split() for line in printed.splitlines() if len(line.split()) == 2)}
        self.rows = {line["function"]: line for line in json_lines("functions", "-q", "--no-inline", "-i", self.data, "--limit", "0", "--format", "json")}
        self.script = json_lines("script", "-q", "-i", self.data, "--format", "json")


class Signals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.temporary.name)
        program, stripped = folder / "signals", folder / "stripped"
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-static", "-no-pie", "-g", SOURCE / "tests/cli/programs/signals.c", "-o", program], check=True)
        subprocess.run(["strip", program, "-o", stripped], check=True)
        cls.symbols = call_replay.Symbols(program)
        cls.named, cls.stripped = Recorded(folder, program), Recorded(folder, stripped)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def executed(self, recorded):
        """Instructions by the start of their function, None where no symbol covers them."""
        counts = collections.Counter()
        for path in recorded.truth.glob("*.ptt"):
            for what, insns in call_replay.truth_blocks(path):
                for ip, _ in insns if what == "run" else ():
                    counts[self.symbols.start(ip)] += 1
        return counts

    def test_a_crash_is_located(self):
        """The call tree names the instruction that faulted; a program that exits has no such line."""
        program = pathlib.Path(self.temporary.name) / "crash"
        data = program.with_suffix(".data")
        subprocess.run([os.environ.get("CC", "cc"), "-static", "-no-pie", SOURCE / "tests/replay/programs/crash.c", "-o", program], check=True)
        done = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", data, "--", program], timeout=900)
        self.assertEqual(done.returncode, 139)
        faulting = re.search(r"^0*(\w+) T faulting$", subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout, re.M)[1]
        text = run("script", "-q", "-i", data)
        line = rf"\[flow ends before 0x{faulting}, \w+\+0x\w+ \(crash\): fault, signal or interrupt\]"
        self.assertRegex(text, line + r"\n.*\} (main|faulting)  \[end not seen\]")
        self.assertEqual(text.count("flow ends"), 1)
        self.assertNotIn("flow ends", run("script", "-q", "-i", self.named.data))

    def test_crashes_at_other_places_are_located(self):
        program = pathlib.Path(self.temporary.name) / "crashes"
        data = program.with_suffix(".data")
        subprocess.run([os.environ.get("CC", "cc"), "-static", "-no-pie", "-x", "c", "-", "-o", program], input=CRASHES, text=True, check=True)
        faulting = re.search(r"^0*(\w+) T faulting$", subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout, re.M)[1]
        for word, place in (("", rf"0x{faulting}, \w+\+0x\w+ \(crashes\)"), ("null", "0x0")):
            with self.subTest(word):
                command = [PTDECODE, "record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", data, "--", program, *word.split()]
                self.assertEqual(subprocess.run(command, timeout=900).returncode, 139)
                lines = run("script", "-q", "-i", data).splitlines()
                (at,) = (i for i, line in enumerate(lines) if "flow ends" in line)
                self.assertRegex(lines[at], rf"\[flow ends before {place}: fault, signal or interrupt\]")
                if not word:
                    self.assertRegex(lines[at + 1], r"\} (main|faulting)  \[end not seen\]")

    def test_slack_is_no_time(self):
        """Slack widens bounds: it is neither running time nor waiting, moves no start, and makes no time unknown."""
        for options in ((), ("--cyc",)):
            data = pathlib.Path(self.temporary.name) / "slack.data"
            subprocess.run([PTDECODE, "record", "--emulate", *options, "-q", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", data, "--", "true"], check=True, timeout=900)
            found = []
            for slack in ("0", "5ms", "100000s"):  # the last is longer than the trace's clock has run
                rows = json_lines("functions", "-q", "-i", data, "--limit", "0", "--format", "json", "--slack", slack)
                (start,) = (row for row in rows if row["function"] == "_start" and row["module"].startswith("ld"))
                first = json_lines("script", "-q", "-i", data, "--format", "json", "--slack", slack)[0]
                found.append((first["start_ns"], start["total_ns"]))
                running = [*(running if slack != "0" else []), sum(row["self_ns"] for row in rows)]
            self.assertEqual(found, [found[0]] * 3, options)
            for ns in running:
                self.assertAlmostEqual(ns, running[0], delta=running[0] / 1000)

    def test_untraced_code_runs_no_instructions(self):
        for recorded in (self.named, self.stripped):
            rows = [recorded.rows[name] for name in UNTRACED if name in recorded.rows]
            self.assertTrue(rows)
            for row in rows:
                self.assertEqual((row["self_instructions"], row["total_instructions"], row["self_ns"]), (0, 0, 0), row)
                self.assertEqual(row["total_ns"], row["untraced_ns"] + row["off_cpu_ns"], row)
            self.assertEqual(sum(row["self_instructions"] for row in recorded.rows.values()), sum(self.executed(recorded).values()))

    def test_each_instruction_belongs_to_the_function_at_its_address(self):
        executed = self.executed(self.named)
        wrong = {}
        for start, count in executed.items():
            sized = start is not None and self.symbols.found[start][0] > start + 1
            names = self.symbols.names(start) if sized else []
            row = next((self.named.rows[name] for name in names if name in self.named.rows), None)
            if row is not None and row["self_instructions"] != count:
                wrong[row["function"]] = (row["self_instructions"], count)
        self.assertEqual(wrong, {})
        handlers = sum(self.named.counted[name] for name in ("handler", "tail_handler", "outer_handler", "writes", "skips"))
        restorer = self.named.rows["__restore_rt"]  # mov $15, %rax; syscall
        self.assertEqual((restorer["calls"], restorer["self_instructions"]), (handlers, 2 * handlers))

    def test_calls_are_those_that_the_program_counts(self):
        for name, count in self.named.counted.items():
            row = self.named.rows[name]
            self.assertEqual((row["calls"], row["partial"]), (count, 0), name)

    def test_the_tree_survives_without_symbols(self):
        starts = {name: start for start in self.symbols.starts for name in self.symbols.found[start][1]}
        for name, count in self.stripped.counted.items():
            if name == "tail_inner":  # reached by a jump only: nothing tells where a function begins
                continue
            unnamed = next(f"stripped+{starts[name] - address + offset:#x}" for offset, address, size in self.symbols.segments
                           if address <= starts[name] < address + size)
            row = self.stripped.rows[unnamed]
            self.assertEqual((row["calls"], row["partial"]), (count, 0), (name, unnamed))
        for recorded in (self.named, self.stripped):
            self.assertEqual([line for line in recorded.script if "lost" in line], [])

    def test_handlers_are_called_by_what_they_interrupt(self):
        """No handler is inside of the kernel, and none is the caller of what goes on after it."""
        depth = {"work": set(), "handler": set(), "helper": set()}
        for line in self.named.script:
            if line.get("call") in depth:
                depth[line["call"]].add(line["depth"])
        self.assertEqual(len(depth["work"]), 1)
        work = next(iter(depth["work"]))
        self.assertEqual(depth["helper"], {work + 1})
        self.assertIn(work + 1, depth["handler"])

    def test_indentation_survives_skipped_returns(self):
        """longjmp, exceptions and siglongjmp end calls that never return: what main calls next is as deep as before, also in a stripped program."""
        functions = {"plain(int)": 180, "middle_jump(int)": 60, "middle_throw(int)": 60, "raise_it()": 60}
        with tempfile.TemporaryDirectory() as folder:
            program, data = pathlib.Path(folder, "unwind"), pathlib.Path(folder, "data")
            for words in (["-static"], ["-shared-libgcc"], ["-static", "-no-pie", "strip"]):
                build = [word for word in words if word != "strip"]
                subprocess.run([os.environ.get("CXX", "c++"), "-O1", "-g", "-fno-inline", *build, SOURCE / "tests/cli/programs/unwind.cc", "-o", program],
                               check=True)
                names = {name: name for name in functions}
                if build != words:  # listed by address
                    symbols = subprocess.run(["nm", "-C", program], check=True, capture_output=True, text=True).stdout
                    names = {name: "0x" + re.search(rf"^0*([0-9a-f]+) [tT] {re.escape(name)}$", symbols, re.M)[1] for name in functions}
                    subprocess.run(["strip", program], check=True)
                run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", data, "--", program)
                for listing in ("--call-trace", "--call-ret-trace"):
                    lines = [line for line in run("script", listing, "-q", "-i", data).splitlines() if "<-" not in line]
                    for name, shown in names.items():
                        columns = collections.Counter(line.index(shown) for line in lines if line.endswith(shown) or shown + " " in line)
                        self.assertEqual(len(columns), 1, (words, listing, name, columns))
                        self.assertGreaterEqual(sum(columns.values()), functions[name])


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("qemu-x86_64 is not installed")
        sys.exit(77)
    unittest.main(verbosity=2)
