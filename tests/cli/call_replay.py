"""Replays the calls of a program from its ground truth (docs/FORMAT-truth.md) with the symbols of nm: a second source for the calls and
instructions of `ptdecode functions`. It does not read packets, only the executed bytes."""
import bisect
import collections
import re
import subprocess

import plt_stubs
import varints


def truth_blocks(path):
    """Yields ('run', [(ip, bytes), ...]) for each block, ('lost',), ('async', ip) in order."""
    packed = path.read_bytes()
    assert packed[:8] == b"PTDTRUTH"
    end = b"\x01\x00\x00"  # a frame without an end mark: an empty last block (RFC 8878, "Blocks")
    done = subprocess.run(["zstd", "-dcq"], input=packed[16:], capture_output=True)
    if done.returncode != 0:  # the program was killed
        done = subprocess.run(["zstd", "-dcq"], input=packed[16:] + end, capture_output=True, check=True)
    data = done.stdout
    blocks, at = [], 0
    while at < len(data):
        try:
            what, at = varints.read(data, at)
            if what == 0:
                _, at = varints.read(data, at)
                ip, at = varints.read(data, at)
                count, at = varints.read(data, at)
                lengths = data[at:at + count]
                at += count
                insns = []
                for length in lengths:
                    insns.append((ip, data[at:at + length]))
                    ip += length
                    at += length
                blocks.append(insns)
            elif what == 1:
                number, at = varints.read(data, at)
                first, at = varints.read(data, at)
                count, at = varints.read(data, at)
                yield "run", blocks[number][first:first + count]
            elif what == 2:
                yield "lost", None
            elif what in (3, 6):
                pass
            elif what == 4:
                _, at = varints.read(data, at)
                _, at = varints.read(data, at)
                yield "psb", None
            elif what == 5:
                _, at = varints.read(data, at)
                ip, at = varints.read(data, at)
                yield "async", ip
            else:
                yield "run", blocks[what - 8]
        except IndexError:
            return


class Symbols:
    """The functions of a static program, according to nm, and the stubs of its procedure linkage table."""

    def __init__(self, program):
        listing = subprocess.run(["nm", "-S", "--defined-only", str(program)], capture_output=True, text=True, check=True).stdout
        self.program = str(program).rsplit("/", 1)[-1]
        segments = subprocess.run(["readelf", "-lW", str(program)], capture_output=True, text=True, check=True).stdout
        self.segments = [tuple(int(each, 16) for each in match) for match in
                         re.findall(r"(?m)^ +LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+)", segments)]  # offset, address, size
        found = {}
        for line in listing.splitlines():
            match = re.match(r"^([0-9a-f]+)(?: ([0-9a-f]+))? ([tTwWiI]) (.+)$", line)
            if match:
                start, size = int(match[1], 16), int(match[2] or "0", 16)
                end, names = found.get(start, (start, []))
                found[start] = (max(end, start + size), names + [match[4] + ("@resolver" if match[3] in "iI" else "")])
        for start, name in self.local_names(program):
            if start in found:
                found[start][1].append(name)
        sizeless = {start for start, (end, _) in found.items() if end == start}
        for at, names in plt_stubs.stubs(program).items():
            found.setdefault(at, (at + 1, []))[1].extend(names)
        self.starts = sorted(found)
        self.found = found
        self.extend(sizeless, program)
        by_name = {name: start for start in self.starts for name in found[start][1]}
        self.whole = {}  # code that the compiler moved out of line belongs to its function
        for start in self.starts:
            for name in found[start][1]:
                if ".cold" in name and name.split(".cold")[0] in by_name:
                    self.whole[start] = by_name[name.split(".cold")[0]]

    @staticmethod
    def local_names(program):
        """Local functions with the source file that the symbol table names before them: of several with one name, the file tells which."""
        file = None
        for line in subprocess.run(["readelf", "-sW", str(program)], capture_output=True, text=True, check=True).stdout.splitlines():
            match = re.match(r" *\d+: ([0-9a-f]+) +\S+ (\w+) +(\w+) +\w+ +\w+ (.+)$", line)
            if match and match[2] == "FILE":
                file = match[4]
            elif match and (match[2], match[3]) == ("FUNC", "LOCAL") and file:
                yield int(match[1], 16), f"{file}:{match[4]}"

    def extend(self, sizeless, program):
        """As in gdb: a symbol without a size reaches up to the next symbol or the end of its section, and names nothing within one with a size."""
        listing = subprocess.run(["readelf", "-SW", str(program)], capture_output=True, text=True, check=True).stdout
        sections = [tuple(int(each, 16) for each in match) for match in
                    re.findall(r"(?m)^ +\[ *\d+\] +\S+ +\w+ +(\w+) \w+ (\w+) \w+ +\w*AX", listing)]
        end = 0
        for at in list(self.starts):
            end = max(end, self.found[at][0])
            if at in sizeless and at < end:
                self.starts.remove(at)
                sizeless.remove(at)
        for at in sizeless:
            index = self.starts.index(at)
            bounds = [first + size for first, size in sections if first <= at < first + size] + self.starts[index + 1:index + 2]
            self.found[at] = (min(bounds, default=at + 1), self.found[at][1])

    def start(self, ip):
        """Returns the start of the function at ip, or None."""
        index = bisect.bisect_right(self.starts, ip) - 1
        if index < 0 or ip >= self.found[self.starts[index]][0]:
            return None
        return self.whole.get(self.starts[index], self.starts[index])

    def names(self, start):
        """Returns its symbols; without any, the program and the offset in its file."""
        if start in self.found:
            return self.found[start][1]
        return [f"{self.program}+{start - address + offset:#x}" for offset, address, size in self.segments if address <= start < address + size]


def kind_of(insn):
    """Returns call, ret, jump, or None for the bytes of one instruction."""
    at = 0
    while insn[at] in (0x66, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65, 0x67) or 0x40 <= insn[at] <= 0x4f:
        at += 1
    op = insn[at]
    if op == 0xe8:
        return "call"
    if op in (0xc2, 0xc3):
        return "ret"
    if op in (0xe9, 0xeb) or 0x70 <= op <= 0x7f or 0xe0 <= op <= 0xe3:
        return "jump"
    if op == 0x0f and 0x80 <= insn[at + 1] <= 0x8f:
        return "jump"
    if op == 0x0f and insn[at + 1] == 0x05:
        return "syscall"
    if op == 0xff:
        return {2: "call", 4: "jump"}.get(insn[at + 1] >> 3 & 7)
    return None


def packet_of(insn):
    """Returns the trace unit's output for an instruction: "bit", "target" (of a call or jump), "ret", "off" (the kernel is not traced), or
    None."""
    kind = kind_of(insn)
    at = 0
    while insn[at] in (0x66, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65, 0x67) or 0x40 <= insn[at] <= 0x4f:
        at += 1
    if insn[at] == 0xff and kind:
        return "target"
    if kind == "jump":
        return None if insn[at] in (0xe9, 0xeb) else "bit"
    return {"ret": "ret", "syscall": "off"}.get(kind)


class Packets:
    """Models when a trace unit outputs packets: a TNT when it is full or another packet is output. Returns are compressed, if enabled, by
    [SDM] "Indirect Transfer Compression for Returns". The ticks between two outputs are shared out by instructions: the trace has no more
    precise time."""

    def __init__(self, tnt_bits, compressed):
        self.tnt_bits, self.compressed = tnt_bits, compressed
        self.bits = 0
        self.calls = collections.deque(maxlen=64)
        self.ran = collections.Counter()
        self.ticks = 0
        self.own = collections.Counter()
        self.due = self.psb_due = False  # a return whose target is pending; a PSB before the next instructions

    def leave(self):
        total = sum(self.ran.values())
        for start, count in self.ran.items():
            self.own[start] += self.ticks * count / total
        self.ran.clear()
        self.bits = self.ticks = 0

    def begin(self, ip):
        if self.due:
            expected = self.calls.pop() if self.compressed and self.calls else None
            if expected != ip:
                self.calls.clear()
            self.bit() if expected == ip else self.leave()
            self.due = False
        if self.psb_due:
            self.leave()
            self.calls.clear()
            self.psb_due = False

    def bit(self):
        self.bits += 1
        if self.bits == self.tnt_bits:
            self.leave()

    def take(self, start, insns):
        """Adds a run of instructions of the function at `start`."""
        self.ran[start] += len(insns)
        self.ticks += sum(ticks_of(ip) for ip, _ in insns)
        address, code = insns[-1]
        what = packet_of(code)
        if kind_of(code) == "call" and code[:5] != b"\xe8\0\0\0\0":
            self.calls.append(address + len(code))
        if what == "bit":
            self.bit()
        elif what == "ret":
            self.due = True
        elif what:
            self.leave()


def ticks_of(ip):
    """Returns the ticks of the clock of `record --emulate --work-clock` (capture/emulate/shared/work_clock.h), at 2 GHz; a system call
    takes 5,000 more."""
    return 1 + (ip >> 6 & 7)


def replay(path, symbols, packets=None):
    """Returns start -> [calls, own instructions, instructions with callees (recursion once), own ticks, ticks with callees], of one thread
    whose flow is never lost. Ticks are those of instructions, without system calls."""
    totals = collections.defaultdict(lambda: [0, 0, 0, 0, 0])
    stack = []  # [start, return address, instructions and ticks at its entry]
    executed = ticks = 0
    last = None  # (kind, address after it)

    def push(start, back, counts):
        stack.append([start, back, executed, ticks])
        totals[start][0] += counts

    def pop():
        start, _, began, began_ticks = stack.pop()
        if all(frame[0] != start for frame in stack):
            totals[start][2] += executed - began
            totals[start][4] += ticks - began_ticks

    for what, insns in truth_blocks(path):
        if what == "psb" and packets:
            packets.psb_due = True
        if what != "run" or not insns:
            continue
        ip = insns[0][0]
        if packets:
            packets.begin(ip)
        here = symbols.start(ip)
        if not stack:
            push(here, None, 1 if here == ip else 0)
        elif last and last[0] == "call" and ip != last[1]:
            push(ip if here is None else here, last[1], 1)  # code without a symbol (PLT) is identified by its address
        elif last and last[0] == "ret":
            awaited = [i for i, frame in enumerate(stack) if frame[1] == ip]
            if awaited:
                while len(stack) > awaited[-1]:
                    pop()
        elif last and last[0] == "jump" and len(insns) == 1 and kind_of(insns[0][1]) == "ret":
            pass  # a return through a thunk
        elif last and last[0] == "jump" and here is not None and (here != symbols.start(last[2]) or (here == ip and packet_of(last[3]) == "target")):
            if here == ip:
                back = stack[-1][1]
                pop()
                push(here, back, 1)
            elif any(frame[0] == here for frame in stack):
                while stack[-1][0] != here:
                    pop()
            else:  # into the middle of another function: the flow continues under that name, and no call is counted
                back = stack[-1][1]
                pop()
                push(here, back, 0)
        passed = sum(ticks_of(each) for each, _ in insns)
        totals[stack[-1][0]][1] += len(insns)
        totals[stack[-1][0]][3] += passed
        executed += len(insns)
        ticks += passed
        if packets:
            packets.take(stack[-1][0], insns)
        address, code = insns[-1]
        last = (kind_of(code), address + len(code), address, code)
    while stack:
        pop()
    if packets:
        packets.leave()
    return totals, executed
