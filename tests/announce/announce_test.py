#!/usr/bin/env python3
"""Programs that announce their generated code, under the emulator: the flow equals the ground truth with the announcements alone.

Environment: as tests/emulate/emulate_test.py; PTDECODE_LIVES: loads, moves, patches and unloads (default 20000). Exit status 77 without
qemu-x86_64.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.environ["PTDECODE_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests/emulate"))
import emulate_test as emulate  # noqa: E402
from emulate_test import PLUGIN, PTDECODE, check  # noqa: E402

LIVES = os.environ.get("PTDECODE_LIVES", "20000")


def build(name, folder, *flags):
    path = os.path.join(folder, name)
    library = os.path.join(SOURCE, "announce")
    program = os.path.join(SOURCE, "tests/announce/programs", name + ".c")
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-w", "-pthread", "-static", "-I", library, *flags, program, os.path.join(library, "ptd_announce.c"),
                    "-o", path], check=True)
    return path


def record(folder, command, *options):
    out, truth = os.path.join(folder, "perf.data"), os.path.join(folder, "truth")
    for path in (out + ".jit", truth):
        shutil.rmtree(path, ignore_errors=True)
    done = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", PLUGIN, "-o", out, "--truth", truth, *options, "--", *command],
                          capture_output=True, text=True)
    check(f"record {options} {command[1:]}", done.returncode == 0, done.stderr)
    return out


def verify(out, recording=None):
    """Returns the exit status and the text of the comparison with the ground truth."""
    files = sorted(glob.glob(os.path.join(os.path.dirname(out), "truth", "*.ptt")))
    done = subprocess.run([PTDECODE, "verify", "-i", recording or out, *files], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def findings(out):
    return subprocess.run([PTDECODE, "check", "-i", out], capture_output=True, text=True).stdout


def exact(folder):
    """Announcements alone give the executed flow, exactly; without them it is not there."""
    program = build("lives", folder)
    for options in ([], ["--cyc"], ["--no-date-code", "--cyc"]):
        out = record(folder, [program, LIVES], "--no-ran-code", *options)
        status, text = verify(out)
        check(f"{LIVES} lives {options}: the flow is the ground truth", status == 0, text[-2000:])
        print(text)
    bundle = os.path.join(folder, "lives.ptb")
    subprocess.run([PTDECODE, "bundle", "-i", out, "-o", bundle], check=True, capture_output=True)
    status, text = verify(out, bundle)
    check("a bundle carries the announcements", status == 0, text[-2000:])
    out = record(folder, [program, "2000"], "--no-ran-code", "--no-announce")
    status, text = verify(out)
    check("without announcements the code is missing", status != 0, text[-2000:])
    out = record(folder, [program, "2000"])
    status, text = verify(out)
    check("with the code as it ran, announcements are names", status == 0, text[-2000:])


def main():
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        exact(folder)
    return 1 if emulate.failures else 0


if __name__ == "__main__":
    sys.exit(main())
