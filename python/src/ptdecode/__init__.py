"""Exact flow of execution from Intel PT and Arm CoreSight traces, as tables.

>>> import ptdecode
>>> recording = ptdecode.open(demo)          # demo: a recording of the test, Intel PT of a kernel
>>> sorted(stream.cpu for stream in recording.streams)
[0, 1]
>>> calls = recording.calls(cpu=1)
>>> calls.columns[:4]
['pid', 'tid', 'comm', 'cpu']
>>> sum(row.instructions for row in recording.blocks()) > 1000
True

A table is an Arrow stream: pass it to ``pyarrow.table()``, ``polars.DataFrame()`` or ``duckdb``, or call ``to_pandas()``. docs/TABLES.md
describes all tables and columns.
"""
from __future__ import annotations

import collections
import collections.abc
import functools
import html
import inspect
import json
import math
import operator
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings
from typing import Any, Callable, Iterator, NamedTuple, Optional, Sequence, Union

from . import _native

__all__ = ["open", "demo_path", "record_emulated", "build_info", "Recording", "Table", "Builder", "Stream", "Symbol", "Code", "Picture", "Error"]
__version__: str = _native.version()

Time = Union[None, str, "tuple[int, int]", slice]
_ANY_TIME = -2**63  # PTD_TIME_UNKNOWN
_MOST_CODE_BYTES = 1 << 30  # of code_at()
Progress = Union[None, bool, Callable[[int, int], Any]]


class Error(Exception):
    """A failure of the library. ``code`` is a number of docs/ERRORS.md and ``name`` its name.

    >>> try:
    ...     ptdecode.open("/nonexistent")
    ... except ptdecode.Error as error:
    ...     print(error.code, error.name)
    301 not_found
    """

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.name = name

    def __reduce__(self):
        return type(self), (self.code, self.name, str(self))


Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def _path(value: Path) -> str:
    """Returns a path as os.listdir() gives it. A null byte would end it early for the library, and name another file."""
    path = os.fsdecode(value)
    if b"\0" in os.fsencode(path):
        raise ValueError("embedded null byte")
    return path


def _shown(path: str) -> str:
    """Returns a path as text for people, in which U+FFFD replaces what is not UTF-8, as in tables."""
    return os.fsencode(path).decode("utf-8", "replace")


def _name(argument: str, value: str) -> str:
    """Returns a name for the library, for which a null character would end it."""
    if not isinstance(value, str):
        raise TypeError(f"{argument}: a str is needed, not {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{argument}: embedded null character")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError(f"{argument}: {value!r} has a surrogate, which is no character")
    return value


def _names(argument: str, values: Optional[Sequence[str]]) -> "Optional[list[str]]":
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, collections.abc.Iterable):
        raise TypeError(f"{argument}: {'a str or ' if argument == 'func' else ''}a sequence of str is needed, not {type(values).__name__}")
    names = [_name(argument, value) for value in values]
    if not names:
        raise ValueError(f"{argument}: the list of names is empty, which would select nothing; None means the default")
    return names


def _number(argument: str, value: Any, most: int, least: int = 0) -> int:
    """Returns an integer from `least` to `most`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{argument}: an integer is needed, not {type(value).__name__}") from None
    if not least <= number <= most:
        raise ValueError(f"{argument}: {number} is not in {least} to {most}")
    return number


def _ip(value: Any, argument: str = "ip") -> int:
    return _number(argument, value, 2**64 - 1)


def _time_ns(value: Any, argument: str = "time_ns") -> int:
    return _number(argument, value, 2**63 - 1, -2**63)


def _id(argument: str, value: Any) -> int:
    """Returns the number of a cpu, process or thread for the library, where None is -1."""
    return -1 if value is None else _number(argument, value, 2**31 - 1)


@functools.lru_cache(maxsize=64)
def _row_type(name: str, columns: "tuple[str, ...]") -> Any:
    """The type of a table's rows: a named tuple that can be pickled."""
    row: Any = collections.namedtuple(name, columns, rename=True)  # type: ignore[misc]
    row.__reduce__ = lambda self: (_row, (name, columns, tuple(self)))
    return row


def _row(name: str, columns: "tuple[str, ...]", values: tuple) -> Any:
    return _row_type(name, columns)._make(values)


_native.set_error_type(Error)


class Stream(NamedTuple):
    """One trace stream: the trace of one cpu, or of one thread. What is not known is None."""

    index: int
    cpu: Optional[int]
    tid: Optional[int]
    size_bytes: int
    first_ns: Optional[int]
    last_ns: Optional[int]
    protocol: str
    source: str


class Symbol(NamedTuple):
    """What names an address. Fields that are not known are empty or 0."""

    name: str
    module: str
    offset_bytes: int
    start: int
    size_bytes: int
    file: str
    line: int


class Code(NamedTuple):
    """Code bytes at one place and moment. ``versions`` is the number of contents that are possible then; ``bytes`` is the first."""

    bytes: bytes
    versions: int


class Picture:
    """An SVG or HTML document that displays itself in a notebook."""

    def __init__(self, text: str, kind: str) -> None:
        self.text = text
        self.kind = kind

    def save(self, path: Path) -> None:
        """Writes the document to a file."""
        pathlib.Path(os.fsdecode(path)).write_text(self.text, encoding="utf-8")

    def _repr_svg_(self) -> Optional[str]:
        return self.text if self.kind == "svg" else None

    def _repr_html_(self) -> Optional[str]:
        return self.text if self.kind == "html" else None

    def __repr__(self) -> str:
        return f"<ptdecode.Picture {self.kind}, {len(self.text)} characters>"


def _bar(wanted: Progress, title: str) -> Optional[Callable[[int, int], Any]]:
    """A progress callback. None: a tqdm bar if tqdm is installed and a person watches; True: a bar in any case, or an ImportError; False: none."""
    if wanted is False or (wanted is None and not sys.stderr.isatty() and "ipykernel" not in sys.modules):
        return None
    if callable(wanted):
        return wanted
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if wanted is True:
            raise
        return None
    bar: Any = None

    def update(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:  # not before there is progress: a table is opened once to list its columns
            bar = tqdm(total=total, unit="B", unit_scale=True, desc=title, leave=False)
        bar.update(done - bar.n)
        if done >= total:
            bar.close()

    return update


def _keeping(progress: Optional[Callable[[int, int], Any]], raised: "list[BaseException]") -> Optional[Callable[[int, int], Any]]:
    """A progress callback that also appends its exceptions to `raised`: libraries that read Arrow streams replace them by their own."""
    if progress is None:
        return None

    def call(done: int, total: int) -> None:
        try:
            progress(done, total)
        except BaseException as error:
            raised.append(error)
            raise

    return call


class _Stream:
    """The stream of a table for a reader that says itself whether there were rows."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._native = start()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._native.capsule(None)

    def raise_failure(self) -> None:
        """Raises the error that ended the stream, if the library did."""
        self._native.raise_failure()


_PANDAS_INTEGERS = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")


def _pandas_column(pandas: Any, values: list) -> Any:
    known = [value for value in values if value is not None]
    if not known or any(type(value) is not int for value in known):
        return values
    import numpy

    # pandas.array() of pandas 1.5 rounds.
    numbers = numpy.array([0 if value is None else value for value in values], dtype="uint64" if max(known) > sys.maxsize else "int64")
    return pandas.arrays.IntegerArray(numbers, numpy.array([value is None for value in values], dtype=bool))


class Table:
    """Rows of a recording, made while they are read. The columns are those of docs/TABLES.md.

    Pass it to a library that takes Arrow streams, or iterate over its rows, which are named tuples. Each way of reading decodes anew.

    >>> gaps = recording.gaps()
    >>> [row.reason for row in gaps] == list(gaps.to_columns()["reason"])
    True
    """

    def __init__(self, name: str, start: Callable[[], Any], func: "Sequence[str]" = (), raised: "Optional[list[BaseException]]" = None,
                 filters: "Sequence[str]" = (), unknown: "Callable[[], str]" = str) -> None:
        self._name = name
        self._start = start
        self._func = func
        self._filters = filters  # the other ones that are given
        self._unknown = unknown  # returns which pid or tid of them no thread has, or ""
        self._raised = [] if raised is None else raised  # exceptions of the progress callback
        self._columns = [column for column, _, _ in start().columns()]

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._name

    @property
    def columns(self) -> "list[str]":
        """The names of the columns."""
        return list(self._columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._start().capsule(lambda: self._warn(True))

    def batches(self) -> "Iterator[dict[str, list]]":
        """Yields the rows in batches of columns."""
        stream = self._start()
        is_empty = True
        while (columns := stream.next_columns()) is not None:
            is_empty = is_empty and not any(columns)
            yield dict(zip(self._columns, columns))
        self._warn(is_empty)

    def __iter__(self) -> "Iterator[Any]":
        row = _row_type(self._name, tuple(self._columns))
        for batch in self.batches():
            yield from map(row._make, zip(*batch.values()))

    def to_columns(self) -> "dict[str, list]":
        """All rows, as one list for each column."""
        columns: "dict[str, list]" = {name: [] for name in self._columns}
        for batch in self.batches():
            for name, values in batch.items():
                columns[name].extend(values)
        return columns

    def to_arrow(self) -> Any:
        """All rows as a pyarrow.Table (needs pyarrow)."""
        import pyarrow

        return self._read(pyarrow.table)

    def to_pandas(self) -> Any:
        """All rows as a pandas.DataFrame (needs pandas; pyarrow makes it faster). Columns of integers have pandas' types with NA, because a float64 rounds
        addresses."""
        import pandas

        try:
            import pyarrow
        except ImportError:
            return pandas.DataFrame({name: _pandas_column(pandas, values) for name, values in self.to_columns().items()})
        integers = {getattr(pyarrow, name.lower())(): getattr(pandas, name + "Dtype")() for name in _PANDAS_INTEGERS}
        return self._read(pyarrow.table).to_pandas(types_mapper=integers.get)

    def to_polars(self) -> Any:
        """All rows as a polars.DataFrame (needs polars)."""
        import polars

        return self._read(polars.DataFrame)

    def _read(self, reader: Callable[[Any], Any]) -> Any:
        """Reads all rows with another library. It reports Ctrl-C, exceptions of the progress callback and Errors as its own; this raises them again."""
        self._raised.clear()
        stream = _Stream(self._start)
        try:
            rows = reader(stream)
        except Exception:
            _native.check_signals()
            if not self._raised:
                stream.raise_failure()
                raise
        else:
            self._warn(len(rows) == 0)
            return rows
        raised = self._raised.pop()
        context = raised.__context__
        try:
            raise raised
        finally:
            raised.__context__ = context  # with its __cause__, it is what the callback raised it from

    def _warn(self, is_empty: bool) -> None:
        """Warns if the filters selected nothing: a name may be misspelt, a thread may not be there, or the other filters leave out where a function ran."""
        if not is_empty:
            return
        if what := self._unknown():
            what += "; the table threads lists all"
        elif self._func:
            names, others = ", ".join(map(repr, self._func)), ", ".join(self._filters)
            within = f" with the given {others}; functions() with the same {others} and" if others else "; functions()"
            what = f"no row is of func={names}{within} without func lists what was called"
        else:
            return
        level, caller = 1, sys._getframe()
        while caller.f_back is not None and caller.f_globals is globals():
            level, caller = level + 1, caller.f_back
        warnings.warn(f"{self._name}: {what}", stacklevel=level)

    def __repr__(self) -> str:
        return f"<ptdecode.Table {self._name}: {', '.join(self._columns)}>"

    def _repr_html_(self) -> str:
        shown = 20
        rows = []
        for row in self:
            rows.append(row)
            if len(rows) > shown:
                break

        def cell(name: str, value: Any) -> str:
            if value is None:
                return ""
            return hex(value) if name in ("ip", "to") else html.escape(str(value))

        head = "".join(f"<th>{name}</th>" for name in self._columns)
        body = "".join("<tr>" + "".join(f"<td>{cell(n, v)}</td>" for n, v in zip(self._columns, row)) + "</tr>" for row in rows[:shown])
        more = "<p>first 20 rows</p>" if len(rows) > shown else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


class Recording:
    """An opened recording. Made by open(), Builder.open() and record_emulated(). Any thread may use it."""

    def __init__(self, native: Any, path: Optional[str], words: "Sequence[str]" = ()) -> None:
        self._native = native
        self._path = path
        self._words = list(words) or ["-i", path]  # options of the command line that open the same recording

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def close(self) -> None:
        """Frees the recording. Tables that are being read stay valid."""
        self._native.close()

    @property
    def path(self) -> Optional[str]:
        """The file or folder; None for a recording from memory."""
        return self._path

    @property
    def streams(self) -> "list[Stream]":
        """The trace streams."""

        def known(value: int) -> Optional[int]:
            return None if value < 0 else value

        return [Stream(index, known(cpu), known(tid), size, known(first), known(last), protocol, source)
                for index, cpu, tid, size, first, last, protocol, source in self._native.streams()]

    @property
    def threads(self) -> "list[Any]":
        """The rows of the table ``threads``: pid, tid, comm."""
        return list(self.table("threads"))

    @property
    def warnings(self) -> "list[str]":
        """What was noticed while opening, one sentence each: a cut file, an option without effect, code that cannot be read."""
        return self._native.warnings()

    def info(self) -> "dict[str, Any]":
        """What ``ptdecode info --json`` prints: host, kernel, streams, lost records, missing code."""
        return json.loads(self._native.info_json())

    def check(self) -> "list[Any]":
        """The rows of the table ``findings``: where records, code bytes, files and clocks disagree."""
        return list(self.table("findings"))

    def _span(self) -> "tuple[int, int]":
        """The time of the whole trace: what percentages refer to."""
        streams = [stream for stream in self.streams if stream.first_ns is not None or stream.last_ns is not None]
        firsts, lasts = [stream.first_ns for stream in streams], [stream.last_ns for stream in streams]
        if None in lasts:  # nothing in that stream is dated after its last PSB, but records around it are
            lasts = (self.info().get("time_ns") or [None, None])[1:]
        if not streams or None in firsts or None in lasts or min(firsts) > max(lasts):
            raise ValueError("time: the bounds of this recording are not known; give seconds")
        return min(firsts), max(lasts)

    def _window(self, time: Time) -> "tuple[int, int]":
        if time is None:
            return 0, 0
        if not isinstance(time, str):
            try:
                bounds: Any = (time.start, time.stop) if isinstance(time, slice) and time.step is None else time
                first, last = (0 if bound is None and isinstance(time, slice) else bound for bound in bounds)
                return operator.index(first), operator.index(last)
            except (TypeError, ValueError):
                raise ValueError(f"time: {time!r} is not (first_ns, last_ns), two int of nanoseconds; a str such as '1.5,1.6' is in seconds") from None
        percent = re.fullmatch(r"\s*([\d.]+)\s*%\s*[-,]\s*([\d.]+)\s*%\s*", time)
        if percent:
            parts = [float(part) for part in percent.groups()]
            if max(parts) > 100:
                raise ValueError(f"time: {time!r} is not a part of 0%-100%")
            begin, end = self._span()
            # Rounded as the command line does. 0 means no bound, and so do 0% and 100%.
            first, last = (max(begin + math.floor((end - begin) * part / 100 + 0.5), 1) for part in parts)
            return 0 if parts[0] == 0 else first, 0 if parts[1] == 100 else last
        seconds = re.fullmatch(r"\s*(\d+(?:\.\d{1,9})?)?\s*,\s*(\d+(?:\.\d{1,9})?)?\s*", time)
        if not seconds:
            raise ValueError(f"time: {time!r} is neither '10%-20%' nor 'SECONDS,SECONDS'")

        def ns(text: Optional[str]) -> int:
            whole, _, part = (text or "0").partition(".")
            return int(whole) * 10**9 + int(part.ljust(9, "0"))

        return ns(seconds.group(1)), ns(seconds.group(2))

    def table(self, name: str, *, columns: Optional[Sequence[str]] = None, time: Time = None, stream: Optional[int] = None,
              cpu: Optional[int] = None, pid: Optional[int] = None, tid: Optional[int] = None,
              func: Union[None, str, Sequence[str]] = None, batch_rows: int = 0, threads: int = 0, progress: Progress = None) -> Table:
        """A table by its name.

        columns: names of columns, in order; None: the table's default.
        time: "10%-20%", "17.5,18.2" (seconds), or (first_ns, last_ns), two int.
        func: names of functions, with wildcards; only for ``calls`` and ``functions``. A UserWarning says that they selected no row, or that no
            thread has the given pid and tid. An empty list of names or columns is refused.
        threads: that decode calls and functions; 0: one for each core.
        progress: a function of (done, total) bytes, whose exception ends the reading; True: a tqdm bar; None: a bar if a person watches; False: nothing.
        """
        arguments = _native.TableArguments()
        name = _name("name", name)
        arguments.columns = _names("columns", columns)
        if len(set(arguments.columns or ())) < len(arguments.columns or ()):
            raise ValueError(f"columns: a name occurs twice in {arguments.columns}")
        arguments.functions = _names("func", (func,) if isinstance(func, str) else func)
        arguments.stream = None if stream is None else _number("stream", stream, 2**32 - 2)
        arguments.cpu, arguments.pid, arguments.tid = (_id(argument, value) for argument, value in (("cpu", cpu), ("pid", pid), ("tid", tid)))
        arguments.first_ns, arguments.last_ns = (_number("time", bound, 2**63 - 1) for bound in self._window(time))
        if 0 < arguments.last_ns < arguments.first_ns:
            raise ValueError(f"time: {time!r} ends before it starts")
        arguments.batch_rows = _number("batch_rows", batch_rows, 2**31 - 1)
        arguments.threads = _number("threads", threads, 256)
        raised: "list[BaseException]" = []
        filters = [key for key, value in (("time", time), ("stream", stream), ("cpu", cpu), ("pid", pid), ("tid", tid)) if value is not None]
        return Table(name, lambda: self._native.table(name, arguments, _keeping(_bar(progress, name), raised)), arguments.functions or (), raised, filters,
                     lambda: self._unknown(pid, tid))

    def _unknown(self, pid: Optional[int], tid: Optional[int]) -> str:
        """Returns which of the filters no thread of the recording has; "" if one has all of them, whatever it ran."""
        given = [(key, value) for key, value in (("pid", pid), ("tid", tid)) if value is not None]
        known = self.table("threads", columns=["pid", "tid"]).to_columns() if given else {}
        if unknown := [f"no {key} {value}" for key, value in given if value not in known[key]]:
            return f"the recording names {' and '.join(unknown)}"
        if len(given) == 2 and not {(pid, tid), (None, tid)} & set(zip(known["pid"], known["tid"])):
            return f"the recording names no thread that has both pid {pid} and tid {tid}"
        return ""

    def blocks(self, **options: Any) -> Table:
        """Instructions that ran one after the other, up to a branch. See table()."""
        return self.table("blocks", **options)

    def branches(self, **options: Any) -> Table:
        """Branches that were taken, interrupts, starts and ends of tracing. See table()."""
        return self.table("branches", **options)

    def calls(self, **options: Any) -> Table:
        """Calls that ended, with their durations. See table()."""
        return self.table("calls", **options)

    def functions(self, **options: Any) -> Table:
        """Functions with their calls and times. See table()."""
        return self.table("functions", **options)

    def edges(self, **options: Any) -> Table:
        """Branches, counted. See table()."""
        return self.table("edges", **options)

    def events(self, **options: Any) -> Table:
        """Events of the trace. See table()."""
        return self.table("events", **options)

    def gaps(self, **options: Any) -> Table:
        """Where the flow is lost. See table()."""
        return self.table("gaps", **options)

    def samples(self, **options: Any) -> Table:
        """Samples of events that are no trace. See table()."""
        return self.table("samples", **options)

    def sections(self, **options: Any) -> Table:
        """Mappings of code. See table()."""
        return self.table("sections", **options)

    def versions(self, ip: Optional[int] = None, **options: Any) -> "Union[Table, list[Any]]":
        """The contents of all places that changed, or, as a list, those of the place that holds ``ip``."""
        table = self.table("versions", **options)
        if ip is None:
            return table
        place = _ip(ip)
        return [row for row in table if row.ip <= place < row.ip + row.size_bytes]

    def _place(self, ip: int, time_ns: Optional[int], pid: Optional[int], space: Optional[int]) -> "tuple[int, int, int]":
        """The space, address and time of a place, checked for the library."""
        place, when, process = _ip(ip), _ANY_TIME if time_ns is None else _time_ns(time_ns), _id("pid", pid)
        if space is not None:
            return _number("space", space, 2**32 - 1), place, when
        found = 0 if pid is None else self._native.space_of(process, when)
        return _native.NO_SPACE if found is None else found, place, when

    def code_at(self, ip: int, time_ns: Optional[int], *, pid: Optional[int] = None, space: Optional[int] = None, size_bytes: int = 16) -> Code:
        """The code bytes that were live at an address. A user address needs ``pid`` or ``space``. At most 1 GiB.

        ``time_ns`` is None, as in the tables of a recording without times: any time.
        """
        size = _number("size_bytes", size_bytes, _MOST_CODE_BYTES)
        return Code(*self._native.code_at(*self._place(ip, time_ns, pid, space), size))

    def disassemble(self, ip: int, time_ns: Optional[int], *, pid: Optional[int] = None, space: Optional[int] = None, instructions: int = 10) -> str:
        """Instructions from an address on: lines of address, bytes and text, separated by tabs."""
        most = _number("instructions", instructions, 2**32 - 1)
        return self._native.disassemble(*self._place(ip, time_ns, pid, space), most)

    def symbol_at(self, ip: int, time_ns: Optional[int], *, pid: Optional[int] = None, space: Optional[int] = None) -> Symbol:
        """The function and the source line of an address.

        The first address in a file makes ptdecode read its symbols: about 0.25 s for a million of them, in which Ctrl-C has to wait.
        """
        return Symbol(*self._native.symbol_at(*self._place(ip, time_ns, pid, space)))

    def _command(self, *words: str) -> str:
        if self._path is None:
            raise ValueError("a recording from memory has no file for the command line")
        self._native.info_json()  # raises if it is closed, or if the path names another file now
        if self._words.count("--stash") > 1:
            raise ValueError("the command line takes one stash")
        made = subprocess.run([program(), words[0], *self._words, "--quiet", *words[1:]], capture_output=True, encoding="utf-8", errors="replace", check=False)
        if made.returncode != 0:
            raise Error(300, "open_failed", made.stderr.strip() or f"ptdecode {words[0]} failed")
        return made.stdout

    def flame(self, *words: str) -> Picture:
        """A flame graph. ``words``: options of ``ptdecode flame``."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "flame.svg")
            self._command("flame", "-o", path, *words)
            return Picture(pathlib.Path(path).read_text(encoding="utf-8"), "svg")

    def report(self) -> Picture:
        """What the recording is, where its time went and what is uncertain about it, as one page."""
        info, functions = self.info(), []
        for row in self.functions():
            functions.append(row)
            if len(functions) == 20:
                break
        findings = self.check()
        parts = [f"<h2>{html.escape(_shown(self._path or 'recording from memory'))}</h2>",
                 f"<p>{html.escape(str(info.get('trace', '')))}, {len(self.streams)} streams, {len(findings)} findings</p>",
                 "<table><tr><th>function</th><th>module</th><th>calls</th><th>self ms</th><th>total ms</th></tr>"]
        def ms(duration_ns: Optional[int]) -> str:
            return "" if duration_ns is None else f"{duration_ns / 1e6:.3f}"

        for row in functions:
            parts.append(f"<tr><td>{html.escape(row.function or '')}</td><td>{html.escape(row.module or '')}</td><td>{row.calls}</td>"
                         f"<td>{ms(row.self_ns)}</td><td>{ms(row.total_ns)}</td></tr>")
        parts.append("</table>")
        parts += [f"<p>{html.escape(row.kind)}: {html.escape(row.what or '')}</p>" for row in findings[:20]]
        return Picture("\n".join(parts), "html")

    def __repr__(self) -> str:
        try:
            state = f"{len(self.streams)} streams"
        except Error:
            state = "closed"
        return f"<ptdecode.Recording {_shown(self._path or 'from memory')}, {state}>"


def _arguments(symfs: Any = None, debug_dirs: Any = None, stashes: Any = None, kcore_after: Any = None, build_id_cache: Any = None,
               running_kernel: Any = None, slack_ns: int = 0, debuginfod: bool = False, ignore_time: bool = False, freeze: bool = False,
               allow_outside: bool = False, guestmount: Any = None, guestkallsyms: Any = None, guestmodules: Any = None,
               guestvmlinux: Any = None, clock_hz: int = 0, modules: Any = None, images: Any = None) -> Any:
    def paths(value: Any) -> "Optional[list[str]]":
        if value is None:
            return None
        return [_path(value)] if isinstance(value, (str, bytes, os.PathLike)) else [_path(path) for path in value]

    arguments = _native.OpenArguments()
    arguments.symfs, arguments.debug_dirs = paths(symfs), paths(debug_dirs)
    arguments.stashes, arguments.kcore_after, arguments.images = paths(stashes), paths(kcore_after), paths(images)
    arguments.build_id_cache = None if build_id_cache is None else _path(build_id_cache)
    arguments.running_kernel = None if running_kernel is None else _path(running_kernel)
    for name, path in (("guestmount", guestmount), ("guestkallsyms", guestkallsyms), ("guestmodules", guestmodules), ("guestvmlinux", guestvmlinux), ("modules", modules)):
        setattr(arguments, name, None if path is None else _path(path))
    arguments.slack_ns = _number("slack_ns", slack_ns, 2**64 - 1)
    arguments.clock_hz = _number("clock_hz", clock_hz, 10**12)
    arguments.flags = bool(debuginfod) | bool(ignore_time) << 1 | bool(freeze) << 2 | bool(allow_outside) << 5
    return arguments


def _words(path: str, arguments: Any) -> "list[str]":
    """The options of the command line that open a recording as open() does, in any working directory."""
    path = path if path == "-" else os.path.abspath(path)
    words = ["-i", path] if arguments.modules is None else ["--winipt", path]
    lists = {"--symfs": arguments.symfs, "--debug-dir": arguments.debug_dirs, "--kcore-after": arguments.kcore_after, "--image": arguments.images,
             "--stash": ["off"] if arguments.stashes == [] else arguments.stashes}
    single = {"--modules": arguments.modules, "--build-id-cache": arguments.build_id_cache, "--guestmount": arguments.guestmount,
              "--guestkallsyms": arguments.guestkallsyms, "--guestmodules": arguments.guestmodules, "--guestvmlinux": arguments.guestvmlinux,
              "--clock-freq": f"{arguments.clock_hz}Hz" if arguments.clock_hz else None, "--slack": f"{arguments.slack_ns}ns" if arguments.slack_ns else None}
    for option, values in (*lists.items(), *((option, [value]) for option, value in single.items() if value)):
        for value in values or []:
            words += [option, value if option in ("--clock-freq", "--slack") or value == "off" else os.path.abspath(value)]
    flags = arguments.flags
    return words + [word for word, on in (("--no-debuginfod", not flags & 1), ("--no-time", flags & 2), ("--freeze", flags & 4), ("--allow-outside", flags & 32)) if on]


def open(path: Path = "perf.data", *, symfs: Any = None, debug_dirs: Any = None, stashes: Any = None,
         kcore_after: Any = None, build_id_cache: Any = None, running_kernel: Any = None, slack_ns: int = 0,
         debuginfod: bool = False, ignore_time: bool = False, freeze: bool = False, allow_outside: bool = False,
         guestmount: Any = None, guestkallsyms: Any = None, guestmodules: Any = None, guestvmlinux: Any = None,
         clock_hz: int = 0, modules: Any = None, images: Any = None, progress: Progress = None) -> Recording:
    """Opens a perf.data file or directory, a bundle, LLDB's trace.json, a CoreSight snapshot, or with modules a trace of Windows.

    symfs, debug_dirs, stashes, kcore_after: folders; one, or a list.

    The options do what those of the command line do. Most have the same names. debug_dirs is --debug-dir, stashes is --stash, images is --image,
    ignore_time is --no-time, slack_ns is --slack, and clock_hz is --clock-freq. debuginfod=True asks the servers of DEBUGINFOD_URLS, which the command
    line does without --no-debuginfod.

    guestmount, guestkallsyms, guestmodules, guestvmlinux: paths with the code and names of the virtual machines in a host's recording. A path that
    cannot be read raises nothing: it is one of the recording's warnings, and the guest's flow is a gap.

    clock_hz: ticks per second of the timestamps of a CoreSight snapshot, or of the TSC of a Windows trace. Without it, their calls and tables have no times.

    modules: the list of the modules of a Windows process, or ""; path is then its trace, a dump of ipt.sys. Files are searched below symfs and in the
    list's folder. A file that is missing, or not the listed one, raises nothing: it is one of the findings, and its flow is a gap.

    images: code of a CoreSight snapshot in addition to its dumps, which count first: "FILE[,off=N][,size=N]@ADDR", or an ELF file; one, or a list.
    """
    arguments = _arguments(symfs, debug_dirs, stashes, kcore_after, build_id_cache, running_kernel, slack_ns, debuginfod, ignore_time, freeze,
                           allow_outside, guestmount, guestkallsyms, guestmodules, guestvmlinux, clock_hz, modules, images)
    native = _native.open(_path(path), arguments, _bar(progress, "opening"))
    return Recording(native, _path(path), _words(_path(path), arguments))


def _bytes_of(data: bytes) -> bytes:
    """The bytes of an object with a buffer. bytes(data) would make zeros of an int."""
    return data if isinstance(data, bytes) else bytes(memoryview(data))


class Builder:
    """Makes a recording from memory: perf records, AUX bytes and code. Add in any order, then call open() once.

    >>> builder = ptdecode.Builder()
    >>> try:
    ...     builder.open()
    ... except ptdecode.Error as error:
    ...     print("nothing was added")
    nothing was added
    """

    def __init__(self) -> None:
        self._native = _native.Builder()
        self._next: "dict[tuple[Optional[int], Optional[int]], int]" = {}

    def add_attr(self, attr: bytes, ids: Sequence[int] = (), name: str = "") -> None:
        """A perf_event_attr as passed to perf_event_open(2), and the ids of its events."""
        self._native.add_attr(_bytes_of(attr), [_number("ids", value, 2**64 - 1) for value in ids], _name("name", name))

    def add_records(self, ring: int, records: bytes) -> None:
        """Bytes of one ring buffer: perf records. A record may be split between two calls with the same ring."""
        self._native.add_records(_number("ring", ring, 2**32 - 1), _bytes_of(records))

    def add_aux(self, aux: bytes, *, cpu: Optional[int] = None, tid: Optional[int] = None, offset_bytes: Optional[int] = None) -> None:
        """Bytes of the AUX buffer of a cpu, or of a thread. offset_bytes: aux_offset of the AUX record; None: after the last ones."""
        at = self._next.get((cpu, tid), 0) if offset_bytes is None else _number("offset_bytes", offset_bytes, 2**64 - 1)
        added = _bytes_of(aux)
        self._native.add_aux(added, _id("cpu", cpu), _id("tid", tid), at)
        self._next[cpu, tid] = at + len(added)

    def add_code(self, address: int, code: bytes, *, pid: Optional[int] = None, from_ns: int = 0, name: str = "") -> None:
        """Code at an address of a process (None: the kernel) from a moment on, until other code replaces it. Its name ends with it."""
        self._native.add_code(_ip(address, "address"), _bytes_of(code), _id("pid", pid), _time_ns(from_ns, "from_ns"), _name("name", name))

    def set_feature(self, feature: int, value: bytes) -> None:
        """A header feature of perf.data (HEADER_CPUID, ...), as in the file."""
        self._native.set_feature(_number("feature", feature, 2**32 - 1), _bytes_of(value))

    def set_pt(self, pmu_type: int, *, time_shift: int, time_mult: int, time_zero: int, tsc_ctc_ratio: "tuple[int, int]" = (0, 0),
               max_nonturbo_ratio: int = 0, cpuid: Optional[str] = None) -> None:
        """How Intel PT was configured; replaces an AUXTRACE_INFO record of Intel PT."""
        try:
            ratio_n, ratio_d = tsc_ctc_ratio
        except (TypeError, ValueError):
            raise ValueError(f"tsc_ctc_ratio: {tsc_ctc_ratio!r} is not (numerator, denominator)") from None
        numbers = {"pmu_type": (pmu_type, 32), "time_shift": (time_shift, 16), "time_mult": (time_mult, 32), "time_zero": (time_zero, 64),
                   "tsc_ctc_ratio numerator": (ratio_n, 32), "tsc_ctc_ratio denominator": (ratio_d, 32), "max_nonturbo_ratio": (max_nonturbo_ratio, 32)}
        self._native.set_pt(*(_number(name, value, 2**bits - 1) for name, (value, bits) in numbers.items()),
                            None if cpuid is None else _name("cpuid", cpuid))

    def open(self, *, progress: Progress = None, **options: Any) -> Recording:
        """Opens what was added. The options are those of ptdecode.open()."""
        unknown = set(options) - set(inspect.signature(_arguments).parameters)
        if unknown:
            raise TypeError(f"open() got an unexpected keyword argument '{sorted(unknown)[0]}'")
        return Recording(self._native.open(_arguments(**options), _bar(progress, "opening")), None)


def build_info() -> "dict[str, str]":
    """Versions of ptdecode and of each library that it uses, and the commit, by name: ``build_info()["commit"]``.

    >>> ptdecode.build_info()["ptdecode"] == ptdecode.__version__
    True
    """
    return dict(line.split(" ", 1) for line in _native.build_info().splitlines())


def program() -> str:
    """The path of the command line of this package."""
    beside = pathlib.Path(__file__).parent / "bin" / "ptdecode"
    return str(beside) if beside.exists() else "ptdecode"


def demo_path() -> str:
    """The path of the recording that this package has: a Debian kernel that turns ftrace on and off, 0.5 seconds of two cpus.

    >>> with ptdecode.open(ptdecode.demo_path()) as kernel:
    ...     len(kernel.streams)
    2
    """
    return str(pathlib.Path(__file__).parent / "share" / "ptdecode" / "kernel" / "kernel.bundle")


def _stamp(path: str) -> "Optional[tuple[int, ...]]":
    """Returns what tells one file of a path from the next; None: there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def record_emulated(command: Sequence[str], output: Optional[Path] = None, *, options: Sequence[str] = ()) -> Recording:
    """Runs a program in an emulator that writes the trace a processor would write, and opens the recording.

    Needs qemu-user. output: where the recording goes; None: a new temporary folder, which stays. options: of ``ptdecode record``.
    The exit status of the program does not matter. If nothing is recorded, that is an Error, also where an earlier recording has the path of output.
    """
    path = _path(output) if output is not None else os.path.join(tempfile.mkdtemp(prefix="ptdecode-"), "perf.data")
    earlier = _stamp(path)
    made = subprocess.run([program(), "record", "--emulate", "--quiet", "-o", path, *options, "--", *command], stderr=subprocess.PIPE, encoding="utf-8",
                          errors="replace", check=False)
    if _stamp(path) in (None, earlier):
        raise Error(310, "start_failed", made.stderr.strip() or f"exit status {made.returncode}, and no recording is in {_shown(path)}")
    return open(path)
