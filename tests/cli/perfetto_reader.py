"""Reads a Perfetto trace as ui.perfetto.dev does, limited to tracks, slices and instants: decodes protobuf's wire format with the field
numbers of perfetto/protos/perfetto/trace. Raises ValueError on data that its importer would drop."""
import collections
import struct

import varints


def fields(data):
    """Yields (field, value): ints for varints, floats, and bytes for the rest."""
    at = 0
    while at < len(data):
        key, at = varints.read(data, at)
        if key & 7 == 0:
            value, at = varints.read(data, at)
        elif key & 7 == 2:
            size, at = varints.read(data, at)
            if at + size > len(data):
                raise ValueError("a field runs past its message")
            value, at = data[at:at + size], at + size
        elif key & 7 == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        else:
            raise ValueError(f"wire type {key & 7}")
        yield key >> 3, value


def one(data, field, default=None):
    return dict(fields(data)).get(field, default)


def read(data):
    """Returns (tracks: uuid -> {...}, slices: [(track, depth, name, begin, end)], instants: [(track, name, time)])."""
    return read_all(data)[:3]


def read_all(data):
    """Returns what read() does, counters: [(track, value, time)], and notes: [(track, name of the note, value)]."""
    tracks, names, events, cleared = {}, {}, [], False
    note_names, counters, notes = {}, [], []
    for field, packet in fields(data):
        if field != 1:
            raise ValueError(f"field {field} is no packet")
        content = collections.defaultdict(list)
        for inner, value in fields(packet):
            content[inner].append(value)
        if content[10] != [1]:
            raise ValueError("a packet of no sequence")
        flags = content[13][0]
        if flags & 1:
            names, cleared = {}, True
        if flags & 2 and not cleared:
            raise ValueError("needs state that was never cleared")
        for interned in content[12]:
            for kind, entry in fields(interned):
                if kind == 3:
                    note_names[one(entry, 1)] = one(entry, 2).decode()
                if kind == 2:
                    names[one(entry, 1)] = one(entry, 2).decode()
        for descriptor in content[60]:
            found = dict(fields(descriptor))
            parent = found.get(5)
            if parent is not None and parent not in tracks:
                raise ValueError("a track before its parent")
            thread = dict(fields(found[4])) if 4 in found else {}
            tracks[found[1]] = {"name": found.get(2, b"").decode(), "tid": thread.get(2), "pid": thread.get(1), "thread": thread.get(5, b"").decode(), "parent": parent,
                                "counter": 8 in found}
        for event in content[11]:
            found = dict(fields(event))
            if found[11] not in tracks:
                raise ValueError("an event of an unknown track")
            kind = found[9]
            if (kind == 4) != tracks[found[11]]["counter"]:
                raise ValueError("a counter on a track of events, or an event on one of counters")
            if kind == 4:
                counters.append((found[11], found[30] if 30 in found else found[44], content[8][0]))
                continue
            for note in (dict(fields(value)) for inner, value in fields(event) if inner == 4):
                notes.append((found[11], note_names[note[1]], note[3]))
            if kind != 2 and found[10] not in names:
                raise ValueError("a name that was never given")
            events.append((content[8][0], len(events), kind, found[11], names.get(found.get(10))))
    slices, instants, stacks = [], [], collections.defaultdict(list)
    for time, _, kind, track, name in sorted(events, key=lambda event: event[:2]):  # the importer sorts by time, stably
        if kind == 1:
            stacks[track].append((name, time))
        elif kind == 2:
            if not stacks[track]:
                raise ValueError("an end without a beginning")
            begun, start = stacks[track].pop()
            slices.append((track, len(stacks[track]), begun, start, time))
        else:
            instants.append((track, name, time))
    if any(stacks.values()):
        raise ValueError("slices without an end")
    return tracks, slices, instants, counters, notes
