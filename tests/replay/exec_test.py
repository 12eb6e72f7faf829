#!/usr/bin/env python3
"""`ptdecode replay --gdb` of a process that executes other programs: all answers are of the program that an exec event names, in both directions.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without gdb or qemu-x86_64.
"""
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from gdb_client import Client, stop_of
from gdb_test import AT_END, gdb
from recorded import PTDECODE, SOURCE, Recorded, truth_insns

CHAIN = SOURCE / "tests" / "replay" / "programs" / "chain.c"
# The programs of the chain, each with the flags that give it addresses of its own.
PROGRAMS = [("first", 2, ["-pie", "-fPIE"]), ("second", 3, ["-pie", "-fPIE", "-Wl,-Ttext-segment=0x600000"]), ("third", 4, ["-static", "-no-pie"]),
            ("fourth", 5, ["-pie", "-fPIE"])]
STATIC = [name for name, _, flags in PROGRAMS if "-static" in flags]
AT_PHDR, AT_ENTRY = 3, 9


def entry_of(program):
    return struct.unpack_from("<Q", program.read_bytes(), 24)[0]


class Exec(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.programs = [cls.folder / name for name, _, _ in PROGRAMS]
        for program, (_, count, flags) in list(zip(cls.programs, PROGRAMS))[1:]:
            subprocess.run([os.environ.get("CC", "cc"), "-g", "-O1", "-fcf-protection=none", *flags, f"-DCOUNT={count}", CHAIN, "-o", program], check=True)
        name, count, flags = PROGRAMS[0]
        cls.recorded = Recorded(cls.folder, CHAIN, *flags, f"-DCOUNT={count}", name=name, words=cls.programs[1:])
        (cls.tid, truth), = cls.recorded.truths.items()
        cls.truth = truth_insns(truth)
        # The instructions that execute a program.
        cls.leaving = [ip for (ip, code), (after, _) in zip(cls.truth, cls.truth[1:]) if code == b"\x0f\x05" and after != ip + 2]

    def client(self):
        return Client("-i", self.recorded.path, ptdecode=PTDECODE, features="exec-events+")

    def image(self, peer):
        """Returns the auxiliary vector, and the addresses of the files."""
        vector = peer.document("auxv").encode("latin-1")
        values = dict(struct.iter_unpack("<QQ", vector))
        libraries = peer.document("libraries-svr4")
        return values, {name: int(bias, 16) for name, bias in re.findall(r'name="([^"]*)" lm="\w+" l_addr="0x(\w+)"', libraries)}

    def check_image(self, peer, program):
        """The auxiliary vector, the libraries and the memory are those of a program. Returns how far it was moved."""
        values, libraries = self.image(peer)
        moved = values[AT_ENTRY] - entry_of(program)
        content = program.read_bytes()
        self.assertEqual(peer.ask(f"m{values[AT_ENTRY]:x},8"), self.text_at(content, entry_of(program), 8).hex(), program)
        self.assertEqual(peer.ask(f"m{values[AT_PHDR]:x},8"), self.text_at(content, values[AT_PHDR] - moved, 8).hex(), program)
        self.assertEqual(len(libraries) != 0, program.name not in STATIC, program)  # the loader, and when it has run, the C library
        return moved

    def text_at(self, content, address, size):
        table, = struct.unpack_from("<Q", content, 32)
        entry_size, count = struct.unpack_from("<HH", content, 54)
        for i in range(count):
            kind, _, offset, first, _, in_file = struct.unpack_from("<IIQQQQ", content, table + i * entry_size)
            if kind == 1 and first <= address < first + in_file:
                return content[offset + address - first:][:size]
        raise AssertionError(hex(address))

    def stops_at_programs(self, peer, packet):
        """Returns (program, pc) of the exec events up to the end of the recording."""
        stops = []
        while True:
            _, pc, _, named = stop_of(peer.ask(packet))
            if "replaylog" in named:
                return stops
            program = pathlib.Path(bytes.fromhex(named["exec"]).decode())
            stops.append((program, pc, self.check_image(peer, program)))
            self.assertEqual(peer.ask("p10"), struct.pack("<Q", pc).hex())
            self.assertEqual(peer.ask(f"m{pc:x},1"), next(code for ip, code in self.truth if ip == pc)[:1].hex())

    def test_answers_after_an_exec_event(self):
        with self.client() as peer:
            self.assertEqual(peer.document("exec-file"), str(self.programs[0]))
            moved = self.check_image(peer, self.programs[0])
            there = self.stops_at_programs(peer, "c")
            self.assertEqual([program for program, _, _ in there], self.programs[1:])
            back = self.stops_at_programs(peer, "bc")
            self.assertEqual([program for program, _, _ in back], self.programs[-2::-1])
            self.assertEqual([pc for _, pc, _ in back], self.leaving[::-1])
            self.assertEqual([by for _, _, by in back], [by for _, _, by in there][-2::-1] + [moved])
            self.assertNotEqual(moved, there[0][2])  # the first two are moved by different distances

    def test_steps_across_an_exec(self):
        """A step reports each instruction once, in both directions; the exec event comes first."""
        with self.client() as peer:
            peer.document("exec-file")
            _, start, _, named = stop_of(peer.ask("c"))
            self.assertIn("exec", named)
            (_, first, _, named) = stop_of(peer.ask("bs"))
            self.assertEqual((first, "exec" in named), (self.leaving[0], True))
            self.assertEqual(stop_of(peer.ask("bs"))[1], first)
            (_, before, _, named) = stop_of(peer.ask("bs"))
            self.assertNotIn("exec", named)
            self.assertNotEqual(before, first)
            self.assertEqual(stop_of(peer.ask("vCont;s"))[1], first)
            (_, pc, _, named) = stop_of(peer.ask("vCont;s"))
            self.assertEqual((pc, "exec" in named), (start, True))
            self.assertEqual(stop_of(peer.ask("vCont;s"))[1], start)

    def test_breakpoints_at_the_edges_of_a_program(self):
        """They are inserted after the exec event: at the first instruction of the new program, and at the last of the old one."""
        with self.client() as peer:
            peer.document("exec-file")
            for packet in ("c", "bc"):
                _, pc, _, named = stop_of(peer.ask(packet))
                self.assertIn("exec", named)
                self.assertEqual(peer.ask(f"Z0,{pc:x},1"), "OK")
                _, hit, _, named = stop_of(peer.ask(packet))
                self.assertEqual((hit, "swbreak" in named), (pc, True), packet)
                self.assertEqual(peer.ask(f"z0,{pc:x},1"), "OK")

    def test_breakpoints_of_each_program(self):
        """GDB stops at each call of work(), whose address differs from program to program, forward and backward."""
        calls = [count for _, count, _ in PROGRAMS]
        parts, errors = gdb(self.recorded.path, "break work", "ignore 1 1000", "continue", "info breakpoints", "reverse-continue", "info breakpoints",
                            "info symbol main")
        self.assertRegex(parts[2], AT_END, errors)
        self.assertIn(f"already hit {sum(calls)} times", parts[3], errors)
        self.assertIn(f"already hit {2 * sum(calls)} times", parts[5], errors)
        self.assertEqual(re.findall(r"executing new program: (\S+)", parts[4]), [str(program) for program in self.programs[-2::-1]], errors)
        self.assertIn(f"main in section .text of {self.programs[0]}", parts[6], errors)


if __name__ == "__main__":
    for tool in ("gdb", "qemu-x86_64"):
        if shutil.which(tool) is None:
            print(f"skipped: no {tool}")
            sys.exit(77)
    unittest.main(verbosity=1)
