"""A PE library and an ELF program that runs its code, so that the emulator records the flow of a "Windows process".

Second sources: the linker places the library at the address at which the program runs it, so that nothing relocates it but the linker; objdump
(binutils) gives its sections and symbols. ptdecode gets the same library, linked for another address.
"""
import random
import re
import struct
import subprocess

LINKED, LOADED = 0x180000000, 0x7ff712340000
LIBRARY = r"""
__declspec(dllexport) volatile int sum;
static __attribute__((noinline)) int leaf(int i) { return i * 3 + sum; }
__declspec(dllexport) __attribute__((noinline)) int middle(int i) {
  int total = 0;
  for (int k = 0; k < 3; ++k) total += leaf(i + k);
  volatile int *where;
  __asm__("movabsq $sum, %0" : "=r"(where));
  if (total & 1) *where += total;
  return total;
}
static int (*volatile pointer)(int) = middle;
__declspec(dllexport) int run(int count) {
  int total = 0;
  for (int i = 0; i < count; ++i) total += pointer(i);
  return total;
}
"""
LIBRARY32 = r"""
__declspec(dllexport) volatile int sum;
int (*volatile pointers[2])(int);
__declspec(dllexport) int leaf(int i) { sum += i; return sum * 3; }
__declspec(dllexport) int run(int i) { pointers[i & 1] = leaf; return pointers[i & 1](i) + sum; }
"""
# Exports, and functions that only a CALL, a tail call or a pointer leads to; the former have no .pdata if they call nothing.
MIXED = r"""
#define EXPORT __declspec(dllexport)
#define STATIC static __attribute__((noinline))
EXPORT volatile int sum;
STATIC int called(int i) { return i * 3 + sum; }
EXPORT int run(int i) { return called(sum + i); }
EXPORT int leaf(int i) { sum += i; return sum; }
STATIC int pointed(int i) { sum -= 2; return i + 1; }
EXPORT int (*volatile pointer)(int) = pointed;
EXPORT int choose(int i) {
  switch (i) {
    case 0: sum += 7; break;
    case 1: sum *= 3; break;
    case 2: sum -= 1; break;
    case 3: sum ^= 9; break;
    case 4: return called(sum) + 1;
    case 5: sum = -sum; return 3;
    default: sum <<= 1;
  }
  return sum;
}
STATIC int later(int i) { return i ^ sum; }
EXPORT int loop(int n) { for (int i = 0; i < n; ++i) { if (sum & 1) continue; sum += i; } return n; }
STATIC int other(int i) { return sum / i; }
EXPORT int (*volatile pointers[])(int) = {other, later};
__asm__(".text\n.p2align 4\n" PREFIX "behind:\n ret\n");
__asm__(".text\n.globl " PREFIX "jumps\n.p2align 4\n" PREFIX "jumps:\n nop\n jmp " PREFIX "tail\n.p2align 4\n" PREFIX "tail:\n ret\n"
        ".section .drectve,\"yn\"\n.ascii \" -export:jumps\"\n.text\n");
EXPORT int last(int i) { if (i > 3) return called(i) + 1; for (;;) sum += i; }
STATIC int spare(int i) { return sum % i; }
EXPORT int (*volatile more)(int) = spare;
"""
PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static int (__attribute__((ms_abi)) *run)(int);
static void *work(void *count) {
  printf("%ld %ld\n", (long)syscall(SYS_gettid), (long)count);
  return (void *)(long)run((int)(long)count);
}
int main(int argc, char **argv) {  // FILE ADDRESS ENTRY COUNT...
  unsigned char *at = (unsigned char *)strtoul(argv[2], 0, 16);
  static unsigned char image[1 << 16];
  FILE *file = fopen(argv[1], "rb");
  size_t size = fread(image, 1, sizeof image, file);
  if (mmap(at, sizeof image, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at) return 1;
  for (size_t i = 0; i < size; ++i) at[i] = image[i];
  run = (__attribute__((ms_abi)) int (*)(int))strtoul(argv[3], 0, 16);
  for (int i = 4; i < argc; ++i) {
    pthread_t thread;
    pthread_create(&thread, 0, work, (void *)atol(argv[i]));
    pthread_join(thread, 0);
  }
  return 0;
}
"""


def random_source(seed):
    """C source of 40 functions, half of them exported, that loop, switch, and call each other."""
    pick, names, lines = random.Random(seed), [], ["#define EXPORT __declspec(dllexport)", "EXPORT volatile int sum;"]

    def statement(depth):
        kind = pick.randrange(9 if depth < 3 else 3)
        if kind == 3:
            return f"for (int i = 0; i < a; ++i) {{ {statement(depth + 1)} if (sum == i) break; }}"
        if kind == 4:
            return f"if (a > {pick.randrange(50)}) {{ {statement(depth + 1)} }} else {{ {statement(depth + 1)} }}"
        if kind == 5:
            cases = (f"case {i}: {statement(depth + 1)} {pick.choice(['break;', '', 'return a;'])}" for i in range(pick.randrange(3, 9)))
            return f"switch (a) {{ {' '.join(cases)} }}"
        if kind == 6:
            return f"while (sum & {pick.randrange(1, 8)}) {{ {statement(depth + 1)} }}"
        if kind == 8:
            return f"do {{ {statement(depth + 1)} }} while (--a > 0);"
        if kind in (2, 7) and names:
            return f"a += {pick.choice(names)}(a);" if kind == 2 else f"if (a == {pick.randrange(9)}) return {pick.choice(names)}(a + 1);"
        return f"sum += a * {pick.randrange(9)};" if kind else f"a ^= sum >> {pick.randrange(1, 5)};"

    for i in range(40):
        scope = "EXPORT" if pick.random() < .5 else "static __attribute__((noinline))"
        lines.append(f"{scope} int fn{i}(int a) {{ {' '.join(statement(0) for _ in range(pick.randrange(1, 4)))} return a; }}")
        names.append(f"fn{i}")
    lines.append(f"EXPORT int (*volatile pointers[])(int) = {{{','.join(names)}}};\nEXPORT int run(int a) {{ return pointers[a](a); }}\n")
    return "\n".join(lines)


def tool(name):
    """Returns the first of NAME, NAME-14, NAME-19 ... that is installed, else None."""
    for version in ("-14", "-19", "-18", ""):
        if subprocess.run(["sh", "-c", f"command -v {name}{version}"], capture_output=True).returncode == 0:
            return name + version
    return None


CLANG, LLD, READOBJ = tool("clang"), tool("ld.lld"), tool("llvm-readobj")
TOOLS = CLANG is not None and LLD is not None and READOBJ is not None


def link(folder, name, base, bits=64, source=None, level="-O1"):
    """Compiles the library and links it for the address; returns its path."""
    target, emulation, default = (("x86_64-w64-mingw32", "i386pep", LIBRARY) if bits == 64 else ("i686-w64-mingw32", "i386pe", LIBRARY32))
    unit, output = folder / f"{name}.o", folder / name
    words = [CLANG, f"--target={target}", f'-DPREFIX="{"_" if bits == 32 else ""}"', level, "-w", "-x", "c", "-c", "-", "-o", unit]
    words += ["-fno-jump-tables"] if bits == 64 else []  # it would be among the code
    subprocess.run(words, input=source or default, text=True, check=True)
    entry = "run" if bits == 64 else "_run"
    subprocess.run([LLD, "-m", emulation, "-shared", "-e", entry, "--dynamicbase", "--image-base", hex(base), unit, "-o", output], check=True)
    return output


def sections(path):
    """(name, address, size, file offset) of each section, from objdump."""
    text = subprocess.run(["objdump", "-h", path], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"(?m)^ +\d+ (\S+) +([0-9a-f]+) +([0-9a-f]+) +[0-9a-f]+ +([0-9a-f]+) ", text)
    return [(name, int(address, 16), int(size, 16), int(offset, 16)) for name, size, address, offset in rows]


def symbols(path):
    """Name -> address of the functions, from objdump."""
    text = subprocess.run(["objdump", "-t", path], capture_output=True, text=True, check=True).stdout
    starts = {i + 1: address for i, (_, address, _, _) in enumerate(sections(path))}
    rows = re.findall(r"\(sec +(\d+)\)\(fl 0x00\)\(ty +20\).*\) 0x([0-9a-f]+) (\S+)", text)
    return {name: starts[int(section)] + int(value, 16) for section, value, name in rows}


def instructions(path):
    """(address, function, mnemonic) of each instruction in a function, from objdump."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True).stdout
    function, rows = None, []
    for line in text.splitlines():
        if start := re.match(r"[0-9a-f]+ <(.+)>:", line):
            function = start.group(1)
        elif row := re.match(r" *([0-9a-f]+):\t(\S+)", line):
            rows.append((int(row.group(1), 16), function, row.group(2)))
    return rows


def without_symbols(path, output):
    """Writes the file without its symbol table, as Microsoft's linker makes it; the exports remain."""
    content = bytearray(path.read_bytes())
    at, = struct.unpack_from("<I", content, 0x3c)
    struct.pack_into("<II", content, at + 12, 0, 0)
    output.write_bytes(content)


def exports(path):
    text = subprocess.run([READOBJ, "--coff-exports", path], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?m)^ *Name: (\w+)$", text))


def header_field(path, name):
    text = subprocess.run([READOBJ, "--file-headers", path], capture_output=True, text=True, check=True).stdout
    return int(re.search(rf"(?m)^ *{name}:.*?(0x[0-9A-Fa-f]+|\d+)\)?$", text).group(1), 0)


def flat_image(path, base):
    """The sections of the file at their addresses from `base` on."""
    content, image = path.read_bytes(), bytearray()
    for _, address, size, offset in sections(path):
        at = address - base
        image.extend(bytes(max(0, at + size - len(image))))
        image[at:at + size] = content[offset:offset + size]
    return bytes(image)


def ring(trace, size, position):
    """The ring of `size` bytes after `trace` was written, the last byte before `position`; (ring, offset)."""
    last = trace[-size:]
    cut = size - position
    return last[cut:] + last[:cut], position


def thread_entry(tid, data, offset, timing=2, mtc=9, ratio=256, size=None):
    return struct.pack("<QIIIII", tid, timing, mtc, ratio, offset, len(data) if size is None else size) + data


def dump(entries, header=True, version=1, valid=1, size=None):
    body = b"".join(entries)
    return (struct.pack("<HHI", version, valid, len(body) if size is None else size) if header else b"") + body
