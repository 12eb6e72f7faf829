#!/usr/bin/env python3
"""Decodes a recording as if each stream began at a PSB in its middle, at many random ones, and counts the correct instructions after it.

The data before that PSB is removed: of every earlier segment only the PSB remains, the rest is PAD. `lossy` then
compares with the decode of the whole recording.
"""
import argparse
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

PSB = b"\x02\x82" * 8
AUXTRACE = 71


def payloads(data):
    """Returns (start, end) of the trace bytes of each AUXTRACE record, by cpu."""
    at, size = struct.unpack_from("<QQ", data, 40)
    end, found = at + size, {}
    while at + 8 <= end:
        kind, _, length = struct.unpack_from("<IHH", data, at)
        if length < 8:
            sys.exit("not a perf.data file in file form")
        if kind == AUXTRACE:
            bytes_, = struct.unpack_from("<Q", data, at + 8)
            cpu, = struct.unpack_from("<i", data, at + 40)
            found.setdefault(cpu, []).append((at + length, at + length + bytes_))
            at += bytes_
        at += length
    return found


def blanked(data, ranges, keep_from):
    """Returns a copy in which everything before the PSB number `keep_from` of the stream is removed, except the PSBs."""
    out = bytearray(data)
    seen = 0
    for start, end in ranges:
        offsets = [start + m.start() for m in re.finditer(re.escape(PSB), data[start:end])]
        here = offsets[keep_from - seen] if seen + len(offsets) > keep_from else end
        out[start:here] = bytes(here - start)
        for offset in offsets:
            if offset < here:
                out[offset:offset + len(PSB)] = PSB
        seen += len(offsets)
        if seen > keep_from:
            break
    return out


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("lossy", help="the program of that name")
    options.add_argument("recording", help="perf.data in directory form, one `data` file")
    options.add_argument("--symfs", default="/")
    options.add_argument("--starts", type=int, default=20)
    options.add_argument("--segments", type=int, default=200, help="decoded behind each start")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    chance = random.Random(given.seed)
    with open(os.path.join(given.recording, "data"), "rb") as file:
        data = file.read()
    streams = payloads(data)
    psbs = {cpu: sum(len(re.findall(re.escape(PSB), data[a:b])) for a, b in ranges) for cpu, ranges in streams.items()}
    total = right = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir(given.recording):
            if name != "data":
                source = os.path.join(given.recording, name)
                (shutil.copytree if os.path.isdir(source) else shutil.copy)(source, os.path.join(folder, name))
        for _ in range(given.starts):
            cpu = chance.choice(sorted(streams))
            first = chance.randrange(psbs[cpu])
            with open(os.path.join(folder, "data"), "wb") as file:
                file.write(blanked(data, streams[cpu], first))
            command = [given.lossy, given.recording, "--symfs", given.symfs, "--damaged", folder, "--cpu", str(cpu), "--first", str(first),
                       "--segments", str(given.segments)]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            counts = re.search(r"all: truth (\d+) right (\d+) .*", text)
            total, right = total + int(counts[1]), right + int(counts[2])
            print(f"cpu {cpu} from PSB {first} of {psbs[cpu]}: {counts[0]}", flush=True)
    print(f"{given.starts} starts: {right} of {total} instructions right and unmarked")
    return 0 if right == total else 3


if __name__ == "__main__":
    sys.exit(main())
