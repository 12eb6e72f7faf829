"""The C API through ctypes, with its own definition of the structs of ptdecode.h."""
import ctypes as c

NONE, UNKNOWN, NEXT = 0xFFFFFFFF, -(1 << 63), (1 << 63) - 1
FLOW, BRANCHES, CALLS = 0, 1, 2
BLOCKS, MARK, EVENT, GAP, BRANCH_RUN, CALL = 1, 2, 3, 4, 5, 6
U8, U16, U32, U64, I32, I64, STR, PTR, SIZE = c.c_uint8, c.c_uint16, c.c_uint32, c.c_uint64, c.c_int32, c.c_int64, c.c_char_p, c.c_void_p, c.c_size_t


def struct(name, *fields, base=c.Structure):
    return type(name, (base,), {"_fields_": [(word, kind) for kind, words in fields for word in words.split()]})


StreamInfo = struct("StreamInfo", (SIZE, "size"), (I32, "cpu tid"), (U64, "size_bytes"), (I64, "first_ns last_ns"), (STR, "protocol source"))
PtConfig = struct("PtConfig", (SIZE, "size"), (U32, "pmu_type"), (U16, "time_shift"), (U8, "snapshot reserved"), (U32, "time_mult"), (U64, "time_zero"),
                  (U32, "tsc_ctc_ratio_n tsc_ctc_ratio_d max_nonturbo_ratio"), (STR, "cpuid filter"))
CursorOptions = struct("CursorOptions", (SIZE, "size"), (I32, "kind"), (U32, "stream"), (I64, "first_ns last_ns"), (PTR, "control"), (U32, "threads reserved"))
Block = struct("Block", (U64, "ip"), (PTR, "code"), (U32, "code_bytes id"), (U16, "instructions flags"), (U8, "mode"), (U8 * 3, "reserved"))
Event = struct("Event", (U8, "kind flags"), (STR, "name"), (U64, "start to payload aux offset_bytes"))
Gap = struct("Gap", (U8, "reason"), (STR, "name sentence"), (U64, "ip offset_bytes lost_bytes"))
Branch = struct("Branch", (U64, "start to"), (STR, "kind"), (U32, "instructions"), (U16, "flags reserved"))
Call = struct("Call", (STR, "what kind function module comm"), (U32, "depth"), (U8, "start_seen end_seen kernel estimated"), (I64, "start_ns end_ns"),
              (U64, "self_ns off_cpu_ns untraced_ns lost_ns instructions self_instructions cycles self_cycles"))
Blocks = struct("Blocks", (c.POINTER(Block), "items"), (SIZE, "count"))
Branches = struct("Branches", (c.POINTER(Branch), "items"), (SIZE, "count"))
Union = struct("Union", (Blocks, "blocks"), (Event, "event"), (Gap, "gap"), (Branches, "branches"), (Call, "call"), (U64 * 32, "reserved"), base=c.Union)
Item = struct("Item", (SIZE, "size"), (I32, "kind"), (U32, "stream"), (I32, "pid tid cpu"), (U32, "space mode reserved"), (U64, "cycles"),
              (I64, "time_ns time_first_ns time_last_ns"), (Union, "u"))
Place = struct("Place", (SIZE, "size"), (U32, "space mode"), (U64, "ip"), (I64, "time_ns"))
Symbol = struct("Symbol", (SIZE, "size"), (STR, "name module"), (U64, "offset_bytes start size_bytes"), (STR, "file"), (U32, "line reserved"))

Missing = struct("Missing", (SIZE, "size"), (STR, "path build_id reason"))
Lost = struct("Lost", (SIZE, "size"), (U64, "lost_records records aux_truncated aux_partial aux_collision"))
Finding = struct("Finding", (SIZE, "size"), (STR, "kind what"), (U64, "ip"), (I64, "first_ns last_ns"), (PTR, "expected"), (SIZE, "expected_bytes"),
                 (PTR, "found"), (SIZE, "found_bytes"), (U32, "space reserved"))


OpenOptions = struct("OpenOptions", (SIZE, "size"), (U64, "flags"), (PTR, "symfs debug_dirs stashes kcore_after"), (STR, "build_id_cache running_kernel"),
                     (U64, "slack_ns"), (PTR, "control"), (STR, "guestmount guestkallsyms guestmodules guestvmlinux"), (U64, "clock_hz"), (STR, "modules"), (PTR, "images"))
OPEN_OPTIONS_0_1_BYTES = 80  # up to and including `control`


def made(cls, **fields):
    return cls(size=c.sizeof(cls), **fields)


class Api:
    def __init__(self, library):
        self.lib = c.CDLL(library)

    def call(self, name, *words):
        """Returns the code of a call if it is PTD_OK or PTD_END; otherwise raises an exception with the message."""
        message = PTR()
        code = getattr(self.lib, name)(*words, c.byref(message))
        if code > 1:
            text = c.string_at(message.value).decode() if message.value else ""
            self.lib.ptd_free(message)
            raise RuntimeError(f"{name}: {code}: {text}")
        return code

    def open(self, path, options=None):
        recording = PTR()
        self.call("ptd_open", str(path).encode(), None if options is None else c.byref(options), c.byref(recording))
        return recording

    def close(self, recording):
        assert self.lib.ptd_close(recording) == 0

    def streams(self, recording):
        count = U32()
        assert self.lib.ptd_stream_count(recording, c.byref(count)) == 0
        infos = [made(StreamInfo) for _ in range(count.value)]
        for index, info in enumerate(infos):
            assert self.lib.ptd_get_stream(recording, index, c.byref(info)) == 0
        return infos

    def missing(self, recording):
        count = U32()
        assert self.lib.ptd_missing_count(recording, c.byref(count)) == 0
        rows = [made(Missing) for _ in range(count.value)]
        for index, row in enumerate(rows):
            assert self.lib.ptd_get_missing(recording, index, c.byref(row)) == 0
        return rows

    def findings(self, recording):
        count = U32()
        self.call("ptd_finding_count", recording, c.byref(count))
        rows = [made(Finding) for _ in range(count.value)]
        for index, row in enumerate(rows):
            self.call("ptd_get_finding", recording, U32(index), c.byref(row))
        return rows

    def items(self, recording, kind, stream=NONE, first_ns=0, last_ns=0):
        """Yields each item, which is valid until the next one."""
        cursor, item = PTR(), made(Item)
        options = made(CursorOptions, kind=kind, stream=stream, first_ns=first_ns, last_ns=last_ns)
        self.call("ptd_cursor_open", recording, c.byref(options), c.byref(cursor))
        try:
            while self.call("ptd_cursor_next", cursor, c.byref(item)) == 0:
                yield item
        finally:
            assert self.lib.ptd_cursor_free(cursor) == 0

    def text(self, name, *words):
        """Returns the text that a function writes."""
        out = PTR()
        self.call(name, *words, c.byref(out))
        text = c.string_at(out.value).decode()
        self.lib.ptd_free(out)
        return text
