#!/usr/bin/env python3
"""Long runs, started by hand: `endurance.py kills 200` kills recorder, keeper, backup process and target in turn at random times;
`endurance.py snapshots 10000` takes that many of two sessions at once and checks for growth. Exit status 1 for any finding. Needs root and
perf events."""
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
        """Returns the live recorders, keepers and backup processs of this run."""
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
        """Checks that it is readable to its last whole record by the test's reader and by the program, without duplicates."""
        if not path.exists() or path.stat().st_size == 0:
            return 0  # killed before the file existed
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
    turns = [(run.kill_recorder, "recorder"), (run.kill_keeper, "keeper"), (run.kill_recorder, "target"), (run.kill_keeper, "backup process"), (run.kill_keeper, "target")]
    for number in range(count):
        kill, who = turns[number % len(turns)]
        got = kill(number, who)
        records, empty = records + got, empty + (got == 0)
        for path in run.dir.iterdir():
            if path.is_file():
                path.unlink()
    print(f"{count} kills, {len(run.findings)} findings, {records} records read back, {empty} times none yet, {time.monotonic() - started:.0f} s")


def held(pid):
    """Returns a process's KiB of own memory, of shared memory (log, counters), of rings, of files; descriptors; mappings."""
    held = {"own": 0, "shared": 0, "rings": 0, "files": 0, "descriptors": len(os.listdir(f"/proc/{pid}/fd")), "mappings": 0}
    kind = "own"
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().split("\n"):
        head = re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ (\d+) *(.*)", line)
        if head:
            held["mappings"] += 1
            kind = "shared" if head[2].startswith("/dev/zero") else "rings" if "perf_event" in head[2] else "files" if head[1] != "0" else "own"
        elif line.startswith("Rss:"):
            held[kind] += int(line.split()[1])
        elif line.startswith("Anonymous:") and kind == "files":  # the program's data that it has modified
            held["own"] += int(line.split()[1])
            held["files"] -= int(line.split()[1])
    return held


def ask(run, name, request):
    """Returns the numbers of a session's status, and the snapshot's descriptor or None (capture/live/session/session_wire.cc)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(run.sockets / name))
        client.send(struct.pack("<II", 0x53445450, request))
        reply, fds, _, _ = socket.recv_fds(client, 65536, 1)
    at = 4
    for _ in range(3):
        at += 4 + struct.unpack_from("<I", reply, at)[0]
    keeper, _, _, _, count, records, _, used, folds = struct.unpack_from("<iiIQQQQQQ", reply, at)
    return {"keeper": keeper, "snapshots": count, "records": records, "used": used, "folds": folds}, fds[0] if fds else None


LOG_KIB, OWN_KIB = 2 * 8192 + 64, 24 * 1024  # docs/RECORDING.md: the limits of a keeper


def snapshots(run, count):
    """The logs are filled first, until each has been folded three times: any growth after that would be unbounded."""
    names, fast = ("one", "two"), run.dir / "fast"
    fast.touch()
    targets = [run.target(f"test -e {fast} || sleep 0.05;") for _ in names]
    for name, target in zip(names, targets):
        subprocess.run([PTDECODE, "record", "-q", "--sideband", "--detach", name, "-p", str(target.pid)], env=run.environment, check=True)
    started = time.monotonic()
    while min(ask(run, name, 1)[0]["folds"] for name in names) < 3:
        time.sleep(0.2)
    fast.unlink()
    keepers, sizes, rows = [ask(run, name, 1)[0]["keeper"] for name in names], [], []
    print(f"logs full after {time.monotonic() - started:.0f} s", flush=True)
    for number in range(count):
        _, fd = ask(run, names[number % 2], 2)
        if fd is None:
            run.say(f"snapshot {number}: none came")
            continue
        sizes.append(os.fstat(fd).st_size)
        if os.pread(fd, 8, 0) != b"PERFILE2":
            run.say(f"snapshot {number}: no recording")
        os.close(fd)
        if number % max(1, count // 20) == count // 20 - 1:
            rows.append([held(pid) for pid in keepers])
            print(f"after {number + 1}:", *rows[-1], *(ask(run, name, 1)[0] for name in names), flush=True)
    # The second half is compared with the end of the first: fixed values are equal, own memory stays below the maximum of the first half.
    half = rows[len(rows) // 4:len(rows) // 2] or rows
    for which in range(len(names)):
        for what in ("descriptors", "mappings", "rings", "own"):
            most, last = max(row[which][what] for row in half), max(row[which][what] for row in rows[len(rows) // 2:])
            if last > most + {"descriptors": 4, "mappings": 2, "own": 256}.get(what, 0):
                run.say(f"{names[which]}: {what} grew from {most} to {last}")
        if rows[-1][which]["shared"] > LOG_KIB or rows[-1][which]["own"] > OWN_KIB:
            run.say(f"{names[which]}: more than its bound: {rows[-1][which]}")
    print(f"{count} snapshots of two sessions, {len(run.findings)} findings, KiB of the keepers at first {rows[0]} and at the end {rows[-1]}, "
          f"{min(sizes)} to {max(sizes)} bytes each, {time.monotonic() - started:.0f} s")
    for name in names:
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
