"""The program as users run it: exit statuses, messages, outputs on the corpus, and perf's output for the same recording."""
import gzip
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import perf_file
from perf_file import AUXTRACE

PTDECODE = os.environ.get("PTDECODE", "ptdecode")
SOURCE = pathlib.Path(os.environ.get("PTDECODE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
CORPUS = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE / ".." / "shared" / "corpus")).resolve()
FIRST_INSTRUCTIONS = 1_000_000
DEMO = SOURCE / "data" / "demo"


def run(*words, cwd=None, timeout=300):
    return subprocess.run([PTDECODE, *map(str, words)], cwd=cwd, timeout=timeout, capture_output=True)


def head(words, lines, timeout=600):
    """Returns the first lines of a program's output; the program then writes to a closed pipe."""
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    got = []
    for line in process.stdout:
        got.append(line.strip())
        if len(got) == lines:
            break
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    return got, process.wait(timeout), errors


# perf 6.1 has 5 columns for each number of a process or thread, perf 6.12 has 7.
WIDE = re.compile(rb"^(?:(\S+) ([ \d]{6}\d)|(\d{1,7}))(?:/(\d[ \d]{6}))? (?=\[|[ \da-f]{17} )")  # before a cpu or an address


def narrow(line):
    """Returns a line of perf, without leading blanks, with the columns of perf 6.1."""
    return WIDE.sub(lambda found: (b"%s %5d" % (found[1], int(found[2])) if found[1] else found[3]) + (b"/%-5d" % int(found[4]) if found[4] else b"") + b" ", line)


def case(name):
    folder = CORPUS / name
    if not (folder / "case.json").exists():
        raise unittest.SkipTest(f"no corpus case {folder}")
    return folder


def expected(folder, name):
    packed = folder / "expected" / (name + ".gz")
    return gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / "expected" / name).read_bytes()


def raw_words(folder):
    """Returns the options that open a raw case, from its case.json."""
    facts = json.loads((folder / "case.json").read_text())
    cpu = facts.get("cpu") or {}
    words = ["--pt", folder / facts["trace"]["file"]]
    if "family" in cpu:
        words += ["--pt-cpu", f"{cpu['family']}/{cpu['model']}/{cpu['stepping']}"]
    for image in facts.get("images", []):
        size = f",size={image['size']}" if image.get("size") else ""
        words += ["--image", f"{folder / image['file']},off={image.get('file_offset', 0)}{size}@{image['load_address']}"]
    if "page_image" in facts:
        pages = facts["page_image"]
        words += ["--pages", f"{folder / pages['pages']},{folder / pages['addresses']}"]
    return words


class Usage(unittest.TestCase):
    def test_help_teaches(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        for command in ("info", "functions", "timeline", "flame", "export", "report", "packets", "script", "stat", "image", "check", "demo", "verify", "record", "bundle", "sessions", "snapshot", "stop"):
            self.assertIn(command.encode(), done.stdout)
            text = run(command, "--help")
            self.assertEqual(text.returncode, 0)
            self.assertGreaterEqual(text.stdout.split(b"Examples:")[1].count(b"  ptdecode "), 2, command)
            self.assertNotRegex(text.stdout, rb"\n +-\S+ \S*\w:(?:[A-Z]|\{)")  # a type and its check
            long = [line for line in text.stdout.split(b"Examples:")[0].splitlines() if len(line) > 100 and b" " in line.strip()]
            self.assertEqual(long, [], "wrapped")

    def test_wrong_usage_is_2(self):
        for words in (["nonsense"], ["script", "--nonsense"], ["script", "--itrace=d"], ["script", "-F", "nonsense"], ["script", "--time", "x"],
                      ["script", "-C", "x"], ["packets", "--pt-cpu", "x", "--pt", "x"], ["image", "--at", "x"], ["verify"], ["verify", "--reference", "--count", "a", "-i", "x"], ["verify", "-C", "0", "truth.txt"],
                      ["script", "--pt-cpu", "6/94/3"]):
            done = run(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertEqual(done.stdout, b"", words)
            self.assertIn(b"ptdecode: ", done.stderr, words)

    def test_an_empty_value_selects_neither_all_nor_nothing(self):
        for command, option in (("script", "--tid"), ("script", "--symbols"), ("functions", "--func"), ("functions", "--comm"), ("flame", "-C"),
                                ("script", "--time"), ("image", "--at"), ("stat", "-i"), ("flame", "-o")):
            done = run(command, "-i", DEMO / "data", option, "") if option != "-i" else run(command, "-i", "")
            self.assertEqual(done.returncode, 2, (command, option, done.stderr))
            self.assertEqual(done.stdout, b"", (command, option))
            self.assertRegex(done.stderr, rb"^ptdecode: --?\w+ has an empty value\n$")

    def test_no_file_is_1(self):
        with tempfile.TemporaryDirectory() as empty:
            for command in ("info", "functions", "packets", "script", "stat", "image", "check"):
                done = run(command, cwd=empty)
                self.assertEqual(done.returncode, 1, command)
                self.assertIn(b"no perf.data in this directory", done.stderr)
                self.assertEqual(run(command, "-i", pathlib.Path(empty) / "absent").returncode, 1, command)
            junk = pathlib.Path(empty) / "junk"
            junk.write_bytes(b"this is no recording" * 100)
            done = run("script", "-i", junk)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"junk", done.stderr)

    def test_what_never_ends_is_refused_by_its_first_bytes(self):
        done = run("script", "-i", "/dev/zero", timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"not a perf.data file", done.stderr)

    def test_trace_without_a_psb_is_1(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in (("empty", b""), ("zeros", bytes(100_000)), ("text", b"no packet is like this\n" * 99)):
                path = pathlib.Path(folder) / name
                path.write_bytes(content)
                for command in ("packets", "script", "stat"):
                    done = run(command, "--pt", path)
                    self.assertEqual(done.returncode, 1, (command, name))
                    self.assertIn(name.encode(), done.stderr)

    def test_recording_and_raw_capture_at_once_is_2(self):
        done = run("stat", "-i", "/dev/null", "--pt", "/dev/null")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"--pt", done.stderr)

    def test_standard_streams_that_fail(self):
        """Status 1 if the output is lost; a message that cannot be printed changes nothing; a closed stream is never another file."""
        for words, status in (("script -i absent 2>&-", 1), ("script -i absent 2>/dev/full", 1), ("script --nonsense 2>&-", 2),
                              ("script -i - <&-", 1), ("--help >&-", 1), ("--help >/dev/full", 1), ("script -i absent <&- >&- 2>&-", 1)):
            done = subprocess.run(["/bin/sh", "-c", '"$0" ' + words, PTDECODE], capture_output=True, timeout=60)
            self.assertEqual(done.returncode, status, words)

    def test_a_reader_that_went_away_is_no_error(self):
        kernel = SOURCE / "data" / "kernel" / "kernel.bundle"
        commands = re.findall(r"^  (\w+) ", run("--help").stdout.decode().split("Subcommands:")[1].split("\n\n")[0], re.M)
        self.assertGreater(len(commands), 20)
        listings = (["info"], ["script"], ["functions"], ["flame", "--format", "folded"], ["stat"], ["image"], ["packets"])
        for words in (["--help"], ["--version"], *([command, "--help"] for command in commands), *(["-q", "-i", kernel, *listing] for listing in listings)):
            read, write = os.pipe()
            os.close(read)
            done = subprocess.run([PTDECODE, *map(str, words)], stdout=write, stderr=subprocess.PIPE, timeout=300)
            os.close(write)
            self.assertEqual((done.returncode, done.stderr), (0, b""), words)


class Loss(unittest.TestCase):
    """Lost flow as a share of time: the loss of the threads equals the loss of the run, and each gap belongs to a thread."""

    def test_threads_bins_and_gaps_agree(self):
        kernel = SOURCE / "data" / "kernel" / "kernel.bundle"
        done = run("stat", "--json", "--freeze", "-q", "-i", kernel)
        self.assertEqual(done.returncode, 0, done.stderr)
        json_text = json.loads(done.stdout)
        losses = json_text["loss_times"]
        lost = sum(thread["lost_ns"] for thread in losses["threads"])
        self.assertGreater(lost, 1_000_000)
        self.assertAlmostEqual(lost, sum(each["lost_ns"] for each in losses["bins"]), delta=lost / 50)  # no bins follow the last PSB
        for thread in losses["threads"]:
            self.assertLessEqual(sum(each["lost_ns"] for each in thread["gaps"].values()), lost)
        by_reason = {}
        for thread in losses["threads"]:
            for reason, each in thread["gaps"].items():
                by_reason[reason] = by_reason.get(reason, 0) + each["count"]
        want = {}
        for stream in json_text["streams"]:
            for reason, each in stream["gaps"].items():
                want[reason] = want.get(reason, 0) + each["count"]
        self.assertEqual(by_reason, want)
        text = run("stat", "--freeze", "-q", "-i", kernel).stdout.decode()
        self.assertRegex(text, r"\n  +\d+\.\d\d % +\S+ \S+ +\S+ \S+ +\d+  swapper  \(image_mismatch \d+")
        self.assertRegex(text, r"\n  \|[ .1-9#]{60}\|\n")
        self.assertIn("image_mismatch, bad_insn: the code that was found is not the code that ran", text)

    def test_nothing_lost_nothing_said(self):
        self.assertNotIn(b"lost flow", run("stat", "-q", "-i", DEMO).stdout)


class Versions(unittest.TestCase):
    def test_code_that_a_runtime_mapped_over_code(self):
        """A JIT compiler that reuses memory makes a new mapping for each function: each is a version, with its own time and bytes."""
        bundle = SOURCE / "data" / "user" / "jit.bundle"
        starts = re.findall(r"^ +mm\d+ ([0-9a-f]{16})-", run("image", "-i", bundle).stdout.decode(), re.M)
        address = max(set(starts), key=starts.count)
        self.assertGreater(starts.count(address), 50)
        lines = run("image", "-i", bundle, "--tid", "28534", address.lstrip("0"), "--versions", "--size", "16").stdout.decode().split("\n")
        after = next((i for i, line in enumerate(lines) if i != 0 and " was mapped " in line), len(lines))  # another address in the range
        lines = lines[:after]
        self.assertEqual(lines[0], f"{address.lstrip('0')} was mapped {starts.count(address)} times")
        versions = [re.match(r" +\d+  (\S+?)\.\.(\S*) +((?:[0-9a-f]{2} ?)+)", line) for line in lines[1:] if re.match(r" +\d+  ", line)]
        self.assertTrue(versions and all(versions), lines[:6])
        times = [tuple(map(float, match.group(1, 2))) for match in versions[:-1]]
        self.assertTrue(all(first < last <= after for (first, last), (after, _) in zip(times, times[1:])))
        self.assertGreater(len({match.group(3) for match in versions}), 1)
        before = f"{int(address, 16) - 4:x}"
        around = run("image", "-i", bundle, "--tid", "28534", before, "--versions", "--size", "16").stdout.decode()
        self.assertIn(lines[0] + "\n", around, "a range includes changes after its first byte")

    def test_a_call_in_lost_flow_is_not_denied(self):
        kernel = SOURCE / "data" / "kernel" / "kernel.bundle"
        said = run("functions", "-q", "--freeze", "-i", kernel, "--func", "no_such_function").stderr.decode()
        self.assertRegex(said, r"no call of 'no_such_function' is in the flow that could be decoded.*; flow is lost [\d,]+ times.*'ptdecode check'")


class CallsInAWindow(unittest.TestCase):
    """A complete call is the same in the whole trace and in the time range that --slowest prints for it."""

    def slowest(self, data, function, *words):
        lines = run("functions", "-q", "-i", data, "--func", function, "--slowest", "5", "--format", "json", *words).stdout.splitlines()
        return [call for call in map(json.loads, lines) if "call" in call]

    def test_what_is_sorted_by_is_listed(self):
        data = SOURCE / "data" / "user" / "pair.bundle"
        rows = [json.loads(line) for line in run("functions", "-q", "-i", data, "--format", "json").stdout.splitlines()[1:]]
        heading, *lines = run("functions", "-q", "-i", data, "--sort", "instructions", "--limit", "0", "--full-names").stdout.decode().splitlines()
        self.assertRegex(heading, r"^ +calls +self insn +% +total insn ")
        listed = [line.split()[:4] for line in lines[:len(rows)]]
        self.assertEqual([int(words[1]) for words in listed], sorted((row["self_instructions"] for row in rows), reverse=True))
        whole = sum(row["self_instructions"] for row in rows)
        for _, own, share, _ in listed:
            self.assertAlmostEqual(float(share), 100 * int(own) / whole, delta=0.051)

    def test_a_window_shows_the_call_that_it_is_for(self):
        tested = 0
        for name in ("pair", "jit"):
            data = SOURCE / "data" / "user" / f"{name}.bundle"
            rows = map(json.loads, run("functions", "-q", "-i", data, "--limit", "0", "--sort", "max", "--format", "json").stdout.splitlines())
            for function in [row["function"] for row in rows if row.get("calls")][:12]:
                for call in [call for call in self.slowest(data, function) if call["end_seen"]][:1]:
                    tested += 1
                    window = ("--tid", str(call["tid"]), "--time", f"{call['start']},{call['end']}")
                    self.assertIn(call, self.slowest(data, function, *window), (name, function))
        self.assertGreater(tested, 10)


class NewUser(unittest.TestCase):
    """A new user's first commands: each message names what was wrong, or lists what exists."""

    def test_the_picture_of_the_readme_is_what_its_command_draws(self):
        readme = (SOURCE / "README.md").read_text()
        words = re.search(r"`ptdecode (flame -i data/\S+ .*?-o) (docs/\S+\.svg)`", readme)
        with tempfile.TemporaryDirectory() as folder:
            done = run(*words.group(1).split(), pathlib.Path(folder) / "picture.svg", cwd=SOURCE)
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertEqual((SOURCE / words.group(2)).read_bytes(), (pathlib.Path(folder) / "picture.svg").read_bytes())
        self.assertIn(f"]({words.group(2)})", readme)

    def test_help_is_a_command(self):
        for words, same in ((["help"], ["--help"]), (["help", "record"], ["record", "--help"])):
            asked, usual = run(*words), run(*same)
            self.assertEqual((asked.returncode, asked.stdout), (0, usual.stdout))
        self.assertIn(b"'bogus' is not a command", run("help", "bogus").stderr)
        self.assertIn(b"has several ranges: give one", run("functions", "-i", DEMO, "--time", "10%-20%,30%-40%").stderr)

    def test_unknown_words_are_named(self):
        for words, said in ((["bogus"], b"'bogus' is not a command; the commands: bundle, check"), (["scirpt"], b"did you mean 'script'?"),
                            (["stats", "-x"], b"did you mean 'stat'?"), ([DEMO], b"ptdecode info -i ")):
            done = run(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertEqual(done.stdout, b"", words)
            self.assertIn(said, done.stderr, words)

    def test_perfs_options_lead_to_ours(self):
        for words, said in ((["script", "--xed"], b"equivalent of perf's --xed: 'ptdecode script --insn-trace=disasm'"),
                            (["script", "--header"], b"equivalent of perf's --header: 'ptdecode info'"), (["stat", "--call-graph=lbr"], b"'ptdecode flame'"),
                            (["report"], b"equivalent of 'perf report': 'ptdecode functions'"),
                            (["diff"], b"equivalent of 'perf diff': 'ptdecode functions --diff A B'")):
            done = run(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(said, done.stderr, words)
        self.assertNotIn(b"perf's", run("functions", "--sort", "bogus").stderr)

    def test_a_mistyped_option_leads_to_the_one_meant(self):
        for words, said in ((["script", "--tme", "1,2"], b"'script' has no option --tme; did you mean --time?"),
                            (["functions", "--slow", "3"], b"did you mean --slowest?"), (["info", "--jsn"], b"did you mean --json?"),
                            (["script", "-i", DEMO, "--limit", "3", "--tme", "5"], b"no option --limit; it is an option of 'ptdecode functions'"),
                            (["functions", "strlen"], b"to name a function: --func strlen"), (["script", DEMO], b"to name a recording: -i "),
                            (["script", "--max-blocks", "3"], b"equivalent of perf's --max-blocks: 'ptdecode script -F brstack'"),
                            (["script", "-i"], b"--input needs a value"), (["timeline"], b"--output is required: ptdecode timeline -o FILE"),
                            (["record", "--emulate", "--aux-sample", "4K", "-o", "x", "--", "./x"], b"the value of --aux-sample follows '=': --aux-sample=4K\n"),
                            (["info", "--qqqqqq"], b"'info' has no option --qqqqqq\n")):
            done = run(*words)
            self.assertEqual((done.returncode, done.stdout), (2, b""), words)
            self.assertIn(said, done.stderr, words)
            self.assertIn(b"see 'ptdecode " + words[0].encode() + b" --help'", done.stderr, words)

    def test_words_that_mean_nothing_say_so(self):
        for words, status, said in ((["image", "--versions", "-i", DEMO], 2, b"--versions needs a place"),
                                    (["demo", "--data", "/nonexistent"], 1, b"/nonexistent: no such folder"),
                                    (["stat", "-C", "99", "-i", DEMO], 2, b"no trace stream of these cpus"),
                                    (["packets", "-C", "99", "-i", DEMO], 2, b"no trace stream of these cpus"),
                                    (["script", "--insn-trace", "--syntax", "intel", "-i", DEMO], 2, b"--syntax is for disassembly: add --insn-trace=disasm"),
                                    (["script", "--syntax", "att", "-i", DEMO], 2, b"--syntax is for disassembly"),
                                    (["timeline", "--size", "10k", "-i", DEMO, "-o", "x"], 2, b"'10k' is not a size: give bytes, or a number with K, M, G or T"),
                                    (["record", "--emulate", "--stash-limit", "abc", "--", "/bin/echo", "runs"], 2, b"--stash-limit: 'abc' is not a size"),
                                    (["record", "--emulate", "--no-stash", "--stash-limit", "abc", "--", "/bin/echo", "runs"], 2, b"'abc' is not a size"),
                                    (["script", "--pt", "x", "--image", "x,size=0@0x1000"], 2, b"size=0 is empty")):
            done = run(*words)
            self.assertEqual((done.returncode, done.stdout), (status, b""), words)
            self.assertIn(said, done.stderr, words)

    def test_a_file_that_is_cut_is_a_finding_only_with_strict(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = (DEMO / "data").read_bytes()
            cut = pathlib.Path(folder) / "cut.data"
            cut.write_bytes(whole[:len(whole) * 3 // 4])
            self.assertEqual(run("stat", "-q", "-i", cut).returncode, 0)
            self.assertEqual(run("stat", "-q", "--strict", "-i", cut).returncode, 3)
            self.assertEqual(run("check", "-q", "-i", cut).returncode, 3)

    def test_a_folder_names_the_recording_in_it(self):
        with tempfile.TemporaryDirectory() as folder:
            outer = pathlib.Path(folder) / "outer"
            for inside in ("snapshot/snapshot.ini", "perf.data", "directory/data"):
                entry = outer / inside
                entry.parent.mkdir(parents=True)
                entry.write_bytes(b"")
                done = run("info", "-i", outer)
                self.assertEqual(done.returncode, 1)
                named = entry if inside == "perf.data" else entry.parent
                self.assertIn(f"it contains the recording {named}\n".encode(), done.stderr)
                shutil.rmtree(outer)

    def test_packets_names_the_threads_of_streams(self):
        text = run("packets", "-i", DEMO.parent / "user" / "pair.bundle").stdout.decode()
        titles = [line for line in text.splitlines() if line.startswith("# stream ")]
        self.assertEqual([title.split(",")[0] for title in titles], ["# stream 0: tid 28571", "# stream 1: tid 28573"])
        self.assertNotIn("cpu -1", text)

    def test_alone_it_sums_up_the_recording_that_lies_here(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run(cwd=folder)
            self.assertEqual(done.returncode, 2)
            self.assertIn(b"Subcommands:", done.stdout)
            os.symlink(DEMO, pathlib.Path(folder) / "perf.data")
            alone, info = run(cwd=folder), run("info", cwd=folder)
            self.assertEqual((alone.returncode, info.returncode), (0, 0), alone.stderr)
            self.assertTrue(alone.stdout.startswith(info.stdout))
            self.assertIn(b"ptdecode script", alone.stdout[len(info.stdout):])

    def test_options_may_precede_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("info", "stat"):
                os.symlink(DEMO, pathlib.Path(folder) / name)
            for before, after in (("-i stat info", "info -i stat"), ("-i stat", "info -i stat"), ("-q -i info functions --limit 3", "functions -q -i info --limit 3"),
                                  ("--limit 3 -i stat functions", "functions -i stat --limit 3"), ("--input=stat info", "info -i stat")):
                first, then = run(*before.split(), cwd=folder), run(*after.split(), cwd=folder)
                self.assertEqual((first.returncode, first.stdout), (0, then.stdout), before)
            wrong = run("-i", "stat", "info", "--slowest", "3", cwd=folder)
            self.assertEqual(wrong.returncode, 2)
            self.assertIn(b"'info' has no option --slowest", wrong.stderr)

    def test_info_of_a_bundle_knows_no_counts_of_records(self):
        with tempfile.TemporaryDirectory() as folder:
            bundle = os.path.join(folder, "demo.ptb")
            self.assertEqual(run("bundle", "-q", "-i", DEMO, "-o", bundle).returncode, 0)
            info = json.loads(run("info", "--json", "-i", bundle).stdout)
        self.assertEqual((info["text_pokes"], info["switches"], info["kernel_copy"]), (None, None, True))

    def test_info_says_what_perf_says(self):
        info = json.loads(run("info", "--json", "-i", DEMO).stdout)
        self.assertEqual(info["form"], "perf.data directory")
        self.assertEqual(len(info["streams"]), 2)
        self.assertTrue(info["kernel_copy"])
        if not shutil.which("perf"):
            self.skipTest("perf is not installed")
        raw = subprocess.run(["perf", "script", "-D", "-i", DEMO], capture_output=True, text=True, errors="replace").stdout
        self.assertEqual(info["text_pokes"], len(re.findall(r"PERF_RECORD_TEXT_POKE", raw)))
        self.assertEqual(info["trace_bytes"], sum(int(size, 16) for size in re.findall(r"PERF_RECORD_AUXTRACE size: (0x[0-9a-f]+)", raw)))
        comms = {(int(pid), int(tid)) for pid, tid in re.findall(r"PERF_RECORD_COMM(?: exec)?: .*:(\d+)/(\d+)", raw)}
        self.assertLessEqual(comms, {(thread["pid"], thread["tid"]) for thread in info["threads"]})
        header = subprocess.run(["perf", "report", "--header-only", "-i", DEMO], capture_output=True, text=True, errors="replace").stdout
        for key, field in (("hostname", "host"), ("os release", "kernel")):
            told = re.search(rf"^# {key} : (.*)$", header, re.M)
            self.assertEqual(told.group(1) if told else "", info[field])

    def test_info_reads_every_form(self):
        bundle = SOURCE / "data" / "kernel" / "kernel.bundle"
        self.assertIn(b": bundle", run("info", "-i", bundle).stdout)
        done = run("info", "-i", "-")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"too short", done.stderr)

    def test_words_that_are_not_meant_so(self):
        done = run("script", "-i", DEMO, "-S", "no_such_function")
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertIn(b"no function is named 'no_such_function'", done.stderr)
        self.assertEqual(run("functions", "-i", DEMO, "--limit", "-3").returncode, 2)
        done = run("info", "-i", DEMO, "--symfs", "/no/such/folder")
        self.assertIn(b"--symfs: folder /no/such/folder does not exist", done.stderr)

    def test_folders_that_are_absent_are_named(self):
        for option, means in (("--stash", b"no saved code is used"), ("--debug-dir", b"no debug files are found in it"),
                              ("--build-id-cache", b"no files are found in it")):
            done = run("stat", "-i", DEMO, option, "/no/such/folder")
            self.assertIn(option.encode() + b": folder /no/such/folder does not exist; " + means, done.stderr)
        for command in ("stat", "check", "info"):  # check reads the list of files, too
            self.assertEqual(run(command, "-i", DEMO, "--symfs", "/no/such/folder").stderr.count(b"does not exist"), 1, command)
        self.assertNotIn(b"does not exist", run("stat", "-i", DEMO, "--stash", "off").stderr)

    def test_interrupted_while_opening(self):
        for command in ("stat", "functions", "profile", "check", "script"):
            process = subprocess.Popen([PTDECODE, command, "-i", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            caught = 0
            while caught >> (signal.SIGINT - 1) & 1 == 0:  # it waits for its input from here on
                caught = int(re.search(r"SigCgt:\s*(\w+)", pathlib.Path(f"/proc/{process.pid}/status").read_text()).group(1), 16)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
            self.assertEqual((process.returncode, errors), (130, b"ptdecode: interrupted\n"), command)

    def test_an_odd_trace_json_is_read_or_named(self):
        folder = case("pt-lldb-single")
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(folder, copy, dirs_exist_ok=True)
            path = pathlib.Path(copy) / "trace.json"
            path.chmod(0o600)
            good = path.read_bytes()
            want = [run(command, "-q", "-i", path).stdout for command in ("script", "info")]
            for before in (b"\xef\xbb\xbf", b"\n  ", b"\xef\xbb\xbf\n"):
                path.write_bytes(before + good)
                got = [run(command, "-q", "-i", path) for command in ("script", "info")]
                self.assertEqual([each.returncode for each in got], [0, 0], got)
                self.assertEqual(got[0].stdout, want[0])
                self.assertIn(b": LLDB trace bundle", got[1].stdout)
            path.write_bytes(b"")
            for command in ("script", "info", "stat"):
                self.assertIn(b"trace.json is empty", run(command, "-i", path).stderr)

    def test_filters_that_match_nothing_say_so(self):
        for words, said in ((["--tid", "77777"], b"--tid: no thread 77777 in the recording; there are "),
                            (["--pid", "77777"], b"--pid: no process 77777 in the recording; there are "),
                            (["--time", "1,2"], b"--time: nothing was traced in "), (["--comm", "nobody"], b"no thread is named 'nobody'"),
                            (["-S", "nowhere"], b"no function is named 'nowhere'"), (["-C", "1,99"], b"-C: no trace of cpu 99 in the recording; there are 0, 1"),
                            (["-C", "99"], b"-C: no trace of cpu 99")):
            done = run("script", "-i", DEMO, "--itrace=c", *words)
            self.assertIn(said, done.stderr, words)
            if words != ["-C", "1,99"]:
                self.assertEqual((done.returncode, done.stdout), (2, b""), words)
        done = run("functions", "-q", "-i", DEMO, "--comm", "nobody")
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertIn(b"nothing matched --comm; no thread is named 'nobody'", done.stderr)
        done = run("script", "-i", DEMO, "--itrace=c", "-C", "1")
        self.assertEqual(done.returncode, 0)
        self.assertNotIn(b"matched", done.stderr)

    def test_a_filter_that_nothing_matches_has_one_exit_status_in_all_commands(self):
        with tempfile.TemporaryDirectory() as folder:
            commands = (["script"], ["script", "--json"], ["script", "--itrace=b"], ["script", "--itrace=b", "--format", "json"],
                        ["functions"], ["functions", "--json"], ["flame", "--format", "folded"], ["timeline", "-o", folder + "/t"],
                        ["coverage"], ["profile"])
            for command in commands:
                for filters in (["--tid", "77777"], ["--pid", "77777"], ["--time", "1,2"], ["--comm", "nobody"], ["-C", "99"]):
                    done = run(*command, "-i", DEMO, *filters)
                    self.assertEqual(done.returncode, 2, (command, filters, done.stderr))
            for command in (["script", "-S"], ["script", "--json", "-S"], ["script", "--itrace=b", "-S"], ["functions", "--func"]):
                self.assertEqual(run(*command, "nowhere", "-i", DEMO).returncode, 2, command)
            self.assertEqual(run("stat", "-i", DEMO, "-C", "99").returncode, 2)


class OutputFiles(unittest.TestCase):
    """Tests -o of the commands that write one file."""

    COMMANDS = (["flame"], ["timeline"], ["coverage", "--format", "lcov"], ["profile"])

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.recording = SOURCE / "data" / "user" / "plain.bundle"

    def write(self, words, target):
        return run(*words, "-q", "-i", self.recording, "-o", target)

    def test_what_is_no_file_stays_what_it_is(self):
        for words in self.COMMANDS[:2]:
            pipe = self.folder / ("pipe-" + words[0])
            os.mkfifo(pipe)
            copy = self.folder / ("copy-" + words[0])
            with copy.open("wb") as into, subprocess.Popen(["cat", pipe], stdout=into) as reader:
                done = self.write(words, pipe)
                reader.wait(timeout=60)
            got = copy.read_bytes()
            copy.unlink()
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(len(got), 1000, words)
            self.assertTrue(pipe.is_fifo(), words)
        self.assertEqual([each.name for each in self.folder.iterdir() if not each.is_fifo()], [])

    def test_a_reader_that_leaves_early(self):
        """What the reader of a pipe did not read is lost: an error. The reader of standard output may leave, whatever its name is."""
        for words in (["flame"], ["timeline"], ["report"]):
            closed, output = os.pipe()
            os.close(closed)
            named = f"/dev/fd/{output}"
            done = subprocess.run([PTDECODE, *words, "-q", "-i", self.recording, "-o", named], capture_output=True, timeout=60, pass_fds=[output], check=False)
            os.close(output)
            with self.subTest(words=words, output=named):
                self.assertEqual((done.returncode, done.stderr.decode()), (1, f"ptdecode: {named}: cannot write: Broken pipe\n"))
            for named in ("-", "/dev/stdout"):
                script = f'set -o pipefail; "$@" 2> {self.folder}/said | head -c 1 > /dev/null'
                done = subprocess.run(["bash", "-c", script, "bash", PTDECODE, *words, "-q", "-i", self.recording, "-o", named], timeout=60, check=False)
                self.assertEqual(done.returncode, 0, ((self.folder / "said").read_text(), words, named))

    def test_a_full_disk_is_said(self):
        full = self.folder / "full"
        full.symlink_to("/dev/full")
        for words in self.COMMANDS[:2]:
            done = self.write(words, full)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(b"cannot write", done.stderr, words)
            self.assertTrue(full.is_char_device(), words)

    def user_seconds(self, words, target):
        """The processor time of a command that writes a large result to `target`, and what it said."""
        command = [PTDECODE, *words, "-q", "-i", SOURCE / "data" / "kernel" / "kernel.bundle", "-o", target]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            said = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_utime, process.returncode, said

    def test_what_cannot_be_written_is_said_before_all_is_decoded(self):
        nowhere = self.folder / "absent" / "out"
        for words, target in ((["timeline"], "/dev/full"), (["timeline"], nowhere), (["timeline", "--size", "1M"], nowhere), (["flame"], nowhere), (["report"], nowhere)):
            whole = self.user_seconds(words, "/dev/null")[0]
            part, status, said = self.user_seconds(words, target)
            with self.subTest(words=words, target=target):
                self.assertEqual(status, 1, said)
                self.assertRegex(said, rb"ptdecode: \S+: cannot write: No s(pace left on device|uch file or directory)\n\Z")
                self.assertLess(part, whole / 8)

    def test_a_recording_is_not_written_over(self):
        for source, kind in ((DEMO / "data", b"a recording"), (SOURCE / "data" / "kernel" / "kernel.bundle", b"a bundle"), (PTDECODE, b"a program or library")):
            needed = self.folder / "needed"
            shutil.copy(source, needed)
            before = needed.read_bytes()
            for words in self.COMMANDS[:2]:
                done = self.write(words, needed)
                self.assertEqual(done.returncode, 2, words)
                self.assertIn(b"is " + kind + b": -o names the output file", done.stderr, words)
            self.assertEqual(needed.read_bytes(), before)

    def test_a_link_is_replaced_and_standard_output_will_do(self):
        target, link = self.folder / "target.svg", self.folder / "link.svg"
        target.write_text("old")
        link.symlink_to(target)
        self.assertEqual(self.write(["flame"], link).returncode, 0)
        self.assertFalse(link.is_symlink())
        self.assertEqual(target.read_text(), "old")
        self.assertEqual(link.read_bytes(), self.write(["flame"], "-").stdout)


class Interrupt(unittest.TestCase):
    def test_ctrl_c_ends_the_output_and_sums_up(self):
        words = [PTDECODE, "script", "-i", str(DEMO), "--itrace=i1i", "-F", "ip,insn"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.read(1000)  # the rest exceeds the capacity of a pipe: the program waits for the reader
            process.send_signal(signal.SIGINT)
            rest, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertRegex(said, rb"interrupted after \d+\.\d % of the trace; no flow was lost up to there\n")
        self.assertLess(len(rest), 5_000_000)


    def test_what_was_found_so_far_is_told(self):
        """Commands that print at their end. The start of decoding cannot be observed from outside: the delay is searched between too early
        and too late, both of which vary."""
        kernel = SOURCE / "data" / "kernel" / "kernel.bundle"
        for words, told in ((["functions", "--limit", "3"], rb"function\n.* threads: \d"), (["stat"], rb"all streams: \d+ instructions"),
                            (["flame", "--format", "folded"], rb"\A\S+.* \d+\n")):
            early, late = 0.0, 2.0
            for _ in range(60):
                wait = (early + late) / 2
                with subprocess.Popen([PTDECODE, *words, "-i", str(kernel)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                    time.sleep(wait)
                    process.send_signal(signal.SIGINT)
                    out, said = process.communicate(timeout=60)
                share = re.search(rb"interrupted after (\d+\.\d) % of the trace", said)
                if share and float(share.group(1)) > 0:
                    break
                if process.returncode == 0:
                    late = max(wait, early + 0.01)
                    early *= 0.9
                else:
                    early = min(wait, late - 0.01)
                    late *= 1.1
            self.assertEqual(process.returncode, 130, (words, "it was over before it could be interrupted"))
            self.assertRegex(out, re.compile(told, re.S), words)


    def test_a_part_does_not_replace_an_earlier_result(self):
        kernel = SOURCE / "data" / "kernel" / "kernel.bundle"
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "out"
            for words in (["timeline"], ["flame"], ["profile", "--format", "pprof"]):
                kept, wait = 0, 0.0
                while kept == 0 and wait < 2:
                    output.write_bytes(b"earlier")
                    with subprocess.Popen([PTDECODE, *words, "-i", str(kernel), "-o", str(output)], stderr=subprocess.PIPE) as process:
                        time.sleep(wait := wait + 0.02)
                        process.send_signal(signal.SIGINT)
                        said = process.communicate(timeout=60)[1]
                    if process.returncode == 0:
                        break
                    self.assertIn(process.returncode, (130, -signal.SIGINT), (words, said))  # -SIGINT: before the handler was set
                    self.assertEqual(output.read_bytes(), b"earlier", (words, said))
                    kept += b"keeps its earlier content" in said
                self.assertEqual(kept, 1, (words, "it was over before it could be interrupted"))


class RawCases(unittest.TestCase):
    def test_pieces_of_code_that_contradict_each_other_are_a_finding(self):
        folder = case("pt-xdc-unzip")
        with tempfile.TemporaryDirectory() as temporary:
            for name, fill in (("a", b"\x90"), ("b", b"\xcc")):
                (pathlib.Path(temporary) / name).write_bytes(fill * 64)
            words = ["--image", f"{temporary}/a@7000", "--image", f"{temporary}/b@7020"]
            done = run("check", *raw_words(folder)[:4], *words)
            self.assertEqual(done.returncode, 3)
            self.assertIn(b"contain different bytes for the same addresses", done.stdout)
            done = run("check", *raw_words(folder)[:4], "--image", f"{temporary}/a@7000", "--image", f"{temporary}/a@7020")
            self.assertNotIn(b"contain different bytes", done.stdout)
            self.assertEqual(done.returncode, 3)  # the trace's own code is missing
            self.assertRegex(done.stdout, rb"(?m)^code_missing: ")

    def test_pages_that_contradict_each_other_are_a_finding(self):
        folder = case("pt-xdc-unzip")
        with tempfile.TemporaryDirectory() as temporary:
            at = pathlib.Path(temporary)

            def found(fills, addresses, *words):
                (at / "dump").write_bytes(b"".join(bytes([fill]) * 4096 for fill in fills))
                (at / "addrs").write_bytes(b"".join(address.to_bytes(8, "little") for address in addresses))
                done = run("check", *raw_words(folder)[:4], "--pages", f"{at}/dump,{at}/addrs", *words)
                self.assertEqual(done.returncode, 3)
                return [line for line in done.stdout.decode().splitlines() if line.startswith("section_overlap: ")]

            same = [0x401000, 0x402000, 0x401000]
            one = f"section_overlap: {at}/dump contains pages with different bytes for the same address; the first one is used [at 0x401000]"
            self.assertEqual(found([1, 2, 3], same), [one])
            self.assertEqual(found([1, 2, 1], same), [])
            self.assertEqual(found([1, 1, 2], [0x401000] * 3), [one])
            self.assertEqual(found([1, 2, 3, 4, 5], [*same, 0x402000, 0x403000]), [one.replace(";", ", of 2 addresses;")])
            (at / "piece").write_bytes(b"\x01" * 64)
            pieces = found([1, 2], [0x401000, 0x402000], "--image", f"{at}/piece@401010", "--image", f"{at}/piece@402020")
            self.assertEqual(len(pieces), 1)
            self.assertIn("contain different bytes for the same addresses; the last one is used [at 0x402020]", pieces[0])
        for words in (",", f"{temporary}/dump,", ",addrs"):
            done = run("check", *raw_words(folder)[:4], "--pages", words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"--pages: '{words}' is not DUMP,ADDRS".encode(), done.stderr)

    def test_the_remedy_fits_the_capture(self):
        folder = case("pt-xdc-unzip")
        done = run("stat", *raw_words(folder)[:4])
        self.assertIn(b"the bytes at these addresses: --image FILE@0x", done.stderr)
        self.assertNotIn(b"jitdump", done.stderr)

    def test_addresses(self):
        for name in ("pt-lldb-single", "pt-dynamorio-simple", "pt-xdc-unzip", "pt-xdc-mruby"):
            with self.subTest(name):
                folder = case(name)
                done = run("script", *raw_words(folder), "--itrace=i1i", "-F", "ip")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout, expected(folder, "insns.txt"))

    def test_addresses_after_missing_code(self):
        """ld.so is not in the recording. libipt stops there until the next PSB; our flow continues at the TIP into foo(), marked, and is
        back in main() where tracing ends according to the trace."""
        folder = case("pt-lldb-multifile")
        lines = run("script", *raw_words(folder), "--itrace=i1i", "-F", "ip,mark").stdout.decode().splitlines()
        certain = [line.strip() for line in lines if "suspect" not in line]
        self.assertEqual("\n".join(certain) + "\n", expected(folder, "insns.txt").decode())
        marked = [int(line.split()[0], 16) for line in lines if "suspect" in line]
        self.assertTrue(marked)
        # foo() of libfoo.so is called a second time, from another address, with all code available: its flow starts in the same way.
        start = certain.index(f"{marked[0]:x}")
        self.assertEqual([f"{ip:x}" for ip in marked[:4]], certain[start:start + 4])

    def test_lldb_bundle(self):
        folder = case("pt-lldb-single")
        done = run("script", "-i", folder / "trace.json", "--itrace=i1i", "-F", "ip")
        self.assertEqual(done.stdout, expected(folder, "insns.txt"))

    def test_slow_path_lists_the_same_addresses(self):
        folder = case("pt-xdc-unzip")
        done = run("script", *raw_words(folder), "--itrace=i1i", "-F", "ip,insnlen")
        addresses = [line.split()[0] for line in done.stdout.splitlines()]
        self.assertEqual(addresses, expected(folder, "insns.txt").split())

    def test_packets(self):
        for name, listing in (("pt-lldb-single", "packets.txt"), ("pt-lldb-multifile", "packets.txt"), ("pt-dynamorio-simple", "packets.txt"),
                              ("pt-xdc-unzip", "packets.txt"), ("pt-xdc-kernel-packets", "packets.txt")):
            with self.subTest(name):
                folder = case(name)
                done = run("packets", *raw_words(folder), "--plain", "--no-pad")
                squeeze = lambda text: [b" ".join(line.split()) for line in text.splitlines()]
                self.assertEqual(squeeze(done.stdout), squeeze(expected(folder, listing)))

    def test_gap_counts_and_strict(self):
        folder = case("pt-lldb-multifile")
        errors = len(expected(folder, "errors.txt").splitlines())
        self.assertEqual(errors, 1)
        stat = json.loads(run("stat", *raw_words(folder), "--json").stdout)
        self.assertEqual(sum(gap["count"] for gap in stat["streams"][0]["gaps"].values()), errors + 1)  # and again in the marked part
        self.assertGreater(stat["streams"][0]["instructions"], len(expected(folder, "insns.txt").splitlines()))
        self.assertEqual(run("script", *raw_words(folder)).returncode, 0)
        done = run("script", *raw_words(folder), "--strict")
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"flow was lost in 2 places", done.stderr)
        self.assertEqual(run("script", *raw_words(folder), "-q").stderr, b"")

    def test_stat_counts_packets(self):
        folder = case("pt-xdc-unzip")
        stat = json.loads(run("stat", *raw_words(folder), "--json", "--packets-only").stdout)
        listed = [line.split()[1].decode() for line in expected(folder, "packets.txt").splitlines()]
        counted = stat["streams"][0]["packets"]
        for kind in set(listed):
            self.assertEqual(counted[kind], listed.count(kind), kind)

    def test_stat_of_packets_says_nothing_of_the_flow(self):
        words = raw_words(case("pt-lldb-multifile"))  # its flow has a gap: test_gap_counts_and_strict
        stat = json.loads(run("stat", *words, "--json", "--packets-only").stdout)
        self.assertIs(stat["decoded"], False)
        for name in ("gaps", "instructions", "uncertain_instructions", "code", "events"):
            self.assertNotIn(name, stat["streams"][0])
        for name in ("loss_times", "missing_code"):
            self.assertNotIn(name, stat)
        whole = json.loads(run("stat", *words, "--json").stdout)
        self.assertIs(whole["decoded"], True)
        self.assertEqual(whole["streams"][0]["packets"], stat["streams"][0]["packets"])
        text = run("stat", *words, "--packets-only").stdout
        self.assertIn(b"all streams: not decoded (--packets-only)", text)
        for word in (b"  gaps", b"0 instructions", b"uncertain"):
            self.assertNotIn(word, text)
        refused = run("stat", *words, "--packets-only", "--strict")
        self.assertEqual((refused.returncode, b"--packets-only" in refused.stderr), (2, True), refused.stderr)


class PerfData(unittest.TestCase):
    def test_missing_code_is_one_ranked_list(self):
        folder = case("pt-perfdata-skylake")
        done = run("stat", "-i", folder / "perf.data", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        stat = json.loads(done.stdout)
        lost = [line["lost_bytes"] for line in stat["missing_code"]]
        self.assertTrue(lost)
        self.assertEqual(lost, sorted(lost, reverse=True))
        for line in stat["missing_code"]:
            self.assertTrue(line["supply"])


class Damaged(unittest.TestCase):
    """Messages give the error, the file, and what to do."""

    def damaged(self, content):
        """Returns stat --json, and the text of stat and check, for a perf.data file with this content."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "perf.data"
            path.write_bytes(content)
            check = run("check", "-i", path)
            self.assertNotEqual(run("stat", "-i", path, "--strict").returncode, 0)
            return json.loads(run("stat", "--json", "-i", path).stdout), run("stat", "-i", path).stdout, check

    def test_messages_on_standard_input_name_it(self):
        data = (DEMO / "data").read_bytes()
        for command in ("info", "check", "stat"):
            for content, said in ((b"", b"is empty"), (b"no recording", b"too short"), (b"this is no recording\n" * 9, b"is not a perf.data file"), (data[:60], b"ends inside its header")):
                got = subprocess.run([PTDECODE, command, "-i", "-"], input=content, capture_output=True)
                self.assertEqual(got.returncode != 0 and got.stderr.startswith(b"ptdecode: standard input ") and said in got.stderr, True, got.stderr)

    def test_what_follows_a_damaged_record_header_is_named_as_lost(self):
        content = bytearray((DEMO / "data").read_bytes())
        records, end = perf_file.records(content)
        at = next(at for (_, kind, _), (at, _, _) in zip(records, records[1:]) if kind == AUXTRACE)
        content[at:end] = bytes(end - at)
        stat, text, check = self.damaged(content)
        said = b"damaged at byte %d: the %d bytes from there on are lost" % (at, len(content) - at)
        self.assertEqual(check.returncode, 3)
        self.assertIn(said, check.stdout)
        self.assertIn(b"records lost: the file is " + said, text)
        self.assertEqual([said.decode() in sentence for sentence in stat["records_lost"]], [True])
        self.assertIn(b"the %d bytes from a record of impossible size 0 on are lost, at offset %d" % (end - at, at), check.stderr)

    def test_what_is_read_of_a_file_that_the_recorder_did_not_finish(self):
        """The header's data size is 0, as until the end of a recording. What was written is the same trace, up to a byte in a payload or in a record too."""
        whole = (DEMO / "data").read_bytes()
        records, end = perf_file.records(whole)
        payload = max(at for at, kind, _ in records if kind == AUXTRACE) + 48
        header = max(at for at, kind, size in records if kind != AUXTRACE and size > 8) + 8
        finished, *_ = self.damaged(bytearray(whole))
        instructions = sum(stream["instructions"] for stream in finished["streams"])
        unfinished = b"the recorder did not finish the file: records and trace are read up to "
        for length, said in ((end, b"its end at byte %d, and later ones are missing" % end),
                             (payload + 100, b"its end at byte %d, and later ones are missing" % (payload + 100)),
                             (header, b"byte %d, and the 8 bytes from there on are lost" % (header - 8))):
            content = bytearray(whole[:length])
            struct.pack_into("<Q", content, 48, 0)
            stat, text, check = self.damaged(content)
            self.assertIn(b"\nrecords_lost: " + unfinished + said, b"\n" + check.stdout)
            self.assertIn(b"records lost: " + unfinished + said, text)
            self.assertNotIn(b"damaged at byte 48", check.stdout)
            if length == end:
                self.assertEqual(sum(stream["instructions"] for stream in stat["streams"]), instructions)
        content = bytearray(whole)
        struct.pack_into("<Q", content, 48, 5)  # the size is wrong, and what follows the records cannot be told from them
        struct.pack_into("<Q", content, 16, 5)
        check = self.damaged(content)[2]
        self.assertNotRegex(check.stdout, rb"damaged at byte (16|48)\b")

    def test_reading_goes_on_after_a_damaged_record_header(self):
        whole = (DEMO / "data").read_bytes()
        records, _ = perf_file.records(whole)
        at, _, size = records[25]
        self.assertNotIn(AUXTRACE, [kind for _, kind, _ in records[24:28]])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "perf.data"
            path.write_bytes(whole)
            undamaged = sum(stream["instructions"] for stream in json.loads(run("stat", "--json", "-i", path).stdout)["streams"])
        damages = (
            ("<H", at + 6, 3, at, size),  # of the record
            ("<H", at + 6, size - 8, at + size - 8, 8),
            ("<Q", at, 0, at, size),
            ("<Q", at, 0xFFFFFFFFFFFFFFFF, at, size),
        )
        for form, place, value, first, lost in damages:
            content = bytearray(whole)
            struct.pack_into(form, content, place, value)
            stat, text, check = self.damaged(content)
            said = b"the file is damaged at byte %d: %d bytes are skipped" % (first, lost)
            self.assertIn(b"records lost: " + said, text, (form, value))
            self.assertIn(said, check.stdout)
            self.assertIn(b"a record header is damaged: %d bytes are skipped, at offset %d" % (lost, first), check.stderr)
            counted = sum(stream["instructions"] for stream in stat["streams"])
            self.assertGreater(counted, undamaged * 0.99, (form, value))
        for longer in (size + 8, 0xFFF8):  # its content shows where it ends: nothing is lost
            content = bytearray(whole)
            struct.pack_into("<H", content, at + 6, longer)
            stat, _, check = self.damaged(content)
            self.assertRegex(check.stdout, rb"(?m)^bad_record: .*offset %d" % at)
            self.assertEqual(sum(stream["instructions"] for stream in stat["streams"]), undamaged)

    def test_a_payload_whose_record_header_is_damaged_is_reported_as_lost(self):
        content = bytearray((DEMO / "data").read_bytes())
        records, _ = perf_file.records(content)
        payloads = [at for at, kind, _ in records if kind == AUXTRACE]
        struct.pack_into("<Q", content, payloads[0], 0)
        lost = 48 + struct.unpack_from("<Q", content, payloads[0] + 8)[0]
        _, text, _ = self.damaged(content)
        self.assertIn(b"the file is damaged at byte %d: %d bytes are skipped" % (payloads[0], lost), text)

    def test_the_limit_of_file_sizes_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            said = subprocess.run(f"ulimit -f 8; {PTDECODE} script -q -i {DEMO} --itrace=b > {folder}/out", shell=True, executable="/bin/bash", capture_output=True)
            self.assertEqual((said.returncode, b"File too large" in said.stderr, b"ulimit -f" in said.stderr), (1, True, True), said.stderr)

    def test_what_a_killed_recorder_left_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in ("perf.data", "other.data"):
                (pathlib.Path(folder) / (path + ".work-a1B2c3")).mkdir()
                for words in ((), ("-i", pathlib.Path(folder) / path)):
                    if words or path == "perf.data":
                        done = run("stat", *words, cwd=folder)
                        self.assertEqual(done.returncode, 1)
                        self.assertRegex(done.stderr, rb"record --recover \S*" + path.encode() + rb".work-a1B2c3'")


class KernelPokes(unittest.TestCase):
    """A kernel that patches itself. The recording is unpacked once, outside the source tree, or taken from PTDECODE_KERNEL_POKES."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = None
        unpacked = os.environ.get("PTDECODE_KERNEL_POKES")
        if not unpacked:
            folder = case("pt-kernel-pokes")
            cls.temporary = tempfile.TemporaryDirectory()
            unpacked = cls.temporary.name
            subprocess.run(["tar", "-xf", folder / "recording.tar.xz", "-C", unpacked], check=True)
        cls.folder = pathlib.Path(unpacked)
        cls.words = ["-i", cls.folder / "recording", "--symfs", cls.folder / "root"]

    @classmethod
    def tearDownClass(cls):
        if cls.temporary:
            cls.temporary.cleanup()

    def perf(self, *words, lines):
        if not shutil.which("perf"):
            self.skipTest("perf is not installed")
        got, _, _ = head(["perf", "script", "--symfs", self.folder / "root", "-i", self.folder / "recording", *words], lines)
        return got

    def test_first_million_addresses_equal_perfs(self):
        words = ["--itrace=i1i", "-F", "ip", "-C", "1"]
        want = self.perf(*words, lines=FIRST_INSTRUCTIONS)
        got, status, errors = head([PTDECODE, "script", *self.words, *words], FIRST_INSTRUCTIONS)
        self.assertEqual(len(got), FIRST_INSTRUCTIONS)
        self.assertTrue(got == want, "addresses differ from perf's")
        self.assertEqual(status, 0)
        for line in errors.splitlines():
            self.assertTrue(line.startswith(b"ptdecode: warning: "), "a closed pipe ends silently")

    def test_first_branches_equal_perfs(self):
        form = re.compile(rb" ([0-9a-f]+) \S+ \([^)]*\) => +([0-9a-f]+) ")
        pairs = lambda lines: [form.search(line).groups() for line in lines if form.search(line)]
        want = pairs(self.perf("--itrace=b", "-C", "1", lines=20_000))
        got, _, _ = head([PTDECODE, "script", *self.words, "--itrace=b", "-C", "1"], 20_000)
        self.assertGreater(len(want), 19_000)
        self.assertTrue(pairs(got)[:19_000] == want[:19_000], "branches differ from perf's")

    def test_columns_are_perfs(self):
        time = re.compile(rb"(?<=\] )( *\d+\.\d+|-): ")
        name = re.compile(rb" [^ ]+(\+0x[0-9a-f]+)? \((?=[/\[])")
        for words in (["--itrace=b"], ["--itrace=b", "-F", "+flags"], ["--itrace=i1i"], ["--insn-trace"], ["--itrace=i1i", "-F", "pid,tid,ip,dso,sym"]):
            words = [*words, "-C", "1"]
            theirs = self.perf(*words, lines=20_000)
            ours, _, _ = head([PTDECODE, "script", *self.words, *words], 20_000)
            for a, b in zip(ours[:19_000], theirs):
                a, b = (name.sub(b" NAME (", time.sub(b"T: ", line)) for line in (a, narrow(b)))
                # perf 6.1 has one name for interrupts and for the INT3 of a poke.
                self.assertEqual(a.replace(b"  int3  ", b"  hw int"), b, words)

    def test_streams_are_merged_by_time(self):
        got, _, _ = head([PTDECODE, "script", *self.words, "--itrace=c", "-F", "cpu,time,ip", "--ns"], 200_000)
        times = [float(line.split()[1].rstrip(b":")) for line in got]
        self.assertEqual(times, sorted(times))
        self.assertEqual({line.split()[0] for line in got}, {b"[000]", b"[001]"})

    def test_time_range(self):
        whole, _, _ = head([PTDECODE, "script", *self.words, "--itrace=c", "-F", "time,ip", "--ns", "-C", "1"], 100_000)
        times = [line.split()[0].rstrip(b":").decode() for line in whole]
        first, last = times[40_000], times[60_000]
        want = [line for line, time in zip(whole, times) if float(first) <= float(time) <= float(last)]
        done = run("script", *self.words, "--itrace=c", "-F", "time,ip", "--ns", "-C", "1", "--time", f"{first},{last}")
        self.assertEqual([line.strip() for line in done.stdout.splitlines()], want)

    def test_a_later_copy_shows_changed_bytes_of_the_first(self):
        after = ["--kcore-after", self.folder / "after" / "kcore_dir"]
        lines, _, _ = head([PTDECODE, "script", *self.words, "--itrace=b", "-F", "ip", "-C", "1"], 400_000)
        kernel = sorted({int(line, 16) for line in lines if len(line) == 16})
        flipped = random.Random(19).sample(kernel, 30)
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "recording"
            shutil.copytree(self.folder / "recording", copy)
            core = copy / "kcore_dir" / "kcore"
            core.chmod(0o600)
            content = bytearray(core.read_bytes())
            table, = struct.unpack_from("<Q", content, 32)
            count, = struct.unpack_from("<H", content, 56)
            segments = [struct.unpack_from("<8xQQ8xQ", content, table + 56 * i) for i in range(count)]
            for ip in flipped:
                at, = (offset + ip - address for offset, address, size in segments if address <= ip < address + size)
                content[at] ^= 1 << ip % 8
            self.assertNotIn(b"differ", run("check", *self.words, *after).stdout)
            core.write_bytes(content)
            done = run("check", "-i", copy, "--symfs", self.folder / "root", *after)
            self.assertEqual(done.returncode, 3)
            for ip in flipped:
                self.assertIn(b"[at %#x" % ip, done.stdout, f"{ip:x}")

    def test_check_finds_nothing_wrong_but_dropped_records_are_found(self):
        done = run("check", *self.words)
        self.assertNotIn(b"poke_", done.stdout)
        done = run("check", *self.words, "--drop-poke", "10,1")
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"poke_healed", done.stdout)

    def test_the_last_pokes_of_places_may_be_lost(self):
        """No record or copy contradicts them then, but the packets do."""
        for words, expected in (((), ["no findings: the records, the code bytes and the files agree"]), (("--drop-poke", "11"), ["1 times_contradict"])):
            done = run("check", "-q", "-i", DEMO, *words)
            self.assertEqual(done.returncode, 3 if words else 0)
            self.assertEqual([line.strip() for line in done.stdout.decode().splitlines() if not line.startswith("times_contradict: [kernel]: ") and line.strip()], expected)


if __name__ == "__main__":
    if not CORPUS.is_dir():
        print(f"note: no corpus at {CORPUS}; the tests that need it are skipped")
    unittest.main(verbosity=2)
