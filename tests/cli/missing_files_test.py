#!/usr/bin/env python3
"""A program or library that is gone, unreadable, truncated or only a debug file: `check` names the file and what to supply. It does not claim that
the packets contradict the file, although the program generates code and the flow comes back to what is known of it.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Skips what needs qemu-x86_64, or qemu-aarch64 with clang and lld.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "tests"
CC = os.environ.get("CC", "cc")
CLANG = shutil.which("clang") or shutil.which("clang-14") or shutil.which("clang-19")
HAS_ARM = bool(CLANG and (shutil.which("ld.lld") or shutil.which("ld.lld-14") or shutil.which("ld.lld-19")) and shutil.which("qemu-aarch64"))
NOBODY = 65534


def remove(path):
    path.unlink(missing_ok=True)


def truncate(path):
    """Keeps the start of the file, which has the program headers and the build id."""
    os.truncate(path, 0x1000)


def truncate_headers(path):
    os.truncate(path, 100)


def keep_debug(path):
    subprocess.run(["objcopy", "--only-keep-debug", path, path], check=True)


def forbid(path):
    path.chmod(0)


# What happened to the file, what the finding says of it, and why the code is missing.
FATES = ((remove, "file_missing: {path} \\(build id [0-9a-f]+\\) was not found: supply it as ROOT{path} with --symfs ROOT", "file not found"),
         (truncate, "file_changed: {path} is truncated: it has 4096 bytes, and its program headers name [0-9]+: not used", "file is truncated"),
         (truncate_headers, "build_id_mismatch: {path} has build id \\(none\\)", "wrong build id"),
         (keep_debug, "file_changed: {path} is a separate debug file without code: not used", "file has no code, only debug information"),
         (forbid, "file_missing: {path} cannot be read \\(Permission denied\\)", "file cannot be read"))


class MissingFiles(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name).resolve()
        self.folder.chmod(0o755)
        self.recording = self.folder / "recording"

    def run_it(self, *words, **more):
        return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PTDECODE_STASH": "off", "DEBUGINFOD_URLS": "", "HOME": "/nonexistent"}, **more)

    def record(self, program, *options):
        done = self.run_it("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", self.recording, "--truth", self.folder / "truth", *options,
                           "--", program, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no findings", self.run_it("check", "-q", "-i", self.recording).stdout)
        for path in (self.recording, *self.folder.glob("recording.jit/**/*"), *self.folder.glob("recording.jit")):
            path.chmod(0o755)

    def assert_named(self, path, fates=FATES, ranked_by="share of the trace lost"):
        kept = self.folder / "kept"
        shutil.copy2(path, kept)
        for fate, finding, reason in fates:
            if fate is keep_debug and not shutil.which("objcopy"):
                continue
            with self.subTest(file=path.name, fate=fate.__name__):
                path.unlink(missing_ok=True)
                shutil.copy2(kept, path)
                fate(path)
                who = {"user": NOBODY, "group": NOBODY} if fate is forbid and os.geteuid() == 0 else {}
                checked = self.run_it("check", "-q", "-i", self.recording, **who)
                self.assertEqual(checked.returncode, 3, checked.stdout + checked.stderr)
                self.assertRegex(checked.stdout, f"(?m)^{finding.format(path=re.escape(str(path)))}")
                self.assertRegex(checked.stdout, rf"(?m)^code_missing: {re.escape(str(path))} build id [0-9a-f]+: {reason}; .*supply: --symfs ROOT with ROOT{path}")
                self.assertNotIn("is not the code that ran", checked.stdout)
                said = self.run_it("stat", "-i", self.recording, **who)
                self.assertNotIn("is not the code that ran", said.stdout + said.stderr)
                self.assertRegex(said.stderr, rf"(?m)^missing code, by {ranked_by}:\n +([0-9.]+ %)? +\d+ gaps?  {re.escape(str(path))} build id ")
                self.assertNotIn(" 0.0 %", said.stderr)
                self.assertNotRegex(said.stdout, r"(?m)^ +(image_mismatch|bad_insn) +\d")
                verified = self.run_it("verify", "-q", "-i", self.recording, *(self.folder / "truth").iterdir()).stdout
                self.assertEqual({0}, {int(count) for count in re.findall(r"silently wrong (\d+)", verified)}, verified)
        path.unlink(missing_ok=True)
        shutil.copy2(kept, path)

    @unittest.skipIf(shutil.which("qemu-x86_64") is None, "no qemu-x86_64")
    def test_x86(self):
        library, program, whole = self.folder / "libjobs.so", self.folder / "program", self.folder / "whole"
        code = SOURCE / "cli/programs/missing"
        flags = [CC, "-O1", "-Wl,--build-id"]
        subprocess.run([*flags, "-shared", "-fPIC", code / "jobs.c", "-o", library], check=True)
        subprocess.run([*flags, code / "main.c", "./libjobs.so", "-Wl,-rpath,$ORIGIN", "-o", program], check=True, cwd=self.folder)
        subprocess.run([*flags, "-static", code / "main.c", code / "jobs.c", "-o", whole], check=True)
        for options in ((), ("--no-retcomp", "--short-tnt")):
            self.record(program, *options)
            self.assert_named(program)
            self.assert_named(library)
            shutil.rmtree(self.folder / "truth")
        self.record(whole)
        self.assert_named(whole)
        whole.unlink()
        missing = rf"the code of {re.escape(str(whole))} is missing \(file not found\): 'ptdecode check' says what to supply"
        for words in (("profile", "--dso", "whole"), ("coverage", "--dso", "whole"), ("image", "main")):
            done = self.run_it(words[0], "-q", "-i", self.recording, *words[1:])
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertRegex(done.stderr, missing)

    @unittest.skipIf(shutil.which("qemu-x86_64") is None, "no qemu-x86_64")
    def test_the_file_that_costs_most_is_first(self):
        """Two libraries are missing. One calls the program 1,000 times, and after each return of the program to it the flow is lost: all of these gaps are due
        to it. The other is called 300 times."""
        (self.folder / "calls.c").write_text("""
            int calls(int (*back)(int), int n) {
              volatile int sum = 0;
              for (int i = 0; i < n; ++i) { sum += back(i); for (int k = 0; k < 200; ++k) if ((i * k) & 3) sum += k; }
              return sum;
            }""")
        (self.folder / "plain.c").write_text("int plain(int n) { volatile int sum = 0; for (int k = 0; k < 60; ++k) if ((n * k) & 5) sum += k; return sum; }")
        (self.folder / "program.c").write_text("""
            int calls(int (*back)(int), int n);
            int plain(int n);
            __attribute__((noinline)) int back(int i) { return i & 1 ? 3 : i; }
            int main(void) { int sum = calls(back, 1000); for (int i = 0; i < 300; ++i) sum += plain(i); return sum < 0; }""")
        for name in ("calls", "plain"):
            subprocess.run([CC, "-O1", "-Wl,--build-id", "-shared", "-fPIC", f"{name}.c", "-o", f"lib{name}.so"], check=True, cwd=self.folder)
        subprocess.run([CC, "-O1", "-Wl,--build-id", "program.c", "./libcalls.so", "./libplain.so", "-Wl,-rpath,$ORIGIN", "-o", "program"], check=True, cwd=self.folder)
        self.record(self.folder / "program")
        for name in ("calls", "plain"):
            (self.folder / f"lib{name}.so").unlink()
        stat = json.loads(self.run_it("stat", "--json", "-i", self.recording).stdout)
        first, second = stat["missing_code"]
        self.assertEqual([pathlib.Path(line["path"]).name for line in (first, second)], ["libcalls.so", "libplain.so"])
        # 200 branches of each round, and 60 of each call: nearly all of the trace of both is lost.
        self.assertGreater(first["lost_bytes"], 8 * second["lost_bytes"])
        self.assertAlmostEqual(first["following_gaps"], 1000, delta=10)
        self.assertLess(second["following_gaps"], 10)
        lost = {reason: gap["lost_bytes"] for reason, gap in stat["streams"][0]["gaps"].items() if reason in ("no_image", "unknown_return")}
        self.assertEqual(first["lost_bytes"] + second["lost_bytes"], sum(lost.values()))
        for command in ("stat", "functions"):
            said = self.run_it(command, "-i", self.recording)
            self.assertRegex(said.stderr, r"(?m)^missing code, by share of the trace lost:\n +[6-9][0-9]\.[0-9] % +\d+ gaps?  \S+/libcalls\.so .*; and \d+ gaps that follow")
        self.assertRegex(self.run_it("check", "-i", self.recording).stdout, r"(?m)^code_missing: \S+/libcalls\.so .* the flow is lost in 1\d\d\d places, with [6-9]\d\.\d %")

    @unittest.skipIf(shutil.which("qemu-x86_64") is None, "no qemu-x86_64")
    def test_changed_copies_below_symfs(self):
        """A copy with the recorded build id and other bytes: nothing proves its content, so it is named, also where packets contradict it."""
        source, program = self.folder / "choose.c", self.folder / "program"
        source.write_text(r"""
            __asm__(".globl choose\nchoose: test $1, %edi\n mov %edi, %eax\n jz 1f\n add $3, %eax\n1: ret\n .ascii \"HERE\"\n");
            int choose(int);
            int main(void) { int sum = 0; for (int i = 0; i < 1000; ++i) sum += choose(i); return sum & 1; }""")
        subprocess.run([CC, "-O1", "-static", "-Wl,--build-id", source, "-o", program], check=True)
        self.run_it("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", self.recording, "--truth", self.folder / "truth", "--", program)
        content = program.read_bytes()
        code = bytes.fromhex("f7c70100000089f8740383c003c3") + b"HERE"
        self.assertEqual(content.count(code), 1)
        self.assertEqual(self.run_it("check", "-q", "-i", self.recording).stdout, "no findings: the records, the code bytes and the files agree\n")
        self.assertNotIn("build id alone", self.run_it("info", "-i", self.recording).stdout)
        copy = self.folder / "root" / program.relative_to("/")
        copy.parent.mkdir(parents=True)
        line = f"1 file used by build id alone, which a changed copy keeps: {copy}"
        for change, contradicts in ((b"\x74", False), (b"\x75", False), (b"\x90\x90", True)):
            copy.write_bytes(content.replace(code, code[:8] + change + code[8 + len(change):]))
            checked = self.run_it("check", "-q", "-i", self.recording, "--symfs", self.folder / "root")
            self.assertIn(f"not verified: {line}\n", checked.stdout)
            self.assertIn(line, self.run_it("info", "-i", self.recording, "--symfs", self.folder / "root").stdout)
            self.assertEqual(checked.returncode, 3 if contradicts else 0, checked.stdout)
            if contradicts:
                self.assertIn(f"Its bytes come from {copy}, which has the recorded build id but may have been changed", checked.stdout)

    @unittest.skipUnless(shutil.which("qemu-x86_64"), "no qemu-x86_64")
    def test_code_of_one_path_and_place_that_changes(self):
        """A file that is written and mapped again: the recorder saved what ran. In anonymous memory, the code after the first two bytes changes."""
        image, program = self.folder / "code.bin", self.folder / "rewrites"
        subprocess.run([CC, "-w", "-x", "c", "-", "-o", program], text=True, check=True, input="""
            #include <fcntl.h>
            #include <string.h>
            #include <sys/mman.h>
            #include <unistd.h>
            /* xor; inc or add $2; dec; jnz; ret */
            static const char codes[2][16] = {{0x31, 0xc0, 0xff, 0xc0, 0xff, 0xcf, 0x75, 0xfa, 0xc3}, {0x31, 0xc0, 0x83, 0xc0, 2, 0xff, 0xcf, 0x75, 0xf9, 0xc3}};
            int main(int count, char** words) {
              int sum = 0;
              void* const place = (void*)0x520000000;
              for (int i = 0; i < 4; ++i) {
                const char* code = codes[i % 2];
                char page[4096] = {0};
                memcpy(page, code, sizeof codes[0]);
                int file = open(words[count - 1], O_RDWR | O_CREAT | O_TRUNC, 0600);
                if (write(file, page, sizeof page) != sizeof page) return 9;
                char* mapped = mmap((void*)0x500000000, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0);
                close(file);
                sum += ((int (*)(int))mapped)(1);
                char* made = mmap(place, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
                for (int k = 0; k < 2; ++k) {
                  mprotect(made, 4096, PROT_READ | PROT_WRITE);
                  memcpy(made, codes[k], sizeof codes[k]);
                  mprotect(made, 4096, PROT_READ | PROT_EXEC);
                  sum += ((int (*)(int))made)(1);
                }
                munmap(made, 4096);
              }
              return sum != 6 + 12;
            }""")
        done = self.run_it("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", self.recording, "--", program, image)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = self.run_it("stat", "-i", self.recording)
        self.assertIn(f"{image}: not used; code of which the recording has no copy is missing", said.stderr)
        self.assertIn(" 0 gaps\n", said.stdout)
        listed = self.run_it("image", "-q", "-i", self.recording, "520000000", "--size", "10", "--versions").stdout
        first, after = listed.split("520000002 was mapped", 1)
        self.assertEqual(set(re.findall(r"jit-\d+\.dump +(.*)", first)), {"xor %eax, %eax"})
        shown = [line.split(";")[0].split()[0] for line in re.findall(r"jit-\d+\.dump +(.*)", after.split(" was mapped")[0])]
        self.assertEqual(shown, ["inc", "add"] * 4)
        bundle = self.folder / "rewrites.ptb"
        said = self.run_it("bundle", "-i", self.recording, "-o", bundle).stderr
        reasons = "the file at this path is not the recorded one, or was written to since (--symfs uses it); or no proof that this file is the one that was mapped"
        self.assertIn(f"{image} ({reasons}", said)

    @unittest.skipUnless(shutil.which("qemu-x86_64"), "no qemu-x86_64")
    def test_code_of_a_memfd_is_in_no_file(self):
        """The mapping of a file becomes that of a memfd: its record has another path of the same length."""
        image, program = self.folder / "core.image", self.folder / "maps"
        image.write_bytes(b"\xb8\x01\x00\x00\x00\xc3")  # mov $1, %eax; ret
        subprocess.run([CC, "-x", "c", "-", "-o", program], text=True, check=True, input="""
            #include <fcntl.h>
            #include <sys/mman.h>
            int main(int count, char** words) {
              return ((int (*)(void))mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, open(words[count - 1], O_RDONLY), 0))() != 1;
            }""")
        done = self.run_it("record", "--emulate", "--no-stash", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", self.recording, "--", program, image)
        self.assertEqual(done.returncode, 0, done.stderr)
        path = str(image).encode()
        self.recording.write_bytes(self.recording.read_bytes().replace(path + b"\0", b"/memfd:".ljust(len(path), b"c") + b"\0"))
        said = self.run_it("stat", "-i", self.recording).stderr
        self.assertRegex(said, r"(?s)/memfd:c+.*supply: code generated at run time: record a jitdump")
        self.assertNotIn("--symfs", said)

    @unittest.skipUnless(shutil.which("qemu-x86_64"), "no qemu-x86_64")
    def test_a_bundle_names_code_that_ran_and_that_it_leaves_out(self):
        """A file that is no program has no build id, and its inode is no proof for others: /etc/shadow has one, too."""
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        image, program = pathlib.Path(holder.name).resolve() / "core.image", self.folder / "maps"
        image.write_bytes(b"\xb8\x01\x00\x00\x00\xc3")  # mov $1, %eax; ret
        subprocess.run([CC, "-x", "c", "-", "-o", program], text=True, check=True, input="""
            #include <fcntl.h>
            #include <sys/mman.h>
            int main(int count, char** words) {
              int sum = 0, file = open(words[count - 1], O_RDONLY);
              int (*one)(void) = (int (*)(void))mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
              const int times = count > 2 ? 1 : 9;
              for (int i = 0; i < times; ++i) sum += one();
              return sum != times;
            }""")
        done = self.run_it("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", self.recording, "--", program, image)
        self.assertEqual(done.returncode, 0, done.stderr)
        bundle = self.folder / "small.ptb"
        named = "ptdecode: the bundle lacks code that ran; its flow is lost where the recording went through these files:\n  (\\d+) gaps  " + \
                re.escape(f"{image} (no proof that this file is the one that was mapped (--allow-outside reads it))\n")
        for words in (["--dry-run"], ["-o", bundle]):
            said = re.fullmatch(named, self.run_it("bundle", "-q", "-i", self.recording, *words).stderr)
            self.assertTrue(said)
        self.assertIn(f", {said[1]} gaps\n", self.run_it("stat", "-q", "-i", bundle).stdout)
        done = self.run_it("bundle", "-q", "-i", self.recording, "-o", bundle, "--allow-outside")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(", 0 gaps\n", self.run_it("stat", "-q", "-i", bundle).stdout)
        self.run_it("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", self.recording, "--", program, "once", image)
        self.assertRegex(self.run_it("bundle", "-q", "-i", self.recording, "--dry-run").stderr, re.sub(r"\(.*?\) gaps", "1 gap", named, 1))

    @unittest.skipUnless(HAS_ARM, "no qemu-aarch64, clang or lld")
    def test_aarch64(self):
        program = self.folder / "program"
        flags = "--target=aarch64-linux-gnu -O1 -static -nostdlib -ffreestanding -fno-stack-protector -fuse-ld=lld -Wl,-e,begin,--build-id".split()
        subprocess.run([CLANG, *flags, "-o", program, SOURCE / "emulate/programs/arm.c"], check=True)
        self.record(program)
        self.assert_named(program, [fate for fate in FATES if fate[0] is not keep_debug], "number of gaps")  # objcopy may not know aarch64


if __name__ == "__main__":
    unittest.main(verbosity=2)
