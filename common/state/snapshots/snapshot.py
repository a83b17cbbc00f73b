"""A snapshot is the content of one partition of a store up to an offset of its changelog, as sorted table files.

    <url>/<application_id>/<changelog>/<partition>/
        manifests/<generation>-<offset>-<time>-<id>.json   one per snapshot, never changed
        files/<id>/<name>                                  the table files of the snapshot with this id
        latest.json                                        a copy of the newest manifest: a hint

A *base* has all entries. A *delta* has the keys that were changed or deleted since another snapshot. A manifest lists
every file that a reader needs, also those of the base and of earlier deltas. The files are taken in in this order: if
several have the same key, the last one wins.

A snapshot only saves time, and the changelog stays the truth. If a store's snapshot doesn't fit or can't be read, the
store is restored from the changelog.

*Guarantees*: `foreign`, `unfit` and `misplaced` refuse every snapshot that would lead to another content than the
changelog. For example, the topic's compaction may have removed a deletion that came after the snapshot, so that a
reader would never meet it. Manifest names sort by generation, then offset. So a snapshot of a member with an older
generation is never the newest.
*Assumes*: the clocks of the snapshot's writer and reader differ by less than a tenth of `delete.retention.ms`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from milestones.common.records import TopicPartition
from milestones.common.state.engine import Span
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.kinds import kind_of, reads_as_own

MOST_DELTAS: Final = 8
"""The most deltas that one base may have."""
FOLDED_AT: Final = 0.5
"""If the deltas of a base exceed this share of the base's bytes, the next snapshot is a new base."""
INSTANCE, SPARK = "instance", "spark"
"""The values of `made_by`. A snapshot of an instance has the instance's generation in the group. Spark isn't a member
of the group, and passes a generation on."""


@dataclass(frozen=True)
class SnapshotFile:
    """One table file, as it is stored at the URL.

    `entries`: the number of keys with a value. `deletions`: the number of deleted keys. `sha256`: the digest of the
    file's bytes, in hex. `folder`: the file's folder below the partition's folder; empty if it is the folder of the
    snapshot itself. `key_id`: the id of the encryption key, None if the file isn't encrypted.
    """

    name: str
    bytes: int
    entries: int
    sha256: str
    folder: str = ""
    deletions: int = 0
    key_id: str | None = None


@dataclass(frozen=True)
class Lineage:
    """The snapshots that a delta is built on: the id of its base, and the ids of the deltas between the base and this
    delta, the oldest first."""

    base: str
    deltas: tuple[str, ...] = ()


@dataclass(frozen=True)
class SnapshotManifest:
    """The description of a snapshot: its origin and its files.

    `id`: differs even between snapshots of the same offset, such as those of two attempts.
    `offset`: the changelog offset up to which (exclusive) the snapshot is complete.
    `changelog_id`: Kafka's id of the topic, None if the brokers give no ids.
    `usable_until_ms`: the wall clock's time after which no store begins with the snapshot, None without an end.
    `made_by`: `INSTANCE`, `SPARK`, or another name that a newer version writes.
    `arrangement`: as `Kind.arrangement`.
    `generation`: the generation of the group member that made the snapshot, or the one that Spark passes on.
    `commit_number`: the number of the last commit in the snapshot, None if it isn't known.
    `positions`, `stream_times`: the input offsets and the stream times (ms) that belong to the content, keyed by input
    partition. Empty if they aren't known.
    `base`: the snapshots that a delta is built on, None for a base.
    `key_prefix`: the bytes that each key in the files has in front of the store's key. An engine whose keys have the
    same prefix can link the files.
    `gone`: spans of the store's keys that have expired. No key of them counts, even if the files have it.
    """

    id: str
    application_id: str
    store: str
    kind: str
    layout: int
    changelog: str
    changelog_id: str | None
    partition: int
    offset: int
    created_ms: int
    usable_until_ms: int | None
    files: tuple[SnapshotFile, ...]
    made_by: str = field(kw_only=True)
    arrangement: str = ""
    generation: int = 0
    commit_number: int | None = None
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    stream_times: Mapping[TopicPartition, int] = field(default_factory=dict)
    base: Lineage | None = None
    key_prefix: bytes = b""
    gone: tuple[Span, ...] = ()

    @property
    def entries(self) -> int:
        """The number of entries in all files. A key counts several times if several files have it."""
        return sum(file.entries for file in self.files)

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def name(self) -> str:
        """The name of the manifest. Names of one partition sort as `rank` does."""
        return f"{self.generation:010d}-{self.offset:019d}-{self.created_ms:015d}-{self.id}"

    @property
    def rank(self) -> tuple[int, int, int, str]:
        """The sort key of snapshots of one partition. The newest snapshot has the greatest rank."""
        return self.generation, self.offset, self.created_ms, self.id

    @property
    def by_member(self) -> bool:
        """True if a member of the group made the snapshot, with its own generation."""
        return self.made_by == INSTANCE

    @property
    def partition_of(self) -> TopicPartition:
        """The partition of the changelog."""
        return TopicPartition(self.changelog, self.partition)

    @property
    def folder(self) -> str:
        """The folder, below the partition's folder, with the files that only this snapshot added."""
        return f"files/{self.id}"

    @property
    def deltas(self) -> int:
        """The number of deltas on the base, with this snapshot. 0 for a base."""
        return 0 if self.base is None else len(self.base.deltas) + 1

    def path_of(self, file: SnapshotFile) -> str:
        """Return the path of `file` below the partition's folder."""
        return f"{file.folder or self.folder}/{file.name}"

    def base_bytes(self) -> int:
        """Return the bytes of the base's files."""
        folder = "" if self.base is None else f"files/{self.base.base}"
        return sum(file.bytes for file in self.files if file.folder == folder)

    def takes_delta(self, changed_bytes: int) -> bool:
        """True if the next snapshot may be a delta of about this size. If not, it must be a new base."""
        grown = self.size - self.base_bytes() + changed_bytes
        return self.deltas < MOST_DELTAS and grown < FOLDED_AT * self.base_bytes()

    def with_delta(self, delta: SnapshotManifest) -> SnapshotManifest:
        """Return the manifest of a delta that is built on this snapshot. `delta` lists only the files with the changes
        since this snapshot; the returned manifest lists all files."""
        base = Lineage(self.id) if self.base is None else Lineage(self.base.base, (*self.base.deltas, self.id))
        before = (replace(file, folder=file.folder or self.folder) for file in self.files)
        return replace(delta, base=base, files=(*before, *delta.files), gone=merged((*self.gone, *delta.gone)))

    def foreign(self, application_id: str, store: str, changelog: TopicPartition) -> str | None:
        """Return the reason why the snapshot doesn't belong to this partition of the store. None if it does.

        The topic's id can't show this, because all partitions of a changelog have the same id."""
        found = (self.application_id, self.store, self.partition_of)
        if found == (application_id, store, changelog):
            return None
        return (
            f"it is of store {self.store!r} of application {self.application_id!r}, {self.changelog}-{self.partition}: "
            "a folder was copied to where it doesn't belong"
        )

    def unfit(self, spec: StoreSpec, now_ms: int) -> str | None:
        """Return the reason why this store can't begin with the snapshot at `now_ms` (wall clock). None if it can."""
        kind = kind_of(spec)
        if not reads_as_own(spec.kind, self.kind) or self.layout != kind.version:
            return f"it is of a {self.kind} store in layout {self.layout}, this is {spec.kind} in layout {kind.version}"
        if self.arrangement != (wanted := kind.arrangement(spec)):
            return f"it has {self.arrangement}, the store has {wanted}: retention or emit have changed"
        if self.expired(now_ms):
            return "it is too old: the changelog may have forgotten deletions since (delete.retention.ms)"
        return None

    def expired(self, now_ms: int) -> bool:
        """True if the snapshot is too old at `now_ms` (wall clock), so that no store can begin with it."""
        return self.usable_until_ms is not None and now_ms > self.usable_until_ms

    def counts(self, changelog_id: str | None, now_ms: int | None) -> bool:
        """True if the snapshot isn't too old, and belongs to the present topic. A None argument isn't checked."""
        return not (self.of_another_topic(changelog_id) or (now_ms is not None and self.expired(now_ms)))

    def misplaced(self, changelog_id: str | None, first: int, end: int) -> str | None:
        """Return the reason why a restoration can't go on from the snapshot with the present changelog. None if it can.

        `changelog_id`: Kafka's id of the topic, None if unknown. `first`, `end`: the changelog's first and end
        offset."""
        if self.of_another_topic(changelog_id):
            return f"it is of an earlier topic of the same name (topic id {self.changelog_id} then, {changelog_id} now)"
        if not first <= self.offset <= end:
            return f"it ends at offset {self.offset}, and the changelog can be read from {first} to {end}"
        return None

    def of_another_topic(self, changelog_id: str | None) -> bool:
        """True if the changelog was deleted and made anew since the snapshot. False if one of the two ids isn't
        known."""
        return None not in (self.changelog_id, changelog_id) and self.changelog_id != changelog_id


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the spans, sorted. Of spans with the same beginning only the longest is kept."""
    found: dict[bytes, bytes] = {}
    for first, beyond in spans:
        found[first] = max(beyond, found.get(first, b""))
    return tuple(sorted(found.items()))


def usable_until(settings: Mapping[str, str], created_ms: int) -> int | None:
    """Return the time until which a restoration may begin with a snapshot that was made at `created_ms`. None means
    without an end.

    A deletion stays in a compacted topic for at least `delete.retention.ms`. A tenth of this time is reserved for the
    restoration itself, and for differences of clocks. `settings`: the changelog's topic settings that are in effect."""
    if "compact" not in settings["cleanup.policy"]:
        return None
    return created_ms + int(settings["delete.retention.ms"]) * 9 // 10


def new_id() -> str:
    """Make the id of a new snapshot."""
    return uuid.uuid4().hex[:12]
