"""`RangeRow` is a task's row in the database: the offsets of its stores, and its last commit.

*Guarantees*: if this version can't read a row or its key, it refuses the row with a `StateFormatError` that says what
to do.
*Assumes*: nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from milestones.common.errors import StateFormatError
from milestones.common.state.manifest import UNREADABLE
from milestones.m6_state_manager.ranges import BYTES, MOST, partition_of

if TYPE_CHECKING:
    from pathlib import Path

    from milestones.common.state.storage import CommitMade

FORMAT: Final = 1
WAYS_OUT: Final = "run the version that wrote it, or remove the state, which is restored from the changelogs"
_json: Final = json.JSONEncoder(separators=(",", ":")).encode
LOST: Final = -1
UNKNOWN: Final = -2
"""`LOST` and `UNKNOWN` stand in place of a commit's number: see `RangeRow`."""


@dataclass(frozen=True)
class RangeRow:
    """The row of one task.

    By store: `offsets` are the changelog offsets up to which (exclusive) the stores are complete. `changelog_ids` are
    Kafka's ids of the changelog topics, where they are known. `births` are ids that change when a store is emptied.
    `commit` is the number of the last commit that was written, 0 before the first one. `commit` is `LOST` if a store
    without changelog has lost its content, and `UNKNOWN` if an earlier stage has written the stores. By input
    partition, that commit's `positions` are next offsets, and `stream_times` are in ms. `process_id` and
    `transactional_id` name the last writer."""

    offsets: Mapping[str, int] = field(default_factory=dict)
    changelog_ids: Mapping[str, str] = field(default_factory=dict)
    births: Mapping[str, str] = field(default_factory=dict)
    commit: int = 0
    positions: Mapping[str, int] = field(default_factory=dict)
    stream_times: Mapping[str, int] = field(default_factory=dict)
    process_id: str = ""
    transactional_id: str | None = None

    def after(self, offsets: Mapping[str, int], commit: CommitMade | None) -> RangeRow:
        """Return the row with these offsets, after this commit; None: after a write that isn't a commit."""
        moved = {**self.offsets, **offsets}
        if commit is None:
            return replace(self, offsets=moved) if offsets else self
        positions = {str(at): offset for at, offset in commit.positions.items()}
        times = {str(at): time for at, time in commit.stream_times.items()}
        return replace(self, offsets=moved, commit=commit.number, positions=positions, stream_times=times)

    def without(self, store: str) -> RangeRow:
        """Return the row of a task whose store was emptied."""
        return replace(self, offsets={name: at for name, at in self.offsets.items() if name != store})

    def lost(self, store: str) -> RangeRow:
        """Return the row of a task whose store was damaged, and is empty now. A store without an offset has no
        changelog to restore it, or its first restoration hadn't ended."""
        births = {**self.births, store: uuid.uuid4().hex}
        commit = self.commit if store in self.offsets else LOST
        return replace(self.without(store), births=births, commit=commit)

    def following(self, ids: Mapping[str, str]) -> RangeRow:
        """Return the row with these changelog ids."""
        return replace(self, changelog_ids={**self.changelog_ids, **ids})

    def encode(self) -> bytes:
        return _json({"format": FORMAT, **vars(self)}).encode()  # `asdict` would copy each mapping, at every commit

    @classmethod
    def decode(cls, data: bytes, where: str) -> RangeRow:
        """Read the row in `data`. Raises `StateFormatError`, which names `where`, if the format is another one."""
        try:
            written: dict[str, Any] = json.loads(data)
            version = written.pop("format")
            if version == FORMAT:
                return msgspec.convert({name: written[name] for name in cls.__dataclass_fields__}, cls)
        except UNREADABLE as error:
            raise StateFormatError(f"{where} can't be read ({type(error).__name__}: {error})") from error
        raise StateFormatError(
            f"{where} has format {version!r}, and this version knows {FORMAT}: {WAYS_OUT}"
        )


def rows_in(found: Iterable[tuple[bytes, bytes]], number: int, path: Path) -> dict[int, RangeRow]:
    """Read the rows in the column family of rows, by partition. `number` and `path` are the sub-topology's. Raises
    `StateFormatError`."""
    rows = {}
    for key, row in found:
        partition = partition_of(key) if len(key) == BYTES else -1
        if not 0 <= partition <= MOST:
            raise StateFormatError(
                f"{path} has the row of a task under the key {key.hex()}, and this version knows partitions from 0 to "
                f"{MOST}, in {BYTES} bytes: {WAYS_OUT}"
            )
        rows[partition] = RangeRow.decode(row, f"the row of task {number}_{partition} in {path}")
    return rows
