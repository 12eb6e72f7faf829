"""Branches, gaps, calls and functions as Python rows, against the JSON of the command line: the tests of tests/tables with the package in place of
ctypes. Recordings: Intel PT of a user program and of a kernel, ETMv4, ETE (in the corpus), and one with losses.

usage: equality.py SOURCE     (needs the installed package, and its `ptdecode` on PATH)
"""
import pathlib
import shutil
import sys
import unittest

import ptdecode

SOURCE = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(SOURCE / "tests" / "tables"))
sys.argv = [sys.argv[0], "", shutil.which("ptdecode"), str(SOURCE)]
import tables_test  # noqa: E402


class PackageLibrary:
    """What the tests use of arrow_reader.Library."""

    @staticmethod
    def open(path):
        return ptdecode.open(path)

    @staticmethod
    def close(recording):
        recording.close()

    @staticmethod
    def rows(recording, name, columns=None):
        table = recording.table(name, columns=columns, progress=False)
        return [{column: value for column, value in zip(table.columns, row) if value is not None} for row in table]


class Equality(tables_test.Tables):
    @classmethod
    def setUpClass(cls):
        cls.library = PackageLibrary


if __name__ == "__main__":
    NAMES = ("test_branches", "test_gaps", "test_calls", "test_functions")
    done = unittest.TextTestRunner(verbosity=1).run(unittest.TestSuite(Equality(name) for name in NAMES))
    sys.exit(0 if done.wasSuccessful() and done.testsRun == len(NAMES) else 1)
