"""Files of results: on a file system, or at a URL of fsspec. A file appears when it is complete."""
from __future__ import annotations

import errno
import json
import os
import pathlib
import re
import shutil
import tempfile
from typing import Any, Iterator


def is_url(path: str) -> bool:
    return "://" in str(path)


def filesystem(url: str) -> "tuple[Any, str]":
    """The fsspec file system of a URL, and the path in it."""
    import fsspec

    return fsspec.core.url_to_fs(str(url))


def sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def plain_glob(path: str) -> str:
    """A pattern of DuckDB that matches only `path`."""
    return path if is_url(path) else re.sub(r"([*?[])", r"[\1]", path)


def sql_file(path: str) -> str:
    """One file, in SQL of DuckDB."""
    return sql_text(plain_glob(path))


class Store:
    """A folder. Not for several threads at once."""

    def __init__(self, root: str) -> None:
        self.root = str(root).rstrip("/")
        self._remote = filesystem(self.root) if is_url(self.root) else None

    @property
    def is_remote(self) -> bool:
        return self._remote is not None

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def put(self, local: "str | os.PathLike", name: str) -> None:
        """Moves a local file here."""
        if self._remote is not None:
            system, root = self._remote
            system.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)
            system.put_file(str(local), f"{root}/{name}")
            os.remove(local)
            return
        target = pathlib.Path(self.path(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            shutil.move(str(local), temporary)  # across file systems this is a copy
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)

    def put_json(self, value: Any, name: str) -> None:
        with self.scratch() as folder:
            local = pathlib.Path(folder, "value.json")
            local.write_text(json.dumps(value, indent=1), encoding="utf-8")
            self.put(local, name)

    def get_json(self, name: str) -> Any:
        return json.loads(self.read(name))

    def read(self, name: str) -> bytes:
        if self._remote is not None:
            system, root = self._remote
            return system.cat_file(f"{root}/{name}")
        return pathlib.Path(self.path(name)).read_bytes()

    def fetch(self, name: str, folder: "str | os.PathLike") -> str:
        """The path of a local copy: the file itself if it is local."""
        if self._remote is None:
            return self.path(name)
        local = pathlib.Path(folder, name.replace("/", "_"))
        local.write_bytes(self.read(name))
        return str(local)

    def list(self, folder: str, suffix: str = "") -> "list[str]":
        """The names of files below a folder, in order."""
        if self._remote is not None:
            system, root = self._remote
            system.invalidate_cache()
            found = [path[len(root.rstrip("/")) + 1:] for path in system.find(f"{root}/{folder}")]
        else:
            base = pathlib.Path(self.root)
            found = [str(path.relative_to(base)) for path in pathlib.Path(self.path(folder)).rglob("*") if path.is_file()]
        return sorted(name for name in found if name.endswith(suffix) and not os.path.basename(name).startswith("."))

    def remove(self, name: str) -> None:
        if self._remote is not None:
            system, root = self._remote
            if system.exists(f"{root}/{name}"):
                system.rm_file(f"{root}/{name}")
            return
        pathlib.Path(self.path(name)).unlink(missing_ok=True)

    def scratch(self) -> "tempfile.TemporaryDirectory[str]":
        """A folder for files before put(): on the same file system, if this is one."""
        if self._remote is not None:
            return tempfile.TemporaryDirectory(prefix="ptdecode-")
        folder = pathlib.Path(self.root, "_tmp")
        folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix="part-", dir=folder)


def read_ranges(url: str, ranges: "list[tuple[int, int]]") -> Iterator[bytes]:
    """The bytes of (offset, size) ranges. OSError if a server gives fewer than that."""
    system, path = filesystem(url)
    for offset, size in ranges:
        data = system.cat_file(path, start=offset, end=offset + size)
        if len(data) != size:
            raise OSError(errno.EIO, f"{len(data)} of {size} bytes at offset {offset} were received", url)
        yield data
