"""A recording with losses: the project's kernel demo, with stretches of its trace overwritten and records of lost trace added.

What is lost is known: each stretch of bytes, and each flag of an AUX record (perf_event_open(2), "PERF_RECORD_AUX").
"""
import pathlib
import shutil
import struct

AUX, AUXTRACE, TRUNCATED = 11, 71, 1
STRETCHES, STRETCH_BYTES = 12, 150


def make(demo, folder):
    """Copies the demo's folder to `folder` and damages its trace. Returns the new folder."""
    shutil.copytree(demo, folder)
    path = pathlib.Path(folder) / "data"
    data = bytearray(path.read_bytes())
    at, size = struct.unpack_from("<2Q", data, 40)  # the data section, in the header
    end, aux_records = at + size, 0
    while at + 8 <= end:
        kind, _, record_bytes = struct.unpack_from("<IHH", data, at)
        if kind == AUX:
            aux_records += 1
            if aux_records % 3 == 0:
                struct.pack_into("<Q", data, at + 24, struct.unpack_from("<Q", data, at + 24)[0] | TRUNCATED)
        if kind == AUXTRACE:
            payload, = struct.unpack_from("<Q", data, at + 8)
            for index in range(STRETCHES):
                first = at + record_bytes + payload * (index + 1) // (STRETCHES + 1)
                data[first:first + min(STRETCH_BYTES, payload)] = b"\xff" * min(STRETCH_BYTES, payload)
            record_bytes += payload
        at += record_bytes
    path.write_bytes(data)
    return pathlib.Path(folder)
