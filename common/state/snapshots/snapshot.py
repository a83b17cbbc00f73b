"""A snapshot: the content of one store partition up to an offset of its changelog, as sorted table files.

    <url>/<application_id>/<changelog>/<partition>/
        manifests/<generation>-<offset>-<time>-<id>.json   one per snapshot, never changed
        files/<id>/<name>                                  what `sst.py` writes for the snapshot of that id
        latest.json                                        a copy of the newest manifest: a hint

A *base* has all entries. A *delta* has the keys that were changed since another snapshot, the deleted ones too. A
manifest lists every file that a reader needs, those of the base and of the deltas before it included, in the order in
which they are taken in: a later file replaces what an earlier one says of a key.

A snapshot is a shortcut, never the truth: a store whose snapshot doesn't fit or can't be read is restored from the
changelog.

*Guarantees*: `foreign`, `unfit` and `misplaced` refuse every snapshot that would give another content than the
changelog, for instance by a deletion that the topic's compaction has forgotten: a reader of the tail would never meet
it. Names rise with generation and offset: what a member of an older generation makes is never the newest.
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
"""On one base."""
FOLDED_AT: Final = 0.5
"""The share of its base's bytes at which the deltas of a base are folded into a new one."""
INSTANCE, SPARK = "instance", "spark"
"""What makes snapshots: an instance, a member of the group, whose generation they have; Spark, which hands one on."""


@dataclass(frozen=True)
class SnapshotFile:
    """One table file, as it is stored.

    `entries` and `deletions`: of how many keys it has the value, and of how many it says that they are gone. `sha256`:
    the digest of its bytes, in hex. `folder`: where it lies below the partition; empty in the folder of its own
    snapshot. `key_id`: of the key that it is encrypted with; None when it isn't.
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
    """What a delta is built on: the id of its base, and those of the deltas between the base and it, oldest first."""

    base: str
    deltas: tuple[str, ...] = ()


@dataclass(frozen=True)
class SnapshotManifest:
    """The origin and the files of a snapshot.

    `id` differs between snapshots of the same offset, such as those of two attempts. `offset`: the changelog's next
    offset after the content. `changelog_id`: Kafka's id of the topic, None where brokers tell none. `usable_until_ms`:
    wall clock; None without an end. `made_by`: `INSTANCE`, `SPARK`, or what a newer version names. `arrangement`:
    `Kind.arrangement`. `generation`: of the group member that made it, or that Spark hands on. `commit_number`: of the
    commit that it ends with, None where that isn't known. `positions`: the input offsets that belong to the content,
    `stream_times`: in ms; both by input partition, and empty where they aren't known. `base`: None when the snapshot is
    a base. `key_prefix`: what all keys in the files have in front of the store's own, so that an engine that keeps them
    so can link the files. `gone`: spans of the store's keys of which nothing is there any more, whatever the files say:
    no reader asks for them.
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
        """Of all files. Those of a delta may be newer values of keys that its base has, too."""
        return sum(file.entries for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def name(self) -> str:
        """The name of the manifest. Names of one partition sort as `rank` does."""
        return f"{self.generation:010d}-{self.offset:019d}-{self.created_ms:015d}-{self.id}"

    @property
    def rank(self) -> tuple[int, int, int, str]:
        """The newest snapshot has the greatest one."""
        return self.generation, self.offset, self.created_ms, self.id

    @property
    def by_member(self) -> bool:
        """True if a member of the group has made it, whose generation it has."""
        return self.made_by == INSTANCE

    @property
    def partition_of(self) -> TopicPartition:
        """The changelog's partition."""
        return TopicPartition(self.changelog, self.partition)

    @property
    def folder(self) -> str:
        """Where the files of this snapshot alone lie, below the partition."""
        return f"files/{self.id}"

    @property
    def deltas(self) -> int:
        """The number of deltas, this one included."""
        return 0 if self.base is None else len(self.base.deltas) + 1

    def path_of(self, file: SnapshotFile) -> str:
        """Where `file` lies, below the partition."""
        return f"{file.folder or self.folder}/{file.name}"

    def base_bytes(self) -> int:
        """Bytes of the base's files."""
        folder = "" if self.base is None else f"files/{self.base.base}"
        return sum(file.bytes for file in self.files if file.folder == folder)

    def takes_delta(self, changed_bytes: int) -> bool:
        """True if a delta of about this size may be put on this snapshot. If not, the next one is a base."""
        grown = self.size - self.base_bytes() + changed_bytes
        return self.deltas < MOST_DELTAS and grown < FOLDED_AT * self.base_bytes()

    def with_delta(self, delta: SnapshotManifest) -> SnapshotManifest:
        """`delta`, whose files have what changed since this snapshot, as a snapshot that is built on this one."""
        base = Lineage(self.id) if self.base is None else Lineage(self.base.base, (*self.base.deltas, self.id))
        before = (replace(file, folder=file.folder or self.folder) for file in self.files)
        return replace(delta, base=base, files=(*before, *delta.files), gone=merged((*self.gone, *delta.gone)))

    def foreign(self, application_id: str, store: str, changelog: TopicPartition) -> str | None:
        """Why the snapshot isn't of this store partition; None when it is. All partitions of a changelog have one topic
        id."""
        found = (self.application_id, self.store, self.partition_of)
        if found == (application_id, store, changelog):
            return None
        return (
            f"it is of store {self.store!r} of application {self.application_id!r}, {self.changelog}-{self.partition}: "
            "a folder was copied to where it doesn't belong"
        )

    def unfit(self, spec: StoreSpec, now_ms: int) -> str | None:
        """Why this store can't begin with the snapshot at this time (wall clock); None when it can."""
        kind = kind_of(spec)
        if not reads_as_own(spec.kind, self.kind) or self.layout != kind.version:
            return f"it is of a {self.kind} store in layout {self.layout}, this is {spec.kind} in layout {kind.version}"
        if self.arrangement != (wanted := kind.arrangement(spec)):
            return f"it has {self.arrangement}, the store has {wanted}: retention or emit have changed"
        if self.expired(now_ms):
            return "it is too old: the changelog may have forgotten deletions since (delete.retention.ms)"
        return None

    def expired(self, now_ms: int) -> bool:
        """True if a store can't begin with it any more, at this time (wall clock)."""
        return self.usable_until_ms is not None and now_ms > self.usable_until_ms

    def counts(self, changelog_id: str | None, now_ms: int | None) -> bool:
        """True if a store may begin with it, as far as time and the changelog's topic go. None: not known."""
        return not (self.of_another_topic(changelog_id) or (now_ms is not None and self.expired(now_ms)))

    def misplaced(self, changelog_id: str | None, first: int, end: int) -> str | None:
        """Why the present changelog can't follow the snapshot; None when it can. `changelog_id`: Kafka's, None when
        unknown; `first` and `end`: the changelog's offsets."""
        if self.of_another_topic(changelog_id):
            return f"it is of another topic of that name (topic id {self.changelog_id} then, {changelog_id} now)"
        if not first <= self.offset <= end:
            return f"it ends at offset {self.offset}, and the changelog can be read from {first} to {end}"
        return None

    def of_another_topic(self, changelog_id: str | None) -> bool:
        """True if the changelog was deleted and made anew since. None: its id isn't known."""
        return None not in (self.changelog_id, changelog_id) and self.changelog_id != changelog_id


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The spans, the longest of those that begin alike."""
    found: dict[bytes, bytes] = {}
    for first, beyond in spans:
        found[first] = max(beyond, found.get(first, b""))
    return tuple(sorted(found.items()))


def usable_until(settings: Mapping[str, str], created_ms: int) -> int | None:
    """How long a snapshot can be the beginning of a restoration. A deletion that comes after it stays in a compacted
    topic for `delete.retention.ms` at least; a tenth of that is for the restoration itself, and clocks that differ.
    `settings`: those in effect, of the changelog."""
    if "compact" not in settings["cleanup.policy"]:
        return None
    return created_ms + int(settings["delete.retention.ms"]) * 9 // 10


def new_id() -> str:
    """The id of a snapshot that is to be made."""
    return uuid.uuid4().hex[:12]
