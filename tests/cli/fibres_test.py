#!/usr/bin/env python3
"""`--fibres` against the program's own log of its calls by fibre: programs/fibres.c, under the emulator, with the packets of its PTWRITEs put into the trace.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC; PTDECODE_FIBRE_TRIALS (damaged traces of each recording), PTDECODE_PRINT_TABLE. Exit status 77 without qemu-x86_64.
"""
import collections
import json
import os
import pathlib
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import perf_file  # noqa: E402
import perfetto_reader  # noqa: E402
import ptwrites  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
FIBRES = 6
LOGGED = {"leaf", "even", "odd", "fibre_body", "turns"}
WAYS = ("switch", "switch-fup", "ucontext", "ucontext-fup")


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=600)


def symbols(program):
    listed = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    return {line.split()[2]: int(line.split()[0], 16) for line in listed.splitlines() if len(line.split()) == 3}


def file_offset(program, address):
    for line in subprocess.run(["readelf", "-lW", program], capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.split()
        if words[:1] == ["LOAD"] and int(words[2], 16) <= address < int(words[2], 16) + int(words[4], 16):
            return address - int(words[2], 16) + int(words[1], 16)
    raise AssertionError(hex(address))


def record(folder, way):
    """Returns the recording and the program's log."""
    program, data = folder / f"fibres-{way}", folder / f"{way}.data"
    subprocess.run([os.environ.get("CC", "cc"), "-g", "-O1", "-w", "-static", "-pthread", SOURCE / "tests/cli/programs/fibres.c", "-o", program], check=True)
    done = run("record", "--emulate", "--no-stash", "--cyc", "--psb-period", 0, "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", data, "--", program, way.split("-")[0])
    assert done.returncode == 0, done.stderr
    log, places = json.loads(done.stdout.splitlines()[0]), symbols(program)
    ucontext = way.startswith("ucontext")
    mark = places["announce" if ucontext else "switch_mark"]
    streams = []
    for ends, operands in zip(ptwrites.tip_ends(PTDECODE, data, {places["announce" if ucontext else "switch_to"]}), log["announced"]):
        assert len(ends) == len(operands), (len(ends), len(operands))
        streams.append([(end, ptwrites.packet(operand, mark if way.endswith("-fup") else None)) for end, operand in zip(ends, operands)])
    ptwrites.insert(data, streams)
    ptwrites.patch_program(program, {file_offset(program, places["announce"]): "rdi", file_offset(program, places["switch_mark"]): "rdx"})
    return data, log, {places["announce"], places["switch_to"]}


def listed(data, *words):
    done = run("script", "-q", "--format", "json", "-i", data, *words)
    assert done.returncode == 0, done.stderr
    return [line for line in map(json.loads, done.stdout.splitlines()) if "call" in line]


def stack_of(line):
    return line["fibre"] if "fibre" in line else (line["tid"], 0)


def calls_by_stack(data, *words):
    """Returns {stack: [ended calls as [name, depth]], [open calls, outermost first]} of the functions that the program logs. Stacks: as in the log."""
    stacks = {}
    for line in listed(data, *words):
        if line["call"] not in LOGGED:
            continue
        ended, still_open = stacks.setdefault(stack_of(line), ([], []))
        if line["end_seen"]:
            ended.append([line["call"], line["depth"]])
        else:
            still_open.insert(0, line["call"])
    for ended, _ in stacks.values():
        outer = min((depth for name, depth in ended if name in ("turns", "fibre_body")), default=min((depth for _, depth in ended), default=1) - 1)
        for call in ended:
            call[1] -= outer
    return stacks


class Fibres(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.recorded, cls.places = {}, {}
        for way in WAYS:
            *cls.recorded[way], cls.places[way] = record(cls.folder, way)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def wanted(self, log):
        names = [*range(1, FIBRES + 1), (log["tids"][0], 0), (log["tids"][1], 0)]
        return {name: (stack["ended"], stack["open"]) for name, stack in zip(names, log["stacks"])}

    def test_calls_of_each_fibre_are_those_of_the_programs_log(self):
        for way, (data, log) in self.recorded.items():
            with self.subTest(way):
                ours, wanted = calls_by_stack(data, "--fibres"), self.wanted(log)
                self.assertEqual(set(ours), set(wanted))
                for stack, (ended, still_open) in wanted.items():
                    self.assertEqual(ours[stack], (ended, still_open), stack)

    def test_without_the_option_the_stacks_of_a_thread_are_mixed(self):
        for way, (data, log) in self.recorded.items():
            ours, wanted = calls_by_stack(data), self.wanted(log)
            self.assertEqual(set(ours), {(tid, 0) for tid in log["tids"]})
            for stack in ours:
                self.assertNotEqual(ours[stack], wanted[stack], way)

    def test_functions_have_the_calls_of_the_log_and_all_instructions(self):
        for way, (data, log) in self.recorded.items():
            rows = {}
            for words in ((), ("--fibres",)):
                done = run("functions", "-q", "--no-inline", "--format", "json", "--limit", 0, "-i", data, *words)
                self.assertEqual(done.returncode, 0, done.stderr)
                rows[words] = {row["function"]: row for row in map(json.loads, done.stdout.splitlines()) if "function" in row}
            ours = rows[("--fibres",)]
            wanted = collections.Counter(name for stack in log["stacks"] for name in [call[0] for call in stack["ended"]] + stack["open"])
            self.assertEqual({name: ours[name]["calls"] for name in LOGGED}, dict(wanted), way)
            own = [sum(row["self_instructions"] for row in each.values()) for each in rows.values()]
            self.assertEqual(own[0], own[1])
            self.assertEqual(sum(row["self_ns"] for row in ours.values()), sum(row["self_ns"] for row in rows[()].values()))
        self.assertRegex(run("functions", "-i", data, "--fibres").stdout, r"(?m)^2 threads, 6 fibres: ")

    def test_output_does_not_depend_on_threads_and_container(self):
        for way, (data, _) in self.recorded.items():
            bundle = self.folder / (way + ".ptb")
            self.assertEqual(run("bundle", "-q", "-i", data, "-o", bundle).returncode, 0)
            ends = [line["end_ns"] for line in listed(data, "--fibres") if "fibre" in line]
            part = "{0:.9f},{1:.9f}".format(ends[len(ends) // 3] / 1e9, ends[-1] / 1e9)
            for command in (("functions", "--limit", "0"), ("flame", "--format", "folded"), ("functions", "--limit", "0", "--time", part)):
                told = {run(*command, "-q", "--no-inline", "--fibres", "--threads", threads, "-i", path).stdout for threads in (1, 2, 8) for path in (data, bundle)}
                self.assertEqual(len(told), 1, (way, command))
            plan = self.folder / (way + ".plan")
            self.assertEqual(run("plan", "-q", data, "-o", plan).returncode, 0)
            for other in (bundle, plan):
                self.assertEqual(listed(data, "--fibres"), listed(other, "--fibres"), other)

    def test_each_fibre_is_a_track(self):
        data, log = self.recorded["switch"]
        path = self.folder / "run.pftrace"
        self.assertEqual(run("timeline", "-q", "--no-inline", "-i", data, "--fibres", "-o", path).returncode, 0)
        tracks, slices, _ = perfetto_reader.read(path.read_bytes())
        names = {track: facts["name"] for track, facts in tracks.items() if facts["name"] and facts["name"].startswith("fibre")}
        self.assertEqual(sorted(names.values()), [f"fibre {i} of fibres-switch (pid {log['tids'][0]})" for i in range(1, FIBRES + 1)])
        got, wanted = collections.Counter(), collections.Counter()
        for track, depth, name, begin, end in slices:
            if track in names and name not in ("[off cpu]", "[not traced]"):
                got[int(names[track].split()[1]), name, depth, begin, end] += 1
        for line in listed(data, "--fibres"):
            if "fibre" in line:
                wanted[line["fibre"], line["call"], line["depth"], line["start_ns"], line["end_ns"]] += 1
        self.assertEqual(got, wanted)

    def test_database_and_text(self):
        data, log = self.recorded["switch"]
        base = self.folder / "run.db"
        self.assertEqual(run("export", "-q", "-i", data, "--fibres", "--tables", "calls,threads", "-o", base).returncode, 0)
        with sqlite3.connect(base) as database:
            rows = collections.Counter(database.execute("SELECT tid, fibre, call, depth, start_ns, end_ns FROM ptd_calls"))
            threads = database.execute("SELECT fibre, running_ns, instructions FROM ptd_threads WHERE tid IN (?, ?) ORDER BY fibre", log["tids"]).fetchall()
        database.close()
        lines = listed(data, "--fibres")
        self.assertEqual(rows, collections.Counter((x["tid"], x.get("fibre", 0), x["call"], x["depth"], x["start_ns"], x["end_ns"]) for x in lines))
        self.assertEqual([row[0] for row in threads], [0, 0, *range(1, FIBRES + 1)])
        self.assertEqual(sum(row[2] for row in threads), sum(line["self_instructions"] for line in lines))
        if "PTDECODE_PRINT_TABLE" in os.environ:  # the column of the C and Python API
            table = subprocess.run([os.environ["PTDECODE_PRINT_TABLE"], data, "calls", "tid", "fibre", "call", "depth", "start_ns", "end_ns"],
                                   capture_output=True, text=True, check=True).stdout
            self.assertEqual(collections.Counter(tuple(json.loads(line).values()) for line in table.splitlines()), rows)
        text = run("script", "-q", "-i", data, "--fibres").stdout
        self.assertEqual({int(fibre) for fibre in re.findall(r"(?m)^ *fibres-switch +\d+/(\d+) ", text)}, set(range(1, FIBRES + 1)))

    def test_after_a_loss_no_call_is_wrong(self):
        """Damage in the trace loses announcements. A call that is listed from its start to its end is one of the undamaged trace, of the same stack."""
        seed = random.Random(7)
        trials = int(os.environ.get("PTDECODE_FIBRE_TRIALS", 6))
        unknown = complete = 0
        for way, (data, _) in self.recorded.items():
            right = collections.Counter((stack_of(x), x["call"], x["instructions"], x["self_instructions"]) for x in listed(data, "--fibres"))
            content = data.read_bytes()
            traces = [at + size for at, kind, size in perf_file.records(content)[0] if kind == perf_file.AUXTRACE]
            packets = re.split(r"(?m)^# stream.*$", run("packets", "-q", "-i", data).stdout)[1:]
            all_tips = ptwrites.tip_ends(PTDECODE, data, self.places[way])
            for trial in range(trials):
                stream = trial % 2
                starts, tips = [int(at, 16) for at in re.findall(r"(?m)^([0-9a-f]{16})  ", packets[stream])], all_tips[stream]
                where = traces[stream] + seed.choice([at for at in starts if tips[0] <= at < tips[-1]])
                damaged, changed = self.folder / "damaged.data", bytearray(content)
                changed[where:where + 40] = b"\x02\xff" * 20  # no packet
                damaged.write_bytes(changed)
                for line in listed(damaged, "--fibres"):
                    if not line["start_seen"] or not line["end_seen"] or line["lost_ns"] != 0:
                        continue
                    unknown += line.get("fibre", 0) is None
                    complete += 1
                    if line.get("fibre", 0) is not None:
                        self.assertIn((stack_of(line), line["call"], line["instructions"], line["self_instructions"]), right, (way, trial, line))
        print(f"{complete} complete calls in damaged traces, {unknown} of unknown fibres", flush=True)
        self.assertGreater(unknown, 0)

    def test_a_trace_without_announcements_says_so(self):
        demo = SOURCE / "data/demo"
        with_option, without = run("functions", "-q", "-i", demo, "--fibres"), run("functions", "-q", "-i", demo)
        self.assertEqual(with_option.stdout, without.stdout)
        self.assertEqual(with_option.stderr.replace(without.stderr, ""),
                         "ptdecode: --fibres: no thread announces a fibre by PTWRITE, so that each has one stack of calls (ANNOUNCE.md)\n")
        self.assertNotIn("--fibres", run("functions", "-q", "-i", self.recorded["switch"][0], "--fibres").stderr)

    def test_options_that_have_no_fibres(self):
        data, _ = self.recorded["switch"]
        for words in (("script", "--call-trace"), ("script", "--itrace=b"), ("profile", "-o", self.folder / "profile")):
            done = run(*words, "-i", data, "--fibres")
            self.assertEqual(done.returncode, 2, words)
            self.assertIn("--fibres", done.stderr)


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("skipped: qemu-x86_64 is not installed")
        sys.exit(77)
    unittest.main()
