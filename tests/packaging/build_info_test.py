#!/usr/bin/env python3
"""`ptdecode --version` and ptd_build_info() against git, pkg-config and CMakeLists.txt. Usage: build_info_test.py SOURCE PTDECODE LIBRARY

The commit is also checked in small trees of the test's own: a work tree, one with changes, a tarball of `git archive`, and a tree that is not of git.
"""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, PTDECODE, LIBRARY = map(pathlib.Path, sys.argv[1:4])
# Name printed -> pkg-config's name, how many numbers both have.
LIBRARIES = {"elfutils": ("libdw", 2), "OpenSSL": ("libcrypto", 3), "zstd": ("libzstd", 3), "liblzma": ("liblzma", 3), "Capstone": ("capstone", 2), "nlohmann-json": ("nlohmann_json", 3),
             "CLI11": ("CLI11", 3), "fmt": ("fmt", 3), "SQLite": ("sqlite3", 3),
             "zlib": ("zlib", 3)}
NO_PKG_CONFIG = {"Zydis", "OpenCSD"}


def run(*words, **more):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=True, **more).stdout


def facts(text):
    return dict(line.split(" ", 1) for line in text.splitlines())


def numbers(version, count):
    return tuple(int(part) for part in re.findall(r"\d+", version)[:count])


class Printed(unittest.TestCase):
    def setUp(self):
        self.printed = facts(run(PTDECODE, "--version"))

    def test_version(self):
        self.assertEqual(re.search(r"project\(ptdecode VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text()).group(1), self.printed["ptdecode"])

    def test_libraries(self):
        self.assertEqual({"ptdecode", "commit", *LIBRARIES, *NO_PKG_CONFIG}, self.printed.keys())
        for name, (package, count) in LIBRARIES.items():
            if shutil.which("pkg-config") and subprocess.run(["pkg-config", "--exists", package], check=False).returncode == 0:
                self.assertEqual(numbers(run("pkg-config", "--modversion", package), count), numbers(self.printed[name], count), name)
        for name in NO_PKG_CONFIG:
            self.assertRegex(self.printed[name], r"^\d+\.\d+\.\d+$", name)

    def test_programs_link_what_is_listed(self):
        """Libraries that the program loads, other than those of the compiler, are listed."""
        known = {"libdw": "elfutils", "libelf": "elfutils", "libcrypto": "OpenSSL", "libzstd": "zstd", "liblzma": "liblzma", "libZydis": "Zydis", "libcapstone": "Capstone",
                 "libopencsd_c_api": "OpenCSD", "libopencsd": "OpenCSD", "libfmt": "fmt", "libsqlite3": "SQLite",
                 "libz": "zlib"}
        compiler = {"libstdc++", "libgcc_s", "libm", "libc", "ld-linux-x86-64", "libasan", "libubsan", "libtsan"}
        needed = {name.partition(".so")[0].split("-0.")[0] for name in re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", PTDECODE))}
        self.assertTrue(needed)
        self.assertEqual(set(), {name for name in needed - compiler if known.get(name) not in self.printed})

    def test_the_c_function_says_the_same(self):
        if "san" in run("readelf", "-d", LIBRARY):
            self.skipTest("the interpreter cannot load a library with a sanitizer")
        library = ctypes.CDLL(str(LIBRARY))
        library.ptd_build_info.restype = ctypes.c_char_p
        text = library.ptd_build_info().decode()
        self.assertTrue(text.endswith("\n"))
        self.assertEqual({name: value for name, value in self.printed.items() if name not in ("CLI11", "fmt", "SQLite", "zlib")}, facts(text))

    def test_commit(self):
        known = (SOURCE / "cmake/commit.txt").read_text().strip()
        if not known.startswith("$"):
            self.assertEqual(known, self.printed["commit"])
        elif shutil.which("git") and subprocess.run(["git", "-C", SOURCE, "rev-parse"], capture_output=True, check=False).returncode == 0 and (SOURCE / ".git").exists():
            # The commit of the last build, which need not be HEAD.
            commit = self.printed["commit"].removesuffix("-dirty")
            self.assertEqual("commit", run("git", "-C", SOURCE, "cat-file", "-t", commit).strip())
        else:
            self.assertRegex(self.printed["commit"], r"^([0-9a-f]{40}(-dirty)?|unknown)$")


@unittest.skipUnless(shutil.which("git"), "git is not installed")
class Commit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name).resolve()
        self.tree, self.output = self.work / "tree", self.work / "commit.cc"
        (self.tree / "cmake").mkdir(parents=True)
        for name in ("cmake/commit.cmake", ".gitattributes"):
            shutil.copy(SOURCE / name, self.tree / name)
        (self.tree / "cmake/commit.txt").write_text("$Format:" + "%H$\n")
        self.git("init", "-q")
        self.commit = self.committed()

    def git(self, *words, cwd=None):
        names = {f"GIT_{who}_{what}": "test@test.invalid" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        return run("git", *words, cwd=cwd or self.tree, env={**os.environ, **names, "GIT_CONFIG_GLOBAL": "/dev/null"}).strip()

    def committed(self):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "a commit")
        return self.git("rev-parse", "HEAD")

    def written(self, tree=None, *words):
        run("cmake", f"-DSOURCE={tree or self.tree}", f"-DOUTPUT={self.output}", *words, "-P", (tree or self.tree) / "cmake/commit.cmake")
        return re.search(r'kCommit = "(.*)";', self.output.read_text()).group(1)

    def test_of_a_work_tree(self):
        self.assertEqual(self.commit, self.written())
        os.utime(self.output, ns=(1, 1))
        self.assertEqual(self.commit, self.written())
        self.assertEqual(1, self.output.stat().st_mtime_ns, "an equal file is written again, so each build would link again")
        second = self.committed()
        self.assertNotEqual(self.commit, second)
        self.assertEqual(second, self.written())

    def test_changes(self):
        (self.tree / "untracked").write_text("no part of the source")
        self.assertEqual(self.commit, self.written())
        with open(self.tree / ".gitattributes", "a", encoding="utf-8") as file:
            file.write("# changed\n")
        self.assertEqual(self.commit + "-dirty", self.written())

    def test_of_a_tarball(self):
        unpacked = self.work / "unpacked"
        unpacked.mkdir()
        self.git("archive", "-o", self.work / "tree.tar", "HEAD")
        run("tar", "xf", self.work / "tree.tar", "-C", unpacked)
        self.assertEqual(self.commit, self.written(unpacked))
        self.git("init", "-q", cwd=unpacked)  # as a packager does
        self.assertEqual(self.commit, self.written(unpacked))

    def test_of_a_copy_in_a_work_tree_of_another_project(self):
        copy = self.tree / "copy"
        shutil.copytree(self.tree / "cmake", copy / "cmake")
        self.assertEqual("unknown", self.written(copy))

    def test_given(self):
        self.assertEqual("1.2-3", self.written(None, "-DCOMMIT=1.2-3"))
        self.assertEqual("unknown", self.written(None, '-DCOMMIT=a"b'))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
