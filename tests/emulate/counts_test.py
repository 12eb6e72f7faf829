#!/usr/bin/env python3
"""Counts and marks of programs whose code is mapped over, faults, recurses deeply, or has its debug information elsewhere.

The wanted numbers follow from the programs' loops. Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without
qemu-x86_64.
"""
import contextlib
import json
import os
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["PTDECODE_SOURCE"], "tests/cli"))
import perfetto_reader  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
PLUGIN = os.environ["PTDECODE_PLUGIN"]
PROGRAMS = os.path.join(os.environ["PTDECODE_SOURCE"], "tests/emulate/programs")


def unlimited_stack():
    """The stack of the recorded program is as large as its recursion needs."""
    most = resource.getrlimit(resource.RLIMIT_STACK)[1]
    resource.setrlimit(resource.RLIMIT_STACK, (most, most))


class Counts(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.env = dict(os.environ, PTDECODE_STASH=self.folder + "/stash")

    def build(self, name, *flags):
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-g", "-fcf-protection=none", *flags, f"{PROGRAMS}/{name}.c", "-o", name],
                       check=True, cwd=self.folder)
        return "./" + name

    def run_it(self, *command):
        return subprocess.run([PTDECODE, *command], capture_output=True, text=True, cwd=self.folder, env=self.env)

    def record(self, *command, clock=(), **options):
        shutil.rmtree(self.folder + "/truth", ignore_errors=True)
        done = subprocess.run([PTDECODE, "record", "-q", "--emulate", "--plugin", PLUGIN, "-o", "rec.data", "--truth", "truth", *clock,
                               "--", *command], cwd=self.folder, env=self.env, capture_output=True, text=True, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def verify(self):
        truth = [f"truth/{name}" for name in os.listdir(self.folder + "/truth") if name.endswith(".ptt")]
        return self.run_it("verify", "-i", "rec.data", *truth)

    def calls(self, name):
        listed = self.run_it("functions", "-i", "rec.data", "--limit", "0").stdout
        row = re.search(rf"^ *(\d+) .* {name} \(\w+\)( \[.*\])?$", listed, re.M)
        self.assertIsNotNone(row, name)
        return int(row[1]), row[2], listed

    def test_code_that_another_file_replaces_at_its_address(self):
        """Where the other file has INT3, nothing ran: an INT3 would have a FUP."""
        program = self.build("mapped_over")
        subprocess.run([program, "other", "write"], check=True, cwd=self.folder)
        self.record(program, "other", "run")
        verified = self.verify()
        self.assertEqual(verified.returncode, 0, verified.stdout)
        count, _, listed = self.calls("call")
        self.assertEqual(count, 1000)
        self.assertNotIn("uncertain", listed)
        self.assertNotIn("uncertain", self.run_it("check", "-i", "rec.data").stdout)

    def test_code_that_may_be_of_either_file_is_counted_as_uncertain(self):
        program = self.build("mapped_over")
        subprocess.run([program, "same", "write"], check=True, cwd=self.folder)
        self.record(program, "same", "run", clock=["--work-clock"])  # the same trace in each run of the test
        count, _, listed = self.calls("call")
        self.assertEqual(count, 1000)
        self.assertRegex(listed[listed.rindex("thread:"):], r"\d+ calls? rests? on uncertain flow")
        flow = json.loads(self.run_it("check", "-i", "rec.data", "--json").stdout)["flow"]
        uncertain = re.search(r"(\d+) instructions, (\d+) of them uncertain", self.run_it("stat", "-i", "rec.data").stdout)
        self.assertEqual((flow["instructions"], flow["uncertain_instructions"]), (int(uncertain[1]), int(uncertain[2])))
        self.assertGreater(flow["uncertain_instructions"], 0)
        self.assertIn(f"{flow['uncertain_instructions']} of {flow['instructions']} instructions are uncertain",
                      self.run_it("check", "-i", "rec.data").stdout)

    def test_a_function_whose_first_instruction_faults_was_entered(self):
        self.record(self.build("first_faults"))
        self.assertEqual(self.calls("touch")[0], 300)
        report = self.run_it("coverage", "-i", "rec.data", "--format", "lcov", "--keep-absent", "--source", PROGRAMS).stdout
        entered = dict((name, int(count)) for count, name in re.findall(r"^FNDA:(\d+),(\w+)$", report, re.M))
        self.assertEqual({name: entered.get(name) for name in ("touch", "main", "on_fault", "never_called")},
                         {"touch": 300, "main": 1, "on_fault": 200, "never_called": 0})

    def test_signals_that_are_sent_to_a_block_that_loops_to_itself(self):
        """Each round counts, though the handlers do not ask for the origin of the signal."""
        done = self.record(self.build("sent"))
        self.assertGreaterEqual(int(done.stdout), 5)
        listed = map(json.loads, self.run_it("functions", "-i", "rec.data", "--json").stdout.splitlines())
        spin = [row for row in listed if row.get("function") == "spin"]
        self.assertEqual((spin[0]["calls"], spin[0]["self_instructions"]), (1, 2 * 3000000 + 1))
        columns = {line.index("spin") for line in self.run_it("script", "--call-trace", "-i", "rec.data").stdout.splitlines() if "spin  [tr end" in line}
        self.assertEqual(len(columns), 1, columns)

    def test_a_child_has_what_its_parent_had_when_it_forked(self):
        """The program checks what each child ran, and prints the names that its threads have."""
        program = self.build("forked", "-pthread")
        for clock in ([], ["--work-clock"]):
            done = self.record(program, clock=clock)
            verified = self.verify()
            self.assertEqual(verified.returncode, 0, verified.stdout)
            wanted = dict(line.split() for line in done.stdout.splitlines())
            self.assertEqual(list(wanted.values()), ["worker"] * 3)
            named = {(tid, comm) for comm, tid in map(str.split, self.run_it("script", "-q", "-i", "rec.data", "--itrace=b", "-F", "comm,tid").stdout.splitlines())
                     if tid in wanted}
            self.assertEqual(named, set(wanted.items()))

    def test_code_of_a_missing_file_is_not_what_its_address_had_at_another_time(self):
        program = self.build("reused")
        for letters, total in (("fg", 18), ("gf", 18), ("fgfh", 39), ("gfh", 36)):
            done = self.record(program, letters, clock=["--no-stash"])
            self.assertEqual(int(done.stdout), total)
            verified = self.verify().stdout
            self.assertRegex(verified, "silently wrong 0; lost in gaps 0,", letters)
            os.rename(self.folder + "/code", self.folder + "/away")
            verified = self.verify().stdout
            # Between two packets of time, generated code may be the only one that is known: it is marked.
            self.assertRegex(verified, r"wrong but flagged ([1-9]\d*; silently wrong 0|0; silently wrong 0; lost in gaps [1-9])", letters)

    def test_deep_recursion_keeps_main(self):
        program = self.build("deep")
        for depth in (65600, 200000):
            self.record(program, str(depth), preexec_fn=unlimited_stack)
            count, cut, listed = self.calls("down")
            self.assertIsNone(cut)
            said = [self.run_it(*command, "-i", "rec.data").stderr for command in (
                ["functions"], ["functions", "--func", "down", "--slowest", "1"], ["functions", "--comm", "deep"], ["timeline", "-o", "rec.pftrace"],
                ["flame", "--format", "folded"], ["report", "-o", "rec.html"], ["functions", "-q"], ["export", "-q", "--tables", "calls,threads", "-o", "rec.db"])]
            deeper = int(re.search(r"(\d+) calls were deeper than the limit of 65536 open calls", said[0])[1])
            for each in said:
                self.assertIn(f"{deeper} calls were deeper", each)
            with open(self.folder + "/rec.html") as page:
                self.assertIn(f"{deeper} calls were deeper", page.read())
            with contextlib.closing(sqlite3.connect(self.folder + "/rec.db")) as database:
                self.assertEqual(database.execute("SELECT value FROM ptd_info WHERE key = 'calls_too_deep'").fetchone(), (str(deeper),))
                self.assertEqual(database.execute("SELECT sum(calls_too_deep) FROM ptd_threads").fetchone(), (deeper,))
                self.assertEqual(database.execute("SELECT count(*) FROM ptd_calls WHERE call = 'down'").fetchone(), (count,))
            head = json.loads(self.run_it("functions", "-i", "rec.data", "--json").stdout.splitlines()[0])
            self.assertEqual(head["calls_too_deep"], deeper)
            self.assertEqual(count + deeper, 2 * (depth + 1))
            self.assertEqual(self.calls("main")[:2], (1, None))
            self.assertNotIn("abandoned", listed)

    def test_a_recursion_without_packets_is_not_reported_as_counted(self):
        """Only a message says that a count is not known: no packet tells how often the function called itself."""
        said = "the flow was in a loop or recursion without packets"
        self.record(self.build("endless"))
        self.assertLess(self.calls("down")[0], 3)
        for command in (["functions"], ["functions", "--json"], ["functions", "--func", "down"], ["flame", "--format", "folded"], ["coverage"],
                        ["profile", "--format", "bolt", "-o", "rec.pa"]):
            self.assertIn(said, self.run_it(*command, "-i", "rec.data").stderr, command)
        self.assertIn("count unknown", self.run_it("script", "-i", "rec.data", "--itrace=e").stdout)
        self.record(self.build("first_faults"))
        self.assertNotIn(said, self.run_it("functions", "-i", "rec.data").stderr)

    def test_recursions_without_packets_are_not_wrong(self):
        """verify counts their rounds separately, wherever the segments begin and end."""
        program = self.build("overflows")
        for options in ([], ["--psb-period", "0"], ["--work-clock", "--psb-period", "1"]):
            self.record(program, clock=options)
            verified = self.verify().stdout
            self.assertIn("wrong but flagged 0; silently wrong 0; lost in gaps 0", verified)
            self.assertRegex(verified, r"; [1-9]\d* not counted by the trace")

    def test_a_program_without_arguments_gets_an_empty_name(self):
        """As Linux 5.18 and later do it, argv[0] is "" if execve gets no argv or an empty one. The count is the program's."""
        program = self.build("nameless")
        done = self.record(program, "begin")
        self.assertEqual(done.stderr.count("argc 1, name '', 21 calls"), 6, done.stderr)
        self.assertEqual(self.calls("tick")[0], 6 * 21)

    def test_names_of_a_library_that_is_mapped_between_two_timing_packets(self):
        """The packets tell a time before the mapping, and the bytes that ran are the library's: its calls have its names."""
        self.build("plugin", "-shared", "-fPIC")
        os.rename(self.folder + "/plugin", self.folder + "/plugin.so")
        program = self.build("loaded", "-Wl,--no-as-needed", "-ldl")
        for options in (["--work-clock"], ["--no-mtc", "--psb-period", "6"], ["--no-tsc"]):
            self.record(program, clock=options)
            self.assertEqual(self.verify().returncode, 0)
            listed = map(json.loads, self.run_it("functions", "-i", "rec.data", "--json").stdout.splitlines())
            counts = {(row["function"], row["module"]): row["calls"] for row in listed if "function" in row}
            self.assertEqual((counts.get(("fold", "plugin.so")), counts.get(("add", "loaded"))), (20, 40), options)
            branches = self.run_it("script", "-q", "-i", "rec.data", "--itrace=b").stdout
            entered = re.findall(r"=> +[0-9a-f]+ fold\+0x0 \(.*/plugin\.so\)$", branches, re.M)
            self.assertEqual(len(entered), 20, options)
            report = self.run_it("coverage", "-i", "rec.data", "--format", "lcov", "--keep-absent", "--source", PROGRAMS).stdout
            self.assertIn("FNDA:20,fold\n", report, options)

    def test_the_summary_shows_no_control_characters(self):
        done = subprocess.run([PTDECODE, "record", "--emulate", "--no-stash", "--plugin", PLUGIN, "-o", "a\n\x1bb", "--", "/bin/true"],
                              cwd=self.folder, env=self.env, capture_output=True, text=True)
        self.assertTrue(done.stderr.startswith("ptdecode: a\\x0a\\x1bb: ") and done.stderr.count("\n") == 1, done.stderr)

    def test_code_that_is_patched_before_its_first_run(self):
        self.record(self.build("own_text"))
        verified = self.verify()
        self.assertEqual(verified.returncode, 0, verified.stdout)
        self.assertIn("wrong but flagged 0; silently wrong 0", verified.stdout)

    def test_durations_where_the_program_is_missing(self):
        """Calls of a library from code that is missing: their durations are those of the whole decode, not 0 or the time up to a packet."""
        program = self.build("libc_calls")
        self.record(program, clock=["--work-clock", "--no-stash"])

        def row():
            lines = map(json.loads, self.run_it("functions", "-i", "rec.data", "--stash", "off", "--func", "random_r", "--json").stdout.splitlines())
            return [line for line in lines if "function" in line][0]
        whole = row()
        self.assertNotIn("~", self.run_it("functions", "-i", "rec.data", "--stash", "off", "--limit", "0").stdout)
        os.rename(f"{self.folder}/libc_calls", f"{self.folder}/gone")
        part = row()
        self.assertEqual((whole["calls"], part["calls"]), (1000, 1000))
        for field in ("p50_ns", "self_ns"):
            self.assertGreater(part[field], 0.3 * whole[field], field)
            self.assertLess(part[field], 3 * whole[field], field)
        self.assertLess(part["max_ns"], 20 * whole["p99_ns"])
        # Flow is missing before and after each call: the durations are marked as estimates. None is in the whole decode.
        self.assertEqual((whole["estimated"], part["estimated"]), (0, 1000))
        listed = self.run_it("functions", "-i", "rec.data", "--stash", "off", "--func", "random_r").stdout
        self.assertRegex(listed, r"(?m)^ +1000 +~\S+ \S+ .* ~\S+ .* random_r \(")
        self.assertIn("~: the times of some calls are estimates", listed)
        tree = self.run_it("script", "-q", "-i", "rec.data", "--stash", "off", "-S", "random_r").stdout
        self.assertEqual(len(re.findall(r"~[\d.]+ [num]s +random_r", tree)), 1000, tree[:2000])
        calls = map(json.loads, self.run_it("script", "-q", "-i", "rec.data", "--stash", "off", "-S", "random_r", "--json").stdout.splitlines()[1:])
        self.assertEqual({call["estimated"] for call in calls}, {True})
        self.run_it("timeline", "-q", "-i", "rec.data", "--stash", "off", "-o", "rec.pftrace")
        with open(self.folder + "/rec.pftrace", "rb") as trace:
            notes = perfetto_reader.read_all(trace.read())[4]
        self.assertGreaterEqual(sum(name == "estimated times" for _, name, _ in notes), 1000)

    def test_names_of_a_renamed_thread(self):
        self.record(self.build("renamed"))
        name = "x\\,y"  # a comma of the name
        line = [line for line in self.run_it("functions", "-i", "rec.data", "--comm", name).stdout.splitlines() if line.startswith("1 thread:")][0]
        waits = re.search(r"running, 0 ns off cpu, (\d+\.?\d*) ms not traced", line)
        self.assertIsNotNone(waits, line)
        self.assertGreaterEqual(float(waits[1]), 20)
        stacks = self.run_it("flame", "-i", "rec.data", "--format", "folded", "--comm", name).stdout
        self.assertRegex(stacks, r"(?m)^x,y;.*main;outer;rest;")
        for command in ("flame", "timeline"):
            with open(f"{self.folder}/kept", "w") as file:
                file.write("as it was")
            self.assertEqual(self.run_it(command, "-i", "rec.data", "--comm", "nobody", "-o", "kept").returncode, 2)
            with open(f"{self.folder}/kept") as file:
                self.assertEqual(file.read(), "as it was")

    def test_options_without_effect_are_refused(self):
        done = self.run_it("record", "--emulate", "--no-inherit", "-m", "4", "--", "true")
        self.assertEqual((done.returncode, ": --no-inherit, -m\n" in done.stderr), (2, True), done.stderr)
        done = self.run_it("record", "--sideband", "--truth", "t", "--ovf", "5", "--", "true")
        self.assertEqual((done.returncode, ": --truth, --ovf\n" in done.stderr), (2, True), done.stderr)

    def test_split_debug_information_is_named(self):
        self.record(self.build("first_faults", "-gsplit-dwarf"))
        report = self.run_it("coverage", "-i", "rec.data", "--source", PROGRAMS)
        self.assertIn("first_faults: its functions and inlined calls are in .dwo files", report.stderr)


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    unittest.main()
