#!/usr/bin/env python3
"""Mappings and memory dumps that cannot be as they are recorded, and description files in another encoding, are named.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC, PTDECODE_CORPUS (default ../shared/corpus). Skips what needs qemu-x86_64 or the corpus.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
SNAPSHOT = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE.parent / "shared/corpus")) / "ete-001-ack_test/snapshot"
MMAP2, AUXTRACE, ANY_BYTES = 10, 71, 2**64 - 1


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PTDECODE_STASH": "off", "DEBUGINFOD_URLS": ""})


@unittest.skipIf(shutil.which("qemu-x86_64") is None, "needs qemu-x86_64")
class Mappings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.tmp)
        (cls.tmp / "p.c").write_text("int main(void) { return 0; }\n")
        cls.program = cls.tmp / "p"
        subprocess.run([os.environ.get("CC", "cc"), "-static", "-Wl,--build-id=sha1", "-o", cls.program, cls.tmp / "p.c"], check=True)
        done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", cls.tmp / "rec", "--", cls.program)
        assert done.returncode == 0, done.stderr

    def with_mapping(self, address, size):
        """Writes a recording whose mapping of the program has another place; its pgoff stays."""
        raw = bytearray((self.tmp / "rec").read_bytes())
        changed, at, end = 0, *struct.unpack_from("<2Q", raw, 40)
        end += at
        while at < end:
            kind, _, length = struct.unpack_from("<IHH", raw, at)
            if kind == MMAP2 and str(self.program).encode() + b"\0" in raw[at:at + length] and raw[at + 64] == 5:  # PROT_READ | PROT_EXEC
                struct.pack_into("<2Q", raw, at + 16, address, size)
                changed += 1
            at += length
            if kind == 71:  # PERF_RECORD_AUXTRACE: its size is that of the trace that follows
                at += struct.unpack_from("<Q", raw, at - length + 8)[0]
        self.assertEqual(changed, 1)
        (self.tmp / "changed").write_bytes(raw)
        return self.tmp / "changed"

    def test_a_mapping_that_is_longer_than_its_file(self):
        recording = self.with_mapping(0x1000, 1 << 46)
        for command in ("check", "stat"):
            said = run(command, "-i", recording)
            self.assertIn("the mapping is longer than its file", said.stdout + said.stderr, command)
            self.assertNotIn(f"--symfs ROOT with ROOT{self.program}", said.stdout + said.stderr, command)
        # A file that is absent is still asked for.
        self.program.rename(self.tmp / "away")
        self.addCleanup((self.tmp / "away").rename, self.program)
        self.assertIn(f"--symfs ROOT with ROOT{self.program}", run("stat", "-i", recording).stderr)

    def test_a_mapping_that_wraps(self):
        for address, size in ((0x400000, ANY_BYTES), (0x7fff00000000, ANY_BYTES - 0x7ffe00000000), (2**64 - 4096, 8192)):
            said = run("check", "-i", self.with_mapping(address, size))
            self.assertEqual(said.returncode, 3)
            self.assertRegex(said.stdout, f"bad_record: {self.program}: a mapping of process [0-9]+ with {size} bytes does not fit")


@unittest.skipUnless(SNAPSHOT.is_dir(), f"no {SNAPSHOT}")
class Snapshots(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name) / "snapshot"
        shutil.copytree(SNAPSHOT, self.folder, copy_function=shutil.copyfile)
        self.flow = run("script", "-q", "--itrace=b", "-i", SNAPSHOT).stdout
        self.assertGreater(self.flow.count("\n"), 10)
        self.core = next(path for path in self.folder.glob("*.ini") if "[dump" in path.read_text())
        self.text = self.core.read_text()

    def change_dump(self, **values):
        """Gives the last dump these values; "" removes one."""
        head, dump = self.text.rsplit("[dump", 1)
        lines = [line for line in dump.splitlines() if line.split("=")[0].strip() not in values]
        lines[1:1] = [f"{key}={value}" for key, value in values.items() if value]
        self.core.write_text(head + "[dump" + "\n".join(lines) + "\n")

    def test_dumps_that_cannot_be_so(self):
        for said, values in (("has no address", {"address": ""}), ("has an invalid address", {"address": "0x1ffffffffffffffff"}),
                             ("has an invalid length", {"length": "-5"}), ("has the length 0", {"length": "0"}),
                             ("does not fit into the address space", {"length": "0xffffffffffffffff"}), ("has no bytes", {"offset": "0xffffffffffffffff"}),
                             ("has an invalid offset", {"offset": "1x"}), ("does not fit into the address space", {"address": "0xffffffffffffffff"})):
            self.change_dump(**values)
            got = run("check", "-i", self.folder)
            self.assertRegex(got.stdout, f"bad_record: the dump {self.folder}/.* {said}")
            self.assertEqual(got.returncode, 3)
            self.assertRegex(run("stat", "-i", self.folder).stderr, f"the dump {self.folder}/.* {said}")

    def test_line_ends(self):
        for end in ("\r\n", "\r"):
            for path in self.folder.glob("*.ini"):
                path.write_bytes((SNAPSHOT / path.name).read_text().replace("\n", end).encode())
            flow = run("script", "-q", "--itrace=b", "-i", self.folder).stdout.replace(str(self.folder), str(SNAPSHOT))
            self.assertTrue(flow == self.flow, repr(end))

    def test_utf16_is_named(self):
        for path in self.folder.glob("*.ini"):
            original = path.read_bytes()
            for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
                path.write_bytes(original.decode().encode(encoding))
                got = run("stat", "-i", self.folder)
                self.assertIn(f"{path}: its text is UTF-16, not UTF-8", got.stderr + got.stdout, (path.name, encoding))
            path.write_bytes(original)

    def test_a_description_that_is_too_large_is_named(self):
        """Its end was left out without a message."""
        for path in self.folder.glob("*.ini"):
            original = path.read_bytes()
            path.write_bytes(original + b"; a comment\n" * 400_000)
            got = run("stat", "-i", self.folder)
            self.assertIn(f"{path}: larger than 4 MiB", got.stderr + got.stdout, path.name)
            path.write_bytes(original)

    def test_a_missing_description_is_named(self):
        (self.folder / "snapshot.ini").unlink()
        got = run("stat", "-i", self.folder)
        self.assertEqual(got.returncode, 1)
        self.assertIn(f"{self.folder} is a directory without a file `snapshot.ini`", got.stderr)


    def test_trace_of_other_sources_is_named(self):
        """Frames whose bytes are all of a trace id that no source has."""
        (self.folder / "trace.ini").write_text((SNAPSHOT / "trace.ini").read_text().replace("source_data", "coresight"))
        (self.folder / "session1.bin").write_bytes((bytes([0x45]) + bytes(15)) * 64)
        got = run("stat", "-i", self.folder)
        self.assertEqual(got.returncode, 1)
        self.assertRegex(got.stderr, "bytes of trace id 34 belong to no source")
        self.assertIn(f"{self.folder}: CoreSight snapshot contains no trace of the sources that it names", got.stderr)
        self.assertNotIn("perf record", got.stderr)


class Payloads(unittest.TestCase):
    """Recordings whose AUX records name trace that is not in the file."""

    def test_an_absent_payload_is_a_gap_at_its_place(self):
        """Each AUXTRACE record of data/demo is left out, one at a time: also the first and the last of each cpu."""
        raw = (SOURCE / "data/demo/data").read_bytes()
        whole = json.loads(run("stat", "--json", "-i", SOURCE / "data/demo").stdout)
        begin, size = struct.unpack_from("<2Q", raw, 40)
        payloads, at = [], begin
        while at < begin + size:
            kind, _, length = struct.unpack_from("<IHH", raw, at)
            end = at + length + (struct.unpack_from("<Q", raw, at + 8)[0] if kind == AUXTRACE else 0)
            if kind == AUXTRACE:
                payloads.append((at, end))
            at = end
        self.assertEqual(len(payloads), 8)
        sections = bin(int.from_bytes(raw[72:104], "little")).count("1")
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "rec"
            shutil.copytree(SOURCE / "data/demo", copy, copy_function=shutil.copyfile)
            for first, last in payloads:
                cut = bytearray(raw[:first] + raw[last:])
                struct.pack_into("<Q", cut, 48, size - (last - first))
                for i in range(sections):
                    place = begin + size - (last - first) + 16 * i
                    struct.pack_into("<Q", cut, place, struct.unpack_from("<Q", cut, place)[0] - (last - first))
                (copy / "data").write_bytes(cut)
                for input_of in (copy, copy.parent / "b.ptb"):
                    got = json.loads(run("stat", "--json", "-i", input_of).stdout)
                    lost = [stream["gaps"].get("aux_lost", {}).get("count") for stream in got["streams"]]
                    fewer = [a["instructions"] > b["instructions"] for a, b in zip(by_cpu(whole), by_cpu(got))]
                    self.assertEqual(sorted(fewer), [False, True], first)
                    self.assertEqual([bool(count) for count in lost].count(True), 1, (first, lost))
                    checked = run("check", "-i", input_of)
                    self.assertEqual(checked.returncode, 3, checked.stdout)
                    self.assertIn("AUX records name bytes that the file does not contain", checked.stdout)
                    if input_of == copy:
                        self.assertEqual(run("bundle", "-q", "-i", copy, "-o", copy.parent / "b.ptb").returncode, 0)


def by_cpu(report):
    return sorted(report["streams"], key=lambda stream: stream["cpu"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
