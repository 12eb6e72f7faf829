#!/usr/bin/env python3
"""The header through bindgen: docs/examples/walk.rs gives the branches of the command line. Exit status 77: bindgen or rustc is not installed.

Environment: PTDECODE (the program), PTDECODE_LIBRARY, PTDECODE_SOURCE.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, LIBRARY = pathlib.Path(os.environ["PTDECODE_SOURCE"]), pathlib.Path(os.environ["PTDECODE_LIBRARY"])
LINE = re.compile(r"(-?\d+) tid (-?\d+) (.*) ([0-9a-f]+) -> ([0-9a-f]+)")


def branches_of_cli(recording):
    out = subprocess.run([os.environ["PTDECODE"], "script", "--format", "json", "--itrace=b", "-F", "ip,addr,flags,tid", "-i", recording],
                         capture_output=True, text=True, check=True).stdout
    rows = [json.loads(line) for line in out.splitlines()[1:]]
    return collections.Counter((row["tid"], row["flags"], int(row.get("ip", "0"), 16), int(row.get("to", "0"), 16)) for row in rows)


def branches_of_rust(program, recording):
    *lines, last = subprocess.run([program, recording], capture_output=True, text=True, check=True,
                                  env={**os.environ, "LD_LIBRARY_PATH": str(LIBRARY.parent)}).stdout.splitlines()
    rows = [LINE.fullmatch(line).groups() for line in lines if " gap: " not in line]
    assert last == f"{len(rows)} branches, {len(lines) - len(rows)} gaps", last
    times = [int(row[0]) for row in rows]
    assert times == sorted(times)
    return collections.Counter((int(tid), kind, int(start, 16), int(to, 16)) for _, tid, kind, start, to in rows)


def size_option():
    """size_t is usize in Rust. bindgen before 0.61 (Debian 12) takes it for u64 unless an option says so, which later versions do not have."""
    said = subprocess.run(["bindgen", "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = map(int, re.search(r"(\d+)\.(\d+)", said).groups())
    return ["--size_t-is-usize"] if (major, minor) < (0, 61) else []


def main():
    missing = [name for name in ("bindgen", "rustc") if not shutil.which(name)]
    if missing:
        print(f"skipped: {', '.join(missing)} is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        bindings, program = pathlib.Path(folder) / "ptdecode.rs", pathlib.Path(folder) / "walk"
        subprocess.run(["bindgen", SOURCE / "include/ptdecode/ptdecode.h", "-o", bindings, *size_option()], check=True)
        text = "".join(bindings.read_text(encoding="utf-8").split())  # formatted only where rustfmt is installed
        for constant in ("PTD_TIME_UNKNOWN: i64 = -9223372036854775808", "PTD_NONE: u32 = 4294967295", "PTD_AUX_NEXT: u64 = 9223372036854775807"):
            assert f"pub const {constant};".replace(" ", "") in text, constant
        subprocess.run(["rustc", "--edition", "2021", "-O", SOURCE / "docs/examples/walk.rs", "-o", program, "-L", LIBRARY.parent, "-l", "ptdecode"],
                       check=True, env={**os.environ, "PTDECODE_RS": str(bindings)})
        for name in ("demo", "user/plain.bundle", "arm/threads.bundle"):
            expected, got = branches_of_cli(SOURCE / "data" / name), branches_of_rust(program, SOURCE / "data" / name)
            assert expected == got, (name, list((expected - got).items())[:3], list((got - expected).items())[:3])
            print(f"{name}: {sum(got.values())} branches")
    return 0


if __name__ == "__main__":
    sys.exit(main())
