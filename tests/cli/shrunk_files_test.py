#!/usr/bin/env python3
"""Input files that become shorter while they are read: each command names the file and fails, instead of dying of SIGBUS. Also through the C
API, in a host program with and without its own handler.

Environment: PTDECODE, PTDECODE_SOURCE; PTDECODE_LIBRARY: libptdecode.so, "" to skip the C API.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
LIBRARY = os.environ.get("PTDECODE_LIBRARY", "")

# Reads a recording through the C API and cuts `victim` after it was opened. Prints what the cursor ended with.
HOST = """
import os, sys
sys.path.insert(0, sys.argv[1])
import ctypes, ptdecode_c as ptd
api = ptd.Api(sys.argv[2])
recording = api.open(sys.argv[3])
options, cursor = ptd.made(ptd.CursorOptions, kind=ptd.FLOW, stream=ptd.NONE, first_ns=ptd.UNKNOWN, last_ns=ptd.UNKNOWN), ptd.PTR()
api.call("ptd_cursor_open", recording, ctypes.byref(options), ctypes.byref(cursor))
os.truncate(sys.argv[4], int(sys.argv[5]))
item = ptd.made(ptd.Item)
try:
    while api.call("ptd_cursor_next", cursor, ctypes.byref(item)) == 0:
        pass
    print("end")
except RuntimeError as error:
    print(error)
"""


class ShrunkFiles(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.demo = self.folder / "demo"
        shutil.copytree(SOURCE / "data/demo", self.demo)

    def tearDown(self):
        self.temporary.cleanup()

    def cut_while_running(self, victim, size, *words):
        """Runs a command whose output fills a pipe, so that it waits while the file is cut."""
        with subprocess.Popen([PTDECODE, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
            command.stdout.read(1)
            os.truncate(victim, size)
            _, said = command.communicate(timeout=300)
        return command.returncode, said

    def test_commands_name_the_file_and_fail(self):
        trace, kcore = self.demo / "data", self.demo / "kcore_dir/kcore"
        for victim, size in ((trace, 4096), (trace, 115000), (kcore, 0), (kcore, 8191)):
            for words in (("script",), ("packets",)):
                with self.subTest(victim=victim.name, size=size, command=words):
                    whole = victim.read_bytes()
                    status, said = self.cut_while_running(victim, size, *words, "-q", "-i", self.demo)
                    self.assertEqual(status, 1, said)
                    self.assertIn(f"{victim}: the file became shorter while it was read", said)
                    victim.write_bytes(whole)

    def test_replaced_files_are_no_fault(self):
        other = self.folder / "other"
        other.write_bytes(b"short")
        with subprocess.Popen([PTDECODE, "script", "-q", "-i", self.demo], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
            command.stdout.read(1)
            other.rename(self.demo / "data")
            _, said = command.communicate(timeout=300)
        self.assertEqual((command.returncode, said), (0, ""))

    @unittest.skipIf(not LIBRARY, "no shared library")
    def test_the_c_api_returns_an_error(self):
        def host(*options):
            shutil.copyfile(SOURCE / "data/demo/data", self.demo / "data")
            return subprocess.run([sys.executable, *options, "-c", HOST, SOURCE / "tests/capi", LIBRARY, self.demo, self.demo / "data", "4096"],
                                  capture_output=True, text=True, timeout=300)
        done = host()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, f"ptd_cursor_next: 410: {self.demo}/data became shorter while it was read\n")
        guarded = host("-X", "faulthandler")  # a handler of SIGBUS of the host's own
        self.assertEqual(guarded.returncode, -7)
        self.assertIn("Fatal Python error: Bus error", guarded.stderr)


if __name__ == "__main__":
    unittest.main()
