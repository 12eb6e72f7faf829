#!/usr/bin/env python3
"""`ptdecode replay --gdb` of code that changes while it runs: what memory holds at each moment, and `monitor versions`.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import collections
import re
import shutil
import sys
import tempfile
import unittest

from gdb_client import Client, stop_of
from recorded import PTDECODE, SOURCE, Recorded, truth_insns

PROGRAM = SOURCE / "tests" / "replay" / "programs" / "sizes.c"
SIZE, JUMP_END = 19, 15  # of the functions that emit() of jit.c writes, and of their part that always runs before the last instruction
TEST, ADD_7 = "01f8f7c701000000", "0383c007c3"  # before and after the opcode of their jump


class Versions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.recorded = Recorded(holder.name, SOURCE / "tests" / "emulate" / "programs" / "jit.c", name="jit")
        (_, path), = cls.recorded.truths.items()
        truth = truth_insns(path)
        calls = collections.defaultdict(list)  # the bytes of each call of the function at an address
        for i, (ip, code) in enumerate(truth):
            if code[:1] == b"\xb8" and truth[i + 1][1] == b"\x01\xf8":
                calls[ip].append(code.hex() + TEST + truth[i + 3][1].hex()[:2] + ADD_7)
        cls.rewritten = sorted(calls, key=lambda ip: -len(calls[ip]))[:2]  # the function that is written 300 times, and that on the page that is protected
        cls.calls = calls
        assert [len(set(calls[ip])) > 40 for ip in cls.rewritten] == [True, True]

    def client(self):
        return Client("-i", self.recorded.path, ptdecode=PTDECODE)

    def test_memory_around_the_block(self):
        """At each stop in a function, all code that ran in this call is known, also when it ran for the first time. So is what else was recorded then."""
        for function in self.rewritten:
            for offset in (0, SIZE - 1):
                with self.client() as peer:
                    self.assertEqual(peer.ask(f"Z0,{function + offset:x},1"), "OK")
                    for i, want in enumerate(self.calls[function]):
                        self.assertEqual(stop_of(peer.ask("c"))[1], function + offset)
                        read = peer.ask(f"m{function:x},{SIZE:x}")
                        self.assertTrue(want.startswith(read) and len(read) >= 2 * JUMP_END, (i, offset, read, want))

    def test_one_version_is_live(self):
        """The list has the bytes of the whole instruction: its first byte never changes. One line has the star, with the bytes that run."""
        for function in self.rewritten:
            with self.client() as peer:
                self.assertEqual(peer.ask(f"Z0,{function:x},1"), "OK")
                for i, want in enumerate(self.calls[function][:120]):
                    self.assertEqual(stop_of(peer.ask("c"))[1], function)
                    printed = peer.monitor("versions")
                    live = [line for line in printed.split("\n") if line.startswith("* ") and "mapped: code" not in line]
                    self.assertEqual(len(live), 1, (i, printed))
                    self.assertIn(" ".join(want[at:at + 2] for at in range(0, 10, 2)), live[0], (i, printed))

    def test_instructions_of_functions_of_different_sizes(self):
        """Of a version, the list has the instruction, wherever it is in the changed code, and also if other bytes of the version are unknown."""
        with tempfile.TemporaryDirectory() as folder:
            announce = SOURCE / "announce"
            recorded = Recorded(folder, PROGRAM, "-I", announce, announce / "ptd_announce.c", name="sizes", options=["--no-ran-code", "--mtc-period", "4"], clock="--cyc")
            (_, path), = recorded.truths.items()
            truth = truth_insns(path)
            first = next(ip for i, (ip, code) in enumerate(truth[:-1]) if code[:1] == b"\xb8" and truth[i + 1] == (ip + 5, b"\x05\x01\0\0\0"))
            with Client("-i", recorded.path, ptdecode=PTDECODE) as peer:
                self.assertEqual(peer.ask(f"Z0,{first:x},1"), "OK")
                calls = [i for i, (ip, _) in enumerate(truth) if ip == first]
                self.assertEqual(len(calls), 100)
                for start in calls:
                    self.assertEqual(stop_of(peer.ask("c"))[1], first)
                    end = next(i for i in range(start, len(truth)) if truth[i][1] == b"\xc3")
                    for ip, code in truth[start:end + 1]:
                        printed = peer.monitor(f"versions {ip:x}")
                        live = [line for line in printed.split("\n") if line.startswith("* ") and "mapped: " not in line]
                        self.assertTrue(live and all(line.endswith(" " + code.hex(" ")) for line in live), (hex(ip), code.hex(" "), printed))


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("skipped: no qemu-x86_64")
        sys.exit(77)
    unittest.main(verbosity=1)
