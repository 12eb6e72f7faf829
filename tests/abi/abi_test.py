#!/usr/bin/env python3
"""Compares the binary interface of libptdecode with the reference in this directory. Usage: abi_test.py SOURCE LIBRARY VERSION COMPILER
[--update]

COMPILER is "NAME VERSION". The reference has two files. libptdecode.abi.xz is what libabigail's abidw reads from a small library that
defines the functions of the public headers (C++ and C) and uses their classes; so the library itself needs no full debug information. symbols.txt has
the version, the compiler and the exported symbols of the library.

A build with another compiler than the reference's has its symbols compared, but not its types: abidiff reports that the bases of std::variant and
std::unordered_map differ between the headers of GCC 12 and 14.

An incompatible change fails unless the version (major.minor) changed too. --update writes a new reference. Exit status 77: skipped.
"""
import collections
import lzma
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ABI, SYMBOLS = HERE / "libptdecode.abi.xz", HERE / "symbols.txt"
SKIPPED = 77
STABLE = ("--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--no-elf-needed", "--no-parameter-names")
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{\n(.*?)(?=^namespace|\Z)", re.S | re.M)
CLASS = re.compile(r"^(template\s*<[^\n]*>\n)?(?:class|struct) (?:\[\[nodiscard\]\] )?(?:PTD_API )?(\w+)[^;{]*\{", re.M)
FUNCTION = re.compile(r"^(?:\[\[nodiscard\]\] )?PTD_API ([^;{]*?\([^;]*?\));", re.M)
C_FUNCTION = re.compile(r"^PTD_C_API ([^;{]*?\([^;]*?\));", re.M)
DEFAULT = re.compile(r" = (?:\{[^}]*\}|[^,)]*)(?=[,)])")
State = collections.namedtuple("State", "version compiler symbols")


def run(*words, statuses=(0,)):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode not in statuses:
        raise SystemExit(f"{words[0]}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def probe_of(include):
    """Returns a source file that defines the free functions of the public headers, and a function that uses each class."""
    lines, uses, functions = [], [], []
    for header in sorted((include / "ptdecode").rglob("*.h")):
        lines.append(f'#include "{header.relative_to(include)}"')
        text = re.sub(r"//[^\n]*", "", header.read_text(encoding="utf-8"))
        for space, body in NAMESPACE.findall(text):
            uses += [f'extern "C" void uses_{space.replace("::", "_")}_{name}(const {space}::{name}*) {{}}'
                     for template, name in CLASS.findall(body) if not template]
            for function in FUNCTION.findall(body):
                functions.append(f"namespace {space} {{ {DEFAULT.sub('', ' '.join(function.split()))} {{ __builtin_trap(); }} }}")
        functions += [f'extern "C" {{ {" ".join(function.split())} {{ __builtin_trap(); }} }}' for function in C_FUNCTION.findall(text)]
    if len(uses) < 50 or len(functions) < 40:
        raise SystemExit(f"only {len(uses)} classes and {len(functions)} functions found in {include}")
    return "\n".join(lines + uses + functions) + "\n"


def types_of(source, folder):
    """Returns the types of the public headers as abidw's XML."""
    probe, library, abi = folder / "probe.cc", folder / "probe.so", folder / "probe.abi"
    probe.write_text(probe_of(source / "include"), encoding="utf-8")
    run(os.environ.get("CXX", "c++"), "-std=c++20", "-g", "-O0", "-w", "-fPIC", "-shared", "-I", source / "include", probe, "-o", library)
    run("abidw", *STABLE, "--out-file", abi, library)
    return abi.read_text(encoding="utf-8").replace(str(folder) + "/", "")


def symbols_of(library):
    """Returns the symbols that programs link to. Weak symbols are inline functions and their tables: a program has its own copy."""
    lines = [line.split() for line in run("nm", "-D", "--defined-only", library).stdout.splitlines()]
    return sorted(words[-1] for words in lines if words[-2] not in ("W", "A", "V"))


def read_state():
    version, compiler, *symbols = SYMBOLS.read_text(encoding="utf-8").splitlines()
    return State(version, compiler, symbols)


def major(compiler):
    return compiler.split(".")[0]


def main():
    source, library = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    version, compiler = ".".join(sys.argv[3].split(".")[:2]), sys.argv[4]
    if not library.exists():
        skip(f"{library} is not built as a shared library")
    if "-fsanitize" in os.environ.get("CXXFLAGS", ""):
        skip("the library is built with a sanitizer")
    try:
        run("abidiff", "--version")
    except FileNotFoundError:
        skip("abidiff is not installed (Debian: abigail-tools)")
    symbols = symbols_of(library)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if "--update" in sys.argv:
            ABI.write_bytes(lzma.compress(types_of(source, folder).encode(), preset=9))
            SYMBOLS.write_text("\n".join([version, compiler, *symbols]) + "\n", encoding="utf-8")
            print(f"{ABI}: {ABI.stat().st_size} bytes; {SYMBOLS}: {len(symbols)} symbols")
            return 0
        reference = read_state()
        same_compiler = major(compiler) == major(reference.compiler)
        if same_compiler:
            (folder / "reference.abi").write_bytes(lzma.decompress(ABI.read_bytes()))
            (folder / "now.abi").write_text(types_of(source, folder), encoding="utf-8")
            report = run("abidiff", "--no-added-syms", folder / "reference.abi", folder / "now.abi", statuses=range(16))
        else:
            print(f"types are not compared: the reference is of {reference.compiler}, this build of {compiler}")
            report = run("true")
    removed = sorted(set(reference.symbols) - set(symbols))
    if report.returncode == 0 and not removed:
        print(f"{len(symbols)} symbols, {len(set(symbols) - set(reference.symbols))} of them new; no incompatible change")
        return 0
    print(report.stdout + report.stderr + "".join(f"no longer exported: {one}\n" for one in removed))
    if report.returncode & 3:
        return 1  # abidiff itself failed
    if version != reference.version:
        print(f"The interface changed from {reference.version} to {version}. Update the reference: cmake --build BUILD --target abi_reference")
        return 0
    print("The binary interface changed incompatibly, but the version did not. Raise the version (CMakeLists.txt), or, if no release has\n"
          "this interface, update the reference: cmake --build BUILD --target abi_reference")
    return 1


if __name__ == "__main__":
    sys.exit(main())
