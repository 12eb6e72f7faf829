"""Recordings of small programs with their ground truth, for the tests of `ptdecode replay`."""
import os
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests" / "cli"))
import call_replay  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
DATA = SOURCE / "data"


def truth_insns(path):
    """Returns (ip, bytes) of each executed instruction."""
    insns = []
    for what, block in call_replay.truth_blocks(path):
        if what != "run":
            continue
        insns += [(ip, code[:(block[i + 1][0] - ip) if i + 1 < len(block) else None]) for i, (ip, code) in enumerate(block)]
    return insns


def tid_of(path):
    return int(re.search(r"(?:tid|cpu)(\d+)", path.name)[1])


class Recorded:
    """A recording of a program in `folder`, with `options` of `record`. Announced code needs another clock than --work-clock."""

    def __init__(self, folder, source, *flags, name="program", status=0, words=(), compiler=None, options=(), clock="--work-clock"):
        self.folder = pathlib.Path(folder)
        self.program = self.folder / name
        self.path = self.folder / (name + ".data")
        host = os.environ.get("CXX", "c++") if pathlib.Path(source).suffix == ".cc" else os.environ.get("CC", "cc")
        flags = [*([] if compiler else ["-fcf-protection=none"]), *flags]
        subprocess.run([compiler or host, "-g", "-O1", *flags, source, "-o", self.program], check=True)
        self.environment = dict(os.environ, PTDECODE_STASH="off")
        truth = self.folder / (name + ".truth")
        done = subprocess.run([PTDECODE, "record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", self.path, "--truth", truth,
                               clock, *options, "--", self.program, *words], capture_output=True, text=True, env=self.environment, cwd=folder)
        assert done.returncode == status, done.stderr
        self.truths = {tid_of(path): path for path in truth.glob("*.ptt")}

    def symbol(self, name):
        """Returns address and size of a function in the file."""
        listed = subprocess.run(["nm", "-S", self.program], capture_output=True, text=True, check=True).stdout
        row = re.search(rf"^(\w+) (\w+) [tT] {name}$", listed, re.M)
        return int(row[1], 16), int(row[2], 16)
