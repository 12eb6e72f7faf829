#!/usr/bin/env python3
"""Run-times from outside of the project announce their code (announce/examples): the flow equals the ground truth.

Environment: as announce_test.py. Exit status 77 without qemu-x86_64; a run-time that is not installed is skipped with a message.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import announce_test as announce
from announce_test import SOURCE, Comparison, check, findings, record

LIBRARY = os.path.join(SOURCE, "announce/ptd_announce.c")
EXAMPLES = os.path.join(SOURCE, "announce/examples")


def compare(folder, what, command, least_sections, *options):
    """Records the program; returns the recording."""
    out = record(folder, command, *options)
    got, image = Comparison(out), subprocess.run([announce.PTDECODE, "image", "-i", out], capture_output=True, text=True).stdout
    check(f"{what}: the flow is the ground truth", got.is_known(), got.text)
    check(f"{what}: its code was announced", image.count("[jit]") >= least_sections, image[-500:])
    found = findings(out)
    check(f"{what}: no findings", "no findings" in found, found[-1000:])
    print("      ", got.text.strip())
    return out


def build_object(folder):
    library = os.path.join(folder, "ptd_announce.o")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-fPIC", "-c", "-o", library, LIBRARY], check=True)
    return library


def luajit(folder):
    if not shutil.which("luajit"):
        return print("skipped: luajit is not installed (apt install luajit)")
    library = os.path.join(folder, "libptd-announce.so.1")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", library, LIBRARY], check=True)
    return compare(folder, "LuaJIT", [shutil.which("luajit"), os.path.join(EXAMPLES, "traces.lua"), library, "10"], 30)


def llvm(folder):
    config = shutil.which("llvm-config") or shutil.which("llvm-config-14") or shutil.which("llvm-config-19")
    if not config:
        return print("skipped: LLVM's headers are not installed (apt install llvm-dev)")
    words = lambda *options: subprocess.run([config, *options], capture_output=True, text=True, check=True).stdout.split()
    library, program = build_object(folder), os.path.join(folder, "orc_jit")
    subprocess.run([os.environ.get("CXX", "c++"), *words("--cxxflags"), "-w", "-I", os.path.dirname(LIBRARY), os.path.join(EXAMPLES, "orc_jit.cpp"), library,
                    *words("--ldflags", "--libs"), "-o", program], check=True)
    return compare(folder, "LLVM ORC", [program, "4"], 4)


def announced(recording, kind):
    """Returns how many samples of the recording announce the end of a change of this kind."""
    with open(recording, "rb") as file:
        return len(re.findall(rb"\x01\0\0\0" + bytes([kind, 2]), file.read()))


def node(folder):
    headers = next((place for place in ("/usr/include/node", "/usr/include/nodejs/src") if os.path.exists(place + "/node_version.h")), None)
    if not shutil.which("node") or not headers or not (os.path.exists(headers + "/uv.h") or os.path.exists("/usr/include/uv.h")):
        return print("skipped: Node.js or its headers are not installed (apt install nodejs libnode-dev)")
    with open(headers + "/node_version.h", encoding="utf-8") as file:
        built = re.search(r"NODE_MAJOR_VERSION (\d+)", file.read())[1]
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    if not version.startswith(f"v{built}."):
        return print(f"skipped: the headers in {headers} are those of Node.js {built}, and node is {version.strip()}")
    if int(built) < 20:
        return print(f"skipped: Node.js {built} does not report all of its code; 20 or later is needed")
    addon = os.path.join(folder, "node_announcer.node")
    subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-w", "-shared", "-fPIC", "-I", headers, "-I", os.path.dirname(LIBRARY),
                    os.path.join(EXAMPLES, "node_announcer.cc"), build_object(folder), "-o", addon], check=True)
    os.environ.pop("NODE_EXTRA_CA_CERTS", None)  # reading certificates is most of a short program
    out = compare(folder, "Node.js", [shutil.which("node"), "--expose-gc", "--single-threaded", "--always-sparkplug", "--stress-compaction", "-r", addon,
                                      os.path.join(EXAMPLES, "work.js"), "3"], 100)
    kinds = {name: announced(out, kind) for kind, name in ((1, "loads"), (2, "moves"), (3, "unloads"), (4, "patches"))}
    print("      ", kinds)
    check("Node.js: code was loaded, moved and freed", kinds["loads"] > 100 and kinds["moves"] > 10 and kinds["unloads"] > 10, kinds)


def python(folder):
    headers = sysconfig.get_paths()["include"]
    if sys.version_info < (3, 11) or not os.path.exists(headers + "/Python.h"):
        return print("skipped: CPython 3.11 or later with its headers is not installed (apt install python3-dev)")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-w", "-shared", "-fPIC", "-I", headers, "-I", os.path.dirname(LIBRARY),
                    os.path.join(EXAMPLES, "python_announcer.c"), build_object(folder), "-o", os.path.join(folder, "python_announcer.so")], check=True)
    os.environ["PYTHONPATH"] = folder
    # Functions that take turns in one place have the same bytes: time tells which one ran, so it has to be exact.
    out = compare(folder, "CPython", [sys.executable, "-S", os.path.join(EXAMPLES, "calls.py")], 50, "--cyc")
    del os.environ["PYTHONPATH"]
    calls = {}
    for line in subprocess.run([announce.PTDECODE, "functions", "-i", out, "--json"], capture_output=True, text=True, check=True).stdout.splitlines():
        row = json.loads(line)
        if row.get("module") == "[jit]":
            calls[row["function"]] = row["calls"], row["self_instructions"]
    pieces = 4 if os.uname().machine == "x86_64" else 5  # instructions of each piece of code
    # fibonacci(12) is 2 F(13) - 1 calls. Each made function is called twice. A generator runs when it is made, to each value, and to its end.
    want = {"fibonacci": 2 * 233 - 1, "made": 1, "Steps.numbers": 1 + 10 + 1, **{f"made_{i}": 2 for i in range(50)}}
    want = {name: (count, count * pieces) for name, count in want.items()}
    got = {name: calls.get(name) for name in want}
    check("CPython: calls of each function, and instructions of its code", got == want, got)
    with open(os.path.join(EXAMPLES, "calls.py"), encoding="utf-8") as file:
        line = 1 + file.read().split("\n").index("def fibonacci(n):")
    bundle = os.path.join(folder, "calls.ptb")
    subprocess.run([announce.PTDECODE, "bundle", "-i", out, "-o", bundle], capture_output=True, check=True)
    for recording in (out, bundle):
        shown = subprocess.run([announce.PTDECODE, "script", "-i", recording, "-S", "fibonacci", "--itrace=i0ns", "-F", "sym,srcline"],
                               capture_output=True, text=True).stdout.splitlines()
        right = sum(text.split()[-1] in (f"calls.py:{line}", f"{EXAMPLES}/calls.py:{line}") for text in shown)
        check(f"CPython: {os.path.basename(recording)} has the announced source line", right == len(shown) == want["fibonacci"][1], shown[:3])


def main():
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        return 77
    for test in (luajit, llvm, node, python):
        if len(sys.argv) > 1 and test.__name__ not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
    return 1 if announce.emulate.failures else 0


if __name__ == "__main__":
    sys.exit(main())
