#!/usr/bin/env python3
"""`ptdecode record --emulate` whose processes are killed by SIGKILL: the recorder, its second process, the emulator, any of them together.
The executed code is in a recording, immediately or after `ptdecode record --recover`, and the memory of no process grows with the trace.

The amount of executed code is known from counters in shared memory that the program advances. Environment: PTDECODE, PTDECODE_PLUGIN,
PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import glob
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from checks import PLUGIN, PTDECODE, check, failures
from deaths_test import Trial, emulator_of, run

MEGABYTE = 1 << 20


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(what, done, seconds=60):
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.01)
    check(what, done())


class Kill:
    """A recording of loops that run until the test ends them; has the ids of the three processes."""

    def __init__(self, trial, way="until_told"):
        self.trial = trial
        for path in glob.glob(trial.out + "*"):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        self.recorder = trial.start([trial.deaths, way, trial.counters])
        while trial.count()[1] < 1000:
            time.sleep(0.002)
        self.emulator = emulator_of(self.recorder.pid)
        self.holder = parent_of(self.emulator)
        check("the emulator's parent is the second process", parent_of(self.holder) == self.recorder.pid)
        self.folders = glob.glob(trial.out + ".work-*")

    def kill(self, *pids):
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            if pid == self.recorder.pid:
                self.recorder.wait(timeout=60)  # its pipes stay open in the program
        wait_until("killed", lambda: not any(is_alive(pid) for pid in pids))

    def let_end(self):
        """Ends the program's loops, and thus the program, by exit."""
        with open(self.trial.counters, "r+b") as file:
            file.seek(4000)
            file.write(b"\1")
        wait_until("the program ends", lambda: not is_alive(self.emulator))

    def recover(self, status=0):
        done = run([PTDECODE, "record", "--recover", self.folders[0], "--no-stash"])
        check(f"record --recover: status {status}", done.returncode == status, done.stdout + done.stderr)
        return done.stderr


def without_recorder(trial):
    what = "the recorder is killed"
    trio = Kill(trial)
    trio.kill(trio.recorder.pid)
    check(f"{what}: the program runs on", is_alive(trio.emulator))
    trio.let_end()
    wait_until(f"{what}: no working folder remains", lambda: not glob.glob(trial.out + ".work-*"))
    trial.counts(what, 1, [0])


def without_holder(trial):
    what = "the second process is killed"
    trio = Kill(trial)
    trio.kill(trio.holder)
    trio.let_end()
    trio.recorder.communicate(timeout=60)
    check(f"{what}: the program's status", trio.recorder.returncode == 3, str(trio.recorder.returncode))
    check(f"{what}: no working folder remains", not glob.glob(trial.out + ".work-*"))
    trial.counts(what, 1, [0])


def without_both(trial):
    what = "both are killed, the program goes on"
    trio = Kill(trial)
    trio.kill(trio.recorder.pid, trio.holder)
    said = trio.recover(status=1)
    check(f"{what}: it is not taken away from a running program", str(trio.emulator) in said and "still running" in said, said)
    trio.let_end()
    trio.recover()
    check(f"{what}: no working folder remains", not glob.glob(trial.out + ".work-*"))
    trial.counts(what, 1, [0])


def without_all(trial):
    what = "all are killed"
    trio = Kill(trial)
    trio.kill(trio.recorder.pid, trio.holder, trio.emulator)
    moved = trio.folders[0] + "-elsewhere"
    os.rename(trio.folders[0], moved)
    trio.folders = [moved]
    limit = 1024  # less than a recording of any length
    full = subprocess.run([PTDECODE, "record", "--recover", moved, "--no-stash"], capture_output=True, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    check(f"{what}: of a recording that could not be written, only the working folder remains",
          full.returncode == 1 and moved in full.stderr and os.path.isdir(moved) and not os.path.exists(trial.out), full.stderr)
    said = trio.recover()
    check(f"{what}: the end is open", "killed" in said, said)
    trial.counts(what, 1, [1])


def while_recorded(trial):
    what = "recover during the recording"
    trio = Kill(trial)
    said = trio.recover(status=1)
    check(f"{what}: refused", "recorder still runs" in said, said)
    trio.kill(trio.emulator)
    trio.recorder.communicate(timeout=60)
    trial.counts(what, 1, [1])
    done = run([PTDECODE, "record", "--recover", trial.folder, "--no-stash"])
    check("recover of another folder: refused", done.returncode == 1 and "not the working folder" in done.stderr, done.stderr)


def cut_short(trial):
    """A limit on the size of files ends the recording while the program runs on: the user is informed at once, and the rest of the run is
    lost time."""
    what = "the log reaches the limit of file size"
    limit = 300 * 1024
    with open(trial.counters, "wb") as file:
        file.write(bytes(4096))
    command = [PTDECODE, "record", "--emulate", "--no-stash", "--plugin", PLUGIN, "-o", trial.out, "--", trial.deaths, "until_told", trial.counters]
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    said = recorder.stderr.readline()
    emulator = emulator_of(recorder.pid)
    check(f"{what}: said while the program runs", "recording stopped" in said and is_alive(emulator), said)
    rounds = max(trial.count()[1], 1000)
    wait_until("the program runs for longer than it was recorded", lambda: trial.count()[1] > 6 * rounds)
    os.kill(emulator, signal.SIGKILL)
    recorder.communicate(timeout=60)
    done = run([PTDECODE, "stat", "-i", trial.out])
    lost = [float(share) for share in re.findall(r"^ +([\d.]+) % .*aux_lost 1\)$", done.stdout, re.M)]
    check(f"{what}: most of the run is lost time", len(lost) >= 1 and max(lost) > 50, done.stdout)
    findings = run([PTDECODE, "check", "-i", trial.out]).stdout
    check(f"{what}: the advice is for the emulator", "--max-size" in done.stdout + done.stderr and "--max-size" in findings and
          "perf record" not in done.stdout + done.stderr + findings, done.stdout + done.stderr + findings)
    check(f"{what}: the recorder lost it, not the processor", "overflow" not in done.stdout + done.stderr, done.stdout + done.stderr)


def asked_to_end_early(trial):
    """Ctrl-C, or another request to end, before the program runs: nothing remains. The folder exists for at least 20 ms before that."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        what = f"{signal.Signals(number).name} while the recorder starts"
        for path in glob.glob(trial.out + "*"):
            os.unlink(path)
        command = [PTDECODE, "record", "--emulate", "--no-stash", "--plugin", PLUGIN, "-o", trial.out, "--", trial.deaths, "until_told", trial.counters]
        recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
        while not glob.glob(trial.out + ".work-*") and recorder.poll() is None:
            pass
        os.killpg(recorder.pid, number)
        recorder.communicate(timeout=60)
        check(f"{what}: status", recorder.returncode == -number, str(recorder.returncode))
        left = glob.glob(trial.out + "*")
        check(f"{what}: nothing remains", not left, str(left))
        for path in left:
            shutil.rmtree(path, ignore_errors=True)


def asked_to_end_at_any_time(trial):
    """Ctrl-C at every moment of the start: the recorder ends soon, and leaves a recording or nothing."""
    with open(trial.counters, "wb") as file:
        file.write(bytes(4096))
    for step in range(40):
        for path in glob.glob(trial.out + "*"):
            os.unlink(path)
        command = [PTDECODE, "record", "--emulate", "--no-stash", "--plugin", PLUGIN, "-o", trial.out, "--", trial.deaths, "until_told", trial.counters]
        recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
        while not glob.glob(trial.out + ".work-*") and recorder.poll() is None:
            pass
        time.sleep(0.002 * step)
        os.killpg(recorder.pid, signal.SIGINT)
        try:
            said = recorder.communicate(timeout=60)[1]
        except subprocess.TimeoutExpired:
            os.killpg(recorder.pid, signal.SIGKILL)
            check(f"Ctrl-C {2 * step} ms after the working folder appeared: the recorder ends", False)
            return
        left = [os.path.basename(path) for path in glob.glob(trial.out + "*")]
        none = recorder.returncode == -signal.SIGINT or (recorder.returncode == 1 and "the program did not start" in said)
        good = not left if none else recorder.returncode == 130 and left == [os.path.basename(trial.out)]
        check(f"Ctrl-C {2 * step} ms after the working folder appeared", good, f"{recorder.returncode} {left} {said}")


def memory_of(trial, rounds, options):
    """Returns the maximum memory of any process of a recording, and the size of the recording."""
    command = [PTDECODE, "record", "--emulate", "--no-stash", "--plugin", PLUGIN, "-q", "-o", trial.out, *options, "--", trial.deaths, "work", str(rounds)]
    pid = os.spawnv(os.P_NOWAIT, PTDECODE, command)
    _, status, usage = os.wait4(pid, 0)
    check(f"record {rounds} rounds", status == 0, str(status))
    return usage.ru_maxrss * 1024, os.path.getsize(trial.out)


def memory(trial):
    for options in ([], ["--truth", trial.truth]):
        packets = ["--cyc", "--short-tnt", "--no-retcomp", *options]
        small, small_bytes = memory_of(trial, 19, packets)
        large, large_bytes = memory_of(trial, 34, packets)
        check(f"memory does not grow with the trace {options[:1]}", large_bytes - small_bytes > 3 * (large - small) and large_bytes > 64 * MEGABYTE,
              f"{small} for {small_bytes}, {large} for {large_bytes}")
        print(f"       {small // 1024} KiB for {small_bytes} bytes, {large // 1024} KiB for {large_bytes} bytes")


def main():
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(folder)
        for case in (without_recorder, without_holder, without_both, without_all, while_recorded, cut_short, asked_to_end_early,
                     asked_to_end_at_any_time, memory):
            if not sys.argv[1:] or case.__name__ in sys.argv[1:]:
                case(trial)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
