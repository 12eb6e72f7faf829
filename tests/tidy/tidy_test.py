#!/usr/bin/env python3
"""Creates one violation of each kind in an empty tree and expects tidy.py to report each of them, and nothing else."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = "// A file.\n"
OFFENCES = {  # path: (content, words of the finding)
    "decoder/pt/a.cc": (HEAD + "#include <intel-pt.h>\n", "intel-pt.h"),
    "cli/b.cc": (HEAD + "#include <Zydis/Zydis.h>\n", "Zydis"),
    "perfio/c.cc": (HEAD + "#include <libelf.h>\n", "libelf.h"),
    "recording/d.cc": (HEAD + "#include <zstd.h>\n", "zstd.h"),
    "image/e.cc": (HEAD + "#include <linux/perf_event.h>\n", "perf_event.h"),
    "perfio/f.cc": (HEAD + '#include "ptdecode/flow.h"\n', "perfio must not include decoder"),
    "image/base/g.cc": (HEAD + '#include "ptdecode/timeline.h"\n', "image/base must not include image"),
    "cli/low/g.cc": (HEAD + '#include "cli/high/g.h"\n', "cli/low must not include cli/high"),
    "image/far.cc": (HEAD + '#include "perfio/absent.h"\n', "is not a path from the root"),
    "include/ptdecode/types.h": (HEAD + '#pragma once\n#include "image/base/x.h"\n', "which is not installed"),
    "include/ptdecode/all.h": (HEAD + '#pragma once\n#include "ptdecode/timeline.h"\n#include "ptdecode/pt/config.h"\n', "does not include ptdecode/flow.h"),
    "stray/s.cc": (HEAD, "belongs to no module"),
    "image/base/c1.h": (HEAD + '#pragma once\n#include "image/base/c2.h"\n', "includes itself"),
    "decoder/h.cc": (HEAD + '#include "tests/x.h"\n', "test headers"),
    "cli/i.cc": (HEAD + "// TO" + "DO later\n", "unfinished"),
    "cli/j.cc": (HEAD + "int a;\n" * 800, "lines, more than"),
    "cli/jj.cc": (HEAD + "int long_one(int a) {\n" + "  a++;\n" * 80 + "}\n", "long_one() has 82 lines"),
    "decoder/arm/resolver.cc": (HEAD + "void on_flow() {\n}\n", "on_flow is short enough"),
    "cli/many": (None, "26 source files"),
    "cli/e1.cc": (HEAD + 'const char* home = std::getenv("HOME");\n', "reads the environment"),
    "perfio/e2.cc": (HEAD + 'const char* home = secure_getenv("HOME");\n', "reads the environment"),
    "recording/e3.cc": (HEAD + "extern char** environ;\n", "reads the environment"),
    "cli/w1.cc": (HEAD + "std::ofstream out(path);\n", "creates a file"),
    "perfio/w2.cc": (HEAD + 'FILE* out = std::fopen(path.c_str(), "wb");\n', "creates a file"),
    "recording/w3.cc": (HEAD + "open(path, O_WRONLY | O_CREAT, 0600);\n", "creates a file"),
    "cli/k.cc": ("int no_comment;\n", "begins with one comment"),
    "cli/l.cc": (HEAD + 'const char* p = "/wor' + 'k/x";\n', "path of one machine"),
    "docs/m.md": ("[gone](missing.md)\n", "dead link"),
    "data/n.bin": ("payload", "sha256"),
    "docs/DIFFERENCES.md": ("\n## Errata\n| a1 | golden a |\n| a2 | golden a |\n| a3 | unit S.A |\n| a4 | unit S.B |\n| a6 | x |\n", "erratum a1"),
}
MORE = ["erratum a4", "erratum a5", "has a6"]  # of docs/DIFFERENCES.md
# The figures of the first row are those of docs/EVIDENCE.md, those of the second of docs/evidence/, those of the third of neither.
OFFENCES["README.md"] = ("\n## Speed\n| a, short | 10 | 2x |\n| d | 7 | 9x |\n| b | 11 | 2x |\n", "figures of b")
OFFENCES["docs/EVIDENCE.md"] = ("| a | 5 | 2x | 10 |\n| b | 5 | 2x | 10 |\n| c | 11 | 2x |\n"
                                "\n## [Area](evidence/area.md)\n| d | 1,000 and 9x |\n| e | 1,001 |\n", "figure 1,001 is not in docs/evidence/area.md")
OFFENCES["docs/evidence/lone.md"] = ("| f | 3 |\n", "has no link to it")
FINE = {
    "image/base/environment.cc": HEAD + 'const char* home = std::getenv("HOME");\n', "tests/e.cc": HEAD + 'const char* home = getenv("HOME");\n',
    "image/base/whole_file.cc": HEAD + "open(path, O_WRONLY | O_CREAT, 0600);\n", "cli/read.cc": HEAD + 'FILE* in = fopen(path, "rb");\n',
    "image/base/c2.h": HEAD + '#pragma once\n#include "image/base/c1.h"\n', "image/base/x.h": HEAD + "#pragma once\n",
    "cli/high/g.h": HEAD + "#pragma once\n", "cli/high/ok.cc": HEAD + '#include "cli/low/ok.h"\n#include "ptdecode/timeline.h"\n',
    "cli/low/ok.h": HEAD + "#pragma once\ninline int short_one(int a) {\n" + "  a++;\n" * 68 + "}\n",
    "docs/evidence/area.md": "| d | 7 | 9x | 1,000 |\n",
    "include/ptdecode/timeline.h": HEAD + "#pragma once\n#include \"ptdecode/types.h\"\n", "include/ptdecode/flow.h": HEAD + "#pragma once\n",
    "include/ptdecode/ptdecode.h": HEAD + '#pragma once\nextern "C" {\n' + "typedef int a;\n" * 600 + "}\n", "tests/x.h": HEAD + "#pragma once\n",
    "perfio/ok.cc": HEAD + '#include <zstd.h>\n#include "ptdecode/timeline.h"\n',
    "include/ptdecode/pt/config.h": HEAD + "#pragma once\nstruct Errata {\n" + "".join(f"  bool a{i} : 1 = false;\n" for i in range(1, 6)) + "};\n",
    "tests/golden/cases/a.case": "why\noption cpu=6/1/1 erratum=a2\n",
    "tests/unit/pt/u.cc": HEAD + "TEST(S, A) {\n  errata.a3 = true;\n}\nTEST(S, B) {\n}\nTEST(S, C) {\n  errata.a4 = true;\n}\n",
    "docs/ok.md": "[here](m.md) [there](https://example.org/x)\n",
}

FINE.update({f"cli/many/{i}.cc": HEAD for i in range(26)})
MODULES = """
## Modules
| Modules | Contents | Public headers | May include |
|---|---|---|---|
| `image/base` | a | `types` | |
| `image` | a | `timeline` | `image/base` `loop` |
| `loop` | a | | `image` |
| `decoder` | a | `all` `flow` `ptdecode` `pt/config` | `image` |
| `perfio` `recording` | a | | `image` |
| `cli/low` `cli/high` `cli` | a | | `recording` `decoder` |
## More
"""
OFFENCES["docs/ARCHITECTURE.md"] = (MODULES, "image and loop may include each other")

with tempfile.TemporaryDirectory() as root:
    for path, content in {**{p: c for p, (c, _) in OFFENCES.items() if c is not None}, **FINE}.items():
        os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(content)
    run = subprocess.run([sys.executable, os.path.join(HERE, "tidy.py"), root], capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()[:-1]
    bad = [f"not found: {p}: {w}" for p, (_, w) in OFFENCES.items() if not any(l.startswith(p + ":") and w in l for l in lines)]
    bad += [f"not found: {w}" for w in MORE if not any(w in l for l in lines)]
    bad += [f"false alarm: {l}" for l in lines if "erratum a2" in l or "erratum a3" in l or "figures of a" in l or "figures of d" in l or "figure 1,000" in l]
    bad += [f"false alarm: {l}" for l in lines if l.split(":")[0] in FINE or "does not include" in l and "flow.h" not in l]
    if run.returncode != 1:
        bad.append(f"exit status {run.returncode}")
    print("\n".join(bad) or f"{len(OFFENCES)} offences found")
    sys.exit(1 if bad else 0)
