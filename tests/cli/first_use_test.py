#!/usr/bin/env python3
"""The first steps of a new user, on programs of the system and small ones of the test, recorded under the emulator.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import collections
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
FOLDER = tempfile.TemporaryDirectory()
WORK = pathlib.Path(FOLDER.name)
os.environ["PTDECODE_STASH"] = str(WORK / "stash")


def run(*words, **more):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=600, **more)


def json_lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def build(name, text, *flags, suffix=".c"):
    source, program = WORK / (name + suffix), WORK / name
    source.write_text(text)
    compiler = os.environ.get("CXX", "c++") if suffix == ".cc" else os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O1", "-fno-inline", "-w", "-g", source, *flags, "-o", program], check=True)
    return program


def record(name, *command, words=(), **more):
    path = WORK / (name + ".data")
    done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], *words, "-o", path, "--", *command, **more)
    assert path.exists(), done.stderr
    return path, done


def functions(path, *words):
    """Returns the rows of `functions` for calls only, as listings and bundles have them; fails if it does."""
    done = run("functions", "-q", "--no-inline", "-i", path, "--limit", "0", "--format", "json", *words)
    assert done.returncode == 0, done.stderr
    return [line for line in json_lines(done) if "function" in line]


def folded(path, *words):
    """Returns stack -> amount."""
    lines = run("flame", "-q", "-i", path, "--format", "folded", *words).stdout.splitlines()
    return {line.rsplit(" ", 1)[0]: int(line.rsplit(" ", 1)[1]) for line in lines}


WORKER = """
#include <sys/prctl.h>
#include <stdlib.h>
volatile int sink;
void step(int n) { for (int i = 0; i < n; i++) sink += i; }
int main(int argc, char** argv) {
  step(100);
  if (argc > 2) prctl(PR_SET_NAME, argv[2]);
  step(atoi(argv[1]));
  return 0;
}
"""


class Shell(unittest.TestCase):
    """Two programs started by a shell, in two processes."""

    @classmethod
    def setUpClass(cls):
        cls.first, cls.second = build("first_one", WORKER), build("second_one", WORKER)
        cls.path, _ = record("shell", "/bin/sh", "-c", f"{cls.first} 1000; {cls.second} 3000; exit 0")

    def test_the_flame_graph_has_each_program_under_its_own_name(self):
        own = collections.Counter()
        for stack, amount in folded(self.path).items():
            own[stack.split(";")[0]] += amount
        self.assertEqual(set(own), {"sh", "first_one", "second_one"})
        for name, amount in own.items():
            self.assertEqual(amount, sum(line["self_ns"] for line in functions(self.path, "--comm", name)), name)
        self.assertTrue(any(stack.startswith("second_one;") and stack.endswith(";main;step") for stack in folded(self.path)))

    def test_a_call_is_below_the_name_that_its_thread_had(self):
        path, _ = record("renamed", self.first, "3000", "other name")
        steps = {stack.split(";")[0]: stack.split(";")[-2:] for stack in folded(path) if stack.endswith(";step")}
        self.assertEqual(steps, {"first_one": ["main", "step"], "other_name": ["main", "step"]})

    def test_a_file_without_a_command_is_described(self):
        done = run("-i", self.path)
        self.assertEqual((done.returncode, done.stdout), (0, run("info", "-i", self.path).stdout))
        self.assertEqual(run(f"--input={self.path}", "-q").stdout, done.stdout)
        self.assertEqual(run("-i", WORK / "absent").returncode, 1)
        self.assertEqual(run("-i").returncode, 2)
        self.assertEqual(run("-i", self.path, "functions").stdout, run("functions", "-i", self.path).stdout)  # options may come first
        self.assertIn("usage", run("--help").stdout.lower())

    def test_functions_are_chosen_by_wildcards(self):
        """Functions of libraries have several names, any of which may match (`malloc` is also `__libc_malloc`)."""
        def of_program(lines, name):
            return {line[name] for line in lines if name in line and not line["module"].startswith(("libc.", "ld-"))}
        called = {line["function"] for line in functions(self.path)}
        own = of_program(functions(self.path), "function")
        for pattern in ("_*", "*tep", "st?p", "[ms]*", "main"):
            want = {name for name in called if fnmatch.fnmatchcase(name, pattern)}
            self.assertTrue(want, pattern)
            found = functions(self.path, "--func", pattern)
            names = {line["function"] for line in found}
            self.assertLessEqual(want, names)
            self.assertEqual(of_program(found, "function"), want & own)
            listed = json_lines(run("script", "-q", "-i", self.path, "-S", pattern, "--format", "json"))
            self.assertEqual({line["call"] for line in listed if "call" in line}, names, pattern)
            listed = run("script", "-q", "-i", self.path, "--itrace=b", "-F", "sym", "-S", pattern).stdout.split()
            self.assertTrue(listed, pattern)
            self.assertTrue(all(fnmatch.fnmatchcase(name, pattern) or name in names for name in listed[::2] if name != "=>"), pattern)
        slow = run("functions", "-q", "-i", self.path, "--func", "st?p", "--slowest", "2").stdout.splitlines()
        self.assertTrue(slow[-1].endswith("  step"), slow)
        none = run("functions", "-i", self.path, "--func", "nobody*")
        self.assertEqual(none.returncode, 2)

    def test_one_is_no_plural(self):
        path, _ = record("alone", self.first, "10")
        for words in (["functions"], ["info"], ["stat"], ["stat", "--losses"], ["script"], ["check"], ["functions", "--limit", "1"],
                      ["functions", "--limit", str(len(functions(path)) - 1)]):
            done = run(*words, "-i", path)
            self.assertNotRegex(done.stdout + done.stderr, r"\b1 (?!ns|us|ms)[a-z]+( [a-z]+)?s\b(?! of| with)", words)

    def test_the_estimate_names_its_command(self):
        self.assertRegex(run("info", "-i", self.path).stdout, r"(?m)^trace .*; ptdecode stat takes (about|less than) ")

    def test_folded_stacks_have_one_blank(self):
        program = build("blanks", """
            #include <map>
            template <class A, class B> int take(std::map<A, B> const& all, unsigned long long n) { int s = 0; for (auto& e : all) s += e.second; return s + n; }
            int main() { std::map<int, int> m; for (int i = 0; i < 100; i++) m[i] = i; return take<int, int>(m, 3) == 4953 ? 0 : 1; }
            """, suffix=".cc")
        path, done = record("blanks", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = run("flame", "-q", "-i", path, "--format", "folded").stdout.splitlines()
        self.assertTrue(any("take<int,_int>" in line for line in lines))
        for line in lines:
            self.assertEqual(line.count(" "), 1, line)

    @unittest.skipUnless(shutil.which("node"), "node is not installed")
    def test_searching_the_flame_graph_tells_the_share_of_time(self):
        svg = WORK / "search.svg"
        self.assertEqual(run("flame", "-q", "-i", self.path, "-o", svg).returncode, 0)
        text = svg.read_text()
        # The script's view of the document in a browser: frames with attributes, and nothing else.
        frames = [dict(re.findall(r'(data-\w+)="([^"]*)"', group)) for group in re.findall(r'<g class="f"[^>]*>', text)]
        script = re.search(r"<script><!\[CDATA\[(.*)\]\]></script>", text, re.S).group(1)
        stub = """
            var info = {}, style = function () { return { style: {}, setAttribute: function () {}, addEventListener: function () {} }; };
            var made = FRAMES.map(function (a) { var g = style(); g.getAttribute = function (k) { return a[k]; }; g.querySelector = style; return g; });
            var document = { documentElement: { querySelectorAll: function () { return made; } },
                             getElementById: function (id) { return id === 'info' ? info : style(); } };
            var window = { addEventListener: function () {} };
            """.replace("FRAMES", json.dumps(frames))
        stacks = folded(self.path)
        whole = sum(stacks.values())
        for word in ("^step$", "main", "second_one", "^nobody$"):
            done = subprocess.run(["node", "-e", stub + script + f"search({json.dumps(word)}); console.log(info.textContent);"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            share = 100 * sum(amount for stack, amount in stacks.items() if any(re.search(word, name) for name in stack.split(";"))) / whole
            said = re.match(r".*: ([0-9.]+) % in \d+ frames?$", done.stdout)
            self.assertTrue(said, done.stdout)
            self.assertAlmostEqual(float(said.group(1)), share, delta=0.2)  # frames that are too narrow to draw are not searched


LIBRARY = """
volatile int sink;
static int inner(int n) { for (int i = 0; i < n; i++) sink += i; return sink; }
int outer(int n) { return inner(n) + inner(n / 2); }
"""
CALLER = """
int outer(int);
int main(int argc, char** argv) { return outer(40 * argc) == -1; }
"""


class Unnamed(unittest.TestCase):
    """Two stripped programs with a library of two functions, one of which has no name, executed one after the other."""

    @classmethod
    def setUpClass(cls):
        whole = build("libunnamed.so", LIBRARY, "-shared", "-fPIC")
        nm = subprocess.run(["nm", whole], capture_output=True, text=True).stdout
        cls.inner = {line.split()[2]: int(line.split()[0], 16) for line in nm.splitlines() if len(line.split()) == 3}["inner"]
        subprocess.run(["strip", whole], check=True)
        cls.programs = []
        for name in ("stripped_a", "stripped_b"):
            program = build(name, CALLER, str(whole), f"-Wl,-rpath,{WORK}", "-s")
            cls.programs.append(program)
        cls.path, done = record("unnamed", "/bin/sh", "-c", "; ".join(map(str, cls.programs)) + "; exit 0")
        assert done.returncode == 0, done.stderr

    def test_code_without_a_name_is_known_by_module_and_offset(self):
        rows = {line["function"]: line for line in functions(self.path)}
        self.assertEqual(rows[f"libunnamed.so+{self.inner:#x}"]["calls"], 4, "the same function of two processes")
        self.assertEqual(rows[f"libunnamed.so+{self.inner:#x}"]["module"], "libunnamed.so")
        for program in self.programs:
            self.assertTrue([name for name in rows if name.startswith(program.name + "+0x")], (program.name, sorted(rows)))
        for name in rows:
            self.assertNotRegex(name, r"^0x|^\[unnamed code\]", "an address means nothing in another process")
            if name.startswith("[unnamed"):
                self.assertEqual(name, f"[unnamed code of {rows[name]['module']}]")

    def test_every_view_has_the_same_names(self):
        name = f"libunnamed.so+{self.inner:#x}"
        self.assertEqual(sum(stack.count(";outer;" + name) for stack in folded(self.path)), 2, "one stack in each program")
        tree = run("script", "-q", "-i", self.path, "-S", name).stdout
        self.assertEqual(tree.count(" " + name), 4)
        listed = json_lines(run("script", "-q", "-i", self.path, "-S", name, "--format", "json"))
        self.assertEqual([line["module"] for line in listed if line.get("call") == name], ["libunnamed.so"] * 4)
        self.assertIn(name.encode(), (run("timeline", "-q", "-i", self.path, "-o", WORK / "unnamed.pftrace"), (WORK / "unnamed.pftrace").read_bytes())[1])
        self.assertEqual([line["function"] for line in functions(self.path, "--func", name)], [name])
        table = run("functions", "-q", "-i", self.path, "--limit", "0", "--full-names").stdout
        self.assertRegex(table, rf"(?m) {re.escape(name)}$")

    def test_a_bundle_has_the_same_names(self):
        bundle = WORK / "unnamed.ptb"
        self.assertEqual(run("bundle", "-q", "-i", self.path, "-o", bundle).returncode, 0)
        self.assertEqual(functions(bundle), functions(self.path))
        for words in (("coverage", "-o", WORK / "no.info"), ("profile", "-o", WORK / "no.profile")):
            done = run(*words, "-i", bundle)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("a bundle contains code and names but no source lines of files; use the recording that it was made from", done.stderr)


JIT = r"""
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
/* mov %edi, %ecx; xor %eax, %eax; 1: add %ecx, %eax; dec %ecx; jnz 1b; ret */
static const unsigned char kCode[] = {0x89, 0xf9, 0x31, 0xc0, 0x01, 0xc8, 0xff, 0xc9, 0x75, 0xfa, 0xc3};
static unsigned long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ul + t.tv_nsec; }
struct head { unsigned magic, version, size, machine, pad, pid; unsigned long time, flags; };
struct load { unsigned id, size; unsigned long time; unsigned pid, tid; unsigned long vma, address, bytes, index; };
int main(int argc, char** argv) {
  char* code = mmap(0, 8192, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char path[64];
  int dump = strcmp(argv[1], "dump") == 0;
  sprintf(path, dump ? "jit-%d.dump" : "/tmp/perf-%d.map", getpid());
  if (strcmp(argv[1], "link") == 0) symlink("/dev/null", path);
  FILE* file = fopen(path, "w+");
  struct head head = {0x4A695444, 1, 40, 62, 0xdeadbeef, getpid(), now(), 0};
  if (dump) {
    fwrite(&head, 40, 1, file);
    fflush(file);
    mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0);
  } else {
    fprintf(file, "%lx %x gone_by_now\nno line\n%lx %lx main_is_elsewhere\n", (long)code, 64, (long)main, 16l);
  }
  static const char* kNames[] = {"JS:*warm loop.js:1", "JS:*hot loop.js:2"};
  int sum = 0;
  for (int i = 0; i < 2; i++) {
    char* at = code + 4096 * i;
    memcpy(at, kCode, sizeof kCode);
    struct load load = {0, sizeof load + strlen(kNames[i]) + 1 + sizeof kCode, now(), getpid(), getpid(), (long)at, (long)at, sizeof kCode, i};
    if (dump) {
      fwrite(&load, sizeof load, 1, file);
      fwrite(kNames[i], strlen(kNames[i]) + 1, 1, file);
      fwrite(kCode, sizeof kCode, 1, file);
    } else {
      fprintf(file, "%lx %lx %s\n", (long)at, (long)sizeof kCode, kNames[i]);
    }
    fflush(file);
    for (int k = 0; k < 10; k++) sum += ((int (*)(int))at)(i ? 20000 : 200);
  }
  printf("%d\n", getpid());
  return 0;
}
"""


class JitNames(unittest.TestCase):
    """A program that generates two functions at run time and names them, as node --perf-prof and --perf-basic-prof do."""

    @classmethod
    def setUpClass(cls):
        cls.program = build("jit", JIT)

    def made(self, how):
        path, done = record("jit_" + how, self.program, how, cwd=WORK)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.pid = int(done.stdout)
        return path

    def check(self, path):
        rows = {line["function"]: line for line in functions(path)}
        whole = sum(line["self_instructions"] for line in rows.values())
        for name, turns in (("JS:*warm loop.js:1", 200), ("JS:*hot loop.js:2", 20000)):
            self.assertEqual(rows[name]["calls"], 10, sorted(rows))
            self.assertEqual(rows[name]["self_instructions"], 10 * (3 + 3 * turns), name)  # of the loop, counted by hand
        self.assertGreater(rows["JS:*hot loop.js:2"]["self_instructions"], whole / 2)
        self.assertFalse([name for name in rows if name.startswith("code_") or "gone" in name or "elsewhere" in name])
        self.assertIn("main", rows)
        return rows

    def test_a_jitdump_names_the_code_in_which_the_time_was(self):
        path = self.made("dump")
        self.check(path)
        said = run("functions", "-i", path).stderr
        self.assertNotIn("clock", said)
        bundle = WORK / "jit.ptb"
        self.assertEqual(run("bundle", "-q", "-i", path, "-o", bundle).returncode, 0)
        self.check(bundle)

    def test_a_perf_map_that_is_a_link_is_not_saved(self):
        path, done = record("jit_link", self.program, "link", cwd=WORK)
        there = f"/tmp/perf-{int(done.stdout)}.map"
        self.addCleanup(os.unlink, there)
        self.assertEqual(done.stderr.count(there), 1)
        self.assertIn(f"ptdecode: not saved: {there}: a symbolic link\n", done.stderr)
        self.assert_refused(path, there, "a symbolic link")

    def assert_refused(self, path, perf_map, why, *words):
        said = run("functions", "-i", path, "--stash", "off", *words).stderr.splitlines()
        self.assertEqual([line for line in said if str(perf_map) in line], [f"ptdecode: warning: not used for names: {perf_map}: {why}"])

    def test_a_perf_map_names_code_too(self):
        path = self.made("map")
        there = pathlib.Path(f"/tmp/perf-{self.pid}.map")
        self.addCleanup(lambda: there.unlink(missing_ok=True))
        rows = self.check(path)
        self.assertEqual(rows["JS:*hot loop.js:2"]["module"], there.name)
        self.assertIn("it has no times, so each address has its last name", run("functions", "-i", path).stderr)
        bundle = WORK / "map.ptb"
        self.assertEqual(run("bundle", "-q", "-i", path, "-o", bundle).returncode, 0)
        root = WORK / "root"
        (root / "tmp").mkdir(parents=True)
        shutil.move(there, root / "tmp" / there.name)
        self.check(path)  # from the copy in the stash
        self.check(bundle)

        def named(*words):
            return [line for line in functions(path, "--stash", "off", *words) if line["function"].startswith("JS:")]
        self.assertFalse(named())
        self.assertTrue(named("--symfs", root))
        # Of a map with too many names, those of code that the recording has are used.
        many = WORK / "many"
        (many / "tmp").mkdir(parents=True)
        lines = "".join(f"{0x100000 + 16 * i:x} 10 other{i}\n" for i in range(2_200_000))
        (many / "tmp" / there.name).write_text(lines + (root / "tmp" / there.name).read_text() + lines)
        self.assertEqual(named("--symfs", many), named("--symfs", root))
        # Files in /tmp of another user are not trusted, and neither are links.
        kept = root / "tmp" / there.name
        there.symlink_to(kept)
        self.assertFalse(named())
        self.assert_refused(path, there, "a symbolic link")
        there.unlink()
        for where, words in ((there, ()), (WORK / "odd" / "tmp" / there.name, ("--symfs", WORK / "odd"))):
            where.parent.mkdir(exist_ok=True, parents=True)
            os.mkfifo(where)
            self.assert_refused(path, where, "not a regular file", *words)
            where.unlink()
            where.mkdir()
            self.assert_refused(path, where, "not a regular file", *words)
            where.rmdir()
            where.touch()
            os.truncate(where, (256 << 20) + 1)
            self.assert_refused(path, where, "too large", *words)
            where.unlink()
        if os.geteuid() == 0:
            shutil.copy(kept, there)
            os.chown(there, 12345, 12345)
            self.assertEqual(bool(named()), False)
            self.assertIn("belongs neither", run("functions", "-i", path, "--stash", "off").stderr)
            there.unlink()
        there.write_text("\n".join(["zz", "1 2", "ffffffffffffffff ffffffffffffffff x", "0 0 y", f"{1 << 63:x} 10 z", "7f 10 " + "n" * 100000]))
        self.assertFalse(named())


SPIN = r"""
#include <signal.h>
#include <time.h>
#include <unistd.h>
static void on_alarm(int number) { (void)number; _exit(0); }
__attribute__((noinline)) static void spin(void) { for (;;) __asm__ volatile("nop"); }
int main(void) {
  signal(SIGALRM, on_alarm);
  ualarm(900000, 0);
  for (volatile int i = 0; i < 100000; ++i) {  /* the last code before the loop that packets date is main's */
  }
  spin();
}
"""


class Spin(unittest.TestCase):
    """A loop without conditional branches, which generates no packets, until a signal ends it."""

    def test_the_time_is_in_the_loop_and_its_rounds_are_reported_as_unknown(self):
        path, done = record("spin", build("spin", SPIN))
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {line["function"]: line for line in functions(path)}
        # MTC packets date the loop's entry to a period. On a busy machine the program waits for a core for most of its 900 ms, also in main.
        running = rows["spin"]["self_ns"] + rows["main"]["self_ns"]
        self.assertGreater(running, 20_000_000)
        self.assertGreater(rows["spin"]["self_ns"], running // 2)
        self.assertLess(sum(line["self_ns"] for name, line in rows.items() if name not in ("spin", "main")), running)
        self.assertLess(rows["main"]["untraced_ns"], running // 10)
        done = run("script", "--itrace=e", "-i", path)
        self.assertRegex(done.stdout, "skipped.*count unknown.*spin|spin.*skipped.*count unknown")
        (stream,) = json.loads(run("stat", "--json", "-i", path).stdout)["streams"]
        self.assertFalse(stream["gaps"])


KILLED = r"""
#include <unistd.h>
__attribute__((noinline)) static int work(int n) { volatile int sum = 0; for (int i = 0; i < n; ++i) sum += i; return sum; }
__attribute__((noinline)) static void wait_for_the_end(void) { pause(); }
int main(void) {
  work(1000);
  alarm(1);
  wait_for_the_end();
  return 0;
}
"""


class Killed(unittest.TestCase):
    """A program that a signal kills after one second of waiting."""

    @classmethod
    def setUpClass(cls):
        begun = time.monotonic_ns()
        cls.path, cls.done = record("killed", build("killed", KILLED))
        cls.longest_ns = time.monotonic_ns() - begun

    def test_it_waited_until_it_was_killed(self):
        self.assertEqual(self.done.returncode, 128 + signal.SIGALRM, self.done.stderr)
        rows = {line["function"]: line for line in functions(self.path)}
        for name in ("wait_for_the_end", "main"):
            self.assertTrue(980_000_000 < rows[name]["total_ns"] < self.longest_ns, (name, rows[name], self.longest_ns))
            self.assertLess(rows[name]["self_ns"], 500_000_000)

    def test_a_file_that_is_cut_says_so_in_every_command(self):
        whole = self.path.read_bytes()
        for share in (0.5, 0.9):
            cut = WORK / "cut.data"
            cut.write_bytes(whole[:int(len(whole) * share)])
            for words in (["stat"], ["functions"], ["script"], ["script", "--itrace=b"], ["check"], ["info"], ["packets"],
                          ["flame", "-o", WORK / "cut.svg"]):
                done = run(*words, "-i", cut)
                self.assertEqual(done.returncode, 3 if words == ["check"] else 0, (words, done.stderr))
                self.assertRegex(done.stdout + done.stderr, "the file ends|outside the file", words)
                self.assertNotIn("another clock", done.stdout + done.stderr, words)


class Files(unittest.TestCase):
    """Files without a build id, as Go writes them."""

    def test_a_file_is_at_hand_until_it_changes(self):
        program = build("no_id", WORKER, "-Wl,--build-id=none", "-static")
        path, _ = record("no_id", program, "1000")
        self.assertNotIn("changed or removed since", run("functions", "-i", path).stderr)
        whole = functions(path)
        touched = program.with_suffix(".touched")
        shutil.copy(program, touched)
        touched.rename(program)  # another file with another time and the same bytes
        self.assertNotIn("changed or removed since", run("functions", "-i", path).stderr)
        times = program.stat()
        build("no_id", WORKER.replace("sink += i", "sink -= 3 * i"), "-Wl,--build-id=none", "-static")
        os.utime(program, ns=(times.st_atime_ns, times.st_mtime_ns))  # its time is no evidence
        done = run("functions", "-i", path)
        self.assertIn(f"changed or removed since they were recorded: {program}: the copies in the stash are used", done.stderr)
        self.assertEqual(functions(path), whole)
        program.unlink()
        self.assertIn("changed or removed since", run("functions", "-i", path).stderr)

    @unittest.skipUnless(shutil.which("genhtml"), "genhtml is not installed (apt install lcov)")
    def test_genhtml_takes_what_coverage_writes(self):
        here, elsewhere = WORK / "here.c", WORK / "elsewhere.c"
        here.write_text("int other(int);\nint main(void) { return other(1) - 2; }\n")
        elsewhere.write_text("int other(int n) { return n + 1; }\n")
        program = WORK / "two_sources"
        subprocess.run([os.environ.get("CC", "cc"), "-O0", "-g", here, elsewhere, "-o", program], check=True)
        path, _ = record("two_sources", program)
        elsewhere.unlink()
        info = WORK / "two.info"
        done = run("coverage", "-i", path, "--dso", "two_sources", "-o", info)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"1 file of source is not on this machine \(.*elsewhere.c\) and omitted")
        made = subprocess.run(["genhtml", "-q", "-o", WORK / "html", info], capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn(f"SF:{here}", info.read_text())
        run("coverage", "-q", "-i", path, "--dso", "two_sources", "--keep-absent", "-o", info)
        self.assertIn(f"SF:{elsewhere}", info.read_text())
        here.unlink()
        done = run("coverage", "-i", path, "--dso", "two_sources", "-o", info)
        self.assertIn("--source", done.stderr)
        self.assertIn(f"SF:{here}", info.read_text())


class Machine(unittest.TestCase):
    def test_too_little_memory_is_named(self):
        program = build("memory", WORKER)
        path, _ = record("memory", program, "300000")
        seen = set()
        for kib in (*range(26_000, 60_000, 4_000), 70_000, 100_000, 170_000, 300_000):  # from too little for the libraries to enough
            starts = subprocess.run(["sh", "-c", f'ulimit -v {kib}; exec "$0" --version', PTDECODE], capture_output=True)
            if starts.returncode == -signal.SIGABRT:
                continue  # enough to load the libraries, and too little for what they initialise before main()
            for words in ("stat", "functions", "script --itrace=b"):
                done = subprocess.run(["sh", "-c", f'ulimit -v {kib}; exec "$0" {words} -q -i "$1"', PTDECODE, path], capture_output=True, text=True)
                self.assertIn(done.returncode, (0, 1, 127), (kib, words, done.stderr))
                if done.returncode == 1:
                    self.assertRegex(done.stderr.splitlines()[-1], r"^ptdecode: .*memory", (kib, words))
                    seen.add("ulimit -v" in done.stderr)
        self.assertIn(True, seen)

    @unittest.skipUnless(os.geteuid() == 0, "only root gives files to others")
    def test_a_program_that_is_setuid_runs_without_it(self):
        program = build("setuid", WORKER)
        os.chown(program, 65534, os.getegid())
        program.chmod(0o4755)
        _, done = record("setuid", "/bin/sh", "-c", f"{program} 10; exit 0")
        self.assertRegex(done.stderr, rf"{program} is setuid to user 65534: in the emulator it ran only with the rights of this user")
        program.chmod(0o755)
        _, done = record("setuid", program, "10")
        self.assertNotIn("setuid to", done.stderr)

    def test_a_snapshot_without_code_agrees_with_nothing(self):
        corpus = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE.parent / "shared" / "corpus")) / "cs-init-short-addr" / "snapshot"
        if not corpus.is_dir():
            self.skipTest(f"{corpus} is not there")
        bare = WORK / "bare"
        shutil.copytree(corpus, bare)
        for ini in bare.glob("*.ini"):
            text = re.sub(r"(?ms)^\[dump[^\]]*\].*?(?=^\[|\Z)", "", ini.read_text(errors="replace"))
            ini.chmod(0o644)
            ini.write_text(text)
        done = run("check", "-i", bare)
        self.assertNotIn("agree", done.stdout)
        self.assertEqual((done.returncode, "nothing was compared" in done.stdout), (3, True), done.stdout + done.stderr)
        self.assertFalse(json.loads(run("check", "-i", bare, "--format", "json").stdout)["has_code"])


class NoTrace(unittest.TestCase):
    """A perf recording without a trace, as made by 'perf record PROGRAM'."""

    @unittest.skipUnless(shutil.which("perf"), "perf is not installed")
    def test_every_command_says_what_the_file_is_and_how_to_record(self):
        path = WORK / "notrace.data"
        made = subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-o", path, "--", "/bin/true"], capture_output=True, text=True)
        if made.returncode != 0:
            self.skipTest("perf cannot record here: " + made.stderr.strip())
        out = WORK / "notrace.out"
        for words in (["script"], ["script", "--itrace=b"], ["functions"], ["flame", "-o", out], ["timeline", "-o", out], ["coverage"],
                      ["profile", "--format", "bolt", "--dso", "true"], ["stat"], ["stat", "--format", "json"], ["packets"], ["script", "-C", "0"]):
            done = run(*words, "-i", path)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), (words, done.stderr))
            for part in (str(path), "perf.data file", "contains no trace", "perf record -e intel_pt//u", "ptdecode record --emulate"):
                self.assertIn(part, done.stderr, words)
            self.assertFalse(out.exists(), words)
        done = run("check", "-i", path)
        self.assertIn("there is no trace to compare", done.stdout)
        self.assertNotIn("agree", done.stdout)
        for words in (["check"], ["image"], ["bundle", "-o", out]):
            done = run(*words, "-i", path)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (0, 1), (words, done.stderr))
            self.assertIn("contains no trace", done.stderr)
        done = run("info", "-i", path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertNotRegex(done.stdout, r"(?m)^traced ")
        self.assertRegex(done.stdout, r"(?m)^trace +none; .*perf record -e intel_pt//u")


    def test_an_empty_stream_is_no_trace(self):
        folder = WORK / "empty_stream"
        folder.mkdir()
        (folder / "trace.bin").touch()
        shutil.copy("/bin/true", folder / "true")
        thread, module = {"tid": 1, "iptTrace": "trace.bin"}, {"systemPath": "true", "file": "true", "loadAddress": 0x400000}
        cpu = {"vendor": "GenuineIntel", "family": 6, "model": 142, "stepping": 10}
        bundle = {"type": "intel-pt", "cpuInfo": cpu, "processes": [{"pid": 1, "triple": "x86_64", "threads": [thread], "modules": [module]}]}
        (folder / "trace.json").write_text(json.dumps(bundle))
        for words in (["stat"], ["functions"], ["script"], ["packets"]):
            done = run(*words, "-i", folder / "trace.json")
            self.assertEqual((done.returncode, done.stdout), (1, ""), (words, done.stderr))
            self.assertIn("contains no trace", done.stderr)
        done = run("check", "-i", folder / "trace.json")
        self.assertIn("there is no trace to compare", done.stdout)
        self.assertNotIn("agree", done.stdout)

if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    unittest.main(verbosity=2)
