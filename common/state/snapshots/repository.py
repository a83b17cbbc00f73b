"""The repository of snapshots, at any URL that `open_store` accepts. Needs the extra `milestones[snapshots]`.

*Guarantees*: `newest` and `fetch` return a complete snapshot whose files have the right checksums, or raise
`SnapshotError`. `publish` writes all files of a snapshot first, and then makes it visible in a single step. Publishing
never changes an object that another snapshot uses. If two members publish the same partition, readers find the snapshot
of the newer generation, whichever was written last.
*Assumes*: the store lets an object be read as soon as it is written. The store may list new objects late: readers then
find the newest snapshot through `latest.json`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final, Protocol

from milestones.common.errors import ConfigError, StateError, StateFormatError
from milestones.common.records import TopicPartition
from milestones.common.state.disk import explained, make_directory
from milestones.common.state.snapshots.local_snapshot import LocalSnapshot, described
from milestones.common.state.snapshots.manifest_json import decode, encode
from milestones.common.state.snapshots.objects import (
    AbandonedError,
    ObjectStore,
    SnapshotError,
    StoredObject,
    open_store,
)
from milestones.common.state.snapshots.sealing import SnapshotKeys, Unsealer, UnsealError, seal
from milestones.common.state.snapshots.snapshot import SnapshotFile, SnapshotManifest
from milestones.common.testing.faults import reach

log: Final = logging.getLogger(__name__)

LATEST, MANIFESTS, FORMAT_1_MANIFEST = "latest.json", "manifests", "manifest.json"


class SnapshotGoneError(SnapshotError):
    """A delta can't be published, because a file of the snapshots that it is built on was removed."""


class SnapshotKeyError(SnapshotError):
    """A file can't be decrypted: this instance has no key of the file's key id, or another key of that id."""


@dataclass(frozen=True)
class Listed:
    """A manifest that is in the store. If it can't be read, `manifest` is None, and `trouble` is the reason."""

    path: str
    modified_ms: int
    manifest: SnapshotManifest | None
    trouble: StateError | None = None


class SnapshotSettings(Protocol):
    """The settings of a `StreamsConfig` that concern snapshots."""

    @property
    def application_id(self) -> str: ...
    @property
    def snapshot_url(self) -> str | None: ...
    @property
    def snapshot_options(self) -> Mapping[str, str]: ...
    @property
    def snapshot_encryption_key(self) -> str | None: ...
    @property
    def snapshot_timeout_ms(self) -> int: ...


class SnapshotRepository:
    """The snapshots of all changelogs of one application, below `url`."""

    url: str
    application_id: str

    def __init__(
        self,
        url: str,
        application_id: str,
        *,
        options: Mapping[str, str] | None = None,
        encryption_key: str | None = None,
        timeout_ms: int = 30_000,
        objects: ObjectStore | None = None,
    ) -> None:
        """Open the store behind the URL. Reads nothing. Raises `ConfigError` if the URL can't be used.

        `options`, `encryption_key`, `timeout_ms`: the settings `snapshot_options`, `snapshot_encryption_key`,
        `snapshot_timeout_ms`. `objects`: a store that is used in place of the URL's. The attribute `url` is for
        messages, and has no credentials."""
        self.objects: ObjectStore = objects or open_store(url, options, timeout_ms)
        self.url, self.application_id = self.objects.url, application_id
        try:
            self._keys = SnapshotKeys.parse(encryption_key)
        except ValueError as error:
            raise ConfigError("snapshot_encryption_key", encryption_key, str(error)) from None

    @classmethod
    def of(cls, config: SnapshotSettings, url: str | None = None) -> SnapshotRepository:
        """Open the repository of an application with these settings. `url` replaces the setting `snapshot_url`. Raises
        `ConfigError`."""
        url = url or config.snapshot_url
        if url is None:
            raise ConfigError("snapshot_url", None, "say where the snapshots are")
        return cls(
            url,
            config.application_id,
            options=config.snapshot_options,
            encryption_key=config.snapshot_encryption_key,
            timeout_ms=config.snapshot_timeout_ms,
        )

    # -- reading

    def newest(
        self, changelog: TopicPartition, store: str, *, changelog_id: str | None = None, now_ms: int | None = None
    ) -> SnapshotManifest | None:
        """Find the newest snapshot of a changelog partition of `store`. Returns None if there is none.

        A snapshot that can't be read, or is of another store or partition, is skipped with a warning. A snapshot that
        is of another topic than `changelog_id`, or too old at `now_ms` (wall clock), is returned only if there is no
        better one. Without `changelog_id`, the topic is that of the snapshot in `latest.json`.

        Raises `SnapshotError` or `StateFormatError` if there are snapshots and none can be read, or if the store can't
        be read."""
        hint, troubles = self.hint(changelog)
        if changelog_id is None and hint is not None:
            changelog_id = hint.changelog_id
        unfit: SnapshotManifest | None = None
        for manifest in self._readable(changelog, store, hint, troubles):
            if manifest.counts(changelog_id, now_ms):
                self._warn(troubles)
                return manifest
            unfit = unfit or manifest
        if unfit is None and troubles:
            raise troubles[0]
        self._warn(troubles)
        return unfit

    def counting(
        self, changelog: TopicPartition, store: str, *, changelog_id: str | None, now_ms: int
    ) -> Iterator[SnapshotManifest]:
        """Yield the snapshots that can be read, are of this topic and aren't too old, the newest first. Raises
        `SnapshotError`."""
        found = self._readable(changelog, store, self.hint(changelog)[0], [])
        return (manifest for manifest in found if manifest.counts(changelog_id, now_ms))

    def _readable(
        self,
        changelog: TopicPartition,
        store: str,
        hint: SnapshotManifest | None,
        troubles: list[StateError],
        above: str = "",
    ) -> Iterator[SnapshotManifest]:
        """Yield the readable snapshots of the store whose names are greater than `above`, the newest first.

        An error for each snapshot that can't be read, or doesn't belong to the partition, is appended to
        `troubles`."""
        for name in sorted((name for name in self._names(changelog, hint) if name > above), reverse=True):
            path = f"{self.place(changelog)}/{MANIFESTS}/{name}.json"
            try:
                manifest = hint if hint is not None and name == hint.name else self._manifest(path)
            except StateFormatError as error:
                troubles.append(error)
                continue
            if manifest is None:
                continue
            if (why := manifest.foreign(self.application_id, store, changelog)) is not None:
                troubles.append(SnapshotError(f"{path} at {self.url} doesn't belong there: {why}"))
            else:
                yield manifest

    def hint(self, changelog: TopicPartition) -> tuple[SnapshotManifest | None, list[StateError]]:
        """Return the manifest in `latest.json`, None if there is no readable one. The list has the error of one that
        can't be read."""
        try:
            return self._manifest(f"{self.place(changelog)}/{LATEST}"), []
        except StateFormatError as error:
            return None, [error]

    def _names(self, changelog: TopicPartition, hint: SnapshotManifest | None) -> set[str]:
        """Return the names of the manifests in the store, and that of the manifest in `latest.json`."""
        names = set() if hint is None else {hint.name}
        if self.objects.lists:
            try:
                listed = self.objects.below(f"{self.place(changelog)}/{MANIFESTS}")
                names |= {Path(one.path).stem for one in listed if one.path.endswith(".json")}
            except SnapshotError as error:
                if hint is None:
                    raise
                log.warning("%s; so the snapshot in %s is used", error, LATEST)
        return names

    def _manifest(self, path: str) -> SnapshotManifest | None:
        data = self.objects.read(path)
        return None if data is None else decode(data, f"{path} at {self.url}")

    def _warn(self, troubles: list[StateError]) -> None:
        for trouble in troubles:
            log.warning("a snapshot is passed over: %s", trouble)

    def partitions(self) -> list[TopicPartition]:
        """List the changelog partitions that have snapshots."""
        found = set()
        for one in self.objects.below(self.application_id):
            match one.path.split("/")[1:]:
                case [topic, number, "latest.json"] | [topic, number, "manifests", _] if number.isdecimal():
                    found.add(TopicPartition(topic, int(number)))
        return sorted(found)

    def published(self, changelog: TopicPartition, objects: list[StoredObject] | None = None) -> list[Listed]:
        """List all manifests of a partition. First come those that can't be read, then the others, the newest first.
        `objects`: the objects in the partition's folder, if the caller has listed them already."""
        place, found = self.place(changelog), []
        for one in self.objects.below(place) if objects is None else objects:
            if not _is_manifest(*one.path.removeprefix(f"{place}/").split("/")):
                continue
            try:
                manifest = self._manifest(one.path)
                why = manifest and manifest.foreign(self.application_id, manifest.store, changelog)
                trouble = SnapshotError(f"{one.path} at {self.url} doesn't belong there: {why}") if why else None
                if manifest is not None:
                    found.append(Listed(one.path, one.modified_ms, None if why else manifest, trouble))
            except StateFormatError as error:
                found.append(Listed(one.path, one.modified_ms, None, error))
        return sorted(found, key=lambda one: (one.manifest is None, one.manifest and one.manifest.rank), reverse=True)

    # -- files

    def fetch(
        self, manifest: SnapshotManifest, directory: Path, progress: Callable[[int], None] = lambda _: None
    ) -> LocalSnapshot:
        """Copy the snapshot's files into a new folder in `directory`.

        `progress` is called with the number of bytes of each chunk. If it raises an error, the copy ends. Raises
        `SnapshotError` if a file is missing or has another checksum, and `SnapshotKeyError`."""
        self.must_have_keys(manifest)
        snapshot = LocalSnapshot(manifest, directory / uuid.uuid4().hex)
        make_directory(snapshot.directory)
        try:
            for file in manifest.files:
                target = snapshot.path_of(file)
                with explained("write", target), target.open("wb") as opened:
                    self._receive(manifest, file, opened, progress)
                reach("snapshot.fetched")
        except BaseException:
            snapshot.remove()
            raise
        return snapshot

    def verify(
        self, manifest: SnapshotManifest, file: SnapshotFile, progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Read a file of the snapshot, and check it. Raises `SnapshotError` if the file differs from the manifest's
        description, and `SnapshotKeyError`."""
        with Path(os.devnull).open("wb") as nowhere:
            self._receive(manifest, file, nowhere, progress)

    def _receive(
        self, manifest: SnapshotManifest, file: SnapshotFile, target: IO[bytes], progress: Callable[[int], None]
    ) -> None:
        path, key = self._path(manifest, file), self._key(manifest, file)
        unsealer = None if key is None else Unsealer(target, key, path.encode())
        digest, size, wrong = hashlib.sha256(), 0, None
        progress(0)
        for chunk in self.objects.chunks(path):
            digest.update(chunk)
            size += len(chunk)
            progress(len(chunk))
            if unsealer is None:
                target.write(chunk)
            elif wrong is None:
                wrong = _failure(unsealer.feed, chunk)
        if (size, digest.hexdigest()) != (file.bytes, file.sha256):
            raise SnapshotError(f"{path} is damaged: {file.bytes} bytes with another checksum were written")
        if unsealer is not None and wrong is None:
            wrong = _failure(unsealer.end)
        if wrong is not None:
            raise SnapshotKeyError(
                f"{path} has the right checksum, but can't be decrypted: snapshot_encryption_key has another key of "
                f"the id {file.key_id!r} than the one that encrypted the file, or the file was moved ({wrong})"
            )

    def _key(self, manifest: SnapshotManifest, file: SnapshotFile) -> bytes | None:
        if file.key_id is None:
            return None
        key = self._keys.keys.get(file.key_id)
        if key is None:
            has = ", ".join(repr(id) for id in self._keys.keys) or "none"
            raise SnapshotKeyError(
                f"{self._path(manifest, file)} is encrypted: it needs the key of the id {file.key_id!r}, and "
                f"snapshot_encryption_key has {has}"
            )
        return key

    def must_have_keys(self, manifest: SnapshotManifest) -> None:
        """Raise `SnapshotKeyError` if a file of the snapshot is encrypted with a key that this instance hasn't."""
        for file in manifest.files:
            self._key(manifest, file)

    # -- writing

    def publish(self, snapshot: LocalSnapshot) -> SnapshotManifest:
        """Write the files that the snapshot adds, then its manifest. Returns the manifest as it was written.

        Raises `SnapshotGoneError` if a file of the snapshots that it is built on was removed. Raises
        `SnapshotError`."""
        manifest = self._with_own_files(snapshot)
        place = self.place(manifest.partition_of)
        reach("snapshot.written")
        for file in manifest.files:
            path = self._path(manifest, file)
            if self.objects.size(path) != file.bytes:
                raise SnapshotGoneError(f"{path} at {self.url}, which the snapshot is built on, was removed")
        path, content = f"{place}/{MANIFESTS}/{manifest.name}.json", encode(manifest)
        # If the answer to the first `create` was lost, the repeated call finds the manifest that the first one wrote.
        if not self.objects.create(path, content) and self.objects.read(path) != content:
            raise SnapshotError(f"{path} at {self.url} exists already, with other content")
        reach("snapshot.published")
        self.hint_at(manifest, manifest.created_ms)
        return manifest

    def _with_own_files(self, snapshot: LocalSnapshot) -> SnapshotManifest:
        manifest, written = snapshot.manifest, []
        for file in manifest.files:
            if file.folder:
                written.append(file)
                continue
            path = self._path(manifest, file)
            with self._sealed(snapshot.path_of(file), path) as source:
                stored = described(source, file.entries, file.deletions)
                written.append(replace(stored, name=file.name, key_id=self._keys.current))
                self.objects.write(path, source)
            reach("snapshot.uploaded")
        return replace(manifest, files=tuple(written))

    @contextmanager
    def _sealed(self, plain: Path, path: str) -> Iterator[Path]:
        """Yield the file to upload. Without a current key, this is `plain` itself. With a key, it is an encrypted copy,
        which is deleted at the end of the block."""
        if self._keys.current is None:
            yield plain
            return
        sealed = plain.with_name(f"{plain.name}.sealed")
        try:
            with explained("write", sealed):
                seal(plain, sealed, self._keys.keys[self._keys.current], path.encode())
            yield sealed
        finally:
            sealed.unlink(missing_ok=True)

    def hint_at(self, manifest: SnapshotManifest, now_ms: int) -> None:
        """Write a copy of the manifest into `latest.json`. If there is a newer usable snapshot at `now_ms` (wall
        clock), write that one's manifest instead.

        A write that fails is logged as a warning, because only readers over plain HTTP depend on `latest.json`."""
        changelog = manifest.partition_of
        try:
            hint, troubles = self.hint(changelog)
            above = self._readable(changelog, manifest.store, hint, troubles, manifest.name)
            newest = next((one for one in above if one.counts(manifest.changelog_id, now_ms)), manifest)
            newer_format = any(isinstance(trouble, StateFormatError) and trouble.newer for trouble in troubles)
            if not newer_format and (hint is None or hint.id != newest.id):
                self.objects.write(f"{self.place(changelog)}/{LATEST}", encode(newest))
        except SnapshotError as error:
            log.warning("%s", error)

    # -- places

    def describe(self, manifest: SnapshotManifest) -> str:
        """Return the URL of the snapshot's folder, for messages."""
        return f"{self.url.rstrip('/')}/{self.place(manifest.partition_of)}/{manifest.folder}"

    def place(self, changelog: TopicPartition) -> str:
        """Return the folder of a changelog partition."""
        return f"{self.application_id}/{changelog.topic}/{changelog.partition}"

    def _path(self, manifest: SnapshotManifest, file: SnapshotFile) -> str:
        return f"{self.place(manifest.partition_of)}/{manifest.path_of(file)}"


def _is_manifest(folder: str, *name: str) -> bool:
    """True if this path below the partition's folder is that of a manifest, in format 1 or a later one."""
    return name == (FORMAT_1_MANIFEST,) or (folder == MANIFESTS and len(name) == 1 and name[0].endswith(".json"))


def _failure(step: Callable[..., None], *given: bytes) -> str | None:
    try:
        step(*given)
    except UnsealError as error:
        return str(error)
    return None


__all__ = [
    "AbandonedError",
    "Listed",
    "LocalSnapshot",
    "SnapshotError",
    "SnapshotGoneError",
    "SnapshotKeyError",
    "SnapshotRepository",
    "described",
]
