"""Sorted table files (SST files): many entries of a store go into an engine at one go, not one by one.

The files are those of RocksDB, with its default order of keys. An engine that can ingest files links them into its
database. For other engines this module reads the files and writes their entries.

*Guarantees*: `entries` yields all entries that an `SstWriter` has written, in order. If several files have the same
key, the last of them wins. A damaged file raises `StateCorruptError`. A read never ends early without an error.
*Assumes*: `rocksdict` is installed, whatever engine a store has.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path

from rocksdict import SstFileWriter

from milestones.common.errors import StateCorruptError
from milestones.common.state.disk import exists, explained
from milestones.common.state.engine import Batch, Engine
from milestones.common.state.engines.rocks import failure
from milestones.common.state.engines.rocksdict_engine import RocksDictEngines
from milestones.common.state.refusals import written
from milestones.common.state.steps import STEP_ENTRIES, steps

FILE_BYTES = 64 * 1024 * 1024
"""The bytes of keys and values in one file, before compression."""

Entry = tuple[bytes, bytes | None]
"""A key with its value. None means that the key is deleted in the store that takes the file in."""


class SstWriter:
    """Writes entries in ascending order of their keys, into as many files as needed.

    `files`: the number of entries with a value, keyed by file. `deletions`: the number of deletions, keyed by file."""

    def __init__(self, directory: Path, file_bytes: int = FILE_BYTES) -> None:
        self._directory, self._file_bytes = directory, file_bytes
        self._engines = RocksDictEngines()
        self.files: dict[Path, int] = {}
        self.deletions: dict[Path, int] = {}

    def write(self, entries: Iterator[Entry]) -> None:
        """Write all `entries`. Raises `StateError` if the disk is full, or a key isn't greater than the one before
        it."""
        first = next(entries, None)
        while first is not None:
            first = self._write_file(first, entries)

    def _write_file(self, first: Entry, rest: Iterator[Entry]) -> Entry | None:
        """Write one file, which begins with the entry `first`. Returns the first entry of the next file, None if `rest`
        is at its end."""
        path = self._directory / f"{len(self.files):05d}.sst"
        try:
            writer = SstFileWriter(options=self._engines.options())
            writer.open(str(path))
            count, deletions, size, limit = 0, 0, 0, self._file_bytes
            following = None
            for key, value in chain((first,), rest):
                if size >= limit:
                    following = key, value
                    break
                if value is None:
                    del writer[key]
                    deletions += 1
                    size += len(key)
                else:
                    writer[key] = value
                    count += 1
                    size += len(key) + len(value)
            writer.finish()
        except Exception as error:
            raise failure(error, f"the table file {path}") from error
        self.files[path], self.deletions[path] = count, deletions
        return following


def entries(files: Sequence[Path], prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Yield all entries of the files, in order. A file may replace or delete entries of the files before it.

    Each key must begin with `prefix`, which is removed. Raises `StateCorruptError` if a file is damaged, or if a key
    begins with other bytes."""
    if not files:
        return
    reading = files[0].parent / "reading"
    engine = RocksDictEngines().open(reading, namespaces=["files"])
    try:
        namespace = engine.open("files")
        for _ in engine.ingest("files", _links(files, reading)):
            pass
        found = namespace.scan(None, None)
        yield from without(prefix, found, files[0]) if prefix else found
    finally:
        engine.close()
        shutil.rmtree(reading, ignore_errors=True)


def without(prefix: bytes, found: Iterator[tuple[bytes, bytes]], file: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries with `prefix` removed from their keys. `file`: the file that the error names."""
    size = len(prefix)
    for key, value in found:
        if not key.startswith(prefix):
            raise StateCorruptError(f"{file} has a key that doesn't begin with {prefix.hex()}")
        yield key[size:], value


def _links(files: Sequence[Path], directory: Path) -> list[Path]:
    """Make hard links to the files, because an engine removes the files that it ingests."""
    links = [directory / f"link-{file.name}" for file in files]
    for link, file in zip(links, files, strict=True):
        if not exists(file):
            raise StateCorruptError(f"{file} is gone")
        with explained("link", file):
            link.hardlink_to(file)
    return links


def taken_in(engine: Engine, namespace: str, files: Sequence[Path], prefix: bytes) -> Iterator[None]:
    """Put the entries of sorted table files into an engine, one step per item of the iterator.

    Files whose keys have a `prefix` are written entry by entry. Other files are ingested (`Engine.ingest`)."""
    if not prefix:
        return engine.ingest(namespace, files)
    return write_entries(lambda batches: engine.apply(batches, {}), namespace, files, prefix)


def write_entries(
    write: Callable[[Mapping[str, Batch]], None], namespace: str, files: Sequence[Path], prefix: bytes = b""
) -> Iterator[None]:
    """Read the entries of `files` and pass them to `write`, one step per item of the iterator.

    `write_entries` is for engines that can't ingest files. A step that the engine refuses (`StateBusyError`) is
    repeated at the next item of the iterator. `prefix`: as in `entries`."""
    source = entries(files, prefix)
    try:
        while chunk := dict(islice(source, STEP_ENTRIES)):
            batch: Batch = chunk
            for step in steps(batch):
                while not written(partial(write, {namespace: step})):
                    yield
                yield
    finally:
        source.close()  # type: ignore[attr-defined]  # a generator
