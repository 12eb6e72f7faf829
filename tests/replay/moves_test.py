#!/usr/bin/env python3
"""Moves by calls and lines (`monitor next`, `finish`, ...): against the ground truth, whose calls are matched by a stack, and against GDB on the
running program.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without gdb or qemu-x86_64.
"""
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from gdb_client import Client, stop_of
from recorded import DATA, PTDECODE, SOURCE, Recorded, tid_of, truth_insns

PROGRAMS = SOURCE / "tests" / "replay" / "programs"


def branch_kind(code):
    """Of an x86-64 instruction: call, ret or other. [SDM] volume 2: E8, FF /2, C2, C3, with prefixes (F2, F3, segment, operand and address size) and REX."""
    at = 0
    while at < len(code) - 1 and (code[at] in (0xF2, 0xF3, 0x2E, 0x3E, 0x66, 0x67) or 0x40 <= code[at] <= 0x4F):
        at += 1
    if code[at] == 0xE8 or (code[at] == 0xFF and at + 1 < len(code) and code[at + 1] >> 3 & 7 == 2):
        return "call"
    return "ret" if code[at] in (0xC2, 0xC3) else "other"


class Flow:
    """A thread of the ground truth with the depth of calls before each instruction. Each return returns from the innermost call."""

    def __init__(self, path):
        self.insns = truth_insns(path)
        self.depths, self.stacks, stack = [], [], []
        for ip, code in self.insns:
            self.depths.append(len(stack))
            self.stacks.append(tuple(stack))
            kind = branch_kind(code)
            if kind == "call":
                stack = [*stack, ip + len(code)]
            elif kind == "ret" and stack:
                stack = stack[:-1]

    def first_after(self, k, depth):
        return next((j for j in range(k + 1, len(self.insns)) if self.depths[j] <= depth), None)

    def last_before(self, k, depth):
        return next((j for j in range(k - 1, -1, -1) if self.depths[j] <= depth), None)

    def moved(self, k, command):
        depth = self.depths[k]
        return {"nexti": self.first_after(k, depth), "finish": self.first_after(k, depth - 1), "reverse-nexti": self.last_before(k, depth),
                "reverse-finish": self.last_before(k, depth - 1)}[command]


class Moves(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.static = Recorded(holder.name, PROGRAMS / "loops.c", "-static", "-no-pie", name="loops")
        cls.pie = Recorded(holder.name, PROGRAMS / "threads.c", "-pie", "-fPIE", "-pthread", name="threads")
        cls.jit = Recorded(holder.name, SOURCE / "tests" / "emulate" / "programs" / "jit.c", name="jit")

    def step_to(self, peer, k, target):
        packet = "s" if target > k else "bs"
        for at in range(0, abs(target - k), 400):
            last = peer.ask_all([packet] * min(400, abs(target - k) - at))[-1]
        return stop_of(last)[1] if target != k else None

    def check_moves(self, words, flow, samples, seed=1):
        rng = random.Random(seed)
        k = 0
        with Client(*words, ptdecode=PTDECODE) as peer:
            for _ in range(samples):
                at = min(k + rng.randrange(1, 60), len(flow.insns) - 200)
                self.step_to(peer, k, at)
                k = at
                command = rng.choice(["nexti", "finish", "reverse-nexti", "reverse-finish"])
                to = flow.moved(k, command)
                if to is None or abs(to - k) > 20_000:
                    continue
                printed = peer.monitor(command)
                pc = int.from_bytes(bytes.fromhex(peer.ask("p10")), "little")
                self.assertEqual(hex(pc), hex(flow.insns[to][0]), (command, k, to, printed))
                after = min(25, len(flow.insns) - to - 1)  # the position, too, and not only its address
                self.assertEqual([stop_of(reply)[1] for reply in peer.ask_all(["s"] * after)], [ip for ip, _ in flow.insns[to + 1:to + 1 + after]], (command, k, to))
                k = to + after

    def test_a_static_program(self):
        (tid, path), = self.static.truths.items()
        flow = Flow(path)
        self.check_moves(["-i", self.static.path], flow, 150)

    def test_threads(self):
        """All but the main thread, which runs a signal's handler: its return is no return from a call."""
        for tid, path in sorted(self.pie.truths.items())[1:]:
            self.check_moves(["-i", self.pie.path, "--tid", tid], Flow(path), 60, seed=tid)

    def test_generated_code(self):
        (tid, path), = self.jit.truths.items()
        self.check_moves(["-i", self.jit.path], Flow(path), 60)

    def test_backtrace(self):
        """The return addresses are those of the calls that are open in the truth."""
        (tid, path), = self.static.truths.items()
        flow = Flow(path)
        inner = self.static.symbol("inner")[0]
        with Client("-i", self.static.path, ptdecode=PTDECODE) as peer:
            self.assertEqual(peer.ask(f"Z0,{inner:x},1"), "OK")
            where = [k for k, (ip, _) in enumerate(flow.insns) if ip == inner]
            for k in where[:50]:
                self.assertEqual(stop_of(peer.ask("c"))[1], inner)
                frames = [int(ip, 16) for ip in re.findall(r"^#\d+ +0x(\w+)", peer.monitor("backtrace"), re.M)]
                self.assertEqual(frames, [inner, *reversed(flow.stacks[k])])
            self.assertRegex(peer.monitor("backtrace"), r"(?s)#0 .* in inner .*loops\.c:4.*#1 .* in outer\+.*#2 .* in main\+")

    def test_a_signal_handler_is_a_frame(self):
        with Client("-i", self.pie.path, ptdecode=PTDECODE) as peer:
            ran = subprocess.run([PTDECODE, "script", "-q", "-i", self.pie.path, "--itrace=i1i", "-F", "ip,sym"], capture_output=True, text=True,
                                 env=self.pie.environment).stdout
            handler = int(re.search(r"^ *(\w+) on_signal$", ran, re.M)[1], 16)
            self.assertEqual(peer.ask(f"Z0,{handler:x},1"), "OK")
            self.assertEqual(stop_of(peer.ask("c"))[1], handler)
            printed = peer.monitor("backtrace")
            self.assertRegex(printed, r"(?s)#0 .* in on_signal.*<interrupt or signal>.*in raise.*in main")

    def test_an_interrupt_of_a_kernel_is_passed_by_nexti(self):
        """From before an interrupt to the interrupted instruction, and back."""
        kernel = DATA / "kernel" / "kernel.bundle"
        with Client("-i", kernel, "-C", "0", ptdecode=PTDECODE) as peer:
            peer.monitor("seek 24.5")
            handler = re.search(r"async_branch from 0x\w+ to (0x\w+)", peer.monitor("events"))[1]
            self.assertEqual(peer.ask(f"Z0,{handler[2:]},1"), "OK")
            handler = int(handler, 16)
            peer.console = ""
            self.assertEqual(stop_of(peer.ask("vCont;c"))[1], handler)
            interrupted, to = re.findall(r"asynchronous branch .* at 0x(\w+) to 0x(\w+)", peer.console)[-1]
            self.assertEqual(int(to, 16), handler)
            self.assertRegex(peer.monitor("backtrace"), rf"#0 +{handler:#x} .*\n +<interrupt or signal>\n#1 +0x{interrupted}")
            peer.monitor("finish")
            self.assertEqual(int.from_bytes(bytes.fromhex(peer.ask("p10")), "little"), int(interrupted, 16))
            # A breakpoint stops a move backward, too.
            self.assertIn("stopped at a breakpoint", peer.monitor("reverse-nexti"))
            self.assertEqual(int.from_bytes(bytes.fromhex(peer.ask("p10")), "little"), handler)
            self.assertEqual(peer.ask(f"z0,{handler:x},1"), "OK")
            peer.monitor("finish")
            peer.monitor("reverse-nexti")
            before = int.from_bytes(bytes.fromhex(peer.ask("p10")), "little")
            self.assertLess(int(interrupted, 16) - before, 16)  # the instruction before it, in the same function
            peer.monitor("nexti")  # passes the interrupt
            self.assertEqual(int.from_bytes(bytes.fromhex(peer.ask("p10")), "little"), int(interrupted, 16))

    def test_retpolines_are_no_frames(self):
        with Client("-i", DATA / "kernel" / "kernel.bundle", "-C", "0", ptdecode=PTDECODE) as peer:
            peer.monitor("percent 95")
            frames = re.findall(r"^#\d+ +0x\w+ in ([^+\s]+)", peer.monitor("backtrace"), re.M)
            self.assertEqual(frames, ["perf_event_switch_output", "perf_iterate_sb", "__perf_event_task_sched_out", "__schedule", "schedule_idle", "do_idle",
                                      "cpu_startup_entry"])

    def lines(self, commands, *words):
        """The source lines at which GDB stops."""
        done = subprocess.run(["gdb", "-nx", "-batch", "-ex", "set width 0", "-ex", "set confirm off", "-ex", "set debuginfod enabled off", *words,
                               *[word for command in commands for word in ("-ex", command)]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=100, stdin=subprocess.DEVNULL, env=dict(os.environ, PTDECODE_STASH="off", DEBUGINFOD_URLS=""))
        return [int(line) for line in re.findall(r"^(\d+)\t", done.stdout, re.M)], done.stdout

    def test_lines_are_those_of_gdb_on_the_running_program(self):
        """next and step, with and without optimisation."""
        plain = Recorded(self.static.folder, PROGRAMS / "loops.c", "-static", "-no-pie", "-O0", name="plain")
        moves = ["next"] + ["step"] * 30 + ["next"] * 2 + ["step"] * 6  # next in main passes its whole loop
        for program, some in ((plain, moves), (self.static, ["step"] * 40)):
            live, printed = self.lines(["break main", "run", *some], str(program.program))
            self.assertGreater(len(live), 35, printed)
            folder = self.static.folder / f"script-{program.path.name}"
            folder.mkdir()
            server = f"target remote | {PTDECODE} replay --gdb -q -i {program.path} --symbol-dir {folder}"
            script = [server, "monitor symbols", f"source {folder}/symbols.gdb"]
            replayed, said = self.lines([*script, "break main", "continue", *(f"replay-{move}" for move in some)])
            self.assertEqual(replayed[-len(live):], live, said)
        _, said = self.lines([*script, "break main", "break inner", "continue", "replay-next", "replay-next"])
        self.assertRegex(said, r"(?s)stopped at a breakpoint.*inner \(")
        # Back again: each line is one at which the way there stopped, in the other order.
        _, said = self.lines([*script, "break inner", "continue", "delete", "replay-reverse-finish", "replay-reverse-next",
                              "replay-reverse-next", "replay-finish", "replay-backtrace"])
        self.assertRegex(said, r"(?s)outer \(.*main \(")
        self.assertNotIn("rror", said)


class Lines(unittest.TestCase):
    """next, step and until stop at the addresses at which GDB stops on the running program, also after the end of a function."""
    MOVES = (("main", ["step"] * 150), ("get", ["next"] * 50), ("recursive", ["next"] * 40), ("twice", ["next"] * 20),
             ("loops", ["next", "next", "until", "next", "until", "until", "next", "next", "until"] * 4))

    def gdb(self, *words):
        done = subprocess.run(["gdb", "-nx", "-batch", "-ex", "set width 0", "-ex", "set confirm off", "-ex", "set debuginfod enabled off", *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200, stdin=subprocess.DEVNULL,
                              env=dict(os.environ, PTDECODE_STASH="off", DEBUGINFOD_URLS=""))
        return [int(ip, 16) for ip in re.findall(r"^at 0x(\w+)", done.stdout, re.M)], done.stdout

    def check(self, program, functions):
        places = [program.symbol(name) for name in functions]
        for start, moves in self.MOVES:
            words = ["-ex", f"break {start}"]
            ends = ["-ex", "delete"]
            shown = ["-ex", 'printf "at 0x%lx\\n", $pc']
            live, said = self.gdb(*words, "-ex", "run", *ends, *(word for move in moves for word in ("-ex", move, *shown)), program.program)
            known = next((k for k, ip in enumerate(live) if not any(first <= ip < first + size for first, size in places)), len(live))
            self.assertGreater(known, 1, said)
            server = f"target remote | {PTDECODE} replay --gdb -q -i {program.path}"
            replayed, printed = self.gdb("-ex", server, *words, "-ex", "continue", *ends, *(word for move in moves[:known] for word in ("-ex", f"monitor {move}")),
                                         program.program)
            self.assertEqual([hex(ip) for ip in replayed], [hex(ip) for ip in live[:known]], (start, moves[0], printed))

    def test_stops_are_those_of_gdb(self):
        functions = ("set", "get", "both", "recursive", "twice", "loops", "main")
        for flags in (["-O0"], ["-O0", "-fcf-protection=full"], ["-Og"], ["-O2", "-fno-inline"]):
            with self.subTest(flags), tempfile.TemporaryDirectory() as folder:
                self.check(Recorded(folder, PROGRAMS / "lines.c", "-static", "-no-pie", "-fno-ipa-cp", *flags, name="lines"), functions)

    def test_step_passes_the_dynamic_linker(self):
        """The first call of a library's function runs the dynamic linker, whose lines a debug package has."""
        with tempfile.TemporaryDirectory() as folder:
            program = Recorded(folder, PROGRAMS / "lines.c", "-no-pie", "-O0", "-Wl,-z,lazy", name="lines")
            self.check(program, ("set", "get", "both", "recursive", "twice", "loops", "main"))

    def test_no_stop_at_the_set_up_of_a_frame(self):
        """Neither forward nor backward."""
        with tempfile.TemporaryDirectory() as folder:
            program = Recorded(folder, PROGRAMS / "lines.c", "-static", "-no-pie", "-O0", name="lines")
            there, said = self.gdb("-ex", f"target remote | {PTDECODE} replay --gdb -q -i {program.path}", "-ex", "break both", "-ex", "continue",
                                   *["-ex", "monitor step"] * 40, *["-ex", "monitor reverse-step"] * 30, program.program)
            self.assertEqual(len(there), 70, said)
            entries = [program.symbol(name)[0] for name in ("set", "get", "both", "recursive", "loops")]
            self.assertFalse(set(there) & set(entries), said)
            self.assertLessEqual(set(there[40:]), {*there[:40], *entries}, said)


@unittest.skipUnless(shutil.which("aarch64-linux-gnu-gcc") and shutil.which("qemu-aarch64"), "no compiler or emulator for aarch64")
class ArmLines(unittest.TestCase):
    """Moves by lines enter a function of A64 code as GDB does (skip_prologue_using_sal)."""
    FUNCTIONS = ("set", "get", "both", "recursive", "twice", "loops")

    @staticmethod
    def stops_in(program, moves):
        """Returns the addresses of the stops of moves from the start of main."""
        with Client("-i", program.path, ptdecode=PTDECODE) as peer:
            peer.ask(f"Z0,{program.symbol('main')[0]:x},4")
            stop_of(peer.ask("c"))
            stops = []
            for move in moves:
                peer.monitor(move)
                stops.append(int.from_bytes(bytes.fromhex(peer.ask("p20")), "little"))
            return stops

    @staticmethod
    def entry(program, name):
        """Returns where GDB stops in a function: at the second of its addresses with rows, or at the first one if that has several rows."""
        start, size = program.symbol(name)
        listed = subprocess.run(["aarch64-linux-gnu-objdump", "--dwarf=decodedline", program.program], capture_output=True, text=True, check=True).stdout
        rows = [int(ip, 16) for ip in re.findall(r"^lines\.c +\d+ +(0x\w+)", listed, re.M) if start <= int(ip, 16) < start + size]
        return start if rows.count(start) > 1 else min(ip for ip in rows if ip != start)

    def test_a_function_is_entered_after_its_set_up(self):
        for flags in (["-O0"], ["-O0", "-mbranch-protection=standard"], ["-O0", "-fomit-frame-pointer"], ["-O2", "-fno-inline"]):
            with self.subTest(flags), tempfile.TemporaryDirectory() as folder:
                program = Recorded(folder, PROGRAMS / "lines.c", "-static", "-fno-ipa-cp", *flags, name="lines", compiler="aarch64-linux-gnu-gcc")
                stops = self.stops_in(program, ["step"] * 150)
                entries = {name: self.entry(program, name) for name in self.FUNCTIONS}
                set_up = {program.symbol(name)[0] for name in self.FUNCTIONS} - set(entries.values())
                self.assertEqual(len(set_up), 0 if "-O2" in flags else len(self.FUNCTIONS))
                self.assertFalse(set_up & set(stops))
                for name in ("set", "get", "both", "recursive", "loops"):
                    self.assertIn(entries[name], stops, name)
                back = self.stops_in(program, ["step"] * 60 + ["reverse-step"] * 40)[60:]
                self.assertFalse(set_up & set(back))


class LeftCalls(unittest.TestCase):
    """longjmp, siglongjmp and exceptions leave calls that never return. The backtraces are those of GDB on the running program."""
    FUNCTIONS = ("plain", "inner_jump", "inner_throw", "handler")

    @staticmethod
    def up_to_main(text):
        """Returns the functions of the frames, without those of a signal's delivery, and the line of each caller in unwind.cc."""
        frames = []
        for number, name, rest in re.findall(r"^#(\d+) +(?:0x\w+ in )?([\w@.]+)(.*)$", text, re.M):
            line = re.search(r"unwind\.cc:(\d+)", rest)
            name = name.removesuffix(".cold")
            frames.append((name, line[1] if line and number != "0" else None))
            if name == "main":
                break
        return [frame for frame in frames if not frame[0].startswith(("__pthread", "raise", "__GI", "<"))]

    def check(self, folder, name, *flags):
        program = Recorded(folder, SOURCE / "tests" / "cli" / "programs" / "unwind.cc", *flags, "-static", "-no-pie", name=name)
        stops = 3 * (2 + len(self.FUNCTIONS))  # three rounds
        breaks = [word for function in self.FUNCTIONS for word in ("-ex", f"break {function}")]
        done = subprocess.run(["gdb", "-nx", "-batch", "-ex", "set width 0", "-ex", "set debuginfod enabled off", "-ex", "handle SIGUSR1 nostop noprint", *breaks,
                               "-ex", "run", *["-ex", "echo --\\n", "-ex", "bt", "-ex", "continue"] * stops, str(program.program)],
                              capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL)
        live = [self.up_to_main(text) for text in done.stdout.split("--\n")[1:]]
        self.assertEqual(len(live), stops, done.stderr)
        symbols = subprocess.run(["nm", "-C", program.program], capture_output=True, text=True, check=True).stdout
        with Client("-i", program.path, ptdecode=PTDECODE) as peer:
            for function in self.FUNCTIONS:
                entry = re.search(rf"^0*(\w+) [tT] {function}\(int\)$", symbols, re.M)[1]
                self.assertEqual(peer.ask(f"Z0,{entry},1"), "OK")
            for k in range(stops):
                stop_of(peer.ask("c"))
                said = peer.monitor("backtrace")
                self.assertEqual(self.up_to_main(said), live[k], (k, said))

    def test_backtraces_after_jumps_out_of_calls(self):
        """With -O2, gcc places what catches an exception in a part of its own (main.cold)."""
        with tempfile.TemporaryDirectory() as folder:
            for name, flags in (("plain", ["-O0"]), ("split", ["-O2"])):
                with self.subTest(name):
                    self.check(folder, name, *flags)

    def test_as_many_recursive_calls_are_open_as_the_program_says(self):
        source = SOURCE / "tests" / "cli" / "programs" / "left_calls.cc"
        for kind in ("cleans", "passes", "chained", "signalled"):
            with self.subTest(kind), tempfile.TemporaryDirectory() as folder:
                program = Recorded(folder, source, "-static", "-no-pie", "-O0", name="left", words=(kind,))
                levels = {program.symbol(f"mark{level}")[0]: level for level in range(10)}
                with Client("-i", program.path, ptdecode=PTDECODE) as peer:
                    for entry in levels:
                        self.assertEqual(peer.ask(f"Z0,{entry:x},1"), "OK")
                    for _ in range(12):
                        at = stop_of(peer.ask("c"))[1]
                        frames = re.findall(r"^#\d+ +0x\w+ in (\w+)", peer.monitor("backtrace"), re.M)
                        self.assertEqual(frames.count(kind), levels[at], frames)

    def test_finish_ends_where_the_flow_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Recorded(folder, SOURCE / "tests" / "cli" / "programs" / "unwind.cc", "-static", "-no-pie", "-O0", name="left")
            symbols = subprocess.run(["nm", "-C", program.program], capture_output=True, text=True, check=True).stdout
            for function in self.FUNCTIONS[1:]:
                with Client("-i", program.path, ptdecode=PTDECODE) as peer:
                    entry = re.search(rf"^0*(\w+) [tT] {function}\(int\)$", symbols, re.M)[1]
                    self.assertEqual(peer.ask(f"Z0,{entry},1"), "OK")
                    stop_of(peer.ask("c"))
                    peer.monitor("finish")
                    self.assertEqual([name for name, _ in self.up_to_main(peer.monitor("backtrace"))], ["main"], function)

    @unittest.skipUnless(shutil.which("aarch64-linux-gnu-gcc") and shutil.which("qemu-aarch64"), "no compiler or emulator for aarch64")
    def test_a_jump_of_a64_is_no_return(self):
        """A stub of a library call has four instructions and ends in BR."""
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "stub.c")
            source.write_text("""int inner(int x) { return x + 1; }
__asm__(".globl stub\\nstub: nop\\nadrp x16, inner\\nadd x16, x16, :lo12:inner\\nbr x16\\n");
int stub(int);
__attribute__((noinline)) int outer(int x) { return stub(x) + 1; }
int main(void) { return outer(1) - 3; }
""")
            program = pathlib.Path(folder, "stub")
            subprocess.run(["aarch64-linux-gnu-gcc", "-O1", "-g", "-static", "-fno-inline", source, "-o", program], check=True)
            subprocess.run([PTDECODE, "record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", "arm.data", "--", program],
                           check=True, cwd=folder)
            symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
            with Client("-i", pathlib.Path(folder, "arm.data"), ptdecode=PTDECODE) as peer:
                entry = re.search(r"^0*(\w+) T inner$", symbols, re.M)[1]
                self.assertEqual(peer.ask(f"Z0,{entry},4"), "OK")
                stop_of(peer.ask("c"))
                self.assertEqual([name for name, _ in self.up_to_main(peer.monitor("backtrace"))], ["inner", "outer", "main"])


if __name__ == "__main__":
    for tool in ("gdb", "qemu-x86_64"):
        if shutil.which(tool) is None:
            print(f"skipped: no {tool}")
            sys.exit(77)
    unittest.main(verbosity=1)
