"""The input of a task: one buffer per partition, and the operations that concern all partitions.

*Guarantees*: those of `buffers.py`.
*Assumes*: one thread adds records, and one thread takes them, as in `buffers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from milestones.common.task.buffers import InputBuffer, InputRecord

if TYPE_CHECKING:
    from milestones.common.records import TopicPartition
    from milestones.common.task.boundary import Boundary, Position
    from milestones.common.topology.compiled import CompiledSource


def nobody_listens() -> None:
    """Do nothing. This is `on_arrival` while no thread owns the task."""


class TaskInput:
    """*Owns*: a buffer for each partition.

    The thread that owns the task sets `on_arrival`. The thread that adds records calls `on_arrival` when they are in
    the buffer.
    """

    def __init__(self, partitions: Iterable[TopicPartition], boundary: Boundary) -> None:
        self.buffers: Mapping[TopicPartition, InputBuffer] = {p: InputBuffer(p) for p in partitions}
        self.on_arrival: Callable[[], object] = nobody_listens
        self._boundary = boundary

    def connect(self, sources: Mapping[str, CompiledSource]) -> None:
        """Connect each partition's buffer to the source that the program has for its topic."""
        for (topic, _), buffer in self.buffers.items():
            buffer.connect(sources[topic])

    def add(self, partition: TopicPartition, messages: Collection[InputRecord]) -> None:
        """Append records, which must be in offset order and without errors."""
        self.buffers[partition].add(messages)
        self.on_arrival()

    def reached_end(self, partition: TopicPartition, position: int, now_ms: int) -> None:
        """Note that all records before `position` have been added, and that Kafka has no more at present (KIP-695).

        A task with several partitions waits for an empty partition until its end is known, and `max_task_idle_ms`
        longer by monotonic time (`now_ms`). Trailing control records count as processed when all records before them
        are processed. Then `position` is the offset to commit.
        """
        self.buffers[partition].reached_end(position, now_ms)

    def skip_to(self, partition: TopicPartition, position: int) -> None:
        """Begin at `position` after the added records, because Kafka no longer has the records in between."""
        buffer = self.buffers[partition]
        with self._boundary.lock:
            if not buffer.messages:
                buffer.seek(position, buffer.stream_time)
                self._boundary.changed = True

    def drop_behind_head(self, partition: TopicPartition) -> int | None:
        """Drop all records behind the head, and return the offset from which to fetch them later. The head stays, as it
        may be in work. Returns None if no record was dropped."""
        with self._boundary.lock:
            return self.buffers[partition].drop_behind_head()

    def next_fetch(self, partition: TopicPartition) -> int:
        """Return the offset after the last record that was added."""
        return self.buffers[partition].next_fetch()

    def position(self, partition: TopicPartition) -> int:
        """Return the next offset to process."""
        return self.buffers[partition].position

    def next_offset(self, partition: TopicPartition) -> int:
        """Return the offset that a commit would contain now: the next offset to process, after trailing control
        records."""
        return self.buffers[partition].next_offset()

    def waiting(self) -> int:
        """Return the number of waiting records."""
        return sum(len(buffer.messages) for buffer in self.buffers.values())

    def waiting_of(self, partition: TopicPartition) -> int:
        """Return the number of waiting records of one partition."""
        return len(self.buffers[partition].messages)

    def bytes(self) -> int:
        """Return the approximate memory of the waiting records."""
        return sum(buffer.bytes() for buffer in self.buffers.values())

    def bytes_of(self, partition: TopicPartition) -> int:
        """Return the approximate memory of the waiting records of one partition."""
        return self.buffers[partition].bytes()

    def ready(self, max_idle_ms: int, now_ms: int) -> bool:
        """True if a record may be processed now."""
        waiting = False
        for buffer in self.buffers.values():
            if buffer.messages:
                waiting = True
            elif not buffer.may_go_on_without(max_idle_ms, now_ms):
                return False
        return waiting

    def processed_since(self, positions: Mapping[TopicPartition, Position]) -> int:
        """Return the number of offsets between these positions and the partitions' current positions."""
        return sum(buffer.position - positions[partition].offset for partition, buffer in self.buffers.items())

    def seek(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Drop all waiting records, and begin at these positions."""
        for partition, at in positions.items():
            self.buffers[partition].seek(at.offset, at.stream_time)

    def clear(self) -> None:
        """Drop all waiting records."""
        for buffer in self.buffers.values():
            buffer.clear()
