#!/usr/bin/env python3
"""What filters select, and what commands say where they select nothing or where an output is lost.

The expected results follow from the programs. Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import perfetto_reader

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
# Three threads, one after the other, 20 ms apart. Each has a name that is no UTF-8, and prints its number and the time at which it is half done.
THREADS = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
static void *work(void *which) {
  struct timespec now;
  char name[] = "part\xff 0";
  name[6] += (int)(long)which;
  prctl(PR_SET_NAME, name);
  for (volatile int i = 0; i < 20000; ++i) {}
  clock_gettime(CLOCK_MONOTONIC, &now);
  printf("%d %ld.%09ld\n", gettid(), (long)now.tv_sec, now.tv_nsec);
  for (volatile int i = 0; i < 20000; ++i) {}
  return 0;
}
int main(void) {
  for (long i = 0; i < 3; ++i) {
    pthread_t thread;
    pthread_create(&thread, 0, work, (void *)i);
    pthread_join(thread, 0);
    usleep(20000);
  }
  return 0;
}
"""
# `fault` faults in its first instruction 5 times, `other` 7 times; a handler returns after the instruction.
FAULTS = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <ucontext.h>
static void on_fault(int number, siginfo_t *info, void *context) { ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2; }
__attribute__((naked, noinline)) static void fault(void) { __asm__("ud2\n ret"); }
__attribute__((naked, noinline)) static void other(void) { __asm__("ud2\n ret"); }
int main(void) {
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  sigaction(SIGILL, &action, 0);
  for (int i = 0; i < 5; ++i) fault();
  for (int i = 0; i < 7; ++i) other();
  return 0;
}
"""


def run(*words, **options):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PTDECODE_STASH": "off", "DEBUGINFOD_URLS": ""}, **options)


class Filters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.printed = {name: cls.recorded(name, text) for name, text in (("threads", THREADS), ("faults", FAULTS))}

    @classmethod
    def recorded(cls, name, text):
        source = cls.folder / (name + ".c")
        source.write_text(text)
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-g", "-static", "-fcf-protection=none", "-pthread", source, "-o", cls.folder / name], check=True)
        done = run("record", "--emulate", "-q", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", cls.folder / (name + ".data"), "--", cls.folder / name)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def test_a_bundle_of_a_time_has_the_threads_of_that_time(self):
        tids, times = zip(*(line.split() for line in self.printed["threads"].splitlines()))
        main = {json.loads(line)["tid"] for line in run("script", "-q", "-i", self.folder / "threads.data", "-S", "main", "--json").stdout.splitlines()[1:]}
        self.assertEqual(len(main), 1)
        for tid, time in zip(tids, times):
            bundle = self.folder / "cut.ptdb"
            done = run("bundle", "-q", "-i", self.folder / "threads.data", "--time", f"{time},+1us", "-o", bundle)
            self.assertEqual(done.returncode, 0, done.stderr)
            streams = {stream["tid"] for stream in json.loads(run("info", "--json", "-i", bundle).stdout)["streams"] if stream["bytes"] != 0}
            self.assertEqual(streams - main, {int(tid)})
            bundle.unlink()

    def test_names_that_are_no_utf_8_are_text_in_the_timeline(self):
        done = run("timeline", "-q", "-i", self.folder / "threads.data", "-o", self.folder / "t.pftrace")
        self.assertEqual(done.returncode, 0, done.stderr)
        tracks = perfetto_reader.read((self.folder / "t.pftrace").read_bytes())[0]  # raises UnicodeDecodeError
        self.assertEqual({facts["thread"] for facts in tracks.values() if "part" in facts["thread"]}, {rf"part\xff {i}" for i in range(3)})

    def test_a_thread_without_a_name_is_shown_by_its_number(self):
        """Without COMM records (linux/perf_event.h: type 3), stacks are below ":TID"."""
        content = bytearray((self.folder / "threads.data").read_bytes())
        start, size = struct.unpack_from("<QQ", content, 40)
        at = start
        while at < start + size:
            kind, _, record = struct.unpack_from("<IHH", content, at)
            if kind == 3:
                struct.pack_into("<I", content, at, 1000)
            at += record + (struct.unpack_from("<Q", content, at + 8)[0] if kind == 71 else 0)  # AUXTRACE has its bytes after it
        path = self.folder / "nameless.data"
        path.write_bytes(content)
        tids = {line.split()[0] for line in self.printed["threads"].splitlines()}
        lines = run("flame", "-q", "-i", path, "--format", "folded").stdout.splitlines()
        roots = {line.split(";")[0] for line in lines}
        self.assertEqual({root for root in roots if re.fullmatch(r":\d+", root)}, roots)
        self.assertLessEqual({":" + tid for tid in tids}, roots)
        self.assertEqual(run("profile", "-q", "-i", path, "--format", "pprof", "-o", self.folder / "nameless.pb").returncode, 0)
        content = (self.folder / "nameless.pb").read_bytes()
        self.assertEqual([root for root in roots if root.encode() not in content], [])

    def test_events_outside_of_the_functions_are_not_listed(self):
        """The signals' frames: the trace is interrupted at the faulting instructions."""
        for name, count in (("fault", 5), ("other", 7)):
            lines = run("script", "-q", "-i", self.folder / "faults.data", "--itrace=be", "-F", "ip,sym,addr,flags", "-S", name).stdout.splitlines()
            self.assertGreater(len(lines), count)
            self.assertEqual([line for line in lines if not re.fullmatch(rf" +[a-z ]+ +[0-9a-f]+ {name} => .*", line)], [])
            self.assertEqual(sum("tr end" in line for line in lines), count, lines)

    def test_packets_of_a_time(self):
        """Those whose time in the listing of all packets lies in the window."""
        demo, dated = SOURCE / "data" / "demo", re.compile(r" time +(\d+)\.(\d{9}) ")

        def times(*words):
            lines = run("packets", "-q", "-i", demo, "-C", "1", *words).stdout.splitlines()
            return [int(found[1] + found[2]) for found in map(dated.search, lines) if found]

        every = times()
        first, last = min(every), max(every)
        for window in ((first + (last - first) // 5, first + (last - first) // 4), (first, last)):
            words = ",".join(f"{time // 10**9}.{time % 10**9:09}" for time in window)
            self.assertEqual(times("--time", words), [time for time in every if window[0] <= time <= window[1]])
        self.assertLess(len(times("--time", "20%-30%")), len(every) // 4)
        done = run("packets", "-i", demo, "--time", "1,2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("nothing matched --time", done.stderr)

    def test_lost_flow_is_that_of_the_threads_that_are_wanted(self):
        """A library that only one of two programs uses is gone."""
        library, data = self.folder / "libgone.so", self.folder / "gone.data"
        for name, text, flags in (("libgone.so", "int work(void) { return 7; }\n", ("-shared", "-fPIC")),
                                  ("loses", "int work(void);\nint main(void) { return work() != 7; }\n", ("libgone.so", "-Wl,-rpath," + str(self.folder))),
                                  ("keeps", "int main(void) { return 0; }\n", ())):
            subprocess.run([os.environ.get("CC", "cc"), "-x", "c", "-", "-x", "none", *flags, "-o", name], input=text, text=True, cwd=self.folder, check=True)
        done = run("record", "--emulate", "-q", "--no-stash", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", data, "--", "sh", "-c",
                   f"{self.folder}/loses; {self.folder}/keeps; :")
        self.assertEqual(done.returncode, 0, done.stderr)
        library.unlink()
        pids = {thread["comm"]: thread["pid"] for thread in json.loads(run("info", "-i", data, "--json").stdout)["threads"]}
        for words in (("functions",), ("script",), ("flame", "--format", "folded"), ("coverage", "--dso", "*")):
            for name, loses in (("loses", True), ("keeps", False), ("sh", False)):
                for filter_words in (("--comm", name), ("--pid", pids[name])):
                    with self.subTest(words=words, filter=filter_words):
                        done = run(*words, "-i", data, *filter_words)
                        self.assertEqual("flow was lost" in done.stderr, loses, done.stderr)

    def test_coverage_names_the_filter_that_matches_nothing(self):
        for words, said in ((["--source", "/nowhere"], "no source file of the code that ran matches --source"), (["--dso", "nothing"], "no code that ran matches --dso")):
            done = run("coverage", "-i", self.folder / "faults.data", *words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)

    def test_coverage_names_the_code_without_debug_information(self):
        """Also if there is debug information of other code: here of a library."""
        for name, text, flags in (("library", "void work(void) { __asm__ volatile(\"\"); }\n", ("-g", "-shared", "-fPIC", "-o", "libwork.so")),
                                  ("plain", "void work(void);\nint main(void) { work(); return 0; }\n", ("-L.", "-lwork", "-Wl,-rpath," + str(self.folder), "-o", "plain"))):
            (self.folder / (name + ".c")).write_text(text)
            subprocess.run([os.environ.get("CC", "cc"), name + ".c", *flags], cwd=self.folder, check=True)
        data = self.folder / "plain.data"
        done = run("record", "--emulate", "-q", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", data, "--", self.folder / "plain")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run("coverage", "-i", data, "--source", self.folder / "plain.c")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, rf"no source file .* matches --source.* no debug information in .*{self.folder / 'plain'}\b.*compile with -g")
        self.assertNotRegex(done.stderr, "no debug information in .*libwork")

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_a_result_that_is_lost_is_an_error_although_there_is_a_finding(self):
        patch = SOURCE / "data" / "user" / "patch.bundle"
        times = [float(time) for time in re.findall(r"\[(\d+\.\d+)\.\.", run("image", "-q", "-i", patch).stdout)]
        words = ["image", "-q", "-i", str(patch), "--diff", f"{times[0] + 0.0001:.6f},{times[-1] + 1:.6f}"]
        self.assertEqual(run(*words).returncode, 3)
        with open("/dev/full", "w") as full:
            done = subprocess.run([PTDECODE, *words], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write to standard output", done.stderr)

    def test_a_threshold_of_cycles_needs_cycles(self):
        done = run("record", "--emulate", "--cyc-thresh", "4", "-o", self.folder / "x.data", "--", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--cyc", done.stderr)
        self.assertFalse((self.folder / "x.data").exists())

    def test_a_stripped_program_is_still_the_code_that_ran(self):
        program = self.folder / "faults"
        shutil.copy2(program, self.folder / "kept")
        self.addCleanup(shutil.move, self.folder / "kept", program)
        subprocess.run(["strip", program], check=True)
        said = run("check", "-i", self.folder / "faults.data").stdout
        self.assertNotIn("is not the code that ran", said)
        self.assertNotIn("bytes", "\n".join(line for line in said.splitlines() if str(program) in line))


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("skipped: no qemu-x86_64")
        sys.exit(77)
    unittest.main()
