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
from milestones.common.mailbox import Mailbox
from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
from milestones.housekeeper import AskBounds, Bounds

if TYPE_CHECKING:
    from milestones.common.kafka.consumers import Fetched
    from milestones.common.task.task import Task
    from milestones.context import ThreadContext
    from milestones.parts import Clients

log = logging.getLogger(__name__)

class Inputs:
    """The tasks that are fed, and those that wait for where to start.

    *Owns*: the main consumer's assignment. *Sends*: `AskBounds`. *Receives*: `Bounds`.
    """

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._context, self._config, self._application = context, context.config, context.application
        self._clock, self._consumer = context.clock, clients.consumer
        self._answers: Mailbox[Bounds] = Mailbox(10_000, f"{context.name} input bounds")
        self._tasks: dict[TopicPartition, Task] = {}
        self._waiting: dict[TaskId, tuple[Task, Mapping[TopicPartition, OffsetAndMetadata]]] = {}
        self._lost: dict[TopicPartition, int] = {}
        self._started: list[Task] = []

    def start(self, task: Task, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Start the task at its committed offsets, at once or as soon as it is known where partitions without one
        begin; `take_started` gives it back."""
        missing = frozenset(task.partitions) - committed.keys()
        if missing:
            self._waiting[task.id] = task, committed
            self._ask(task.id, missing)
        else:
            self._feed(task, committed, {})

    def take_started(self) -> list[Task]:
        started, self._started = self._started, []
        return started

    def stop(self, task: Task) -> None:
        """Feed the task no more."""
        self._consumer.unassign(task.partitions)
        self._waiting.pop(task.id, None)
        for partition in task.partitions:
            self._tasks.pop(partition, None)
            self._lost.pop(partition, None)

    def run_once(self) -> None:
        """Go on with what waited for bounds."""
        for answer in self._answers.drain():
            if answer.error is not None:
                log.warning("bounds of task %s's inputs aren't known yet: %s", answer.task, answer.error)
                self._ask(answer.task, self._unknown(answer.task))
                continue
            if answer.task in self._waiting:
                task, committed = self._waiting.pop(answer.task)
                resets = {p: self._reset(p, *bounds) for p, bounds in answer.bounds.items()}
                self._feed(task, committed, resets)
            for partition in self._lost.keys() & answer.bounds.keys():
                self._skip(partition, *answer.bounds[partition])

    def _ask(self, task: TaskId, partitions: frozenset[TopicPartition]) -> None:
        if partitions:
            question = AskBounds(task, partitions, self._answers, committed=self._config.exactly_once)
            self._context.housekeeper.put(question, timeout_ms=1_000)

    def _unknown(self, id: TaskId) -> frozenset[TopicPartition]:
        lost = frozenset(p for p in self._lost if self._tasks[p].id == id)
        if id not in self._waiting:
            return lost
        task, committed = self._waiting[id]
        return lost | (frozenset(task.partitions) - committed.keys())

    def _feed(
        self, task: Task, committed: Mapping[TopicPartition, OffsetAndMetadata], resets: Mapping[TopicPartition, int]
    ) -> None:
        positions = {p: resets[p] if p in resets else committed[p].offset for p in task.partitions}
        task.start(positions, {p: at.metadata for p, at in committed.items()})
        self._consumer.assign(positions)
        self._tasks.update(dict.fromkeys(task.partitions, task))
        self._started.append(task)

    def _reset(self, partition: TopicPartition, first: int, end: int) -> int:
        """The first position without a usable committed offset, as the reset policy says."""
        internal = partition.topic in self._application.repartition_topics
        policy = "earliest" if internal else self._application.offset_reset(partition.topic)
        policy = policy or self._config.auto_offset_reset
        if policy == "none":
            lost = self._lost.get(partition)
            why = "none is committed" if lost is None else f"offset {lost} is no longer in the log"
            raise SourceTopicError(
                f"{partition} has no offset to start from ({why}) and its reset policy is 'none'; set "
                "auto_offset_reset, or commit an offset for the group"
            )
        return first if policy == "earliest" else end

    def _skip(self, partition: TopicPartition, first: int, end: int) -> None:
        position = self._reset(partition, first, end)
        lost = self._lost.pop(partition)
        log.error(
            "%s: offset %d is no longer in the log (retention?), which has %d to %d: the records between are LOST to "
            "this application; it goes on at %d", partition, lost, first, end, position,
        )  # fmt: skip
        self._tasks[partition].skip_to(partition, position)
        self._consumer.assign({partition: position})

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
            self._lost[partition] = task.position(partition)
            self._ask(task.id, frozenset({partition}))
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
