#!/usr/bin/env python3
"""Rules of the tree that a machine can check: vendor doors, dependency arrows, data checksums, links, lengths, words.

Usage: tidy.py ROOT. Prints one line for each finding, `path:line: what`; exit status 1 if there is any.
"""
import hashlib
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".")
MAX_LINES = 700
CODE = (".cc", ".h")

# header pattern -> path prefixes that may include it
DOORS = [
    (r"intel-pt\.h", ("tests/",)),
    (r"Zydis/", ("decoder/insn/disassembler.cc", "tests/")),
    (r"opencsd/", ("decoder/arm/legacy_packets.cc", "tests/")),
    (r"capstone/", ("decoder/insn/arm_disassembler.cc", "tests/")),
    (r"(libelf|gelf|elf|link)\.h|elfutils/|dwarf\.h", ("image/source/", "image/symbols/", "recording/live/", "recording/emulate/emulator_hooks", "tests/")),
    (r"openssl/", ("image/stash/content_hash.cc", "tests/")),
    (r"libiberty/", ("image/symbols/rust_name.cc", "tests/")),
    (r"zstd\.h", ("perfio/", "tests/")),
    (r"linux/perf_event\.h", ("perfio/", "tests/")),
    (r"nlohmann/", ("recording/", "cli/", "tests/")),
    (r"fmt/", ("cli/", "tests/")),
    (r"CLI/", ("cli/", "tests/")),
    (r"zlib\.h", ("tests/",)),
    (r"gtest/|gmock/", ("tests/",)),
    (r"benchmark/", ("tests/",)),
]

# room -> rooms that it may include; the longest prefix that matches a path is its room
ROOMS = {
    "image/base": ["image/base"],
    "image": ["image", "image/base"],
    "image/source": ["image/source", "image", "image/base"],
    "image/stash": ["image/stash", "image/source", "image", "image/base"],
    "image/symbols": ["image/symbols", "image/stash", "image/source", "image", "image/base"],
    "decoder/insn": ["decoder/insn", "image/base"],
    "decoder": ["decoder", "decoder/insn", "decoder/pt", "image", "image/base"],
    "decoder/arm": ["decoder", "decoder/insn", "decoder/arm", "image", "image/base"],
    "decoder/pt": ["decoder", "decoder/insn", "decoder/pt", "image", "image/base"],
    "perfio": ["perfio", "image", "image/base"],
    "recording": ["recording", "perfio", "decoder", "decoder/insn", "decoder/pt", "decoder/arm", "image", "image/base", "image/source", "image/stash", "image/symbols"],
    "recording/live": ["recording/live", "perfio", "image", "image/base", "image/source", "image/stash"],
    "recording/doctor": ["recording/doctor", "perfio", "image", "image/base"],
    # The command line sees recording/ and headers of value types, the packet reader (for `packets`) and the disassembler.
    "analysis": ["analysis", "recording", "decoder", "decoder/insn", "image", "image/base", "image/symbols"],
    "cli": ["cli", "analysis", "recording", "recording/live", "recording/doctor", "decoder", "decoder/insn", "decoder/pt", "decoder/arm", "image", "image/base", "image/stash", "image/symbols"],
}

# Written in two halves so that this file does not find itself.
WORDS = re.compile("TO" + r"DO|FIX" + r"ME|\bX" + r"XX\b|not impl" + r"emented|unimpl" + r"emented")
MACHINE_PATHS = re.compile(r"(?:^|[^\w.$}/-])/(?:wor" + r"k|far" + r"m)/")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

findings = []


def finding(path, line, what):
    findings.append(f"{path}:{line}: {what}")


def tracked_files():
    try:
        out = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=True).stdout
        names = [name for name in out.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = []
        for folder, folders, files in os.walk(ROOT):
            folders[:] = [f for f in folders if not f.startswith((".git", "build"))]
            names += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files]
    return sorted(n for n in names if os.path.isfile(os.path.join(ROOT, n)))


def room_of(path):
    best = ""
    for room in ROOMS:
        if path.startswith(room + "/") and len(room) > len(best):
            best = room
    return best


def check_includes(path, number, line):
    match = INCLUDE.match(line)
    if not match:
        return
    header = match.group(2)
    for pattern, homes in DOORS:
        if re.match(pattern, header) and not path.startswith(homes):
            finding(path, number, f"includes <{header}>, whose door is {' or '.join(homes)}")
    room, target = room_of(path), room_of(header)
    if room and target and target not in ROOMS[room]:
        finding(path, number, f"{room} must not include {target} ({header})")
    if room and header.startswith("tests/"):
        finding(path, number, "the product must not include test headers")
    if room and match.group(1) == '"' and not os.path.isfile(os.path.join(ROOT, header)):
        finding(path, number, f'"{header}" is not a path from the root')


def check_text(path, text):
    lines = text.split("\n")
    code = path.endswith(CODE)
    if code and len(lines) > MAX_LINES + 1:
        finding(path, len(lines), f"{len(lines) - 1} lines, more than {MAX_LINES}: do two ideas share a room?")
    if code and not lines[0].startswith("//"):
        finding(path, 1, "a file begins with one comment line on what it is")
    if path.endswith(".h") and "#pragma once" not in text:
        finding(path, 1, "no #pragma once")
    for number, line in enumerate(lines, 1):
        if code:
            check_includes(path, number, line)
        if WORDS.search(line):
            finding(path, number, "speaks of unfinished work")
        if MACHINE_PATHS.search(line):
            finding(path, number, "names a path of one machine")
        if code and line.rstrip() != line:
            finding(path, number, "trailing blanks")


def check_links(path, text):
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        fenced ^= line.lstrip().startswith("```")
        for target in [] if fenced else LINK.findall(line):
            target = target.split("#")[0]
            if target and not re.match(r"[a-z]+:", target) and not os.path.exists(os.path.join(ROOT, os.path.dirname(path), target)):
                finding(path, number, f"dead link: {target}")


def check_data(names):
    """Each file below data/ has a line in a README.md beside or above it with its sha256."""
    for name in names:
        if not name.startswith("data/") or os.path.basename(name) == "README.md":
            continue
        with open(os.path.join(ROOT, name), "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        known = False
        folder = os.path.dirname(name)
        while folder and not known:
            readme = os.path.join(ROOT, folder, "README.md")
            if os.path.isfile(readme):
                with open(readme, encoding="utf-8") as file:
                    known = digest in file.read()
            folder = os.path.dirname(folder)
        if not known:
            finding(name, 1, f"its sha256 {digest} is in no README.md of data/")


def read_if_there(name):
    try:
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def check_errata(names):
    """Each bit of struct Errata has a row in the table of docs/DIFFERENCES.md, whose test exists and turns that bit off."""
    config, docs = "include/ptdecode/pt/config.h", "docs/DIFFERENCES.md"
    body = re.search(r"struct Errata \{(.*?)\n\};", read_if_there(config), re.DOTALL)
    bits = re.findall(r"^\s*bool (\w+) :", body.group(1), re.MULTILINE) if body else []
    section = read_if_there(docs).partition("\n## Errata\n")[2].partition("\n## ")[0]
    rows = {row[0].strip(): row[-1].strip() for row in (l.strip("|").split("|") for l in section.split("\n") if l.startswith("| "))}
    unit = "".join(read_if_there(n) for n in names if bits and n.startswith("tests/unit/pt/"))
    for bit in bits:
        kind, _, test = rows.get(bit, "").partition(" ")
        case = read_if_there(f"tests/golden/cases/{test}.case")
        found = {"golden": re.search(rf"^option .*\berratum={bit}\b", case, re.MULTILINE),
                 "unit": re.search(r"TEST\(" + ",\\s*".join(map(re.escape, test.split("."))) + rf"\) {{(?:(?!\nTEST).)*errata\.{bit}\b", unit, re.DOTALL)}
        if not found.get(kind):
            finding(docs, 1, f"no test of erratum {bit} in the table of errata")
    for name in rows.keys() - set(bits) - {"erratum"} if bits else []:
        finding(docs, 1, f"the table of errata has {name}, struct Errata has not")


def check_figures():
    """The figures of README.md's table of speeds are those of the row of the same name in a table of docs/EVIDENCE.md."""
    def rows(text):
        cells = [[c.strip() for c in line.strip("|").split("|")] for line in text.split("\n") if line.startswith("| ")]
        return [(row[0].split(",")[0], row[1:]) for row in cells if any(re.match(r"\d", cell) for cell in row[1:])]
    readme, evidence = read_if_there("README.md"), rows(read_if_there("docs/EVIDENCE.md"))
    speeds = rows(readme.partition("\n## Speed\n")[2].partition("\n## ")[0])
    if "\n## Speed\n" in readme and not speeds:
        finding("README.md", 1, "no table of speeds")
    for name, figures in speeds:
        if not any(name == other and set(figures) <= set(cells) for other, cells in evidence):
            finding("README.md", 1, f"the figures of {name} are not those of docs/EVIDENCE.md: {', '.join(figures)}")


def main():
    names = tracked_files()
    for name in names:
        with open(os.path.join(ROOT, name), "rb") as file:
            raw = file.read()
        if b"\0" in raw or name.startswith(("tests/fuzz/corpus/", "data/")) and not name.endswith(".md"):
            continue
        text = raw.decode("utf-8", "replace")
        check_text(name, text)
        if name.endswith(".md"):
            check_links(name, text)
    check_data(names)
    check_errata(names)
    check_figures()
    for line in findings:
        print(line)
    print(f"{len(names)} files, {len(findings)} findings")
    return 1 if findings else 0


sys.exit(main())
