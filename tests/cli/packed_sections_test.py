#!/usr/bin/env python3
"""Names and lines of programs whose symbols or debug information are compressed, against those of the plain program.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC, CXX. Exit status 77 without qemu-x86_64.
"""
import json
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from recorded_programs import CC, RecordedPrograms  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
SOURCE = """volatile int sum;
static __attribute__((noinline)) void hidden(int x) { sum += x; }
static inline __attribute__((always_inline)) void copied(int x) { sum -= x; }
int main(void) {
  for (int i = 0; i < 30; ++i) {
    hidden(i);
    copied(i);
  }
  return 0;
}
"""


@unittest.skipUnless(shutil.which("objcopy"), "no objcopy")
class PackedSections(RecordedPrograms):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "a.c").write_text(SOURCE)
        cls.run_in(CC, "-g", "-O1", "a.c", "-o", "plain")
        cls.record("plain")

    @classmethod
    def run_in(cls, *words):
        subprocess.run(words, cwd=cls.folder, check=True, capture_output=True)

    @classmethod
    def record(cls, name):
        cls.run_in(PTDECODE, "record", "--emulate", "--no-stash", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", name + ".data", "--", "./" + name)

    def read(self, command, name, *words):
        done = subprocess.run([PTDECODE, command, "-i", self.data(name), *words], capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stderr)
        return done

    def functions(self, name, *words):
        """Function of the program -> calls; and what is said."""
        done = self.read("functions", name, "--limit", "0", "--json", *words)
        return {row["function"]: row["calls"] for row in map(json.loads, done.stdout.splitlines()) if row.get("module") == name}, done.stderr

    def mini(self, name, content):
        """The program without .symtab, with this .gnu_debugdata."""
        (self.folder / (name + ".xz")).write_bytes(content)
        self.run_in("objcopy", "--strip-all", "--add-section", f".gnu_debugdata={name}.xz", "plain", name)
        self.record(name)

    def test_symbols_of_gnu_debugdata(self):
        self.run_in("objcopy", "--strip-debug", "plain", "symbols")
        packed = lzma.compress((self.folder / "symbols").read_bytes())
        self.mini("mini", packed)
        found, said = self.functions("mini")
        self.assertEqual(30, found["hidden"])
        self.assertNotIn("gnu_debugdata", said)
        self.assertEqual({"hidden": 30}, self.functions("mini", "--func", "hidden")[0])
        for name, content, why in (("cut", packed[:len(packed) // 2], "it ends early"), ("none", b"\x7fELF" + bytes(60), "it is not compressed with xz")):
            self.mini(name, content)
            found, said = self.functions(name)
            self.assertNotIn("hidden", found)
            self.assertRegex(said, rf"/{name}: its \.gnu_debugdata is damaged \({why}\): functions of this file may have no name")

    def test_debug_sections_compressed_with_zstd(self):
        for kind in ("zlib", "zstd"):
            if subprocess.run(["objcopy", f"--compress-debug-sections={kind}", "plain", kind], cwd=self.folder, capture_output=True).returncode != 0:
                self.skipTest(f"objcopy cannot compress with {kind}")
            self.assertIn("COMPRESSED", subprocess.run(["readelf", "-t", self.folder / kind], capture_output=True, text=True, check=True).stdout)
            self.record(kind)
            for command, words in (("coverage", ("--format", "lcov")), ("functions", ("--inline", "--func", "copied", "--limit", "0"))):
                want, found = self.read(command, "plain", *words), self.read(command, kind, *words)
                self.assertNotIn("damaged", found.stderr)
                if command == "coverage":
                    self.assertIn("DA:3,30", found.stdout)
                    self.assertEqual(want.stdout, found.stdout)
                else:
                    self.assertRegex(found.stdout, r" copied \(inlined\) ")


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
