#!/usr/bin/env python3
"""Writes the seeds of fuzz_plan: plans with their chunks uncompressed, and the blocks of step files. Usage: make_plan_seeds.py PTDECODE SOURCE [DIR]"""
import pathlib
import struct
import subprocess
import sys
import tempfile

PTDECODE, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
OUT = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else SOURCE / "tests/fuzz/corpus/plan")
sys.path.insert(0, str(SOURCE / "tests/bundle"))
import parts  # noqa: E402


def blocks(path, most=3000):
    """The contents of the blocks after the first, as fuzz_plan takes them."""
    data, at, out, first = path.read_bytes(), 12, b"", True
    while at < len(data):
        kind, stored, _, number, _ = struct.unpack_from("<QIIQQ", data, at)
        content = parts.decompressed(data[at + 32:at + 32 + stored])[:most]
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
        # A relative path: a plan contains it.
        subprocess.run([PTDECODE, "plan", recording, "-o", plan, "--units", str(units), "--quiet"], cwd=SOURCE, check=True)
        if name != "perf-data":
            subprocess.run([PTDECODE, "unit", plan, "0", "-o", work], check=True)
            steps, every = (blocks(pathlib.Path(work, f"unit-00000.steps{end}")) for end in ("", ".all"))
            for table in range(5):
                if name == "plan" or table == 0:
                    (OUT / f"steps-{name}-{table}").write_bytes(b"STEPS" + struct.pack("<BH", table | (8 if table == 3 else 0), len(steps)) + steps + every)
        content = parts.uncompressed(plan.read_bytes())
        if len(content) < 300_000:
            (OUT / name).write_bytes(content)
