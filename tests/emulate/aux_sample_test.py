#!/usr/bin/env python3
"""AUX samples (perf record --aux-sample): windows of trace are listed and counted with their samples, decode like the ground truth and like perf,
are no loss, and damaged ones end nothing.

Environment: as emulate_test.py. Exit status 77 without qemu-x86_64.
"""
import collections
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import emulate_test as emulate
from emulate_test import check

AUXTRACE, SAMPLE, AUX_FIELD = 71, 9, 8 + 8 + 8 + 8 + 8  # header, identifier, ip, pid and tid, time: then size and bytes of the trace


def run(*arguments):
    return subprocess.run([emulate.PTDECODE, *map(str, arguments)], capture_output=True, text=True)


def windows_of(path):
    """The samples with trace, read from the file without ptdecode: (tid, time, ip, bytes)."""
    windows = []
    for kind, _, record, _ in emulate.perf_records(path):
        if kind != SAMPLE or len(record) <= AUX_FIELD:
            continue
        _, ip, _, tid, time, size = struct.unpack_from("<QQIIQQ", record, 8)
        windows.append((tid, time, ip, record[AUX_FIELD + 8:AUX_FIELD + 8 + size]))
    return windows


def addresses(tool, out, tid):
    """The instructions of one thread as a list, from `perf script` or `ptdecode script`."""
    if tool == "perf":
        return emulate.addresses(["perf", "script", "-i", out, "--itrace=i1i", "-F", "tid,ip"])[0].get(tid, [])
    lines = (line.split() for line in run("script", "-q", "-i", out, "--itrace=i1i", "-F", "tid,ip,event").stdout.splitlines())
    return [int(words[-1], 16) for words in lines if words and int(words[0]) == tid and words[1].startswith("instructions")]  # the samples are listed too


def extra_of(more, less):
    """What `more` has between the elements of `less`, in order; None if it lacks some of these."""
    extra, at = [], 0
    for ip in more:
        if at < len(less) and ip == less[at]:
            at += 1
        else:
            extra.append(ip)
    return extra if at == len(less) else None


def window_count(out):
    stat = json.loads(run("stat", "--json", "-q", "-i", out).stdout)
    return stat, sum(sum(stream["windows"]["samples"].values()) for stream in stat["streams"])


def compare(folder, program, size, every, *options):
    what = f"windows of {size}, one every {every} bytes, {' '.join(options)}"
    out, _, _ = emulate.record(folder, program, f"--aux-sample={size}", "--aux-sample-every", every, *options)
    expected = windows_of(out)
    stat, counted = window_count(out)
    check(f"{what}: all are counted", counted == len(expected) and counted > 3, f"{counted} of {len(expected)}")
    for stream in stat["streams"]:
        sampled = max(time for tid, time, *_ in expected if tid == stream["tid"])
        check(f"{what}: the stream ends with its last sample", stream["time_ns"][1] == sampled, f"{stream['time_ns'][1] - sampled} ns")
    gaps = [stream["gaps"] for stream in stat["streams"]]
    check(f"{what}: none is a loss", all(not each for each in gaps), str(gaps))
    listed = re.findall(r"sample     of cpu-clock:u: (\d+) bytes of trace up to here, tid (\d+), ip 0x([0-9a-f]+)", run("packets", "-i", out).stdout)
    wanted = sorted((len(window), tid, ip) for tid, _, ip, window in expected)
    check(f"{what}: each is listed with its sample", sorted((int(a), int(b), int(c, 16)) for a, b, c in listed) == wanted, f"{len(listed)} {len(wanted)}")
    for tid in {tid for tid, _, _, _ in expected}:
        ours = addresses("ptdecode", out, tid)
        check(f"{what}: flow of thread {tid}", len(ours) > 1000, str(len(ours)))
        if shutil.which("perf") is None:
            print("skipped: perf is not installed")
            continue
        perfs = addresses("perf", out, tid)
        # perf also lists the instruction at which the sample's interrupt stopped the trace, which did not run (docs/DIFFERENCES.md).
        extra = extra_of(perfs, ours)
        stops = [ip for window_tid, _, ip, _ in expected if window_tid == tid]
        check(f"{what}: perf finds the same {len(ours)} instructions", extra is not None and len(extra) <= len(stops) and set(extra) <= set(stops),
              f"{len(ours)} {len(perfs)} {extra and len(extra)} {len(stops)}")
    calls = [json.loads(line) for line in run("script", "-q", "--json", "-i", out).stdout.splitlines()]
    for tid in {tid for tid, _, _, _ in expected}:
        last, sampled = max(each["end_ns"] for each in calls if each.get("tid") == tid and "end_ns" in each), max(time for each, time, *_ in expected if each == tid)
        check(f"{what}: no call of thread {tid} lasts until its last sample", last < sampled, f"{last - sampled} ns")
    said = run("script", "-q", "-i", out, "--itrace=e").stdout
    check(f"{what}: no error is listed", "instruction trace error" not in said, said[:300])
    return out, stat


def against_the_whole_trace(folder, program):
    """The flow of windows is that of the whole trace of the same run, with parts left out. The time of both runs is that of their work."""
    whole, _, _ = emulate.record(folder, program, "--work-clock", "--psb-period", "0")
    kept = shutil.copy(whole, os.path.join(folder, "whole.data"))
    tid = windows_tid(kept)
    all_of_it = addresses("ptdecode", kept, tid)
    out, _, _ = emulate.record(folder, program, "--work-clock", "--aux-sample", "--aux-sample-every", "9000")
    part = addresses("ptdecode", out, windows_tid(out))
    check("windows are parts of the whole flow, in order", len(part) > 1000 and len(part) < len(all_of_it) and emulate.is_part_in_order(part, all_of_it), f"{len(part)} {len(all_of_it)}")


def windows_tid(out):
    return json.loads(run("stat", "--json", "-q", "-i", out).stdout)["streams"][0]["tid"]


def sizes_in_step(folder, program):
    """The summary counts what is in the file. Samples at multiples of the distance of PSBs have these at all places of the windows."""
    out = os.path.join(folder, "step.data")
    for size, every, *options in (("1K", "4K"), ("4K", "16K"), ("4K", "32K", "--psb-period", "1")):
        done = run("record", "--emulate", "--plugin", emulate.PLUGIN, "--work-clock", f"--aux-sample={size}", "--aux-sample-every", every, *options, "-o", out, "--", *program)
        what, windows = f"windows of {size}, one every {every}", windows_of(out)
        bytes_of_them = sum(len(window) for *_, window in windows)
        check(f"{what}: the summary", re.search(rf"(?m)^ptdecode: \S+: \d+ instructions executed, {len(windows)} AUX samples with {bytes_of_them} bytes of trace, ", done.stderr), done.stderr)
        psb = bytes.fromhex("0282") * 8
        starts = sorted(max(window.find(psb), 0) // (len(window) // 4) for *_, window in windows if psb in window)
        check(f"{what}: PSBs are in all quarters of the windows", set(starts) >= ({0, 1, 2, 3} if size == "1K" else {0, 1}), str(collections.Counter(starts)))


def without_targets(folder):
    """The code needs neither targets nor system calls: its trace is of conditional branches. Samples come all the same, as many as the bytes of the whole trace of
    the same run say."""
    program = [emulate.build("branches", folder, "-static", "-O1")]
    whole, _, _ = emulate.record(folder, program, "--work-clock")
    size = sum(struct.unpack_from("<Q", record, 8)[0] for kind, _, record, _ in emulate.perf_records(whole) if kind == AUXTRACE)
    check("the trace is long", size > 300_000, str(size))
    for window, every in ((1000, 1000), (4096, 16384), (4096, 5000)):
        out, _, _ = emulate.record(folder, program, "--work-clock", f"--aux-sample={window}", "--aux-sample-every", str(every))
        found = len(windows_of(out))
        check(f"one sample every {every} bytes of conditional branches", 0.95 * size / every - 1 <= found <= 1.1 * size / every, f"{found}, {size / every:.1f} wanted")


def other_commands(folder, out):
    expected = windows_of(out)
    info = json.loads(run("info", "--json", "-i", out).stdout)
    check("info counts windows", info["windows"]["cpu-clock:u"]["samples"] == len(expected), str(info["windows"]))
    check("info counts their bytes", info["windows"]["cpu-clock:u"]["bytes"] == sum(len(window) for _, _, _, window in expected), str(info["windows"]))
    check("info in words", f"{len(expected)} of cpu-clock:u" in run("info", "-i", out).stdout)
    functions = run("functions", "-q", "-i", out, "--format", "json")
    rows = [row for row in map(json.loads, functions.stdout.splitlines()) if row.get("self_instructions")]
    total = int(re.search(r"(?m)^all streams: (\d+) instructions", run("stat", "-q", "-i", out).stdout)[1])
    check("functions have all instructions", functions.returncode == 0 and sum(row["self_instructions"] for row in rows) == total, functions.stdout[-2000:] + functions.stderr)
    checked = run("check", "-i", out)
    check("check finds nothing", "trace_lost" not in checked.stdout and "clock_contradicts" not in checked.stdout, checked.stdout)
    bundle = os.path.join(folder, "windows.ptb")
    check("a bundle can be written", run("bundle", "-q", "-i", out, "-o", bundle).returncode == 0)
    for command in (["packets"], ["script", "-q", "--itrace=i1i"], ["functions", "-q"]):
        check(f"{command[0]} of the bundle is that of the recording", run(*command, "-i", bundle).stdout == run(*command, "-i", out).stdout)
    lines = run("script", "-q", "-i", out, "--itrace=e", "-F", "tid,time,event,ip").stdout
    check("script lists the samples", len(re.findall("cpu-clock:u", lines)) == len(expected), f"{lines[:200]}")


def hostile_sizes(folder, out):
    """Sizes beyond the record, windows cut anywhere: no crash, and what is left decodes."""
    with open(out, "rb") as file:
        good = bytearray(file.read())
    places = []
    at, size = struct.unpack_from("<QQ", good, 40)
    end = at + size
    while at + 8 <= end:
        kind, _, length = struct.unpack_from("<IHH", good, at)
        if kind == SAMPLE and length > AUX_FIELD:
            places.append(at)
        at += length
    choose = random.Random(7)
    bad = os.path.join(folder, "bad.data")
    for kind in ("huge", "zero", "off by eight", "identifier", "noise"):
        data = bytearray(good)
        for place in places[::2]:
            if kind == "noise":
                for _ in range(64):
                    data[place + AUX_FIELD + 8 + choose.randrange(3000)] = choose.randrange(256)
            elif kind == "identifier":
                struct.pack_into("<Q", data, place + 8, choose.getrandbits(64))
            else:
                old = struct.unpack_from("<Q", data, place + AUX_FIELD)[0]
                struct.pack_into("<Q", data, place + AUX_FIELD, {"huge": 1 << 63, "zero": 0, "off by eight": old + 8}[kind])
        with open(bad, "wb") as file:
            file.write(data)
        for command in (["stat", "--json", "-q"], ["info"], ["packets"], ["check"]):
            done = run(*command, "-i", bad)
            check(f"{kind} in half of the samples: {command[0]}", done.returncode in (0, 1, 3) and "bug" not in done.stderr, f"{done.returncode} {done.stderr[-300:]}")
        stat, counted = window_count(bad)
        wanted = len(places) if kind == "noise" else len(places) // 2
        check(f"{kind}: the other windows are there", counted >= wanted, f"{counted} {wanted}")


def calls_of(out):
    """The calls of each function of rounds.c: lists of (whether its start and end were seen, instructions), and everything that the tree names."""
    calls, names = {}, set()
    for line in run("script", "-q", "-i", out, "--json").stdout.splitlines():
        row = json.loads(line)
        names |= {row.get("kind"), "kernel" if row.get("kernel") else None}
        if "call" in row:
            calls.setdefault(row["call"], []).append((row["start_seen"] and row["end_seen"], row["instructions"]))
    return calls, names


def calls_end_with_their_window(folder):
    """What runs between two windows is unknown: no call goes on in the next one, and nothing was interrupted. The second source is the whole trace
    of the same program: calls of one function are equally long."""
    program = [emulate.build("rounds", folder, "-static")]
    whole, _ = calls_of(emulate.record(folder, program, "--work-clock")[0])
    lengths = {name: {instructions for seen, instructions in whole[name] if seen} for name in ("work", "first", "second", "leaf")}
    check("calls of one function are equally long", len(whole["work"]) == 200 and len(lengths["work"]) == len(lengths["first"]) == 1, str(lengths))
    for size, every in (("4K", "16K"), ("2K", "9000"), ("8K", "40K")):
        out, _, _ = emulate.record(folder, program, "--work-clock", f"--aux-sample={size}", "--aux-sample-every", every)
        calls, names = calls_of(out)
        windows = window_count(out)[1]
        what = f"calls in windows of {size}, one every {every} bytes"
        for name, right in lengths.items():
            seen = {instructions for both, instructions in calls.get(name, []) if both}
            check(f"{what}: {name}", seen <= right, f"{sorted(seen)[:5]} {sorted(seen)[-5:]}, not {right}")
        check(f"{what}: calls of first and second were seen whole", any(both for both, _ in calls["first"]) or size == "2K", str(len(calls["first"])))
        check(f"{what}: each ends with its window", sum(not both for both, _ in calls["work"]) > 10 and windows > 10, f"{windows}")
        check(f"{what}: nothing was interrupted", "interrupt" not in names, str(names))
        for threads in ("2", "3"):
            again = run("script", "-q", "-i", out, "--json", "--threads", threads).stdout
            check(f"{what}: the same on {threads} threads", again == run("script", "-q", "-i", out, "--json", "--threads", "1").stdout)


def main():
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        program = [emulate.build("sampled", folder, "-static")]
        pair = [emulate.build("threads", folder)] if os.path.exists(os.path.join(emulate.PROGRAMS, "threads.c")) else program
        apart, _ = compare(folder, program, "4K", "16K")
        sizes_in_step(folder, program)
        without_targets(folder)
        other_commands(folder, shutil.copy(apart, os.path.join(folder, "apart.data")))
        hostile_sizes(folder, os.path.join(folder, "apart.data"))
        compare(folder, program, "8K", "3K")          # each window repeats more than half of the one before
        compare(folder, program, "60K", "1K", "--cyc")
        compare(folder, program, "4096", "5000", "--no-mtc")
        _, stat = compare(folder, program, "1K", "5000", "--short-tnt")  # the start of a window moves among the PSBs
        check("windows without a PSB are named", stat["streams"][0]["windows"]["undecoded"] > 0, str(stat["streams"][0]["windows"]))
        compare(folder, pair, "4K", "8K")
        # The shell has ground truth, and no stream: its trace is shorter than the distance of two samples.
        out, _, truths = emulate.record(folder, ["/bin/sh", "-c", f"{program[0]}; true"], "--aux-sample", "--aux-sample-every", "128K")
        check("a process without samples", len(json.loads(run("stat", "--json", "-q", "-i", out).stdout)["streams"]) == 1 and truths == 2, str(truths))
        short = os.path.join(folder, "short")
        done = run("record", "--emulate", "--plugin", emulate.PLUGIN, "-q", "--aux-sample", "--aux-sample-every", "1G", "-o", short, "--", "/bin/true")
        check("no sample: the recorder says why", done.returncode == 0 and "no AUX sample" in done.stderr and "--aux-sample-every (1G)" in done.stderr, done.stderr)
        done = run("stat", "-i", short)
        check("no sample: stat says why", done.returncode != 0 and "--aux-sample-every" in done.stderr, done.stderr)
        against_the_whole_trace(folder, program)
        calls_end_with_their_window(folder)
        refused = run("record", "--emulate", "--aux-sample=61K", "-o", os.path.join(folder, "x"), "--", *program)
        check("a window that no record holds is refused", refused.returncode == 2 and "60K" in refused.stderr, refused.stderr)
    return 1 if emulate.failures else 0


if __name__ == "__main__":
    sys.exit(main())
