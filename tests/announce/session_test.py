#!/usr/bin/env python3
"""Detached sessions listen to announcements: a snapshot has the code that is live then, byte by byte, after many folds of the log, after the keeper
was killed, and for a program that ran before. So does the file of a recorder that was killed.

Environment: PTDECODE, PTDECODE_SOURCE. Exit status 77 without root or perf events.
"""
import glob
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = os.environ["PTDECODE_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests/live"))
import live_support  # noqa: E402
from live_support import PTDECODE, wait_until  # noqa: E402


class Sessions(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.folder.name)
        os.chmod(self.dir, 0o700)
        (self.dir / "tmp").mkdir()
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.dir), "TMPDIR": str(self.dir / "tmp"), "PTDECODE_STASH": "off"}
        self.program = self.dir / "lives"
        library = pathlib.Path(SOURCE) / "announce"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-w", "-static", "-I", library, pathlib.Path(SOURCE) / "tests/announce/programs/lives.c",
                        library / "ptd_announce.c", "-o", self.program], check=True)
        self.target = None

    def tearDown(self):
        if self.target:
            self.target.stdin.close()
            self.target.stdout.close()
            self.target.wait()
        self.run_it("stop", "one")
        self.assertEqual(glob.glob(f"{self.dir}/tmp/*"), [], "nothing is left")
        self.folder.cleanup()

    def run_it(self, *words):
        return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, env=self.environment, timeout=120)

    def start(self, *words):
        self.target = subprocess.Popen([*map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment)

    def detach(self, rounds, *options):
        """Lets a session start the program, which prints its live code after every `rounds` changes."""
        self.start(PTDECODE, "record", "-q", "--sideband", "--detach", "one", *options, "--", self.program, rounds, "stops")

    def live_code(self):
        """Returns the code that the program says it has; the program waits then."""
        code = {}
        for line in self.target.stdout:
            if line == "end\n":
                return code
            address, text = line.split()
            code[int(address, 16)] = bytes.fromhex(text)
        self.fail("the program ended")

    def go_on(self):
        self.target.stdin.write("\n")
        self.target.stdin.flush()

    def recorded_code(self, snapshot, address, size):
        got = self.run_it("image", "-i", snapshot, f"{address:#x}", "--size", size)
        self.assertNotIn("{suspect}", got.stdout)
        shown = re.findall(r"^ +[0-9a-f]+ \S+\+0x[0-9a-f]+ +((?:[0-9a-f]{2} )+)", got.stdout, re.M)
        return bytes.fromhex("".join(shown)), got.stdout

    def compare(self, code):
        snapshot = self.dir / "snapshot"
        got = self.run_it("snapshot", "one", "-o", snapshot)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.compare_with(snapshot, code)

    def generated(self, recording):
        return re.findall(r"^.* \[jit\].*$", self.run_it("image", "-i", recording).stdout, re.M)

    def compare_with(self, snapshot, code):
        for address, want in code.items():
            recorded, text = self.recorded_code(snapshot, address, len(want))
            self.assertEqual(recorded, want, f"{address:#x}\n{text}")
        self.assertGreater(len(code), 3)
        check = self.run_it("check", "-i", snapshot).stdout
        self.assertNotIn("announcement", check)

    def status(self):
        return self.run_it("sessions").stdout

    def test_a_program_that_the_session_starts(self):
        self.detach(3000)
        for _ in range(3):
            self.compare(self.live_code())
            self.go_on()

    def test_a_program_that_ran_before(self):
        self.start(self.program, 500, "stops")
        self.live_code()
        self.assertEqual(self.run_it("record", "-q", "--sideband", "--detach", "one", "-p", self.target.pid).returncode, 0)
        maps = pathlib.Path(f"/proc/{self.target.pid}/maps")
        self.assertIn("ptd-announce", maps.read_text())
        self.assertTrue(wait_until(self.heard), self.status())
        self.go_on()
        self.compare(self.live_code())
        bundle = self.dir / "snapshot.ptb"
        self.assertEqual(self.run_it("bundle", "-i", self.dir / "snapshot", "-o", bundle).returncode, 0)
        self.assertGreater(len(self.generated(bundle)), 3)
        self.assertEqual(self.generated(bundle), self.generated(self.dir / "snapshot"), "a bundle has the code of a snapshot")

    def test_a_short_recording_of_a_program_that_waits(self):
        """No record of perf wakes the recorder, which looks for the ring all the same."""
        self.start(self.program, 500, "stops")
        self.live_code()
        out = self.dir / "short.data"
        recorder = subprocess.Popen([PTDECODE, "record", "-q", "--sideband", "--no-stash", "-o", out, "-p", str(self.target.pid)], env=self.environment)
        started = time.monotonic()
        self.assertTrue(wait_until(self.heard))
        took = time.monotonic() - started
        recorder.send_signal(signal.SIGINT)
        recorder.wait()
        self.assertLess(took, 0.7, "the recorder's own round is 1 s")

    def heard(self):
        """Whether the session has found the ring: its word is set, which the next announcement of the program shows."""
        pages = pathlib.Path(f"/proc/{self.target.pid}/maps").read_text().splitlines()
        start = next(int(line.split("-")[0], 16) for line in pages if "ptd-announce" in line)
        with open(f"/proc/{self.target.pid}/mem", "rb") as memory:
            memory.seek(start + 16)
            return int.from_bytes(memory.read(4), "little") & 1 != 0

    def test_the_log_is_folded_and_the_code_stays(self):
        self.detach(4000)
        for _ in range(12):
            code = self.live_code()
            self.assertEqual(self.run_it("sessions").returncode, 0)  # which drains the ring
            self.go_on()
        self.assertRegex(self.status(), r"one: ")
        self.compare(self.live_code())
        self.assertNotIn("dropped", self.status())
        self.assertGreater(len(code), 3)

    def test_the_keeper_is_killed(self):
        self.detach(2000)
        for _ in range(3):
            self.compare(self.live_code())
            keeper = int(re.search(r"keeper (\d+)", self.status())[1])
            os.kill(keeper, signal.SIGKILL)
            self.assertTrue(wait_until(lambda: f"keeper {keeper}," not in self.status() and "keeper" in self.status()), self.status())  # noqa: B023
            self.go_on()
        self.compare(self.live_code())

    def test_a_recorder_is_killed(self):
        """The process that takes over reads on in the rings, also in those that the program offered through the socket."""
        out = self.dir / "perf.data"
        self.start(PTDECODE, "record", "-q", "--sideband", "--no-stash", "-o", out, "--", self.program, 2000, "stops")
        code = self.live_code()
        os.kill(self.target.pid, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: live_support.PerfData(out).finished))
        self.compare_with(out, code)
        self.assertTrue(wait_until(lambda: not list((self.dir / "tmp").iterdir())))

    def test_no_announce(self):
        self.detach(100, "--no-announce")
        self.live_code()
        self.run_it("snapshot", "one", "-o", self.dir / "snapshot")
        self.assertNotIn("[jit]", self.run_it("image", "-i", self.dir / "snapshot").stdout)


if __name__ == "__main__":
    live_support.need_events()
    unittest.main(verbosity=2)
