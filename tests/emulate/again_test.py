#!/usr/bin/env python3
"""Recordings made one after the other under one name: the earlier one, NAME.old, stays as right as it was.

The expected flow is the ground truth of each run. Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without
qemu-x86_64.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
PROGRAMS = os.path.join(os.environ["PTDECODE_SOURCE"], "tests/emulate/programs")
# In a namespace of its own, a process has the same pid in each run.
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc"]


class Again(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.env = dict(os.environ, PTDECODE_STASH="off")

    def build(self, name, *flags, output=None):
        subprocess.run([os.environ.get("CC", "cc"), "-O1", *flags, f"{PROGRAMS}/{name}.c", "-o", output or name], cwd=self.folder, check=True)

    def record(self, truth, *command, before=()):
        subprocess.run([*before, PTDECODE, "record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", "rec.data", "--truth", truth, "--", *command],
                       cwd=self.folder, env=self.env, check=True, stdout=subprocess.DEVNULL)

    def assert_right(self, recording, truth):
        done = subprocess.run([PTDECODE, "verify", "-i", recording, *glob.glob(f"{self.folder}/{truth}/*")], cwd=self.folder, env=self.env, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("wrong but flagged 0; silently wrong 0", done.stdout)
        checked = subprocess.run([PTDECODE, "check", "-i", recording], cwd=self.folder, env=self.env, capture_output=True, text=True)
        self.assertIn("no findings", checked.stdout)

    def test_generated_code_of_a_process_with_the_same_pid(self):
        if subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode != 0:
            self.skipTest("no namespaces of processes")
        self.build("jit")
        self.build("flips")
        self.record("truth-1", "./jit", before=NAMESPACE)
        self.record("truth-2", "./flips", before=NAMESPACE)
        dumps = glob.glob(f"{self.folder}/rec.data.jit/*/jit-*.dump")
        self.assertEqual((len(dumps), len({re.search(r"jit-(\d+)", dump)[1] for dump in dumps})), (2, 1), dumps)
        self.assert_right("rec.data.old", "truth-1")
        self.assert_right("rec.data", "truth-2")

    def test_copies_of_files_without_a_path(self):
        self.build("unnamed", output="one")
        self.build("unnamed", "-O0", output="two")
        self.record("truth-1", "./one")
        self.record("truth-2", "./two")
        self.assert_right("rec.data.old", "truth-1")
        self.assert_right("rec.data", "truth-2")


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    unittest.main()
