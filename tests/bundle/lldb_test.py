#!/usr/bin/env python3
"""`ptdecode bundle --format lldb`: against the ground truth when it is read back, and in LLDB if there is one that reads such bundles.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, CC; PTDECODE_CORPUS. LLDB: the first of lldb-22, lldb-21, lldb-20 and lldb. Debian's
lldb-19 has the plug-in, and crashes with upstream's own bundles too.
"""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests" / "replay"))
from recorded import DATA, PTDECODE, Recorded, truth_insns  # noqa: E402

CORPUS = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE / ".." / "shared" / "corpus")).resolve()
UPSTREAM = [path for path in (CORPUS / name / "trace.json" for name in ("pt-lldb-single", "pt-lldb-multifile")) if path.exists()]
PROGRAMS = SOURCE / "tests" / "replay" / "programs"
SWITCH_CPU_WIDE, SWITCH_OUT = 15, 1 << 13


def run(*words):
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, env=dict(os.environ, PTDECODE_STASH="off"), timeout=300)


def lldb_here():
    """Returns an LLDB that has the plug-in, or None."""
    for name in ("lldb-22", "lldb-21", "lldb-20", "lldb"):
        if not shutil.which(name):
            continue
        version = re.search(r"version (\d+)", subprocess.run([name, "--version"], capture_output=True, text=True).stdout)
        schema = subprocess.run([name, "-b", "-o", "trace schema intel-pt"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if version and int(version[1]) >= 20 and "contextSwitchTrace" in schema.stdout:
            return name
    return None


def executed(ptt):
    return [ip for ip, _ in truth_insns(ptt)]


class Lldb(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.lldb = lldb_here()
        cls.programs = {}
        if shutil.which("qemu-x86_64"):
            cls.programs["threads"] = Recorded(holder.name, PROGRAMS / "threads.c", "-pie", "-fPIE", "-pthread", name="threads")

    def bundle(self, recording, name, *words):
        done = run("bundle", "-i", recording, "-o", self.folder / name, "--format", "lldb", *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(f"trace load {self.folder / name}/trace.json", done.stdout)
        self.assertEqual(list(self.folder.glob(name + ".*")), [])  # nothing temporary
        return self.folder / name / "trace.json"

    def refused(self, what, recording, *words, folder="refused"):
        done = run("bundle", "-i", recording, "-o", self.folder / folder, "--format", "lldb", *words)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, what)
        self.assertFalse((self.folder / "refused").exists())
        self.assertEqual(list(self.folder.glob("refused.*")), [])

    def shown(self, bundle, threads):
        """Returns the addresses that LLDB shows for each thread index, and its errors."""
        commands = [f"thread trace dump instructions {index} -f -r -c 1000000 -F {self.folder}/shown.{index}" for index in threads]
        words = [word for command in [f"trace load {bundle}", "thread list", *commands] for word in ("-o", command)]
        done = subprocess.run([self.lldb, "--no-lldbinit", "-b", *words], capture_output=True, stdin=subprocess.DEVNULL, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr[-300:])
        texts = [(self.folder / f"shown.{index}").read_text() for index in threads]
        return [([int(ip, 16) for ip in re.findall(r": 0x(\w+)$", text, re.M)], re.findall(r"\(error\) (.*)", text)) for text in texts], done.stdout.decode()

    def check(self, bundle, truths):
        """Read back, the flow is the ground truth's; so is that of LLDB."""
        for path in truths:
            tid = re.search(r"(\d+)\.ptt", path.name)[1]
            flow = run("script", "-q", "-i", bundle, "--tid", tid, "--itrace=i1i", "-F", "ip").stdout.split()
            self.assertEqual([int(ip, 16) for ip in flow], executed(path))
        if self.lldb is None:
            return
        threads = [thread["tid"] for process in json.loads(bundle.read_text())["processes"] for thread in process["threads"]]
        shown, _ = self.shown(bundle, range(1, len(threads) + 1))
        for tid, (ips, errors) in zip(threads, shown):
            truth = executed(next(path for path in truths if f"{tid}." in path.name))
            self.assertEqual(errors, [])
            # LLDB reports neither the last instruction before a PSB's block is cut nor the last of the trace if no packet follows it.
            self.assertEqual(ips, truth[:len(ips)])
            self.assertLessEqual(len(truth) - len(ips), 1)

    def test_programs_of_the_repository(self):
        for name in ("plain", "pair"):
            self.check(self.bundle(DATA / "user" / f"{name}.bundle", name), sorted((DATA / "user").glob(f"{name}.*.ptt")))

    def test_files_of_a_process(self):
        if "threads" not in self.programs:
            self.skipTest("needs qemu-x86_64")
        recorded = self.programs["threads"]
        bundle = self.bundle(recorded.path, "files")
        self.check(bundle, list(recorded.truths.values()))
        (process,) = json.loads(bundle.read_text())["processes"]
        modules = {pathlib.Path(module["systemPath"]).name: module for module in process["modules"]}
        program = modules["threads"]
        self.assertEqual((bundle.parent / program["file"]).read_bytes(), recorded.program.read_bytes())
        notes = subprocess.run(["readelf", "-n", recorded.program], capture_output=True, text=True, check=True).stdout
        self.assertEqual(program["uuid"], re.search(r"Build ID: (\w+)", notes)[1])
        # The entry of leaf(), by its offset in the file, ran as often as the source says.
        ran = [ip for path in recorded.truths.values() for ip in executed(path)]
        self.assertEqual(ran.count(int(program["loadAddress"], 16) + recorded.symbol("leaf")[0]), 3 * (2 * 40 + 2))
        self.assertEqual(len(process["threads"]), 3)

    def test_a_file_of_many_segments_that_is_named_many_times(self):
        """A few kilobytes stood for gigabytes of sections."""
        bundle = self.bundle(DATA / "user" / "plain.bundle", "many")
        before = re.search(r"(?m)^all streams: \d+ instructions", run("stat", "-q", "-i", bundle).stdout)[0]
        count = 60000
        header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, count, 0, 0, 0)
        segments = b"".join(struct.pack("<IIQQQQQQ", 1, 5, 0x1000, 0x1000 * i + 0x400000, 0, 16, 16, 0x1000) for i in range(count))
        (bundle.parent / "many.elf").write_bytes(header + segments)
        described = json.loads(bundle.read_text())
        modules = [{"file": "many.elf", "systemPath": f"/x{i}", "loadAddress": 0x10000000000 + i * 0x10000000} for i in range(1000)]
        described["processes"][0]["modules"] += modules
        bundle.write_text(json.dumps(described))
        limited = [sys.executable, "-c", "import os, resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); os.execvp(sys.argv[1], sys.argv[1:])"]
        done = subprocess.run([*limited, PTDECODE, "stat", "-i", bundle], capture_output=True, text=True, timeout=120)
        self.assertIn("the modules have more than 262144 segments with code, or their names", done.stderr)
        self.assertIn(before, done.stdout)

    def test_bundles_of_upstream(self):
        """The same flow as from the original, here and in LLDB, with the same error at the code that is missing."""
        if not UPSTREAM:
            self.skipTest("needs the corpus")
        for path in UPSTREAM:
            name = path.parent.name
            bundle = self.bundle(path, name)
            was, now = json.loads(path.read_text()), json.loads(bundle.read_text())
            self.assertEqual(now["cpuInfo"], was["cpuInfo"])
            loaded = [{(module["systemPath"], int(str(module["loadAddress"]), 0)) for module in each["processes"][0]["modules"]} for each in (was, now)]
            self.assertLessEqual(loaded[1], loaded[0])
            # Bytes before the first PSB are not copied, so offsets differ.
            flow = [re.sub(r"offset 0x\w+", "", run("script", "-q", "--itrace=i1ixoe", "-F", "tid,ip,sym,insn", "-i", each).stdout) for each in (path, bundle)]
            self.assertNotEqual(flow[0], "")
            self.assertEqual(flow[0], flow[1])
            if self.lldb:
                (was_shown, _), (now_shown, _) = self.shown(path, [1]), self.shown(bundle, [1])
                self.assertNotEqual(was_shown[0][0], [])
                self.assertEqual(now_shown, was_shown)

    def as_cpus(self, pair):
        """Makes a bundle with one trace for each cpu of the two threads of data/user/pair: each thread is switched in before its trace."""
        made = self.folder / "cpus-by-hand"
        shutil.copytree(pair.parent, made)
        description = json.loads(pair.read_text())
        process = description["processes"][0]
        description["cpus"] = []
        for cpu, thread in enumerate(process["threads"]):
            switches = b"".join(struct.pack("<IHHIIIIQ", SWITCH_CPU_WIDE, misc, 32, *other, *task, time) for misc, other, task, time in (
                (0, (0, 0), (process["pid"], thread["tid"]), 1_000_000_000), (SWITCH_OUT, (0, 0), (process["pid"], thread["tid"]), 10**15)))
            (made / f"switches{cpu}").write_bytes(switches)
            description["cpus"].append({"id": cpu, "iptTrace": thread.pop("iptTrace"), "contextSwitchTrace": f"switches{cpu}"})
        (made / "trace.json").write_text(json.dumps(description))
        return made / "trace.json"

    def test_traces_of_cpus(self):
        by_hand = self.as_cpus(self.bundle(DATA / "user/pair.bundle", "pair-threads"))
        bundle = self.bundle(by_hand, "cpus")
        description = json.loads(bundle.read_text())
        self.assertEqual([cpu["id"] for cpu in description["cpus"]], [0, 1])
        self.assertFalse(any("iptTrace" in thread for process in description["processes"] for thread in process["threads"]))
        for cpu in description["cpus"]:
            records = struct.unpack("<IHHIIIIQ", (bundle.parent / cpu["contextSwitchTrace"]).read_bytes()[:32])
            self.assertEqual((records[0], records[2], records[7]), (SWITCH_CPU_WIDE, 32, 1_000_000_000))
        self.check(bundle, sorted((DATA / "user").glob("pair.*.ptt")))

    def test_a_kernel(self):
        """A part without text pokes, as LLDB's form for kernels: each cpu is a thread. Read back, the flow is that of the recording's bundle."""
        kernel = DATA / "kernel" / "kernel.bundle"
        self.refused(r"one content for each address.* 0xffffffff\w+ changed .* --time", kernel)
        bundle = self.bundle(kernel, "kernel", "--time", "24.394,24.395")
        description = json.loads(bundle.read_text())
        self.assertNotIn("processes", description)
        self.assertEqual(sorted(cpu["id"] for cpu in description["cpus"]), [0, 1])
        cut = self.folder / "cut.bundle"
        self.assertEqual(run("bundle", "-q", "-i", kernel, "-o", cut, "--time", "24.394,24.395").returncode, 0)
        for cpu in (0, 1):
            flow = [run("script", "-q", "-C", cpu, "--itrace=i1i", "-F", "ip,sym,insn", "-i", each).stdout.split("\n") for each in (cut, bundle)]
            self.assertGreater(len(flow[0]), 1000)
            nameless = [[re.sub(r"([0-9a-f]{16}) \S+ insn", r"\1 insn", line) for line in lines] for lines in flow]
            self.assertTrue(nameless[0] == nameless[1])
            # Names of assembly without a size reach to the next name in a symbol table of the kernel, and nowhere in an ELF file.
            self.assertLess(sum(a != b for a, b in zip(*flow)), len(flow[0]) // 100)
        if self.lldb:
            _, printed = self.shown(bundle, [])
            self.assertRegex(printed, r"thread #1: tid = 0x0*1\n.*thread #2: tid = 0x0*0\n")

    def with_data_segment(self, bundle, name):
        """Returns a copy in which a segment of data, with the lowest address, is after those of each file: as vmlinux has .data..percpu."""
        shutil.copytree(bundle.parent, self.folder / name)
        for path in (self.folder / name / "modules").iterdir():
            elf = bytearray(path.read_bytes())
            (headers,), (count,) = struct.unpack_from("<Q", elf, 32), struct.unpack_from("<H", elf, 56)
            segments = elf[headers:headers + 56 * count] + struct.pack("<IIQQQQQQ", 1, 6, 0, 0, 0, 64, 64, 4096)
            struct.pack_into("<Q", elf, 32, len(elf))
            struct.pack_into("<H", elf, 56, count + 1)
            path.write_bytes(elf + segments)
        return self.folder / name / "trace.json"

    def test_a_load_address_is_that_of_the_first_segment(self):
        """[LLDB] ObjectFileELF::GetBaseAddress."""
        bundle = self.with_data_segment(self.bundle(DATA / "user" / "plain.bundle", "ascending"), "descending")
        self.check(bundle, sorted((DATA / "user").glob("plain.*.ptt")))
        again = self.bundle(bundle, "again")
        self.check(again, sorted((DATA / "user").glob("plain.*.ptt")))
        places = [[int(module["loadAddress"], 0) for module in json.loads(each.read_text())["processes"][0]["modules"]] for each in (bundle, again)]
        self.assertEqual(*places)

        kernel = self.bundle(DATA / "kernel" / "kernel.bundle", "image", "--time", "24.394,24.395")
        flow = [run("script", "-q", "--itrace=i1i", "-F", "ip,insn", "-i", each).stdout for each in (kernel, self.with_data_segment(kernel, "vmlinux"))]
        self.assertGreater(flow[0].count("\n"), 1000)
        self.assertTrue(flow[0] == flow[1])

    def test_what_the_format_cannot_hold_is_refused(self):
        for name in ("jit", "patch"):
            self.refused(r"one content for each address, and \d+ blocks of code that ran have another: the code at 0x\w+ changed", DATA / "user" / f"{name}.bundle")
        self.refused("holds Intel PT only, and this is a trace of CoreSight", DATA / "arm" / "plain.bundle")
        self.refused("no trace at that time", DATA / "user" / "plain.bundle", "--time", "1,2")
        self.refused("--dry-run lists a bundle of ptdecode", DATA / "user" / "plain.bundle", "--dry-run")
        (self.folder / "full").mkdir()
        (self.folder / "full" / "kept").write_text("x")
        self.refused("full exists", DATA / "user" / "plain.bundle", folder="full")
        self.assertEqual((self.folder / "full" / "kept").read_text(), "x")


if __name__ == "__main__":
    unittest.main(verbosity=1)
