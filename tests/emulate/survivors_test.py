#!/usr/bin/env python3
"""`ptdecode record --emulate` of programs that end before a process that they started: the recorder says which process it waits for, and a
signal ends that process and completes the recording. The flow is compared with the ground truth.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import glob
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from checks import PLUGIN, PROGRAMS, PTDECODE, check, failures

PATIENCE_S = 60


class Run:
    """A recorder whose program has ended, while a process that it started is running or stopped."""

    def __init__(self, folder, way, ignored=()):
        self.folder = tempfile.mkdtemp(dir=folder)
        self.out, self.truth = os.path.join(self.folder, "perf.data"), os.path.join(self.folder, "T")

        def begin():
            os.setpgid(0, 0)
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)

        command = [PTDECODE, "record", "--emulate", "--no-stash", "--plugin", PLUGIN, "--truth", self.truth, "-o", self.out, "--",
                   os.path.join(folder, "survivor"), way]
        self.recorder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                         preexec_fn=begin, restore_signals=False)
        ready = select.select([self.recorder.stderr], [], [], PATIENCE_S)[0]
        self.said = self.recorder.stderr.readline() if ready else ""
        found = re.search(r"\((\d+)\)", self.said)
        self.survivor = int(found[1]) if found else None

    def holder(self):
        with open(f"/proc/{self.survivor}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])

    def finish(self, what, *numbers):
        for number in numbers:
            self.recorder.send_signal(number)
        try:
            self.said += self.recorder.communicate(timeout=PATIENCE_S)[1]
        except subprocess.TimeoutExpired:
            self.recorder.kill()
            check(f"{what}: the recorder ends", False, self.said)
            return
        finally:
            if self.survivor is not None:
                check(f"{what}: the process has ended", not os.path.exists(f"/proc/{self.survivor}"))
        check(f"{what}: the program's exit status", self.recorder.returncode == 3, str(self.recorder.returncode))
        check(f"{what}: no working folder remains", not glob.glob(self.out + ".work-*"))
        truths = glob.glob(os.path.join(self.truth, "*.ptt"))
        done = subprocess.run([PTDECODE, "verify", "-i", self.out, *truths], capture_output=True, text=True)
        check(f"{what}: two threads as executed", len(truths) == 2 and done.stdout.count("(100.000000 %)") == 2, done.stdout + done.stderr)


def signalled(folder):
    for way in ("running", "stopped"):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            run = Run(folder, way)
            what = f"{way}, {number.name}"
            check(f"{what}: the recorder says that it waits", run.survivor is not None and "Ctrl-C" in run.said, run.said)
            run.finish(what, number)


def after_the_holder(folder):
    run = Run(folder, "running")
    os.kill(run.holder(), signal.SIGKILL)
    run.finish("second process killed, SIGINT", signal.SIGINT)


def ignored(folder):
    """What nohup or a shell's background job ignores ends nothing."""
    numbers = (signal.SIGINT, signal.SIGHUP)
    run = Run(folder, "running", ignored=numbers)
    for number in numbers:
        run.recorder.send_signal(number)
    time.sleep(1)
    check("ignored signals: the recorder waits", run.recorder.poll() is None and os.path.exists(f"/proc/{run.survivor}"))
    os.kill(run.survivor, signal.SIGKILL)
    run.finish("ignored signals, the process is killed")


def main():
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(PROGRAMS, "survivor.c"), os.path.join(folder, "survivor")
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-o", program, source], check=True)
        signalled(folder)
        after_the_holder(folder)
        ignored(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
