"""Reads a page of `ptdecode report`, and makes the recordings that its tests use."""
import html.parser
import json
import os
import pathlib
import shutil
import struct
import subprocess

PTDECODE = os.environ["PTDECODE"]
SOURCE = pathlib.Path(os.environ["PTDECODE_SOURCE"]).resolve()
CORPUS = pathlib.Path(os.environ.get("PTDECODE_CORPUS", SOURCE / ".." / "shared" / "corpus")).resolve()
KERNEL = SOURCE / "data/kernel/kernel.bundle"
PROGRAM = r"""
#include <string.h>
static volatile int sink;
__attribute__((noinline)) int leaf(int x) { sink += x; return x * 3; }
__attribute__((noinline)) int middle(int x) { int sum = 0; for (int i = 0; i < x; ++i) sum += leaf(i); return sum; }
int main(void) { int sum = 0; for (int i = 0; i < 40; ++i) sum += middle(i); return sum == 0; }
"""


class Page(html.parser.HTMLParser):
    """The elements of a page with their attributes, and what its data element holds."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.title, self.scripts, self._open = [], "", [], []
        self.feed(text)
        self.close()
        self.data = json.loads(next(text for attributes, text in self.scripts if attributes.get("id") == "data"))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        self._open = self._open[:-1]

    def handle_data(self, data):
        if self._open[-1:] == ["script"]:
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._open[-1:] == ["title"]:
            self.title += data


def run(*words, check=True, timeout=300):
    done = subprocess.run([PTDECODE, *map(str, words)], capture_output=True, timeout=timeout,
                          env={**os.environ, "PTDECODE_STASH": "off", "DEBUGINFOD_URLS": ""})
    if check and done.returncode not in (0, 3):
        raise AssertionError((words, done.stderr))
    return done


def report(recording, path, *words):
    run("report", "-q", "-i", recording, "-o", path, *words)
    return pathlib.Path(path).read_bytes()


def lines(*words):
    return [json.loads(line) for line in run(*words).stdout.decode().splitlines()]


def record_program(folder):
    """Records a small program under the emulator; None without qemu-user."""
    if shutil.which("qemu-x86_64") is None:
        return None
    source, program = folder / "program.c", folder / "program"
    source.write_text(PROGRAM)
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-static", "-g", "-o", program, source], check=True)
    run("record", "--emulate", "--plugin", os.environ["PTDECODE_PLUGIN"], "--no-stash", "-q", "-o", folder / "program.data", "--", program)
    return folder / "program.data"


def records(raw):
    """Yields the offset, type and size of each record of a perf.data file, and the size of the trace after it."""
    at, size = struct.unpack_from("<2Q", raw, 40)
    end = at + size
    while at < end:
        kind, _, length = struct.unpack_from("<IHH", raw, at)
        payload = struct.unpack_from("<Q", raw, at + 8)[0] if kind == 71 else 0
        yield at, kind, length, payload
        at += length + payload


def with_losses(path, out):
    """Copies a recording; parts of its trace become zero bytes, as of a ring that was overwritten."""
    raw = bytearray(path.read_bytes())
    for at, _, length, payload in list(records(raw)):
        for part in range(1, 4 if payload > 1024 else 1):
            start = at + length + payload * part // 4
            raw[start:start + 128] = bytes(128)
    out.write_bytes(raw)
    return out


def without_trace(path, out):
    """Copies a recording without its trace: what a `perf record` of other events leaves."""
    raw = path.read_bytes()
    at, size = struct.unpack_from("<2Q", raw, 40)
    kept = b"".join(raw[start:start + length] for start, kind, length, _ in records(raw) if kind not in (11, 70, 71))
    header = bytearray(raw[:at])
    struct.pack_into("<2Q", header, 40, at, len(kept))
    shift = size - len(kept)
    tail = bytearray(raw[at + size:])
    features = sum(bin(word).count("1") for word in struct.unpack_from("<4Q", raw, 72))
    for i in range(features):  # the sections of the features are after the data
        offset, length = struct.unpack_from("<2Q", tail, 16 * i)
        struct.pack_into("<2Q", tail, 16 * i, offset - shift, length)
    out.write_bytes(bytes(header) + kept + bytes(tail))
    return out
