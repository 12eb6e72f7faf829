#!/usr/bin/env python3
"""AUXTRACE records that are cut, repeated, reversed or contradictory: the flow of the intact file, or a gap. Also a file header that is wrong about them.

Environment: PTDECODE, PTDECODE_SOURCE, PTDECODE_CORPUS (default ../shared/corpus, for CoreSight; skips that without it).
"""
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
DEMO = SOURCE / "data" / "demo"
CORESIGHT = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE.parent / "shared/corpus")) / "cs-simpleperf-etm/perf.data"
AUXTRACE, INDEX = 71, 18


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300)


class Trace:
    """A perf.data file of one piece: its AUXTRACE records as (fields, bytes), in place of which others are written."""

    def __init__(self, path):
        self.raw = raw = pathlib.Path(path).read_bytes()
        self.begin, size = struct.unpack_from("<2Q", raw, 40)
        self.end = self.begin + size
        self.before, self.after, self.payloads, at = b"", b"", [], self.begin
        while at < self.end:
            kind, _, size = struct.unpack_from("<IHH", raw, at)
            if kind == AUXTRACE:
                fields = struct.unpack_from("<3QIiiI", raw, at + 8)
                self.payloads.append((fields[1:], raw[at + size:at + size + fields[0]]))
                size += fields[0]
            elif self.payloads:
                self.after += raw[at:at + size]
            else:
                self.before += raw[at:at + size]
            at += size

    def write(self, path, payloads):
        trace = b"".join(struct.pack("<IHH3QIiiI", AUXTRACE, 0, 48, len(data), *fields) + data for fields, data in payloads)
        records = self.before + trace + self.after
        raw = bytearray(self.raw[:self.begin] + records + self.raw[self.end:])
        struct.pack_into("<Q", raw, 48, len(records))
        moved = self.begin + len(records) - self.end
        section = self.begin + len(records)
        for bit in range(256):
            if raw[72 + bit // 8] >> bit % 8 & 1:
                at, = struct.unpack_from("<Q", raw, section)
                struct.pack_into("<Q", raw, section, at + moved)
                section += 16
        raw[72 + INDEX // 8] &= 0xff  # the index names offsets of the intact file; no command reads it
        path.write_bytes(raw)

    def cut(self, size):
        """The payloads in pieces of at most `size` bytes."""
        for (offset, *rest), data in self.payloads:
            for at in range(0, len(data), size):
                yield (offset + at, *rest), data[at:at + size]


class Payloads(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        shutil.copytree(DEMO, self.folder / "demo")
        self.demo = self.folder / "demo"
        (self.demo / "data").chmod(0o644)
        self.trace = Trace(DEMO / "data")

    def tearDown(self):
        self.temporary.cleanup()

    def flow(self, recording):
        done = run("script", "-q", "--insn-trace", "-i", recording)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def instructions(self, flow, cpu):
        return [re.sub(r" \d+\.\d+: ", " ", re.match(r".* insn:( [0-9a-f]{2})+", line)[0]) for line in flow.splitlines() if cpu in line and " insn: " in line]

    def variants(self):
        pieces, rng = list(self.trace.cut(1 << 10)), random.Random(5)
        yield "cut", pieces, "no findings"
        yield "doubled", self.trace.payloads * 2, "are in the file twice"
        yield "doubled piece", pieces[:5] + pieces[4:], "are in the file twice"
        yield "reversed", pieces[::-1], "are out of order"
        yield "swapped", pieces[:3] + pieces[4:5] + pieces[3:4] + pieces[5:], "is out of order"
        yield "shuffled", rng.sample(pieces, len(pieces)), "are out of order"
        longer = []
        for (offset, *rest), data in self.trace.payloads:
            longer += [((offset + at, *rest), data[at:at + 1100]) for at in range(0, len(data), 1024)]
        yield "overlapping", longer, "are in the file twice"

    def test_any_order_and_repetition_give_the_flow_of_the_intact_file(self):
        expected = self.flow(DEMO)
        self.assertGreater(expected.count("\n"), 10000)
        for name, payloads, said in self.variants():
            with self.subTest(name):
                self.trace.write(self.demo / "data", payloads)
                self.assertTrue(expected == self.flow(self.demo))
                for cpu in (0, 1):
                    verified = run("verify", "-q", "-i", self.demo, DEMO / f"truth.cpu{cpu}.txt")
                    self.assertEqual(verified.returncode, 0, verified.stdout)
                checked = run("check", "-q", "-i", self.demo)
                self.assertIn(said, checked.stdout)
                self.assertNotIn("does not contain", checked.stdout)

    def test_contradicting_pieces_leave_a_gap_and_nothing_wrong(self):
        pieces = list(self.trace.cut(1 << 10))
        expected = self.flow(DEMO)
        intact_lines = {cpu: self.instructions(expected, cpu) for cpu in ("[000]", "[001]")}
        fields, _ = pieces[4]
        for name, more in (("of other offset", (fields, pieces[6][1])), ("changed", (fields, bytes(byte ^ 0x55 for byte in pieces[4][1])))):
            for at in (0, 5, len(pieces)):
                with self.subTest(name, at=at):
                    self.trace.write(self.demo / "data", [*pieces[:at], more, *pieces[at:]])
                    got = self.flow(self.demo)
                    self.assertNotEqual(expected, got)
                    self.assertRegex(run("stat", "-q", "-i", self.demo).stdout, r"aux_lost +1")
                    self.assertIn("AUXTRACE records overlap and contradict each other: two versions of ", run("check", "-q", "-i", self.demo).stdout)
                    for cpu, lines in intact_lines.items():
                        intact = iter(lines)
                        left = self.instructions(got, cpu)
                        self.assertGreater(len(left), 1000)
                        self.assertEqual([], [line for line in left if line not in intact])  # a subsequence

    def test_a_file_header_with_a_wrong_place_of_the_records(self):
        """The records are found all the same, and a warning names the field."""
        data, expected = self.demo / "data", self.flow(DEMO)
        raw = data.read_bytes()
        for at, field, values in ((40, "offset", (1, 1 << 40)), (48, "size", (1, 7))):
            for value in values:
                with self.subTest(field, value=value):
                    data.write_bytes(raw[:at] + struct.pack("<Q", value) + raw[at + 8:])
                    got = self.flow(self.demo)
                    for cpu in ("[000]", "[001]"):
                        self.assertTrue(self.instructions(expected, cpu) == self.instructions(got, cpu))
                    checked = run("check", "-i", self.demo)
                    self.assertNotIn("files agree", checked.stdout)
                    self.assertIn(f"the file header has an impossible data {field} of {value}", checked.stdout + checked.stderr)

    @unittest.skipUnless(CORESIGHT.exists(), "no corpus")
    def test_coresight(self):
        trace, path = Trace(CORESIGHT), self.folder / "perf.data"
        expected = run("packets", "-q", "-i", CORESIGHT).stdout
        self.assertTrue(expected)
        whole = list(trace.payloads)
        for name, payloads in (("doubled", whole * 2), ("each doubled", [one for one in whole for _ in range(2)])):
            with self.subTest(name):
                trace.write(path, payloads)
                self.assertTrue(expected == run("packets", "-q", "-i", path).stdout)
                self.assertIn("are in the file twice", run("check", "-q", "-i", path).stdout)


if __name__ == "__main__":
    unittest.main()
