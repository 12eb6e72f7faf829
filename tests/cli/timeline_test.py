#!/usr/bin/env python3
"""`ptdecode timeline`: the slices of --min against the calls of `script --format json`, compressed files, and the counters and instants of a trace
whose packets are written here ([SDM] "PTW Packet", "PWRE Packet", "PWRX Packet", "CBR Packet").

Environment: PTDECODE, PTDECODE_SOURCE.
"""
import collections
import gzip
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import perfetto_reader  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
KERNEL = SOURCE / "data" / "kernel" / "kernel.bundle"
SNAPSHOT = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE.parent / "shared/corpus")) / "cs-ricsec-fib/capture1"
WINDOW = "24.4600,24.4700"
WAITS = ("[off cpu]", "[flow lost]", "[not traced]")


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300)


class Timeline(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def write(self, name, *words):
        done = run("timeline", "-o", self.folder / name, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return (self.folder / name).read_bytes(), done.stderr

    def test_longer_slices_are_those_of_the_calls(self):
        words = ("-i", KERNEL, "--time", WINDOW)
        calls = [line for line in map(json.loads, run("script", "-q", *words, "--format", "json").stdout.splitlines()) if "call" in line]
        self.assertGreater(len(calls), 10000)
        for shortest in (1, 1000, 20000):
            data, said = self.write(f"{shortest}.pftrace", *words, "--min", f"{shortest}ns")
            tracks, slices, _, _, notes = perfetto_reader.read_all(data)
            long = [call for call in calls if call["end_ns"] - call["start_ns"] >= shortest]
            seen = [entry for entry in slices if entry[2] not in WAITS]
            # The idle task and unknown threads have a track for each cpu.
            tid = {track: facts["tid"] or 0 for track, facts in tracks.items()}
            self.assertEqual(collections.Counter((max(call["tid"], 0), call["call"], call["depth"], call["start_ns"], call["end_ns"]) for call in long),
                             collections.Counter((tid[track], name, depth, begin, end) for track, depth, name, begin, end in seen))
            self.assertEqual({name for _, name, _ in notes} - {"shorter calls"}, set())
            folded = sum(count for _, _, count in notes)
            self.assertLessEqual(folded, len(calls) - len(long))
            if shortest > 1:
                self.assertEqual(folded, len(calls) - len(long) - self.outermost(calls, shortest))
                self.assertIn(f"{len(slices)} slices, {len(calls) - len(long)} shorter calls in them", said)

    def test_a_size_decides_which_slices_are_left_out(self):
        words = ("-i", KERNEL, "--time", WINDOW)
        whole = perfetto_reader.read(self.write("whole.pftrace", *words)[0])[1]
        for size in (200_000, 1_000_000):
            data, said = self.write("sized.pftrace", *words, "--size", size)
            slices = perfetto_reader.read(data)[1]
            self.assertTrue(0.3 * size < len(data) < 1.3 * size, (size, len(data)))
            shortest = min(end - begin for *_, begin, end in slices)
            self.assertIn("because of --size", said)
            self.assertEqual(len(slices), sum(end - begin >= shortest for *_, begin, end in whole))
        self.assertEqual(len(perfetto_reader.read(self.write("large.pftrace", *words, "--size", "1G")[0])[1]), len(whole))

    @unittest.skipUnless(SNAPSHOT.exists(), f"no {SNAPSHOT}")
    def test_a_snapshot_has_the_times_of_its_packets(self):
        packets = run("packets", "-q", "-i", SNAPSHOT).stdout
        times = [int(value, 16) * 1000 // 24 for value in re.findall(r"(?m)^\w+  timestamp +(0x\w+)", packets)]
        self.assertGreater(len(times), 10)
        words = ("-i", SNAPSHOT, "--clock-freq", "24MHz")
        slices = perfetto_reader.read(self.write("s.pftrace", *words)[0])[1]
        begin, end = min(entry[3] for entry in slices), max(entry[4] for entry in slices)
        self.assertAlmostEqual(begin / times[0], 1, delta=2**-32)  # the conversion has a factor of 32 bits
        self.assertAlmostEqual(end - begin, times[-1] - times[0], delta=10_000)
        page = self.folder / "s.html"
        self.assertEqual(run("report", "-q", *words, "-o", page).returncode, 0)
        self.assertRegex(page.read_text(), r'"span":\{"dated":true,"first":"' + rf"{begin // 10**9}\.{begin % 10**9:09}", "the span of the page")
        without = run("timeline", "-i", SNAPSHOT, "-o", self.folder / "none")
        self.assertEqual((without.returncode, (self.folder / "none").exists()), (2, False))

    def test_a_size_with_a_pipe_as_input(self):
        """A pipe can be read once, whatever its name, and --size decodes the trace twice."""
        recording, words = SOURCE / "data" / "demo" / "data", ("--size", "20K")
        want, said = self.write("file.pftrace", "-i", recording, *words)
        self.assertIn("because of --size", said)
        for name in ("-", "/dev/stdin"):
            output = self.folder / "pipe.pftrace"
            with subprocess.Popen(["cat", recording], stdout=subprocess.PIPE) as cat:
                done = subprocess.run([PTDECODE, "timeline", "-i", name, "-o", output, *words], stdin=cat.stdout, capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, (name, done.stderr))
            self.assertIn("because of --size", done.stderr)
            self.assertEqual(output.read_bytes(), want, name)

    @staticmethod
    def outermost(calls, shortest):
        """Returns the number of short calls that are in no long one: no slice tells of them. Callers come after their callees."""
        count, told = 0, collections.defaultdict(bool)
        for call in reversed(calls):
            thread = (call["tid"], call.get("cpu") if call["tid"] <= 0 else None)
            is_long = call["end_ns"] - call["start_ns"] >= shortest
            inside = call["depth"] > 0 and told[thread, call["depth"] - 1]
            told[thread, call["depth"]] = is_long or inside
            count += not is_long and not inside
        return count

    def test_compressed(self):
        words = ("-i", KERNEL, "--time", WINDOW, "--min", "1us")
        plain, _ = self.write("a.pftrace", *words)
        packed, _ = self.write("a.pftrace.gz", *words)
        self.assertEqual(gzip.decompress(packed), plain)
        self.assertLess(len(packed), len(plain) / 3)

    def test_bpf_programs_appear_and_disappear(self):
        tracks, _, instants = perfetto_reader.read(self.write("b.pftrace", "-i", KERNEL, "--min", "1ms")[0])
        track = [track for track, facts in tracks.items() if facts["name"] == "modules and BPF programs"]
        events = sorted((time, name) for at, name, time in instants if [at] == track)
        # Sections of the timeline, as `ptdecode image` lists them.
        listed = run("image", "-q", "-i", KERNEL).stdout
        for _, name in events:
            self.assertIn(name.split()[1], listed)
        self.assertEqual([name.split()[0] for _, name in events].count("load"), 5)
        self.assertIn("unload bpf_prog_bbda6f57ad1fdc6d_lab", [name for _, name in events])

    def test_instants_are_inside_of_the_time(self):
        """The first two events of the BPF programs, in the file of the whole recording, are the only ones of a window that ends between the second and the third."""
        def events(*words):
            tracks, _, instants = perfetto_reader.read(self.write("b.pftrace", "-i", KERNEL, "--min", "1ms", *words)[0])
            track = [track for track, facts in tracks.items() if facts["name"] == "modules and BPF programs"]
            return sorted((time, name) for at, name, time in instants if [at] == track)

        whole = events()
        self.assertGreater(whole[2][0], whole[1][0])
        end = (whole[1][0] + whole[2][0]) // 2
        window = f"{end // 10**9 - 1}.0,{end // 10**9}.{end % 10**9:09}"
        self.assertEqual(events("--time", window), whole[:2])
        self.assertEqual(events("--time", WINDOW), [])

    def test_code_that_a_program_generates_and_patches(self):
        """The instants are the versions of code that `image` lists, each at its time."""
        for name in ("jit", "patch"):
            bundle = SOURCE / "data" / "user" / f"{name}.bundle"
            tracks, _, instants = perfetto_reader.read(self.write(f"{name}.pftrace", "-i", bundle)[0])
            (pid,) = {facts["pid"] for facts in tracks.values() if facts["pid"]}
            (track,) = [track for track, facts in tracks.items() if facts["name"] == f"changes of code, pid {pid}"]
            listed = re.findall(r"^ +mm\d+ (\w+)-\w+ .*\.dump  \[(\d+)\.(\d{9})\.\.", run("image", "-q", "-i", bundle).stdout, re.M)
            self.assertGreater(len(listed), 50)
            found = collections.Counter(time for at, _, time in instants if at == track)
            self.assertEqual(found, collections.Counter(int(seconds + ns) for _, seconds, ns in listed))
        loads = [text for at, text, _ in instants if at == track and text.startswith("load ")]
        self.assertEqual(loads, [])  # the program patches code of its own file

    def test_changes_of_the_kernel_within_a_time(self):
        def changes(*words):
            tracks, _, instants = perfetto_reader.read(self.write("k.pftrace", "-i", KERNEL, "--min", "1ms", *words)[0])
            return sorted((time, name) for track, name, time in instants if tracks[track]["name"] == "changes of code")
        first, last = (int(float(text) * 1e6) * 1000 for text in WINDOW.split(","))
        whole = changes()
        self.assertGreater(len(whole), 100)
        self.assertEqual(changes("--time", WINDOW), [change for change in whole if first <= change[0] <= last])

    def test_counters_and_gaps(self):
        code = b"\xff\xe0"  # 0x1000: jmp *%rax
        tsc = lambda value: b"\x19" + struct.pack("<Q", value)[:7]
        ip = lambda opcode, value: bytes([opcode | 3 << 5]) + struct.pack("<Q", value)[:6]
        cbr = lambda ratio: bytes([2, 3, ratio, 0])
        psb = b"\x02\x82" * 8
        trace = psb + tsc(1000) + cbr(20) + b"\x99\x01" + ip(0x1d, 0x1000) + b"\x02\x23"
        trace += ip(0x0d, 0x1000) + tsc(2000) + b"\x02\x32" + struct.pack("<Q", 0x1122334455667788)  # TIP, PTW
        trace += ip(0x0d, 0x1000) + tsc(3000) + cbr(35) + ip(0x0d, 0x1000)
        trace += tsc(4000) + b"\x02\x12" + struct.pack("<I", 77) + ip(0x0d, 0x1000)
        trace += tsc(5000) + b"\x02\x22" + struct.pack("<H", 6 << 12 | 1 << 8) + b"\x02\xa2" + struct.pack("<Q", 6 | 6 << 4)[:5]
        trace += tsc(6000) + ip(0x0d, 0x5000)  # no code there
        trace += psb + tsc(7000) + cbr(35) + b"\x99\x01" + ip(0x1d, 0x1000) + b"\x02\x23" + ip(0x0d, 0x1000) + tsc(8000)
        (self.folder / "trace").write_bytes(trace)
        (self.folder / "code").write_bytes(code)
        data, _ = self.write("c.pftrace", "--clock-freq", "1GHz", "--pt", self.folder / "trace", "--image", f"{self.folder / 'code'}@0x1000")
        tracks, _, instants, counters, _ = perfetto_reader.read_all(data)
        name = {track: facts["name"].split(",")[0] for track, facts in tracks.items()}
        found = collections.defaultdict(list)
        for track, value, _ in sorted(counters, key=lambda counter: counter[2]):
            found[name[track]].append(value)
        self.assertEqual(found["PTWRITE"], [0x1122334455667788, 77])
        self.assertEqual(found["frequency ratio"], [35])
        self.assertEqual(found["C-state"], [6, 0])
        self.assertEqual([text.split(",")[0] for track, text, _ in instants if name[track] == "gaps"], ["no_image"])

    def test_usage(self):
        for words in (("--min", "soon"), ("--min", "-1us"), ("--size", "some"), ("--min", "1000"), ("--slack", "10")):
            done = run("timeline", "-i", KERNEL, "-o", self.folder / "x", *words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words[0], done.stderr)
            if words[1].isdigit():
                self.assertIn(f"'{words[1]}' has no unit: give ns, us, ms or s, as in {words[1]}us", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
