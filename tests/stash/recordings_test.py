#!/usr/bin/env python3
"""Programs that are upgraded, deleted or replaced after they were recorded still decode correctly, from the stash.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC; PTDECODE_CROWD: recorders at once (default 6). Exit status 77 without qemu-x86_64.
"""
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
CROWD = int(os.environ.get("PTDECODE_CROWD", "6"))

BRANCHES = """
#include <stdio.h>
long answer(long x);
__asm__("answer: cmp $42, %rdi; jne 1f; mov %rdi, %rax; 1: lea 1(%rdi), %rax; ret");
int main(void) { long sum = 0; for (long i = 0; i < 60; ++i) sum += answer(i); printf("%ld\\n", sum); return 0; }
"""

MAPPED = """
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
  char* code = mmap((void*)0x500000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  char path[64];
  memcpy(code, "\\x90\\xb8\\x05\\0\\0\\0\\xc3", 7);
  snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
  FILE* map = fopen(path, "w");
  fprintf(map, "500000000 7 mapped_five\\n");
  fclose(map);
  return ((int (*)(void))code)() - 5;
}
"""


class Recordings(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.stash = self.folder / "cache" / "ptdecode"
        self.program = self.folder / "sorter"
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "DEBUGINFOD_URLS": ""}
        self.environment.pop("PTDECODE_STASH", None)

    def run_it(self, *words, status=0):
        done = subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=120, env=self.environment)
        self.assertEqual(done.returncode, status, (words, done.stdout[-2000:], done.stderr[-2000:]))
        return done

    def compile(self, level, build_id):
        subprocess.run([os.environ.get("CC", "cc"), level, "-g", "-fno-inline", "-w", "-static", f"-Wl,--build-id={build_id}",
                        SOURCE / "tests/cli/programs/sorter.c", "-o", self.program], check=True)

    def record(self, *words):
        return self.run_it("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", self.folder / "rec", *words, "--", self.program)

    def flow(self, *words, status=0):
        return self.run_it("functions", "-i", self.folder / "rec", "-q", "--limit", "0", *words, status=status).stdout

    def images(self):
        return {image["path"]: image for image in json.loads(self.run_it("info", "--json", "-i", self.folder / "rec").stdout)["images"]}

    def upgrade(self, build_id):
        """Writes another build to its path, with another inode, as a package manager does."""
        self.program.rename(self.folder / "away")
        self.compile("-O0", build_id)

    def test_an_upgraded_program_decodes_as_it_ran(self):
        self.compile("-O2", "sha1")
        said = self.record().stderr
        self.assertIn(f"saved in {self.stash}: ", said)
        whole = self.flow()
        self.assertEqual(self.images()[str(self.program)]["from"], "path")
        self.upgrade("sha1")
        self.assertEqual(self.flow(), whole)
        image = self.images()[str(self.program)]
        self.assertEqual(image["from"], "stash")
        kept = pathlib.Path(image["file"])
        self.assertEqual(kept.read_bytes(), (self.folder / "away").read_bytes())
        self.assertEqual(kept.parent.name + kept.name, hashlib.sha256(kept.read_bytes()).hexdigest())
        told = self.run_it("stat", "-i", self.folder / "rec").stderr
        self.assertIn(f"changed or removed since they were recorded: {self.program}: the copies in the stash are used", told)
        # Without the stash the other build is refused and named.
        self.assertNotEqual(self.flow("--stash", "off"), whole)
        self.assertIn("build_id_mismatch", self.run_it("check", "-i", self.folder / "rec", "--stash", "off", status=3).stdout)

    def test_a_stripped_program_keeps_its_names_and_lines(self):
        """The copy in the stash has the symbols and lines that the file at its path has lost since it was recorded."""
        debug = ["objcopy", "--only-keep-debug", self.program, self.folder / "sorter.debug"]
        link = ["objcopy", f"--add-gnu-debuglink={self.folder / 'sorter.debug'}", self.program]
        for build_id, stash, changes in (
                ("sha1", "", [["strip", self.program]]), ("sha1", "", [["strip", "--strip-debug", self.program]]),
                ("sha1", "", [["strip", "-K", "main", self.program]]), ("none", "", [["strip", self.program]]),
                ("sha1", "off", [debug, ["strip", self.program], link]),
                ("sha1", "off", [debug, ["strip", "--strip-debug", self.program], link])):
            with self.subTest(build_id=build_id, changes=[each[:2] for each in changes]):
                self.compile("-O2", build_id)
                self.record()
                before = self.code_names("--stash", stash) if stash else self.code_names()
                for change in changes:
                    subprocess.run(change, check=True)
                after = self.code_names("--stash", stash) if stash else self.code_names()
                self.assertEqual(before.keys(), after.keys())
                for command in before:
                    self.assertIn("sort", before[command])
                    if stash:  # nothing proves that the code of the changed file is the recorded one
                        after[command] = after[command].replace(" {assumed}", "")
                    self.assertTrue(before[command] == after[command], command)
                if not stash:
                    lines = self.run_it("script", "-F", "ip,sym,symoff,srcline", "-i", self.folder / "rec", "-q", "--stash", "off").stdout
                    self.assertTrue(lines != before["branches"])

    def test_a_debug_file_of_another_build_is_refused_by_name(self):
        """.gnu_debuglink names it, and has the CRC that binutils computed of the right file."""
        debug = self.folder / "sorter.debug"
        for build_id in ("sha1", "none"):
            self.compile("-O2", build_id)
            subprocess.run(["objcopy", "--only-keep-debug", self.program, debug], check=True)
            subprocess.run(["strip", self.program], check=True)
            subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", self.program], check=True)
            self.record()
            words = ["functions", "-i", self.folder / "rec", "--stash", "off", "--limit", "0"]
            right = debug.read_bytes()
            named = self.run_it(*words)
            self.assertIn("sort", named.stdout)
            self.assertNotIn("not the debug information", named.stderr)
            for content in (right[:-1] + bytes([right[-1] ^ 1]), right + b"\0"):
                debug.write_bytes(content)
                refused = self.run_it(*words)
                self.assertNotIn("sort (", refused.stdout)
                self.assertIn(f"{debug}: not the debug information of {self.program}, because its CRC is not the one in .gnu_debuglink", refused.stderr)

    def code_names(self, *words):
        """Returns what each command that names code prints about the recording."""
        rec = ["-i", self.folder / "rec", "-q", *words]
        bundle = self.folder / "names.ptbundle"
        bundle.unlink(missing_ok=True)
        self.run_it("bundle", *rec, "-o", bundle)
        commands = {"functions": ["functions", "--limit", "0"], "coverage": ["coverage"], "flame": ["flame", "--format", "folded"],
                    "branches": ["script", "-F", "ip,sym,symoff,srcline"], "calls": ["script", "--call-trace"]}
        said = {name: self.run_it(*command, *rec).stdout for name, command in commands.items()}
        self.run_it("timeline", "-o", self.folder / "timeline", *rec)
        said["timeline"] = (self.folder / "timeline").read_bytes().decode("latin-1")
        said["bundle"] = self.run_it("functions", "--limit", "0", "-q", "-i", bundle, *words).stdout
        return said

    def test_without_a_build_id_the_recordings_own_entry_is_proof(self):
        self.compile("-O2", "none")
        self.record()
        whole = self.flow()
        self.upgrade("none")
        self.assertEqual(self.flow(), whole)
        self.assertEqual(self.images()[str(self.program)]["from"], "stash")
        # The recording may be moved: it is identified by its content.
        shutil.copy(self.folder / "rec", self.folder / "moved")
        os.rename(self.folder / "moved", self.folder / "rec")
        self.assertEqual(self.flow(), whole)
        # Nothing of another recording is used.
        self.record()
        self.assertEqual(self.images()[str(self.program)]["file"] == str(self.folder / "away"), False)
        self.assertNotEqual(self.flow(), whole)

    def test_without_a_build_id_a_file_whose_time_was_restored_is_doubted(self):
        self.compile("-O2", "none")
        self.record("--no-stash")
        info = os.stat(self.program)
        time.sleep(0.1)  # some ticks of the clock that dates files
        with open(self.program, "r+b") as file:  # in place: the same inode
            first = file.read(1)
            file.seek(0)
            file.write(first)
        os.utime(self.program, ns=(info.st_atime_ns, info.st_mtime_ns))
        for command in ("stat", "functions", "script"):
            self.assertIn(f"may have changed since they were mapped: {self.program}: used and marked assumed",
                          self.run_it(command, "-i", self.folder / "rec").stderr)
        self.assertIn("file_changed", self.run_it("check", "-i", self.folder / "rec", status=3).stdout)
        said = self.run_it("stash", "add", "-i", self.folder / "rec").stderr
        self.assertIn(f"{self.program}: changed after it was mapped, and there is no build id to check it", said)
        self.assertIn("may have changed", self.run_it("stat", "-i", self.folder / "rec").stderr)

    def test_without_a_build_id_a_file_that_changes_during_the_recording_is_doubted(self):
        for change, said in (("chmod 711 sorter", "may have changed since they were mapped"), ("echo >> sorter", "replaced or written to"),
                             ("mv sorter old; cp -p old new; rm old; mv new sorter", "replaced or written to")):
            self.compile("-O2", "none")
            done = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", "rec", "--", "sh", "-c",
                                   f"sleep 0.1; ./sorter; sleep 2; {change}"], cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            # The emulator's recorder has compared the file with what was mapped; other recorders do not.
            recording = (self.folder / "rec").read_bytes()
            self.assertEqual(recording.count(b"emulated by QEMU"), 1)
            told = self.run_it("stat", "-i", self.folder / "rec").stderr
            self.assertEqual(f"replaced or written to since they were recorded: {self.program}: " in told, "chmod" not in change, told)
            (self.folder / "rec").write_bytes(recording.replace(b"emulated by QEMU", b"recorded by perf"))
            told = self.run_it("stat", "-i", self.folder / "rec").stderr
            self.assertRegex(told, f"{said}.*{self.program}: ", change)
            added = self.run_it("stash", "add", "-i", self.folder / "rec").stderr
            self.assertRegex(added, f"{self.program}: (changed after it was mapped|it has been replaced)", change)

    def verify(self, *words):
        """Returns a dictionary with the numbers that `verify` prints before "right" and after "silently wrong"."""
        truth = next((self.folder / "truth").iterdir())
        said = self.run_any("verify", "-i", self.folder / "rec", truth, *words).stdout
        return {"right": int(re.search(r"right (\d+)", said)[1]), "silent": int(re.search(r"silently wrong (\d+)", said)[1]),
                "wrong": int(re.search(r"wrong but flagged (\d+)", said)[1]), "all": int(re.search(r": (\d+) instructions", said)[1])}

    def run_any(self, *words):
        return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=120, env=self.environment)

    def record_branches(self, *words):
        """Records a program with one conditional jump of known bytes, which patch() inverts."""
        source = self.folder / "branches.c"
        source.write_text(BRANCHES)
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-Wl,--build-id=sha1", source, "-o", self.program], check=True)
        self.record("--work-clock", "--truth", self.folder / "truth", *words)
        self.assertEqual(self.verify()["right"], self.verify()["all"])

    def patch(self, path, keep_time=False):
        content, times = path.read_bytes(), path.stat()
        at = content.index(bytes.fromhex("4883ff2a7503"))
        with open(path, "r+b") as file:
            file.seek(at + 4)
            file.write(b"\x74")  # je
        if keep_time:
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def assert_changed(self, path, said, *words):
        found = self.run_it("check", "-i", self.folder / "rec", *words, status=3).stdout
        self.assertIn(f"file_changed: {path} {said}", found)

    def test_a_file_that_is_changed_in_place_keeps_its_build_id_but_is_not_used(self):
        self.record_branches()
        root = self.folder / "root"
        copy = root / str(self.program).lstrip("/")
        copy.parent.mkdir(parents=True)
        shutil.copy(self.program, copy)
        self.assertEqual(self.run_it("check", "-i", self.folder / "rec", "--symfs", root).stdout.count("file_changed"), 0)
        self.patch(copy)
        differs = "has the recorded build id, but was changed: its code differs from the copy in the stash, which is used"
        self.assert_changed(copy, differs, "--symfs", root)
        for keep_time in (True, False):
            if keep_time:
                self.patch(self.program, keep_time)
            else:
                os.utime(self.program)
            counts = self.verify()
            self.assertEqual((counts["right"], counts["silent"]), (counts["all"], 0))
            self.assert_changed(self.program, differs)
            self.assertEqual(self.images()[str(self.program)]["from"], "stash")
        self.run_it("bundle", "-i", self.folder / "rec", "-o", self.folder / "rec.ptb")
        shutil.move(self.folder / "rec.ptb", self.folder / "rec")
        counts = self.verify()
        self.assertEqual((counts["right"], counts["silent"]), (counts["all"], 0))

    def test_a_file_with_the_build_id_that_is_newer_than_the_recording_is_assumed(self):
        self.record_branches("--no-stash")
        newer = "was written to after the recording: it has the recorded build id, but nothing proves that its code is unchanged"
        info = os.stat(self.program)
        self.program.rename(self.folder / "away")
        shutil.copy2(self.folder / "away", self.program)  # as a package manager: another file with the old time
        self.assertIn("no findings", self.run_it("check", "-i", self.folder / "rec").stdout)
        self.patch(self.program)
        counts = self.verify()
        self.assertGreater(counts["wrong"], 0)
        self.assertEqual(counts["silent"], 0)
        self.assert_changed(self.program, newer)
        self.assertIn(f"may have changed since they were mapped: {self.program}", self.run_it("stat", "-i", self.folder / "rec").stderr)
        self.assertIn(f"{self.program}: modified since", self.run_it("stash", "add", "-i", self.folder / "rec").stderr)
        # A copy below --symfs is new, and proven by its build id.
        root = self.folder / "root"
        copy = root / str(self.program).lstrip("/")
        copy.parent.mkdir(parents=True)
        shutil.copy(self.folder / "away", copy)
        counts = self.verify("--symfs", root)
        self.assertEqual((counts["right"], counts["silent"]), (counts["all"], 0))
        self.assertIn("no findings", self.run_it("check", "-i", self.folder / "rec", "--symfs", root).stdout)
        # The only copy of that build in the stash is older than the recording.
        os.utime(self.folder / "away", ns=(info.st_atime_ns, info.st_mtime_ns))
        shutil.copy2(self.folder / "away", self.program)
        (self.folder / "rec").rename(self.folder / "first")
        shutil.move(self.folder / "truth", self.folder / "first.truth")
        self.record()
        (self.folder / "first").rename(self.folder / "rec")
        os.utime(self.folder / "rec")
        shutil.move(self.folder / "first.truth", self.folder / "truth")
        time.sleep(0.1)  # file times are as coarse as the kernel's ticks
        self.patch(self.program)
        counts = self.verify()
        self.assertEqual((counts["right"], counts["silent"]), (counts["all"], 0))

    def test_damaged_symbol_tables_are_named(self):
        self.compile("-O2", "sha1")
        self.record()
        content = self.program.read_bytes()
        sections, (count, names) = struct.unpack_from("<Q", content, 40)[0], struct.unpack_from("<HH", content, 60)
        strings = struct.unpack_from("<Q", content, sections + 64 * names + 24)[0]
        place = {}
        for i in range(count):
            at = sections + 64 * i
            begin = strings + struct.unpack_from("<I", content, at)[0]
            place[content[begin:content.index(b"\0", begin)].decode()] = at
        root = self.folder / "root"
        copy = root / str(self.program).lstrip("/")
        copy.parent.mkdir(parents=True)
        for section, field, said in ((".symtab", 24, "its symbol table is damaged"), (".strtab", 24, "its symbol table is damaged"),
                                     (".debug_info", 24, "its debug information is damaged"), (".debug_abbrev", 24, "its debug information is damaged")):
            damaged = bytearray(content)
            struct.pack_into("<Q", damaged, place[section] + field, 1 << 60)
            copy.write_bytes(damaged)
            for command in ("stat", "functions"):
                self.assertIn(f"{copy}: {said}", self.run_it(command, "-i", self.folder / "rec", "--symfs", root).stderr, section)
        damaged, first = bytearray(content), struct.unpack_from("<Q", content, 32)[0]
        headers = [first + 56 * i for i in range(struct.unpack_from("<H", content, 56)[0])]
        (code,) = [at for at in headers if struct.unpack_from("<II", content, at)[0] == 1 and struct.unpack_from("<II", content, at)[1] & 1]
        damaged[code + 9] ^= 0x10  # the offset of the segment in the file, by 4096
        copy.write_bytes(damaged)
        said = self.run_it("functions", "-i", self.folder / "rec", "--symfs", root).stderr
        self.assertIn(f"{copy}: its symbol table is damaged (its segments and sections place ", said)
        copy.write_bytes(content)
        self.assertNotIn("damaged", self.run_it("functions", "-i", self.folder / "rec", "--symfs", root).stderr)

    def test_a_deleted_program_decodes(self):
        self.compile("-O2", "sha1")
        self.record()
        whole = self.flow()
        self.program.unlink()
        self.assertEqual(self.flow(), whole)

    def test_a_damaged_copy_is_refused_and_named(self):
        self.compile("-O2", "sha1")
        self.record()
        whole = self.flow()
        self.program.unlink()
        kept = pathlib.Path(self.images()[str(self.program)]["file"])
        content = bytearray(kept.read_bytes())
        content[len(content) // 2] ^= 1
        kept.chmod(0o600)
        kept.write_bytes(content)
        kept.chmod(0o400)
        self.assertNotEqual(self.flow(), whole)
        self.assertIn(f"{kept} is damaged", self.run_it("stat", "-i", self.folder / "rec").stderr)
        found = self.run_it("stash", "verify", status=3).stdout
        self.assertIn(f"{kept}: damaged", found)
        self.assertIn("(removed)", self.run_it("stash", "verify", "--remove", status=3).stdout)

    @contextlib.contextmanager
    def replaced(self, place, make):
        """Something else in place of a part of the stash."""
        away = self.folder / "away"
        place.rename(away)
        make(place)
        try:
            yield
        finally:
            place.rmdir() if place.is_dir() and not place.is_symlink() else place.unlink()
            away.rename(place)

    def test_a_foreign_kind_of_file_in_the_stash_is_named_and_the_stash_not_used(self):
        self.compile("-O2", "sha1")
        self.record()
        parts = ["format", "lock", "objects", "build-ids", "recordings", "incoming"]
        kinds = [("a FIFO", os.mkfifo, parts), ("a link", lambda place: place.symlink_to("/dev/zero"), parts), ("a folder", pathlib.Path.mkdir, parts[:2])]
        for kind, make, name in ((kind, make, name) for kind, make, names in kinds for name in names):
            place = self.stash / name
            with self.subTest(kind=kind, name=name), self.replaced(place, make):
                said = f"{place} is a link and is not followed\n" if kind == "a link" else f"{place}: not a "
                for words in (("stat",), ("script", "--itrace=g"), ("check",), ("info",), ("functions",), ("bundle", "-o", self.folder / "bundle")):
                    done = self.run_it(words[0], "-i", self.folder / "rec", *words[1:])
                    self.assertEqual((done.stdout + done.stderr).count(f"the stash {self.stash} is not used: {said}"), 1, (words, done.stderr))
                for words in (("ls",), ("gc",), ("verify",), ("add", "-i", self.folder / "rec")):
                    self.assertIn(said, self.run_it("stash", *words, status=1).stderr)
                done = self.run_it("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", self.folder / "again", "--", self.program)
                self.assertEqual(done.stderr.count(f"the recorded code is not saved: {said}"), 1, done.stderr)
        whole = self.flow()
        self.program.unlink()
        self.assertEqual(self.flow(), whole)

    def test_a_foreign_kind_of_file_below_the_stash_is_named(self):
        self.compile("-O2", "sha1")
        self.record()
        recording = next((self.stash / "recordings").iterdir())
        digest = hashlib.sha256(self.program.read_bytes()).hexdigest()
        content = self.stash / "objects" / digest[:2] / digest[2:]
        build_ids = self.stash / "build-ids" / self.images()[str(self.program)]["build_id"][:2]
        self.program.unlink()
        for make in (os.mkfifo, lambda place: place.symlink_to("/dev/zero")):
            for place in (content, content.parent, recording, recording / "entries", build_ids):
                with self.subTest(place=place), self.replaced(place, make):
                    if place != build_ids:  # the entries suffice
                        self.assertIn(str(place), self.run_it("stat", "-i", self.folder / "rec").stderr)
                    self.assertIn(str(place), self.run_it("stash", "verify", status=3).stdout)
                    self.run_it("stash", "ls")
        self.run_it("stash", "verify")

    def test_who_does_not_want_it_has_none(self):
        self.compile("-O2", "sha1")
        self.record("--no-stash")
        self.assertFalse(self.stash.exists())
        self.assertIn("not saved", self.record("--stash-limit", "1K").stderr)
        self.assertEqual(json.loads(self.run_it("stash", "ls", "--json").stdout)["contents"], [])

    def test_before_anything_is_kept_that_is_said(self):
        for action in ("ls", "gc", "verify"):
            self.assertEqual(self.run_it("stash", action).stdout, f"{self.stash}: empty\n")
        listing = json.loads(self.run_it("stash", "ls", "--json").stdout)
        self.assertEqual((listing["schema"], listing["recordings"], listing["contents"]), ("ptdecode-stash-1", [], []))
        self.assertFalse(self.stash.exists(), "looking makes none")

    def test_a_stash_that_is_named_must_be_there(self):
        wrong = self.folder / "mistyped"
        for words in (["ls"], ["ls", "--json"], ["gc"], ["verify"]):
            done = self.run_it("stash", *words, "--stash", wrong, status=1)
            self.assertEqual((done.stdout, done.stderr.count(f"{wrong} does not exist")), ("", 1))
            self.assertFalse(wrong.exists())

    def test_every_command_spells_its_format_alike(self):
        for words, schema in ((("stash", "ls"), "ptdecode-stash-1"), (("doctor",), "ptdecode-doctor-1")):
            for how in (("--json",), ("--format", "json")):
                done = subprocess.run([PTDECODE, *words, *how], capture_output=True, text=True, timeout=120, env=self.environment)
                self.assertIn(done.returncode, (0, 3), done.stderr)
                self.assertEqual(json.loads(done.stdout)["schema"], schema)
                self.assertIn(schema, (SOURCE / "docs/FORMAT-json.md").read_text())

    def test_a_recording_of_perfs_own_is_added_by_hand(self):
        self.compile("-O2", "sha1")
        self.record("--no-stash")
        whole = self.flow()
        self.run_it("stash", "add", "-i", self.folder / "rec")
        self.upgrade("sha1")
        self.assertEqual(self.flow(), whole)

    def test_ls_and_gc(self):
        self.compile("-O2", "sha1")
        self.record()
        listed = self.run_it("stash", "ls").stdout
        self.assertIn(str(self.folder / "rec"), listed)
        listing = json.loads(self.run_it("stash", "ls", "--json").stdout)
        entry = next(entry for entry in listing["recordings"][0]["entries"] if entry["path"] == str(self.program))
        self.assertEqual(entry["hash"], hashlib.sha256(self.program.read_bytes()).hexdigest())
        self.assertIn(str(self.program), self.run_it("stash", "ls", "--contents").stdout)
        self.run_it("stash", "gc", "--gone", "--older-than", "1d", "--max-size", "1G")
        self.assertEqual(json.loads(self.run_it("stash", "ls", "--json").stdout), listing)
        (self.folder / "rec").unlink()
        self.assertIn(f"would be forgotten: {self.folder / 'rec'}", self.run_it("stash", "gc", "--gone", "-n").stdout)
        self.run_it("stash", "gc", "--gone")
        after = json.loads(self.run_it("stash", "ls", "--json").stdout)
        self.assertEqual((after["contents"], after["recordings"], after["bytes"]), ([], [], 0))
        for wrong in (("--older-than", "soon"), ("--max-size", "much")):
            self.run_it("stash", "gc", *wrong, status=2)

    def test_a_folder_of_other_files_is_no_stash(self):
        mine = self.folder / "mine"
        mine.mkdir()
        (mine / "notes").write_text("mine")
        self.compile("-O2", "sha1")
        for words in (("stash", "gc"), ("stash", "gc", "--dry-run"), ("stash", "verify"), ("stash", "add", "-i", self.folder / "rec")):
            if words[1] == "add":
                self.record("--no-stash")
            said = self.run_it(*words, "--stash", mine, status=2).stderr
            self.assertEqual(said, f"ptdecode: {mine}: not a stash, and not empty (it has notes): name a stash, an empty folder or a new one\n")
            self.assertEqual([path.name for path in mine.iterdir()], ["notes"])
        (mine / "notes").unlink()
        self.assertEqual(self.run_it("stash", "gc", "--stash", mine).stdout, f"{mine}: empty\n")
        self.run_it("stash", "add", "-i", self.folder / "rec", "--stash", mine)
        self.assertIn("0 files, 0 bytes freed", self.run_it("stash", "gc", "--stash", mine).stdout)

    def test_an_empty_variable_is_an_error(self):
        self.environment["PTDECODE_STASH"] = ""
        said = self.run_it("stash", status=2).stderr
        self.assertEqual(said, "ptdecode: the environment variable PTDECODE_STASH has an empty value: set it to a folder, or unset it\n")
        self.run_it("--help")

    def test_what_is_not_known_of_a_recording_has_no_date(self):
        # Entries that cannot be read: another user's in the machine's stash, or damaged ones.
        self.compile("-O2", "sha1")
        self.record()
        entries = next((self.stash / "recordings").rglob("entries"))
        entries.write_text("no entries\n")
        listed = self.run_it("stash", "ls").stdout
        self.assertNotIn("1970", listed)
        self.assertRegex(listed, r"(?m)^unknown .* unknown ")
        recording = json.loads(self.run_it("stash", "ls", "--json").stdout)["recordings"][0]
        self.assertIsNone(recording["made_s"])
        self.assertNotEqual(recording["trouble"], "")

    @unittest.skipUnless(os.geteuid() == 0, "needs root, for perf events and /proc/PID/map_files")
    def test_a_jitdump_is_found_on_another_day(self):
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-w", "-pthread", SOURCE / "tests/emulate/programs/jit.c", "-o", self.program], check=True)
        self.record()
        whole = self.run_it("script", "-i", self.folder / "rec", "-q", "--itrace=b", "-F", "ip,sym").stdout
        (self.folder / "rec.jit").rename(self.folder / "away")
        self.assertEqual(self.run_it("script", "-i", self.folder / "rec", "-q", "--itrace=b", "-F", "ip,sym").stdout, whole)
        shown = subprocess.run([PTDECODE, "script", "-i", self.folder / "rec", "-q", "--itrace=b", "-F", "ip,sym", "--stash", "off"],
                               capture_output=True, text=True, timeout=120, env=self.environment).stdout
        self.assertNotEqual(shown, whole, "the code is in the jitdump alone")

    def test_what_only_its_process_had_is_kept_while_it_lives(self):
        program = self.folder / "gone"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-w", SOURCE / "tests/stash/programs/gone.c", "-o", program], check=True)
        words = [PTDECODE, "record", "--sideband", "-o", self.folder / "rec", "--", program, self.folder / "scratch"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=self.environment)
        if "perf event" in done.stderr:
            self.skipTest("perf events are not to be had: " + done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        pid, total, *places = done.stdout.split()
        self.assertEqual(total, "5")  # 1 + 1 + 1, and 2
        deleted, memory, anonymous = (int(place, 16) for place in places)
        listing = json.loads(self.run_it("stash", "ls", "--json").stdout)
        entries = [entry for entry in listing["recordings"][0]["entries"] if entry["pid"] == int(pid)]
        page = bytes([0xB8, 1, 0, 0, 0, 0xC3]).ljust(4096, b"\0")
        changed = bytes([0xB8, 2, 0, 0, 0, 0xC3]).ljust(4096, b"\0")
        kinds = {place: [(entry["kind"], entry["hash"]) for entry in entries if entry["address"] == place] for place in (deleted, memory, anonymous)}
        self.assertEqual(kinds[deleted], [("deleted", hashlib.sha256(page).hexdigest())])
        self.assertEqual(kinds[memory], [("memory", hashlib.sha256(page).hexdigest())])
        copies = [one for kind, one in kinds[anonymous] if kind == "anonymous"]
        self.assertEqual(copies[-2:], [hashlib.sha256(page).hexdigest(), hashlib.sha256(changed).hexdigest()])
        self.assertIn("vdso", [entry["kind"] for entry in entries])
        self.assertIn(str(program), [entry["path"] for entry in entries])
        # The reader has the bytes, and the readings between which they changed.
        tables = self.run_it("image", "-q", "-i", self.folder / "rec", "--pid", pid).stdout
        for place in (deleted, memory, anonymous):
            self.assertRegex(tables, rf"{place:016x}-{place + 4096:016x} bytes", place)
        self.assertRegex(tables, rf"{anonymous:016x}-.*assumed")
        versions = self.run_it("image", f"{anonymous:x}", "--versions", "--size", "6", "-q", "-i", self.folder / "rec", "--pid", pid).stdout
        self.assertRegex(versions, r"(?s)\b01\b.*\b02\b", versions)

    def test_equal_perf_maps_of_many_processes(self):
        """A stash has equal content once, but each process has its names."""
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-w", "-x", "c", "-", "-o", self.program], input=MAPPED, text=True, check=True)
        script = self.folder / "processes"
        script.write_text(f"for i in 1 2 3 4 5 6 7 8 9 10; do {self.program}; done\n")
        self.run_it("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", self.folder / "rec", "--", "sh", script)
        threads = [line["tid"] for line in json.loads(self.run_it("info", "-i", self.folder / "rec", "--json").stdout)["threads"]]
        for tid in threads:
            pathlib.Path(f"/tmp/perf-{tid}.map").unlink(missing_ok=True)
        done = self.run_it("functions", "-i", self.folder / "rec", "--limit", "0", "--format", "json")
        named = [line for line in map(json.loads, done.stdout.splitlines()[1:]) if line["function"] == "mapped_five"]
        self.assertEqual((len(named), sum(line["calls"] for line in named)), (10, 10))
        self.assertNotIn("too many processes", done.stderr)

    def test_recorders_at_once(self):
        self.compile("-O2", "sha1")
        recorders = [subprocess.Popen([PTDECODE, "record", "--emulate", "-q", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", self.folder / f"rec{i}", "--", self.program],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.environment) for i in range(CROWD)]
        for recorder in recorders:
            self.assertEqual(recorder.wait(300), 0, recorder.stderr.read())
            recorder.stderr.close()
        listing = json.loads(self.run_it("stash", "ls", "--json").stdout)
        self.assertEqual(len(listing["recordings"]), CROWD)
        by_path = [content for content in listing["contents"] if str(self.program) in content["paths"]]
        self.assertEqual([content["recordings"] for content in by_path], [CROWD])
        self.assertEqual(listing["in_the_making"], 0)
        self.run_it("stash", "verify")


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    unittest.main(verbosity=2)
