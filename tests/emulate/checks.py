"""What the tests of emulated recordings share: where things are, checks that go on, records of a file."""
import os
import struct

PTDECODE = os.environ["PTDECODE"]
PLUGIN = os.environ["PTDECODE_PLUGIN"]
PROGRAMS = os.path.join(os.environ["PTDECODE_SOURCE"], "tests/emulate/programs")
failures = []


def check(what, good, detail=""):
    print(("ok    " if good else "FAILED"), what, detail if not good else "", flush=True)
    if not good:
        failures.append(what)


def perf_records(path):
    """Yields (type, misc, bytes with the header, trace after an AUXTRACE record) of each record of a perf.data file."""
    with open(path, "rb") as file:
        data = file.read()
    at, size = struct.unpack_from("<QQ", data, 40)
    end = at + size
    while at + 8 <= end:
        kind, misc, length = struct.unpack_from("<IHH", data, at)
        trace_bytes = struct.unpack_from("<Q", data, at + 8)[0] if kind == 71 else 0
        yield kind, misc, data[at:at + length], data[at + length:at + length + trace_bytes]
        at += length + trace_bytes


def is_part_in_order(part, whole):
    """Returns whether `part` is `whole` with parts omitted."""
    rest = iter(whole)
    return all(any(ip == other for other in rest) for ip in part)
