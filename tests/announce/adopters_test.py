#!/usr/bin/env python3
"""Run-times from outside of the project announce their code (announce/examples): the flow equals the ground truth.

Environment: as announce_test.py. Exit status 77 without qemu-x86_64; a run-time that is not installed is skipped with a message.
"""
import os
import shutil
import subprocess
import sys
import tempfile

import announce_test as announce
from announce_test import SOURCE, Comparison, check, findings, record

LIBRARY = os.path.join(SOURCE, "announce/ptd_announce.c")
EXAMPLES = os.path.join(SOURCE, "announce/examples")


def compare(folder, what, command, least_sections):
    out = record(folder, command)
    got, image = Comparison(out), subprocess.run([announce.PTDECODE, "image", "-i", out], capture_output=True, text=True).stdout
    check(f"{what}: the flow is the ground truth", got.is_exact(), got.text)
    check(f"{what}: its code was announced", image.count("[jit]") >= least_sections, image[-500:])
    check(f"{what}: no findings", "no findings" in findings(out), findings(out)[-1000:])
    print("      ", got.text.strip())


def luajit(folder):
    if not shutil.which("luajit"):
        return print("skipped: luajit is not installed (apt install luajit)")
    library = os.path.join(folder, "libptd-announce.so.1")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", library, LIBRARY], check=True)
    return compare(folder, "LuaJIT", [shutil.which("luajit"), os.path.join(EXAMPLES, "traces.lua"), library, "10"], 30)


def llvm(folder):
    config = shutil.which("llvm-config") or shutil.which("llvm-config-14") or shutil.which("llvm-config-19")
    if not config:
        return print("skipped: LLVM's headers are not installed (apt install llvm-dev)")
    words = lambda *options: subprocess.run([config, *options], capture_output=True, text=True, check=True).stdout.split()
    library, program = os.path.join(folder, "ptd_announce.o"), os.path.join(folder, "orc_jit")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-c", "-o", library, LIBRARY], check=True)
    subprocess.run([os.environ.get("CXX", "c++"), *words("--cxxflags"), "-w", "-I", os.path.dirname(LIBRARY), os.path.join(EXAMPLES, "orc_jit.cpp"), library,
                    *words("--ldflags", "--libs"), "-o", program], check=True)
    return compare(folder, "LLVM ORC", [program, "4"], 4)


def main():
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        return 77
    for test in (luajit, llvm):
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
    return 1 if announce.emulate.failures else 0


if __name__ == "__main__":
    sys.exit(main())
