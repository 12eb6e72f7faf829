#!/usr/bin/env python3
"""A bundle gives the output of its recording: every command, every recording of data/ and of the corpus, with the originals moved away."""
import difflib
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

import parts

sys.path += [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("cli", "capi")]
import perf_file  # noqa: E402
import ptdecode_c  # noqa: E402

PTDECODE = os.environ.get("PTDECODE", "ptdecode")
SOURCE = pathlib.Path(os.environ.get("PTDECODE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
CORPUS = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE / ".." / "shared" / "corpus")).resolve()

# Commands whose output and exit status must not differ.
COMMANDS = [
    ["script", "--itrace=i1ibxwpIoe", "-F", "+insn,+flags,+mark,+symoff,+dso"],
    ["script", "--call-ret-trace"],
    ["script", "--insn-trace=disasm"],
    ["stat", "--json"],
    ["check", "--json"],
    ["packets"],
    ["image"],
]


def run(words, env=None):
    """Returns (status, standard output, standard error) of the program."""
    process = subprocess.run([PTDECODE, *map(str, words)], capture_output=True, env=env, timeout=3600)
    return process.returncode, process.stdout, process.stderr


def raw_words(folder):
    """Returns the options that open a raw case, from its case.json."""
    facts = json.loads((folder / "case.json").read_text())
    cpu = facts.get("cpu") or {}
    words = ["--pt", folder / facts["trace"]["file"]]
    if isinstance(cpu, dict) and "family" in cpu:
        words += ["--pt-cpu", f"{cpu['family']}/{cpu['model']}/{cpu['stepping']}"]
    config = facts.get("config", {})
    if "cpuid_0x15_eax" in config:
        words += ["--tsc-ctc", f"{config['cpuid_0x15_ebx']}/{config['cpuid_0x15_eax']}"]
    for key, option in (("mtc_freq", "--mtc-freq"), ("nom_freq", "--nom-freq")):
        words += [option, config[key]] if key in config else []
    for image in facts.get("images", []):
        size = f",size={image['size']}" if image.get("size") else ""
        words += ["--image", f"{folder / image['file']},off={image.get('file_offset', 0)}{size}@{image['load_address']}"]
    if "page_image" in facts:
        pages = facts["page_image"]
        words += ["--pages", f"{folder / pages['pages']},{folder / pages['addresses']}"]
    return words


def size_of(path):
    return path.stat().st_size if path.is_file() else sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


class Bundles(unittest.TestCase):
    def setUp(self):
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="ptd-bundle-"))
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)
        self.bundle = self.tmp / "recording.ptb"
        self.elsewhere = {"HOME": str(self.tmp / "nobody"), "PATH": "/nowhere"}

    def make(self, words, *more):
        status, out, err = run(["bundle", *words, "-o", self.bundle, *more])
        self.assertEqual(status, 0, err.decode())
        self.assertIn(b"symbols", out)
        return self.bundle

    def same(self, commands, words, original, bundle, ignored=rb"$^"):
        """Compares the commands' outputs without the pattern `ignored`; `original` is moved away while the bundle is read."""
        away = original.with_name(original.name + ".away")
        for command in commands:
            want = run([*command, *words])
            original.rename(away)
            try:
                got = run([*command, "-i", bundle], env=self.elsewhere)
            finally:
                away.rename(original)
            if want != got:  # searching large outputs takes long
                want, got = ([status, re.sub(ignored, b"", out), err] for status, out, err in (want, got))
            for what, a, b in zip(("status", "output", "messages"), want, got):
                if a != b:
                    a, b = (str(x).splitlines() if isinstance(x, int) else x.decode(errors="replace").splitlines()[:200000] for x in (a, b))
                    self.fail(f"{command}: {what}\n" + "\n".join(list(difflib.unified_diff(a, b, lineterm="", n=1))[:20]))
            self.assertNotEqual(want[0], 1, command)

    def case(self, name):
        if not (CORPUS / name / "case.json").exists():
            self.skipTest(f"no corpus case {CORPUS / name}")
        shutil.copytree(CORPUS / name, self.tmp / name, ignore=shutil.ignore_patterns("expected"))
        return self.tmp / name

    def demo(self):
        shutil.copytree(SOURCE / "data" / "demo", self.tmp / "demo")
        return self.tmp / "demo"

    def test_demo(self):
        demo = self.demo()
        bundle = self.make([demo])
        self.same(COMMANDS + [["stat"], ["check"], ["image", "hot_keys", "--versions"], ["image", "--diff", "30.00001,30.01"], ["script", "-S", "hot_keys"]],
                  ["-i", demo], demo, bundle)
        self.assertLess(size_of(bundle), size_of(demo) / 4)

    def test_truth(self):
        """The bundle's flow equals the ground truth: every instruction and its bytes."""
        bundle = self.make([SOURCE / "data" / "demo"])
        truths = [SOURCE / "data" / "demo" / f"truth.cpu{cpu}.txt" for cpu in (0, 1)]
        status, out, _ = run(["verify", "-i", bundle, *truths], env=self.elsewhere)
        self.assertEqual((status, out.count(b"100.0000 %")), (0, 2), out.decode())

    def test_other_ways_to_decode(self):
        """The code that a frozen or timeless decode reads is added on request."""
        demo = self.demo()
        for option in (["--freeze"], ["--no-time"], ["--slack", "1ms"], ["--drop-poke", "3"], ["--no-anchors"]):
            bundle = self.make([demo], *option)
            self.same([[*COMMANDS[0], *option], ["check", *option]], ["-i", demo], demo, bundle)
            self.same([COMMANDS[1]], ["-i", demo], demo, bundle)

    def test_what_is_not_kept_is_said(self):
        """Code that no decode reads is absent, never other bytes."""
        demo = SOURCE / "data" / "demo"
        place = ["image", "ffffffffc0201f00"]
        self.assertIn(b"int3", run([*place, "-i", demo])[1])
        got = run([*place, "-i", self.make([demo])])[1]
        self.assertIn(b"its bytes were not found", got)
        self.assertNotIn(b"int3", got)

    def test_cut_to_a_time(self):
        demo = self.demo()
        whole = size_of(self.make([demo]))
        for time in ("30.0001,30.0002", "30.0003,", ",30.00005"):
            bundle = self.make([demo], "--time", time)
            self.assertLess(size_of(bundle), whole)
            self.same([[*command, "--time", time] for command in (COMMANDS[0], COMMANDS[2])], ["-i", demo], demo, bundle)
            lists = [run(["packets", "-i", path, "--time", time])[1].splitlines() for path in (demo, bundle)]
            lists = [[line for line in lines if not line.startswith(b"#")] for lines in lists]  # their titles contain the size
            self.assertEqual(*lists)
            self.assertGreater(len(lists[0]), 1000)

    def test_times_of_a_part(self):
        """The bounds of a part are those of the trace that it has, also if a thread has none in it."""
        def info(path):
            return json.loads(run(["info", "-i", path, "--json"])[1])
        for whole, window in ((SOURCE / "data" / "kernel" / "kernel.bundle", "10%-20%"), (SOURCE / "data" / "user" / "pair.bundle", "90%-100%")):
            part = self.make([whole], "--time", window)
            first, last = info(part)["time_ns"]
            times = [float(line.strip().rstrip(b":")) for line in run(["script", "-i", part, "--itrace=b", "-F", "time", "--ns"])[1].splitlines()]
            self.assertLess(abs(max(times) * 1e9 - last), 0.02 * (last - first), whole)
            status, out, err = run(["functions", "-i", part, "--time", "60%-90%"])
            self.assertEqual(status, 0, err)
            self.assertRegex(out, rb"instructions|function")
            copy = pathlib.Path(shutil.copy(part, self.tmp / "copy.ptb"))
            self.assertEqual(self.make([copy]).read_bytes(), copy.read_bytes())

    def test_facts_of_the_recording(self):
        """Where and by what it was made, as `info` tells, and times of day."""
        demo = SOURCE / "data" / "demo"
        bundle = self.make([demo])
        facts, kept = (json.loads(run(["info", "-i", path, "--json"])[1]) for path in (demo, bundle))
        names = ["host", "kernel", "cpu", "cpuid", "command", "clock"]
        self.assertEqual([kept[name] for name in names], [facts[name] for name in names])
        self.assertTrue(all(kept[name] for name in names), kept)
        self.assertEqual([kept.get("wall_offset_ns"), kept.get("cpus_online")], [facts.get("wall_offset_ns"), facts.get("cpus_online")])
        self.assertEqual(*(run(["script", "-i", path, "--tod", "--itrace=b", "-F", "tod,ip"]) for path in (demo, bundle)))

    def test_bundle_of_a_bundle(self):
        demo = self.demo()
        first = self.make([demo])
        second = self.tmp / "second.ptb"
        self.assertEqual(run(["bundle", first, "-o", second])[0], 0)
        self.assertEqual(first.read_bytes(), second.read_bytes())
        self.same(COMMANDS, ["-i", demo], demo, second)

    def test_bundles_of_data(self):
        """A bundle in data/ gives the same as a bundle made of it, and does not depend on where it was made."""
        for path in sorted((SOURCE / "data").glob("*/*.bundle")):
            with self.subTest(path.name):
                mine = self.tmp / path.name
                shutil.copy(path, mine)
                options = ["--freeze"] if path.stem == "kernel" else []
                commands = COMMANDS[3:6] if path.stem == "kernel" else COMMANDS
                self.same(commands, ["-i", mine], mine, self.make([mine], *options))
                self.assertLess(size_of(mine), 2 << 20)

    def test_lldb(self):
        for name in ("pt-lldb-single", "pt-lldb-multifile"):
            with self.subTest(name):
                folder = self.case(name)
                self.same(COMMANDS, ["-i", folder / "trace.json"], folder, self.make([folder / "trace.json"]))

    def test_raw(self):
        for name in ("pt-dynamorio-simple", "pt-xdc-unzip", "pt-xdc-kernel-packets"):
            with self.subTest(name):
                folder = self.case(name)
                words = raw_words(folder)
                self.same(COMMANDS, words, folder, self.make(words))

    def test_perf_data(self):
        folder = self.case("pt-perfdata-skylake")
        recording = folder / "perf.data"
        self.same(COMMANDS, ["-i", recording], folder, self.make([recording]))
        content = bytearray(recording.read_bytes())
        for at, kind, _ in perf_file.records(content)[0]:  # trace of no thread: its flow is of no known address space
            if kind == perf_file.AUXTRACE:
                content[at + 36:at + 44] = b"\xff" * 8  # tid and cpu
        recording.write_bytes(content)
        self.same(COMMANDS, ["-i", recording], folder, self.make([recording]))

    def test_coresight(self):
        """Snapshots and recordings of CoreSight: every command except the x86 ones, with the originals moved away."""
        names = sorted(path.parent.name for pattern in ("cs-*", "ete*", "event_test") for path in CORPUS.glob(pattern + "/case.json"))
        if not names:
            self.skipTest(f"no corpus case {CORPUS / 'cs-*'}")
        for name in names:
            with self.subTest(name):
                folder = self.case(name)
                recordings = sorted(folder.glob("*perf*.data")) or sorted(folder.glob("**/snapshot.ini"))
                self.assertTrue(recordings)
                commands = COMMANDS if size_of(folder) < 600_000 else COMMANDS[2:]
                shared = ["--allow-outside"] if name == "cs-ricsec-fib" else []  # its four snapshots refer to images in a sibling folder
                for recording in recordings:
                    bundle = self.make([recording], *shared)
                    first = run([*commands[0], "-i", recording])
                    if b"contains no trace" in first[2]:  # each message contains its own file name
                        other = run([*commands[0], "-i", bundle], env=self.elsewhere)
                        self.assertEqual((first[0], first[1], other[0], other[1]), (1, b"", 1, b""))
                        self.assertIn(b"contains no trace", other[2])
                        continue
                    self.same(commands, ["-i", recording], folder, bundle)

    def test_kernel(self):
        """A few milliseconds of a kernel that patches itself: from the whole recording, and from a bundle of only that time."""
        if not (CORPUS / "pt-kernel-pokes" / "recording.tar.xz").exists():
            self.skipTest(f"no corpus case {CORPUS / 'pt-kernel-pokes'}")
        folder = self.tmp / "kernel"
        folder.mkdir()
        subprocess.run(["tar", "-C", folder, "-xJf", CORPUS / "pt-kernel-pokes" / "recording.tar.xz"], check=True)
        words = ["-i", folder / "recording", "--symfs", folder / "root", "--kcore-after", folder / "after"]
        time = ["--time", "18.3,18.303"]
        bundle = self.make(words, *time)
        self.assertLess(size_of(bundle), 500_000)
        # `flow` has the amount of trace, of which the bundle has a part
        self.same([[*COMMANDS[0], *time], ["check", "--json"]], words, folder, bundle, rb'  "flow": \{[^}]*\},\n')

    def test_long(self):
        """PTDECODE_BUNDLE_LONG=1: captures that take minutes."""
        if not os.environ.get("PTDECODE_BUNDLE_LONG"):
            self.skipTest("minutes: PTDECODE_BUNDLE_LONG=1 runs it")
        folder = self.case("pt-xdc-mruby")
        words = raw_words(folder)
        self.same(COMMANDS[1:], words, folder, self.make(words))
        folder = self.tmp / "kernel"
        folder.mkdir()
        subprocess.run(["tar", "-C", folder, "-xJf", CORPUS / "pt-kernel-pokes" / "recording.tar.xz"], check=True)
        words = ["-i", folder / "recording", "--symfs", folder / "root", "--kcore-after", folder / "after"]
        self.same([*COMMANDS[3:5], COMMANDS[6]], words, folder, self.make(words))

    def test_many_streams(self):
        whole = self.make([SOURCE / "data" / "demo"]).read_bytes()
        most, many = 1 << 16, self.tmp / "many.ptb"
        for count in (most, most + 1):
            many.write_bytes(parts.replaced(whole, {b"STRM": parts.number(count) + bytes(6 * count), b"AUX ": b""}))
            status, out, err = run(["info", "-i", many])
            if count == most:
                self.assertIn(b"in 65536 streams", out, err)
            else:
                self.assertEqual((status, out), (1, b""), err)
                self.assertIn(b"part 'STRM' of the bundle", err)

    def test_streams_without_trace_take_little_memory(self):
        whole = self.make([SOURCE / "data" / "demo"]).read_bytes()
        streams, many, limit = 20000, self.tmp / "many.ptb", 1 << 30
        traced = next(parts.content_of(stored) for kind, stored in parts.parts_of(whole) if kind == b"STRM")
        self.assertEqual(traced[0], 2)  # streams
        content = traced[1:] + b"".join(parts.number(2 * cpu) + b"\1" + parts.number(cpu) + bytes(3) for cpu in range(2, streams))
        many.write_bytes(parts.replaced(whole, {b"STRM": parts.number(streams) + content}))
        listing = subprocess.run([PTDECODE, "script", "-i", many], capture_output=True,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        self.assertEqual(listing.returncode, 0, listing.stderr)

    def test_a_folder_is_not_overwritten(self):
        folder = self.tmp / "folder"
        shutil.copytree(SOURCE / "data" / "demo", folder)
        symbolic, hard, bundle = self.tmp / "symbolic", self.tmp / "hard", folder / "made.ptb"
        symbolic.symlink_to(folder / "data")
        hard.hardlink_to(folder / "kcore_dir" / "kcore")
        before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        for target in (*before, symbolic, hard):
            status, _, err = run(["bundle", folder, "-o", target])
            self.assertEqual(status, 2, target)
            self.assertIn(b"part of it", err)
            self.assertEqual({file: file.read_bytes() for file in before}, before, target)
        for _ in range(2):  # a new file in it, and that again
            status, _, err = run(["bundle", folder, "-o", bundle])
            self.assertEqual(status, 0, err)

    def test_a_warning_is_said_once(self):
        recording = self.tmp / "nameless"
        shutil.copytree(SOURCE / "data" / "demo", recording, copy_function=shutil.copyfile)
        (recording / "kcore_dir" / "kallsyms").write_text("")
        status, _, err = run(["bundle", recording, "-o", self.tmp / "part.ptb", "--time", "10%-20%"])
        self.assertEqual((status, err.count(b"kallsyms has no addresses")), (0, 1), err)

    def test_messages(self):
        demo = SOURCE / "data" / "demo"
        bundle = self.make([demo])
        whole = bundle.read_bytes()
        damaged = self.tmp / "damaged.ptb"
        api = ptdecode_c.Api(os.environ["PTDECODE_LIBRARY"]) if os.environ.get("PTDECODE_LIBRARY") else None

        def message(data):
            damaged.write_bytes(data)
            if api:  # many files in one process
                with self.assertRaises(RuntimeError) as raised:
                    api.close(api.open(damaged))
                return str(raised.exception)
            status, out, err = run(["check", "-i", damaged])
            self.assertEqual((status, out), (1, b""), err)
            return err.decode()

        damaged.write_bytes(whole[:-1])
        self.assertEqual(run(["check", "-i", damaged])[:2], (1, b""))

        self.assertIn("version 3", message(whole[:8] + b"\3" + whole[9:]))
        self.assertIn("parts are missing", message(whole[:8] + b"\1" + whole[9:]))
        for more in (b"\0", b"xxxx" + bytes(4) + (2**64 - 32).to_bytes(8, "little") + bytes(16)):
            self.assertIn("the file goes on after it", message(whole + more))
        for cut in list(range(9, 200)) + list(range(200, len(whole), 997)) + [len(whole) - 1]:
            self.assertRegex(message(whole[:cut]), r"truncated|ends inside|ends early", cut)
        for at in range(16, len(whole), 501):
            self.assertIn("bundle", message(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1:]), at)
        # A part of an optional type could be skipped as one that this program does not know.
        headers, at = [], 16
        while at < len(whole):
            headers.append(at)
            at += 32 + int.from_bytes(whole[at + 8:at + 16], "little")
        self.assertIn(b"enam", [whole[at:at + 4] for at in headers])
        for byte in [*range(8, 16), *(at + i for at in headers for i in range(4))]:
            for bit in range(8):
                self.assertIn("bundle", message(whole[:byte] + bytes([whole[byte] ^ 1 << bit]) + whole[byte + 1:]), (byte, bit))
        for words in (("--map", "1:/bin/true@0x400000"), ("--kcore-after", demo / "kcore_dir")):
            self.assertIn(f"a bundle is complete: {words[0]} has no effect", run(["stat", "-i", bundle, *words])[2].decode())
        status, _, err = run(["bundle", demo, "-o", self.tmp / "absent" / "x.ptb"])
        self.assertEqual((status, list(self.tmp.glob("*.part*"))), (1, []), err)
        status, _, err = run(["bundle", bundle, "-o", bundle])
        self.assertEqual((status, bundle.read_bytes() == whole), (2, True), err)
        self.assertIn(b"the recording itself", err)
        status, _, err = run(["bundle", demo, "-o", self.tmp / "none.ptb", "--time", "1,2"])
        self.assertEqual((status, (self.tmp / "none.ptb").exists()), (2, False), err)
        self.assertIn(b"no trace at that time", err)
        if (timeless := CORPUS / "cs-simpleperf-etm" / "perf.data").exists():
            status, _, err = run(["bundle", timeless, "-o", self.tmp / "none.ptb", "--time", "10%-20%"])
            self.assertEqual(status, 2, err)
            self.assertRegex(err.decode(), r"(?s)warning: the recording contains no conversion from trace time .*--time: the recording has no times")
        for target in ("-", "/dev/full", self.tmp):
            status, _, err = run(["bundle", demo, "-o", target])
            self.assertIn(status, (1, 2), target)
        self.assertTrue(pathlib.Path("/dev/full").is_char_device())
        link = self.tmp / "link.ptb"
        link.symlink_to(self.tmp / "behind.ptb")
        (self.tmp / "behind.ptb").write_bytes(b"old")
        self.assertEqual(run(["bundle", demo, "-o", link])[0], 0)
        self.assertFalse(link.is_symlink())
        self.assertEqual((link.read_bytes() == whole, (self.tmp / "behind.ptb").read_bytes()), (True, b"old"))
        few = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", PTDECODE, "bundle", demo, "-o", self.tmp / "limited.ptb"]
        limited = subprocess.run(few, capture_output=True)
        self.assertEqual((limited.returncode, list(self.tmp.glob("limited*"))), (1, []), limited.stderr)
        self.assertIn(b"File too large", limited.stderr)


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "compare":  # compare NAME FOLDER WORDS...: one more recording, with its sizes
        test = Bundles()
        test.setUp()
        folder, words = pathlib.Path(sys.argv[2]), sys.argv[3:]
        bundle = test.make(words)
        test.same(COMMANDS[:1] + COMMANDS[3:], words, folder, bundle)
        print(f"{folder}: same; bundle {size_of(bundle)} bytes, original {size_of(folder)} bytes")
        test.doCleanups()
        return
    unittest.main()


if __name__ == "__main__":
    main()
