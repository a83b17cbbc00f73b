"""A snapshot: the content of one store partition up to an offset of its changelog, as sorted table files.

    <url>/<application_id>/<changelog>/<partition>/
        latest.json                         the manifest of the newest snapshot; replaced last
        <time>-<offset>-<id>/manifest.json  the same, kept with its files
        <time>-<offset>-<id>/00000.sst ...  what `sst.py` writes

A snapshot is a shortcut, never the truth: a store whose snapshot doesn't fit or can't be read is restored from the
changelog.

*Guarantees*: `foreign`, `unfit` and `misplaced` refuse every snapshot that would give another content than the
changelog, for instance by a deletion that the topic's compaction has forgotten: a reader of the tail would never meet
it. A part of a manifest that becomes part of a path is a plain name.
*Assumes*: the clocks of the snapshot's writer and reader differ by less than a tenth of `delete.retention.ms`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from milestones.common.errors import StateFormatError
from milestones.common.records import TopicPartition
from milestones.common.state.disk import is_plain_name
from milestones.common.state.manifest import text
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.kinds import kind_of, reads_as_own

FORMAT = 1


@dataclass(frozen=True)
class SnapshotFile:
    """One table file. `sha256`: the digest of its bytes, in hex."""

    name: str
    bytes: int
    entries: int
    sha256: str


@dataclass(frozen=True)
class SnapshotManifest:
    """The origin and the files of a snapshot.

    `id` differs between snapshots of the same offset, such as those of two attempts. `offset`: the changelog's next
    offset after the content. `changelog_id`: Kafka's id of the topic, None where brokers tell none. `usable_until_ms`:
    wall clock; None without an end. `arrangement`: `Kind.arrangement`.
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
    arrangement: str = ""

    @property
    def entries(self) -> int:
        return sum(file.entries for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    def encode(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, where: str) -> SnapshotManifest:
        """The manifest in `data`; `StateFormatError`, which names `where`, when it isn't one of this format."""
        try:
            written = json.loads(data)
            version = written.pop("format")
            if version == FORMAT:
                return cls._of(written)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateFormatError(f"{where} isn't a snapshot's manifest ({type(error).__name__}: {error})") from error
        raise StateFormatError(f"{where} has format {version!r}, and this version knows {FORMAT}")

    @classmethod
    def _of(cls, written: Mapping[str, Any]) -> SnapshotManifest:
        known = {name: written[name] for name in cls.__dataclass_fields__ if name != "arrangement"}
        known["arrangement"] = written.get("arrangement", "")
        for name in ("id", "application_id", "store", "kind", "changelog", "arrangement"):
            text(known[name])
        if known["changelog_id"] is not None:
            text(known["changelog_id"])
        files = tuple(
            SnapshotFile(str(file["name"]), int(file["bytes"]), int(file["entries"]), str(file["sha256"]))
            for file in written["files"]
        )
        if not all(is_plain_name(file.name) for file in files):
            raise ValueError("the name of a file isn't that of an entry of its folder")
        if not (is_plain_name(known["id"]) and is_plain_name(known["changelog"])):
            raise ValueError("its id, or its changelog, can't be a part of its folder's name")
        until = written["usable_until_ms"]
        numbers = {name: int(known[name]) for name in ("layout", "partition", "offset", "created_ms")}
        return cls(**{**known, **numbers, "usable_until_ms": None if until is None else int(until), "files": files})

    def foreign(self, application_id: str, store: str, changelog: TopicPartition) -> str | None:
        """Why the snapshot isn't of this store partition; None when it is. All partitions of a changelog have one topic
        id."""
        found = (self.application_id, self.store, TopicPartition(self.changelog, self.partition))
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
        if self.usable_until_ms is not None and now_ms > self.usable_until_ms:
            return "it is too old: the changelog may have forgotten deletions since (delete.retention.ms)"
        return None

    def misplaced(self, changelog_id: str | None, first: int, end: int) -> str | None:
        """Why the present changelog can't follow the snapshot; None when it can. `changelog_id`: Kafka's, None when
        unknown; `first` and `end`: the changelog's offsets."""
        if None not in (self.changelog_id, changelog_id) and self.changelog_id != changelog_id:
            return f"it is of another topic of that name (topic id {self.changelog_id} then, {changelog_id} now)"
        if not first <= self.offset <= end:
            return f"it ends at offset {self.offset}, and the changelog can be read from {first} to {end}"
        return None
