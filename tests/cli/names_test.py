#!/usr/bin/env python3
"""The names of functions, for programs whose symbols are unusual: without sizes, or with one name for several functions.

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

PTDECODE = os.environ["PTDECODE"]
CC = os.environ.get("CC", "cc")
# `outer` and `thunk` have no size, `sized` contains the label `inside`. Each is called ten times.
SIZELESS = r"""
  .globl _start, leaf, inside
  .type inside, @notype
_start:
  mov $10, %ebx
1: call outer
  call thunk
  call sized
  dec %ebx
  jnz 1b
  mov $60, %eax
  xor %edi, %edi
  syscall
outer:
  nop
  call 3f
  ret
  .skip 64, 0xcc
3: call leaf
  ret
thunk:
  call 2f
1: pause
  jmp 1b
2: lea leaf(%rip), %rdx
  mov %rdx, (%rsp)
  ret
  .type sized, @function
sized:
  jmp inside
  .skip 64, 0xcc
inside:
  nop
  call leaf
  ret
  .size sized, . - sized
  .type leaf, @function
leaf:
  ret
  .size leaf, . - leaf
"""


def run(*words):
    done = subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Names(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def recorded(self, program):
        path = self.folder / (program.name + ".data")
        run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-q", "-o", path, "--", program)
        return path

    def rows(self, path):
        lines = [json.loads(line) for line in run("functions", "-q", "-i", path, "--limit", "0", "--format", "json").splitlines()]
        return {line["function"]: line for line in lines[1:]}

    def test_a_symbol_without_a_size_names_its_code_everywhere(self):
        """It reaches up to the next symbol; a label within a function that has a size does not end the function."""
        program = self.folder / "sizeless"
        subprocess.run([CC, "-nostdlib", "-static", "-x", "assembler", "-", "-o", program], input=SIZELESS, text=True, check=True)
        data = self.recorded(program)
        rows = self.rows(data)
        calls = {name: row["calls"] for name, row in rows.items()}
        # The call within `outer` is one of `outer`; that within `thunk` skips a few bytes and only fills the return stack.
        self.assertEqual({name: count for name, count in calls.items() if name[0] != "["}, {"_start": 1, "outer": 20, "thunk": 10, "sized": 10, "leaf": 30})
        own = {"_start": 1 + 5 * 10 + 3, "outer": (3 + 2) * 10, "thunk": 4 * 10, "sized": 4 * 10, "leaf": 3 * 10}
        self.assertEqual({name: rows[name]["self_instructions"] for name in own}, own)
        listed = collections.Counter(re.findall(r"\) +(\S+)$", run("script", "-q", "-i", data, "--call-trace"), re.M))
        self.assertLessEqual(set(listed), {"outer", "thunk", "sized", "leaf"})
        frames = {frame for line in run("flame", "-q", "-i", data, "--format", "folded").splitlines() for frame in line.rsplit(" ", 1)[0].split(";")}
        self.assertLessEqual({"outer", "thunk", "sized", "leaf"}, frames)
        self.assertEqual([frame for frame in frames if "+0x" in frame or "unnamed" in frame], [])
        branches = run("script", "-q", "-i", data, "--itrace=b")
        self.assertEqual(set(re.findall(r" ([a-z_]+)\+0x", branches)), {"_start", "outer", "thunk", "sized", "leaf"})


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("skipped: no qemu-x86_64")
        sys.exit(77)
    unittest.main()
