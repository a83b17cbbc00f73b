"""A snapshot whose files are on this machine: one that was fetched, or is to be published.

*Guarantees*: no two of its files have one path, whichever of the snapshots it is built on they are of.
*Assumes*: the thread that has it removes it.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from milestones.common.state.snapshots.snapshot import SnapshotFile, SnapshotManifest


@dataclass(frozen=True)
class LocalSnapshot:
    """A snapshot whose files are on this machine, in a folder of their own. One that is to be published may leave out
    the files of the snapshots that it is built on."""

    manifest: SnapshotManifest
    directory: Path

    @property
    def files(self) -> list[Path]:
        """The snapshot's files, in the order in which they are taken in."""
        return [self.path_of(file) for file in self.manifest.files]

    def path_of(self, file: SnapshotFile) -> Path:
        """Where a file of the snapshot is here."""
        return self.directory / (f"{file.folder.replace('/', '-')}-" * bool(file.folder) + file.name)

    def remove(self) -> None:
        """Delete the rest of the snapshot's files. Harmless when repeated."""
        shutil.rmtree(self.directory, ignore_errors=True)


def described(path: Path, entries: int, deletions: int = 0) -> SnapshotFile:
    """The manifest's line about a file that was written."""
    with path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return SnapshotFile(path.name, path.stat().st_size, entries, digest, deletions=deletions)
