#!/usr/bin/env python3
"""Inlined functions in the tree of calls: the stack at every executed instruction of an optimized C++ program, against the ground truth of the
emulator and addr2line; the calls of inlined functions against the same program compiled without inlining; the listings of the commands.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, PTDECODE_INLINE_STACKS, CXX. Exit status 77 without qemu-x86_64.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import call_replay  # noqa: E402
import perfetto_reader  # noqa: E402
from recorded_programs import CXX, RecordedPrograms, without_parts  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
MARK = " (inlined)"


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300)


def json_lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


class Chains:
    """The inlined functions at addresses, outermost first, by addr2line."""

    def __init__(self, program):
        self.program, self.known = program, {}

    def ask(self, addresses):
        addresses = sorted(set(addresses) - self.known.keys())
        out = subprocess.run(["addr2line", "-e", self.program, "-a", "-i", "-f", "-C"], input="\n".join(map(hex, addresses)), capture_output=True,
                             text=True, check=True).stdout.splitlines()
        names = None
        for line in out:
            if re.fullmatch(r"0x[0-9a-f]{16}", line):
                names = self.known.setdefault(int(line, 16), [])
            else:
                names.append(line)
        for address in addresses:
            names, _ = without_parts(self.known[address][0::2], self.known[address][1::2])  # innermost first
            self.known[address] = tuple(name + MARK for name in reversed(names[:-1]))

    def __getitem__(self, address):
        return self.known[address]


class Inlined(RecordedPrograms):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, source, flags in (("inlined", "inlined", ["-O2"]), ("plain", "inlined", ["-O2", "-fno-inline"]), ("parts", "parts", ["-O2"]),
                                    ("loop", "inline_loop", ["-O2", "-x", "c"])):
            cls.build(name, CXX, *flags, "-static", source=source, record=["--no-stash"])

    def executed(self, name):
        for what, insns in call_replay.truth_blocks(self.truth_file(name)):
            yield from insns if what == "run" else ()

    def check_stacks(self, name):
        """Compares the stack at each instruction. Returns those of the ground truth and addr2line, and the chains."""
        chains = Chains(self.folder / name)
        insns = list(self.executed(name))
        chains.ask(ip for ip, _ in insns)
        stack = [[None, ()]]  # of each open call: where it returns to, and its inlined functions
        want, following = [], None  # following: the kind of the instruction before, and the address after it
        for ip, code in insns:
            if following and following[0] == "call" and ip != following[1]:
                stack.append([following[1], ()])
            elif following and following[0] == "ret":
                depth = next((i for i in range(len(stack), 0, -1) if stack[i - 1][0] == ip), None)
                if depth is not None:
                    del stack[depth - 1:]
            stack[-1][1] = chains[ip]
            want.append(tuple(frame for call in stack for frame in ("*", *call[1])))
            following = call_replay.kind_of(code), ip + len(code)
        got = []
        done = subprocess.run([os.environ["PTDECODE_INLINE_STACKS"], self.data(name)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in done.stdout.splitlines():
            count, *frames = line.split("\t")
            got.extend([tuple(frames)] * int(count))
        self.assertEqual(len(got), len(want))
        for at, (ours, theirs) in enumerate(zip(got, want)):
            self.assertEqual(ours, theirs, (at, hex(insns[at][0])))
        print(f"{name}: {len(want)} instructions, {len(set(want))} stacks: equal", flush=True)
        return want, chains

    def test_the_stack_at_each_instruction_is_that_of_addr2line(self):
        _, chains = self.check_stacks("inlined")
        self.assertGreater(max(map(len, chains.known.values())), 3)

    def test_a_part_that_is_inlined_back_is_no_call(self):
        """GCC splits Square::area() and inlines the part after the first condition back. A recursive function that is inlined into itself is called."""
        done = subprocess.run(["addr2line", "-e", "parts", "-i", "-f", "-C"], cwd=self.folder, capture_output=True, text=True, check=True,
                              input="".join(f"{ip:#x}\n" for ip, _ in self.executed("parts"))).stdout
        self.assertRegex(done, r"Square::area\(int\) const\n.*\nSquare::area\(int\) const\n")
        want, chains = self.check_stacks("parts")
        area, move = "Square::area(int) const", "move(int)" + MARK
        self.assertEqual([chain for chain in chains.known.values() if area + MARK in chain], [])
        self.assertTrue(any(first == second == move for stack in want for first, second in zip(stack, stack[1:])))
        data = self.data("parts")
        rows = self.functions("parts")
        self.assertEqual({name: row["calls"] for name, row in rows.items() if "area" in name}, {area: 20})
        self.assertEqual(rows[area], self.functions("parts", "--no-inline")[area])
        self.assertGreater(rows[move]["calls"], 20)
        folded = run("flame", "-q", "-i", data, "--format", "folded").stdout
        self.assertIn(area.replace(" ", "_"), folded)
        self.assertNotRegex(folded, r"Square::area[^;]*;Square::area")
        self.assertRegex(folded, r";move[^;]*;move")
        self.assertEqual(run("profile", "-q", "-i", data, "--format", "csspgo", "-o", self.folder / "parts.prof").returncode, 0)
        contexts = (self.folder / "parts.prof").read_text()
        self.assertIn("_ZNK6Square4areaEi", contexts)
        self.assertNotIn("_ZNK6Square4areaEi:0 @ _ZNK6Square4areaEi", contexts)

    def functions(self, name, *words):
        done = run("functions", "-q", "-i", self.folder / (name + ".data"), "--limit", 0, "--format", "json", *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return {line["function"]: line for line in json_lines(done) if "function" in line}

    def entries(self, name):
        """Returns (name, DW_AT_entry_pc) of each copy of a member function of shop::Basket."""
        dump = subprocess.run(["readelf", "--debug-dump=info", name], cwd=self.folder, capture_output=True, text=True, check=True).stdout
        entries, origins = {}, {}
        for offset, text in re.findall(r"^ <\w+><(\w+)>: .*\n((?: +<\w+> .*\n)*)", dump, re.M):
            linkage = re.search(r"DW_AT_linkage_name.*: _ZN4shop6Basket(?:\d+(\w+?)E|([CD])\d)", text)
            origins[offset] = re.search(r"DW_AT_(?:abstract_origin|specification): <0x(\w+)>", text), linkage
            if entry := re.search(r"DW_AT_entry_pc +: 0x(\w+)", text):
                entries[offset] = int(entry[1], 16)

        def named(offset):
            origin, linkage = origins[offset]
            if linkage:
                return linkage[1] or {"C": "Basket", "D": "~Basket"}[linkage[2]]
            return named(origin[1]) if origin and origin[1] in origins else None

        return [(named(offset), entry) for offset, entry in entries.items() if named(offset)]

    def test_functions(self):
        rows, plain = self.functions("inlined"), self.functions("inlined", "--no-inline")
        inlined = {name: row for name, row in rows.items() if name.endswith(MARK)}
        self.assertGreater(len(inlined), 20)
        self.assertEqual([name for name in plain if name.endswith(MARK)], [])
        self.assertEqual(rows.keys() - inlined.keys(), plain.keys())
        executed = list(self.executed("inlined"))
        chains = Chains(self.folder / "inlined")
        chains.ask(ip for ip, _ in executed)
        own = collections.Counter(chains[ip][-1] for ip, _ in executed if chains[ip])
        self.assertEqual({name: row["self_instructions"] for name, row in inlined.items() if row["self_instructions"]}, dict(own))
        for listed in (rows, plain):
            self.assertEqual(sum(row["self_instructions"] for row in listed.values()), len(executed))
        for name, row in plain.items():  # calls are the same, with the inlined functions as their callees
            self.assertEqual((row["calls"], row["total_instructions"]), (rows[name]["calls"], rows[name]["total_instructions"]), name)

    def test_calls_are_those_of_the_program_without_inlining(self):
        """Where the compiler keeps the code of a function together: the loop of sum() in a copy of its own. A call begins at the copy's entry.
        The entry that GCC 14 gives to the constructor is not in its code, of which three instructions are left: a call may begin at the next of them."""
        rows, plain = self.functions("inlined"), self.functions("plain")
        chains, entries = Chains(self.folder / "inlined"), self.entries("inlined")
        chains.ask(entry for _, entry in entries)
        has_entry = {name + MARK for name, entry in entries if any(frame.startswith(f"shop::Basket::{name}(") for frame in chains[entry])}
        self.assertLessEqual({"add" + MARK, "~Basket" + MARK}, has_entry)
        for name in ("add(shop::Item)", "Basket()", "~Basket()"):
            want = plain["shop::Basket::" + name]["calls"]
            self.assertIn(rows["shop::Basket::" + name + MARK]["calls"], (want,) if name.split("(")[0] + MARK in has_entry else (0, want), name)
        self.assertEqual(set(self.functions("inlined", "--func", "shop::Basket::add")), {"shop::Basket::add(shop::Item)" + MARK})

    def test_an_entry_that_is_not_in_the_code(self):
        self.assertEqual(self.functions("loop")["repeat" + MARK]["calls"], 500)
        self.check_stacks("loop")

    def test_flame_and_timeline(self):
        name = "shop::Basket::add(shop::Item)" + MARK
        folded = run("flame", "-q", "-i", self.folder / "inlined.data", "--format", "folded").stdout
        self.assertIn(";main;" + name.replace(" ", "_"), folded)
        self.assertNotIn(MARK.replace(" ", "_"), run("flame", "-q", "-i", self.folder / "inlined.data", "--format", "folded", "--no-inline").stdout)
        path = self.folder / "inlined.pftrace"
        self.assertEqual(run("timeline", "-i", self.folder / "inlined.data", "-o", path).returncode, 0)
        _, slices, _ = perfetto_reader.read(path.read_bytes())
        main = next((begin, end) for _, _, function, begin, end in slices if function == "main")
        adds = [(begin, end) for _, _, function, begin, end in slices if function == name]
        row = self.functions("inlined")[name]
        self.assertEqual(len(adds), row["calls"] + row["no_start"])
        self.assertTrue(all(main[0] <= begin <= end <= main[1] for begin, end in adds))


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("skipped: qemu-x86_64 is not installed")
        sys.exit(77)
    unittest.main(verbosity=2)
