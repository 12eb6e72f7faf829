#!/usr/bin/env python3
"""Jitdumps whose times are not true, that lack a record, or that were changed: a finding that names the file, or no wrong instruction without a
mark.

The format: tools/perf/Documentation/jitdump-specification.txt. A header has 40 bytes, with a reserved word at 16 and flags at 32 (bit 0: times are
TSC ticks); a record begins with its type, size and time, and JIT_CODE_LOAD (0) has the function's number at byte 48.
Environment: PTDECODE, PTDECODE_PLUGIN, CC. Exit status 77 without qemu-x86_64.
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
from random import Random

import perfetto_reader

PTDECODE = os.environ["PTDECODE"]
SECOND = 10**9
MMAP2, AUXTRACE, MARKER = 10, 71, 0x1000
NO_DOUBT = ("--symfs", "/")  # a file is the recorded one whatever its inode and age, so its code is not assumed for them
PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int main(void) {
  unsigned char *page = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int sum = 0;
  for (int i = 0; i < 20; ++i) {
    unsigned char code[] = {0xb8, i, 0, 0, 0, 0x83, 0xf8, 5, 0x74, 1, 0x90, 0xc3};
    if (i % 2) code[8] = 0x75;  /* jne instead of je: each version takes another path */
    memcpy(page + 64 * (i % 3), code, sizeof code);
    sum += ((int (*)(void))(page + 64 * (i % 3)))();
  }
  printf("%d\n", sum);
  return 0;
}
"""
# Makes the header before it maps the file, as .NET (src/coreclr/pal/src/misc/perfjitdump.cpp, Start()) and Erlang do, and then generates a function.
# Arguments: by how many nanoseconds the header's and the function's times are too early.
OWN_DUMP = r"""
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}
int main(int argc, char **argv) {
  char name[64];
  snprintf(name, sizeof name, "jit-%d.dump", getpid());
  int file = open(name, O_CREAT | O_TRUNC | O_RDWR, 0600);
  uint64_t times[2] = {now() - strtoull(argv[1], 0, 10), 0};
  uint32_t header[6] = {0x4a695444, 1, 40, 62, 0, getpid()};
  if (write(file, header, sizeof header) < 0 || write(file, times, sizeof times) < 0) return 1;
  usleep(2000);
  uint64_t early = strtoull(argv[2], 0, 10), mapped = now();
  mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
  static const unsigned char code[] = {0x31, 0xc0, 0xff, 0xc0, 0x83, 0xf8, 0x10, 0x75, 0xf9, 0xc3};
  unsigned char *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(page, code, sizeof code);
  uint32_t head[2] = {0, 16 + 40 + 3 + sizeof code}, task[2] = {getpid(), getpid()};
  uint64_t time = early != 0 ? mapped - early : now(), place[4] = {(uintptr_t)page, (uintptr_t)page, sizeof code, 1};
  if (write(file, head, 8) < 0 || write(file, &time, 8) < 0 || write(file, task, 8) < 0 || write(file, place, 32) < 0) return 1;
  if (write(file, "fn", 3) < 0 || write(file, code, sizeof code) < 0) return 1;
  return ((int (*)(void))page)() != 16;
}
"""


def joined(header, records):
    return header + b"".join(struct.pack("<IIQ", kind, 16 + len(body), time) + body for kind, time, body in records)


def numbered(records, number):
    count = iter(range(len(records)))
    return [(kind, time, body if kind else body[:32] + struct.pack("<Q", number(next(count))) + body[40:]) for kind, time, body in records]


def without_sum(recording):
    """Removes the checksum of the jitdump, which its mapping's record has as file offset: compilers write none."""
    changed = bytearray(recording)
    at, size = struct.unpack_from("<2Q", recording, 40)
    end = at + size
    while at < end:
        kind, _, size = struct.unpack_from("<IHH", recording, at)
        if kind == MMAP2 and struct.unpack_from("<Q", recording, at + 16) == (MARKER,):
            struct.pack_into("<Q", changed, at + 32, 0)
        at += size + (struct.unpack_from("<Q", recording, at + 8)[0] if kind == AUXTRACE else 0)
    return bytes(changed)


class JitTimes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        (cls.folder / "program.c").write_text(PROGRAM)
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-o", cls.folder / "program", cls.folder / "program.c"], check=True)
        done = cls.run_it("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "--work-clock", "-o", cls.folder / "rec",
                          "--truth", cls.folder / "truth", "--", cls.folder / "program")
        assert done.returncode == 0, done.stderr
        cls.truth = next((cls.folder / "truth").iterdir())
        cls.dump = next((cls.folder / "rec.jit").glob("*/jit-*.dump"))
        content = cls.dump.read_bytes()
        cls.header, cls.records, at = content[:40], [], 40
        while at < len(content):
            kind, size, time = struct.unpack_from("<IIQ", content, at)
            cls.records.append((kind, time, content[at + 16:at + size]))
            at += size
        cls.recording = (cls.folder / "rec").read_bytes()
        (cls.folder / "rec").write_bytes(without_sum(cls.recording))
        cls.codes = sum(kind == 0 for kind, _, _ in cls.records)

    @classmethod
    def run_it(cls, *words):
        return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PTDECODE_STASH": "off", "DEBUGINFOD_URLS": ""})

    def decoded(self, header, records):
        """Writes the jitdump; returns the numbers of verify, what check says, and its exit status."""
        self.dump.write_bytes(joined(header, records))
        said = self.run_it("verify", "-i", self.folder / "rec", self.truth, *NO_DOUBT).stdout
        numbers = {name: int(re.search(pattern, said)[1]) for name, pattern in
                   (("all", r": (\d+) instructions"), ("right", r"right (\d+)"), ("flagged", r"of them flagged (\d+)"), ("silent", r"silently wrong (\d+)"))}
        check = self.run_it("check", "-i", self.folder / "rec", *NO_DOUBT)
        return numbers, check.stdout, check.returncode

    def forms(self):
        """Yields headers: of the file as it is, which lists all code that ran, and of one that a compiler wrote."""
        yield self.header
        yield self.header[:16] + bytes(4) + self.header[20:]

    def test_times_that_are_true_are_believed(self):
        records = self.records
        for header in self.forms():
            for name, given in (("as written", records), ("doubled", [record for record in records for _ in range(2)]),
                                ("numbered by address", numbered(records, lambda i: 0x7f0000000000 + 4096 * i)),
                                ("all with one number", numbered(records, lambda i: 0))):
                numbers, said, status = self.decoded(header, given)
                self.assertEqual((numbers["right"], status), (numbers["all"], 0), (name, said))
                self.assertIn("no findings", said)
                self.assertLess(numbers["flagged"], self.codes)  # at most the moment of a change is ambiguous

    def test_times_that_cannot_be_true(self):
        for header in self.forms():
            for name, change in (("zero", lambda time: 0), ("an hour late", lambda time: time + 3600 * SECOND),
                                 ("a second early", lambda time: time - SECOND), ("the last", lambda time: 2**64 - 1)):
                numbers, said, status = self.decoded(header, [(kind, change(time), body) for kind, time, body in self.records])
                self.assertEqual((numbers["silent"], status), (0, 3), (name, said))
                self.assertIn(f"bad_record: {self.dump}: {self.codes} of {self.codes} records have a time at which", said)
                listed = self.run_it("script", "-q", "--insn-trace", "-F", "ip,insn,mark", "-i", self.folder / "rec", *NO_DOUBT).stdout
                self.assertIn("{assumed}", listed)
                self.assertNotIn("healed", listed)

    def test_one_time_that_cannot_be_true(self):
        for header in self.forms():
            for at in (0, 7, len(self.records) - 2):
                records = list(self.records)
                records[at] = (records[at][0], 1, records[at][2])
                numbers, said, status = self.decoded(header, records)
                self.assertEqual((numbers["silent"], status), (0, 3), (at, said))
                self.assertIn(f"1 of {self.codes} records have a time at which", said)

    def test_versions_with_equal_times(self):
        times = sorted({time for _, time, _ in self.records})
        middle = times[len(times) // 2]
        header = list(self.forms())[1]
        numbers, said, status = self.decoded(header, [(kind, middle, body) for kind, _, body in self.records])
        self.assertEqual((numbers["silent"], status), (0, 3), said)
        self.assertIn("have the time of another one at the same address", said)

    def shifted(self, header, by):
        begin, = struct.unpack_from("<Q", header, 24)
        return header[:24] + struct.pack("<Q", begin + by) + header[32:], [(kind, time + by, body) for kind, time, body in self.records]

    def assert_named(self, header, records, case):
        """Each wrong instruction is marked, or a finding names the jitdump."""
        numbers, said, status = self.decoded(header, records)
        if numbers["silent"] != 0:
            self.assertEqual(status, 3, case)
            self.assertRegex(said, rf"(?m)^(bad_record|file_changed|times_contradict|records_lost): {self.dump}: ", case)
        return numbers["silent"], said

    def test_times_of_a_clock_that_is_off(self):
        """By some microseconds up to the length of the run, both ways: a suspended machine, or a container with its own clock."""
        span = self.records[-1][1] - self.records[0][1]
        header = list(self.forms())[1]
        for part in (2000, 200, 50, 10, 3):
            for by in (span // part, -span // part):
                self.assert_named(*self.shifted(header, by), by)
        _, said = self.assert_named(*self.shifted(header, -span // 10), "early")
        self.assertIn(f"bad_record: {self.dump}: its header has a time ", said)

    def own_dump(self, header_early, code_early):
        """Records a program that writes a jitdump itself. Returns what check says, and its exit status."""
        program = self.folder / "own"
        if not program.exists():
            (self.folder / "own.c").write_text(OWN_DUMP)
            subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-o", program, self.folder / "own.c"], check=True)
        recording = self.folder / "own_rec"
        done = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "--no-ran-code", "--no-announce",
                               "-o", recording, "--", program, str(header_early), str(code_early)], capture_output=True, text=True, timeout=120,
                              cwd=self.folder, env={**os.environ, "PTDECODE_STASH": "off"})
        self.assertEqual(done.returncode, 0, done.stderr)
        check = self.run_it("check", "-i", recording, *NO_DOUBT)
        return check.stdout, check.returncode

    def test_a_header_that_is_older_than_the_mapping(self):
        said, status = self.own_dump(0, 0)
        self.assertEqual(status, 0, said)
        self.assertIn("no findings", said)
        said = self.run_it("stat", "-q", "-i", self.folder / "own_rec", *NO_DOUBT).stdout
        self.assertRegex(said, r"assumed +0 blocks")

    def test_a_header_that_is_older_than_the_process(self):
        said, status = self.own_dump(3600 * SECOND, 0)
        self.assertEqual(status, 3, said)
        self.assertRegex(said, r"bad_record: .*/jit-\d+\.dump: its header has a time \d+ ns before its process started")

    def test_code_that_is_older_than_the_mapping(self):
        """By less than the millisecond between records of two threads."""
        said, status = self.own_dump(0, 900_000)
        self.assertEqual(status, 3, said)
        self.assertIn("1 of 1 records have a time at which their process did not log code", said)

    def test_loads_in_another_order_than_their_times(self):
        header = list(self.forms())[1]
        loads = [i for i, (kind, _, _) in enumerate(self.records) if kind == 0]
        address = lambda at: self.records[at][2][16:24]
        pairs = [(first, next(second for second in loads if second > first and address(second) == address(first)))
                 for first in loads if any(second > first and address(second) == address(first) for second in loads)]
        self.assertGreater(len(pairs), 12)
        for first, second in pairs:
            records = list(self.records)
            for at, other in ((first, second), (second, first)):
                records[at] = (0, self.records[other][1], records[at][2])
            numbers, said, status = self.decoded(header, records)
            self.assertEqual((numbers["silent"], status), (0, 3), said)
            self.assertIn("have times that contradict the order of the file", said)

    def test_random_times_within_the_run(self):
        header, random = list(self.forms())[1], Random(16)
        first, last = self.records[0][1], self.records[-1][1]
        silent = 0
        for trial in range(12):
            changed = random.sample(range(len(self.records)), random.choice((1, 1, 2, 8)))
            records = [(kind, random.randrange(first, last) if at in changed else time, body) for at, (kind, time, body) in enumerate(self.records)]
            silent += self.assert_named(header, records, (trial, changed))[0]

    def test_one_record_of_a_thread_has_a_time_after_the_next(self):
        """By a microsecond, so that only the order within the thread contradicts it. The code runs once, and its packets fit the version before."""
        header = list(self.forms())[1]
        loads = [i for i, (kind, _, _) in enumerate(self.records) if kind == 0][:-1]
        late = 0
        for at in loads:
            _, time, body = self.records[at + 1]
            if self.records[at + 1][0] != 0 or struct.unpack_from("<I", body, 4) != struct.unpack_from("<I", self.records[at][2], 4):
                continue
            records = list(self.records)
            records[at] = (0, time + 1000, records[at][2])
            numbers, said, status = self.decoded(header, records)
            self.assertEqual((numbers["silent"], status), (0, 3), (at, said))
            self.assertRegex(said, rf"(?m)^(bad_record|times_contradict): {self.dump}: ")
            late += 1
        self.assertGreater(late, 15)

    def test_a_jitdump_of_the_recorder_that_was_changed(self):
        """Any change is noticed: of times, of code, and in the header."""
        random = Random(16)
        recording = self.folder / "rec"
        content = joined(self.header, self.records)
        recording.write_bytes(self.recording)
        self.addCleanup(recording.write_bytes, without_sum(self.recording))
        numbers, said, status = self.decoded(self.header, self.records)
        self.assertEqual((numbers["right"], status), (numbers["all"], 0), said)
        self.assertIn("no findings", said)
        for by in (-1000, 1000, SECOND):
            numbers, said, status = self.decoded(self.header, [(kind, time + by, body) for kind, time, body in self.records])
            self.assertEqual((numbers["silent"], status), (0, 3), said)
            self.assertIn(f"file_changed: {self.dump}: its content is not what the recorder wrote", said)
        for _ in range(8):
            at = random.randrange(48, len(content))
            self.dump.write_bytes(content[:at] + bytes([content[at] ^ 1 << random.randrange(8)]) + content[at + 1:])
            self.assertRegex(self.run_it("check", "-i", recording, *NO_DOUBT).stdout, rf"file_changed: {self.dump}: |build_id_mismatch|records_lost: {self.dump}")
            said = self.run_it("verify", "-i", recording, self.truth, *NO_DOUBT).stdout
            self.assertIn("silently wrong 0", said)

    def test_times_of_another_clock(self):
        for header in self.forms():
            numbers, said, status = self.decoded(header[:32] + bytes(8), self.records)
            self.assertEqual((numbers["silent"], status), (0, 3), said)
            self.assertIn("have the time of another one at the same address", said)
            self.assertEqual(self.run_it("script", "-q", "--strict", "--itrace=b", "-i", self.folder / "rec", *NO_DOUBT).returncode, 3)

    def test_whole_pages_of_code_are_in_the_timeline(self):
        """The compiler fills the page after those of the program with a function."""
        page = (min(struct.unpack_from("<Q", body, 16)[0] for kind, _, body in self.records if kind == 0) & ~0xfff) + 0x1000
        process, time = self.records[0][2][:8], self.records[-1][1]
        code = process + struct.pack("<4Q", page, page, 0x1000, 1000) + b"whole_page\0" + b"\x90" * 0xfff + b"\xc3"
        self.dump.write_bytes(joined(next(reversed(list(self.forms()))), [*numbered(self.records, lambda i: i), (0, time, code)]))
        done = self.run_it("timeline", "-q", "-i", self.folder / "rec", "-o", self.folder / "out.pftrace", *NO_DOUBT)
        self.assertEqual(done.returncode, 0, done.stderr)
        names = [name for _, name, _ in perfetto_reader.read((self.folder / "out.pftrace").read_bytes())[2]]
        self.assertEqual([name for name in names if "whole_page" in name], ["load whole_page+0x0"], names)

    def test_a_missing_record(self):
        for header in self.forms():
            for first, count in ((1, 1), (10, 1), (12, 2)):
                records = numbered(self.records, lambda i: i + 1)
                del records[first:first + count]
                numbers, said, status = self.decoded(header, records)
                self.assertEqual((numbers["silent"], status), (0, 3), said)
                self.assertIn(f"records_lost: {self.dump}: {count} number", said)


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        sys.exit(77)
    unittest.main(verbosity=2)
