"""A checkpoint: the files of a database as they were at one moment, while others write to it.

    table files, manifest ----links, a copy----> checkpoint
    the moment: which logs there are, and how far the last one is written
    logs up to there -----------a copy---------> checkpoint

It is what a crash at that moment would have left, so RocksDB opens it as it opens a database after a crash. Neither the
library nor its locks have a part in it: its own checkpoints hold the interpreter's lock while they flush.

*Guarantees*: what was written before the moment is in the checkpoint, what is written after it isn't, across all
column families. What can't be so is a `TornError`: try again.
*Assumes*: table files are never changed, logs and manifest only grow, a log is deleted only when a manifest doesn't
need it any more: RocksDB's own rules. No table files are ingested between `begin` and `finish`.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from milestones.common.errors import StateError
from milestones.common.state.disk import exists, explained, make_directory

TABLES, LOGS, POINTER = ".sst", ".log", "CURRENT"

_COPIED: Final = ("IDENTITY", "OPTIONS-")


class TornError(StateError):
    """The database has moved on while its files were taken."""


class Checkpoint:
    """A checkpoint of the database in `source`, in the new directory `target`: `begin`, `cut`, `finish`."""

    def __init__(self, source: Path, target: Path) -> None:
        self.source, self.target = source, target
        self._known_logs: set[str] = set()
        self._logs: list[str] = []
        self._size = 0

    def begin(self) -> None:
        """Take what doesn't change, and what was known of it. `TornError`, `StateError`."""
        make_directory(self.target)
        self._link_tables()
        self._known_logs = set(self._names(LOGS))
        with explained("copy the manifest of", self.source):
            pointer = (self.source / POINTER).read_text()
            manifest = pointer.strip()
            self._copy(manifest)
            (self.target / POINTER).write_text(pointer)
            for name in os.listdir(self.source):  # noqa: PTH208  names only
                if name.startswith(_COPIED):
                    with suppress(FileNotFoundError):
                        shutil.copyfile(self.source / name, self.target / name)
        self._link_tables()  # those that were made before the manifest named them
        if not self._stands(manifest):
            raise TornError(f"tables of {self.source} may have been deleted meanwhile")

    def _stands(self, manifest: str) -> bool:
        """Whether the manifest is still what was copied: the database writes there that a table is to go, before."""
        with explained("look at", self.source):
            now = (self.source / POINTER).read_text().strip()
            copied = (self.target / manifest).stat().st_size
            return now == manifest and (self.source / manifest).stat().st_size == copied

    def cut(self) -> None:
        """The moment. A few microseconds. `TornError`."""
        self._logs = self._names(LOGS)
        if not self._known_logs <= set(self._logs):
            raise TornError(f"logs of {self.source} were deleted meanwhile")
        if self._logs:
            with explained("look at", self.source):
                self._size = (self.source / self._logs[-1]).stat().st_size

    def finish(self) -> None:
        """Take the logs, up to the moment. `TornError`, `StateError`."""
        for name in self._logs:
            self._copy(name)
        if self._logs:
            with explained("write", self.target):
                os.truncate(self.target / self._logs[-1], self._size)
        if not set(self._logs) <= set(self._names(LOGS)):
            raise TornError(f"logs of {self.source} were deleted meanwhile")

    def _names(self, end: str) -> list[str]:
        """The files of a kind, the oldest first: RocksDB numbers them."""
        with explained("list", self.source):
            found = [name for name in os.listdir(self.source) if name.endswith(end)]  # noqa: PTH208  names only
        return sorted(found, key=lambda name: (len(name), name))

    def _link_tables(self) -> None:
        for name in self._names(TABLES):
            with explained("link", self.source / name), suppress(FileExistsError, FileNotFoundError):
                os.link(self.source / name, self.target / name)

    def _copy(self, name: str) -> None:
        try:
            with explained("copy", self.source / name):
                shutil.copyfile(self.source / name, self.target / name)
        except StateError as error:
            if not exists(self.source / name):
                raise TornError(f"{self.source / name} was deleted meanwhile") from error
            raise
