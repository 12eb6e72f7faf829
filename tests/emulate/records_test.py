#!/usr/bin/env python3
"""Records of emulated recordings: the clock of work goes on over exec; names change where the program changes them; what a
small --max-size leaves; files that no path names keep their functions' names; code of a file is the file's, whatever its build id.

Environment: as emulate_test.py. Exit status 77 without qemu-x86_64.
"""
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import checks
import emulate_test as emulate
from emulate_test import check


def work_clock_over_exec(folder):
    """record() checks that the recording agrees with its truth and that its clock does not go back."""
    program = shutil.which("true")
    for command in (["nice", program], ["env", "A=1", "env", "A=2", program], ["sh", "-c", f"{program}; nice {program} & wait; exec {program}"], ["timeout", "50", program]):
        emulate.record(folder, command, "--work-clock")


def names(folder):
    """Each function of the program is named after the name under which it runs."""
    program = emulate.build("names", folder)
    for options in ([], ["--work-clock"], ["--no-mtc"]):
        out, _, _ = emulate.record(folder, [program], *options)
        done = subprocess.run([emulate.PTDECODE, "script", "-q", "-i", out, "--call-trace"], capture_output=True, text=True)
        calls = re.findall(r"^ *(\S+) +\d+ .* as_(\w+)$", done.stdout, re.MULTILINE)
        check("calls after a change of name have the new name", len(calls) == 7 and all(name == function for name, function in calls), str(calls))


def small_limits(folder):
    """--max-size that no log fits in leaves nothing to recover; one that ends the recording early kills no thread."""
    loop = [sys.executable, "-I", "-S", "-c", "for i in range(20000): pass\nprint(i)"]
    for size in ("1", "8K", "11K", "300K"):
        place = os.path.join(folder, "limit-" + size)
        os.mkdir(place)
        out = os.path.join(place, "perf.data")
        done = subprocess.run([emulate.PTDECODE, "record", "--emulate", "--no-stash", "--plugin", emulate.PLUGIN, "--max-size", size, "-o", out, "--", *loop],
                              capture_output=True, text=True)
        left = [name for name in os.listdir(place) if ".work-" in name]
        check(f"--max-size {size}: the program runs on, no working folder stays", done.stdout == "19999\n" and not left, f"{done.stdout} {left}")
        if size == "300K":
            check("--max-size 300K: no thread is killed", done.returncode == 0 and "not recorded to the end" in done.stderr and "killed" not in done.stderr, done.stderr)
        else:
            said = "nothing was recorded" in done.stderr and "raise --max-size" in done.stderr and "--recover" not in done.stderr
            check(f"--max-size {size}: nothing is recorded, and the message says why", done.returncode == 1 and said, f"{done.returncode} {done.stderr}")


def functions_of(out, name):
    """Returns the functions that ran in the mapped files of this name."""
    done = subprocess.run([emulate.PTDECODE, "script", "-q", "-i", out, "--itrace=i1i", "-F", "sym,dso"], capture_output=True, text=True)
    return set(re.findall(rf"^ *(\w+) \(\S*/{re.escape(name)}\)$", done.stdout, re.MULTILINE))


def unnamed_files(folder):
    """A memfd and a deleted file: nothing but the recorder has a copy of them when the program ended."""
    for flag in ("-Wl,--build-id=none", "-Wl,--build-id"):
        program = emulate.build("unnamed", folder, flag)
        out, _, _ = emulate.record(folder, [program])
        found = functions_of(out, "memfd:copy")
        check(f"{flag}: functions of a memfd have names", "second_program" in found and "first_program" not in found, str(found))
        for name in ("of/..", "/", "of/."):
            out, _, _ = emulate.record(folder, ["env", f"COPY_NAME={name}", program])
            shown = functions_of(out, "file")
            check(f"{flag}: a memfd whose name is that of a folder: {name}", "second_program" in shown, str(shown))
        gone = os.path.join(folder, "gone")
        out, _, _ = emulate.record(folder, ["sh", "-c", f"cp {program} {gone}; exec 5<{gone}; rm {gone}; exec /proc/self/fd/5 again"])
        check(f"{flag}: functions of a deleted program have names", "second_program" in functions_of(out, "gone"), str(functions_of(out, "gone")))
        library = os.path.join(folder, "libgone.so")
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", flag, os.path.join(emulate.PROGRAMS, "plugin.c"), "-o", library], check=True)
        out, _, _ = emulate.record(folder, [program, library])
        check(f"{flag}: functions of a deleted library have names", "fold" in functions_of(out, "libgone.so"), str(functions_of(out, "libgone.so")))


def hide_note_segments(path):
    """Leaves the build id in a section that no PT_NOTE segment contains, as the linker of Go does. [ELF] "Program Header": p_type 4 is PT_NOTE."""
    with open(path, "r+b") as file:
        head = file.read(64)
        (start,), (size, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
        for at in range(start, start + size * count, size):
            file.seek(at)
            if struct.unpack("<I", file.read(4))[0] == 4:
                file.seek(at)
                file.write(struct.pack("<I", 0))


def build_ids(folder):
    """No code of a program that neither writes nor maps code is from no file."""
    library, program = os.path.join(folder, "libcounted.so"), os.path.join(folder, "counted")
    for what, flag in (("usual", "-Wl,--build-id"), ("in a section only", "-Wl,--build-id"), ("none", "-Wl,--build-id=none"),
                       ("zeros", "-Wl,--build-id=0x" + 40 * "0"), ("of 32 bytes", "-Wl,--build-id=0x" + 32 * "5a")):
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", flag, os.path.join(emulate.PROGRAMS, "plugin.c"), "-o", library], check=True)
        subprocess.run([os.environ.get("CC", "cc"), flag, os.path.join(emulate.PROGRAMS, "counted.c"), "-o", program], check=True)
        if what == "in a section only":
            hide_note_segments(library)
            hide_note_segments(program)
        out, place = os.path.join(folder, "ids.data"), dict(os.environ, LD_PRELOAD=library)
        done = subprocess.run([emulate.PTDECODE, "record", "--emulate", "--no-stash", "--plugin", emulate.PLUGIN, "-o", out, "--", program],
                              capture_output=True, text=True, env=place)
        check(f"build id {what}: all code is from files", done.returncode == 0 and "1 process" in done.stderr and "from no file" not in done.stderr, done.stderr)


def writable_code(folder):
    """The record of code that a program may write to has that protection. What it wrote is recorded; without that the code is marked."""
    program = emulate.build("own_text", folder)
    out, _, _ = emulate.record(folder, [program])
    maps = [record for kind, _, record, _ in checks.perf_records(out) if kind == 10 and record[72:].split(b"\0")[0] == os.path.realpath(program).encode()]
    check("code that is made writable: its protection", [struct.unpack_from("<I", record, 64)[0] for record in maps] == [5, 7], str(maps))
    told = subprocess.run([emulate.PTDECODE, "check", "-i", out], capture_output=True, text=True).stdout
    check("changes of writable code are recorded", "could write to its code" not in told, told)
    done = subprocess.run([emulate.PTDECODE, "record", "--emulate", "--no-stash", "--no-ran-code", "--plugin", emulate.PLUGIN, "-o", out, "--", program],
                          capture_output=True, text=True)
    told = subprocess.run([emulate.PTDECODE, "check", "-i", out], capture_output=True, text=True).stdout
    check("writable code without its changes is a finding", done.returncode == 0 and f"{os.path.realpath(program)}: process" in told, done.stderr + told)


def small_words(folder):
    """A 32-bit program is named as one."""
    program = os.path.join(folder, "small")
    with open(program, "wb") as file:
        file.write(b"\x7fELF\x01\x01\x01" + bytes(9) + struct.pack("<HHI", 2, 3, 1) + bytes(28))
    os.chmod(program, 0o755)
    done = subprocess.run([emulate.PTDECODE, "record", "--emulate", "--plugin", emulate.PLUGIN, "-o", os.path.join(folder, "small.data"), "--", program],
                          capture_output=True, text=True)
    check("a 32-bit program is refused as one", done.returncode == 126 and f"{program}: a 32-bit program; " in done.stderr, f"{done.returncode} {done.stderr}")


def main():
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        work_clock_over_exec(folder)
        names(folder)
        small_limits(folder)
        unnamed_files(folder)
        build_ids(folder)
        writable_code(folder)
        small_words(folder)
    return 1 if emulate.failures else 0


if __name__ == "__main__":
    sys.exit(main())
