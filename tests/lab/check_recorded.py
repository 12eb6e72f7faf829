#!/usr/bin/env python3
"""What record_aux.sh's guest recorded, against the test PMU's pattern and against what the PMU says that it wrote: check_recorded.py OUT."""
import bisect
import collections
import pathlib
import re
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "live"))
from live_support import PerfData  # noqa: E402

FACTOR, ALL = 0x9e3779b97f4a7c15, (1 << 64) - 1
INVERSE = pow(FACTOR, -1, 1 << 64)
FORK, AUX, ID_INDEX = 7, 11, 69
TRUNCATED, OVERWRITE = 1, 2


class Wrong(Exception):
    pass


def need(what, *words):
    if not what:
        raise Wrong(" ".join(map(str, words)))


def pattern(place, size, cpu):
    """Bytes of the stream (aux_module/ptd_aux_test.c)."""
    first, last = place // 8, (place + size + 7) // 8
    words = struct.pack(f"<{last - first}Q", *((number * FACTOR & ALL) ^ cpu << 56 for number in range(first, last)))
    return words[place % 8:place % 8 + size]


def place_of(data, cpu):
    """Where in the stream some bytes stand, from themselves: the factor is odd, so a word tells its number."""
    for shift in range(8):
        if len(data) < shift + 16:
            break
        number = (struct.unpack_from("<Q", data, shift)[0] ^ cpu << 56) * INVERSE & ALL
        place = number * 8 - shift
        if 0 <= place < 1 << 50 and pattern(place, min(len(data), 64), cpu) == data[:64]:
            return place
    return None


def any_place(data):
    for cpu in (0, 1):
        place = place_of(data, cpu)
        if place is not None:
            return place, cpu
    raise Wrong("bytes that the PMU never wrote")


class Recording:
    def __init__(self, path):
        data = PerfData(path)
        need(data.finished and not data.cut, path.name, "is not whole")
        ring_of = {}
        for kind, _, body in data.records:
            if kind == ID_INDEX:
                for at in range(8, len(body) - 31, 32):
                    number, index = struct.unpack_from("<QQ", body, at)
                    ring_of[number] = index
        self.forks = [struct.unpack_from("<IIII", body)[2] for kind, _, body in data.records if kind == FORK]
        self.told = collections.defaultdict(list)  # AUX records of each ring
        for kind, _, body in data.records:
            if kind == AUX:
                self.told[ring_of[struct.unpack_from("<Q", body, len(body) - 8)[0]]].append(struct.unpack_from("<QQQ", body))
        self.bytes = collections.defaultdict(bytes)
        self.begin = {}
        for offset, index, payload in sorted((o, i, p) for o, i, p in data.aux):
            self.begin.setdefault(index, offset)
            need(offset == self.begin[index] + len(self.bytes[index]), "a hole or an overlap in what was read of ring", index, "at", offset)
            self.bytes[index] += payload


def walk(data, place, cpu):
    """Follows the pattern from `place`. Returns (place behind it, bytes lost, losses); a loss is where the pattern goes on further ahead."""
    at, lost, cuts = 0, 0, 0
    while at < len(data):
        size = min(len(data) - at, 1 << 16)
        wanted = pattern(place, size, cpu)
        if wanted == data[at:at + size]:
            at, place = at + size, place + size
            continue
        same = next(i for i in range(size) if wanted[i] != data[at + i])
        # The first bytes after a loss may by chance equal the lost ones: this is the first position from which the rest is the pattern's.
        for back in range(min(same, 7), -1, -1):
            ahead = place_of(data[at + same - back:], cpu)
            if ahead is not None and ahead > place + same - back:
                break
        else:
            raise Wrong("bytes differ at", at + same, "of", len(data))
        lost, cuts = lost + ahead - (place + same - back), cuts + 1
        at, place = at + same - back, ahead
    return place, lost, cuts


def check_full(recording, areas, with_records=True):
    """Every byte from the first to the last, and each loss where a record says so. Returns (bytes, losses)."""
    found = []
    for index, data in recording.bytes.items():
        need(recording.begin[index] == 0, "ring", index, "does not begin at 0")
        if not with_records:
            wrote = min((area["written"] for area in areas if 0 <= len(data) - area["written"] < 8), default=len(data))
            _, lost, cuts = walk(data[:wrote], *any_place(data))
            found.append((wrote, lost, True, cuts))
            continue
        place, lost, cuts, cut, at = 0, 0, 0, False, 0
        for offset, size, flags in sorted(recording.told[index]):
            need(offset == at, "AUX records leave out", at, "to", offset)
            need(offset + size <= len(data), "an AUX record of bytes that are not there:", offset, size, len(data))
            part, at = data[offset:offset + size], offset + size
            if part:
                now, cpu = any_place(part)
                need(now == place or (cut and now > place), "ring", index, "at", offset, "place", now, "after", place)
                need(pattern(now, size, cpu) == part, "ring", index, "bytes differ in", offset, size)
                lost, cuts, cut = lost + now - place, cuts + (now != place), False
                place = now + size
            cut = cut or bool(flags & TRUNCATED)
        need(0 <= len(data) - at < 8 and not any(data[at:]), "bytes that no AUX record tells of:", at, len(data))  # records end at words
        found.append((at, lost, cut, cuts))
    found.sort()
    wrote = sorted((area["written"], area["lost"]) for area in areas if area["written"])
    need([f[0] for f in found] == [w[0] for w in wrote], "read", found, "but the PMU wrote", wrote)
    for (_, lost, open_end, _), (_, says) in zip(found, wrote):
        need(lost == says or (open_end and lost < says), "losses of", lost, "but the PMU says", says)
    return sum(f[0] for f in found), sum(f[3] for f in found)


def check_pieces(recording, area_bytes, jump=0):
    """What overwrite mode leaves: one piece a ring, but for losses of `jump` bytes. Returns {cpu: (end, size)}."""
    ends = {}
    for index, data in recording.bytes.items():
        need(all(flags & OVERWRITE for _, _, flags in recording.told[index]), "an AUX record without its overwrite flag")
        need(len(data) <= area_bytes, "more than the area")
        place, cpu = any_place(data)
        end, lost, cuts = walk(data, place, cpu)
        need(lost == cuts * jump, "ring", index, "is not of one piece:", lost, "bytes in", cuts, "places")
        need(cpu not in ends, "two rings of one cpu")
        ends[cpu] = (end, len(data))
    return ends


def log_of(out, name):
    text = (out / f"{name}.log").read_text()
    need("status 0" in text or "status" not in text, name, text)
    return text


def check_session(out, name, areas, jump=0):
    before, forks, gaps, pieces = {}, 0, [], 0
    paths = sorted(out.glob(f"{name}.*.data"))
    need(len(paths) >= 2, "no snapshots")
    for path in paths:
        recording = Recording(path)
        gap = re.search(r"gap of ([\d.]+) ms", log_of(out, path.stem))
        need(gap, "no gap is told")
        gaps.append(float(gap[1]))
        now = check_pieces(recording, 65536, jump)
        need(now, path.name, "contains no trace")
        for cpu, (end, size) in now.items():
            need(end > before.get(cpu, (0, 0))[0] or name == "outlived", path.name, "cpu", cpu, "is no newer than the one before")
            need(size == min(end, 65536) or jump, path.name, "cpu", cpu, size, "of", end)
        need(len(set(recording.forks)) == len(recording.forks), "a FORK stands there twice")
        need(len(recording.forks) >= forks + (5 if name.startswith(("detached", "taken")) else 0), path.name, "the sideband stood still:", forks, len(recording.forks))
        before, forks, pieces = {**before, **now}, len(recording.forks), pieces + len(now)
    wrote = {area["cpu"]: area["written"] + area["lost"] for area in areas}
    for cpu, (end, _) in before.items():
        if -1 not in wrote:
            need(end == wrote[cpu] if name == "outlived" else end <= wrote[cpu], "cpu", cpu, "ends at", end, "the PMU at", wrote[cpu])
    need(name != "resumed" or min(area["outputs"] for area in areas) > 100, "a trace that lost something did not go on:", areas)
    return f"{len(paths)} snapshots, {pieces} pieces, each of one piece and newer than the one before; gaps of {min(gaps):.3f} to {max(gaps):.3f} ms; {forks} FORKs"


def core_segments(path):
    """address -> bytes of the PT_LOAD segments of an ELF core."""
    data = path.read_bytes()
    at, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    found = {}
    for i in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, at + i * size)
        if kind == 1:
            found[address] = data[offset:offset + length]
    return found


def check_kcore(out):
    """Both copies; they differ where a record says so, and nowhere else. A module that came is in the later one."""
    log_of(out, "kcore")
    folder = out / "kcore.data"
    before, after = (core_segments(folder / name / "kcore") for name in ("kcore_dir", "kcore_dir_after"))
    modules = [(folder / name / "modules").read_text() for name in ("kcore_dir", "kcore_dir_after")]
    need("dummy" not in modules[0] and "dummy" in modules[1], "the module")
    # A module's memory is copied as a whole: code is the bytes after a code symbol.
    names = re.findall(r"^(\w+) (\w) ", (folder / "kcore_dir_after" / "kallsyms").read_text(), re.M)
    symbols = sorted((int(address, 16), kind) for address, kind in names)
    places = [address for address, _ in symbols]
    poked, records = set(), 0
    for kind, _, body in PerfData(folder / "data").records:
        if kind == 20:  # TEXT_POKE: address, old_len, new_len
            address, old, new = struct.unpack_from("<QHH", body)
            records += 1
            poked.update(range(address, address + max(old, new)))
    changed = 0
    for address, now in after.items():
        was = before.get(address)
        if was is None or len(was) != len(now) or was == now:
            continue
        differ = [address + i for i in range(len(now)) if was[i] != now[i] and symbols[max(bisect.bisect(places, address + i) - 1, 0)][1] in "tT"]
        changed += len(differ)
        need(set(differ) <= poked, "code changed that no record tells of:", [hex(a) for a in differ if a not in poked][:5])
    need(changed > 0, "nothing changed")
    return f"{len(before)} and {len(after)} pieces of code; {changed} bytes differ, each told by one of {records} TEXT_POKE records"


def check(out, name, areas):
    if name == "kcore":
        return check_kcore(out)
    need(areas, "the PMU says nothing")
    if name.startswith(("detached", "taken_over", "outlived", "resumed")):
        return check_session(out, name, areas, 300 if name == "resumed" else 0)
    recording, text = Recording(out / f"{name}.data"), log_of(out, name) if name != "killed" else ""
    if name == "snapshot":
        ends = check_pieces(recording, 65536)
        need({cpu: end for cpu, (end, _) in ends.items()} == {area["cpu"]: area["written"] for area in areas}, ends, areas)
        need(all(size == 65536 for _, size in ends.values()), ends)
        return f"the last {sum(size for _, size in ends.values())} of {sum(area['written'] for area in areas)} bytes, of {len(ends)} cpus"
    size, losses = check_full(recording, areas, name != "zipped")
    need(name != "losses" or losses > 30, losses, "losses")
    if name == "cut":
        # Each time that the recorder woke up again the traces of both cpus went on.
        for index, told in recording.told.items():
            cuts = [offset for offset, _, flags in sorted(told) if flags & TRUNCATED]
            need(len(cuts) >= 5 and "was cut" in text, "ring", index, "was cut", len(cuts), "times")
            need(len(recording.bytes[index]) > cuts[-1] + 100000, "ring", index, "did not go on behind its last cut")
    return f"{size} bytes in {len(recording.bytes)} areas equal, as many as the PMU wrote; {losses} losses, each where a record says so"


def main():
    out = pathlib.Path(sys.argv[1])
    runs, name = collections.defaultdict(list), None
    for line in (out / "dmesg").read_text().split("\n"):
        if (match := re.search(r"\] run (\w+)$", line)):
            name = match[1]
            runs[name]
        elif (match := re.search(r"area cpu (-?\d+) written (\d+) lost (\d+) outputs (\d+)", line)):
            runs[name].append(dict(zip(("cpu", "written", "lost", "outputs"), map(int, match.groups()))))
    failures = 0
    if "unloaded" not in runs or (out / "left_over").exists():
        failures += 1
        print("FAILED: the module is still in use, or a process is left over")
    for name, areas in runs.items():
        if name == "unloaded":
            continue
        try:
            print(f"{name}: {check(out, name, areas)}")
        except Exception as error:  # one run's failure is not the others'
            failures += 1
            print(f"FAILED {name}: {type(error).__name__}: {error}")
    print("recorded: all equal" if not failures and len(runs) > 1 else f"recorded: {failures} failures")
    sys.exit(1 if failures or len(runs) < 2 else 0)


main()
