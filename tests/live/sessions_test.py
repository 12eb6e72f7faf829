#!/usr/bin/env python3
"""Detached sessions: they outlive their caller, their target and each of their own two processes; no other user can access them; nothing
remains."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import live_support
from live_support import PTDECODE, PerfData, alive, perf, ptdecode, wait_until

COMM, EXIT, FORK, MMAP2 = 3, 4, 7, 10


class Sessions(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.folder.name)
        os.chmod(self.dir, 0o700)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.dir)}
        self.sockets = self.dir / "ptdecode"
        self.started = []

    def tearDown(self):
        for name in self.files():
            (self.sockets / name).unlink()  # ends it
        for process in self.started:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        self.assertTrue(wait_until(lambda: not self.processes()), self.processes())
        self.folder.cleanup()

    def run_it(self, *words, **options):
        return ptdecode(*words, env=self.environment, **options)

    def detach(self, name, *words, **options):
        got = self.run_it("record", "--sideband", "--detach", name, *words, **options)
        self.assertEqual(got.returncode, 0, got.stderr)

    def files(self):
        return sorted(entry.name for entry in self.sockets.iterdir()) if self.sockets.exists() else []

    def processes(self):
        """Returns the processes of sessions in this folder: those that have its sockets' folder in their environment."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"XDG_RUNTIME_DIR={self.dir}".encode() in (entry / "environ").read_bytes().split(b"\0") \
                        and b"--detach" in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def snapshot(self, name):
        path = self.dir / f"{name}-{time.monotonic_ns()}.data"
        got = self.run_it("snapshot", name, "-o", path)
        self.assertEqual(got.returncode, 0, got.stderr)
        data = PerfData(path)
        self.assertTrue(data.finished and not data.cut)
        path.unlink()
        return data

    def keeper(self, name):
        text = self.run_it("sessions").stdout.decode()
        match = re.search(rf"^{name}:.*\n.*keeper (\d+)", text, re.M)
        self.assertTrue(match, text)
        return int(match[1])

    def forever(self):
        target = subprocess.Popen(["sh", "-c", "while :; do /bin/true; done"], start_new_session=True)
        self.started.append(target)
        return target

    def tids(self, data, kind):
        return [struct.unpack_from("<IIII", body)[2] for of, _, body in data.records if of == kind]

    def test_two_at_once_each_with_its_own(self):
        one, two = self.forever(), self.forever()
        self.detach("one", "-p", one.pid)
        self.detach("two", "-p", two.pid)
        self.assertEqual(self.files(), ["one", "two"])

        def parents(name):
            return {struct.unpack_from("<IIII", body)[1] for kind, _, body in self.snapshot(name).records if kind == FORK}
        for name, target, other in (("one", one, two), ("two", two, one)):
            self.assertTrue(wait_until(lambda: target.pid in parents(name)), "its children")  # noqa: B023
            self.assertNotIn(other.pid, parents(name))
        text = self.run_it("sessions").stdout.decode()
        self.assertIn(f"one: sideband of {one.pid}", text)
        self.assertEqual(self.run_it("stop", "one").returncode, 0)
        self.assertEqual(self.files(), ["two"])
        self.assertTrue(alive(one.pid))
        self.assertEqual(len(self.processes()), 2, "the keeper of two and its backup process")

    def test_a_command_is_recorded_without_the_recorder_that_starts_it(self):
        self.detach("one", "--", "sleep", "2")

        def maps():
            return [body for kind, _, body in self.snapshot("one").records if kind == 10]
        self.assertTrue(wait_until(lambda: any(b"/sleep\0" in body for body in maps())), "what it maps after its exec")
        self.assertEqual([body for body in maps() if os.fsencode(os.path.basename(PTDECODE)) + b"\0" in body], [])

    def test_the_name_is_taken_or_bad(self):
        target = self.forever()
        self.detach("one", "-p", target.pid)
        for name, says in (("one", b"already"), ("", b"is not a session name"), ("../x", b"is not a session name"), (".x", b"is not a session name"), ("a" * 65, b"is not a session name"), ("a b", b"is not a session name")):
            got = self.run_it("record", "--sideband", f"--detach={name}", "-p", target.pid)
            if name:
                self.assertEqual(got.returncode, 2, name)
                self.assertIn(says, got.stderr)
        self.assertEqual(self.run_it("snapshot", "nobody", "-o", self.dir / "x").returncode, 2)
        self.assertFalse((self.dir / "x").exists())
        self.assertEqual(self.run_it("stop", "nobody").returncode, 2)
        self.assertEqual(self.files(), ["one"])

    def test_it_outlives_the_caller_the_terminal_and_the_target(self):
        script = f"exec 9<'{self.dir}'; '{PTDECODE}' record -q --sideband --detach one -- sh -c 'while :; do /bin/true; done' & wait; kill -HUP 0"
        subprocess.run(["setsid", "sh", "-c", script], env=self.environment, capture_output=True, timeout=60)
        self.assertTrue(wait_until(lambda: self.files() == ["one"]))
        keeper = self.keeper("one")
        held = [os.readlink(f"/proc/{keeper}/fd/{fd}") for fd in os.listdir(f"/proc/{keeper}/fd")]
        self.assertNotIn(str(self.dir), held, "a descriptor of the caller")
        self.assertEqual(os.readlink(f"/proc/{keeper}/cwd"), "/")
        before = self.snapshot("one")
        comms = [struct.unpack_from("<II", body)[0] for kind, _, body in before.records if kind == COMM]
        for pid in set(comms):  # SIGHUP may have ended it already
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        self.assertTrue(wait_until(lambda: b"have ended" in self.run_it("sessions").stdout))
        after = self.snapshot("one")
        self.assertGreater(len(self.tids(after, EXIT)), 0)
        self.assertGreater(len(after.records), 5)

    def test_removing_the_file_destroys_it(self):
        target = self.forever()
        for how in ("unlink", "rename", "folder"):
            self.detach("one", "-p", target.pid)
            self.assertEqual(len(self.processes()), 2)
            if how == "unlink":
                (self.sockets / "one").unlink()
            elif how == "rename":
                (self.sockets / "one").rename(self.dir / "elsewhere")
            else:
                subprocess.run(["rm", "-r", self.sockets], check=True)
            self.assertTrue(wait_until(lambda: not self.processes()), how)
            self.assertTrue(alive(target.pid))

    def test_each_of_its_processes_may_be_killed(self):
        target = self.forever()
        self.detach("one", "-p", target.pid)
        time.sleep(0.2)
        seen = self.tids(self.snapshot("one"), FORK)
        for number in range(6):
            keeper = self.keeper("one")
            pids = self.processes()
            self.assertEqual(len(pids), 2)
            victim = keeper if number % 2 == 0 else next(pid for pid in pids if pid != keeper)
            os.kill(victim, signal.SIGKILL)
            self.assertTrue(wait_until(lambda: len([pid for pid in self.processes() if alive(pid)]) == 2), "nobody took its place")
            again = self.tids(self.snapshot("one"), FORK)
            self.assertEqual(again[:len(seen)], seen, "what was there is there")
            self.assertEqual(len(set(again)), len(again), "nothing is there twice")
            seen = again
        ends = [tid for tid in self.tids(self.snapshot("one"), EXIT)]
        self.assertEqual(ends, sorted(set(ends), key=ends.index))
        self.assertIn(b"killed 3 times", self.run_it("sessions").stdout)

    def test_both_killed_leaves_a_file_that_is_cleared_away(self):
        target = self.forever()
        self.detach("one", "-p", target.pid)
        pids = self.processes()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # otherwise one takes over before the other is killed
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: not self.processes()))
        self.assertEqual(self.files(), ["one"])
        self.assertNotIn(b"one", self.run_it("sessions").stdout)
        self.assertEqual(self.files(), [])
        self.detach("one", "-p", target.pid)
        self.assertEqual(self.run_it("stop", "one").returncode, 0)

    def test_stopped_keepers_hold_nobody_up(self):
        names = ["a", "b", "c", "d"]
        for name in names:
            self.detach(name, "-p", self.forever().pid)
        keepers = {name: self.keeper(name) for name in names}
        stopped = ["a", "b", "d"]
        for name in stopped:
            os.kill(keepers[name], signal.SIGSTOP)
        try:
            got = self.run_it("sessions", timeout=60)  # waiting for one of the keepers takes less than that
            text = got.stdout.decode()
            for name in stopped:
                self.assertIn(f"{name}: does not answer", text)
            self.assertIn(f"keeper {keepers['c']}", text)
            for words in (("snapshot", "a", "-o", self.dir / "none"), ("stop", "b")):
                got = self.run_it(*words, timeout=60)
                self.assertEqual(got.returncode, 1, got.stderr)
                self.assertIn(f"session '{words[1]}' does not answer".encode(), got.stderr)
            self.assertFalse((self.dir / "none").exists())
            self.snapshot("c")
        finally:
            for name in stopped:
                os.kill(keepers[name], signal.SIGCONT)
        self.assertTrue(wait_until(lambda: b"does not answer" not in self.run_it("sessions").stdout))
        self.snapshot("a")

    def test_private_to_its_user(self):
        target = self.forever()
        self.detach("one", "-p", target.pid)
        self.assertEqual((self.sockets / "one").stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.sockets.stat().st_mode & 0o777, 0o700)
        code = ("import os,socket,sys,struct\nos.setgid(65534); os.setuid(65534)\ns=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\n"
                "try:\n  s.connect(sys.argv[1])\nexcept PermissionError: print('kept out'); sys.exit()\n"
                "s.settimeout(5)\n"  # it may close the connection before or after the question
                "try:\n  s.send(struct.pack('<II',0x53445450,2)); print('answered' if s.recv(4096) else 'refused')\n"
                "except (BrokenPipeError, ConnectionResetError): print('refused')")

        def other():
            return subprocess.run([sys.executable, "-c", code, self.sockets / "one"], capture_output=True, text=True, timeout=30).stdout.strip()
        self.assertEqual(other(), "kept out")
        os.chmod(self.dir, 0o755)
        os.chmod(self.sockets, 0o755)
        self.assertEqual(other(), "kept out", "the socket's own mode")
        os.chmod(self.sockets / "one", 0o666)
        self.assertEqual(other(), "refused", "by its number")
        self.assertEqual(self.run_it("sessions").returncode, 2, "a folder that others can enter")
        os.chmod(self.sockets, 0o700)
        self.assertEqual(self.run_it("sessions").returncode, 0)

    def test_a_folder_that_is_a_link_or_somebody_elses(self):
        def refused(why):
            got = self.run_it("sessions")
            self.assertEqual(got.returncode, 2, got.stderr)
            self.assertIn(f"{self.sockets} {why}, so sessions cannot be stored there", got.stderr.decode())
        self.sockets.symlink_to("/tmp")
        refused("is a symbolic link")
        self.sockets.unlink()
        self.sockets.write_text("")
        refused("is not a folder")
        self.sockets.unlink()
        self.sockets.mkdir(0o700)
        os.chown(self.sockets, 65534, 65534)
        refused("belongs to the user with the id 65534")
        os.chown(self.sockets, 0, 0)
        os.chmod(self.sockets, 0o750)
        refused("is accessible to other users (its mode must be 0700)")
        os.chmod(self.sockets, 0o700)

    def test_nonsense_on_the_socket(self):
        target = self.forever()
        self.detach("one", "-p", target.pid)
        keeper = self.keeper("one")
        for packet in (b"", b"x", b"\0" * 8, struct.pack("<II", 0x53445450, 99), struct.pack("<II", 0x53445450, 1) + b"more", b"z" * 60000):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(str(self.sockets / "one"))
                client.send(packet)
        silent = []
        for _ in range(40):  # silent clients do not block others for good
            client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            client.connect(str(self.sockets / "one"))
            silent.append(client)
        for client in silent:
            client.close()
        self.snapshot("one")
        self.assertEqual(self.keeper("one"), keeper)

    def test_what_is_no_answer_is_told_apart_from_silence(self):
        self.sockets.mkdir(0o700)
        kinds = {"talks": (lambda client: client.send(b"HTTP/1.1 400 Bad Request"), "gives an answer that is not a session's"),
                 "hands": (lambda client: socket.send_fds(client, [b"x"], [0, 1]), "gives an answer that is not a session's"),
                 "hangs": (lambda client: client.close(), "closes the connection without an answer")}
        with contextlib.ExitStack() as open_ones:
            for name, (behave, _) in kinds.items():
                server = open_ones.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                server.bind(str(self.sockets / name))
                server.listen(16)

                def serve(server=server, behave=behave):
                    while True:
                        try:
                            client = server.accept()[0]
                        except OSError:  # the test is over
                            return
                        with client, contextlib.suppress(OSError):
                            client.recv(4096)
                            behave(client)
                threading.Thread(target=serve, daemon=True).start()
                open_ones.callback(server.shutdown, socket.SHUT_RDWR)
            listed = self.run_it("sessions").stdout.decode()
            for name, (_, said) in kinds.items():
                self.assertRegex(listed, rf"(?m)^{name}: .*{said}")
                for words in (("snapshot", name, "-o", self.dir / "none"), ("stop", name)):
                    got = self.run_it(*words, timeout=60)
                    self.assertEqual(got.returncode, 1, got.stderr)
                    text = got.stderr.decode()
                    self.assertIn(f"session '{name}' {said}", text)
                    self.assertIn(str(self.sockets / name), text)
                    self.assertNotIn("within", text)

    def test_a_snapshot_keeps_the_code_that_is_only_there_while_its_processes_run(self):
        deleted, memory = self.dir / "gone", "import os\nfd=os.memfd_create('code',0)\nos.write(fd,open('%s','rb').read())\nos.execve(fd,['sleep','1000'],os.environ)"
        shutil.copy(shutil.which("sleep"), deleted)
        for words in ([deleted, "1000"], [sys.executable, "-c", memory % shutil.which("sleep")]):
            self.started.append(subprocess.Popen(words))
        self.assertTrue(wait_until(lambda: os.readlink(f"/proc/{self.started[1].pid}/exe").startswith("/memfd:code")))
        deleted.unlink()
        self.environment["PTDECODE_STASH"] = str(self.dir / "stash")
        self.detach("one", "-p", ",".join(str(process.pid) for process in self.started))
        kept, bare = self.dir / "kept.data", self.dir / "bare.data"
        got = self.run_it("snapshot", "one", "-o", kept)
        self.assertEqual(got.returncode, 0, got.stderr)
        for process in self.started:
            process.kill()
            process.wait()
        info = self.run_it("info", "-i", kept).stdout.decode()
        self.assertIn(", 0 missing", info)
        self.assertEqual(self.run_it("stash", "verify").returncode, 0)
        # Without it neither can be found any more, as intended by the test.
        self.environment["PTDECODE_STASH"] = "off"
        self.assertEqual(self.run_it("snapshot", "one", "-o", bare).returncode, 0)
        info = self.run_it("info", "-i", bare).stdout.decode()
        for name in ("gone", "memfd:code"):
            self.assertRegex(info, f"{name} \\(deleted\\) \\((anonymous memory|file was deleted)")

    def triggered(self):
        """The hits, snapshots and failures of the only session's trigger."""
        found = re.search(r"trigger was hit (\d+) times?; (\d+) snapshots? (?:was|were) written(?:, (\d+) failed)?", self.run_it("sessions").stdout.decode())
        return tuple(int(number or 0) for number in found.groups()) if found else (0, 0, 0)

    def test_a_trigger_writes_a_snapshot_when_its_function_is_called_or_slow(self):
        """The program calls step(MS) for each number that it reads; it says when it returns. Time is its own."""
        if not os.path.exists("/sys/bus/event_source/devices/uprobe/type") or os.geteuid() != 0:
            self.skipTest("needs uprobe events and root")
        source, program = self.dir / "steps.c", self.dir / "steps"
        source.write_text("#include <stdio.h>\n#include <unistd.h>\n__attribute__((noinline)) void step(int ms) { usleep(ms * 1000); }\n"
                          "int main(void) { int ms; while (scanf(\"%d\", &ms) == 1) { step(ms); printf(\"%d\\n\", ms); fflush(stdout); } return 0; }\n")
        subprocess.run(["cc", "-O1", source, "-o", program], check=True)
        process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        other = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started += [process, other]

        def step(ms, whose=process):
            whose.stdin.write(f"{ms}\n")
            whose.stdin.flush()
            self.assertEqual(whose.stdout.readline(), f"{ms}\n")

        calls, slow = self.dir / "calls.data", self.dir / "slow.data"
        self.detach("calls", "-p", str(process.pid), "--trigger", f"uprobe:{program}:step", "-o", calls)
        step(0, other)  # another process's call
        self.assertFalse(calls.exists())
        step(0)
        self.assertTrue(wait_until(calls.exists), self.run_it("sessions").stdout)
        self.assertTrue(wait_until(lambda: self.triggered() == (1, 1, 0)), self.triggered())
        data = PerfData(calls)
        self.assertTrue(data.finished and not data.cut)
        self.run_it("stop", "calls")
        self.detach("slow", "-p", str(process.pid), "--trigger", f"uprobe:{program}:step,duration>200ms", "-o", slow, "--trigger-most", "2")
        for _ in range(50):
            step(0)
        self.assertFalse(slow.exists())
        step(300)
        self.assertTrue(wait_until(slow.exists), self.run_it("sessions").stdout)
        time.sleep(1.2)  # at most one each second
        step(300)
        second = pathlib.Path(f"{slow}.2")
        self.assertTrue(wait_until(second.exists), self.run_it("sessions").stdout)
        step(300)
        self.assertTrue(wait_until(lambda: self.triggered() == (3, 2, 0)), self.triggered())
        self.assertFalse(pathlib.Path(f"{slow}.3").exists())
        keeper = int(re.search(r"keeper (\d+)", self.run_it("sessions").stdout.decode()).group(1))
        os.kill(keeper, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: f"keeper {keeper}," not in self.run_it("sessions").stdout.decode()))
        step(300)
        self.assertTrue(wait_until(lambda: self.triggered() == (4, 2, 0)), f"the other process goes on: {self.triggered()}")
        process.stdin.close()
        other.stdin.close()

    def test_a_trigger_of_a_program_that_starts_threads_and_processes(self):
        """The program starts what it reads (thread, fork, exec), N times, each of which calls step(); it counts what it could start. The second
        source of the hits is what the program says it started; another process of the same file does not count."""
        if not os.path.exists("/sys/bus/event_source/devices/uprobe/type") or os.geteuid() != 0:
            self.skipTest("needs uprobe events and root")
        source, program = self.dir / "starts.c", self.dir / "starts"
        source.write_text(r"""
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void step(int ms) { usleep(ms * 1000); }
static void* body(void* ms) { step((int)(long)ms); return 0; }
static char** self;
static int start(const char* what, int ms) {
  pthread_t thread;
  if (!strcmp(what, "thread")) return pthread_create(&thread, 0, body, (void*)(long)ms) == 0 && pthread_join(thread, 0) == 0;
  if (!strcmp(what, "self")) return step(ms), 1;
  const int child = fork();
  if (child < 0) return 0;
  if (child == 0 && !strcmp(what, "exec")) execl(self[0], self[0], "step", (char*)0);
  if (child == 0) step(ms), _exit(0);
  return waitpid(child, 0, 0) == child;
}
int main(int argc, char** argv) {
  char what[20];
  int count, ms;
  self = argv;
  if (argc > 1) return step(0), 0;
  while (scanf("%19s %d %d", what, &count, &ms) == 3) {
    int started = 0;
    for (int i = 0; i < count; i++) started += start(what, ms);
    printf("%d\n", started);
    fflush(stdout);
  }
  return 0;
}
""")
        subprocess.run(["cc", "-O1", "-pthread", source, "-o", program], check=True)
        process, other = (subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2))
        self.started += [process, other]
        for each in (process, other):
            self.addCleanup(each.stdin.close)

        def start(what, count, ms=0, whose=process):
            whose.stdin.write(f"{what} {count} {ms}\n")
            whose.stdin.flush()
            self.assertEqual(int(whose.stdout.readline()), count, f"of {count} {what}s that it started")

        def expect(hits):
            self.assertTrue(wait_until(lambda: self.triggered()[0] == hits), f"{self.triggered()}, {hits} calls")

        output = self.dir / "hits.data"
        for option in ("-p", "-t"):
            self.detach("calls", option, str(process.pid), "--trigger", f"uprobe:{program}:step", "-o", output)
            start("thread", 50)
            expect(50)
            start("fork", 20)
            start("thread", 20, 0, other)
            start("exec", 10, 0, other)
            start("exec", 10)
            expect(80)
            os.kill(self.keeper("calls"), signal.SIGKILL)
            self.assertTrue(wait_until(lambda: "killed" in self.run_it("sessions").stdout.decode()), self.run_it("sessions").stdout)
            for what in ("self", "thread", "fork", "exec"):
                start(what, 5)
            start("fork", 10, 0, other)
            expect(100)
            self.run_it("stop", "calls")
        self.detach("slow", "-p", str(process.pid), "--trigger", f"uprobe:{program}:step,duration>100ms", "-o", output)
        start("thread", 2, 150, other)
        for what in ("thread", "fork"):
            start(what, 30)
            start(what, 2, 150)
        expect(4)
        self.run_it("stop", "slow")
        self.detach("alone", "-p", str(process.pid), "--no-inherit", "--trigger", f"uprobe:{program}:step", "-o", output)
        start("thread", 5)
        start("fork", 5)
        start("self", 3)
        expect(3)
        self.run_it("stop", "alone")
        start("thread", 1)

    def test_triggers_that_cannot_be(self):
        for trigger, why in (("uprobe:/bin/true", "uprobe:FILE:FUNCTION"), ("kprobe:x:y", "uprobe:FILE:FUNCTION"), ("uprobe:/nonexistent:f", "nonexistent"),
                             (f"uprobe:{PTDECODE}:no_such_function_there", "no function no_such_function_there"),
                             (f"uprobe:{PTDECODE}:main,duration>5", "duration>5ms"), (f"uprobe:{PTDECODE}:0x1", "executable segment")):
            got = self.run_it("record", "--sideband", "--detach", "x", "-p", str(os.getpid()), "--trigger", trigger)
            self.assertNotEqual(got.returncode, 0, trigger)
            self.assertIn(why, got.stderr.decode(), trigger)
        for output, why in (("/nonexistent/x", "No such file or directory"), (self.dir, "is a folder")):
            got = self.run_it("record", "--sideband", "--detach", "x", "-p", str(os.getpid()), "--trigger", f"uprobe:{PTDECODE}:main", "-o", str(output))
            self.assertNotEqual(got.returncode, 0, output)
            self.assertIn(why, got.stderr.decode())
        got = self.run_it("record", "--sideband", "-p", str(os.getpid()), "--trigger", "uprobe:/bin/true:main")
        self.assertIn("--detach", got.stderr.decode())
        self.assertEqual(self.files(), [])

    def test_what_is_lost_behind_the_last_record_is_told_once(self):
        target = subprocess.Popen([sys.executable, pathlib.Path(__file__).parent / "live_target.py", "maps"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        self.started.append(target)
        self.addCleanup(target.stdin.close)
        target.stdout.readline()

        def do(maps):
            target.stdin.write(f"{maps}\n")
            target.stdin.flush()
            target.stdout.readline()
            time.sleep(0.1)

        self.detach("lost", "-m", "8K", "-p", target.pid)
        before = live_support.told_maps(self.snapshot("lost"), target.pid)
        self.assertEqual(before[1], [])
        keeper = self.keeper("lost")
        os.kill(keeper, signal.SIGSTOP)
        do(3000)
        os.kill(keeper, signal.SIGCONT)
        maps, lost = live_support.told_maps(self.snapshot("lost"), target.pid)
        self.assertAlmostEqual(maps - before[0] + sum(lost), 3000, delta=10)
        self.assertGreater(sum(lost), 2000)
        do(10)  # the kernel now reports the same losses
        again, all_lost = live_support.told_maps(self.snapshot("lost"), target.pid)
        self.assertEqual(again - maps, 10)
        self.assertEqual(sum(all_lost), sum(lost))
        self.assertIn(str(sum(lost)), self.run_it("sessions").stdout.decode())

    def test_at_rest_it_does_nothing(self):
        target = subprocess.Popen(["sleep", "1000"])
        self.started.append(target)
        self.detach("one", "-p", target.pid)

        def ticks():
            return [sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])) for pid in sorted(self.processes())]

        def wakes():
            return [int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])
                    for pid in sorted(self.processes())]
        rounds = []
        for _ in range(5):  # another process may load a BPF program meanwhile, which is reported to all
            before, woken = ticks(), wakes()
            time.sleep(2)
            rounds.append((sum(ticks()) - sum(before), max(b - a for a, b in zip(woken, wakes()))))
            if rounds[-1][0] == 0 and rounds[-1][1] <= 1:
                return
        self.fail(f"clock ticks and wake-ups in two seconds each: {rounds}")

    def test_a_full_log_is_folded_and_knows_who_is_there(self):
        keep = subprocess.Popen(["sleep", "1000"])
        self.started.append(keep)
        code = "import subprocess,sys\nfor i in range(int(sys.argv[1])): subprocess.run(['/bin/true'])"
        self.detach("one", "-a")
        for _ in range(4):
            subprocess.run([sys.executable, "-c", code, "200"], check=True)
        data = self.snapshot("one")
        maps = {body[72:].split(b"\0")[0] for kind, _, body in data.records if kind == MMAP2 and struct.unpack_from("<I", body)[0] == keep.pid}
        self.assertTrue(any(b"sleep" in path for path in maps), maps)

    def test_only_sockets_without_a_listener_are_removed(self):
        self.sockets.mkdir(mode=0o700)
        (self.dir / "elsewhere").write_text("kept")
        (self.sockets / "file").write_bytes(bytes(5000))
        (self.sockets / "empty").touch()
        os.mkfifo(self.sockets / "fifo")
        (self.sockets / "link").symlink_to(self.dir / "elsewhere")
        (self.sockets / "dangling").symlink_to(self.dir / "nothing")
        (self.sockets / "folder").mkdir()
        stale = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stale.bind(str(self.sockets / "stale"))
        stale.close()
        (self.sockets / "to-stale").symlink_to("stale")
        self.addCleanup(shutil.rmtree, self.sockets, True)
        others = ["dangling", "empty", "fifo", "file", "folder", "link", "to-stale"]
        got = self.run_it("sessions")
        self.assertEqual((got.returncode, got.stdout), (0, b""), got.stderr)
        self.assertEqual(self.files(), others)
        for name in others:  # a name that is taken
            with self.subTest(name=name):
                self.assertNotEqual(self.run_it("record", "--sideband", "--detach", name, "-a").returncode, 0)
                self.assertNotEqual(self.run_it("snapshot", name, "-o", self.dir / "x").returncode, 0)
                self.assertNotEqual(self.run_it("stop", name).returncode, 0)
        self.assertEqual(self.files(), others)
        self.assertEqual((self.sockets / "file").read_bytes(), bytes(5000))
        shutil.rmtree(self.sockets)

    @unittest.skipUnless(perf(), "perf is not installed")
    def test_perf_reads_a_snapshot(self):
        target = self.forever()
        self.detach("one", "-p", target.pid)
        self.assertTrue(wait_until(lambda: self.tids(self.snapshot("one"), EXIT)), "a child that has run")
        path = self.dir / "s.data"
        self.assertEqual(self.run_it("snapshot", "one", "-o", path).returncode, 0)
        text = subprocess.run(["perf", "script", "-i", path, "--show-task-events", "--show-mmap-events"], capture_output=True, text=True, check=True).stdout
        self.assertIn("PERF_RECORD_FORK", text)
        self.assertIn("/bin/true", text)
        pipe = self.run_it("snapshot", "-q", "one", "-o", "-")
        self.assertTrue(pipe.stdout.startswith(b"PERFILE2"))
        full = self.run_it("snapshot", "one", "-o", "/dev/full")
        self.assertEqual(full.returncode, 1)
        self.assertIn(b"No space left", full.stderr)
        self.assertEqual(self.run_it("snapshot", "one", "-o", self.dir / "no/such/folder").returncode, 1)


if __name__ == "__main__":
    live_support.need_events()
    unittest.main(verbosity=1)
