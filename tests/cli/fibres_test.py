#!/usr/bin/env python3
"""`--fibres` against the program's own log of its calls by fibre: programs/fibres.c, under the emulator, with the packets of its PTWRITEs put into the trace.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
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


def record(folder, way, *options):
    """Returns the recording and the program's log."""
    program, data = folder / f"fibres-{way}", folder / f"{way}.data"
    subprocess.run([os.environ.get("CC", "cc"), "-g", "-O1", "-w", "-static", "-pthread", SOURCE / "tests/cli/programs/fibres.c", "-o", program], check=True)
    done = run("record", "--emulate", "--no-stash", "--cyc", *options, "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", data, "--", program, way.split("-")[0])
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
    return data, log


def calls_by_stack(data, *words):
    """Returns {stack: [ended calls as [name, depth]], [open calls, outermost first]} of the functions that the program logs. Stacks: as in the log."""
    done = run("script", "-q", "--format", "json", "-i", data, *words)
    assert done.returncode == 0, done.stderr
    stacks = {}
    for line in map(json.loads, done.stdout.splitlines()):
        if line.get("call") not in LOGGED:
            continue
        ended, still_open = stacks.setdefault((line["tid"], 0) if "fibre" not in line else line["fibre"], ([], []))
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
        cls.recorded = {way: record(cls.folder, way) for way in WAYS}

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


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("skipped: qemu-x86_64 is not installed")
        sys.exit(77)
    unittest.main()
