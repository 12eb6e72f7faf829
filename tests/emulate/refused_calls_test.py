#!/usr/bin/env python3
"""System calls that qemu-user refuses: `record --emulate` names each kind once, in one line for each program.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-user.
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
SOURCE = os.environ["PTDECODE_SOURCE"]
PROGRAM = os.path.join(SOURCE, "tests/emulate/programs/refused_calls.c")
NAMES = os.path.join(SOURCE, "capture/emulate/shared/syscall_names.cc")
# Calls that no supported version of Linux has, and those that only its own code makes.
GONE = set("uretprobe uprobe uselib create_module get_kernel_syms query_module nfsservctl getpmsg putpmsg afs_syscall tuxcall security set_thread_area "
           "get_thread_area epoll_ctl_old epoll_wait_old vserver _sysctl lookup_dcookie".split())
SILENT = ("clone3", "fchmodat2", "get_mempolicy", "pkey_alloc", "rseq", "set_robust_list")
MANY = """ptrace keyctl perf_event_open fanotify_init process_vm_readv process_vm_writev seccomp bpf userfaultfd io_uring_setup landlock_create_ruleset
          memfd_secret openat2 preadv2 pwritev2 epoll_pwait2 futex_waitv mbind move_pages mlock2 process_madvise fsopen""".split()


def numbers_of(compiler):
    """Returns the numbers of all calls in the headers of the compiler's system, by name."""
    text = subprocess.run([compiler, "-dM", "-E", "-x", "c", "-include", "asm/unistd.h", os.devnull], capture_output=True, text=True, check=True).stdout
    macros = dict(re.findall(r"#define (__NR\w+) (\w+)", text))
    numbers = {}
    for name, value in macros.items():
        while value in macros:
            value = macros[value]
        if name.startswith("__NR_") and name not in ("__NR_syscalls", "__NR_arch_specific_syscall"):
            numbers[name[5:]] = int(value)
    return numbers


def listed_names(machine):
    with open(NAMES, encoding="utf-8") as file:
        lists = dict(re.findall(r"string_view (k\w+) =([^;]*);", file.read()))
    words = {name: " ".join(re.findall(r'"(.*?) ?"', text)).split() for name, text in lists.items()}
    names = dict(enumerate(words["kFirstX86_64" if machine == "x86_64" else "kFirstAarch64"]))
    names.update(enumerate(words["kShared"], 424))
    return names


class Refused(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.programs = {}  # path and numbers of calls, by machine
        for compiler in (os.environ.get("CC", "cc"), "aarch64-linux-gnu-gcc"):
            if shutil.which(compiler) is None:
                continue
            machine = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True, check=True).stdout.split("-", maxsplit=1)[0]
            path = os.path.join(cls.folder.name, machine)
            made = subprocess.run([compiler, "-O1", "-w", "-static", "-pthread", PROGRAM, "-o", path], capture_output=True, text=True)
            if made.returncode == 0 and shutil.which("qemu-" + machine):
                cls.programs[machine] = (path, numbers_of(compiler))
        if not cls.programs:
            raise unittest.SkipTest("no compiler with a static C library and qemu-user for its programs")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def record(self, *command):
        """Returns what the program printed, and the list of refused calls."""
        out = os.path.join(self.folder.name, "out.data")
        done = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", PLUGIN, "--no-stash", "-o", out, "--", *command], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line for line in done.stderr.splitlines() if "refused" in line]
        self.assertLessEqual(len(lines), 1, done.stderr)
        start = f"ptdecode: {command[0]}: the emulator refused system calls, so the program may have run in another way than without it: "
        self.assertTrue(all(line.startswith(start) for line in lines), done.stderr)
        return done.stdout.split(), lines[0][len(start):] if lines else ""

    def test_names_are_those_of_the_headers(self):
        for machine, (_, numbers) in self.programs.items():
            names = listed_names(machine)
            for name, number in numbers.items():
                if number <= max(names):  # newer calls are named by their numbers
                    self.assertEqual(names.get(number, "-"), "-" if name in GONE else name, (machine, number))

    def test_threads_and_vfork_run(self):
        for path, _ in self.programs.values():
            self.assertEqual(self.record(path, "threads"), ([], ""))

    def test_each_kind_of_clone_is_named_once(self):
        for path, _ in self.programs.values():
            self.assertEqual(self.record(path, "clone")[1].split(", "), ["clone with flags 0x700", "clone with flags 0x4500", "clone with flags 0x200",
                                                                         "clone with exit signal 10", "clone with flags 0x8000", "prctl(PR_SET_SECCOMP)"])

    def test_calls_are_named(self):
        for path, numbers in self.programs.values():
            for begin in range(0, len(MANY), 12):
                wanted = {str(numbers[name]): name for name in MANY[begin:begin + 12] if name in numbers}
                seen, named = self.record(path, *wanted, *wanted)
                self.assertIn(str(numbers["ptrace"]) if begin == 0 else str(numbers["mbind"]), seen)
                self.assertEqual(named, ", ".join(wanted[number] for number in dict.fromkeys(seen)))

    def test_a_long_list_ends_with_the_number_of_others(self):
        for path, numbers in self.programs.values():
            seen, named = self.record(path, *(str(numbers[name]) for name in MANY if name in numbers))
            listed, more = re.fullmatch(r"(.*) and (\d+) more", named).groups()
            self.assertEqual((len(listed.split(", ")), 16 + int(more)), (16, len(seen)))

    def test_calls_without_a_name_and_calls_that_are_left_out(self):
        for path, numbers in self.programs.values():
            left_out = [str(numbers[name]) for name in SILENT if name in numbers]
            seen, named = self.record(path, *left_out, "400", "500", "600", "100000")
            self.assertEqual((seen[-4:], named), (["400", "500", "600", "100000"], "system call 500"))

    def test_common_programs_give_no_line(self):
        for command in (["/bin/ls", "/"], [os.path.realpath(sys.executable), "-c", "import threading; threading.Thread(target=print).start()"]):
            self.assertEqual(self.record(*command)[1], "", command)


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None and shutil.which("qemu-aarch64") is None:
        print("skipped: no qemu-user")
        sys.exit(77)
    unittest.main()
