#!/usr/bin/env python3
"""Programs whose file is removed or replaced while they are recorded have the names and counts that their source gives. A recording is
completed in a folder that was renamed meanwhile.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
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
SOURCE = os.path.join(os.environ["PTDECODE_SOURCE"], "tests/emulate/programs/counted.c")
WANTED = {"steps_to_one": 499, "pick": 301, "main": 1}


class GoneFiles(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.env = dict(os.environ, PTDECODE_STASH=self.folder + "/stash")
        for name, flags in (("first", []), ("second", ["-DSHORTER"])):
            subprocess.run([os.environ.get("CC", "cc"), "-O0", "-g", *flags, SOURCE, "-o", f"{self.folder}/{name}"], check=True)
        shutil.copy(self.folder + "/first", self.folder + "/prog")

    def record(self, script):
        subprocess.run([PTDECODE, "record", "-q", "--emulate", "--plugin", PLUGIN, "-o", "rec.data", "--", "sh", "-c", script], check=True,
                       cwd=self.folder, env=self.env, stdout=subprocess.DEVNULL)

    def calls(self, *options, **env):
        """Returns the calls by function and module, and those that began or ended unseen."""
        done = subprocess.run([PTDECODE, "functions", "-q", "-i", "rec.data", "--limit", "0", "--comm", "prog", *options], check=True,
                              capture_output=True, text=True, cwd=self.folder, env={**self.env, **env})
        rows = {}
        for line in done.stdout.splitlines():
            row = re.fullmatch(r" *(\d+) .* (?:(\S+) \(prog(?: \[\w{8}\])?\)|(prog\+\S+|\[anon \d+\]\S+))( \[.*\])?", line)
            if row:
                rows.setdefault(row[2] or row[3], []).append(int(row[1]))
                self.assertNotIn("without start", line)
        return rows

    def check_names(self, rows, wanted):
        self.assertEqual({name: sum(rows.get(name, ())) for name in wanted}, wanted)
        self.assertEqual([name for name in rows if name.startswith("[anon")], [])

    def test_a_removed_file_with_a_copy_in_the_stash(self):
        """A recording of the same program, made before, left the copy."""
        self.record("./prog")
        self.record("./prog; rm ./prog")
        self.check_names(self.calls(), WANTED)

    def test_a_removed_file_below_a_root(self):
        self.record("./prog; rm ./prog")
        root = self.folder + "/root"
        os.makedirs(root + self.folder)
        shutil.copy(self.folder + "/first", root + self.folder + "/prog")
        self.check_names(self.calls("--symfs", root, PTDECODE_STASH=self.folder + "/none"), WANTED)

    def test_a_removed_file_without_a_copy(self):
        """Each function is named by the file and its offset, which nm gives too."""
        self.record("./prog; rm ./prog")
        listed = subprocess.run(["nm", self.folder + "/first"], check=True, capture_output=True, text=True).stdout
        places = {name: f"prog+{int(at, 16):#x}" for at, name in re.findall(r"^(\w+) [Tt] (\w+)$", listed, re.M)}
        rows = self.calls(PTDECODE_STASH=self.folder + "/none")
        self.check_names(rows, {places[name]: count for name, count in WANTED.items()})

    def test_the_same_bytes_in_another_inode(self):
        self.record("./prog; cp prog p2; mv p2 prog")
        self.check_names(self.calls(), WANTED)

    def test_a_program_that_is_built_again(self):
        self.record("./prog")
        self.record("./prog; cp second new; mv new prog; ./prog")
        rows = self.calls()
        self.check_names(rows, {"steps_to_one": 998, "pick": 502, "main": 2})
        self.assertEqual([len(rows[name]) for name in ("steps_to_one", "pick", "main")], [2, 2, 2])  # each build has a row

    def test_files_without_code_need_no_copy(self):
        """Empty files, of which pages can be mapped, and data: nothing is missing, and nothing is said to be."""
        with open(self.folder + "/maps.c", "w") as file:
            file.write("""#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
static char* mapped(int file) { return mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0); }
int main(void) {
  const int memory = memfd_create("empty", 0), late = memfd_create("late", 0), data = memfd_create("data", 0);
  const int gone = open("gone", O_RDWR | O_CREAT, 0600);
  unlink("gone");
  char* page = mapped(late);
  if (mapped(memory) == MAP_FAILED || mapped(gone) == MAP_FAILED || page == MAP_FAILED) return 1;
  if (ftruncate(late, 4096) != 0 || ftruncate(data, 4096) != 0 || mapped(data) == MAP_FAILED) return 2;
  *page = 1;
  return 0;
}
""")
        subprocess.run([os.environ.get("CC", "cc"), "-w", "-o", "maps", "maps.c"], check=True, cwd=self.folder)
        done = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", PLUGIN, "-o", "rec.data", "--", "./maps"], check=True, cwd=self.folder, env=self.env,
                              capture_output=True, text=True)
        self.assertEqual([line for line in done.stderr.splitlines() if "empty" in line or "late" in line or "data (" in line or "gone" in line], [])

    def test_the_instructions_are_those_that_ran(self):
        """With and without a copy of the file the flow equals the ground truth."""
        truth = self.folder + "/truth"
        subprocess.run([PTDECODE, "record", "-q", "--emulate", "--plugin", PLUGIN, "-o", "rec.data", "--truth", truth, "--", "sh", "-c",
                        "./prog; cp second new; mv new prog; ./prog; rm prog"], check=True, cwd=self.folder, env=self.env,
                       stdout=subprocess.DEVNULL)
        files = [os.path.join(truth, name) for name in sorted(os.listdir(truth)) if name.endswith(".ptt")]
        for stash in ("/stash", "/none"):
            done = subprocess.run([PTDECODE, "verify", "-q", "-i", "rec.data", *files], cwd=self.folder, capture_output=True, text=True,
                                  env=dict(self.env, PTDECODE_STASH=self.folder + stash))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class GoneFolders(unittest.TestCase):
    """The program renames or removes the folders that the recorder uses, and exits with 7."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        os.mkdir(self.folder + "/g3")

    def record(self, script, output="g3/X"):
        return subprocess.run([PTDECODE, "record", "--emulate", "--no-stash", "--plugin", PLUGIN, "--truth", "g3/T", "-o", output, "--", "sh", "-c",
                               script + "; exit 7"], cwd=self.folder, capture_output=True, text=True)

    def check_recording(self, path, truth):
        truths = [f"{truth}/{name}" for name in os.listdir(f"{self.folder}/{truth}")]
        done = subprocess.run([PTDECODE, "verify", "-q", "-i", path, *truths], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_outputs_folder_is_renamed(self):
        done = self.record("mv g3 g4")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn(f"the recording is {os.path.realpath(self.folder)}/g4/X,", done.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), ["g4"])
        self.assertEqual(sorted(os.listdir(self.folder + "/g4")), ["T", "X"])
        self.check_recording("g4/X", "g4/T")

    def test_a_folder_of_the_same_name_takes_its_place(self):
        """The recording is at the path that the user named."""
        done = self.record("mv g3 g4; mkdir g3")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertEqual(os.listdir(self.folder + "/g4"), ["T"])
        self.check_recording("g3/X", "g3/T")

    def test_the_working_folder_is_renamed(self):
        done = self.record("mv g3/X.work-* elsewhere")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), ["g3"])
        self.check_recording("g3/X", "g3/T")

    def test_a_program_after_the_rename_is_reported(self):
        self.record("mv g3 g4; true | cat")
        done = subprocess.run([PTDECODE, "check", "-i", "g4/X"], cwd=self.folder, capture_output=True, text=True)
        self.assertIn("trace_lost", done.stdout)

    def test_the_working_folder_is_removed(self):
        done = self.record("rm -r g3/X.work-*")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("was removed while the program ran", done.stderr)
        self.assertIn("exit status is 7", done.stderr)
        self.assertNotIn("did not start", done.stderr)
        self.assertEqual(os.listdir(self.folder + "/g3"), ["T"])


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    unittest.main()
