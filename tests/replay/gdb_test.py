#!/usr/bin/env python3
"""Sessions of GDB with `ptdecode replay --gdb`: threads, breakpoints, reverse execution, branch trace, symbols.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without gdb or qemu-x86_64.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from recorded import DATA, PTDECODE, SOURCE, Recorded, tid_of, truth_insns

PROGRAMS = SOURCE / "tests" / "replay" / "programs"


def gdb(recording, *commands, words=()):
    """Returns what each command printed."""
    server = " ".join(map(str, (PTDECODE, "replay", "--gdb", "-q", "-i", recording, *words)))
    script = ["-ex", "set pagination off", "-ex", "set confirm off", "-ex", "set width 0", "-ex", "set debuginfod enabled off",
              "-ex", f"target remote | {server}"]
    for i, command in enumerate(commands):
        script += ["-ex", f"echo \\n--{i}--\\n", "-ex", command]
    done = subprocess.run(["gdb", "-nx", "-batch", *script], capture_output=True, text=True, timeout=300,
                          env=dict(os.environ, DEBUGINFOD_URLS="", PTDECODE_STASH="off"), stdin=subprocess.DEVNULL)
    parts = re.split(r"^--\d+--\n", done.stdout, flags=re.M)
    assert len(parts) == len(commands) + 1, done.stdout + done.stderr
    return parts[1:], done.stderr


class Gdb(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.static = Recorded(holder.name, PROGRAMS / "loops.c", "-static", "-no-pie", name="loops")
        cls.pie = Recorded(holder.name, PROGRAMS / "threads.c", "-pie", "-fPIE", "-pthread", name="threads")
        cls.jit = Recorded(holder.name, SOURCE / "tests" / "emulate" / "programs" / "jit.c", name="jit")

    def pcs(self, printed):
        return [int(value, 16) for value in re.findall(r"^pc=0x(\w+)$", printed, re.M)]

    def check_steps(self, recording, truth, count, words=()):
        """`stepi` and `reverse-stepi` show the pcs of the truth."""
        program = recording.parent / "steps.gdb"
        program.write_text(f'set $i = 0\nwhile $i < {count}\n  printf "pc=0x%lx\\n", $pc\n  stepi\n  set $i = $i + 1\nend\n'
                           f'set $i = 0\nwhile $i < {count}\n  reverse-stepi\n  printf "pc=0x%lx\\n", $pc\n  set $i = $i + 1\nend\n')
        (printed,), errors = gdb(recording, f"source {program}", words=words)
        want = [ip for ip, _ in truth[:count]]
        got = self.pcs(printed)
        self.assertEqual(got[:count], want, errors)
        self.assertEqual(got[count:], want[::-1], errors)

    def test_steps_of_a_static_program(self):
        (tid, path), = self.static.truths.items()
        self.check_steps(self.static.path, truth_insns(path), 2000)

    def test_steps_of_a_thread(self):
        for tid, path in self.pie.truths.items():
            self.check_steps(self.pie.path, truth_insns(path), 700, ["--tid", tid])

    def test_steps_of_generated_code(self):
        (tid, path), = self.jit.truths.items()
        truth = truth_insns(path)
        generated = next(i for i, (ip, _) in enumerate(truth) if i > 100 and ip == max(at for at, _ in truth[-3000:] if truth.count((at, _)) > 0) or False) if False else 0
        self.check_steps(self.jit.path, truth[generated:], 1500)

    def test_breakpoints_in_threads(self):
        """leaf() is called 3 * (2 * 40 + 2) times; each worker calls it 120 times."""
        loop = self.pie.folder / "count.gdb"
        loop.write_text("python\nimport gdb\nhits = {}\nfor direction in ('continue', 'reverse-continue'):\n  while True:\n"
                        "    text = gdb.execute(direction, to_string=True)\n    if 'No more' in text: break\n"
                        "    key = (direction, gdb.selected_thread().ptid[1] or gdb.selected_thread().ptid[0])\n"
                        "    hits[key] = hits.get(key, 0) + 1\nprint(sorted(hits.items()))\nend\n")
        parts, errors = gdb(self.pie.path, "break leaf", f"source {loop}", "info breakpoints")
        counts = sorted(int(count) for count in re.findall(r"\), (\d+)\)", parts[1]))
        if "Python scripting is not supported" not in errors:
            self.assertEqual(counts, [6, 6, 120, 120, 120, 120], parts[1] + errors)
            self.assertIn(f"already hit {2 * 3 * (2 * 40 + 2)} times", parts[2])

    def test_symbols_of_a_position_independent_program(self):
        parts, errors = gdb(self.pie.path, "break mid", "continue", "info registers rip rax", "list", "x/s kText", "print caught", "info threads",
                            "info sharedlibrary")
        self.assertRegex(parts[0], r"Breakpoint 1 at 0x\w+: file .*threads\.c, line")
        self.assertIn("mid (x=<unavailable>)", parts[1])
        self.assertRegex(parts[2], r"rip +0x\w+ +0x\w+ <mid(\+\d+)?>\nrax +<unavailable>")
        self.assertIn("read-only data of the program", parts[4])
        self.assertNotRegex(parts[5], r"= \d")
        self.assertEqual(len(re.findall(r"Thread \d+ \(threads \(pid \d+\)\)", parts[6])), 3)
        self.assertIn("ld-linux-x86-64", parts[7] + parts[1] + errors)

    def test_branch_trace(self):
        """`record function-call-history` is the tree of calls, which follows from the program's source."""
        parts, errors = gdb(self.static.path, "tbreak outer", "continue", "continue 1", "tbreak main", "reverse-continue", "tbreak outer", "continue",
                            "tbreak *main+0", "delete", "break outer", "ignore 4 9", "continue", "record btrace bts", "set record function-call-history-size 62",
                            "record function-call-history /c", "record instruction-history", "reverse-stepi", "backtrace", "info record")
        lines = [line.split() for line in parts[14].split("\n") if line]
        names = [line[1] for line in lines if len(line) > 1 and line[0].isdigit()]
        # The position is before the call of outer() that the breakpoint stops at; before it, outer() was called at least 9 times.
        self.assertEqual(names[-1], "outer", parts[14] + errors)
        tail = names[-1 - 10:-1]
        self.assertEqual(tail, ["main"] * 0 + ["outer", "inner", "outer", "inner", "outer", "inner", "outer", "inner", "outer", "main"], names)
        depth = {name: len(re.search(rf"^\d+\t( *){name}$", parts[14], re.M)[1]) for name in ("main", "outer", "inner")}
        self.assertEqual((depth["outer"] - depth["main"], depth["inner"] - depth["outer"]), (2, 2))
        self.assertRegex(parts[15], r"<outer\+0>|<main\+\d+>")
        self.assertIn("main", parts[17])
        self.assertIn("Branch Trace Store", parts[18])

    def test_reverse_finish_in_the_branch_trace(self):
        parts, errors = gdb(self.static.path, "break inner", "ignore 1 20", "continue", "record btrace bts", "reverse-stepi", "reverse-step", "reverse-finish",
                            "backtrace 1")
        self.assertNotIn("rror", "".join(parts) + errors.replace("Error while", ""), errors)

    def test_kernel(self):
        (symbols, *_), errors = gdb(DATA / "kernel" / "kernel.bundle", "monitor symbols")
        self.assertRegex(symbols, r"source /\S+/symbols\.gdb")
        with tempfile.TemporaryDirectory() as folder:
            parts, errors = gdb(DATA / "kernel" / "kernel.bundle", "monitor symbols", f"source {folder}/symbols.gdb", "break ftrace_replace_code", "continue",
                                "info symbol $pc", "replay-seek 24.5", "x/2i $pc", "reverse-continue", "info breakpoints", words=["--symbol-dir", folder])
            self.assertIn("ftrace_replace_code", parts[3], errors)
            self.assertIn("ftrace_replace_code in section", parts[4])
            self.assertIn("now at 24.5000", parts[5])
            self.assertIn("ftrace_replace_code", parts[7])

    def test_bundle_without_the_binaries(self):
        bundle = self.static.folder / "only.bundle"
        subprocess.run([PTDECODE, "bundle", "-q", "-i", self.static.path, "-o", bundle], check=True, capture_output=True, env=self.static.environment)
        hidden = self.static.program.with_suffix(".hidden")
        self.static.program.rename(hidden)
        try:
            (tid, path), = self.static.truths.items()
            self.check_steps(bundle, truth_insns(path), 300)
        finally:
            hidden.rename(self.static.program)


if __name__ == "__main__":
    for tool in ("gdb", "qemu-x86_64"):
        if shutil.which(tool) is None:
            print(f"skipped: no {tool}")
            sys.exit(77)
    unittest.main(verbosity=2)
