#!/usr/bin/env python3
"""Dumps of a machine's memory as a later copy of the kernel's text: --kcore-after FILE.

The dump has the code of the bundled recording's copy, at physical addresses of its own: the text by phys_base, modules by page tables.
Environment: PTDECODE, PTDECODE_SOURCE. Needs libkdumpfile, else skipped.
"""
import ctypes
import os
import pathlib
import random
import re
import resource
import shutil
import struct
import subprocess
import tempfile
import unittest
import zlib

PTDECODE = os.environ["PTDECODE"]
DEMO = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "data" / "demo"
TEXT = next(int(line.split()[0], 16) for line in (DEMO / "kcore_dir/kallsyms").read_text().splitlines() if line.split()[2] == "_text")
PAGE, TEXT_BASE, DIRECT_BASE, MODULE_BASE = 4096, 0xffffffff80000000, 0xffff888000000000, 0xffffffffc0000000
PHYS_BASE, TABLES, MODULES = 0x3000000, 0x100000, 0x200000
ADDRESS_SPACE = 0 if b"__asan_init" in pathlib.Path(PTDECODE).read_bytes() else 4 << 30


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


def memory_of(extra=()):
    """Returns [(physical address, bytes)] of a machine with the bundled kernel and `extra` [(virtual, physical, bytes)]."""
    memory, pages = [], {}
    kernel = [(address, address - TEXT_BASE + PHYS_BASE if address < MODULE_BASE else MODULES + address - MODULE_BASE, content)
              for address, content in segments_of((DEMO / "kcore_dir/kcore").read_bytes())]
    for address, physical, content in [*kernel, *extra]:
        memory.append((physical, content))
        pages.update((address + at, physical + at) for at in range(0, len(content), PAGE))
    return [*memory, (TABLES, tables_of(pages))]


def note_of(stext, more_info=""):
    """Returns the ELF note VMCOREINFO."""
    root = TABLES + TEXT_BASE - PHYS_BASE
    info = (f"OSRELEASE=6.1.0\nPAGESIZE=4096\nNUMBER(phys_base)={PHYS_BASE}\nNUMBER(pgtable_l5_enabled)=0\nNUMBER(KERNEL_IMAGE_SIZE)=1073741824\n"
            f"SYMBOL(swapper_pg_dir)={root:x}\nSYMBOL(init_top_pgt)={root:x}\nSYMBOL(_stext)={stext:x}\n{more_info}").encode()
    info += b"\n" * (-len(info) % 4)
    return struct.pack("<III", 11, len(info), 0) + b"VMCOREINFO\0\0" + info


def vmcore(stext=TEXT, more_info="", extra=()):
    """Returns an ELF dump."""
    memory, note = memory_of(extra), note_of(stext, more_info)
    headers = [struct.pack("<IIQQQQQQ", 4, 0, PAGE, 0, 0, len(note), 0, 4)]
    body = note + b"\0" * (-len(note) % PAGE)
    for physical, content in memory:
        headers.append(struct.pack("<IIQQQQQQ", 1, 7, PAGE + len(body), DIRECT_BASE + physical, physical, len(content), len(content), PAGE))
        body += content
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, len(headers), 0, 0, 0)
    start = header + b"".join(headers)
    return start + b"\0" * (PAGE - len(start)) + body


def compressed(version=6, block=PAGE, sub_header_blocks=1, bitmap_blocks=None, max_frame=0x5000):
    """Returns a dump as makedumpfile writes it (struct disk_dump_header, kdump_sub_header), every second page compressed."""
    pages = {(physical + at) // PAGE: content[at:at + PAGE].ljust(PAGE, b"\0")
             for physical, content in memory_of() for at in range(0, len(content), PAGE)}
    bitmap = bytearray(-(-min((max_frame + 7) // 8, 1 << 20) // PAGE) * PAGE)
    for frame in pages:
        bitmap[frame // 8] |= 1 << frame % 8
    names = b"".join(word.ljust(65, b"\0") for word in (b"Linux", b"machine", b"6.1.0", b"#1", b"x86_64", b"(none)"))
    blocks = 2 * len(bitmap) // PAGE if bitmap_blocks is None else bitmap_blocks
    header = b"KDUMP   " + struct.pack("<i", version) + names + bytes(6) + struct.pack("<QQ", 0, 0)
    header += struct.pack("<IiiIIIIIII", 1, block, sub_header_blocks, blocks, min(max_frame, 0xffffffff), 0, 0, 0, 1, 0)
    note = note_of(TEXT)
    sub = struct.pack("<QiiQQQQQQQQQQQ", PHYS_BASE, 1, 0, 0, 0, PAGE + 1048, len(note) - 24, PAGE + 1024, len(note), 0, 0, 0, 0, max_frame)
    sub = sub.ljust(1024, b"\0") + note
    start = header.ljust(PAGE, b"\0") + sub.ljust(PAGE, b"\0") + bytes(bitmap) * 2
    descriptors, data = b"", b""
    for i, frame in enumerate(sorted(pages)):
        content = zlib.compress(pages[frame]) if i % 2 else pages[frame]
        descriptors += struct.pack("<QIIQ", len(start) + 24 * len(pages) + len(data), len(content), i % 2, 0)
        data += content
    return start + descriptors + data


def names_bomb(size):
    """Returns a dump whose tables of names have names of 16,383 tokens, each of 65,536 letters."""
    one, base, physical, info, extra = bytes([0xff, 0x7f]) + bytes(16383), 0xffffffffc1000000, 0x8000000, "", []
    count = (size + 63) // 64 + 1
    for name, content in (("num_syms", struct.pack("<I", count)), ("names", (one * (size // len(one) + 1))[:size]), ("token_table", b"T" * 65536),
                          ("token_index", bytes(PAGE)), ("offsets", bytes(4 * count)), ("relative_base", struct.pack("<Q", TEXT))):
        content += bytes(-len(content) % PAGE)
        extra.append((base, physical, content))
        info += f"SYMBOL(kallsyms_{name})={base:x}\n"
        base, physical = base + len(content), physical + len(content)
    return vmcore(more_info=info, extra=extra)


def limit_memory():
    if ADDRESS_SPACE:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CPU, (100, 100))


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300, check=False, preexec_fn=limit_memory)


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

    def refused(self, content, reason):
        """Checks that a dump is refused with a warning, and that the result is that without a dump."""
        done = self.with_dump(content)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, rf"warning: \S+/vmcore: {reason}")
        self.assertEqual(self.total(run("stat", "-i", self.recording)), self.total(done))
        self.assertEqual(self.with_dump(content, "check").returncode, 3)

    def test_a_compressed_dump_is_an_elf_dump(self):
        truth = sorted(DEMO.glob("truth.cpu*.txt"))
        self.assertEqual(self.with_dump(vmcore(), "verify", *truth).stdout, self.with_dump(compressed(), "verify", *truth).stdout)

    def test_a_crash_of_libkdumpfile_is_a_warning(self):
        good = vmcore()
        for signals, changes in (("11", {40: struct.pack("<Q", 0x7f0000)}), ("11", {40: struct.pack("<QIH", 0xffffff << 40, 0xffffffff, 0xff)}),
                                 ("7", {95: struct.pack("<BI", 9, 0x95c871), 125: b"\xff" * 4})):
            bad = bytearray(good)
            for at, content in changes.items():
                bad[at:at + len(content)] = content
            with self.subTest(changes=changes):
                self.refused(bytes(bad), f"the dump is damaged: the process that read it was ended by signal {signals}")
        for forged in ({"block": 0}, {"max_frame": 2**64 - 1}, {"sub_header_blocks": 0x7fffffff}, {"bitmap_blocks": 0}, {"version": -1}):
            with self.subTest(forged=forged):
                if "version" in forged and self.with_dump(compressed(**forged)).stdout == self.with_dump(compressed()).stdout:
                    continue  # newer versions of the library do not need it
                self.refused(compressed(**forged), "(the dump is damaged|not a dump of a machine's memory)")

    def test_names_without_a_limit(self):
        plain = self.with_dump(vmcore()).stdout
        for size in (1 << 16, 1 << 20):
            done = self.with_dump(names_bomb(size))
            self.assertEqual((done.returncode, done.stdout), (0, plain), done.stderr)
            self.assertIn("/vmcore has tables of the kernel's names that are malformed", done.stderr)

    def test_random_changes(self):
        generator, elf, kdump = random.Random(4), vmcore(), compressed()
        headers = struct.unpack_from("<H", elf, 56)[0] * 56 + 64
        for i in range(80):
            bad = bytearray(generator.choice((elf, kdump)))
            places = ((0, headers), (PAGE, PAGE + 500), (len(elf) - 6 * PAGE, len(elf))) if bad[0] == 0x7f else ((8, 600), (PAGE, PAGE + 120), (8 * PAGE, 9 * PAGE))
            for _ in range(generator.randint(1, 3)):
                size, at = generator.choice((1, 2, 4, 8)), generator.randrange(*generator.choice(places))
                bad[at:at + size] = generator.choice((b"\xff" * size, bytes(size), generator.randbytes(size)))
            with self.subTest(i=i):
                done = self.with_dump(bytes(bad))
                self.assertIn(done.returncode, (0, 1, 3), done.stderr)

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
