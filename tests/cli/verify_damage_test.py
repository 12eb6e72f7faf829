#!/usr/bin/env python3
"""`verify` of a trace from which bytes are missing, or into which bytes were inserted: only the segments at the damage differ from the ground truth.
All later PSBs are at other offsets than in the truth.

Environment: PTDECODE, PTDECODE_PLUGIN. Exit status 77 without qemu-x86_64.
"""
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
PSB = b"\x02\x82" * 8
AUXTRACE, FINISHED_ROUND = 71, 68


def run(*words, status=(0,)):
    done = subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode in status, (words, done.returncode, done.stderr)
    return done.stdout


def payload_of(data):
    """Returns the place of the largest AUXTRACE record, of its payload and the payload's end."""
    at, size = struct.unpack_from("<QQ", data, 40)
    end, best = at + size, (0, 0, 0)
    while at < end:
        kind, _, length = struct.unpack_from("<IHH", data, at)
        payload = struct.unpack_from("<Q", data, at + 8)[0] if kind == AUXTRACE else 0
        if payload > best[2] - best[1]:
            best = (at, at + length, at + length + payload)
        at += length + payload
    return best


def with_payload(data, payload):
    """Records without content fill the place of missing bytes."""
    record, first, end = payload_of(data)
    missing = end - first - len(payload)
    assert missing % 8 == 0
    head = data[:record + 8] + struct.pack("<Q", len(payload)) + data[record + 16:first]
    return head + payload + struct.pack("<IHH", FINISHED_ROUND, 0, 8) * (missing // 8) + data[end:]


class VerifyDamage(unittest.TestCase):
    def test_bytes_set_to_zero(self):
        """Branches are missing, and some wrong flow comes before a gap. It resembles the flow of a later time, and what ran in between is lost."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-q", "--no-stash", "--truth", folder / "truth", "-o", folder / "data", "--",
                "true")
            truth = next((folder / "truth").iterdir())
            data = (folder / "data").read_bytes()
            _, first, end = payload_of(data)
            wrong = 0
            for at in range(first + 64, end - 64, 75):
                (folder / "damaged").write_bytes(data[:at] + bytes(16) + data[at + 16:])
                report = run("verify", "-q", "-i", folder / "damaged", truth, status=(0, 3))
                right, silent = map(int, re.search(r"right (\d+) .*silently wrong (\d+)", report).groups())
                shown = run("script", "-q", "-i", folder / "damaged", "--itrace=i1i", "-F", "ip", status=(0, 3)).count("\n")
                with self.subTest(at=at - first, report=report, shown=shown):
                    # 16 bytes have up to 96 branches, whose instructions are missing in the output. All else that is wrong is in the output.
                    self.assertLessEqual(silent, shown - right + 1000)
                wrong += silent
            self.assertGreater(wrong, 0)

    def test_bytes_removed_and_inserted(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            source = folder / "text"
            source.write_text("".join(f"{i * 7919 % 100003}\n" for i in range(4000)))
            run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-q", "--no-stash", "--psb-period", "0", "--truth", folder / "truth", "-o",
                folder / "data", "--", "sort", source)
            truth = next((folder / "truth").iterdir())
            data = (folder / "data").read_bytes()
            _, first, end = payload_of(data)
            trace = data[first:end]
            psbs = [match.start() for match in re.finditer(re.escape(PSB), trace)]
            self.assertGreater(len(psbs), 100)
            counts = r"(\d+) instructions: right (\d+)"
            total, right = map(int, re.search(counts, run("verify", "-q", "-i", folder / "data", truth)).groups())
            self.assertEqual(total, right)
            random.seed(1)
            for trial in range(8):
                at, size = psbs[random.randrange(10, len(psbs) - 10)] + random.randrange(16, 1500), random.choice((8, 64, 4096))
                if trial % 2 == 0:
                    changed = trace[:at] + trace[at + size:]
                else:
                    changed = (trace[:at] + random.randbytes(size) + trace[at:])[:len(trace)]
                (folder / "damaged").write_bytes(with_payload(data, changed))
                report = run("verify", "-q", "-i", folder / "damaged", truth, status=(0, 3))
                whole, right = map(int, re.search(counts, report).groups())
                with self.subTest(trial=trial, at=at, size=size, report=report):
                    self.assertEqual(whole, total)
                    # The damage is in up to four segments of 2 KiB; an insertion also pushes the last ones out. Segments differ in length.
                    self.assertGreaterEqual(right, total * (1 - 24 / len(psbs)))


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("qemu-x86_64 is missing: skipped")
        sys.exit(77)
    unittest.main(verbosity=2)
