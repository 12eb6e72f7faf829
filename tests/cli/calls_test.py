#!/usr/bin/env python3
"""`ptdecode functions` against a replay of the ground truth: calls, own and total instructions of every function of three programs.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import collections
import contextlib
import datetime
import itertools
import json
import os
import pathlib
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import call_replay  # noqa: E402
import perfetto_reader  # noqa: E402
import plt_stubs  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
NAMES = ("calls", "sorter", "parser")


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=900)


def json_lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.symbols = {}
        for name in NAMES:
            program = cls.folder / name
            subprocess.run([os.environ.get("CC", "cc"), "-O2", "-fno-inline", "-w", "-static", "-g", SOURCE / "tests/cli/programs" / (name + ".c"), "-o", program],
                           check=True)
            done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--cyc", "--truth", cls.folder / (name + ".truth"), "-o",
                       cls.folder / (name + ".data"), "--", program)
            assert done.returncode == 0, done.stderr
            cls.symbols[name] = call_replay.Symbols(program)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def data(self, name):
        return self.folder / (name + ".data")

    def replayed(self, name):
        truths = list((self.folder / (name + ".truth")).glob("*.ptt"))
        self.assertEqual(len(truths), 1)
        return call_replay.replay(truths[0], self.symbols[name])

    def test_a_call_has_the_name_that_its_thread_had(self):
        """One thread executes two programs: the calls of each are listed, and selected by --comm, under its own name."""
        path = self.folder / "exec.data"
        done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", path, "--", "/bin/sh", "-c", f"exec {self.folder / 'parser'}")
        self.assertEqual(done.returncode, 0, done.stderr)
        names = collections.Counter(line.split()[0] for line in run("script", "-q", "-i", path).stdout.splitlines())
        self.assertEqual(set(names), {"sh", "parser"})
        for name in names:
            chosen = collections.Counter(line.split()[0] for line in run("script", "-q", "-i", path, "--comm", name).stdout.splitlines())
            self.assertEqual(chosen, {name: names[name]})
        functions = {line["function"] for line in json_lines(run("functions", "-q", "-i", path, "--comm", "parser", "--format", "json", "--limit", "0"))
                     if "function" in line}
        self.assertIn("main", functions)

    def test_functions_equal_the_replay_of_the_truth(self):
        for name in NAMES:
            totals, executed = self.replayed(name)
            done = run("functions", "-i", self.data(name), "--limit", "0", "--format", "json")
            self.assertEqual(done.returncode, 0, done.stderr)
            ours = {line["function"]: line for line in json_lines(done) if "function" in line}
            self.assertEqual(sum(line["self_instructions"] for line in ours.values()), executed)
            want = collections.defaultdict(lambda: [0, 0, 0])
            for start, counts in totals.items():
                known = [each for each in self.symbols[name].names(start) if each in ours]
                self.assertTrue(known, (name, hex(start), self.symbols[name].names(start)))
                want[known[0]] = [a + b for a, b in zip(want[known[0]], counts)]
            got = {function: [line["calls"], line["self_instructions"], line["total_instructions"]] for function, line in ours.items()
                   if function != "[kernel]"}
            different = {function: (got.get(function), want.get(function)) for function in {*got, *want} if got.get(function) != want.get(function)}
            self.assertEqual(different, {}, name)
            print(f"{name}: {executed} instructions, {len(got)} functions, {sum(each[0] for each in got.values())} calls: equal", flush=True)

    def test_times_add_up(self):
        for name in NAMES:
            lines = [line for line in json_lines(run("functions", "-i", self.data(name), "--limit", "0", "--format", "json")) if "function" in line]
            outer = max(lines, key=lambda line: line["total_ns"])
            self.assertEqual(sum(line["self_ns"] for line in lines), outer["total_ns"] - outer["off_cpu_ns"] - outer["untraced_ns"] - outer["lost_ns"])
            for line in lines:
                if line["calls"] == line["no_end"]:
                    self.assertEqual((line["p50_ns"], line["p99_ns"], line["max_ns"]), (None, None, None))
                    continue
                self.assertLessEqual(line["p50_ns"], line["p99_ns"])
                self.assertLessEqual(line["p99_ns"], line["max_ns"])
                self.assertLessEqual(line["max_ns"], outer["total_ns"])

    def cycles(self, path):
        lines = [line for line in json_lines(run("functions", "-i", path, "--limit", "0", "--format", "json")) if "function" in line]
        return lines, {line["function"]: line["self_cycles"] for line in lines}

    def repeatable(self, name, *words):
        """A recording whose clock counts instructions, differently in each function: its truth is known to the tick."""
        path = self.folder / (name + "".join(words) + ".cycles.data")
        done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--cyc", "--work-clock", "--truth", path.with_suffix(".truth"), *words,
                   "-o", path, "--", self.folder / name)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def test_times_and_cycles_are_those_of_the_truth(self):
        """Compares own and total cycles and time of each function. A packet gives one time for all instructions since the previous one, so
        the ticks of the truth are shared out as the packets allow, by a model of their output times that reads none of them
        (call_replay.Packets). A short TNT with six branches counts as full; if long TNTs are written, it is the remainder of one, and is
        output with what follows it."""
        ticks_per_ns = 2
        for name in NAMES:
            for words, packets in (((), call_replay.Packets(47, True)), (("--short-tnt", "--no-retcomp"), call_replay.Packets(6, False))):
                path = self.repeatable(name, *words)
                totals, _ = call_replay.replay(next(path.with_suffix(".truth").glob("*.ptt")), self.symbols[name], packets)
                lines, _ = self.cycles(path)
                ours = {line["function"]: line for line in lines}
                every = sum(each[3] for each in totals.values())
                off = {"self_cycles": 0, "self_ns": 0}
                for start, (_, _, _, _, with_callees) in totals.items():
                    line = ours[next(each for each in self.symbols[name].names(start) if each in ours)]
                    own = packets.own[start]
                    for what, value in (("self_cycles", line["self_cycles"]), ("self_ns", line["self_ns"] * ticks_per_ns)):
                        off[what] += abs(value - own)
                        self.assertLess(abs(value - own), max(0.03 * own, 0.012 * every), (name, words, line, own))
                    totals_of_line = {"cycles": line["total_cycles"], "ns": line["total_ns"] - line["untraced_ns"]}
                    if line["total_instructions"] == line["self_instructions"]:  # no callees: as its own
                        for what, value in totals_of_line.items():
                            self.assertAlmostEqual(value, line["self_" + what], delta=1 + 0.001 * value, msg=(name, words, line))
                        continue
                    # A call begins and ends within the interval of a packet: on average half an interval of error at either end.
                    for value in (totals_of_line["cycles"], totals_of_line["ns"] * ticks_per_ns):
                        self.assertLess(abs(value - with_callees), max(0.1 * with_callees, 0.02 * every), (name, words, line, with_callees))
                self.assertAlmostEqual(sum(line["self_cycles"] for line in lines), every, delta=0.005 * every)
                outer = max(lines, key=lambda line: line["total_ns"])
                # 2.5 us for each system call; the last does not return. The first packet after one may come 47 branches (1.1 us) later.
                system_calls = sum(code == b"\x0f\x05" for what, insns in call_replay.truth_blocks(next(path.with_suffix(".truth").glob("*.ptt")))
                                   if what == "run" for _, code in insns) - 1
                self.assertGreater(system_calls, 5)
                self.assertAlmostEqual(outer["untraced_ns"], 2500 * system_calls, delta=600)
                for what, value in off.items():
                    self.assertLess(value, 0.025 * every, (name, words, what))
                print(name, *words, f"{every} ticks, in other functions:", ", ".join(f"{100 * value / every:.2f} % of {what}" for what, value in off.items()),
                      flush=True)
                self.assertRegex(run("functions", "-i", path).stdout, r"^ +calls .* ipc function\n")

    def test_the_timeline_counts_instructions_per_cycle(self):
        path = self.repeatable("sorter")
        totals, executed = call_replay.replay(next(path.with_suffix(".truth").glob("*.ptt")), self.symbols["sorter"])
        ticks = sum(each[3] for each in totals.values())
        timeline = self.folder / "ipc.pftrace"
        for words in (("--min", "100s"), ()):  # one value for the whole run, and one for each 10 us
            self.assertEqual(run("timeline", "-q", "-i", path, "-o", timeline, *words).returncode, 0)
            tracks, _, _, counters, _ = perfetto_reader.read_all(timeline.read_bytes())
            values = sorted((when, value) for track, value, when in counters if tracks[track]["name"].startswith("instructions per cycle"))
            self.assertEqual(values.pop()[1], 0)
            if words:
                self.assertEqual(len(values), 1)
                self.assertAlmostEqual(values[0][1], executed / ticks, delta=0.005 * executed / ticks)
            else:  # an instruction takes 1 to 8 ticks
                self.assertGreater(len(values), 20)
                self.assertTrue(all(1 / 9 < value <= 1.05 for _, value in values), (min(values), max(values)))

    def test_cycles_are_where_perf_finds_them(self):
        """perf prints the cycles of a packet at its first instruction: they belong to the instructions from there to the next packet's.
        perf adds those of system calls, which belong to no function here: runs with such are omitted."""
        form = re.compile(r"^ *(.*?) +([0-9a-f]+)(?: .*IPC: [\d.]+ \(\d+/(\d+)\))?\s*$")
        for name in ("calls", "parser"):
            path = self.repeatable(name)
            listing = subprocess.run(["perf", "script", "-i", path, "--itrace=i1i", "-F", "flags,ip,ipc"], capture_output=True, text=True).stdout
            want, stretch, cycles, paused, after = collections.Counter(), [], 0, True, False
            for line in listing.splitlines():
                flags, ip, told = form.match(line).groups()
                if told:
                    for start in stretch if not (paused or after) else ():
                        want[start] += cycles / len(stretch)
                    stretch, cycles, paused, after = [], int(told), False, paused  # the time of a system call may be given after it
                stretch.append(self.symbols[name].start(int(ip, 16)))
                paused = paused or "tr end" in flags or "syscall" in flags
            _, own = self.cycles(path)
            named = collections.Counter()
            for start, value in want.items():
                named[next((each for each in self.symbols[name].names(start) if each in own), start) if start is not None else None] += value
            total = sum(named.values())
            self.assertGreater(total, 0.2 * sum(own.values()))
            off = sum(max(0, named[each] - own.get(each, 0)) for each in named)
            self.assertLess(off, 0.1 * total, name)
            print(f"{name}: {100 * off / total:.1f} % of the cycles are in another function than perf's", flush=True)

    def test_a_trace_of_threads_has_no_cpus_to_choose(self):
        for words in (("script",), ("script", "--itrace=b"), ("functions",)):
            done = run(*words, "-i", self.data("calls"), "-C", "0")
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn("use --tid", done.stderr)

    def test_calls_as_json_are_those_of_functions(self):
        for name in NAMES:
            done = run("script", "-i", self.data(name), "--format", "json")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            head, *lines = json_lines(done)
            self.assertEqual(head, {"schema": "ptdecode-calls-1", "timed": True})
            got = collections.defaultdict(lambda: [0, 0, 0])
            for line in lines:
                if "call" not in line:
                    self.assertTrue("pause" in line or "lost" in line)
                    continue
                self.assertLessEqual(line["self_ns"] + line["off_cpu_ns"] + line["untraced_ns"], line["end_ns"] - line["start_ns"])
                each = got[line["call"]]
                each[0] += line["start_seen"]
                each[1] += line["self_ns"]
                each[2] += line["self_instructions"]
            want = {line["function"]: [line["calls"], line["self_ns"], line["self_instructions"]]
                    for line in json_lines(run("functions", "-i", self.data(name), "--limit", "0", "--format", "json")) if "function" in line}
            self.assertEqual(dict(got), want, name)
            only = json_lines(run("script", "-i", self.data(name), "--format", "json", "-S", "main"))
            self.assertEqual([line.get("call") for line in only], [None, "main"])

    def with_clock(self, name, wall_ns, clock_ns):
        """Returns a copy of a recording whose header has the time of day (feature CLOCK_DATA, perf.data-file-format.txt)."""
        clock_data = 29
        raw = bytearray(self.data(name).read_bytes())
        table = int.from_bytes(raw[40:48], "little") + int.from_bytes(raw[48:56], "little")  # after the data section
        bits = int.from_bytes(raw[72:104], "little")
        self.assertEqual(bits >> clock_data & 1, 0)
        present = [bit for bit in range(256) if bits >> bit & 1]
        entries = {bit: [int.from_bytes(raw[table + 16 * i + k:table + 16 * i + k + 8], "little") for k in (0, 8)] for i, bit in enumerate(present)}
        rest = bytes(raw[table + 16 * len(present):])
        entries = {bit: (offset + 16, size) for bit, (offset, size) in entries.items()}
        entries[clock_data] = (table + 16 * (len(present) + 1) + len(rest), 24)
        raw[72:104] = (bits | 1 << clock_data).to_bytes(32, "little")
        content = struct.pack("<IIQQ", 1, 1, wall_ns, clock_ns)
        listed = b"".join(struct.pack("<QQ", *entries[bit]) for bit in sorted(entries))
        path = self.folder / (name + ".clock.data")
        path.write_bytes(bytes(raw[:table]) + listed + rest + content)
        return path

    def test_time_of_day_matches_other_logs(self):
        first = next(line for line in run("script", "-i", self.data("calls"), "--itrace=b", "-F", "time", "--ns").stdout.splitlines())
        ns = int(first.strip().rstrip(":").replace(".", ""))
        wall = 1_790_000_000_123_456_789  # 2026-09-21 in any time zone
        data = self.with_clock("calls", wall, ns)
        want = datetime.datetime.fromtimestamp(wall // 10**9).strftime("%Y-%m-%d %H:%M:%S.") + "123456789"
        listed = run("script", "-i", data, "--itrace=b", "-F", "tod,time,ip", "--ns").stdout.splitlines()
        self.assertTrue(listed[0].startswith(want), listed[0])
        tree = run("script", "-i", data, "--tod", "--ns").stdout.splitlines()
        self.assertIn(want, tree[0])
        # Listed times are accepted as arguments: lines selected by their time of day are the lines selected by their trace time.
        plain = run("script", "-i", data, "--itrace=b", "-F", "time,ip", "--ns").stdout.splitlines()
        moments = [(" ".join(line.split()[:2]).rstrip(":"), other.split(":")[0].strip()) for line, other in zip(listed, plain)]
        (day_a, trace_a), (day_b, trace_b) = moments[len(moments) // 3], moments[len(moments) // 2]
        done = run("script", "-i", data, "--itrace=b", "-F", "time,ip", "--ns", "--time", f"{day_a},{day_b}")
        self.assertEqual((done.returncode, done.stderr), (0, ""), day_a)
        by_day = done.stdout
        self.assertEqual(by_day, run("script", "-i", data, "--itrace=b", "-F", "time,ip", "--ns", "--time", f"{trace_a},{trace_b}").stdout)
        self.assertGreater(len(by_day), 1000)
        refused = run("script", "-i", self.data("calls"), "--tod")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("the time of day is not recorded", refused.stderr)

    def test_no_symbol_names_another_section(self):
        """The procedure linkage table is a section of its own. Neither _init, which has no size, nor a label of data (__rela_iplt_end) names its entries."""
        for name, options in (("linked", ("-no-pie", "-Wl,-z,lazy")), ("static", ("-static",))):
            with self.subTest(name):
                self.check_linkage_table(name, options)

    def check_linkage_table(self, name, options):
        program, data = self.folder / name, self.folder / f"{name}.data"
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-w", *options, SOURCE / "tests/cli/programs/calls.c", "-o", program], check=True)
        done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", data, "--", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        listing = subprocess.run(["readelf", "-SW", program], capture_output=True, text=True, check=True).stdout
        first, size = (int(each, 16) for each in re.search(r" \.plt +PROGBITS +(\w+) \w+ (\w+)", listing).groups())
        seen = re.findall(r"=> +([0-9a-f]+) (\S+)", run("script", "-q", "-i", data, "--itrace=b").stdout)
        entries = {int(ip, 16): symbol for ip, symbol in seen if first <= int(ip, 16) < first + size}
        self.assertGreater(len(entries), 1)
        stubs = plt_stubs.stubs(program)
        for ip, symbol in entries.items():
            self.assertIn(symbol, {name + "+0x0" for name in stubs[ip]} if ip in stubs else {"[unknown]", *self.inner(stubs, ip)}, hex(ip))
        functions = {line["function"] for line in json_lines(run("functions", "-q", "-i", data, "--limit", "0", "--format", "json"))[1:]}
        called = {each for ip in entries if ip in stubs for each in stubs[ip]}
        self.assertTrue(called & functions, (called, functions))
        self.assertIn("_init", functions)

    @staticmethod
    def inner(stubs, ip):
        """The names of an address within a stub: where the lazy one continues."""
        return {f"{name}+{ip - at:#x}" for at, names in stubs.items() if at < ip < at + 16 for name in names}

    def recorded(self, name, *words, options=()):
        path = self.folder / f"{name}.data"
        done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], *options, "-o", path, "--", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def test_a_trace_without_time_is_counted_in_instructions(self):
        """No packet gives a time, so none is shown, although the file's records have times."""
        path = self.recorded("untimed", self.folder / "sorter", options=("--no-tsc",))
        lines = json_lines(run("functions", "-q", "-i", path, "--format", "json"))
        self.assertFalse(lines[0]["timed"])
        self.assertFalse([key for line in lines[1:] for key in line if key.endswith("_ns")])
        ran = int(re.search(r"instructions +(\d+)", run("stat", "-i", path).stdout)[1])
        self.assertEqual(sum(line["self_instructions"] for line in lines[1:]), ran)
        self.assertIn("the trace contains no time", run("functions", "-q", "-i", path).stdout)

    def test_a_tail_call_of_generated_code_ends_the_function(self):
        """`hop` is one jump. What it jumps to is code from no file, and has a row of its own."""
        program = self.folder / "hop"
        source = r"""
#include <string.h>
#include <sys/mman.h>
__asm__(".globl hop\n.type hop,@function\nhop: jmp *%rsi\n.size hop,.-hop\n");
int hop(int, void*);
int main(void) {  /* mov %edi,%ecx; xor %eax,%eax; 1: add %ecx,%eax; dec %ecx; jnz 1b; ret */
  static const unsigned char code[] = {0x89, 0xf9, 0x31, 0xc0, 0x01, 0xc8, 0xff, 0xc9, 0x75, 0xfa, 0xc3};
  void* at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(at, code, sizeof code);
  for (int i = 0; i < 50; ++i) hop(100, at);
  return 0;
}
"""
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-x", "c", "-", "-o", program], input=source, text=True, check=True)
        rows = {line["function"]: line for line in json_lines(run("functions", "-q", "-i", self.recorded("hop", program), "--format", "json"))[1:]}
        self.assertEqual((rows["hop"]["calls"], rows["hop"]["self_instructions"]), (50, 50))
        generated = [line for name, line in rows.items() if name.startswith("[anon ")]
        self.assertEqual([(line["calls"], line["self_instructions"]) for line in generated], [(50, 50 * (2 + 3 * 100 + 1))])

    def test_the_last_line_counts_what_is_listed(self):
        """A thread that executes another program has two names. The times under each of them add up to the thread's."""
        path = self.recorded("renamed", "/bin/sh", "-c", f"{self.folder / 'sorter'}; exec {self.folder / 'parser'}", options=("--work-clock",))
        factors = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}

        def times(*words):
            line = re.search(r"(?m)^\d+ threads?: .*$", run("functions", "-q", "-i", path, *words).stdout)[0]
            return [float(number) * factors[unit] for number, unit in re.findall(r"([\d.]+) (ns|us|ms|s) (?:running|not traced)", line)]

        parts = [times("--comm", name) for name in ("sh", "sorter", "parser")]
        for part, whole in zip(map(sum, zip(*parts)), times(), strict=True):
            self.assertAlmostEqual(part, whole, delta=whole / 50)
        for name, (running, _) in zip(("sh", "sorter", "parser"), parts, strict=True):
            listed = sum(line["self_ns"] for line in json_lines(run("functions", "-q", "-i", path, "--comm", name, "--format", "json"))[1:])
            self.assertAlmostEqual(listed, running, delta=running / 50)

    def test_deep_recursion_is_shown_together(self):
        """Each level of a recursion is a stack of its own. Without a limit, the lines of 20,000 levels have 400 MB."""
        program = self.folder / "deep"
        source = "volatile int sink; __attribute__((noinline)) int dive(int n) { int r = n == 0 ? 0 : dive(n - 1) + 1; sink = r; return r; } int main(void) { return dive(20000) != 20000; }"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-fno-optimize-sibling-calls", "-x", "c", "-", "-o", program], input=source, text=True, check=True)
        path = self.recorded("deep", program, options=("--no-tsc",))
        lines = [line.rsplit(" ", 1) for line in run("flame", "-q", "--format", "folded", "-i", path).stdout.splitlines()]
        self.assertEqual(max(stack.count(";") for stack, _ in lines), 512)
        deeper = sum(int(amount) for stack, amount in lines if stack.endswith("dive;[deeper_calls]"))
        ran = {line["function"]: line["self_instructions"] for line in json_lines(run("functions", "-q", "-i", path, "--format", "json"))[1:]}
        self.assertGreater(deeper, ran["dive"] * 0.95)
        self.assertEqual(sum(int(amount) for _, amount in lines), sum(ran.values()))
        self.assertIn('data-n="[deeper calls]"', run("flame", "-q", "-i", path, "-o", self.folder / "deep.svg") and (self.folder / "deep.svg").read_text())

    def test_calls_that_are_too_deep_are_those_of_the_chosen_threads(self):
        program = self.folder / "two"
        source = """
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
volatile int sink;
__attribute__((noinline)) int dive(int n) { int r = n == 0 ? 0 : dive(n - 1) + 1; sink = r; return r; }
int main(void) {
  int status, kid = fork();
  prctl(PR_SET_NAME, kid == 0 ? "diver" : "waiter");
  if (kid == 0) return dive(66000) != 66000;
  return waitpid(kid, &status, 0) < 0 || status != 0;
}
"""
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-fno-optimize-sibling-calls", "-x", "c", "-", "-o", program], input=source, text=True, check=True)
        path = self.recorded("two", program)
        for name, said in (("diver", True), ("waiter", False)):
            done = run("functions", "-q", "-i", path, "--comm", name)
            self.assertEqual((done.returncode, "deeper than the limit" in done.stderr), (0, said), name)

    def test_callers_that_are_returned_to_are_above_earlier_calls(self):
        """--time begins in the middle of a long call. Its callers are known when it returns to them, and then they are above all that it has called."""
        program = self.folder / "returns"
        source = """
volatile int sink;
#define APART __attribute__((noinline))
APART void leaf(int i) { if (i % 3) sink += i; }
APART void inner(int n) { for (int i = 0; i < n; ++i) leaf(i); sink = 0; }
static inline __attribute__((always_inline)) void host(int n) { sink = 4; inner(n); leaf(1); inner(n / 10); sink = 1; }
APART void middle(int n) { sink = 3; host(n); leaf(4); }
APART void outer(int n) { middle(n); leaf(2); sink = 2; }
int main(void) { outer(2000000); leaf(3); outer(3000); return 0; }
"""
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-g", "-fno-optimize-sibling-calls", "-x", "c", "-", "-o", program], input=source, text=True, check=True)
        path = self.recorded("returns", program, options=("--work-clock",))

        def stacks(*words):
            lines = run("flame", "-q", "--format", "folded", "-i", path, *words).stdout.splitlines()
            return {stack: int(amount) for stack, amount in (line.rsplit(" ", 1) for line in lines)}

        for inline in ([], ["--no-inline"]):
            whole, part = stacks(*inline), stacks("--time", "80%-100%", *inline)
            roots = {stack.split(";")[1] for stack in part}
            self.assertEqual(len(roots), 1)  # the rest of main's callers does not return
            self.assertFalse(roots & {"main", "outer", "middle", "inner", "leaf"})
            root = roots.pop()
            above = next(stack for stack in whole if f";{root};main;" in stack).split(f";{root};")[0]
            self.assertLessEqual({stack.replace("returns;", above + ";", 1) for stack in part}, set(whole))
            long = next(stack for stack in part if stack.endswith("main;outer;middle;" + ("" if inline else "host_(inlined);") + "inner;leaf"))
            self.assertGreater(part[long], sum(part.values()) / 2)
            self.assertEqual(part, stacks("--time", "80%-100%", "--threads", "1", *inline))
            profile = self.folder / "returns.pb"
            said = run("profile", "-i", path, "--format", "pprof", "-o", profile, "--time", "80%-100%", *inline).stderr
            self.assertGreaterEqual(int(re.search(r": (\d+) stacks", said)[1]), len(part))
            self.assertLess(int(re.search(r": (\d+) stacks", said)[1]), len(part) + 10)  # some have no self time

    def test_a_function_of_other_threads_is_not_recommended(self):
        """The name is right; --comm excludes its thread."""
        path = self.recorded("both", "/bin/sh", "-c", f"{self.folder / 'sorter'}; {self.folder / 'parser'}")
        done = run("functions", "-i", path, "--comm", "parser", "--func", "qsort")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'qsort' was not called in the threads and the time that are selected", done.stderr)

    def test_a_bundle_takes_relative_times(self):
        data = SOURCE / "data/demo"
        first, last = json.loads(run("info", "-i", data, "--format", "json").stdout)["time_ns"]
        begin, end = first + (last - first) // 4, first + (last - first) // 2
        bundles = [self.folder / "percent.ptb", self.folder / "absolute.ptb"]
        for bundle, words in zip(bundles, ("25%-50%", f"{begin // 10**9}.{begin % 10**9:09},{end // 10**9}.{end % 10**9:09}"), strict=True):
            self.assertEqual(run("bundle", "-q", "-i", data, "--time", words, "-o", bundle).returncode, 0)
        listed = [run("script", "-q", "-i", each, "--itrace=b").stdout for each in (*bundles, data)]
        self.assertEqual(listed[0], listed[1])
        self.assertLess(100, len(listed[0]))
        self.assertLess(len(listed[0]), len(listed[2]))

    def test_the_limit_holds_for_json(self):
        lists = [json_lines(run("functions", "-q", "-i", self.data("calls"), "--format", "json", *limit)) for limit in ((), ("--limit", "2"), ("--limit", "0"))]
        self.assertEqual(lists[1], lists[0][:3])
        self.assertEqual(lists[2], lists[0])
        self.assertGreater(len(lists[0]), 43)

    def test_calls_seen_in_part_are_counted_once(self):
        """In the second half of a run, a function's calls are those that began before and those that begin there."""
        data = self.repeatable("calls")  # on a busy machine, half of the time may be one pause near the end
        rows = {line["function"]: line for line in json_lines(run("functions", "-i", data, "--limit", "0", "--format", "json"))[1:]}
        self.assertEqual([rows["_start"][each] for each in ("calls", "no_start", "no_end", "partial")], [1, 0, 1, 1])  # exit does not return
        self.assertEqual([rows["main"][each] for each in ("calls", "no_start", "no_end", "partial")], [1, 0, 0, 0])
        half = next(line for line in json_lines(run("script", "-i", data, "--format", "json")) if line.get("call") == "main")
        middle = (half["start_ns"] + half["end_ns"]) // 2
        window = ("--time", f"{middle // 10**9}.{middle % 10**9:09},")
        rows = {line["function"]: line for line in json_lines(run("functions", "-i", data, "--limit", "0", "--format", "json", *window))[1:]}
        self.assertEqual([rows["_start"][each] for each in ("calls", "no_start", "no_end", "partial")], [0, 1, 0, 1])
        self.assertEqual([rows["main"][each] for each in ("calls", "no_start", "no_end", "partial")], [0, 1, 0, 1])
        text = run("functions", "-i", data, "--func", "main", *window).stdout
        self.assertRegex(text, r"(?m)^ +0 .* main .*\[1 more without start\]$")
        text = run("functions", "-i", data, "--func", "_start", "--slowest", "2").stdout
        self.assertRegex(text, r"(?m)^ +1 .* _start .*\[1 without end\]$")
        self.assertRegex(text, r"(?m) --tid \d+ --time \S+  \[end not seen: took longer\]$")
        text = run("functions", "-i", data, "--func", "main", "--slowest", "2", *window).stdout
        self.assertIn("no call of main to list: none was seen from its start", text)
        self.assertNotIn("slowest calls of", text)

    def test_slowest_calls_are_found_again_by_their_time(self):
        done = run("functions", "-i", self.data("sorter"), "--func", "by_length", "--slowest", "5", "--format", "json")
        calls = [line for line in json_lines(done) if "call" in line]
        self.assertEqual(len(calls), 5)
        spans = [call["end_ns"] - call["start_ns"] for call in calls]
        self.assertEqual(spans, sorted(spans, reverse=True))
        whole = [line for line in json_lines(done) if "function" in line][0]
        self.assertEqual(spans[0], whole["max_ns"])
        again = run("functions", "-i", self.data("sorter"), "--func", "by_length", "--format", "json", "--time", f"{calls[0]['start']},{calls[0]['end']}", "--tid",
                    calls[0]["tid"])
        found = [line for line in json_lines(again) if "function" in line][0]
        self.assertEqual(found["max_ns"], spans[0])

    def test_retpolines_are_jumps_and_a_call_into_the_middle_is_no_call(self):
        """The program counts its calls. Without options, GCC writes indirect calls; with them, RETs that serve as jumps."""
        program, data = self.folder / "retpolines", self.folder / "retpolines.data"
        names = ("one", "two", "call_it", "twice", "outer", "other")
        for options in ((), ("-mindirect-branch=thunk",), ("-mindirect-branch=thunk-inline",),
                        ("-mindirect-branch=thunk-inline", "-mfunction-return=thunk-inline"), ("-mfunction-return=thunk",)):
            with self.subTest(options):
                subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-no-pie", "-fcf-protection=none", *options,
                                SOURCE / "tests/cli/programs/retpolines.c", "-o", program], check=True)
                done = run("record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", data, "--", program)
                self.assertEqual(done.returncode, 0, done.stderr)
                listed = run("functions", "-i", data, "--no-inline", "--format", "json")
                self.assertNotIn("abandoned", listed.stderr)
                rows = {row["function"]: row for row in json_lines(listed)[1:]}
                self.assertEqual([rows[name]["calls"] for name in names], list(map(int, done.stdout.split())))
                self.assertEqual([rows[name]["no_end"] for name in (*names, "main")], [0] * 7)
                self.assertEqual(rows["outer"]["no_start"], 25)
                unnamed = [row["calls"] for name, row in rows.items() if "+0x" in name and row["calls"] == 10]
                self.assertEqual(unnamed, [10], "the generated function")
                done = subprocess.run([PTDECODE, "script", "-q", "-i", data, "--format", "json", "-S", "one"], capture_output=True, text=True)
                self.assertEqual(len(done.stdout.splitlines()) - 1, 20)

    def test_jumps_inside_a_function_through_other_code_do_not_end_it(self):
        """The program counts its calls. Computed jumps go through a retpoline's thunk, or one that jumps indirectly; functions push the address to which
        others return."""
        program, data = self.folder / "computed_jumps", self.folder / "computed_jumps.data"
        names = ("leaf", "interpret", "run", "near", "far", "calls")
        above = "main;run;interpret"
        want = {f"{above}", f"{above};leaf", f"{above};interpret", f"{above};interpret;leaf", f"{above};interpret;interpret",
                f"{above};interpret;interpret;leaf", "main", "main;leaf", "main;run", "main;run;leaf", "main;near", "main;near;leaf", "main;far",
                "main;far;leaf", "main;calls", "main;calls;leaf"}
        for options in ((), ("-mindirect-branch=thunk",), ("-mindirect-branch=thunk", "-mindirect-branch-register"), ("-mindirect-branch=thunk-inline",),
                        ("-mindirect-branch=thunk", "-mfunction-return=thunk"),
                        ("-mindirect-branch=thunk-extern", "-mindirect-branch-register", "-DTHUNKS")):
            with self.subTest(options):
                subprocess.run([os.environ.get("CC", "cc"), "-O1", "-g", "-static", "-no-pie", "-fcf-protection=none", *options,
                                SOURCE / "tests/cli/programs/computed_jumps.c", "-o", program], check=True)
                done = run("record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", data, "--", program)
                self.assertEqual(done.returncode, 0, done.stderr)
                listed = run("functions", "-i", data, "--no-inline", "--format", "json")
                self.assertNotIn("abandoned", listed.stderr)
                head, *rows = json_lines(listed)
                self.assertEqual(head["stacks_abandoned"], 0)
                rows = {row["function"]: row for row in rows}
                self.assertEqual([rows[name]["calls"] for name in names], list(map(int, done.stdout.split())))
                self.assertEqual([rows[name]["no_end"] for name in (*names, "main")], [0] * 7)
                # Only where the code after the jump returns at once, the function is known to go on.
                seen_late = ("far", "near") if "-mfunction-return=thunk" in options else ("far",)
                self.assertEqual({name: rows[name]["no_start"] for name in names}, {name: 10 * (name in seen_late) for name in names})
                stacks = run("flame", "-q", "-i", data, "--no-inline", "--format", "folded").stdout
                found = {found[1] for found in re.finditer(r";(main(;.*)?) \d+$", stacks, re.M)}
                self.assertEqual({stack for stack in found if not re.search("thunk|printf|puts", stack)}, want)
                self.assertFalse([line for line in stacks.splitlines() if re.search("interpret|leaf", line) and "main" not in line])
                contexts = run("profile", "-q", "-i", data, "--format", "csspgo").stdout
                ran = {re.sub(r":[0-9.]+ @ ", ";", context) for context in re.findall(r"^\[(.*)\]:", contexts, re.M)}
                ran = {context[context.index("main"):] if "main" in context else context for context in ran if re.search("interpret|leaf", context)}
                self.assertEqual({context for context in ran if "run" in context or "main" not in context}, {
                    f"{above}", f"{above};leaf", f"{above};interpret", f"{above};interpret;leaf", "main;run;leaf", "leaf"})  # near and far have no lines

    def test_a_window_that_begins_between_a_jump_to_a_thunk_and_its_return(self):
        """Only the return shows that the jump was a call."""
        program, data = self.folder / "windowed_jumps", self.folder / "windowed_jumps.data"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-g", "-static", "-no-pie", "-fcf-protection=none", "-mindirect-branch=thunk",
                        SOURCE / "tests/cli/programs/computed_jumps.c", "-o", program], check=True)
        done = run("record", "-q", "--emulate", "--mtc-period", "0", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", data, "--", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        listed = run("script", "-q", "-i", data, "--itrace=b", "--ns", "-F", "time,sym").stdout
        times = sorted(set(re.findall(r"^ *(\d+\.\d+): .*thunk", listed, re.M)))
        self.assertGreater(len(times), 60)
        for begin in times[10:-10:len(times) // 50]:
            calls = run("script", "-q", "-i", data, "--ns", "--time", f"{begin},{float(begin) + 2e-5:.9f}").stdout
            self.assertNotRegex(calls, r"thunk.*tail call", begin)

    def test_abandoned_calls_are_counted_everywhere(self):
        """A function returns to another one's middle, which no call has left."""
        source, program, data = (self.folder / name for name in ("strange.s", "strange", "strange.data"))
        source.write_text(""".globl _start, inner, other
        .type _start, @function
        .type inner, @function
        .type other, @function
        _start: call inner
        ud2
        .size _start, .-_start
        inner: lea place(%rip), %rax
        push %rax
        ret
        .size inner, .-inner
        other: nop
        place: mov $60, %eax
        xor %edi, %edi
        syscall
        .size other, .-other
        """)
        subprocess.run([os.environ.get("CC", "cc"), "-static", "-nostdlib", source, "-o", program], check=True)
        done = run("record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", data, "--", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = "ptdecode: open calls were abandoned 1 time because the flow continued at a place that no call explains"
        listed = run("functions", "-q", "-i", data, "--format", "json")
        self.assertEqual(json_lines(listed)[0]["stacks_abandoned"], 1)
        self.assertIn(said, listed.stderr)
        self.assertIn(said, run("flame", "-q", "-i", data, "--format", "folded").stderr)
        database, page = self.folder / "strange.db", self.folder / "strange.html"
        self.assertIn(said, run("export", "-q", "-i", data, "-o", database).stderr)
        with contextlib.closing(sqlite3.connect(database)) as connection:
            self.assertEqual(connection.execute("SELECT value FROM ptd_info WHERE key = 'stacks_abandoned'").fetchall(), [("1",)])
        self.assertIn(said, run("report", "-q", "-i", data, "-o", page).stderr)
        self.assertIn("open calls were abandoned 1 time", page.read_text(encoding="utf-8"))

    def test_a_return_from_a_call_before_the_time_is_no_call(self):
        """The code after the call has a symbol of its own, as after the dynamic linker's call of _dl_start."""
        source, program, data = (self.folder / name for name in ("resumed.s", "resumed", "resumed.data"))
        source.write_text(""".globl _start, inner, resumed
        .type _start, @function
        .type inner, @function
        .type resumed, @function
        _start: mov $200000, %ebx
        call inner
        resumed: mov $60, %eax
        xor %edi, %edi
        syscall
        .size resumed, .-resumed
        .size _start, .-_start
        inner: call leaf
        dec %ebx
        jnz inner
        ret
        .size inner, .-inner
        .type leaf, @function
        leaf: ret
        .size leaf, .-leaf
        """)
        subprocess.run([os.environ.get("CC", "cc"), "-static", "-nostdlib", source, "-o", program], check=True)
        done = run("record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", data, "--", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ((), ("--time", "50%-100%")):
            with self.subTest(words):
                rows = {row["function"]: row for row in json_lines(run("functions", "-q", "-i", data, "--format", "json", *words))[1:]}
                self.assertEqual(rows["inner"]["calls"] + rows["inner"]["no_start"], 1)
                self.assertEqual(rows.get("resumed", {"calls": 0})["calls"], 0)
                self.assertEqual(rows["leaf"]["calls"] == 200000, words == ())

    def test_every_listing_has_one_time_for_a_call(self):
        """The options that --slowest prints also select from the listing of branches: the call is in it, and no time decreases."""
        for name, function in (("sorter", "snprintf"), ("calls", "recurse"), ("parser", "expression")):
            done = json_lines(run("functions", "-i", self.data(name), "--func", function, "--slowest", "5", "--format", "json"))
            found = [each for each in done if "call" in each]
            self.assertTrue(found, (name, done))
            lines = run("script", "-i", self.data(name), "--itrace=b", "-F", "time", "--ns", "-q").stdout.split()
            times = [float(each.rstrip(":")) for each in lines]
            self.assertEqual(times, sorted(times))
            for each in found:
                inside = run("script", "-i", self.data(name), "--itrace=b", "-F", "time,sym,symoff,addr", "--ns", "--time", f"{each['start']},{each['end']}")
                self.assertTrue(re.search(rf"=> +[0-9a-f]+ {function}\+0x0\n", inside.stdout), (name, each))

    def test_the_tree_nests_and_holds_every_call(self):
        form = re.compile(r"^ *\S+ +\d+ +\d+\.\d{9}: (.{9})( +)(\} )?(\S+)( \{)?(  \[.*\])?$")
        for name in NAMES:
            done = run("script", "-i", self.data(name), "--ns")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            open_calls, seen = [], collections.Counter()
            for line in done.stdout.splitlines():
                match = form.match(line)
                if not match:
                    self.assertRegex(line, r": +\[(off cpu|not traced|in kernel) [0-9.]+ [num]?s.*\]$")
                    continue
                self.assertRegex(match.group(1).strip(), r"^([0-9.]+ [num]?s)?$")
                took, indent, closes, function, opens, note = match.groups()
                depth = len(indent) // 2 - 1
                if closes:
                    self.assertEqual(open_calls.pop(), (depth, function), line)
                    self.assertTrue(took.strip(), line)
                    continue
                self.assertEqual(depth, len(open_calls), line)
                self.assertEqual(bool(opens), not took.strip(), line)
                seen[function] += 0 if note and ("middle" in note or "before" in note) else 1
                if opens:
                    open_calls.append((depth, function))
            self.assertEqual(open_calls, [], name)
            lines = [line for line in json_lines(run("functions", "-i", self.data(name), "--limit", "0", "--format", "json")) if "function" in line]
            calls = {line["function"]: line["calls"] for line in lines if line["calls"]}
            different = {function: (seen[function], calls.get(function, 0)) for function in {*seen, *calls} if seen[function] != calls.get(function, 0)}
            self.assertEqual(different, {}, name)

    def test_symbols_and_times_narrow_the_tree(self):
        whole = run("script", "-i", self.data("parser"), "--ns").stdout.splitlines()
        inside = run("script", "-i", self.data("parser"), "--ns", "-S", "group").stdout.splitlines()
        self.assertLess(0, len(inside))
        rest = iter(whole)  # in the same order; a line may occur twice
        self.assertTrue(all(line in rest for line in inside))
        outermost = min(len(line) - len(line.split(": ", 1)[1].lstrip(" 0123456789.nmus")) for line in inside)
        self.assertTrue(all("group" in line for line in inside
                            if len(line) - len(line.split(": ", 1)[1].lstrip(" 0123456789.nmus")) == outermost and "}" not in line))
        # How much of the program ran in a tenth of the time depends on the machine; that the lines belong to that tenth does not.
        # From the first line to the end of the recording, where its threads end: after the last call.
        moment = [int(line.split(":")[0].split()[-1].replace(".", "")) for line in whole]
        span = json.loads(run("info", "--json", "-i", self.data("parser")).stdout)["time_ns"][1] - moment[0]
        for words in ("30%-40%", "30%,40%"):
            part = run("script", "-i", self.data("parser"), "--ns", "--time", words)
            self.assertEqual(part.returncode, 0, part.stderr)
            times = [int(line.split(":")[0].split()[-1].replace(".", "")) for line in part.stdout.splitlines()]
            self.assertLess(0, len(times))
            self.assertLess(moment[0] + 0.25 * span, min(times))
            self.assertLess(max(times), moment[0] + 0.45 * span)
        for words in ("x", "5", "1:2", "99%-200%", "+5,6"):
            self.assertEqual(run("script", "-i", self.data("parser"), "--time", words).returncode, 2, words)

    def test_calls_and_returns_are_those_of_perf(self):
        if not shutil.which("perf"):
            self.skipTest("perf is not installed")
        form = re.compile(r"^ *(\S.*?) +([0-9a-f]+) => +([0-9a-f]+)$")
        for name in NAMES:
            words = ["script", "-i", self.data(name), "--itrace=cr", "-F", "flags,ip,addr"]
            perf = subprocess.run(["perf", *map(str, words)], capture_output=True, text=True)
            pairs = [[match.groups() for match in map(form.match, text.splitlines()) if match] for text in (perf.stdout, run(*words).stdout)]
            # The first line is where tracing begins, the last where it ends; perf prints no address for the untraced side.
            self.assertEqual(pairs[0], pairs[1], name)
            self.assertGreater(len(pairs[0]), 2000)

    def peak_bytes(self, *words):
        process = subprocess.Popen([PTDECODE, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        size = 0
        while piece := process.stdout.read(1 << 20):
            size += len(piece)
        process.stdout.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, words)
        return used.ru_maxrss * 1024, size

    def test_memory_of_listings_of_many_threads_is_bounded(self):
        program, peaks = self.folder / "crowd", {}
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-pthread", "-static", SOURCE / "tests/cli/programs/crowd.c", "-o", program], check=True)
        for threads in (4, 84):
            path = self.folder / f"crowd{threads}.data"
            done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", path, "--", program, threads)
            self.assertEqual(done.returncode, 0, done.stderr)
            for words in ("--insn-trace", "--insn-trace=disasm", "--itrace=b", "--call-trace", "--itrace=i1i -F ip"):
                peaks[threads, words], size = self.peak_bytes("script", "-q", "-i", path, *words.split())
                if threads == 84 and words == "--insn-trace":
                    self.assertGreater(size, 256 << 20, "far more text than may be held")
        for (threads, words), peak in peaks.items():
            self.assertLess((peak - peaks[4, words]) / 80, 2 << 20, f"{words}: bytes for each more of 80 threads; {peaks}")

    def test_memory_grows_with_the_processes_that_run_at_once(self):
        """Not with those that run one after the other, as in a build: each has a stream of its own."""
        peaks = {}
        for count in (10, 60):
            path = self.folder / f"processes{count}.data"
            done = run("record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", path, "--", "/bin/sh", "-c", "/bin/true; " * count)
            self.assertEqual(done.returncode, 0, done.stderr)
            for words in ("timeline", "export --tables gaps,events", "export --tables branches,edges", "functions"):
                command, *rest = words.split()
                output = [] if command == "functions" else ["-o", self.folder / f"processes{count}.{command}"]
                peaks[count, words] = self.peak_bytes(command, "-q", "-i", path, *rest, *output)[0]
        for (count, words), peak in peaks.items():
            grown = peak - peaks[10, words] - (128 << 20 if "branches" in words else 0)  # the page cache of a large database
            self.assertLess(grown / 50, 150 << 10, f"{words}: bytes for each more of 50 processes; {peaks}")

    def first_lines(self, *words):
        with subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            lines = [line.rstrip("\n") for line in itertools.islice(process.stdout, 10_000)]
            process.kill()
        return lines

    def test_columns_are_those_of_perf(self):
        if not shutil.which("perf"):
            self.skipTest("perf is not installed")
        time, name = re.compile(r"(?<= )\d+\.(\d{6}|\d{9}): "), re.compile(r" [^ ]+(\+0x[0-9a-f]+)? \((?=[/\[])")
        columns = ["-F", "comm,pid,tid,event,period,ip,addr,sym,dso"]
        # perf 6.1 has 5 columns for each number of a process or thread, perf 6.12 has 7.
        wide = re.compile(r"^(.{16}) ([ \d]{6}\d)(?:/(\d[ \d]{6}))? ")
        narrow = lambda line: wide.sub(lambda found: f"{found[1]} {int(found[2]):>5}" + (f"/{int(found[3]):<5}" if found[3] else "") + " ", line)
        for data in NAMES:
            for words in (["--itrace=b"], ["--itrace=b", "-F", "+flags"], ["--itrace=cr", *columns], ["--itrace=i1i"], ["--insn-trace"],
                          ["--itrace=i1i", "-F", "-symoff,-dso,-period"], ["--itrace=b", "-F", "-tid,+pid,-addr"]):
                words = ["script", "-i", self.data(data), *words]
                theirs, ours = list(map(narrow, self.first_lines("perf", *words))), self.first_lines(PTDECODE, *words, "-q")
                self.assertEqual(len(ours), len(theirs), words)
                self.assertGreater(len(ours), 2000)
                # Time ranges are computed differently (docs/DIFFERENCES.md), and any of several names at one address may be chosen.
                self.assertGreater(sum(time.sub("", a) == time.sub("", b) for a, b in zip(ours, theirs)), len(ours) // 2, words)
                for a, b in zip(ours, theirs):
                    same = [name.sub(" NAME (", time.sub(lambda found: "T" * len(found[0]), line)) for line in (a, b)]
                    if "-dso" not in words[-1]:
                        self.assertEqual(same[0], same[1], words)
                    else:
                        self.assertEqual(same[0].split()[:-1], same[1].split()[:-1], words)

    def called(self, *words):
        """Returns function -> calls, and the time of the outermost."""
        lines = [line for line in json_lines(run("functions", *words, "--limit", "0", "--format", "json")) if "function" in line]
        return {line["function"]: line for line in lines}

    def test_the_timeline_holds_the_same_calls(self):
        kernel = SOURCE / "data" / "kernel" / "kernel.bundle"
        for words in (["-i", self.data("calls")], ["-i", self.data("sorter")], ["-i", kernel, "--time", "48%-51%"]):
            path = self.folder / "out.pftrace"
            done = run("timeline", "-o", path, *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            tracks, slices, instants = perfetto_reader.read(path.read_bytes())
            ours = self.called(*words)
            seen = collections.Counter(name for _, _, name, _, _ in slices)
            waits = ("[off cpu]", "[flow lost]", "[not traced]")
            for name, line in ours.items():
                if name not in waits:
                    self.assertLessEqual(line["calls"], seen[name], name)
                    self.assertLessEqual(seen[name], line["calls"] + line["partial"], name)
            self.assertEqual({name for name in seen if name not in waits}, {name for name in ours if name not in waits})
            for track, depth, name, begin, end in slices:
                self.assertLessEqual(begin, end)
            self.assertIn(f": {len(slices)} slices", done.stderr)
            if kernel in words:
                first, last = json.loads(run("info", "--json", "-i", kernel).stdout)["time_ns"]
                run("timeline", "-o", self.folder / "whole.pftrace", "-i", kernel, "--min", "1ms")
                whole = self.changes_of_code(*perfetto_reader.read((self.folder / "whole.pftrace").read_bytes()))
                self.assertLess(100, len(whole))
                inside = [change for change in whole if 0.48 <= (change[0] - first) / (last - first) <= 0.51]
                self.assertEqual(self.changes_of_code(tracks, slices, instants), inside)
                self.assertEqual(len(inside), 2)

    @staticmethod
    def changes_of_code(tracks, _, instants):
        """Returns the time and name of each change on the kernel's only track of changes."""
        (pokes,) = [track for track, facts in tracks.items() if facts["name"] == "changes of code"]
        return sorted((time, name) for track, name, time in instants if track == pokes)

    def test_folded_stacks_add_up_to_the_functions(self):
        for name in NAMES:
            ours = self.called("-i", self.data(name))
            own = collections.Counter()
            for line in run("flame", "-i", self.data(name), "--format", "folded").stdout.splitlines():
                stack, amount = line.rsplit(" ", 1)
                self.assertEqual(stack.split(";")[0], name)
                own[stack.split(";")[-1]] += int(amount)
            self.assertEqual(own, collections.Counter({function.replace(" ", "_"): line["self_ns"] for function, line in ours.items() if line["self_ns"]}))

    def test_the_flame_graph_nests_and_has_the_folded_amounts(self):
        path = self.folder / "out.svg"
        done = run("flame", "-i", self.data("parser"), "-o", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        root = xml.etree.ElementTree.parse(path).getroot()
        frames = [group.attrib for group in root.iter("{http://www.w3.org/2000/svg}g")]
        self.assertGreater(len(frames), 20)
        whole = sum(int(line.rsplit(" ", 1)[1]) for line in run("flame", "-i", self.data("parser"), "--format", "folded").stdout.splitlines())
        self.assertEqual(int(frames[0]["data-v"]), whole)
        titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
        self.assertRegex(titles[0], r"^all \([^,]+, 100\.00 %\)$")  # neither this frame nor that of the process is called
        self.assertRegex(titles[1], r"^parser \([^,]+, [\d.]+ %\)$")
        self.assertTrue(any(re.search(r" %, \d+ calls?\)$", title) for title in titles[2:]), titles)
        for frame in frames[1:]:
            x, width, depth = float(frame["data-x"]), float(frame["data-w"]), int(frame["data-d"])
            self.assertTrue(any(int(other["data-d"]) == depth - 1 and float(other["data-x"]) <= x + 0.01 and
                                x + width <= float(other["data-x"]) + float(other["data-w"]) + 0.01 for other in frames), frame)
            self.assertAlmostEqual(width, 1180 * int(frame["data-v"]) / whole, delta=0.01)

    def test_a_function_that_never_ran_is_named(self):
        done = run("functions", "-i", self.data("sorter"), "--func", "nobody")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no function is named 'nobody'", done.stderr)


class TailCalls(unittest.TestCase):
    def test_an_indirect_jump_to_the_own_start_is_a_tail_call_and_a_direct_one_a_loop(self):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            program, data = folder / "handlers", folder / "handlers.data"
            subprocess.run([os.environ.get("CC", "cc"), "-O2", "-g", SOURCE / "tests/cli/programs/handlers.c", "-o", program], check=True)
            done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", data, "--", program)
            self.assertEqual(done.returncode, 0, done.stderr)
            want = {name: int(count) for name, count in re.findall(r"^(\w+) (\d+)$", done.stdout, re.M)}
            self.assertEqual(len(want), 3, done.stdout)
            rows = {row["function"]: row for row in json_lines(run("functions", "-q", "--no-inline", "--format", "json", "-i", data)) if "function" in row}
            self.assertEqual({name: rows[name]["calls"] for name in want}, want)
            for row in (rows["handle_add"], rows["handle_multiply"]):  # no call is another's caller
                self.assertEqual(row["self_instructions"] % row["calls"], 0, row)
            covered = run("coverage", "-q", "--format", "lcov", "-i", data).stdout
            entries = {name: int(count) for count, name in re.findall(r"^FNDA:(\d+),(\w+)$", covered, re.M)}
            self.assertEqual({name: entries[name] for name in want if name != "count_down"}, {name: want[name] for name in want if name != "count_down"})


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    unittest.main(verbosity=2)
