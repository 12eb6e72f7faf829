#!/usr/bin/env python3
"""Names in a recording that a terminal would interpret (ESC, BEL, newlines, tabs, DEL, U+009B) or that are not UTF-8: no command prints
them.

Environment: PTDECODE, PTDECODE_SOURCE.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])

# All of the same length: names of threads, of the host, of the mapped file, of dynamic kernel symbols, and in kallsyms.
NAMES = {b"demo/0-a": b"\x1b[2Ja\nb\xff", b"demo/0-b": b"\xc2\x9b2J\tcd\x7f", b"made-by-make_demo": b"\x1b]0;window title\x07",
         b"6.1.0-demo": b"6.1\n\x1b[0mme", b"ftrace_trampoline": b"\x1b[8mtrampol\xe2\x80\xae\xe2\x82\r"}
SYMBOLS = {b"hot_keys": b"\x1b[7m\xffeys", b"hot_traced": b"hot\x07tr\x08ced"}

VIEWS = [("info",), ("script",), ("script", "--itrace=b", "-F", "+comm,+sym,+symoff,+dso"), ("script", "--call-trace"), ("script", "--insn-trace"),
         ("functions", "--full-names"), ("stat",), ("check",), ("image",), ("image", "--diff", "0,40"), ("flame", "--format", "folded"), ("flame",),
         ("flame", "--format", "folded", "-o", "-"), ("flame", "--format", "folded", "-o", "/dev/stdout"), ("flame", "-o", "/dev/stdout"), ("report", "-o", "/dev/stdout"),
         ("script", "--comm", "no-such-thread"), ("functions", "--func", "no-such-function"), ("packets",), ("coverage",), ("verify", "no-such-truth")]
JSON = [("info", "--json"), ("script", "--format", "json"), ("script", "--itrace=b", "--format", "json"), ("functions", "--format", "json"),
        ("stat", "--format", "json"), ("check", "--format", "json")]


class HostileText(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.recording = pathlib.Path(cls.temporary.name) / "rec"
        shutil.copytree(SOURCE / "data/demo", cls.recording)
        for name, words in (("data", NAMES), ("kcore_dir/kallsyms", SYMBOLS)):
            path = cls.recording / name
            content = path.read_bytes()
            for plain, odd in words.items():
                assert len(plain) == len(odd) and plain in content, plain
                content = content.replace(plain, odd)
            path.chmod(0o644)
            path.write_bytes(content)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def run_it(self, *words, **options):
        return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, timeout=300, **options)

    def harmless(self, output, words):
        text = output.decode("utf-8")  # raises if it is not UTF-8
        odd = sorted({c for c in text if (c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f"})
        self.assertEqual(odd, [], words)
        return text

    def test_no_view_passes_them_on(self):
        said = ""
        for words in VIEWS:
            done = self.run_it(*words, "-i", self.recording)
            self.assertIn(done.returncode, (0, 1, 2, 3), (words, done.stderr))
            said += self.harmless(done.stdout, words) + self.harmless(done.stderr, words)
        for shown in (r"\x1b[2Ja\x0ab\xff", r"\xc2\x9b2J\x09cd\x7f", r"\x1b]0;window title\x07", r"6.1\x0a\x1b[0mme", r"\x1b[8mtrampol\xe2\x80\xae\xe2\x82\x0d",
                      r"\x1b[7m\xffeys", r"hot\x07tr\x08ced"):
            self.assertIn(shown, said)

    def test_comparisons_do_not_either(self):
        for words in (("functions", "--diff"), ("script", "--diff")):
            for other in (self.recording, SOURCE / "data" / "demo"):
                done = self.run_it(*words, self.recording, other, "--limit", 0) if words[0] == "functions" else self.run_it(*words, self.recording, other)
                self.assertIn(done.returncode, (0, 3), done.stderr)
                self.harmless(done.stdout, words), self.harmless(done.stderr, words)
        done = self.run_it("functions", "--json", "--diff", self.recording, SOURCE / "data" / "demo")
        self.assertGreater(len([json.loads(line) for line in done.stdout.splitlines()]), 2)

    def test_a_database_is_utf8(self):
        path = pathlib.Path(self.temporary.name) / "odd.db"
        done = self.run_it("export", "-q", "-i", self.recording, "-o", path, "--tables", "blocks,calls,functions,threads,branches,events,sections,versions")
        self.assertEqual((done.returncode, done.stdout), (0, b""), done.stderr)
        with contextlib.closing(sqlite3.connect(path)) as database:  # raises where a text is not UTF-8
            for table, in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall():
                database.execute(f"SELECT * FROM {table}").fetchall()
            names = [name for name, in database.execute("SELECT name FROM symbols")]
            self.assertIn("\x1b[7m\ufffdeys", names)

    def test_a_line_stays_one(self):
        for words in (("script",), ("script", "--itrace=b"), ("functions",), ("stat",), ("check",), ("flame", "--format", "folded"), ("image",)):
            counts = []
            for recording in (SOURCE / "data/demo", self.recording):
                counts.append(len(self.run_it(*words, "-q", "-i", recording).stdout.splitlines()))
            self.assertEqual(counts[0], counts[1], words)

    def test_json_is_json_and_says_the_name_itself(self):
        said = []
        for words in JSON:
            done = self.run_it(*words, "-q", "-i", self.recording)
            text = self.harmless(done.stdout, words)
            said += [json.loads(text)] if "schema" in text and text.startswith("{\n") else [json.loads(line) for line in text.splitlines()]
        comms = {thread["comm"] for thread in said[0]["threads"]}
        self.assertIn("\x1b[2Ja\nb\ufffd", comms)
        self.assertIn("\x9b2J\tcd\x7f", comms)

    def test_names_in_debug_information(self):
        """A module whose source file has a hostile name: no line is forged, on the terminal or in lcov's file."""
        demo = SOURCE / "data/demo"
        names = re.findall(r"^(\w+) t (\w+)\t\[demo\]$", (demo / "kcore_dir/kallsyms").read_text(), re.M)
        labels = {int(at, 16) - int(names[0][0], 16): name for at, name in names}
        folder = self.recording.parent / "root/lib/modules/6.1.0-demo"
        folder.mkdir(parents=True)
        text = '.file 1 "/src/a.c\\nDA:1,7\\nend_of_record\\nSF:/etc/forged.c\\033[2J"\n.text\n'
        for at in range(4096):
            text += (f".type {labels[at]}, @function\n{labels[at]}:\n" if at in labels else "") + (f".loc 1 {at // 16 + 1} 0\n" if at % 16 == 0 else "") + "nop\n"
        source = self.recording.parent / "module.s"
        source.write_text(text)
        subprocess.run([os.environ.get("CC", "cc"), "-c", "-g", source, "-o", folder / "demo.ko"], check=True)
        written = self.recording.parent / "out.info"
        root = self.recording.parent / "root"
        for words in (("script", "--itrace=b", "-F", "ip,srcline"), ("coverage",), ("coverage", "-q", "-o", "-"), ("coverage", "-q", "-o", "/dev/stdout"),
                      ("coverage", "-q", "--format", "lcov"), ("coverage", "-q", "-o", written), ("profile",), ("profile", "--dso", "no-such-file")):
            done = self.run_it(*words, "-i", demo, "--symfs", root)
            said = self.harmless(done.stdout, words) + self.harmless(done.stderr, words)
            if words[0] != "profile":
                self.assertEqual(done.returncode, 0, (words, done.stderr))
            if written in words:
                said = self.harmless(written.read_bytes(), words)
            if words[0] == "script" or "-o" in words:
                self.assertIn(r"\x0aend_of_record\x0aSF:/etc/forged.c\x1b[2J" if words[0] != "script" else r"forged.c\x1b[2J:", said)
            self.assertEqual([line for line in said.splitlines() if line.startswith(("SF:/etc", "forged", "/etc"))], [], words)
            self.assertLessEqual(said.splitlines().count("end_of_record"), 1, words)

    def test_a_file_whose_name_is_hostile(self):
        name = self.recording.parent / "\x1b[2J\nptdecode: all is well"
        for path in (name, str(name).encode() + b"\xff"):
            done = subprocess.run([PTDECODE, "stat", "-i", path], capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(len(self.harmless(done.stderr, "stat").splitlines()), 1)


if __name__ == "__main__":
    unittest.main(verbosity=1)
