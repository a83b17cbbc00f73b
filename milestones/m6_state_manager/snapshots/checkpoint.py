"""`Checkpoint` copies the files of a database as they were at one moment, while other threads write to the database.

    table files, manifest ----links, a copy----> checkpoint
    the moment: which logs there are, and how far the last one is written
    logs up to the moment ------a copy---------> checkpoint

A checkpoint is what a crash at that moment would have left. So RocksDB opens it as it opens a database after a crash.

*Why this way*: RocksDB's own checkpoints flush, and with `rocksdict` all threads of the process stop for that time.
This one only links and copies files, and calls nothing of the library.

*Guarantees*: in all column families, the checkpoint has what was written before the moment, and nothing that was
written after it. If this can't be kept, a `TornError` is raised, and the caller retries.
*Assumes*: RocksDB's own rules hold: table files never change, logs and manifests only grow, and a log is deleted only
when no manifest needs it. No table files are linked into the database between `begin` and `finish`.
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
    """The database has changed its files while they were copied."""


class Checkpoint:
    """A checkpoint of the database in `source`, in the new directory `target`. Call `begin`, `cut`, `finish`."""

    def __init__(self, source: Path, target: Path) -> None:
        self.source, self.target = source, target
        self._known_logs: set[str] = set()
        self._logs: list[str] = []
        self._size = 0

    def begin(self) -> None:
        """Link the table files, and copy the manifest. Raises `TornError`, `StateError`."""
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
        self._link_tables()  # tables that were made after the first links, and are in the copied manifest
        if not self._stands(manifest):
            raise TornError(f"tables of {self.source} may have been deleted meanwhile")

    def _stands(self, manifest: str) -> bool:
        """Return whether the manifest is unchanged since it was copied. RocksDB writes to it before it deletes a
        table."""
        with explained("look at", self.source):
            now = (self.source / POINTER).read_text().strip()
            copied = (self.target / manifest).stat().st_size
            return now == manifest and (self.source / manifest).stat().st_size == copied

    def cut(self) -> None:
        """Fix the moment: note the logs, and the length of the last one. Takes microseconds. Raises `TornError`."""
        self._logs = self._names(LOGS)
        if not self._known_logs <= set(self._logs):
            raise TornError(f"logs of {self.source} were deleted meanwhile")
        if self._logs:
            with explained("look at", self.source):
                self._size = (self.source / self._logs[-1]).stat().st_size

    def finish(self) -> None:
        """Copy the logs, up to the moment. Raises `TornError`, `StateError`."""
        for name in self._logs:
            self._copy(name)
        if self._logs:
            with explained("write", self.target):
                os.truncate(self.target / self._logs[-1], self._size)
        if not set(self._logs) <= set(self._names(LOGS)):
            raise TornError(f"logs of {self.source} were deleted meanwhile")

    def _names(self, end: str) -> list[str]:
        """Return the files with this ending, the oldest first, as RocksDB numbers them."""
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
