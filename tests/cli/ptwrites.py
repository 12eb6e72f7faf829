"""Puts PTWRITE into a recording of a program that ran with a NOP in its place: no emulator executes the instruction.

The packet follows a TIP to a function that the PTWRITE is in, with no branch in between: that is where a processor writes it ([SDM] "PTW Packet",
"FUP Packet").
"""
import pathlib
import re
import struct
import subprocess

import perf_file

AUX, FEATURE_AUXTRACE = 11, 18  # perf.data-file-format.txt, HEADER_AUXTRACE: the offsets of AUXTRACE records in the file
NOP = bytes.fromhex("0f1f440000")


def packet(operand, ip=None):
    """A PTW packet with 8 bytes. `ip`: a FUP with this address follows."""
    return b"\x02\x32" + struct.pack("<Q", operand) if ip is None else b"\x02\xb2" + struct.pack("<Q", operand) + b"\x7d" + struct.pack("<Q", ip)[:6]


def tip_ends(ptdecode, path, functions):
    """Returns, for each stream, where the packets TIP to these addresses end, or the PSB+ that repeats the address where one follows."""
    lines = subprocess.run([ptdecode, "packets", "-q", "-i", path], capture_output=True, text=True, check=True).stdout.splitlines()
    found, follows = [], False
    for line in lines:
        if line.startswith("# stream"):
            found.append([])
        packet = re.match(r"([0-9a-f]{16})  (\S+) .*\| ([0-9a-f ]+)$", line)
        if packet is None:
            continue
        at, kind, end = int(packet[1], 16), packet[2], int(packet[1], 16) + len(packet[3].split())
        target = re.search(r" ip   ([0-9a-f]{16}) ", line)
        if kind == "tip" and int(target[1], 16) in functions:
            found[-1].append(end)
            follows = True
        elif follows and kind == "psbend":
            found[-1][-1] = end
            follows = False
        elif kind.startswith(("tnt", "tip")):
            follows = False
    return found


def insert(path, streams):
    """Puts pieces into the trace of a perf.data file. `streams`: for each AUXTRACE record in turn, (offset in its trace, bytes), ascending."""
    content = bytearray(pathlib.Path(path).read_bytes())
    found, end = perf_file.records(content)
    data_at = struct.unpack_from("<Q", content, 40)[0]
    out, moved, number, grown = bytearray(content[:data_at]), {}, 0, {}
    for at, kind, size in found:
        record = bytearray(content[at:at + size])
        if kind != perf_file.AUXTRACE:
            out += record
            continue
        moved[at] = len(out)
        trace_bytes, _, _, _, tid = struct.unpack_from("<QQQII", record, 8)
        trace, pieces = content[at + size:at + size + trace_bytes], streams[number]
        for offset, piece in reversed(pieces):
            trace[offset:offset] = piece
        grown[tid] = sum(len(piece) for _, piece in pieces)
        padded = trace + bytes(-len(trace) % 8)
        struct.pack_into("<Q", record, 8, len(padded))
        out += record + padded
        number += 1
    shift = len(out) - end
    struct.pack_into("<Q", out, 48, len(out) - data_at)
    for at, kind, size in perf_file.records(out)[0]:  # one AUX record for each thread
        if kind == AUX:
            offset, filled = struct.unpack_from("<QQ", out, at + 8)
            assert offset == 0
            struct.pack_into("<Q", out, at + 16, filled + grown[struct.unpack_from("<I", out, at + 36)[0]])
    out += content[end:]
    features = [bit for bit in range(256) if content[72 + bit // 8] >> bit % 8 & 1]
    for i, feature in enumerate(features):
        place = len(out) - len(content) + end + 16 * i
        offset, size = struct.unpack_from("<QQ", out, place)
        struct.pack_into("<Q", out, place, offset + shift)
        if feature == FEATURE_AUXTRACE:
            for entry in range(offset + shift + 8, offset + shift + size, 16):
                struct.pack_into("<Q", out, entry, moved[struct.unpack_from("<Q", out, entry)[0]])
    pathlib.Path(path).write_bytes(out)


def patch_program(path, offsets):
    """Writes `ptwrite %rdi` or `%rdx`, as offsets[place in the file] says, in place of NOPs."""
    with open(path, "r+b") as file:
        for offset, register in offsets.items():
            file.seek(offset)
            assert file.read(len(NOP)) == NOP
            file.seek(offset)
            file.write(bytes.fromhex("f3480fae") + {"rdi": b"\xe7", "rdx": b"\xe2"}[register])
