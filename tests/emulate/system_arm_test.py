#!/usr/bin/env python3
"""record --emulate=system with an arm64 kernel: what it says where a part is missing, and with PTDECODE_SYSTEM=1 whole machines against their
ground truth, and their cs_etm recordings in perf.

Whole machines need qemu-system-aarch64 of version 9.2 or later and an arm64 kernel (ptdecode emulator fetch --machine arm64), and about three minutes
of processor time. clang with lld or aarch64-linux-gnu-gcc builds the program.
Environment: PTDECODE, PTDECODE_SYSTEM.
"""
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
HERE = os.path.dirname(os.path.abspath(__file__))
FLAGS = "-O1 -static -nostdlib -ffreestanding -fno-stack-protector".split()
COMPILERS = [["aarch64-linux-gnu-gcc"], *([name, "--target=aarch64-linux-gnu", "-fuse-ld=lld"] for name in ("clang", "clang-14", "clang-19"))]
EMPTY_VDSO = 50  # the vdso's code is in no file: what the machine's init runs there is lost


def build(folder, source="data_programs/plain.c"):
    """Returns the program, or None if no compiler builds it."""
    path = folder + "/" + os.path.splitext(os.path.basename(source))[0]
    for words in COMPILERS:
        if shutil.which(words[0]) is None:
            continue
        if subprocess.run([*words, *FLAGS, "-o", path, HERE + "/" + source], capture_output=True, check=False).returncode == 0:
            return path
    return None


def auxtrace_magics(recording):
    """Returns the magic numbers of the blocks of AUXTRACE_INFO: those of the trace units. The first record of that type (70) has them."""
    with open(recording + "/data", "rb") as file:
        data = file.read()
    at = struct.unpack_from("<Q", data, 40)[0]
    while True:
        kind, _, size = struct.unpack_from("<IHH", data, at)
        if kind == 70:
            words = struct.unpack_from(f"<{(size - 16) // 8}Q", data, at + 16)
            return [word for word in words if word in (0x4040404040404040, 0x5050505050505050)]
        at += size


class Test(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.recording = self.folder + "/R"
        self.program = build(self.folder)
        if self.program is None:
            self.skipTest("neither aarch64-linux-gnu-gcc nor clang with lld builds for aarch64")


class Messages(Test):
    """The program decides which machine is needed. Every refusal comes before anything is started."""

    def expect(self, message, *words, status=2, **more):
        done = subprocess.run([PTDECODE, "record", "--emulate=system", "--no-stash", "-o", self.recording, *words, "--", self.program],
                              capture_output=True, text=True, check=False, **more)
        self.assertIn(message, done.stderr)
        self.assertEqual((done.returncode, done.stdout), (status, ""))
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("R")], [])

    def fake(self, machine, version, *options):
        """A program that prints the help of qemu-system: softmmu/vl.c."""
        path = self.folder + "/qemu-system-fake"
        lines = [f"QEMU emulator version {version}", f"usage: qemu-system-{machine} [options] [disk_image]", *options]
        with open(path, "w", encoding="utf-8") as out:
            out.write("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
        os.chmod(path, 0o755)
        return path

    def test_emulator(self):
        env = {**os.environ, "PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": self.folder + "/cache"}
        if not shutil.which("qemu-system-aarch64", path=env["PATH"]):
            self.expect("ptdecode emulator fetch --machine arm64", status=1, env=env)
        self.expect("is QEMU 7.2, whose plugins cannot read registers (9.2 or later can)", "--emulator", self.fake("aarch64", "7.2.18", "-fsdev x", "-plugin x"))
        self.expect("was built without 9p", "--emulator", self.fake("aarch64", "10.0.2", "-plugin x"))
        self.expect("emulates system-x86_64, not system-aarch64", "--emulator", self.fake("x86_64", "10.0.2", "-fsdev x", "-plugin x"))

    def test_options(self):
        self.expect("--boot is for x86-64 machines", "--emulator", self.fake("aarch64", "10.0.2", "-fsdev x", "-plugin x"), "--boot")

    def test_kernel(self):
        fake = self.fake("aarch64", "10.0.2", "-fsdev x", "-plugin x")
        self.expect("cannot read /no/such/image", "--emulator", fake, "--kernel", "/no/such/image", status=1)
        self.expect("is not an Image of Linux for arm64", "--emulator", fake, "--kernel", "/bin/sh")


@unittest.skipUnless(os.environ.get("PTDECODE_SYSTEM") == "1", "PTDECODE_SYSTEM=1 runs machines")
class ArmRuns(Test):
    def record(self, *options, prints="7154119218316215705\n", **more):
        done = subprocess.run([PTDECODE, "record", "--emulate=system", "--no-stash", "-o", self.recording, "--truth", self.folder + "/T", *options, "--",
                               self.program], capture_output=True, text=True, check=False, timeout=1800, **more)
        if done.returncode == 1 and "emulator fetch" in done.stderr:
            self.skipTest(done.stderr.strip())
        self.assertEqual((done.returncode, done.stdout), (0, prints), done.stderr)
        self.assertNotIn("could not be recorded", done.stderr)
        return int(re.search(r"(\d+) changes? of the kernel's code", done.stderr).group(1))

    def verify(self, *options):
        """Returns the sums over both cpus: all but what follows the trace's last packet, right, flagged, wrong but flagged, silently wrong, lost."""
        truths = [self.folder + "/T/" + name for name in os.listdir(self.folder + "/T")]
        done = subprocess.run([PTDECODE, "verify", "-q", "-i", self.recording, *options, *truths], capture_output=True, text=True, check=False)
        rows = re.findall(r"cpu \d+: (\d+) instructions: right (\d+) .*flagged (\d+) .*but flagged (\d+); silently wrong (\d+); lost in gaps (\d+),",
                          done.stdout)
        self.assertEqual(len(rows), len(truths), done.stdout + done.stderr)
        sums = [sum(int(row[i]) for row in rows) for i in range(6)]
        sums[0] -= sum(map(int, re.findall(r"; (\d+) after the end of the trace", done.stdout)))
        return sums

    def check_flow(self):
        """Every instruction is right and not marked, but for the vdso's."""
        ran, right, flagged, wrong_flagged, wrong, lost = self.verify()
        self.assertEqual((flagged, wrong_flagged, wrong), (0, 0, 0))
        self.assertEqual(ran, right + lost)
        self.assertLessEqual(lost, EMPTY_VDSO)
        self.assertGreater(ran, 1_000_000)

    def check_perf(self, magic):
        """perf opens the recording, and its metadata are those of the trace unit."""
        self.assertEqual(auxtrace_magics(self.recording), [magic] * 2)
        if shutil.which("perf") is None:
            return
        dump = subprocess.run(["perf", "script", "-D", "-i", self.recording], capture_output=True, text=True, errors="replace", check=False)
        self.assertEqual(dump.returncode, 0, dump.stderr)
        self.assertEqual(len(re.findall(r"PERF_RECORD_AUXTRACE size", dump.stdout)), 2)
        self.assertEqual(len(re.findall(rf"Magic number\s+{magic:x}\b", dump.stdout)), 2)

    def test_program(self):
        self.record()
        self.check_flow()
        self.check_perf(0x4040404040404040)

    def test_ete(self):
        self.program = build(self.folder, "programs/arm_chains.c")
        self.record("--ete", prints="180600\n")
        self.check_flow()
        self.check_perf(0x5050505050505050)
        packets = subprocess.run([PTDECODE, "packets", "-i", self.recording], capture_output=True, text=True, check=True).stdout
        self.assertGreater(packets.count("src_addr"), 1000)

    def test_aarch32_program_is_a_gap(self):
        """Of T32 code, which counts to 200 and exits."""
        code = struct.pack("<6H", 0x25c8, 0x3d01, 0xd1fd, 0x2701, 0x2000, 0xdf00)  # movs r5, #200; 1: subs r5, #1; bne 1b; movs r7, #1; movs r0, #0; svc 0
        base, head = 0x10000, 52 + 32
        elf = b"\x7fELF\1\1\1" + bytes(9) + struct.pack("<HHIIIIIHHHHHH", 2, 40, 1, base + head + 1, 52, 0, 0x5000400, 52, 32, 1, 0, 0, 0)
        elf += struct.pack("<8I", 1, 0, base, base, head + len(code), head + len(code), 5, 0x10000) + code
        with open(self.folder + "/next", "wb") as file:
            file.write(elf)
        os.chmod(self.folder + "/next", 0o755)
        self.program = build(self.folder, "programs/arm_execs.c")
        self.record(prints="", cwd=self.folder)
        _, _, flagged, wrong_flagged, wrong, _ = self.verify()
        self.assertEqual((flagged, wrong_flagged, wrong), (0, 0, 0))
        listed = subprocess.run([PTDECODE, "script", "-q", "-i", self.recording, "--comm", "next", "--itrace=e"], capture_output=True, text=True, check=True)
        self.assertIn("gap: overflow", listed.stdout)

    def test_kernel_that_patches_itself(self):
        changes = self.record("--events", "tracepoints=2,keys=2,ftrace=1,kprobes=2,bpf=1")
        self.assertGreaterEqual(changes, 100)
        ran, right, flagged, wrong_flagged, wrong, lost = self.verify()
        self.assertEqual((wrong_flagged, wrong), (0, 0))
        self.assertEqual(ran, right + lost)
        self.assertLessEqual(lost, EMPTY_VDSO)
        self.assertLess(flagged, ran / 10_000)
        # Without the reports, two copies of the code are left: all that is wrong is marked.
        ran, right, flagged, wrong_flagged, wrong, lost = self.verify("--drop-poke", "1")
        self.assertEqual(wrong, 0)
        self.assertGreater(right, ran * 0.9)
        self.assertGreater(flagged + wrong_flagged, 0)


if __name__ == "__main__":
    unittest.main()
