"""From the main consumer into the tasks' input buffers.

*Guarantees*: a task's partition is fetched from the position that was committed, else from where its source's reset
policy says; buffers are bounded: `buffered_records_per_partition` records per partition and `input_buffer_max_bytes`
per thread, each overshot by at most one fetch.
*Assumes*: driven by the thread that owns the consumer and the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from milestones.common.errors import SourceTopicError
from milestones.common.records import TopicPartition

if TYPE_CHECKING:
    from milestones.common.kafka.consumers import Committed, Fetched
    from milestones.common.task.task import Task
    from milestones.context import ThreadContext
    from milestones.parts import Clients

log = logging.getLogger(__name__)

class Inputs:
    """The tasks that are fed.

    *Owns*: the main consumer's assignment.
    """

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._config, self._application = context.config, context.application
        self._clock, self._consumer = context.clock, clients.consumer
        self._tasks: dict[TopicPartition, Task] = {}

    def start(self, task: Task, committed: Mapping[TopicPartition, Committed]) -> None:
        """Start the task at its committed offsets, or where the reset policy says, and feed it from there."""
        positions = {
            partition: committed[partition].offset if partition in committed else self._reset(partition)
            for partition in task.partitions
        }
        metadata = {p: committed[p].metadata for p in task.partitions if p in committed}
        task.start(positions, metadata)
        self._consumer.assign(positions)
        self._tasks.update(dict.fromkeys(task.partitions, task))

    def stop(self, task: Task) -> None:
        """Feed the task no more."""
        self._consumer.unassign(task.partitions)
        for partition in task.partitions:
            self._tasks.pop(partition, None)

    def _reset(self, partition: TopicPartition, lost: int | None = None) -> int:
        """The first position without a usable committed offset (`lost`: the one that is gone from the log)."""
        internal = partition.topic in self._application.repartition_topics
        policy = "earliest" if internal else self._application.offset_reset(partition.topic)
        policy = policy or self._config.auto_offset_reset
        if policy == "none":
            raise SourceTopicError(
                f"{partition} has no committed offset to start from"
                + (f": offset {lost} is no longer in the log" if lost is not None else "")
                + " and its reset policy is 'none'; set auto_offset_reset, or commit an offset for the group"
            )
        low, high = self._consumer.bounds(partition, timeout_ms=self._config.request_timeout_ms)
        position = low if policy == "earliest" else high
        if lost is not None:
            log.error(
                "%s: committed offset %d is no longer in the log (retention?); records up to %d are LOST to this "
                "application; it goes on at %d (auto_offset_reset=%s)", partition, lost, low, position, policy,
            )
        return position

    def fetch(self, timeout_ms: int) -> bool:
        """One fetch into the buffers; False when nothing came."""
        fetched = self._consumer.fetch(self._config.max_poll_records, timeout_ms)
        now_ms = self._clock.wall_ms()
        for partition, messages in fetched.records.items():
            self._tasks[partition].add(partition, messages)
        for partition, end in fetched.ends.items():
            self._tasks[partition].reached_end(partition, end, now_ms)
        self._mend(fetched)
        return bool(fetched.records)

    def _mend(self, fetched: Fetched) -> None:
        for partition in fetched.out_of_range:
            task = self._tasks[partition]
            position = self._reset(partition, lost=task.position(partition))
            task.skip_to(partition, position)
            self._consumer.assign({partition: position})
        for partition in fetched.gone:
            raise SourceTopicError(f"{partition} is gone: the topic was deleted under the running application")

    def throttle(self) -> None:
        """Pause full partitions, resume those that have drained to a half: pausing throws prefetched records away, so
        the two marks are far apart."""
        most = self._config.buffered_records_per_partition
        most_bytes = self._config.input_buffer_max_bytes // self._config.num_stream_threads
        total = sum(task.buffered_bytes() for task in set(self._tasks.values()))
        full = [p for p, task in self._tasks.items() if task.buffered_of(p) >= 2 * most]
        if total >= most_bytes:
            full = [p for p, task in self._tasks.items() if task.buffered_of(p)]
        self._consumer.pause(full)
        if total < most_bytes // 2:
            self._consumer.resume(self._drained(most))

    def _drained(self, most: int) -> Iterable[TopicPartition]:
        return [p for p in self._consumer.paused if self._tasks[p].buffered_of(p) <= most // 2]

    def lags(self) -> dict[TopicPartition, int]:
        """Records not yet processed, by partition, as far as the consumer knows."""
        ends = {partition: self._consumer.known_end(partition) for partition in self._tasks}
        return {p: max(0, end - self._tasks[p].position(p)) for p, end in ends.items() if end is not None}
