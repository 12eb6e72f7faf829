#!/usr/bin/env python3
"""Writes the hand-made inputs in tests/fuzz/corpus (flow's come from make_flow_seeds). Usage: make_corpus.py [DIR]"""
import json
import os
import struct
import sys

ROOT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
PSB = b"\x02\x82" * 8


def put(target, name, data):
    folder = os.path.join(ROOT, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def packets():
    one_each = [  # [SDM] "Packet Definitions"
        "00", "0223", "06", "a7", "02a3112233445566", "2d1122", "4d11223344", "6d112233445566", "8d112233445566", "cd1122334455667788",
        "0d", "711122", "611122", "01", "7d1122", "9901", "9902", "9920", "9921", "9922", "0243112233445566", "02c81122334455",
        "02031400", "1911223344556600", "5942", "02731122003300", "0b", "0f02", "0703", "0ffffffffe", "02f3", "0283",
        "02c3881122334455667788", "021211223344", "0232" + "1122334455667788", "0292" + "11223344", "0262", "02e2",
        "02c2" + "1122334455667788", "0222" + "1122", "02a2" + "1122334455", "026301", "027f" * 3, "0233", "02b3", "021301f5", "0253" + "05" + "11" * 8,
    ]
    put("packets", "one-of-each", b"".join(PSB * (i % 3 == 0) + bytes.fromhex(text) for i, text in enumerate(one_each)))
    put("packets", "psb-plus", PSB + bytes.fromhex("1911223344556600" "02731122003300" "02031400" "9901" "7d112233445566" "0223" "a75942"))
    put("packets", "cut", PSB + bytes.fromhex("6d1122"))
    put("packets", "pebs", PSB + bytes.fromhex("0263019411223344556677880233"))


def classifier():
    texts = ["c3", "e800000000", "0f8411223344", "ff2511223344", "48ff2c25112233440f05", "f30faee0", "62f17c482845",
             "6666666666662e0f1f840000000000", "c4e27d180511223344", "d50a", "66e911223344", "0f22d8cfcb", "67e3fe", "f2c3"]
    for i, text in enumerate(texts):
        put("classifier", f"insn-{i:02}", bytes.fromhex(text))


def announcement(kind, seq, address, code=b"", phase=2, flags=0, name=b"f", size=None, old=0, version=1):
    """A record of libptd-announce (docs/ANNOUNCE.md)."""
    data = name + code
    size = len(code) if size is None else size
    return struct.pack("<IBBH7Q10I", version, kind, phase, flags, 7, seq, 100, 100, address, old, size, len(name), 0, 0, len(code), 0, 1, 1, 1, 1,
                       len(data) << 16) + data


def announce():
    load, move, unload, patch, relist = range(1, 6)
    records = [announcement(load, 0, 0x10000, b"\x90\xc3"), announcement(patch, 1, 0x10000, b"\x90", phase=1), announcement(patch, 2, 0x10000, b"\x91"),
               announcement(move, 3, 0x10100, b"\x91\xc3", old=0x10000), announcement(unload, 4, 0x10100, size=2),
               announcement(load, 5, 0x10100, b"\xc3"), announcement(relist, 8, 0, name=b"", phase=1), announcement(load, 9, 0x10100, b"\xcc", flags=1),
               announcement(relist, 10, 0, name=b""), announcement(load, 11, 0x900000, b"\xc3"), announcement(load, 12, 0x10000, b"\xc3", version=2)]
    put("announce", "samples", b"".join(struct.pack("<BBH", 1, 10 + i, len(record)) + record for i, record in enumerate(records)))
    ring, at = b"", 0
    for record in records:
        size = (16 + len(record) + 7) // 8 * 8
        ring += (struct.pack("<QII", at | 1, len(record), 0) + record).ljust(size, b"\0")
        at += size
    put("announce", "ring", ring)
    put("announce", "ring_without_bytes", struct.pack("<QII", 1, 0, 0) + struct.pack("<QII", 17, 0, 0))


def jitdump():
    header = struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 77, 1000, 0)
    code = bytes.fromhex("554889e55dc3")
    name = b"jitted\0"
    load = struct.pack("<IIQIIQQQQ", 0, 16 + 40 + len(name) + len(code), 2000, 77, 77, 0x7F0000001000, 0x7F0000001000, len(code), 1) + name + code
    move = struct.pack("<IIQIIQQQQQ", 1, 16 + 48, 3000, 77, 77, 0x7F0000002000, 0x7F0000001000, 0x7F0000002000, len(code), 1)
    close = struct.pack("<IIQ", 3, 16, 4000)
    put("jitdump", "load-move-close", header + load + move + close)
    put("jitdump", "cut", header + load[:50])


def lldb():
    cpu = {"vendor": "intel", "family": 6, "model": 79, "stepping": 1}
    old = {"trace": {"type": "intel-pt", "cpuInfo": cpu},
           "processes": [{"pid": 1234, "triple": "x86_64-*-linux",
                          "threads": [{"tid": 3842849, "traceFile": "trace.bin"}],
                          "modules": [{"file": "a.out", "systemPath": "a.out", "loadAddress": "0x400000", "uuid": "6AA9A4E2"}]}]}
    new = {"type": "intel-pt", "cpuInfo": cpu,
           "processes": [{"pid": 1234, "triple": "x86_64-*-linux", "threads": [{"tid": 1, "iptTrace": "trace.bin"}],
                          "modules": [{"file": "a.out", "systemPath": "a.out", "loadAddress": 4194304}]}],
           "cpus": [{"id": 0, "iptTrace": "trace.bin", "contextSwitchTrace": "trace.bin"}],
           "tscPerfZeroConversion": {"timeMult": 1076264588, "timeShift": 31, "timeZero": "18433473881008870804"}}
    put("lldb_bundle", "old.json", json.dumps(old).encode())
    put("lldb_bundle", "new.json", json.dumps(new).encode())
    put("lldb_bundle", "deep.json", b"[" * 3000)


def record(kind, misc, payload):
    return struct.pack("<IHH", kind, misc, 8 + len(payload)) + payload


def perf_data():
    """Returns a file of one intel_pt-like event: AUXTRACE_INFO, COMM, MMAP2, ITRACE_START, AUX, AUXTRACE with a PSB+, FINISHED_ROUND."""
    sample_type = 0x10087  # IP, TID, TIME, CPU, IDENTIFIER
    flags = 1 << 18  # sample_id_all
    attr = struct.pack("<IIQQQQQ", 8, 112, 0x300E601, 1, sample_type, 4, flags) + b"\0" * (112 - 48)
    trailer = struct.pack("<IIQIIQ", 10, 10, 1000, 0, 0, 1)
    info = struct.pack("<II", 1, 0) + struct.pack("<17Q", 8, 31, 581029125, 0, 1, 1 << 11, 0x400, 0, 1, 0x200, 0x3C000, 3, 308, 2, 0x2, 37, 0)
    trace = PSB + bytes.fromhex("1911223344556600" "02031400" "9901" "7d001040000000" "0223" "0d0ea7") + b"\0" * 8
    trace += b"\0" * (-len(trace) % 8)
    path = b"/usr/bin/true\0\0\0"
    data = record(70, 0, info)
    data += record(3, 2, struct.pack("<II", 10, 10) + b"true\0\0\0\0" + trailer)
    data += record(10, 2, struct.pack("<IIQQQIIQQII", 10, 10, 0x400000, 0x1000, 0, 8, 1, 5, 0, 5, 2) + path + trailer)
    data += record(12, 0, struct.pack("<II", 10, 10) + trailer)
    data += record(20, 0, struct.pack("<QBxxxxxxx", 0xFFFFFFFF81000000, 0)[:8] + struct.pack("<HH", 5, 5) + bytes.fromhex("0f1f440000" "e811223344") + b"\0\0" + trailer)
    data += record(11, 0, struct.pack("<QQQ", 0, len(trace), 0) + trailer)
    data += record(71, 0, struct.pack("<QQQIIII", len(trace), 0, 1, 0, 10, 0, 0)) + trace
    data += record(68, 0, b"")
    header_size = 104
    ids = struct.pack("<Q", 1)
    attr_section = attr + struct.pack("<QQ", header_size, len(ids))
    data_offset = header_size + len(ids) + len(attr_section)
    header = b"PERFILE2" + struct.pack("<QQQQQQQQ4Q", header_size, len(attr_section), header_size + len(ids), len(attr_section),
                                       data_offset, len(data), 0, 0, 0, 0, 0, 0)
    whole = header[:header_size] + ids + attr_section + data
    put("perf_data", "small", whole)
    put("perf_data", "cut", whole[: len(whole) - 60])
    pipe = b"PERFILE2" + struct.pack("<Q", 16) + record(64, 0, attr + ids) + data
    put("perf_data", "pipe", pipe)
    put("perf_data", "aux_samples", aux_samples(info, trace))


def aux_samples(info, trace):
    """Returns a pipe with trace in samples (PERF_SAMPLE_AUX): two windows that overlap, one apart, one without trace, one of an impossible size, and a record
    of an unknown type."""
    sample_type, flags, aux_size = 0x110087, 1 << 18, 4096  # AUX, IP, TID, TIME, CPU, IDENTIFIER

    def attr_of(kind, config, bits, size):
        head = struct.pack("<IIQQQQQ", kind, 120, config, 1, bits, 4, flags)
        return head + b"\0" * (112 - len(head)) + struct.pack("<II", size, 0)

    def sample(time, window, stated=None):
        body = struct.pack("<QQIIQII", 2, 0x401000, 10, 10, time, 0, 0)
        return record(9, 2, body + struct.pack("<Q", len(window) if stated is None else stated) + window)

    data = record(64, 0, attr_of(8, 0x300E601, 0x10087, 0) + struct.pack("<Q", 1)) + record(64, 0, attr_of(1, 0, sample_type, aux_size) + struct.pack("<Q", 2))
    data += record(70, 0, info) + record(69, 0, struct.pack("<Q8Q", 2, 1, 0, 0, 2**64 - 1, 2, 0, 0, 2**64 - 1))
    data += sample(1000, trace) + sample(2000, trace[8:] + trace) + sample(3000, b"") + sample(4000, trace[::-1] + trace)
    data += record(200, 0, b"\1" * 16) + sample(5000, trace, 2**63) + record(68, 0, b"")
    return b"PERFILE2" + struct.pack("<Q", 16) + data


def pe_file(bits, base, code, relocation, exported=b"f"):
    """A library with .text at 0x1000, .rdata (exports, .pdata) at 0x2000 and .reloc at 0x3000 ([PE])."""
    wide = bits == 64
    optional = bytearray(240 if wide else 224)
    struct.pack_into("<H", optional, 0, 0x20B if wide else 0x10B)
    struct.pack_into("<Q" if wide else "<I", optional, 24 if wide else 28, base)
    struct.pack_into("<II", optional, 32, 0x1000, 0x200)
    struct.pack_into("<II", optional, 56, 0x4000, 0x400)
    tables = 112 if wide else 96
    struct.pack_into("<I", optional, tables - 4, 16)
    for index, address, size in ((0, 0x2000, 0x60), (3, 0x2100, 12), (5, 0x3000, 12)):
        struct.pack_into("<II", optional, tables + 8 * index, address, size)
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x80)
    head = head.ljust(0x80, b"\0") + b"PE\0\0" + struct.pack("<HHIIIHH", 0x8664 if wide else 0x14C, 3, 7, 0xA00, 1, len(optional), 0x2002) + optional
    for name, address, offset, flags in ((b".text", 0x1000, 0x400, 0x60000020), (b".rdata", 0x2000, 0x600, 0x40000040), (b".reloc", 0x3000, 0x800, 0x42000040)):
        head += name.ljust(8, b"\0") + struct.pack("<IIIIIIHHI", 0x200, address, 0x200, offset, 0, 0, 0, 0, flags)
    exports = struct.pack("<IIHHIIIIIII", 0, 0, 0, 0, 0, 1, 1, 1, 0x2028, 0x202C, 0x2030) + struct.pack("<IIH", 0x1000, 0x2040, 0)
    unwind = struct.pack("<IIIB", 0x1000, 0x1000 + len(code), 0x210C, 1)
    data = exports.ljust(0x40, b"\0") + exported + b"\0"
    symbols = struct.pack("<8sIhHBB", b"f", 0, 1, 0x20, 2, 0) + struct.pack("<I", 4)
    return (head.ljust(0x400, b"\0") + code.ljust(0x200, b"\0") + (data.ljust(0x100, b"\0") + unwind).ljust(0x200, b"\0") +
            struct.pack("<IIHH", 0x1000, 12, relocation, 0).ljust(0x200, b"\0") + symbols)


def windows():
    def thread(tid, ring, offset):
        return struct.pack("<QIIIII", tid, 1, 3, 84, offset, len(ring)) + ring

    base = 0x7FF700000000
    trace = PSB + b"\x7d" + struct.pack("<Q", base + 0x1000)[:6] + b"\x02\x23\x06\x06\x04"
    lists = {64: f"base,size,path\n{base:#x},16384,C:\\m.dll\n", 32: f"{base:016x} {base + 0x4000:016x} m C:\\a\\M.DLL\n"}
    for bits, relocation in ((64, 0xA002), (32, 0x3002)):
        body = thread(8, trace + b"\0" * 16, len(trace)) + thread(12, trace[9:] + trace[:9], len(trace) - 9)
        dump = body if bits == 32 else struct.pack("<HHI", 1, 1, len(body)) + body
        code = b"\x48\xb8" + struct.pack("<Q", 0x2000) + b"\x75\xf4\xc3"
        listed = lists[bits].encode()
        put("windows", f"pe{bits}", struct.pack("<II", len(dump), len(listed)) + dump + listed + pe_file(bits, 0x10000000, code, relocation))


packets()
classifier()
jitdump()
announce()
lldb()
windows()
perf_data()
