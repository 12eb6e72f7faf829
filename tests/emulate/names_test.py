#!/usr/bin/env python3
"""Names of threads that rename themselves: each list has exactly the calls that the program makes under each name.

Also without the PSBs that the emulator writes where a thread gets a name: then only MTC packets date the flow around it, as on a processor.
Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import collections
import json
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
PLUGIN = os.environ["PTDECODE_PLUGIN"]
PROGRAM = os.path.join(os.environ["PTDECODE_SOURCE"], "tests/emulate/programs/thread_names.c")
PSB, PSBEND, AUXTRACE = bytes.fromhex("0282") * 8, bytes.fromhex("0223"), 71


def remove_psbs(path, to):
    """Replaces all PSB+ but the first of each stream by PAD packets."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    at, size = struct.unpack_from("<QQ", data, 40)
    end, begun = at + size, set()
    while at < end:
        kind, _, length = struct.unpack_from("<IHH", data, at)
        trace = at + length
        if kind == AUXTRACE:
            (trace_bytes,) = struct.unpack_from("<Q", data, at + 8)
            (stream,) = struct.unpack_from("<I", data, at + 32)
            length += trace_bytes
            psb = data.find(PSB, trace, at + length)
            while psb >= 0:
                after = data.find(PSBEND, psb, at + length) + len(PSBEND)
                if stream in begun:
                    data[psb:after] = bytes(after - psb)
                begun.add(stream)
                psb = data.find(PSB, after, at + length)
        at += length
    with open(to, "wb") as file:
        file.write(data)


class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = holder.name
        cls.env = dict(os.environ, PTDECODE_STASH=cls.folder + "/stash")
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-g", "-pthread", PROGRAM, "-o", "names"], check=True, cwd=cls.folder)

    def run_it(self, *command):
        return subprocess.run([PTDECODE, *command], capture_output=True, text=True, cwd=self.folder, env=self.env)

    def record(self, path, *words, options=()):
        done = self.run_it("record", "-q", "--emulate", "--plugin", PLUGIN, "-o", path, "--work-clock", *options, "--", "./names", *words)
        self.assertEqual(done.returncode, 0, done.stderr)

    def in_calls(self, path):
        rows = [json.loads(line) for line in self.run_it("script", "-q", "-i", path, "-S", "tick", "--json").stdout.splitlines()[1:]]
        return collections.Counter(row["comm"] for row in rows)

    def in_branches(self, path):
        words = [line.split() for line in self.run_it("script", "-q", "-i", path, "--itrace=c", "-F", "comm,ip,sym,addr").stdout.splitlines()]
        return collections.Counter(line[0] for line in words if line[-1] == "tick")

    def in_export(self, path):
        database = self.folder + "/names.db"
        if os.path.exists(database):
            os.remove(database)
        done = self.run_it("export", "-q", "-i", path, "-o", database, "--tables", "calls")
        self.assertEqual(done.returncode, 0, done.stderr)
        with sqlite3.connect(database) as calls:
            rows = calls.execute("SELECT command, count(*) FROM calls_view WHERE symbol = 'tick' GROUP BY command").fetchall()
        return collections.Counter(dict(rows))

    def in_functions(self, path, names):
        counts = collections.Counter()
        for name in names:
            rows = self.run_it("functions", "-q", "-i", path, "--comm", name, "--func", "tick", "--json").stdout
            counts[name] = sum(row.get("calls", 0) for row in map(json.loads, rows.splitlines()))
        return counts

    def check(self, path, kinds):
        want = collections.Counter({f"{kind}.{i}": 50 for kind in kinds for i in range(10)})
        self.assertEqual(want, self.in_calls(path), path)
        self.assertEqual(want, self.in_branches(path), path)
        self.assertEqual(want, self.in_export(path), path)
        some = sorted(want)[:3]
        self.assertEqual({name: 50 for name in some}, self.in_functions(path, some), path)

    def test_as_recorded(self):
        for period in ("9", "12"):
            with self.subTest(period):
                self.record("as.data", "4", options=["--mtc-period", period])
                self.check("as.data", ["main0", *(f"t{i}" for i in range(4))])

    def test_with_times_of_mtc_packets_only(self):
        for period in ("9", "12"):
            with self.subTest(period):
                self.record("psbs.data", options=["--mtc-period", period])
                remove_psbs(self.folder + "/psbs.data", self.folder + "/mtc.data")
                self.check("mtc.data", ["main0"])


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    unittest.main()
