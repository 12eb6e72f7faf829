#!/usr/bin/env python3
"""Source lines of a kernel whose text is a copy of memory: from vmlinux by build id, at any address of the running kernel.

The recording is data/demo; its vmlinux is assembled here, a line for every 16 bytes, at another address. Environment: PTDECODE, PTDECODE_SOURCE, CC.
"""
import collections
import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import varints  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
DEMO = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "data" / "demo"
BUILD_ID = bytes(range(20))
LINES = 4096
ELSEWHERE = (1 << 64) - 1  # of propeller, an address of another file
RELEASE = "6.1.0-demo"


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=900)


def build_id_event(name, build_id):
    name = name.ljust(64, b"\0")
    return struct.pack("<IHHi", 0, 1, 8 + 4 + 24 + len(name), -1) + build_id.ljust(24, b"\0") + name


def with_build_ids(raw, build_ids=((b"[kernel.kallsyms]", BUILD_ID),)):
    """Returns the file with a feature BUILD_ID of the kernel and of the other files given
    (tools/perf/Documentation/perf.data-file-format.txt, HEADER_BUILD_ID)."""
    data, size = struct.unpack("<QQ", raw[40:56])
    bits = int.from_bytes(raw[72:104], "little")
    present = [bit for bit in range(256) if bits >> bit & 1]
    table = data + size
    features = {bit: struct.unpack("<QQ", raw[table + 16 * i:table + 16 * i + 16]) for i, bit in enumerate(present)}
    entries = b"".join(build_id_event(name, build_id) for name, build_id in build_ids)
    rest = raw[table + 16 * len(present):]
    features = {bit: (offset + 16, length) for bit, (offset, length) in features.items()}
    features[2] = (table + 16 * len(features) + 16 + len(rest), len(entries))
    return (raw[:72] + (bits | 1 << 2).to_bytes(32, "little") + raw[104:table] + b"".join(struct.pack("<QQ", *features[bit]) for bit in sorted(features)) +
            rest + entries)


class KernelLines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.recording = cls.folder / "recording"
        shutil.copytree(DEMO, cls.recording)
        (cls.recording / "data").write_bytes(with_build_ids((DEMO / "data").read_bytes()))
        root = cls.folder / "root"
        root.mkdir()
        cls.build_kernel(root / "vmlinux")
        kallsyms = (DEMO / "kcore_dir" / "kallsyms").read_text()
        names = re.findall(r"^(\w+) t (\w+)\t\[demo\]$", kallsyms, re.M)
        cls.module = int(names[0][0], 16)
        cls.functions = {name: int(at, 16) - cls.module for at, name in names}
        cls.stext = int(re.search(r"^(\w+) T _stext$", kallsyms, re.M)[1], 16)
        cls.root = root

    @classmethod
    def build_kernel(cls, path, functions=None, name="kernel.c"):
        """Builds a vmlinux with a line for every 16 bytes, and these functions (line -> name)."""
        source = cls.folder / "kernel.s"
        label = lambda name: f".type {name}, @function\n{name}:\n" if name else ""
        rows = "".join(label((functions or {}).get(line)) + f".loc 1 {line} 0\n" + "nop\n" * 16 for line in range(1, LINES + 1))
        source.write_text(f'.file 1 "{name}"\n.text\n.globl _stext\n_stext:\n{rows}')
        place = f"-Wl,--build-id=0x{BUILD_ID.hex()},-Ttext=0x60000000,-e,_stext"
        subprocess.run([os.environ.get("CC", "cc"), "-nostdlib", "-static", "-no-pie", "-g", place, source, "-o", path], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def listed(self, *words, recording=None):
        done = run("script", "-i", recording or self.recording, "--itrace=b", "-F", "ip,srcline", "-q", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line.split() for line in done.stdout.splitlines()]

    def test_each_address_has_its_line(self):
        lines = self.listed("--symfs", self.root)
        seen = set()
        for ip, *place in lines:
            at = int(ip, 16) - self.stext
            if 0 <= at < 16 * LINES:
                self.assertEqual(place, [f"kernel.c:{at // 16 + 1}"], ip)
                seen.add(at // 16)
            else:
                self.assertEqual(place, [], ip)
        self.assertGreater(len(seen), 10)
        # The code still comes from the copy of memory.
        self.assertEqual([ip for ip, *_ in lines], [ip for ip, *_ in self.listed()])

    def counted(self, base, size):
        """Returns line -> the count of its most executed instruction, from the listing of all instructions; one may be on two lines."""
        done = run("script", "-q", "-i", self.recording, "--itrace=i1i", "-F", "ip,insnlen")
        counts = collections.Counter(re.findall(r"^ *(\w+) +ilen: (\d+)$", done.stdout, re.M))
        expected = {}
        for (ip, length), count in counts.items():
            at = int(ip, 16) - base
            for line in range(at // 16 + 1, (at + int(length) - 1) // 16 + 2) if 0 <= at < size else ():
                expected[line] = max(count, expected.get(line, 0))
        return expected

    def test_coverage_counts_what_the_listing_lists(self):
        written = self.folder / "kernel.info"
        done = run("coverage", "-q", "-i", self.recording, "--symfs", self.root, "-o", written)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = re.findall(r"^DA:(\d+),(\d+)$", written.read_text(), re.M)
        self.assertEqual({int(line): int(count) for line, count in lines if count != "0"}, self.counted(self.stext, 16 * LINES))
        self.assertEqual(len(lines), LINES)

    def ways(self, base, size, to=0, inside=True):
        """Counts the branches of the listing, except interrupts, between addresses in [base, base + size), which move to `to`; or those with one end
        in it, whose other end is ELSEWHERE."""
        done = run("script", "-q", "-i", self.recording, "--itrace=b", "-F", "flags,ip,addr")
        ways = collections.Counter()
        for flags, *ends in re.findall(r"^ *(.*?) +(\w+) => +(\w+)$", done.stdout, re.M):
            ends = [int(word, 16) - base for word in ends]
            own = [0 <= at < size for at in ends]
            if (all(own) if inside else any(own) and not all(own)) and flags not in ("hw int", "int", "int3", "iret", "tr end  async"):
                ways[tuple(to + at if is_own else ELSEWHERE for at, is_own in zip(ends, own))] += 1
        return ways

    def test_profile_names_the_kernel(self):
        """Addresses are those of vmlinux: every branch of the listing within it, except interrupts."""
        ways = self.ways(self.stext, 16 * LINES, 0x60000000)
        done = run("profile", "-q", "-i", self.recording, "--symfs", self.root)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = {(int(a, 16), int(b, 16)): int(count) for a, b, count in re.findall(r"^B (\w+) (\w+) (\d+) 0$", done.stdout, re.M)}
        self.assertEqual(told, dict(ways))
        for form in ("bolt", "autofdo", "propeller"):
            self.assertEqual(run("profile", "-q", "-i", self.recording, "--symfs", self.root, "--format", form, "-o", f"{self.folder}/of kernel/").returncode, 0)
        names = sorted(path.name for path in (self.folder / "of kernel").iterdir())
        self.assertEqual(names, [f"vmlinux.{BUILD_ID.hex()}.{ending}" for ending in ("pa", "propeller", "txt")])

    def build_module(self, root, functions, build_id=None, other_from=4096):
        """Builds demo.ko with these functions (name -> offset), a line for every 16 bytes, in two sections, after other code, which the
        layout of a loaded module need not keep there. The code from the offset `other_from` on is in a section of another name."""
        folder = root / "lib" / "modules" / RELEASE / "kernel"
        folder.mkdir(parents=True)
        source = self.folder / "module.s"
        text = '.file 1 "demo.c"\n.section .init.text,"ax"\n.loc 1 9999 0\n' + "nop\n" * 100 + ".text\n"
        labels = {at: name for name, at in functions.items()}
        for at in range(4096):
            if at == other_from:
                text += '.section .text.other,"ax"\n'
            if at in labels:
                text += f".type {labels[at]}, @function\n{labels[at]}:\n"
            if at % 16 == 0:
                text += f".loc 1 {at // 16 + 1} 0\n"
            text += "nop\n"
        if build_id:
            text += '.section .note.gnu.build-id,"a",@note\n.long 4,20,3\n.asciz "GNU"\n' + "".join(f".byte {byte}\n" for byte in build_id)
        source.write_text(text)
        subprocess.run([os.environ.get("CC", "cc"), "-c", "-g", source, "-o", folder / "demo.ko"], check=True)
        return root

    def module_lines(self, root, recording=None):
        lines = [(int(ip, 16) - self.module, place) for ip, *place in self.listed("--symfs", root, recording=recording)]
        return [(at, place) for at, place in lines if 0 <= at < 4096]

    def test_each_address_of_a_module_has_its_line(self):
        lines = self.module_lines(self.build_module(self.folder / "with_module", self.functions))
        self.assertGreater(len(lines), 100)
        for at, place in lines:
            self.assertEqual(place, [f"demo.c:{at // 16 + 1}"], hex(at))

    def test_coverage_of_a_module(self):
        root = self.build_module(self.folder / "covered", self.functions)
        done = run("coverage", "-q", "-i", self.recording, "--symfs", root, "--format", "lcov")
        lines = re.findall(r"^DA:(\d+),(\d+)$", done.stdout, re.M)
        self.assertEqual({int(line): int(count) for line, count in lines if count != "0"}, self.counted(self.module, 4096))
        said = run("coverage", "-i", self.recording, "--symfs", root).stderr
        self.assertEqual(said.count("demo.ko is used because its functions have the kernel's addresses\n"), 1, said)

    def module_branches(self, root, *words):
        """Returns the branches of a module's profiles: of autofdo from the start of .text, of propeller with those to and from other code, and the
        branches not taken."""
        headers = subprocess.run(["readelf", "-SW", root / "lib" / "modules" / RELEASE / "kernel" / "demo.ko"], capture_output=True, text=True, check=True).stdout
        start, size = (int(word, 16) for word in re.search(r" \.text +PROGBITS +0+ (\w+) (\w+) ", headers).groups())
        done = run("profile", "-q", "-i", self.recording, "--symfs", root, "--format", "autofdo", *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        offsets = re.findall(r"^(\w+)->(\w+):(\d+)$", done.stdout, re.M)
        branches = {(int(a, 16) - start, int(b, 16) - start): int(count) for a, b, count in offsets}
        runs = re.findall(r"^(\w+)-(\w+):\d+$", done.stdout, re.M)
        self.assertTrue(all(start <= int(at, 16) < start + size for ends in runs for at in ends))
        rows = done.stdout.splitlines()
        self.assertEqual((int(rows[0]), rows[len(runs) + 1], int(rows[len(runs) + 2])), (len(runs), "0", len(branches)))
        path = self.folder / "module.propeller"
        done = run("profile", "-q", "-i", self.recording, "--symfs", root, "--format", "propeller", "-o", path, *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        counts, content, at = ({}, {}), path.read_bytes(), 0
        while at < len(content):
            kind, size = content[at] >> 3, content[at + 1]
            numbers, end, at = [], at + 2 + size, at + 2
            while at < end:
                number, at = varints.read(content, at + 1)
                numbers.append(number)
            counts[kind - 1][tuple(numbers[:-1])] = numbers[-1]
        return branches, *counts

    def test_profiles_of_a_module(self):
        """Of the file's section .text, with the addresses that create_llvm_prof and generate_propeller_profiles give its code."""
        root, build_id = self.build_module(self.folder / "profiled", self.functions, bytes(range(60, 80))), bytes(range(60, 80)).hex()
        ways = dict(self.ways(self.module, 4096))
        self.assertGreater(len(ways), 5)
        for words in ((), ("--dso", "demo.ko")):
            branches, taken, not_taken = self.module_branches(root, *words)
            self.assertEqual(branches, ways)
            self.assertEqual({way: count for way, count in taken.items() if ELSEWHERE not in way}, ways)
        crossings = self.ways(self.module, 4096, inside=False)
        self.assertEqual({way: count for way, count in taken.items() if ELSEWHERE in way}, crossings)
        self.assertTrue(all(any(way[end] == ELSEWHERE for way in crossings) for end in (0, 1)))
        listed = run("script", "-q", "-i", self.recording, "--itrace=i1i", "-F", "ip,insn").stdout
        passed = collections.Counter((int(ip, 16) - self.module,) for ip in re.findall(r"^ *(\w+) +insn: (?:7\w|0f 8\w) ", listed, re.M))
        passed -= collections.Counter((at,) for (at, _), count in ways.items() for _ in range(count))
        self.assertEqual(not_taken, {(at,): count for (at,), count in passed.items() if 0 <= at < 4096})
        self.assertGreater(len(not_taken), 3)

        for form, ending in (("autofdo", "txt"), ("propeller", "propeller")):
            done = run("profile", "-i", self.recording, "--symfs", root, "--format", form, "-o", f"{self.folder}/of module/")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue((self.folder / "of module" / f"demo.ko.{build_id}.{ending}").exists())
            self.assertEqual(done.stderr.count("demo.ko is used because its functions have the kernel's addresses\n"), 1, done.stderr)

    def test_a_modules_code_outside_its_text_is_left_out(self):
        last = max(self.functions.values())
        root = self.build_module(self.folder / "two_sections", self.functions, other_from=last)
        ways = dict(self.ways(self.module, last))
        self.assertLess(len(ways), len(self.ways(self.module, 4096)))
        branches, taken, _ = self.module_branches(root)
        self.assertEqual(branches, ways)
        self.assertEqual({way: count for way, count in taken.items() if ELSEWHERE not in way}, ways)
        done = run("profile", "-i", self.recording, "--symfs", root, "--format", "autofdo")
        self.assertRegex(done.stderr, r"demo\.ko: [\d.]+ % of its code that ran is left out, because it is not in the section \.text\n")

    def test_bolt_cannot_read_a_module(self):
        root = self.build_module(self.folder / "for_bolt", self.functions)
        done = run("profile", "-i", self.recording, "--symfs", root, "--dso", "demo.ko")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        reason = "is a kernel module, which BOLT cannot read because it is not linked; use another --format"
        self.assertIn(f"--dso: 'demo.ko' {reason}", done.stderr)
        done = run("profile", "-i", self.recording, "--symfs", root)
        self.assertEqual(done.returncode, 2)
        self.assertIn("only kernel modules ran, which BOLT cannot read", done.stderr)
        shutil.copy(self.root / "vmlinux", root)  # the others are included
        done = run("profile", "-i", self.recording, "--symfs", root, "-o", f"{self.folder}/for bolt/")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("demo.ko' " + reason, done.stderr)
        self.assertEqual([path.name for path in (self.folder / "for bolt").iterdir()], [f"vmlinux.{BUILD_ID.hex()}.pa"])

    def assert_taken(self, taken, root, recording=None):
        lines = self.module_lines(root, recording)
        self.assertGreater(len(lines), 100)
        for at, place in lines:
            self.assertEqual(place, [f"demo.c:{at // 16 + 1}"] if taken else [], (hex(at), root))

    def test_a_module_whose_functions_lie_otherwise_is_not_taken(self):
        without = {name: at for name, at in self.functions.items() if name != "hot_traced"}
        for number, functions in enumerate((
                dict(self.functions, hot_probed=self.functions["hot_probed"] + 16),
                {"hot_keys": self.functions["hot_keys"]},
                {"hot_keys": 0x300, "foreign_a": 0x10, "foreign_b": 0x400},
                without,
                dict(self.functions, foreign=0x800),
                dict(without, foreign=self.functions["hot_traced"]))):
            self.assert_taken(False, self.build_module(self.folder / f"other_module{number}", functions))

    def test_the_recorded_build_id_decides(self):
        """With either name that perf gives a module; functions at the same addresses are not enough against it."""
        own, other = bytes(range(100, 120)), bytes(range(120, 140))
        roots = {build_id: self.build_module(self.folder / f"id{number}", self.functions, build_id) for number, build_id in enumerate((own, other, None))}
        for number, (told, right) in enumerate(((((b"[demo]", own),), own), (((b"/lib/modules/6.1.0-demo/kernel/demo.ko.xz", other),), other),
                                                (((b"[demo]", own), (b"/x/demo.ko", other)), "none"))):
            recording = self.folder / f"with_ids{number}"
            shutil.copytree(DEMO, recording)
            (recording / "data").chmod(0o644)
            (recording / "data").write_bytes(with_build_ids((DEMO / "data").read_bytes(), told))
            for build_id, root in roots.items():
                self.assert_taken(build_id == right, root, recording)
        # If none is recorded, the names decide, and a message reports it.
        self.assert_taken(True, roots[other])
        for recording, build_id, count in ((self.recording, other, 1), (self.folder / "with_ids0", own, 0)):
            said = run("script", "-i", recording, "--itrace=b", "-F", "ip,srcline", "--symfs", roots[build_id]).stderr
            self.assertEqual(said.count("demo.ko is used because its functions have the kernel's addresses\n"), count, said)

    def test_a_packed_module_is_left_alone(self):
        root = self.build_module(self.folder / "packed", self.functions)
        plain = root / "lib" / "modules" / RELEASE / "kernel" / "demo.ko"
        for name in ("demo.ko.xz", "demo.ko"):
            content = plain.read_bytes()
            plain.unlink()
            (plain.parent / name).write_bytes(content if content.startswith(b"\xfd7zXZ") else lzma.compress(content))
            self.assert_taken(False, root)
            (plain.parent / name).rename(plain)

    def test_debug_information_that_unpacks_to_too_much_is_left_alone(self):
        root = self.build_module(self.folder / "bomb", self.functions)
        source = self.folder / "module.s"
        for size, taken in ((1 << 20, True), (300_000_000, False)):
            source.write_text(source.read_text() + f'.section .debug_str,"MS",@progbits,1\n.zero {size}\n')
            module = root / "lib" / "modules" / RELEASE / "kernel" / "demo.ko"
            subprocess.run([os.environ.get("CC", "cc"), "-c", "-g", "-Wa,--compress-debug-sections=zlib", source, "-o", module], check=True)
            self.assertLess(module.stat().st_size, 1 << 20)
            self.assert_taken(taken, root)

    def test_without_a_build_id_each_file_of_the_release_may_prove_itself(self):
        """The first has a function at another address, the second has all at the kernel's addresses."""
        names = {line: f"made_up_{line}" for line in range(1, LINES, 3)}
        recording, root = self.folder / "of_release", self.folder / "releases"
        shutil.copytree(DEMO, recording)
        kallsyms = recording / "kcore_dir" / "kallsyms"
        made_up = "".join(f"{self.stext + 16 * (line - 1):x} t {name}\n" for line, name in names.items())
        kallsyms.chmod(0o644)
        kallsyms.write_text(kallsyms.read_text() + made_up)
        (root / "boot").mkdir(parents=True)
        moved = {line + (line == 1501): name for line, name in names.items()}
        for functions, taken in ((moved, False), (names, True)):
            self.build_kernel(root / "vmlinux", moved, "wrong.c")
            self.build_kernel(root / "boot" / f"vmlinux-{RELEASE}", functions)
            for ip, *place in self.listed("--symfs", root, recording=recording):
                at = int(ip, 16) - self.stext
                self.assertEqual(place, [f"kernel.c:{at // 16 + 1}"] if taken and 0 <= at < 16 * LINES else [], ip)

    def test_a_file_of_another_build_is_not_taken(self):
        other = self.folder / "other"
        other.mkdir()
        raw = (self.root / "vmlinux").read_bytes()
        (other / "vmlinux").write_bytes(raw.replace(BUILD_ID, bytes(20)))
        self.assertEqual({len(line) for line in self.listed("--symfs", other)}, {1})


if __name__ == "__main__":
    unittest.main(verbosity=2)
