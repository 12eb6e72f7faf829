"""The fleet against one machine: merged tables equal those of the whole recording, whatever fails on the way.

usage: fleet_test.py SOURCE [compare RECORDING UNIT_MB [SYMFS]]
"""
import collections
import contextlib
import errno
import functools
import http.server
import json
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import distributed
import duckdb
import pyarrow

import fleet_model
import ptdecode
from ptdecode.fleet import Plan, decode_unit, write_plan
from ptdecode.fleet import query as queries
from ptdecode.fleet import units
from ptdecode.fleet.merge import follow_calls, merge
from ptdecode.fleet.run import Board, NoWorkers, run, status, unfinished
from ptdecode.fleet.store import Store
from ptdecode.fleet.units import CALL_COLUMNS, UNIT_TABLES, recording_id

SOURCE = pathlib.Path(sys.argv[1]).resolve()
DEMO = SOURCE / "data" / "demo" / "data"
MERGED = {"edges": "merged/edges", "block_counts": "merged/block_counts", "gaps": "gaps", "events": "events", "calls": "calls", "functions": "functions",
          "findings": "findings"}


def fingerprint(connection, source, columns):
    """The number of rows, and a sum of their hashes, which does not depend on their order."""
    row = ", ".join(f'"{name}"' for name in columns)
    return connection.execute(f"select count(*), sum(hash({row})::hugeint), sum(hash({row}, 1)::hugeint) from {source}").fetchall()[0]


def differences(store, name, recording):
    """Tables of which the merged rows are not those of the recording, in any order: the order of streams is not that of one machine."""
    found = {}
    with duckdb.connect() as connection:
        for table, folder in MERGED.items():
            wanted = CALL_COLUMNS["open_calls"] if table == "calls" else {**CALL_COLUMNS, **UNIT_TABLES}.get(table)
            reader = pyarrow.RecordBatchReader.from_stream(recording.table(table, columns=wanted, progress=False))
            columns = reader.schema.names
            connection.register("whole", reader)  # read once, batch by batch
            want = fingerprint(connection, "whole", columns)
            files = [store.path(file) for file in store.list(f"{folder}/recording={name}", ".parquet")]
            got = fingerprint(connection, f"read_parquet({files!r}, hive_partitioning = false)", columns) if files and table != "calls" else (0, None, None)
            if table == "calls":
                with queries.connect(store.root) as merged:
                    got = fingerprint(merged, f"(select * from calls where recording = '{name}')", columns)
            if want != got:
                found[table] = f"{got[0]} rows, {want[0]} on one machine" if want[0] != got[0] else f"some of {want[0]} rows differ"
    return found


def compare(path, unit_bytes, folder, **options):
    """Plans, decodes and merges a recording on this machine; what differs, and some figures."""
    store = Store(str(folder))
    started = time.monotonic()
    facts = write_plan(str(path), store, unit_bytes, options)
    planned = time.monotonic()
    seconds = [decode_unit(store, facts["recording"], unit)["seconds"] for unit in range(facts["units"])]
    decoded = time.monotonic()
    merge(store, facts["recording"])
    merged = time.monotonic()
    with ptdecode.open(path, **options) as recording:
        found = differences(store, facts["recording"], recording)
    figures = {"units": facts["units"], "plan_s": round(planned - started, 2), "units_s": round(sum(seconds), 2), "merge_s": round(merged - decoded, 2)}
    return found, figures


class RangeServer:
    """Serves a folder over HTTP with byte ranges, as an object store does. `cut`: of this path, so many bytes of each range are left out."""

    def __init__(self, folder, address=("127.0.0.1", 0)):
        self.cut, self.requested = {}, collections.Counter()
        server = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *unused):  # pylint: disable=arguments-differ
                pass

            def do_HEAD(self):
                self.answer(False)

            def do_GET(self):
                self.answer(True)

            def answer(self, with_body):
                path = pathlib.Path(self.translate_path(self.path))
                if not path.is_file():
                    self.send_error(404)
                    return
                size = path.stat().st_size
                wanted = self.headers.get("Range")
                first, last = 0, size - 1
                if wanted:
                    low, high = wanted.split("=")[1].split("-")
                    first, last = int(low), min(int(high or size - 1), size - 1)
                    last -= server.cut.get(path.name, 0)
                body = path.read_bytes()[first:last + 1]
                server.requested[path.name] += len(body) if with_body else 0
                self.send_response(206 if wanted else 200)
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("Content-Length", str(len(body)))
                if wanted:
                    self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
                self.end_headers()
                if with_body:
                    self.wfile.write(body)

        self.server = http.server.ThreadingHTTPServer(address, functools.partial(Handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Fleet(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="fleet-")))
        self.store = Store(str(self.folder / "out"))

    def test_equal(self):
        """Small units, each decoded twice and in reverse order."""
        for path, size in ((DEMO, 9000), (SOURCE / "data/user/patch.bundle", 2000), (SOURCE / "data/arm/changes.bundle", 3000)):
            with self.subTest(path=path.name), ptdecode.open(path) as recording:
                facts = write_plan(str(path), self.store, size)
                name = facts["recording"]
                self.assertGreater(facts["units"], 3)
                for unit in [*reversed(range(facts["units"])), 0, 1]:
                    decode_unit(self.store, name, unit)
                merge(self.store, name)
                self.assertEqual(differences(self.store, name, recording), {})

    def test_one_unit(self):
        """A function that gets another place, or its first one, after the unit has met it."""
        for name in ("user/patch.bundle", "user/jit.bundle", "arm/changes.bundle"):
            path = SOURCE / "data" / name
            with self.subTest(path=name), ptdecode.open(path) as recording:
                facts = write_plan(str(path), self.store, 1 << 20)
                for unit in range(facts["units"]):
                    decode_unit(self.store, facts["recording"], unit)
                merge(self.store, facts["recording"])
                self.assertEqual(differences(self.store, facts["recording"], recording), {})

    def test_units_that_do_not_exist_are_refused(self):
        facts = write_plan(str(DEMO), self.store, 9000)
        name, wrong = facts["recording"], (-1, facts["units"], 2**32, 2**70)
        for unit in wrong:
            with self.subTest(unit=unit), self.assertRaisesRegex(ValueError, f"^unit: {unit} is not in 0 to {facts['units'] - 1}$"):
                decode_unit(self.store, name, unit)
        with self.assertRaisesRegex(TypeError, "^unit: "):
            decode_unit(self.store, name, "1")
        for size in (-1, 2**64):
            with self.assertRaisesRegex(ValueError, f"^unit_bytes: {size} is not in "):
                write_plan(str(DEMO), self.store, size)
        for path in (b"/data/\xff", os.fsdecode(b"/data/\xff")):
            with self.assertRaisesRegex(ValueError, "is not UTF-8, in which plans and results"):
                write_plan(path, self.store)

    def test_same_files(self):
        """Decoding a unit again gives the same bytes."""
        name = write_plan(str(DEMO), self.store, 9000)["recording"]
        kinds = [f"{table}/recording={name}/unit=00001/part.parquet" for table in UNIT_TABLES] + [f"_steps/{name}/unit-00001.steps"]
        kinds.append(f"calls/recording={name}/unit=00001/part.parquet")
        contents = []
        for _ in range(2):
            decode_unit(self.store, name, 1)
            contents.append([self.store.read(kind) for kind in kinds])
        self.assertEqual(contents[0], contents[1])

    def test_ranges(self):
        """Over HTTP, a unit reads its own ranges; a server that gives less is named."""
        server = RangeServer(DEMO.parent)
        self.addCleanup(server.close)
        facts = write_plan(f"{server.url}/{DEMO.name}", self.store, 9000)
        name = facts["recording"]
        server.requested.clear()
        for unit in range(facts["units"]):
            decode_unit(self.store, name, unit)
        ranges = [Plan(self.store.path(f"_plans/{name}.plan"), without_trace=True).units[unit]["ranges"] for unit in range(facts["units"])]
        self.assertEqual(server.requested[DEMO.name], sum(size for unit in ranges for _, _, size in unit))
        merge(self.store, name)
        with ptdecode.open(DEMO) as recording:
            self.assertEqual(differences(self.store, name, recording) | {"findings": ""}, {"findings": ""})
        server.cut[DEMO.name] = 10
        with self.assertRaisesRegex(OSError, "bytes at offset .* were received"):
            decode_unit(self.store, name, 1)

    def test_other_trace(self):
        """A trace that is shorter, or is another one, is not decoded."""
        copy = self.folder / "data"
        shutil.copy(DEMO, copy)
        name = write_plan(str(copy), self.store, 9000)["recording"]
        original = copy.read_bytes()
        copy.write_bytes(original[:-1000])
        with self.assertRaisesRegex(ptdecode.Error, "has .* bytes, and had"):
            decode_unit(self.store, name, 1)
        copy.write_bytes(bytes(len(original)))
        with self.assertRaisesRegex(ptdecode.Error, "is not the one that was planned"):
            decode_unit(self.store, name, 1)
        with self.assertRaisesRegex(ptdecode.Error, "is not the one that was planned"):
            ptdecode.open(self.store.path(f"_plans/{name}.plan"))
        copy.write_bytes(original)
        decode_unit(self.store, name, 1)

    def test_run(self):
        """A recording that is truncated after its plan fails by name, the others complete; after a repair the run resumes."""
        good, bad = self.folder / "good.data", self.folder / "bad.data"
        for path in (good, bad):
            shutil.copy(DEMO, path)
            if path is bad:
                write_plan(str(path), self.store, 9000)
        original, stamp = bad.read_bytes(), bad.stat()
        # Same name, size and time: the plan is used, and the units find other bytes.
        bad.write_bytes(bytes(len(original)))
        os.utime(bad, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        board = run(self.store.root, [str(good), str(bad)], "local", 2, 9000)
        self.assertTrue(board.failures)
        self.assertTrue(all(key.startswith(f"unit/{recording_id(str(bad))}/") and "is not the one that was planned" in reason
                            for key, reason in board.failures.items()), board.failures)
        facts = {each["source"]: each for each in status(self.store.root)["recordings"]}
        self.assertTrue(facts[str(good)]["merged"])
        self.assertFalse(facts[str(bad)]["merged"])
        self.assertEqual(len(status(self.store.root)["failed"]), len(board.failures))
        bad.write_bytes(original)
        os.utime(bad, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        board = run(self.store.root, [str(good), str(bad)], "local", 2, 9000)
        self.assertEqual(board.failures, {})
        self.assertEqual(status(self.store.root)["failed"], [])
        with ptdecode.open(DEMO) as recording:
            for path in (good, bad):
                self.assertEqual(differences(self.store, recording_id(str(path)), recording), {})

    def test_a_failed_plan_is_tried_again(self):
        """A recording that cannot be planned stays listed until it can, and is planned as it was asked for."""
        good, bad = self.folder / "good.bundle", self.folder / "bad.bundle"
        whole = (SOURCE / "data/user/patch.bundle").read_bytes()
        good.write_bytes(whole)
        bad.write_bytes(whole[:3000])
        options = {"symfs": [str(self.folder)]}
        run(self.store.root, [str(good), str(bad)], "local", 1, 2000, options, calls=False)
        done = {name: os.stat(self.store.path(name)).st_mtime_ns for name in self.store.list("_done")}
        self.store.remove(f"_merged/{recording_id(str(good))}.json")  # as if the run had ended before
        for repaired in (False, True):
            self.assertEqual([each["task"].split("/")[0] for each in status(self.store.root)["failed"]], ["plan"])
            if repaired:
                bad.write_bytes(whole)
            left = unfinished(self.store.root, {})
            self.assertEqual(left[-1], (str(bad), {"unit_bytes": 2000, "options": options, "calls": False}))
            self.assertEqual(len(left), 1 if repaired else 2)
            board = run(self.store.root, left, "local", 1, calls=None)
            self.assertEqual(len(board.failures), 0 if repaired else 1)
        self.assertEqual(status(self.store.root)["failed"], [])
        self.assertEqual({name: os.stat(self.store.path(name)).st_mtime_ns for name in done}, done)
        facts = self.store.get_json(f"_plans/{recording_id(str(bad))}.json")
        self.assertEqual((facts["calls"], facts["units"] > 1), (False, True))

    def test_steps_again(self):
        """A merge that cannot use groups decodes the steps of each unit, and gives the same calls."""
        path = SOURCE / "data/user/patch.bundle"
        facts = write_plan(str(path), self.store, 2000)
        for unit in range(facts["units"]):
            decode_unit(self.store, facts["recording"], unit)
        columns = CALL_COLUMNS["open_calls"]
        with unittest.mock.patch.dict(CALL_COLUMNS, {"calls": columns}):
            follow_calls(self.store, facts["recording"], ("calls",))  # all calls need all steps
        self.assertEqual(len(self.store.list("_steps", ".steps.all")), facts["units"])
        with ptdecode.open(path) as recording, duckdb.connect() as connection:
            connection.register("whole", pyarrow.RecordBatchReader.from_stream(recording.table("calls", columns=columns, progress=False)))
            want = fingerprint(connection, "whole", columns)
            found = self.store.path(f"calls/recording={facts['recording']}/part.parquet")
            self.assertEqual(fingerprint(connection, f"read_parquet('{found}', hive_partitioning = false)", columns), want)

    def test_no_workers(self):
        """Without workers a run says so, and ends with that reason; what is done stays done."""
        lines = []
        with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as scheduler, self.assertRaisesRegex(
                NoWorkers, "no worker has been connected .* 0 of 0 units are done .* 'resume'"):
            run(self.store.root, [str(DEMO)], scheduler.scheduler_address, unit_bytes=9000, progress=lines.append, patience=2)
        self.assertTrue(any("no worker is connected" in line for line in lines), lines)

    def test_full_store(self):
        """A store that cannot be written fails the task, and is not taken for a lost scheduler."""
        write = Store.put_json

        def put_json(store, value, name):
            if name.startswith("_merged/"):
                raise OSError(errno.ENOSPC, "No space left on device")
            write(store, value, name)

        with unittest.mock.patch.object(Store, "put_json", put_json):
            board = run(self.store.root, [str(DEMO)], "local", 1, 1 << 20)
        self.assertEqual(len(board.failures), 1, board.failures)
        self.assertIn("No space left on device", *board.failures.values())

    def test_code_once(self):
        """Planning uses the folder of downloaded code of its results, which libdebuginfod asks before a server, and leaves the environment as it was."""
        variable = "DEBUGINFOD_CACHE_PATH"
        opened = []
        native = unittest.mock.Mock(wraps=units._native)  # pylint: disable=protected-access
        for call in ("open", "plan_write"):
            real = getattr(units._native, call)  # pylint: disable=protected-access
            getattr(native, call).side_effect = lambda *words, real=real: opened.append(os.environ.get(variable)) or real(*words)
        others = Store(str(self.folder / "others"))
        with unittest.mock.patch.object(units, "_native", native), unittest.mock.patch.dict(os.environ, {"DEBUGINFOD_URLS": ""}):
            os.environ.pop(variable, None)
            for store in (self.store, others):
                write_plan(str(DEMO), store, 1 << 20, {"debuginfod": True})
                self.assertIsNone(os.environ.get(variable))
            os.environ[variable] = str(self.folder / "mine")
            write_plan(str(DEMO), self.store, 1 << 20, {"debuginfod": True})
            self.assertEqual(os.environ[variable], str(self.folder / "mine"))
        self.assertEqual(opened, [self.store.path("_code")] * 3 + [others.path("_code")] * 3 + [str(self.folder / "mine")] * 3)

    def test_queries(self):
        """The saved queries against the tables of one machine."""
        self.store = Store(str(self.folder / "it's [1]"))  # characters that SQL and patterns treat specially
        path = SOURCE / "data/user/patch.bundle"
        facts = write_plan(str(path), self.store, 2000)
        for unit in range(facts["units"]):
            decode_unit(self.store, facts["recording"], unit)
        merge(self.store, facts["recording"])
        with ptdecode.open(path) as recording:
            _, rows = queries.run(self.store.root, "hottest", limit=1000)
            want = sorted((row.function, row.module, row.calls, row.self_ns, row.total_ns, row.self_instructions) for row in recording.functions())
            self.assertEqual(sorted(row[:6] for row in rows), want)
            _, rows = queries.run(self.store.root, "builds")
            counted = collections.Counter()
            near = collections.Counter()
            for row in recording.edges(columns=["count", "flags", "code", "code_offset", "to_code", "to_code_offset"]):
                counted[row.code] += row.count
                if row.code == row.to_code and row.flags in ("call", "return", "jcc", "jmp"):
                    near[(row.code, row.code_offset, row.to_code_offset)] += row.count
            self.assertEqual({row[0]: row[1] for row in rows}, dict(counted))
            build = counted.most_common(1)[0][0]
            _, rows = queries.run(self.store.root, "profile", build_id=build)
            self.assertEqual({(build, *row[:2]): row[2] for row in rows}, {key: count for key, count in near.items() if key[0] == build})
            function = max(recording.functions(), key=lambda row: row.calls)
            _, rows = queries.run(self.store.root, "latency", function=function.function)
            self.assertEqual([row[2] for row in rows], [function.calls])
            self.assertEqual(rows[0][5], function.max_ns)
            for saved in queries.SAVED:
                queries.run(self.store.root, saved, function="it's")


class Model(unittest.TestCase):
    """The model of fleet_long.py's figures, against values that are calculated without it."""

    MEASURED = [14.0] * 20 + [20.0] * 18 + [29.0]

    def test_replicate(self):
        for count in (1, 39, 100, 780):
            times = collections.Counter(fleet_model.replicate(self.MEASURED, count))
            self.assertEqual(times.total(), count)
            for seconds, of_all in collections.Counter(self.MEASURED).items():
                self.assertIn(times[seconds], range(count // 39 * of_all, -(-count // 39) * of_all + 1))

    def test_simulate(self):
        self.assertAlmostEqual(fleet_model.simulate(self.MEASURED, 2, 4, 1, task=0), 2 + 280 + 360 + 29 + 4)
        self.assertEqual(fleet_model.simulate(self.MEASURED, 2, 4, 39, task=0), 2 + 29 + 4)
        self.assertEqual(fleet_model.simulate([3, 3, 2, 2, 2], 0, 0, 2, task=0), 7)  # longest first: 3 2 2 and 3 2
        self.assertAlmostEqual(fleet_model.simulate([1.0] * 1000, 0, 0, 1000, task=0.01), 11)  # the scheduler gives one task each 10 ms
        for workers in (1, 2, 10, 30, 100):
            times = fleet_model.replicate(self.MEASURED, 500)
            seconds, least = fleet_model.simulate(times, 2, 4, workers, task=0), fleet_model.least(times, 2, 4, workers)
            self.assertTrue(least <= seconds + 1e-9 and seconds <= least + max(times), (workers, seconds, least))


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[2] == "compare":
        with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
            options = {"symfs": sys.argv[5]} if len(sys.argv) > 5 else {}
            found, figures = compare(sys.argv[3], int(float(sys.argv[4]) * 2**20), folder, **options)
        print(json.dumps({"recording": sys.argv[3], "differences": found, **figures}))
        sys.exit(1 if found else 0)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
