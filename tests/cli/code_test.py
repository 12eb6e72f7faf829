#!/usr/bin/env python3
"""The executed code of small programs: lines and inlined functions against addr2line, coverage against gcov of the same run, branches and
straight runs against the ground truth, and perf2bolt as a reader.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC, CXX. Exit status 77 without qemu-x86_64.
"""
import bisect
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
import call_replay  # noqa: E402
from recorded_programs import CC, CXX, PROGRAMS, RecordedPrograms, without_parts  # noqa: E402

PTDECODE = os.environ["PTDECODE"]


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=900)


class Code(RecordedPrograms):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.build("covered", CC, "-O1", "--coverage", "-static")
        cls.build("inlined", CXX, "-O2", "-no-pie")
        cls.build("longer", CXX, "-O2", "-no-pie", "-DITEMS=1000", source="inlined")
        cls.build("sorter", CC, "-O2", "-fno-inline", "-w", "-static")

    def test_lines_and_inlined_functions_are_those_of_addr2line(self):
        done = run("script", "-i", self.data("inlined"), "--itrace=i1i", "-F", "ip,dso,srcline", "-q")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        module = f"({self.folder / 'inlined'})"
        told = {int(line.split()[0], 16): line.split(module, 1)[1].strip() for line in done.stdout.splitlines() if module in line}
        addresses = sorted(told)
        out = subprocess.run(["addr2line", "-e", self.folder / "inlined", "-a", "-i", "-f", "-C", *map(hex, addresses)], capture_output=True, text=True,
                             check=True).stdout.splitlines()
        want, at = {}, None
        for line in out:
            if re.fullmatch(r"0x[0-9a-f]{16}", line):
                at = want.setdefault(int(line, 16), [])
            else:
                at.append(line)
        lines = deepest = 0
        for address in addresses:
            names, places = without_parts(want[address][0::2], want[address][1::2])
            places = [os.path.basename(place.split(" (disc")[0]) for place in places]
            if not re.search(r":[1-9]\d*$", places[0]):  # the C run-time: its assembler code has no lines
                self.assertEqual(told[address], "", hex(address))
                continue
            lines += 1
            deepest = max(deepest, len(places))
            self.assertEqual(re.findall(r"[\w.+]+:\d+\b", told[address]), places, hex(address))
            self.assertEqual(told[address].count(" inlined at "), len(places) - 1)
            for name in names[:-1]:  # all except the outermost are printed without their arguments
                if "operator" in name:
                    continue
                while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)| const$", "", name)) != name:
                    name = shorter
                self.assertIn(name.split("::")[-1] + " inlined at", told[address], hex(address))
        self.assertGreater(lines, 400)
        self.assertGreater(deepest, 4)

    def gcov(self):
        notes = next(self.folder.glob("*.gcno"))
        out = subprocess.run([shutil.which("gcov") or "gcov", "--json-format", "--stdout", notes], cwd=self.folder, capture_output=True, check=True).stdout
        counts = collections.Counter()
        for file in json.loads(out)["files"]:
            for line in file["lines"]:
                counts[line["line_number"]] += line["count"]
        return counts

    def test_coverage_is_gcovs_of_the_same_run(self):
        want = self.gcov()
        info = self.folder / "run.info"
        done = run("coverage", "-i", self.data("covered"), "-o", info, "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = info.read_text()
        record = next(record for record in text.split("end_of_record") if "/covered.c\n" in record)
        got = {int(line): int(count) for line, count in re.findall(r"^DA:(\d+),(\d+)$", record, re.M)}
        source = (PROGRAMS / "covered.c").read_text().split("\n")
        both = set(want) & set(got)
        self.assertGreater(len(both), 35)
        self.assertEqual({line: got[line] != 0 for line in both}, {line: want[line] != 0 for line in both})
        self.assertGreater(sum(want[line] == 0 for line in both), 8)
        # gcov adds the blocks of a line, we take the most executed statement: loops and choices on one line differ.
        for line in both:
            if not re.search(r"\b(for|while)\b|\?", source[line - 1]):
                self.assertEqual(got[line], want[line], source[line - 1])
        # Labels have no code, closing braces no statement. GCC 14 gives none to a condition that it merges into the one before.
        dump = subprocess.run(["readelf", "--debug-dump=decodedline", "covered"], cwd=self.folder, capture_output=True, text=True).stdout
        statements = {int(line) for line in re.findall(r"^covered\.c +(\d+) +0x[0-9a-f]+(?: +\d+)? +x *$", dump, re.M)}
        self.assertGreater(len(statements), 35)
        for line in set(want) - both:
            self.assertNotIn(line, statements)
            self.assertRegex(source[line - 1], r"^\s*(case \d+:|default:|if \(value > high\))$")
        for line in set(got) - both:
            self.assertEqual(source[line - 1], "}")
        self.assertIn(f"LF:{len(got)}\nLH:{sum(count != 0 for count in got.values())}\n", record)
        self.assertIn("FNDA:0,never\n", record)
        self.assertIn(f"FNDA:{want[next(i for i, text in enumerate(source, 1) if text.startswith('int classify'))]},classify\n", record)

    def test_lines_without_optimization_are_gcovs(self):
        """Also of clang, which marks a loop's condition as no statement of its own."""
        cc, clang = os.environ.get("CC", "cc"), shutil.which("clang") or shutil.which("clang-14")
        for name in ("covered", "sorter", "shopdb"):
            source, place = PROGRAMS / (name + ".c"), self.folder / ("lines " + name)
            place.mkdir()
            subprocess.run([cc, "-O0", "-g", "--coverage", "-o", "counted", source], cwd=place, check=True)
            subprocess.run(["./counted"], cwd=place, check=True, stdout=subprocess.DEVNULL)
            out = subprocess.run([shutil.which("gcov") or "gcov", "--json-format", "--stdout", next(place.glob("*.gcno"))], cwd=place, capture_output=True,
                                 check=True).stdout
            want = {line["line_number"]: line["count"] for file in json.loads(out)["files"] for line in file["lines"]}
            for compiler in filter(None, (cc, clang)):
                subprocess.run([compiler, "-O0", "-g", "-o", "plain", source], cwd=place, check=True)
                done = run("record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", place / "data", "--", place / "plain")
                self.assertEqual(done.returncode, 0, done.stderr)
                text = run("coverage", "-q", "-i", place / "data", "--format", "lcov", "--source", source.resolve()).stdout
                got = {int(line): int(count) for line, count in re.findall(r"^DA:(\d+),(\d+)$", text, re.M)}
                both = set(want) & set(got)
                self.assertGreater(len(both), 12)
                self.assertEqual({line: got[line] for line in both}, {line: want[line] for line in both}, (name, compiler))

    def test_loops_within_one_line(self):
        """GCC marks only their first part as a statement if they have no columns. Against gcov, and of an array's elements against the source."""
        place = self.folder / "one line"
        place.mkdir()
        sources = {"gcc": ("loop.c", ["-gno-column-info"], "#include <stdio.h>\nint values[1000];\nint main(void) {\n  int i = 1000, sum = 0;\n"
                           "  do sum += values[--i] + 1; while (i);\n  return sum != 1000;\n}\n"),
                   "gfortran": ("array.f90", [], "program p\n real :: a(50,40)\n integer :: i, n = 0\n a = 1\n do i = 1, 5\n  n = n + i\n end do\n"
                                " if (n /= 15 .or. a(3,3) /= 1) stop 1\nend program\n")}
        for compiler, (name, options, text) in sources.items():
            if not shutil.which(compiler):
                continue
            (place / name).write_text(text)
            subprocess.run([compiler, "-O0", "-g", "--coverage", "-o", "counted", name], cwd=place, check=True)
            subprocess.run(["./counted"], cwd=place, check=True)
            out = subprocess.run(["gcov", "--json-format", "--stdout", next(place.glob(f"*{pathlib.Path(name).stem}.gcno"))], cwd=place, capture_output=True, check=True).stdout
            want = {line["line_number"]: line["count"] for file in json.loads(out)["files"] for line in file["lines"]}
            subprocess.run([compiler, "-O0", "-g", *options, "-o", "plain", name], cwd=place, check=True)
            done = run("record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", place / "data", "--", place / "plain")
            self.assertEqual(done.returncode, 0, done.stderr)
            text = run("coverage", "-q", "-i", place / "data", "--format", "lcov", "--source", place.resolve()).stdout
            got = {int(line): int(count) for line, count in re.findall(r"^DA:(\d+),(\d+)$", text, re.M)}
            if compiler == "gcc":
                self.assertEqual((got[5], want[5]), (1000, 1000))
            else:  # the condition of the inner loop, for 40 columns of 50 elements; gcov adds up the loops
                self.assertEqual((got[4], want[4]), (40 * (50 + 1), 1 + 40 + 40 * 50))
                self.assertEqual((got[5], want[5]), (6, 6))

    def test_a_statement_goes_on_after_line_0(self):
        """clang gives padding and what it inserts line 0, and what follows is no new statement."""
        clang, place = shutil.which("clang") or shutil.which("clang-14"), self.folder / "back"
        if not clang:
            self.skipTest("no clang")
        place.mkdir()
        (place / "back.c").write_text('__attribute__((noinline)) int f(int x, int y) {\n  __asm__ volatile("" : : "r"(x));\n  return x + y;\n}\nint main(int c, char** v) {\n'
                                      "  int sum = 0, last = f(c, 0); for (int i = 0; i < 1000; i++) sum += f(3, i >= 1000 - last ? 200 : 1);\n  return sum == 0;\n}\n")
        for optimization in ("-O1", "-O2"):
            subprocess.run([clang, optimization, "-g", "-o", "back", "back.c"], cwd=place, check=True)
            done = run("record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", place / "data", "--", place / "back")
            self.assertEqual(done.returncode, 0, done.stderr)
            text = run("coverage", "-q", "-i", place / "data", "--format", "lcov", "--source", place.resolve()).stdout
            got = {int(line): int(count) for line, count in re.findall(r"^DA:(\d+),(\d+)$", text, re.M)}
            self.assertEqual((got[2], got[6], got[7]), (1001, 1000, 1), optimization)

    def test_a_lines_count_is_that_of_its_most_executed_statement(self):
        """Against the ground truth and readelf's line table."""
        counts = collections.Counter()
        for path in (self.folder / "sorter.truth").glob("*.ptt"):
            for what, insns in call_replay.truth_blocks(path):
                counts.update(ip for ip, _ in (insns if what == "run" else ()))
        dump = subprocess.run(["readelf", "--debug-dump=decodedline", "sorter"], cwd=self.folder, capture_output=True, text=True).stdout
        rows = [(int(address, 16), int(line), bool(statement)) for line, address, statement in
                re.findall(r"^sorter\.c +(\d+) +(0x[0-9a-f]+)(?: +\d+)?( +x)? *$", dump, re.M)]
        self.assertGreater(sum(not statement for _, _, statement in rows), 20)
        symbols = call_replay.Symbols(self.folder / "sorter")
        ends = sorted({address for address, _, _ in rows} | {int(address, 16) for address in re.findall(r"^sorter\.c +- +(0x[0-9a-f]+)", dump, re.M)})
        most = collections.defaultdict(int)
        for address, line, statement in rows:
            end = ends[bisect.bisect_right(ends, address)] if address < ends[-1] else address + 1
            place, times = (line, symbols.start(address)), max([0, *(count for ip, count in counts.items() if address <= ip < end)])
            if statement:
                most[place] = max(most[place], times)
        want = collections.Counter()
        for place, times in most.items():
            want[place[0]] += times
        text = run("coverage", "-q", "-i", self.data("sorter"), "--format", "lcov", "--keep-absent").stdout
        record = next(record for record in text.split("end_of_record") if "/sorter.c\n" in record)
        self.assertEqual({int(line): int(count) for line, count in re.findall(r"^DA:(\d+),(\d+)$", record, re.M)}, dict(want))

    ROUTINES = r"""
#include <coroutine>
#include <cstdio>
struct Numbers {
  struct promise_type {
    int value = 0;
    Numbers get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(int next) {
      value = next;
      return {};
    }
    void return_void() {}
    void unhandled_exception() {}
  };
  std::coroutine_handle<promise_type> handle;
};
static Numbers count_to(int last) {
  for (int i = 0; i < last; ++i)
    co_yield i;
}
static inline int twice(int x) {
  return 2 * x;
}
static inline int unused(int x) {
  return std::printf("%d\n", 3 * x);
}
int main(int argc, char**) {
  auto add = [](int a, int b) {
    return a + b;
  };
  auto count = [](int a, int) {
    return a + 1;
  };
  int sum = argc > 5 ? unused(argc) : 0;
  Numbers numbers = count_to(9);
  while (numbers.handle.resume(), !numbers.handle.done())
    sum = count(add(sum, twice(numbers.handle.promise().value)), 0);
  numbers.handle.destroy();
  std::printf("%d\n", sum);
}
"""

    def functions_of_gcov(self, source):
        """Name -> (line, times entered) of the functions of a program without optimization: no other build counts functions that are inlined."""
        place = self.folder / (source.stem + ".gcov")
        place.mkdir()
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-O0", "--coverage", source, "-o", "program"], cwd=place, check=True)
        subprocess.run(["./program"], cwd=place, capture_output=True, check=True)
        notes = next(place.glob("*.gcno"))
        out = subprocess.run([shutil.which("gcov") or "gcov", "--json-format", "--stdout", notes], cwd=place, capture_output=True, check=True).stdout
        file = next(file for file in json.loads(out)["files"] if file["file"].endswith(source.name))
        return {each["demangled_name"]: (each["start_line"], each["execution_count"]) for each in file["functions"]}

    def functions_of_coverage(self, path, optimization):
        """Name -> (line, times entered). Without parameters: DWARF has none for a static function."""
        name = path.stem + optimization
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-g", optimization, path, "-o", name], cwd=self.folder, check=True)
        done = subprocess.run([PTDECODE, "record", "--emulate", "-q", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", name + ".data", "--", "./" + name],
                              cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = run("coverage", "-q", "-i", self.data(name), "--format", "lcov", "--dso", name, "--keep-absent").stdout
        self.assertEqual(re.findall(r"^FN:0,.*", text, re.M), [])
        record = next(record for record in text.split("end_of_record") if path.name + "\n" in record)
        lines = re.findall(r"^FN:(\d+),(.*)$", record, re.M)
        counts = {name: int(count) for count, name in re.findall(r"^FNDA:(\d+),(.*)$", record, re.M)}
        self.assertEqual(sorted(counts), sorted({name for _, name in lines}))
        return {name: (int(line), counts[name]) for line, name in lines}

    def test_functions_of_coverage_are_gcovs(self):
        """Without optimization, each function has the line and the count of gcov. With it, inlined functions are hit if they ran."""
        (self.folder / "routines.cc").write_text(self.ROUTINES)
        for path, least in ((self.folder / "routines.cc", 10), (PROGRAMS / "inlined.cc", 7)):
            gcov = self.functions_of_gcov(path)
            want = {re.sub(r"\(.*", "", name) if "::" not in name else name: value for name, value in gcov.items() if "main::{lambda" not in name}
            for name, (line, count) in gcov.items():
                if "main::{lambda" in name:
                    want[f"operator():{line}"] = (line, count)
            self.assertGreaterEqual(len(want), least)
            plain, optimized = (self.functions_of_coverage(path, optimization) for optimization in ("-O0", "-O2"))
            if path.stem == "routines":  # the body of the coroutine has its name, and each resumption enters it
                self.assertGreater(plain["count_to"][1], 10)
                self.assertEqual(plain.pop("count_to")[0], want["count_to"][0])
            self.assertEqual({name: plain[name] for name in plain if name in want}, {name: want[name] for name in plain if name in want})
            self.assertLessEqual(set(want) - set(plain), {"count_to"})
            self.assertGreaterEqual(len(set(optimized) & set(want)), 4)
            for name in set(optimized) & set(want):
                self.assertEqual(optimized[name][1] != 0, want[name][1] != 0, name)
                # If no instruction has a line of the lambda, its line is that of the function around it.
                around = want["shop::Basket::order()"][0] if "{lambda" in name else want[name][0]
                self.assertIn(optimized[name][0], (want[name][0], around), name)

    def test_a_function_is_entered_from_outside_or_by_a_call(self):
        """Not by its own loop; and a statement without code is none of the next line's. Against gcov, `functions`, and the program itself."""
        source, place = PROGRAMS / "entered.c", self.folder / "entered"
        place.mkdir()
        cc = os.environ.get("CC", "cc")
        subprocess.run([cc, "-O0", "-g", "-w", "--coverage", "-o", "counted", source], cwd=place, check=True)
        subprocess.run(["./counted"], cwd=place, check=True, stdout=subprocess.DEVNULL)
        out = subprocess.run([shutil.which("gcov") or "gcov", "--json-format", "--stdout", next(place.glob("*.gcno"))], cwd=place, capture_output=True,
                             check=True).stdout
        file = json.loads(out)["files"][0]
        want = {each["name"]: each["execution_count"] for each in file["functions"]}
        self.assertEqual((want["loops"], want["falls"], want["tree"], want["odd"]), (2, 6, 177, 5))
        times = {line["line_number"]: line["count"] for line in file["lines"]}
        for optimization in ("-O0", "-O1", "-O2"):
            subprocess.run([cc, optimization, "-g", "-w", "-o", "plain", source], cwd=place, check=True)
            done = run("record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", place / "data", "--", place / "plain")
            self.assertEqual(done.returncode, 0, done.stderr)
            text = run("coverage", "-q", "-i", place / "data", "--format", "lcov", "--source", source.resolve()).stdout
            entered = {name: int(count) for count, name in re.findall(r"^FNDA:(\d+),(\w+)$", text, re.M)}
            self.assertGreaterEqual(set(entered), {"tree", "even", "odd", "loops", "by_jump", "falls", "main"})
            self.assertEqual({name: entered[name] for name in entered if name != "choose"}, {name: want[name] for name in entered if name != "choose"},
                             optimization)
            rows = map(json.loads, run("functions", "-q", "-i", place / "data", "--json").stdout.splitlines())
            calls = {row["function"]: row["calls"] for row in rows if row.get("function") in entered}
            self.assertEqual({name: calls[name] for name in ("tree", "even", "odd", "loops", "by_jump", "main")},
                             {name: entered[name] for name in ("tree", "even", "odd", "loops", "by_jump", "main")}, optimization)
            got = {int(line): int(count) for line, count in re.findall(r"^DA:(\d+),(\d+)$", text, re.M)}
            number = next(i for i, line in enumerate(source.read_text().split("\n"), 1) if "x *= 3; break;" in line)
            self.assertEqual(got[number], times[number], optimization)

    def test_what_several_compilations_share_is_counted_once(self):
        """Inline functions and templates in a header: the linker keeps one copy, and each compilation has debug information of it."""
        place = self.folder / "shared"
        place.mkdir()
        (place / "shared.h").write_text("inline int twice(int n) {\n  int sum = 0;\n  for (int i = 0; i < 2; ++i)\n    sum += n;\n  return sum;\n}\n"
                                        "template <class T>\nT half(T value) {\n  return value / 2;\n}\n")
        for name in "abc":
            (place / f"{name}.cc").write_text(f'#include "shared.h"\nint {name}(int n) {{ return twice(n) + half(n); }}\n')
        (place / "main.cc").write_text('#include "shared.h"\nint a(int), b(int), c(int);\nint main() {\n  int sum = 0;\n'
                                       '  for (int i = 0; i < 7; ++i) sum += a(i) + b(i) + c(i) + twice(i);\n  return sum & 1;\n}\n')
        sources = [f"{name}.cc" for name in ("a", "b", "c", "main")]
        cxx = os.environ.get("CXX", "c++")
        subprocess.run([cxx, "-O0", "-g", "--coverage", *sources, "-o", "counted"], cwd=place, check=True)
        subprocess.run(["./counted"], cwd=place, check=False)
        want, functions = collections.Counter(), collections.Counter()
        for notes in place.glob("*.gcno"):
            out = subprocess.run([shutil.which("gcov") or "gcov", "--json-format", "--stdout", notes], cwd=place, capture_output=True, check=True).stdout
            for file in json.loads(out)["files"]:
                if file["file"].endswith("shared.h"):
                    want.update({line["line_number"]: line["count"] for line in file["lines"]})
                    functions.update({re.sub(r"^\w+ |<.*|\(.*", "", each["demangled_name"]): each["execution_count"] for each in file["functions"]})
        self.assertEqual(functions, {"twice": 28, "half": 21})
        for options in (["-O0"], ["-O0", "-gdwarf-4", "-ffunction-sections", "-Wl,--gc-sections"]):
            subprocess.run([cxx, "-g", *options, *sources, "-o", "plain"], cwd=place, check=True)
            done = run("record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", place / "data", "--", place / "plain")
            self.assertLess(done.returncode, 2, done.stderr)
            text = run("coverage", "-q", "-i", place / "data", "--format", "lcov", "--source", place.resolve()).stdout
            record = next(record for record in text.split("end_of_record") if "/shared.h\n" in record)
            got = {int(line): int(count) for line, count in re.findall(r"^DA:(\d+),(\d+)$", record, re.M)}
            loop = 3  # gcov adds its parts
            self.assertEqual({line: count for line, count in got.items() if line in want and line != loop},
                             {line: count for line, count in want.items() if line in got and line != loop}, options)
            self.assertGreater(len(set(got) & set(want)), 5)
            entered = {re.sub(r"^\w+ |<.*|\(.*", "", name): int(count) for count, name in re.findall(r"^FNDA:(\d+),(.*)$", record, re.M)}
            self.assertEqual(entered, functions, options)

    def test_image_of_the_only_process_needs_no_tid(self):
        listed = subprocess.run(["nm", self.folder / "sorter"], capture_output=True, text=True, check=True).stdout
        address = int(re.search(r"^([0-9a-f]+) T main$", listed, re.M)[1], 16)
        done = run("image", "-i", self.data("sorter"), "main")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, rf"(?m)^ +{address:x} main\+0x0 ")

    def test_info_says_that_a_bundle_contains_its_code(self):
        bundle = self.folder / "sorter.ptb"
        self.assertEqual(run("bundle", "-q", self.data("sorter"), "-o", bundle).returncode, 0)
        said = run("info", "-i", bundle).stdout
        self.assertRegex(said, r"(?m)^code +in the bundle$")
        self.assertRegex(said, r"(?m)^traced +user only; time from ")
        told = [json.loads(run("info", "--json", "-i", path).stdout) for path in (self.data("sorter"), bundle)]
        self.assertEqual([(each["traces_user"], each["traces_kernel"]) for each in told], [(True, False)] * 2)

    def test_a_part_of_a_trace_says_that_callers_may_be_absent(self):
        bundle = self.folder / "part.ptb"
        first, last = json.loads(run("info", "--json", "-i", self.data("sorter")).stdout)["time_ns"]
        window = ",".join(f"{first + (last - first) * share // 10:010d}" for share in (3, 6))
        window = re.sub(r"(\d+)(\d{9})", r"\1.\2", window)
        self.assertEqual(run("bundle", "-q", self.data("sorter"), "-o", bundle, "--time", window).returncode, 0)
        for words in (("info",), ("flame", "--format", "folded"), ("functions",)):
            done = run(*words, "-i", bundle)
            self.assertIn("functions that were entered before it have no callers here", done.stdout + done.stderr, words)
        self.assertEqual(run("bundle", "-q", self.data("sorter"), "-o", bundle).returncode, 0)
        self.assertNotIn("no callers here", run("functions", "-i", bundle).stderr)

    def test_verify_prints_the_bytes_where_only_they_differ(self):
        code = subprocess.run(["objdump", "-d", self.folder / "sorter"], capture_output=True, text=True, check=True).stdout
        main = code[code.index("<main>:"):].split("\n\n")[0]
        address, first, rest = re.search(r"^ +([0-9a-f]+):\t(b[89a-f]) ((?:[0-9a-f]{2} ){4}) *\tmov", main, re.M).groups()
        right = bytes.fromhex(first + rest)
        wrong = right[:4] + bytes([right[4] ^ 0x40])
        program = (self.folder / "sorter").read_bytes()
        segment = re.search(r"LOAD +0x(\w+) 0x(\w+) .*\n? .*R E", subprocess.run(["readelf", "-lW", self.folder / "sorter"], capture_output=True, text=True).stdout)
        at = int(address, 16) - int(segment[2], 16) + int(segment[1], 16)
        self.assertEqual(program[at:at + 5], right)
        copy = pathlib.Path(f"{self.folder}/symfs{self.folder}/sorter")
        copy.parent.mkdir(parents=True)
        copy.write_bytes(program[:at] + wrong + program[at + 5:])
        truth = sorted((self.folder / "sorter.truth").iterdir())
        done = run("verify", "-i", self.data("sorter"), "--symfs", self.folder / "symfs", *truth)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(f"truth {address} {right.hex(' ')}, here {address} {wrong.hex(' ')}\n", done.stdout)
        self.assertRegex(run("verify", "--reference", "--freeze", "-i", self.data("sorter")).stdout, r"^tid \d+: ")

    def test_coverage_joins_relative_paths_with_the_folder_of_compilation(self):
        cc = os.environ.get("CC", "cc")
        for version in ("-gdwarf-4", "-gdwarf-5"):
            folder = self.folder / f"relative{version}"
            (folder / "src").mkdir(parents=True)
            (folder / "src/one.h").write_text("static int one(int x) { return x + 1; }\nstatic inline int two(int x) { return x + 2; }\n")
            (folder / "src/one.c").write_text('#include "../src/one.h"\nint main(int count, char** words) {\n  return one(count) + !words;\n}\n')
            subprocess.run([cc, version, "-O0", "-static", "src/one.c", "-o", "one"], cwd=folder, check=True)
            data = folder / "one.data"
            subprocess.run([PTDECODE, "record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-o", data, "--", folder / "one"], capture_output=True)
            for source in (folder / "src/one.c", folder / "src/one.h"):
                done = run("coverage", "-i", data, "--source", source, "-q")
                rows = [line.split() for line in done.stdout.splitlines()]
                self.assertEqual([row[-1] for row in rows[1:]], [str(source), "all"], version + done.stdout + done.stderr)
                self.assertNotEqual(rows[1][1], "0")
            everything = run("coverage", "-i", data, "-q").stdout
            self.assertIn(str(folder / "src/one.c"), everything)
            self.assertNotIn(" 0    0.0 ", everything)  # files without a line that ran are only counted

    def test_coverage_of_a_slowest_calls_time_begins_with_the_call(self):
        """The options that --slowest prints: the line that enters the call and the first line of its callee are within its time."""
        self.build("shopdb", CC, "-O1", "-fno-inline", "-w", "-static", record=["--cyc"])
        source = (PROGRAMS / "shopdb.c").read_text().split("\n")
        lines = [source.index(text) + 1 for text in ("int run_query(const char *query) {", "  struct plan plan = plan_query(query);",
                                                    "  return scan_table(plan);")]
        slowest = run("functions", "-i", self.data("shopdb"), "--func", "run_query", "--slowest", "30", "-q").stdout
        windows = re.findall(r"--tid \d+ --time \S+$", slowest, re.M)
        self.assertEqual(len(windows), 30)
        for at, words in enumerate(windows):
            done = run("coverage", "-i", self.data("shopdb"), *words.split(), "--format", "lcov", "-q")
            got = {int(line): int(count) for line, count in re.findall(r"^DA:(\d+),(\d+)$", done.stdout, re.M)}
            counts = [got.get(line, 0) for line in lines]
            for count in counts[:2]:  # others were executed in the same time as its ends
                self.assertTrue(1 <= count < 60, (counts, words))
            self.assertTrue(at != 0 or counts[2] == 1, (counts, words))

    def test_coverage_without_debug_information_says_so(self):
        subprocess.run(["strip", "-o", self.folder / "bare", self.folder / "covered"], check=True)
        os.makedirs(self.folder / "root" / str(self.folder)[1:])
        shutil.move(self.folder / "bare", self.folder / "root" / str(self.folder)[1:] / "covered")
        done = run("coverage", "-i", self.data("covered"), "--symfs", self.folder / "root")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no debug information in", done.stderr)

    def truth(self, name):
        """Returns the taken branches and straight runs of the ground truth, with their counts."""
        branches, runs = collections.Counter(), collections.Counter()
        start = end = last = None
        for what, insns in call_replay.truth_blocks(next((self.folder / (name + ".truth")).glob("*.ptt"))):
            if what != "run" or not insns:
                continue
            if insns[0][0] != end:
                if start is not None:
                    runs[start, last] += 1
                    if end is not None:
                        branches[last, insns[0][0]] += 1
                start = insns[0][0]
            last, code = insns[-1]
            end = None if call_replay.kind_of(code) == "syscall" else last + len(code)  # the kernel is not traced: flow starts again
        runs[start, last] += 1
        return branches, runs

    def test_branches_and_runs_are_those_of_the_truth(self):
        for name in ("covered", "sorter"):
            done = run("profile", "-i", self.data(name), "-q")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            branches, runs = collections.Counter(), collections.Counter()
            for line in done.stdout.splitlines():
                kind, first, last, count = line.split()[:4]
                (branches if kind == "B" else runs)[int(first, 16), int(last, 16)] += int(count)
            want_branches, want_runs = self.truth(name)
            self.assertEqual(branches, want_branches)
            self.assertEqual(runs, want_runs)
            self.assertGreater(len(branches), 500)
            text = run("profile", "-i", self.data(name), "-q", "--format", "autofdo").stdout.splitlines()
            self.assertEqual(int(text[0]), len(runs))
            self.assertEqual(int(text[len(runs) + 2]), len(branches))

    def test_a_profile_is_not_the_dynamic_linkers(self):
        """The linker runs most of the code of a short program, and nobody wants its profile."""
        text = run("profile", "-i", self.data("longer"), "-q").stdout
        self.assertEqual(text, run("profile", "-i", self.data("longer"), "-q", "--dso", "longer").stdout)
        linker = run("profile", "-i", self.data("longer"), "-q", "--dso", "ld-linux-x86-64.so.2").stdout
        self.assertNotIn(linker, ("", text))
        shares = []
        for words in ((), ("--dso", "ld-linux-x86-64.so.2")):
            said = run("profile", "-i", self.data("longer"), "-o", self.folder / "said.pa", *words).stderr
            shares.append(re.search(r"^ptdecode: profile of \S+/([^\s:]+)( \(--dso NAME selects another file\))?: ([\d.]+) % of the code of files that ran", said).groups())
        self.assertEqual([(name, hint is not None) for name, hint, _ in shares], [("longer", True), ("ld-linux-x86-64.so.2", False)])
        self.assertLess(float(shares[0][2]), float(shares[1][2]))

    def perf2bolt(self):
        found = shutil.which("perf2bolt") or next(map(str, pathlib.Path("/usr/lib").glob("llvm-*/bin/perf2bolt")), None)
        if found is None:
            self.skipTest("perf2bolt is not installed (apt install bolt-16)")
        return found

    def test_perf2bolt_reads_it(self):
        perf2bolt = self.perf2bolt()
        done = run("profile", "-i", self.data("inlined"), "--dso", "inlined", "-o", self.folder / "inlined.pa", "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        # Stubs of the PLT are not functions whose flow BOLT can use.
        names = subprocess.run(["nm", "-S", "--defined-only", self.folder / "inlined"], capture_output=True, text=True, check=True).stdout
        spans = [(int(first, 16), int(first, 16) + int(size, 16)) for first, size in re.findall(r"^(\w+) (\w+) [tTwW] .*shop", names, re.M)]
        kept = [line for line in (self.folder / "inlined.pa").read_text().splitlines(True) if any(first <= int(line.split()[1], 16) < end for first, end in spans)]
        (self.folder / "kept.pa").write_text("".join(kept))
        read = subprocess.run([perf2bolt, "--pa", "-p", self.folder / "kept.pa", "-o", self.folder / "inlined.fdata", self.folder / "inlined"], capture_output=True,
                              text=True)
        said = read.stdout + read.stderr
        self.assertEqual(read.returncode, 0, said)
        self.assertIn(f"read {len(kept)} aggregated LBR entries", said)
        self.assertIn("mismatching disassembled function contents: 0", said)
        self.assertIn("_ZNK4shop6Basket3sumEv", (self.folder / "inlined.fdata").read_text())

    def test_branch_stacks_hold_every_branch_once(self):
        """perf's text of branch stacks: each branch has the count of the ground truth, and perf2bolt reads it in place of perf's."""
        for words in (("-S", "main"), ("--itrace=c",)):
            done = run("script", "-i", self.data("sorter"), "-F", "pid,ip,brstack", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
        done = run("script", "-i", self.data("sorter"), "-F", "pid,ip,brstack", "-q")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        branches, pid = collections.Counter(), None
        for line in done.stdout.splitlines():
            pid, ip, *stack = line.split()
            self.assertLessEqual(len(stack), 256)
            pairs = [tuple(int(word, 16) for word in entry.split("/")[:2]) for entry in stack]
            self.assertEqual(int(ip, 16), pairs[0][1])
            branches.update(pairs)
        want, _ = self.truth("sorter")
        self.assertEqual(branches, want)
        perf2bolt = self.perf2bolt()
        # perf2bolt runs `perf script` for the stacks, then for maps and build ids: the first output is ours.
        stand_in = self.folder / "bin" / "perf"
        stand_in.parent.mkdir()
        stand_in.write_text(f'''#!/bin/sh
case "$*" in
  *brstack*) exec "{PTDECODE}" script -F pid,ip,brstack -i "{self.data("sorter")}" -q ;;
esac
exec "{shutil.which("perf")}" "$@"
''')
        stand_in.chmod(0o755)
        read = subprocess.run([perf2bolt, "-p", self.data("sorter"), "-o", self.folder / "stacks.fdata", self.folder / "sorter"], capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}"})
        said = read.stdout + read.stderr
        self.assertEqual(read.returncode, 0, said)
        self.assertIn(f"read {len(done.stdout.splitlines())} samples and {sum(want.values())} LBR entries", said)
        print(re.search(r".*mismatching.*", said)[0], flush=True)

    def test_a_file_that_did_not_run_is_named(self):
        done = run("profile", "-i", self.data("sorter"), "--dso", "absent")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no code of a file 'absent' ran; files that ran: ", done.stderr)


if __name__ == "__main__":
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        sys.exit(77)
    unittest.main(verbosity=2)
