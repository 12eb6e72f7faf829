"""Programs of tests/cli/programs, built and recorded with their ground truth for the tests of a class.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC, CXX.
"""
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAMS = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "tests" / "cli" / "programs"
CC, CXX = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")


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
