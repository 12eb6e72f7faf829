#!/usr/bin/env python3
"""An ordinary user: what `doctor` says can be recorded is what `record` records, and both name what this user may not record.

As root, the commands run as the user 65534. Environment: PTDECODE. Exit status 77 without perf events.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
NOBODY = 65534


class OrdinaryUser(unittest.TestCase):
    def run_it(self, *words):
        who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        return subprocess.run([PTDECODE, *words], capture_output=True, text=True, timeout=100, cwd=self.folder, **who,
                              env=dict(os.environ, HOME=self.folder, PTDECODE_STASH="off"))

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        os.chmod(self.folder, 0o777)
        try:
            self.run_it("--version")
        except PermissionError:
            self.skipTest(f"another user cannot execute {PTDECODE}")

    def test_doctor_and_record_agree(self):
        said = self.run_it("doctor").stdout
        can = re.search(r"^can record: (.*)$", said, re.M)[1]
        done = self.run_it("record", "--sideband", "-o", "own.data", "--", "true")
        self.assertEqual("sideband of your own programs" in can, done.returncode == 0, said + done.stderr)
        if done.returncode != 0:
            self.skipTest("this user may record nothing here")
        left_out = re.search(r"not permitted for this user: (\w+)", said)
        self.assertEqual(left_out is not None, "this user may not record" in done.stderr, said + done.stderr)
        if left_out:
            self.assertIn("this user may not record " + left_out[1].upper(), done.stderr)
        self.assertIn('"true"', json.dumps(json.loads(self.run_it("info", "--json", "-i", "own.data").stdout)["threads"]))

    def test_all_processes_are_refused_with_the_reason(self):
        said = self.run_it("doctor").stdout
        cannot = re.search(r"^cannot: (.*)$", said, re.M)
        done = self.run_it("record", "--sideband", "-a", "-o", "all.data", "--", "true")
        refused = cannot is not None and "sideband of all processes" in cannot[1]
        self.assertEqual(refused, done.returncode != 0, said + done.stderr)
        if refused:
            self.assertIn("perf_event_paranoid", done.stderr)


if __name__ == "__main__":
    if not os.path.exists("/proc/sys/kernel/perf_event_paranoid"):
        print("skipped: no perf events")
        sys.exit(77)
    unittest.main()
