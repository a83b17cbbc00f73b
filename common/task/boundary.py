"""The last boundary of a task: everything its finished records have staged, and nothing of the one in work.

*Guarantees*: whoever holds the lock sees one boundary: its outputs, and, in the input buffers and stores that are
merged with it, the same records' offsets, stream times and writes.
*Assumes*: the lock is held for merging and freezing only.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from milestones.common.records import Emitted, TaskId, TopicPartition
from milestones.common.task.punctuation import Punctuation

OUTPUT_OVERHEAD_BYTES: Final = 250
"""Memory of an output besides its key and value: the tuple, its numbers, the objects of both."""

SAMPLE: Final = 32


class Boundary:
    """What the lock protects. `epoch` rises with each roll-back: scopes and commits of an older one are void.

    *Concurrency*: the processing thread merges into it, the committing one takes from it.
    """

    __slots__ = ("changed", "epoch", "lock", "outputs")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.epoch = 0
        self.outputs: list[Emitted] = []
        self.changed = False

    def take_outputs(self) -> list[Emitted]:
        """Outputs of finished records, in order; they are the caller's now."""
        with self.lock:
            taken, self.outputs = self.outputs, []
        return taken

    def put_back(self, outputs: Sequence[Emitted]) -> None:
        """There was no room for these, the last ones of those taken: they come before what came since."""
        with self.lock:
            self.outputs[:0] = outputs

    def output_bytes(self) -> int:
        """Memory of the outputs that wait: of many the mean of `SAMPLE` of them counts. Any thread may ask."""
        outputs = self.outputs
        count = len(outputs)
        sample = outputs[:: max(1, count // SAMPLE)]
        if not sample:
            return 0
        sampled = sum(len(output[2] or b"") + len(output[3] or b"") for output in sample)
        return count * OUTPUT_OVERHEAD_BYTES + sampled * count // len(sample)


@dataclass(frozen=True)
class Position:
    """How far one input partition is: next offset, and its stream time."""

    offset: int
    stream_time: int


Times = tuple[Mapping[Punctuation, int], Mapping[Punctuation, int]]
"""When each punctuation is due, ms: by stream time, and by the wall clock."""


@dataclass(frozen=True)
class RollbackPoint:
    """What a roll-back returns to: the input, and when punctuations are due."""

    positions: Mapping[TopicPartition, Position]
    punctuations: Times


@dataclass(frozen=True)
class PendingCommit:
    """One boundary of a task, on its way through a commit."""

    task: TaskId
    epoch: int
    number: int
    """Of this task's commits; also in the metadata."""
    outputs: list[Emitted]
    """Those not yet taken."""
    offsets: Mapping[TopicPartition, int]
    """Next offset to read: one for each input partition, always."""
    metadata: Mapping[TopicPartition, str]
    """Stream time and commit number, encoded (`metadata.py`)."""
