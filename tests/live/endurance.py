#!/usr/bin/env python3
"""Long runs, by hand: `endurance.py kills 200` kills recorder, keeper, second holder and target in turn at random moments; `endurance.py snapshots
10000` takes so many of two sessions at once and looks for growth. Exit status 1 for any finding. Needs root and perf events."""
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import live_support
from live_support import PTDECODE, PerfData, alive, wait_until

FORK, EXIT = 7, 4


class Run:
    def __init__(self, folder, seed):
        self.dir, self.random, self.findings = pathlib.Path(folder), random.Random(seed), []
        os.chmod(self.dir, 0o700)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.dir)}
        self.sockets = self.dir / "ptdecode"

    def say(self, what):
        self.findings.append(what)
        print("finding:", what, flush=True)

    def processes(self):
        """Recorders, keepers and second holders of this run that live."""
        found = []
        mark = f"XDG_RUNTIME_DIR={self.dir}".encode()
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0") and b"record" in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
        return [pid for pid in found if alive(pid)]

    def target(self, pause=""):
        return subprocess.Popen(["sh", "-c", f"while :; do /bin/true; {pause} done"], start_new_session=True, stdout=subprocess.DEVNULL)

    def end(self, target):
        try:
            os.killpg(target.pid, signal.SIGKILL)
        except OSError:
            pass
        target.wait()

    def look(self, path, what):
        """Readable to its last whole record by a reader of this test and by the program; nothing in it twice."""
        if not path.exists() or path.stat().st_size == 0:
            return 0  # killed before there was a file
        try:
            data = PerfData(path)
        except (AssertionError, struct.error) as error:
            return self.say(f"{what}: {error}") or 0
        if data.finished and data.cut:
            self.say(f"{what}: finished, and cut inside a record")
        for kind in (FORK, EXIT):
            times = [struct.unpack_from("<IIIIQ", body)[2:5:2] for of, _, body in data.records if of == kind]
            if len(set(times)) != len(times):
                self.say(f"{what}: a record stands there twice")
        got = subprocess.run([PTDECODE, "info", "-i", path], capture_output=True)
        if got.returncode != 0:
            self.say(f"{what}: info says {got.stderr!r}")
        return len(data.records)

    def kill_recorder(self, number, who):
        path, target = self.dir / f"r{number}", self.target()
        own = subprocess.Popen([PTDECODE, "record", "-q", "--sideband", *([], ["-z"])[number % 2], "-p", str(target.pid), "-o", path], env=self.environment,
                               stderr=subprocess.DEVNULL)
        time.sleep(self.random.uniform(0, 0.6))
        if who == "target":
            self.end(target)
            own.wait(60)
        else:
            own.kill()
            own.wait()
            if not alive(target.pid):
                self.say(f"kill {number}: the target died with its recorder")
        if not wait_until(lambda: not self.processes()):
            self.say(f"kill {number} of the {who}: left over: {self.processes()}")
        records = self.look(path, f"kill {number} of the {who}")
        self.end(target)
        return records

    def kill_keeper(self, number, who):
        target = self.target()
        got = subprocess.run([PTDECODE, "record", "-q", "--sideband", "--detach", "k", "-p", str(target.pid)], env=self.environment, capture_output=True)
        if got.returncode != 0:
            self.say(f"kill {number}: {got.stderr!r}")
        pids = sorted(self.processes())
        path, other = self.dir / f"k{number}", None
        if number % 2 == 0:
            other = subprocess.Popen([PTDECODE, "snapshot", "-q", "k", "-o", path], env=self.environment, stderr=subprocess.PIPE)
        time.sleep(self.random.uniform(0, 0.15))
        if who == "target":
            self.end(target)
        else:
            os.kill(pids[0 if who == "keeper" else 1], signal.SIGKILL)
        if other is not None and other.wait(60) != 0:
            self.say(f"kill {number} of the {who}: snapshot says {other.stderr.read()!r}")
        got = subprocess.run([PTDECODE, "snapshot", "-q", "k", "-o", path], env=self.environment, capture_output=True)
        if got.returncode != 0:
            self.say(f"kill {number} of the {who}: {got.stderr!r}")
        records = self.look(path, f"kill {number} of the {who}")
        subprocess.run([PTDECODE, "stop", "k"], env=self.environment, capture_output=True)
        if not wait_until(lambda: not self.processes()) or list(self.sockets.iterdir()):
            self.say(f"kill {number} of the {who}: left over: {self.processes()} {list(self.sockets.iterdir())}")
        self.end(target)
        return records


def kills(run, count):
    started, records, empty = time.monotonic(), 0, 0
    turns = [(run.kill_recorder, "recorder"), (run.kill_keeper, "keeper"), (run.kill_recorder, "target"), (run.kill_keeper, "second holder"), (run.kill_keeper, "target")]
    for number in range(count):
        kill, who = turns[number % len(turns)]
        got = kill(number, who)
        records, empty = records + got, empty + (got == 0)
        for path in run.dir.iterdir():
            if path.is_file():
                path.unlink()
    print(f"{count} kills, {len(run.findings)} findings, {records} records read back, {empty} times none yet, {time.monotonic() - started:.0f} s")


def held(pid):
    """KiB of memory of its own and shared, descriptors."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return (int(re.search(r"VmRSS:\s*(\d+)", text)[1]), len(os.listdir(f"/proc/{pid}/fd")), len(pathlib.Path(f"/proc/{pid}/maps").read_text().split("\n")))


def snapshots(run, count):
    targets = [run.target("sleep 0.05;"), run.target("sleep 0.05;")]
    for name, target in zip(("one", "two"), targets):
        subprocess.run([PTDECODE, "record", "-q", "--sideband", "--detach", name, "-p", str(target.pid)], env=run.environment, check=True)
    text = subprocess.run([PTDECODE, "sessions"], env=run.environment, capture_output=True, text=True, check=True).stdout
    keepers = [int(pid) for pid in re.findall(r"keeper (\d+)", text)]
    started, sizes, before = time.monotonic(), [], []
    for number in range(count):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(run.sockets / ("one", "two")[number % 2]))
            client.send(struct.pack("<II", 0x53445450, 2))
            _, fds, _, _ = socket.recv_fds(client, 4096, 1)
            if len(fds) != 1:
                run.say(f"snapshot {number}: none came")
                continue
            sizes.append(os.fstat(fds[0]).st_size)
            if os.pread(fds[0], 8, 0) != b"PERFILE2":
                run.say(f"snapshot {number}: no recording")
            os.close(fds[0])
        if number == count // 5:  # everything has been used once
            before = [held(pid) for pid in keepers]
    after = [held(pid) for pid in keepers]
    for was, now in zip(before, after):
        if now[1] > was[1] + 1 or now[2] > was[2] + 2 or now[0] > was[0] + 24 * 1024:
            run.say(f"grew from {was} to {now} (KiB, descriptors, mappings)")
    print(f"{count} snapshots of two sessions, {len(run.findings)} findings, KiB, descriptors and mappings of the keepers after a fifth {before} and at the end "
          f"{after}, {min(sizes)} to {max(sizes)} bytes each, {time.monotonic() - started:.0f} s")
    for name in ("one", "two"):
        subprocess.run([PTDECODE, "stop", name], env=run.environment, check=True)
    for target in targets:
        if not alive(target.pid):
            run.say("a target died")
        run.end(target)
    if run.processes():
        run.say(f"left over: {run.processes()}")


def main():
    live_support.need_events()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder, int(sys.argv[3]) if len(sys.argv) > 3 else 1)
        {"kills": kills, "snapshots": snapshots}[sys.argv[1]](run, int(sys.argv[2]))
    sys.exit(1 if run.findings else 0)


main()
