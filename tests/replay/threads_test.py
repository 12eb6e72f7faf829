#!/usr/bin/env python3
"""`ptdecode replay --gdb` of a program with several threads: which thread a packet or a command of GDB is for.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without gdb or qemu-x86_64.
"""
import collections
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from gdb_client import Client, stop_of
from gdb_test import gdb
from recorded import PTDECODE, SOURCE, Recorded, truth_insns

PROGRAMS = SOURCE / "tests" / "replay" / "programs"


class Threads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = holder.name
        cls.recorded = Recorded(holder.name, PROGRAMS / "threads.c", "-pie", "-fPIE", "-pthread", name="threads")
        cls.tids = sorted(cls.recorded.truths)
        ran = subprocess.run([PTDECODE, "script", "-q", "-i", cls.recorded.path, "--itrace=i1i", "-F", "ip,sym"], capture_output=True, text=True,
                             env=cls.recorded.environment, check=True).stdout
        cls.leaf = re.search(r"^ *(\w+) leaf$", ran, re.M)[1]

    def client(self):
        return Client("-i", self.recorded.path, ptdecode=PTDECODE)

    def stops(self, peer, packet):
        """Returns the threads of the stops up to the end of the recording, and that of the end."""
        threads = []
        while True:
            _, _, thread, named = stop_of(peer.ask(packet))
            if "replaylog" in named:
                return threads, thread
            threads.append(thread)

    def gdb(self, *commands):
        return gdb(self.recorded.path, *commands, words=["--symbol-dir", self.folder])

    def test_only_a_resumed_thread_stops(self):
        """A thread hits its own breakpoints, as many as when all threads are resumed, forward and backward."""
        with self.client() as peer:
            self.assertEqual(peer.ask(f"Z0,{self.leaf},1"), "OK")
            every, _ = self.stops(peer, "vCont;c")
            counts = collections.Counter(every)
            self.assertEqual([counts[tid] for tid in self.tids[1:]], [120, 120])
            self.assertEqual(len(self.stops(peer, "bc")[0]), len(every))
            for tid in self.tids:
                self.assertEqual(self.stops(peer, f"vCont;c:{tid:x}"), ([tid] * counts[tid], tid))
                self.assertEqual(peer.ask(f"Hc{tid:x}"), "OK")
                self.assertEqual(self.stops(peer, "bc"), ([tid] * counts[tid], tid))
            first, second = self.tids[1:]
            self.assertEqual(collections.Counter(self.stops(peer, f"vCont;c:{first:x};c:{second:x}")[0]), {first: 120, second: 120})
            self.assertEqual(peer.ask("Hc0"), "OK")
            self.stops(peer, "bc")
            self.assertEqual(len(self.stops(peer, f"vCont;c:{first:x};c")[0]), len(every))
            self.assertEqual(peer.ask("vCont;c:7fffffff")[0], "E")

    def test_steps_of_a_resumed_thread(self):
        """Breakpoints of other threads stop none of them."""
        for tid, path in self.recorded.truths.items():
            truth = [ip for ip, _ in truth_insns(path)[:600]]
            with self.client() as peer:
                self.assertEqual(peer.ask(f"Z0,{self.leaf},1"), "OK")
                stops = [stop_of(reply) for reply in peer.ask_all([f"vCont;s:{tid:x}"] * (len(truth) - 1))]
                self.assertEqual([stop[1:3] for stop in stops], [(ip, tid) for ip in truth[1:]])
                self.assertEqual(peer.ask(f"Hc{tid:x}"), "OK")
                stops = [stop_of(reply) for reply in peer.ask_all(["bs"] * (len(truth) - 1))]
                self.assertEqual([stop[1:3] for stop in stops], [(ip, tid) for ip in truth[-2::-1]])

    def test_scheduler_locking(self):
        for mode in ("on", "step"):
            parts, errors = self.gdb("break leaf thread 2", "continue", f"set scheduler-locking {mode}", "thread 3", "stepi", "stepi", "thread",
                                     "maintenance flush register-cache", "info threads")
            self.assertIn("threads that GDB did not resume ran too", parts[4], errors)
            self.assertNotIn("internal-error", errors)
            self.assertIn("Current thread is 3", parts[6], errors)
            self.assertIn("* 3 ", parts[8], errors)

    def test_branch_trace_of_each_thread(self):
        with self.client() as peer:
            self.assertEqual(peer.ask(f"Z0,{self.leaf},1"), "OK")
            first, second, third = self.tids
            while stop_of(peer.ask("vCont;c"))[2] != second:
                pass
            for tid in (first, second):
                self.assertEqual(peer.ask_all([f"Hg{tid:x}", "Qbtrace:bts"]), ["OK", "OK"])
            blocks = {}
            for tid in (first, second):
                self.assertEqual(peer.ask(f"Hg{tid:x}"), "OK")
                self.assertIn("bts", peer.document("btrace-conf"))
                ips = {ip for ip, _ in truth_insns(self.recorded.truths[tid])}
                blocks[tid] = [(int(a, 16), int(b, 16)) for a, b in re.findall(r'begin="0x(\w+)" end="0x(\w+)"', peer.document("btrace", "all"))]
                self.assertLessEqual({ip for block in blocks[tid] for ip in block}, ips)
            self.assertEqual(blocks[second][0][1], int(self.leaf, 16))
            self.assertNotEqual(blocks[first], blocks[second])
            for tid, state in ((third, "E"), (second, "O"), (second, "E"), (first, "O")):
                self.assertEqual(peer.ask(f"Hg{tid:x}"), "OK")
                self.assertEqual(peer.ask("Qbtrace:off")[0], state)
                self.assertEqual(peer.ask("qXfer:btrace:read:all:0,1000")[0], "E")

    def test_listing_of_the_branch_trace(self):
        """The commands in docs/REPLAY.md work as they are there, with one thread and with several."""
        text = (SOURCE / "docs" / "REPLAY.md").read_text(encoding="utf-8")
        commands = re.findall(r"^\(gdb\) (.*)$", re.search(r"^```\n(\(gdb\) record btrace bts\n.*?)^```$", text, re.M | re.S)[1], re.M)
        self.assertIn("reverse-finish", commands)
        one = Recorded(self.folder, PROGRAMS / "loops.c", "-static", "-no-pie", name="loops")
        for recorded, place, caller in ((self.recorded, "leaf thread 2", "worker"), (one, "inner", "main")):
            commands_here = [f"break {place}", "continue", *commands, "record stop", "continue"]
            parts, errors = gdb(recorded.path, *commands_here, words=["--symbol-dir", self.folder])
            self.assertNotRegex("".join(parts), "not meaningful|No trace|Could not|rror", errors)
            self.assertRegex(parts[-3], rf"#[01] .*\b{caller} \(", errors)
            self.assertIn("Breakpoint 1, ", parts[-1], errors)

    def test_the_selected_thread(self):
        """GDB sends Hg for the registers that it reads, of any thread, and T for the thread that its user selects."""
        with self.client() as peer:
            self.assertEqual(peer.ask(f"Z0,{self.leaf},1"), "OK")
            first, second, third = self.tids
            while stop_of(peer.ask("vCont;c"))[2] != second:
                pass
            self.assertEqual(peer.ask(f"Hg{third:x}"), "OK")
            for command in ("backtrace", "marks", "versions"):
                self.assertTrue(peer.monitor(command).startswith(f"thread {second} threads (pid {first}):\n"))
            self.assertRegex(peer.monitor("backtrace"), "(?s)#0 .* in leaf .* in worker")
            self.assertEqual(peer.ask(f"T{first:x}"), "OK")
            self.assertTrue(peer.monitor("backtrace").startswith(f"thread {first} threads"))
            self.assertIn(f"thread {first} threads", peer.monitor("time"))
            self.assertEqual(peer.ask_all([f"z0,{self.leaf},1", "Hc0"]), ["OK", "OK"])  # in between, other threads call leaf
            self.assertEqual(stop_of(peer.ask("bs"))[2], first)
            # A move does not change the thread whose registers GDB reads.
            self.assertEqual(peer.ask(f"Hg{second:x}"), "OK")
            self.assertRegex(peer.monitor("percent 0"), rf"; thread {first} ")
            pc = peer.ask("p10")
            self.assertEqual(peer.ask(f"Hg{second:x}"), "OK")
            self.assertEqual(peer.ask("p10"), pc)
            self.assertEqual(stop_of(peer.ask(f"vCont;s:{second:x}"))[2], second)
            self.assertIn(f"GDB still has thread {second} selected", peer.monitor("percent 0"))
            # The next step is the stop at the new position.
            self.assertNotIn("GDB still", peer.monitor("select percent 0"))
            self.assertEqual(peer.ask(f"Hg{first:x}"), "OK")
            pc = int.from_bytes(bytes.fromhex(peer.ask("p10")), "little")
            self.assertEqual(stop_of(peer.ask(f"vCont;s:{second:x};c"))[:3], (0, pc, first))
            self.assertNotEqual(stop_of(peer.ask(f"vCont;s:{first:x};c"))[1], pc)

    def test_commands_after_a_list_of_threads(self):
        _, errors = self.gdb("monitor symbols")
        script = f"source {self.folder}/symbols.gdb"
        parts, errors = self.gdb(script, "break leaf thread 2", "continue", "replay-backtrace", "info threads", "replay-backtrace", "thread apply 1 3 print 1",
                                 "monitor backtrace", "replay-finish", "thread", "info threads", "replay-backtrace")
        name = f"thread {self.tids[1]} threads (pid {self.tids[0]}):\n"
        self.assertTrue(parts[3].startswith(name + "#0 "), errors)
        self.assertEqual([part.strip() for part in (parts[5], parts[7])], [parts[3].strip()] * 2, errors)
        self.assertRegex(parts[8], r"(?s)^thread .*at (0x\w+) in mid.*\n#0  0x\w+ in mid ", errors)
        self.assertIn("Current thread is 2 ", parts[9], errors)
        self.assertRegex(parts[10], r"\* 2 .* in mid ", errors)
        self.assertTrue(parts[11].startswith(name + "#0 "), errors)
        # A move to a time selects the thread that executes then.
        percents = (0, 60, 90, 30, 99)
        parts, errors = self.gdb(script, "break leaf thread 2", "continue", *(word for at in percents for word in (f"replay-percent {at}", "thread")))
        for moved, selected in zip(parts[3::2], parts[4::2]):
            self.assertEqual(re.search(r"^now at .*; thread (\d+) ", moved)[1], re.search(r"\(Thread (\d+)\)", selected)[1], errors)


if __name__ == "__main__":
    for tool in ("gdb", "qemu-x86_64"):
        if shutil.which(tool) is None:
            print(f"skipped: no {tool}")
            sys.exit(77)
    unittest.main(verbosity=1)
