#!/usr/bin/env python3
"""Programs without symbols: .eh_frame tells their functions apart. `image`: places that need a second look.

Environment: PTDECODE, PTDECODE_PLUGIN, CXX. Exit status 77 without qemu-x86_64.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
CC, CXX = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")
JUMPS = r"""
#include <csetjmp>
static jmp_buf place;
#define F __attribute__((noinline, noclone)) int
static F leaf(int i) { __asm__ volatile(""); return i + 1; }
static F thrower(int i) { if (i >= 0) throw i; return leaf(i); }
static F catcher(int i) {
  try { return thrower(i); } catch (int value) { return leaf(value); }
}
static F jumper(int i) { leaf(i); longjmp(place, 1); }
static F keeper(volatile int i) {
  if (setjmp(place) == 0) return jumper(i);
  return leaf(i);
}
struct Guard { ~Guard() { leaf(1); } };
static F cleaner(int i) { Guard guard; return thrower(i); }
int main() {
  int sum = 0;
  for (int i = 0; i < 6; ++i) sum += catcher(i);
  for (int i = 0; i < 5; ++i) sum += keeper(i);
  for (int i = 0; i < 4; ++i) try { sum += cleaner(i); } catch (int) { ++sum; }
  return sum > 1000;
}
"""
# `small` is one JMP to code without a symbol and without .eh_frame, which counts down from 1,000.
BESIDE = r"""
__asm__(".globl small\n .type small,@function\n small: jmp .Lbig\n .size small,.-small\n .p2align 6\n"
        ".globl big_is_here\n .set big_is_here, .Lbig\n .Lbig: mov $1000,%ecx\n 2: dec %ecx\n jnz 2b\n ret\n");
void small(void);
int main(void) {
  for (int i = 0; i < 100; ++i) small();
  return 0;
}
"""
# Generated code: two stubs, each one JMP to a body that counts down from its argument. The body is called 20 times, and jumped to 150 times.
STUBS = r"""
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int main(void) {
  unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(code + 0x40, "\x89\xf9\xff\xc9\x75\xfc\xc3", 7);  // mov %edi,%ecx; 1: dec %ecx; jnz 1b; ret
  memcpy(code, "\xeb\x3e", 2);                            // jmp body
  memcpy(code + 0x20, "\xeb\x1e", 2);
  void (*first)(int) = (void *)code, (*second)(int) = (void *)(code + 0x20), (*body)(int) = (void *)(code + 0x40);
  for (int i = 0; i < 10; ++i) body(10);
  for (int i = 0; i < 100; ++i) first(1000);
  for (int i = 0; i < 50; ++i) second(2000);
  for (int i = 0; i < 10; ++i) body(10);
  printf("%p\n", (void *)code);
  return 0;
}
"""
# Functions that jump to code without a symbol and without .eh_frame. From that of `slow`, `deep` and `next`, jumps lead back into the function: directly,
# after a call of the function itself, and through other such code. That of `ends` jumps to another function. That of `tail` returns.
# That of `cuts` does, too: the jump after a call that does not return is of other code.
PARTS = r"""
#define BEGIN(name) ".globl " #name "\n .type " #name ",@function\n " #name ": "
#define END(name) ".size " #name ",.-" #name "\n .p2align 6\n"
__asm__(BEGIN(slow) "mov $1000,%ecx\n 1: jmp 2f\n 3: dec %ecx\n jnz 1b\n ret\n" END(slow) "2: add $1,%rax\n add $1,%rax\n jmp 3b\n"
        BEGIN(deep) "test %edi,%edi\n jnz 1f\n 2: ret\n" END(deep) "1: dec %edi\n push %rdi\n call deep\n pop %rdi\n jmp 2b\n"
        BEGIN(next) "jmp 1f\n 3: ret\n" END(next) "1: jmp 2f\n .p2align 6\n 2: dec %edi\n jmp 3b\n"
        BEGIN(last) "nop\n ret\n" END(last)
        BEGIN(ends) "jmp 1f\n" END(ends) "1: nop\n jmp last\n .p2align 6\n"
        BEGIN(tail) "jmp 1f\n" END(tail) "1: mov $50,%ecx\n 2: dec %ecx\n jnz 2b\n ret\n .p2align 6\n"
        BEGIN(cuts) "jmp 1f\n 3: ret\n" END(cuts) "1: mov $50,%ecx\n 2: dec %ecx\n jnz 2b\n test %ecx,%ecx\n jnz 4f\n ret\n 4: call abort\n jmp 3b\n .p2align 6\n");
void slow(void), deep(int), next(void), ends(void), tail(void), cuts(void);
int main(void) {
  for (int i = 0; i < 10; ++i) slow(), deep(20), next(), ends(), tail(), cuts();
  return 0;
}
"""
NAMES = ("leaf", "thrower", "catcher", "jumper", "keeper", "cleaner", "main")


def run(*words, status=0):
    done = subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, (words, done.returncode, done.stderr)
    return done.stdout if status == 0 else done.stderr


class Base(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def recorded(self, *command, options=()):
        path = self.folder / "recording.data"
        path.unlink(missing_ok=True)
        run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "-q", *options, "-o", path, "--", *command)
        return path

    def rows(self, path, module):
        lines = [json.loads(line) for line in run("functions", "-q", "-i", path, "--limit", "0", "--format", "json").splitlines()]
        return {line["function"]: (line["calls"], line["self_instructions"]) for line in lines[1:] if line["module"] == module}


class Jumps(Base):
    """A jump out of a function to code without a symbol ends it, as another tail call does. Instructions are those of the source."""

    def test_out_of_a_symbol(self):
        program = self.folder / "beside"
        subprocess.run([CC, "-O1", "-no-pie", "-x", "c", "-", "-o", program], input=BESIDE, text=True, check=True)
        place = int(re.search(r"^(\w+) T big_is_here$", subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout, re.M)[1], 16)
        subprocess.run(["objcopy", "-N", "big_is_here", program], check=True)
        rows = self.rows(self.recorded(program), "beside")
        self.assertEqual(rows["small"], (100, 100))
        self.assertEqual(rows[f"beside+{place - 0x400000:#x}"], (100, 100 * (1 + 2 * 1000 + 1)))

    def test_out_of_a_function_and_back(self):
        """(calls, all instructions, own instructions) of the source, each function called 10 times by main. deep(20) makes 20 calls of itself."""
        program = self.folder / "parts"
        subprocess.run([CC, "-O1", "-no-pie", "-x", "c", "-", "-o", program], input=PARTS, text=True, check=True)
        want = {"slow": (10, 10 * (1 + 1000 * 6 + 1), 10 * (1 + 1000 * 6 + 1)), "deep": (210, 10 * (20 * 8 + 3), 10 * (20 * 8 + 3)), "next": (10, 50, 50),
                "last": (10, 20, 20), "ends": (10, 10, 10), "tail": (10, 10, 10), "cuts": (10, 10, 10)}
        for options in ((), ("--no-tsc",)):
            data = self.recorded(program, options=options)
            lines = [json.loads(line) for line in run("functions", "-q", "-i", data, "--limit", "0", "--format", "json").splitlines()][1:]
            rows = {line["function"]: (line["calls"], line["total_instructions"], line["self_instructions"]) for line in lines if line["module"] == "parts"}
            self.assertEqual({name: rows.get(name) for name in want}, want, options)
            self.assertEqual([line["partial"] for line in lines if line["function"] in want], [0] * len(want), options)
            others = sorted(rows[name] for name in rows if name.startswith("parts+0x") and rows[name][0] == 10)
            self.assertEqual(others, [(10, 20, 20), (10, 1020, 1020), (10, 1040, 1040)], options)  # what `ends`, `tail` and `cuts` jump to

    def test_of_stubs_of_generated_code(self):
        program = self.folder / "stubs"
        subprocess.run([CC, "-O1", "-x", "c", "-", "-o", program], input=STUBS, text=True, check=True)
        path = self.recorded(program)
        rows = [json.loads(line) for line in run("functions", "-q", "-i", path, "--limit", "0", "--format", "json").splitlines()][1:]
        found = {line["function"][-2:]: (line["calls"], line["self_instructions"]) for line in rows if line["module"].startswith("[anon ")}
        body = 20 * (2 * 10 + 2) + 100 * (2 * 1000 + 2) + 50 * (2 * 2000 + 2)
        self.assertEqual(found, {"00": (100, 100), "20": (50, 50), "40": (170, body)})


class Stripped(Base):
    def built(self, level, stripped):
        """Returns the program's rows, with the names of the program that is not stripped."""
        program = self.folder / "jumps"
        subprocess.run([CXX, level, "-x", "c++", "-", "-o", program], input=JUMPS, text=True, check=True)
        symbols = dict(re.findall(r"^0*(\w+) [tT] (\S+)$", subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout.replace("(int)", "").replace("(int volatile)", ""), re.M))
        if stripped:
            subprocess.run(["strip", "-s", program], check=True)
        data = self.recorded(program)
        rows = self.rows(data, "jumps")
        bundle = self.folder / "jumps.ptdb"
        bundle.unlink(missing_ok=True)
        run("bundle", "-q", "-i", data, "-o", bundle)
        self.assertEqual(self.rows(bundle, "jumps"), rows)
        named = {}
        for name, figures in rows.items():
            offset = re.fullmatch(r"jumps\+0x(\w+)", name)
            named[symbols.get(offset[1], name) if offset else name.split("(")[0]] = figures
        return named

    def test_a_name_that_the_program_has_lost_is_not_called_uncalled(self):
        """`jumper` ran, and is listed by its offset. `getenv_` does not exist. The C library has `wcscoll`, which was not called."""
        self.built("-O1", True)
        ask = lambda name: run("functions", "-q", "-i", self.folder / "recording.data", "--func", name, status=2)
        for name in ("jumper", "getenv_"):
            self.assertRegex(ask(name), rf"no function is named '{name}'.*; functions without a symbol, as in .*jumps.*, are listed as FILE\+0xOFFSET")
        self.assertIn("'wcscoll' was not called", ask("wcscoll"))

    def test_all_code_of_a_function_has_one_row(self):
        """Landing pads and returns of setjmp() are not functions: a stripped program has the rows of one that is not stripped."""
        want, found = self.built("-O1", False), self.built("-O1", True)
        self.assertEqual({name: found.get(name) for name in NAMES}, {name: want[name] for name in NAMES})
        self.assertEqual([name for name in found if name.startswith("jumps+0x") and name not in want], [])

    def test_a_part_that_was_split_off_has_at_most_one_row(self):
        want, found = self.built("-O2", False), self.built("-O2", True)
        for name in NAMES:
            if name in want and name not in ("catcher", "cleaner", "main"):  # these have a part for exceptions
                self.assertEqual(found.get(name), want[name], name)
        parts = [name for name in found if "+0x" in name]
        self.assertLessEqual(len(parts), 3, parts)


class Places(Base):
    def test_a_symbol_of_one_process_needs_no_thread(self):
        programs = []
        for name in ("one", "two"):
            source = f"int only_{name}(void) {{ return 1; }} int both(void) {{ return 2; }} int main(void) {{ return only_{name}() + both() != 3; }}\n"
            programs.append(self.folder / name)
            subprocess.run([CC, "-O0", "-x", "c", "-", "-o", programs[-1]], input=source, text=True, check=True)
        data = self.recorded("sh", "-c", f"{programs[0]}; {programs[1]}; true")
        listed = run("image", "-q", "-i", data, "only_one")
        self.assertRegex(listed, r"only_one\+0x0 ")
        self.assertNotIn("two", listed)
        self.assertRegex(run("image", "-q", "-i", data, "only_two+0x1"), r"only_two\+0x1 ")
        said = run("image", "-q", "-i", data, "both", status=2)
        tids = dict((comm, tid) for tid, comm in re.findall(r"(\d+) \((one|two)\)", said))
        self.assertRegex(said, r"'both' is in 2 address spaces: choose one with --tid: ")
        self.assertEqual(set(tids), {"one", "two"})
        for name, tid in tids.items():
            self.assertIn(f"/{name}", run("image", "-q", "-i", data, "both", "--tid", tid).splitlines()[0])
        self.assertIn("neither a hexadecimal address nor a known symbol", run("image", "-q", "-i", data, "only_three", status=2))

    def test_segments_that_share_a_page_of_the_file(self):
        """The page that ends one segment and begins the next is mapped for each. As in the kernel's records, only the executable mapping is recorded."""
        builds = {"ld": ["-Wl,-z,noseparate-code"]}
        if lld := next(filter(None, map(shutil.which, ("ld.lld", "ld.lld-14", "ld.lld-19"))), None):
            (self.folder / "ld.lld").symlink_to(lld)
            builds["lld"] = [f"-B{self.folder}", "-fuse-ld=lld"]
        for name, flags in builds.items():
            program = self.folder / name
            subprocess.run([CC, "-O0", *flags, "-x", "c", "-", "-o", program], input="int main(void) { return 0; }\n", text=True, check=True)
            headers = subprocess.run(["readelf", "-lW", program], capture_output=True, text=True, check=True).stdout
            loads = [(int(offset, 16), int(address, 16), flags) for offset, address, flags in re.findall(r"LOAD +(\S+) (\S+) \S+ \S+ \S+ ([R W]+E?)", headers)]
            ((code, code_address),) = {load[:2] for load in loads if load[2].endswith("E")}
            self.assertIn(code >> 12, [offset >> 12 for offset, address, _ in loads if address != code_address])
            data, bundle = self.recorded(program), self.folder / f"{name}.ptdb"
            run("bundle", "-q", "-i", data, "-o", bundle)
            for path in (data, bundle):
                self.assertRegex(run("image", "-q", "-i", path, "main"), r" main\+0x0 ", (name, path))
                sections = re.findall(rf"^ *mm\d+ \w+-\w+ \w+ +({program}) ", run("image", "-q", "-i", path), re.M)
                self.assertEqual(sections, [str(program)], (name, path))

    def test_an_address_inside_an_instruction(self):
        program = self.folder / "inside"
        text = ".globl _start, f\n.type f, @function\nf: nop\nmovabs $0x1122334455667788, %rax\nret\n.size f, . - f\n_start: call f\nmov $60, %eax\nxor %edi, %edi\nsyscall\n"
        subprocess.run([CC, "-nostdlib", "-static", "-x", "assembler", "-", "-o", program], input=text, text=True, check=True)
        data = self.recorded(program)
        lines = run("image", "-q", "-i", data, "f+0x3").splitlines()
        self.assertRegex(lines[2], r"^\w+ is inside this instruction:$")
        self.assertRegex(lines[3], r" f\+0x1 .*mov(?:abs)? \$0x1122334455667788, ?%rax")
        self.assertRegex(lines[5], r" f\+0x3 ")
        for place in ("f", "f+0x1", "f+0xb"):
            self.assertNotIn("is inside", run("image", "-q", "-i", data, place))


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("skipped: no qemu-x86_64")
        sys.exit(77)
    unittest.main()
