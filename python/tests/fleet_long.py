"""The fleet under faults: each check decodes copies of a recording of the repository and compares the merged tables with those of one machine.

usage: fleet_long.py SOURCE kills|disk|restart|hosts|slurm|many COUNT|profile RECORDING|scaling RECORDING [SYMFS]|curve RESULTS
"""
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import fleet_model
import fleet_test
import ptdecode
from ptdecode.fleet import query as queries
from ptdecode.fleet import run as fleet
from ptdecode.fleet.merge import merge
from ptdecode.fleet.store import Store
from ptdecode.fleet.units import decode_unit, recording_id, write_plan

DEMO, UNIT = fleet_test.DEMO, 9000
WORKERS = (1, 2, 10, 30, 100, 300, 1000)  # that `curve` simulates


def copies(folder, count):
    """Copies of the demo's recording."""
    paths = []
    for index in range(count):
        paths.append(str(pathlib.Path(folder, f"run-{index:04}.data")))
        shutil.copy(DEMO, paths[-1])
    return paths


def check(root, paths, sample=None):
    """The number of recordings whose tables differ from one machine's."""
    with ptdecode.open(DEMO) as recording:
        return sum(bool(fleet_test.differences(Store(root), recording_id(path), recording)) for path in (paths if sample is None else paths[:sample]))


def report(**facts):
    print(json.dumps(facts), flush=True)
    return 1 if facts.get("different") or facts.get("lost") else 0


def supervise(over, command):
    """Starts a command again whenever it ends, as a service manager does."""
    processes = []

    def loop():
        while not over.is_set():
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))  # pylint: disable=consider-using-with
            while processes[-1].poll() is None and not over.wait(0.5):
                pass
        processes[-1].kill()
        processes[-1].wait()

    thread = threading.Thread(target=loop)
    thread.start()
    return thread, processes


def kills(folder):
    """Worker processes are killed at random moments; a service manager starts them again."""
    paths, root, killed, over = copies(folder, 8), f"{folder}/out", 0, threading.Event()
    address = "tcp://127.0.0.1:18787"
    running = [supervise(over, ["dask", "scheduler", "--host", "127.0.0.1", "--port", "18787", "--dashboard-address", ":0"])]
    running += [supervise(over, ["dask", "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]) for _ in range(3)]

    def killer():
        nonlocal killed
        chance = random.Random(3)
        while not over.wait(chance.uniform(2, 6)):
            processes = chance.choice(running[1:])[1]
            if processes and Store(root).list("_done", ".json"):
                processes[-1].kill()
                killed += 1

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        board = fleet.run(root, paths, address, unit_bytes=UNIT)
    finally:
        over.set()
        for each in (thread, *(supervisor for supervisor, _ in running)):
            each.join()
    return report(check="kills", killed=killed, units=board.counts["units"], failed=board.failures, different=check(root, paths))


def disk(folder):
    """The file system of the results is full, then it is enlarged and the run resumed."""
    out = pathlib.Path(folder, "small")
    out.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", out], check=True)
    try:
        paths, root = copies(folder, 2), f"{out}/out"
        first = fleet.run(root, paths, "local", 2, UNIT)
        named = sum("No space left" in reason or "no space" in reason for reason in first.failures.values())
        subprocess.run(["mount", "-o", "remount,size=100m", out], check=True)
        second = fleet.run(root, paths, "local", 2, UNIT)
        return report(check="disk", failed_first=len(first.failures), named=named, lost=len(first.failures) - named, failed=second.failures,
                      different=check(root, paths))
    finally:
        subprocess.run(["umount", "-l", out], check=False)


def restart(folder):
    """The scheduler is killed in the middle and started again."""
    paths, root, over = copies(folder, 6), f"{folder}/out", threading.Event()
    address = "tcp://127.0.0.1:18786"
    scheduler, processes = supervise(over, ["dask", "scheduler", "--host", "127.0.0.1", "--port", "18786", "--dashboard-address", ":0"])
    workers = [supervise(over, ["dask", "worker", address, "--nthreads", "1", "--death-timeout", "20", "--no-dashboard"]) for _ in range(2)]
    killed = 0

    def kill():
        nonlocal killed
        while not over.wait(0.5):
            if len(Store(root).list("_done", ".json")) >= 15:
                processes[-1].kill()
                killed += 1
                return

    thread = threading.Thread(target=kill)
    thread.start()
    lines = []
    try:
        board = fleet.run(root, paths, address, unit_bytes=UNIT, progress=lines.append)
    finally:
        over.set()
        for each in (thread, scheduler, *(worker for worker, _ in workers)):
            each.join()
    return report(check="restart", killed=killed, noticed=sum("is gone" in line for line in lines), units=board.counts["units"], failed=board.failures,
                  different=check(root, paths))


def hosts(folder):
    """Scheduler, two workers and an HTTP server in network namespaces of their own; one worker's host is disconnected in the middle."""
    names = ["ptdsched", "ptdwork1", "ptdwork2", "ptdweb"]
    words = lambda text: subprocess.run(text.split(), check=True)
    over, running = threading.Event(), []
    pathlib.Path(folder, "web").mkdir()
    paths = copies(pathlib.Path(folder, "web"), 4)
    root = f"{folder}/out"
    try:
        words("ip link add ptdbridge type bridge")
        words("ip addr add 10.213.0.100/24 dev ptdbridge")
        words("ip link set ptdbridge up")
        for number, name in enumerate(names, 1):
            words(f"ip netns add {name}")
            words(f"ip link add v{name} type veth peer name eth0 netns {name}")
            words(f"ip link set v{name} master ptdbridge up")
            words(f"ip netns exec {name} ip addr add 10.213.0.{number}/24 dev eth0")
            words(f"ip netns exec {name} ip link set eth0 up")
            words(f"ip netns exec {name} ip link set lo up")
        inside = lambda name, *command: supervise(over, ["ip", "netns", "exec", name, *command])
        server = "import sys, time, fleet_test; fleet_test.RangeServer(sys.argv[2], ('10.213.0.4', 8000)); time.sleep(1e6)"
        running.append(inside("ptdweb", "env", f"PYTHONPATH={':'.join(path for path in sys.path if path)}", sys.executable, "-c", server, sys.argv[1], f"{folder}/web"))
        running.append(inside("ptdsched", "dask", "scheduler", "--host", "10.213.0.1", "--port", "8786", "--dashboard-address", ":0"))
        for number in (1, 2):
            running.append(inside(f"ptdwork{number}", "dask", "worker", "tcp://10.213.0.1:8786", "--nthreads", "1", "--no-dashboard",
                                  "--death-timeout", "30"))
        cut = []

        def disconnect():
            while not over.wait(0.5):
                if len(Store(root).list("_done", ".json")) >= 10:
                    words("ip link set vptdwork2 down")
                    cut.append(len(Store(root).list("_done", ".json")))
                    return

        thread = threading.Thread(target=disconnect)
        thread.start()
        time.sleep(10)
        board = fleet.run(root, [f"http://10.213.0.4:8000/{pathlib.Path(path).name}" for path in paths], "tcp://10.213.0.1:8786", unit_bytes=UNIT)
        over.set()
        thread.join()
        with ptdecode.open(DEMO) as recording:
            different = sum(bool(fleet_test.differences(Store(root), each["recording"], recording)) for each in fleet.status(root)["recordings"])
        return report(check="hosts", disconnected_after_units=cut, units=board.counts["units"], failed=board.failures, different=different)
    finally:
        over.set()
        for thread, _ in running:
            thread.join()
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)
        subprocess.run(["ip", "link", "del", "ptdbridge"], check=False)


def slurm(folder):
    """packaging/slurm/ptdecode-array on a Slurm of this machine (Debian's slurm-wlm), which is started for it."""
    host, path = os.uname().nodename.split(".")[0], copies(folder, 1)[0]
    conf = pathlib.Path(folder, "slurm.conf")
    conf.write_text(f"ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nAuthType=auth/munge\nStateSaveLocation={folder}/state\n"
                    f"SlurmdSpoolDir={folder}/spool\nSlurmctldPidFile={folder}/ctld.pid\nSlurmdPidFile={folder}/d.pid\nProctrackType=proctrack/pgid\n"
                    "TaskPlugin=task/none\nReturnToService=2\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nMpiDefault=none\n"
                    f"SlurmctldLogFile={folder}/ctld.log\nSlurmdLogFile={folder}/d.log\n"
                    f"NodeName={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN\nPartitionName=all Nodes={host} Default=YES State=UP\n",
                    encoding="utf-8")
    os.chmod(folder, 0o755)
    for name in ("state", "spool"):
        pathlib.Path(folder, name).mkdir()
    pathlib.Path("/run/munge").mkdir(exist_ok=True)
    shutil.chown("/run/munge", "munge")
    environment = {**os.environ, "SLURM_CONF": str(conf), "PTDECODE_PYTHON": sys.executable}
    daemons = []
    try:
        for command in (["runuser", "-u", "munge", "--", "/usr/sbin/munged", "--foreground"], ["slurmctld", "-D", "-f", conf], ["slurmd", "-D", "-f", conf]):
            daemons.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))  # pylint: disable=consider-using-with
            time.sleep(2)
        script = pathlib.Path(sys.argv[1], "packaging/slurm/ptdecode-array")
        said = subprocess.run([script, path, f"{folder}/out", str(UNIT / 2**20)], env=environment, check=True, capture_output=True, text=True).stdout.strip()
        store, deadline = Store(f"{folder}/out"), time.monotonic() + 240
        while not store.list("_merged", ".json") and time.monotonic() < deadline:
            time.sleep(1)
        return report(check="slurm", said=said, units=len(store.list("_done", ".json")), different=check(store.root, [path]))
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()


def many(folder, count):
    """Many small recordings."""
    paths, root = copies(folder, count), f"{folder}/out"
    started, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    board = fleet.run(root, paths, "local", 2, 1 << 20)
    seconds = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    plans = [Store(root).get_json(name)["seconds"] for name in Store(root).list("_plans", ".json")]
    return report(check="many", recordings=count, units=board.counts["units"], seconds=round(seconds, 1), failed=board.failures,
                  processor_seconds=round(after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime, 1),
                  client_and_scheduler_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                  plan_seconds_median=round(sorted(plans)[len(plans) // 2], 3), different=check(root, paths, 5))


def profile(folder, path):
    """The branches of the saved query `profile` against those of `ptdecode profile --format autofdo`, for the file that ran most."""
    store, wanted = Store(f"{folder}/out"), {}
    facts = write_plan(path, store, 100_000)
    for unit in range(facts["units"]):
        decode_unit(store, facts["recording"], unit)
    merge(store, facts["recording"])
    subprocess.run([ptdecode.program(), "profile", "-i", path, "--format", "autofdo", "-o", f"{folder}/profile.txt"], check=True, stderr=subprocess.DEVNULL)
    for line in pathlib.Path(folder, "profile.txt").read_text(encoding="utf-8").splitlines():
        if "->" in line:
            way, count = line.split(":")
            wanted[tuple(int(end, 16) for end in way.split("->"))] = int(count)
    builds = [row[0] for row in queries.run(store.root, "builds")[1]]
    found = [{(row[0], row[1]): row[2] for row in queries.run(store.root, "profile", build_id=build)[1]} for build in builds]
    return report(check="profile", branches=len(wanted), different=min(len(set(wanted.items()) ^ set(each.items())) for each in found))


def spent():
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


def scaling(folder, path, symfs=None):
    """Processor time of plan, units and merge against one machine, and what follows for many workers."""
    options, store = {"symfs": [symfs]} if symfs else {}, Store(f"{folder}/out")
    facts = write_plan(path, store, 8 << 20, options)
    for unit in range(facts["units"]):
        decode_unit(store, facts["recording"], unit)
    return curve(folder, store.root)


def curve(_folder, root):
    """The same for recordings that a run decoded: their units' processor time is in their markers; the merge is done again."""
    store, status = Store(root), 0
    for name in store.list("_plans", ".json"):
        facts = store.get_json(name)
        units = [store.get_json(done) for done in store.list(f"_done/{facts['recording']}", ".json")]
        seconds, size = [unit["processor_seconds"] for unit in units], sum(unit["bytes"] for unit in units)
        before = spent()
        merge(store, facts["recording"])
        merged = spent() - before
        speedup, bound = {}, {}
        for size_bytes in (size, 100e9):
            grown, key = size_bytes / size, round(size_bytes / 1e9, 2)
            larger = fleet_model.replicate(seconds, round(len(seconds) * grown))
            steps = facts["processor_seconds"] * grown, merged * grown
            for result, total in ((speedup, fleet_model.simulate), (bound, fleet_model.least)):
                result[key] = {workers: round((sum(larger) + sum(steps)) / total(larger, *steps, workers), 2) for workers in WORKERS}
        status |= report(check="scaling", bytes=size, units=len(units), plan_s=round(facts["processor_seconds"], 2), units_s=round(sum(seconds), 1),
                         unit_s=[round(each, 1) for each in sorted(seconds)], merge_s=round(merged, 2),
                         overhead=round((facts["processor_seconds"] + merged) / sum(seconds), 4), speedup_of_gb=speedup, largest_possible=bound)
    return status


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="fleet-long-") as work:
        name, arguments = sys.argv[2], sys.argv[3:]
        checks = {"kills": kills, "disk": disk, "restart": restart, "hosts": hosts, "slurm": slurm, "profile": lambda folder: profile(folder, *arguments), "many": lambda folder: many(folder, int(arguments[0])),
                  "scaling": lambda folder: scaling(folder, *arguments), "curve": lambda folder: curve(folder, *arguments)}
        sys.exit(checks[name](work))
