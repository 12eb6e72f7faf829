"""Reads the records of a perf.data file (linux/perf_event.h; tools/perf/Documentation/perf.data-file-format.txt)."""
import struct

AUXTRACE = 71  # PERF_RECORD_AUXTRACE, which is followed by its trace


def records(content):
    """Returns offset, type and size of each record, and where they end."""
    at, size = struct.unpack_from("<QQ", content, 40)
    end, found = at + size, []
    while at < end:
        kind, _, record = struct.unpack_from("<IHH", content, at)
        found.append((at, kind, record))
        at += record + (struct.unpack_from("<Q", content, at + 8)[0] if kind == AUXTRACE else 0)
    return found, end


def aux_traces(content):
    """Returns the trace of each AUXTRACE record."""
    return [content[at + size:at + size + struct.unpack_from("<Q", content, at + 8)[0]] for at, kind, size in records(content)[0] if kind == AUXTRACE]
