#!/usr/bin/env python3
"""A file that becomes shorter while it is mapped: each function that reads it afterwards fails with `changed`, also as the first one to notice.

Environment: PTDECODE_LIBRARY, PTDECODE_SOURCE.
"""
import contextlib
import ctypes
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import builder_test
import ptdecode_c as ptd

SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
API = ptd.Api(os.environ["PTDECODE_LIBRARY"])
sys.path.insert(0, str(SOURCE / "tests/tables"))
from arrow_reader import ArrowArrayStream  # noqa: E402

BASE = 0x7F0000000000


class Cut(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    @contextlib.contextmanager
    def changed(self):
        with self.assertRaisesRegex(RuntimeError, "became shorter|was replaced or changed") as caught:
            yield
        self.assertIn("410", str(caught.exception))

    def items(self, kind):
        return lambda recording: list(API.items(recording, kind))

    def demo(self):
        """A recording whose trace was cut since it was opened."""
        path = self.folder / "data"
        shutil.copy(SOURCE / "data/demo/data", path)
        recording = API.open(path)
        self.addCleanup(API.close, recording)
        os.truncate(path, path.stat().st_size // 3)
        return recording

    def test_what_reads_the_trace(self):
        def finding(recording):
            API.call("ptd_get_finding", recording, ctypes.c_uint32(0), ctypes.byref(ptd.made(ptd.Finding)))
        reads = {"finding_count": API.findings, "get_finding": finding, "flow": self.items(ptd.FLOW), "branches": self.items(ptd.BRANCHES),
                 "calls": self.items(ptd.CALLS), "info": lambda recording: API.text("ptd_info_json", recording)}
        for name, read in reads.items():
            with self.subTest(name):
                recording = self.demo()
                for _ in range(2):
                    with self.changed():
                        read(recording)

    def test_findings_that_were_read_before_stay(self):
        path = self.folder / "data"
        shutil.copy(SOURCE / "data/demo/data", path)
        recording = API.open(path)
        before = [row.what for row in API.findings(recording)]
        os.truncate(path, path.stat().st_size // 3)
        self.assertEqual(before, [row.what for row in API.findings(recording)])
        API.close(recording)

    def test_units_of_a_plan(self):
        path, output, unit, stream = self.folder / "data", self.folder / "steps", ctypes.c_uint32(0), ArrowArrayStream()
        reads = {"steps": lambda plan: API.call("ptd_unit_steps", plan, unit, str(output).encode(), None),
                 "table": lambda plan: API.call("ptd_plan_table", plan, b"edges", unit, None, None, ctypes.byref(stream)),
                 "tables": lambda plan: API.call("ptd_unit_tables", plan, unit, (ctypes.c_char_p * 2)(b"edges"), None, None, ctypes.byref(stream)),
                 "flow": self.items(ptd.FLOW)}
        for name, read in reads.items():
            with self.subTest(name):
                shutil.copy(SOURCE / "data/demo/data", path)
                API.call("ptd_plan_write", str(path).encode(), str(self.folder / "plan").encode(), None)
                plan = ctypes.c_void_p()
                API.call("ptd_plan_open", str(self.folder / "plan").encode(), None, ctypes.c_uint64(0), ctypes.byref(plan))
                os.truncate(path, path.stat().st_size // 3)
                with self.changed():
                    read(plan)
                API.close(plan)
                self.assertEqual([], [file.name for file in self.folder.iterdir() if file.name.startswith("steps")])

    def test_an_output_that_read_a_cut_file_does_not_appear(self):
        path, plan_path, steps = self.folder / "data", self.folder / "plan", self.folder / "steps"
        control, calls = builder_test.Cancelling.Control(size=ctypes.sizeof(builder_test.Cancelling.Control)), 0

        def cut_at(number):
            def cancelled(_):
                nonlocal calls
                calls += 1
                if calls == number:
                    os.truncate(path, 4096)
                return 0
            control.cancelled = builder_test.Cancelling.CALLBACK(cancelled)

        def write_plan():
            shutil.copy(SOURCE / "data/demo/data", path)
            options = (ctypes.c_uint64 * 10)(80, *[0] * 8, ctypes.addressof(control))
            wanted = (ctypes.c_uint64 * 4)(32, 0, 0, ctypes.addressof(options))
            API.call("ptd_plan_write", str(path).encode(), str(plan_path).encode(), wanted)

        def write_steps():
            plan = ctypes.c_void_p()
            API.call("ptd_plan_open", str(plan_path).encode(), None, ctypes.c_uint64(0), ctypes.byref(plan))
            self.addCleanup(API.close, plan)
            API.call("ptd_unit_steps", plan, ctypes.c_uint32(0), str(steps).encode(), ctypes.byref(control))

        for write, output in ((write_plan, plan_path), (write_steps, steps)):
            with self.subTest(output.name):
                calls = 0
                cut_at(0)
                write()
                output.unlink()
                last, calls = calls, 0
                cut_at(last)
                with self.changed():
                    write()
                self.assertFalse(output.exists())
                cut_at(0)
                write_plan()

    def program(self):
        """A recording from memory that maps a program, and the place of a function in it."""
        path = self.folder / "program"
        subprocess.run(["cc", "-g", "-x", "c", "-", "-o", path], input=b"int marked(int x) { return x * 3; }\nint main(void) { return marked(1); }\n",
                       check=True)
        names = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.split("\n")
        address, = [int(line.split()[0], 16) for line in names if line.endswith(" marked")]
        built = builder_test.Built()
        built.attr(builder_test.Builder.TIMED, [], b"cycles")
        about = path.stat()
        body = struct.pack("<2I3Q2I2Q2I", 7, 7, BASE, 1 << 20, 0, os.major(about.st_dev), os.minor(about.st_dev), about.st_ino, 0, 5, 2)
        name = str(path).encode() + b"\0"
        built.records(0, builder_test.Builder.task_record(3, struct.pack("<2I", 7, 7) + b"program\0", 0))
        built.records(0, builder_test.Builder.task_record(10, body + name.ljust((len(name) + 7) // 8 * 8, b"\0"), 1))
        recording = built.open()
        self.addCleanup(API.close, recording)
        space = ctypes.c_uint32()
        API.call("ptd_space_of", recording, 7, ctypes.c_int64(2), ctypes.byref(space))
        return path, recording, ptd.made(ptd.Place, space=space.value, ip=BASE + address, time_ns=2)

    @unittest.skipUnless(shutil.which("cc") and shutil.which("nm"), "there is no compiler")
    def test_what_reads_the_program(self):
        def symbol(recording, place):
            out = ptd.made(ptd.Symbol)
            API.call("ptd_symbol_at", recording, ctypes.byref(place), ctypes.byref(out))
            return out.name, out.line

        def code(recording, place):
            data, got = (ctypes.c_ubyte * 4)(), ctypes.c_size_t()
            API.call("ptd_code_at", recording, ctypes.byref(place), data, ctypes.c_size_t(4), ctypes.byref(got), None)
            return got.value

        def text(recording, place):
            return len(API.text("ptd_disassemble", recording, ctypes.byref(place), ctypes.c_uint32(2)).splitlines())

        for name, read, want in (("symbol", symbol, (b"marked", 1)), ("code", code, 4), ("text", text, 2)):
            with self.subTest(name):
                _, recording, place = self.program()
                self.assertEqual(want, read(recording, place))
                for size in (4096, 0):
                    path, recording, place = self.program()
                    os.truncate(path, size)
                    with self.changed():
                        read(recording, place)


if __name__ == "__main__":
    unittest.main(verbosity=2)
