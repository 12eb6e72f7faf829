#!/usr/bin/env python3
"""Recordings from memory: a perf.data file, parsed by the test and fed in pieces of random size, gives the flow of the file.

Environment: PTDECODE, PTDECODE_LIBRARY, PTDECODE_SOURCE, PTDECODE_CORPUS (default ../shared/corpus).
"""
import ctypes
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import ptdecode_c as ptd

SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
CORPUS = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE.parent / "shared/corpus"))
sys.path.insert(0, str(SOURCE / "tests/tables"))
from arrow_reader import Library  # noqa: E402

TABLES = Library(os.environ["PTDECODE_LIBRARY"])
API = ptd.Api(os.environ["PTDECODE_LIBRARY"])
RECORDINGS = [path for path in (CORPUS / "pt-perfdata-skylake/perf.data", CORPUS / "cs-simpleperf-etm/perf.data") if path.exists()]
AUXTRACE_INFO, AUXTRACE, OWN_FEATURES = 70, 71, (18, 24, 27)


class PerfData:
    """tools/perf/Documentation/perf.data-file-format.txt: header, attrs, records, features."""

    def __init__(self, path):
        self.data = data = pathlib.Path(path).read_bytes()
        magic, header, attr_size, attrs_at, attrs_bytes, data_at, data_bytes = struct.unpack_from("<8s6Q", data)
        assert magic == b"PERFILE2"
        flags = struct.unpack_from("<4Q", data, 72)
        self.attrs = []
        for at in range(attrs_at, attrs_at + attrs_bytes, attr_size):
            ids_at, ids_bytes = struct.unpack_from("<2Q", data, at + attr_size - 16)
            self.attrs.append((data[at:at + attr_size - 16], struct.unpack_from(f"<{ids_bytes // 8}Q", data, ids_at)))
        self.features, section = {}, data_at + data_bytes
        for bit in range(256):
            if flags[bit // 64] >> bit % 64 & 1:
                at, size = struct.unpack_from("<2Q", data, section)
                self.features[bit] = data[at:at + size]
                section += 16
        self.records, self.aux, at = [], [], data_at
        while at + 8 <= data_at + data_bytes:
            kind, _, size = struct.unpack_from("<IHH", data, at)
            if kind == AUXTRACE:
                payload, offset, _, _, tid, cpu = struct.unpack_from("<3QIii", data, at + 8)
                self.aux.append((cpu, tid if cpu < 0 else -1, offset, data[at + size:at + size + payload]))
                size += payload
            else:
                self.records.append((kind, data[at:at + size]))
            at += size


def pieces(data, rng, most):
    at = 0
    while at < len(data):
        size = rng.randint(1, most)
        yield data[at:at + size]
        at += size


def call(name, *words):
    API.call(name, *words)


class Built:
    def __init__(self):
        self.builder = ctypes.c_void_p()
        call("ptd_builder_new", ctypes.byref(self.builder))

    def attr(self, attr, ids, name=None):
        call("ptd_builder_add_attr", self.builder, attr, ctypes.c_size_t(len(attr)), (ctypes.c_uint64 * len(ids))(*ids), ctypes.c_size_t(len(ids)), name)

    def records(self, ring, data):
        call("ptd_builder_add_records", self.builder, ctypes.c_uint32(ring), data, ctypes.c_size_t(len(data)))

    def aux(self, cpu, tid, offset, data):
        call("ptd_builder_add_aux", self.builder, ctypes.c_int32(cpu), ctypes.c_int32(tid), ctypes.c_uint64(offset), data, ctypes.c_size_t(len(data)))

    def code(self, pid, address, data, from_ns, name):
        call("ptd_builder_add_code", self.builder, ctypes.c_int32(pid), ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)), ctypes.c_int64(from_ns), name)

    def pt(self, config):
        call("ptd_builder_set_pt", self.builder, ctypes.byref(config))

    def feature(self, bit, data):
        call("ptd_builder_set_feature", self.builder, ctypes.c_uint32(bit), data, ctypes.c_size_t(len(data)))

    def open(self):
        recording = ctypes.c_void_p()
        call("ptd_builder_open", self.builder, None, ctypes.byref(recording))
        assert API.lib.ptd_builder_free(self.builder) == 0
        return recording


def fed(perf, rng, most):
    """Returns a builder that received everything in pieces of random size; attrs and features first or last."""
    built = Built()
    facts = [lambda a=attr: built.attr(*a) for attr in perf.attrs]
    facts += [lambda b=bit, d=data: built.feature(b, d) for bit, data in perf.features.items() if bit not in OWN_FEATURES]
    records = [lambda p=piece: built.records(3, p) for piece in pieces(b"".join(record for _, record in perf.records), rng, most)]
    aux = []
    for cpu, tid, offset, data in perf.aux:
        for index, piece in enumerate(pieces(data, rng, most)):
            aux.append(lambda c=cpu, t=tid, o=offset if index == 0 else ptd.NEXT, p=piece: built.aux(c, t, o, p))
    groups = [facts, records, aux]
    rng.shuffle(groups)
    for step in [step for group in groups for step in group]:
        step()
    return built


def flow(recording):
    rows = []
    for item in API.items(recording, ptd.FLOW):
        context = (item.stream, item.kind, item.pid, item.tid, item.cpu, item.time_ns, item.time_first_ns, item.time_last_ns)
        if item.kind == ptd.BLOCKS:
            rows += [(*context, block.ip, block.instructions, block.flags) for block in item.u.blocks.items[:item.u.blocks.count]]
        elif item.kind == ptd.GAP:
            rows.append((*context, item.u.gap.name, item.u.gap.offset_bytes, item.u.gap.ip))
        elif item.kind == ptd.EVENT:
            rows.append((*context, item.u.event.name, item.u.event.offset_bytes))
        else:
            rows.append(context)
    return rows


def kernel_code(kcore):
    """Returns (address, bytes) of the segments of an ELF file in the kernel's half."""
    data = kcore.read_bytes()
    table, = struct.unpack_from("<Q", data, 32)
    entry, count = struct.unpack_from("<2H", data, 54)
    for at in range(table, table + entry * count, entry):
        kind, _, offset, address, _, size = struct.unpack_from("<2I4Q", data, at)
        if kind == 1 and address >> 63 and size:
            yield address, data[offset:offset + size]


class Builder(unittest.TestCase):
    @unittest.skipUnless(RECORDINGS, "the corpus is not there")
    def test_pieces_give_the_flow_of_the_file(self):
        for path in RECORDINGS:
            perf = PerfData(path)
            recording = API.open(path)
            expected = flow(recording)
            infos = [(info.cpu, info.tid, info.size_bytes, info.first_ns, info.last_ns) for info in API.streams(recording)]
            API.close(recording)
            self.assertTrue(expected)
            for seed, most in ((1, 7), (2, 4096), (3, 1 << 20)):
                with self.subTest(path.parent.name, seed=seed):
                    if most == 7 and sum(len(data) for *_, data in perf.aux) > 1 << 20:
                        continue
                    recording = fed(perf, random.Random(seed), most).open()
                    self.assertEqual(infos, [(info.cpu, info.tid, info.size_bytes, info.first_ns, info.last_ns) for info in API.streams(recording)])
                    self.assertEqual(expected, flow(recording))
                    API.text("ptd_info_json", recording)
                    API.close(recording)

    @staticmethod
    def fed_in_order(perf, aux, more=(), rings=1):
        """A builder that received everything in the file's order; each of `rings` has a part of the records."""
        built = Built()
        for attr in perf.attrs:
            built.attr(*attr)
        for bit, data in perf.features.items():
            if bit not in OWN_FEATURES:
                built.feature(bit, data)
        for ring in range(rings):
            built.records(ring, b"".join(record for _, record in perf.records[ring::rings]))
        for ring, data in more:
            built.records(ring, data)
        for words in aux:
            built.aux(*words)
        return built

    def findings(self, recording):
        count = ctypes.c_uint32()
        call("ptd_finding_count", recording, ctypes.byref(count))
        return count.value

    def places(self, recording):
        return [(info.cpu, info.tid, info.size_bytes, info.first_ns, info.last_ns) for info in API.streams(recording)]

    def texts(self, recording):
        texts = []
        for index in range(self.findings(recording)):
            finding = ptd.made(ptd.Finding)
            call("ptd_get_finding", recording, ctypes.c_uint32(index), ctypes.byref(finding))
            texts.append(finding.what.decode())
        return texts

    def test_aux_bytes_in_any_order_and_repeated_give_the_flow_of_the_file(self):
        for path in [SOURCE / "data/demo/data", *RECORDINGS]:
            perf = PerfData(path)
            recording = self.fed_in_order(perf, perf.aux).open()
            expected, none, places = flow(recording), self.findings(recording), self.places(recording)
            API.close(recording)
            rng = random.Random(9)
            buffers = {words[:2]: [] for words in perf.aux}  # in this order, which numbers the streams
            for cpu, tid, offset, data in perf.aux:
                buffers[cpu, tid] += [(cpu, tid, offset + at, data[at:at + 240], data[at:at + 160], data[at:at + 161 + rng.randrange(400)])
                                      for at in range(0, len(data), 160)]
            def given(order, column):
                return [(*piece[:3], piece[column]) for pieces in buffers.values() for piece in order(pieces)]
            for name, aux in (("reversed", given(lambda all: all[::-1], 4)), ("shuffled", given(lambda all: rng.sample(all, len(all)), 4)),
                              ("doubled", perf.aux * 2), ("overlapping", given(lambda all: all[::-1], 3)),
                              ("of odd sizes", given(lambda all: rng.sample(all, len(all)), 5)),
                              ("in another", perf.aux + [(cpu, tid, offset + len(data) // 3, data[len(data) // 3:][:101]) for cpu, tid, offset, data in perf.aux])):
                with self.subTest(path.parent.name, aux=name):
                    recording = self.fed_in_order(perf, aux).open()
                    self.assertTrue(expected == flow(recording))
                    self.assertEqual((none, places), (self.findings(recording), self.places(recording)))
                    API.close(recording)

    def test_two_versions_of_aux_bytes_are_a_gap_and_a_finding(self):
        perf = PerfData(SOURCE / "data/demo/data")
        cpu, tid, offset, data = perf.aux[0]
        middle = len(data) // 2
        other = bytes(byte ^ 0x55 for byte in data[middle:middle + 64])
        for more in ([(cpu, tid, offset + middle, other)], [(cpu, tid, offset + middle, other), (cpu, tid, offset + middle + 8, data[middle + 8:][:5000])]):
            with self.subTest(pieces=len(more)):
                recording = self.fed_in_order(perf, [*perf.aux, *more]).open()
                self.assertGreater(self.findings(recording), 0)
                self.assertEqual(["overlap" in finding or "two versions" in finding for finding in self.texts(recording)].count(True), 1)
                self.assertTrue([row for row in flow(recording) if row[1] == ptd.GAP])
                API.close(recording)

    def test_set_pt_replaces_the_record(self):
        """With the settings of the record, nothing changes. Without the ratio of the clocks, this is what findings report."""
        perf = PerfData(SOURCE / "data/demo/data")
        settings = next(struct.unpack_from("<16Q", record, 16) for number, record in perf.records if number == AUXTRACE_INFO)
        known = dict(zip(("pmu_type", "time_shift", "time_mult", "time_zero"), settings))
        found = []
        for config in (None, {**known, "tsc_ctc_ratio_n": settings[12], "tsc_ctc_ratio_d": settings[13], "max_nonturbo_ratio": settings[15]}, known):
            built = self.fed_in_order(perf, perf.aux)
            if config is not None:
                built.pt(ptd.made(ptd.PtConfig, **config))
            recording = built.open()
            found.append((self.texts(recording), flow(recording)))
            API.close(recording)
        self.assertTrue(found[0] == found[1])
        self.assertEqual(["ratio of TSC and crystal clock" in text for text in found[2][0] if text not in found[0][0]], [True])

    def test_a_ring_that_ends_inside_a_record_loses_its_end_only(self):
        perf = PerfData(SOURCE / "data/demo/data")
        def rows(rows):  # what is lost may have changed the code: the flags differ
            return [row[:10] for row in rows if row[1] == ptd.BLOCKS]
        recording = self.fed_in_order(perf, perf.aux).open()
        expected, none = rows(flow(recording)), self.findings(recording)
        API.close(recording)
        comm = next(record for kind, record in perf.records if kind == 3)
        for count, end in ((1, comm[:-1]), (1, b"\1"), (300, comm[:9])):
            with self.subTest(count=count, end=end):
                recording = self.fed_in_order(perf, perf.aux, [(1 + ring, end) for ring in range(count)]).open()
                self.assertEqual(expected, rows(flow(recording)))
                self.assertEqual(none + min(count, 100), self.findings(recording))
                API.close(recording)

    def test_a_record_in_error_is_not_added(self):
        perf = PerfData(SOURCE / "data/demo/data")
        recording = self.fed_in_order(perf, perf.aux).open()
        expected = flow(recording)
        API.close(recording)
        built = self.fed_in_order(perf, perf.aux)
        for bad in (b"\0" * 8, struct.pack("<IHH", AUXTRACE, 0, 48) + b"\xff" * 40, struct.pack("<IHH", 81, 0, 16) + b"a" * 8):
            for data in (bad, bad[:5], bad[5:]):
                code = API.lib.ptd_builder_add_records(built.builder, ctypes.c_uint32(1), data, ctypes.c_size_t(len(data)), None)
                self.assertEqual(data == bad[:5], code == 0)
        recording = built.open()
        self.assertEqual(expected, flow(recording))
        self.assertEqual(0, self.findings(recording))
        API.close(recording)

    def test_given_code_and_text_pokes_give_the_flow_of_the_kernel(self):
        """The demo's kernel: its code comes from ptd_builder_add_code instead of kcore_dir, and changes with the TEXT_POKE records."""
        demo = SOURCE / "data/demo"
        def code(rows):  # threads and times differ: without the kernel's names, context switches in the flow are not counted
            return {stream: [row[8:10] for row in rows if row[:2] == (stream, ptd.BLOCKS)] for stream in (0, 1)}
        recording = API.open(demo)
        expected = code(flow(recording))
        API.close(recording)
        built = fed(PerfData(demo / "data"), random.Random(4), 1 << 16)
        for address, data in kernel_code(demo / "kcore_dir/kcore"):
            built.code(-1, address, data, 0, b"kernel_text")
        recording = built.open()
        got = flow(recording)
        self.assertLess(10000, min(len(rows) for rows in expected.values()))
        self.assertTrue(expected == code(got))
        self.assertEqual([], [row for row in got if row[1] == ptd.GAP])
        place, symbol = ptd.made(ptd.Place, ip=expected[0][0][0], time_ns=ptd.UNKNOWN), ptd.made(ptd.Symbol)
        API.call("ptd_symbol_at", recording, ctypes.byref(place), ctypes.byref(symbol))
        self.assertEqual((b"kernel_text", b"[kernel]"), (symbol.name, symbol.module))
        API.close(recording)

    def test_what_the_library_returns_is_utf8(self):
        """Names of functions, threads, files and sources of messages that are not UTF-8: each wrong byte is U+FFFD, as in tables."""
        def text(name, *words):
            out = ctypes.c_char_p()
            self.assertEqual(0, getattr(API.lib, name)(recording, *words, ctypes.byref(out)))
            return out.value.decode()
        demo = SOURCE / "data/demo"
        built = fed(PerfData(demo / "data"), random.Random(4), 1 << 16)
        for address, data in kernel_code(demo / "kcore_dir/kcore"):
            built.code(-1, address, data, 0, b"caf\xe9")
        body = struct.pack("<2I3Q2I2Q2I", 7, 7, 0x10000, 4096, 0, 0, 0, 0, 0, 5, 2) + b"/none/\xff\0"
        built.records(9, struct.pack("<IHH", 10, 2, 8 + len(body)) + body)
        comm = struct.pack("<2I", 7, 7) + b"\xc3\xa9\xe9\0\0\0\0\0"
        built.records(9, struct.pack("<IHH", 3, 0, 8 + len(comm)) + comm)
        recording = built.open()
        self.assertEqual("\xe9\ufffd", text("ptd_comm_at", 7, ctypes.c_int64(ptd.UNKNOWN)))
        self.assertIn("/none/\ufffd", [row.path.decode() for row in API.missing(recording)])
        called = {item.u.call.function.decode() for item in API.items(recording, ptd.CALLS) if item.u.call.what == b"call"}
        self.assertIn("0xffffffff81000000:caf\ufffd", called)
        first = next(row[8] for row in flow(recording) if row[1] == ptd.BLOCKS)
        place, symbol = ptd.made(ptd.Place, ip=first, time_ns=ptd.UNKNOWN), ptd.made(ptd.Symbol)
        API.call("ptd_symbol_at", recording, ctypes.byref(place), ctypes.byref(symbol))
        self.assertEqual("caf\ufffd", symbol.name.decode())
        API.close(recording)
        with tempfile.TemporaryDirectory() as name:
            path = os.path.join(name.encode(), b"data\xff")
            with self.assertRaisesRegex(RuntimeError, "data\ufffd"):
                API.call("ptd_open", path, None, ctypes.byref(recording))
            shutil.copy(demo / "data", path)
            options = ptd.made(ptd.OpenOptions, guestmount=b"/none/\xff")
            API.call("ptd_open", path, ctypes.byref(options), ctypes.byref(recording))
            count = ctypes.c_uint32()
            self.assertEqual(0, API.lib.ptd_warning_count(recording, ctypes.byref(count)))
            self.assertIn("/none/\ufffd", "".join(text("ptd_get_warning", index) for index in range(count.value)))
            os.unlink(path)
            with self.assertRaisesRegex(Library.Failed, "data\ufffd"):  # from get_last_error() of the stream
                TABLES.rows(recording, "samples")
            API.close(recording)

    def test_rings_are_sorted_by_time(self):
        """Records of rings that are added one after the other give the same as those of one ring in order of time."""
        perf = PerfData(SOURCE / "data/demo/data")
        recording = fed(perf, random.Random(5), 1 << 16).open()
        expected = flow(recording)
        API.close(recording)
        recording = self.fed_in_order(perf, perf.aux, rings=3).open()
        self.assertEqual(expected, flow(recording))
        API.close(recording)

    # perf_event_open(2): an attr of cycles with the sample fields IP, TID, TIME, CPU and PERIOD, and its samples.
    ATTR = struct.pack("<2I4Q", 0, 128, 0, 1000, 1 | 2 | 4 | 0x80 | 0x100, 0).ljust(128, b"\0")
    SAMPLES = [{"ip": 0x401000 + 16 * n, "pid": 7, "tid": 8 + n % 2, "time_ns": 1000 * (n + 1), "cpu": n % 4, "period": 50 + n} for n in range(20)]

    TIMED = ATTR[:40] + struct.pack("<Q", 1 << 18) + ATTR[48:]  # sample_id_all

    @classmethod
    def task_record(cls, kind, body, time_ns):
        """A record of process and thread 7 with the trailer of TIMED: TID, TIME, CPU."""
        body += struct.pack("<2I2Q", 7, 7, time_ns, 0)
        return struct.pack("<IHH", kind, 0, 8 + len(body)) + body

    def test_names_end_where_other_code_replaces_their_bytes(self):
        """Random pieces of code, with and without a name, and mappings, added in any order. The second source is a table of what each byte is at
        each moment: the bytes and the name of the latest code that covers it. A name keeps its start unless the start is replaced."""
        base, size, end_ns = 0x10000, 48, 40
        for seed in range(150):
            rng = random.Random(seed)
            built = Built()
            built.attr(self.TIMED, [], b"cycles")
            steps, adds = [], []
            for number, from_ns in enumerate(rng.sample(range(1, end_ns), rng.randint(2, 12))):
                first = rng.randrange(size - 1)
                length = rng.randint(1, min(size - first, rng.choice((4, 16, size))))
                name = f"f{number}" if rng.random() < 0.7 else None
                mapped = seed % 3 == 0 and rng.random() < 0.2
                steps.append((from_ns, first, length, None if mapped else bytes([number + 1]), None if mapped else name))
                if mapped:
                    body = struct.pack("<2I3Q2I2Q2I", 7, 7, base + first, length, 0, 0, 0, 0, 0, 5, 2) + b"/none/x\0"
                    adds.append(lambda b=body, t=from_ns: built.records(0, self.task_record(10, b, t)))
                else:
                    adds.append(lambda f=first, c=bytes([number + 1]) * length, t=from_ns, n=name: built.code(7, base + f, c, t, n and n.encode()))
            adds.append(lambda: built.records(1, self.task_record(3, struct.pack("<2I", 7, 7) + b"jit\0\0\0\0\0", 0)))
            rng.shuffle(adds)
            for add in adds:
                add()
            recording = built.open()
            space = ctypes.c_uint32()
            API.call("ptd_space_of", recording, 7, ctypes.c_int64(end_ns), ctypes.byref(space))
            steps.sort(key=lambda step: step[0])
            table, started = [(None, None)] * size, set()
            for index, (from_ns, first, length, byte, name) in enumerate(steps):
                table[first:first + length] = [(byte, name)] * length
                started = {other for other in started if not first <= other[1] < first + length} | ({(name, first)} if name else set())
                until = steps[index + 1][0] if index + 1 < len(steps) else end_ns
                for time_ns in {from_ns, until - 1}:
                    for at, (byte, name) in enumerate(table):
                        self.check_place(recording, space.value, base + at, time_ns, byte, name, {base + start for of, start in started if of == name}, seed)
            API.close(recording)

    def check_place(self, recording, space, ip, time_ns, byte, name, starts, seed):
        place, symbol = ptd.made(ptd.Place, space=space, ip=ip, time_ns=time_ns), ptd.made(ptd.Symbol)
        data, got, versions = (ctypes.c_ubyte * 1)(), ctypes.c_size_t(), ctypes.c_uint32()
        code = API.lib.ptd_code_at(recording, ctypes.byref(place), data, ctypes.c_size_t(1), ctypes.byref(got), ctypes.byref(versions), None)
        self.assertEqual(byte, bytes(data)[:got.value] if code == 0 and got.value else None, (seed, ip, time_ns))
        API.lib.ptd_symbol_at(recording, ctypes.byref(place), ctypes.byref(symbol), None)
        self.assertEqual(name, symbol.name.decode() if symbol.name else None, (seed, ip, time_ns))
        if name and starts:
            self.assertIn(ip - symbol.offset_bytes, starts, (seed, ip, time_ns))

    @classmethod
    def sample_record(cls, row):
        body = struct.pack("<Q2I2Q", row["ip"], row["pid"], row["tid"], row["time_ns"], 0)[:24] + struct.pack("<2IQ", row["cpu"], 0, row["period"])
        return struct.pack("<IHH", 9, 2, 8 + len(body)) + body

    def sample_rows(self, recording, **options):
        names = ["ip", "pid", "tid", "time_ns", "cpu", "period"]
        return TABLES.rows(recording, "samples", columns=names, **options)

    def test_samples_of_a_recording_from_memory(self):
        """Their table is read after the opening, from what the recording keeps in memory; also after the builder and the handle are gone."""
        built = Built()
        built.attr(self.ATTR, [], b"cycles")
        for row in self.SAMPLES:
            built.records(row["cpu"], self.sample_record(row))
        recording = built.open()
        self.assertEqual(self.SAMPLES, self.sample_rows(recording))
        self.assertEqual(self.SAMPLES[4:9], self.sample_rows(recording, first_ns=5000, last_ns=9000))
        batches = TABLES.batches(recording, "samples", batch_rows=5, columns=["ip"])
        first = next(batches)["ip"]
        API.close(recording)
        self.assertEqual([row["ip"] for row in self.SAMPLES], first + [ip for batch in batches for ip in batch["ip"]])

    def pipe_bytes(self):
        """perf.data-file-format.txt, "PIPE-MODE DATA": the attr is a record."""
        attr = struct.pack("<IHH", 64, 0, 8 + len(self.ATTR)) + self.ATTR
        return b"PERFILE2" + struct.pack("<Q", 16) + attr + b"".join(self.sample_record(row) for row in self.SAMPLES)

    def test_samples_of_a_bundle(self):
        """perf_event_open(2): the last field of a tracepoint's sample is PERF_SAMPLE_RAW, a size and so many bytes."""
        payload = [struct.pack("<I", n) * (1 + n % 3) for n in range(len(self.SAMPLES))]
        attr = struct.pack("<2I4Q", 2, 128, 77, 1, 1 | 2 | 4 | 0x80 | 0x100 | 0x400, 0).ljust(128, b"\0")
        data = b"PERFILE2" + struct.pack("<Q", 16) + struct.pack("<IHH", 64, 0, 8 + len(attr)) + attr
        for row, raw in zip(self.SAMPLES, payload):
            body = self.sample_record(row)[8:] + struct.pack("<I", len(raw)) + raw
            body += b"\0" * (-len(body) % 8)
            data += struct.pack("<IHH", 9, 2, 8 + len(body)) + body
        names = ["ip", "pid", "tid", "time_ns", "cpu", "period", "raw"]
        want = [{**row, "raw": raw} for row, raw in zip(self.SAMPLES, payload)]
        with tempfile.TemporaryDirectory() as folder:
            paths = [f"{folder}/samples.data", f"{folder}/samples.bundle"]
            pathlib.Path(paths[0]).write_bytes(data)
            subprocess.run([os.environ["PTDECODE"], "bundle", "-q", "-i", paths[0], "-o", paths[1]], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            os.unlink(paths[0])
            recording = API.open(paths[1])
            self.assertEqual(want, [{name: row[name] for name in names} for row in TABLES.rows(recording, "samples", columns=[*names, "event"])])
            self.assertEqual(want[4:9], TABLES.rows(recording, "samples", columns=names, first_ns=5000, last_ns=9000))
            self.assertEqual(want[1::4], TABLES.rows(recording, "samples", columns=names, cpu=1))
            API.close(recording)

    def check_refused(self, recording):
        with self.assertRaises(Library.Failed) as failed:
            TABLES.stream(recording, "samples")
        self.assertEqual(110, failed.exception.args[0])
        self.assertIn("pipe", failed.exception.args[1])
        self.assertEqual([], TABLES.rows(recording, "gaps"))
        API.text("ptd_info_json", recording)  # waits for no writer
        API.close(recording)

    def test_samples_of_a_pipe_are_refused(self):
        kept = os.dup(0)
        read_end, write_end = os.pipe()
        os.write(write_end, self.pipe_bytes())
        os.close(write_end)
        os.dup2(read_end, 0)
        try:
            self.check_refused(API.open("-"))
        finally:
            os.dup2(kept, 0)
            os.close(kept)
            os.close(read_end)

    def test_samples_of_a_relative_path(self):
        """The path means the same file when the program has changed its directory."""
        here = os.getcwd()
        try:
            os.chdir(SOURCE / "data")
            recording = API.open("demo")
            os.chdir("/")
            self.assertEqual([], TABLES.rows(recording, "samples"))
            API.text("ptd_info_json", recording)
            API.close(recording)
        finally:
            os.chdir(here)


class Cancelling(unittest.TestCase):
    CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    PROGRESS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)

    class Control(ctypes.Structure):
        pass

    def calls_while_opening(self, path, most):
        """Returns the number of calls of `cancelled`, which returns nonzero at call number `most`, and the code of ptd_open()."""
        calls = 0
        def cancelled(_):
            nonlocal calls
            calls += 1
            return int(calls >= most)
        control = self.Control(size=ctypes.sizeof(self.Control), cancelled=self.CALLBACK(cancelled))
        options = (ctypes.c_uint64 * 10)(80, *[0] * 8, ctypes.addressof(control))  # ptd_open_options of version 0.1: size first, control last
        recording = ctypes.c_void_p()
        code = API.lib.ptd_open(str(path).encode(), options, ctypes.byref(recording), None)
        self.assertEqual(code == 0, bool(recording.value))
        self.assertEqual(0, API.lib.ptd_close(recording))
        return calls, code

    def test_reading_of_code_files_is_cancelled(self):
        """Work is counted in calls, not in time: a file of kernel symbols 200,000 lines longer has calls in proportion."""
        with tempfile.TemporaryDirectory() as folder:
            demo = pathlib.Path(folder) / "demo"
            shutil.copytree(SOURCE / "data/demo", demo)
            before, code = self.calls_while_opening(demo, 1 << 30)
            self.assertEqual(0, code)
            with open(demo / "kcore_dir/kallsyms", "a", encoding="utf-8") as kallsyms:
                kallsyms.writelines(f"ffffffffa{n * 16:07x} t added_{n}\n" for n in range(200000))
            calls, code = self.calls_while_opening(demo, 1 << 30)
            self.assertEqual(0, code)
            self.assertGreater(calls - before, 200000 // 8192)
            for most in (1, before, (before + calls) // 2, calls):
                self.assertEqual((most, 700), self.calls_while_opening(demo, most))
        for path in (SOURCE / "data/user/plain.bundle", SOURCE / "data/arm/threads.bundle"):
            calls, code = self.calls_while_opening(path, 1 << 30)
            self.assertGreater(calls, 8)  # the parts of the bundle
            for most in range(1, calls + 1):
                self.assertEqual((most, 700), self.calls_while_opening(path, most))


Cancelling.Control._fields_ = [("size", ctypes.c_size_t), ("user", ctypes.c_void_p), ("cancelled", Cancelling.CALLBACK), ("progress", Cancelling.PROGRESS),
                               ("cancel_flag", ctypes.c_void_p)]

if __name__ == "__main__":
    unittest.main(verbosity=2)
