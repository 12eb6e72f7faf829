#!/usr/bin/env python3
"""`ptdecode verify` with a ground truth that is cut says so, and does not blame the decode.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Without qemu-x86_64 only checkpoint files are cut.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
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


if __name__ == "__main__":
    unittest.main()
