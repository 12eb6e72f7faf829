#!/usr/bin/env python3
"""`ptdecode replay --gdb` of AUX samples: what ran between two windows of trace is not known, so no step and no call goes on from one to the next.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import pathlib
import re
import shutil
import struct
import sys
import tempfile
import unittest

from gdb_client import Client, stop_of
from recorded import PTDECODE, SOURCE, Recorded, truth_insns

EDGE = "another window of trace"
WINDOWS = 6  # that the tests look at


def follow(insns):
    """Returns the return addresses of the calls that are open before each instruction, by the code."""
    stack, open_calls = [], [[]]
    for (ip, code), (after, _) in zip(insns, insns[1:]):
        if code[:1] == b"\xe8" or (code[:1] == b"\xff" and code[1] >> 3 & 7 == 2) or (code[:2] in (b"\x41\xff", b"\x42\xff") and code[2] >> 3 & 7 == 2):
            stack.append(ip + len(code))
        elif code[:1] == b"\xc3" and stack:
            assert stack.pop() == after
        open_calls.append(list(stack))
    return open_calls


def places_in(test, truth, windows):
    """Returns the place of each window in the truth, each after the one before."""
    packed = b"".join(struct.pack("<Q", ip) for ip, _ in truth)
    places, at = [], 0
    for window in windows:
        wanted = b"".join(struct.pack("<Q", ip) for ip in window)
        found = packed.find(wanted, 8 * at)
        while found > 0 and found % 8 != 0:
            found = packed.find(wanted, found + 1)
        test.assertGreaterEqual(found, 0, [hex(ip) for ip in window[:8]])
        places.append(found // 8)
        at = places[-1] + len(window)
    return places


class Windows(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.recorded = Recorded(holder.name, SOURCE / "tests" / "replay" / "programs" / "nested.c", "-static", "-no-pie", name="nested",
                                options=["--aux-sample=1K", "--aux-sample-every", "4K", "--psb-period", "0"])
        (cls.tid, path), = cls.recorded.truths.items()
        cls.truth = truth_insns(path)
        cls.windows = cls.read_windows()

    @classmethod
    def client(cls):
        return Client("-i", cls.recorded.path, ptdecode=PTDECODE)

    @classmethod
    def read_windows(cls):
        """Returns the instructions of each window, by the stops of steps; checks that each is a part of the truth."""
        windows = []
        with cls.client() as peer:
            window = [stop_of(peer.ask("?"))[1]]
            while len(windows) < WINDOWS:
                peer.console = ""
                signal, pc, _, named = stop_of(peer.ask("s"))
                assert "replaylog" not in named
                if signal != 0:
                    window.append(pc)
                    continue
                assert EDGE in peer.console, peer.console
                windows.append(window)
                window = [pc]
        return windows

    def placed(self):
        return places_in(self, self.truth, self.windows)

    def test_steps_stop_at_each_edge(self):
        places = self.placed()
        self.assertTrue(all(len(window) > 20 for window in self.windows))
        self.assertTrue(any(place != before + len(window) for place, before, window in zip(places[1:], places, self.windows)))
        with self.client() as peer:
            for window in self.windows:
                for _ in window:
                    peer.ask("s")
            peer.console = ""
            for i, window in reversed(list(enumerate(self.windows))):
                for at, ip in reversed(list(enumerate(window))):
                    signal, pc, _, _ = stop_of(peer.ask("bs"))
                    self.assertEqual((pc, signal), (ip, 0 if at == len(window) - 1 else 5), (i, at))
            self.assertEqual(peer.console.count(EDGE), len(self.windows))

    def test_calls_end_at_the_edge(self):
        """The frames of each window are those of the calls in it, and a `finish` of the last one stops at the edge."""
        places = self.placed()
        deepest = 0
        with self.client() as peer:
            for i, (place, window) in enumerate(zip(places, self.windows)):
                insns = self.truth[place:place + len(window)]
                opened = follow(insns)
                for at, ip in enumerate(window):
                    if at % 16 == 0:
                        frames = [int(found, 16) for found in re.findall(r"^#\d+  0x(\w+)", peer.monitor("backtrace"), re.M)]
                        self.assertEqual(frames, [ip] + opened[at][::-1], (i, at))
                        deepest = max(deepest, len(frames) - 1)
                    if at + 1 < len(window):
                        self.assertEqual(stop_of(peer.ask("s"))[1], window[at + 1])
                if i + 1 == len(places):
                    break
                printed = peer.monitor("finish")
                self.assertIn("edge of a window of trace", printed)
                self.assertIn(f"at {self.windows[i + 1][0]:#x}", printed)
        self.assertGreater(deepest, 2)

    def test_moves_back_stay_in_the_window(self):
        with self.client() as peer:
            for _ in self.windows[0]:
                peer.ask("s")
            for command in ("reverse-nexti", "reverse-next", "reverse-step"):
                printed = peer.monitor(command)
                self.assertIn("edge of a window of trace", printed, command)
                self.assertIn(f"at {self.windows[1][0]:#x}", printed, command)
            self.assertIn("not moved", peer.monitor("reverse-finish"))

    def test_a_time_between_two_windows(self):
        """It shows the next window, without what was before; a step back passes the edge."""
        with self.client() as peer:
            for _ in self.windows[0]:
                peer.ask("s")
            now = float(re.search(r"^([\d.]+) s", peer.monitor("time"))[1])
            peer.monitor(f"seek {now - 1e-9:.9f}")
            self.assertEqual(re.findall(r"#\d+  (0x\w+)", peer.monitor("backtrace")), [hex(self.windows[1][0])])
            peer.console = ""
            self.assertEqual(stop_of(peer.ask("bs"))[:2], (0, self.windows[0][-1]))
            self.assertIn(EDGE, peer.console)
            self.assertIn("window: another snapshot or AUX sample", peer.monitor("gaps"))

    def test_the_branch_trace_begins_with_the_window(self):
        with self.client() as peer:
            self.assertEqual(peer.ask_all([f"Hg{self.tid:x}", "Qbtrace:bts"]), ["OK", "OK"])
            for _ in range(len(self.windows[0]) + 15):
                peer.ask("s")
            blocks = re.findall(r'begin="0x(\w+)"', peer.document("btrace", "all"))
            self.assertEqual(int(blocks[-1], 16), self.windows[1][0])

    def test_continue_passes_edges(self):
        """A run to a breakpoint does not stop at them, and says how many it passed."""
        with self.client() as peer:
            for packet in ("c", "bc"):
                peer.console = ""
                self.assertIn("replaylog", stop_of(peer.ask(packet))[3])
                self.assertGreaterEqual(int(re.search(r"passed (\d+) edges between windows", peer.console)[1]), WINDOWS)


class TwoThreads(unittest.TestCase):
    """Between the windows of one thread there is flow of another."""
    EDGES = 8

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.recorded = Recorded(holder.name, SOURCE / "tests" / "replay" / "programs" / "pair.c", "-static", "-no-pie", "-pthread", name="pair",
                                options=["--aux-sample=600", "--aux-sample-every", "2000", "--psb-period", "0"])

    def steps(self, peer, tid):
        """Returns (whether it came after an edge, address) of each stop of steps of a thread, up to some edges. A stop at an edge has a message."""
        stops = []
        while sum(is_edge for is_edge, _ in stops) < self.EDGES:
            peer.console = ""
            signal, pc, thread, named = stop_of(peer.ask(f"vCont;s:{tid:x}"))
            self.assertNotIn("replaylog", named)
            self.assertEqual((thread, EDGE in peer.console), (tid, signal == 0), peer.console)
            stops.append((signal == 0, pc))
        return stops

    def test_steps_stop_at_each_edge(self):
        """Forward and back. The windows as the stops divide them are parts of the truth."""
        self.assertEqual(len(self.recorded.truths), 2)
        for tid, path in self.recorded.truths.items():
            with self.subTest(tid), Client("-i", self.recorded.path, ptdecode=PTDECODE) as peer:
                self.assertEqual(peer.ask(f"T{tid:x}"), "OK")
                stops = self.steps(peer, tid)
                windows = [[]]
                for is_edge, pc in stops:
                    windows.append([pc]) if is_edge else windows[-1].append(pc)
                truth = truth_insns(path)
                places = places_in(self, truth, windows[1:-1])
                self.assertTrue(any(place != before + len(window) for place, before, window in zip(places[1:], places, windows[1:])))
                for (is_edge, _), (_, before) in reversed(list(zip(stops[1:], stops))):
                    peer.console = ""
                    signal, pc, thread, _ = stop_of(peer.ask("bs"))
                    self.assertEqual((pc, signal, EDGE in peer.console, thread), (before, 0 if is_edge else 5, is_edge, tid))

    def test_a_step_back_from_a_stop_of_the_other_thread(self):
        """The position is then before the edge, but the thread shows the instruction after it."""
        first, second = sorted(self.recorded.truths)
        breaks = [start + i for start, size in map(self.recorded.symbol, ("leaf", "outer")) for i in range(size)]
        stopped = 0
        with Client("-i", self.recorded.path, ptdecode=PTDECODE) as peer:
            self.assertEqual(peer.ask(f"T{first:x}"), "OK")
            self.steps(peer, first)
            for _ in range(self.EDGES - 1):  # the position is after an edge
                before = stop_of(peer.ask("bs"))[1]
                self.assertEqual(peer.ask_all([f"Z0,{ip:x},1" for ip in breaks]), ["OK"] * len(breaks))
                thread = stop_of(peer.ask(f"vCont;s:{first:x};c"))[2]
                self.assertEqual(peer.ask_all([f"z0,{ip:x},1" for ip in breaks]), ["OK"] * len(breaks))
                if thread == second:
                    stopped += 1
                    self.assertEqual(peer.ask(f"T{first:x}"), "OK")
                    peer.console = ""
                    self.assertEqual(stop_of(peer.ask("bs"))[:3], (0, before, first))
                    self.assertIn(EDGE, peer.console)
                else:
                    self.assertEqual(stop_of(peer.ask("bs"))[1], before)
                while stop_of(peer.ask("bs"))[0] != 0:
                    pass
                self.assertEqual(stop_of(peer.ask(f"vCont;s:{first:x}"))[0], 0)
        self.assertGreater(stopped, 0)


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("skipped: no qemu-x86_64")
        sys.exit(77)
    unittest.main(verbosity=1)
