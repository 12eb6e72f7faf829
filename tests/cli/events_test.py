#!/usr/bin/env python3
"""Lines other than calls: samples of other events among them, branches and instructions as JSON, one syntax of --format for all commands.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
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

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests/bundle"))
import parts  # noqa: E402

SAMPLE_TYPE = 0x10007  # IDENTIFIER, IP, TID, TIME: as for the other events of the recording
PERIOD, RAW = 1 << 8, 1 << 10
# In the format of the kernel's tracefs, shortened.
FORMAT = b"""name: shop_order
ID: 777
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char who[8];\toffset:8;\tsize:8;\tsigned:0;
\tfield:long change;\toffset:16;\tsize:8;\tsigned:1;
\tfield:void * at;\toffset:24;\tsize:8;\tsigned:0;
\tfield:__data_loc char[] item;\toffset:32;\tsize:4;\tsigned:0;

print fmt: "who=%s", REC->who
"""


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=900)


def json_lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def sample(identifier, ip, tid, time, rest):
    body = struct.pack("<QQiiQ", identifier, ip, tid, tid, time) + rest
    return struct.pack("<IHH", 9, 2, 8 + len(body)) + body


class Pauses(unittest.TestCase):
    """Offsets: linux/perf_event.h, struct perf_event_attr: flags 40 (exclude_kernel: bit 5), aux_action 116 (start_paused, pause, resume: bits 0 to 2)."""

    def test_the_events_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(SOURCE / "data/demo", pathlib.Path(folder) / "demo")
            raw = bytearray((copy / "data").read_bytes())
            attr_bytes, attrs = struct.unpack_from("<QQ", raw, 16)

            def said(trace, other, flags=0):
                for at, action in ((attrs, trace), (attrs + attr_bytes, other)):
                    struct.pack_into("<I", raw, at + 116, action)
                raw[attrs + 40] |= flags
                (copy / "data").write_bytes(raw)
                info = run("info", "-i", copy).stdout
                self.assertEqual([line.split("warning: ")[1] for line in run("stat", "-q", "-i", copy).stderr.splitlines() if "paused" in line],
                                 [line[12:] for line in info.splitlines() if "paused" in line])
                return re.findall(r"(?m)^warning +the trace (.*(?:paused|resumed).*)$", info)

            self.assertEqual(said(0, 0), [])
            self.assertEqual(said(1, 4), ["starts paused, is resumed by dummy:u"])
            self.assertEqual(said(0, 2), ["is paused by dummy:u"])
            self.assertRegex(said(1, 6, 1 << 5)[0], r"^starts paused, is paused by dummy:u, is resumed by dummy:u: a pause is shown as \[kernel\]")


class Recording:
    """Returns a perf.data file with two more events and their samples, written again
    (tools/perf/Documentation/perf.data-file-format.txt)."""

    def __init__(self, path):
        self.raw = path.read_bytes()
        (_, _, self.attr_bytes, attrs, attrs_bytes, data, data_bytes) = struct.unpack("<8sQQQQQQ", self.raw[:56])
        self.attrs = self.raw[attrs:attrs + attrs_bytes]
        self.data = self.raw[data:data + data_bytes]
        bits = int.from_bytes(self.raw[72:104], "little")
        present = [bit for bit in range(256) if bits >> bit & 1]
        table = data + data_bytes
        self.features = {bit: struct.unpack("<QQ", self.raw[table + 16 * i:table + 16 * i + 16]) for i, bit in enumerate(present)}

    def attr(self, kind, config, sample_type, ids_at):
        size = self.attr_bytes - 16
        fields = struct.pack("<IIQQQQQ", kind, size, config, 1000, sample_type, 4, 1 << 18)
        return fields.ljust(size, b"\0") + struct.pack("<QQ", ids_at, 8)

    def write(self, path, samples):
        out = bytearray(self.raw)
        ids_at = len(out)
        out += struct.pack("<QQ", 101, 102)
        attrs = self.attrs + self.attr(0, 0, SAMPLE_TYPE | PERIOD, ids_at) + self.attr(2, 777, SAMPLE_TYPE | RAW, ids_at + 8)
        attrs_at = len(out)
        out += attrs
        data = self.data + b"".join(samples)
        data_at = len(out)
        out += data
        tracing_data = b"\x17\x08\x44tracing0.6\0\0\1" + FORMAT
        features = {**self.features}
        features.pop(12)  # the names of events; perf writes either all or none
        head = len(out) + 16 * (len(features) + 1)
        features[1] = (head, len(tracing_data))
        out += b"".join(struct.pack("<QQ", *features[bit]) for bit in sorted(features)) + tracing_data
        out[24:40] = struct.pack("<QQ", attrs_at, len(attrs))
        out[40:56] = struct.pack("<QQ", data_at, len(data))
        out[72:104] = sum(1 << bit for bit in features).to_bytes(32, "little")
        path.write_bytes(out)


class Events(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        program = cls.folder / "calls"
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-fno-inline", "-w", "-static", "-g", SOURCE / "tests/cli/programs/calls.c", "-o", program], check=True)
        cls.plain = cls.folder / "plain.data"
        done = run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--cyc", "-o", cls.plain, "--", program)
        assert done.returncode == 0, done.stderr
        # A cycles sample at the time and address of some branches, a user-defined event between two.
        branches = json_lines(run("script", "-i", cls.plain, "--itrace=b", "--format", "json", "-q"))[1:]
        tid = branches[0]["tid"]
        cls.places = [branches[len(branches) * k // 10] for k in range(1, 9)]
        payload = struct.pack("<HHi8sqQI", 777, 0, tid, b"bob\0", -5, 0xffff800012345678, 36 | 6 << 16) + b"p\x07ar\0\0"
        records = []
        for k, place in enumerate(cls.places):
            if k == 3:
                raw = struct.pack("<I", len(payload)) + payload
                records.append(sample(102, 0, tid, place["time_ns"], raw + bytes(-len(raw) % 8)))
            else:
                records.append(sample(101, int(place["ip"], 16), tid, place["time_ns"], struct.pack("<Q", 1000 + k)))
        cls.data = cls.folder / "events.data"
        Recording(cls.plain).write(cls.data, records)
        cls.tid = tid

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_damaged_samples_of_a_bundle_are_named_not_left_out_in_silence(self):
        bundle = self.folder / "events.ptd"
        self.assertEqual(run("bundle", "-q", "-i", self.data, "-o", bundle).returncode, 0)
        whole = run("script", "-i", bundle, "--itrace=b")
        self.assertNotIn("samples of other events", whole.stderr)
        bundle.write_bytes(parts.replaced(bundle.read_bytes(), {b"evnt": b"\x01\xff"}))
        damaged = run("script", "-i", bundle, "--itrace=b")
        self.assertIn("samples of other events are not listed", damaged.stderr)
        self.assertIn("its samples of other events are damaged", damaged.stderr)
        self.assertEqual(damaged.stdout.count(" branches:"), whole.stdout.count(" branches:"))

    def test_samples_stand_in_order_of_time_in_the_flow(self):
        lines = run("script", "-i", self.data, "--itrace=b", "-F", "time,event,ip,sym", "--ns").stdout.splitlines()
        times = [int(line.split(":")[0].replace(".", "")) for line in lines if " -:" not in line]
        self.assertEqual(times, sorted(times))
        self.assertGreater(len(times), 1000)
        found = [line for line in lines if "branches:" not in line]
        self.assertEqual(len(found), len(self.places), found[:3])
        for line, place in zip(found, self.places):
            self.assertEqual(int(line.split(":")[0].replace(".", "")), place["time_ns"])
            if "tracepoint:777" in line:
                self.assertIn(" who=bob change=-5 at=0xffff800012345678 item=p?ar", line)
            else:
                self.assertIn("event:0:0", line)
                self.assertIn(place["symbol"], line)
        self.assertEqual(sum("tracepoint:777" in line for line in found), 1)
        # The flow is the same; the column of events is as wide as the longest name of an event.
        rest = [line.split() for line in lines if "branches:" in line]
        plain = [line.split() for line in run("script", "-i", self.plain, "--itrace=b", "-F", "time,event,ip,sym", "--ns").stdout.splitlines()]
        self.assertTrue(rest == plain)

    def test_samples_stand_in_the_tree(self):
        lines = run("script", "-i", self.data, "--ns").stdout.splitlines()
        found = [line for line in lines if " * " in line]
        self.assertEqual(len(found), len(self.places))
        self.assertEqual(sum("* tracepoint:777: who=bob change=-5" in line for line in found), 1)
        for line, place in zip(found, self.places):
            moment = f"{place['time_ns'] // 10**9:>5}.{place['time_ns'] % 10**9:09}"
            self.assertIn(moment, line)
        self.assertEqual([line for line in run("script", "-i", self.data, "--time", "0,0.5").stdout.splitlines() if " * " in line], [])
        lines = json_lines(run("script", "-i", self.data, "--json"))
        self.assertEqual([line["time_ns"] for line in lines if "sample" in line], [place["time_ns"] for place in self.places])
        fields = next(line["fields"] for line in lines if line.get("sample") == "tracepoint:777")
        self.assertEqual(fields, {"who": "bob", "change": -5, "at": "0xffff800012345678", "item": "p?ar"})

    def test_a_recording_from_standard_input_is_the_same(self):
        """Also from a pipe, although the input is read more than once."""
        for words in (("script", "--ns"), ("script", "--itrace=b", "--ns"), ("info",), ("functions", "--json")):
            want = run(*words, "-q", "-i", self.data).stdout if words[0] != "info" else None
            command = " ".join([PTDECODE, *words, *(["-q"] if want else []), "-i", "-"])
            for shell in (f"cat {self.data} | {command}", f"{command} < {self.data}"):
                done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=900)
                self.assertEqual((done.returncode, done.stderr), (0, ""), shell)
                if want:
                    self.assertEqual(done.stdout, want, shell)
                else:
                    self.assertRegex(done.stdout, r"\b(1 sample|\d+ samples) of tracepoint")

    def test_a_filter_holds_for_samples(self):
        self.assertEqual(json_lines(run("script", "-i", self.data, "--itrace=b", "--json", "-q", "--tid", "1"))[1:], [])
        some = self.places[2]["time_ns"]
        window = f"{some // 10**9}.{some % 10**9:09}"
        lines = json_lines(run("script", "-i", self.data, "--itrace=b", "--json", "--time", f"{window},{window}"))
        self.assertEqual([line["event"] for line in lines if line.get("kind") == "sample"], ["event:0:0"])
        self.assertEqual(next(line["period"] for line in lines if line.get("kind") == "sample"), 1002)

    def test_a_filter_of_cpus_holds_for_samples_in_each_form(self):
        demo = SOURCE / "data/demo"
        copy = self.folder / "demo"
        shutil.copytree(demo, copy)
        times = [line["start_ns"] for line in json_lines(run("script", "-i", demo, "--json", "-q")) if "start_ns" in line]
        moments = [min(times) + (max(times) - min(times)) * k // 8 for k in range(1, 7)]
        # IDENTIFIER, IP, TID, TIME, CPU, PERIOD
        records = [struct.pack("<IHHQQiiQIIQ", 9, 2, 56, 101, 0x1000, 1, 1, moment, cpu, 0, 5) for cpu, moment in zip((0, 1, 0, 1, 1, 1), moments)]
        recording = Recording(demo / "data")
        attr = recording.attr
        recording.attr = lambda kind, config, sample_type, ids_at: attr(kind, config, 0x10007 | 1 << 7 | PERIOD, ids_at)
        recording.write(copy / "data", records)
        for cpu, want in ((0, 2), (1, 4)):
            for words in ((), ("--json",), ("--itrace=b",), ("--itrace=b", "--json")):
                lines = run("script", "-i", copy, "-q", "-C", cpu, *words).stdout.splitlines()
                found = [line for line in lines if " * " in line or '"sample"' in line or " cycles:" in line or " event:0:0:" in line]
                self.assertEqual(len(found), want, (cpu, words))

    def test_the_flow_as_json_is_the_flow_as_text(self):
        for words in (("--itrace=b",), ("--itrace=i100i",), ("--insn-trace=disasm",)):
            columns = ("-F", "tid,time,ip,sym,symoff") if words[0] != "--itrace=b" else ("-F", "tid,time,ip,sym,symoff,addr")
            text = run("script", "-i", self.plain, *words, *columns, "--ns", "-q").stdout.splitlines()
            head, *lines = json_lines(run("script", "-i", self.plain, *words, *columns, "--json", "-q"))
            self.assertEqual(head, {"schema": "ptdecode-flow-1"})
            self.assertEqual(len(lines), len(text))
            for line, told in zip(lines, text):
                match = re.fullmatch(r"\s*(\d+)\s+(?:(\d+)\.(\d{9})|-):\s+(?:0 \[unknown\]|([0-9a-f]+) (\S+))(?: => +(?:0 \[unknown\]|([0-9a-f]+) (\S+)))?(?:  .*)?", told)
                self.assertTrue(match, told)
                tid, seconds, fraction, ip, symbol, to, to_symbol = match.groups()
                self.assertEqual((line["tid"], line.get("time_ns")), (int(tid), int(seconds + fraction) if seconds else None), told)
                self.assertEqual(line.get("ip"), ip and "0x" + ip)
                self.assertEqual(line.get("to"), to and "0x" + to)
                for name, offset, want in ((line.get("symbol"), line.get("offset"), symbol), (line.get("to_symbol"), line.get("to_offset"), to_symbol)):
                    if want and want != "[unknown]":
                        self.assertEqual(f"{name}+{offset:#x}", want)
        lines = json_lines(run("script", "-i", self.plain, "--insn-trace", "-F", "+insn,+disasm", "--json", "-q"))[1:200]
        self.assertTrue(all(line["kind"] == "instruction" and re.fullmatch(r"([0-9a-f]{2})+", line["bytes"]) and line["text"] for line in lines))

    def test_an_indented_tree_has_the_other_columns(self):
        """-F callindent adds a column to the lines of branches; --call-trace leaves some out that -F can add."""
        def lines(*words):
            done = run("script", "-i", self.plain, "-q", *words)
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
            return done.stdout.splitlines()

        columns = ("ip,sym,symoff,dso,addr,flags,insn,insnlen,disasm", "comm,tid,pid,time,event,period,ip", "ip,sym,srcline", "addr,sym", "comm,ip,sym,addr")
        for itrace in ("b", "c", "cr"):
            for fields in columns:
                with self.subTest(itrace=itrace, fields=fields):
                    plain, tree = lines("--itrace=" + itrace, "-F", fields), lines("--itrace=" + itrace, "-F", fields + ",callindent")
                    self.assertEqual(len(tree), len(plain))
                    if itrace == "b":
                        for with_tree, without in zip(tree, plain):  # each word of the plain line, in its order
                            words = iter(with_tree.split())
                            self.assertTrue(all(word in words for word in without.split()), (with_tree, without))
                    self.assertGreater(len(tree), 10)
        tree = lines("--call-trace", "-F", "-comm,-tid,-time,-dso")
        self.assertEqual([line.split()[0] for line in lines("--call-trace", "-F", "-comm,-tid,-time,-dso,+ip")], [line.split()[0] for line in tree])
        addresses = {line.split()[1] for line in lines("--call-trace", "-F", "ip,callindent") if re.fullmatch(r" +\S+ +[0-9a-f]+", line)}
        calls = {line.split()[0] for line in lines("--itrace=c", "-F", "ip")}
        self.assertGreater(len(addresses), 5)
        self.assertLessEqual(addresses, calls)
        for words in (("-F", "callindent", "--json"), ("-F", "callindent,brstack"), ("--call-trace", "--insn-trace"), ("--itrace=i1i", "-F", "callindent"),
                      ("--insn-trace", "-F", "+callindent"), ("--call-trace", "-F", "brstack")):
            done = run("script", "-i", self.plain, *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertRegex(done.stderr, "callindent|--call-trace", words)

    def test_the_target_of_a_branch_alone(self):
        def lines(*words):
            return run("script", "-i", self.plain, "-q", "--itrace=b", *words).stdout.splitlines()

        targets = [line.split()[-1] for line in lines("-F", "tid,ip,addr")]
        self.assertGreater(len(targets), 100)
        # No assertEqual(): it takes minutes to show how long lists differ.
        self.assertTrue([line.split()[-1] for line in lines("-F", "tid,addr")] == targets)
        self.assertTrue([int(json.loads(line).get("to", "0"), 16) for line in lines("-F", "tid,addr", "--json")[1:]] == [int(target, 16) for target in targets])

    def test_a_thread_without_such_events_matches(self):
        done = run("script", "-i", self.plain, "-q", "--tid", self.tid, "--itrace=e")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        for words in (("--tid", self.tid + 1, "--itrace=e"), ("--comm", "nobody", "--itrace=e"), ("--time", "1,2", "--itrace=b")):
            self.assertEqual(run("script", "-i", self.plain, "-q", *words).returncode, 2, words)

    def test_samples_at_a_period_of_time(self):
        """At most one for each time that a packet gives; the shortest period has one for each of them."""
        def times(period):
            return run("script", "-q", "-i", self.plain, f"--itrace=i{period}", "--ns", "-F", "time").stdout.split()

        every = times("1ns")
        self.assertGreater(len(every), 100)
        self.assertEqual(len(set(every)), len(every))
        self.assertTrue(times("1t") == every)
        self.assertEqual(times("18446744073709551615ns"), [])

    def test_one_spelling_of_json(self):
        for command in ("info", "stat", "check", "functions", "script"):
            short, long = run(command, "-i", self.plain, "--json", "-q"), run(command, "-i", self.plain, "--format", "json", "-q")
            self.assertEqual((short.returncode, short.stderr), (0, ""), command)
            self.assertEqual(short.stdout, long.stdout, command)
            schema = json.loads(short.stdout if command in ("info", "stat", "check") else short.stdout.split("\n")[0])["schema"]
            self.assertIn(f"## ptdecode-{'calls' if command == 'script' else command}-1".split("-1")[0][3:], (SOURCE / "docs/FORMAT-json.md").read_text())
            self.assertRegex(schema, r"^ptdecode-[a-z]+-1$")
        self.assertEqual(run("script", "-i", self.plain, "--call-trace", "--json").returncode, 2)


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    unittest.main(verbosity=2)
