"""The input of a task: one buffer per partition, and the questions that concern all of them.

*Guarantees*: those of `buffers.py`.
*Assumes*: as there, one thread adds and one takes.
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
    """Do nothing on an arrival, while no thread has the task."""


class TaskInput:
    """*Owns*: a buffer for each partition. `on_arrival`: set by the thread that has the task; the thread that adds
    records calls it once they are in the buffer."""

    def __init__(self, partitions: Iterable[TopicPartition], boundary: Boundary) -> None:
        self.buffers: Mapping[TopicPartition, InputBuffer] = {p: InputBuffer(p) for p in partitions}
        self.on_arrival: Callable[[], object] = nobody_listens
        self._boundary = boundary

    def connect(self, sources: Mapping[str, CompiledSource]) -> None:
        """Connect each partition's buffer to the program's source of its topic."""
        for (topic, _), buffer in self.buffers.items():
            buffer.connect(sources[topic])

    def add(self, partition: TopicPartition, messages: Collection[InputRecord]) -> None:
        """Append records, as Kafka's client gave them, in offset order, without errors."""
        self.buffers[partition].add(messages)
        self.on_arrival()

    def reached_end(self, partition: TopicPartition, position: int, now_ms: int) -> None:
        """Note that all records before `position` have been added, and that Kafka has no more at present (KIP-695).

        A task with several partitions waits for an empty one until its end is known, and `max_task_idle_ms` longer by
        monotonic time (`now_ms`). Trailing control records count: once all records before them are processed,
        `position` is the offset to commit.
        """
        self.buffers[partition].reached_end(position, now_ms)

    def skip_to(self, partition: TopicPartition, position: int) -> None:
        """Begin at `position`, after the added records: Kafka no longer has the records in between."""
        buffer = self.buffers[partition]
        with self._boundary.lock:
            if not buffer.messages:
                buffer.seek(position, buffer.stream_time)
                self._boundary.changed = True

    def drop_behind_head(self, partition: TopicPartition) -> int | None:
        """Drop the records behind the head, which may be in work, and return the offset from which to fetch again; None
        when no record was dropped."""
        with self._boundary.lock:
            return self.buffers[partition].drop_behind_head()

    def next_fetch(self, partition: TopicPartition) -> int:
        """The offset after the last record that was added."""
        return self.buffers[partition].next_fetch()

    def position(self, partition: TopicPartition) -> int:
        """The next offset to process."""
        return self.buffers[partition].position

    def next_offset(self, partition: TopicPartition) -> int:
        """The offset that a commit would have now: the next one to process, past trailing control records."""
        return self.buffers[partition].next_offset()

    def waiting(self) -> int:
        """The number of waiting records."""
        return sum(len(buffer.messages) for buffer in self.buffers.values())

    def waiting_of(self, partition: TopicPartition) -> int:
        """The number of waiting records of one partition."""
        return len(self.buffers[partition].messages)

    def bytes(self) -> int:
        """Memory of the waiting records, about."""
        return sum(buffer.bytes() for buffer in self.buffers.values())

    def bytes_of(self, partition: TopicPartition) -> int:
        """Memory of the waiting records of one partition, about."""
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
        """The number of offsets between these positions and the partitions' present ones."""
        return sum(buffer.position - positions[partition].offset for partition, buffer in self.buffers.items())

    def seek(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Drop all waiting records, and begin at these positions."""
        for partition, at in positions.items():
            self.buffers[partition].seek(at.offset, at.stream_time)

    def clear(self) -> None:
        """Drop all waiting records."""
        for buffer in self.buffers.values():
            buffer.clear()
