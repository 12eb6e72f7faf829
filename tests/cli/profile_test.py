#!/usr/bin/env python3
"""`ptdecode profile` of all files of a recording, against the ground truth of the emulator: context-sensitive profiles, read by llvm-profdata, with
the lines of llvm-symbolizer; stacks, read by `go tool pprof`; branches taken and not taken, for Propeller; and a folder of profiles.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC, CXX. Exit status 77 without qemu-x86_64.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import call_replay  # noqa: E402
import varints  # noqa: E402
from recorded_programs import CC, CXX, RecordedPrograms  # noqa: E402

PTDECODE = os.environ["PTDECODE"]
ELSEWHERE = (1 << 64) - 1  # of propeller, an address of another file


def tool(*names):
    """Returns the path of the first of these programs that is installed."""
    places = [*os.environ["PATH"].split(":"), "/usr/local/go/bin"]
    return next(filter(None, (shutil.which(name, path=":".join(places)) for name in names)), None)


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=300)


class Profile(RecordedPrograms):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.build("sorter", CC, "-O2", "-fno-inline", "-w", "-static", record=["--no-stash"])
        cls.build("inlined", CXX, "-O2", "-static", record=["--no-stash"])
        cls.build("tails", CC, "-O2", "-static", record=["--no-stash"])

    def places(self, name, addresses):
        """Returns for each address its functions and lines, outermost first: (function, offset from its first line, discriminator)."""
        out = subprocess.run([tool("llvm-symbolizer-14", "llvm-symbolizer"), "--output-style=JSON", "--no-demangle", "-e", self.folder / name],
                             input="\n".join(map(hex, addresses)), capture_output=True, text=True, check=True).stdout
        places = {}
        for address, line in zip(addresses, out.splitlines()):
            frames = json.loads(line)[0].get("Symbol", []) if line.startswith("[") else json.loads(line).get("Symbol", [])
            known = frames and all(frame["Line"] and frame["StartLine"] and frame["FunctionName"] for frame in frames)
            # A constructor or destructor has several names at one address: D1 and D2. The debug information has the second.
            named = [(re.sub(r"([CD])1E", r"\g<1>2E", frame["FunctionName"]), (frame["Line"] - frame["StartLine"]) & 0xffff, self.base(frame["Discriminator"]))
                     for frame in reversed(frames)]
            places[address] = self.without_parts(named) if known else ()
        return places

    @staticmethod
    def without_parts(frames):
        """A part that GCC splits off a function and inlines back (-fpartial-inlining) is no call: its place is the function's declaration. D4 is the
        common name of D1 and D2."""
        def name(i):
            return re.sub(r"([CD])4E", r"\g<1>2E", frames[i][0])

        return tuple(frame for i, frame in enumerate(frames) if i + 1 == len(frames) or frame[1] != 0 or name(i) != name(i + 1))

    @staticmethod
    def base(discriminator):
        """[LLVM] "DebugInfoMetadata.h": the base discriminator."""
        if discriminator & 1:
            return 0
        rest = discriminator >> 1
        return (rest >> 1 & 0xfe0) | (rest & 0x1f) if rest & 0x20 else rest & 0x1f

    @staticmethod
    def named(frames):
        """Returns "main:3 @ outer:1.2 @ " for call sites."""
        return "".join(f"{name}:{offset}" + (f".{disc}" if disc else "") + " @ " for name, offset, disc in frames)

    def expected(self, name):
        """Counts lines by context. A context is the places of the calls and tail calls that are open, from the innermost call by code without lines on.
        Code without lines that jumps on has no place."""
        blocks = [insns for what, insns in call_replay.truth_blocks(self.truth_file(name)) if what == "run"]
        insns = [insn for block in blocks for insn in block]
        places = self.places(name, sorted({ip for ip, _ in insns}))
        symbols = call_replay.Symbols(self.folder / name)
        counts, entries, calls = collections.Counter(), collections.Counter(), collections.Counter()
        # context: places of calls; function: the start of the running one; chain: functions that have tail-called each other, with their contexts;
        # passed: of code without lines, the context and place that it was entered from
        stack, context, function, chain, passed, before = [], (), None, (), None, None

        def entered(caller, site, chain):
            nonlocal context, function, passed
            function, name = here, places[ip][0][0] if places[ip] else None
            passed = None if name else (caller, site, chain)
            itself = name and site and caller[-len(site):] == site and site[0][0] == name
            if name in dict(chain):
                context = dict(chain)[name]
                chain = chain[:[each for each, _ in chain].index(name)]
            else:
                chain = chain if len(chain) <= 8 or not name else None
                context = () if not name or not site or chain is None else caller if itself else caller + site
            if ip == here and name:
                entries[self.named(context) + name] += 1
                if site:
                    *outer, (leaf, offset, disc) = caller + site
                    calls[self.named(outer) + leaf, (offset, disc), name] += 1
            return (*(chain or ()), (name, context)) if name else ()

        for ip, code in insns:
            here = symbols.start(ip)
            if before and before[0] == "call" and ip != before[1]:
                stack.append((before[1], context, function, chain, passed))
                chain = entered(() if passed else context, () if passed else places[before[2]], ())
            elif before and before[0] == "ret":
                match = next((i for i in range(len(stack) - 1, -1, -1) if stack[i][0] == ip), None)
                if match is not None:
                    _, context, function, chain, passed = stack[match]
                    del stack[match:]
            if here != function:
                name = places[ip][0][0] if places[ip] else None
                if not before or before[0] != "jump" or (ip != here and name):
                    chain = entered((), (), ())
                else:
                    chain = entered(*(passed or (context, places[before[2]], chain)))
            if places[ip]:
                counts[context, ip] += 1
            before = call_replay.kind_of(code), ip + len(code), ip
        lines = {}
        for (context, ip), count in counts.items():
            *outer, (leaf, offset, disc) = places[ip]
            key = self.named(context) + self.named(outer) + leaf, (offset, disc)
            lines[key] = max(lines.get(key, 0), count)
        return lines, entries, calls

    def read(self, path):
        """Reads what llvm-profdata makes of a profile."""
        text = subprocess.run([tool("llvm-profdata-14", "llvm-profdata"), "merge", "--sample", "--text", path, "-o", "-"], capture_output=True, text=True,
                              check=True).stdout
        lines, entries, calls, context, totals = {}, collections.Counter(), collections.Counter(), None, {}
        for line in text.splitlines():
            if head := re.fullmatch(r"\[(.*)\]:(\d+):(\d+)", line):
                context = head[1]
                totals[context] = int(head[2])
                entries[context] += int(head[3])
                continue
            offset, disc, count, callees = re.fullmatch(r" (\d+)(?:\.(\d+))?: (\d+)(.*)", line).groups()
            place = int(offset), int(disc or 0)
            lines[context, place] = int(count)
            for callee, times in re.findall(r" (\S+):(\d+)", callees):
                calls[context, place, callee] += int(times)
        for context, total in totals.items():
            self.assertEqual(total, sum(count for (of, _), count in lines.items() if of == context), context)
        return lines, +entries, calls

    def test_context_sensitive_profiles_equal_the_truth(self):
        if not tool("llvm-profdata-14", "llvm-profdata") or not tool("llvm-symbolizer-14", "llvm-symbolizer"):
            self.skipTest("llvm is not installed")
        for name in ("sorter", "inlined", "tails"):
            path = self.folder / (name + ".prof")
            done = run("profile", "-q", "-i", self.data(name), "--format", "csspgo", "-o", path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            lines, entries, calls = self.read(path)
            want_lines, want_entries, want_calls = self.expected(name)
            different = {key: (lines.get(key), want_lines.get(key)) for key in {*lines, *want_lines} if lines.get(key) != want_lines.get(key)}
            self.assertEqual(different, {}, name)
            self.assertEqual(entries, want_entries)
            self.assertEqual(calls, want_calls)
            self.assertGreater(sum(" @ " in context for context, _ in lines), 2)
            print(f"{name}: {len(lines)} lines in {len({context for context, _ in lines})} contexts: equal", flush=True)

    def test_tail_calls_in_a_cycle(self):
        """Each is an entry, and a call from its line, also by a stub without lines: the counts follow from the program."""
        if not tool("llvm-profdata-14", "llvm-profdata"):
            self.skipTest("llvm is not installed")
        source = self.folder / "cycle.c"
        source.write_text("volatile int sum;\nvoid b(int n), c(int n), stub_c(int n);\n__attribute__((noinline)) void a(int n) {\n  ++sum;\n  if (n) b(n - 1); }\n"
                          "__attribute__((noinline)) void b(int n) {\n  sum += 2;\n  if (n) NEXT(n - 1); }\n"
                          "__attribute__((noinline)) void c(int n) {\n  sum += 3;\n  if (n) a(n - 1); }\n"
                          "__asm__(\".text\\n.type stub_c,@function\\nstub_c: jmp c\\n.size stub_c,.-stub_c\");\n"
                          "int main(void) {\n  for (int i = 0; i < 10; ++i)\n    a(29);\n  return 0; }\n")
        for following in ("c", "stub_c"):
            self.build("cycle", CC, "-O2", "-static", f"-DNEXT={following}", source=source, record=["--no-stash"])
            path = self.folder / "cycle.prof"
            self.assertEqual(run("profile", "-q", "-i", self.data("cycle"), "--format", "csspgo", "-o", path).returncode, 0)
            _, entries, calls = self.read(path)
            for name in "abc":
                self.assertEqual([count for context, count in entries.items() if context.split(" @ ")[-1] == name], [100], (name, following))
            edges = collections.Counter()
            for (context, _, callee), count in calls.items():
                edges[context.split(" @ ")[-1], callee] += count
            self.assertEqual([edges[edge] for edge in (("main", "a"), ("a", "b"), ("b", "c"), ("c", "a"))], [10, 100, 100, 90], following)

    def test_a_bundle_has_no_source_lines(self):
        for form in ("autofdo", "csspgo"):
            done = run("profile", "-i", pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "data" / "kernel" / "kernel.bundle", "--format", form)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(done.stderr, "ptdecode: profile: a bundle contains code and names but no source lines of files; use the recording that it was made from\n")

    def test_stubs_and_tail_calls_are_in_no_way_of_a_context(self):
        """A library is called by the stubs of the procedure linkage table, which have no lines."""
        if not tool("llvm-profdata-14", "llvm-profdata"):
            self.skipTest("llvm is not installed")
        (self.folder / "library.c").write_text("__attribute__((noinline)) int libfn(int x) {\n  return x + 1; }\nint libloop(int n) {\n  int s = 0;\n"
                                               "  for (int i = 0; i < n; ++i)\n    s += libfn(i);\n  return s; }\n")
        (self.folder / "user.c").write_text("int libloop(int);\n__attribute__((noinline)) int tail(int n) {\n  return libloop(n + 1); }\nint main(void) {\n  int s = 0;\n"
                                            "  for (int i = 0; i < 10; ++i)\n    s += libloop(45);\n  for (int i = 0; i < 5; ++i)\n    s += tail(3);\n  return s == 0; }\n")
        subprocess.run([CC, "-O1", "-g", "-fPIC", "-shared", "library.c", "-o", "library.so"], cwd=self.folder, check=True)
        self.build("user", CC, "-O2", "-fno-inline", "-Wl,--no-as-needed", "./library.so", "-Wl,-z,now", source=self.folder / "user.c", record=["--no-stash"])
        path = self.folder / "user.prof"
        done = run("profile", "-q", "-i", self.data("user"), "--format", "csspgo", "-o", path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        _, entries, calls = self.read(path)
        below = re.compile(r"(?:.* @ )?(main(?::.*)?)")  # of the C library, which may have lines
        entries = {match[1]: count for context, count in entries.items() if (match := below.fullmatch(context))}
        calls = {(match[1], *rest): count for (context, *rest), count in calls.items() if (match := below.fullmatch(context))}
        self.assertEqual({context: count for context, count in entries.items() if "_" not in context}, {"main": 1,
            "main:3 @ libloop": 10, "main:3 @ libloop:3 @ libfn": 450, "main:5 @ tail": 5, "main:5 @ tail:1 @ libloop": 5,
            "main:5 @ tail:1 @ libloop:3 @ libfn": 20})
        self.assertEqual(calls, {
            ("main", (3, 0), "libloop"): 10, ("main:3 @ libloop", (3, 0), "libfn"): 450, ("main", (5, 0), "tail"): 5,
            ("main:5 @ tail", (1, 0), "libloop"): 5, ("main:5 @ tail:1 @ libloop", (3, 0), "libfn"): 20})

    def test_calls_that_are_left_keep_their_context(self):
        """Exceptions, longjmp and signals. The counts follow from the program."""
        if not tool("llvm-profdata-14", "llvm-profdata"):
            self.skipTest("llvm is not installed")
        for build in (("-O1",), ("-O1", "-static"), ("-O0", "-D_FORTIFY_SOURCE=0")):
            self.build("left_contexts", CXX, *build, record=["--no-stash"])
            path = self.folder / "left_contexts.prof"
            done = run("profile", "-q", "-i", self.data("left_contexts"), "--format", "csspgo", "-o", path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            want = collections.Counter({"handles in_handler": 7})
            for outer, every, left in (("outer_a", 12, 6), ("outer_b", 3, 2)):
                passed = every - left
                chains = {"same": {"in_same": left, "not_thrown": passed, "after_same": every},
                          "above": {"in_above": left, "after_above": every}, "above passes": {"after_pass": passed},
                          "above passes cleans": {"in_cleanup": every},
                          "rethrown": {"in_rethrown": left, "after_rethrown": every}, "rethrown catches": {"in_catches": left, "after_catches": passed},
                          "hosts inlined": {"in_inlined": left, "after_inlined": every}, "hosts": {"after_hosts": every},
                          "sorts": {"in_sorts": left, "after_sorts": every},
                          "jumps": {"in_jumps": left, "not_jumped": passed, "after_jumps": every},
                          "signals": {"in_signals": left, "not_left": passed, "after_signals": every}, "signals raises": {"after_raise": passed}}
                want.update({f"main {outer} {chain} {mark}": count for chain, marks in chains.items() for mark, count in marks.items()})
            _, entries, calls = self.read(path)
            mark = re.compile("(in|not|after)_[a-z]+")

            def chain(context):
                context = re.sub(r"^.* @ (?=main:)", "", context)  # of the C library, which may have lines
                return re.sub(r":[0-9.]+ @ ", " ", re.sub(r"_ZN5Guard\w+:[0-9.]+ @ ", "", context))

            found, called = collections.Counter(), collections.Counter()
            for context, count in entries.items():
                if mark.fullmatch(context.split(" @ ")[-1]):
                    found[chain(context)] += count
            for (context, _, callee), count in calls.items():
                if mark.fullmatch(callee):
                    called[chain(f"{context}:0 @ {callee}")] += count
            self.assertEqual(found - want, want - found, build)
            self.assertEqual(called - want, want - called, build)

    def test_contexts_of_long_names_are_shorter(self):
        """A hostile file has names of any length: the text of a context has a limit. No call is lost."""
        limit = 1 << 18
        names = [f"f{i}_" + "x" * 10000 for i in range(60)]
        source = self.folder / "long_names.c"
        source.write_text("".join(f"int {name}(int a) {{ return {call} + 1; }}\n" for name, call in zip(names, ["a", *(f"{name}(a)" for name in names)])) +
                          f"int main(void) {{ return {names[-1]}(0) == 60 ? 0 : 1; }}\n", encoding="ascii")
        self.build("long_names", CC, "-O0", "-static", source=source, record=["--no-stash"])
        done = run("profile", "-q", "-i", self.data("long_names"), "--format", "csspgo")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        calls = collections.Counter()
        for context, entries in re.findall(r"^\[(.*)\]:\d+:(\d+)$", done.stdout, re.M):
            self.assertLess(len(context), limit + len(names[0]) + 10)
            calls[context.split(" @ ")[-1]] += int(entries)
        self.assertEqual({name: calls[name] for name in names}, dict.fromkeys(names, 1))

    def samples(self, path):
        """Reads a profile as pprof prints it: the types of values, and (values, frames) of each stack, innermost first."""
        pprof = self.folder / "pprof"
        if not pprof.exists():  # Go builds it when it is needed first
            subprocess.run([tool("go"), "build", "-o", pprof, "cmd/pprof"], cwd=self.folder, check=True)
        text = subprocess.run([pprof, "-raw", path], capture_output=True, text=True, check=True).stdout
        samples, locations = text.split("Samples:\n", 1)[1].split("Locations\n", 1)
        locations, mappings = locations.split("Mappings\n", 1)
        names = {}
        for line in locations.splitlines():
            if start := re.match(r" +(\d+): 0x0 (?:M=\d+ )?(.*) :0:0(?::0)? s=0(?:\(.*\))?$", line):
                number = int(start[1])
                names[number] = [start[2]]
            else:
                names[number].append(re.match(r" +(.*) :0:0(?::0)? s=0(?:\(.*\))?$", line)[1])
        types, *rows = samples.splitlines()
        stacks = []
        for row in rows:
            if match := re.match(r" +([\d ]+): ([\d ]+)$", row):
                stacks.append((list(map(int, match[1].split())), [name for each in match[2].split() for name in names[int(each)]]))
        return [each.split("/")[0] for each in re.sub(r"\[dflt\]", "", types).split()], stacks, mappings

    def test_stacks_equal_the_truth(self):
        if not tool("go"):
            self.skipTest("go is not installed")
        symbols = call_replay.Symbols(self.folder / "sorter")
        totals, executed = call_replay.replay(self.truth_file("sorter"), symbols)
        for output in ("stacks.pb", "stacks.pb.gz"):
            done = run("profile", "-i", self.data("sorter"), "--format", "pprof", "-o", self.folder / output)
            self.assertEqual(done.returncode, 0, done.stderr)
            types, stacks, mappings = self.samples(self.folder / output)
            self.assertEqual(types, ["calls", "instructions", "time"])
            own = collections.defaultdict(lambda: [0, 0])
            for values, frames in stacks:
                own[frames[0]] = [own[frames[0]][0] + values[0], own[frames[0]][1] + values[1]]
            self.assertEqual(sum(each[1] for each in own.values()), executed)
            want = collections.defaultdict(lambda: [0, 0])
            for start, (calls, self_insns, *_) in totals.items():
                known = next(name for name in symbols.names(start) if name in own)
                want[known] = [want[known][0] + calls, want[known][1] + self_insns]
            own.pop("[kernel]", None)
            self.assertEqual({name: each for name, each in own.items()}, dict(want))
            notes = subprocess.run(["readelf", "-n", self.folder / "sorter"], capture_output=True, text=True, check=True).stdout
            self.assertRegex(mappings, r"sorter " + re.search(r"Build ID: (\w+)", notes)[1])

    def test_stacks_have_a_value_of_time_if_a_packet_gives_one(self):
        """Also if the first PSB+ has no TSC packet ([SDM] "Packet Definitions": PSB is 02 82 eight times, TSC begins with 19)."""
        content = bytearray(self.data("sorter").read_bytes())
        tsc = content.index(b"\x19", content.index(b"\x02\x82" * 8) + 16)
        content[tsc:tsc + 8] = bytes(8)
        self.data("late").write_bytes(content)
        subprocess.run([PTDECODE, "record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "--no-tsc", "-o", "timeless.data", "--", "/bin/true"],
                       cwd=self.folder, check=True)
        for name, has_times, said in (("timeless", False, r"\Z"), ("late", True, r"ptdecode: warning: 1 TSC packets .* or are missing: .*\n\Z")):
            path = self.folder / f"{name}.pb"
            done = run("profile", "-q", "-i", self.data(name), "--format", "pprof", "-o", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r"\A" + said)
            self.assertEqual(b"nanoseconds" in path.read_bytes(), has_times, name)

    def test_the_first_file_of_pprof_is_the_program(self):
        """pprof names the profile after it, although the dynamic linker runs first. It may have another name than its thread: "sh" is a link, and a script has an interpreter."""
        script = self.folder / "script"
        script.write_text("#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8; do /bin/true; done\n", encoding="ascii")
        script.chmod(0o755)
        shell = pathlib.Path("/bin/sh").resolve().name
        for words, name in ((["/bin/true"], "true"), (["/bin/sh", "-c", ":"], shell), ([script], shell)):
            subprocess.run([PTDECODE, "record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", "program.data", "--", *words],
                           cwd=self.folder, check=True)
            path = self.folder / "program.pb"
            self.assertEqual(run("profile", "-q", "-i", self.data("program"), "--format", "pprof", "-o", path).returncode, 0)
            content = path.read_bytes()
            self.assertLess(content.index(name.encode()), content.index(b"ld-linux"), words)

    def test_inlined_functions_are_lines_of_locations(self):
        if not tool("go"):
            self.skipTest("go is not installed")
        path = self.folder / "inlined.pb.gz"
        self.assertEqual(run("profile", "-i", self.data("inlined"), "--format", "pprof", "-o", path).returncode, 0)
        _, stacks, _ = self.samples(path)
        ran = collections.Counter(ip for what, insns in call_replay.truth_blocks(self.truth_file("inlined")) if what == "run" for ip, _ in insns)
        out = subprocess.run(["addr2line", "-e", self.folder / "inlined", "-a", "-i", "-f", "-C"], input="\n".join(map(hex, ran)), capture_output=True,
                             text=True, check=True).stdout.splitlines()
        want, at = collections.Counter(), None
        for line, following in zip(out, out[1:]):  # the name after an address is that of the innermost function
            if re.fullmatch(r"0x[0-9a-f]{16}", line):
                want[following] += ran[int(line, 16)]
        own = collections.Counter()
        for values, frames in stacks:
            own[frames[0]] += values[1]
        known = {name for name in want if "shop::" in name or "std::" in name and "<shop::" in name}
        self.assertGreater(len(known), 5)
        self.assertEqual({name: own[name] for name in known}, {name: want[name] for name in known})
        self.assertIn(("shop::Item::total() const", "shop::Basket::sum() const", "main"), {tuple(frames[:3]) for _, frames in stacks})

    def branch_counts(self, path):
        """Reads a BranchFrequenciesProto: {(source, destination): count}, {address: count}. protoc, if installed, must read the same."""
        def fields(data):
            at = 0
            while at < len(data):
                tag, at = varints.read(data, at)
                value, at = varints.read(data, at)
                if tag & 7 == 2:
                    value, at = data[at:at + value], at + value
                yield tag >> 3, value

        taken, not_taken, content = collections.Counter(), collections.Counter(), path.read_bytes()
        for field, message in fields(content):
            numbers = dict(fields(message))
            if field == 1:
                self.assertNotIn((numbers[1], numbers[2]), taken)
                taken[numbers[1], numbers[2]] = numbers[3]
            else:
                self.assertEqual(field, 2)
                self.assertNotIn(numbers[1], not_taken)
                not_taken[numbers[1]] = numbers[2]
        if tool("protoc"):
            (self.folder / "counts.proto").write_text("""syntax = "proto3";
                message Taken { uint64 source = 1; uint64 dest = 2; int64 count = 3; }
                message NotTaken { uint64 address = 1; int64 count = 2; }
                message Counts { repeated Taken taken_counts = 1; repeated NotTaken not_taken_counts = 2; }""")
            text = subprocess.run([tool("protoc"), "--decode", "Counts", f"-I{self.folder}", "counts.proto"], input=content, capture_output=True, check=True).stdout.decode()
            self.assertEqual({(int(source), int(dest)): int(count) for source, dest, count in re.findall(r"source: (\d+)\s+dest: (\d+)\s+count: (\d+)", text)}, taken)
            self.assertEqual({int(at): int(count) for at, count in re.findall(r"address: (\d+)\s+count: (\d+)", text)}, not_taken)
        return taken, not_taken

    def true_branch_counts(self, name, inside):
        """Counts the branches of the ground truth; an end that is not `inside` is ELSEWHERE."""
        taken, not_taken, before = collections.Counter(), collections.Counter(), None
        insns = [insn for what, block in call_replay.truth_blocks(self.truth_file(name)) if what == "run" for insn in block]
        for ip, code in insns:
            if before and before[1]:
                source, _, end, branch = before
                way = tuple(at if inside(at) else ELSEWHERE for at in (source, ip))
                if ip == end and call_replay.packet_of(branch) == "bit":
                    not_taken[source] += inside(source)
                elif way != (ELSEWHERE, ELSEWHERE):
                    taken[way] += 1
            kind = call_replay.kind_of(code)
            before = ip, kind not in (None, "syscall"), ip + len(code), code
        return taken, +not_taken

    def test_propeller_counts_equal_the_truth(self):
        """Of two static programs, and of one whose code calls the C library and is called by it."""
        source = self.folder / "shared_sorter.c"
        source.write_text("#include <stdlib.h>\nvolatile int sink;\nint compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }\n"
                          "int main(void) {\n  int values[50];\n  for (int i = 0; i < 1000; i++) sink += i;\n  for (int i = 0; i < 50; i++) values[i] = i * 7919 % 50;\n"
                          "  qsort(values, 50, sizeof *values, compare);\n  return values[0];\n}\n", encoding="ascii")
        self.build("shared_sorter", CC, "-O1", "-no-pie", source=source, record=["--no-stash"])
        for name in ("sorter", "inlined", "shared_sorter"):
            path = self.folder / (name + ".propeller")
            done = run("profile", "-q", "-i", self.data(name), "--dso", name, "--format", "propeller", "-o", path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            headers = subprocess.run(["readelf", "-lW", self.folder / name], capture_output=True, text=True, check=True).stdout
            spans = [(int(at, 16), int(at, 16) + int(size, 16)) for at, size in re.findall(r"LOAD +0x\w+ 0x(\w+) \S+ 0x(\w+) ", headers)]
            taken, not_taken = self.branch_counts(path)
            want_taken, want_not_taken = self.true_branch_counts(name, lambda ip: any(first <= ip < end for first, end in spans))
            self.assertEqual({key: (taken[key], want_taken[key]) for key in {*taken, *want_taken} if taken[key] != want_taken[key]}, {}, name)
            self.assertEqual({key: (not_taken[key], want_not_taken[key]) for key in {*not_taken, *want_not_taken} if not_taken[key] != want_not_taken[key]}, {}, name)
            print(f"{name}: {len(taken)} branches taken and {len(not_taken)} not taken: equal", flush=True)
        names = subprocess.run(["nm", "-S", self.folder / "shared_sorter"], capture_output=True, text=True, check=True).stdout
        main, compare = (range(int(first, 16), int(first, 16) + int(size, 16)) for first, size in
                         (re.search(rf"^(\w+) (\w+) T {name}$", names, re.M).groups() for name in ("main", "compare")))
        loops = sorted((count, not_taken[source]) for (source, to), count in taken.items() if source in main and to in main and to < source)
        self.assertEqual(loops[-2:], [(49, 1), (999, 1)])
        self.assertGreater(taken[ELSEWHERE, compare[0]], 49)
        self.assertEqual(taken[ELSEWHERE, compare[0]], sum(count for (source, to), count in taken.items() if source in compare and to == ELSEWHERE))

    def test_a_binary_profile_is_not_printed_on_a_terminal(self):
        primary, secondary = os.openpty()
        for form in ("propeller", "pprof"):
            words = ["profile", "-q", "-i", self.data("sorter"), "--format", form]
            done = run(*words)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", "ptdecode: profile: -o FILE is missing\n"))
            done = run(*words, "-o", os.ttyname(secondary))
            self.assertEqual((done.returncode, done.stderr.count(f"profile: a {form} profile is binary, and the output is a terminal: name a file with -o")), (2, 1), done.stderr)
            through = subprocess.run([PTDECODE, *words, "-o", "/dev/stdout"], stdout=subprocess.PIPE, timeout=300).stdout
            self.assertEqual(run(*words, "-o", self.folder / "binary").returncode, 0)
            self.assertEqual(through, (self.folder / "binary").read_bytes())
        os.close(secondary)
        os.close(primary)

    def test_a_folder_has_a_profile_of_each_file(self):
        folder = self.folder / "profiles"
        subprocess.run([PTDECODE, "record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", "shared.data", "--", "/bin/true"],
                       cwd=self.folder, check=True)
        for form, ending in (("bolt", "pa"), ("autofdo", "txt"), ("propeller", "propeller")):
            done = run("profile", "-i", self.folder / "shared.data", "--format", form, "-o", f"{folder}/")
            self.assertEqual(done.returncode, 0, done.stderr)
            files = sorted(folder.glob("*." + ending))
            self.assertGreater(len(files), 2)
            for path in files:
                name, build_id = re.fullmatch(rf"(.+)\.([0-9a-f]{{40}}|no-build-id)\.{ending}", path.name).groups()
                self.assertEqual(run("profile", "-q", "-i", self.folder / "shared.data", "--format", form, "--dso", name, "-o", self.folder / "alone").returncode, 0)
                self.assertEqual(path.read_bytes(), (self.folder / "alone").read_bytes(), name)

    def test_files_of_one_name_are_told_apart_by_their_paths(self):
        for number, name in enumerate(("one", "two")):
            (self.folder / name).mkdir()
            source = f"volatile int n; int main(void) {{ for (int i = 0; i < 9; ++i) n += {number}; return 0; }}"
            subprocess.run([CC, "-O1", "-g", "-static", "-x", "c", "-", "-o", self.folder / name / "twin"], input=source, text=True, check=True)
        data = self.folder / "twins.data"
        subprocess.run([PTDECODE, "record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", data, "--", "/bin/sh", "-c", "one/twin; two/twin"],
                       cwd=self.folder, check=True)
        whole = [str(self.folder / name / "twin") for name in ("one", "two")]
        for form, ending in (("bolt", "pa"), ("autofdo", "txt")):
            words = ("profile", "-i", data, "--format", form)
            done = run(*words, "--dso", "twin")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            for path in whole:
                self.assertIn(path, done.stderr)
            texts = []
            for path in whole:
                part = path[len(str(self.folder)) + 1:]
                done = run(*words, "--dso", path)
                self.assertIn(f"ptdecode: profile of {path}: ", done.stderr)
                texts.append(done.stdout)
                for end in (part, "./" + part, str(self.folder.name) + "/" + part):
                    self.assertEqual(run(*words, "-q", "--dso", end).stdout, texts[-1], end)
            self.assertNotEqual(*texts)
            folder = self.folder / f"twins-{form}"
            self.assertEqual(run(*words, "-q", "--dso", "twin", "-o", f"{folder}/").returncode, 0)
            self.assertEqual(sorted(path.read_text() for path in folder.iterdir()), sorted(texts))
            self.assertEqual(run(*words, "-q", "--dso", "two/twin", "-o", f"{folder}-two/").returncode, 0)
            self.assertEqual([path.read_text() for path in pathlib.Path(f"{folder}-two").iterdir()], texts[1:])
            for name in ("win", "wo/twin", "/twin", "two", "two/", "", "twin/", ".", "..", "/"):
                done = run(*words, *(["-o", f"{folder}-none/"] if name == "two" else []), f"--dso={name}")
                if name:
                    self.assertEqual((done.returncode, done.stdout), (2, ""), (name, done.stderr))
                    self.assertRegex(done.stderr, r"--dso: no code of a file '\S+' ran; files that ran: .*/one/twin", name)
            self.assertFalse(pathlib.Path(f"{folder}-none").exists())
        lines = [run("coverage", "-q", "-i", data, "--format", "lcov", "--keep-absent", "--dso", path).stdout for path in ("two/twin", whole[1], "one/twin", "twin")]
        self.assertEqual(lines[0], lines[1])
        self.assertRegex(lines[0], "FNDA:1,main")
        self.assertIn("FNDA:2,main", lines[3])  # of both
        self.assertIn("no code that ran matches --dso", run("coverage", "-i", data, "--dso", "wo/twin").stderr)

    def test_formats_with_one_profile_refuse_a_folder(self):
        for form in ("csspgo", "pprof"):
            for folder in (f"{self.folder}/not-there/", self.folder):
                done = run("profile", "-i", self.data("sorter"), "--format", form, "-o", folder)
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, rf"^ptdecode: profile: --format {form} includes all files in one profile, and -o \S+ is a folder: name a file\n$")
        self.assertFalse((self.folder / "not-there").exists())

    def test_the_folder_is_created_before_the_work(self):
        (self.folder / "file").touch()
        done = run("profile", "-i", self.data("sorter"), "-o", f"{self.folder}/file/x/")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^ptdecode: profile: cannot write into \S+/file/x/: Not a directory\n$")
        self.assertTrue(any(self.is_empty_for_a_while(self.folder / f"early{i}") for i in range(20)))

    def is_empty_for_a_while(self, folder):
        """Returns whether the folder was seen empty twice, a millisecond apart, while a command worked that writes into it."""
        with subprocess.Popen([PTDECODE, "profile", "-q", "-i", self.data("sorter"), "-o", f"{folder}/"], stderr=subprocess.DEVNULL) as process:
            while not folder.exists():
                self.assertIsNone(process.poll())
            seen = list(folder.iterdir())
            time.sleep(0.001)
            seen += folder.iterdir()
            process.kill()
        return not seen

    def test_a_folder_that_stays_empty_is_removed(self):
        top = self.folder / "nothing"
        for words in (("--comm", "no-such-name"), ("--time", "1,2")):
            done = run("profile", "-i", self.data("sorter"), "-o", f"{top}/of/it/", *words)
            self.assertNotEqual(done.returncode, 0)
            self.assertFalse(top.exists(), words)
        (top / "of").mkdir(parents=True)  # what was there stays
        run("profile", "-i", self.data("sorter"), "-o", f"{top}/of/it/", "--comm", "no-such-name")
        self.assertEqual(list((top / "of").iterdir()), [])
        self.assertEqual(run("profile", "-q", "-i", self.data("sorter"), "-o", f"{top}/of/it/").returncode, 0)
        self.assertEqual(len(list((top / "of" / "it").glob("sorter.*.pa"))), 1)

    def test_calls_beyond_the_limits_of_paths_are_counted(self):
        source = "volatile int sink; int dive(int n) { int r = n == 0 ? 0 : dive(n - 1) + 1; sink = r; return r; } int main(void) { return dive(999) != 999; }"
        subprocess.run([CC, "-O1", "-fno-inline", "-static", "-fno-optimize-sibling-calls", "-x", "c", "-", "-o", self.folder / "deep"], input=source, text=True, check=True)
        subprocess.run([PTDECODE, "record", "-q", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-o", "deep.data", "--", "./deep"], cwd=self.folder, check=True)
        said = [run(*words, "-i", self.data("deep"), "-o", self.folder / "deep.out").stderr for words in (("profile", "--format", "pprof"), ("export",))]
        counts = [re.search(r"ptdecode: (\d+) calls were beyond the limits of 512 functions in a path and 4194303 paths: counted as part of the caller\n", text)[1] for text in said]
        self.assertEqual(counts[0], counts[1])
        self.assertTrue(488 < int(counts[0]) < 500, counts)

    def test_no_inline_is_for_stacks(self):
        for form in ("bolt", "autofdo", "propeller", "csspgo"):
            done = run("profile", "-i", self.data("sorter"), "--format", form, "--no-inline")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"--no-inline has no effect on --format {form}", done.stderr)
        for words, inlined in (((), True), (("--no-inline",), False)):
            path = self.folder / "inline.pb"
            self.assertEqual(run("profile", "-q", "-i", self.data("inlined"), "--format", "pprof", "-o", path, *words).returncode, 0)
            self.assertEqual(b"shop::Item::total() const" in path.read_bytes(), inlined)


if __name__ == "__main__":
    if shutil.which("qemu-x86_64") is None:
        print("skipped: qemu-x86_64 is not installed")
        sys.exit(77)
    unittest.main(verbosity=2)
