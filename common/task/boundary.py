"""The last boundary of a task: all that its finished records have staged, and nothing of the record in work.

*Guarantees*: a thread that holds the lock sees one boundary: its outputs, and, in the input buffers and stores that are
merged with it, the same records' offsets, stream times and writes.
*Assumes*: the lock is held for merging and freezing only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milestones.common.records import Emitted, TaskId, TopicPartition, emitted_bytes
from milestones.common.task.punctuation import Punctuation


class Boundary:
    """The outputs, epoch and lock of a boundary. `epoch` rises with each roll-back: scopes and commits of an older
    epoch are void. `retained_bytes`: memory of taken outputs that are retained until Kafka has confirmed them.

    *Concurrency*: the processing thread merges into it, the committing one takes from it.
    """

    __slots__ = ("changed", "epoch", "lock", "outputs", "retained_bytes")

    def __init__(self) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.epoch: int = 0
        self.outputs: list[Emitted] = []
        self.changed: bool = False
        self.retained_bytes: int = 0

    def take_outputs(self) -> list[Emitted]:
        """The outputs of finished records, in order, which the caller owns from now on."""
        with self.lock:
            taken, self.outputs = self.outputs, []
        return taken

    def put_back(self, outputs: Sequence[Emitted]) -> None:
        """Take back the last of the taken outputs, for which there was no room; they come before later ones."""
        with self.lock:
            self.outputs[:0] = outputs

    def output_bytes(self) -> int:
        """Memory of the outputs that wait, or are kept by the collector, about. Any thread may ask."""
        return self.retained_bytes + emitted_bytes(self.outputs)


@dataclass(frozen=True)
class Position:
    """The next offset and the stream time of one input partition."""

    offset: int
    stream_time: int


Times = tuple[Mapping[Punctuation, int], Mapping[Punctuation, int]]
"""The time at which each punctuation is due, ms: by stream time, and by the wall clock."""


@dataclass(frozen=True)
class RollbackPoint:
    """The state that a roll-back returns to: input positions, the times of punctuations, and what operators and stores
    remember (`Cells.values`)."""

    positions: Mapping[TopicPartition, Position]
    punctuations: Times
    memory: Mapping[str, Any]


@dataclass(frozen=True)
class PendingCommit:
    """One boundary of a task, on its way through a commit."""

    task: TaskId
    epoch: int
    number: int
    """The number of this commit of the task; also in the metadata."""
    outputs: list[Emitted]
    """The outputs that weren't taken before."""
    offsets: Mapping[TopicPartition, int]
    """Next offset to read: one for each input partition, always."""
    metadata: Mapping[TopicPartition, str]
    """Stream time and commit number, encoded (`metadata.py`)."""
    changelog: Callable[[], Iterable[Emitted]] = tuple
    """Gives the records of the stores that log at a commit, made as they are read; the same each time until the commit
    is applied."""

    def all_outputs(self) -> list[Emitted]:
        """The outputs, then those records."""
        return [*self.outputs, *self.changelog()]
