#!/usr/bin/env python3
"""Functions with several names: `functions` lists the public one, and every filter finds them by each name.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC; PTDECODE_LIBRARY if there is a shared library. Exit status 77 without qemu-x86_64.
"""
import collections
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
CC = os.environ.get("CC", "cc")
sys.path.insert(0, str(SOURCE / "tests/tables"))

# `release` has an old name of another version, a weak one, one with underscores, a longer and a local one. `copy` has an old version with
# other code, as memcpy has.
LIBRARY = r"""
#define SAME(name) __attribute__((alias("code"))) void name(int *p)
#define CODE __attribute__((noinline))
CODE void code(int *p) { ++*p; __asm__ volatile(""); }
SAME(newest); __asm__(".symver newest, release@@V2");
SAME(old_name); __asm__(".symver old_name, arelease@V1");
SAME(before); __asm__(".symver before, release@V1");
SAME(__release); SAME(release64); SAME(_Z7freeingv);
__attribute__((weak, alias("code"))) void bfree(int *p);
static void aaa(int *p) __attribute__((alias("code"), used));
CODE void old_copy(int *p) { *p += 2; __asm__ volatile(""); }
CODE void new_copy(int *p) { *p += 3; __asm__ volatile(""); }
__asm__(".symver old_copy, copy@V1"); __asm__(".symver new_copy, copy@@V2");
"""
PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
void release(int *), copy(int *);
int main(void) {
  int n = 0;
  void (*old_release)(int *) = (void (*)(int *))dlvsym(RTLD_DEFAULT, "arelease", "V1");
  void (*old_copy)(int *) = (void (*)(int *))dlvsym(RTLD_DEFAULT, "copy", "V1");
  for (int i = 0; i < 10; ++i) release(&n);
  for (int i = 0; i < 3; ++i) old_release(&n);
  for (int i = 0; i < 4; ++i) copy(&n);
  for (int i = 0; i < 5; ++i) old_copy(&n);
  return n != 13 + 12 + 10;
}
"""
DEFAULT_NAMES = ["release", "release@@V2", "__release", "__rel*", "release64", "bfree", "arelease", "arelease@V1", "arel?ase", "freeing", "freeing()", "_Z7freeingv"]


def run(*words, status=0, environment=None):
    done = subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == status, (words, done.returncode, done.stderr)
    return done.stdout if status == 0 else done.stderr


class Aliases(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def recorded(self, program, **environment):
        path = self.folder / (program.name + ".data")
        run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-q", "-o", path, "--", program, environment=dict(os.environ, **environment))
        return path

    def rows(self, path, *words):
        lines = [json.loads(line) for line in run("functions", "-q", "--no-inline", "-i", path, "--limit", "0", "--format", "json", *words).splitlines()]
        return {(line["function"], line["module"]): line["calls"] for line in lines[1:]}

    def with_library(self, *flags):
        (self.folder / "versions").write_text("V1 { global: arelease; copy; release; local: *; }; V2 { global: __release; release64; _Z7freeingv; bfree; } V1;\n")
        (self.folder / "lib.c").write_text(LIBRARY)
        (self.folder / "main.c").write_text(PROGRAM)
        for words in (["-shared", "-fPIC", "-O1", "-fno-ipa-icf", *flags, "-Wl,--version-script=versions", "lib.c", "-o", "libalias.so"],
                      ["-O1", "-z", "now", "main.c", "-L.", "-lalias", "-Wl,-rpath," + str(self.folder), "-o", "main"]):
            subprocess.run([CC, *words], cwd=self.folder, check=True)
        return self.recorded(self.folder / "main", LD_BIND_NOW="1")

    def assert_found_by(self, path, names, want):
        """Every way to choose a function finds this one by each name."""
        function, module = next(iter(want))
        for name in names:
            with self.subTest(path=path, name=name):
                found = {key: calls for key, calls in self.rows(path, "--func", name).items() if key[1] == module}
                self.assertEqual(found, want)
                slowest = run("functions", "-q", "-i", path, "--func", name, "--slowest", "3")
                self.assertEqual(len(re.findall(r"--time \d", slowest)), 3)
                listed = run("script", "-q", "-i", path, "--insn-trace", "-F", "sym", "-S", name)
                self.assertIn(function, listed)
                tree = run("script", "-q", "-i", path, "-S", name)
                self.assertEqual(len(re.findall(rf" {re.escape(function)}(?: |$)", tree, re.M)), sum(want.values()))
                lines = map(json.loads, run("script", "-q", "-i", path, "-S", name, "--json").splitlines()[1:])
                self.assertEqual([line["call"] for line in lines if line["module"] == module], [function] * sum(want.values()))
                if "PTDECODE_LIBRARY" in os.environ and os.environ["PTDECODE_LIBRARY"]:
                    from arrow_reader import Library
                    library = Library(os.environ["PTDECODE_LIBRARY"])
                    recording = library.open(path)
                    self.addCleanup(library.close, recording)
                    rows = [row for row in library.rows(recording, "functions", functions=[name]) if row["module"] == module]
                    self.assertEqual([(row["function"], row["calls"]) for row in rows], [(function, calls) for (_, calls) in want.items()])
                    rows = [row for row in library.rows(recording, "calls", functions=[name]) if row["module"] == module]
                    self.assertEqual({row["call"] for row in rows}, {function})

    def test_the_public_name_is_listed_and_every_name_finds_the_function(self):
        for flags, more in ((["-s"], []), ([], ["aaa"])):  # with .dynsym only, and with local symbols
            data = self.with_library(*flags)
            rows = {key: calls for key, calls in self.rows(data).items() if key[1] == "libalias.so" and ("rel" in key[0] or "copy" in key[0])}
            self.assertEqual({(name.split("@@")[0], module): calls for (name, module), calls in rows.items()},
                             {("release", "libalias.so"): 13, ("copy", "libalias.so"): 4, ("copy@V1", "libalias.so"): 5})
            want = {key: calls for key, calls in rows.items() if key[0].startswith("release")}
            self.assert_found_by(data, DEFAULT_NAMES + more, want)
            bundle = self.folder / "alias.ptdb"
            run("bundle", "-q", "-i", data, "-o", bundle)
            self.assertEqual(self.rows(bundle), self.rows(data))
            self.assert_found_by(bundle, DEFAULT_NAMES + more, want)
            old = {key: calls for key, calls in self.rows(data, "--func", "copy@V1").items() if key[1] == "libalias.so"}
            self.assertEqual(list(old.values()), [5])
            places = {name: run("image", "-q", "-i", data, name).splitlines()[2] for name in ("release", "arelease", "arelease@V1", "release@@V2", "bfree")}
            self.assertEqual(len(set(places.values())), 1, places)
            self.assertIn("release", next(iter(places.values())))
            self.assertNotEqual(run("image", "-q", "-i", data, "copy"), run("image", "-q", "-i", data, "copy@V1"))
            self.assertEqual(run("image", "-q", "-i", data, "copy"), run("image", "-q", "-i", data, "copy@@V2"))
            near = run("functions", "-q", "-i", data, "--func", "arelaese", status=2)
            self.assertIn("(there is 'arelease", near)
            bundle.unlink()

    def test_the_stub_of_a_function_is_another_function(self):
        data = self.with_library("-s")
        self.assert_found_by(data, ["release@plt", "relea?e@plt"], {("release@plt", "main"): 10})
        self.assert_found_by(data, ["copy@plt"], {("copy@plt", "main"): 4})
        for name, plain, stub in (("release", 13, 0), ("release@@V2", 13, 0), ("relea?e", 13, 0), ("release*", 13, 10), ("release@plt", 0, 10), ("*@plt", 0, 10)):
            with self.subTest(name=name):
                calls = {"release": plain, "release@plt": stub}
                found = {key[0].split("@@")[0]: value for key, value in self.rows(data, "--func", name).items() if key[1] in ("main", "libalias.so")}
                self.assertEqual({key: found.get(key, 0) for key in calls}, calls)
                lines = collections.Counter(line["call"].split("@@")[0] for line in map(json.loads, run("script", "-q", "-i", data, "-S", name, "--json").splitlines()[1:]))
                self.assertEqual({key: lines[key] for key in calls}, calls)
                listed = run("script", "-q", "-i", data, "--insn-trace", "-F", "sym", "-S", name)
                self.assertEqual(["release@plt" in listed, bool(re.search(r"release(?!@plt|64)", listed))], [stub != 0, plain != 0])
                if os.environ.get("PTDECODE_LIBRARY"):
                    from arrow_reader import Library
                    library = Library(os.environ["PTDECODE_LIBRARY"])
                    recording = library.open(data)
                    self.addCleanup(library.close, recording)
                    rows = collections.Counter(row["call"].split("@@")[0] for row in library.rows(recording, "calls", functions=[name]))
                    self.assertEqual({key: rows[key] for key in calls}, calls)

    def test_free_of_libc_is_free(self):
        (self.folder / "main.c").write_text("#include <stdlib.h>\nint main(void) { for (int i = 1; i < 20; ++i) { void *volatile p = malloc(i); free(p); } }\n")
        subprocess.run([CC, "-O0", "-z", "now", "main.c", "-o", "main"], cwd=self.folder, check=True)
        data = self.recorded(self.folder / "main")
        rows = {name: calls for (name, module), calls in self.rows(data).items() if module.startswith("libc")}
        self.assertGreaterEqual(rows.get("free", 0), 19)
        self.assertEqual([name for name in rows if name.startswith("cfree")], [])
        self.assertEqual(self.rows(data, "--func", "__libc_free"), self.rows(data, "--func", "free"))

    def test_many_names_of_one_function(self):
        """The best one is listed, the first ones find it, and nothing takes long."""
        text = ".globl _start, best\n.type best, @function\nbest: ret\n.size best, . - best\n"
        text += "".join(f".set many_{i}, best\n" for i in range(200_000))
        text += "_start: mov $10, %ebx\n1: call best\ndec %ebx\njnz 1b\nmov $60, %eax\nxor %edi, %edi\nsyscall\n"
        (self.folder / "many.s").write_text(text)
        subprocess.run([CC, "-nostdlib", "-static", "many.s", "-o", "many"], cwd=self.folder, check=True)
        data = self.recorded(self.folder / "many")
        begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime  # other tests may run at the same time
        self.assertEqual(self.rows(data)["best", "many"], 10)
        self.assertEqual(self.rows(data, "--func", "best"), {("best", "many"): 10})
        self.assertEqual(self.rows(data, "--func", "many_1"), {("best", "many"): 10})
        done = subprocess.run([PTDECODE, "functions", "-i", data, "--func", "many_7"], capture_output=True, text=True, timeout=300)
        self.assertRegex(done.stderr, r"many: more than 1024 symbols at address 0x\w+; filters by name know only the first of them")
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin, 20)


class KernelAliases(unittest.TestCase):
    DEMO = SOURCE / "data" / "demo"

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.recording = pathlib.Path(self.temporary.name) / "recording"
        shutil.copytree(self.DEMO, self.recording)
        self.kallsyms = self.recording / "kcore_dir/kallsyms"
        self.kallsyms.chmod(0o644)
        self.calls = self.rows()
        self.assertGreater(len(self.calls), 20)

    def rows(self, *words):
        lines = [json.loads(line) for line in run("functions", "-q", "--no-inline", "-i", self.recording, "--limit", "0", "--format", "json", *words).splitlines()]
        return {line["function"]: line["calls"] for line in lines[1:] if line["function"][0] != "["}

    def test_names_of_one_kernel_function(self):
        """perf's and the kernel's own order of names puts the best one first; the names of a part or of another ABI do not replace it."""
        text = self.kallsyms.read_text()
        chosen = [name for name, calls in self.calls.items() if calls > 1 and re.search(rf"^\w+ [tT] {re.escape(name)}$", text, re.M)][:5]
        self.assertEqual(len(chosen), 5)
        names = [("__x64_sys_x", [("t", "__do_sys_x"), ("T", "__ia32_sys_x"), ("t", "__se_sys_x"), ("T", "__x64_sys_x")]),
                 ("sys_y", [("T", "SyS_y"), ("T", "sys_y")]),
                 ("memcpy_z", [("T", "__memcpy_z"), ("W", "memcpy_z"), ("t", "copy_z")]),
                 ("driver_init", [("T", "init_module"), ("t", "driver_init")]),
                 ("worker", [("t", "other.cold"), ("t", "worker"), ("t", "worker.part.0")])]
        calls = {}
        for old, (best, lines) in zip(chosen, names):
            address = re.search(rf"^(\w+) [tT] {re.escape(old)}$", text, re.M)[1]
            text = re.sub(rf"^\w+ [tT] {re.escape(old)}\n", "".join(f"{address} {kind} {name}\n" for kind, name in lines), text, flags=re.M)
            calls[best] = self.calls[old]
        self.kallsyms.write_text(text)
        self.assertEqual({name: count for name, count in self.rows().items() if name in calls}, calls)
        for best, lines in names:
            for _, name in lines:
                if name != "other.cold":
                    with self.subTest(name=name):
                        self.assertEqual(self.rows("--func", name), {best: calls[best]})
        self.assertIn("'other.cold' was not called", run("functions", "-q", "-i", self.recording, "--func", "other.cold", status=2))
        for name in ("other", "worker.part.1"):
            self.assertIn(f"no function is named '{name}'", run("functions", "-q", "-i", self.recording, "--func", name, status=2))
        self.assertEqual(run("image", "-q", "-i", self.recording, "__se_sys_x"), run("image", "-q", "-i", self.recording, "__x64_sys_x"))

    def test_kernel_functions_of_one_name_have_rows_of_their_own(self):
        """Static functions of two source files, and one of a module."""
        text = self.kallsyms.read_text()
        chosen = [name for name, calls in self.calls.items() if calls > 1 and re.search(rf"^\w+ [tT] {re.escape(name)}$", text, re.M)][:3]
        want = {}
        for i, old in enumerate(chosen):
            address = re.search(rf"^(\w+) [tT] {re.escape(old)}$", text, re.M)[1]
            text = re.sub(rf"^(\w+) [tT] {re.escape(old)}$", rf"\1 t twin{' [virtio]' if i == 2 else ''}", text, flags=re.M)
            want["twin" if i == 2 else f"0x{address}:twin"] = self.calls[old]
        self.kallsyms.write_text(text)
        bundle = self.recording.parent / "kernel.ptdb"
        run("bundle", "-q", "-i", self.recording, "-o", bundle)
        for self.recording in (self.recording, bundle):
            self.assertEqual({name: calls for name, calls in self.rows().items() if "twin" in name}, want)
            self.assertEqual(self.rows("--func", "twin"), want)
            for name, calls in want.items():
                if name != "twin":
                    self.assertEqual(self.rows("--func", name), {name: calls})
                    self.assertIn(f"{name[2:18]} twin+0x0", run("image", "-q", "-i", self.recording, name))


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("skipped: no qemu-x86_64")
        sys.exit(77)
    unittest.main()
