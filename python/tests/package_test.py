"""The installed package, as a user has it.

usage: package_test.py SOURCE
"""
import array
import concurrent.futures
import contextlib
import copy
import doctest
import functools
import gc
import io
import json
import multiprocessing
import os
import pathlib
import pickle
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import warnings
import weakref

import duckdb
import pandas
import polars
import pyarrow

import ptdecode

SOURCE = pathlib.Path(sys.argv[1])
DEMO = SOURCE / "data" / "demo" / "data"
KERNEL = SOURCE / "data" / "kernel" / "kernel.bundle"
os.environ["MPLBACKEND"] = "Agg"
WORK = tempfile.TemporaryDirectory()
USER = SOURCE / "data" / "user" / "plain.bundle"


def command(*words):
    """Output of the command line that the package has."""
    return subprocess.run([sys.executable, "-m", "ptdecode", *map(str, words)], capture_output=True, text=True, check=True).stdout


def in_a_thread(work):
    """Returns what `work` returns on another thread, or raises what it raises."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@functools.cache
def emulated():
    """A recording of this machine, of a program that ends after its last sync point."""
    path = os.path.join(WORK.name, "emulated.data")
    ptdecode.record_emulated(["/bin/echo", "once"], path).close()
    return path


class Package(unittest.TestCase):
    def setUp(self):
        self.recording = ptdecode.open(DEMO)

    def test_programs_on_path(self):
        self.assertIn(ptdecode.__version__, command("--version"))
        script = subprocess.run(["ptdecode", "--version"], capture_output=True, text=True, check=True)
        self.assertEqual(script.stdout, command("--version"))
        self.assertTrue((pathlib.Path(ptdecode.__file__).parent / "py.typed").exists())

    def test_streams_and_info(self):
        self.assertEqual(sorted(stream.cpu for stream in self.recording.streams), [0, 1])
        self.assertEqual({stream.protocol for stream in self.recording.streams}, {"intel_pt"})
        with ptdecode.open(KERNEL) as kernel:
            self.assertTrue(all(stream.first_ns < (stream.last_ns or sys.maxsize) for stream in kernel.streams))
        info = self.recording.info()
        self.assertEqual(info["schema"], "ptdecode-info-1")
        self.assertLessEqual({thread["tid"] for thread in info["threads"] if thread["tid"] >= 0}, {row.tid for row in self.recording.threads})

    def test_all_readers_agree(self):
        """pyarrow, polars, pandas, duckdb and the package's own rows."""
        for name in ("branches", "calls", "functions", "gaps", "sections", "versions"):
            table = self.recording.table(name)
            rows = [tuple(row) for row in table]
            arrow = table.to_arrow()
            self.assertEqual(arrow.column_names, table.columns)
            self.assertEqual([tuple(row.values()) for row in arrow.to_pylist()], rows, name)
            self.assertEqual(table.to_polars().rows(), rows, name)
            for libraries in ({}, {"pyarrow": None}):
                with unittest.mock.patch.dict(sys.modules, libraries):
                    frame = table.to_pandas()
                self.assertEqual([tuple(None if value is pandas.NA or value != value else value for value in row) for row in frame.itertuples(index=False, name=None)], rows, name)
            stream = pyarrow.RecordBatchReader.from_stream(table)
            self.assertEqual(duckdb.sql("select count(*) from stream").fetchall()[0][0], len(rows), name)
        arrow.validate(full=True)

    def test_equal_to_the_command_line(self):
        lines = [json.loads(line) for line in command("functions", "-i", DEMO, "--quiet", "--format", "json", "--limit", "0").splitlines()[1:]]
        theirs = [(line["function"], line["calls"], line["self_ns"]) for line in lines]
        self.assertEqual([(row.function, row.calls, row.self_ns) for row in self.recording.functions()], theirs)

    @unittest.skipUnless(os.path.exists(os.environ.get("PTDECODE_MIX_GUESTS", "")), "the tests of guests are not built")
    def test_code_of_guests(self):
        """A host's recording whose guest is the demonstration. Each option has the guest's code; the command line is the second source."""
        with tempfile.TemporaryDirectory() as name:
            work = pathlib.Path(name)
            subprocess.run([os.environ["PTDECODE_MIX_GUESTS"], work / "mixed", DEMO.parent, "--every=3", "--bytes=1500"], check=True, capture_output=True)
            host, copy = work / "mixed" / "host", work / "mount" / "1000" / "proc"
            shutil.copytree(DEMO.parent / "kcore_dir", copy)

            def executed(**options):
                with ptdecode.open(host, **options) as recording:
                    rows = recording.blocks(columns=["tid", "instructions", "module"])
                    return sum(row.instructions for row in rows if row.tid >= 2**22 and row.module.startswith("[guest."))

            options = {"guestmount": work / "mount", "guestkallsyms": copy / "kallsyms"}
            for option, path in options.items():
                listed = command("script", "-q", "-i", host, f"--{option}", path, "--itrace=i1i", "-F", "ip,dso")
                theirs = listed.count("([guest.")
                self.assertGreater(theirs, 4000)
                self.assertEqual(executed(**{option: path}), theirs)
            self.assertEqual(executed(), 0)
            with ptdecode.open(host, guestmount=work / "absent") as recording:
                self.assertIn("absent is not a folder", "".join(recording.warnings))

    def test_times(self):
        rows = [row.time_ns for row in self.recording.branches() if row.time_ns is not None]
        begin = min(stream.first_ns for stream in self.recording.streams if stream.first_ns is not None)
        end = max(stream.last_ns for stream in self.recording.streams if stream.last_ns is not None)
        first, last = begin + (end - begin) // 5, begin + (end - begin) * 2 // 5
        expected = sorted(time for time in rows if first <= time <= last)
        self.assertTrue(expected)
        text = f"{first // 10**9}.{first % 10**9:09},{last // 10**9}.{last % 10**9:09}"
        for window in ((first, last), slice(first, last), "20%-40%", text):
            found = sorted(row.time_ns for row in self.recording.branches(time=window))
            self.assertLessEqual(abs(len(found) - len(expected)), 2 if window == "20%-40%" else 0, window)
        with self.assertRaises(ValueError):
            self.recording.branches(time="now")
        with self.assertRaisesRegex(ValueError, "^time: .* two int of nanoseconds; a str such as '1.5,1.6' is in seconds$"):
            self.recording.branches(time=(first / 1e9, last / 1e9))
        for window in ("50%-20%", "2,1", (2, 1), slice(2, 1)):
            with self.assertRaisesRegex(ValueError, "^time: .* ends before it starts$"):
                self.recording.branches(time=window)
        for window, same in ((slice(first, None), (first, 0)), (slice(None, last), (0, last)), ((first, first), slice(first, first))):
            self.assertEqual(*([row.time_ns for row in self.recording.branches(time=each)] for each in (window, same)))

    def test_the_frequency_of_a_snapshots_clock(self):
        with self.assertRaises(ptdecode.Error) as failed:
            ptdecode.open(DEMO, clock_hz=10**9)
        self.assertIn("frequency", str(failed.exception))
        snapshot = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE / ".." / "shared" / "corpus")) / "cs-Snowball" / "snapshot"
        if not snapshot.exists():
            self.skipTest(f"{snapshot} is absent")
        for hz in (0, 50_000_000):
            with ptdecode.open(snapshot, clock_hz=hz) as recording:
                listed = [json.loads(line) for line in command("functions", "-q", "-i", snapshot, "--format", "json", *(["--clock-freq", hz] if hz else [])).splitlines()]
                self.assertEqual(sum(row.self_ns or 0 for row in recording.functions()), sum(row.get("self_ns", 0) for row in listed[1:]))
                self.assertEqual(any(row.time_ns is not None for row in recording.branches()), hz != 0)

    def test_code_of_a_snapshot(self):
        """The dumps of a snapshot, given as options of a copy without them."""
        snapshot = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE / ".." / "shared" / "corpus")) / "cs-Snowball" / "snapshot"
        if not snapshot.exists():
            self.skipTest(f"{snapshot} is absent")
        with tempfile.TemporaryDirectory() as name:
            copy, images = pathlib.Path(name) / "snapshot", set()
            shutil.copytree(snapshot, copy)
            for device in copy.glob("*.ini"):
                text, section = device.read_text(), re.compile(r"^\[dump\d*\]\n([^\[]*)", re.M)
                for dump in (dict(re.findall(r"^(\w+)=(\S+)", body, re.M)) for body in section.findall(text)):
                    piece = "".join(f",{word}={dump[key]}" for word, key in (("off", "offset"), ("size", "length")) if key in dump)
                    images.add(f"{snapshot / dump['file']}{piece}@{dump['address']}")
                device.write_text(section.sub("", text))
            counted = []
            for path, given in ((snapshot, None), (copy, sorted(images)), (copy, None)):
                with ptdecode.open(path, images=given) as recording:
                    counted.append((sum(row.instructions for row in recording.blocks()), recording.flame().text.count("<rect")))
            self.assertEqual(counted[0], counted[1])
            self.assertGreater(counted[0][0], counted[2][0])
            with self.assertRaisesRegex(ptdecode.Error, "neither"):
                ptdecode.open(copy, images="@1000")

    def test_a_trace_of_windows(self):
        seed = (SOURCE / "tests" / "fuzz" / "corpus" / "windows" / "pe64").read_bytes()
        trace, listed = struct.unpack_from("<II", seed)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for file, content in (("trace", seed[8:8 + trace]), ("list", seed[8 + trace:8 + trace + listed]), ("m.dll", seed[8 + trace + listed:])):
                (folder / file).write_bytes(content)
            with ptdecode.open(folder / "trace", modules=folder / "list") as recording:
                self.assertEqual([stream.tid for stream in recording.streams], [8, 12])
                self.assertEqual({row.to_symbol for row in recording.branches()}, {"f"})
                self.assertFalse(recording.check())
                self.assertFalse(list(recording.samples()))
                self.assertIn("<svg", recording.flame().text)
            (folder / "m.dll").rename(folder / "other.dll")
            with ptdecode.open(folder / "trace", modules=folder / "list") as recording:
                self.assertIn("C:/m.dll was not found", recording.check()[0].what)
            with ptdecode.open(folder / "trace", modules=folder / "list", symfs=folder) as recording:
                self.assertIn("C:/m.dll was not found", recording.check()[0].what)
            with self.assertRaises(ptdecode.Error):
                ptdecode.open(folder / "trace")

    def test_rows_can_be_pickled(self):
        for name in ("functions", "calls", "sections"):
            rows = list(self.recording.table(name))
            again = pickle.loads(pickle.dumps(rows))
            self.assertEqual(again, rows)
            self.assertEqual(again[0]._asdict(), rows[0]._asdict())
            self.assertIs(type(again[0]), type(rows[0]))

    def test_wrong_arguments_are_named(self):
        table = self.recording.table
        for error, name, options in ((ValueError, "name", {"name": "calls\0x"}), (ValueError, "columns", {"columns": ["pid\0x"]}),
                                     (TypeError, "columns", {"columns": "pid"}), (TypeError, "columns", {"columns": [1]}),
                                     (TypeError, "func", {"func": 3}), (TypeError, "func", {"func": [3]}), (TypeError, "columns", {"columns": 3}),
                                     (ValueError, "func", {"func": "f\0"}), (ValueError, "stream", {"stream": -1}), (ValueError, "stream", {"stream": 2**70}),
                                     (TypeError, "stream", {"stream": "0"}), (ValueError, "cpu", {"cpu": -1}), (TypeError, "tid", {"tid": 1.5}),
                                     (ValueError, "pid", {"pid": 2**31}), (ValueError, "threads", {"threads": -1}), (ValueError, "batch_rows", {"batch_rows": -1}),
                                     (ValueError, "time", {"time": (1,)}), (ValueError, "time", {"time": 1.5}), (ValueError, "time", {"time": ("a", "b")}),
                                     (ValueError, "time", {"time": (0, 2**64)}), (ValueError, "time", {"time": slice("a", None)}), (ValueError, "time", {"time": (1.0, 2)}),
                                     (ValueError, "time", {"time": slice(1, 2.5)}), (ValueError, "time", {"time": slice(1, 9, 2)}), (ValueError, "time", {"time": ("1", "2")}), (ValueError, "time", {"time": ()}),
                                     (ValueError, "func", {"func": []}), (ValueError, "func", {"func": iter(())}), (ValueError, "columns", {"columns": []}),
                                     (ValueError, "columns", {"columns": ()}), (ValueError, "time", {"time": (2, 1)}), (ValueError, "time", {"time": slice(2, 1)}),
                                     (ValueError, "time", {"time": "2,1"}), (ValueError, "time", {"time": "50%-20%"})):
            with self.subTest(**options), self.assertRaisesRegex(error, f"^{name}: "):
                table(options.pop("name", "calls"), **options)

    def test_numbers_out_of_range_name_their_argument(self):
        """Each number of each method, one below and one above its range, and what is no number. The bounds themselves are accepted."""
        recording, builder = self.recording, ptdecode.Builder()
        pt = {"pmu_type": 8, "time_shift": 0, "time_mult": 1, "time_zero": 0, "max_nonturbo_ratio": 0}
        u64, u32, i32, time = (0, 2**64 - 1), (0, 2**32 - 1), (0, 2**31 - 1), (-2**63, 2**63 - 1)
        cases = [("ip", u64, lambda value: recording.versions(value)), ("slack_ns", u64, lambda value: ptdecode.open(DEMO, slack_ns=value)),
                 ("size_bytes", (0, 2**30), lambda value: recording.code_at(0, 0, size_bytes=value)),
                 ("instructions", u32, lambda value: recording.disassemble(0, 0, instructions=value)),
                 ("ids", u64, lambda value: builder.add_attr(bytes(128), ids=[1, value])), ("ring", u32, lambda value: builder.add_records(value, b"")),
                 ("cpu", i32, lambda value: builder.add_aux(b"", cpu=value)), ("tid", i32, lambda value: builder.add_aux(b"", tid=value)),
                 ("offset_bytes", u64, lambda value: builder.add_aux(b"", cpu=0, offset_bytes=value)),
                 ("address", u64, lambda value: builder.add_code(value, b"")), ("pid", i32, lambda value: builder.add_code(0, b"", pid=value)),
                 ("from_ns", time, lambda value: builder.add_code(0, b"", from_ns=value)), ("feature", u32, lambda value: builder.set_feature(value, b"")),
                 ("tsc_ctc_ratio numerator", u32, lambda value: builder.set_pt(**pt, tsc_ctc_ratio=(value, 1))),
                 ("tsc_ctc_ratio denominator", u32, lambda value: builder.set_pt(**pt, tsc_ctc_ratio=(1, value)))]
        for method in (recording.code_at, recording.disassemble, recording.symbol_at):
            cases += [("ip", u64, lambda value, method=method: method(value, 0)), ("time_ns", time, lambda value, method=method: method(0, value)),
                      ("pid", i32, lambda value, method=method: method(0, 0, pid=value)), ("space", u32, lambda value, method=method: method(0, 0, space=value))]
        cases += [(name, (0, 2**{"time_shift": 16, "time_zero": 64}.get(name, 32) - 1), lambda value, name=name: builder.set_pt(**{**pt, name: value}))
                  for name in pt]
        for name, (least, most), call in cases:
            with self.subTest(name=name, most=most):
                for wrong in (least - 1, most + 1, 2**70, -2**70):
                    with self.assertRaisesRegex(ValueError, f"^{name}: {wrong} is not in {least} to {most}$"):
                        call(wrong)
                for wrong in ("1", 1.5):
                    with self.assertRaisesRegex(TypeError, f"^{name}: an integer is needed"):
                        call(wrong)
                for right in (least, most):
                    with contextlib.suppress(ptdecode.Error):  # the library may have nothing there
                        call(right)
        with self.assertRaisesRegex(ValueError, "^tsc_ctc_ratio: "):
            builder.set_pt(**pt, tsc_ctc_ratio=(1,))
        self.assertEqual(recording.code_at(2**63, 0).bytes, b"")

    def test_percentages_are_those_of_the_command_line(self):
        """Where nothing in the trace says when a stream ends, the last records do."""
        for path in (DEMO, KERNEL, SOURCE / "data" / "arm" / "threads.bundle", emulated()):
            with ptdecode.open(path) as recording:
                found = 0
                for window in ("0%-10%", "90%-100%", "40%,60%")[:2 if path == KERNEL else 3]:
                    lines = command("functions", "--no-inline", "-i", path, "--quiet", "--format", "json", "--limit", "0", "--time", window).splitlines()[1:]
                    theirs = [(line["function"], line["calls"], line["self_ns"]) for line in map(json.loads, lines)]
                    self.assertEqual([(row.function, row.calls, row.self_ns) for row in recording.functions(time=window)], theirs, (path, window))
                    found += len(theirs)
                self.assertGreater(found, 2, path)
                for wrong in ("20%-10%", "0%-101%", "1.2.3%-4%"):
                    with self.assertRaises(ValueError):
                        recording.functions(time=wrong)

    def test_code_is_that_of_the_moment(self):
        versions = [row for row in self.recording.versions() if row.bytes and row.certain_first_ns and row.certain_last_ns]
        self.assertTrue(versions)
        for row in versions:
            code = self.recording.code_at(row.ip, row.certain_first_ns, size_bytes=row.size_bytes)
            self.assertEqual((code.bytes, code.versions), (row.bytes, 1))
        self.assertEqual([row.version for row in self.recording.versions(versions[0].ip)][0], 0)
        block = next(iter(self.recording.blocks(columns=["ip", "symbol", "bytes", "instructions", "time_ns"])))
        text = self.recording.disassemble(block.ip, block.time_ns, instructions=block.instructions)
        self.assertEqual(b"".join(bytes.fromhex(line.split("\t")[1]) for line in text.splitlines()), block.bytes)
        self.assertEqual(self.recording.symbol_at(block.ip, block.time_ns).name, block.symbol or "")
        self.assertEqual(len(self.recording.code_at(block.ip, None, size_bytes=4).bytes), 4)
        self.assertEqual(self.recording.symbol_at(block.ip, None), self.recording.symbol_at(block.ip, block.time_ns))

    def test_errors_have_codes(self):
        for code, name, word, call in ((301, "not_found", "/nonexistent", lambda: ptdecode.open("/nonexistent")),
                                       (104, "no_such_stream", "99", lambda: self.recording.blocks(stream=99)),
                                       (100, "invalid_argument", "nonsense", lambda: self.recording.table("nonsense")),
                                       (None, None, " ", ptdecode.Builder().open)):
            with self.assertRaises(ptdecode.Error) as failed:
                call()
            if code is not None:
                self.assertEqual((failed.exception.code, failed.exception.name), (code, name))
            self.assertIn(word, str(failed.exception))  # a sentence, not the name of the code
        self.recording.close()
        with self.assertRaises(ptdecode.Error):
            self.recording.blocks()

    def test_errors_come_back_from_other_processes(self):
        """multiprocessing waits forever for a result that it cannot unpickle."""
        with multiprocessing.get_context("fork").Pool(1) as pool:
            for path in ("/nonexistent", "/"):
                with self.assertRaises(ptdecode.Error) as here:
                    ptdecode.open(path)
                with self.assertRaises(ptdecode.Error) as there:
                    pool.apply_async(ptdecode.open, (path,)).get(timeout=60)
                for one, other in ((here.exception, there.exception), (here.exception, copy.copy(here.exception))):
                    self.assertEqual((one.code, one.name, str(one)), (other.code, other.name, str(other)))

    def test_a_path_with_a_null_byte_names_no_other_file(self):
        with tempfile.TemporaryDirectory() as folder:
            shadowed = os.path.join(folder, "recording")
            os.symlink(DEMO, shadowed)
            for call in (lambda: ptdecode.open(shadowed + "\0.data"), lambda: ptdecode.open(DEMO, symfs=folder + "\0x"),
                         lambda: ptdecode.open(DEMO, stashes=[folder + "\0x"]), lambda: ptdecode.open(DEMO, build_id_cache=folder + "\0x")):
                with self.assertRaises(ValueError):
                    call()

    def test_paths_are_those_of_the_operating_system(self):
        """A str with surrogates, bytes, and a PathLike of either, also where the name is not UTF-8."""
        class Named:
            def __init__(self, path):
                self.path = path

            def __fspath__(self):
                return self.path

        with tempfile.TemporaryDirectory() as folder:
            raw = os.fsencode(folder) + b"/caf\xe9"
            os.mkdir(raw)
            shutil.copy(DEMO, raw + b"/data")
            for path in (raw, os.fsdecode(raw), Named(raw), Named(os.fsdecode(raw)), pathlib.Path(os.fsdecode(raw))):
                with self.subTest(path=path):
                    lists = dict.fromkeys(("symfs", "debug_dirs", "stashes", "kcore_after"), path)
                    singles = dict.fromkeys(("build_id_cache", "guestmount", "guestkallsyms", "guestmodules", "guestvmlinux"), path)
                    with ptdecode.open(path, **lists, **singles, running_kernel=b"/") as recording:
                        self.assertTrue(any("caf\ufffd" in warning for warning in recording.warnings))
                        self.assertEqual(os.fsencode(recording.path), raw)
                        self.assertIn("caf\ufffd", repr(recording))
                        recording.report().save(raw + b"/report.html")
                    with ptdecode.open(path, **lists) as recording:
                        self.assertIn("<svg", recording.flame().text)
                    for wrong in ({"modules": path}, {"images": path}, {"images": [path]}):
                        with self.assertRaises(ptdecode.Error):
                            ptdecode.open(DEMO, **wrong)
            with self.assertRaisesRegex(ptdecode.Error, "caf\ufffd"):
                ptdecode.open(raw + b"/missing")
        for wrong in (1, None, ["data"]):
            with self.assertRaisesRegex(TypeError, "os.PathLike"):
                ptdecode.open(wrong)
        with self.assertRaisesRegex(ValueError, "^func: .* has a surrogate"):
            self.recording.calls(func=os.fsdecode(b"\xff"))

    def test_names_that_are_not_utf8(self):
        """Of a program, its thread and the recording: each wrong byte is U+FFFD, in symbol_at() as in tables."""
        with tempfile.TemporaryDirectory() as folder:
            program = os.fsencode(folder) + b"/caf\xe9"
            shutil.copy(shutil.which("echo"), program)
            with ptdecode.record_emulated([program, b"\xff"], program + b".data") as recording:
                row = next(row for row in recording.blocks(columns=["ip", "pid", "symbol", "module", "time_ns"]) if row.module == "caf\ufffd" and row.symbol)
                self.assertEqual(recording.symbol_at(row.ip, row.time_ns, pid=row.pid).module, "caf\ufffd")
                self.assertEqual({thread.comm for thread in recording.threads}, {"caf\ufffd"})
                self.assertIn("caf\ufffd", recording.report().text)

    def test_a_forked_child_can_drop_what_it_inherits(self):
        """Its parent's threads do not exist there: reading a table on says so, and freeing it waits for none."""
        rows = iter(self.recording.calls(batch_rows=10, threads=4))
        next(rows)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                sum(1 for _ in rows)
            except ptdecode.Error as error:
                del rows
                os._exit(0 if (error.name, "forked" in str(error)) == ("resources", True) else 1)
            os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertGreater(sum(1 for _ in rows), 100)

    def test_the_builder_takes_bytes_only(self):
        """bytes(16) is 16 zeros: a length in place of code would be code that nobody ran."""
        builder = ptdecode.Builder()
        for wrong in (16, 2**31, "text", [1, 2], None):
            for call in (lambda: builder.add_attr(wrong), lambda: builder.add_records(0, wrong), lambda: builder.add_aux(wrong, cpu=0),
                         lambda: builder.add_code(0x1000, wrong, pid=5), lambda: builder.set_feature(9, wrong)):
                with self.assertRaises(TypeError):
                    call()
        for right in (b"\x90", bytearray(b"\x90"), memoryview(b"\x90\x90")[::2], array.array("I", [0x90909090])):
            builder.add_code(0x1000, right, pid=5)

    def test_names_of_given_code_end_with_the_code(self):
        """Code of the kernel, and code that replaces it: with another name in part, without a name in its middle, and all of it."""
        start, codes = 0xffffffff81000000, [(0, 64, 10, "first"), (48, 32, 20, "second"), (8, 5, 30, ""), (0, 4, 40, "third")]
        expected = {10: ["first"] * 4 + [None], 20: ["first"] * 3 + ["second"] * 2, 30: ["first", None, "first", "second", "second"],
                    40: ["third", None, "first", "second", "second"]}
        for order in (codes, codes[::-1], codes[2:] + codes[:2]):
            builder = ptdecode.Builder()
            builder.add_attr(bytes(4) + (128).to_bytes(4, "little") + bytes(120))
            for at, size, from_ns, name in order:
                builder.add_code(start + at, b"\x90" * size, from_ns=from_ns, name=name)
            with builder.open() as recording:
                for time_ns, names in expected.items():
                    symbols = [recording.symbol_at(start + at, time_ns) for at in (0, 8, 16, 48, 79)]
                    self.assertEqual(names, [symbol.name or None for symbol in symbols], (order, time_ns))
                self.assertEqual(recording.symbol_at(start + 16, 39).offset_bytes, 16)

    def test_rows_outlive_the_recording(self):
        rows = iter(self.recording.calls(batch_rows=10))
        next(rows)
        self.recording.close()
        self.assertEqual(len([next(rows) for _ in range(100)]), 100)

    def test_a_closed_recording_says_so(self):
        recording = ptdecode.open(USER)
        recording.close()
        recording.close()
        for use in (recording.info, recording.calls, recording.check, recording.flame, lambda: recording.streams, lambda: recording.warnings, lambda: recording.code_at(0, 0)):
            with self.assertRaisesRegex(ptdecode.Error, "^the recording is closed$") as caught:
                use()
            self.assertEqual(caught.exception.name, "invalid_handle")
        self.assertEqual(repr(recording), f"<ptdecode.Recording {USER}, closed>")

    def test_a_replaced_file_says_so(self):
        """What an open recording read stays what it was; what would read the path again is an error."""
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name) / "run.data"
            shutil.copy(DEMO, path)
            with ptdecode.open(path) as recording:
                calls, here = len(list(recording.calls())), os.getcwd()
                os.chdir(name)
                self.assertIn("<svg", recording.flame().text)
                os.chdir(here)
                shutil.copy(USER, path.with_name("new"))
                path.with_name("new").rename(path)
                self.assertEqual(len(list(recording.calls())), calls)
                for use in (recording.info, recording.flame, lambda: list(recording.samples()), recording.samples().to_arrow):
                    with self.assertRaisesRegex(ptdecode.Error, "run.data was replaced or changed since it was opened") as caught:
                        use()
                    self.assertEqual(caught.exception.name, "changed")
                path.unlink()
                for read in (list, ptdecode.Table.to_arrow, ptdecode.Table.to_polars):
                    with self.assertRaises(ptdecode.Error) as caught:
                        read(recording.samples())
                    self.assertEqual(caught.exception.name, "not_found")

    def test_a_cut_file_says_so(self):
        with tempfile.TemporaryDirectory() as name:
            for read in (list, ptdecode.Table.to_arrow, ptdecode.Table.to_pandas):
                path = pathlib.Path(name) / "cut.data"
                shutil.copy(DEMO, path)
                with ptdecode.open(path) as recording:
                    os.truncate(path, path.stat().st_size // 2)
                    with self.assertRaisesRegex(ptdecode.Error, "became shorter") as caught:
                        read(recording.branches())
                    self.assertEqual(caught.exception.name, "changed")

    def test_a_column_that_is_named_twice(self):
        with self.assertRaisesRegex(ValueError, "columns: a name occurs twice"):
            self.recording.branches(columns=["ip", "tid", "ip"])

    def test_a_flame_graph_has_the_options_of_open(self):
        """The kernel's code is only in a copy that an option of open() names."""
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name) / "data"
            shutil.copy(DEMO, path)
            boxes = []
            for options in ({}, {"kcore_after": DEMO.parent / "kcore_dir"}):
                with ptdecode.open(path, **options) as recording:
                    boxes.append(recording.flame().text.count("<title>"))
            self.assertGreater(boxes[1], 3 * boxes[0])

    def test_names_without_rows_warn(self):
        for read in (list, ptdecode.Table.to_columns, ptdecode.Table.to_arrow, ptdecode.Table.to_pandas, ptdecode.Table.to_polars):
            for table in (self.recording.calls, self.recording.functions):
                with self.subTest(read=read, table=table):
                    with self.assertWarnsRegex(UserWarning, "func='typo'") as caught:
                        self.assertEqual(len(read(table(func="typo", columns=["module"]))), read is ptdecode.Table.to_columns)
                    self.assertEqual(caught.filename, __file__)
        called = max(self.recording.functions(), key=lambda row: row.calls).function
        tid = self.recording.threads[0].tid
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertTrue(list(self.recording.functions(func=["typo", called])))
            self.assertFalse(list(self.recording.calls(time=(1, 2))))
            self.assertTrue(len(pyarrow.table(self.recording.functions(func=called))))
        with self.assertWarnsRegex(UserWarning, "func='typo'; functions.. without func") as caught:
            self.assertFalse(len(pyarrow.table(self.recording.calls(func="typo"))))
        self.assertEqual(caught.filename, __file__)
        for read in (list, ptdecode.Table.to_arrow, pyarrow.table):
            with self.assertWarnsRegex(UserWarning, "with the given time, tid; functions.. with the same time, tid and without func") as caught:
                self.assertFalse(len(read(self.recording.calls(func=called, time=(1, 2), tid=tid))))
            self.assertEqual(len(caught.warnings), 1)
        with warnings.catch_warnings(), self.assertRaisesRegex(Exception, "func='typo'"):
            warnings.simplefilter("error")
            pyarrow.table(self.recording.calls(func="typo"))

    def test_a_thread_that_is_not_there_warns(self):
        tid = self.recording.threads[0].tid
        with self.assertWarnsRegex(UserWarning, "blocks: the recording names no pid 77777 and no tid 77778; the table threads lists all") as caught:
            self.assertFalse(list(self.recording.blocks(pid=77777, tid=77778)))
        self.assertEqual(caught.filename, __file__)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertFalse(list(self.recording.blocks(time=(1, 2), tid=tid)))
        pids = {row.pid: row.tid for row in self.recording.threads if row.pid is not None}
        (pid, _), (_, tid) = list(pids.items())[-2:]
        with self.assertWarnsRegex(UserWarning, f"names no thread that has both pid {pid} and tid {tid}; the table threads lists all"):
            self.assertFalse(list(self.recording.blocks(pid=pid, tid=tid)))

    def test_threads_without_a_name_are_there(self):
        """Every thread that has rows is in the table threads: the idle task too, and those whose COMM record is missing."""
        builder = ptdecode.Builder()
        builder.add_attr(bytes(4) + (128).to_bytes(4, "little") + bytes(16) + (1 << 1 | 1 << 2 | 1 << 7).to_bytes(8, "little") + bytes(8) + (1 << 18).to_bytes(8, "little") + bytes(80))
        for pid, tid, time_ns in ((8, 9, 5), (0, 0, 6)):  # PERF_RECORD_SWITCH_CPU_WIDE, in: pid and tid of the trailer run on cpu 0
            builder.add_records(0, struct.pack("<IHH2I2IQ2I", 15, 0, 40, 0, 0, pid, tid, time_ns, 0, 0))
        for recording in (builder.open(), self.recording):
            with self.subTest(recording=recording):
                names = {(row.pid, row.tid): row.comm for row in recording.threads}
                if recording is not self.recording:
                    self.assertEqual(names, {(8, 9): "", (0, 0): "swapper"})
                rows = {(row.pid, row.tid) for row in recording.calls() if row.tid is not None}
                self.assertLessEqual(rows, set(names))
                for tid in {tid for _, tid in names}:
                    with self.assertWarnsRegex(UserWarning, "no row is of func='typo' with the given tid"):
                        self.assertFalse(list(recording.calls(tid=tid, func="typo")))
                    with warnings.catch_warnings():
                        warnings.simplefilter("error")
                        self.assertFalse(list(recording.calls(tid=tid, time=(1, 2))))

    def test_pictures(self):
        with ptdecode.open(USER) as recording:
            flame = recording.flame()
            self.assertIn("<svg", flame._repr_svg_())
            self.assertIn("<table", recording.report()._repr_html_())
            self.assertIn("<th>symbol</th>", recording.gaps()._repr_html_())

    def test_progress(self):
        for where in (lambda work: work(), in_a_thread):
            with self.subTest(where=where), ptdecode.open(KERNEL) as recording:
                seen = []
                where(lambda: recording.functions(progress=lambda done, total: seen.append((done, total))).to_columns())  # noqa: B023
                self.assertTrue(seen)
                self.assertTrue(all(0 <= done <= total for done, total in seen))

    def test_without_tqdm_a_requested_bar_is_an_error(self):
        with unittest.mock.patch.dict(sys.modules, {"tqdm.auto": None}):
            self.assertRaises(ImportError, ptdecode.open, KERNEL, progress=True)
            ptdecode.open(KERNEL).close()

    def test_an_exception_of_the_progress_callback_stops_any_thread(self):
        def stop(done, total):
            raise KeyboardInterrupt(f"at {total > 0}")  # on another thread, it interrupts no more than the operation

        def read_all(recording):
            return pyarrow.RecordBatchReader.from_stream(recording.blocks(progress=stop)).read_all()

        with ptdecode.open(KERNEL) as recording:
            for read in (list, ptdecode.Table.to_columns, ptdecode.Table.to_arrow, ptdecode.Table.to_polars):
                with self.subTest(read=read), self.assertRaisesRegex(KeyboardInterrupt, "^at True$"):
                    in_a_thread(lambda: read(recording.blocks(progress=stop)))  # noqa: B023
            with self.assertRaisesRegex(Exception, "the progress callback raised KeyboardInterrupt"):
                in_a_thread(lambda: read_all(recording))
            with self.assertRaisesRegex(KeyboardInterrupt, "^at True$"):
                in_a_thread(lambda: ptdecode.open(KERNEL, progress=stop))

    def test_an_exception_of_the_progress_callback_arrives(self):
        class Own(Exception):
            pass

        class Shown(Exception):
            def __repr__(self):
                return os.fsdecode(b"/data/\xff")

        def stop(done, total):
            raise Own(f"at {total > 0}")

        def fail(done, total):
            raise Shown

        with ptdecode.open(KERNEL) as recording:
            for read in (list, ptdecode.Table.to_columns, ptdecode.Table.to_arrow, ptdecode.Table.to_pandas, ptdecode.Table.to_polars):
                with self.subTest(read=read), self.assertRaisesRegex(Own, "^at True$"):
                    read(recording.functions(progress=stop))
            with self.subTest("what it was raised from"):
                for cause in (None, KeyError("cause")):
                    def chained(done, total):
                        try:
                            raise IndexError("context")
                        except IndexError:
                            raise Own from cause  # noqa: B023
                    def plain(done, total):
                        try:
                            raise IndexError("context")
                        except IndexError:
                            raise Own
                    for read in (list, ptdecode.Table.to_arrow, ptdecode.Table.to_polars):
                        with self.assertRaises(Own) as caught:
                            read(recording.functions(progress=chained))
                        self.assertIs(caught.exception.__cause__, cause)
                        self.assertTrue(caught.exception.__suppress_context__)
                        with self.assertRaises(Own) as caught:
                            try:
                                raise ValueError("of the caller")
                            except ValueError:
                                read(recording.functions(progress=plain))
                        self.assertFalse(caught.exception.__suppress_context__)
                        if read is not list:
                            self.assertIsInstance(caught.exception.__context__, IndexError)
            with self.subTest("a text that is no UTF-8"), self.assertRaises(Shown):
                recording.functions(progress=fail).to_arrow()
            with self.assertRaisesRegex(Exception, "the progress callback raised Own"):
                pyarrow.RecordBatchReader.from_stream(recording.functions(progress=stop)).read_all()
            with self.assertRaises(Own):
                ptdecode.open(KERNEL, progress=stop)

    def test_cycles_are_freed(self):
        """A progress callback may refer to the object that owns the table: what was read in part, and what was not begun, is collected."""
        class Reader:
            def __init__(self, begin, table, **options):
                self.recording = ptdecode.open(KERNEL, progress=self.report)
                self.table = getattr(self.recording, table)(progress=self.report, **options)
                self.rows = iter(self.table)
                if begin:
                    self.first = next(self.rows)

            def report(self, done, total):
                self.seen = done, total

        gc.collect()
        before = len(os.listdir("/proc/self/task"))
        for begin, table in ((True, "calls"), (False, "calls"), (True, "branches")):
            with self.subTest(begin=begin, table=table):
                gone = weakref.ref(Reader(begin, table))
                gc.collect()
                self.assertIsNone(gone())
        self.assertEqual(len(os.listdir("/proc/self/task")), before)

    def test_control_c_stops(self):
        # A shell starts jobs in the background with SIGINT ignored, and Python then installs no handler.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        with ptdecode.open(KERNEL) as recording:
            for read in (lambda: list(recording.functions()), lambda: recording.blocks().to_arrow()):
                timer = threading.Timer(0.15, lambda: os.kill(os.getpid(), signal.SIGINT))
                timer.start()
                with self.assertRaises(KeyboardInterrupt):
                    for _ in range(100):
                        read()
                timer.join()

    def test_control_c_stops_where_another_thread_imported_the_module(self):
        script = f"""
import os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
threads = [threading.Thread(target=lambda: __import__("ptdecode"))]
threads[0].start()
threads[0].join()
recording = sys.modules["ptdecode"].open({os.fspath(KERNEL)!r})
try:
    recording.functions(progress=lambda done, total: os.kill(os.getpid(), signal.SIGINT)).to_columns()
except KeyboardInterrupt:
    print("stopped")
"""
        made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
        self.assertEqual(made.stdout, "stopped\n")

    def test_other_threads_run_during_info(self):
        """The GIL is not held while the records are read again."""
        counts, done = [], threading.Event()

        def count():
            while not done.is_set():
                counts.append(1)
                time.sleep(0.001)

        with ptdecode.open(KERNEL) as recording:
            thread = threading.Thread(target=count)
            thread.start()
            while not counts:
                time.sleep(0.001)
            before = len(counts)
            recording.info()
            seen = len(counts) - before
            done.set()
            thread.join()
        self.assertGreater(seen, 4)

    def test_other_threads_run_meanwhile(self):
        """The GIL is not held while decoding."""
        counts = []

        def count():
            end = time.monotonic() + 5
            while not done.is_set() and time.monotonic() < end:
                counts.append(1)
                time.sleep(0.001)

        done = threading.Event()
        with ptdecode.open(KERNEL) as recording:
            thread = threading.Thread(target=count)
            thread.start()
            next(recording.functions().batches())
            done.set()
            thread.join()
        self.assertGreater(len(counts), 20)

    def test_record_emulated(self):
        with tempfile.TemporaryDirectory() as folder:
            recording = ptdecode.record_emulated(["/bin/true"], os.path.join(folder, "t.data"))
            self.assertGreater(sum(row.instructions for row in recording.blocks()), 1000)

    def test_record_emulated_returns_the_recording_of_this_run(self):
        """An earlier recording of the same path is neither taken for the new one nor lost. The status of the program does not matter."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.data")
            ptdecode.record_emulated(["/bin/echo"], path).close()
            earlier = pathlib.Path(path).read_bytes()
            for command, options in ((["/nonexistent/prog"], ()), (["/bin/true"], ["--no-such-option"])):
                with self.assertRaises(ptdecode.Error) as failed:
                    ptdecode.record_emulated(command, path, options=options)
                self.assertEqual(failed.exception.name, "start_failed")
                self.assertEqual(pathlib.Path(path).read_bytes(), earlier)
            with ptdecode.record_emulated(["/bin/false"], path) as recording:
                self.assertEqual({thread.comm for thread in recording.threads}, {"false"})

    def test_page_of_the_documentation(self):
        """Every example of docs/PYTHON.md runs, one after the other, and the first makes a plot within ten lines."""
        text = (SOURCE / "docs" / "PYTHON.md").read_text(encoding="utf-8")
        examples = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.assertGreater(len(examples), 5)
        shell = re.search(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.assertIn("pip install", shell[1])
        self.assertLessEqual(len((shell[1] + examples[0]).splitlines()), 10)
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as printed:
            names = {}
            for example in examples:
                exec(compile(example, "docs/PYTHON.md", "exec"), names)  # pylint: disable=exec-used
            self.assertGreater(os.path.getsize("schedule.png"), 1000)
        self.assertIn("301 not_found", printed.getvalue())

    def test_docstrings(self):
        with ptdecode.open(DEMO) as demo:
            found = doctest.testmod(ptdecode, extraglobs={"demo": str(DEMO), "recording": demo, "ptdecode": ptdecode})
        self.assertEqual(found.failed, 0)
        self.assertGreater(found.attempted, 8)


if __name__ == "__main__":
    assert pandas and polars and pyarrow
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
