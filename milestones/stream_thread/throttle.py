"""Decides which partitions are fetched, by how much waits in the input buffers.

    room, half of it shared in equal parts:  | share | share | share | ...  |  lent to the partitions that need it   |

*Guarantees*: a partition has fewer than twice `buffered_records_per_partition` waiting records. All partitions together
hold at most this thread's share of `input_buffer_max_bytes`. One fetch may exceed each of these bounds, and so may one
record for each partition of a paused task. A partition that holds less than its share of the room is never paused
because of the bytes of other partitions. A turn looks only at tasks that have changed and at partitions that got
records. It looks at all partitions only while half of the room is used, or tasks are paused.
*Assumes*: driven by the thread that owns the consumer and adds the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from milestones.common.memory import Account

if TYPE_CHECKING:
    from milestones.common.kafka.consumers import AssignedConsumer
    from milestones.common.records import TopicPartition
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext


class Throttle:
    """*Owns*: which of the consumer's partitions are paused; how many bytes each partition held at the last look.

    For metrics, `pauses` counts how often full partitions were paused, and `buffered_bytes` the bytes of all
    partitions."""

    pauses: int
    buffered_bytes: int

    def __init__(
        self,
        context: ThreadContext,
        consumer: AssignedConsumer,
        tasks: Mapping[TopicPartition, Task],
        lost: Mapping[TopicPartition, int],
    ) -> None:
        """`tasks`: the tasks that are fed, keyed by partition. `lost`: partitions whose next position isn't known. The
        caller changes both."""
        self._consumer, self._tasks, self._lost = consumer, tasks, lost
        self._memory = context.memory
        self._records = context.config.buffered_records_per_partition
        self._held: dict[TopicPartition, int] = {}
        self._holding = 0
        self._to_look_at: set[TopicPartition] = set()
        self._paused: frozenset[int] = frozenset()
        self.pauses = self.buffered_bytes = 0

    def begin(self, task: Task) -> None:
        """Count the bytes that the task's partitions hold, from now on."""
        self._held.update(dict.fromkeys(task.partitions, 0))

    def end(self, task: Task) -> None:
        """Stop counting the task's partitions."""
        self._to_look_at.difference_update(task.partitions)
        for partition in task.partitions:
            self._note(partition, 0)
            self._held.pop(partition, None)

    def look_at(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that these partitions may have got records, or are no longer paused."""
        self._to_look_at.update(partitions)

    def pause(self, subtopologies: frozenset[int]) -> None:
        """From the next `run_once` on, fetch nothing for tasks of these sub-topologies, and fetch for all others."""
        self._paused = subtopologies
        self._to_look_at.update(self._tasks)

    @property
    def holding(self) -> bool:
        """True if some partition has waiting records. Partitions of paused tasks don't count."""
        return bool(self._going()) if self._paused else self._holding > 0

    @property
    def hungry(self) -> bool:
        """True if some partition has no waiting records. Partitions of paused tasks don't count."""
        if self._paused:
            return any(not self._held[partition] for partition in self._tasks if not self._rests(partition))
        return self._holding < len(self._held)

    def run_once(self, changed: Iterable[Task] | None = None) -> None:
        """Pause full partitions, and resume partitions whose buffers have drained to a half. The two limits are far
        apart, because a pause is expensive. A pause throws prefetched records away. After the pause, the first record
        may come only with the answer to the fetch that is under way (up to `fetch.wait.max.ms`). An empty partition is
        always fetched while its task needs a record of it to process what its other partitions have buffered.
        Partitions of paused tasks stay paused. Each of them keeps at most one record, which takes no room from the
        other partitions.

        `changed`: the tasks that may have processed input since the last call; None means any task."""
        looked_at = [partition for partition in self._to_look_at if partition in self._tasks]
        self._to_look_at = set()
        if self._paused:
            self._rest([partition for partition in looked_at if self._rests(partition)])
        for task in self._tasks.values() if changed is None else changed:
            self._count(task.partitions)
        self._count(looked_at)
        full = [p for p in looked_at if self._tasks[p].input.waiting_of(p) >= 2 * self._records]
        share, lent, borrowed = self._borrowed()
        if sum(borrowed.values()) >= lent:
            full += borrowed
        self._stop([partition for partition in full if not self._rests(partition)])
        tight = sum(borrowed.values()) >= max(1, lent // 2)
        stopped = [p for p in self._consumer.paused if p in self._tasks and not self._rests(p)]
        self._consumer.resume([p for p in stopped if self._may_resume(p, share // 2 if tight else None)])

    def _borrowed(self) -> tuple[int, int, dict[TopicPartition, int]]:
        """Returns each partition's share in bytes, the bytes that are lent in all, and what partitions hold above their
        shares. The third result is empty while it can't reach half of the lent bytes."""
        lent = self._memory.part(Account.INPUT) // 2
        share = lent // max(1, len(self._held))
        if self.buffered_bytes < lent // 2:
            return share, lent, {}
        held = self._going() if self._paused else self._held
        return share, lent, {partition: size - share for partition, size in held.items() if size > share}

    def _count(self, partitions: Iterable[TopicPartition]) -> None:
        """Count the bytes that these partitions hold now."""
        for partition in partitions:
            if partition in self._held:
                self._note(partition, self._tasks[partition].input.bytes_of(partition))

    def _note(self, partition: TopicPartition, held: int) -> None:
        before = self._held.get(partition, 0)
        if held != before:
            self._held[partition] = held
            self.buffered_bytes += held - before
            self._holding += (held > 0) - (before > 0)

    def _going(self) -> dict[TopicPartition, int]:
        """Return the bytes of each partition, without partitions of paused tasks. Records of paused tasks stay buffered
        until the pause ends. If their bytes were counted, they could keep the partitions of other tasks paused for as
        long."""
        return {partition: held for partition, held in self._held.items() if held and not self._rests(partition)}

    def _stop(self, full: list[TopicPartition]) -> None:
        if full:
            self.pauses += len(self._consumer.assigned.intersection(full) - self._consumer.paused)
            self._consumer.pause(full)

    def _may_resume(self, partition: TopicPartition, most_bytes: int | None) -> bool:
        task = self._tasks[partition]
        waiting = task.input.waiting_of(partition)
        if waiting == 0 and task.input.waiting() > 0:
            return True
        return waiting <= self._records and (most_bytes is None or self._held[partition] <= most_bytes)

    def _rests(self, partition: TopicPartition) -> bool:
        """True if the task of the partition is paused."""
        return partition in self._tasks and self._tasks[partition].id.subtopology in self._paused

    def _rest(self, partitions: list[TopicPartition]) -> None:
        """Fetch nothing for paused tasks. Their waiting records, except the first, are dropped, and are refetched after
        the pause."""
        for partition in partitions:
            position = None if partition in self._lost else self._tasks[partition].input.drop_behind_head(partition)
            if position is not None:
                self._consumer.assign({partition: position})
        self._consumer.pause(partitions)
