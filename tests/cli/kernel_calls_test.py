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
import unittest

PTDECODE = os.environ["PTDECODE"]
KERNEL = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "data" / "kernel" / "kernel.bundle"


def run(*words):
    done = subprocess.run([PTDECODE, *map(str, words), "-i", KERNEL], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done


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
