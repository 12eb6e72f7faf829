#!/usr/bin/env python3
"""Recordings of this machine against perf's records of the same run, and the lifetime of recorded code. Needs root and perf events."""
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
import threading
import time
import unittest

import live_support
from live_support import PTDECODE, PerfData, alive, perf, ptdecode, wait_until

HERE = pathlib.Path(__file__).parent
COMM, EXIT, FORK, MMAP2 = 3, 4, 7, 10


def start_target(*words):
    target = subprocess.Popen([sys.executable, HERE / "live_target.py", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return target, int(target.stdout.readline())


class Recorded(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)
        self.started = []

    def tearDown(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                if os.getpgid(process.pid) == process.pid:
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    pipe.close()

    def target(self, *words):
        target, pid = start_target(*words)
        self.started.append(target)
        return target, pid

    def record(self, *words, **options):
        process = subprocess.Popen([PTDECODE, "record", "--sideband", *map(str, words)], stderr=subprocess.PIPE, **options)
        self.started.append(process)
        return process

    def wait_for_file(self, path, size=1000):  # more than the header with its events
        self.assertTrue(wait_until(lambda: path.exists() and path.stat().st_size > size), f"{path} does not come")

    def script(self, path):
        return subprocess.run(["perf", "script", "-i", path, "--show-task-events", "--show-mmap-events", "--show-bpf-events", "--show-namespace-events"],
                              capture_output=True, text=True, errors="replace", timeout=300, check=True).stdout


class AgainstPerf(Recorded):
    """The same run, recorded by both."""

    # In perf's format: events of the target's processes, and BPF code that was loaded and unloaded. Times differ by the time between two
    # events.
    def lines(self, path, pids, names):
        found = []
        for line in self.script(path).split("\n"):
            match = re.match(r"\s*(\S.*?)\s+(-?\d+)\s+\[(-?\d+)\]\s+([\d.]+): (PERF_RECORD_\w+.*)", line)
            if not match:
                continue
            what = match[5].strip()
            # If others record at the same time, the kernel makes these too long, and perf finds no time in them.
            if what.startswith(("PERF_RECORD_KSYMBOL", "PERF_RECORD_BPF_EVENT")):
                if any(name in what for name in names):
                    found.append((float(match[4]), "kernel", re.sub(r" flags 0x\w+", "", what)))
            elif float(match[4]) != 0 and int(match[2]) in pids and what.startswith(("PERF_RECORD_MMAP2", "PERF_RECORD_COMM", "PERF_RECORD_FORK", "PERF_RECORD_EXIT")):
                found.append((float(match[4]), int(match[2]), what))
        return found  # (time, thread or "kernel", event)

    @unittest.skipUnless(perf(), "perf is not installed")
    def test_everything_that_perf_sees(self):
        if b"--buildid-mmap" not in subprocess.run(["perf", "record", "-h"], capture_output=True).stderr:
            self.skipTest("this perf knows no --buildid-mmap")
        ours, theirs = self.dir / "ours.data", self.dir / "perf.data"
        target, pid = self.target("rounds", "5")
        other = subprocess.Popen(["perf", "record", "-q", "--buildid-mmap", "-a", "-e", "dummy:u", "-o", theirs], stderr=subprocess.DEVNULL)
        self.started.append(other)
        own = self.record("-a", "-o", ours)
        self.wait_for_file(ours)
        self.wait_for_file(theirs)
        time.sleep(1)
        target.stdin.write("\n")
        target.stdin.flush()
        did = json.loads(target.stdout.readline())
        target.wait()
        time.sleep(0.3)
        for process in (own, other):
            process.send_signal(signal.SIGINT)
        self.assertEqual(own.wait(60), 0)
        other.wait(60)
        pids = {pid} | {d["child"] for d in did} | {d["thread"] for d in did}
        loaded = {d["bpf"]: bytes.fromhex(d["code"]) for d in did if "bpf" in d}
        names = [f"_live{i}" for i in range(5)] + [f"id {number}" for number in loaded]
        mine, perfs = self.lines(ours, pids, names), self.lines(theirs, pids, names)
        self.assertEqual(sorted(what for _, of, what in mine if of == "kernel"), sorted(what for _, of, what in perfs if of == "kernel"))
        for who in pids:
            self.assertEqual([what for _, of, what in sorted(mine) if of == who], [what for _, of, what in sorted(perfs) if of == who], who)
        for kind in ("MMAP2", "COMM", "FORK", "EXIT"):
            self.assertTrue(any(f"RECORD_{kind}" in what for _, _, what in mine), kind)
        ours_dated, theirs_dated = ([line for line in sorted(lines) if line[1] != "kernel"] for lines in (mine, perfs))
        apart = sorted(abs(a[0] - b[0]) for a, b in zip(ours_dated, theirs_dated))
        self.assertLess(apart[len(apart) * 3 // 4], 0.01, "the kernel tells both in one call, in which it may be interrupted")
        if not loaded:
            self.skipTest("no BPF here: " + did[0].get("bpf_error", ""))
        self.assertEqual(sum("KSYMBOL" in what for _, _, what in mine), 2 * len(loaded))
        self.assertEqual(sum("BPF_EVENT" in what for _, _, what in mine), 2 * len(loaded))
        programs, perfs_programs = PerfData(ours).bpf_programs(), PerfData(theirs).bpf_programs()
        for number, code in loaded.items():
            self.assertEqual(programs.get(number), code, f"program {number} against the kernel's own answer")
            self.assertEqual(perfs_programs.get(number), code)

    @unittest.skipUnless(perf(), "perf is not installed")
    def test_forms(self):
        for form in (["-o", "a"], ["-z", "-o", "b"], ["--directory", "-o", "c"], ["-z", "--directory", "-o", "d"]):
            path = self.dir / form[-1]
            got = ptdecode("record", "--sideband", *form[:-1], path, "--", "/bin/true")
            self.assertEqual(got.returncode, 0, got.stderr)
            text = self.script(path)
            self.assertIn("PERF_RECORD_COMM exec: true", text)
            self.assertIn("PERF_RECORD_EXIT", text)
            self.assertEqual(ptdecode("info", "-i", path).returncode, 0)
        for zip_words in ([], ["-z"]):
            pipe = ptdecode("record", "--sideband", *zip_words, "-o", "-", "--", "/bin/true")
            self.assertEqual(pipe.returncode, 0, pipe.stderr)
            (self.dir / "pipe").write_bytes(pipe.stdout)
            text = subprocess.run(["perf", "script", "-i", "-", "--show-task-events"], input=pipe.stdout, capture_output=True, timeout=60, check=True).stdout
            self.assertIn(b"PERF_RECORD_COMM exec: true", text)
            self.assertEqual(ptdecode("info", "-i", self.dir / "pipe").returncode, 0)


class BuildIds(Recorded):
    """Mappings have the build id of their file, including those that existed before; it distinguishes a replaced file from the executed
    one."""

    def setUp(self):
        super().setUp()
        if not shutil.which("readelf"):
            self.skipTest("readelf is not installed")
        kernel = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
        if kernel < (5, 12):
            self.skipTest("Linux 5.12 brought build ids of mappings")

    def id_of(self, path):
        return re.search(r"Build ID: (\w+)", subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True).stdout)[1]

    def ids_in(self, path, name):
        """Returns the build ids of mappings of a file, as hex; "" for one that has its inode instead."""
        found = []
        for kind, misc, body in PerfData(path).records:
            if kind == MMAP2 and body[64:].split(b"\0")[0] == str(name).encode():
                found.append(body[36:36 + body[32]].hex() if misc & 1 << 14 else "")
        return found

    def test_of_what_starts_and_of_what_runs_and_in_snapshots(self):
        program, started, running = self.dir / "prog", self.dir / "a", self.dir / "b"
        shutil.copy(shutil.which("sleep"), program)
        want = self.id_of(program)
        got = ptdecode("record", "--no-stash", "--sideband", "-o", started, "--", program, "0.01")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual(self.ids_in(started, program), [want])
        target = subprocess.Popen([program, "1000"])
        self.started.append(target)
        own = self.record("--no-stash", "-p", target.pid, "-o", running)
        self.wait_for_file(running)
        target.kill()
        self.assertEqual(own.wait(60), 0)
        self.assertEqual(self.ids_in(running, program), [want])
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.dir)}
        target = subprocess.Popen([program, "1000"])
        self.started.append(target)
        got = ptdecode("record", "--sideband", "--detach", "ids", "-p", target.pid, env=environment)
        self.assertEqual(got.returncode, 0, got.stderr)
        try:
            self.assertEqual(ptdecode("snapshot", "ids", "-o", self.dir / "c", env=environment).returncode, 0)
            self.assertEqual(self.ids_in(self.dir / "c", program), [want])
        finally:
            ptdecode("stop", "ids", env=environment)

    def test_another_build_in_its_place_is_named_and_not_used(self):
        program, path = self.dir / "prog", self.dir / "a"
        shutil.copy(shutil.which("true"), program)
        want = self.id_of(program)
        self.assertEqual(ptdecode("record", "--no-stash", "--sideband", "-o", path, "--", program).returncode, 0)
        self.assertNotIn(str(program).encode(), ptdecode("check", "-i", path).stdout)
        program.unlink()
        shutil.copy(shutil.which("false"), program)
        got = ptdecode("check", "-i", path)
        self.assertEqual(got.returncode, 3)
        self.assertRegex(got.stdout.decode(), f"build_id_mismatch: {program} has build id {self.id_of(program)}.*{want}")


class NarrowVdso(Recorded):
    """A 32-bit program calls into a vdso that is in no file, and differs from that of the test program."""

    def test_it_is_kept(self):
        source = (".globl _start\n_start: mov $162,%eax\n mov $wait,%ebx\n xor %ecx,%ecx\n int $0x80\n mov $1,%eax\n xor %ebx,%ebx\n int $0x80\n"
                  ".data\nwait: .long 1,0\n.section .note.GNU-stack,\"\"\n")  # nanosleep for a second, exit
        (self.dir / "a.s").write_text(source)
        made = os.uname().machine == "x86_64" and shutil.which("as") and shutil.which("ld") and \
            subprocess.run("as --32 a.s -o a.o && ld -m elf_i386 a.o -o a && ./a", shell=True, cwd=self.dir, capture_output=True).returncode == 0
        if not made:
            self.skipTest("programs of 32 bits cannot be made or do not run here")
        environment = {**os.environ, "PTDECODE_STASH": str(self.dir / "stash")}
        got = ptdecode("record", "--sideband", "-o", self.dir / "p", "--", self.dir / "a", env=environment)
        self.assertEqual(got.returncode, 0, got.stderr)
        vdsos = [body[8:16] for kind, _, body in PerfData(self.dir / "p").records if kind == MMAP2 and b"[vdso]" in body]
        if not vdsos:
            self.skipTest("no vdso for programs of 32 bits here")
        self.assertLess(struct.unpack("<Q", vdsos[0])[0], 1 << 32)
        self.assertNotIn(b"[vdso]", ptdecode("check", "-i", self.dir / "p", env=environment).stdout)
        kinds = [(self.dir / "stash").rglob("*")]
        elves = [path.read_bytes()[:5] for files in kinds for path in files if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
        self.assertEqual(elves, [b"\x7fELF\x01"] * len(elves), "this machine's own vdso is another one")
        self.assertIn(b"[vdso]", ptdecode("check", "-i", self.dir / "p", env={**os.environ, "PTDECODE_STASH": "off"}).stdout)


class Keeping(Recorded):
    """Code that is read while it is recorded blocks no other process."""

    def test_a_large_file_in_memory_beside_a_burst_of_records(self):
        for attempt in range(3):  # a busy machine may lose some; a recorder that waits for the file loses two of three, each time
            path, environment = self.dir / f"p{attempt}", {**os.environ, "PTDECODE_STASH": str(self.dir / f"stash{attempt}")}
            target, pid = self.target("memory")
            own = self.record("-p", pid, "-o", path, env=environment)
            self.wait_for_file(path)
            target.stdin.write("200 30000\n")
            target.stdin.flush()
            target.stdout.readline()
            own.send_signal(signal.SIGINT)  # while it may still be read
            said = own.communicate(timeout=60)[1].decode()
            self.assertEqual(own.returncode, 0, said)
            maps, lost = live_support.told_maps(PerfData(path), pid)
            self.assertGreaterEqual(maps + sum(lost), 30001)
            if not lost:
                break
        self.assertLess(sum(lost), 10000, said)
        if lost:
            self.skipTest("this machine is too busy to say more")
        self.assertNotIn("memfd", said)
        recording, = json.loads(ptdecode("stash", "ls", "--json", env=environment).stdout)["recordings"]
        self.assertEqual([entry["path"] for entry in recording["entries"] if "memfd" in entry["path"]], ["/memfd:large (deleted)"])

    def test_the_backup_process_keeps_what_a_killed_recorder_had_not_read(self):
        path, environment = self.dir / "p", {**os.environ, "PTDECODE_STASH": str(self.dir / "stash")}
        target, pid = self.target("memory")
        own = self.record("-p", pid, "-o", path, env=environment)
        self.wait_for_file(path)
        for holder in live_support.children(own.pid):  # another process, and a thread that keeps
            os.kill(holder, signal.SIGKILL)
            self.assertTrue(wait_until(lambda: [c for c in live_support.children(own.pid) if c != holder and alive(c)]), "no other holder")  # noqa: B023
        target.stdin.write("200 1000\n")
        target.stdin.flush()
        target.stdout.readline()
        own.kill()
        own.wait()
        self.assertTrue(wait_until(lambda: PerfData(path).finished), "the backup process completes it")
        self.assertTrue(wait_until(lambda: not live_support.processes_with(path)))
        recordings = json.loads(ptdecode("stash", "ls", "--json", env=environment).stdout)["recordings"]
        kept = [entry["path"] for recording in recordings for entry in recording["entries"] if "memfd" in entry["path"]]
        self.assertEqual(kept, ["/memfd:large (deleted)"])
        self.assertEqual(ptdecode("stash", "verify", env=environment).returncode, 0)


class Life(Recorded):
    """docs/RECORDING.md, line by line."""

    def test_the_last_event_of_every_thread_is_its_exit(self):
        path = self.dir / "p"
        got = ptdecode("record", "--sideband", "-o", path, "--", sys.executable, "-c",
                       "import os,threading\nfor i in range(60):\n"
                       "  t=[threading.Thread(target=lambda: sum(range(999))) for _ in range(5)]\n  [x.start() for x in t]; [x.join() for x in t]\n"
                       "  os.spawnl(os.P_WAIT,'/bin/true','true')")
        self.assertEqual(got.returncode, 0, got.stderr)
        forks, exits, last = set(), {}, {}
        for kind, misc, body in PerfData(path).records:
            if kind in (FORK, EXIT):
                pid, ppid, tid, ptid, when = struct.unpack_from("<IIIIQ", body)
                if kind == FORK:
                    forks.add(tid)
                else:
                    self.assertNotIn(tid, exits, "one exit each")
                    exits[tid] = when
            if kind in (COMM, MMAP2, EXIT, 14):
                tid, when = struct.unpack_from("<IQ", body, len(body) - 28)
                last[tid] = max(last.get(tid, 0), when)
        self.assertGreaterEqual(len(forks), 360)
        self.assertEqual(forks - set(exits), set(), "a thread whose end was not seen")
        late = [tid for tid in forks if last.get(tid, 0) > exits[tid] + 1000000]
        self.assertEqual(late, [], "something came behind the exit")

    def test_attach_to_threads_that_start_meanwhile(self):
        code = ("import threading,time,os\nprint(os.getpid(),flush=True)\ndef burn():\n  e=time.time()+0.02\n  while time.time()<e: pass\n"
                "while True:\n  t=[threading.Thread(target=burn) for _ in range(8)]\n  [x.start() for x in t]\n  [x.join() for x in t]")
        target = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        self.started.append(target)
        pid = int(target.stdout.readline())
        for number in range(5):
            path = self.dir / f"p{number}"
            own = self.record("-p", pid, "-o", path)
            self.wait_for_file(path)
            self.assertTrue(wait_until(lambda: sum(kind == FORK for kind, _, _ in PerfData(path).records) > 8), "threads start")  # noqa: B023
            own.send_signal(signal.SIGINT)
            self.assertEqual(own.wait(60), 0, own.stderr.read())
            seen = [struct.unpack_from("<IIII", body)[2] for kind, _, body in PerfData(path).records if kind == FORK]
            self.assertEqual(len(seen), len(set(seen)), "a thread that has two sets of events")
            self.assertGreater(len(seen), 8)
            self.assertTrue(alive(pid))

    def test_a_tree_and_its_end(self):
        path = self.dir / "p"
        shell = subprocess.Popen(["sh", "-c", "(while :; do /bin/true; done) & echo $!; wait"], stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.started.append(shell)
        inner = int(shell.stdout.readline())
        own = self.record("-p", shell.pid, "--tree", "-o", path)
        self.wait_for_file(path)
        time.sleep(0.3)
        os.killpg(shell.pid, signal.SIGKILL)
        self.assertEqual(own.wait(60), 0, "all of the target has ended")
        exits = {struct.unpack_from("<IIII", body)[2] for kind, _, body in PerfData(path).records if kind == EXIT}
        self.assertLessEqual({inner, shell.pid}, exits)

    def test_a_tree_with_a_process_that_has_ended_and_is_not_asked_for(self):
        path = self.dir / "p"
        code = "import os,time\nif os.fork() == 0: os._exit(0)\ntime.sleep(0.1)\nprint(os.getpid(),flush=True)\ntime.sleep(600)"
        target = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        self.started.append(target)
        pid = int(target.stdout.readline())
        own = self.record("-p", pid, "--tree", "-o", path)
        self.wait_for_file(path)
        own.send_signal(signal.SIGINT)
        self.assertEqual(own.wait(60), 0, own.stderr.read())

    def test_a_recorder_that_is_killed_leaves_a_whole_file_and_the_target(self):
        target, pid = self.target("forever")
        path = self.dir / "p"
        own = self.record("-p", pid, "-o", path)
        self.wait_for_file(path)
        time.sleep(0.4)
        own.kill()
        own.wait()
        self.assertTrue(wait_until(lambda: PerfData(path).finished), "the backup process completes it")
        self.assertTrue(wait_until(lambda: not live_support.processes_with(path)))
        self.assertTrue(alive(pid))
        self.script(path)

    def test_nohup_ignores_a_hangup(self):
        """SIGINT ends the recording even if it is ignored: scripts stop commands in their background with it."""
        target, pid = self.target("forever")
        path = self.dir / "p"
        ignore = lambda: [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGINT)]
        own = self.record("-p", pid, "-o", path, preexec_fn=ignore)
        self.wait_for_file(path)
        own.send_signal(signal.SIGHUP)
        with self.assertRaises(subprocess.TimeoutExpired):
            own.wait(0.5)
        own.send_signal(signal.SIGINT)
        self.assertEqual(own.wait(60), 0, own.stderr.read())

    def test_what_is_lost_behind_the_last_record_is_told(self):
        target, pid = self.target("maps")
        path = self.dir / "p"
        for end in (signal.SIGINT, signal.SIGKILL):  # of the recorder; after a kill the backup process reports it
            own = self.record("--no-stash", "-m", "8K", "-p", pid, "-o", path)
            self.wait_for_file(path)
            time.sleep(0.3)
            own.send_signal(signal.SIGSTOP)
            target.stdin.write("3000\n")
            target.stdin.flush()
            target.stdout.readline()
            time.sleep(0.1)  # it waits for the next message: no record will come before which the kernel could write a LOST record
            own.send_signal(end)
            own.send_signal(signal.SIGCONT)
            own.wait(60)
            self.assertTrue(wait_until(lambda: PerfData(path).finished))
            data = PerfData(path)
            maps, lost = live_support.told_maps(data, pid)
            self.assertGreater(sum(lost), 2000)
            self.assertGreaterEqual(maps + sum(lost), 3000)
            self.assertLess(maps + sum(lost), 4000, "more than its mappings and what it switched")
            times = [when for _, _, _, when in data.times((COMM, MMAP2, 14))]
            self.assertGreaterEqual(min(when for _, _, _, when in data.times((2,))), max(times))
            self.assertIn(str(sum(lost)), ptdecode("info", "-i", path, text=True).stdout)
            path.unlink()

    def test_a_command_that_cannot_run_and_its_status(self):
        path = self.dir / "p"
        got = ptdecode("record", "--sideband", "-o", path, "--", "/no/such/program")
        self.assertEqual(got.returncode, 127)
        self.assertIn(b"No such file", got.stderr)
        self.assertEqual(ptdecode("record", "--sideband", "-q", "-o", path, "--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(ptdecode("record", "--sideband", "-p", "4000000", "-o", path).returncode, 2)
        self.assertEqual(ptdecode("record", "--sideband", "-o", path).returncode, 2)

    def test_a_full_disk_ends_the_recording_and_keeps_what_was_whole(self):
        disk = self.dir / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode:
            self.skipTest("no file system to fill")
        try:
            target, pid = self.target("forever")
            environment = {**os.environ, "PTDECODE_STASH": str(self.dir / "stash")}
            own = self.record("-p", pid, "-o", disk / "p", env=environment)
            self.assertEqual(own.wait(60), 1)
            said = own.stderr.read()
            self.assertIn(b"No space left", said)
            data = PerfData(disk / "p")
            self.assertTrue(data.finished and not data.cut)
            listing = json.loads(ptdecode("stash", "ls", "--json", env=environment).stdout)
            self.assertEqual([kept["path"] for kept in listing["recordings"]], [str(disk / "p")], said)
            self.assertIn(os.path.realpath(sys.executable), [entry["path"] for entry in listing["recordings"][0]["entries"]])
            self.assertGreater(len(data.records), 100)
            self.assertTrue(alive(pid))
        finally:
            subprocess.run(["umount", disk], check=True)

    def test_a_pipe_whose_reader_goes(self):
        target, pid = self.target("forever")
        own = self.record("-p", pid, "-o", "-", stdout=subprocess.PIPE)
        own.stdout.read(1000)
        own.stdout.close()
        self.assertEqual(own.wait(60), 1)
        self.assertTrue(alive(pid))


if __name__ == "__main__":
    live_support.need_events()
    unittest.main(verbosity=1)
