"""The last boundary of a task: everything that its finished records have produced since the last commit. Nothing of the
record in work is in it.

*Guarantees*: a thread that holds the lock sees the work of the same records everywhere: in the outputs, in the input
buffers (offsets and stream times) and in the stores (writes).
*Assumes*: a thread holds the lock only for moments, such as a merge or a freeze, and never while user code runs.
*Why this way*: a commit must not wait for user code that runs for long. With a boundary per record, the stream thread
can commit the finished records while a processing thread is inside a record. The epoch replaces waiting after a
roll-back, too: the thread that comes back with work of an older epoch finds that its epoch has passed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milestones.common.records import Emitted, TaskId, TopicPartition, emitted_bytes
from milestones.common.task.punctuation import Punctuation


class Boundary:
    """The outputs, the epoch and the lock of a boundary.

    `epoch` rises with each roll-back: scopes and commits of an older epoch are void. `retained_bytes`: memory of the
    taken outputs that are retained until Kafka has confirmed them.

    *Concurrency*: the processing thread adds the work of its records. The committing thread takes it.
    """

    __slots__ = ("changed", "epoch", "lock", "outputs", "retained_bytes")

    def __init__(self) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.epoch: int = 0
        self.outputs: list[Emitted] = []
        self.changed: bool = False
        self.retained_bytes: int = 0

    def take_outputs(self) -> list[Emitted]:
        """Return the outputs of finished records, in order, and hand them over to the caller."""
        with self.lock:
            taken, self.outputs = self.outputs, []
        return taken

    def put_back(self, outputs: Sequence[Emitted]) -> None:
        """Take back the last ones of the taken outputs, which found no room. The returned outputs will come before
        later ones."""
        with self.lock:
            self.outputs[:0] = outputs

    def output_bytes(self) -> int:
        """Return the approximate memory of the waiting outputs and of those that the collector keeps. Any thread may
        ask."""
        return self.retained_bytes + emitted_bytes(self.outputs)


@dataclass(frozen=True)
class Position:
    """The next offset and the stream time of one input partition."""

    offset: int
    stream_time: int


Times = tuple[Mapping[Punctuation, int], Mapping[Punctuation, int]]
"""The times (ms) at which punctuations are due: first those by stream time, then those by the wall clock."""


@dataclass(frozen=True)
class RollbackPoint:
    """The state that a roll-back returns to: the input positions, the times of punctuations, and the values that
    operators and stores remember (`Cells.values`)."""

    positions: Mapping[TopicPartition, Position]
    punctuations: Times
    memory: Mapping[str, Any]


@dataclass(frozen=True)
class PendingCommit:
    """The frozen boundary of a task, from the freeze until the commit is confirmed or has failed."""

    task: TaskId
    epoch: int
    number: int
    """The number of this commit of the task. The metadata of the offsets holds it, too."""
    outputs: list[Emitted]
    """The outputs that weren't taken before the freeze."""
    offsets: Mapping[TopicPartition, int]
    """The next offset to read, for every input partition of the task."""
    metadata: Mapping[TopicPartition, str]
    """The stream time and the commit number, encoded by `metadata.py`."""
    changelog: Callable[[], Iterable[Emitted]] = tuple
    """Returns the changelog records of the stores that log at a commit. These records are made while they are read.
    Until the commit is applied, each call returns the same records."""

    def all_outputs(self) -> list[Emitted]:
        """Return the outputs, followed by the changelog records of the stores that log at a commit."""
        return [*self.outputs, *self.changelog()]
