"""Support for the tests of recordings of this machine: the program, perf, BPF programs by system call, a reader of perf.data's records."""
import ctypes
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import time

PTDECODE = os.environ.get("PTDECODE", "ptdecode")
SKIP = 77
LIBC = ctypes.CDLL(None, use_errno=True)
NR_BPF = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine)
FINISHED = struct.pack("<IHH", 68, 0, 8)


def need_events():
    """Exits with the skip status if this user cannot open system-wide events."""
    if os.geteuid() != 0 or not os.path.exists("/proc/sys/kernel/perf_event_paranoid"):
        print("skipped: needs root and perf events")
        sys.exit(SKIP)
    number = {"x86_64": 298, "aarch64": 241}.get(os.uname().machine)
    attr = ctypes.create_string_buffer(struct.pack("<IIQ", 1, 112, 9), 112)  # PERF_COUNT_SW_DUMMY, for all threads on the first cpu
    fd = LIBC.syscall(number, attr, -1, 0, -1, 8) if number else -1
    if fd < 0:
        print(f"skipped: perf_event_open: {os.strerror(ctypes.get_errno())}" if number else "skipped: not tried on this machine")
        sys.exit(SKIP)
    os.close(fd)


def ptdecode(*words, **options):
    options.setdefault("timeout", 120)
    return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, **options)


def perf():
    return shutil.which("perf")


class PerfData:
    """Records and sections of a perf.data file, after tools/perf/Documentation/perf.data-file-format.txt. Stops at the first incomplete
    record."""

    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        magic, size, attr_size, attrs_at, attrs_size, self.data_at, self.data_size = struct.unpack_from("<8sQQQQQQ", data)
        assert magic == b"PERFILE2" and size == 104, magic
        self.finished = self.data_size != 0
        end = self.data_at + self.data_size if self.finished else len(data)
        self.records, self.aux, at, self.cut = [], [], self.data_at, False  # aux: (offset, index of the ring, bytes)
        while at < end:
            if end - at < 8:
                self.cut = True
                break
            kind, misc, length = struct.unpack_from("<IHH", data, at)
            if length < 8 or at + length > end:
                self.cut = True
                break
            body = data[at + 8:at + length]
            at += length
            if kind == 71:
                size, offset, _, index = struct.unpack_from("<QQQI", body)
                if at + size > end:
                    self.cut = True
                    break
                self.aux.append((offset, index, data[at:at + size]))
                at += size
            self.records.append((kind, misc, body))
        self.sections = {}
        if self.finished:
            bits = struct.unpack_from("<4Q", data, 72)
            table = end
            for bit in range(256):
                if bits[bit // 64] >> (bit % 64) & 1:
                    where, length = struct.unpack_from("<QQ", data, table)
                    self.sections[bit] = data[where:where + length]
                    table += 16

    def times(self, kinds):
        """Returns (type, pid, tid, time) of records with the trailer of every event here: tid, time, cpu, identifier."""
        for kind, misc, body in self.records:
            if kind in kinds:
                pid, tid, when = struct.unpack_from("<IIQ", body, len(body) - 32)
                yield kind, pid, tid, when

    def bpf_programs(self):
        """Returns id -> code, from HEADER_BPF_PROG_INFO (struct perf_bpil: info_len, data_len, arrays, bpf_prog_info, data)."""
        section = self.sections.get(25, b"")
        programs, at = {}, 4
        for _ in range(struct.unpack_from("<I", section)[0] if section else 0):
            info_len, data_len, arrays = struct.unpack_from("<IIQ", section, at)
            info = section[at + 16:at + 16 + info_len]
            data = section[at + 16 + info_len:at + 16 + info_len + data_len]
            at += 16 + info_len + data_len
            number, jited_len = struct.unpack_from("<4xI8xI", info)
            offset = struct.unpack_from("<Q", info, 24)[0]
            if arrays & 1:
                programs[number] = data[offset:offset + jited_len]
        return programs


def bpf(command, attr):
    buffer = ctypes.create_string_buffer(bytes(attr), max(len(attr), 128))
    got = LIBC.syscall(NR_BPF, command, buffer, len(buffer))
    if got < 0:
        raise OSError(ctypes.get_errno(), "bpf")
    return got, buffer.raw


def load_bpf(name=b"live", shape=3):
    """Loads a socket filter of some length and returns its descriptor."""
    insns = b"".join(struct.pack("<BBhi", 0xb7, i % 5, 0, i * shape) for i in range(20)) + struct.pack("<BBhi", 0xb7, 0, 0, shape) + struct.pack("<BBhi", 0x95, 0, 0, 0)
    code, licence = ctypes.create_string_buffer(insns), ctypes.create_string_buffer(b"GPL")
    attr = struct.pack("<IIQQIIQII16s", 1, len(insns) // 8, ctypes.addressof(code), ctypes.addressof(licence), 0, 0, 0, 0, 0, name)
    return bpf(5, attr)[0]


def bpf_info(fd):
    """Returns (id, code) of a program, as reported by the kernel to owners of its descriptor."""
    code, info = ctypes.create_string_buffer(65536), ctypes.create_string_buffer(256)
    struct.pack_into("<IQ", info, 16, 65536, 0)
    struct.pack_into("<IIQ", info, 16, 65536, 0, ctypes.addressof(code))
    bpf(15, struct.pack("<IIQ", fd, 256, ctypes.addressof(info)))
    number, length = struct.unpack_from("<4xI8xI", info.raw)
    return number, code.raw[:length]


def told_maps(data, pid):
    """Returns the mappings of a process that were recorded while it ran, and the counts of the LOST records: each mapping is in one of the
    two."""
    return (sum(mapped == pid and when != 0 for _, mapped, _, when in data.times((10,))),
            [struct.unpack_from("<8xQ", body)[0] for kind, _, body in data.records if kind == 2])


def processes_with(word):
    """Returns the processes with a word in their command line, including those forked by such processes."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(word).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children(pid):
    return [int(word) for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()]


def wait_until(what, seconds=20.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.01)
    return bool(what())
