#!/usr/bin/env python3
"""Checks rules of the source tree: vendor includes, dependency directions, lengths, data checksums, links, words.

The modules and their dependencies are read from the table "Modules" of docs/ARCHITECTURE.md.
Usage: tidy.py ROOT. Prints one line per finding, `path:line: what`. The exit status is 1 if there is any.
"""
import hashlib
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".")
MAX_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_SIGNATURE_LINES = 8
MAX_FOLDER_FILES = 25
CODE = (".cc", ".h")

# Longer on purpose: (file, function or "" for the file itself) -> reason.
LONGER = {
    ("include/ptdecode/ptdecode.h", ""): "the C API is one header",
    ("decoder/pt/decoder.cc", ""): "one flow and its candidates side by side share their bounds",
    ("decoder/batch.cc", "name"): "a switch over every event",
    ("decoder/arm/packet/packet_reader.cc", "take"): "a switch over every form of packet",
    ("decoder/arm/resolver.cc", "on_flow"): "a switch over every packet",
    ("decoder/pt/flow/item_events.cc", "on_event"): "a switch over every packet",
    ("decoder/pt/flow/walker_items.cc", "settle_one"): "a switch over every item",
}

# Vendor header pattern -> the paths that may include it: one include point per library.
VENDORS = [
    (r"intel-pt\.h", ("tests/",)),
    (r"Zydis/", ("decoder/insn/disassembler.cc", "tests/")),
    (r"opencsd/", ("decoder/arm/packet/legacy_packets.cc", "tests/")),
    (r"capstone/", ("decoder/insn/arm_disassembler.cc", "tests/")),
    (r"(libelf|gelf|elf|link)\.h|elfutils/|dwarf\.h", ("image/source/", "image/symbols/", "capture/live/", "capture/emulate/plugin/emulator_hooks", "recording/data/elf_writer", "announce/examples/", "tests/")),
    (r"openssl/", ("image/stash/content_hash.cc", "tests/")),
    (r"libiberty/", ("image/symbols/rust_name.cc", "tests/")),
    (r"zstd\.h", ("perfio/", "image/source/packed/", "tests/")),
    (r"lzma\.h", ("image/source/packed/", "tests/")),
    (r"linux/perf_event\.h", ("perfio/", "tests/")),
    (r"nlohmann/", ("recording/", "cli/", "tests/")),
    (r"fmt/", ("cli/", "tests/")),
    (r"CLI/", ("cli/", "tests/")),
    (r"sqlite3\.h", ("cli/export/database.cc", "tests/")),
    (r"zlib\.h", ("cli/text/gzip.cc", "tests/")),
    (r"gtest/|gmock/", ("tests/",)),
    (r"benchmark/", ("tests/",)),
]

# The file that queries each library for its version.
VERSIONS_HOME = "capi/build_info.cc"

# The environment is read in one place.
ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\b|\benviron\b")
ENVIRONMENT_HOME = "image/base/environment.cc"

# Files are created in one place, so that no output is written through a link or replaces an input. The others create files in folders of their own.
CREATES = re.compile(r'\bO_CREAT\b|\bstd::ofstream\b|\bfopen\(.*, *"[wa]|\bcreat\(')
CREATES_HOMES = ("image/base/whole_file.cc", "image/stash/stash_dir.cc", "announce/ptd_announce.c", "capture/emulate/", "capture/emulators/",
                 "docs/", "tests/")

# Split in two so that this file is not a finding.
WORDS = re.compile("TO" + r"DO|FIX" + r"ME|\bX" + r"XX\b|not impl" + r"emented|unimpl" + r"emented")
MACHINE_PATHS = re.compile(r"(?:^|[^\w.$}/-])/(?:wor" + r"k|far" + r"m)/")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
PUBLIC = "include/ptdecode/"
FUNCTION = re.compile(r"^( *)[^ :#/].*\b([~\w]+)\((?:.*\))?(?: const)?(?: noexcept)?(?: override)?(?: ->.*)? \{$")
NO_FUNCTION = re.compile(r"^ *(?:namespace|struct|class|enum|union|extern|if|for|while|switch|else|do|return|case)\b|^ +\w+_?\(|=.*[\[(]")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FIGURE = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*")

findings = []
used = set()  # of LONGER


def finding(path, line, what):
    findings.append(f"{path}:{line}: {what}")


def may_be_longer(path, name):
    used.add((path, name))
    return (path, name) in LONGER


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


class Modules:
    """The table "Modules" of docs/ARCHITECTURE.md: modules, contents, public headers, modules that they may include.

    Of several modules in a row, each may include those before it, and the public headers belong to the first. A module may also include
    every module that the modules of its row may include.
    """

    def __init__(self, text):
        self.direct, self.public = {}, {}
        section = text.partition("\n## Modules\n")[2].partition("\n## ")[0]
        for line in section.split("\n"):
            cells = [re.findall(r"[\w/]+", cell) for cell in line.strip("|").split("|")]
            if len(cells) != 4 or not cells[0] or cells[0] == ["Modules"]:
                continue
            modules, _, headers, below = cells
            for module in modules:
                self.direct[module] = below
                below = [module]
            self.public.update({f"ptdecode/{header}.h": modules[0] for header in headers})
        self.allowed = {module: self._reach(module, {module}) for module in self.direct}

    def _reach(self, module, seen):
        for name in self.direct.get(module, []):
            if name not in seen:
                seen.add(name)
                self._reach(name, seen)
        return seen

    def of(self, path):
        """Returns the module of a source file or of a quoted include; "" outside of every module."""
        if path.startswith("include/"):
            path = path[len("include/"):]
        if path.startswith("ptdecode/"):
            return self.public.get(path, "")
        folder = os.path.dirname(path)
        while folder and folder not in self.direct:
            folder = os.path.dirname(folder)
        return folder

    def check(self):
        for module, names in self.direct.items():
            for name in names:
                if name not in self.direct:
                    finding("docs/ARCHITECTURE.md", 1, f"{module} may include {name}, which is not a module of the table")
                elif module in self.allowed[name]:
                    finding("docs/ARCHITECTURE.md", 1, f"{module} and {name} may include each other")


def check_includes(modules, path, number, line):
    match = INCLUDE.match(line)
    if not match:
        return
    header = match.group(2)
    for pattern, homes in VENDORS:
        if re.match(pattern, header) and not path.startswith((*homes, VERSIONS_HOME)):
            finding(path, number, f"includes <{header}>, which only {' or '.join(homes)} may include")
    if path.startswith(PUBLIC) and match.group(1) == '"' and not header.startswith("ptdecode/"):
        finding(path, number, f'a public header includes "{header}", which is not installed')
    module, target = modules.of(path), modules.of(header)
    if module and target and target not in modules.allowed[module]:
        finding(path, number, f"{module} must not include {target} ({header})")
    if module and header.startswith("tests/"):
        finding(path, number, "the product must not include test headers")
    if module and match.group(1) == '"' and not any(os.path.isfile(os.path.join(ROOT, folder, header)) for folder in ("", "include")):
        finding(path, number, f'"{header}" is not a path from the root')


def check_functions(path, lines):
    name = indent = None
    head, begun = "", 0  # a signature of several lines, and the number of its first one
    for number, line in enumerate(lines, 1):
        if name is None:
            head, begun = (head + " " + line.lstrip(), begun) if head else (line, number)
            if head.count("(") > head.count(")") and number - begun < MAX_SIGNATURE_LINES:
                continue
            match = FUNCTION.match(head)
            if match and not NO_FUNCTION.search(head):
                indent, name, first = match.group(1), match.group(2), begun
            head = ""
        elif line.startswith(indent + "}"):
            length = number - first + 1
            if length > MAX_FUNCTION_LINES and not may_be_longer(path, name):
                finding(path, first, f"{name}() has {length} lines, more than {MAX_FUNCTION_LINES}")
            name = None


def check_folders(names):
    files = {}
    for name in names:
        if name.endswith(CODE) and not name.startswith(PUBLIC):
            files.setdefault(os.path.dirname(name), []).append(name)
    for folder, members in sorted(files.items()):
        if len(members) > MAX_FOLDER_FILES:
            finding(folder, 1, f"{len(members)} source files, more than {MAX_FOLDER_FILES}")


def check_cycles(modules, names):
    """Reports every cycle of includes between headers."""
    graph = {}
    for name in names:
        if name.endswith(".h") and (modules.of(name) or name.startswith(PUBLIC)):
            key = name[len("include/"):] if name.startswith("include/") else name
            graph[key] = [header for header in re.findall(r'^#include "([^"]+)"', read_if_there(name), re.MULTILINE)]
    done, trail = set(), []

    def visit(header):
        if header in trail:
            finding(header, 1, "includes itself: " + " -> ".join(trail[trail.index(header):] + [header]))
            return
        if header in done or header not in graph:
            return
        trail.append(header)
        for other in graph[header]:
            visit(other)
        trail.pop()
        done.add(header)

    for header in sorted(graph):
        visit(header)


def check_all_header(names):
    """Checks that all.h includes every public header of the C++ API, itself or through another one."""
    start, reached = "ptdecode/all.h", set()
    pending = [start]
    while pending:
        header = pending.pop()
        if header not in reached:
            reached.add(header)
            pending += re.findall(r'^#include "(ptdecode/[^"]+)"', read_if_there(PUBLIC + header.removeprefix("ptdecode/")), re.MULTILINE)
    for name in names:
        header = "ptdecode/" + name.removeprefix(PUBLIC)
        if PUBLIC + "all.h" in names and name.startswith(PUBLIC) and header not in reached and 'extern "C"' not in read_if_there(name):
            finding(PUBLIC + "all.h", 1, f"does not include {header}")


def check_text(modules, path, text):
    lines = text.split("\n")
    code = path.endswith(CODE)
    if code and len(lines) > MAX_LINES + 1 and not may_be_longer(path, ""):
        finding(path, len(lines), f"{len(lines) - 1} lines, more than {MAX_LINES}")
    if code and not path.startswith("tests/"):
        check_functions(path, lines)
        if not modules.of(path) and not path.startswith(("docs/", "python/")):
            finding(path, 1, "belongs to no module of docs/ARCHITECTURE.md")
    if code and not lines[0].startswith("//"):
        finding(path, 1, "a file begins with one comment line on what it is")
    if path.endswith(".h") and "#pragma once" not in text:
        finding(path, 1, "no #pragma once")
    for number, line in enumerate(lines, 1):
        if code:
            check_includes(modules, path, number, line)
        if code and path != ENVIRONMENT_HOME and not path.startswith("tests/") and ENVIRONMENT.search(line):
            finding(path, number, f"reads the environment, which only {ENVIRONMENT_HOME} may do")
        if code and not path.startswith(CREATES_HOMES) and CREATES.search(line):
            finding(path, number, f"creates a file, which only {CREATES_HOMES[0]} may do")
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
    """Checks that each file in data/ has a line with its sha256 in a README.md of its folder or a parent."""
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
    """Checks that each bit of struct Errata has a row in the table of docs/DIFFERENCES.md, whose test exists and turns that bit off."""
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


def check_figures(names):
    """Checks that figures that are written twice are the same in both places.

    A row of README.md's table of speeds has the figures of a row of the same name in docs/EVIDENCE.md or docs/evidence/. A figure of a section of
    docs/EVIDENCE.md is in the file of docs/evidence/ that the section's heading links to.
    """
    def rows(text):
        cells = [[c.strip() for c in line.strip("|").split("|")] for line in text.split("\n") if line.startswith("| ")]
        return [(row[0].split(",")[0], row[1:]) for row in cells if any(re.match(r"\d", cell) for cell in row[1:])]
    areas = {name: read_if_there(name) for name in names if re.fullmatch(r"docs/evidence/[^/]+\.md", name)}
    readme, index = read_if_there("README.md"), read_if_there("docs/EVIDENCE.md")
    evidence = [row for text in (index, *areas.values()) for row in rows(text)]
    speeds = rows(readme.partition("\n## Speed\n")[2].partition("\n## ")[0])
    if "\n## Speed\n" in readme and not speeds:
        finding("README.md", 1, "no table of speeds")
    for name, figures in speeds:
        if not any(name == other and set(figures) <= set(cells) for other, cells in evidence):
            finding("README.md", 1, f"the figures of {name} are not those of docs/EVIDENCE.md or docs/evidence/: {', '.join(figures)}")
    area = ""
    for number, line in enumerate(index.split("\n"), 1):
        if line.startswith("## "):
            area = next((f"docs/{target}" for target in LINK.findall(line) if f"docs/{target}" in areas), "")
        for figure in FIGURE.findall(line) if area and line.startswith("| ") else []:
            if figure not in FIGURE.findall(areas[area]):
                finding("docs/EVIDENCE.md", number, f"the figure {figure} is not in {area}")
    for name in areas:
        if f"]({name.removeprefix('docs/')})" not in index:
            finding(name, 1, "docs/EVIDENCE.md has no link to it")


def main():
    names = tracked_files()
    modules = Modules(read_if_there("docs/ARCHITECTURE.md"))
    modules.check()
    for name in names:
        with open(os.path.join(ROOT, name), "rb") as file:
            raw = file.read()
        if b"\0" in raw or name.startswith(("tests/fuzz/corpus/", "data/")) and not name.endswith(".md"):
            continue
        text = raw.decode("utf-8", "replace")
        check_text(modules, name, text)
        if name.endswith(".md"):
            check_links(name, text)
    for path, name in LONGER.keys() - used:
        if path in names:
            finding(path, 1, f"{name or 'the file'} is short enough: LONGER need not have it")
    check_folders(names)
    check_cycles(modules, names)
    check_all_header(names)
    check_data(names)
    check_errata(names)
    check_figures(names)
    for line in findings:
        print(line)
    print(f"{len(names)} files, {len(findings)} findings")
    return 1 if findings else 0


sys.exit(main())
