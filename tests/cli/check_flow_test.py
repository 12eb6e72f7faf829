#!/usr/bin/env python3
"""`ptdecode check` does not claim agreement if the flow contradicts the code, misses code or is empty: it lists what `stat` counts, with status 3.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC, PTDECODE_CORPUS (default ../shared/corpus). Skips what needs qemu-x86_64 or the corpus.
"""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
DEMO = SOURCE / "data" / "demo"
SNAPSHOT = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE.parent / "shared/corpus")) / "cs-juno_r1_1/snapshot"
MMAP2, THROTTLE, AUXTRACE = 10, 5, 71
AGREES = "no findings: the records, the code bytes and the files agree\n"


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300)


def mappings(raw):
    """The offsets of the MMAP2 records of a perf.data file of one piece."""
    at, size = struct.unpack_from("<2Q", raw, 40)
    end = at + size
    while at < end:
        kind, _, size = struct.unpack_from("<IHH", raw, at)
        if kind == MMAP2:
            yield at
        at += size + (struct.unpack_from("<Q", raw, at + 8)[0] if kind == AUXTRACE else 0)


class CheckFlow(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def assert_listed(self, recording, kinds):
        checked = run("check", "-i", recording)
        self.assertEqual(checked.returncode, 3, checked.stdout)
        self.assertNotIn("no findings", checked.stdout)
        self.assertRegex(checked.stdout, rf"(?m)^({kinds}): ")
        self.assertRegex(checked.stdout, rf"(?m)^ +\d+ ({kinds})$")

    def test_the_kernel_of_another_build(self):
        self.assertEqual(run("check", "-i", DEMO).stdout, AGREES)
        recording = self.folder / "demo"
        shutil.copytree(DEMO, recording)
        kcore = recording / "kcore_dir/kcore"
        kcore.chmod(0o644)
        raw = kcore.read_bytes()
        kcore.write_bytes(raw[:0x1000] + b"\x90" * 0x800 + raw[0x1800:])
        gaps = run("stat", "-q", "-i", recording).stdout
        self.assertRegex(gaps, r"(image_mismatch|no_image|bad_insn) +\d+")
        self.assert_listed(recording, "flow_contradicts|code_missing")

    def test_segments_of_kcore_that_overlap(self):
        """Bytes that two segments agree on are used. Where they differ, either may be wrong, so that the page has no code; a finding names it."""
        recording = self.folder / "demo"
        shutil.copytree(DEMO, recording)
        kcore = recording / "kcore_dir/kcore"
        kcore.chmod(0o644)
        raw = bytearray(kcore.read_bytes())
        at, text = struct.unpack_from("<2Q", raw, 64 + 8)  # of the first segment
        counts = re.search(r"(?m)^all streams: .*", run("stat", "-q", "-i", DEMO).stdout)[0]
        for wrong in (None, 0x345):
            part = bytearray(raw[at + 0x200:at + 0xa00])
            if wrong is not None:
                part[wrong] ^= 1
            struct.pack_into("<2I6Q", raw, 64 + 2 * 56, 1, 7, len(raw), text + 0x200, 0, len(part), len(part), 0x1000)
            struct.pack_into("<H", raw, 56, 3)  # e_phnum
            kcore.write_bytes(raw + part)
            checked = run("check", "-q", "-i", recording)
            named = f"section_overlap: {kcore} contains different bytes for the same addresses, first in this page: none of them are used [at {text + 0x200:#x}]"
            self.assertEqual((checked.stdout.splitlines()[0], checked.returncode), (AGREES.strip(), 0) if wrong is None else (named, 3))
            done = run("stat", "-q", "-i", recording).stdout
            self.assertEqual(counts in done, wrong is None)
            self.assertEqual(bool(re.search(r"(?m)^ +no_image +[1-9]", done)), wrong is not None)
            listed = run("script", "-q", "-i", recording, "--itrace=i1i", "-F", "ip").stdout.split()
            inside = [ip for ip in listed if text + 0x200 <= int(ip, 16) < text + 0xa00]
            self.assertEqual(bool(inside), wrong is None)

    def test_one_bit_of_a_clock_packet(self):
        """An MTC that repeats the count of the one before it ([SDM] "MTC Packet": counts go up), and a TMA with more ticks than a tick of the crystal
        clock has. Every command with --strict has status 3, as `check`, and no time changes by more than an MTC period."""
        raw = (DEMO / "data").read_bytes()
        at, _ = struct.unpack_from("<2Q", raw, 40)
        while struct.unpack_from("<I", raw, at)[0] != AUXTRACE:
            at += struct.unpack_from("<H", raw, at + 6)[0]
        size, = struct.unpack_from("<Q", raw, at + 8)
        trace = raw[at + 48:at + 48 + size]
        packets = run("packets", "-i", DEMO, "-C", raw[at + 40]).stdout.splitlines()
        offsets = {name: [int(line.split()[0], 16) for line in packets if line.split()[1:2] == [name]] for name in ("mtc", "tma")}
        true = self.times(DEMO)
        for name, byte, bit, most in (("mtc", 1, 0, 334), ("tma", 5, 7, 21)):
            for offset in [each for each in offsets[name] if each < size - 64][5:40:9]:
                with self.subTest(f"{name} at {offset:#x}"):
                    recording = self.folder / f"{name}{offset}"
                    shutil.copytree(DEMO, recording)
                    (recording / "data").chmod(0o644)
                    wrong = bytearray(raw)
                    self.assertEqual(trace[offset], {"mtc": 0x59, "tma": 0x02}[name])
                    wrong[at + 48 + offset + byte] ^= 1 << bit
                    (recording / "data").write_bytes(wrong)
                    self.assert_listed(recording, "clock_contradicts")
                    for command in (["stat"], ["functions"], ["script"], ["flame", "-o", self.folder / "f"], ["timeline", "-o", self.folder / "t"],
                                    ["export", "--tables", "functions", "-o", self.folder / "e"]):
                        self.assertEqual([3, 0], [run(*command, "-q", *strict, "-i", recording).returncode for strict in (["--strict"], [])], command[0])
                    times = self.times(recording)
                    self.assertEqual(len(true), len(times))
                    self.assertLessEqual(max(abs(one - other) for one, other in zip(true, times)), most)

    @staticmethod
    def times(recording):
        lines = run("script", "-q", "--ns", "--itrace=b", "-F", "time", "-C", "0", "-i", recording).stdout.split()
        return [int(line.rstrip(":").replace(".", "")) for line in lines]

    def test_trace_bytes_that_lose_flow(self):
        """The places and bytes are those of the gaps that `stat` counts; nothing else is wrong with the recording."""
        recording = self.folder / "demo"
        shutil.copytree(DEMO, recording)
        data = recording / "data"
        data.chmod(0o644)
        raw = data.read_bytes()
        at, _ = struct.unpack_from("<2Q", raw, 40)
        while struct.unpack_from("<I", raw, at)[0] != AUXTRACE:
            at += struct.unpack_from("<H", raw, at + 6)[0]
        size, = struct.unpack_from("<Q", raw, at + 8)
        for byte, reason in ((b"\0", "aux_lost"), (b"\xff", "bad_packet")):
            with self.subTest(reason):
                first = at + 48 + size // 2
                data.write_bytes(raw[:first] + byte * 2048 + raw[first + 2048:])
                gaps, = re.findall(rf"(?m)^ +{reason} +(\d+)", run("stat", "-q", "-i", recording).stdout)
                self.assert_listed(recording, "trace_damaged")
                text = run("check", "-q", "-i", recording).stdout
                self.assertRegex(text, rf"lose the flow in {gaps} places? \({reason}\), with \d+ bytes of trace, the first at trace offset \d+")
                offset = int(re.search(r"first at trace offset (\d+)", text)[1])
                self.assertLessEqual(abs(offset - size // 2), 2048)
                found = [one for one in json.loads(run("check", "-q", "--json", "-i", recording).stdout)["findings"] if one["kind"] == "trace_damaged"]
                self.assertEqual([(reason, int(gaps), offset)], [(one["reason"], one["gaps"], one["first_offset"]) for one in found])
                self.assertGreater(found[0]["lost_bytes"], 1024)

    @unittest.skipIf(shutil.which("qemu-x86_64") is None, "no qemu-x86_64")
    def test_lost_and_wrong_mappings(self):
        recording, broken = self.folder / "recording", self.folder / "broken"
        (self.folder / "program.c").write_text("volatile int sum; int main(void) { for (int i = 0; i < 100000; ++i) if (i % 3) sum += i; return 0; }")
        subprocess.run([os.environ.get("CC", "cc"), "-static", "-no-pie", self.folder / "program.c", "-o", self.folder / "program"], check=True)
        subprocess.run([PTDECODE, "record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", recording, "--", self.folder / "program"],
                       check=True, capture_output=True)
        self.assertEqual(run("check", "-i", recording).stdout, AGREES)
        raw = recording.read_bytes()
        lost = moved = raw
        for at in mappings(raw):
            lost = lost[:at] + struct.pack("<I", THROTTLE) + lost[at + 4:]
            offset, = struct.unpack_from("<Q", raw, at + 32)
            moved = moved[:at + 32] + struct.pack("<Q", offset + 0x40) + moved[at + 40:]
        broken.write_bytes(moved)
        self.assertGreater(sum(map(int, re.findall(r"(?:image_mismatch|bad_insn) +(\d+)", run("stat", "-q", "-i", broken).stdout))), 0)
        self.assert_listed(broken, "flow_contradicts")
        broken.write_bytes(lost)
        checked = run("check", "-i", broken)
        self.assertEqual(checked.returncode, 3)
        self.assertNotIn("agree", checked.stdout)

    @unittest.skipUnless(SNAPSHOT.exists(), "no corpus")
    def test_a_trace_that_is_not_decoded(self):
        snapshot = self.folder / "snapshot"
        shutil.copytree(SNAPSHOT, snapshot)
        changed = 0
        for ini in snapshot.rglob("*.ini"):
            ini.chmod(0o644)
            text = ini.read_text()
            ini.write_text(re.sub(r"(?m)^format=.*", "format=source_data", text))
            changed += "format=" in text
        self.assertGreater(changed, 0)
        instructions = sum(map(int, re.findall(r"(?m)^  instructions +(\d+)", run("stat", "-q", "-i", snapshot).stdout)))
        self.assertEqual(instructions, 0)
        self.assert_listed(snapshot, "nothing_decoded")


if __name__ == "__main__":
    unittest.main()
