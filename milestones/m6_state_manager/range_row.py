"""The row of a task in the database: the offsets of its stores, and its last commit. Written with the data.

*Guarantees*: a row, or the key of one, that this version can't read is refused with a `StateFormatError` that names the
way out.
*Assumes*: nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from milestones.common.errors import StateFormatError
from milestones.m6_state_manager.ranges import BYTES, MOST, partition_of

if TYPE_CHECKING:
    from pathlib import Path

    from milestones.common.state.storage import CommitMade

FORMAT: Final = 1
WAYS_OUT: Final = "run the version that wrote it, or remove the state, which is restored from the changelogs"
_json: Final = json.JSONEncoder(separators=(",", ":")).encode
LOST: Final = -1
UNKNOWN: Final = -2
"""Both in place of a commit's number."""


@dataclass(frozen=True)
class RangeRow:
    """One task. By store: `offsets`, the changelog offset up to which (exclusive) it is complete; `changelog_ids`,
    Kafka's id of that topic, where it is known; `births`, an id that is new when the store was emptied. `commit`: the
    number of the last one that was written, 0 where none was, `LOST` where a store without changelog has lost what it
    had, `UNKNOWN` where an earlier stage has written the stores; by input partition, `positions` (next offsets) and
    `stream_times` (ms) of it. `process_id`, `transactional_id`: of the last writer."""

    offsets: Mapping[str, int] = field(default_factory=dict)
    changelog_ids: Mapping[str, str] = field(default_factory=dict)
    births: Mapping[str, str] = field(default_factory=dict)
    commit: int = 0
    positions: Mapping[str, int] = field(default_factory=dict)
    stream_times: Mapping[str, int] = field(default_factory=dict)
    process_id: str = ""
    transactional_id: str | None = None

    def after(self, offsets: Mapping[str, int], commit: CommitMade | None) -> RangeRow:
        """The row with these offsets, after this commit, or after a write that is none."""
        moved = {**self.offsets, **offsets}
        if commit is None:
            return replace(self, offsets=moved) if offsets else self
        positions = {str(at): offset for at, offset in commit.positions.items()}
        times = {str(at): time for at, time in commit.stream_times.items()}
        return replace(self, offsets=moved, commit=commit.number, positions=positions, stream_times=times)

    def without(self, store: str) -> RangeRow:
        """The row of a task whose store is empty."""
        return replace(self, offsets={name: at for name, at in self.offsets.items() if name != store})

    def lost(self, store: str) -> RangeRow:
        """The row of a task whose store was damaged, and is empty. One without offset had no changelog, or no end."""
        births = {**self.births, store: uuid.uuid4().hex}
        commit = self.commit if store in self.offsets else LOST
        return replace(self.without(store), births=births, commit=commit)

    def following(self, ids: Mapping[str, str]) -> RangeRow:
        """The row with these changelog ids."""
        return replace(self, changelog_ids={**self.changelog_ids, **ids})

    def encode(self) -> bytes:
        return _json({"format": FORMAT, **vars(self)}).encode()  # `asdict` would copy each mapping, at every commit

    @classmethod
    def decode(cls, data: bytes, where: str) -> RangeRow:
        """The row in `data`; `StateFormatError`, which names `where`, when it isn't one of this format."""
        try:
            written: dict[str, Any] = json.loads(data)
            version = written.pop("format")
            if version == FORMAT:
                return cls(
                    {str(store): int(offset) for store, offset in written["offsets"].items()},
                    {str(store): str(id) for store, id in written["changelog_ids"].items()},
                    {str(store): str(id) for store, id in written["births"].items()},
                    int(written["commit"]),
                    {str(at): int(offset) for at, offset in written["positions"].items()},
                    {str(at): int(time) for at, time in written["stream_times"].items()},
                    str(written["process_id"]),
                    written["transactional_id"],
                )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateFormatError(f"{where} can't be read ({type(error).__name__}: {error})") from error
        raise StateFormatError(
            f"{where} has format {version!r}, and this version knows {FORMAT}: {WAYS_OUT}"
        )


def rows_in(found: Iterable[tuple[bytes, bytes]], number: int, path: Path) -> dict[int, RangeRow]:
    """The rows by partition, of what the column family of rows has. `number`, `path`: of the sub-topology.
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
