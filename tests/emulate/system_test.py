#!/usr/bin/env python3
"""record --emulate=system: what it says where a part is missing, and with PTDECODE_SYSTEM=1 whole runs against their ground truth.

Whole runs need qemu-system-x86_64 of version 9.2 or later and a kernel (ptdecode emulator fetch), and about two minutes of processor time.
Environment: PTDECODE, PTDECODE_SYSTEM.
"""
import itertools
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
WHOLE = unittest.skipUnless(os.environ.get("PTDECODE_SYSTEM") == "1", "PTDECODE_SYSTEM=1 runs machines")


class Test(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.recording = self.folder + "/R"

    def record(self, *words, **more):
        return subprocess.run([PTDECODE, "record", "--emulate=system", "--no-stash", "-o", self.recording, *words], capture_output=True, text=True,
                              check=False, timeout=900, **more)


class Messages(Test):
    """Every refusal comes before anything is started, and names what helps."""

    def expect(self, message, *words, status=2, **more):
        done = self.record(*words, **more)
        self.assertIn(message, done.stderr)
        self.assertEqual((done.returncode, done.stdout), (status, ""))
        self.assertFalse(os.path.exists(self.recording))
        self.assertEqual([name for name in os.listdir(self.folder) if "work" in name], [])

    def fake(self, version, *options):
        """A program that prints the help of qemu-system: softmmu/vl.c."""
        path = self.folder + "/qemu-system-x86_64"
        lines = [f"QEMU emulator version {version}", "usage: qemu-system-x86_64 [options] [disk_image]", *options]
        with open(path, "w", encoding="utf-8") as out:
            out.write("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
        os.chmod(path, 0o755)
        return path

    def test_options(self):
        self.expect("--events: 'foo' is neither a tracepoint (SYSTEM:EVENT) nor one of keys,", "--events", "foo", "--", "true")
        self.expect("--memory: 10M is not from 256M to 64G", "--memory", "10M", "--", "true")
        self.expect("--cpus", "--cpus", "0", "--", "true")
        self.expect("--ovf is not for --emulate=system", "--ovf", "100", "--", "true")
        self.expect("no program is given")
        self.expect("no-such-program", "--", "no-such-program", status=127)
        done = subprocess.run([PTDECODE, "record", "--emulate", "--cpus", "2", "--", "true"], capture_output=True, text=True, check=False)
        self.assertIn("are for --emulate=system", done.stderr)

    def test_emulator(self):
        env = {**os.environ, "PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": self.folder + "/cache"}
        if not shutil.which("qemu-system-x86_64", path=env["PATH"]):
            self.expect("ptdecode emulator fetch", "--", "true", status=1, env=env)
        old = self.fake("7.2.18", "-fsdev x", "-plugin x")
        self.expect("is QEMU 7.2, whose plugins cannot read registers (9.2 or later can)", "--emulator", old, "--", "true")
        self.expect("/true does not print the help of qemu-system-x86_64 for -h", "--emulator", shutil.which("true"), "--", "true")
        self.expect("was built without 9p", "--emulator", self.fake("10.0.2", "-plugin x"), "--", "true")
        self.expect("was built without plugins", "--emulator", self.fake("10.0.2", "-fsdev x"), "--", "true")

    def test_kernel(self):
        fake = self.fake("10.0.2", "-fsdev x", "-plugin x")
        self.expect("cannot read /no/such/image", "--emulator", fake, "--kernel", "/no/such/image", "--", "true", status=1)
        self.expect("is not a bzImage of Linux", "--emulator", fake, "--kernel", "/bin/sh", "--", "true")


@WHOLE
class Runs(Test):
    def check(self, *words, **more):
        """Records, and requires that every instruction is right. Returns the outcome and the number of instructions."""
        done = self.record("--truth", self.folder + "/T", *words, **more)
        self.assertTrue(os.path.isdir(self.recording), done.stderr)
        truths = [self.folder + "/T/" + name for name in os.listdir(self.folder + "/T")]
        verify = subprocess.run([PTDECODE, "verify", "-i", self.recording, *truths], capture_output=True, text=True, check=False)
        rows = re.findall(r"cpu \d+: (\d+) instructions: right (\d+) \(.*flagged 0 .*silently wrong 0;.*gaps 0$", verify.stdout, re.MULTILINE)
        self.assertEqual((len(rows), verify.returncode), (len(truths), 0), verify.stdout)
        self.assertTrue(all(all_of == right for all_of, right in rows), verify.stdout)
        return done, sum(int(right) for _, right in rows)

    def test_streams_and_status(self):
        done, count = self.check("--", "sh", "-c", "cat; echo err >&2; pwd; echo $WORD; exit 7", input="in\n" * 50000, cwd="/usr",
                                 env={**os.environ, "WORD": "word"})
        self.assertEqual((done.returncode, done.stdout), (7, "in\n" * 50000 + "/usr\nword\n"))
        self.assertTrue(done.stderr.startswith("err\n"))
        self.assertGreater(count, 1_000_000)
        names = subprocess.run(["perf", "script", "-i", self.recording, "--itrace=e"], capture_output=True, text=True, check=False)
        self.assertNotIn("instruction trace error", names.stdout + names.stderr)

    def test_kernel_that_patches_itself(self):
        done, _ = self.check("--events", "tracepoints=70,keys=5,ftrace=3,kprobes=3,bpf=3,fentry=1", "--", "ls", "-l", "/")
        pokes = int(re.search(r"(\d+) changes of the kernel's code", done.stderr).group(1))
        self.assertGreaterEqual(pokes, 420)  # three tracepoints on and off in each round
        self.assertNotIn("could not be recorded", done.stderr)

    def test_time_at_psbs_only(self):
        """Without MTC, only PSBs and the end of the trace date what ran: a decoder has to consider several versions of code, and marks what it cannot decide."""
        done = self.record("--no-mtc", "--truth", self.folder + "/T", "--events", "tracepoints=10,keys=10", "--", "ls", "-l", "/")
        self.assertEqual(done.returncode, 0, done.stderr)
        truths = [self.folder + "/T/" + name for name in os.listdir(self.folder + "/T")]
        verify = subprocess.run([PTDECODE, "verify", "-i", self.recording, *truths], capture_output=True, text=True, check=False)
        self.assertEqual(re.findall(r"silently wrong (\d+);", verify.stdout), ["0"] * len(truths), verify.stdout)

    def test_user_code_equals_single_steps_of_the_processor(self):
        here = os.path.dirname(os.path.abspath(__file__))
        step, program = self.folder + "/step", self.folder + "/plain"
        flags = "-O1 -static -nostdlib -ffreestanding -fno-stack-protector -fcf-protection=none".split()
        subprocess.run([os.environ.get("CC", "cc"), "-static", "-o", step, here + "/programs/step.c"], check=True)
        subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", program, here + "/data_programs/plain.c"], check=True)
        stepped = subprocess.run([step, program], capture_output=True, check=True)
        native = list(struct.unpack(f"<{len(stepped.stderr) // 8}Q", stepped.stderr))
        self.check("--", program)
        listed = subprocess.run([PTDECODE, "script", "-q", "-i", self.recording, "--itrace=i1i", "-F", "ip", "--comm", "plain"], check=True,
                                capture_output=True, text=True)
        self.assertEqual([ip for ip in (int(line, 16) for line in listed.stdout.split()) if ip < 1 << 47], native)

    def test_perf_finds_the_same_instructions(self):
        """perf shares no code with the decoder, nor with the plugin. BPF is left out: perf 6.1 does not decode sub-programs."""
        done = self.record("--events", "tracepoints=5,keys=2", "--", "true")
        self.assertGreaterEqual(int(re.search(r"(\d+) changes of the kernel's code", done.stderr).group(1)), 34)  # 2 for each of 15 and 2
        for cpu in "01":
            words = ["script", "-i", self.recording, "--itrace=i1i", "-F", "ip", "-C", cpu]
            with subprocess.Popen([PTDECODE, *words, "-q"], stdout=subprocess.PIPE) as ours, subprocess.Popen(["perf", *words], stdout=subprocess.PIPE) as perfs:
                count = 0
                for count, (mine, other) in enumerate(itertools.zip_longest(ours.stdout, filter(bytes.strip, perfs.stdout)), 1):
                    self.assertEqual((mine or b"").strip(), (other or b"").strip(), f"cpu {cpu}, instruction {count}")
            self.assertEqual((ours.returncode, perfs.returncode), (0, 0))
            self.assertGreater(count, 100_000)

    def test_a_tracepoint_is_the_largest_difference(self):
        """Two runs of a program, the second with a tracepoint on in the kernel. The program's source gives the number of its system calls of each kind."""
        here, program = os.path.dirname(os.path.abspath(__file__)), self.folder + "/asks"
        subprocess.run([os.environ.get("CC", "cc"), "-static", "-o", program, here + "/programs/asks.c"], check=True)
        sides = [self.folder + "/before", self.folder + "/after"]
        for self.recording, events in zip(sides, ([], ["--events", "syscalls:sys_enter_getppid"])):
            done = self.record(*events, "--", program)
            self.assertEqual((done.returncode, done.stdout), (0, "3000\n"), done.stderr)
        diff = [PTDECODE, "functions", "-q", "--comm", "asks", "--sort", "instructions", "--format", "json", "--diff", *sides]
        listed = subprocess.run(diff, check=True, capture_output=True, text=True)
        rows = [row for row in map(json.loads, listed.stdout.splitlines()) if "function" in row]
        calls = {row["function"]: (row["calls_a"], row["calls_b"]) for row in rows}
        self.assertEqual(rows[0]["function"], "ftrace_syscall_enter")  # the kernel's function that the tracepoint calls, in every system call
        self.assertEqual(calls["ftrace_syscall_enter"][0], 0)
        self.assertIn(calls["ftrace_syscall_enter"][1], range(5001, 5050))  # 5,000 of the loop, and those of the start
        self.assertEqual(calls["trace_event_buffer_lock_reserve"], (0, 3000))  # an entry of the ring for each getppid

    def test_real_kernel(self):
        script = "unshare -Urn id -u; cat /sys/class/net/lo/address; head -c 4 /proc/kcore | tail -c 3; nproc; echo x > /tmp/new && cat /tmp/new"
        done, _ = self.check("--cpus", "3", "--", "sh", "-c", script)
        self.assertEqual(done.stdout, "0\n00:00:00:00:00:00\nELF3\nx\n")

    def test_32_bit_program(self):
        """With 64-bit code in it, and code in a segment of its own, which is not traced."""
        here, program = os.path.dirname(os.path.abspath(__file__)), self.folder + "/bits32"
        subprocess.run(["as", "--32", "-o", program + ".o", here + "/programs/bits32.s"], check=True)
        subprocess.run(["ld", "-m", "elf_i386", "-o", program, program + ".o"], check=True)
        done, _ = self.check("--", "sh", "-c", program + "; exit $?")
        self.assertEqual((done.returncode, done.stdout), (7, "32\n"))
        self.assertIn("the trace was off 1 time: code ran in a segment that the program made", done.stderr)
        calls = [PTDECODE, "functions", "-q", "--comm", "bits32", "--format", "json", "-i", self.recording]
        listed = subprocess.run(calls, check=True, capture_output=True, text=True)
        rows = {row["function"]: row["calls"] for row in map(json.loads, listed.stdout.splitlines()) if "function" in row}
        self.assertEqual(rows["count"], 1000)
        lines = subprocess.run([PTDECODE, "packets", "-i", self.recording], check=True, capture_output=True, text=True).stdout.splitlines()
        modes = {line.split()[2] for line in lines if " mode.exec " in line}
        self.assertEqual(modes, {"cs.d", "cs.l"})

    def test_signal(self):
        done, _ = self.check("--", "sh", "-c", "kill -SEGV $$")
        self.assertEqual(done.returncode, 128 + 11)


if __name__ == "__main__":
    unittest.main()
