#!/usr/bin/env python3
"""No -o replaces an input: every command that writes a file, with every kind of file that a recording is read from. Commands refuse with exit status 2
before they write. Outputs of an earlier run are replaced as before.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. LLDB bundles and CoreSight snapshots are from $PTDECODE_CORPUS (default
../shared/corpus), and skipped without it. Exit status 77 without qemu-x86_64.
"""
import hashlib
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import perf_file

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
CORPUS = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE / ".." / "shared" / "corpus"))
WRITERS = (["bundle"], ["flame"], ["export"], ["report"], ["timeline"], ["coverage"], ["profile"])
TIMELESS = [writer for writer in WRITERS if writer[0] != "timeline"]  # for traces without times, which timeline refuses for that reason
RECORD = ["record", "-q", "--no-stash", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"]]
REFUSAL = "-o names the output file"

# Code in anonymous memory, which the recording keeps in a jitdump, and a perf map that names it.
PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
  const unsigned char code[] = {0xb8, 7, 0, 0, 0, 0xc3};
  unsigned char *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(at, code, sizeof code);
  char path[64];
  sprintf(path, "/tmp/perf-%d.map", getpid());
  FILE *map = fopen(path, "w");
  fprintf(map, "%lx 6 seven\n", (unsigned long)at);
  fclose(map);
  puts(path);
  int sum = 0;
  for (int i = 0; i < 50; i++) sum += ((int (*)(void))at)();
  return sum != 350;
}
"""


def run(*words, cwd, **options):
    environment = {**os.environ, "PTDECODE_STASH": str(cwd / "no-stash"), "DEBUGINFOD_URLS": ""}
    return subprocess.run([PTDECODE, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=120, env=environment, **options)


def contents(folder):
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()}


class Inputs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        (cls.folder / "t.c").write_text(PROGRAM)
        subprocess.run([os.environ.get("CC", "cc"), "-g", "-O1", "-no-pie", "-static", "-o", "t", "t.c"], cwd=cls.folder, check=True)
        subprocess.run(["objcopy", "--only-keep-debug", "t", "t.debug"], cwd=cls.folder, check=True)
        done = run(*RECORD, "-o", "r.data", "--", "./t", cwd=cls.folder)
        assert done.returncode == 0, done.stderr
        cls.perf_map = pathlib.Path(done.stdout.strip())
        cls.addClassCleanup(cls.perf_map.unlink, missing_ok=True)
        shutil.copy(cls.folder / "r.data", cls.folder / "other.data")
        (cls.folder / "raw.pt").write_bytes(perf_file.aux_traces((cls.folder / "r.data").read_bytes())[0])
        (cls.folder / "code.bin").write_bytes((cls.folder / "t").read_bytes()[0x1000:0x80000])
        (cls.folder / "page").write_bytes(bytes(4096))
        (cls.folder / "addresses").write_bytes(struct.pack("<Q", 0x700000))
        assert run("bundle", "-q", "-i", "r.data", "-o", "r.ptb", cwd=cls.folder).returncode == 0

    def check(self, words, inputs, writers=WRITERS, folder=None):
        folder = folder or self.folder
        before = contents(folder)
        for path in inputs:
            self.assertTrue((folder / path).is_file(), path)
            for writer in writers:
                with self.subTest(writer=writer[0], output=str(path)):
                    outside = pathlib.Path(path).is_absolute() and pathlib.Path(path).read_text()
                    done = run(*writer, *words, "-o", path, cwd=folder)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(REFUSAL if writer[0] != "bundle" else "name", done.stderr)
                    self.assertNotIn("Traceback", done.stderr)
                    if outside:
                        self.assertEqual(pathlib.Path(path).read_text(), outside)
                    self.assertEqual(contents(folder), before)

    def test_of_an_emulated_recording(self):
        jitdumps = [path.relative_to(self.folder) for path in (self.folder / "r.data.jit").rglob("*.dump")]
        self.assertEqual(len(jitdumps), 1)
        self.check(["-i", "r.data"], ["r.data", "other.data", "t", "t.debug", self.perf_map, *jitdumps])
        self.check(["-i", "r.data"], ["r.ptb"], writers=WRITERS[1:])  # an earlier bundle is replaced by a bundle
        self.check(["-i", "r.data"], ["t.c"], writers=[["coverage"]])

    def test_of_a_bundle(self):
        self.check(["-i", "r.ptb"], ["r.ptb", "r.data"], writers=[writer for writer in WRITERS if writer[0] not in ("coverage", "profile")])

    def test_of_a_raw_trace_under_any_name(self):
        (self.folder / "link").symlink_to("raw.pt")
        os.link(self.folder / "raw.pt", self.folder / "hard")
        self.addCleanup((self.folder / "link").unlink)
        self.addCleanup((self.folder / "hard").unlink)
        words = ["--pt", "raw.pt", "--image", "code.bin@0x401000", "--pages", "page,addresses", "--clock-freq", "1GHz"]
        self.check(words, ["raw.pt", "link", "hard", "./raw.pt", "code.bin", "page", "addresses"])
        self.assertTrue((self.folder / "link").is_symlink())

    def test_of_a_directory_with_kcore(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name) / "demo"
            shutil.copytree(SOURCE / "data" / "demo", folder)
            os.chmod(folder, 0o755)
            self.check(["-i", "."], ["data", "kcore_dir/kcore", "kcore_dir/kallsyms", "kcore_dir/modules"], folder=folder)

    def of_corpus(self, case, words, inputs, writers=WRITERS):
        if not (CORPUS / case).is_dir():
            self.skipTest(f"{CORPUS / case} is missing")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name) / "case"
            shutil.copytree(CORPUS / case, folder)
            found = [path.relative_to(folder) for pattern in inputs for path in sorted(folder.glob(pattern))[:5]]
            self.assertGreaterEqual(len(found), len(inputs))
            self.check(words, found, writers, folder)

    def test_of_an_lldb_bundle(self):
        self.of_corpus("pt-lldb-multifile", ["-i", "trace.json"], ["trace.json", "trace.bin", "a.out", "*.so"], TIMELESS)

    def test_of_a_coresight_snapshot(self):
        self.of_corpus("ete-001-ack_test/snapshot", ["-i", "."], ["*.ini", "session1.bin", "bindir/*"], TIMELESS)

    def test_unrelated_outputs_are_replaced(self):
        for writer in WRITERS:
            for content in (None, "<svg>", None):  # new, over a text, over its own
                with self.subTest(writer=writer[0], content=content):
                    output = self.folder / "output"
                    if content:
                        output.write_text(content)
                    done = run(*writer, "-q", "-i", "r.data", "-o", output, cwd=self.folder)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertGreater(output.stat().st_size, 50)
            output.unlink()


    def test_links_are_not_followed(self):
        precious = self.folder / "precious"
        for writer in WRITERS:
            for target in ("precious", "nothing", "t.c" if writer != ["coverage"] else "precious"):
                with self.subTest(writer=writer[0], target=target):
                    precious.write_text("precious")
                    link = self.folder / "a link"
                    link.symlink_to(target)
                    before = {path: digest for path, digest in contents(self.folder).items() if path != str(link)}
                    done = run(*writer, "-q", "-i", "r.data", "-o", link, cwd=self.folder)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertFalse(link.is_symlink())
                    self.assertGreater(link.stat().st_size, 50)
                    link.unlink()
                    self.assertEqual(contents(self.folder), before)
        precious.unlink()

    def test_links_to_inputs_are_refused(self):
        for name, target in (("to recording", "r.data"), ("to program", "t")):
            (self.folder / name).symlink_to(target)
            self.check(["-i", "r.data"], [name])
            self.assertTrue((self.folder / name).is_symlink())
            (self.folder / name).unlink()


class Recordings(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        shutil.copy("/bin/true", self.folder / "t")
        script = self.folder / "script"
        script.write_text("#!/bin/sh\nexit 0\n")
        script.chmod(0o755)
        shutil.copy(SOURCE / "data" / "user" / "plain.bundle", self.folder / "b.ptb")

    def refuses(self, output, program, record=RECORD):
        before = contents(self.folder)
        done = run(*record, "-o", output, "--", program, cwd=self.folder)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(REFUSAL, done.stderr)
        self.assertEqual(contents(self.folder), before)

    def test_record_keeps_programs_and_bundles(self):
        self.refuses("t", "./t")
        self.refuses("t", "/bin/true")
        self.refuses("script", "./script")
        self.refuses("b.ptb", "./t")
        (self.folder / "p.data").write_text("older")
        shutil.copy("/bin/true", self.folder / "p.data.old")
        self.refuses("p.data", "./t")
        shutil.copy(self.folder / "script", self.folder / "p.data.old")  # would be lost
        self.refuses("p.data", "./p.data.old")

    def links(self, record):
        """A link at the output's path becomes NAME.old, and nothing is written through it."""
        (self.folder / "precious").write_text("precious")
        for target in ("precious", "nothing"):
            link = self.folder / "link"
            link.symlink_to(target)
            done = run(*record, "-o", link, "--", "./t", cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertFalse(link.is_symlink())
            self.assertEqual(os.readlink(self.folder / "link.old"), target)
            self.assertFalse((self.folder / "nothing").exists())
            shutil.rmtree(link) if link.is_dir() else link.unlink()
            (self.folder / "link.old").unlink()
        self.assertEqual((self.folder / "precious").read_text(), "precious")

    def test_record_writes_through_no_link(self):
        self.links(RECORD)
        truth = self.folder / "truth"
        self.assertEqual(run(*RECORD, "--truth", truth, "-o", "p.data", "--", "./t", cwd=self.folder).returncode, 0)
        victim = self.folder / "victim"
        victim.write_text("precious")
        names = sorted(path.name for path in truth.iterdir())
        for name in names:
            (truth / name).unlink()
            (truth / name).symlink_to(victim)
        self.assertEqual(run(*RECORD, "--truth", truth, "-o", "p.data", "--", "./t", cwd=self.folder).returncode, 0)
        self.assertEqual(victim.read_text(), "precious")

    def test_of_this_machine(self):
        sideband = ["record", "-q", "--no-stash", "--sideband"]
        if run(*sideband, "-o", "s.data", "--", "./t", cwd=self.folder).returncode != 0:
            self.skipTest("perf_event_open() does not work here")
        for output, program in (("t", "./t"), ("t", "/bin/true"), ("script", "./script"), ("b.ptb", "./t")):
            self.refuses(output, program, record=sideband)
        self.links(sideband)

    def test_a_recording_becomes_old(self):
        os.symlink("target", self.folder / "link")
        (self.folder / "target").write_text("target")
        for output in ("p.data", "link"):
            for content in ("first", "second"):
                (self.folder / output).write_text(content) if output != "link" else None
                done = run(*RECORD, "-o", output, "--", "./t", cwd=self.folder)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual((self.folder / output).read_bytes()[:8], b"PERFILE2")
                if output != "link":
                    self.assertEqual((self.folder / (output + ".old")).read_text(), content)
        self.assertEqual((self.folder / "target").read_text(), "target")
        self.assertEqual(list(self.folder.glob("*.part*")), [])

    def full(self, record, limit):
        """On a disk that is full after `limit` bytes of a file: nothing is at a new name, and an old name keeps its file."""
        old = self.folder / "x.data.old"
        for earlier in (None, b"earlier recording"):
            output = self.folder / "x.data"
            if earlier:
                output.write_bytes(earlier)
                old.write_bytes(b"still older")
            done = run(*record, "-o", "x.data", "--", "./t", cwd=self.folder,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(output.read_bytes() if output.exists() else None, earlier, done.stderr)
            if earlier and "--emulate" in record:
                self.assertEqual(old.read_bytes(), b"still older")
            output.unlink(missing_ok=True)
            old.unlink(missing_ok=True)
        self.assertEqual(list(self.folder.glob("*.part*")), [])

    def test_a_full_disk_leaves_the_earlier_recording(self):
        self.full(RECORD, 0)
        sideband = ["record", "-q", "--no-stash", "--sideband"]
        if run(*sideband, "-o", "s.data", "--", "./t", cwd=self.folder).returncode != 0:
            self.skipTest("of --sideband: perf_event_open() does not work here")
        self.full(sideband, 0)
        self.full(sideband, 500)

    def test_too_few_files(self):
        """Where the emulator has no descriptor left for its logs, the program ran, and the message says what was missing."""
        named = False
        for limit in range(5, 12):
            done = run(*RECORD, "-o", "x.data", "--", "/bin/true", cwd=self.folder, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
            self.assertNotIn("did not start", done.stderr, limit)
            named = named or f"nothing was recorded: a process may open only {limit} files; raise the limit (ulimit -n)" in done.stderr
        self.assertTrue(named)


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("qemu-x86_64 is missing: skipped")
        sys.exit(77)
    unittest.main()
