#!/usr/bin/env python3
"""Sessions of GDB with `ptdecode replay --gdb`: threads, breakpoints, reverse execution, branch trace, symbols.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without gdb or qemu-x86_64.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from recorded import DATA, PTDECODE, SOURCE, Recorded, tid_of, truth_insns

PROGRAMS = SOURCE / "tests" / "replay" / "programs"
# What GDB says at the end of the recording: before version 16, and since.
AT_END = r"No more reverse-execution history|Reached end of recorded history"


def gdb(recording, *commands, words=(), folder=None):
    """Returns what each command printed, run in `folder`."""
    server = " ".join(map(str, (PTDECODE, "replay", "--gdb", "-q", "-i", recording, *words)))
    script = ["-ex", "set pagination off", "-ex", "set confirm off", "-ex", "set width 0", "-ex", "set debuginfod enabled off",
              "-ex", f"target remote | {server}"]
    for i, command in enumerate(commands):
        script += ["-ex", f"echo \\n--{i}--\\n", "-ex", command]
    done = subprocess.run(["gdb", "-nx", "-batch", *script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
                          env=dict(os.environ, DEBUGINFOD_URLS="", PTDECODE_STASH="off"), stdin=subprocess.DEVNULL, cwd=folder)
    parts = re.split(r"^--\d+--\n", done.stdout, flags=re.M)
    assert len(parts) == len(commands) + 1, done.stdout
    return parts[1:], done.stdout


class Gdb(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
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
        self.check_steps(self.jit.path, truth_insns(path), 1500)

    def test_breakpoints_in_threads(self):
        """leaf() is called 3 * (2 * 40 + 2) times, in each direction."""
        calls = 3 * (2 * 40 + 2)
        parts, errors = gdb(self.pie.path, "break leaf", "ignore 1 100000", "continue", "info breakpoints", "reverse-continue", "info breakpoints", "delete",
                            "break leaf thread 2", "continue", "info threads")
        self.assertRegex(parts[2], AT_END, errors)
        self.assertIn(f"already hit {calls} times", parts[3])
        self.assertIn(f"already hit {2 * calls} times", parts[5])
        self.assertRegex(parts[9], r"\* 2 .* leaf ")

    def test_the_instruction_that_ends_the_flow_is_named(self):
        """It did not retire, so the last position is before the instruction that precedes it."""
        crash = Recorded(self.folder, PROGRAMS / "crash.c", "-static", "-no-pie", name="crash", status=139)
        faulting = int(re.search(r"^(\w+) T faulting$", subprocess.run(["nm", crash.program], capture_output=True, text=True, check=True).stdout, re.M)[1], 16)
        (run, pc, step), errors = gdb(crash.path, "continue", 'printf "pc=0x%lx\\n", $pc', "stepi")
        for printed in (run, step):
            self.assertIn(f"the flow ends before the instruction at {faulting:#x}: fault, signal or interrupt", printed, errors)
        self.assertEqual(self.pcs(pc), [faulting - 2], errors)
        (run,), errors = gdb(self.static.path, "continue")
        self.assertNotIn("the flow ends", run, errors)

    def test_symbols_of_a_position_independent_program(self):
        parts, errors = gdb(self.pie.path, "break mid", "continue", "info registers rip rax", "list", "x/s kText", "print caught", "info threads",
                            "info sharedlibrary")
        self.assertRegex(parts[0], r"Breakpoint 1 at 0x\w+: file .*threads\.c, line")
        self.assertIn("mid (x=<unavailable>)", parts[1])
        self.assertRegex(parts[2], r"rip +0x\w+ +0x\w+ <mid(\+\d+)?>\nrax +<unavailable>")
        self.assertIn("read-only data of the program", parts[4])
        self.assertNotRegex(parts[5], r"= \d")
        self.assertEqual(len(re.findall(r"Thread \d+ \(threads \(pid \d+\)\)", parts[6])), 3)
        self.assertEqual(len(re.findall(r"^0x\w+ +0x\w+ +Yes ", parts[7], re.M)), 2, parts[7])  # the loader and the C library

    def test_segments_that_share_a_page_of_the_file(self):
        """lld gives each segment its own distance of address and offset (Rust programs): GDB loads the program once, at the right address."""
        linker = next((found for name in ("ld.lld", "ld.lld-14", "ld.lld-19") if (found := shutil.which(name))), None)
        if linker is None:
            self.skipTest("no lld")
        (self.folder / "ld.lld").symlink_to(linker)
        shared = Recorded(self.folder, PROGRAMS / "threads.c", "-pie", "-fPIE", "-pthread", f"-B{self.folder}", "-fuse-ld=lld", name="shared")
        loads = re.findall(r"LOAD +0x(\w+) 0x(\w+)", subprocess.run(["readelf", "-lW", shared.program], capture_output=True, text=True, check=True).stdout)
        self.assertGreater(len({int(address, 16) - int(offset, 16) for offset, address in loads}), 1)
        parts, errors = gdb(shared.path, "break leaf", "ignore 1 100000", "continue", "info breakpoints", "reverse-continue", "info symbol leaf",
                            "x/s kText", "info sharedlibrary", "break mid", "reverse-continue", "continue", "info symbol $pc")
        self.assertRegex(parts[0], r"Breakpoint 1 at 0x\w+: file .*threads\.c, line \d+\.\n$")
        self.assertIn(f"already hit {3 * (2 * 40 + 2)} times", parts[3], errors)
        self.assertIn("read-only data of the program", parts[6])
        self.assertNotIn(str(shared.program), parts[7])
        self.assertRegex(parts[11], r"^mid in section \.text")

    def test_programs_that_a_process_executes(self):
        """The calls of each program are those of its source, by the names of its own file, forward and backward, in each process."""
        second = self.folder / "second"
        subprocess.run([os.environ.get("CC", "cc"), "-g", "-O1", "-fcf-protection=none", PROGRAMS / "second.c", "-o", second], check=True)
        first = Recorded(self.folder, PROGRAMS / "first.c", f'-DSECOND="{second}"', name="first")
        parent, child = sorted(first.truths)
        counts = lambda printed: dict(re.findall(r"in (\w+) at .*\n\tbreakpoint already hit (\d+) times?$", printed, re.M))
        parts, errors = gdb(first.path, "info threads", "break before", "break parent_only", "ignore 1 100", "ignore 2 100", "continue", "info breakpoints")
        self.assertIn(f"replays process {parent} (first); --pid chooses another of this recording: {child}", errors)
        self.assertEqual(counts(parts[6]), {"before": "5", "parent_only": "3"}, errors)
        parts, errors = gdb(first.path, "set breakpoint pending on", "break after", "ignore 1 100", "continue", "info breakpoints", "reverse-continue",
                            "info breakpoints", "info symbol main", "stepi 100000000", "info symbol main", words=["--pid", child])
        self.assertIn(f"executing new program: {second}", parts[3], errors)
        self.assertEqual(counts(parts[4]), {"after": "7"}, errors)
        self.assertIn(f"executing new program: {first.program}", parts[5], errors)
        self.assertIn(f"main in section .text of {first.program}", parts[7], errors)
        self.assertIn(f"main in section .text of {second}", parts[9], errors)

    def test_scripts_with_symbols_are_written_again(self):
        parts, errors = gdb(DATA / "kernel" / "kernel.bundle", "monitor symbols", "monitor symbols", words=["--symbol-dir", self.folder])
        for part in parts:
            self.assertIn("1872 names of other code", part, errors)

    def test_branch_trace(self):
        """`record function-call-history` is the tree of calls, which follows from the program's source."""
        parts, errors = gdb(self.static.path, "break outer", "ignore 1 9", "continue", "record btrace bts", "set record function-call-history-size 12",
                            "record function-call-history /c", "record instruction-history", "reverse-stepi", "backtrace", "info record")
        rows = re.findall(r"^\d+\t( *)(\S+)$", parts[5], re.M)
        names = [name for _, name in rows]
        self.assertEqual(names[-11:], ["main", "outer", "inner", "outer", "inner", "outer", "inner", "outer", "inner", "outer", "main"], parts[5] + errors)
        depths = {name: {len(spaces) for spaces, each in rows if each == name} for name in ("main", "outer", "inner")}
        (main,), (outer,), (inner,) = depths.values()
        self.assertEqual((outer - main, inner - outer), (2, 2))
        self.assertRegex(parts[6], r"<main\+\d+>:\tcall")
        self.assertIn("#0  ", parts[8])
        self.assertIn("main", parts[8])
        self.assertIn("Branch Trace Store", parts[9])

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

    def test_page_of_the_documentation(self):
        """Each command of the session in docs/REPLAY.md prints the lines that the page shows."""
        text = (SOURCE / "docs" / "REPLAY.md").read_text(encoding="utf-8")
        session = re.search(r"^```\n\$ gdb -nx\n(.*?)^```$", text, re.M | re.S)[1]
        steps = [step.split("\n") for step in session.split("(gdb) ")[1:]]
        self.assertTrue(steps[0][0].startswith("target remote | ptdecode replay --gdb -q -i data/kernel/kernel.bundle --symbol-dir ."))
        with tempfile.TemporaryDirectory() as folder:
            parts, errors = gdb(DATA / "kernel" / "kernel.bundle", *(lines[0] for lines in steps[1:]), words=["--symbol-dir", "."], folder=folder)
        for (command, *lines), printed in zip(steps[1:], parts):
            for line in lines:
                self.assertIn(line if line != "..." else "", printed.split("\n") + [""], (command, errors))

    def test_moves_over_calls_that_load_libraries(self):
        """GDB keeps a breakpoint in the dynamic linker, to learn of libraries. The moves stop where `next` and `finish` of GDB do on the running program."""
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(folder, "plugin.c")
            library.write_text("int plugin(int x) { return x + 1; }\n")
            subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", library, "-o", library.with_suffix(".so")], check=True)
            program = Recorded(folder, PROGRAMS / "plugins.c", "-O0", name="plugins")
            moves = [*["next"] * 7, "break call", "continue", "finish", *["next"] * 4]
            script = [word for move in ("break main", "run", *moves) for word in ("-ex", "echo --\\n", "-ex", move, "-ex", "info line *$pc")]
            live = subprocess.run(["gdb", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set width 0", *script, program.program], text=True,
                                  capture_output=True, cwd=folder, stdin=subprocess.DEVNULL, timeout=100).stdout.split("--\n")[3:]
            replayed = [["replay-" + move if move in ("next", "finish") else move, "info line *$pc"] for move in moves]
            parts, errors = gdb(program.path, "monitor symbols", f"source {folder}/symbols.gdb", "break main", "continue", *sum(replayed, []), folder=folder,
                                words=["--symbol-dir", folder])
            lines = [re.findall(r"^Line (\d+) of .*plugins.c", part, re.M)[-1:] for part in live]
            self.assertEqual([re.findall(r"^Line (\d+) of .*plugins.c", part, re.M)[-1:] for part in parts[5::2]], lines, errors)
            self.assertGreater(len({line for line, in lines}), 5)

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
