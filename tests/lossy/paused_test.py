#!/usr/bin/env python3
"""Zeroed trace that begins where tracing is off, as in each system call of a user program, is a gap.

usage: paused_test.py PACKET_FAULTS
Environment: PTDECODE, PTDECODE_PLUGIN. Exit status 77 without qemu-x86_64.
"""
import os
import shutil
import subprocess
import sys
import tempfile


def main():
    if not shutil.which("qemu-x86_64"):
        print("skipped: no qemu-x86_64")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "calls.data")
        subprocess.run([os.environ["PTDECODE"], "record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "--psb-period", "0", "-o", data, "--",
                        "dd", "if=/dev/zero", "of=/dev/null", "bs=512", "count=2000", "status=none"], check=True)
        done = subprocess.run([sys.argv[1], data, "--trials", "100", "--kinds", "pause-zero", "--none-silent", "pause-zero"], capture_output=True, text=True)
        print(done.stdout, done.stderr)
        return done.returncode or ("trials 100:" not in done.stdout)


sys.exit(main())
