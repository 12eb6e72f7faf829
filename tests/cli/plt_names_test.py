#!/usr/bin/env python3
"""The names of stubs in procedure linkage tables, against binutils' labels and, where these name no function, against the relocations of the slots
that a disassembler shows. The case of AArch64 needs the corpus and llvm-objdump.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE; PTDECODE_CORPUS (default: ../shared/corpus).
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import plt_stubs

PTDECODE = os.environ["PTDECODE"]
CORPUS = pathlib.Path(os.environ.get("PTDECODE_CORPUS", pathlib.Path(os.environ["PTDECODE_SOURCE"]).parent / "shared/corpus"))
PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
int main(int count, char** words) {
  std::string text = words[0] + count % 2;
  if (std::strlen(text.c_str()) > 1000) std::abort();
  std::cout << text.size() << std::endl;
  int (*print)(const char*) = std::puts;
  return print(words[0]) < 0;
}
"""
# A clang that has its lld.
CLANG = next((f"clang++-{n}" for n in (14, 19) if shutil.which(f"clang++-{n}") and shutil.which(f"ld.lld-{n}")), None)
BUILDS = {
    "lazy": ["-Wl,-z,lazy"],
    "now": ["-Wl,-z,now"],
    "fixed": ["-no-pie"],
    "ibt": ["-fcf-protection", "-Wl,-z,ibtplt"],
    "lld": ["-fuse-ld=lld"],
    "static": ["-static"],
    "static-pie": ["-static-pie"],
}


def run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300, check=True).stdout


def names_shown(recording, first, size, *options):
    shown = run(PTDECODE, "image", "-q", "-i", recording, *options, f"{first:x}", "--size", size)
    return {int(at, 16): name for at, name in re.findall(r"^ +([0-9a-f]{6,}) (.*@plt)\+0x0 ", shown, re.M)}


class PltNames(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def compare(self, expected, shown):
        self.assertEqual(sorted(shown), sorted(expected))
        for at, names in expected.items():
            self.assertIn(shown[at], names, hex(at))

    def test_every_stub_has_the_disassemblers_name(self):
        (self.folder / "program.cc").write_text(PROGRAM)
        for build, flags in BUILDS.items():
            if build == "lld" and not CLANG:
                continue
            with self.subTest(build=build):
                program, recording = self.folder / build, self.folder / f"{build}.data"
                compiler = [CLANG] if build == "lld" else ["g++"]
                run(*compiler, "-O1", "-fno-builtin", "-o", program, self.folder / "program.cc", *flags)
                run(PTDECODE, "record", "--emulate", "-q", "-o", recording, "--", program)
                expected = plt_stubs.stubs(program)
                self.assertGreater(len(expected), 5)
                code = int(re.search(r"LOAD +\S+ (\S+) \S+ \S+ \S+ R E", run("readelf", "-lW", program))[1], 16) & ~0xfff
                load = 0 if build in ("fixed", "static") else int(re.search(r"([0-9a-f]+)-\S+ bytes +" + str(program), run(
                    PTDECODE, "image", "-q", "-i", recording, "main")).group(1), 16) - code
                first, last = min(expected), max(expected)
                shown = {at - load: name for at, name in names_shown(recording, load + first, last - first + 16).items()}
                self.compare(expected, shown)

    def test_a_resolver_is_not_its_function(self):
        """An indirect function's symbol is at the address of the resolver, which runs once. The calls go to what that returns."""
        (self.folder / "chooses.c").write_text("""static int implementation(int x) { __asm__ volatile(""); return x + 3; }
static int (*choose(void))(int) { return implementation; }
int chosen(int) __attribute__((ifunc("choose")));
""")
        (self.folder / "calls.c").write_text("""int chosen(int);
int main(void) { int sum = 0; for (int i = 0; i < 6; ++i) sum += chosen(i); return sum == 0; }
""")
        library = self.folder / "chooses.so"
        for case, code, strip, resolver in (("static", self.folder / "chooses.c", False, "choose"), ("shared", library, False, "choose"),
                                            ("stripped", library, True, "chosen@resolver")):
            with self.subTest(case=case):
                program, recording = self.folder / case, self.folder / f"{case}.data"
                run("gcc", "-O1", "-fPIC", "-shared", self.folder / "chooses.c", "-o", library, *(["-s"] if strip else []))
                run("gcc", "-O1", self.folder / "calls.c", code, "-o", program)
                run(PTDECODE, "record", "--emulate", "-q", "--no-stash", "-o", recording, "--", program)

                def calls(*words):
                    lines = map(json.loads, run(PTDECODE, "functions", "-q", "-i", recording, "--json", "--limit", "0", *words).splitlines())
                    return {line["function"]: line["calls"] for line in lines if "function" in line and line["module"] in (case, "chooses.so")}

                self.assertNotIn("chosen", calls())
                self.assertEqual((calls()["chosen@plt"], calls()[resolver]), (6, 1))
                if not strip:
                    self.assertEqual(calls()["implementation"], 6)
                self.assertEqual(calls("--func", "chosen@plt"), {"chosen@plt": 6})
                refused = subprocess.run([PTDECODE, "functions", "-q", "-i", recording, "--func", "chosen"], capture_output=True, text=True)
                self.assertEqual((refused.returncode, refused.stdout), (2, ""), refused.stderr)
                self.assertEqual(calls("--func", "chosen@resolver"), {resolver: 1})
                self.assertEqual(calls("--func", "chosen*"), {"chosen@plt": 6, resolver: 1})

    def test_aarch64(self):
        capture, tool = CORPUS / "cs-ricsec-fib/capture1", shutil.which("llvm-objdump-14") or shutil.which("llvm-objdump-19") or shutil.which("llvm-objdump")
        if not capture.exists() or not tool:
            self.skipTest("needs the corpus and llvm-objdump")
        listing = run(PTDECODE, "image", "-q", "-i", capture)
        load, path = re.search(r"([0-9a-f]+)-\S+ bytes +(\S*/fib) ", listing).groups()
        file = CORPUS / "cs-ricsec-fib/images/fib"
        slots = {int(slot, 16): name for slot, name in re.findall(
            r"^([0-9a-f]+) +\S+ R_AARCH64_JUMP_SLOT\S* +[0-9a-f]+ (\w+)", run("readelf", "-rW", file), re.M)}
        listing = run(tool, "-d", "-j", ".plt", file)
        stubs = re.findall(r"^ +([0-9a-f]+):.*adrp\tx16, 0x([0-9a-f]+).*\n.*ldr\tx17, \[x16, #(\w+)\]", listing, re.M)
        targets = {int(load, 16) + int(at, 16): int(page, 16) + int(offset, 0) for at, page, offset in stubs}
        expected = {at: {slots[slot] + "@plt"} for at, slot in targets.items() if slot in slots}
        self.assertGreater(len(expected), 2, path)
        self.compare(expected, names_shown(capture, min(expected), max(expected) - min(expected) + 16))


if __name__ == "__main__":
    unittest.main()
