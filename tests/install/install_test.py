#!/usr/bin/env python3
"""Installs the project, moves the prefix, and uses it as another project would. Usage: install_test.py SOURCE BUILD LIBDIR

Checked: programs build against the moved prefix with CMake and with pkg-config, and give the known results; every installed header compiles
alone without warnings; the library exports the public names only; no installed file names a path of the build machine. The same programs
build against the other kind of library (static, unless BUILD_SHARED_LIBS is off), which the same build made from the same objects.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

SOURCE, BUILD, LIBDIR = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
WORK = BUILD / "install-test"
PREFIX = WORK / "moved"
CXX = os.environ.get("CXX", "c++")
OTHER = WORK / "moved-other"
CC = os.environ.get("CC", "cc")
EXAMPLES = ("hot_edges", "calls_of", "code_at")


def run(*words, check=True, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **more)
    if check and done.returncode != 0:
        raise AssertionError(f"{words}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def with_library(**more):
    return {**os.environ, "LD_LIBRARY_PATH": str(PREFIX / LIBDIR), **more}


def install(prefix, *words):
    """Installs, and moves the result to `prefix`."""
    run("cmake", "--install", BUILD, "--prefix", WORK / "prefix", *words)
    (WORK / "prefix").rename(prefix)


def pkg_config(prefix, *words):
    return run("pkg-config", *words, "ptdecode", env={**os.environ, "PKG_CONFIG_PATH": str(prefix / LIBDIR / "pkgconfig")}).stdout.split()


def build_examples(prefix, folder, *targets):
    run("cmake", "-G", "Ninja", "-S", SOURCE / "docs/examples", "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={CXX}")
    run("cmake", "--build", folder, *(word for target in targets for word in ("--target", target)))


def setUpModule():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    install(PREFIX)
    install(OTHER, "--component", "other-library")
    build_examples(PREFIX, WORK / "cmake")
    flags = pkg_config(PREFIX, "--cflags", "--libs")
    (WORK / "pkg-config").mkdir()
    for name in EXAMPLES:
        run(CXX, "-std=c++20", SOURCE / "docs/examples" / (name + ".cc"), *flags, "-o", WORK / "pkg-config" / name)
    run(CC, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", SOURCE / "docs/examples/walk.c", *flags, "-o", WORK / "pkg-config/walk")


class Install(unittest.TestCase):
    def each(self, name, *words, status=0):
        """Returns the output of an example, which is the same with both builds."""
        done = [run(WORK / way / name, *words, check=False, env=with_library()) for way in ("cmake", "pkg-config")]
        self.assertEqual([status, status], [one.returncode for one in done], done[0].stderr[-1000:])
        self.assertEqual(done[0].stdout, done[1].stdout)
        return done[0].stdout + done[0].stderr

    def test_a_file_that_is_no_recording_is_named(self):
        for name, words in (("hot_edges", ()), ("calls_of", ("fib",)), ("code_at", ("1000",))):
            self.assertIn("LICENSE", self.each(name, *words, SOURCE / "LICENSE", status=1))

    def test_the_documents_that_help_and_manual_name_are_installed(self):
        installed = {path.name for path in (PREFIX / "share/doc/ptdecode").iterdir()}
        program = PREFIX / "bin/ptdecode"
        texts = [(PREFIX / "share/man/man1/ptdecode.1").read_text().replace("\\-", "-"), run(program, "--help", env=with_library()).stdout]
        commands = re.findall(r"(?m)^  ([a-z]+) ", texts[1])
        self.assertIn("script", commands)
        texts += [run(program, command, "--help", env=with_library(), check=False).stdout for command in commands]
        named = {name for text in texts for name in re.findall(r"[\w/-]+\.md", text)}
        self.assertEqual({"ANNOUNCE.md", "DIFFERENCES.md", "FLEET.md", "FORMAT-json.md", "SQL.md", "TABLES.md"}, named, "each by its name, which is the same in every place")
        self.assertLessEqual(named, installed)

    def test_hot_edges_counts_what_the_ground_truth_says(self):
        data = PREFIX / "share/ptdecode/kernel"
        total = sum(int(path.read_text().split("\n")[-2].split()[0]) for path in data.glob("truth.cpu*.txt"))
        self.assertIn(f"\n{total} instructions, 0 of them marked uncertain, 0 gaps\n", self.each("hot_edges", data / "kernel.bundle"))

    def test_calls_of_finds_every_call(self):
        a, b = 0, 1
        for _ in range(19):
            a, b = b, a + b
        lines = self.each("calls_of", "fib", SOURCE / "data/user/plain.bundle").splitlines()
        self.assertEqual(f"{2 * a - 1} calls", lines[-1])  # fib(18), naively: 2 F(19) - 1
        self.assertEqual(2 * a, len(lines))
        self.assertRegex(lines[0], r"^\d+\.\d{9}  tid \d+  \d+ ns  \d+ instructions$")

    def test_a_c_program_walks_the_branches(self):
        lines = self.each("walk", SOURCE / "data/user/plain.bundle").splitlines()
        self.assertRegex(lines[0], r"^\d+ tid \d+ tr strt 0 -> [0-9a-f]+$")
        self.assertEqual(f"{len(lines) - 1} branches, 0 gaps", lines[-1])
        listed = run(PREFIX / "bin/ptdecode", "script", "--itrace=b", "-F", "addr", "-i", SOURCE / "data/user/plain.bundle", env=with_library()).stdout
        self.assertEqual(len(listed.splitlines()), len(lines) - 1)
        self.assertIn("unknown_format", self.each("walk", SOURCE / "LICENSE", status=1))

    @unittest.skipUnless(shutil.which("perf"), "perf is not installed")
    def test_code_at_has_a_version_since_each_text_poke(self):
        listing = run("perf", "script", "--show-text-poke-events", "-i", SOURCE / "data/demo/data").stdout
        pokes = re.findall(r"(\d+\.\d+): PERF_RECORD_TEXT_POKE (\w+)  old len [1-9]", listing)
        self.assertTrue(pokes)
        for address in sorted({address for _, address in pokes}):
            times = [time for time, other in pokes if other == address]
            lines = self.each("code_at", address, SOURCE / "data/demo").splitlines()
            begins = [line.split("  ")[1].split("..")[0][:len(times[0])] for line in lines[:-1] if line.startswith(address)]
            self.assertEqual("", begins[0], lines)
            # The record of a poke comes when it is complete. The breakpoint there until then has no record.
            self.assertEqual([], [time for time in times if time not in begins], (address, lines))

    def test_the_command_line_finds_its_data(self):
        run(PREFIX / "bin/ptdecode", "--version")
        self.assertIn(str(PREFIX / "share/ptdecode/kernel"), run(PREFIX / "bin/ptdecode", "demo").stdout)

    def test_each_header_compiles_alone(self):
        headers = sorted((PREFIX / "include").rglob("*.h"))
        self.assertTrue(headers)
        self.assertEqual([], [header for header in headers if header.relative_to(PREFIX / "include").parts[0] != "ptdecode"])
        names = [str(header.relative_to(PREFIX / "include")) for header in headers]
        clang = next((other for other in ("clang++", "clang++-14", "clang++-19") if shutil.which(other) and other != CXX), None)
        # Another compiler sees other faults in a header, but not another missing include.
        for compiler, included in [(CXX, [name]) for name in names] + ([(clang, names)] if clang else []):
            done = run(compiler, "-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only", "-x", "c++", "-I", PREFIX / "include", "-",
                       input="".join(f'#include "{name}"\n' for name in included), check=False)
            self.assertEqual(0, done.returncode, f"{compiler}: {' '.join(included)}\n{done.stderr}")

    def test_only_public_names_are_exported(self):
        library = next(prefix / LIBDIR / "libptdecode.so.0" for prefix in (PREFIX, OTHER) if (prefix / LIBDIR / "libptdecode.so.0").exists())
        names = [line.split(" ", 2)[2] for line in run("nm", "-DC", "--defined-only", library).stdout.splitlines()]
        public = re.compile(r"^(?:(?:typeinfo|typeinfo name|vtable) for )?(?:ptd::|ptd_)|^PTDECODE_0$")
        self.assertIn("ptd::Recording::open(ptd::OpenOptions const&)@@PTDECODE_0", names)
        self.assertEqual([], [name for name in names if not public.match(name)])
        private = re.compile(r"ptd::(?:cli|perfio|stash|emulate|live)::|RecordingData|OpenRequest|ImageBuild")
        self.assertEqual([], [name for name in names if private.search(name)])

    def test_the_other_kind_of_library_links(self):
        build_examples(OTHER, WORK / "cmake-other", "calls_of")
        flags = pkg_config(OTHER, "--cflags")
        run(CXX, "-std=c++20", "-c", SOURCE / "docs/examples/calls_of.cc", *flags, "-o", WORK / "calls_of.o")
        for name, options in (("calls_of-static", ["--static"]), ("calls_of-default", [])):
            run(CXX, WORK / "calls_of.o", *pkg_config(OTHER, *options, "--libs"), "-o", WORK / name)
        static = not (OTHER / LIBDIR / "libptdecode.so.0").exists()
        self.assertEqual(static, (OTHER / LIBDIR / "libptdecode.a").exists())
        recording = SOURCE / "data/user/plain.bundle"
        expected = run(WORK / "cmake/calls_of", "fib", recording, env=with_library()).stdout
        for program in (WORK / "cmake-other/calls_of", WORK / "calls_of-static", WORK / "calls_of-default"):
            needed = run("readelf", "-d", program).stdout
            self.assertEqual(static, "libptdecode" not in needed, needed)
            self.assertEqual(expected, run(program, "fib", recording, env={**os.environ, "LD_LIBRARY_PATH": str(OTHER / LIBDIR)}).stdout)

    def test_both_kinds_in_one_prefix(self):
        """As distributions install them: `pkg-config --static` adds what the static library needs, and only then."""
        both = WORK / "both"
        run("cmake", "--install", BUILD, "--prefix", both, "--component", "other-library")
        (both / LIBDIR / "pkgconfig/ptdecode.pc").unlink()  # CMake does not replace a file of the same age
        run("cmake", "--install", BUILD, "--prefix", both)
        shared, static = (pkg_config(both, *words, "--cflags", "--libs") for words in ([], ["--static"]))
        if not (PREFIX / LIBDIR / "libptdecode.so.0").exists():
            self.skipTest("the static library is the installed one")
        self.assertEqual([], [word for word in shared if word.startswith("-l") and word != "-lptdecode"])
        flags = ["-l:libptdecode.a" if word == "-lptdecode" else word for word in static]
        program = WORK / "calls_of-both"
        run(CXX, "-std=c++20", SOURCE / "docs/examples/calls_of.cc", *flags, "-o", program)
        self.assertNotIn("libptdecode", run("readelf", "-d", program).stdout)
        self.assertRegex(run(program, "fib", SOURCE / "data/user/plain.bundle").stdout, r"\d+ calls\n$")

    def test_no_installed_file_names_the_build_machine(self):
        paths = [str(path).encode() for path in (SOURCE, BUILD, WORK)]
        for folder in (PREFIX / LIBDIR, PREFIX / "include", OTHER / LIBDIR):
            for path in folder.rglob("*"):
                if path.is_file() and path.suffix in (".cmake", ".pc", ".h"):
                    content = path.read_bytes()
                    self.assertEqual([], [name for name in paths if name in content], path)
                    if path.suffix != ".h":
                        self.assertNotIn(b"/usr/", content, path)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
