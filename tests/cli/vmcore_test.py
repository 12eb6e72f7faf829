#!/usr/bin/env python3
"""Dumps of a machine's memory as a later copy of the kernel's text: --kcore-after FILE.

The dump has the code of the bundled recording's copy, at physical addresses of its own: the text by phys_base, modules by page tables.
Environment: PTDECODE, PTDECODE_SOURCE. Needs libkdumpfile, else skipped.
"""
import ctypes
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
DEMO = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "data" / "demo"
TEXT = next(int(line.split()[0], 16) for line in (DEMO / "kcore_dir/kallsyms").read_text().splitlines() if line.split()[2] == "_text")
PAGE, TEXT_BASE, DIRECT_BASE, MODULE_BASE = 4096, 0xffffffff80000000, 0xffff888000000000, 0xffffffffc0000000
PHYS_BASE, TABLES, MODULES = 0x3000000, 0x100000, 0x200000


def segments_of(core):
    """Yields (address, bytes) of the PT_LOAD segments of an ELF file."""
    offset, count = struct.unpack_from("<Q", core, 32)[0], struct.unpack_from("<H", core, 56)[0]
    for i in range(count):
        kind, _, at, address, _, size = struct.unpack_from("<IIQQQQ", core, offset + 56 * i)
        if kind == 1:
            yield address, core[at:at + size]


def tables_of(pages):
    """Returns page tables for {virtual page: physical page}, as they lie at TABLES; the first is the root."""
    tables = {(): bytearray(PAGE)}
    for virtual, physical in pages.items():
        indices = [virtual >> shift & 511 for shift in (39, 30, 21, 12)]
        for depth in range(1, 4):
            tables.setdefault(tuple(indices[:depth]), bytearray(PAGE))
    places = {path: TABLES + PAGE * i for i, path in enumerate(tables)}
    for virtual, physical in pages.items():
        indices = [virtual >> shift & 511 for shift in (39, 30, 21, 12)]
        for depth in range(4):
            target = physical if depth == 3 else places[tuple(indices[:depth + 1])]
            struct.pack_into("<Q", tables[tuple(indices[:depth])], 8 * indices[depth], target | 0x63)
    return b"".join(tables.values())


def vmcore(stext=TEXT):
    memory, pages = [], {}
    for address, content in segments_of((DEMO / "kcore_dir/kcore").read_bytes()):
        physical = address - TEXT_BASE + PHYS_BASE if address < MODULE_BASE else MODULES + address - MODULE_BASE
        memory.append((physical, content))
        pages.update((address + at, physical + at) for at in range(0, len(content), PAGE))
    memory.append((TABLES, tables_of(pages)))
    root = TABLES + TEXT_BASE - PHYS_BASE
    info = (f"OSRELEASE=6.1.0\nPAGESIZE=4096\nNUMBER(phys_base)={PHYS_BASE}\nNUMBER(pgtable_l5_enabled)=0\nNUMBER(KERNEL_IMAGE_SIZE)=1073741824\n"
            f"SYMBOL(swapper_pg_dir)={root:x}\nSYMBOL(init_top_pgt)={root:x}\nSYMBOL(_stext)={stext:x}\n").encode()
    info += b"\n" * (-len(info) % 4)
    note = struct.pack("<III", 11, len(info), 0) + b"VMCOREINFO\0\0" + info
    headers = [struct.pack("<IIQQQQQQ", 4, 0, PAGE, 0, 0, len(note), 0, 4)]
    body = note + b"\0" * (-len(note) % PAGE)
    for physical, content in memory:
        headers.append(struct.pack("<IIQQQQQQ", 1, 7, PAGE + len(body), DIRECT_BASE + physical, physical, len(content), len(content), PAGE))
        body += content
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, len(headers), 0, 0, 0)
    start = header + b"".join(headers)
    return start + b"\0" * (PAGE - len(start)) + body


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300, check=False)


class Vmcore(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.recording = self.folder / "recording"
        shutil.copytree(DEMO, self.recording)
        shutil.rmtree(self.recording / "kcore_dir")

    def with_dump(self, content, command="stat", *words):
        (self.folder / "vmcore").write_bytes(content)
        return run(command, "-i", self.recording, "--kcore-after", self.folder / "vmcore", *words)

    def total(self, done):
        return re.search(r"(?m)^all streams: .*", done.stdout).group()

    def test_the_flow_is_the_ground_truth(self):
        truth = sorted(DEMO.glob("truth.cpu*.txt"))
        checkpoints = re.compile(r"(?m)^cpu \d: (\d+) of (\d+) checkpoints equal")
        without = checkpoints.findall(run("verify", "-i", self.recording, *truth).stdout)
        self.assertEqual([("0", "101"), ("0", "102")], without)
        done = self.with_dump(vmcore(), "verify", *truth)
        self.assertEqual([("101", "101"), ("102", "102")], checkpoints.findall(done.stdout), done.stdout + done.stderr)

    def test_a_dump_of_another_boot_is_refused(self):
        without = self.total(run("stat", "-i", self.recording))
        for distance in (-0x200000, 0x200000, 0x10001, -1):
            with self.subTest(distance=distance):
                done = self.with_dump(vmcore(stext=TEXT + distance), "check")
                self.assertEqual(done.returncode, 3)
                self.assertRegex(done.stdout, r"(?m)^file_changed: .*/vmcore is of another boot: it has _stext at 0x")
                self.assertIn("/vmcore is of another boot", done.stderr)
                self.assertEqual(without, self.total(self.with_dump(vmcore(stext=TEXT + distance))))

    def test_other_files_are_named(self):
        for content, reason in ((b"text", "not a dump of a machine's memory"), (b"", "not a dump of a machine's memory"),
                                (re.sub(rb"SYMBOL\(_stext\)=\w+", b"#", vmcore()), "has no VMCOREINFO")):
            done = self.with_dump(content, "check")
            self.assertEqual(done.returncode, 3)
            self.assertIn("/vmcore", done.stderr)
            self.assertIn(reason, done.stderr)
        missing = run("stat", "-i", self.recording, "--kcore-after", self.folder / "none")
        self.assertNotEqual(missing.returncode, 0)
        self.assertIn(str(self.folder / "none"), missing.stderr)


if __name__ == "__main__":
    try:
        ctypes.CDLL("libkdumpfile.so.10")
    except OSError:
        print("skipped: libkdumpfile is not installed")
        raise SystemExit(77) from None
    unittest.main()
