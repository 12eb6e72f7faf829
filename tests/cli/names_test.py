#!/usr/bin/env python3
"""The names of functions, for programs whose symbols are unusual: without sizes, or with one name for several functions.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC. Exit status 77 without qemu-x86_64.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
CC = os.environ.get("CC", "cc")
# `outer` and `thunk` have no size, `sized` contains the label `inside`. Each is called ten times.
SIZELESS = r"""
  .globl _start, leaf, inside
  .type inside, @notype
_start:
  mov $10, %ebx
1: call outer
  call thunk
  call sized
  dec %ebx
  jnz 1b
  mov $60, %eax
  xor %edi, %edi
  syscall
outer:
  nop
  call 3f
  ret
  .skip 64, 0xcc
3: call leaf
  ret
thunk:
  call 2f
1: pause
  jmp 1b
2: lea leaf(%rip), %rdx
  mov %rdx, (%rsp)
  ret
  .type sized, @function
sized:
  jmp inside
  .skip 64, 0xcc
inside:
  nop
  call leaf
  ret
  .size sized, . - sized
  .type leaf, @function
leaf:
  ret
  .size leaf, . - leaf
"""

# Each function is called ten times; what `empty` runs is a RET, as in the return thunk, which is not a function that is called.
EMPTY = r"""
  .macro function name
  .p2align 4
  .globl \name
  .type \name, @function
\name:
  .endm
  .macro done name
  .size \name, . - \name
  .endm
  function _start
  mov $10, %ebx
1: call direct
  call indirect
  test %ebx, %ebx
  call conditional
  call thunked
  dec %ebx
  jnz 1b
  call empty
  mov $60, %eax
  xor %edi, %edi
  syscall
  done _start
  function direct
  nop
  jmp empty
  done direct
  function indirect
  lea empty(%rip), %rax
  jmp *%rax
  done indirect
  function conditional
  nop
  jnz empty
  ret
  done conditional
  function thunked
  nop
  jmp __x86_return_thunk
  done thunked
  function empty
  ret
  done empty
  function __x86_return_thunk
  ret
  int3
  done __x86_return_thunk
"""

# A library whose functions `hidden` and `unnamed` lose their names: .eh_frame has the first, nothing has the second. `bare` has no size.
STRIPPED = r"""
  .macro export name
  .p2align 4
  .globl \name
  .protected \name
  .type \name, @function
\name:
  .endm
  export bare
  ret
  .p2align 4
hidden:
  .cfi_startproc
  ret
  .cfi_endproc
  export sized
  ret
  .size sized, . - sized
  .p2align 4
unnamed:
  ret
  export entry
  call bare
  call hidden
  call hidden
  call sized
  call unnamed
  ret
  .size entry, . - entry
"""


def run(*words):
    done = subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Names(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def recorded(self, program):
        path = self.folder / (program.name + ".data")
        run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-q", "-o", path, "--", program)
        return path

    def rows(self, path):
        lines = [json.loads(line) for line in run("functions", "-q", "-i", path, "--limit", "0", "--format", "json").splitlines()]
        return {line["function"]: line for line in lines[1:]}

    def test_a_function_that_only_returns_is_called_by_a_jump(self):
        program = self.folder / "empty"
        subprocess.run([CC, "-nostdlib", "-static", "-x", "assembler", "-", "-o", program], input=EMPTY, text=True, check=True)
        rows = self.rows(self.recorded(program))
        found = {name: (row["calls"], row["self_instructions"]) for name, row in rows.items() if name not in ("_start", "[kernel]")}
        self.assertEqual(found, {"direct": (10, 20), "indirect": (10, 20), "conditional": (10, 20), "thunked": (10, 30), "empty": (31, 31)})

    def test_a_symbol_without_a_size_names_its_code_everywhere(self):
        """It reaches up to the next symbol; a label within a function that has a size does not end the function."""
        program = self.folder / "sizeless"
        subprocess.run([CC, "-nostdlib", "-static", "-x", "assembler", "-", "-o", program], input=SIZELESS, text=True, check=True)
        data = self.recorded(program)
        rows = self.rows(data)
        calls = {name: row["calls"] for name, row in rows.items()}
        # The call within `outer` enters it in the middle; that within `thunk` skips a few bytes and only fills the return stack.
        self.assertEqual({name: count for name, count in calls.items() if name[0] != "["}, {"_start": 1, "outer": 10, "thunk": 10, "sized": 10, "leaf": 30})
        self.assertEqual(rows["outer"]["no_start"], 10)
        own = {"_start": 1 + 5 * 10 + 3, "outer": (3 + 2) * 10, "thunk": 4 * 10, "sized": 4 * 10, "leaf": 3 * 10}
        self.assertEqual({name: rows[name]["self_instructions"] for name in own}, own)
        listed = collections.Counter(re.findall(r"\) +(\S+)$", run("script", "-q", "-i", data, "--call-trace"), re.M))
        self.assertLessEqual(set(listed), {"outer", "thunk", "sized", "leaf"})
        frames = {frame for line in run("flame", "-q", "-i", data, "--format", "folded").splitlines() for frame in line.rsplit(" ", 1)[0].split(";")}
        self.assertLessEqual({"outer", "thunk", "sized", "leaf"}, frames)
        self.assertEqual([frame for frame in frames if "+0x" in frame or "unnamed" in frame], [])
        branches = run("script", "-q", "-i", data, "--itrace=b")
        self.assertEqual(set(re.findall(r" ([a-z_]+)\+0x", branches)), {"_start", "outer", "thunk", "sized", "leaf"})

    def test_a_symbol_without_a_size_does_not_name_the_functions_after_it(self):
        library, program = self.folder / "libbare.so", self.folder / "bare"
        subprocess.run([CC, "-shared", "-nostdlib", "-x", "assembler", "-", "-o", library], input=STRIPPED, text=True, check=True)
        subprocess.run([CC, "-x", "c", "-", "-o", program, "-L", self.folder, "-lbare", f"-Wl,-rpath,{self.folder}"], text=True, check=True,
                       input="void entry(void); int main(void) { for (int i = 0; i < 10; ++i) entry(); return 0; }")
        hidden = int(re.search(r"^(\w+) t hidden$", subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout, re.M)[1], 16)
        subprocess.run(["strip", "-s", library], check=True)
        data, bundle = self.recorded(program), self.folder / "bare.ptb"
        run("bundle", "-q", "-i", data, "-o", bundle)
        want = {"bare": 10, "sized": 10, "entry": 60, f"libbare.so+{hidden:#x}": 20}
        for source in (data, bundle):
            own = {name: row["self_instructions"] for name, row in self.rows(source).items() if row["module"] == "libbare.so"}
            self.assertEqual({name: own.get(name) for name in want}, want)
            self.assertEqual(sum(own.values()), 110)

    SOURCES = {  # `helper` is in two files and once global, `twin` in two files of one name
        "a.c": "void b(void), one(void), two(void);\nstatic int helper(int x) { __asm__ volatile(\"\"); return x + 1; }\n"
               "int main(void) { int sum = 0; for (int i = 0; i < 3; ++i) sum += helper(i); b(); one(); two(); return sum == 7; }\n",
        "b.c": "static int helper(int x) { __asm__ volatile(\"\"); return x + 2; }\nint helper2(int);\n"
               "void b(void) { for (int i = 0; i < 5; ++i) helper(i); for (int i = 0; i < 7; ++i) helper2(i); }\n",
        "c.s": ".globl helper2\n.globl helper\n.type helper, @function\nhelper2: jmp helper\nhelper: nop\nret\n.size helper, . - helper\n.section .note.GNU-stack\n",
        "one/util.c": "static int twin(int x) { __asm__ volatile(\"\"); return x + 1; }\nvoid one(void) { for (int i = 0; i < 2; ++i) twin(i); }\n",
        "two/util.c": "static int twin(int x) { __asm__ volatile(\"\"); return x + 1; }\nvoid two(void) { for (int i = 0; i < 4; ++i) twin(i); }\n",
    }

    def build_of_files(self):
        for name, text in self.SOURCES.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        subprocess.run([CC, "-O1", "-fno-inline", "-fno-ipa-sra", "-fno-ipa-cp", *self.SOURCES, "-o", "files"], cwd=self.folder, check=True)
        return self.folder / "files"

    def test_functions_of_one_name_have_rows_of_their_own(self):
        program = self.build_of_files()
        data = self.recorded(program)
        listing = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
        twins = sorted(int(at, 16) for at in re.findall(r"^(\w+) t twin$", listing, re.M))
        self.assertEqual(len(twins), 2)
        want = {"a.c:helper": 3, "b.c:helper": 5, "helper": 7, f"{twins[0]:#x}:twin": 2, f"{twins[1]:#x}:twin": 4}
        calls = {name: row["calls"] for name, row in self.rows(data).items()}
        self.assertEqual({name: count for name, count in calls.items() if name.split(":")[-1] in ("helper", "twin")}, want)
        bundle = self.folder / "files.ptdb"
        run("bundle", "-q", "-i", data, "-o", bundle)
        for source in (data, bundle):
            with self.subTest(source=source):
                for pattern, names in (("helper", {"a.c:helper", "b.c:helper", "helper"}), ("b.c:helper", {"b.c:helper"}), ("twin", {n for n in want if "twin" in n})):
                    lines = run("functions", "-q", "-i", source, "--func", pattern, "--format", "json").splitlines()[1:]
                    self.assertEqual({row["function"]: row["calls"] for row in map(json.loads, lines)}, {name: want[name] for name in names})
                folded = run("flame", "-q", "-i", source, "--format", "folded").splitlines()
                stacks = [line.rsplit(" ", 1)[0] for line in folded]
                self.assertEqual(len(set(stacks)), len(stacks))
                self.assertLessEqual(set(want), {stack.split(";")[-1] for stack in stacks})
                self.assertEqual(set(re.findall(r" (\S*helper)$", run("script", "-q", "-i", source, "--call-trace"), re.M)) - {"helper"}, set())
        places = {name: int(re.search(rf"^ +(\w+) {name}\+0x0 ", run("image", "-q", "-i", data, f"{file}:{name}"), re.M)[1], 16)
                  for file, name in (("b.c", "helper"), (f"{twins[1]:#x}", "twin"))}
        base = places["twin"] - twins[1]
        self.assertEqual(base % 4096, 0)
        places = {name: place - base for name, place in places.items()}
        self.assertIn(f"{places['helper']:016x} t helper\n", listing)
        # The symbols that strip leaves have lost the names of the source files, which the debug file has.
        subprocess.run(["objcopy", "--only-keep-debug", program, "files.debug"], cwd=self.folder, check=True)
        subprocess.run(["strip", "--strip-debug", program], check=True)
        subprocess.run(["objcopy", "--add-gnu-debuglink=files.debug", program], cwd=self.folder, check=True)
        data = self.recorded(program)
        calls = {name: row["calls"] for name, row in self.rows(data).items()}
        self.assertEqual({name: count for name, count in calls.items() if name.split(":")[-1] in ("helper", "twin")}, want)

    def test_a_symbol_at_several_places_is_asked_for(self):
        program = self.build_of_files()
        data = self.recorded(program)
        listing = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
        for name, count in (("helper", 3), ("twin", 2)):
            done = subprocess.run([PTDECODE, "image", "-q", "-i", data, name], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"'{name}' is at {count} places: choose one by its address: ", done.stderr)
            places = {int(address, 16) for address in re.findall(rf"([0-9a-f]+) \([\w.:]*{name}, files\)", done.stderr)}
            addresses = {int(at, 16) for at in re.findall(rf"^(\w+) [tT] {name}$", listing, re.M)}
            base = min(places) - min(addresses)
            self.assertEqual(base % 4096, 0)
            self.assertEqual({place - base for place in places}, addresses)
            for place in places:
                self.assertRegex(run("image", "-q", "-i", data, f"{place:x}"), rf"\n +{place:x} {name}\+0x0 ")

    # Each instance is called as often as its main loop says. `deleted` runs two destructors, `left` one.
    GENERIC = {
        "generic.rs": ("rustc", ["-O", "-C", "debuginfo=0"], r"""
use std::hint::black_box;
#[inline(never)] fn twice<T: Copy + std::ops::Add<Output = T>>(x: T) -> T { black_box(x) + black_box(x) }
fn main() {
    for i in 0..3u32 { black_box(twice(i)); }
    for i in 0..5u64 { black_box(twice(i)); }
    for i in 0..9u8 { black_box(twice(i as f64)); }
}
""", "generic::twice", [3, 5, 9]),
        "generic.cc": ("c++", ["-O1", "-fno-inline"], r"""
volatile int sink;
struct Part { virtual ~Part(); };
Part::~Part() { sink = sink + 1; }
int main() {
  for (int i = 0; i < 4; ++i) delete new Part;
  for (int i = 0; i < 3; ++i) { Part left; }
}
""", "Part::~Part()", [4, 4 + 3]),
    }

    def test_functions_that_only_their_mangled_names_tell_apart(self):
        for source, (compiler, flags, text, name, counts) in self.GENERIC.items():
            schemes = [["-Z", "unstable-options", "-C", "symbol-mangling-version=" + version] for version in ("legacy", "v0")] if compiler == "rustc" else [[]]
            for scheme in schemes:
                if shutil.which(compiler) is None:
                    continue
                (self.folder / source).write_text(text)
                program = self.folder / "generic"
                environment = dict(os.environ, RUSTC_BOOTSTRAP="1")  # allows both schemes
                done = subprocess.run([compiler, *flags, *scheme, source, "-o", program], cwd=self.folder, capture_output=True, text=True, env=environment)
                self.assertEqual(done.returncode, 0, done.stderr)
                data = self.recorded(program)
                bundle = self.folder / "generic.ptdb"
                run("bundle", "-q", "-i", data, "-o", bundle)
                for path in (data, bundle):
                    with self.subTest(source=source, scheme=scheme, path=path.name):
                        lines = [json.loads(line) for line in run("functions", "-q", "-i", path, "--func", name, "--format", "json").splitlines()[1:]]
                        self.assertEqual(sorted(line["calls"] for line in lines), counts, lines)
                        self.assertEqual(len({line["function"] for line in lines}), len(counts))
                        if not any("<" in line["function"] for line in lines):  # Rust's v0 names have the types
                            listing = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
                            named = {line["function"] for line in lines}
                            places = {f"0x{int(at, 16):x}:" for at in re.findall(r"^(\w+) [tTW] _ZN.*(?:5twice|4PartD0)", listing, re.M)}
                            self.assertEqual(named, {place + name for place in places} | ({name} if "Part" in name else set()))
                # Addresses differ from build to build, so a comparison adds them up.
                (row,) = [json.loads(line) for line in run("functions", "-q", "--json", "--diff", data, data, "--func", name).splitlines() if '"function"' in line][:1]
                if "<" not in row["function"]:
                    self.assertEqual((row["function"], row["calls_a"], row["calls_b"]), (name, sum(counts), sum(counts)))
                bundle.unlink()

    def test_files_of_one_name_are_told_apart(self):
        """Two programs, each without symbols and with one function besides main, which it calls 10 and 3 times: both begin at the same offset."""
        names, build_ids = {}, {}
        for folder, calls in (("a", 10), ("b", 3)):
            (self.folder / folder).mkdir()
            program = self.folder / folder / "prog"
            text = f"""__attribute__((noinline)) static int f(int x) {{ asm volatile(""); return x + {calls}; }}
                       int main() {{ int s = 0; for (int i = 0; i < {calls}; ++i) s += f(i); return s == 0; }}"""
            subprocess.run([CC, "-O1", "-Wl,--build-id", "-x", "c", "-", "-o", program], input=text, text=True, check=True)
            (start,) = re.findall(r"^0*(\w+) t f$", subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout, re.M)
            notes = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
            (build_ids[folder],) = re.findall(r"Build ID: (\w+)", notes)
            subprocess.run(["strip", "-s", program], check=True)
            names[f"{folder}/prog+0x{start}"] = calls
        self.assertEqual(len({name.partition("+")[2] for name in names}), 1)
        data = self.folder / "two.data"
        run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-q", "-o", data, "--", "sh", "-c", f"{self.folder}/a/prog; {self.folder}/b/prog")
        rows = [json.loads(line) for line in run("functions", "-q", "--json", "-i", data, "--limit", "0").splitlines()]
        found = {row["function"]: (row["calls"], row["module"]) for row in rows if row.get("function", "").partition("+")[0].endswith("prog")}
        self.assertEqual({name: found.get(name) for name in names}, {name: (calls, name.partition("+")[0]) for name, calls in names.items()})
        # A recording of the first program alone names its module "prog".
        alone = self.folder / "alone.data"
        run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-q", "-o", alone, "--", "sh", "-c", f"{self.folder}/a/prog; {self.folder}/a/prog")
        lines = map(json.loads, run("functions", "-q", "--json", "--limit", "0", "--diff", data, alone).splitlines())
        compared = {line["function"]: (line["calls_a"], line["calls_b"]) for line in lines if line.get("function") in names}
        self.assertEqual(compared, {name: (calls, 20 if name.startswith("a/") else 0) for name, calls in names.items()})
        database = self.folder / "two.db"
        run("export", "-q", "-i", data, "-o", database)
        with sqlite3.connect(database) as db:
            files = {name: (path, build_id) for name, path, build_id in db.execute("SELECT short_name, long_name, build_id FROM dsos")}
        self.assertEqual({name: files.get(f"{name}/prog") for name in build_ids}, {name: (f"{self.folder}/{name}/prog", id) for name, id in build_ids.items()})
        run("profile", "-q", "-i", data, "--format", "pprof", "-o", self.folder / "two.pb")
        profile = (self.folder / "two.pb").read_bytes()
        self.assertEqual([profile.count(build_id.encode()) for build_id in build_ids.values()], [1, 1])

    def test_saved_symbols_are_told_apart_too(self):
        """The second command takes the symbols that the first one saved in the stash."""
        program = self.build_of_files()
        data, stash = self.folder / "files.data", self.folder / "stash"
        environment = dict(os.environ, PTDECODE_STASH=str(stash))
        subprocess.run([PTDECODE, "record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-q", "-o", data, "--", program], env=environment, check=True)
        program.unlink()
        for _ in range(2):
            text = subprocess.run([PTDECODE, "functions", "-q", "-i", data, "--limit", "0"], env=environment, capture_output=True, text=True, check=True).stdout
            self.assertEqual({name: int(calls) for calls, name in re.findall(r"^ +(\d+) .* (\S+:helper) \(files\)$", text, re.M)},
                             {"a.c:helper": 3, "b.c:helper": 5})
        self.assertTrue(list(stash.glob("parsed/symbols-5/*/*")))


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("skipped: no qemu-x86_64")
        sys.exit(77)
    unittest.main()
