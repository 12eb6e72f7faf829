#!/usr/bin/env python3
"""The output of `functions`, `flame` and `timeline` is the same with any number of threads, also for damaged recordings and for parts of
them.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC; PTDECODE_CORPUS (default ../shared/corpus beside the source). Exit status 77 without
qemu-x86_64.
"""
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
CORPUS = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE.parent / "shared" / "corpus"))
THREADS = (1, 3, 8)


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, timeout=900)


class Threads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def emulated(self, name, sources, *words):
        program, path = self.folder / name, self.folder / (name + ".data")
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-w", "-pthread", *sources, "-o", program], check=True)
        done = run("record", "--emulate", "--no-stash", "--plugin", os.environ["PTDECODE_PLUGIN"], "--psb-period", 0, *words, "-o", path, "--", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def check(self, *words, counts=THREADS):
        """Returns the output of `functions`."""
        timeline = self.folder / "timeline"
        for command in (("functions", "--limit", 0), ("flame", "--format", "folded"), ("timeline", "-o", timeline)):
            told = {}
            for threads in counts:
                timeline.unlink(missing_ok=True)
                done = run(*command, "--threads", threads, *words)
                told[threads] = (done.returncode, done.stdout, done.stderr, timeline.read_bytes() if timeline.exists() else b"")
                self.assertEqual(told[threads], told[1], f"{command} {words} on {threads} threads")
            if command[0] == "functions":
                functions = told[1][1]
        return functions

    def test_recordings_of_the_project(self):
        for path in sorted([SOURCE / "data/demo", *SOURCE.glob("data/*/*.bundle")]):
            part = () if path.stat().st_size < 500_000 else ("--time", "45%,55%")  # a kernel recording takes long
            self.assertGreater(len(self.check("-i", path, *part).splitlines()), 1, path)
            if not part:
                self.check("-i", path, "--time", "30%,60%", counts=(1, 3))
                self.check("-i", path, "--no-time", counts=(1, 3))

    def test_recordings_of_the_corpus(self):
        paths = [path for path in sorted(CORPUS.glob("*")) if (path / "trace.json").exists() or (path / "snapshot").exists() or (path / "perf.data").exists()]
        if not paths:
            self.skipTest(f"no corpus at {CORPUS}")
        for path in paths:
            inside = [path / name for name in ("perf.data", "trace.json", "snapshot") if (path / name).exists()]
            self.check("-i", inside[0])

    def test_parts_of_a_program_with_threads(self):
        path = self.emulated("threads", [SOURCE / "tests/emulate/programs/threads.c"])
        for time in ("0%,50%", "49%,51%", "80%,100%"):
            self.check("-i", path, "--time", time)
        self.assertIn(b"thread", self.check("-i", path))

    def test_one_thread_with_lost_packets(self):
        path = self.emulated("parser", [SOURCE / "tests/cli/programs/parser.c"], "--ovf", "5000")
        self.assertIn(b" lost", self.check("-i", path))
        done = run("stat", "-i", path)
        self.assertIn(b"overflow: record --ovf dropped packets", done.stdout + done.stderr)

    def test_cycles(self):
        self.check("-i", self.emulated("sorter", [SOURCE / "tests/cli/programs/sorter.c"], "--cyc"))

    def test_damaged_trace(self):
        whole = self.emulated("calls", [SOURCE / "tests/cli/programs/calls.c"])
        content = whole.read_bytes()
        chance = random.Random(16)
        for damage in range(6):
            spoiled = bytearray(content)
            for _ in range(20):
                at = chance.randrange(len(content) // 3, len(content) - 4096)
                length = (1, 64, 4096)[damage % 3]
                spoiled[at:at + length] = chance.randbytes(length) if damage < 3 else bytes(length)
            path = self.folder / "spoiled.data"
            path.write_bytes(spoiled)
            self.check("-i", path)


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("qemu-x86_64 is missing")
        sys.exit(77)
    unittest.main(verbosity=2)
