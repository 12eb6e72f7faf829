"""Programs of tests/cli/programs, built and recorded with their ground truth for the tests of a class.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC, CXX.
"""
import functools
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

PROGRAMS = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "tests" / "cli" / "programs"
CC, CXX = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")


@functools.cache
def source_line(place):
    path, line = place.split(" (disc")[0].rsplit(":", 1)
    if not line.isdigit() or not os.path.isfile(path):
        return ""
    return (pathlib.Path(path).read_text(errors="replace").split("\n") + [""] * int(line))[int(line) - 1].strip()


def short_name(name):
    while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)| const$", "", name)) != name:
        name = shorter
    return name.split("::")[-1].lstrip("~")


def without_parts(names, places):
    """Names and places of addr2line, innermost first, without the calls of parts that GCC splits off a function and inlines back (-fpartial-inlining). They
    are not in the source: their place is the function's declaration, where a recursive call is a statement."""
    def is_part(i):
        line = source_line(places[i])
        return i > 0 and names[i] == names[i - 1] and not line.endswith(";") and re.search(rf"{re.escape(short_name(names[i]))}\(", line)

    kept = [i for i in range(len(names)) if not is_part(i)]
    return [names[i] for i in kept], [places[i] for i in kept]


class RecordedPrograms(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def build(cls, name, compiler, *flags, source=None, record=()):
        """Builds folder/NAME from programs/SOURCE.c*, or a path, and records it as NAME.data with NAME.truth. `record`: more options of `record
        --emulate`."""
        path = source if isinstance(source, pathlib.Path) else next(PROGRAMS.glob((source or name) + ".c*"))
        subprocess.run([compiler, "-g", *flags, path, "-o", name], cwd=cls.folder, check=True)
        done = subprocess.run([os.environ["PTDECODE"], "record", "--emulate", *record, "--plugin", os.environ["PTDECODE_PLUGIN"], "--truth", name + ".truth",
                               "-o", name + ".data", "--", "./" + name], cwd=cls.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def data(self, name):
        return self.folder / (name + ".data")

    def truth_file(self, name):
        """Returns the ground truth of the program's only thread."""
        return next((self.folder / (name + ".truth")).glob("*.ptt"))
