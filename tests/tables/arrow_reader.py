"""Reads tables of libptdecode through the Arrow C data interface, with ctypes only.

Written from Arrow's specification of the interface, independently of the code that fills it.
"""
import ctypes
import struct

c_int, c_int64, c_char_p, c_void_p = ctypes.c_int, ctypes.c_int64, ctypes.c_char_p, ctypes.c_void_p


class ArrowSchema(ctypes.Structure):
    pass


class ArrowArray(ctypes.Structure):
    pass


class ArrowArrayStream(ctypes.Structure):
    pass


RELEASE_SCHEMA = ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowSchema))
RELEASE_ARRAY = ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowArray))
ArrowSchema._fields_ = [("format", c_char_p), ("name", c_char_p), ("metadata", c_char_p), ("flags", c_int64), ("n_children", c_int64),
                        ("children", ctypes.POINTER(ctypes.POINTER(ArrowSchema))), ("dictionary", ctypes.POINTER(ArrowSchema)),
                        ("release", RELEASE_SCHEMA), ("private_data", c_void_p)]
ArrowArray._fields_ = [("length", c_int64), ("null_count", c_int64), ("offset", c_int64), ("n_buffers", c_int64), ("n_children", c_int64),
                       ("buffers", ctypes.POINTER(c_void_p)), ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))),
                       ("dictionary", ctypes.POINTER(ArrowArray)), ("release", RELEASE_ARRAY), ("private_data", c_void_p)]
ArrowArrayStream._fields_ = [("get_schema", ctypes.CFUNCTYPE(c_int, ctypes.POINTER(ArrowArrayStream), ctypes.POINTER(ArrowSchema))),
                             ("get_next", ctypes.CFUNCTYPE(c_int, ctypes.POINTER(ArrowArrayStream), ctypes.POINTER(ArrowArray))),
                             ("get_last_error", ctypes.CFUNCTYPE(c_char_p, ctypes.POINTER(ArrowArrayStream))),
                             ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowArrayStream))), ("private_data", c_void_p)]

FIXED = {b"i": "i", b"I": "I", b"l": "q", b"L": "Q"}


def bits(address, count):
    data = ctypes.string_at(address, (count + 7) // 8)
    return [bool(data[i // 8] >> (i % 8) & 1) for i in range(count)]


def values(schema, array):
    """Returns the values of an array as Python objects, None for null."""
    count, form = array.length, schema.format
    assert array.offset == 0 and count >= 0
    assert len([None for i in range(array.n_buffers)]) == (3 if form in (b"u", b"z") else 2)
    if form in FIXED:
        size = struct.calcsize(FIXED[form])
        out = list(struct.unpack(f"={count}{FIXED[form]}", ctypes.string_at(array.buffers[1], count * size)))
    elif form == b"b":
        out = bits(array.buffers[1], count)
    else:
        offsets = struct.unpack(f"={count + 1}i", ctypes.string_at(array.buffers[1], 4 * (count + 1)))
        data = ctypes.string_at(array.buffers[2], offsets[-1])
        out = [data[a:b] for a, b in zip(offsets, offsets[1:])]
        if form == b"u":
            out = [text.decode("utf-8", "strict") for text in out]
    valid = [True] * count if not array.buffers[0] else bits(array.buffers[0], count)
    assert array.null_count == valid.count(False)
    if array.null_count:
        assert schema.flags & 2, "nulls in a column that is not nullable"
    if schema.dictionary:
        names = values(schema.dictionary.contents, array.dictionary.contents)
        out = [names[index] if good else None for index, good in zip(out, valid)]
    return [value if good else None for value, good in zip(out, valid)]


class Library:
    """libptdecode, with the few functions needed by the tests of tables."""

    class TableOptions(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("columns", ctypes.POINTER(c_char_p)), ("functions", ctypes.POINTER(c_char_p)),
                    ("stream", ctypes.c_uint32), ("cpu", ctypes.c_int32), ("pid", ctypes.c_int32), ("tid", ctypes.c_int32),
                    ("first_ns", c_int64), ("last_ns", c_int64), ("batch_rows", ctypes.c_uint32), ("threads", ctypes.c_uint32),
                    ("control", c_void_p)]

    class Failed(Exception):
        pass

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.ptd_free.argtypes = [c_void_p]
        self.lib.ptd_open.argtypes = [c_char_p, c_void_p, ctypes.POINTER(c_void_p), ctypes.POINTER(c_void_p)]
        self.lib.ptd_close.argtypes = [c_void_p]
        self.lib.ptd_table.argtypes = [c_void_p, c_char_p, ctypes.POINTER(self.TableOptions), ctypes.POINTER(ArrowArrayStream),
                                       ctypes.POINTER(c_void_p)]
        self.lib.ptd_table_names.restype = c_char_p

    def check(self, code, message):
        if code == 0:
            assert not message.value
            return
        text = ctypes.cast(message, c_char_p).value
        self.lib.ptd_free(message)
        raise self.Failed(code, text.decode())

    def open(self, path):
        recording, message = c_void_p(), c_void_p()
        self.check(self.lib.ptd_open(str(path).encode(), None, ctypes.byref(recording), ctypes.byref(message)), message)
        return recording

    def close(self, recording):
        assert self.lib.ptd_close(recording) == 0

    def stream(self, recording, table, columns=None, functions=None, **filters):
        options = self.TableOptions(size=ctypes.sizeof(self.TableOptions), stream=0xFFFFFFFF, cpu=-1, pid=-1, tid=-1)
        for field, names in (("columns", columns), ("functions", functions)):
            if names is not None:
                setattr(options, field, (c_char_p * (len(names) + 1))(*[name.encode() for name in names], None))
        for field, value in filters.items():
            setattr(options, field, value)
        stream, message = ArrowArrayStream(), c_void_p()
        self.check(self.lib.ptd_table(recording, table.encode(), ctypes.byref(options), ctypes.byref(stream), ctypes.byref(message)), message)
        return stream

    def schema(self, recording, table, **options):
        """Returns the names and formats of the columns."""
        stream, schema = self.stream(recording, table, **options), ArrowSchema()
        assert stream.get_schema(ctypes.byref(stream), ctypes.byref(schema)) == 0
        children = [schema.children[i].contents for i in range(schema.n_children)]
        out = [(child.name.decode(), child.format.decode()) for child in children]
        schema.release(ctypes.byref(schema))
        stream.release(ctypes.byref(stream))
        return out

    def batches(self, recording, table, **options):
        """Yields each batch as a dict of columns."""
        stream = self.stream(recording, table, **options)
        schema = ArrowSchema()
        assert stream.get_schema(ctypes.byref(stream), ctypes.byref(schema)) == 0
        assert schema.format == b"+s"
        columns = [schema.children[i].contents for i in range(schema.n_children)]
        try:
            while True:
                array = ArrowArray()
                status = stream.get_next(ctypes.byref(stream), ctypes.byref(array))
                if status != 0:
                    raise self.Failed(status, (stream.get_last_error(ctypes.byref(stream)) or b"").decode())
                if not array.release:
                    return
                assert array.n_children == len(columns) and array.n_buffers == 1
                batch = {}
                for i, column in enumerate(columns):
                    child = array.children[i].contents
                    assert child.length == array.length
                    batch[column.name.decode()] = values(column, child)
                yield batch
                array.release(ctypes.byref(array))
                assert not array.release
        finally:
            schema.release(ctypes.byref(schema))
            stream.release(ctypes.byref(stream))
            assert not stream.release

    def rows(self, recording, table, **options):
        """Returns all rows as dicts; null values are omitted, as in the JSON."""
        out = []
        for batch in self.batches(recording, table, **options):
            names = list(batch)
            for row in zip(*batch.values()):
                out.append({name: value for name, value in zip(names, row) if value is not None})
        return out
