#!/usr/bin/env python3
"""`ptdecode functions --diff` and `script --diff`: two versions of a small server, of which one has a planted regression, against the ground truth of both runs.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import call_replay  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
REQUESTS = 200


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300)


def executed(truth, program):
    """Instructions that ran in each function, by nm's names and sizes."""
    ranges = {}
    for line in subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.split()
        if len(words) == 4 and words[2] in "tT" and re.fullmatch("checksum|reply|handle_(a|b|c|old)|main", words[3]):
            ranges[words[3]] = range(int(words[0], 16), int(words[0], 16) + int(words[1], 16))
    counts = dict.fromkeys(ranges, 0)
    for what, insns in call_replay.truth_blocks(next(truth.glob("*.ptt"))):
        for ip, _ in insns if what == "run" else ():
            for name, span in ranges.items():
                counts[name] += ip in span
    return counts


def record(folder, output, program, *words):
    done = subprocess.run([PTDECODE, "record", "--emulate", "-q", "--no-stash", *words, "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", output, "--", "./" + program],
                          cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Diff(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        source = SOURCE / "tests" / "cli" / "programs" / "diffed.c"
        for name, flags in (("server-1", ()), ("server-2", ("-DREGRESSED",))):
            subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", *flags, source, "-o", name], cwd=cls.folder, check=True)
            done = subprocess.run([PTDECODE, "record", "--emulate", "-q", "--no-stash", "--cyc", "--work-clock", "--plugin", os.environ["PTDECODE_PLUGIN"], "--truth", name + ".truth",
                                   "-o", name + ".data", "--", "./" + name, str(REQUESTS)], cwd=cls.folder, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        cls.a, cls.b = cls.folder / "server-1.data", cls.folder / "server-2.data"
        cls.truth = [executed(cls.folder / (name + ".truth"), cls.folder / name) for name in ("server-1", "server-2")]

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def rows(self, *words):
        done = run("functions", "-q", "--json", "--diff", self.a, self.b, *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(lines[0]["schema"], "ptdecode-functions-diff-1")
        return [line for line in lines if "function" in line], [line for line in lines if "path" in line]

    def test_the_planted_regression_comes_first(self):
        functions, paths = self.rows("--sort", "instructions")
        self.assertEqual(functions[0]["function"], "checksum")
        self.assertEqual((functions[0]["module_a"], functions[0]["module_b"]), ("server-1", "server-2"))
        self.assertEqual((functions[0]["calls_a"], functions[0]["calls_b"]), (2 * REQUESTS, 2 * REQUESTS))
        before, after = (truth["checksum"] for truth in self.truth)
        self.assertGreater(after, 2 * before)
        self.assertEqual((functions[0]["self_instructions_a"], functions[0]["self_instructions_b"]), (before, after))
        # Only handle_b() is slower; the whole change is on its path.
        self.assertEqual(paths[0]["path"][-3:], ["main", "handle_b", "checksum"])
        self.assertEqual(paths[0]["self_instructions_b"] - paths[0]["self_instructions_a"], after - before)
        self.assertEqual([path for path in paths if path["path"][-2:] == ["handle_a", "checksum"]], [])
        both = {row["function"]: row for row in functions}
        for side, end in enumerate(("_a", "_b")):
            for name, count in self.truth[side].items():
                self.assertEqual(both[name]["self_instructions" + end], count, name)

    def test_by_time(self):
        """The work clock advances with the instructions."""
        functions, paths = self.rows()
        self.assertEqual(functions[0]["function"], "checksum")
        self.assertEqual(paths[0]["path"][-2:], ["handle_b", "checksum"])
        ratio = functions[0]["self_ns_b"] / functions[0]["self_ns_a"]
        self.assertAlmostEqual(ratio, self.truth[1]["checksum"] / self.truth[0]["checksum"], delta=0.25)

    def test_what_only_one_has(self):
        functions, paths = self.rows("--sort", "calls")
        changed = {row["function"]: (row["calls_a"], row["calls_b"]) for row in functions if row["calls_a"] != row["calls_b"]}
        self.assertEqual(changed, {"handle_c": (0, 1), "handle_old": (1, 0)})
        self.assertEqual(sorted(path["path"][-1] for path in paths), ["handle_c", "handle_old"])

    def test_text(self):
        done = run("functions", "-q", "--diff", self.a, self.b, "--sort", "instructions")
        self.assertEqual(done.returncode, 0, done.stderr)
        first = done.stdout.split("function\n", 1)[1].splitlines()[0]
        before, after = (truth["checksum"] for truth in self.truth)
        share = 100 * (after / before - 1)
        self.assertEqual(first.split(), [str(2 * REQUESTS), str(2 * REQUESTS), str(before), str(after), f"+{after - before}", f"{share:+.1f}", "%",
                                         "checksum", "(server-1", "->", "server-2)"])
        self.assertRegex(done.stdout, r"\n +\+4? *\S* *new")
        self.assertIn("main > handle_b > checksum\n", done.stdout)

    def test_a_recording_and_itself(self):
        done = run("functions", "-q", "--diff", self.a, self.a)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(re.findall("^by call path", done.stdout, re.M), [])
        listed = [line for line in run("functions", "-q", "-i", self.a, "--json").stdout.splitlines() if '"function"' in line]
        self.assertIn(f"\n{len(listed)} other functions did not change\n", done.stdout)

    def test_only_one_has_debug_information(self):
        """The code is the same: inlined functions of one side count as part of their callers, and nothing has changed."""
        (self.folder / "inlines.c").write_text(
            "static inline unsigned step(unsigned x) { return x * 31 + 7; }\n"
            "static inline unsigned steps(unsigned x) { for (int i = 0; i < 9; ++i) x ^= step(x + i); return x; }\n"
            "__attribute__((noinline)) unsigned work(unsigned x) { return steps(x) + step(x); }\n"
            "int main(void) { unsigned x = 1; for (int i = 0; i < 50; ++i) x = work(x); return x == 0; }\n")
        for name, flags in (("with", ["-g"]), ("without", ["-g0"]), ("calls", ["-g", "-O0"])):
            (self.folder / name).mkdir()
            program = self.folder / name / "inlines"
            subprocess.run([os.environ.get("CC", "cc"), "-O2", "-static", *flags, self.folder / "inlines.c", "-o", program], check=True)
            done = subprocess.run([PTDECODE, "record", "--emulate", "-q", "--no-stash", "--work-clock", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", "data",
                                   "--", "./inlines"], cwd=program.parent, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        files = [self.folder / name / "data" for name in ("with", "without")]
        self.assertIn("step (inlined)", run("functions", "-i", files[0], "--limit", "0").stdout)
        for a, b in (files, files[::-1]):
            listed = {}
            for option in ("--inline", "--no-inline"):
                done = run("functions", "-q", "--json", "--diff", a, b, option)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                head, *rows = map(json.loads, done.stdout.splitlines())
                listed[option] = [row for row in rows if "function" in row]
                self.assertEqual([row for row in rows if "path" in row], [])
                for row in listed[option]:
                    self.assertEqual({row[key] for key in row if key.endswith("_a")} - {row[key[:-1] + "b"] for key in row if key.endswith("_a")}, set(), row)
                expected = ["inlines"] if option == "--inline" else []
                self.assertEqual((head["without_inlined_a"], head["without_inlined_b"]), (expected, []) if a == files[0] else ([], expected))
            self.assertEqual(listed["--inline"], listed["--no-inline"])
        counted = [json.loads(line) for line in run("functions", "-q", "--json", "-i", files[0]).stdout.splitlines()]
        counts = {row["function"]: row["calls"] for row in counted if "function" in row}
        compared = {row["function"]: row["calls_a"] for row in map(json.loads, run("functions", "-q", "--json", "--diff", files[0], files[0]).stdout.splitlines()) if "function" in row}
        self.assertEqual(compared, counts)
        self.assertTrue(any(row["no_start"] for row in counted if "function" in row), "all calls have their start")
        done = run("functions", "-q", "--json", "--diff", files[0], self.folder / "calls" / "data", "--func", "step")
        head, *rows = map(json.loads, done.stdout.splitlines())  # the debug information of both is there
        self.assertEqual((head["without_inlined_a"], head["without_inlined_b"]), ([], []))
        calls = {row["function"]: (row["calls_a"], row["calls_b"]) for row in rows if "function" in row}
        self.assertEqual([(row["function"], row["function_b"]) for row in rows if "function" in row], [("step (inlined)", "step")])
        self.assertEqual([count > 0 for count in calls["step (inlined)"]], [True, True])
        said = run("functions", "-q", "--diff", files[0], self.folder / "calls" / "data", "--func", "step").stdout
        self.assertRegex(said, r"(?m) inlined step \(inlined\) -> step \(inlines\)$")
        self.assertIn("only A has debug information of inlines: inlined functions count as part of their callers\n", run("functions", "-q", "--diff", *files).stdout)

    def test_builds_without_symbols(self):
        """At one offset, two builds have different functions: only names tell which are the same."""
        for build, text in (("x", "int hot(int n)"), ("y", "int first(int n) { return n * 7 + 3; } __attribute__((noinline)) int hot(int n)")):
            (self.folder / build).mkdir(exist_ok=True)
            calls = "first(n) + " if build == "y" else ""
            (self.folder / "v.c").write_text(f"__attribute__((noinline)) {text} {{ for (int i = 0; i < 20; ++i) n += i ^ n; return n; }}\n"
                                             f"int main(int n, char** words) {{ int sum = {calls}0; for (int i = 0; i < 40; ++i) sum += hot(n + i); return sum == 1; }}\n")
            subprocess.run([os.environ.get("CC", "cc"), "-O1", "-s", "-Wl,--build-id", "v.c", "-o", build + "/v"], cwd=self.folder, check=True)
            done = subprocess.run([PTDECODE, "record", "--emulate", "-q", "--no-stash", "--work-clock", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", build + ".data", "--",
                                   "./v"], cwd=self.folder / build, capture_output=True, text=True)
            shutil.move(self.folder / build / (build + ".data"), self.folder / (build + ".data"))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        words = ("functions", "-q", "--no-inline", "--diff", self.folder / "x.data", self.folder / "y.data", "--limit", "0")
        said, rows = run(*words), [json.loads(line) for line in run(*words, "--format", "json").stdout.splitlines()]
        self.assertIn("A and B have different builds of v: code without a symbol in them is not compared\n", said.stdout)
        self.assertEqual(rows[0]["unmatched"], ["v"])
        own = [row for row in rows if row.get("function", "").startswith("v+0x")]
        self.assertEqual(sorted(row["calls_a"] for row in own if row["calls_a"] > 1) + sorted(row["calls_b"] for row in own if row["calls_b"] > 1), [40, 40])
        self.assertEqual([row for row in own if row["calls_a"] and row["calls_b"]], [])
        self.assertTrue(any(row["calls_a"] and row["calls_b"] for row in rows if "calls_a" in row and not row.get("function", "v").startswith("v")))
        same = run("functions", "-q", "--diff", self.folder / "x.data", self.folder / "x.data", "--limit", "0")
        self.assertNotIn("different builds", same.stdout)
        runs = run("script", "-q", "--diff", self.folder / "x.data", self.folder / "y.data")
        self.assertIn("A and B have different builds of v: code without a symbol in them is not compared\n", runs.stdout)
        self.assertNotRegex(runs.stdout, r"(?m)^    [AB] .* v\+0x[0-9a-f]+(  \(\d+ instructions\))?$")
        self.assertRegex(runs.stdout, "1 pair of threads: ")
        runs = run("script", "-q", "--diff", self.folder / "x.data", self.folder / "x.data")
        self.assertEqual((runs.returncode, "different builds" in runs.stdout), (0, False))

    def test_clones(self):
        """One build has a clone of a function in place of it, and parts of another one, of which there are two: these are not matched."""
        (self.folder / "clones.c").write_text(
            "volatile int sum;\n"
            "__attribute__((noinline)) static void scale(int n, int k) { for (int i = 0; i < n; ++i) sum += k * i; }\n"
            "__attribute__((noinline)) void only(int n) { sum += n; }\n"
            "#ifdef B\n"
            "__attribute__((noinline)) void twin_1(int n) __asm__(\"twin.isra.0\");\n"
            "__attribute__((noinline)) void twin_2(int n) __asm__(\"twin.isra.1\");\n"
            "void twin_1(int n) { sum += n; }\nvoid twin_2(int n) { sum -= n; }\n"
            "#else\n"
            "__attribute__((noinline)) void twin_1(int n) __asm__(\"twin\");\nvoid twin_1(int n) { sum += n; }\n#define twin_2 twin_1\n"
            "#endif\n"
            "int main(void) { for (int i = 0; i < 30; ++i) { scale(i, 7); twin_1(i); twin_2(i); only(i); } return 0; }\n")
        for name, flags in (("clones-a", ["-fno-ipa-cp", "-fno-ipa-sra"]), ("clones-b", ["-DB"])):
            subprocess.run([os.environ.get("CC", "cc"), "-O2", "-static", *flags, self.folder / "clones.c", "-o", self.folder / name], check=True)
            record(self.folder, name + ".data", name)
        symbols = subprocess.run(["nm", self.folder / "clones-b"], capture_output=True, text=True, check=True).stdout
        clone = re.search(r" (scale\.(?:constprop|isra)\.0)$", symbols, re.M).group(1)
        words = ("functions", "-q", "--diff", self.folder / "clones-a.data", self.folder / "clones-b.data", "--limit", "0")
        rows = {row["function"]: row for row in map(json.loads, run(*words, "--json").stdout.splitlines()) if "function" in row}
        self.assertEqual((rows["scale"]["function_b"], rows["scale"]["calls_a"], rows["scale"]["calls_b"]), (clone, 30, 30))
        self.assertNotIn(clone, rows)
        self.assertEqual([(rows[name]["calls_a"], rows[name]["calls_b"]) for name in ("twin", "twin.isra.0", "twin.isra.1")], [(60, 0), (0, 30), (0, 30)])
        self.assertNotIn("function_b", rows["only"])
        self.assertEqual(run(*words, "--func", clone, "--sort", "calls").stdout.count(f"scale -> {clone} (clones-a -> clones-b)"), 1)

    def test_options(self):
        functions, paths = self.rows("--func", "reply", "--sort", "total")
        self.assertEqual([row["function"] for row in functions], ["reply"])
        self.assertEqual({path["path"][-1] for path in paths}, {"reply"})
        for words, status in ((("--func", "nothing"), 2), (("--sort", "max"), 2), (("--func", "reply", "--slowest", "1"), 2), (("-i", self.a), 2)):
            done = run("functions", "--diff", self.a, self.b, *words)
            self.assertEqual((done.returncode, done.stdout), (status, ""), words)
        self.assertEqual(run("functions", "--diff", self.a, self.folder / "none").returncode, 1)


class Divergence(Diff):
    """`script --diff`."""

    test_the_planted_regression_comes_first = test_by_time = test_what_only_one_has = test_text = test_a_recording_and_itself = test_options = None
    test_only_one_has_debug_information = test_clones = test_builds_without_symbols = None

    def diff(self, a, b, *words, said=""):
        done = run("script", "-q", "--diff", a, b, *words)
        self.assertRegex(done.stderr, f"^{said}$")
        return done.returncode, done.stdout

    def test_a_run_and_itself(self):
        status, text = self.diff(self.a, self.a)
        self.assertEqual(status, 0)
        self.assertIn("1 pair of threads: 1 the same, 0 not\n", text)
        kernel = SOURCE / "data" / "kernel" / "kernel.bundle"
        status, text = self.diff(kernel, kernel, "--time", "24.46,24.47")
        self.assertEqual(status, 0, text)

    def test_another_number_of_requests(self):
        """More than a piece of calls is the same; then one run ends its loop."""
        name = "more.data"
        done = subprocess.run([PTDECODE, "record", "--emulate", "-q", "--no-stash", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", name, "--", "./server-1",
                               str(REQUESTS + 7)], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        status, text = self.diff(self.a, self.folder / name)
        self.assertEqual(status, 3)
        calls = text.split("first call that differs\n")[1].splitlines()
        ends = [line for line in calls if re.match("    [AB] ", line)]
        self.assertRegex(ends[0], "^    A [0-9.]+ calls .* > main > handle_old$")
        self.assertRegex(ends[1], "^    B [0-9.]+ calls .* > main > handle_a$")
        self.assertRegex(calls[calls.index(ends[0]) - 1], r"ends  .* > main > handle_b ")
        # The commands show these calls.
        for line, function in zip([line for line in calls if "ptdecode script" in line], ("handle_old", "handle_a")):
            shown = run(*line.split()[1:], "-q", "--ns").stdout
            self.assertIn(function, [part for row in shown.splitlines() for part in row.split()])
            first = next(row for row in shown.splitlines() if re.search("handle_", row))
            self.assertIn(function, first)
        # All requests before were the same: the call is the 1 + 2 * REQUESTS-th of main's.
        starts = [json.loads(line) for line in run("script", "-q", "-i", self.a, "--format", "json").stdout.splitlines()]
        handled = sorted(line["start_ns"] for line in starts if line.get("call", "").startswith("handle_") and line["call"] in ("handle_a", "handle_b"))
        self.assertEqual(len(handled), 2 * REQUESTS)
        self.assertLess(handled[-1], float(ends[0].split()[1]) * 1e9)

    def test_a_program_that_a_shell_starts(self):
        """A child of the shell has the shell's name until it calls exec. It is matched by the program's."""
        name = self.folder / "shell.data"
        done = subprocess.run([PTDECODE, "record", "--emulate", "-q", "--no-stash", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", name, "--", "sh", "-c",
                               "echo $$; for i in 1 2; do ./server-1 3 & echo $!; wait; done"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        shell, *servers = [int(word) for word in done.stdout.split() if word.isdigit()][:3]
        status, text = self.diff(self.a, name)
        self.assertEqual(status, 3)
        self.assertRegex(text, rf"\nserver-1 \(A: tid \d+, B: tid ({'|'.join(map(str, servers))})\)\n")
        self.assertRegex(text, rf"\nonly in B: \w*sh \(tid {shell}\)\n")
        status, text = self.diff(self.a, self.b)
        self.assertRegex(text, r"\nserver-1 \(A: tid \d+\), server-2 \(B: tid \d+\)\n")

    def test_two_versions(self):
        """Programs with other names; the first request of kind b executes the planted regression."""
        status, text = self.diff(self.a, self.b)
        self.assertEqual(status, 3)
        other = text.split("first call that executes other instructions\n")[1].splitlines()
        per_call = self.truth[0]["checksum"] // (2 * REQUESTS)
        regressed = (self.truth[1]["checksum"] - REQUESTS * per_call) // REQUESTS
        self.assertRegex(other[0], rf"^    A [0-9.]+ ends  .* > main > handle_b > checksum  \({per_call} instructions\)$")
        self.assertRegex(other[2], rf"^    B [0-9.]+ ends  .* > main > handle_b > checksum  \({regressed} instructions\)$")
        calls = text.split("first call that differs\n")[1]
        self.assertRegex(calls, r"\n    A \S+ calls .* > handle_old\n")
        self.assertRegex(calls, r"\n    B \S+ calls .* > handle_c\n")

    def test_two_versions_with_threads(self):
        """All threads have the name of the program, which differs: they are matched in order."""
        for name in ("pool-1", "pool-2"):
            subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-pthread", SOURCE / "tests" / "emulate" / "programs" / "threads.c", "-o", name], cwd=self.folder, check=True)
            done = subprocess.run([PTDECODE, "record", "--emulate", "-q", "--no-stash", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", name + ".data", "--", "./" + name],
                                  cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        _, text = self.diff(self.folder / "pool-1.data", self.folder / "pool-2.data")
        self.assertIn("5 pairs of threads:", text)
        self.assertNotIn("only in", text)
        _, text = self.diff(self.folder / "pool-1.data", self.b)
        self.assertIn("\n1 pair of threads:", text)
        self.assertEqual(text.count("only in A: pool-1"), 4)

    def test_signals_are_no_difference(self):
        """A timer interrupts each run at other moments."""
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", SOURCE / "tests" / "cli" / "programs" / "ticking.c", "-o", "ticking"], cwd=self.folder, check=True)
        handled = []
        for name in ("tick-1", "tick-2"):
            done = subprocess.run([PTDECODE, "record", "--emulate", "-q", "--no-stash", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", name, "--", "./ticking",
                                   "on"], cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            listed = run("functions", "-q", "-i", self.folder / name, "--func", "tick_count", "--json").stdout
            handled.append(json.loads(listed.splitlines()[1])["calls"])
        self.assertGreater(min(handled), 3)
        status, text = self.diff(self.folder / "tick-1", self.folder / "tick-2")
        self.assertEqual(status, 0, text)
        self.assertIn("\ninterrupts and handlers of signals, which are not compared: {} in A, {} in B\n".format(*handled), text)

    def test_calls_after_an_abandoned_stack(self):
        """A switch of coroutines leaves calls; the flow goes on, and is compared."""
        (self.folder / "switches.c").write_text(
            "#include <ucontext.h>\nstatic ucontext_t outer, inner; static char stack[65536]; volatile long sum;\n"
            "static void body(void) { for (;;) { ++sum; swapcontext(&inner, &outer); } }\n"
            "__attribute__((noinline)) void later(int n) { for (int i = 0; i < n; ++i) sum += i; }\n__attribute__((noinline)) void only_b(void) { sum += 5; }\n"
            "int main(void) { getcontext(&inner); inner.uc_stack.ss_sp = stack; inner.uc_stack.ss_size = sizeof stack; makecontext(&inner, body, 0);\n"
            "  for (int i = 0; i < 3; ++i) swapcontext(&outer, &inner);\n  later(COUNT);\n#ifdef ONLY\n  only_b();\n#endif\n  return 0; }\n")
        for name, flags in (("switch-1", ["-DCOUNT=10"]), ("switch-2", ["-DCOUNT=1000"]), ("switch-3", ["-DCOUNT=10", "-DONLY"])):
            subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", *flags, "switches.c", "-o", name], cwd=self.folder, check=True)
            record(self.folder, name + ".data", name)
        one, longer, other = (self.folder / f"switch-{i}.data" for i in (1, 2, 3))
        self.assertGreater(json.loads(run("functions", "-q", "-i", one, "--json").stdout.splitlines()[0])["stacks_abandoned"], 0)
        said = r"(ptdecode: open calls were abandoned \d+ times because .*\n){2}"
        status, text = self.diff(one, one, said=said)
        self.assertEqual((status, text.splitlines()[2:]), (0, ["1 pair of threads: 1 the same, 0 not"]))
        status, text = self.diff(one, longer, said=said)
        self.assertEqual(status, 3)
        self.assertRegex(text, r"first call that executes other instructions\n    A \S+ ends  (?:.* > )?later  \(")
        self.assertNotIn("not compared", text)
        status, text = self.diff(one, other, said=said)
        self.assertEqual(status, 3)
        self.assertRegex(text, r"\n    B \S+ calls (?:.* > )?only_b\n")
        self.assertNotIn("calls main\n", text)  # it was open before
        self.assertNotIn("not compared", text)

    def test_calls_after_lost_flow_are_not_compared(self):
        for size in (1500, 2500, 6000):
            record(self.folder, f"lost-{size}.data", "server-1", "--ovf", str(size))
        for name in ("server-1", "server-2"):
            record(self.folder, name + "-whole.data", name)
        early, late, whole, slower = (self.folder / f"{name}.data" for name in ("lost-1500", "lost-2500", "server-1-whole", "server-2-whole"))
        for a, b, letter in ((early, late, "A"), (late, early, "B"), (early, whole, "A"), (whole, late, "B")):
            status, text = self.diff(a, b)
            self.assertEqual(status, 3)
            self.assertIn("1 pair of threads: 0 the same, 0 not, 1 compared in part\n", text)
            self.assertRegex(text, rf"\n  calls of {letter} after [0-9.]+ are not compared: the flow was lost\n  those before are the same\n$")
            self.assertNotIn("its trace ends", text)
        status, text = self.diff(early, early)
        self.assertEqual((status, text.count("not compared")), (3, 2))
        # The first difference comes before the loss.
        status, text = self.diff(self.folder / "lost-6000.data", slower)
        self.assertIn("1 pair of threads: 0 the same, 1 not\n", text)
        self.assertIn("first call that executes other instructions\n", text)
        self.assertRegex(text, r"\n  calls of A after [0-9.]+ are not compared: the flow was lost\n$")

    def test_diff_options(self):
        for words in (("--itrace=b",), ("--format", "json"), ("-S", "main"), ("-i", self.a)):
            done = run("script", "--diff", self.a, self.b, *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
        self.assertEqual(run("script", "--diff", self.a, self.folder / "none").returncode, 1)


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("SKIPPED: qemu-x86_64 is not installed")
        sys.exit(77)
    unittest.main(verbosity=2)
