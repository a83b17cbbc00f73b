"""Sorted table files, by which a store's entries come into an engine without being written one by one.

The files are RocksDB's own, with its default order of keys. An engine that can take files in links them; for other
engines this module reads the files and writes their entries.

*Guarantees*: `entries` gives all entries of `SstWriter`, in order; of a key that several files have, what
the last of them says. A damaged file is a `StateCorruptError`, and never ends a reading early.
*Assumes*: `rocksdict`, whatever engine a store has.
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
"""A key with its value; None: the key is deleted where the file is taken in."""


class SstWriter:
    """Writes entries in rising order of their keys, into as many files as needed; `files`: the number of entries by
    file, `deletions`: of those that have no value, which aren't counted there."""

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
        """Write one file, which begins with `first`, and return the first entry of the next file."""
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
    """All entries of the files, in order, without the `prefix` that each key begins with; a file may replace or delete
    what those before it have. `StateCorruptError`, also for a key that begins otherwise."""
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
    """Entries whose keys lose the prefix. `file`: for the error."""
    size = len(prefix)
    for key, value in found:
        if not key.startswith(prefix):
            raise StateCorruptError(f"{file} has a key that doesn't begin with {prefix.hex()}")
        yield key[size:], value


def _links(files: Sequence[Path], directory: Path) -> list[Path]:
    """Make links to the files, as an engine that takes files in removes them."""
    links = [directory / f"link-{file.name}" for file in files]
    for link, file in zip(links, files, strict=True):
        if not exists(file):
            raise StateCorruptError(f"{file} is gone")
        with explained("link", file):
            link.hardlink_to(file)
    return links


def taken_in(engine: Engine, namespace: str, files: Sequence[Path], prefix: bytes) -> Iterator[None]:
    """Take sorted table files into an engine, in steps: linked where it can, entry by entry where their keys have a
    `prefix`."""
    if not prefix:
        return engine.ingest(namespace, files)
    return write_entries(lambda batches: engine.apply(batches, {}), namespace, files, prefix)


def write_entries(
    write: Callable[[Mapping[str, Batch]], None], namespace: str, files: Sequence[Path], prefix: bytes = b""
) -> Iterator[None]:
    """Write the entries of `files` by `write`, where an engine can't take files in; one step after the other. One that
    is refused (`StateBusyError`) is made again, a step of the iterator later. `prefix`: as in `entries`."""
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
