#!/usr/bin/env python3
"""aarch64 programs under `ptdecode record --emulate`: the decode of their ETMv4 or ETE trace equals the ground truth, and OpenCSD finds the same.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE. Exit status 77 without qemu-aarch64, or without clang and lld (of any version, or 14), which build the programs.
"""
import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from checks import PLUGIN, PTDECODE, check, failures, perf_records

HERE = os.path.join(os.environ["PTDECODE_SOURCE"], "tests/emulate")
FLAGS = "--target=aarch64-linux-gnu -O1 -static -nostdlib -ffreestanding -fno-stack-protector -fuse-ld=lld".split()
CLANG = shutil.which("clang") or shutil.which("clang-14") or shutil.which("clang-19")
LINKER = shutil.which("ld.lld") or shutil.which("ld.lld-14") or shutil.which("ld.lld-19")


def build(source, folder, *more):
    path = os.path.join(folder, os.path.basename(source)[:-2])
    done = subprocess.run([CLANG, *FLAGS, *more, "-o", path, os.path.join(HERE, source)], capture_output=True, text=True)
    return path if done.returncode == 0 else None


def record(folder, program, instructions, *options):
    """Records and verifies against the ground truth: every instruction, each with its bytes."""
    name = os.path.basename(program) + ("-ete" if "--ete" in options else "")
    out, truth = os.path.join(folder, name + ".data"), os.path.join(folder, name + ".truth")
    done = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", PLUGIN, "-o", out, "--truth", truth, "--psb-period", "0", *options, "--", program],
                          capture_output=True, text=True, timeout=120)
    info = json.loads(subprocess.run([PTDECODE, "info", "--json", "-i", out], capture_output=True, text=True).stdout)
    spans = [stream.get("time_ns", [0, 0]) for stream in info["streams"]]
    check(f"info {name}: each stream has a time", spans and all(begin < end for begin, end in spans), str(spans))
    check(f"record {name}", done.returncode == 0 and "flow was lost" not in done.stderr, done.stderr)
    files = sorted(glob.glob(truth + "/*.ptt"))
    verified = subprocess.run([PTDECODE, "verify", "-q", "-i", out, *files], capture_output=True, text=True)
    lines = verified.stdout.splitlines()
    good = verified.returncode == 0 and all("(100.000000 %), of them flagged 0 " in line for line in lines)
    count = sum(int(line.split()[2]) for line in lines if "instructions:" in line)
    check(f"verify {name}: {count} instructions", good and count > instructions, verified.stdout + verified.stderr)
    return out, done.stdout, len(files)


def trace_of(recording):
    """Returns the bytes of the only trace, and the text segment of the only program: (address, file offset, size)."""
    used, trace = 0, b""
    for kind, _, record, payload in perf_records(recording):
        used += struct.unpack_from("<Q", record, 16)[0] if kind == 11 else 0
        trace += payload
    return trace[:used]


def cpus_of_starts(recording):
    """Returns the cpu of each ITRACE_START record (type 12); a record ends with cpu, reserved (u32 each) and identifier (u64)."""
    return [struct.unpack_from("<I", record, len(record) - 16)[0] for kind, _, record, _ in perf_records(recording) if kind == 12]


def opencsd_flow(folder, recording, program, ete=False):
    """Returns the executed addresses reported by OpenCSD's lister, from a snapshot made of the same bytes."""
    snapshot = os.path.join(folder, "snapshot-" + os.path.basename(recording))
    os.mkdir(snapshot)
    with open(program, "rb") as file:
        elf = file.read()
    header, entries = struct.unpack_from("<Q", elf, 32)[0], struct.unpack_from("<H", elf, 56)[0]
    dumps = ""
    for i in range(entries):
        kind, flags, offset, address, _, size = struct.unpack_from("<IIQQQQ", elf, header + 56 * i)
        if kind == 1 and flags & 1:
            dumps += f"[dump{i}]\nfile=program\naddress={address:#x}\noffset={offset:#x}\nlength={size:#x}\nspace=any\n\n"
    kind, devarch, version = ("ETE", 0x47705a13, 0x4100fff4) if ete else ("ETM4", 0x47724a13, 0x4100f424)
    registers = f"TRCCONFIGR=0x1840\nTRCTRACEIDR=0x10\nTRCDEVARCH={devarch:#x}\nTRCIDR0=0x08000221\nTRCIDR1={version:#x}\nTRCIDR2=0x88\nTRCIDR8=0\n"
    texts = {
        "snapshot.ini": "[snapshot]\nversion=1.0\n\n[device_list]\ndevice0=cpu.ini\ndevice1=etm.ini\n\n[trace]\nmetadata=trace.ini\n",
        "trace.ini": "[trace_buffers]\nbuffers=buffer0\n\n[buffer0]\nname=ETB\nfile=trace.bin\nformat=source_data\n\n[core_trace_sources]\ncpu_0=ETM_0\n\n"
                     "[source_buffers]\nETM_0=ETB\n",
        "cpu.ini": "[device]\nname=cpu_0\nclass=core\ntype=Cortex-A53\n\n[regs]\nPC(size:64)=0\n\n" + dumps,
        "etm.ini": f"[device]\nname=ETM_0\nclass=trace_source\ntype={kind}\n\n[regs]\n" + registers,
    }
    for name, text in texts.items():
        with open(os.path.join(snapshot, name), "w") as file:
            file.write(text)
    shutil.copy(program, os.path.join(snapshot, "program"))
    with open(os.path.join(snapshot, "trace.bin"), "wb") as file:
        file.write(trace_of(recording))
    log = os.path.join(snapshot, "opencsd.ppl")  # the lister appends
    subprocess.run(["trc_pkt_lister", "-ss_dir", snapshot, "-decode_only", "-logfilename", log], capture_output=True, timeout=120)
    flow = []
    with open(log) as lines:
        for line in lines:
            ran = re.search(r"INSTR_RANGE\(exec range=0x([0-9a-f]+):\[0x([0-9a-f]+)\]", line)
            if ran:
                flow += range(int(ran[1], 16), int(ran[2], 16), 4)
    return flow, snapshot


def addresses(recording):
    done = subprocess.run([PTDECODE, "script", "-q", "-i", recording, "--itrace=i1i", "-F", "ip"], capture_output=True, text=True)
    return [int(line, 16) for line in done.stdout.split()]


def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def run(folder):
    plain = build("data_programs/plain.c", folder)
    if plain is None:
        print("skipped: clang cannot build for aarch64")
        return 77
    out, text, _ = record(folder, plain, 100000)
    check("the program computes what it computes on x86-64", text == "7154119218316215705\n", text)
    if shutil.which("trc_pkt_lister"):
        flow, snapshot = opencsd_flow(folder, out, plain)
        ours = addresses(out)
        check(f"OpenCSD finds the same {len(flow)} instructions", flow == ours and len(flow) > 100000, f"{len(flow)} {len(ours)}")
        check("the snapshot of the same bytes gives the same flow", addresses(snapshot) == ours)
    check_names_the_wrong_file(folder, out, plain)
    check_damaged_records(folder, out)
    check_calls_over_records(out)
    check_ete(folder, plain)
    check_wrong_bits(folder, out)
    # Threads: each with its own trace unit and truth.
    out, text, streams = record(folder, build("programs/arm_threads.c", folder, "-mno-outline-atomics"), 50000)
    check("threads add up", (streams, text) == (5, f"{sum(fibonacci(10 + (i + t) % 8) for i in range(20) for t in range(4))}\n"), f"{streams} {text}")
    check("each thread is recorded on a cpu of its own", sorted(cpus_of_starts(out)) == list(range(5)), str(cpus_of_starts(out)))
    waits = [row["off_cpu_ns"] for row in rows_of(out)]
    check("a recording without context switches gives no time off the cpu", len(waits) > 4 and set(waits) == {0}, str(waits))
    # Signals, faults, modified code, fork and exec.
    out, text, streams = record(folder, build("programs/arm.c", folder, "-Wl,-e,begin"), 150000)
    check("fork and exec stay in the emulator", (streams, text) == (2, "30800\n55\n30800\n"), f"{streams} {text}")
    check("a bundle of it says the same", bundle_says_the_same(folder, out))
    # Signals at any instruction, with and without siginfo.
    alarms = build("programs/arm_alarms.c", folder)
    for options in ([], ["--ete"]):
        out, text, _ = record(folder, alarms, 10000, *options)
        calls = {row["function"]: row["calls"] for row in rows_of(out)}
        check("alarms: each call is counted", (calls.get("leaf"), calls.get("on_alarm", 0) >= 120) == (int(text), True), f"{text} {calls}")
    check_times(folder, build("programs/arm_times.c", folder))
    return 1 if failures else 0


def check_ete(folder, plain):
    """The same flow as an ETE trace. Source Address packets replace long chains of branches that are not taken."""
    for program, instructions in ((plain, 100000), (build("programs/arm_chains.c", folder), 100000)):
        out, text, _ = record(folder, program, instructions, "--ete")
        packets = subprocess.run([PTDECODE, "packets", "-i", out], capture_output=True, text=True).stdout
        check("ETE: Source Address packets", packets.count("src_addr_") > 1000 or program == plain, str(packets.count("src_addr_")))
        check("ETE: the output is right", text in ("7154119218316215705\n", "180600\n"), text)
        if not shutil.which("trc_pkt_lister"):
            continue
        flow, snapshot = opencsd_flow(folder, out, program, True)
        ours = addresses(out)
        check(f"ETE: OpenCSD finds the same {len(flow)} instructions", flow == ours and len(flow) > instructions, f"{len(flow)} {len(ours)}")
        check("ETE: the snapshot of the same bytes gives the same flow", addresses(snapshot) == ours)
    done = subprocess.run([PTDECODE, "record", "--emulate", "--ete", "-o", folder + "/no.data", "--", "true"], capture_output=True, text=True)
    check("--ete is refused for other programs", done.returncode == 2 and "--ete is for programs for aarch64" in done.stderr, done.stderr)


def rows_of(recording):
    done = subprocess.run([PTDECODE, "functions", "-q", "-i", recording, "--json"], capture_output=True, text=True)
    return [row for row in map(json.loads, done.stdout.splitlines()) if "function" in row]


def total_times(recording):
    """Total time of each function, in ns."""
    return {row["function"]: row["total_ns"] for row in rows_of(recording)}


def check_times(folder, program):
    """Durations against the program's own clock, and with --work-clock against the formula of docs/FORMAT-truth.md."""
    out, text, _ = record(folder, program, 100000)
    ours = total_times(out)
    for function, want in zip(("nap", "compute", "again"), map(int, text.split())):
        found = ours.get(function, 0)
        check(f"{function} took {want} ns by its own clock", (0.75 if function == "compute" else 0.9) * want < found < 1.1 * want, str(found))
    out, _, _ = record(folder, program, 100000, "--work-clock")
    done = subprocess.run([PTDECODE, "script", "-q", "-i", out, "--itrace=i1i", "-F", "ip,sym"], capture_output=True, text=True)
    ticks = {}
    for line in done.stdout.splitlines():
        ip, function = line.split()[:2]
        ticks[function] = ticks.get(function, 0) + 1 + int(ip, 16) // 64 % 8
    want, found = ticks["fib"] / 2, total_times(out).get("fib", 0)
    check(f"fib takes {want} ns of the work clock", 0.98 * want < found < 1.02 * want, str(found))
    done = subprocess.run([PTDECODE, "stat", "-q", "-i", out], capture_output=True, text=True)
    check("a source's protocol is named once", "\nETMv4 of cpu 0, id 0x10, traces cpu 0\n" in done.stdout, done.stdout[:300])
    done = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", PLUGIN, "-o", out, "--cyc", "--mtc-period", "3", "-q", "--", program],
                          capture_output=True, text=True, timeout=120)
    check("options without effect are named", "does not have: --cyc, --mtc-period\n" in done.stderr, done.stderr)


def with_record_twice(data, at, size):
    """A perf.data file with the record at `at` doubled. The header has the size of the records at 48, and feature bits from 72 on."""
    data = bytearray(data[:at + size] + data[at:])
    begin, end = struct.unpack_from("<2Q", data, 40)
    struct.pack_into("<Q", data, 48, end + size)
    features = sum(byte.bit_count() for byte in data[72:104])
    for table in range(begin + end + size, begin + end + size + 16 * features, 16):
        struct.pack_into("<Q", data, table, struct.unpack_from("<Q", data, table)[0] + size)
    return data


def parts_of(recording):
    """A recording with one AUX record: its bytes, the place of that record, its size, the trace that it names (offset and size), and the trace's place."""
    with open(recording, "rb") as file:
        data = file.read()
    at, = struct.unpack_from("<Q", data, 40)
    for kind, _, record, payload in perf_records(recording):
        if kind == 11:
            aux, named, aux_bytes = at, struct.unpack_from("<2Q", record, 8), len(record)
        elif kind == 71:
            trace = at + len(record)
        at += len(record) + len(payload)
    return data, aux, aux_bytes, named, trace


def check_damaged_records(folder, recording):
    """AUX records that name too much or too little, and a damaged first A-Sync: no instruction is decoded twice, and none is missing without a gap."""
    data, aux, aux_bytes, (offset, size), trace = parts_of(recording)
    fields = {"half": (offset, size // 2), "second half": (offset + size // 2, size - size // 2), "later": (offset + 1, size), "shorter": (offset + 1, size - 1), "empty": (offset, 0)}
    variants = {name: data[:aux + 8] + struct.pack("<2Q", *values) + data[aux + 24:] for name, values in fields.items()}
    variants["twice"] = with_record_twice(data, aux, aux_bytes)
    for byte in (0, 5, 8, 10):
        variants[f"A-Sync {byte}"] = data[:trace + byte] + b"\x80" + data[trace + byte + 1:]
    want, out = addresses(recording), recording + ".damaged"
    for name, damaged in variants.items():
        with open(out, "wb") as file:
            file.write(damaged)
        got = addresses(out)
        stat = json.loads(subprocess.run([PTDECODE, "stat", "--json", "-i", out], capture_output=True, text=True).stdout)
        gaps = sum(gap["count"] for stream in stat["streams"] for gap in stream["gaps"].values())
        before = next((i for i, pair in enumerate(zip(got, want)) if pair[0] != pair[1]), min(len(got), len(want)))
        rest = len(got) - before
        check(f"AUX record, {name}: a part of the flow", rest >= 0 and (rest == 0 or got[-rest:] == want[-rest:]) and len(got) <= len(want), f"{len(got)} {before}")
        check(f"AUX record, {name}: a gap where flow is missing", gaps != 0 or got == want, f"{len(got)} of {len(want)}")
        check(f"AUX record, {name}: most of the flow", 2 * len(got) > len(want), f"{len(got)} of {len(want)}")
        status = subprocess.run([PTDECODE, "check", "-i", out], capture_output=True).returncode
        check(f"AUX record, {name}: a finding", status == 3, str(status))


def check_calls_over_records(recording):
    """The kernel ends an AUX record whenever it stops the trace unit, as at a context switch: calls go on from one record to the next. The trace of one
    record, given in two, has the same calls. The first one has the time of the cut, by TIME_CONV (perf_event_open(2): shift, multiplier, zero)."""
    data, aux, aux_bytes, (offset, size), trace = parts_of(recording)
    syncs = [found.start() - trace for found in re.finditer(b"\0" * 11 + b"\x80", data[:trace + size]) if found.start() >= trace]
    cut, out = syncs[len(syncs) // 2], recording + ".split"
    split = with_record_twice(data, aux, aux_bytes)
    struct.pack_into("<2Q", split, aux + 8, offset, cut - offset)
    struct.pack_into("<2Q", split, aux + aux_bytes + 8, cut, offset + size - cut)
    stamp = data[trace + cut + 16:trace + cut + 25]  # after A-Sync, Trace Info and the header of a timestamp packet of nine bytes
    ticks = sum((byte & 0x7f) << 7 * i for i, byte in enumerate(stamp[:8])) | stamp[8] << 56
    shift, multiplier, zero = next(struct.unpack_from("<3Q", record, 8) for kind, _, record, _ in perf_records(recording) if kind == 79)
    struct.pack_into("<Q", split, aux + 40, (zero + (ticks * multiplier >> shift)) % 2**64)  # the record's sample_id: pid and tid, then the time
    with open(out, "wb") as file:
        file.write(split)
    calls = [subprocess.run([PTDECODE, "script", "-q", "--json", "-i", each], capture_output=True, text=True).stdout for each in (recording, out)]
    check("calls go on from one AUX record to the next", len(syncs) > 2 and len(calls[0]) > 1000 and calls[0] == calls[1], f"{cut} {len(calls[0])} {len(calls[1])}")


def check_names_the_wrong_file(folder, recording, program):
    done = subprocess.run([PTDECODE, "check", "-i", recording], capture_output=True, text=True)
    check("check finds nothing", (done.returncode, done.stdout) == (0, "no findings: the records, the code bytes and the files agree\n"), done.stdout)
    with open(program, "rb") as file:
        code = bytearray(file.read())
    changed = 0
    for at in range(0, len(code) - 3, 4):
        word, = struct.unpack_from("<I", code, at)
        if word >> 24 == 0x54:  # B.cond: always taken now
            offset = (word >> 5 & 0x7ffff) - (word >> 4 & 0x80000)
            struct.pack_into("<I", code, at, 0x14000000 | offset & 0x3ffffff)
            changed += 1
    wrong = os.path.join(folder, "wrong") + program
    os.makedirs(os.path.dirname(wrong))
    with open(wrong, "wb") as file:
        file.write(code)
    done = subprocess.run([PTDECODE, "check", "-i", recording, "--symfs", os.path.join(folder, "wrong")], capture_output=True, text=True)
    found = re.search(r"flow_contradicts: (\S+) .*is not the code that ran: (\d+) packets? .* at (\d+) place", done.stdout)
    check("check names the wrong file", done.returncode == 3 and found and found[1].endswith(program) and 0 < int(found[3]) <= changed,
          f"{changed} {done.returncode} {done.stdout}")


def check_wrong_bits(folder, recording):
    """Wrong bits in a full timestamp and in TRCIDR8: the times are those of the undamaged recording, and what is not shown is a gap."""
    def damaged(name, at, bits):
        data = bytearray(original)
        data[at] ^= bits
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def checked(path):
        done = subprocess.run([PTDECODE, "check", "-i", path], capture_output=True, text=True)
        return done.returncode, done.stdout

    def times(path):
        return subprocess.run([PTDECODE, "script", "-q", "-i", path, "--itrace=b", "-F", "time,ip", "--ns"], capture_output=True, text=True).stdout

    with open(recording, "rb") as file:
        original = file.read()
    want = times(recording)
    syncs = [found.start() for found in re.finditer(rb"\0{11}\x80\x01\x01\0\x02", original)]
    for sync in (syncs[0], syncs[len(syncs) // 2], syncs[-1]):
        for byte, bit in ((6, 0), (7, 3), (8, 0), (8, 6), (9, 7)):
            path = damaged("wrong-time.data", sync + 15 + byte, 1 << bit)
            code, text = checked(path)
            check(f"bit {bit} of byte {byte} of a timestamp is found", code == 3 and "clock_contradicts: " in text, f"{code} {text}")
            check("  and corrected", want.count("\n") > 1000 and times(path) == want)
    at = 0  # the AUXTRACE_INFO record (type 70), of which TRCIDR8 is word 13
    for kind, _, record, payload in perf_records(recording):
        if kind == 70:
            at = original.index(record) + 8 + 96
    for depth in (64, 4096):
        code, text = checked(damaged("wrong-depth.data", at + (depth >> 8 != 0), depth >> 8 or depth))
        check(f"TRCIDR8 {depth} is found", code == 3 and "TRCIDR8) is wrong" in text, f"{code} {text}")
    conversion = next(original.index(record) for kind, _, record, _ in perf_records(recording) if kind == 79)  # TIME_CONV: the shift is its first word
    code, text = checked(damaged("wrong-shift.data", conversion + 8, 1))
    check("a conversion of the clock that the records contradict is found", code == 3 and "by the conversion of TIME_CONV, the trace is from" in text, f"{code} {text}")
    path = damaged("no-source.data", at + 8 * 2, 1)  # TS_SOURCE, two words after TRCIDR8
    done = subprocess.run([PTDECODE, "stat", "-i", path], capture_output=True, text=True)
    check("without a known source of its timestamps, the flow has no times", "the flow has no times" in done.stderr, done.stderr)


def bundle_says_the_same(folder, recording):
    bundle = os.path.join(folder, "arm.ptb")
    subprocess.run([PTDECODE, "bundle", "-q", recording, "-o", bundle], check=True, capture_output=True)
    words = ["script", "-q", "--itrace=i1ie", "-F", "+insn,+flags,+mark"]
    want = subprocess.run([PTDECODE, *words, "-i", recording], capture_output=True, text=True).stdout
    os.rename(recording + ".jit", recording + ".away")
    return want != "" and subprocess.run([PTDECODE, *words, "-i", bundle], capture_output=True, text=True).stdout == want


def main():
    for tool, found in (("qemu-aarch64", shutil.which("qemu-aarch64")), ("clang", CLANG), ("ld.lld", LINKER)):
        if not found:
            print(f"skipped: {tool} is not installed")
            return 77
    with tempfile.TemporaryDirectory() as folder:
        return run(folder)


if __name__ == "__main__":
    sys.exit(main())
