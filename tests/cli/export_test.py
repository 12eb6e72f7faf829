#!/usr/bin/env python3
"""`ptdecode export`: the rows of an SQLite database against the source of a small program, `perf script`, perf's own export and the other commands;
and perf's viewer over it, if Qt for Python is installed.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC; PTDECODE_LIBRARY if there is a shared library; PTDECODE_SCREENSHOT: where to store a
picture of the viewer. Exit status 77 without qemu-x86_64.
"""
import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
KERNEL = SOURCE / "data" / "kernel" / "kernel.bundle"
WINDOW = "24.4699,24.4719"
sys.path.insert(0, str(SOURCE / "tests" / "tables"))
sys.path.insert(0, str(SOURCE / "tests" / "bundle"))
import parts  # noqa: E402
SCRIPTS = pathlib.Path("/usr/lib/perf-core/scripts/python")
VIEWER = SOURCE / "tests" / "cli" / "perf_viewer.py"


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300)


def functions(*words):
    done = run("functions", "-q", "--no-inline", *words, "--format", "json")
    return [row for row in map(json.loads, done.stdout.splitlines()) if "function" in row]


def record(folder, data, *command):
    done = subprocess.run([PTDECODE, "record", "--emulate", "-q", "--no-stash", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", data, "--", *command],
                          cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def perfs_export(data, path):
    """Writes the database of perf's script. Returns False if the script or Qt for Python is not installed."""
    script = SCRIPTS / "export-to-sqlite.py"
    if not script.exists() or not has_qt():
        return False
    subprocess.run(["perf", "script", "-i", data, "--itrace=b", "-s", script, path, "all", "calls"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "PERF_EXEC_PATH": "/usr/lib/perf-core", "PATH": "/usr/bin:/bin"})  # the interpreter that perf is linked to
    return True


def has_qt():
    return subprocess.run(["/usr/bin/python3", "-c", "import PySide2.QtSql, PySide2.QtWidgets"], capture_output=True).returncode == 0


class Database(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.stack = stack

    def ask(self, path, sql):
        return self.stack.enter_context(contextlib.closing(sqlite3.connect(path))).execute(sql).fetchall()

    def number(self, path, sql):
        return self.ask(path, sql)[0][0]


class Program(Database):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-g", "-no-pie", SOURCE / "tests" / "cli" / "programs" / "exported.c", "-o", "exported", "-pthread"],
                       cwd=cls.folder, check=True)
        record(cls.folder, "run.data", "./exported")
        cls.data, cls.path = cls.folder / "run.data", cls.folder / "run.db"
        done = run("export", "-i", cls.data, "-o", cls.path)
        assert done.returncode == 0, done.stderr
        cls.said = done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_calls_are_those_of_the_source(self):
        calls = dict(self.ask(self.path, "SELECT call, count(*) FROM ptd_calls WHERE call IN ('leaf', 'fib', 'work') GROUP BY call"))
        fib = [0, 1]
        while len(fib) < 12:
            fib.append(fib[-1] + fib[-2])
        self.assertEqual(calls, {"leaf": 150, "work": 2, "fib": 2 * fib[11] - 1 + 2 * fib[9] - 1})
        tids = [tid for tid, in self.ask(self.path, "SELECT DISTINCT tid FROM ptd_calls WHERE call = 'leaf' ORDER BY 1")]
        self.assertEqual(len(tids), 2)
        self.assertEqual(dict(self.ask(self.path, "SELECT tid, count(*) FROM ptd_calls WHERE call = 'leaf' GROUP BY 1")), {tids[0]: 50, tids[1]: 100})
        # Each is below its caller, in the table of calls and in that of paths, inside of its time.
        self.assertEqual(self.number(self.path, "SELECT count(*) FROM ptd_calls c JOIN ptd_calls p ON p.id = c.parent_id"
                                                " WHERE c.call = 'leaf' AND p.call = 'work' AND c.start_ns >= p.start_ns AND c.end_ns <= p.end_ns"), 150)
        self.assertEqual(self.number(self.path, "SELECT count(*) FROM calls c JOIN calls_view v ON v.id = c.id JOIN call_paths p ON p.id = c.call_path_id"
                                                " JOIN call_paths_view w ON w.id = p.id WHERE v.symbol = 'leaf' AND w.parent_symbol = 'work'"
                                                " AND p.parent_id = c.parent_call_path_id"), 150)
        self.assertEqual(self.number(self.path, "SELECT count(*) FROM calls WHERE parent_id >= id"), 0)
        for table in ("calls", "ptd_calls"):
            plan = str(self.ask(self.path, f"EXPLAIN QUERY PLAN SELECT count(*) FROM {table} WHERE parent_id = 7"))
            self.assertRegex(plan, "SEARCH .*INDEX", table)
        # The depth of fib(10) is that of its nine inner calls.
        self.assertEqual(self.number(self.path, f"SELECT max(depth) - min(depth) FROM ptd_calls WHERE call = 'fib' AND tid = {tids[1]}"), 9)

    def test_functions_are_those_of_the_command(self):
        listed = functions("-i", self.data)
        columns = list(listed[0])
        rows = self.ask(self.path, f"SELECT {','.join(columns)} FROM ptd_functions ORDER BY id")
        self.assertEqual([[row[name] for name in columns] for row in listed], [list(row) for row in rows])
        calls = dict(self.ask(self.path, "SELECT call || module, sum(start_seen) FROM ptd_calls GROUP BY 1"))
        self.assertEqual({row["function"] + row["module"]: row["calls"] for row in listed}, calls)
        spent = self.number(self.path, "SELECT sum(self_ns) FROM ptd_calls")
        self.assertEqual(spent, sum(row["self_ns"] for row in listed))

    def test_branches_are_those_of_perf_script(self):
        done = subprocess.run(["perf", "script", "-i", self.data, "--itrace=b", "-F", "tid,ip,addr"], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest("perf is not installed")
        perf = collections.Counter(tuple(int(word, base) for word, base in zip(re.sub(r"=>", " ", line).split(), (10, 16, 16))) for line in done.stdout.splitlines())
        ours = collections.Counter(self.ask(self.path, 'SELECT tid, coalesce(ip, 0), coalesce("to", 0) FROM ptd_branches'))
        self.assertEqual(perf, ours)
        self.assertGreater(sum(ours.values()), 10000)
        self.assertEqual(self.number(self.path, "SELECT sum(count) FROM ptd_edges"), sum(1 for _, ip, to in ours.elements() if ip and to))

    def test_code_without_symbols_has_its_file(self):
        shutil.copy(self.folder / "exported", self.folder / "stripped")
        subprocess.run(["strip", "-s", "stripped"], cwd=self.folder, check=True)
        record(self.folder, "stripped.data", "./stripped")
        bundle = self.folder / "stripped.bundle"
        self.assertEqual(run("bundle", "-q", "-i", self.folder / "stripped.data", "-o", bundle).returncode, 0)
        for data in (self.folder / "stripped.data", bundle, KERNEL):
            path = self.folder / "stripped.db"
            self.assertEqual(run("export", "-q", "-i", data, "-o", path, "--tables", "branches", *(["--time", WINDOW] if data == KERNEL else [])).returncode, 0)
            for end, shown in (("", "ip,sym,dso"), ("to_", "addr,sym,dso")):
                module, symbol, ip = f"{end}module", f"{end}symbol", '"to"' if end else "ip"
                nameless = dict(self.ask(path, f"SELECT {module}, count(*) FROM ptd_branches WHERE {symbol} IS NULL AND {ip} IS NOT NULL GROUP BY 1"))
                self.assertEqual(self.number(path, f"SELECT count({end}offset) FROM ptd_branches WHERE {symbol} IS NULL"), 0)
                if data == KERNEL:
                    continue
                self.assertGreater(nameless["stripped"], 1000)
                if not end:
                    lines = run("script", "-q", "-i", data, "--itrace=b", "-F", "ip,sym,dso").stdout
                    listed = collections.Counter(re.findall(r"\[unknown\] \((?:\S*/)?([^/)\s]+)\)", lines))
                    del listed["[unknown]"]  # starts of tracing, which have no address
                    self.assertEqual(listed, nameless)
                    self.assertEqual(dict(self.ask(path, "SELECT dso_short_name, count(*) FROM samples_view WHERE symbol = 'unknown' AND ip_hex != '0' GROUP BY 1")), nameless)
            self.compare_branches(data, path, **dict(zip(("first_ns", "last_ns"), (round(float(text) * 1e9) for text in WINDOW.split(",")))) if data == KERNEL else {})

    def compare_branches(self, data, path, **window):
        """All columns of ptd_branches are those of the table, but a function of which there are several has its source file or address in its name."""
        if not os.environ.get("PTDECODE_LIBRARY"):
            return
        from arrow_reader import Library
        columns = [name for _, name, *_ in self.ask(path, "PRAGMA table_info(ptd_branches)") if name != "id"]
        self.assertGreater(len(columns), 14)
        library = Library(os.environ["PTDECODE_LIBRARY"])
        recording = library.open(data)
        self.addCleanup(library.close, recording)
        theirs = collections.Counter(tuple((row.get(name) + (1 << 63)) % (1 << 64) - (1 << 63) if name in ("ip", "to") and name in row else row.get(name) for name in columns)
                                     for row in library.rows(recording, "branches", columns=columns, **window))
        listed = ",".join(f'"{name}"' for name in columns)
        names = [columns.index(name) for name in ("symbol", "to_symbol")]
        ours = collections.Counter(tuple(re.sub(r"^(0x[0-9a-f]+|[\w-]+\.\w+):(?!:)", "", value) if i in names and value else value for i, value in enumerate(row))
                                   for row in self.ask(path, f"SELECT {listed} FROM ptd_branches"))
        self.assertEqual([(ours - theirs).most_common(3), (theirs - ours).most_common(3)], [[], []], columns)

    def test_the_summary_is_of_the_tables_that_were_asked_for(self):
        for tables, said in (("gaps", r"\d+ gaps"), ("gaps,findings", r"0 findings, \d+ gaps"), ("functions,threads", r"[1-9]\d* functions, 2 threads"),
                             ("samples", "0 samples"), ("events", r"\d+ events"), ("blocks", r"[1-9]\d+ blocks"), ("branches", r"[1-9]\d* branches"), ("calls", r"[1-9]\d* calls")):
            path = self.folder / "some.db"
            done = run("export", "-i", self.data, "-o", path, "--tables", tables)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, rf"some\.db: {said}\n")
            listed = {name[len("ptd_"):] for name, in self.ask(path, "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name LIKE 'ptd%'")} - {"info", "edges"}
            self.assertEqual(listed, set(tables.split(",")))
            for count, table in re.findall(r"(\d+) (\w+)", re.search(r"some\.db: (.*)", done.stderr)[1]):
                self.assertEqual(int(count), self.number(path, f"SELECT count(*) FROM ptd_{table}"), table)
        tid = self.number(self.path, "SELECT max(tid) FROM threads")
        self.assertEqual(run("export", "-i", self.data, "-o", path, "--tables", "blocks", "--tid", tid).returncode, 0)  # rows without calls and branches
        for tables in ("functions,sections", "threads", "calls"):
            self.assertEqual(run("export", "-i", self.data, "-o", path, "--tables", tables, "--comm", "no-such-name").returncode, 2, tables)

    def test_edges_bring_the_branches_that_they_count(self):
        path = self.folder / "edges.db"
        done = run("export", "-q", "-i", self.data, "-o", path, "--tables", "edges")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(*(self.ask(each, "SELECT * FROM ptd_edges ORDER BY ip, \"to\", pid, flags") for each in (path, self.path)))
        done = run("export", "-q", "-i", self.data, "-o", self.folder / "none.db", "--tables", "block_counts")
        self.assertEqual(done.returncode, 2)
        self.assertIn("block_counts", done.stderr)

    def test_rows_are_those_of_perfs_export(self):
        other = self.folder / "perf.db"
        if not perfs_export(self.data, other):
            self.skipTest("perf's export script or PySide2 is not installed")
        # Symbols that have several names are left out: perf may choose another one.
        sql = ("SELECT t.pid, t.tid, s.ip, s.to_ip, s.branch_type, b.name, s.sym_offset, s.to_sym_offset FROM samples s JOIN threads t ON t.id = s.thread_id"
               " JOIN branch_types b ON b.id = s.branch_type WHERE s.evsel_id IN (SELECT id FROM selected_events WHERE name LIKE 'branches%')")
        perf, ours = (collections.Counter(self.ask(path, sql)) for path in (other, self.path))
        self.assertEqual(sum(perf.values()), sum(ours.values()))
        offsets = sum((perf - ours).values())
        self.assertLess(offsets, sum(perf.values()) / 100)  # padding between functions
        cut = [collections.Counter(row[:6] for row in rows.elements()) for rows in (perf, ours)]
        self.assertEqual(*cut)
        names = "('leaf', 'fib', 'work', 'main', 'run')"
        calls = (f"SELECT s.name, t.tid, p.name, count(*) FROM calls c JOIN call_paths cp ON cp.id = c.call_path_id JOIN symbols s ON s.id = cp.symbol_id"
                 f" JOIN call_paths pp ON pp.id = cp.parent_id JOIN symbols p ON p.id = pp.symbol_id JOIN threads t ON t.id = c.thread_id"
                 f" WHERE s.name IN {names} AND p.name IN {names} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3")
        self.assertEqual(self.ask(other, calls), self.ask(self.path, calls))
        starts = f"SELECT name, sym_start FROM symbols WHERE name IN {names} ORDER BY 1"
        self.assertEqual(self.ask(other, starts), self.ask(self.path, starts))
        # Whatever perf's database has, ours has under the same name, except what depends on events that did not occur.
        schema = "SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type IN ('table', 'view')"
        ours = set(self.ask(self.path, schema))
        missing = {entry for entry in self.ask(other, schema) if entry not in ours}
        self.assertEqual({table for table, _ in missing} - {"cbr", "cbr_view"}, set())

    def test_symbols_of_a_bundle_are_those_of_the_recording(self):
        bundle, path = self.folder / "run.bundle", self.folder / "bundle.db"
        self.assertEqual(run("bundle", "-q", "-i", self.data, "-o", bundle).returncode, 0)
        self.assertEqual(run("export", "-q", "-i", bundle, "-o", path).returncode, 0)
        symbols = "SELECT d.short_name, s.name, s.sym_start, s.sym_end FROM symbols s JOIN dsos d ON d.id = s.dso_id ORDER BY 1, 2, 3"
        rows = self.ask(self.path, symbols)
        self.assertEqual(rows, self.ask(path, symbols))
        self.assertGreaterEqual({name for _, name, _, _ in rows}, {"leaf", "fib", "work", "main"})
        self.assertEqual([row for row in rows if row[2] >= 1 << 32], [])  # offsets in files

    def test_options(self):
        path = self.folder / "part.db"
        tid = self.number(self.path, "SELECT max(tid) FROM threads")
        done = run("export", "-q", "-i", self.data, "-o", path, "--tid", tid, "--tables", "calls,gaps,blocks")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.ask(path, "SELECT DISTINCT tid FROM ptd_calls"), [(tid,)])
        self.assertEqual(self.ask(path, "SELECT DISTINCT tid FROM ptd_blocks"), [(tid,)])
        executed = [row["total_instructions"] for row in functions("-i", self.data, "--tid", tid)]
        self.assertEqual(self.number(path, "SELECT sum(instructions) FROM ptd_blocks"), max(executed))
        self.assertEqual(self.ask(path, "SELECT name FROM sqlite_master WHERE name IN ('ptd_branches', 'samples', 'ptd_findings')"), [])
        self.assertEqual(self.number(path, "PRAGMA integrity_check"), "ok")
        facts = dict(self.ask(path, "SELECT key, value FROM ptd_info"))
        self.assertEqual({key: facts.get(key) for key in ("complete", "tables", "tid", "comm", "time")},
                         {"complete": "1", "tables": "blocks,calls,gaps", "tid": str(tid), "comm": None, "time": None})
        kept = path.read_bytes()
        for words in (("--tables", "calls,nothing"), ("--tid", "1"), ("--comm", "nosuch"), ("--tid", tid, "--comm", "nosuch"), ("--tables", "gaps", "--comm", "nosuch")):
            self.assertEqual(run("export", "-q", "-i", self.data, "-o", self.folder / "none.db", *words).returncode, 2, words)
            self.assertFalse((self.folder / "none.db").exists())
            self.assertEqual(run("export", "-q", "-i", self.data, "-o", path, *words).returncode, 2, words)
            self.assertEqual(path.read_bytes(), kept, words)
        done = subprocess.run([PTDECODE, "export", "-i", self.data, "-o", "-"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("-o names a file", done.stderr)
        os.mkfifo(self.folder / "fifo")  # which nobody reads
        done = subprocess.run([PTDECODE, "export", "-i", self.data, "-o", self.folder / "fifo"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("-o names a file", done.stderr)
        before = self.data.read_bytes()
        self.assertEqual(run("export", "-i", self.data, "-o", self.data).returncode, 2)
        self.assertEqual(self.data.read_bytes(), before)

    def test_a_recording_without_calls_has_all_tables(self):
        """Tracing starts at code that is not there: PSB, PSBEND, TIP.PGE."""
        trace, path = self.folder / "trace.pt", self.folder / "empty.db"
        trace.write_bytes(b"\x02\x82" * 8 + b"\x02\x23" + b"\x71" + (0x401000).to_bytes(6, "little"))
        self.assertEqual(run("export", "-q", "--pt", trace, "-o", path).returncode, 0)
        names = re.findall(r"^## (\w+)$", (SOURCE / "docs" / "TABLES.md").read_text(), re.M)
        self.assertGreater(len(names), 10)
        for name in set(names) - {"blocks", "block_counts"}:
            self.assertLessEqual(self.number(path, f"SELECT count(*) FROM ptd_{name}"), 1, name)

    def test_the_recording_is_the_file_with_the_trace(self):
        trace, path = self.folder / "raw.pt", self.folder / "raw.db"
        trace.write_bytes(b"\x02\x82" * 8 + b"\x02\x23")
        self.assertEqual(run("export", "-q", "--pt", trace, "-o", path).returncode, 0)
        self.assertEqual(self.ask(path, "SELECT value FROM ptd_info WHERE key = 'recording'"), [(str(trace),)])

    def test_tables_have_their_columns(self):
        """Those of docs/TABLES.md, also on request where docs/SQL.md says so."""
        for table in re.split(r"^## ", (SOURCE / "docs" / "TABLES.md").read_text(), flags=re.M)[1:]:
            name, page = table.split("\n", 1)
            rows, _, more = page.partition("\nOn request")
            columns = {column for line in rows.split("\n") if line.startswith("| `") for column in re.findall("`([^`]+)`", line.split("|")[1])}
            if name in ("threads", "branches", "samples"):
                columns |= set(re.findall("`([a-z0-9_]+)`", more)) - {"stream", "space", "raw", "event_number"}
            there = {column for _, column, *_ in self.ask(self.path, f"PRAGMA table_info(ptd_{name})")}
            if name not in ("blocks", "block_counts"):
                self.assertEqual(columns - there, {"space"} if name == "edges" else set(), name)

    def test_a_pipe(self):
        """It has no samples, because they are read from the file; the rest is as from a file."""
        path = self.folder / "pipe.db"
        for words, status, said in (((), 0, "samples of a recording from a pipe are left out"), (("--tables", "calls,samples"), 2, "write it to a file, or name other tables")):
            done = subprocess.run(["bash", "-c", 'cat "$1" | "$0" export -q -i - -o "$2" "${@:3}"', PTDECODE, self.data, path, *words], capture_output=True, text=True)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(said, done.stderr)
        for table in ("calls", "samples", "ptd_functions", "ptd_threads"):
            self.assertEqual(*(self.ask(each, f"SELECT * FROM {table}") for each in (path, self.path)), table)
        self.assertEqual(self.ask(path, "SELECT name FROM sqlite_master WHERE name = 'ptd_samples'"), [])
        self.assertNotIn("samples", self.number(path, "SELECT value FROM ptd_info WHERE key = 'tables'"))

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_a_full_disk_leaves_the_earlier_file(self):
        path = self.folder / "kept.db"
        path.write_text("earlier")
        done = subprocess.run(["bash", "-c", 'ulimit -f 512; trap "" XFSZ; exec "$0" export -i "$1" -o "$2"', PTDECODE, self.data, path], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, rf"{re.escape(str(path))}: cannot write the (table \w+|database): File too large: the file size limit \(ulimit -f\)")
        self.assertEqual(path.read_text(), "earlier")
        self.assertEqual([name for name in os.listdir(self.folder) if "kept.db." in name], [])

    def test_perfs_viewer_opens_it(self):
        if not (SCRIPTS / "exported-sql-viewer.py").exists() or not has_qt():
            self.skipTest("perf's viewer or PySide2 is not installed")
        picture = os.environ.get("PTDECODE_SCREENSHOT", str(self.folder / "viewer.png"))
        done = subprocess.run(["/usr/bin/python3", VIEWER, self.path, picture], capture_output=True, text=True, timeout=200,
                              env={**os.environ, "QT_QPA_PLATFORM": os.environ.get("QT_QPA_PLATFORM", "offscreen")})
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = json.loads(done.stdout.splitlines()[-1])
        listed = functions("-i", self.data)
        self.assertEqual(shown["errors"], [])
        # Counts of the call graph, added up over all paths.
        for name, count in (("leaf", 150), ("work", 2), ("main", 1)):
            self.assertEqual(shown["graph"][name], count)
            self.assertEqual(shown["tree"][name], count)
            self.assertEqual([row["calls"] for row in listed if row["function"] == name], [count])
        self.assertEqual(shown["branches"], self.number(self.path, "SELECT count(*) FROM ptd_branches"))
        self.assertEqual(shown["tables"]["ptd_functions"], len(listed))


class SameNames(Database):
    """Two functions `step`, in a.c and b.c, which the source calls 5 and 7 times."""

    def record(self, *options, program="same"):
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        for part, source in enumerate(("a.c", "b.c"), 1):
            shutil.copy(SOURCE / "tests" / "cli" / "programs" / "same_names.c", self.folder / source)
            subprocess.run([os.environ.get("CC", "cc"), "-O1", "-no-pie", f"-DPART={part}", *options, "-c", source], cwd=self.folder, check=True)
        subprocess.run([os.environ.get("CC", "cc"), "-no-pie", "a.o", "b.o", "-o", program], cwd=self.folder, check=True)
        record(self.folder, "same.data", f"./{program}")
        self.data, self.path = self.folder / "same.data", self.folder / "same.db"
        self.assertEqual(run("export", "-q", "-i", self.data, "-o", self.path).returncode, 0)

    def test_each_function_has_one_row(self):
        self.record()
        lines = subprocess.run(["nm", self.folder / "same"], capture_output=True, text=True, check=True).stdout.splitlines()
        starts = sorted(int(line.split()[0], 16) - 0x400000 for line in lines if line.endswith(" step"))
        self.assertEqual(len(starts), 2)
        symbols = "FROM symbols s JOIN dsos d ON d.id = s.dso_id WHERE d.short_name = 'same' AND s.name LIKE '%step'"
        self.assertEqual(self.ask(self.path, f"SELECT name, sym_start {symbols} ORDER BY 2"), list(zip(("a.c:step", "b.c:step"), starts)))
        # The code of every branch's ends is at the place in the file that its symbol and offset tell.
        for end in ("", "to_"):
            self.assertEqual(self.number(self.path, f"""SELECT count(*) FROM samples x JOIN symbols s ON s.id = x.{end}symbol_id JOIN dsos d ON d.id = s.dso_id
                WHERE d.short_name = 'same' AND s.sym_start + x.{end}sym_offset != x.{end}ip - 0x400000"""), 0)
        counts = [("a.c:step", 5), ("b.c:step", 7)]
        self.assertEqual(self.ask(self.path, "SELECT call, count(*) FROM ptd_calls WHERE call LIKE '%step' GROUP BY 1 ORDER BY 1"), counts)
        self.assertEqual(self.ask(self.path, "SELECT to_symbol, count(*) FROM ptd_branches WHERE flags = 'call' AND to_symbol LIKE '%step' GROUP BY 1 ORDER BY 1"), counts)
        perf = self.folder / "perf.db"
        if not perfs_export(self.data, perf):
            return
        places = """SELECT x.to_ip, s.sym_start, s.sym_end, count(*) FROM samples x JOIN symbols s ON s.id = x.to_symbol_id JOIN dsos d ON d.id = s.dso_id
            WHERE d.short_name = 'same' AND s.name LIKE '%step' GROUP BY 1, 2, 3 ORDER BY 1"""
        self.assertEqual(self.ask(perf, places), self.ask(self.path, places))

    def test_samples_have_the_function_of_their_address(self):
        self.record()
        self.assertEqual(run("bundle", "-q", "-i", self.data, "-o", self.folder / "same.bundle").returncode, 0)
        content = (self.folder / "same.bundle").read_bytes()
        *all_parts, end = [each for _, each in parts.parts_of(content)]
        (pid, tid, when), = self.ask(self.path, "SELECT pid, tid, max(time_ns) FROM ptd_branches WHERE to_symbol LIKE '%step'")
        ips = self.ask(self.path, """SELECT DISTINCT "to", to_symbol FROM ptd_branches WHERE flags = 'call' AND to_symbol LIKE '%step' ORDER BY 1""")
        number = parts.number
        rows = b"".join(number(when + 1) + number(2 * pid) + number(2 * tid) + number(1) + number(0) + number(ip + 1) + number(1) + number(0) * 2 for ip, _ in ips)
        events = number(1) + number(6) + b"cycles" + number(0) + number(len(ips)) + rows
        bundle, path = self.folder / "sampled.bundle", self.folder / "sampled.db"
        bundle.write_bytes(parts.joined(content[:parts.HEADER_BYTES], [*all_parts, parts.part(b"evnt", events), end]))
        self.assertEqual(run("export", "-q", "-i", bundle, "-o", path, "--tables", "calls,samples").returncode, 0)
        self.assertEqual(self.ask(path, "SELECT ip - 1, symbol FROM ptd_samples ORDER BY 1"), ips)
        self.assertEqual(self.ask(path, "SELECT DISTINCT sym_start + sym_offset - ip FROM samples JOIN symbols s ON s.id = symbol_id"), [(-0x400000,)])

    def test_names_that_are_not_utf_8(self):
        self.record("-DODD", program="same\udcff")
        for table, names in (("symbols", "name LIKE 'odd%'"), ("comms", "comm LIKE 'odd%'"), ("dsos", "short_name LIKE 'same%' AND long_name LIKE '/%/same%'")):
            self.assertEqual(self.number(self.path, f"SELECT count(*) FROM {table} WHERE {names}"), 1, table)
        self.assertEqual(self.ask(self.path, "SELECT has_calls, (SELECT count(*) FROM comm_threads WHERE comm_id = comms.id) FROM comms WHERE comm LIKE 'odd%'"), [(1, 1)])
        self.assertEqual(self.number(self.path, "SELECT count(*) FROM calls c JOIN samples s ON s.to_symbol_id = c.call_symbol_id AND s.comm_id = c.comm_id"
                                                " JOIN symbols n ON n.id = c.call_symbol_id WHERE n.name LIKE 'odd%name' AND s.branch_type = 3"), 1)


class NullCalls(Database):
    """Three calls of a null pointer."""

    def test_the_target_is_known(self):
        folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        source, path = SOURCE / "tests" / "cli" / "programs" / "null_call.c", folder / "null.db"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-no-pie", source, "-o", "null_call"], cwd=folder, check=True)
        record(folder, "null.data", "./null_call")
        self.assertEqual(run("export", "-q", "-i", folder / "null.data", "-o", path).returncode, 0)
        self.assertEqual(self.ask(path, """SELECT symbol, count(*) FROM ptd_branches WHERE "to" = 0 GROUP BY ip"""), [("main", 3)])
        self.assertEqual(self.ask(path, """SELECT flags, count, symbol FROM ptd_edges WHERE "to" = 0"""), [("call", 3, "main")])
        # Where tracing ends there is no target, where it begins there is no source.
        self.assertEqual(self.ask(path, """SELECT DISTINCT "to" FROM ptd_branches WHERE flags LIKE 'tr end%'"""), [(None,)])
        self.assertEqual(self.ask(path, "SELECT DISTINCT ip FROM ptd_branches WHERE flags = 'tr strt'"), [(None,)])


class NamesOfEvents(Database):
    """Samples of events with any name, in a bundle (docs/FORMAT.md, `evnt`)."""

    def test_samples_are_no_rows_of_the_trace(self):
        number = parts.number
        names = ["branches", "branches:u", "ptwrite", "cbr", "mwait", "pwre", "exstop", "pwrx", "cycles", "cycles"]
        samples = [index for index in range(len(names)) for _ in range(index + 1)]
        texts = b"".join(number(len(name)) + name.encode() for name in names)
        rows = b"".join(number(1) + number(0) * 3 + number(index) + number(0x1000) + number(1) + number(0) * 2 for index in samples)
        events = number(len(names)) + texts + number(0) + number(len(samples)) + rows
        with tempfile.TemporaryDirectory() as folder:
            plain, bundle, path, other = (pathlib.Path(folder) / name for name in ("plain.bundle", "named.bundle", "named.db", "plain.db"))
            self.assertEqual(run("bundle", "-q", "-i", SOURCE / "data" / "user" / "plain.bundle", "-o", plain).returncode, 0)
            content = plain.read_bytes()
            *all_parts, end = [each for _, each in parts.parts_of(content)]
            bundle.write_bytes(parts.joined(content[:parts.HEADER_BYTES], [*all_parts, parts.part(b"evnt", events), end]))
            for source, database in ((bundle, path), (plain, other)):
                done = run("export", "-q", "-i", source, "-o", database)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
            counts = [(name, index + 1) for index, name in enumerate(names)]
            by_event = "SELECT {}, count(*) FROM {} GROUP BY evsel_id ORDER BY count(*)"
            self.assertEqual(self.ask(path, by_event.format("event", "ptd_samples JOIN (SELECT id, evsel_id FROM samples) USING (id)")), counts)
            # perf's viewer looks for the event with the name "branches", up to a colon, and fails if there are two.
            listed = [(name if name == "cycles" else "samples of " + name, count) for name, count in counts]
            self.assertEqual(self.ask(path, by_event.format("event", "samples_view JOIN (SELECT id, evsel_id FROM samples) USING (id) WHERE event != 'branches'")), listed)
            self.assertEqual(self.ask(path, "SELECT name, sampled_name FROM selected_events WHERE sampled_name IS NULL"), [("branches", None)])
            for table in ("ptd_branches", "ptd_edges"):
                self.assertEqual(*(self.ask(each, f"SELECT count(*) FROM {table}") for each in (path, other)))
            self.assertEqual(self.ask(path, "SELECT name FROM sqlite_master WHERE name IN ('cbr', 'ptwrite', 'power_events_view')"), [])


class Kernel(Database):
    """The bundled kernel patches itself, switches threads and takes interrupts."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.temporary.name) / "kernel.db"
        done = run("export", "-q", "-i", KERNEL, "-o", cls.path, "--time", WINDOW)
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_rows_are_those_of_the_other_commands(self):
        words = ("-q", "-i", KERNEL, "--time", WINDOW)
        listed = functions(*words)
        self.assertEqual([(row["function"], row["calls"], row["self_ns"], row["max_ns"]) for row in listed],
                         self.ask(self.path, "SELECT function, calls, self_ns, max_ns FROM ptd_functions ORDER BY id"))
        lines = collections.Counter(" ".join(line.split()) for line in run("script", *words, "--itrace=b", "-F", "ip,addr").stdout.splitlines())
        self.assertEqual(lines, collections.Counter(text for text, in self.ask(
            self.path, """SELECT ip_hex || ' => ' || to_ip_hex FROM samples_view WHERE event = 'branches'""")))
        self.assertEqual(self.number(self.path, "SELECT count(*) FROM ptd_findings"), 0)

    def test_blocks_of_a_name_are_those_of_its_thread(self):
        path = self.path.with_name("name.db")
        self.assertEqual(run("export", "-q", "-i", KERNEL, "-o", path, "--time", WINDOW, "--tables", "blocks", "--comm", "rcu_preempt").returncode, 0)
        listed = run("script", "-q", "-i", KERNEL, "--time", WINDOW, "--comm", "rcu_preempt", "--itrace=b", "-F", "tid").stdout.split()
        tid, = {int(word) for word in listed}
        self.assertEqual(self.ask(path, "SELECT DISTINCT tid FROM ptd_blocks"), [(tid,)])
        self.assertEqual([row[1] for row in self.ask(path, "PRAGMA table_info(ptd_blocks)") if row[1] == "comm"], [])

    def test_the_database_says_what_it_is_of(self):
        facts = dict(self.ask(self.path, "SELECT key, value FROM ptd_info"))
        first, last = (text.replace(".", "").ljust(11, "0") for text in WINDOW.split(","))
        self.assertEqual({key: facts.get(key) for key in ("complete", "time", "time_first_ns", "time_last_ns", "cpu")},
                         {"complete": "1", "time": WINDOW, "time_first_ns": first, "time_last_ns": last, "cpu": None})
        path = self.path.with_name("part.db")
        words = ("--cpu", "1", "--comm", "rcu_preempt", "--tables", "calls,branches")
        self.assertEqual(run("export", "-q", "-i", KERNEL, "-o", path, "--time", WINDOW, *words).returncode, 0)
        facts = dict(self.ask(path, "SELECT key, value FROM ptd_info"))
        self.assertEqual([facts.get(key) for key in ("cpu", "comm", "tables", "tid")], ["1", "rcu_preempt", "branches,calls", None])

    def test_switches_of_a_name(self):
        path = self.path.with_name("switches.db")
        words = ("export", "-q", "-i", KERNEL, "-o", path, "--time", "24.46,24.4719", "--tables", "branches")
        self.assertEqual(run(*words).returncode, 0)
        count = self.number(path, "SELECT count(*) FROM context_switches")
        sql = "SELECT time, cpu, tid_out, tid_in, flags FROM context_switches_view"
        want = self.ask(path, sql + " WHERE 'rcu_preempt' IN (comm_out, comm_in) ORDER BY id")
        self.assertEqual(run(*words, "--comm", "rcu_preempt").returncode, 0)
        self.assertEqual(self.ask(path, sql + " ORDER BY id"), want)
        self.assertLess(0, len(want))
        self.assertLess(len(want), count)

    def test_times_rise(self):
        self.assertEqual(self.number(self.path, "SELECT count(*) FROM context_switches a JOIN context_switches b ON b.id = a.id + 1 WHERE b.time < a.time"), 0)
        self.assertGreater(self.number(self.path, "SELECT count(*) FROM context_switches"), 0)
        inner = self.number(self.path, "SELECT count(*) FROM calls c JOIN calls p ON p.id = c.parent_id WHERE c.call_time < p.call_time OR c.return_time > p.return_time")
        self.assertEqual(inner, 0)
        first, last = (float(text) * 1e9 for text in WINDOW.split(","))
        self.assertEqual(self.number(self.path, f"SELECT count(*) FROM ptd_branches WHERE time_ns NOT BETWEEN {first} AND {last}"), 0)

    def test_addresses_of_the_upper_half(self):
        self.assertRegex(self.number(self.path, "SELECT ip_hex FROM samples_view WHERE symbol = 'ftrace_lookup_ip' LIMIT 1"), "^ffffffff[0-9a-f]{8}$")


class Switches(Database):
    """perf's records of switches: OUT names the thread that comes, IN the one that went."""

    def test_times_are_those_of_the_records(self):
        data = SOURCE / "data" / "demo"
        done = subprocess.run(["perf", "script", "-i", data, "--no-itrace", "--show-switch-events", "--ns"], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest("perf is not installed")
        records = re.findall(r"(\d+) \[(\d+)\] +(\d+)\.(\d+): PERF_RECORD_SWITCH_CPU_WIDE (OUT|IN) .*pid/tid: +\d+/(\d+)", done.stdout)
        self.assertGreater(len(records), 10)
        want = sorted((int(seconds) * 10**9 + int(ns), int(cpu), *((int(tid), int(other)) if kind == "OUT" else (int(other), int(tid))), kind.lower())
                      for tid, cpu, seconds, ns, kind, other in records)
        path = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory())) / "x.db"
        self.assertEqual(run("export", "-q", "-i", data, "-o", path, "--tables", "branches").returncode, 0)
        self.assertEqual(sorted(self.ask(path, "SELECT time, cpu, tid_out, tid_in, flags FROM context_switches_view")), want)
        self.assertEqual(self.number(path, "SELECT count(*) FROM context_switches a JOIN context_switches b ON b.id = a.id + 1 WHERE b.time < a.time"), 0)


class Interrupted(unittest.TestCase):
    """Ctrl-C. When calls are decoded cannot be observed from outside: the delay is searched between too early and too late, both of which vary."""

    def export(self, folder, delay, times, recording=KERNEL):
        """Returns the exit status, and the numbers of calls and samples in the database, if there is one. Ctrl-C comes `delay` seconds after the output is open."""
        process = subprocess.Popen([PTDECODE, "export", "-q", "-i", recording, "-o", folder / "x.db"], stderr=subprocess.DEVNULL)
        while process.poll() is None and not list(folder.iterdir()):
            time.sleep(0.001)
        time.sleep(delay)
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        status = process.wait(timeout=300)
        self.assertLessEqual({path.name for path in folder.iterdir()}, {"x.db"}, "no temporary file is left")
        if not (folder / "x.db").exists():
            return status, 0, 0
        with contextlib.closing(sqlite3.connect(folder / "x.db")) as database:
            self.assertEqual(database.execute("SELECT value FROM ptd_info WHERE key = 'complete'").fetchall(), [("1" if status == 0 else "0",)])
            self.assertEqual(database.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
            there = {name for name, in database.execute("SELECT name FROM sqlite_master")}  # tables without rows are left out
            counts = [database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] if table in there else 0 for table in ("calls", "samples")]
        (folder / "x.db").unlink()
        return status, *counts

    def test_ctrl_c_ends_the_work(self):
        with tempfile.TemporaryDirectory() as folder:
            early, late = 0.0, 1.0
            for _ in range(40):
                delay = (early + late) / 2
                status, calls, samples = self.export(pathlib.Path(folder), delay, 1)
                if status == 130 and calls and not samples:
                    break
                if calls or status == 0:
                    late = max(delay, early + 0.01)
                    early *= 0.9
                else:
                    early = min(delay, late - 0.01)
                    late *= 1.1
            self.assertEqual((status, samples), (130, 0), "branches were written after Ctrl-C")
            self.assertGreater(calls, 0)
            for _ in range(3):
                self.assertEqual(self.export(pathlib.Path(folder), delay, 2)[0], 130)

    def test_tables_without_calls(self):
        """Ctrl-C ends the decoder, too, where it gives no rows."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "x.db"
            statuses = set()
            for delay in (0.01 * step for step in range(12)):
                process = subprocess.Popen([PTDECODE, "export", "-q", "-i", KERNEL, "-o", path, "--tables", "gaps"], stderr=subprocess.DEVNULL)
                while process.poll() is None and not os.listdir(folder):
                    time.sleep(0.001)
                time.sleep(delay)
                process.send_signal(signal.SIGINT)
                statuses.add(process.wait(timeout=300))
                if not path.exists():  # it had not begun
                    continue
                with contextlib.closing(sqlite3.connect(path)) as database:
                    complete = "0" if process.returncode == 130 else "1"
                    self.assertEqual(database.execute("SELECT value FROM ptd_info WHERE key = 'complete'").fetchall(), [(complete,)])
                path.unlink()
            self.assertLessEqual(statuses, {0, 130})
            self.assertIn(130, statuses, "it was over before it could be interrupted")

    def test_missing_rows_are_no_success(self):
        """Ctrl-C in every part of the work, also while branches are written."""
        with tempfile.TemporaryDirectory() as folder:
            begun = time.monotonic()
            whole = self.export(pathlib.Path(folder), 0, 0, SOURCE / "data" / "demo")
            duration = time.monotonic() - begun
            self.assertEqual(whole[0], 0)
            self.assertGreater(min(whole[1:]), 0, whole)
            statuses = set()
            for part in range(10):
                got = self.export(pathlib.Path(folder), duration * part / 10, 1, SOURCE / "data" / "demo")
                self.assertTrue(got[0] == 130 or got == whole, f"exit status {got[0]}, and rows are missing: {got} of {whole}")
                statuses.add(got[0])
            self.assertIn(130, statuses, "it was over before it could be interrupted")

    def test_an_earlier_database_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "x.db"
            statuses = set()
            for delay in (0.02 * step for step in range(1, 25)):
                output.write_bytes(b"earlier")
                process = subprocess.Popen([PTDECODE, "export", "-q", "-i", SOURCE / "data" / "demo", "-o", output], stderr=subprocess.PIPE)
                while process.poll() is None and len(list(pathlib.Path(folder).iterdir())) < 2:
                    time.sleep(0.001)
                time.sleep(delay)
                process.send_signal(signal.SIGINT)
                said = process.communicate(timeout=300)[1]
                self.assertIn(process.returncode, (0, 130), said)
                self.assertEqual(output.read_bytes() == b"earlier", process.returncode == 130, (process.returncode, said))
                statuses.add(process.returncode)
            self.assertIn(130, statuses, "it was over before it could be interrupted")


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("SKIPPED: qemu-x86_64 is not installed")
        sys.exit(77)
    unittest.main(verbosity=2)
