#!/usr/bin/env python3
"""A file that is written to while a program is recorded does not give its new code and names to what ran before.

The expected counts follow from LIBRARY and PROGRAM below; `verify` compares with what the emulator executed.

Environment: PTDECODE, PTDECODE_PLUGIN, CC. Exit status 77 without qemu-x86_64.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
PLUGIN = os.environ["PTDECODE_PLUGIN"]
CALLS = 30
# The constant is the immediate of one instruction.
LIBRARY = """
__attribute__((noinline)) int NAME(int x) { return x + CONSTANT; }
int entry(int x) { return NAME(x) * 3; }
"""
# Loads ./lib.so and calls entry(), once before and once after each command.
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  long sum = 0;
  for (int i = 0; i < argc; ++i) {
    if (i > 0 && system(argv[i]) != 0) return 1;
    void* library = dlopen("./lib.so", RTLD_NOW);
    if (library == 0) return 2;
    int (*entry)(int) = (int (*)(int))dlsym(library, "entry");
    for (int call = 0; call < 30; ++call) sum += entry(call);
    dlclose(library);
  }
  printf("%ld\\n", sum);
  return 0;
}
"""
PATCHED = 0x11223344  # the patch makes an E (0x45) of its last byte
WITHOUT_ID = ("-Wl,--build-id=none",)
WITH_ID = ("-Wl,--build-id=sha1",)


class RewrittenFiles(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.env = dict(os.environ, PTDECODE_STASH=self.folder + "/stash")
        self.compile(PROGRAM, "prog", ("-O1",))

    def compile(self, source, name, flags):
        subprocess.run([os.environ.get("CC", "cc"), "-w", *flags, "-xc", "-", "-o", f"{self.folder}/{name}"], input=source, text=True, check=True)

    def library(self, function, constant, flags, name):
        source = LIBRARY.replace("NAME", function).replace("CONSTANT", str(constant))
        self.compile(source, name, ("-O1", "-g", "-shared", "-fPIC", "-fno-ipa-cp", "-fno-ipa-icf", *flags))

    def libraries(self, flags):
        self.library("before", 7, flags, "lib.so")
        self.library("afterwards", 8, flags, "second.so")

    def run_it(self, *words):
        return subprocess.run([PTDECODE, *words], cwd=self.folder, env=self.env, capture_output=True, text=True)

    def record(self, *commands, options=()):
        shutil.rmtree(self.folder + "/truth", ignore_errors=True)
        done = self.run_it("record", "-q", "--emulate", "--plugin", PLUGIN, "--truth", "truth", "-o", "rec", *options, "--", "./prog", *commands)
        self.assertEqual(done.returncode, 0, done.stderr)

    def check(self):
        return [line for line in self.run_it("check", "-i", "rec").stdout.splitlines() if line.startswith(("file_", "build_id", "no findings"))]

    def calls(self):
        """Returns how often the functions of lib.so were called."""
        listed = self.run_it("functions", "-q", "-i", "rec", "--limit", "0", "--no-inline").stdout
        return {name: int(count) for count, name in re.findall(r"(?m)^ *(\d+) .* (before|afterwards|entry) \(lib\.so\)", listed)}

    def verify(self):
        """Returns the numbers of instructions of prog that are wrong without a mark, wrong, and in gaps."""
        files = [os.path.join("truth", name) for name in sorted(os.listdir(self.folder + "/truth"))]
        said = self.run_it("verify", "-i", "rec", *files).stdout
        counts = [[int(n) for n in line] for line in re.findall(r"wrong but flagged (\d+); silently wrong (\d+); lost in gaps (\d+)", said)]
        self.assertTrue(counts, said)
        flagged, silent, lost = map(sum, zip(*counts))
        return silent, flagged, lost

    def assert_named(self, said):
        (finding,) = [line for line in self.check() if not line.startswith("build_id")]
        self.assertTrue(finding.startswith(f"file_changed: {os.path.realpath(self.folder)}/lib.so was {said}"), finding)

    def test_without_a_build_id(self):
        """Written to in place, or replaced by a new file: only what ran afterwards has the names of the new content."""
        for change, said in (("cat second.so > lib.so", "written to after it was mapped"), ("cp -p second.so lib.so", "written to after it was mapped"),
                             ("cp second.so new; mv new lib.so", "")):
            self.libraries(WITHOUT_ID)
            if "-p" in change:
                os.utime(self.folder + "/second.so", (1, 1))
            for options in ((), ("--no-ran-code",)):
                self.library("before", 7, WITHOUT_ID, "lib.so")
                self.record(change, options=options)
                self.assertEqual(self.calls(), {"afterwards": CALLS, "entry": CALLS}, (change, options))
                silent, wrong, lost = self.verify()
                self.assertEqual((silent, wrong, lost != 0), (0, 0, options != ()), (change, options))
                if said:
                    self.assert_named(said)

    def test_many_times_without_a_build_id(self):
        """However short the time between a mapping and the next write is."""
        self.libraries(WITHOUT_ID)
        shutil.copy(self.folder + "/lib.so", self.folder + "/first.so")
        self.record(*["cat second.so > lib.so", "cat first.so > lib.so"] * 5, options=("--work-clock",))
        self.assertEqual(self.calls(), {"before": CALLS, "entry": CALLS})
        self.assertEqual(self.verify()[0], 0)

    def test_another_build_at_the_same_path(self):
        """The names of a file without a build id are not those of an earlier build with one."""
        self.library("before", 7, WITH_ID, "lib.so")
        self.library("afterwards", 8, WITHOUT_ID, "second.so")
        self.record("cat second.so > lib.so")
        self.assertEqual(self.calls(), {"afterwards": CALLS, "entry": CALLS})
        self.assertEqual(self.verify()[0], 0)

    def test_a_patch_that_leaves_the_build_id(self):
        """The file is used, marked and reported; no copy of it is saved for the earlier mapping."""
        self.library("before", PATCHED, WITH_ID, "first.so")
        with open(self.folder + "/first.so", "rb") as file:
            content = file.read()
        immediate = PATCHED.to_bytes(4, "little")
        self.assertEqual(content.count(immediate), 1)
        patch = f"printf E | dd of=lib.so bs=1 seek={content.index(immediate)} conv=notrunc status=none"
        for options in (("--no-ran-code",), (), ("--no-ran-code", "--work-clock")):  # the stash has both contents from the second on
            shutil.copy(self.folder + "/first.so", self.folder + "/lib.so")
            self.record(patch, options=options)
            self.assertEqual(self.calls(), {"before": 2 * CALLS, "entry": 2 * CALLS}, options)
            silent, wrong, lost = self.verify()
            self.assertEqual((silent, lost), (0, 0), options)
            if options:
                self.assertEqual(wrong, CALLS, options)
            self.assert_named("written to after it was mapped: it has the recorded build id, but nothing proves that its code is unchanged")

    def test_files_that_are_not_written_to_meanwhile(self):
        """A file that was built or touched just before, one that is stripped afterwards, and a new file with the same content are the recorded one."""
        for flags in (WITHOUT_ID, WITH_ID):
            for change in ("true", "cp lib.so new; mv new lib.so") if flags == WITH_ID else ("true",):
                self.libraries(flags)
                os.utime(self.folder + "/prog")
                self.record(change)
                self.assertEqual(self.calls(), {"before": 2 * CALLS, "entry": 2 * CALLS}, (flags, change))
                self.assertEqual(self.check(), ["no findings: the records, the code bytes and the files agree"], (flags, change))
        subprocess.run(["strip", self.folder + "/lib.so"], check=True)
        self.assertEqual(self.calls(), {"before": 2 * CALLS, "entry": 2 * CALLS})
        self.assertEqual(self.check(), ["no findings: the records, the code bytes and the files agree"])
        self.assertEqual(self.verify(), (0, 0, 0))


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    unittest.main()
