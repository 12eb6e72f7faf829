#!/usr/bin/env python3
"""The C API against the command line, row by row: branches, gaps and calls, code and info of the project's and the corpus' recordings.

Environment: PTDECODE (the program), PTDECODE_LIBRARY, PTDECODE_SOURCE, PTDECODE_CORPUS (default ../shared/corpus).
"""
import collections
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import lossy_demo
import ptdecode_c as ptd

SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
CORPUS = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE.parent / "shared/corpus"))
sys.path.insert(0, str(SOURCE / "tests/tables"))
from arrow_reader import Library  # noqa: E402

API, TABLES = ptd.Api(os.environ["PTDECODE_LIBRARY"]), Library(os.environ["PTDECODE_LIBRARY"])
RECORDINGS = [SOURCE / "data" / name for name in ("user/plain.bundle", "user/pair.bundle", "user/patch.bundle", "demo", "arm/threads.bundle", "arm/changes.bundle")]
RECORDINGS += [CORPUS / name for name in ("cs-juno_r1_1/snapshot", "ete-001-ack_test/snapshot", "cs-simpleperf-etm/perf.data", "pt-perfdata-skylake/perf.data")]
TEMPORARY = tempfile.TemporaryDirectory()
RECORDINGS.append(lossy_demo.make(SOURCE / "data/demo", pathlib.Path(TEMPORARY.name) / "lossy"))


def setUpModule():
    for path in RECORDINGS:
        if not path.exists():
            print(f"skipped: {path.relative_to(path.parents[1])} is not there")


def cli(*words):
    done = subprocess.run([os.environ["PTDECODE"], *map(str, words)], capture_output=True, text=True, check=False)
    if not done.stdout:
        raise AssertionError(f"{words}: {done.stderr}")
    return done.stdout


def lines(*words):
    return [json.loads(line) for line in cli(*words).splitlines()[1:]]


def address(line, name):
    return int(line[name], 16) if name in line else 0


def unknown(time_ns):
    return None if time_ns == ptd.UNKNOWN else time_ns


def known(times):
    return {name: time_ns for name, time_ns in times.items() if time_ns != ptd.UNKNOWN}


SEEN = collections.Counter()  # number of rows compared


def tearDownModule():
    print(dict(SEEN))
    TEMPORARY.cleanup()
    for kind, least in (("branch", 10000), ("call", 1000), ("gap", 100 if CORPUS.exists() else 10)):
        assert SEEN[kind] == 0 or SEEN[kind] > least, SEEN  # 0: the test was not chosen


def of_each(test):
    """Runs a test for each recording that exists."""
    def run(self):
        for path in RECORDINGS:
            if not path.exists():
                continue
            with self.subTest(path.parent.name + "/" + path.name):
                recording = API.open(path)
                test(self, path, recording)
                API.close(recording)
    return run


class Equality(unittest.TestCase):
    @of_each
    def test_branches_and_gaps(self, path, recording):
        streams = API.streams(recording)
        # Several streams may have one key: traces of a thread that migrates, or of cores without a number.
        expected, got, times = collections.defaultdict(list), collections.defaultdict(list), collections.defaultdict(list)
        per_cpu = streams[0].cpu >= 0
        for line in lines("script", "--format", "json", "--itrace=be", "-F", "ip,addr,flags,tid,pid,cpu,time", "-i", path):
            key = line.get("cpu") if per_cpu else line["tid"]
            if line["kind"] == "branch":
                row = (line["flags"], address(line, "ip"), address(line, "to"))
            elif line["kind"] == "gap":
                row = (line["reason"], address(line, "ip"), line["offset_bytes"], line["lost_bytes"])
            else:
                continue
            expected[key].append((row, line["tid"], line.get("time_ns")))
        instructions = 0
        for item in API.items(recording, ptd.BRANCHES):
            key = item.cpu if per_cpu else item.tid
            context = (item.tid, unknown(item.time_ns))
            times[item.stream].append(item.time_ns)
            if item.kind == ptd.GAP:
                gap = item.u.gap
                got[key].append(((gap.name.decode(), gap.ip, gap.offset_bytes, gap.lost_bytes), *context))
                continue
            self.assertEqual(ptd.BRANCH_RUN, item.kind)
            for index in range(item.u.branches.count):
                branch = item.u.branches.items[index]
                instructions += branch.instructions
                got[key].append(((branch.kind.decode(), branch.start, branch.to), *context))
        self.assertEqual(sorted(expected), sorted(got))
        for key, rows in expected.items():
            self.assertEqual([row[0] for row in rows], [row[0] for row in got[key]], key)
            SEEN.update(['gap' if len(row[0]) == 4 else 'branch' for row in rows])
            # The command line lists all marks at an address before its events and gaps, even marks of a later time (see FlowCursor).
            for want, row in zip(rows, got[key]):
                if want != row:
                    self.assertTrue(len(row[0]) == 4 or row[0][0] in ("tr strt", "hw int", "int3", "tr end  async"), (want, row))
                    self.assertLessEqual(row[2] or 0, want[2])
        for sequence in times.values():
            self.assertEqual(sequence, sorted(sequence))

    @of_each
    def test_calls(self, path, recording):
        fields = "call module kind pid tid comm depth off_cpu_ns untraced_ns lost_ns self_ns instructions self_instructions cycles self_cycles start_seen end_seen estimated"
        expected = [line for line in lines("script", "--format", "json", "-i", path) if "sample" not in line]
        got = []
        for item in API.items(recording, ptd.CALLS):
            call = item.u.call
            row = {"pid": item.pid, "tid": item.tid, "comm": call.comm.decode(), "depth": call.depth}
            if item.cpu >= 0:
                row["cpu"] = item.cpu
            what, kind = call.what.decode(), call.kind.decode()
            if what == "lost":
                row.update(lost=kind, **known({"time_ns": item.time_ns}))
            else:
                row.update({name: getattr(call, name) for name in ("off_cpu_ns", "untraced_ns", "lost_ns")})
                row.update(known({name: getattr(call, name) for name in ("start_ns", "end_ns")}))
            if what == "pause":
                row.update(pause=kind, **({"kernel": True} if call.kernel else {}))
            if what == "call":
                row.update(call=call.function.decode(), module=call.module.decode(), kind=kind,
                           start_seen=bool(call.start_seen), end_seen=bool(call.end_seen), estimated=bool(call.estimated))
                row.update({name: getattr(call, name) for name in fields.split() if name not in row})
            if what != "lost" and "start_ns" not in row:  # the listing leaves out what is unknown
                self.assertEqual({row.pop(name) for name in ("off_cpu_ns", "untraced_ns", "lost_ns", "self_ns") if name in row}, {0})
            got.append(row)
        SEEN.update('call' for row in expected if 'call' in row)
        self.assertEqual(len(expected), len(got))
        for want, row in zip(expected, got):
            self.assertEqual(want, row)

    @of_each
    def test_flow_of_all_streams_is_that_of_each(self, path, recording):
        def flow(stream):
            rows = collections.defaultdict(list)
            before = None
            for item in API.items(recording, ptd.FLOW, stream):
                self.assertTrue(before is None or before <= item.time_ns)
                before = item.time_ns
                if item.kind == ptd.BLOCKS:
                    rows[item.stream] += [(block.ip, block.instructions, block.flags) for block in item.u.blocks.items[:item.u.blocks.count]]
                elif item.kind == ptd.EVENT:
                    rows[item.stream].append((item.u.event.name, item.u.event.offset_bytes))
                elif item.kind == ptd.GAP:
                    rows[item.stream].append((item.u.gap.name, item.u.gap.offset_bytes))
            return rows
        together = flow(ptd.NONE)
        for stream in range(len(API.streams(recording))):
            self.assertEqual(flow(stream).get(stream), together.get(stream), (path, stream))

    @of_each
    def test_window(self, path, recording):
        streams = [info for info in API.streams(recording) if info.first_ns >= 0 and info.last_ns > info.first_ns]
        if not streams:
            return
        first, last = streams[0].first_ns, streams[0].last_ns
        first, last = first + (last - first) // 4, last - (last - first) // 4
        whole = collections.Counter((item.stream, item.kind, item.time_ns) for item in API.items(recording, ptd.FLOW) if first <= item.time_ns <= last)
        part = collections.Counter((item.stream, item.kind, item.time_ns) for item in API.items(recording, ptd.FLOW, ptd.NONE, first, last))
        self.assertEqual(set(part), set(whole) & set(part))
        self.assertTrue(all(first <= key[2] <= last for key in part))

    def test_branches_at_the_end_of_a_time_range_have_their_targets(self):
        """The range ends with a segment, and the last branch goes to code of the next one."""
        recording = API.open(SOURCE / "data/kernel/kernel.bundle")
        stream, first_ns, last_ns = 0, 24754087697, 24800483892
        def branches(*times):
            return [(branch.start, branch.to) for item in API.items(recording, ptd.BRANCHES, stream, *times) if item.kind == ptd.BRANCH_RUN
                    and first_ns <= item.time_ns <= last_ns for branch in item.u.branches.items[:item.u.branches.count]]
        whole = branches()
        self.assertNotEqual(0, whole[-1][1])
        self.assertEqual(whole, branches(first_ns, last_ns))
        rows = TABLES.rows(recording, "branches", columns=["ip", "to"], stream=stream, first_ns=first_ns, last_ns=last_ns)
        self.assertEqual(whole, [(row.get("ip", 0), row.get("to", 0)) for row in rows])
        counted = collections.Counter()
        for row in TABLES.rows(recording, "edges", columns=["ip", "to", "count"], stream=stream, first_ns=first_ns, last_ns=last_ns):
            counted[row["ip"], row["to"]] += row["count"]
        self.assertEqual(collections.Counter(pair for pair in whole if 0 not in pair), counted)
        API.close(recording)

    @of_each
    def test_info_is_that_of_the_command_line(self, path, recording):
        self.assertEqual(json.loads(cli("info", "--json", "-i", path)), json.loads(API.text("ptd_info_json", recording)))

    @of_each
    def test_findings_and_missing_code_are_those_of_check(self, path, recording):
        checked = json.loads(cli("check", "--json", "--quiet", "-i", path))
        rows = [(row["path"], row["build_id"], row["reason"]) for row in checked["missing_images"]]
        self.assertEqual(rows, [tuple(text.decode() for text in (row.path, row.build_id, row.reason)) for row in API.missing(recording)])
        expected = [row for row in checked["findings"] if row["kind"] not in ("flow_contradicts", "times_contradict", "trace_damaged")]  # found by decoding
        got = API.findings(recording)
        self.assertEqual([(row["kind"], row["what"], int(row.get("ip", "0"), 16)) for row in expected],
                         [(row.kind.decode(), row.what.decode(), row.ip) for row in got])
        for want, row in zip(expected, got):
            if "time_ns" in want:
                self.assertEqual(want["time_ns"], [max(row.first_ns, 0), max(row.last_ns, 0)])
        SEEN.update({"finding": len(got), "missing": len(rows)})

    @of_each
    def test_losses_and_names_are_those_of_stat_and_info(self, path, recording):
        lost = ptd.made(ptd.Lost)
        self.assertEqual(0, API.lib.ptd_get_lost(recording, ctypes.byref(lost)))
        counted = json.loads(cli("stat", "--json", "--quiet", "-i", path))["lost"]
        self.assertEqual((counted["records"], counted["count"], counted["aux_truncated"], counted["aux_partial"], counted["aux_collision"]),
                         (lost.lost_records, lost.records, lost.aux_truncated, lost.aux_partial, lost.aux_collision))
        comm = ctypes.c_char_p()
        for thread in json.loads(cli("info", "--json", "-i", path))["threads"]:
            self.assertEqual(0, API.lib.ptd_comm_at(recording, thread["tid"], ctypes.c_int64(ptd.UNKNOWN), ctypes.byref(comm)))
            self.assertEqual(thread["comm"], comm.value.decode())

    def test_code_is_what_ran(self):
        """The bytes of each block are those at its address and time; the first instruction's symbol and text are those of the command
        line."""
        path = SOURCE / "data/user/plain.bundle"
        recording = API.open(path)
        places = {}
        for item in API.items(recording, ptd.FLOW):
            if item.kind != ptd.BLOCKS:
                continue
            for block in item.u.blocks.items[:item.u.blocks.count]:
                code = ctypes.string_at(block.code, block.code_bytes)
                places[block.ip] = (item.space, item.time_ns, block.mode)
                out, count, versions = (ctypes.c_uint8 * len(code))(), ctypes.c_size_t(), ctypes.c_uint32()
                place = ptd.made(ptd.Place, space=item.space, ip=block.ip, time_ns=item.time_ns)
                API.call("ptd_code_at", recording, ctypes.byref(place), out, len(code), ctypes.byref(count), ctypes.byref(versions))
                self.assertEqual((len(code), code, 1), (count.value, bytes(out), versions.value))
            if len(places) > 30:
                break
        listed = {int(line["ip"], 16): line for line in lines("script", "--format", "json", "--itrace=i1i", "-F", "ip,sym,symoff,dso,insn,disasm", "-i", path)}
        for ip, (space, time_ns, mode) in places.items():
            place = ptd.made(ptd.Place, space=space, mode=mode, ip=ip, time_ns=time_ns)
            symbol = ptd.made(ptd.Symbol)
            API.call("ptd_symbol_at", recording, ctypes.byref(place), ctypes.byref(symbol))
            line = listed[ip]
            self.assertEqual((line.get("symbol", ""), line.get("module", "")), (symbol.name.decode(), symbol.module.decode()))
            self.assertEqual(line.get("offset", 0), symbol.offset_bytes)
            text = API.text("ptd_disassemble", recording, ctypes.byref(place), 1).rstrip("\n").split("\t")
            self.assertEqual([f"{ip:016x}", line["bytes"], line["text"]], text)
        space = ctypes.c_uint32()
        pid = next(item.pid for item in API.items(recording, ptd.FLOW) if item.kind == ptd.BLOCKS)
        self.assertEqual(0, API.lib.ptd_space_of(recording, pid, ctypes.c_int64(ptd.UNKNOWN), ctypes.byref(space)))
        self.assertEqual({places[ip][0] for ip in places}, {space.value})
        API.close(recording)

    def test_the_bounds_of_an_items_time_contain_it(self):
        """Also where the clock goes past the end of its segment, as in data/kernel, in gaps, and where one of them is unknown."""
        paths = [SOURCE / "data/kernel/kernel.bundle", CORPUS / "pt-perfdata-skylake/perf.data", CORPUS / "cs-Snowball/snapshot"]
        for path in filter(pathlib.Path.exists, paths):
            recording = API.open(path)
            for kind in (ptd.FLOW, ptd.BRANCHES):
                wrong = [(item.kind, *times) for item in API.items(recording, kind) if (times := [
                    time for time in (item.time_first_ns, item.time_ns, item.time_last_ns) if time != ptd.UNKNOWN]) != sorted(times)]
                self.assertEqual(wrong[:3], [], path)
            API.close(recording)

    def test_the_frequency_of_a_snapshots_clock(self):
        """Without a frequency, times are ticks of the clock: 40 ns each at 25 MHz, and half of that at the double frequency. It is refused for other
        recordings and beyond 10^12."""
        path = CORPUS / "cs-Snowball/snapshot"
        if not path.exists():
            self.skipTest(f"{path} is absent")
        def times(hz):
            recording = API.open(path, ptd.made(ptd.OpenOptions, clock_hz=hz))
            rows = [(item.kind, tuple(unknown(time) for time in (item.time_ns, item.time_first_ns, item.time_last_ns))) for item in API.items(recording, ptd.FLOW)]
            streams = [(unknown(info.first_ns), unknown(info.last_ns)) for info in API.streams(recording)]
            API.close(recording)
            return [kind for kind, _ in rows], [time for _, row in [*rows, *enumerate(streams)] for time in row]
        kinds, ticks = times(0)
        slow, fast = times(25_000_000), times(50_000_000)
        self.assertEqual((kinds, kinds), (slow[0], fast[0]))
        self.assertGreater(len(set(ticks) - {None}), 10)
        for ns_per_tick, found in ((40, slow[1]), (20, fast[1])):  # the end of a range is rounded up
            wrong = [pair for pair in zip(ticks, found) if (pair[0] is None) != (pair[1] is None) or (pair[0] and pair[1] - ns_per_tick * pair[0] not in (0, 1))]
            self.assertEqual(wrong[:3], [])
        for refused, hz in ((SOURCE / "data/demo", 25_000_000), (path, 10**12 + 1)):
            options, recording = ptd.made(ptd.OpenOptions, clock_hz=hz), ctypes.c_void_p()
            self.assertNotEqual(0, API.lib.ptd_open(str(refused).encode(), ctypes.byref(options), ctypes.byref(recording), None))


if __name__ == "__main__":
    unittest.main(verbosity=2)
