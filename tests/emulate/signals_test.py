#!/usr/bin/env python3
"""Signals that are ignored, under `ptdecode record --emulate`: programs behave as on the processor, and so do those that they execute.

The expectation is the same command's output without the emulator. Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status
77 without qemu-x86_64.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from checks import PLUGIN, PROGRAMS, PTDECODE, check, failures

SCRIPTS = {
    "trap and kill": 'trap "" TERM USR1; kill -TERM $$; echo alive; sh -c \'kill -USR1 $$; echo still; sh -c "kill -USR1 \\$\\$; echo third"\'',
    "timeout": "timeout 0.3 sleep 20; echo $?",
    "nohup": "nohup sh -c 'kill -HUP $$; echo survived' 2>/dev/null",
    "pipe": 'trap "" PIPE; (yes 2>/dev/null; echo $? >&2) | head -1',
    "trap reset": '(trap "" USR2; trap - USR2; sh -c \'kill -USR2 $$; echo alive\'); echo $?',
    "python": sys.executable + " -c 'import os,signal; r,w=os.pipe(); os.close(r)\ntry: os.write(w,b\"x\")\nexcept BrokenPipeError: print(\"pipe\")'",
}


def run(command, before=lambda: None, **more):
    # A group of its own, with the parent outside: in an orphaned group, as a service manager's may be, signals that stop are discarded.
    def begin():
        os.setpgid(0, 0)
        before()

    done = subprocess.run(command, capture_output=True, text=True, timeout=240, preexec_fn=begin, **more)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode, done.stdout, done.stderr


def recorded(folder, command, **more):
    return run([PTDECODE, "record", "--emulate", "-q", "--no-stash", "--plugin", PLUGIN, "-o", os.path.join(folder, "perf.data"), "--", *command], **more)


def same(folder, what, command, **more):
    expected, ours = run(command, **more), recorded(folder, command, **more)
    lines = [f"{a} | {b}" for a, b in zip(expected[1].splitlines(), ours[1].splitlines()) if a != b]
    check(what, expected[:2] == ours[:2], f"expected {expected[0]}, {ours[0]}; {lines[:8]} {expected[2][-300:]} {ours[2][-300:]}")


def dispositions(folder):
    native = os.path.join(folder, "dispositions")
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-w", "-o", native, os.path.join(PROGRAMS, "dispositions.c")], check=True)
    same(folder, "every signal, x86-64", [native])


# The expected number is that of the program's signals: each leaves it alive.
def on_arm(folder):
    clang = shutil.which("clang") or shutil.which("clang-14") or shutil.which("clang-19")
    linker = shutil.which("ld.lld") or shutil.which("ld.lld-14") or shutil.which("ld.lld-19")
    program = os.path.join(folder, "arm_ignored")
    flags = "--target=aarch64-linux-gnu -O1 -static -nostdlib -ffreestanding -fno-stack-protector -fuse-ld=lld".split()
    if None in (clang, linker, shutil.which("qemu-aarch64")):
        print("skipped: aarch64 needs clang, lld and qemu-aarch64")
        return
    subprocess.run([clang, *flags, "-o", program, os.path.join(PROGRAMS, "arm_ignored.c")], check=True)
    status, text, error = recorded(folder, [program])
    check("every signal, aarch64", status == 0 and text.strip() == str(29 + 4), f"{status} {text} {error}")


# What a shell's background job, nohup or a service manager ignores before it starts the recorder.
def inherited_from_outside(folder):
    numbers = [signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD, signal.SIGXFSZ, signal.SIGSEGV, signal.SIGUSR1]

    def ignore():
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    for number in numbers + [signal.SIGUSR2]:
        script = f"import os; os.kill(os.getpid(), {int(number)}); os.write(1, b'alive')"
        perl = ["perl", "-e", f"kill {int(number)}, $$; print qq(alive\\n);"] if shutil.which("perl") else [sys.executable, "-c", script]
        same(folder, f"{signal.Signals(number).name} from outside", perl, before=ignore, restore_signals=False)


def main():
    if shutil.which("qemu-x86_64") is None:
        print("skipped: qemu-x86_64 is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        dispositions(folder)
        on_arm(folder)
        for name, script in SCRIPTS.items():
            same(folder, name, ["sh", "-c", script])
        inherited_from_outside(folder)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
