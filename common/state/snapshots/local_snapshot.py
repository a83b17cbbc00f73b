"""A snapshot whose files are on this machine, because it was fetched or will be published.

*Guarantees*: all its files have different paths, even if they belong to different snapshots (base and deltas).
*Assumes*: the thread that has the snapshot removes its files.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from milestones.common.state.snapshots.snapshot import SnapshotFile, SnapshotManifest


@dataclass(frozen=True)
class LocalSnapshot:
    """A snapshot whose files are in a folder on this machine. If it will be published, the files of the snapshots that
    it is built on may be missing."""

    manifest: SnapshotManifest
    directory: Path

    @property
    def files(self) -> list[Path]:
        """The snapshot's files, in the order in which they are taken in."""
        return [self.path_of(file) for file in self.manifest.files]

    def path_of(self, file: SnapshotFile) -> Path:
        """Return the path of a file of the snapshot on this machine."""
        return self.directory / (f"{file.folder.replace('/', '-')}-" * bool(file.folder) + file.name)

    def remove(self) -> None:
        """Delete the snapshot's files that are still there. A second call does nothing."""
        shutil.rmtree(self.directory, ignore_errors=True)


def described(path: Path, entries: int, deletions: int = 0) -> SnapshotFile:
    """Describe a file that was written, for the manifest: size, checksum and number of entries."""
    with path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return SnapshotFile(path.name, path.stat().st_size, entries, digest, deletions=deletions)
