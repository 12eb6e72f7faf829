#!/usr/bin/env python3
"""Coverage of optimized programs with inlined functions, against gcov without optimization and the counters of the program.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC, CXX. Exit status 77 without qemu-x86_64.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from recorded_programs import CC, CXX, PROGRAMS, RecordedPrograms  # noqa: E402

PTDECODE = os.environ["PTDECODE"]


class InlinedLines(RecordedPrograms):
    def gcov(self, compiler, source):
        """Line -> count, name without parameters -> times entered, of a program without optimization; and what the program prints."""
        place = self.folder / (source.stem + ".gcov")
        place.mkdir()
        subprocess.run([compiler, "-O0", "--coverage", source, "-o", "program"], cwd=place, check=True)
        said = subprocess.run(["./program"], cwd=place, capture_output=True, text=True, check=True).stdout
        out = subprocess.run([shutil.which("gcov") or "gcov", "--json-format", "--stdout", next(place.glob("*.gcno"))], cwd=place, capture_output=True,
                             check=True).stdout
        file = next(file for file in json.loads(out)["files"] if file["file"].endswith(source.name))
        lines, functions = collections.Counter(), collections.Counter()
        for line in file["lines"]:
            lines[line["line_number"]] += line["count"]
        for each in file["functions"]:
            functions[each["demangled_name"].split("(")[0]] += each["execution_count"]
        return lines, functions, said

    def coverage(self, compiler, optimization, source):
        """As gcov(), by `coverage`."""
        name = f"{source.stem} {os.path.basename(compiler)} {optimization}"
        self.build(name, compiler, optimization, source=source, record=["--no-stash"])
        done = subprocess.run([PTDECODE, "coverage", "-q", "-i", self.data(name), "--format", "lcov", "--source", source.resolve()], capture_output=True,
                              text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        functions = collections.Counter()
        for count, function in re.findall(r"^FNDA:(\d+),([^(\n]*)", done.stdout, re.M):
            functions[function] += int(count)
        return {int(line): int(count) for line, count in re.findall(r"^DA:(\d+),(\d+)$", done.stdout, re.M)}, functions

    def builds(self, *compilers):
        clang = [shutil.which(name) or shutil.which(name + "-14") for name in ("clang", "clang++")]
        for compiler in (*compilers, *(clang[:1] if compilers[0] == CC else clang[1:])):
            for optimization in filter(lambda _: compiler, ("-O1", "-O2", "-O3")):
                yield compiler, optimization

    def test_a_line_of_a_caller_and_its_inlined_calls_counts_once(self):
        """The statement that calls has the address of the first statement of the inlined copy."""
        source = PROGRAMS / "one_line.c"
        want, functions, said = self.gcov(CC, source)
        text = source.read_text().split("\n")

        def number(start):
            return next(i for i, line in enumerate(text, 1) if line.startswith(start))

        counters = dict(zip((number("INLINED void leaf"), number("INLINED int mid"), number("INLINED void two")), map(int, said.split())))
        self.assertEqual(list(counters.values()), [325, 210, 7])
        once = {line: 20 for line in (number("APART int outer"), number("  TWICE(k)"), number("  return clamp(k)"), number("  int r = clamp(k); "))}
        self.assertEqual({line: want[line] for line in once}, once)
        for compiler, optimization in self.builds(CC):
            got, entered = self.coverage(compiler, optimization, source)
            build = compiler, optimization
            self.assertEqual({line: got.get(line) for line in once}, once, build)
            for line, count in counters.items():  # clang merges the last call of leaf() with others
                self.assertLessEqual(got[line], count, build)
                if "clang" not in compiler:
                    self.assertEqual(got[line], count, build)
            for line in set(got) & set(want):
                if "loop(int n)" not in text[line - 1]:
                    self.assertLessEqual(got[line], max(want[line], counters.get(line, 0)), (build, text[line - 1]))
            for name in ("outer", "macro", "sum", "entry", "all", "main"):
                self.assertEqual(entered[name], functions[name], (build, name))

    def test_a_part_that_is_inlined_back_is_no_call(self):
        """GCC splits Square::area() and inlines the part after the first condition back. A destructor that deletes calls another one."""
        source = PROGRAMS / "parts.cc"
        want, functions, _ = self.gcov(CXX, source)
        self.assertEqual((functions["Square::area"], functions["Buffer::~Buffer"]), (20, 12))
        for compiler, optimization in self.builds(CXX):
            got, entered = self.coverage(compiler, optimization, source)
            line = next(i for i, text in enumerate(source.read_text().split("\n"), 1) if "int area(int x) const override" in text)
            self.assertEqual((got[line], entered["Square::area"], entered["Buffer::~Buffer"]), (want[line], 20, 12), (compiler, optimization))

    def test_a_part_with_a_symbol_of_its_own_is_no_entry(self):
        """GCC -O2 inlines the start of lookup() into its callers, which call the rest, lookup.part.0."""
        source = PROGRAMS / "part.c"
        want, functions, _ = self.gcov(CC, source)
        self.assertEqual(functions["lookup"], 20)
        for compiler, optimization in self.builds(CC):
            got, entered = self.coverage(compiler, optimization, source)
            self.assertEqual(entered["lookup"], 20, (compiler, optimization))
            loop = next(i for i, text in enumerate(source.read_text().split("\n"), 1) if "for (int i = 0; i < 64" in text)
            for line in set(got) & set(want) - {loop, loop + 1}:  # GCC merges the loop's condition with what follows
                self.assertLessEqual(got[line], want[line], (compiler, optimization, line))


class DeclaringUnits(RecordedPrograms):
    """A function's file has a number in the table of the unit that declares it: link-time optimization and dwz put that in another unit, or file."""

    HEADER = """#include <algorithm>
        #include <string>
        #include <vector>
        inline int mixed(int n) {
          for (int i = 0; i < 4; ++i) {
            n = n * 7 + i;
            asm volatile("" : : "r"(n));
          }
          return n;
        }
        inline std::vector<std::string> sorted(int n) {
          std::vector<std::string> made;
          for (int i = 0; i < n; ++i) made.push_back(std::to_string(mixed(i) % 97));
          std::sort(made.begin(), made.end());
          return made;
        }"""
    SOURCES = {"one.cc": """#include "own.h"
        int other(int n);
        int main() { return sorted(40).size() + other(30) == 70 ? 0 : 1; }""", "two.cc": """#include "own.h"
        int other(int n) { std::vector<std::string> made = sorted(n); return static_cast<int>(std::count(made.begin(), made.end(), "") + made.size()); }"""}

    def files(self, program):
        """The lines of lcov's output of the program alone: {file: {(kind, name or line): count}}."""
        data = program.with_suffix(".data")
        subprocess.run([PTDECODE, "record", "--emulate", "-q", "--no-stash", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", data, "--", program], check=True)
        done = subprocess.run([PTDECODE, "coverage", "-q", "-i", data, "--dso", program.name, "--format", "lcov", "--keep-absent"], capture_output=True, text=True, check=True)
        files = {}
        for line in done.stdout.splitlines():
            kind, _, rest = line.partition(":")
            if kind == "SF":
                file = files.setdefault(rest, {})
            elif kind == "FNDA":
                count, _, name = rest.partition(",")
                file[kind, name] = int(count)
            elif kind == "DA":
                number, count = rest.split(",")
                file[kind, int(number)] = int(count)
        return files

    @staticmethod
    def places(files):
        return {(name.split("(")[0], path) for path, counts in files.items() for kind, name in counts if kind == "FNDA"}

    @unittest.skipUnless(shutil.which("dwz"), "no dwz")
    def test_functions_are_in_their_files(self):
        (self.folder / "own.h").write_text(self.HEADER)
        for name, text in self.SOURCES.items():
            (self.folder / name).write_text(text)
        for name, flags in (("plain", ()), ("lto", ("-flto",))):
            subprocess.run([CXX, "-O2", "-g", *flags, *self.SOURCES, "-o", name], cwd=self.folder, check=True)
        for name in ("own", "common", "common2"):
            shutil.copy(self.folder / "plain", self.folder / name)
        subprocess.run(["dwz", "own"], cwd=self.folder, check=True)
        subprocess.run(["dwz", "-m", "shared.debug", "common", "common2"], cwd=self.folder, check=True)
        self.assertTrue((self.folder / "shared.debug").exists())
        plain = self.files(self.folder / "plain")
        self.assertIn(("mixed", str(self.folder / "own.h")), self.places(plain))
        self.assertEqual(plain[str(self.folder / "own.h")]["FNDA", "mixed(int)"], 70)
        for name in ("own", "common"):
            with self.subTest(name=name):
                self.assertEqual(self.files(self.folder / name), plain)
        lto = self.places(self.files(self.folder / "lto"))
        both = {name for name, _ in lto} & {name for name, _ in self.places(plain)}
        self.assertIn("mixed", both)
        self.assertEqual({place for place in lto if place[0] in both}, {place for place in self.places(plain) if place[0] in both})


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("skipped: qemu-x86_64 is not installed")
        sys.exit(77)
    unittest.main(verbosity=2)
