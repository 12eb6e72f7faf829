#!/usr/bin/env python3
"""Prints the least processor time of a program's runs in milliseconds, user and system together, without the variants of libc's
functions that the emulated processor lacks. (The kernel separates user and system time by ticks only.)

usage: native_time.py RUNS PROGRAM ARGUMENTS...
"""
import os
import resource
import subprocess
import sys

LACKING = ["AVX512F", "AVX512VL", "AVX2", "AVX", "BMI2", "ERMS", "FSRM", "SSE4_1", "SSE4_2", "SSSE3", "MOVBE", "LZCNT"]


def spent():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main():
    env = dict(os.environ, GLIBC_TUNABLES="glibc.cpu.hwcaps=" + ",".join("-" + name for name in LACKING))
    best = None
    for _ in range(int(sys.argv[1])):
        before = spent()
        subprocess.run(sys.argv[2:], env=env, stdout=subprocess.DEVNULL, check=True)
        took = spent() - before
        best = took if best is None else min(best, took)
    print(f"{best * 1000:.1f}")


if __name__ == "__main__":
    main()
