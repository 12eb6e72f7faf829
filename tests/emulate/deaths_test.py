#!/usr/bin/env python3
"""Every way in which a program can die under `ptdecode record --emulate`: the recording's last instruction is where it died.

The expectation comes from the processor: the same static program, natively under ptrace (programs/last.c), or from counters in shared memory
that its loops advance. Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Arguments: ways to try instead of all. Exit status 77
without qemu-x86_64.
"""
import glob
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from checks import PLUGIN, PROGRAMS, PTDECODE, check, failures

SYSCALL_BYTES, INT3_BYTES = 2, 1

FAULTS = ("segv bus ill fpe trap hlt unaligned stack null_call null_jump data_call bad_return direct_jump run_off run_off_counted fill_off "
          "no_memory").split()
CALLS = "abort raise_kill raise_term pipe exit _exit quick_exit".split()
HANDLED = "stack_handled crash_in_handler handled_then_default default_after_handler jump_out nested".split()
SEVERAL = "exit_in_thread crash_in_thread thread_exit exec exec_fails exec_in_thread fork_crash".split()
# Loops whose end is known only from their counters: how the test ends them, and the number of loops.
COUNTED = {"alarm": 1, "limit_cpu": 1, "threads_crash": 3, "threads_thread_crash": 2, "threads_abort": 2, "threads_term": 2,
           "threads_kill": 2, "threads_exit": 3, "threads_exit_in_thread": 2, "threads_exec": 2, "threads_exec_in_thread": 2,
           "threads_exec_fails": 2}
KILLED = {("spin", signal.SIGTERM): 1, ("spin", signal.SIGSEGV): 1, ("spin", signal.SIGQUIT): 1, ("threads_spin", signal.SIGTERM): 3,
          ("threads_spin", signal.SIGFPE): 3, ("spin", signal.SIGKILL): 1, ("threads_spin", signal.SIGKILL): 3}
# Threads that are running at the time of SIGKILL have at most one block of which it is unknown whether it was executed.
OPEN_ENDED = {"threads_kill"}
# Loops of direct jumps only: no packet distinguishes their rounds.
NO_PACKETS = {"run_off"}


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120, **more)


class Trial:
    def __init__(self, folder):
        self.folder = folder
        self.out, self.truth, self.counters = (os.path.join(folder, name) for name in ("perf.data", "truth", "counters"))
        compiler = os.environ.get("CC", "cc")
        flags = ["-O1", "-w", "-pthread", "-static", "-fno-pie", "-no-pie", "-fcf-protection=none"]
        self.deaths, self.last = os.path.join(folder, "deaths"), os.path.join(folder, "last")
        subprocess.run([compiler, *flags, "-o", self.deaths, os.path.join(PROGRAMS, "deaths.c")], check=True)
        subprocess.run([compiler, "-O1", "-w", "-o", self.last, os.path.join(PROGRAMS, "last.c")], check=True)
        self.throws = os.path.join(folder, "throws")
        source = os.path.join(folder, "throws.cc")
        with open(source, "w") as file:
            file.write("int main(int argc, char**) { if (argc > 0) throw argc; }\n")
        subprocess.run([os.environ.get("CXX", "c++"), *flags, "-o", self.throws, source], check=True)
        symbols = subprocess.run(["nm", self.deaths], capture_output=True, text=True, check=True).stdout
        self.symbols = {words[2]: int(words[0], 16) for words in map(str.split, symbols.splitlines()) if len(words) == 3}
        self.counted = self.symbols["counted"]

    def natively(self, command):
        """Returns, per thread or process, in the order of their start, the address where it ended, or that of the system call; None if
        unknown."""
        done = run([self.last, *command], cwd=self.folder)
        ends = []
        for line in done.stderr.splitlines():
            words = line.split()
            if len(words) == 2 and re.fullmatch(r"-?\d+", words[1]):
                ip, call = int(words[0], 16), int(words[1])
                ends.append(None if ip == 0 == call else ip if call < 0 else ip - SYSCALL_BYTES)
        way = command[-1]
        if way == "trap":  # the processor's FUP has the address of the INT3 ([SDM] "FUP Packet")
            ends = [ip - INT3_BYTES for ip in ends]
        if way == "default_after_handler":  # the kernel ends it in rt_sigreturn and does not return: "mov $15, %rax" of 7 bytes, "syscall"
            ends = [self.symbols["__restore_rt"] + 7]
        return ends

    def start(self, command):
        shutil.rmtree(self.out + ".jit", ignore_errors=True)
        shutil.rmtree(self.truth, ignore_errors=True)
        with open(self.counters, "wb") as file:
            file.write(bytes(4096))
        return subprocess.Popen([PTDECODE, "record", "--emulate", "--no-stash", "--plugin", PLUGIN, "-o", self.out, "--truth", self.truth, "--", *command],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", cwd=self.folder)

    def count(self):
        with open(self.counters, "rb") as file:
            return struct.unpack("<8Q", file.read(64))

    def ends(self):
        """Returns, per thread, in the order of their start, where tracing last ended, and whether anything followed."""
        text = run([PTDECODE, "script", "-q", "-i", self.out, "--itrace=b", "-F", "tid,flags,ip,addr"]).stdout
        last = {}
        for line in text.splitlines():
            words = line.split()
            if words and words[0].isdigit():
                last[int(words[0])] = line
        ends = []
        for tid in sorted(last):
            found = re.match(r"\s*\d+\s+tr end.*?\s([0-9a-f]+)\s+=>", last[tid])
            ends.append(int(found[1], 16) if found else last[tid])
        return ends

    def verified(self, what, gaps, whole=True):
        """The decode agrees with the emulator's callbacks, with that many gaps."""
        done = run([PTDECODE, "verify", "-q", "-i", self.out, *sorted(glob.glob(self.truth + "/*.ptt"))])
        lines = [line for line in done.stdout.splitlines() if line.startswith(("tid", "cpu"))]
        if whole:
            good = done.returncode == 0 and lines and all("silently wrong 0" in line and "after the end" not in line for line in lines)
        else:  # the rounds without packets are missing, and the comparison reports it
            good = done.returncode == 3 and lines and "silently wrong 0" in done.stdout
            good = good and re.search(r"; [1-9]\d* not counted by the trace: iterations of loops", done.stdout)
        check(f"{what}: the flow is what the emulator ran", good, done.stdout + done.stderr)
        found = sum(int(re.search(r"; gaps (\d+)", line)[1]) for line in lines)
        check(f"{what}: gaps {gaps}", found in gaps, done.stdout)

    def as_natively(self, what, command):
        want = self.natively(command)
        recorder = self.start(command)
        _, said = recorder.communicate(timeout=120)
        got = self.ends()
        show = lambda ends: [hex(ip) if isinstance(ip, int) else ip for ip in ends]
        check(f"{what}: ends where it does natively", want and len(got) == len(want) and all(b in (a, None) for a, b in zip(got, want)), f"native {show(want)} recorded {show(got)}\n{said}")
        check(f"{what}: flow never lost", "flow was lost" not in said and "killed" not in said, said)
        self.verified(what, [0], what not in NO_PACKETS)

    def counts(self, what, loops, gaps):
        """Each loop was executed as often as its counter shows; if it was killed inside, the last round may be missing."""
        text = run([PTDECODE, "script", "-q", "-i", self.out, "--itrace=i1i", "-F", "tid,ip"]).stdout
        rounds = {}
        for line in text.splitlines():
            words = line.split()
            if len(words) == 2 and int(words[1], 16) == self.counted:
                rounds[words[0]] = rounds.get(words[0], 0) + 1
        got, want = sorted(rounds.values()), sorted(count for count in self.count() if count != 0)
        missing = [b - a for a, b in zip(got, want)]
        check(f"{what}: rounds of {loops} loops", len(got) == len(want) == loops and all(0 <= m <= (1 if any(gaps) else 0) for m in missing), f"recorded {got} counted {want}")
        self.verified(what, gaps)

    def counted_way(self, way):
        recorder = self.start([self.deaths, way, self.counters])
        _, said = recorder.communicate(timeout=120)
        self.counts(way, COUNTED[way], range(COUNTED[way] + 1) if way in OPEN_ENDED else [0])

    def killed_way(self, way, number, loops):
        """Ends the program's process from outside while its loops run."""
        what = f"{way} {signal.Signals(number).name}"
        recorder = self.start([self.deaths, way, self.counters])
        while sum(count > 1000 for count in self.count()) < loops:
            time.sleep(0.002)
        os.kill(emulator_of(recorder.pid), number)
        _, said = recorder.communicate(timeout=120)
        check(f"{what}: the recorder's status", recorder.returncode in (-number, 128 + number), f"{recorder.returncode} {said}")
        killed = number == signal.SIGKILL
        self.counts(what, loops, [loops] if killed else [0])
        check(f"{what}: whether the end is known", ("killed" in said) == killed, said)


ARM_BASE, ARM_HEADERS, ARM_ROUNDS = 0x400000, 64 + 56, 100
ARM_CODE = (0xd2800000 | ARM_ROUNDS << 5,  # mov x0, #rounds
            0x94000005,                    # bl to add
            0xf1000400, 0x54ffffc1,        # subs x0, x0, #1; b.ne to bl
            0xd2800101, 0xb9000020,        # mov x1, #8; str w0, [x1]: no memory there
            0x91000442, 0xd65f03c0)        # add x2, x2, #1; ret


def dies_on_arm(trial):
    """The same for an aarch64 program, whose instructions can be counted by hand."""
    program = os.path.join(trial.folder, "arm")
    text = struct.pack(f"<{len(ARM_CODE)}I", *ARM_CODE)
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, 183, 1, ARM_BASE + ARM_HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    size = ARM_HEADERS + len(text)
    with open(program, "wb") as file:
        file.write(header + struct.pack("<IIQQQQQQ", 1, 5, 0, ARM_BASE, ARM_BASE, size, size, 4096) + text)
    os.chmod(program, 0o755)
    _, said = trial.start([program]).communicate(timeout=120)
    flow = [int(line, 16) for line in run([PTDECODE, "script", "-q", "-i", trial.out, "--itrace=i1i", "-F", "ip"]).stdout.split()]
    check("aarch64: all instructions up to the fault", len(flow) == 1 + 5 * ARM_ROUNDS + 1 and flow[-1:] == [ARM_BASE + ARM_HEADERS + 16], f"{len(flow)} {said}")
    last = run([PTDECODE, "script", "-q", "-i", trial.out, "--itrace=b", "-F", "ip,addr"]).stdout.split("\n")[-2:][0].split()
    check("aarch64: the fault is where it is", last and int(last[0], 16) == ARM_BASE + ARM_HEADERS + 20, str(last))
    trial.verified("aarch64", [0])


def lacks_its_linker_on_arm(trial):
    """A dynamically linked aarch64 program without a dynamic linker: the message names QEMU_LD_PREFIX."""
    program, linker = os.path.join(trial.folder, "dynamic"), b"/lib/no-such-linker.so.1\0"
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, 183, 1, ARM_BASE, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    at = 64 + 2 * 56
    with open(program, "wb") as file:
        file.write(header + struct.pack("<IIQQQQQQ", 3, 4, at, ARM_BASE + at, ARM_BASE + at, len(linker), len(linker), 1) +
                   struct.pack("<IIQQQQQQ", 1, 5, 0, ARM_BASE, ARM_BASE, at + len(linker), at + len(linker), 4096) + linker)
    os.chmod(program, 0o755)
    recorder = trial.start([program])
    _, said = recorder.communicate(timeout=120)
    check("aarch64: a missing dynamic linker is named", recorder.returncode != 0 and "its dynamic linker /lib/no-such-linker.so.1 is not on this machine" in said and
          "QEMU_LD_PREFIX=/usr/aarch64-linux-gnu" in said, said)


def emulator_of(recorder):
    """Returns the child process of the recorder that runs the emulator."""
    while True:
        for path in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(path) as file:
                    name, _, rest = file.read().partition("(")[2].rpartition(")")
                if name.startswith("qemu-") and is_below(int(path.split("/")[2]), recorder):
                    return int(path.split("/")[2])
            except OSError:
                pass
        time.sleep(0.01)


def is_below(pid, ancestor):
    while pid > 1:
        if pid == ancestor:
            return True
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    return False


def main():
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(folder)
        wanted = sys.argv[1:]
        for way in FAULTS + CALLS + HANDLED + SEVERAL:
            if not wanted or way in wanted:
                trial.as_natively(way, [trial.deaths, way])
        if not wanted or "throws" in wanted:
            trial.as_natively("throws", [trial.throws])
        if shutil.which("qemu-aarch64") and (not wanted or "arm" in wanted):
            dies_on_arm(trial)
            lacks_its_linker_on_arm(trial)
        for way in COUNTED:
            if not wanted or way in wanted:
                trial.counted_way(way)
        for (way, number), loops in KILLED.items():
            if not wanted or way in wanted:
                trial.killed_way(way, number, loops)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
