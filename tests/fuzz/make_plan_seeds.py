#!/usr/bin/env python3
"""Writes the seeds of fuzz_plan: plans with their chunks uncompressed, and the blocks of step files. Usage: make_plan_seeds.py PTDECODE SOURCE [DIR]"""
import ctypes
import ctypes.util
import pathlib
import struct
import subprocess
import sys
import tempfile

PTDECODE, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
OUT = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else SOURCE / "tests/fuzz/corpus/plan")
ZSTD = ctypes.CDLL(ctypes.util.find_library("zstd"))
ZSTD.ZSTD_decompress.restype = ctypes.c_size_t
ZSTD.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]


def decompressed(stored, size):
    out = ctypes.create_string_buffer(max(size, 1))
    assert ZSTD.ZSTD_decompress(out, size, stored, len(stored)) == size
    return out.raw[:size]


def fnv1a(content):
    value = 0xCBF29CE484222325
    for byte in content:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def plain_plan(plan):
    """The plan with its chunks uncompressed: docs/FORMAT.md."""
    out, at = plan[:16], 16
    while at < len(plan):
        kind, method, stored, size, _ = struct.unpack_from("<4sIQQQ", plan, at)
        content = plan[at + 32:at + 32 + stored]
        at += 32 + stored
        content = decompressed(content, size) if method else content
        out += struct.pack("<4sIQQQ", kind, 0, len(content), len(content), fnv1a(content)) + content
    return out


def blocks(path, most=3000):
    """The contents of the blocks after the first, as fuzz_plan takes them."""
    data, at, out, first = path.read_bytes(), 12, b"", True
    while at < len(data):
        kind, stored, size, number, _ = struct.unpack_from("<QIIQQ", data, at)
        content = decompressed(data[at + 32:at + 32 + stored], size)[:most]
        at += 32 + stored
        if not first:
            out += struct.pack("<BHB", kind - 1, len(content), number & 255) + content
        first = False
    return out


OUT.mkdir(parents=True, exist_ok=True)
with tempfile.TemporaryDirectory() as work:
    for name, recording, units in (("plan", "data/user/plain.bundle", 2), ("patch", "data/user/patch.bundle", 6), ("arm", "data/arm/changes.bundle", 6),
                                   ("perf-data", "data/demo/data", 6)):
        plan = pathlib.Path(work, f"{name}.plan")
        subprocess.run([PTDECODE, "plan", SOURCE / recording, "-o", plan, "--units", str(units), "--quiet"], check=True)
        if name != "perf-data":
            subprocess.run([PTDECODE, "unit", plan, "0", "-o", work], check=True)
            steps, every = (blocks(pathlib.Path(work, f"unit-00000.steps{end}")) for end in ("", ".all"))
            for table in range(5):
                if name == "plan" or table == 0:
                    (OUT / f"steps-{name}-{table}").write_bytes(b"STEPS" + struct.pack("<BH", table | (8 if table == 3 else 0), len(steps)) + steps + every)
        content = plain_plan(plan.read_bytes())
        if len(content) < 300_000:
            (OUT / name).write_bytes(content)
