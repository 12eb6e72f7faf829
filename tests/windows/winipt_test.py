#!/usr/bin/env python3
"""Traces of Windows: the emulator runs the code of a PE library, whose trace becomes a dump of ipt.sys with one ring for each thread.

Second sources: the emulator's ground truth of each thread for the flow; the linker, which places the library where it runs, for the relocated
code; objdump and llvm-readobj for sections, symbols and sizes (pe_programs.py).
Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_LIBRARY, PTDECODE_SOURCE, CC. What needs clang, lld, llvm-readobj or qemu-x86_64 is skipped
without them.
"""
import ctypes
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import pe_programs as pe

sys.path.insert(0, os.path.join(os.environ["PTDECODE_SOURCE"], "tests/capi"))
import ptdecode_c as ptd  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
COUNTS = (300, 20_000, 30_000)
AUXTRACE = 71
EMULATOR = shutil.which("qemu-x86_64") is not None


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300)


def traces_of(content):
    """tid -> trace, of a per-thread perf.data file (tools/perf/Documentation/perf.data-file-format.txt)."""
    at, size = struct.unpack_from("<QQ", content, 40)
    end, traces = at + size, {}
    while at < end:
        kind, _, record = struct.unpack_from("<IHH", content, at)
        more = 0
        if kind == AUXTRACE:
            more, = struct.unpack_from("<Q", content, at + 8)
            tid, = struct.unpack_from("<I", content, at + 36)
            traces[tid] = traces.get(tid, b"") + content[at + record:at + record + more]
        at += record + more
    return traces


def executable_segment(elf):
    headers, header_bytes, count = struct.unpack_from("<Q", elf, 32)[0], *struct.unpack_from("<2H", elf, 54)
    for at in range(headers, headers + count * header_bytes, header_bytes):
        kind, flags, offset, address, _, size = struct.unpack_from("<2I4Q", elf, at)
        if kind == 1 and flags & 1:
            return offset, size, address
    raise ValueError("no executable segment")


@unittest.skipUnless(pe.TOOLS, "clang, lld or llvm-readobj is not installed: no PE files")
class Files(unittest.TestCase):
    """Code and symbols of linked files, without a flow."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        psb = bytes.fromhex("0282" * 8 + "0223")
        (cls.folder / "dump").write_bytes(pe.dump([pe.thread_entry(8, psb, len(psb))]))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_relocated_code_is_what_the_linker_places_there(self):
        for bits, base, loaded in ((64, pe.LINKED, pe.LOADED), (32, 0x10000000, 0x6fa90000)):
            with self.subTest(bits=bits):
                library, placed = pe.link(self.folder, f"app{bits}.dll", base, bits), pe.link(self.folder, f"placed{bits}.dll", loaded, bits)
                (self.folder / "list").write_text(f"base,size,path\n{loaded:#x},{pe.header_field(library, 'SizeOfImage')},C:\\app{bits}.dll\n")
                self.assertNotEqual(library.read_bytes(), placed.read_bytes())
                name, address, size, offset = pe.sections(placed)[0]
                self.assertEqual(name, ".text")
                done = run("image", f"{address:#x}", "--size", size, "--winipt", self.folder / "dump", "--modules", self.folder / "list")
                self.assertEqual(done.returncode, 0, done.stderr)
                lines = re.findall(r"(?m)^ +[0-9a-f]{6,} (?:\S+\+0x[0-9a-f]+)? +((?:[0-9a-f]{2} )+)", done.stdout)
                shown = b"".join(map(bytes.fromhex, lines))
                self.assertEqual(shown, placed.read_bytes()[offset:offset + size])
                self.assertNotEqual(shown, library.read_bytes()[offset:offset + size], "nothing was relocated")
                for symbol, at in pe.symbols(placed).items():
                    self.assertIn(f" {symbol.removeprefix('_') if bits == 32 else symbol}+0x0 ", run(
                        "image", f"{at:#x}", "--size", 1, "--winipt", self.folder / "dump", "--modules", self.folder / "list").stdout)

    def test_an_export_has_its_own_code_only(self):
        """objdump, with the symbols that the file then loses, says where instructions begin, and which function each is of."""
        sources = [("-O1", pe.MIXED), *((level, pe.random_source(seed)) for seed in (4, 5) for level in ("-O0", "-O1", "-O2", "-Os"))]
        for bits, base in ((64, pe.LINKED), (32, 0x10000000)):
            for level, source in sources:
                with self.subTest(bits=bits, level=level, source=source):
                    library = pe.link(self.folder, f"whole{bits}.dll", base, bits, source, level)
                    pe.without_symbols(library, self.folder / f"mixed{bits}.dll")
                    (self.folder / "list").write_text(f"base,size,path\n{base:#x},{pe.header_field(library, 'SizeOfImage')},C:\\mixed{bits}.dll\n")
                    name, address, size, _ = pe.sections(library)[0]
                    self.assertEqual(name, ".text")
                    done = run("image", f"{address:x}", "--size", size, "--winipt", self.folder / "dump", "--modules", self.folder / "list")
                    shown = dict(re.findall(r"(?m)^ +([0-9a-f]{6,}) ((?:\S+(?=\+0x))?)", done.stdout))
                    exports = pe.exports(library)
                    rows = [(at, function.removeprefix("_") if bits == 32 else function)
                            for at, function, mnemonic in pe.instructions(library) if not mnemonic.startswith(("nop", "xchg", "int3", "cs", "data16"))]
                    wrong = [(hex(at), function, shown.get(f"{at:x}")) for at, function in rows
                             if shown.get(f"{at:x}") != (function if function in exports else "")]
                    self.assertEqual(wrong, [])
                    met = {function for _, function in rows}
                    self.assertGreater(len(met - exports), 5)
                    self.assertLess(3, len(met & exports))


@unittest.skipUnless(pe.TOOLS and EMULATOR, "clang, lld, llvm-readobj or qemu-x86_64 is not installed")
class Dumps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        folder = cls.folder = pathlib.Path(cls.temporary.name)
        placed = pe.link(folder, "placed.dll", pe.LOADED)
        (folder / "image").write_bytes(pe.flat_image(placed, pe.LOADED))
        (folder / "root" / "Apps").mkdir(parents=True)
        library = pe.link(folder / "root" / "Apps", "app.DLL", pe.LINKED)
        cls.size = pe.header_field(library, "SizeOfImage")
        header = '"BaseAddress","ModuleMemorySize","FileName"'
        (folder / "modules.csv").write_text(f'{header}\n"{pe.LOADED}","{cls.size}","C:\\apps\\App.dll"\n')
        program = folder / "program"
        compile_words = [os.environ.get("CC", "cc"), "-O1", "-static", "-no-pie", "-pthread", "-x", "c", "-", "-o", program]
        subprocess.run(compile_words, input=pe.PROGRAM, text=True, check=True)
        words = ["--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--work-clock", "--truth", folder / "truth", "-o", folder / "recording"]
        done = run("record", *words, "--", program, folder / "image", hex(pe.LOADED), hex(pe.symbols(placed)["run"]), *COUNTS)
        assert done.returncode == 0, done.stderr
        cls.tids = {int(count): int(tid) for tid, count in re.findall(r"(?m)^(\d+) (\d+)$", done.stdout)}
        cls.traces = traces_of((folder / "recording").read_bytes())
        offset, size, address = executable_segment(program.read_bytes())
        cls.image = ["--image", f"{program},off={offset},size={size}@{address:#x}"]

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def words(self, entries, image=True, modules=True, **header):
        (self.folder / "dump").write_bytes(pe.dump(entries, **header))
        words = ["--winipt", self.folder / "dump", *(self.image if image else [])]
        return words + (["--modules", self.folder / "modules.csv", "--symfs", self.folder / "root"] if modules else [])

    def entries(self, **settings):
        """Rings that never were full, in buffers of a power of two as the driver has them."""
        rings = []
        for tid, trace in self.traces.items():
            size = 4096
            while size < len(trace):
                size *= 2
            rings.append(pe.thread_entry(tid, trace + bytes(size - len(trace)), len(trace), **settings))
        return rings

    def lines(self, *words):
        done = run("script", "-q", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_the_flow_is_that_of_the_ground_truth(self):
        for header in (True, False):
            done = run("verify", *self.words(self.entries(), header=header), *self.folder.glob("truth/*.ptt"))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(len(re.findall(r"right \d+ \(100\.000000 %\), of them flagged 0 .* gaps 0\n", done.stdout)), 4, done.stdout)
        checked = run("check", *self.words(self.entries()))
        self.assertEqual((checked.returncode, checked.stdout.splitlines()[-1]), (0, "no findings: the records, the code bytes and the files agree"))

    def test_calls_have_the_names_and_counts_of_the_program(self):
        rows = [json.loads(line) for line in run("functions", "-q", *self.words(self.entries()), "--format", "json").stdout.splitlines()][1:]
        counted = {row["function"]: row["calls"] for row in rows if row["module"] == "App.dll"}
        self.assertEqual(counted, {"run": len(COUNTS), "middle": sum(COUNTS), "leaf": 3 * sum(COUNTS)})
        for count, tid in self.tids.items():
            listed = run("functions", "-q", *self.words(self.entries()), "--tid", tid, "--func", "middle", "--format", "json").stdout
            self.assertEqual(json.loads(listed.splitlines()[1])["calls"], count)

    def test_the_settings_of_the_dump_give_its_times(self):
        """--work-clock counts 2 GHz; the emulated trace has an MTC period of 2^9 and a ratio of 256 (docs/FORMAT-truth.md, undated_test.py)."""
        def work(words, *more):
            rows = [json.loads(line) for line in run("functions", "-q", *words, *more, "--func", "work", "--format", "json").stdout.splitlines()]
            self.assertTrue(rows[0]["timed"])
            return rows[1]["total_ns"]

        expected = work(["-i", self.folder / "recording"])
        self.assertAlmostEqual(work(self.words(self.entries()), "--clock-freq", "2GHz") / expected, 1, delta=0.05)
        wrong = run("check", *self.words(self.entries(ratio=84)), "--clock-freq", "2GHz")
        self.assertEqual(wrong.returncode, 3)
        self.assertIn("clock_contradicts", wrong.stdout)
        right = run("check", *self.words(self.entries(ratio=84)), "--clock-freq", "2GHz", "--tsc-ctc", "256/1")
        self.assertEqual(right.returncode, 0, right.stdout)
        self.assertFalse(json.loads(run("functions", "-q", *self.words(self.entries(timing=0)), "--format", "json").stdout.splitlines()[0])["timed"])

    def test_a_ring_that_was_full_is_unrolled(self):
        """The same bytes without a ring, as --pt, give the same flow."""
        tid = self.tids[COUNTS[2]]
        trace = self.traces[tid]
        # A ring that begins with zeros of a packet may have only zeros after its offset.
        zeros = trace.index(bytes(2), len(trace) - 60_000)
        for size in (65536, 131072, len(trace) - zeros):
            self.assertGreater(len(trace), size)
            (self.folder / "raw").write_bytes(trace[-size:])
            words = ["--pt", self.folder / "raw", "--modules", self.folder / "modules.csv", "--symfs", self.folder / "root", *self.image]
            expected = [line.split(":", 1)[-1] for line in self.lines(*words)]
            self.assertGreater(len(expected), 10_000)
            for position in (0, 1, size // 3, size - 1, size):
                data, offset = pe.ring(trace, size, position)
                found = [line.split(":", 1)[-1] for line in self.lines(*self.words([pe.thread_entry(tid, data, offset)]))]
                self.assertEqual(found, expected, f"ring of {size} at {position}")

    def test_without_a_module_its_flow_is_a_gap_with_its_name(self):
        (self.folder / "root" / "Apps" / "app.DLL").rename(self.folder / "elsewhere")
        try:
            words = self.words(self.entries())
            checked = run("check", *words)
            self.assertEqual(checked.returncode, 3)
            self.assertIn("C:/apps/App.dll was not found", checked.stdout)
            said = run("script", *words).stderr
            self.assertRegex(said, r"gaps  C:/apps/App\.dll  \(file not found\)\n +supply: --symfs ROOT with ROOT/apps/App\.dll or ROOT/App\.dll")
            verified = run("verify", *words, *self.folder.glob("truth/*.ptt"))
            self.assertEqual(set(re.findall(r"silently wrong (\d+)", verified.stdout)), {"0"})
            self.assertIn("C:/apps/App.dll", run("info", *words).stdout)
        finally:
            (self.folder / "elsewhere").rename(self.folder / "root" / "Apps" / "app.DLL")

    def test_another_build_is_named_and_not_used(self):
        (self.folder / "other").write_text((self.folder / "modules.csv").read_text().replace(f'"{self.size}"', f'"{self.size + 4096}"'))
        words = [self.folder / "other" if word == self.folder / "modules.csv" else word for word in self.words(self.entries())]
        checked = run("check", *words)
        self.assertEqual(checked.returncode, 3)
        self.assertRegex(checked.stdout, r"app\.DLL has an image of 0x\w+ bytes, but the list says 0x\w+ for C:/apps/App\.dll: not used")
        verified = run("verify", *words, *self.folder.glob("truth/*.ptt"))
        self.assertEqual(set(re.findall(r"silently wrong (\d+)", verified.stdout)), {"0"})

    def test_a_bundle_needs_no_files(self):
        bundle = self.folder / "dump.bundle"
        done = run("bundle", *self.words(self.entries()), "-o", bundle)
        self.assertEqual(done.returncode, 0, done.stderr)
        listed = run("bundle", *self.words(self.entries()), "--dry-run").stdout
        self.assertRegex(listed, r"Apps/app\.DLL.*\(below --symfs\)|below --symfs.*Apps/app\.DLL")
        verified = run("verify", "-i", bundle, *self.folder.glob("truth/*.ptt"))
        self.assertEqual(verified.returncode, 0, verified.stdout)
        rows = [json.loads(line) for line in run("functions", "-q", "-i", bundle, "--format", "json").stdout.splitlines()][1:]
        self.assertEqual({row["function"]: row["calls"] for row in rows if row["module"] == "App.dll"},
                         {"run": len(COUNTS), "middle": sum(COUNTS), "leaf": 3 * sum(COUNTS)})
        plan = self.folder / "dump.plan"
        self.assertEqual(run("plan", *self.words(self.entries()), "-o", plan).returncode, 0)
        self.assertEqual(self.lines("-i", plan), self.lines(*self.words(self.entries())))

    def test_a_cut_dump_has_the_rest(self):
        words = self.words(self.entries())
        whole = (self.folder / "dump").read_bytes()
        (self.folder / "dump").write_bytes(whole[:-30_000])
        checked = run("check", *words)
        self.assertEqual(checked.returncode, 3)
        self.assertIn("is cut", checked.stdout)
        verified = run("verify", *words, *self.folder.glob("truth/*.ptt"))
        self.assertEqual(set(re.findall(r"silently wrong (\d+)", verified.stdout)), {"0"}, verified.stdout)

    def test_the_c_api_has_the_same_recording(self):
        api = ptd.Api(os.environ["PTDECODE_LIBRARY"])
        self.words(self.entries())
        roots = (ctypes.c_char_p * 2)(str(self.folder / "root").encode(), None)
        modules = str(self.folder / "modules.csv").encode()
        recording = api.open(self.folder / "dump", ptd.made(ptd.OpenOptions, symfs=ctypes.cast(roots, ptd.PTR), modules=modules))
        self.assertEqual([stream.tid for stream in api.streams(recording)], list(self.traces))
        info = json.loads(api.text("ptd_info_json", recording))
        self.assertEqual(len(info["streams"]), 4)
        self.assertFalse(api.missing(recording))
        api.close(recording)
        recording = api.open(self.folder / "dump", ptd.made(ptd.OpenOptions, modules=modules))
        self.assertEqual([row.path for row in api.missing(recording)], [b"C:/apps/App.dll"])
        self.assertIn(b"was not found", [row.what for row in api.findings(recording)][0])
        api.close(recording)
        recording = api.open(self.folder / "dump", ptd.made(ptd.OpenOptions, modules=b""))
        self.assertFalse(api.missing(recording))
        api.close(recording)
        with self.assertRaisesRegex(RuntimeError, "neither CSV"):
            api.open(self.folder / "dump", ptd.made(ptd.OpenOptions, modules=str(self.folder / "image").encode()))

    def test_info_and_report_name_the_dump(self):
        words = [*self.words(self.entries()), "--clock-freq", "2GHz"]
        said = run("info", *words).stdout
        self.assertNotIn("made by", said)
        self.assertNotIn("0 files", said)
        self.assertEqual(sorted(map(int, re.search(r"(?m)^ +\? +tid (.*)$", said).group(1).split())), sorted(self.traces))
        page = self.folder / "page.html"
        self.assertEqual(run("report", "-q", "-o", page, *words).returncode, 0)
        given = json.loads(re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page.read_text(), re.S).group(1))["input"]
        # As the page shows the command that lists the calls of a function.
        done = subprocess.run(["sh", "-c", f"$PTDECODE functions --func middle -q --format json {given}"], capture_output=True, text=True)
        self.assertEqual(json.loads(done.stdout.splitlines()[1])["calls"], sum(COUNTS), given)

    def test_words(self):
        for words, status, text in ((["script", "--modules", "x"], 2, "--winipt"), (["script", "--winipt", "x", "--pt", "y"], 2, "--pt"),
                                    (["script", "--winipt", self.folder / "absent"], 1, "absent"),
                                    (["script", *self.words(self.entries(), modules=False), "--modules", self.folder / "absent"], 1, "absent"),
                                    (["bundle", "--format", "lldb", *self.words(self.entries()), "-o", self.folder / "x"], 2, "--winipt")):
            done = run(*words)
            self.assertEqual(done.returncode, status, (words, done.stderr))
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
