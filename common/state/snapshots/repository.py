"""The repository of snapshots, at any URL that `fsspec` knows. Extra `milestones[snapshots]`.

*Guarantees*: `newest` and `fetch` give a whole snapshot whose files have their checksums, or raise `SnapshotError`;
`publish` makes a snapshot visible in a single step, after all of its files are there.
*Assumes*: a file system on which a written file can be read at once. A call may take as long as the network does: only
the snapshot fetcher and Spark tasks make calls.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from milestones.common.errors import ConfigError, StateError
from milestones.common.records import TopicPartition
from milestones.common.secrets import without_credentials
from milestones.common.state.disk import make_directory
from milestones.common.state.snapshots.snapshot import SnapshotFile, SnapshotManifest

log: Final = logging.getLogger(__name__)

LATEST, MANIFEST = "latest.json", "manifest.json"

class SnapshotError(StateError):
    """A snapshot can't be read or written; the message names the snapshot and the reason, without credentials."""

    def __init__(self, message: str) -> None:
        super().__init__(without_credentials(message))


@dataclass(frozen=True)
class LocalSnapshot:
    """A snapshot whose files are on this machine, in a folder of their own."""

    manifest: SnapshotManifest
    directory: Path

    @property
    def files(self) -> list[Path]:
        """The snapshot's files, in the order of their keys."""
        return [self.directory / file.name for file in self.manifest.files]

    def remove(self) -> None:
        """Delete the rest of the snapshot's files. Harmless when repeated."""
        shutil.rmtree(self.directory, ignore_errors=True)


class SnapshotRepository:
    """The snapshots of all changelogs of one application below `url`."""

    url: str
    application_id: str

    def __init__(self, url: str, application_id: str) -> None:
        """`ConfigError` when the URL's kind isn't known; nothing is read. The attribute `url` is for messages, without
        credentials."""
        self.url, self.application_id = without_credentials(url), application_id
        try:
            import fsspec
        except ImportError as error:
            reason = "needs the extra 'snapshots': pip install 'milestones[snapshots]'"
            raise ConfigError("snapshot_url", url, reason) from error
        try:
            self._files, root = fsspec.url_to_fs(url)
        except Exception as error:  # file systems raise what they like, with all of the URL in it
            raise ConfigError("snapshot_url", url, f"can't be used: {type(error).__name__}: {error}") from None
        self._root = f"{str(root).rstrip('/')}/{application_id}"

    def newest(self, changelog: TopicPartition, store: str) -> SnapshotManifest | None:
        """The newest snapshot of a changelog partition of `store`, None when there is none. `SnapshotError`, also for
        one of another store or partition; `StateFormatError`."""
        path = f"{self._place(changelog)}/{LATEST}"
        with self._told("read", path):
            try:
                data = self._files.cat_file(path)
            except FileNotFoundError:
                return None
        manifest = SnapshotManifest.decode(data, without_credentials(path))
        why = manifest.foreign(self.application_id, store, changelog)
        if why is not None:
            raise SnapshotError(f"{path} at {self.url} isn't what belongs there: {why}")
        return manifest

    def fetch(
        self, manifest: SnapshotManifest, directory: Path, progress: Callable[[int], None] = lambda _: None
    ) -> LocalSnapshot:
        """Copy the snapshot's files into a new folder in `directory`. `progress` is called with the number of bytes
        that came, and ends the copy by raising. `SnapshotError` when a file is missing, or has another checksum."""
        snapshot = LocalSnapshot(manifest, directory / uuid.uuid4().hex)
        make_directory(snapshot.directory)
        try:
            for file in manifest.files:
                self._fetch(f"{self._folder(manifest)}/{file.name}", file, snapshot.directory / file.name, progress)
        except BaseException:
            snapshot.remove()
            raise
        return snapshot

    def _fetch(self, path: str, file: SnapshotFile, target: Path, progress: Callable[[int], None]) -> None:
        with self._told("read", path):
            self._files.get_file(path, str(target), callback=_callback(progress))
            progress(0)
            with target.open("rb") as opened:
                found = target.stat().st_size, hashlib.file_digest(opened, "sha256").hexdigest()
        if found != (file.bytes, file.sha256):
            raise SnapshotError(f"{path} is damaged: {file.bytes} bytes with another checksum were written")

    def publish(self, snapshot: LocalSnapshot) -> None:
        """Make the snapshot the newest one of its partition, and remove obsolete ones. `SnapshotError`."""
        manifest = snapshot.manifest
        folder, place = self._folder(manifest), self._place(TopicPartition(manifest.changelog, manifest.partition))
        with self._told("write", folder):
            self._files.makedirs(folder, exist_ok=True)
            for path in snapshot.files:
                self._files.put_file(str(path), f"{folder}/{path.name}")
            self._files.pipe_file(f"{folder}/{MANIFEST}", manifest.encode())
            # Renamed, so that no reader finds a part of it.
            part = f"{place}/.{LATEST}-{uuid.uuid4().hex}"
            self._files.pipe_file(part, manifest.encode())
            self._files.mv(part, f"{place}/{LATEST}")
        self._retire(place, manifest.created_ms)

    def _retire(self, place: str, created_ms: int) -> None:
        """Remove all older snapshots but the newest of them, which an instance may be reading."""
        try:
            entries = self._files.ls(place, detail=True)
            folders = {str(entry["name"]).rstrip("/") for entry in entries if entry["type"] == "directory"}
            older = sorted(folder for folder in folders if folder.rpartition("/")[2] < _name(created_ms))
            for folder in older[:-1]:
                self._files.rm(folder, recursive=True)
        except Exception as error:
            log.warning("%s", without_credentials(f"old snapshots in {place} can't be removed: {error}"))

    def describe(self, manifest: SnapshotManifest) -> str:
        """The snapshot's place, for messages."""
        return without_credentials(self._folder(manifest))

    def _place(self, changelog: TopicPartition) -> str:
        return f"{self._root}/{changelog.topic}/{changelog.partition}"

    def _folder(self, manifest: SnapshotManifest) -> str:
        place = self._place(TopicPartition(manifest.changelog, manifest.partition))
        return f"{place}/{_name(manifest.created_ms)}-{manifest.offset}-{manifest.id}"

    @contextmanager
    def _told(self, doing: str, path: str) -> Iterator[None]:
        """Turn any error of the file system into a `SnapshotError`, but for `AbandonedError`."""
        try:
            yield
        except (AbandonedError, StateError):
            raise
        except Exception as error:
            told = f"can't {doing} {path} at {self.url}: {type(error).__name__}: {error}"
            raise SnapshotError(told) from None  # its own text has the credentials again


class AbandonedError(Exception):
    """The request for the snapshot was given up: raised by `progress` to end a `fetch`."""


def _callback(progress: Callable[[int], None]) -> Any:
    from fsspec.callbacks import Callback

    class Told(Callback):  # type: ignore[misc]  # fsspec has no types
        def relative_update(self, inc: int = 1) -> None:
            progress(inc)

        def absolute_update(self, value: int) -> None:
            progress(0)

    return Told()


def _name(created_ms: int) -> str:
    """The beginning of the names of folders of that time, which sort by time."""
    return f"{created_ms:015d}"


def described(path: Path, entries: int) -> SnapshotFile:
    """The manifest's line about a file that was written."""
    with path.open("rb") as opened:
        return SnapshotFile(path.name, path.stat().st_size, entries, hashlib.file_digest(opened, "sha256").hexdigest())
