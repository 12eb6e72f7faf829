"""Guests in a host's trace: recordings of a machine with ground truth, mixed into the trace of a host by mix_guests.

`perf inject --guest-data` inserts the records of the guest. It reads the mixed recordings independently, and so does `perf script`."""
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
MIX = os.environ["MIX_GUESTS"]
FLOW = os.environ["GUEST_FLOW"]
DEMO = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "data" / "demo"
LIBRARY = os.environ.get("PTDECODE_LIBRARY", "")  # empty: not built as a shared library
PERF = shutil.which("perf")
for folder in ("capi", "replay"):
    sys.path.insert(0, os.path.join(os.environ["PTDECODE_SOURCE"], "tests", folder))
import gdb_client  # noqa: E402
import ptdecode_c as ptd  # noqa: E402
CPUS = (0, 1)
GUEST_BIT = 1 << 29  # of the number of a guest's space (guest.h)
FIRST_THREAD = 1 << 22  # of the threads of the first guest, likewise
FEW_BYTES = 1500  # of trace, before the guest's kernel changes for the first time


def run(*words):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300, check=False)


def truth_of(machine):
    return [f"--truth={machine},{cpu},{DEMO}/truth.cpu{cpu}.txt" for cpu in CPUS]


def executed(cpu):
    return int((DEMO / f"truth.cpu{cpu}.txt").read_text(encoding="utf-8").splitlines()[-1].split()[0])


def symbols():
    """Returns the addresses of the guest's symbols."""
    words = [line.split() for line in (DEMO / "kcore_dir/kallsyms").read_text(encoding="utf-8").splitlines()]
    return {each[2]: int(each[0], 16) for each in words}


def code_at(address, size):
    """Returns bytes of the guest's kernel, as the recording begins, out of its copy of /proc/kcore."""
    elf = (DEMO / "kcore_dir/kcore").read_bytes()
    start, entry_size, count = struct.unpack_from("<Q", elf, 32)[0], *struct.unpack_from("<HH", elf, 54)
    for at in range(start, start + entry_size * count, entry_size):
        offset, virtual, _, file_size = struct.unpack_from("<QQQQ", elf, at + 8)
        if virtual <= address < virtual + file_size:
            return elf[offset + address - virtual:][:size]
    raise AssertionError(f"{address:#x} is not in kcore")


def tallies(text):
    """Returns (instructions, uncertain, gaps) by cpu and machine."""
    found = re.findall(r"^cpu (\d+) machine (\d+): (\d+) instructions, (\d+) uncertain, (\d+) gaps", text, re.M)
    return {(int(cpu), int(machine)): (int(insns), int(uncertain), int(gaps)) for cpu, machine, insns, uncertain, gaps in found}


class Guests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.work = pathlib.Path(cls.folder.name)
        for name, guests, words in (("one", 1, ["--every=7"]), ("two", 2, ["--every=5", "--share"]), ("start", 1, ["--every=3", f"--bytes={FEW_BYTES}"])):
            made = run(MIX, cls.work / name, *[DEMO] * guests, *words)
            if made.returncode != 0:
                raise AssertionError(made.stderr)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def mixed(self, name, with_code=()):
        """Returns a copy of a host's recording, with copies of the kernels of the guests that these processes run."""
        to = pathlib.Path(tempfile.mkdtemp(dir=self.work)) / "host"
        shutil.copytree(self.work / name / "host", to)
        for pid in with_code:
            shutil.copytree(DEMO / "kcore_dir", to / f"kcore_dir__{pid}")
        return to

    def injected(self, name, guests=1):
        """Returns the host's recording with the records of its guests, inserted by perf."""
        if PERF is None or "--guest-data" not in run(PERF, "inject", "-h").stderr:
            self.skipTest("no perf that inserts records of guests")
        made = self.work / name / "host"
        for guest in range(guests):
            to = pathlib.Path(tempfile.mkdtemp(dir=self.work)) / "injected"
            done = run(PERF, "inject", "-i", made, "-o", to, f"--guest-data={self.work / name}/guest{guest},{1000 * (guest + 1)},0")
            # perf 6.12 calls a null pointer there.
            if done.returncode == -signal.SIGSEGV:
                self.skipTest("this perf crashes when it inserts records of guests")
            self.assertEqual(done.returncode, 0, done.stderr)
            made = to
        return made

    def injected_and_mounted(self):
        """Returns a host's recording with the records of its guest and without its code, and the folder that has it: --guestmount."""
        recording = pathlib.Path(tempfile.mkdtemp(dir=self.work)) / "injected"
        shutil.copytree(self.injected("one"), recording)
        shutil.rmtree(recording / "kcore_dir__1000")
        mount = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        shutil.copytree(DEMO / "kcore_dir", mount / "1000" / "proc")
        return recording, mount

    def check_flow(self, done):
        """Checks that a decode with guest_flow has the whole flow of the host and of the guest."""
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for cpu in CPUS:
            self.assertEqual(tallies(done.stdout)[cpu, 1], (executed(cpu), 0, 0), done.stdout)

    def flow(self, recording, name, *words):
        return run(FLOW, recording, f"--host={self.work / name / 'host.flow'}", *words)

    def test_guest_and_host_equal_the_truth(self):
        """Text pokes of the guest included."""
        for exact in ([], ["--exact"]):
            done = self.flow(self.injected("one"), "one", *truth_of(1), *exact)
            self.check_flow(done)

    def test_c_api(self):
        """The number of instructions in spaces of guests, with the options of this version and of the first, which had none for guests. Without code,
        there is what text pokes have written."""
        if not LIBRARY:
            self.skipTest("no shared library")
        recording, mount = self.injected_and_mounted()
        api = ptd.Api(LIBRARY)
        options = ptd.made(ptd.OpenOptions, guestmount=os.fsencode(mount))
        kallsyms = ptd.made(ptd.OpenOptions, guestkallsyms=os.fsencode(mount / "1000/proc/kallsyms"))
        for given in (options, kallsyms):
            self.assertEqual(self.guest_instructions(api, recording, given), [executed(cpu) for cpu in CPUS])
        without = self.guest_instructions(api, recording, None)
        for cpu in CPUS:
            self.assertLess(without[cpu], executed(cpu) / 20)
        options.size = ptd.OPEN_OPTIONS_0_1_BYTES
        self.assertEqual(self.guest_instructions(api, recording, options), without)

    @staticmethod
    def guest_instructions(api, recording, options):
        """By stream; those of cpus 0 and 1."""
        opened = api.open(recording, options)
        counts = []
        for stream in range(len(api.streams(opened))):
            count = 0
            for item in api.items(opened, ptd.FLOW, stream):
                if item.kind == ptd.BLOCKS and item.space != ptd.NONE and item.space & GUEST_BIT:
                    count += sum(item.u.blocks.items[i].instructions for i in range(item.u.blocks.count))
            counts.append(count)
        api.close(opened)
        return counts

    def test_bundle_and_plan_have_the_code_of_guests(self):
        """They decode as the recording does, without the guest's folder, and the bundle without the recording's too."""
        recording, mount = self.injected_and_mounted()
        self.check_flow(self.flow(recording, "one", f"--guestmount={mount}", *truth_of(1)))
        views = (["script", "--itrace=b", "-F", "+machine_pid,+vcpu"], ["script", "--format", "json"], ["functions"], ["stat"], ["check"])
        wanted = [run(PTDECODE, *view, "-q", "-i", recording, f"--guestmount={mount}").stdout for view in views]
        self.assertIn("[guest.", wanted[0])
        kept = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        for made in (["bundle", "-o", kept / "bundle"], ["plan", "-o", kept / "plan"]):
            done = run(PTDECODE, *made, "-i", recording, f"--guestmount={mount}")
            self.assertEqual(done.returncode, 0, done.stderr)
        again = run(PTDECODE, "bundle", "-i", kept / "bundle", "-o", kept / "again")
        self.assertEqual(again.returncode, 0, again.stderr)
        shutil.rmtree(mount)
        self.check_flow(self.flow(kept / "plan", "one", *truth_of(1)))
        self.assertEqual(run(PTDECODE, *views[0], "-q", "-i", kept / "plan").stdout, wanted[0])
        shutil.rmtree(recording)
        for bundle in (kept / "bundle", kept / "again"):
            self.check_flow(self.flow(bundle, "one", *truth_of(1)))
            self.check_flow(self.flow(bundle, "one", *truth_of(1), "--exact"))
            for view, want in zip(views, wanted):
                self.assertEqual(run(PTDECODE, *view, "-q", "-i", bundle).stdout.replace(str(bundle), str(recording)), want, view)

    def test_bundle_of_two_guests(self):
        """In turn on each cpu, with a kernel each."""
        made = self.injected("two", guests=2)
        bundle = pathlib.Path(tempfile.mkdtemp(dir=self.work)) / "bundle"
        self.assertEqual(run(PTDECODE, "bundle", "-i", made, "-o", bundle).returncode, 0)
        self.assertEqual(self.flow(bundle, "two").stdout, self.flow(made, "two").stdout)
        view = ["script", "-q", "--itrace=b", "-F", "+machine_pid,+vcpu"]
        self.assertEqual(run(PTDECODE, *view, "-i", bundle).stdout, run(PTDECODE, *view, "-i", made).stdout)

    def test_options_without_use_are_named(self):
        """The recording has no guest, or none that could use the code."""
        mount = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        (mount / "1000").mkdir()
        told = run(PTDECODE, "stat", "-i", DEMO, "--guestmount", mount, "--guestkallsyms", DEMO / "kcore_dir" / "kallsyms").stderr
        self.assertEqual(told.count("no virtual machine runs in this trace (no PIP packet with NR): --guestmount, --guestkallsyms have no effect"), 1, told)
        (mount / "4242").mkdir()
        told = run(PTDECODE, "stat", "-i", self.mixed("start"), "--guestmount", mount).stderr
        self.assertEqual(told.count(f"--guestmount: the recording has no process 4242, so no guest uses {mount}/4242"), 1, told)
        self.assertNotIn("process 1000, so", told)
        self.assertNotIn("no effect", told)
        bundle = mount / "bundle"
        run(PTDECODE, "bundle", "-i", DEMO, "-o", bundle)
        told = run(PTDECODE, "stat", "-i", bundle, "--guestvmlinux", DEMO / "kcore_dir" / "kcore").stderr
        self.assertEqual(told.count("a bundle is complete: --guestvmlinux has no effect"), 1, told)
        told = run(PTDECODE, "stat", "-i", DEMO).stderr
        self.assertNotIn("virtual machine", told)

    def test_lost_flow_names_threads_of_guests(self):
        """A guest without records of its threads: by the thread that runs it. With them: by their own names."""
        told = run(PTDECODE, "stat", "-i", self.mixed("one")).stdout
        self.assertRegex(told, r"%.*VM:1000 CPU 0/KVM 1001  \(")
        self.assertNotRegex(told, r"\? \d+  \(")
        recording, _ = self.injected_and_mounted()
        rows = json.loads(run(PTDECODE, "stat", "--json", "-i", recording).stdout)["loss_times"]["threads"]
        names = [row["thread"] for row in rows if row["gaps"] and row["tid"] >= 1 << 22]
        self.assertTrue(names)
        for name in names:
            self.assertRegex(name, r"^VM:1000 \S+ \d{1,4}$")

    def test_kernel_without_records_of_the_guest(self):
        """The three ways to give its code."""
        root = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        shutil.copytree(DEMO / "kcore_dir", root / "1000" / "proc")
        ways = ([self.mixed("start", [1000])], [self.mixed("start"), f"--guestmount={root}"],
                [self.mixed("start"), f"--guestkallsyms={DEMO / 'kcore_dir' / 'kallsyms'}"])
        for way in ways:
            done = self.flow(way[0], "start", *way[1:], "--prefix", *truth_of(1))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            for cpu in CPUS:
                insns, uncertain, gaps = tallies(done.stdout)[cpu, 1]
                self.assertGreater(insns, 2000)
                self.assertEqual((uncertain, gaps), (insns, 0), done.stdout)  # what changed without a record is unknown

    def test_files_of_a_guest_that_are_none(self):
        """The guest decides what is in its folder: a FIFO, for which open() waits, and links out of it."""
        root = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        proc = root / "1000" / "proc"
        shutil.copytree(DEMO / "kcore_dir", proc)
        recording = self.mixed("start")
        (proc / "kcore").unlink()
        os.mkfifo(proc / "kcore")
        told = run(PTDECODE, "stat", "-i", recording, f"--guestmount={root}").stderr
        self.assertIn(f"{proc / 'kcore'}: not a regular file", told)
        (proc / "kcore").unlink()
        for name in ("kallsyms", "kcore"):
            (proc / name).unlink(missing_ok=True)
            (proc / name).symlink_to(DEMO / "kcore_dir" / name)
        told = run(PTDECODE, "stat", "-i", recording, f"--guestmount={root}").stderr
        for name in ("kallsyms", "kcore"):
            self.assertIn(f"{proc / name} leads out of the guest's folder: it is not used", told)
        self.assertIn("no_image", told)

    def test_without_code_a_guest_is_a_gap(self):
        """Never the code of the host, which is at the same addresses."""
        done = self.flow(self.mixed("one"), "one")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)  # the host is complete
        for (_, machine), (insns, _, gaps) in tallies(done.stdout).items():
            self.assertEqual(insns == 0, machine != 0, done.stdout)
            self.assertEqual(gaps > 100, machine != 0, done.stdout)
        told = run(PTDECODE, "stat", "-i", self.mixed("one"))
        self.assertIn("[guest.kernel.kallsyms.1000]", told.stdout + told.stderr)
        self.assertIn("kcore_dir__1000", told.stdout + told.stderr)

    def test_perf_finds_the_same_flow(self):
        """perf 6.1 loses the guest's thread at its first context switch if another host cpu runs it, and says so. Before the guest's first text poke,
        because perf applies no poke of a guest's module or trampoline."""
        made = self.injected("start")
        complete = 0
        for cpu in CPUS:
            theirs = run(PERF, "script", "-i", made, "--itrace=i1ie", "-C", cpu, "-F", "ip,dso")
            ours = run(PTDECODE, "script", "-q", "-i", made, "--itrace=i1i", "-C", cpu, "-F", "ip,dso")
            self.assertEqual(theirs.returncode + ours.returncode, 0, theirs.stderr + ours.stderr)
            until, error, _ = theirs.stdout.partition("instruction trace error")
            lines = [[line.split() for line in text.splitlines() if line.strip()] for text in (until, ours.stdout)]
            mine = [(int(words[0], 16), "guest." in words[1]) for words in lines[1]]
            found = [(int(words[0], 16), "guest." in words[1]) for words in lines[0]]
            found = found[:-1] if error else found
            self.assertGreater(len(found), 3000)
            self.assertEqual(found, mine[: len(found)])
            complete += not error and len(found) == len(mine)
        self.assertGreater(complete, 0)

    def test_script_names_guest_and_cpu_as_perf_does(self):
        made = self.injected("one")
        listed = run(PTDECODE, "script", "-q", "-i", made, "--itrace=b", "-C", 1, "-F", "+machine_pid,+vcpu").stdout.splitlines()
        guest = [line for line in listed if "[guest." in line]
        self.assertGreater(len(guest), 1000)
        for line in guest:
            self.assertRegex(line, r"^VM: 1000 VCPU:001 +VM:1000 demo/1-[ab] +11[12] \[001\]")
        host = [line for line in listed if "[kernel]" in line or "[kernel.kallsyms]" in line]
        self.assertGreater(len(host), 1000)
        for line in host:
            self.assertNotIn("guest.", line)
            self.assertRegex(line, r"^ +CPU 1/KVM +1002 \[001\]")

    def test_calls_of_a_guest_are_not_those_of_the_host(self):
        listed = run(PTDECODE, "script", "-q", "-i", self.injected("one"), "--format", "json").stdout.splitlines()
        calls = [json.loads(line) for line in listed if '"call":' in line]
        of_guest = [call for call in calls if call["comm"].startswith("VM:1000 ")]
        of_host = [call for call in calls if call["comm"].startswith("CPU ")]
        self.assertEqual(len(of_guest) + len(of_host), len(calls))
        self.assertGreater(sum(call["call"] == "hot_keys" for call in of_guest), 1000)
        self.assertEqual({call["call"] for call in of_host} - {"vcpu_enter", "handle_exit", "__switch_to"}, set())
        self.assertGreater(sum(call["call"] == "handle_exit" for call in of_host), 1000)
        for call in of_guest:
            self.assertTrue(call["module"].startswith("[guest."), call)

    def test_a_call_that_exits_at_its_first_instruction_is_one_call(self):
        """As often as the guest executes the first instruction of the function: of the kernel's, before its pages with trampolines."""
        made = self.injected("one")
        listed = run(PTDECODE, "script", "-q", "-i", made, "--itrace=i1i", "-F", "ip,dso").stdout.splitlines()
        executed_at = collections.Counter(int(line.split()[0], 16) for line in listed if "guest." in line)
        exits = run(PTDECODE, "script", "-q", "-i", made, "--itrace=b", "-F", "ip,addr,dso").stdout
        calls = [json.loads(line) for line in run(PTDECODE, "script", "-q", "-i", made, "--format", "json").stdout.splitlines() if '"call":' in line]
        counts = collections.Counter(call["call"] for call in calls if call["start_seen"] and call["comm"].startswith("VM:"))
        checked = 0
        for name in ("do_sync_core", "sysvec_call_function", "exc_int3", "poke_int3_handler", "text_poke", "text_poke_sync"):
            address = symbols()[name]
            self.assertEqual(counts[name], executed_at[address], name)
            checked += len(re.findall(rf"^ *{address:x} .*=> +0 ", exits, re.M))
        self.assertGreater(checked, 10)

    def test_image_shows_the_code_of_a_guest(self):
        """The bytes of its kernel; not those of the host's, which is at the same addresses. Its text pokes, as in its own recording."""

        def without_times(text):
            return re.sub(r"[0-9]+\.[0-9]{9}", "TIME", text)

        made = self.injected("one")
        thread = FIRST_THREAD + 101
        address = symbols()["kthread"]
        for place in (f"{address:#x}", "kthread"):
            shown = run(PTDECODE, "image", "-i", made, "--tid", thread, place, "--size", 16)
            self.assertIn("VM:1000 kernel", shown.stdout)
            code = "".join(re.findall(r"^[0-9a-f]{16} \S+ +((?:[0-9a-f]{2} )+)", shown.stdout, re.M)).replace(" ", "")
            self.assertTrue(code_at(address, 64).hex().startswith(code) and len(code) >= 24, shown.stdout + shown.stderr)
        self.assertIn("[kernel.kallsyms]", run(PTDECODE, "image", "-i", made, f"{address:#x}").stdout)  # the host's
        for words in (["hot_keys", "--versions"], ["--diff", "30,31", "hot_keys"]):
            want = without_times(run(PTDECODE, "image", "-i", DEMO, *words).stdout)
            self.assertGreater(len(want.splitlines()), 2)
            for chosen in ([], ["--tid", thread]):
                self.assertEqual(without_times(run(PTDECODE, "image", "-i", made, *words, *chosen).stdout), want)
        for words in (["--diff", "30,31"], []):
            listed = run(PTDECODE, "image", "-i", made, *words, "--tid", thread).stdout
            self.assertNotRegex(listed, r"(?m)^[-+]? *kernel ")
        self.assertRegex(run(PTDECODE, "image", "-i", made, "--tid", thread).stdout, r"(?m)^VM:1000 kernel .*\[guest\.kernel\.kallsyms\.1000\]")
        for space in re.findall(r"(?m)^ *(.*?) [0-9a-f]{16}-", run(PTDECODE, "image", "-i", made).stdout):
            self.assertRegex(space, r"^(VM:1000 )?(kernel|mm\d{1,3})$")

    def test_replay_names_a_vm_exit(self):
        made = self.injected("one")
        exits = run(PTDECODE, "script", "-q", "-i", made, "--itrace=b", "-C", 0, "-F", "ip,addr").stdout
        with gdb_client.Client("-i", made, "--tid", 1001, ptdecode=PTDECODE) as peer:
            peer.ask("vCont;c")
            said = re.findall(r"VM exit: the guest was at 0x(\w+), the host continues at 0x(\w+)", peer.console)
            self.assertNotIn("signal or other transfer", peer.console)
        self.assertGreater(len(said), 1)
        for guest, host in said:
            self.assertRegex(exits, rf"(?m)^ *{guest} => +0\n +0 => +{host}$")

    def test_advice_for_a_guests_kernel(self):
        """Its copy is one of another kernel, and has nothing at the addresses of its modules."""
        made, _ = self.injected_and_mounted()
        shutil.copytree(made / "kcore_dir", made / "kcore_dir__1000")
        told = run(PTDECODE, "stat", "-i", made)
        told = re.findall(r"no mapping recorded: guest kernel .*\n +supply: (.*)", told.stdout + told.stderr)
        self.assertTrue(told)
        for advice in told:
            self.assertIn("kcore_dir__1000", advice)
            self.assertNotIn("--kcore-after", advice)

    def test_info_names_guests(self):
        """The host has no copy of its kernel here."""
        made = pathlib.Path(tempfile.mkdtemp(dir=self.work)) / "injected"
        shutil.copytree(self.injected("one"), made)
        shutil.rmtree(made / "kcore_dir")
        raw = run(PERF, "script", "-D", "-i", made).stdout
        info = json.loads(run(PTDECODE, "info", "--json", "-i", made).stdout)
        pokes = len(re.findall("PERF_RECORD_TEXT_POKE", raw))
        self.assertGreater(pokes, 10)
        self.assertEqual(info["guests"], [{"kernel_copy": True, "pid": 1000, "text_pokes": pokes}])
        self.assertEqual((info["kernel_copy"], info["text_pokes"]), (False, 0))
        for thread in info["threads"]:
            chosen = run(PTDECODE, "script", "-q", "-i", made, "--itrace=b", "--tid", thread["tid"], "-F", "comm")
            self.assertEqual({line.strip() for line in chosen.stdout.splitlines()} - {thread["comm"]}, set(), thread)
        ran = {line.rsplit(None, 1)[0].strip() for line in run(PTDECODE, "script", "-q", "-i", made, "--itrace=b", "-F", "comm,tid").stdout.splitlines()}
        self.assertLessEqual(ran, {thread["comm"] for thread in info["threads"]})
        self.assertRegex(run(PTDECODE, "info", "-i", made).stdout, rf"guests +VM:1000: \d+ threads, {pokes} text pokes; kernel code: a copy")

    def test_two_guests_in_turn_on_one_cpu(self):
        alone = tallies(self.flow(self.mixed("two", [1000]), "two").stdout)
        other = tallies(self.flow(self.mixed("two", [2000]), "two").stdout)
        for cpu in CPUS:
            first, second = alone[cpu, 1], other[cpu, 1]
            self.assertGreater(first[0], 1000)
            self.assertGreater(second[0], 1000)
        done = self.flow(self.injected("two", guests=2), "two")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        both = tallies(done.stdout)
        for cpu in CPUS:
            self.assertEqual(sum(both[cpu, machine][0] for machine in (1, 2)), executed(cpu))
            self.assertEqual(sum(both[cpu, machine][2] for machine in (1, 2)), 0)


if __name__ == "__main__":
    unittest.main()
