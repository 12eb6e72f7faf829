"""The parts of bundles and plans (docs/FORMAT.md, "File")."""
import struct
import subprocess

HEADER_BYTES = 16


def checksum(content):
    """Returns FNV-1a, as a bundle has it for each part."""
    value = 0xCBF29CE484222325
    for byte in content:
        value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return value


def number(value):
    """Returns a number with seven bits per byte, the lowest first."""
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def decompressed(stored):
    return subprocess.run(["zstd", "-dqc"], input=stored, capture_output=True, check=True).stdout


def parts_of(bundle):
    """Yields the type and the bytes of each part."""
    at = HEADER_BYTES
    while at < len(bundle):
        kind, _, size = struct.unpack_from("<4sIQ", bundle, at)
        yield kind, bundle[at:at + 32 + size]
        at += 32 + size


def content_of(stored):
    """Returns the content of a part, uncompressed."""
    return decompressed(stored[32:]) if struct.unpack_from("<I", stored, 4)[0] else stored[32:]


def part(kind, content):
    """Returns an uncompressed part."""
    return kind + struct.pack("<IQQQ", 0, len(content), len(content), checksum(content)) + content


def joined(header, parts):
    """Returns a bundle of these parts, of which the last is END, with the number and the checksum of the others' headers."""
    headers = b"".join(stored[:32] for stored in parts[:-1])
    return header + b"".join(parts[:-1]) + part(b"END ", struct.pack("<IQ", len(parts) - 1, checksum(headers)))


def replaced(bundle, contents):
    """Returns the bundle with these contents (by type) for its parts."""
    return joined(bundle[:HEADER_BYTES], [part(kind, contents[kind]) if kind in contents else stored for kind, stored in parts_of(bundle)])


def uncompressed(bundle):
    return joined(bundle[:HEADER_BYTES], [part(kind, content_of(stored)) for kind, stored in parts_of(bundle)])
