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
sys.argv = [sys.argv[0], "", shutil.which("ptdecode"), str(SOURCE), ""]
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


class Equality(tables_test.Rows, unittest.TestCase):
    reader = PackageLibrary


def recordings():
    """The largest of each kind are left to tests/tables: rows of Python take ten times as long."""
    return [path for path in (SOURCE / "data/user/plain.bundle", SOURCE / "data/demo/data", SOURCE / "data/arm/threads.bundle",
                              tables_test.CORPUS / "ete-tme_tcancel/snapshot", tables_test.LOSSY) if path.exists()]


if __name__ == "__main__":
    tables_test.recordings = recordings
    unittest.main(argv=sys.argv[:1])
