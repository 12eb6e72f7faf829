#!/usr/bin/env python3
"""`ptdecode replay --gdb` through its protocol, against the ground truth of what the emulator executed.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import collections
import contextlib
import gzip
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from gdb_client import Client, framed, stop_of
from recorded import DATA, PTDECODE, SOURCE, Recorded, tid_of, truth_insns

PROGRAMS = SOURCE / "tests" / "replay" / "programs"
CORPUS = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE / ".." / "shared" / "corpus")).resolve()
STEPS = int(os.environ.get("PTDECODE_REPLAY_STEPS", "100000"))


PSB = b"\x02\x82" * 8
TEXT_POKE = 20  # PERF_RECORD_TEXT_POKE


def text_pokes(path):
    """Returns (time in ns, address, old bytes, new bytes) of each TEXT_POKE record of a perf.data file."""
    content = path.read_bytes()
    attr_size, attrs_at = struct.unpack_from("<QQ", content, 16)
    data_at, data_size = struct.unpack_from("<QQ", content, 40)
    sample_type, = struct.unpack_from("<Q", content, attrs_at + 24)
    assert attr_size >= 64 and sample_type & 4, hex(sample_type)  # PERF_SAMPLE_TIME
    # Fields of sample_id that follow the time: ID, STREAM_ID, CPU, IDENTIFIER.
    time_at = 8 + sum(8 for bit in (6, 9, 7, 16) if sample_type >> bit & 1)
    pokes, at = [], data_at
    while at < data_at + data_size:
        kind, _, size = struct.unpack_from("<IHH", content, at)
        if kind == TEXT_POKE:
            ip, old, new = struct.unpack_from("<QHH", content, at + 8)
            code = content[at + 20:at + 20 + old + new]
            pokes.append((struct.unpack_from("<Q", content, at + size - time_at)[0], ip, code[:old], code[old:]))
        at += size + (struct.unpack_from("<Q", content, at + 8)[0] if kind == 71 else 0)  # PERF_RECORD_AUXTRACE is followed by its data
    return pokes


def client(*words):
    return Client(*words, ptdecode=PTDECODE)


def moves(peer, packet, count):
    """Returns the stops after `count` equal packets."""
    stops = []
    while count > 0:
        some = min(count, 400)
        stops += [stop_of(reply) for reply in peer.ask_all([packet] * some)]
        count -= some
    return stops


def continues(peer, packet):
    """Returns the stops of `packet` up to the end of the recording, without it."""
    stops = []
    while True:
        stop = stop_of(peer.ask(packet))
        if "replaylog" in stop[3]:
            return stops
        stops.append(stop)
        assert len(stops) < 1_000_000


class Truth(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        build = lambda name, *flags: Recorded(cls.holder.name, PROGRAMS / (name + ".c"), *flags, name=name)
        cls.static = build("loops", "-static", "-no-pie")
        cls.pie = build("threads", "-pie", "-fPIE", "-pthread")
        cls.jit = Recorded(cls.holder.name, SOURCE / "tests" / "emulate" / "programs" / "jit.c", name="jit")

    def check_flow(self, words, truth, steps=STEPS, code=False):
        """The pcs of a thread, forward and backward, are those of the truth. `code`: so are the bytes in memory at each pc."""
        with client(*words) as peer:
            start = stop_of(peer.ask("?"))
            self.assertEqual(start[1], truth[0][0])
            count = min(steps, len(truth) - 1)
            forward = [start[1]] + [stop[1] for stop in moves(peer, "s", count)]
            self.assertEqual(forward, [ip for ip, _ in truth[:count + 1]])
            if count == len(truth) - 1:
                end = stop_of(peer.ask("s"))
                self.assertEqual((end[1], end[3].get("replaylog")), (truth[-1][0], "end"))
            if code:
                self.check_code(peer, truth[:count + 1])
                return
            backward = [stop[1] for stop in moves(peer, "bs", count)]
            self.assertEqual(backward, forward[-2::-1])
            begin = stop_of(peer.ask("bs"))
            self.assertEqual((begin[1], begin[3].get("replaylog")), (truth[0][0], "begin"))

    def check_code(self, peer, truth):
        """Backward, with the bytes of the instruction at each pc."""
        for at in range(len(truth) - 1, 0, -1):
            ip, code = truth[at]
            read, stop = peer.ask_all([f"m{ip:x},{len(code):x}", "bs"])
            self.assertEqual((read, stop_of(stop)[1]), (code.hex(), truth[at - 1][0]), (at, hex(ip)))

    def test_static_program(self):
        (tid, path), = self.static.truths.items()
        self.check_flow(["-i", self.static.path, "--tid", tid], truth_insns(path))

    def test_threads(self):
        self.assertEqual(len(self.pie.truths), 3)
        for tid, path in self.pie.truths.items():
            self.check_flow(["-i", self.pie.path, "--tid", tid], truth_insns(path))

    def test_generated_code_and_its_bytes(self):
        (tid, path), = self.jit.truths.items()
        truth = truth_insns(path)
        self.check_flow(["-i", self.jit.path], truth)
        self.check_flow(["-i", self.jit.path], truth, code=True, steps=20000)

    def test_recordings_of_the_repository(self):
        """data/user has code that is patched while it runs; data/arm is AArch64."""
        for path in sorted((DATA / "user").glob("*.ptt")):
            recording = path.parent / (path.name.split(".")[0] + ".bundle")
            self.check_flow(["-i", recording, "--tid", tid_of(path)], truth_insns(path), code=True)
        for path in sorted((DATA / "arm").glob("*.ptt")):
            recording = path.parent / (path.name.split(".")[0] + ".bundle")
            with self.subTest(path.name):
                self.check_flow(["-i", recording, "-C", tid_of(path)], truth_insns(path), steps=1000)

    def test_kernel(self):
        """The first 100,000 instructions of each cpu have the hash of the ground truth (FNV-1a of the addresses)."""
        for cpu in (0, 1):
            line = (DATA / "kernel" / f"truth.cpu{cpu}.txt").read_text().split("\n")[1].split()
            self.assertEqual(line[0], "100000")
            with client("-i", DATA / "kernel" / "kernel.bundle", "-C", cpu) as peer:
                forward = [stop_of(peer.ask("?"))[1]] + [stop[1] for stop in moves(peer, "vCont;s", 99999)]
                value = 0xcbf29ce484222325
                for ip in forward:
                    for byte in ip.to_bytes(8, "little"):
                        value = (value ^ byte) * 0x100000001b3 & (1 << 64) - 1
                self.assertEqual((f"{value:016x}", f"{forward[-1]:016x}"), (line[1], line[3]))
                self.assertEqual(peer.ask("Hc-1"), "OK")
                self.assertEqual([stop[1] for stop in moves(peer, "bs", 99999)], forward[-2::-1])

    def test_i386(self):
        """A trace of 32-bit code, made from the packets that [SDM] defines: 49 is DEC ECX there, and a prefix in 64-bit code."""
        folder = self.static.folder
        (folder / "code32").write_bytes(bytes.fromhex("b903000000" "49" "75fd" "c3"))  # mov $3, %ecx; 1: dec %ecx; jnz 1b; ret
        psb, psb_end, mode_32, pgd = PSB, b"\x02\x23", b"\x99\x02", b"\x01"
        tip_pge, taken_taken_not = b"\x51" + struct.pack("<I", 0x8048000), b"\x1c"
        (folder / "trace32").write_bytes(psb + mode_32 + psb_end + tip_pge + taken_taken_not + pgd + psb + psb_end)
        want = [0x8048000] + [0x8048005, 0x8048006] * 3 + [0x8048008]
        words = ["--pt", folder / "trace32", "--pt-cpu", "6/94/3", "--image", f"{folder}/code32@0x8048000"]
        with client(*words) as peer:
            self.assertIn("<architecture>i386</architecture>", peer.document("features", "target.xml"))
            registers = peer.ask("g")  # eax, ecx, edx, ebx, esp, ebp, esi, edi, eip: [GDB] "i386 features"
            self.assertEqual(registers[:72], "x" * 64 + struct.pack("<I", want[0]).hex())
            self.assertEqual(set(registers[72:]), {"x"})
            self.assertEqual([stop[1] for stop in moves(peer, "s", 7)], want[1:])
            self.assertEqual([stop[1] for stop in moves(peer, "bs", 7)], want[-2::-1])

    def test_arm(self):
        """Real traces of A32 and T32 code: the pcs are those of OpenCSD's lister."""
        capture = CORPUS / "cs-TC2"
        if not capture.exists():
            self.skipTest("needs the corpus")
        want = []
        for line in gzip.decompress((capture / "expected/ranges.tsv.gz").read_bytes()).decode().split("\n")[1:]:
            trace, start, end, count, *_ = (line + "\t\t\t\t").split("\t")
            if trace == "10":
                size = (int(end, 16) - int(start, 16)) // int(count)
                want += [int(start, 16) + size * i for i in range(int(count))]
        with client("-i", capture / "snapshot", "-C", 0) as peer:
            self.assertIn("<architecture>arm</architecture>", peer.document("features", "target.xml"))
            registers = peer.ask("g")  # r0 to r12, sp, lr, pc, cpsr: [GDB] "ARM features"
            self.assertEqual(registers, "x" * 120 + struct.pack("<I", want[0]).hex() + "x" * 8)
            count = min(len(want), 2000) - 1
            self.assertEqual([stop[1] for stop in moves(peer, "s", count)], want[1:count + 1])
            self.assertEqual([stop[1] for stop in moves(peer, "bs", count)], want[count - 1::-1])

    def test_breakpoints_hit_as_often_as_functions_counts_calls(self):
        """In a static program and in generated code; the entry of each function is the one where the ground truth enters it."""
        for recorded in (self.static, self.jit):
            rows = [json.loads(line) for line in subprocess.run([PTDECODE, "functions", "-q", "--json", "--limit", "0", "-i", recorded.path], capture_output=True,
                                                                 text=True, check=True, env=recorded.environment).stdout.split("\n") if '"function"' in line]
            (tid, path), = recorded.truths.items()
            insns = truth_insns(path)
            entered = collections.Counter(ip for (_, code), (ip, _) in zip(insns, insns[1:]) if code[:1] == b"\xe8" or code[:2] in (b"\xff\xd0", b"\xff\xd2"))
            checked = 0
            with client("-i", recorded.path) as peer:
                for ip, calls in entered.most_common(12):
                    at = subprocess.run([PTDECODE, "script", "-q", "-i", recorded.path, "--itrace=i1i", "-F", "ip,sym"], capture_output=True, text=True,
                                        env=recorded.environment).stdout if checked == 0 else at
                    name = re.search(rf"^ *{ip:x} (\S+)$", at, re.M)
                    row = [each for each in rows if name and each["function"] == name[1]]
                    if len(row) != 1 or row[0]["calls"] != calls:  # entered by jumps as well, or two of one name
                        continue
                    self.assertEqual(peer.ask(f"Z1,{ip:x},1"), "OK")
                    hits = continues(peer, "c")
                    self.assertEqual((len(hits), {stop[1] for stop in hits}), (calls, {ip}), name[1])
                    self.assertEqual(len(continues(peer, "bc")), calls, name[1])
                    self.assertEqual(peer.ask(f"z1,{ip:x},1"), "OK")
                    checked += 1
            self.assertGreaterEqual(checked, 2, recorded.path)

    def test_breakpoints_hit_as_often_as_the_truth_says(self):
        executed = {tid: [ip for ip, _ in truth_insns(path)] for tid, path in self.pie.truths.items()}
        offset, size = self.pie.symbol("leaf")
        entries = {ip for ips in executed.values() for ip in ips if ip & 0xfff == offset & 0xfff}
        counts = {ip: {tid: ips.count(ip) for tid, ips in executed.items()} for ip in entries}
        ip, count = next((ip, count) for ip, count in counts.items() if sum(count.values()) == 3 * (2 * 40 + 2))
        with client("-i", self.pie.path) as peer:
            self.assertEqual(peer.ask(f"Z0,{ip:x},1"), "OK")
            there = continues(peer, "vCont;c")
            back = continues(peer, "bc")
            for stops in (there, back):
                self.assertEqual({stop[1] for stop in stops}, {ip})
                self.assertTrue(all("swbreak" in stop[3] for stop in stops))
                self.assertEqual({tid: sum(stop[2] == tid for stop in stops) for tid in executed}, count)
            self.assertEqual([stop[2] for stop in back], [stop[2] for stop in there][::-1])
            self.assertEqual(peer.ask(f"z0,{ip:x},1"), "OK")
            self.assertEqual(continues(peer, "vCont;c"), [])

    def test_calls_of_the_kernel(self):
        """A breakpoint at a function is hit as often as `functions` counts calls of it."""
        kernel = DATA / "kernel" / "kernel.bundle"
        listed = subprocess.run([PTDECODE, "functions", "-q", "-i", kernel, "--limit", "0"], capture_output=True, text=True, check=True).stdout
        calls = int(re.search(r"^ *(\d+) .* ftrace_replace_code \(", listed, re.M)[1])
        branches = subprocess.run([PTDECODE, "script", "-q", "-i", kernel, "--itrace=c", "-F", "ip,sym,addr", "-S", "ftrace_replace_code"],
                                  capture_output=True, text=True).stdout
        address = re.search(r"([0-9a-f]{16}) ftrace_replace_code\b(?!\+0x[1-9a-f])", branches)
        self.assertIsNotNone(address, branches[:300])
        with client("-i", kernel) as peer:
            self.assertEqual(peer.ask(f"Z0,{address[1]},1"), "OK")
            self.assertEqual(len(continues(peer, "c")), calls)
            self.assertEqual(len(continues(peer, "bc")), calls)

    def test_nothing_is_invented(self):
        (tid, path), = self.static.truths.items()
        with client("-i", self.static.path) as peer:
            registers = peer.ask("g")
            pc = truth_insns(path)[0][0].to_bytes(8, "little").hex()
            self.assertEqual(registers[16 * 16:17 * 16], pc)
            self.assertEqual(set(registers[:16 * 16] + registers[17 * 16:]), {"x"})
            self.assertEqual(peer.ask("p0"), "x" * 16)
            self.assertEqual(peer.ask("p10"), pc)
            for packet in ("G00", "P0=00", "M400000,1:cc", "X400000,1:c", "Z2,400000,4", "m7ffc00000000,8"):
                self.assertIn(peer.ask(packet), ("", "E01"), packet)

    def test_read_only_data(self):
        """Memory of the file's segments that are not writable, and of no others."""
        with client("-i", self.static.path) as peer:
            content = self.static.program.read_bytes()
            checked = 0
            for line in subprocess.run(["readelf", "-lW", self.static.program], capture_output=True, text=True, check=True).stdout.split("\n"):
                row = re.match(r"  LOAD +0x(\w+) 0x(\w+) 0x\w+ 0x(\w+) 0x\w+ (...)", line)
                if not row:
                    continue
                offset, address, size = (int(row[i], 16) for i in (1, 2, 3))
                if "W" in row[4]:
                    self.assertEqual(peer.ask(f"m{address + size - 8:x},8"), "E01", line)
                    continue
                want = content[offset + size // 2:offset + size // 2 + 64]
                self.assertEqual(peer.ask(f"m{address + size // 2:x},{len(want):x}"), want.hex(), line)
                checked += 1
            self.assertGreaterEqual(checked, 3)

    def test_branch_trace_is_the_executed_code(self):
        """The blocks, oldest first, are the instructions of the truth up to the current one."""
        tid, path = max(self.pie.truths.items(), key=lambda each: each[1].stat().st_size)
        truth = truth_insns(path)
        with client("-i", self.pie.path, "--tid", tid) as peer:
            self.assertEqual(peer.ask("Qbtrace:bts"), "OK")
            moves(peer, "s", 5000)
            blocks = [(int(a, 16), int(b, 16)) for a, b in re.findall(r'begin="0x(\w+)" end="0x(\w+)"', peer.document("btrace", "all"))]
            sizes = {ip: len(code) for ip, code in truth}
            walked = []
            for begin, end in reversed(blocks):
                ip = begin
                while ip < end:
                    walked.append(ip)
                    ip += sizes[ip]
                self.assertEqual(ip, end)
                walked.append(ip)
            self.assertGreater(len(walked), 1000)
            self.assertEqual(walked, [ip for ip, _ in truth[5001 - len(walked):5001]])
            self.assertEqual(peer.ask("Qbtrace:off"), "OK")
            self.assertEqual(peer.ask("qXfer:btrace:read:all:0,1000")[0], "E")

    def test_the_base_of_the_loader(self):
        """AT_BASE is what the kernel added to the addresses of the loader's file ([linux] load_elf_interp), whatever these are."""
        bundle = pathlib.Path(self.holder.name) / "linked"
        subprocess.run([PTDECODE, "bundle", "-q", "-i", DATA / "user" / "plain.bundle", "-o", bundle, "--format", "lldb"], check=True)
        description = json.loads((bundle / "trace.json").read_text())
        modules = description["processes"][0]["modules"]
        bias = 0x10000000
        address = int(modules[0]["loadAddress"], 0)
        self.assertNotEqual(address, 0)
        modules.append({**modules[0], "systemPath": "/lib/ld-test.so.2", "loadAddress": hex(address + bias)})
        (bundle / "trace.json").write_text(json.dumps(description))
        with client("-i", bundle / "trace.json") as peer:
            vector = peer.document("auxv").encode("latin-1")
        self.assertEqual(dict(struct.iter_unpack("<QQ", vector))[7], bias)  # AT_BASE, getauxval(3)

    def damaged(self, recorded, at, last=False):
        """Returns a copy of a recording with 256 zero bytes in the trace, `at` bytes after its first PSB. `last`: without the PSBs after them."""
        content = bytearray(recorded.path.read_bytes())
        middle = content.index(PSB) + at
        content[middle:middle + 256] = bytes(256)
        if last:
            content[middle:] = content[middle:].replace(PSB, bytes(len(PSB)))
        path = recorded.folder / f"damaged{at}.data"
        path.write_bytes(content)
        return path

    def test_a_gap_at_the_end_is_the_end(self):
        """Trace that is damaged after its last PSB: the end says why, and is the same each time that it is reached."""
        (tid, path), = self.static.truths.items()
        truth = [ip for ip, _ in truth_insns(path)]
        with client("-i", self.damaged(self.static, 2000, last=True)) as peer:
            ends = []
            for there, back in (("c", "bs"), ("s", "bs"), ("c", "bc"), ("c", "bs")):
                peer.console = ""
                stop = stop_of(peer.ask(there))
                self.assertEqual(stop[3].get("replaylog"), "end")
                self.assertIn("] gap: ", peer.console)
                ends.append(stop[1])
                peer.console = ""
                stop = stop_of(peer.ask(back))
                self.assertEqual(stop[3].get("replaylog"), "begin" if back == "bc" else None)
                self.assertNotIn("] gap: ", peer.console)
                if back == "bs" and there == "c":
                    self.assertEqual(stop_of(peer.ask("s"))[1], ends[0])
            self.assertEqual(len(set(ends)), 1)
            self.assertIn("> ", peer.monitor("gaps"))
            before = [each[1] for each in moves(peer, "bs", 400)]
            tail = before[100:][::-1]  # the packet that the damage cut may be misread
            self.assertTrue(any(truth[i:i + len(tail)] == tail for i in range(len(truth))))

    def test_a_gap_stops_in_both_directions(self):
        """Trace that is damaged between two PSBs: the flow before and after the gap is the truth's."""
        (tid, path), = self.jit.truths.items()
        truth = [ip for ip, _ in truth_insns(path)]
        self.assertGreater(self.jit.path.read_bytes().count(PSB), 2)
        with client("-i", self.damaged(self.jit, 1000)) as peer:
            stops = continues(peer, "c")
            self.assertEqual([stop[0] for stop in stops], [0] * len(stops))
            self.assertIn("] gap: ", peer.console)
            back = continues(peer, "bc")
            self.assertEqual(len(back), len(stops))
            for stop, earlier in zip(stops, back[::-1]):
                self.assertEqual(peer.ask("bc")[:1], "T")
                while stop_of(peer.ask("c"))[1] != stop[1]:
                    pass
                peer.console = ""
                self.assertEqual(stop_of(peer.ask("bs"))[1], earlier[1])
                self.assertIn("] gap: ", peer.console)
                peer.console = ""
                self.assertEqual(stop_of(peer.ask("s"))[1], stop[1])
                self.assertIn("] gap: ", peer.console)
            after = [stops[-1][1]] + [each[1] for each in moves(peer, "s", 400)]
            self.assertTrue(any(truth[i:i + len(after)] == after for i in range(len(truth))))

    def test_code_before_and_after_a_text_poke(self):
        """The bytes at the address of each text poke are those of its record, forward and backward."""
        pokes = text_pokes(DATA / "demo" / "data")
        self.assertGreater(len(pokes), 30)
        checked = 0
        with client("-i", DATA / "demo") as peer:
            slots = {ip for _, ip, old, _ in pokes if not old}  # memory that the kernel allocates, fills and frees
            for ip in sorted({poke[1] for poke in pokes} - slots):
                here = sorted(poke for poke in pokes if poke[1] == ip)
                wanted = []  # (time, bytes)
                for (time_ns, _, old, new), following in zip(here, here[1:] + [None]):
                    until = following[0] if following else time_ns + 2_000_000
                    if until - time_ns >= 10_000:
                        wanted.append(((time_ns + until) // 2, new))
                for way in (wanted, wanted[::-1]):
                    for time_ns, code in way:
                        peer.monitor(f"seek {time_ns // 10**9}.{time_ns % 10**9:09}")
                        self.assertEqual(peer.ask(f"m{ip:x},{len(code):x}"), code.hex(), (hex(ip), time_ns))
                        checked += 1
        self.assertGreater(checked, 40)

    def test_a_missing_program_is_named(self):
        hidden = self.static.program.with_suffix(".hidden")
        self.static.program.rename(hidden)
        try:
            done = subprocess.run([PTDECODE, "replay", "--gdb", "-i", self.static.path], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  env=self.static.environment)
        finally:
            hidden.rename(self.static.program)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn("replay: no instruction is known", done.stderr)
        self.assertRegex(done.stderr, rf"(?s)missing code.*{re.escape(str(self.static.program))} .*file not found")

    def test_signals_are_reported(self):
        with client("-i", self.pie.path) as peer:
            continues(peer, "c")
            self.assertRegex(peer.console, r"the traced code continues at 0x\w+ \(signal")

    def test_time(self):
        with client("-i", DATA / "kernel" / "kernel.bundle") as peer:
            self.assertIn("now at 24.5000", peer.monitor("seek 24.5"))
            forward = [stop_of(peer.ask("?"))[1]] + [stop[1] for stop in moves(peer, "vCont;s", 300)]
            peer.ask("Hc-1")
            self.assertEqual([stop[1] for stop in moves(peer, "bs", 300)], forward[-2::-1])
            self.assertIn("now at ", peer.monitor("percent 40"))
            self.assertIn(" 40.", peer.monitor("time"))
            peer.monitor("stop-at 24.6")
            stop = stop_of(peer.ask("c"))
            self.assertEqual(stop[0], 0)
            self.assertRegex(peer.monitor("time"), r"^24\.6000")
            peer.monitor("stop-at 24.55")
            self.assertEqual(stop_of(peer.ask("bc"))[0], 0)
            self.assertRegex(peer.monitor("time"), r"^24\.55")
            for command in ("help", "gaps", "events", "marks", "versions", "nonsense", "seek x", "percent 101", "versions zz"):
                self.assertTrue(peer.monitor(command), command)

    def test_speed(self):
        """Bounds of the time that a user waits, far from the usual times: see docs/EVIDENCE.md."""
        began = time.monotonic()
        with client("-i", DATA / "kernel" / "kernel.bundle") as peer:
            peer.ask("?")
            self.assertLess(time.monotonic() - began, 5)
            began = time.monotonic()
            peer.ask("c")
            peer.ask("bc")
            self.assertLess(time.monotonic() - began, 60)  # 72 M instructions

    def test_interrupt(self):
        with client("-i", DATA / "kernel" / "kernel.bundle") as peer:
            peer.process.stdin.write(framed("c") + b"\x03")
            peer.process.stdin.flush()
            self.assertIn(stop_of(peer.reply())[0], (2, 5))
            self.assertTrue(peer.ask("qfThreadInfo").startswith("m"))

    def test_interrupt_of_a_move(self):
        """A move of the monitor ends where it is, in less time than it takes, and the same command goes on."""
        with client("-i", DATA / "kernel" / "kernel.bundle") as peer:
            peer.monitor("percent 0")
            peer.ask("T1")
            peer.console = ""
            peer.process.stdin.write(framed("qRcmd," + b"finish".hex()) + b"\x03" + framed("qRcmd," + b"percent".hex()))
            peer.process.stdin.flush()
            self.assertEqual(peer.reply(), "OK")
            self.assertIn("not there yet: the same command goes on", peer.console)
            self.assertEqual(peer.reply(), "OK")
            self.assertTrue(peer.ask("qfThreadInfo").startswith("m"))

    def test_a_signal_removes_the_symbol_folder(self):
        for words, signals in (((), (signal.SIGTERM, signal.SIGHUP)), (("--port", "0"), (signal.SIGTERM, signal.SIGHUP, signal.SIGINT))):
            for signal_ in signals:
                with self.subTest(words=words, signal=signal_), tempfile.TemporaryDirectory() as folder, self.server(folder, *words) as server:
                    self.assertEqual(len(os.listdir(folder)), 1)
                    server.send_signal(signal_)
                    self.assertEqual(server.wait(timeout=60), 128 + signal_)
                    self.assertEqual(os.listdir(folder), [])

    def test_an_ignored_signal_stays_ignored(self):
        """As under nohup, or in the background of a script."""
        for words in ((), ("--port", "0")):
            for signal_ in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                ignore = lambda: signal.signal(signal_, signal.SIG_IGN)
                with self.subTest(words=words, signal=signal_), tempfile.TemporaryDirectory() as folder, self.server(folder, *words, before=ignore) as server:
                    server.send_signal(signal_)
                    with self.assertRaises(subprocess.TimeoutExpired):
                        server.wait(timeout=0.5)
                    other = signal.SIGHUP if signal_ == signal.SIGTERM else signal.SIGTERM
                    server.send_signal(other)
                    self.assertEqual(server.wait(timeout=60), 128 + other)

    @contextlib.contextmanager
    def server(self, folder, *words, before=None):
        """A server that waits for packets, or for a client."""
        with subprocess.Popen([PTDECODE, "replay", "--gdb", "-q", *words, "-i", DATA / "user" / "plain.bundle"], stdin=subprocess.PIPE, preexec_fn=before,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": folder}) as server:
            try:
                if words:
                    self.assertIn(b"waiting for a debugger", server.stderr.readline())
                else:
                    server.stdin.write(framed("?"))
                    server.stdin.flush()
                    self.assertEqual(server.stdout.read(1), b"+")
                yield server
            finally:
                server.kill()

    def test_port_takes_one_client_on_loopback(self):
        server = subprocess.Popen([PTDECODE, "replay", "--gdb", "--port", "0", "-q", "-i", self.static.path], stderr=subprocess.PIPE, text=True)
        port = int(re.search(r"127\.0\.0\.1:(\d+)", server.stderr.readline())[1])
        with open("/proc/net/tcp") as table:
            rows = [line.split()[1] for line in table if f":{port:04X} " in line]
        self.assertEqual(rows[:1], [f"0100007F:{port:04X}"])
        with socket.create_connection(("127.0.0.1", port)) as first:
            first.sendall(framed("?"))
            self.assertEqual(first.recv(1), b"+")
            with self.assertRaises(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=5)
        self.assertEqual(server.wait(timeout=60), 0)
        server.stderr.close()

    def test_hostile_client(self):
        """Random bytes, damaged packets, and packets with absurd numbers."""
        rng = random.Random(23)
        packets = ["m0,ffffffffffffffff", "mffffffffffffffff,10", "m,", "m400000", "Z0,", "Z0,fffffffffffffffff,1", "Z9,0,0", "H", "Hg", "Hgffffffffffffffff",
                   "T", "Tzz", "p", "pffffffff", "vCont;", "vCont;;", "vCont;r", "vCont;r1,", "vCont;sX", "vCont;C", "qXfer:features:read:target.xml:0,",
                   "qXfer:features:read:target.xml:ffffffffffffffff,ffffffffffffffff", "qXfer::::", "qXfer:btrace:read:all:0,1", "qRcmd,6", "qRcmd,zz",
                   "qRcmd," + b"seek 99999999999999999999".hex(), "qRcmd," + b"versions ffffffffffffffff".hex(), "qRcmd," + b"percent 1e9".hex(),
                   "qThreadExtraInfo,", "Qbtrace-conf:bts:size=ffffffffffffffff", "Qbtrace:bts", "QNonStop:1", "s1234", "c1234", "", "$", "vFile:open:00"]
        with client("-i", self.static.path) as peer:
            for packet in packets:
                if packet == "$":
                    continue
                self.assertIsInstance(peer.ask(packet), str, packet)
            peer.process.stdin.write(b"$" + b"m" * (1 << 20) + b"#00")
            self.assertLessEqual(len(peer.ask("m400000,ffffff")), 1 << 16)
        for _ in range(20):
            server = subprocess.Popen([PTDECODE, "replay", "--gdb", "-q", "-i", self.static.path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            junk = b"".join(rng.choice([framed(rng.choice(packets)), bytes(rng.randrange(256) for _ in range(rng.randrange(64)))]) for _ in range(200))
            server.communicate(junk, timeout=60)
            self.assertEqual(server.returncode, 0)


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("skipped: no qemu-x86_64")
        sys.exit(77)
    unittest.main(verbosity=2)
