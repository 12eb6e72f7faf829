#!/usr/bin/env python3
"""Programs that announce their generated code, under the emulator: the flow equals the ground truth with the announcements alone.

Environment: as tests/emulate/emulate_test.py; PTDECODE_LIVES: loads, moves, patches and unloads (default 400). Exit status 77 without
qemu-x86_64.
"""
import collections
import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

SOURCE = os.environ["PTDECODE_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests/emulate"))
import emulate_test as emulate  # noqa: E402
from emulate_test import PLUGIN, PTDECODE, check  # noqa: E402

LIVES = os.environ.get("PTDECODE_LIVES", "400")
# Two changes of one place may be 50 us apart. After a PSB only an MTC bounds the time from above: one every 2 us, not every 50.
FINE_TIMES = ["--cyc", "--mtc-period", "4"]
SAMPLE, AUXTRACE = 9, 71


def build(folder, name="lives", *flags):
    path = os.path.join(folder, name)
    library = os.path.join(SOURCE, "announce")
    program = os.path.join(SOURCE, "tests/announce/programs/lives.c")
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-w", "-pthread", "-static", "-I", library, *flags, program,
                    os.path.join(library, "ptd_announce.c"), "-o", path], check=True)
    return path


def record(folder, command, *options):
    out, truth = os.path.join(folder, "perf.data"), os.path.join(folder, "truth")
    for path in (out + ".jit", truth):
        shutil.rmtree(path, ignore_errors=True)
    done = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", PLUGIN, "-o", out, "--truth", truth, "--no-ran-code", *options, "--", *command],
                          capture_output=True, text=True)
    check(f"record {options} {command[1:]}", done.returncode == 0, done.stderr)
    return out


class Comparison:
    """Of the flow with the ground truth, over all threads."""

    def __init__(self, out, recording=None, *options):
        files = sorted(glob.glob(os.path.join(os.path.dirname(out), "truth", "*.ptt")))
        done = subprocess.run([PTDECODE, "verify", "-i", recording or out, *options, *files], capture_output=True, text=True)
        self.text = done.stdout + done.stderr
        self.threads = len(files)
        count = lambda what: sum(int(number) for number in re.findall(what, self.text))
        self.instructions = count(r": (\d+) instructions:")
        self.right = count(r": right (\d+)")
        self.silent = count(r"silently wrong (\d+)")
        self.flagged = count(r"of them flagged (\d+) \(")
        self.unflagged_extra = sum(int(a) - int(b) for a, b in re.findall(r"(\d+) given where nothing ran, of them flagged (\d+)", self.text))

    def is_exact(self):
        return self.instructions > 0 and self.right == self.instructions

    def is_known(self):
        """Exact but for marked instructions, one in a million, or five: two versions may have run within one interval of the clock (MTC)."""
        return self.is_marked() and self.instructions - self.right <= max(5, self.instructions / 1e6)

    def is_marked(self):
        return self.instructions > 0 and self.silent == 0 and self.unflagged_extra == 0


def findings(out):
    return subprocess.run([PTDECODE, "check", "-i", out], capture_output=True, text=True).stdout


def exact(folder):
    """Announcements alone give the executed flow, exactly; without them it is not there."""
    program, stash = build(folder), os.path.join(folder, "stash")
    for options in ([], FINE_TIMES):
        out = record(folder, [program, LIVES], "--stash", stash, *options)
        got = Comparison(out)
        check(f"{LIVES} lives {options}: the flow is the ground truth", got.is_exact() if options else got.is_known(), got.text)
        print("      ", got.text.strip())
        check("no findings", "no findings" in findings(out), findings(out)[-1000:])
    bundle = os.path.join(folder, "lives.ptb")
    subprocess.run([PTDECODE, "bundle", "-i", out, "-o", bundle], check=True, capture_output=True)
    got = Comparison(out, bundle)
    check("a bundle carries the announcements", got.is_exact(), got.text)
    image = subprocess.run([PTDECODE, "image", "-i", out], capture_output=True, text=True).stdout
    check("image shows them", image.count("[jit]") > int(LIVES) // 10, image[-500:])
    os.rename(program, program + ".away")
    got = Comparison(out, out, "--stash", stash)
    check("the stash has the program, and the recording its generated code", got.is_exact(), got.text)
    got = Comparison(out, out, "--stash", "off")
    check("without the stash the program is missing", not got.is_exact(), got.text)
    os.rename(program + ".away", program)
    out = record(folder, [program, "500"], "--no-announce")
    got = Comparison(out)
    check("without announcements the code is missing", not got.is_exact() and got.silent == 0, got.text)


def others(folder):
    """The same program with one other source of its generated code: what announcing adds."""
    program = build(folder)
    os.environ["PTD_ANNOUNCE"], os.environ["PTD_ANNOUNCE_DIR"] = "jitdump", folder
    out = record(folder, [program, LIVES], "--no-announce")
    del os.environ["PTD_ANNOUNCE"], os.environ["PTD_ANNOUNCE_DIR"]
    got = Comparison(out)
    print("       jitdump:", got.text.strip())
    # It has no patches: a patched branch goes the other way.
    check("a jitdump alone: the flow is known, and patched code is wrong", 0.99 < got.right / got.instructions < 1, got.text)
    check("a jitdump alone: its times and clock are right", "bad_record" not in findings(out), findings(out)[-1000:])
    out = record(folder, [program, LIVES], "--no-announce")
    got = Comparison(out)
    print("       no source:", got.text.strip())
    check("no source: all generated code is missing, none is wrong", got.right < got.instructions * 0.9 and got.is_marked(), got.text)


def named_calls(out):
    """Returns how often functions of the program were called, by name."""
    rows = subprocess.run([PTDECODE, "functions", "-i", out, "--json"], capture_output=True, text=True, check=True).stdout
    calls = collections.Counter()
    for row in map(json.loads, rows.splitlines()):
        if row.get("function", "").startswith("life_"):
            calls[row["function"]] += row["calls"]
    return calls


def names(folder):
    """Names of code at reused addresses: announced ones are those of the program's own count; a perf map has only the last one of each address."""
    program = build(folder)
    for what, options in (("announced", ["--no-ran-code"]), ("announced, with all code known", []),
                          ("a perf map, with all code known", ["--no-announce"]), ("a perf map alone", ["--no-announce", "--no-ran-code"])):
        out = os.path.join(folder, "perf.data")
        shutil.rmtree(out + ".jit", ignore_errors=True)
        shutil.rmtree(os.path.join(folder, "truth"), ignore_errors=True)
        done = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", PLUGIN, "-o", out, "--truth", os.path.join(folder, "truth"), *FINE_TIMES, *options,
                               "--", program, LIVES, "names"], capture_output=True, text=True)
        pid = re.search(r"\d+", os.path.basename(glob.glob(os.path.join(folder, "truth", "*.ptt"))[0]))[0]
        want = collections.Counter({name: int(count) for name, count in (line.split() for line in done.stdout.splitlines())})
        calls, got = named_calls(out), Comparison(out)
        os.unlink(f"/tmp/perf-{pid}.map")
        wrong = sum((calls - want).values())
        print(f"       {what}: of {sum(want.values())} calls, {sum((calls & want).values())} have their name, {wrong} another one;", got.text.strip())
        if what.startswith("announced"):
            check(f"{what}: each call has its own name", calls == want and len(want) > 0 and got.is_exact(), (calls - want, want - calls))
        elif "--no-ran-code" in options:
            check("a perf map alone: the code is missing", got.right < got.instructions * 0.9 and got.is_marked(), got.text)
        else:
            check("a perf map: most names are those of later code", got.is_exact() and wrong > sum(want.values()) / 2, (wrong, got.text))


def late(folder):
    """A ring that is off at the start: the run-time lists its code when the reader attaches."""
    out = record(folder, [build(folder), LIVES, "late"])
    got = Comparison(out)
    check("late attach: code from before is known", got.is_known(), got.text)


def forks(folder):
    """Children announce for themselves, and start with their parent's code."""
    out = record(folder, [build(folder), "1000", "forks"])
    got = Comparison(out)
    check("forks: the flow is the ground truth", got.is_known() and got.threads > 5, got.text)


def outside(folder):
    """Announced code outside of the executable mappings is a finding; everything else stays right."""
    out = record(folder, [build(folder), "200", "outside"])
    got = Comparison(out)
    check("outside: the flow is the ground truth", got.is_known(), got.text)
    text = findings(out)
    check("outside: a finding", "[0x10000, 0x10001) is outside of the executable mappings" in text, text[-1000:])


def overrun(folder):
    """More changes than the ring holds: what is wrong is marked, and the code is known again after the relist."""
    out = record(folder, [build(folder, "small_ring", "-DPTD_ANNOUNCE_RING_BYTES=8192"), LIVES, "burst"])
    text, got = findings(out), Comparison(out)
    check("overrun: numbers are missing", "of its generated code are lost (numbers" in text, text[-1000:])
    check("overrun: until the relist", "until it announced all of it again" in text, text[-1000:])
    check("overrun: nothing is silently wrong", got.is_marked(), got.text)
    print("      ", got.text.strip())


def damage(path, nth, first):
    """Changes the version of samples, so that they are refused; returns how many."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    at, size = struct.unpack_from("<QQ", data, 40)
    end, samples, changed = at + size, 0, 0
    while at + 8 <= end:
        kind, _, length = struct.unpack_from("<IHH", data, at)
        trace_bytes = struct.unpack_from("<Q", data, at + 8)[0] if kind == AUXTRACE else 0
        if kind == SAMPLE:
            samples += 1
            if samples >= first and samples % nth == 0:
                raw = at + 8 + 4 * 8 + 4  # after id, ip, pid and tid, time, and the raw data's size
                assert struct.unpack_from("<I", data, raw + 8)[0] == 1
                struct.pack_into("<I", data, raw + 8, 77)
                changed += 1
        at += length + trace_bytes
    with open(path, "wb") as file:
        file.write(data)
    return changed


def unknown_version(folder):
    """Samples that cannot be used are refused by name; what depends on them is marked."""
    out = record(folder, [build(folder), LIVES])
    changed = damage(out, 97, 500)
    text, got = findings(out), Comparison(out)
    named = re.search(r"(\d+) records? (?:is|are) not used: announcements in version 77 of the format", text)
    check("another version is named", named and int(named[1]) == changed, text[-1000:])
    check("lost samples: numbers are missing", text.count("is lost (number") >= changed // 2, text[-1000:])
    check("lost samples: nothing is silently wrong", got.is_marked() and not got.is_exact(), got.text)
    print("      ", got.text.strip())


def main():
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        return 77
    tests = [exact, others, names, late, forks, outside, overrun, unknown_version]
    for test in tests:
        if len(sys.argv) > 1 and test.__name__ not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
    return 1 if emulate.failures else 0


if __name__ == "__main__":
    sys.exit(main())
