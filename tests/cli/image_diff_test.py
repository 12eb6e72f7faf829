#!/usr/bin/env python3
"""`image PLACE --diff A,B` shows the differences at the place only: those of the whole image that overlap it, by their addresses and sizes.
Versions and differences of code that a program changes are those that its source writes.

Environment: PTDECODE, PTDECODE_SOURCE; PTDECODE_PLUGIN and CC for the program, which needs qemu-x86_64.
"""
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

import perf_file

PTDECODE = os.environ["PTDECODE"]
BUNDLE = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "data" / "kernel" / "kernel.bundle"
TIMES = "0,99"  # all of the recording
ENTRY = re.compile(r"^~ ([0-9a-f]+) (\S+)\+0x[0-9a-f]+\n  - (.*)\n  \+ (.*)\n", re.M)


def image(*words):
    done = subprocess.run([PTDECODE, "image", "-q", "-i", BUNDLE, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def entries(text):
    return [match[0] for match in ENTRY.finditer(text)]


def size_of(entry):
    """Bytes of the longer version."""
    sizes = []
    for line in entry.splitlines()[1:]:
        named = re.search(r"\((\d+) bytes\)", line)
        sizes.append(int(named[1]) if named else len(re.match(r"  [-+] ((?:[0-9a-f]{2} )*)", line)[1].split()))
    return max(sizes)


class ImageDiff(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        status, text, _ = image("--diff", TIMES)
        assert status == 3
        cls.all = {int(re.match("~ ([0-9a-f]+)", entry)[1], 16): entry for entry in entries(text)}
        assert len(cls.all) >= 9

    def test_of_an_address(self):
        for address, entry in self.all.items():
            end = address + size_of(entry)
            for first, size in ((address, 1), (end - 1, 1), (address - 1, 2), (address - 1, 1), (end, 1)):
                want = [other for at, other in self.all.items() if at < first + size and first < at + size_of(other)]
                status, text, _ = image(f"{first:x}", "--size", str(size), "--diff", TIMES)
                self.assertEqual((entries(text), status), (want, 3 if want else 0), (hex(first), size))
                self.assertIn(f"in {first:x}-{first + size:x}", text)

    def test_of_a_function(self):
        for name in {ENTRY.match(entry)[2] for entry in self.all.values()} - {"ftrace_trampoline"}:
            status, text, _ = image(name, "--diff", TIMES)
            self.assertEqual(status, 3)
            self.assertEqual(entries(text), [entry for entry in self.all.values() if ENTRY.match(entry)[2] == name])
        self.assertEqual(image("schedule", "--diff", TIMES)[0], 0)

    def test_what_cannot_be_meant(self):
        for words in (["schedule", "--diff", TIMES, "--at", "1"], ["schedule", "--diff", TIMES, "--versions"], ["--diff", TIMES, "--size", "4"],
                      ["no_such_function", "--diff", TIMES]):
            status, _, message = image(*words)
            self.assertEqual(status, 2, (words, message))


@unittest.skipUnless(shutil.which("qemu-x86_64") and "PTDECODE_PLUGIN" in os.environ, "no qemu-x86_64")
class PatchedProgram(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        folder = pathlib.Path(holder.name)
        program, cls.recording = folder / "patched", folder / "patched.data"
        source = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "tests" / "cli" / "programs" / "patched.c"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fcf-protection=none", source, "-o", program], check=True)
        subprocess.run([PTDECODE, "record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", cls.recording, "--", program], check=True,
                       env=dict(os.environ, PTDECODE_STASH="off"))

    def image(self, *words):
        return subprocess.run([PTDECODE, "image", "-q", "--stash", "off", "-i", self.recording, *words], capture_output=True, text=True, check=False).stdout

    def versions(self):
        """Returns (time from which, instruction) of each content of the patched byte."""
        text = max(re.split(r"\n(?=[0-9a-f]+ was mapped)", self.image("target", "--versions")), key=len)
        return [(float(row[1]), row[2]) for row in re.finditer(r"^ +\d+  ([\d.]+)\.\..*\n.*? (lea .*?%eax)$", text, re.M)]

    def test_versions(self):
        """Each is shown as the whole instruction, though one byte of it changes."""
        want = ["lea (%rdi), %eax"] + [f"lea {i:#04x}(%rdi), %eax" for i in range(1, 12)]
        self.assertEqual([text for _, text in self.versions()][-12:], want, self.image("target", "--versions"))

    def test_differences(self):
        """What was written over in between is none."""
        times = [time for time, _ in self.versions()][-12:]
        text = self.image("target", "--diff", f"{times[3] + 1e-6:.9f},{times[9] + 1e-6:.9f}")
        self.assertIn("\n2 differences in ", text)
        self.assertEqual(re.findall(r"^[-+]", text, re.M), ["-", "+"])


@unittest.skipUnless(shutil.which("qemu-x86_64") and "PTDECODE_PLUGIN" in os.environ, "no qemu-x86_64")
class Mappings(unittest.TestCase):
    def test_a_mapping_has_the_text_of_its_bytes(self):
        """The program's source has the bytes with which the code is loaded, and their instructions. A patch follows early in the code's life."""
        source = pathlib.Path(os.environ["PTDECODE_SOURCE"])
        with tempfile.TemporaryDirectory() as folder:
            program, recording = pathlib.Path(folder) / "twice", pathlib.Path(folder) / "twice.data"
            words = ["-O1", "-pthread", f"-I{source / 'announce'}", source / "tests/cli/programs/loaded_twice.c", source / "announce/ptd_announce.c"]
            subprocess.run([os.environ.get("CC", "cc"), *words, "-o", program], check=True)
            subprocess.run([PTDECODE, "record", "-q", "--emulate", "--no-ran-code", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", recording, "--", program],
                           check=True, env=dict(os.environ, PTDECODE_STASH="off"))
            listed = subprocess.run([PTDECODE, "image", "-q", "--stash", "off", "-i", recording, "generated", "--size", "6", "--versions"],
                                    capture_output=True, text=True, check=True).stdout
        mappings = re.findall(r"^ +\d+  [\d.]+\.\.[\d.]* +((?:[0-9a-f]{2} ?){6})\n +\[jit\] +(.*)$", listed[listed.index(" was mapped "):], re.M)
        self.assertEqual(mappings, [("83 c7 10 89 f8 c3", "add $0x10, %edi; mov %edi, %eax; ret")] * 2, listed)


class Bits32(unittest.TestCase):
    SOURCE = """.globl _start
_start: inc %eax
 add %ecx, sum
 mov sum(,%eax,4), %edx
 dec %ebx
 push %es
 pop %es
 daa
 arpl %cx, %ax
 jmp *%eax
.bss
sum: .long 0
"""

    def test_of_an_elf_file(self):
        """objdump says which instructions a 32-bit file has: their bytes, and their operations."""
        with tempfile.TemporaryDirectory() as holder:
            folder = pathlib.Path(holder)
            done = subprocess.run([os.environ.get("CC", "cc"), "-m32", "-x", "assembler", "-c", "-", "-o", folder / "unit"], input=self.SOURCE, text=True, check=False)
            linked = done.returncode == 0 and subprocess.run(["ld", "-m", "elf_i386", folder / "unit", "-o", folder / "program"], check=False).returncode == 0
            if not linked:
                self.skipTest("no assembler and linker for i386")
            listed = subprocess.run(["objdump", "-d", "-w", folder / "program"], capture_output=True, text=True, check=True).stdout
            want = [(int(at, 16), code.strip(), operation) for at, code, operation in re.findall(r"^ *([0-9a-f]+):\t((?:[0-9a-f]{2} )+) *\t(\w+)", listed, re.M)]
            self.assertEqual(len(want), 9)
            # PSB, MODE.Exec of 32-bit code, FUP, PSBEND, TIP.PGD of the last instruction ([SDM] "Trace Packets and Data Types"): a bundle has code that ran.
            (folder / "trace").write_bytes(bytes.fromhex("0282" * 8 + "9902" + "7d") + want[0][0].to_bytes(6, "little") + bytes.fromhex("022301"))
            words = ["--pt", folder / "trace", "--image", folder / "program"]
            subprocess.run([PTDECODE, "bundle", "-q", *words, "-o", folder / "bundle"], check=True, capture_output=True)
            for given in (words, ["-i", folder / "bundle"]):
                shown = subprocess.run([PTDECODE, "image", *given, f"{want[0][0]:x}", "--size", str(want[-1][0] + 2 - want[0][0])], capture_output=True, text=True, check=True)
                rows = re.findall(r"^ +([0-9a-f]{6,}) (?:\S+\+0x[0-9a-f]+)? +((?:[0-9a-f]{2} )+) *(\w+)", shown.stdout, re.M)
                self.assertEqual([(int(at, 16), code.strip(), operation) for at, code, operation in rows], want, shown.stdout)
                middle = subprocess.run([PTDECODE, "image", *given, f"{want[1][0] + 1:x}", "--size", "1"], capture_output=True, text=True, check=True).stdout
                self.assertRegex(middle, rf"is inside this instruction:\n +{want[1][0]:x} _start\+0x1 +{want[1][1]} ")
            # The same bytes as code that no file names, in the same process.
            size, blob = want[-1][0] + 2 - want[0][0], folder / "blob"
            blob.write_bytes(b"".join(bytes.fromhex(code) for _, code, _ in want))
            shown = subprocess.run([PTDECODE, "image", *words, "--image", f"{blob}@9000000", "9000000", "--size", str(size)], capture_output=True, text=True, check=True)
            self.assertEqual(re.findall(r"^ +[0-9a-f]{6,} +(?:[0-9a-f]{2} )+ *(\w+)", shown.stdout, re.M), [row[2] for row in want], shown.stdout)


TEXT_POKE = 20  # PERF_RECORD_TEXT_POKE


class Versions(unittest.TestCase):
    def test_of_arm_code(self):
        """A64 encodings: ADD (immediate), NOP, and B with imm26 = 3 at 0x211004."""
        bundle = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "data" / "arm" / "changes.bundle"
        done = subprocess.run([PTDECODE, "image", "-q", "-i", bundle, "--tid", "26129", "211000", "--size", "8", "--versions"], capture_output=True, text=True, check=True)
        shown = set(re.findall(r"\.\.[\d.]* +((?:[0-9a-f]{2} ?){8})\n +\S+ +(.*)$", done.stdout, re.M))
        self.assertEqual(shown, {("00 04 00 91 1f 20 03 d5", "add x0, x0, #1; nop"), ("00 04 00 91 03 00 00 14", "add x0, x0, #1; b #0x211010")})

    def test_of_a_poked_operand(self):
        """Text pokes of a call's displacement alone, 4 of its 5 bytes, are shown with the whole instruction."""
        demo = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "data" / "demo"
        with tempfile.TemporaryDirectory() as folder:
            recording = pathlib.Path(folder) / "demo"
            shutil.copytree(demo, recording)
            raw, place, calls = bytearray((demo / "data").read_bytes()), 0, []
            for at, kind, _ in perf_file.records(raw)[0]:
                if kind != TEXT_POKE:
                    continue
                address, old_size, new_size = struct.unpack_from("<QHH", raw, at + 8)
                old, new = raw[at + 20:at + 20 + old_size], raw[at + 20 + old_size:at + 20 + old_size + new_size]
                if old[:1] != b"\xe8" or new[:1] != b"\xe8":
                    continue
                place = place or address
                self.assertEqual(address, place)
                struct.pack_into("<QHH8s2x", raw, at + 8, address + 1, 4, 4, bytes(old[1:] + new[1:]))
                calls.append(f"call {address + 5 + struct.unpack_from('<i', new, 1)[0]:#x}")
            (recording / "data").chmod(0o644)
            (recording / "data").write_bytes(raw)
            done = subprocess.run([PTDECODE, "image", "-q", "-i", recording, f"{place:x}", "--size", "5", "--versions"], capture_output=True, text=True, check=True)
        text = done.stdout[done.stdout.index(f"{place + 1:x} "):]
        self.assertEqual(re.findall("^ +(call .*)$", text, re.M)[-len(calls):], calls, done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
