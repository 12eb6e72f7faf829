"""Memory and descriptors stay constant: recordings opened and closed, tables read to their end, dropped half read, and handed to another library.

usage: leak_test.py SOURCE [ROUNDS]
A process of its own, so that nothing else allocates memory. Fewer than 500 rounds, for valgrind, have no limit of memory. The heap of a
process with several threads may grow once by a few MiB, a leak grows it each time.
"""
import gc
import os
import pathlib
import resource
import sys

import ptdecode

SOURCE, ROUNDS = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000
RECORDING = SOURCE / "data" / "user" / "plain.bundle"
WARM_UP = 500
MOST_BYTES = 128 * ROUNDS  # less than a message
TRIES = 3


def once(number):
    with ptdecode.open(RECORDING) as recording:
        if number % 10 == 0:
            next(iter(recording.branches(batch_rows=10)))
            recording.calls().to_columns()
            recording.edges().to_arrow()
            recording.gaps().__arrow_c_stream__()
        try:
            recording.table("nonsense")
        except ptdecode.Error:
            pass


def resident_bytes():
    gc.collect()
    return int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def growth():
    before, files = resident_bytes(), len(os.listdir("/proc/self/fd"))
    for number in range(ROUNDS):
        once(number)
    grown, left = resident_bytes() - before, len(os.listdir("/proc/self/fd")) - files
    print(f"{ROUNDS} opens and closes: {grown} bytes more, {left} descriptors more")
    return (grown > MOST_BYTES and ROUNDS >= WARM_UP) or left != 0


def main():
    for number in range(min(WARM_UP, ROUNDS)):
        once(number)
    return all(growth() for _ in range(TRIES))


if __name__ == "__main__":
    sys.exit(main())
