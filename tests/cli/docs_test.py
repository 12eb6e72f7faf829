#!/usr/bin/env python3
"""Runs every command of docs/HUNT.md and docs/FIRST-COMMANDS.md on a new recording of the document's program. Each command must print the
program's functions and the messages of ptdecode that the document shows, and each picture in the document must be one that a command draws.
`docs_test.py write` puts the outputs and the pictures of such a run into the documents.

Times, threads and process numbers differ between recordings. Where a document copies them from one output into the next command, the test
copies them from the output of its own run.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PTDECODE = pathlib.Path(os.environ["PTDECODE"])
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
DOCUMENTS = {"HUNT.md": ("shopdb", "-O1"), "FIRST-COMMANDS.md": ("sorter", "-O2")}
LINES, COLUMNS = 24, 150
WIDE_PIXELS = 20


def blocks(text):
    """Returns (command, output lines) of each block that starts with '$ '."""
    for body in re.findall(r"^```\n\$ (.*?)^```$", text, re.M | re.S):
        lines = body.rstrip("\n").split("\n")
        yield lines[0], lines[1:]


def pictures(text):
    """Returns the SVG files in the document's folder that it shows."""
    return set(re.findall(r"!\[[^\]]*\]\(([\w-]+\.svg)\)", text))


def frames(path):
    """Returns the functions that a flame graph shows, with the width of each in pixels."""
    return {name: float(width) for name, width in re.findall(r'data-n="([^"]+)" data-x="[^"]+" data-w="([^"]+)"', path.read_text())}


class Walk:
    """The folder in which the commands of one document run, with the document's program."""

    def __init__(self, folder, program, level):
        self.folder = pathlib.Path(folder)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        (self.bin / "ptdecode").symlink_to(PTDECODE)
        compiler = shutil.which(os.environ.get("CC", "cc"))
        (self.bin / "cc").symlink_to(compiler)
        shutil.copy(SOURCE / "tests" / "cli" / "programs" / (program + ".c"), self.folder)
        subprocess.run([compiler, "-g", level, "-fno-inline", "-w", "-static", program + ".c", "-o", program], cwd=folder, check=True)
        self.own = {}  # the document's numbers -> this run's numbers

    def run(self, command):
        for there, here in sorted(self.own.items(), key=lambda each: -len(each[0])):
            command = re.sub(rf"(?<![\w.]){re.escape(there)}(?![\w.])", here, command)
        command = command.replace("record --emulate", f"record --emulate --plugin {os.environ['PTDECODE_PLUGIN']}")
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "DEBUGINFOD_URLS": "", "PTDECODE_STASH": "off"}
        done = subprocess.run(command, shell=True, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, (done.stdout + done.stderr).rstrip("\n").split("\n")

    def learn(self, shown, got):
        """Maps the threads and times in the document's lines to those in the same lines of this run."""
        pattern = re.compile(r"--tid (\d+) --time ([\d.]+),([\d.]+)$")
        pairs = list(zip(filter(None, map(pattern.search, shown)), filter(None, map(pattern.search, got))))
        for there, here in reversed(pairs):  # two lines may share a number: the first one counts
            self.own.update(zip(there.groups(), here.groups()))


def branches(lines):
    """Returns the branches (name, target's name) of a listing. `[unknown]` and bare addresses count as a name."""
    return {found.groups() for found in (re.search(r"[0-9a-f]{6,} (\S+?)(?:\+0x\w+)?(?: \S+:\d+)? => +[0-9a-f]+ (\S+?)(?:\+0x\w+)?(?: |$)", line) for line in lines) if found}


def depths_of_main(lines):
    """Returns the columns at which a tree of calls shows main."""
    return {line.index("main") for line in lines if re.search(r":  .* main \{ ", line)}


def plain(line):
    return re.sub(r"\d+(\.\d+)?", "N", line)


class Docs(unittest.TestCase):
    def walk(self, document):
        program, level = DOCUMENTS[document]
        source = (SOURCE / "tests" / "cli" / "programs" / (program + ".c")).read_text()
        functions = set(re.findall(r"^[\w ]+[ *](\w+)\([^;]*\) \{$", source, re.M))
        self.assertGreater(len(functions), 1)
        with tempfile.TemporaryDirectory() as folder:
            walk = Walk(folder, program, level)
            count = 0
            document_text = (SOURCE / "docs" / document).read_text()
            for command, shown in blocks(document_text):
                self.assertNotEqual(shown, [""], command)
                status, got = walk.run(command)
                self.assertIn(status, (0, 2), (command, got))
                text = "\n".join(got)
                self.assertEqual(status, 2 if any("see 'ptdecode --help'" in line for line in shown) else status, command)
                # The top of a list depends on the machine, and so do the slowest call and its first instructions.
                self.assertTrue(not shown or text, command)
                if "--limit" not in command and not ("--insn-trace" in command and "--time" in command):
                    for name in functions & set(re.findall(r"\w+", "\n".join(shown))):
                        self.assertRegex(text, rf"\b{name}\b", command)
                self.assertLessEqual(branches(shown), branches(got), command)
                self.assertLessEqual(depths_of_main(shown), depths_of_main(got), command)
                said = [plain(line) for line in got]
                for line in shown:
                    if line.startswith("ptdecode: ") and line != "...":
                        self.assertIn(plain(line), said, command)
                for made in re.findall(r" -o (\S+)", command):
                    self.assertGreater((walk.folder / made).stat().st_size, 1000, command)
                walk.learn(shown, got)
                count += 1
            self.assertGreater(count, 7)
            self.assertTrue(pictures(document_text))
            for picture in pictures(document_text):
                drawn = frames(walk.folder / picture)
                # Whether narrow frames appear depends on the machine's speed.
                wide = {name for name, width in frames(SOURCE / "docs" / picture).items() if width > WIDE_PIXELS and name in functions}
                self.assertGreater(len(wide), 1, picture)
                self.assertLessEqual(wide, drawn.keys(), picture)

    def test_the_hunt(self):
        self.walk("HUNT.md")

    def test_the_first_commands(self):
        self.walk("FIRST-COMMANDS.md")


def write(document):
    program, level = DOCUMENTS[document]
    path = SOURCE / "docs" / document
    text = path.read_text()
    with tempfile.TemporaryDirectory() as folder:
        walk = Walk(folder, program, level)
        for command, shown in blocks(text):
            _, got = walk.run(command)
            walk.learn(shown, got)
            words = command
            for there, here in sorted(walk.own.items(), key=lambda each: -len(each[0])):
                words = re.sub(rf"(?<![\w.]){re.escape(there)}(?![\w.])", here, words)
            got = [] if got == [""] else got
            kept = [line.replace(folder, "~")[:COLUMNS].rstrip() for line in got[:LINES]] + (["..."] if len(got) > LINES else [])
            old = "\n".join(["$ " + command, *shown])
            text = text.replace("```\n" + old + "\n```", "```\n" + "\n".join(["$ " + words, *kept]) + "\n```", 1)
        for picture in pictures(text):
            shutil.copy(walk.folder / picture, path.parent)
    path.write_text(text)


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    if sys.argv[1:2] == ["write"]:
        for each in sys.argv[2:] or DOCUMENTS:
            write(each)
    else:
        unittest.main(verbosity=2)
