#!/usr/bin/env python3
"""`ptdecode verify` with a ground truth that is cut says so, and does not blame the decode.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Without qemu-x86_64 only checkpoint files are cut.
"""
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
AUXTRACE = 71
DEMO = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "data" / "demo"


def verify(recording, truth):
    return subprocess.run([PTDECODE, "verify", "-q", "-i", recording, truth], capture_output=True, text=True, timeout=300)


class CutTruth(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def test_checkpoints(self):
        whole = (DEMO / "truth.cpu0.txt").read_bytes()
        cut = self.folder / "cut.cpu0.txt"
        for size in (len(whole) - 7, len(whole) // 2, 200):
            cut.write_bytes(whole[:size])
            done = verify(DEMO, cut)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"{cut}: the truth is cut: it ends inside a line", done.stderr)
        cut.write_bytes(whole[:whole.index(b"\n", len(whole) // 2) + 1])
        done = verify(DEMO, cut)
        self.assertEqual(done.returncode, 3)
        self.assertIn("may be cut", done.stdout)

    def test_counts_have_no_sign(self):
        wrong = self.folder / "wrong.cpu0.txt"
        wrong.write_bytes(re.sub(rb"(?m)^(?=\d)", b"-", (DEMO / "truth.cpu0.txt").read_bytes(), count=1))
        done = verify(DEMO, wrong)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("is not a checkpoint", done.stderr)

    @unittest.skipIf(shutil.which("qemu-x86_64") is None, "no qemu-x86_64")
    def test_complete_truths(self):
        recording, truths = self.folder / "recording", self.folder / "truths"
        (self.folder / "program.c").write_text("volatile int sum; int main(void) { for (int i = 0; i < 100000; ++i) if (i % 3) sum += i; return 0; }")
        subprocess.run([os.environ.get("CC", "cc"), "-static", "-no-pie", self.folder / "program.c", "-o", self.folder / "program"], check=True)
        subprocess.run([PTDECODE, "record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--truth", truths, "-o", recording, "--",
                        self.folder / "program"], check=True, capture_output=True)
        truth = next(truths.glob("*.ptt"))
        self.assertEqual(verify(recording, truth).returncode, 0)
        whole = truth.read_bytes()
        plain = self.folder / "plain.ptt"
        plain.write_bytes(whole)
        done = verify(recording, plain)
        self.assertEqual(done.returncode, 0)
        self.assertIn(f"compared with stream 0 (tid {truth.name.split('tid')[1].split('.')[0]})", done.stdout)
        for lost in (1, 2, 7, len(whole) // 3, len(whole) // 2, len(whole) - 30, len(whole) - 18):
            with self.subTest(lost=lost):
                truth.write_bytes(whole[:-lost])
                done = verify(recording, truth)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn(f"{truth}: the ground truth is cut", done.stderr)
        truth.write_bytes(whole[:16])  # before the first block: nothing but the thread's end is missing
        done = verify(recording, truth)
        self.assertEqual(done.returncode, 3)
        self.assertIn("may be cut", done.stdout)

    @unittest.skipIf(shutil.which("qemu-x86_64") is None, "no qemu-x86_64")
    def test_trace_that_is_cut_out_is_lost_up_to_the_next_psb(self):
        """Every instruction of a hole in the trace is lost: none is right, none is wrong."""
        recording, truths, holed = self.folder / "recording", self.folder / "truths", self.folder / "holed"
        (self.folder / "program.c").write_text("volatile int sum; int main(void) { for (int i = 0; i < 1000000; ++i) if (i % 3) sum += i; return 0; }")
        subprocess.run([os.environ.get("CC", "cc"), "-static", "-no-pie", self.folder / "program.c", "-o", self.folder / "program"], check=True)
        subprocess.run([PTDECODE, "record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--truth", truths, "-o", recording, "--",
                        self.folder / "program"], check=True, capture_output=True)
        truth, raw = next(truths.glob("*.ptt")), recording.read_bytes()
        at, records = struct.unpack_from("<2Q", raw, 40)
        while struct.unpack_from("<I", raw, at)[0] != AUXTRACE:
            at += struct.unpack_from("<H", raw, at + 6)[0]
        header, (size, offset) = raw[at:at + 48], struct.unpack_from("<2Q", raw, at + 8)
        self.assertGreater(size, 16384)
        number = lambda pattern, text: int(re.search(pattern, text)[1])  # noqa: E731
        for first, last in ((size // 3, size // 2), (size // 3 + 7, size // 3 + 50), (5000, 13000)):
            with self.subTest(first=first, last=last):
                trace = b"".join(struct.pack("<8s2Q24s", header[:8], to - begin, offset + begin, header[24:]) + raw[at + 48 + begin:at + 48 + to]
                                 for begin, to in ((0, first), (last, size)))
                changed = bytearray(raw[:at] + trace + raw[at + 48 + size:])
                struct.pack_into("<Q", changed, 48, records + len(trace) - 48 - size)
                holed.write_bytes(changed)
                done = verify(holed, truth).stdout
                self.assertEqual(0, number(r"silently wrong (\d+)", done), done)
                self.assertEqual(0, number(r"wrong but flagged (\d+)", done), done)
                self.assertGreater(number(r"lost in gaps (\d+)", done), 0)
                total = number(r"tid \d+: (\d+) instructions", done)
                self.assertEqual(total, number(r"right (\d+)", done) + number(r"lost in gaps (\d+)", done), done)


if __name__ == "__main__":
    unittest.main()
