#!/usr/bin/env python3
"""Makes a large recording from a small one: repeats the trace N times, with a clock that continues from copy to copy.

usage: repeat.py PTDECODE RECORDING N OUTPUT     (a perf.data file of one stream, made by `ptdecode record --emulate`)

Feature sections are kept, except the index of AUXTRACE records. The TSC packets of each copy are shifted by a multiple of 2^25 ticks, so
that TMA and MTC, which give its lower bits, remain valid.
"""
import re
import struct
import subprocess
import sys

HEADER_BYTES, DATA_FIELD, FLAGS_FIELD = 104, 40, 72
AUXTRACE_RECORD, AUXTRACE_FEATURE = 71, 18
CLOCK_STEP = 1 << 25


def auxtrace_records(data):
    """Returns (offset, end) of each AUXTRACE record with its payload, in the data section."""
    at, found = 0, []
    while at + 8 <= len(data):
        kind, _, size = struct.unpack_from("<IHH", data, at)
        end = at + size
        if kind == AUXTRACE_RECORD:
            end += struct.unpack_from("<Q", data, at + 8)[0]
            found.append((at, end))
        at = end
    return found


def main():
    ptdecode, source, times, target = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    raw = open(source, "rb").read()
    data_at, data_size = struct.unpack_from("<QQ", raw, DATA_FIELD)
    flags = int.from_bytes(raw[FLAGS_FIELD:FLAGS_FIELD + 32], "little")
    data = raw[data_at:data_at + data_size]
    records = auxtrace_records(data)
    header = data[records[0][0]:records[0][0] + 48]
    trace = bytearray()
    for a, b in records:  # payloads are padded to eight bytes: each starts at its own offset of the stream
        del trace[struct.unpack_from("<Q", data, a + 16)[0]:]
        trace += data[a + 48:b]
    listing = subprocess.run([ptdecode, "packets", "-i", source], check=True, stdout=subprocess.PIPE, text=True).stdout
    clocks = [int(offset, 16) for offset in re.findall(r"^([0-9a-f]+)  tsc ", listing, re.M)]
    first, last = (int.from_bytes(trace[clocks[i] + 1:clocks[i] + 8], "little") for i in (0, -1))
    step = ((last - first) // CLOCK_STEP + 2) * CLOCK_STEP
    with open(target, "wb") as out:
        out.write(raw[:data_at])
        start, end = records[0][0], records[-1][1]
        out.write(data[:start])
        for copy in range(times):
            out.write(header[:8] + struct.pack("<QQ", len(trace), copy * len(trace)) + header[24:])
            out.write(trace)
            for clock in clocks:
                value = int.from_bytes(trace[clock + 1:clock + 8], "little") + step
                trace[clock + 1:clock + 8] = value.to_bytes(7, "little")
        out.write(data[end:])
        data_end = out.tell()
        kept = [bit for bit in range(256) if flags >> bit & 1]
        table = data_at + data_size
        sections = []
        for i, bit in enumerate(kept):
            offset, size = struct.unpack_from("<QQ", raw, table + 16 * i)
            if bit != AUXTRACE_FEATURE:
                sections.append((bit, raw[offset:offset + size]))
        at = data_end + 16 * len(sections)
        for _, content in sections:
            out.write(struct.pack("<QQ", at, len(content)))
            at += len(content)
        for _, content in sections:
            out.write(content)
        out.seek(DATA_FIELD)
        out.write(struct.pack("<QQ", data_at, data_end - data_at))
        out.seek(FLAGS_FIELD)
        out.write(sum(1 << bit for bit, _ in sections).to_bytes(32, "little"))


if __name__ == "__main__":
    main()
