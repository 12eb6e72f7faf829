#!/usr/bin/env python3
"""Makes a recording whose trace has a coarse clock: each TSC is rounded down, MTC and TMA become PAD. For `lossy --damaged`.

perf.data in directory form with one `data` file, traces without CYC.
"""
import argparse
import os
import shutil
import struct
import sys

AUXTRACE = 71
IP_BYTES = (0, 2, 4, 6, 6, 0, 8, 0)
EXTENDED = {0x82: 16, 0x73: 7, 0x03: 4, 0x43: 8, 0xA3: 8, 0x23: 2, 0xF3: 2, 0x83: 2, 0xC8: 7}  # packets that begin with 02


def payloads(data):
    """Returns (cpu, start, end) of the trace bytes of each AUXTRACE record."""
    at, size = struct.unpack_from("<QQ", data, 40)
    end = at + size
    while at + 8 <= end:
        kind, _, length = struct.unpack_from("<IHH", data, at)
        at += length
        if kind == AUXTRACE:
            size, = struct.unpack_from("<Q", data, at - length + 8)
            cpu, = struct.unpack_from("<i", data, at - length + 40)
            yield cpu, at, at + size
            at += size


def blur(data, at, end, step):
    while at < end:
        byte = data[at]
        if byte == 0x19:  # TSC
            tsc = int.from_bytes(data[at + 1:at + 8], "little")
            data[at + 1:at + 8] = (tsc // step * step).to_bytes(7, "little")
            at += 8
        elif byte == 0x59:  # MTC
            data[at:at + 2] = bytes(2)
            at += 2
        elif byte == 0x02:
            size = EXTENDED[data[at + 1]]
            if data[at + 1] == 0x73:  # TMA
                data[at:at + size] = bytes(size)
            at += size
        elif byte == 0x99:  # MODE
            at += 2
        elif byte & 1 == 0:  # PAD, short TNT
            at += 1
        elif byte & 0x1F in (0x0D, 0x11, 0x01, 0x1D):  # TIP, TIP.PGE, TIP.PGD, FUP
            at += 1 + IP_BYTES[byte >> 5]
        else:
            sys.exit(f"a packet that begins with {byte:#x} is not known here")


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("recording")
    options.add_argument("out")
    options.add_argument("--step", type=int, default=1_000_000, help="in TSC ticks")
    options.add_argument("--cpu", type=int, action="append", help="only this one (repeatable)")
    given = options.parse_args()
    with open(os.path.join(given.recording, "data"), "rb") as file:
        data = bytearray(file.read())
    for cpu, start, end in payloads(data):
        if not given.cpu or cpu in given.cpu:
            blur(data, start, end, given.step)
    shutil.copytree(given.recording, given.out, ignore=shutil.ignore_patterns("data"))
    with open(os.path.join(given.out, "data"), "wb") as file:
        file.write(data)


if __name__ == "__main__":
    main()
