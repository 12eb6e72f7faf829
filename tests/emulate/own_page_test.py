#!/usr/bin/env python3
"""A program that writes to the page that it executes from: the emulator leaves a block before such a store and runs the store again.

The processor, single-stepped, says which instructions run. Environment: as emulate_test.py. Exit status 77 without qemu-x86_64.
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import emulate_test as emulate
from emulate_test import check


def recorded_flow(folder, *command):
    out, _, _ = emulate.record(folder, list(command))
    flows, _ = emulate.addresses([emulate.PTDECODE, "script", "-q", "-i", out, "--itrace=i1i", "-F", "tid,ip"])
    return list(flows.values())[0]


def stepped_flow(step, *command):
    stepped = subprocess.run([step, *command], capture_output=True)
    return list(struct.unpack(f"<{len(stepped.stderr) // 8}Q", stepped.stderr)) if stepped.returncode == 0 else None


def own_page(folder):
    program, step = os.path.join(folder, "own_page"), emulate.build("step", folder, "-static")
    flags = ["-nostdlib", "-static", "-w", "-Wl,-N", "-Wl,--no-warn-rwx-segments"]
    subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", program, os.path.join(emulate.PROGRAMS, "own_page.c")], check=True)
    for arguments in ([], ["2"]):
        native = stepped_flow(step, program, *arguments)
        if native is None:
            print("skipped: this machine does not let one trace a process")
            continue
        ours = recorded_flow(folder, program, *arguments)
        check(f"argc {len(arguments) + 1}: the processor runs the same", ours == native, f"{len(ours)}, not {len(native)} instructions")


# In the long run the emulator discards its code several times, in about every second run of it just before it repeats a store.
def long_run(folder):
    program, rounds = os.path.join(folder, "own_page"), 200 << 9
    ours = recorded_flow(folder, program, *["2"] * 8)
    counts = {ip: ours.count(ip) for ip in set(ours)}
    repeated = sorted(count for count in counts.values() if count != 1)
    check("each instruction of the loop runs once a round", repeated == [rounds] * 7, str(counts))


def main():
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        own_page(folder)
        long_run(folder)
    return 1 if emulate.failures else 0


if __name__ == "__main__":
    sys.exit(main())
