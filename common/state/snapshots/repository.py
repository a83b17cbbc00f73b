"""The repository of snapshots, at any URL that `open_store` takes. Extra `milestones[snapshots]`.

*Guarantees*: `newest` and `fetch` give a whole snapshot whose files have their checksums, or raise `SnapshotError`.
`publish` makes a snapshot visible in a single step, after all of its files are there, and changes nothing that is
there. Of two publishers of one partition the one of the newer generation is found, whichever was the last to write.
*Assumes*: a store in which an object can be read as soon as it is written. It may list objects late: what `latest.json`
names is found all the same.
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
    """A file of the snapshots that a delta is built on was removed."""


class SnapshotKeyError(SnapshotError):
    """A file is encrypted with a key that isn't among those of this instance, or with another one of that id."""


@dataclass(frozen=True)
class Listed:
    """A manifest that is there. `manifest` None: `trouble` says why it can't be read."""

    path: str
    modified_ms: int
    manifest: SnapshotManifest | None
    trouble: StateError | None = None


class SnapshotSettings(Protocol):
    """What a `StreamsConfig` says of snapshots."""

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
    """The snapshots of all changelogs of one application below `url`."""

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
        """Raise `ConfigError` if the URL can't be used; nothing is read. The attribute `url` is for messages, without
        credentials. `options`, `encryption_key`, `timeout_ms`: `snapshot_options`, `snapshot_encryption_key`,
        `snapshot_timeout_ms`. `objects`: in place of what the URL names."""
        self.objects: ObjectStore = objects or open_store(url, options, timeout_ms)
        self.url, self.application_id = self.objects.url, application_id
        try:
            self._keys = SnapshotKeys.parse(encryption_key)
        except ValueError as error:
            raise ConfigError("snapshot_encryption_key", encryption_key, str(error)) from None

    @classmethod
    def of(cls, config: SnapshotSettings, url: str | None = None) -> SnapshotRepository:
        """Of an application with these settings; `url` in place of `snapshot_url`. `ConfigError`."""
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
        """The newest snapshot of a changelog partition of `store`, None when there is none.

        One that can't be read, or is of another store or partition, is passed over with a warning. So is one of
        another topic than `changelog_id`, by default than what `latest.json` names, or too old at `now_ms` (wall
        clock), unless there is no other.
        `SnapshotError`, `StateFormatError` when none of those that are there can be read, or the store can't."""
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
        """Those that can be read and are of this topic and not too old, the newest first. `SnapshotError`."""
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
        """All of the store whose names are above this one, the newest first. `troubles` gets why others can't be read,
        or don't belong there."""
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
                troubles.append(SnapshotError(f"{path} at {self.url} isn't what belongs there: {why}"))
            else:
                yield manifest

    def hint(self, changelog: TopicPartition) -> tuple[SnapshotManifest | None, list[StateError]]:
        """The manifest in `latest.json`, and why there is none."""
        try:
            return self._manifest(f"{self.place(changelog)}/{LATEST}"), []
        except StateFormatError as error:
            return None, [error]

    def _names(self, changelog: TopicPartition, hint: SnapshotManifest | None) -> set[str]:
        """Of the manifests that are there."""
        names = set() if hint is None else {hint.name}
        if self.objects.lists:
            try:
                listed = self.objects.below(f"{self.place(changelog)}/{MANIFESTS}")
                names |= {Path(one.path).stem for one in listed if one.path.endswith(".json")}
            except SnapshotError as error:
                if hint is None:
                    raise
                log.warning("%s; the snapshot that %s names is taken", error, LATEST)
        return names

    def _manifest(self, path: str) -> SnapshotManifest | None:
        data = self.objects.read(path)
        return None if data is None else decode(data, f"{path} at {self.url}")

    def _warn(self, troubles: list[StateError]) -> None:
        for trouble in troubles:
            log.warning("a snapshot is passed over: %s", trouble)

    def partitions(self) -> list[TopicPartition]:
        """All that have snapshots."""
        found = set()
        for one in self.objects.below(self.application_id):
            match one.path.split("/")[1:]:
                case [topic, number, "latest.json"] | [topic, number, "manifests", _] if number.isdecimal():
                    found.add(TopicPartition(topic, int(number)))
        return sorted(found)

    def published(self, changelog: TopicPartition, objects: list[StoredObject] | None = None) -> list[Listed]:
        """All manifests of a partition, the newest first, those that can't be read in front. `objects`: those in
        its folder, if they are known."""
        place, found = self.place(changelog), []
        for one in self.objects.below(place) if objects is None else objects:
            if not _is_manifest(*one.path.removeprefix(f"{place}/").split("/")):
                continue
            try:
                manifest = self._manifest(one.path)
                why = manifest and manifest.foreign(self.application_id, manifest.store, changelog)
                trouble = SnapshotError(f"{one.path} at {self.url} isn't what belongs there: {why}") if why else None
                if manifest is not None:
                    found.append(Listed(one.path, one.modified_ms, None if why else manifest, trouble))
            except StateFormatError as error:
                found.append(Listed(one.path, one.modified_ms, None, error))
        return sorted(found, key=lambda one: (one.manifest is None, one.manifest and one.manifest.rank), reverse=True)

    # -- files

    def fetch(
        self, manifest: SnapshotManifest, directory: Path, progress: Callable[[int], None] = lambda _: None
    ) -> LocalSnapshot:
        """Copy the snapshot's files into a new folder in `directory`. `progress` is called with the number of bytes
        that came, and ends the copy by raising. Raises `SnapshotError` if a file is missing, or has another checksum;
        `SnapshotKeyError`."""
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
        """Read a file of the snapshot. Raises `SnapshotError` if it isn't what the manifest says;
        `SnapshotKeyError`."""
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
                f"{path} is as it was written, and can't be decrypted: snapshot_encryption_key has another key of the "
                f"id {file.key_id!r} than the one that it was encrypted with, or the file lay elsewhere ({wrong})"
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
        """Raise `SnapshotKeyError` if a key is missing that a file of the snapshot is encrypted with."""
        for file in manifest.files:
            self._key(manifest, file)

    # -- writing

    def publish(self, snapshot: LocalSnapshot) -> SnapshotManifest:
        """Write the snapshot's own files and its manifest, which is returned as it was written. `SnapshotError`; when
        a file of the snapshots that it is built on is gone, a `SnapshotGoneError`."""
        manifest = self._with_own_files(snapshot)
        place = self.place(manifest.partition_of)
        reach("snapshot.written")
        for file in manifest.files:
            path = self._path(manifest, file)
            if self.objects.size(path) != file.bytes:
                raise SnapshotGoneError(f"{path} at {self.url}, which the snapshot is built on, was removed meanwhile")
        path, content = f"{place}/{MANIFESTS}/{manifest.name}.json", encode(manifest)
        # A call that is repeated, as its answer was lost, finds what it has written.
        if not self.objects.create(path, content) and self.objects.read(path) != content:
            raise SnapshotError(f"{path} at {self.url} is there, and another one")
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
        """What is to be stored of a file: itself, or beside it, for as long as needed, an encrypted one."""
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
        """Have `latest.json` name the snapshot, or a newer one that is there and counts at that time (wall clock). What
        can't be written is a warning: only readers over plain HTTP need it."""
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
        """The snapshot's place, for messages."""
        return f"{self.url.rstrip('/')}/{self.place(manifest.partition_of)}/{manifest.folder}"

    def place(self, changelog: TopicPartition) -> str:
        """The folder of a partition."""
        return f"{self.application_id}/{changelog.topic}/{changelog.partition}"

    def _path(self, manifest: SnapshotManifest, file: SnapshotFile) -> str:
        return f"{self.place(manifest.partition_of)}/{manifest.path_of(file)}"


def _is_manifest(folder: str, *name: str) -> bool:
    """Of either format, by its path below the partition's folder."""
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
