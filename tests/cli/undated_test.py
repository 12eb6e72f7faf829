#!/usr/bin/env python3
"""Recordings whose records have no time, because their events are damaged: if an address had two contents, all code is suspect. Traces whose first
time is not at their start.

The damage: perf_file_header.attrs (offset 24), .attr_size (16), and of each perf_event_attr sample_type (24) and flags (40)
(linux/perf_event.h, tools/perf/Documentation/perf.data-file-format.txt).
Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Without qemu-x86_64 only the bundled recording is damaged.
"""
import contextlib
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

import perf_file
import perfetto_reader

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "replay"))
import gdb_client  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
DEMO = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "data" / "demo"
CORPUS = pathlib.Path(os.environ.get("PTDECODE_CORPUS", DEMO.parents[1] / ".." / "shared" / "corpus"))
SAMPLE_TIME, SAMPLE_ID_ALL = 1 << 2, 1 << 18
PROGRAM = """
#include <stdlib.h>
#include <unistd.h>
volatile int sum;
int main(int count, char **words) {
  for (int i = 0; i < 1000; ++i) sum += COUNT;
  if (count > 1) execv(words[1], words + 1);
  return 0;
}
"""
CALLS = """
volatile int sum;
__attribute__((noinline)) void leaf(int i) { sum += i; }
int main(void) {
  for (int i = 0; i < 200000; ++i) leaf(i);
  return 0;
}
"""
THREADS = """
#include <pthread.h>
#include <unistd.h>
volatile int sum;
__attribute__((noinline)) void of_both(int i) { sum += i; }
__attribute__((noinline)) void of_thread(int i) { of_both(i); sum += i; }
__attribute__((noinline)) void of_main(int i) { of_both(i); sum += i; }
void *run(void *p) {
  for (int i = 0; i < 100; ++i) of_thread(i);
  return p;
}
int main(int count, char **words) {
  pthread_t thread;
  pthread_create(&thread, 0, run, 0);
  pthread_join(thread, 0);
  for (int i = 0; i < 100 * count; ++i) of_main(i);
  return 0;
}
"""
PSB = bytes.fromhex("0282") * 8


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300)


def damaged(raw):
    """Yields a name and the file, for each damage after which no record has a time."""
    attr_size, attrs, attrs_bytes = struct.unpack_from("<3Q", raw, 16)

    def with_word(at, change):
        return raw[:at] + struct.pack("<Q", change(struct.unpack_from("<Q", raw, at)[0])) + raw[at + 8:]

    for offset in (0, 0x70):
        yield f"attrs at {offset}", with_word(24, lambda _, to=offset: to)
    for size in (0, 7):
        yield f"attr size {size}", with_word(16, lambda _, to=size: to)
    yield "no attrs", with_word(32, lambda _: 0)
    original = raw
    for name, at, change in (("sample type 0", 24, lambda _: 0), ("no PERF_SAMPLE_TIME", 24, lambda word: word & ~SAMPLE_TIME),
                             ("no sample_id_all", 40, lambda word: word & ~SAMPLE_ID_ALL)):
        raw = original
        for attr in range(attrs, attrs + attrs_bytes, attr_size):
            raw = with_word(attr + at, change)
        yield name, raw
        raw = original


def executable_segment(elf):
    """The file offset, address and size in the file of the first PT_LOAD with PF_X."""
    headers, header_bytes, count = struct.unpack_from("<Q", elf, 32)[0], *struct.unpack_from("<2H", elf, 54)
    for at in range(headers, headers + count * header_bytes, header_bytes):
        kind, flags, offset, address, _, size = struct.unpack_from("<2I4Q", elf, at)
        if kind == 1 and flags & 1:
            return offset, address, size
    raise ValueError("no executable segment")


def without_times(path, stream):
    """The recording with PADs in place of the packets that give times in one stream."""
    raw = bytearray(path.read_bytes())
    trace = [at + size for at, kind, size in perf_file.records(raw)[0] if kind == perf_file.AUXTRACE][stream]
    listed = re.split("(?m)^# stream .*\n", run("packets", "-i", path).stdout)[1 + stream]
    for at, content in re.findall(r"(?m)^([0-9a-f]{16})  (?:tsc|tma|mtc|cyc) .*\| ([0-9a-f ]+)$", listed):
        first, size = trace + int(at, 16), len(content.split())
        assert raw[first:first + size] == bytes.fromhex(content)
        raw[first:first + size] = bytes(size)
    return raw


class Undated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def suspects(self, recording):
        """Instructions, and suspect ones among them."""
        text = run("stat", "-q", "-i", recording).stdout
        return (sum(map(int, re.findall(r"(?m)^  instructions +(\d+)$", text))),
                sum(map(int, re.findall(r"(?m)^    suspect +\d+ blocks +(\d+) instructions", text))))

    def assert_reported(self, recording):
        checked = run("check", "-i", recording)
        self.assertEqual(checked.returncode, 3, checked.stdout)
        self.assertRegex(checked.stdout, r"(?m)^bad_record: \d+ records? of .* without time")
        return checked.stdout

    def test_changes_of_text_without_time_make_all_code_suspect(self):
        recording = self.folder / "demo"
        shutil.copytree(DEMO, recording)
        (recording / "data").chmod(0o644)
        for name, raw in damaged((DEMO / "data").read_bytes()):
            with self.subTest(name):
                (recording / "data").write_bytes(raw)
                self.assertIn("all code is suspect", self.assert_reported(recording))
                total, suspect = self.suspects(recording)
                self.assertEqual(total, suspect)

    def test_a_text_poke_with_the_time_of_another_moment_is_found(self):
        """A cpu's ring is in order of time: a poke that claims to be later than the next record of its cpu contradicts it."""
        recording = self.folder / "moved"
        shutil.copytree(DEMO, recording)
        (recording / "data").chmod(0o644)
        raw = (DEMO / "data").read_bytes()
        ordered = [(at, kind, *struct.unpack_from("<Q8xI", raw, at + size - 24)) for at, kind, size in perf_file.records(raw)[0] if kind in (15, 17, 20)]  # SWITCH_CPU_WIDE, KSYMBOL, TEXT_POKE
        moved = 0
        for number, (at, kind, time, cpu) in enumerate(ordered):
            after = next((other for other in ordered[number + 1:] if other[3] == cpu), None)
            if kind != 20 or after is None or moved == 8:
                continue
            moved += 1
            damaged_raw = bytearray(raw)
            struct.pack_into("<Q", damaged_raw, at + struct.unpack_from("<H", raw, at + 6)[0] - 24, after[2] + 2000)
            (recording / "data").write_bytes(damaged_raw)
            checked = run("check", "-i", recording)
            self.assertEqual(checked.returncode, 3, (at, checked.stdout))
            self.assertRegex(checked.stdout, rf"bad_record: .*TEXT_POKE at file offset {at}: its time contradicts the order")
            # The same if no ID_INDEX names the rings: an event writes to one ring.
            for index in (at for at, kind, _ in perf_file.records(raw)[0] if kind == 69):
                struct.pack_into("<I", damaged_raw, index, 68)
            (recording / "data").write_bytes(damaged_raw)
            self.assertRegex(run("check", "-i", recording).stdout, rf"bad_record: .*TEXT_POKE at file offset {at}: its time contradicts the order")
        self.assertEqual(moved, 8)

    def test_a_damaged_sample_type_is_found(self):
        """Without PERF_SAMPLE_TID, ids are 8 bytes shorter than the records say: threads, times and durations would be other ones."""
        recording = self.folder / "sample-type"
        shutil.copytree(DEMO, recording)
        (recording / "data").chmod(0o644)
        raw = (DEMO / "data").read_bytes()
        size, first, bytes_of_attrs = *struct.unpack_from("<Q", raw, 16), *struct.unpack_from("<QQ", raw, 24)
        damaged_attrs = 0
        for at in range(first, first + bytes_of_attrs, size):
            sample_type = struct.unpack_from("<Q", raw, at + 24)[0]
            if sample_type & 2:
                (recording / "data").write_bytes(raw[:at + 24] + struct.pack("<Q", sample_type & ~2) + raw[at + 32:])
                checked = run("check", "-i", recording)
                damaged_attrs += 1 if "contradicts itself" in checked.stdout and checked.returncode == 3 else 0
        self.assertGreaterEqual(damaged_attrs, 1)

    @unittest.skipIf(shutil.which("qemu-x86_64") is None, "no qemu-x86_64")
    def test_only_code_that_had_one_mapping_stays_certain(self):
        (self.folder / "program.c").write_text(PROGRAM)
        for name, count in (("first", 1), ("second", 100000)):  # with the same addresses, and another immediate operand
            subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-no-pie", f"-DCOUNT={count}", self.folder / "program.c", "-o", self.folder / name],
                           check=True)
        recording, broken = self.folder / "recording", self.folder / "broken"
        for programs in (["first"], ["first", "second"]):
            done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", recording, "--",
                       *(self.folder / program for program in programs))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(run("check", "-i", recording).returncode, 0)
            self.assertEqual(self.suspects(recording)[1], 0)
            for name, raw in damaged(recording.read_bytes()):
                with self.subTest(name, programs=programs):
                    broken.write_bytes(raw)
                    said = self.assert_reported(broken)
                    total, suspect = self.suspects(broken)
                    self.assertGreater(total, 1000)
                    self.assertIn("all code is suspect" if len(programs) > 1 else "no address had more than one content", said)
                    if len(programs) > 1:
                        self.assertEqual(suspect, total)
                    elif "records_lost" not in said:  # an impossible size also ends reading the events, which makes all suspect
                        self.assertEqual(suspect, 0)
            recording.unlink()

    @unittest.skipIf(shutil.which("qemu-x86_64") is None, "no qemu-x86_64")
    def test_no_time_passes_before_the_first_known_one(self):
        """The first PSB+ have no TSC. More calls follow than wait for a time."""
        program, whole, cut = self.folder / "calls", self.folder / "whole", self.folder / "cut"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-x", "c", "-", "-o", program], input=CALLS, text=True, check=True)
        done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--work-clock", "-o", whole, "--", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        first, last = map(int, re.search(r"(?m)^time +(\d+\.\d+)\.\.(\d+\.\d+)", run("info", "-i", whole).stdout).expand(r"\1 \2").replace(".", "").split())
        raw = bytearray(whole.read_bytes())
        at = 0
        for count in range(3):
            at = raw.index(PSB, at) + len(PSB)
            self.assertEqual(raw[at], 0x19)  # TSC
            raw[at:at + 8] = bytes(8)        # PADs
            cut.write_bytes(raw)
            if count == 1:
                continue
            with self.subTest(without_tsc=count + 1):
                lines = [json.loads(line) for line in run("functions", "-q", "-i", cut, "--format", "json").stdout.splitlines()]
                self.assertTrue(lines[0]["timed"])
                running = sum(line["self_ns"] for line in lines[1:])
                self.assertGreater(running, 0)
                self.assertLess(running, last - first)
                self.assertLess(max(line["total_ns"] for line in lines[1:]), last - first)
                folded = run("flame", "-q", "--format", "folded", "-i", cut).stdout.splitlines()
                self.assertEqual(sum(int(line.rsplit(" ", 1)[1]) for line in folded), running)
                calls = [json.loads(line) for line in run("script", "-q", "-i", cut, "--format", "json").stdout.splitlines()]
                self.assertGreater(min(call["start_ns"] for call in calls if "call" in call), first)
                done = run("timeline", "-q", "-i", cut, "-o", self.folder / "cut.json")
                self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipIf(shutil.which("qemu-x86_64") is None, "no qemu-x86_64")
    def test_calls_of_a_trace_without_times_have_none(self):
        recording, database = self.folder / "timeless", self.folder / "timeless.db"
        done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-tsc", "-o", recording, "--", "/bin/true")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in run("script", "-q", "-i", recording, "--format", "json").stdout.splitlines()]
        self.assertFalse(lines[0]["timed"])
        self.assertTrue([line for line in lines if "call" in line])
        self.assertEqual([line for line in lines if any(name.endswith("_ns") for name in line)], [])
        slowest = ("functions", "-q", "-i", recording, "--func", "_start", "--slowest", 1)
        call = json.loads(run(*slowest, "--format", "json").stdout.splitlines()[-1])
        self.assertEqual((call["call"], {"start", "end", "start_ns", "end_ns", "off_cpu_ns", "untraced_ns"} & call.keys()), ("_start", set()))
        self.assertRegex(run(*slowest).stdout.splitlines()[-1], r"^ +-( +-){2}  true +\d+  --tid \d+\b(?!.*--time)")
        with gdb_client.Client("-i", recording, ptdecode=PTDECODE) as client:
            for command in ("time", "events", "seek 1"):
                self.assertNotRegex(client.monitor(command), r"\b0\.0{9}", command)
        self.assertEqual(run("export", "-q", "-i", recording, "-o", database).returncode, 0)
        self.assert_no_times(database)
        for command in (["functions"], ["script"], ["script", "--itrace=b"], ["packets"], ["coverage"]):
            done = run(*command, "-i", recording, "--time", "1,2")
            self.assertEqual(done.returncode, 2, command)
            self.assertIn("nothing matched --time; the trace contains no time;", done.stderr, command)
            self.assertNotIn("timing packet", done.stderr, command)
        done = run("flame", "--waiting", "--format", "folded", "-i", recording)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("the trace contains no time", done.stderr)

    @unittest.skipIf(shutil.which("qemu-x86_64") is None, "no qemu-x86_64")
    def test_unknown_times_are_not_compared(self):
        """One recording has times, one has none, and one has none of one thread."""
        program, dated, timeless, mixed = (self.folder / name for name in ("compared", "dated.data", "timeless.data", "mixed.data"))
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-pthread", "-x", "c", "-", "-o", program], input=THREADS, text=True, check=True)
        for output, clock, count in ((dated, "--work-clock", 1), (timeless, "--no-tsc", 2)):
            done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], clock, "-o", output, "--", program, *range(count))
            self.assertEqual(done.returncode, 0, done.stderr)
        mixed.write_bytes(without_times(dated, 1))
        for a, b in ((dated, timeless), (timeless, dated), (timeless, timeless), (mixed, dated), (dated, mixed)):
            with self.subTest(a=a.name, b=b.name):
                untimed = [letter for letter, side in (("A", a), ("B", b)) if side == timeless]
                said = run("functions", "-q", "--diff", a, b, "--func", "of_thread").stdout
                row = next(line for line in said.splitlines() if line.endswith("of_thread (compared)"))
                self.assertNotIn("0 ns", said.replace("0 ns off cpu", ""))
                self.assertEqual(re.findall("the times of (.) are not known: the trace contains no time\n", said), untimed)
                rows = [json.loads(line) for line in run("functions", "-q", "--diff", a, b, "--json").stdout.splitlines()]
                self.assertIs(rows[0]["timed"], not untimed)
                row_of = {each["function"]: each for each in rows if "function" in each}
                if not untimed:
                    self.assertRegex(row, "  -          - of_thread")
                    side = "_a" if a == mixed else "_b"
                    for name in ("of_thread", "of_both"):
                        self.assertEqual([row_of[name]["self_ns" + side], row_of[name]["total_ns" + side]], [None, None])
                    self.assertGreater(row_of["of_main"]["self_ns" + side], 0)
                    self.assertEqual(row_of["of_main"]["self_ns_a"], row_of["of_main"]["self_ns_b"])
                    self.assertRegex(run("functions", "-q", "--diff", a, b).stdout,
                                     r"not compared, because some of their calls have no times; --sort instructions compares them\n")
                runs = run("script", "-q", "--diff", a, b).stdout
                self.assertEqual(re.findall("the times of (.) are not known: the trace contains no time\n", runs), untimed)
                self.assertNotRegex(runs, r"\b0\.0{9}")
                if untimed and a != b:
                    self.assertRegex(runs, rf"(?m)^    {untimed[0]} - (calls|ends)")
                    self.assertRegex(runs, rf"(?m)^      ptdecode script -i \S+{timeless.name} --tid \d+$")

    @unittest.skipIf(shutil.which("qemu-x86_64") is None, "no qemu-x86_64")
    def test_a_thread_without_times(self):
        program, dated, mixed, timeline = (self.folder / name for name in ("threads", "both.data", "one.data", "one.pftrace"))
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-pthread", "-x", "c", "-", "-o", program], input=THREADS, text=True, check=True)
        done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--work-clock", "-o", dated, "--", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        mixed.write_bytes(without_times(dated, 1))
        lines = [line for line in run("script", "-q", "-i", mixed).stdout.splitlines() if "of_thread" in line]
        self.assertEqual(len(lines), 200)
        self.assertEqual([line for line in lines if not re.search(r" -: +(-? +(of_thread \{)|- +\} of_thread)$", line)], [])
        done = run("functions", "-q", "-i", mixed, "--func", "of_*")
        self.assertIn("1 thread has calls without times, because no packet of their trace gives one: no time includes these calls\n", done.stderr)
        self.assertNotIn("without times", run("functions", "-q", "-i", dated).stderr)
        self.assertEqual(run("timeline", "-q", "-i", mixed, "-o", timeline).returncode, 0)
        slices = perfetto_reader.read(timeline.read_bytes())[1]
        self.assertIn("of_main", {name for _, _, name, _, _ in slices})
        self.assertNotIn("of_thread", {name for _, _, name, _, _ in slices})
        self.assertGreater(min(begin for _, _, _, begin, _ in slices), 10**9)
        raw = bytearray(mixed.read_bytes())
        trace = [at + size for at, kind, size in perf_file.records(raw)[0] if kind == perf_file.AUXTRACE][1]
        raw[trace + 90:trace + 94] = bytes([255]) * 4
        mixed.write_bytes(raw)
        self.assertRegex(run("stat", "-q", "-i", mixed).stdout, r"lost flow as a share of time traced, by thread\n.*\n +- +- +- +\d+  threads \d+  \(")
        losses = json.loads(run("stat", "-q", "-i", mixed, "--json").stdout)["loss_times"]["threads"]
        self.assertEqual(sorted((loss["traced_ns"] is None, loss["lost_ns"] is None, bool(loss["gaps"])) for loss in losses), [(False, False, False), (True, True, True)])

    def assert_no_times(self, database):
        """In no table and no view; but perf's tables have 0 for an unknown moment."""
        with contextlib.closing(sqlite3.connect(database)) as opened:
            tables = [name for name, in opened.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
            filled = {"calls_view", "ptd_calls", "ptd_functions", "ptd_threads", "ptd_branches", "ptd_edges"}
            self.assertLessEqual(filled, set(tables))
            for table in tables:
                columns = [name for _, name, *_ in opened.execute(f"PRAGMA table_info({table})") if name.endswith("_ns") or name == "elapsed_time"]
                if table not in ("ptd_sections", "ptd_versions", "ptd_findings"):  # of the records, which may have times
                    counts = opened.execute(f"SELECT count(*), {', '.join(f'count({name})' for name in columns) or 0} FROM {table}").fetchone()
                    self.assertEqual(set(counts[1:]), {0}, (table, columns))
                    self.assertTrue(table not in filled or (counts[0] > 0 and columns), table)

    @unittest.skipIf(shutil.which("qemu-x86_64") is None, "no qemu-x86_64")
    def test_merged_calls_of_a_trace_without_times_have_none(self):
        recording, plan, units, merged = (self.folder / name for name in ("units.data", "units.plan", "units", "merged"))
        done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-tsc", "-o", recording, "--", "/bin/true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(run("plan", "-q", "-i", recording, "-o", plan, "--units", 3).returncode, 0)
        for unit in range(len(run("unit", plan).stdout.splitlines()) - 1):
            self.assertEqual(run("unit", plan, unit, "-o", units).returncode, 0)
        self.assertEqual(run("merge", plan, units, "-o", merged).returncode, 0)
        for table in ("functions", "calls"):
            rows = [json.loads(line) for line in (merged / f"{table}.jsonl").read_text().splitlines()]
            self.assertGreater(len(rows), 10)
            self.assertEqual([row for row in rows if any(value is not None for name, value in row.items() if name.endswith("_ns"))], [])

    @unittest.skipIf(shutil.which("qemu-x86_64") is None, "no qemu-x86_64")
    def test_ticks_of_unknown_length_are_no_times(self):
        program, recording, trace, database = (self.folder / name for name in ("ticks", "ticks.data", "ticks.pt", "ticks.db"))
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-no-pie", "-x", "c", "-", "-o", program], input=CALLS, text=True, check=True)
        done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--cyc", "-o", recording, "--", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        trace.write_bytes(b"".join(perf_file.aux_traces(recording.read_bytes())))
        offset, address, size = executable_segment(program.read_bytes())
        input_words = ("-q", "--pt", trace, "--image", f"{program},off={offset},size={size}@{address:#x}")
        for command in ("functions", "script"):
            with self.subTest(command):
                lines = [json.loads(line) for line in run(command, *input_words, "--format", "json").stdout.splitlines()]
                self.assertIs(lines[0]["timed"], False)
                self.assertGreater(len(lines), 10)
                self.assertFalse([line for line in lines if {"start_ns", "end_ns", "time_ns"} & line.keys() or line.get("self_ns", 0) != 0])
        listed = run("functions", *input_words).stdout.splitlines()
        self.assertRegex(listed[0], r"calls +self insn +% +total insn +ipc function +\(.*--clock-freq\)$")  # the trace counts cycles
        self.assertEqual(listed[1].index("main (ticks)"), listed[0].index("function"), listed[:2])
        self.assertEqual(run("export", *input_words, "-o", database).returncode, 0)
        with contextlib.closing(sqlite3.connect(database)) as opened:
            self.assertEqual(opened.execute("SELECT count(*) > 0, count(start_ns), count(end_ns) FROM ptd_calls").fetchone(), (1, 0, 0))
            self.assertEqual(opened.execute("SELECT count(*) > 0, count(time_ns) FROM ptd_branches").fetchone(), (1, 0))
        self.assert_no_times(database)
        for command, said in ((("timeline", "-o", self.folder / "ticks.json"), "--clock-freq"), (("functions", "--time", "10%-20%"), "--clock-freq")):
            done = run(*command, *input_words)
            self.assertEqual(done.returncode, 2 if "--time" in command else done.returncode)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)

    def test_a_frequency_makes_times_of_coresight_timestamps(self):
        for name in ("ete-ts_bit64_set", "cs-Snowball"):
            snapshot = CORPUS / name / "snapshot"
            if not snapshot.exists():
                self.skipTest(f"{snapshot} is absent")
            running = {}
            for frequency in (None, "25MHz", "50MHz"):
                words = [] if frequency is None else ["--clock-freq", frequency]
                rows = [json.loads(line) for line in run("functions", "-q", "-i", snapshot, *words, "--format", "json").stdout.splitlines()]
                self.assertIs(rows[0]["timed"], frequency is not None)
                running[frequency] = sum(row.get("self_ns", 0) for row in rows[1:])
            self.assertEqual(running[None], 0)
            self.assertGreater(running["50MHz"], 1000)
            # Not exactly twice: an instruction without a measured rate takes 5 ns at most, whatever the clock.
            self.assertAlmostEqual(running["25MHz"] / running["50MHz"], 2, delta=0.05)

    @unittest.skipIf(shutil.which("qemu-x86_64") is None, "no qemu-x86_64")
    def test_a_frequency_makes_times_of_ticks(self):
        """A recording says how its TSC counts: with this frequency, the raw trace has the same durations."""
        program, recording, trace = (self.folder / name for name in ("counted", "counted.data", "counted.pt"))
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-no-pie", "-x", "c", "-", "-o", program], input=CALLS, text=True, check=True)
        done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--work-clock", "--psb-period", "0", "-o", recording, "--", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        raw = recording.read_bytes()
        trace.write_bytes(b"".join(perf_file.aux_traces(raw)))
        offset, address, size = executable_segment(program.read_bytes())
        words = ("--pt", trace, "--image", f"{program},off={offset},size={size}@{address:#x}", "--tsc-ctc", "256/1", "--mtc-freq", "9", "--clock-freq")

        def leaf(*words):
            rows = [json.loads(line) for line in run("functions", "-q", *words, "--func", "leaf", "--format", "json").stdout.splitlines()]
            self.assertTrue(rows[0]["timed"])
            return rows[1]["self_ns"]

        known = leaf("-i", recording)
        self.assertGreater(known, 0)
        for frequency, factor in (("2GHz", 1), ("500MHz", 4), ("4000000000", 0.5)):  # --work-clock counts 2 GHz (docs/FORMAT-truth.md)
            with self.subTest(frequency):
                # The recording's switch records divide the time around system calls in another way.
                self.assertAlmostEqual(leaf(*words, frequency) / known, factor, delta=0.1 * factor)
        # Without --mtc-freq, the packets show the period; without the ratio, no MTC packet has a time.
        at = words.index("--mtc-freq")
        self.assertAlmostEqual(leaf(*words[:at], *words[at + 2:], "2GHz") / known, 1, delta=0.1)
        unused = "MTC packets are not used"
        self.assertNotIn(unused, run("functions", *words[:at], "--clock-freq", "2GHz").stderr)
        self.assertIn(unused + ", because the ratio of their clock is not known (--tsc-ctc): ",
                      run("functions", *words[:at - 2], "--clock-freq", "2GHz").stderr)
        for wrong in ("0", "fast", "2GB", "-1", "1e9", "5000GHz"):
            done = run("functions", *words, wrong)
            self.assertEqual(done.returncode, 2, wrong)
            self.assertIn("frequency", done.stderr)
        done = run("functions", "-i", recording, "--clock-freq", "2GHz")
        self.assertEqual(done.returncode, 2)
        self.assertIn("frequency", done.stderr)

    def test_options_of_other_recordings(self):
        """Options that would have no effect are refused by every command, and wrong values also where the option has one."""
        recording, output = DEMO, self.folder / "output"
        commands = (("info",), ("check",), ("functions",), ("bundle", "-o", output), ("plan", "-o", output))
        options = (("--tsc-ctc", "250/2"), ("--mtc-freq", "3"), ("--nom-freq", "0"), ("--pt-cpu", "6/94/3"), ("--pages", "a,b"), ("--modules", "a"),
                   ("--clock-freq", "1GHz"), ("--image", "/bin/true@0x1000"))
        for command in commands:
            for option in options:
                with self.subTest(command=command[0], option=option):
                    done = run(*command, "-i", recording, *option)
                    self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                    self.assertIn("need --pt FILE or --winipt FILE" if option in options[:6] else "only a raw capture or CoreSight snapshot", done.stderr)
                    self.assertFalse(output.exists())
            for option in (("--tsc-ctc", "zz"), ("--tsc-ctc", "1/0"), ("--pt-cpu", "zz"), ("--pages", "a")):
                for source in (("-i", recording), ("--pt", "absent")):
                    with self.subTest(command=command[0], option=option, source=source):
                        done = run(*command, *source, *option)
                        self.assertEqual(done.returncode, 2, done.stderr)
                        self.assertIn(f"{option[0]}: '{option[1]}' is not", done.stderr)


if __name__ == "__main__":
    unittest.main()
