#!/usr/bin/env python3
"""Calls of a kernel that patches itself (data/kernel): thread switches, INT3s in place of calls, filling of the return stack.

The branches are verified against the ground truth elsewhere (kernel_recording, demo); here a plain count of them is compared with
`functions`. Environment: PTDECODE, PTDECODE_SOURCE.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import call_replay  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
DATA = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "data"
KERNEL = DATA / "kernel" / "kernel.bundle"


def run(*words):
    done = subprocess.run([PTDECODE, *map(str, words), "-i", KERNEL], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done


class CoreSightCalls(unittest.TestCase):
    def test_exceptions_are_neither_self_time_nor_running_time(self):
        """ETMv4 traces of user code: an exception ends the traced flow (its handler has no address), sometimes without another packet."""
        for name in ("threads", "changes", "plain"):
            done = subprocess.run([PTDECODE, "functions", "-q", "--format", "json", "--limit", "0", "-i", DATA / "arm" / (name + ".bundle")],
                                  capture_output=True, text=True, timeout=600, check=True)
            rows = [json.loads(line) for line in done.stdout.splitlines()[1:]]
            truths = (DATA / "arm").glob(name + ".cpu*.ptt")
            executed = sum(len(insns) for path in truths for what, insns in call_replay.truth_blocks(path) if what == "run")
            self.assertEqual(sum(row["self_instructions"] for row in rows), executed, name)
            for row in rows:  # an emulated instruction takes far less than 10 us, a system call in which the thread waits far more
                self.assertLessEqual(row["self_ns"], 10_000 * row["self_instructions"], (name, row))

    def test_system_calls_are_no_interrupts(self):
        """Each SVC (its bytes count them) is a branch "syscall" and a call of that kind; traces of user code call [kernel]."""
        def lines(path, *words):
            return subprocess.run([PTDECODE, "script", "-q", "-i", path, *words], capture_output=True, text=True, timeout=600, check=True).stdout.splitlines()
        for path, callee, *part in ((DATA / "arm_kernel" / "kernel.bundle", "vectors", "--time", "0%-30%"), (DATA / "arm" / "threads.bundle", "[kernel]")):
            executed = sum("insn: 01 00 00 d4" in line for line in lines(path, "--insn-trace", "-F", "ip,insn", *part))
            self.assertGreater(executed, 10)
            self.assertEqual(sum("syscall" in line for line in lines(path, "--itrace=b", "-F", "flags", *part)), executed, path)
            calls = [call for call in map(json.loads, lines(path, "--format", "json", *part)) if call.get("kind") == "syscall"]
            self.assertEqual([call for call in calls if call["call"] != callee], [])
            self.assertLessEqual(abs(len(calls) - executed), 2, path)  # one may be the last or the first that a thread's flow has


class KernelCalls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = run("functions", "--limit", "1")
        cls.said = done.stdout + done.stderr

    def test_every_return_goes_where_its_thread_had_called_from(self):
        """Some PSBs are between the two records of a switch, where the time does not determine the thread; an INT3 in place of ftrace's
        CALL is a call even if its handler's last instruction belongs to another function. An error in either shows as an abandoned
        stack."""
        self.assertIn("threads: ", self.said)
        self.assertNotIn("abandoned", self.said)

    def test_every_instruction_has_a_function(self):
        """Also those of a thread that a switch finds inside of a function, before it calls or returns."""
        streams = json.loads(run("stat", "--format", "json").stdout)["streams"]
        for words, cpus in (((), (0, 1)), (("-C", "0"), (0,)), (("-C", "1"), (1,))):
            rows = map(json.loads, run("functions", "--format", "json", "--limit", "0", *words).stdout.splitlines()[1:])
            self.assertEqual(sum(row["self_instructions"] for row in rows), sum(each["instructions"] for each in streams if each["cpu"] in cpus), words)

    def test_entries_from_untraced_user_code_have_one_kind(self):
        """The kernel's trace begins at its entries. Their names say how they were entered, wherever the window begins."""
        for window in ((), ("--time", "24.593,24.594")):
            calls = [json.loads(line) for line in run("script", "-q", "--format", "json", "--tid", "90", *window).stdout.splitlines()]
            kinds = {(call["call"], call["kind"]) for call in calls if re.match("entry_SYSCALL_64$|asm_", call.get("call", ""))}
            self.assertIn(("entry_SYSCALL_64", "syscall"), kinds)
            self.assertEqual([each for each in kinds if each[1] != ("interrupt" if each[0].startswith("asm_") else "syscall")], [], window)

    def test_a_system_call_lasts_until_it_returns(self):
        """entry_SYSCALL_64 goes on in two other symbols without a branch, and jumps inside the last one: it is one call, in which do_syscall_64 is called."""
        rows = {row["function"]: row for row in map(json.loads, run("functions", "--format", "json", "--limit", "0").stdout.splitlines()[1:])}
        entry, called = rows["entry_SYSCALL_64"], rows["do_syscall_64"]
        self.assertEqual(entry["calls"], called["calls"])
        self.assertEqual(entry["total_ns"], called["total_ns"] + entry["self_ns"])
        self.assertNotIn("entry_SYSCALL_64_after_hwframe", rows)

    def test_filling_the_return_stack_calls_nothing(self):
        """Each switch executes 32 "call 1f; int3; 1:" in __switch_to_asm."""
        text = run("script", "--itrace=c", "-F", "ip,sym,addr,symoff,flags", "-C", "1").stdout
        entered = len(re.findall(r"^ *call .*=> +\S+ __switch_to_asm\+0x0$", text, re.M))
        within = len(re.findall(r"^ *call .* __switch_to_asm\+\S+ => +\S+ __switch_to_asm\+", text, re.M))
        self.assertGreater(entered, 100)
        self.assertEqual(within, 32 * entered)
        done = run("functions", "--format", "json", "-C", "1")
        calls = {each["function"]: each["calls"] for each in map(json.loads, done.stdout.splitlines()[1:])}
        self.assertEqual(calls["__switch_to_asm"], entered)

    def test_a_halted_core_does_not_run(self):
        """HLT stops the core until an interrupt ([SDM] "HLT"): the wait does not count as the function's own time."""
        rows = [json.loads(line) for line in run("functions", "--format", "json", "--limit", "0").stdout.splitlines()[1:]]
        row = next(each for each in rows if each["function"] == "native_safe_halt")
        self.assertGreater(row["off_cpu_ns"], 100_000_000)
        self.assertLess(row["self_ns"], row["off_cpu_ns"] * 0.01)

    def test_time_outside_of_the_kernel_is_that_of_the_packets(self):
        """Measures from each TIP.PGD to the next TIP.PGE, by the times in the packet listing."""
        away = 0.0
        for cpu in "01":
            now = left = None
            for line in run("packets", "-C", cpu).stdout.splitlines():
                time = re.search(r" time +(\d+\.\d+)", line)
                now = float(time.group(1)) if time else now
                kind = line.split()[1:2]
                if kind == ["tip.pgd"]:
                    left = now
                elif kind == ["tip.pge"] and left is not None:
                    away, left = away + now - left, None
        value, unit = re.search(r"([\d.]+) (us|ms) not traced", self.said).groups()
        told = float(value) * {"us": 1e-6, "ms": 1e-3}[unit]
        self.assertAlmostEqual(told, away, delta=away * 0.05)


if __name__ == "__main__":
    unittest.main(verbosity=2)
