#!/usr/bin/env python3
"""Prints how much faster two threads are than one, and the limit of the machine: two processes at once against each alone.

usage: cores.py COMPARE_PATHS ROUNDS RECORDING [SYMFS]     (COMPARE_PATHS is build/tests/bench/compare_paths)

Each round decodes five times with one thread, five times with two, and five times in two concurrent processes of one thread each. The
result is the median elapsed time of each five, then the median over the rounds. Two processes share only caches, memory and whatever two
CPUs of one core share: two threads can at most do twice the work in the time that the two processes took.
"""
import statistics
import subprocess
import sys


def start(command, threads):
    return subprocess.Popen([*command, "--time", str(threads)], stdout=subprocess.PIPE, text=True)


def seconds(process):
    """Returns (elapsed time, processor time), medians."""
    rows = [line.split() for line in process.communicate()[0].splitlines()]
    if process.returncode != 0:
        raise SystemExit(f"cores.py: {process.args} failed")
    return tuple(statistics.median(float(row[i]) for row in rows) for i in (0, 1))


def main():
    command = [sys.argv[1], *sys.argv[3:]]
    one, two, pair = [], [], []
    for _ in range(int(sys.argv[2])):
        one.append(seconds(start(command, 1)))
        two.append(seconds(start(command, 2)))
        both = [start(command, 1), start(command, 1)]
        pair += [seconds(process) for process in both]

    def median(rows, i):
        return statistics.median(row[i] for row in rows)

    wall = median(one, 0)
    print(f"one thread {wall:.3f} s, two threads {median(two, 0):.3f} s, two processes of one thread {median(pair, 0):.3f} s each")
    print(f"two threads are {wall / median(two, 0):.2f} times as fast; the machine does {2 * wall / median(pair, 0):.2f} times as much with two processes")
    print(f"processor time of two threads: {median(two, 1) / median(one, 1):.2f} times that of one")


if __name__ == "__main__":
    main()
