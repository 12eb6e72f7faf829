#!/usr/bin/env python3
"""Waiting is not executing: a program that waits in sixteen ways and measures each wait with its own clock, against the output of the
commands. One instruction that takes long is executing.

A recording is made up to three times: a busy machine stops the program between its clock and its wait. Each way must be right once.
Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import collections
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
CORPUS = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE.parent / "shared" / "corpus"))
WAIT_MS = 150
TRIES = 3
ALLOWED = 0.01  # of the truth


def run(*words):
    done = subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


class Take:
    """One recording, the program's own measurements, and the calls of its first thread."""

    def __init__(self, folder, program, options, number):
        self.data, truth = folder / f"waits{number}.data", folder / "waits.txt"
        truth.write_text("")
        run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], *options, "-o", self.data, "--", program, truth, WAIT_MS)
        self.waits, self.spins = {}, []
        for line in truth.read_text().splitlines():
            name, waited, spun = line.split()
            self.waits[name] = int(waited)
            self.spins.append(int(spun))
        calls = [line for line in json_lines(run("script", "-q", "-i", self.data, "--format", "json")) if "call" in line]
        self.tid = next(line["tid"] for line in calls if line["call"] == "main")
        self.calls = collections.defaultdict(list)
        for line in calls:
            if line["tid"] == self.tid:
                self.calls[line["call"]].append(line)


def waited(line):
    return line["off_cpu_ns"] + line["untraced_ns"]


class Waits(unittest.TestCase):
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.program = cls.folder / "waits"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-inline", "-fno-optimize-sibling-calls", "-g", "-pthread",
                        SOURCE / "tests/cli/programs/waits.c", "-o", cls.program], check=True)
        cls.takes = [Take(cls.folder, cls.program, cls.OPTIONS, 0)]

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def once(self, wrong):
        """Fails if an error named by `wrong(take)` occurs in every recording."""
        left = None
        for at in range(TRIES):
            if at == len(self.takes):
                self.takes.append(Take(self.folder, self.program, self.OPTIONS, at))
            found = wrong(self.takes[at])
            left = found if left is None else {name: said for name, said in found.items() if name in left}
            if not left:
                return
        self.fail(left)

    def test_each_wait_is_as_long_as_the_program_measured(self):
        def wrong(take):
            self.assertEqual(len(take.waits), 16)
            bad = {}
            for name, truth in take.waits.items():
                call = take.calls["by_" + name][-1]
                told, running = waited(call), call["end_ns"] - call["start_ns"] - waited(call)
                if abs(told - truth) > ALLOWED * truth or running > ALLOWED * truth:
                    bad[name] = f"truth {truth} ns, waits {told} ns, runs {running} ns"
            return bad
        self.once(wrong)

    def test_running_is_as_long_as_the_program_measured(self):
        def wrong(take):
            own = sum(line["self_ns"] for line in take.calls["spin"][1::2])
            truth = sum(take.spins)
            return {} if abs(own - truth) <= ALLOWED * truth else {"spin": f"truth {truth} ns, runs {own} ns"}
        self.once(wrong)

    def test_functions_and_flame_tell_the_same_time(self):
        take = self.takes[-1]
        calls, functions = collections.Counter(), collections.Counter()
        for name, lines in take.calls.items():
            calls[name] += sum(line["self_ns"] for line in lines)
        for line in json_lines(run("functions", "-q", "--no-inline", "-i", take.data, "--limit", "0", "--format", "json", "--tid", take.tid))[1:]:
            functions[line["function"]] += line["self_ns"]
        self.assertEqual(calls, functions)
        flame = collections.Counter()
        for line in run("flame", "-q", "-i", take.data, "--format", "folded", "--tid", take.tid).splitlines():
            stack, ns = line.rsplit(" ", 1)
            flame["all"] += int(ns)
        self.assertEqual(flame["all"], sum(calls.values()))

    def test_flame_of_waiting(self):
        def wrong(take):
            waits, everything = collections.Counter(), 0
            for line in run("flame", "-q", "-i", take.data, "--waiting", "--format", "folded", "--tid", take.tid).splitlines():
                stack, ns = line.rsplit(" ", 1)
                everything += int(ns)
                for name in {frame for frame in stack.split(";") if frame.startswith("by_")}:
                    waits[name[3:]] += int(ns)
            pauses = [line for line in json_lines(run("script", "-q", "-i", take.data, "--format", "json")) if "pause" in line and line["tid"] == take.tid]
            self.assertEqual(everything, sum(waited(line) + line["lost_ns"] for line in pauses))
            # The last call of each is the measured one.
            before = {name: sum(map(waited, take.calls["by_" + name][:-1])) for name in take.waits}
            return {name: f"truth {truth} ns, {waits[name] - before[name]} ns" for name, truth in take.waits.items()
                    if abs(waits[name] - before[name] - truth) > ALLOWED * truth}
        self.once(wrong)

    def test_a_window_inside_a_wait_shows_the_wait(self):
        take = self.takes[-1]
        call = take.calls["by_nanosleep"][-1]
        length = call["end_ns"] - call["start_ns"]
        first, last = call["start_ns"] + length // 3, call["start_ns"] + length // 3 * 2
        window = ("--tid", take.tid, "--time", f"{first // 10**9}.{first % 10**9:09},{last // 10**9}.{last % 10**9:09}")
        rows = {line["function"]: line for line in json_lines(run("functions", "-q", "-i", take.data, "--limit", "0", "--format", "json", *window))[1:]}
        self.assertEqual((waited(rows["by_nanosleep"]), rows["by_nanosleep"]["self_ns"]), (last - first, 0))
        self.assertEqual(rows["by_nanosleep"]["total_ns"], last - first)
        pauses = [line for line in json_lines(run("script", "-q", "-i", take.data, "--format", "json", *window)) if "pause" in line]
        self.assertEqual([waited(line) for line in pauses], [last - first])

    def test_a_window_that_ends_after_the_trace_changes_nothing(self):
        take = self.takes[-1]
        whole = run("script", "-q", "-i", take.data, "--format", "json")
        after = json.loads(run("info", "--json", "-i", take.data))["time_ns"][1] // 10**9 + 2
        for window in (f",{after}", f"0,{after}"):
            self.assertEqual(run("script", "-q", "-i", take.data, "--format", "json", "--time", window), whole)

    def test_a_window_of_one_call_has_that_call_and_no_other(self):
        take = self.takes[-1]
        for name in take.waits:
            call = take.calls["by_" + name][-1]
            first, last = call["start_ns"], call["end_ns"]
            window = ("--tid", take.tid, "--time", f"{first // 10**9}.{first % 10**9:09},{last // 10**9}.{last % 10**9:09}")
            rows = {line["function"]: line for line in json_lines(run("functions", "-q", "-i", take.data, "--limit", "0", "--format", "json", *window))[1:]}
            here = rows["by_" + name]
            self.assertEqual((here["calls"], here["partial"], here["total_ns"]), (1, 0, last - first), name)
            others = [row for row in rows if row.startswith("by_") and row != "by_" + name]
            self.assertEqual(others, [], name)


class WaitsWithCycles(Waits):
    OPTIONS = ("--cyc",)


class NothingDecoded(unittest.TestCase):
    def test_what_is_wholly_lost_does_not_run(self):
        """A recording without its code: no instruction is decoded, so nothing is executed and no function is named."""
        data = CORPUS / "pt-perfdata-skylake" / "perf.data"
        if not data.exists():
            self.skipTest(f"{data} is not there")
        stat = json.loads(run("stat", "-q", "-i", data, "--format", "json"))
        self.assertEqual(sum(each["instructions"] for each in stat["streams"]), 0)
        rows = json_lines(run("functions", "-q", "-i", data, "--limit", "0", "--format", "json"))[1:]
        self.assertEqual(rows, [])
        self.assertRegex(run("functions", "-q", "-i", data), r"threads?: 0 ns running, .* [1-9][.0-9]* [mu]s lost")
        self.assertEqual(run("flame", "-q", "-i", data, "--format", "folded"), "")

    def test_stat_and_functions_tell_the_same_loss(self):
        data = CORPUS / "pt-perfdata-skylake" / "perf.data"
        if not data.exists():
            self.skipTest(f"{data} is not there")
        threads = [each for each in json.loads(run("stat", "-q", "-i", data, "--format", "json"))["loss_times"]["threads"] if each["gaps"]]
        self.assertEqual(sum(each["traced_ns"] for each in threads), 0)
        lost = sum(line["lost_ns"] for line in json_lines(run("script", "-q", "-i", data, "--format", "json")) if "pause" in line)
        told = sum(each["lost_ns"] for each in threads)
        self.assertAlmostEqual(lost, told, delta=told * 0.01)


@unittest.skipUnless(platform.machine() == "x86_64", "the program is for x86-64")
class LongInstruction(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.program, self.data = pathlib.Path(self.folder.name) / "interrupted", pathlib.Path(self.folder.name) / "recording"
        subprocess.run([os.environ.get("CC", "cc"), "-g", "-O1", "-fno-inline", "-fno-optimize-sibling-calls", SOURCE / "tests/cli/programs/interrupted.c", "-o", self.program], check=True)

    def record(self, *options, arguments=()):
        """Returns the numbers that the program prints, and the functions."""
        printed = run("record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], *options, "-o", self.data, "--", self.program, *arguments)
        lines = json_lines(run("functions", "-q", "-i", self.data, "--limit", "0", "--format", "json"))
        return list(map(int, printed.split())), {line["function"]: line for line in lines[1:]}

    def test_what_leads_to_it_does_not_have_its_time(self):
        """While it runs, only timing packets come. The branch that leads to it has a packet before."""
        for options in (("--no-retcomp",), ("--cyc", "--no-retcomp"), ("--mtc-period", "5")):
            with self.subTest(options=options):
                (called, jumped, returned, picked), rows = self.record(*options, arguments=["quiet"])
                self.assertAlmostEqual(rows["fill"]["self_ns"] / (called + jumped + returned), 1, delta=0.1)
                self.assertAlmostEqual(rows["pick"]["total_ns"] / picked, 1, delta=0.1)
                self.assertGreater(rows["clear (inlined)"]["self_ns"], 0.45 * picked)  # nothing divides it from the RET after it
                for other in ("enter", "leap", "back", "fill_uninterrupted", "now_ns"):
                    self.assertLess(rows[other]["self_ns"], 0.1 * min(called, jumped, returned, picked), other)

    def test_what_leads_to_it_does_not_have_the_time_up_to_a_loss(self):
        """Packets are lost while it runs. Where the last branch went is lost with them, but not when that was."""
        least = 5_000_000
        for _ in range(3):  # other work of the machine may interrupt them
            _, rows = self.record("--no-retcomp", "--ovf", "1100", arguments=["quiet"])
            least = min(least, sum(rows[name]["self_ns"] for name in ("enter", "leap", "back", "pick", "fill_uninterrupted") if name in rows))
            if least < 5_000_000:
                break
        self.assertLess(least, 5_000_000)

    def test_an_instruction_that_is_interrupted_has_its_time(self):
        """REP STOSB does not retire until it has filled everything. Between two signals it is all that runs, and only timing packets say so."""
        for options in ((), ("--cyc",)):
            with self.subTest(options=options):
                (took, handled), rows = self.record(*options)
                self.assertGreaterEqual(handled, 3)
                self.assertEqual((rows["fill"]["calls"], rows["handler"]["calls"]), (1, handled))
                self.assertAlmostEqual(rows["fill"]["total_ns"] / took, 1, delta=0.1)
                self.assertGreater(rows["fill"]["self_ns"], 0.7 * took)
                for other in ("enter", "handler"):
                    self.assertLess(rows[other]["self_ns"], 0.15 * took, other)


class OneUnit(unittest.TestCase):
    def test_flame_and_functions_add_up_the_same(self):
        """A snapshot without records: only packets give times, so the file does not tell beforehand whether the trace has any."""
        found = [path for name in ("cs-TC2", "cs-Snowball", "ete_mem") if (path := CORPUS / name / "snapshot").exists()]
        if not found:
            self.skipTest("no corpus")
        for path in found:
            with self.subTest(path=path):
                first, *rows = json_lines(run("functions", "-q", "-i", path, "--limit", "0", "--format", "json"))
                key, unit = ("self_ns", "ns") if first["timed"] else ("self_instructions", "instructions")
                own = sum(row[key] for row in rows)
                self.assertGreater(own, 0)
                self.assertEqual(sum(int(line.rsplit(" ", 1)[1]) for line in run("flame", "-q", "-i", path, "--format", "folded").splitlines()), own)
                with tempfile.TemporaryDirectory() as folder:
                    page = pathlib.Path(folder) / "page.html"
                    run("report", "-q", "-i", path, "-o", page)
                    self.assertIn(f'"unit":"{unit}"', page.read_text())


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("qemu-x86_64 is not installed")
        sys.exit(77)
    unittest.main(verbosity=2)
