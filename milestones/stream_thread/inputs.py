"""Moves records from the main consumer into the tasks' input buffers.

*Guarantees*
- A task's partition is fetched from its committed position. Without one, the reset policy of its source says where.
  Unless the policy is `earliest`, the position is committed before the partition's first record is read. So nothing is
  skipped when the task begins once more.
- Buffers are bounded as `throttle.py` says.
- If a task has no waiting record of a partition but the Kafka client has one, this record doesn't wait behind records
  of other partitions, even if these are processed slowly.
- A turn looks only at the tasks that have changed, and at partitions that got records.

*Assumes*: driven by the thread that owns the consumer and the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from milestones.common.errors import MilestonesError, SourceTopicError, TimeoutExceededError
from milestones.common.kafka.failures import caught
from milestones.common.kafka.retry import LATEST_MS, again_after_ms
from milestones.common.mailbox import Mailbox
from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
from milestones.instance.admin_thread import AskBounds, Bounds
from milestones.instance.topic_ids import AskTopicIds, known_ids
from milestones.stream_thread.throttle import Throttle

if TYPE_CHECKING:
    from milestones.common.kafka.consumers import Fetched
    from milestones.common.offset_reset import ResetPolicy
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import ReadClients

log: Final = logging.getLogger(__name__)

COMMIT_AGAIN_MS = 1_000
"""The pause between two requests to commit the place where a task begins."""

TELL_MS = 30_000
"""The time between two log lines about a task whose input can't be fetched yet."""

RESTED_MS, DRAIN_MS = 50, 20
"""`RESTED_MS`: the client's queue is drained if nothing has been fetched for this time, while some partitions have
waiting records and others have none. `DRAIN_MS`: the longest time of one draining."""


class Inputs:
    """Fetches records for the tasks, and keeps the tasks whose start position isn't known yet.

    *Owns*: the main consumer's assignment. *Sends*: `AskBounds`. *Receives*: `Bounds`. For metrics, `polls` counts the
    fetches, `poll_ns` their time, and `fetched` the records. `pauses` and `buffered_bytes` are those of `Throttle`.
    """

    polls: int
    poll_ns: int
    fetched: int

    def __init__(self, context: ThreadContext, clients: ReadClients) -> None:
        self._context, self._config, self._application = context, context.config, context.application
        self._clock, self._consumer = context.clock, clients.consumer
        self._answers: Mailbox[Bounds] = Mailbox(10_000, f"{context.name} input bounds")
        self._tasks: dict[TopicPartition, Task] = {}
        self._waiting: dict[TaskId, tuple[Task, Mapping[TopicPartition, OffsetAndMetadata]]] = {}
        self._lost: dict[TopicPartition, int] = {}
        self._failing: dict[TaskId, tuple[int, int, Exception]] = {}
        """For each task whose bounds Kafka hasn't returned: the time of the first error, the time from which on the log
        may report the task next, and the last error."""
        self._again: dict[TaskId, int] = {}
        self._away: dict[TopicPartition, int] = {}
        self._started: list[Task] = []
        self._failed: list[tuple[TaskId, MilestonesError]] = []
        self._unfed: dict[TaskId, tuple[Task, Mapping[TopicPartition, int]]] = {}
        self._asked_ms = 0
        self._changed: dict[Task, None] = {}
        self._paused: frozenset[int] = frozenset()
        self._throttle = Throttle(context, self._consumer, self._tasks, self._lost)
        self._fetched_ms = self._clock.monotonic_ms()
        self.polls = self.poll_ns = self.fetched = 0

    def start(self, task: Task, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Start the task at its committed offsets. If a partition has no committed offset, the start waits until Kafka
        has said where the partition begins. `take_started` returns the task once it has started."""
        missing = frozenset(task.partitions) - committed.keys()
        if missing:
            self._waiting[task.id] = task, committed
            self._ask(task.id, missing)
        else:
            self._feed(task, committed, {})

    @property
    def holds(self) -> bool:
        """True while a started task isn't fed yet, because the place where it begins must be committed first."""
        return any(id.subtopology not in self._paused for id in self._unfed)

    def take_started(self) -> list[Task]:
        started, self._started = self._started, []
        return started

    def take_failed(self) -> list[tuple[TaskId, MilestonesError]]:
        """Return the tasks that can't be fed, each with its error. The reasons are that Kafka doesn't say where an
        input begins, that the reset policy is `none`, or that this principal may not read the input. The caller must
        stop these tasks."""
        failed, self._failed = self._failed, []
        return failed

    def failing(self) -> dict[TaskId, str]:
        """Return the reason why a task isn't fed yet, keyed by task: Kafka hasn't returned the bounds of the task's
        inputs."""
        return {id: f"the bounds of its inputs aren't known: {error}" for id, (_, _, error) in self._failing.items()}

    def take_changed(self) -> dict[Task, None]:
        """Return the tasks that may have got something to commit since the last call. Such a task has reached the end
        of a partition, or its start position has been set."""
        changed, self._changed = self._changed, {}
        return changed

    def stop(self, task: Task) -> None:
        """Stop feeding the task."""
        self._consumer.unassign(task.partitions)
        self._throttle.end(task)
        self._changed.pop(task, None)
        self._waiting.pop(task.id, None)
        self._failing.pop(task.id, None)
        self._again.pop(task.id, None)
        self._unfed.pop(task.id, None)
        self._started = [started for started in self._started if started is not task]
        for partition in task.partitions:
            self._tasks.pop(partition, None)
            self._lost.pop(partition, None)
            self._away.pop(partition, None)

    def run_once(self) -> None:
        """Start the tasks whose bounds have come, and fetch for tasks whose start position is committed."""
        self._feed_committed()
        for answer in self._answers.drain():
            unknown = self._unknown(answer.task)
            if answer.error is not None and unknown:
                self._still_unknown(answer.task, answer.error)
                continue
            self._failing.pop(answer.task, None)
            error = caught(partial(self._take_bounds, answer, unknown), SourceTopicError)
            if isinstance(error, SourceTopicError):
                self._failed.append((answer.task, error))
        now_ms = self._clock.monotonic_ms()
        for id in [id for id, due_ms in self._again.items() if now_ms >= due_ms]:
            del self._again[id]
            self._ask(id, self._unknown(id))
        for partition in [partition for partition, due_ms in self._away.items() if now_ms >= due_ms]:
            del self._away[partition]
            self._have_looked_at(partition)
            self._assign({partition: self._tasks[partition].input.next_fetch(partition)})

    def _take_bounds(self, answer: Bounds, unknown: frozenset[TopicPartition]) -> None:
        if answer.task in self._waiting and unknown <= answer.bounds.keys():
            task, committed = self._waiting.pop(answer.task)
            self._feed(task, committed, {p: self._begin(p, answer) for p in unknown})
        for partition in self._lost.keys() & answer.bounds.keys():
            self._skip(partition, answer)

    def _assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch these partitions from these positions. The client no longer pauses any of them."""
        self._consumer.assign(positions)
        self._throttle.look_at(positions)

    def _ask(self, task: TaskId, partitions: frozenset[TopicPartition]) -> None:
        if partitions:
            since = self._since(partitions)
            question = AskBounds(task, partitions, self._answers, committed=self._config.exactly_once, since=since)
            self._context.housekeeper.put(question, timeout_ms=1_000)

    def _since(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """For each partition whose reset policy is a duration, return the timestamp in ms from which on records are
        wanted."""
        now_ms, policies = self._clock.wall_ms(), {partition: self._policy(partition) for partition in partitions}
        return {
            partition: max(0, now_ms - policy // timedelta(milliseconds=1))
            for partition, policy in policies.items()
            if isinstance(policy, timedelta)
        }

    def _still_unknown(self, task: TaskId, error: Exception) -> None:
        now_ms = self._clock.monotonic_ms()
        since_ms, tell_ms, _ = self._failing.get(task, (now_ms, now_ms, error))
        if now_ms >= tell_ms:
            tell_ms = now_ms + TELL_MS
            log.warning("bounds of task %s's inputs aren't known yet: %s", task, error)
        self._failing[task] = since_ms, tell_ms, error
        failing_ms = now_ms - since_ms
        self._again[task] = now_ms + again_after_ms(failing_ms)
        if failing_ms > self._config.task_timeout_ms:
            late = TimeoutExceededError(
                f"task {task} can't learn where its inputs begin and end within task_timeout_ms: {error}"
            )
            late.__cause__ = error
            self._failed.append((task, late))

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
        task.start(positions, {p: at.metadata for p, at in committed.items()}, initialise=False)
        self._tasks.update(dict.fromkeys(task.partitions, task))
        self._started.append(task)
        self._throttle.begin(task)
        self._changed[task] = None
        if any(self._policy(partition) != "earliest" for partition in resets):  # these positions change with time
            task.commit_start()
        if task.start_pends:
            self._unfed[task.id] = task, positions
        else:
            self._assign(positions)

    def _feed_committed(self) -> None:
        """Feed the tasks whose start positions are committed by now. Request a commit for the others."""
        if not self._unfed:
            return
        for id, (task, positions) in list(self._unfed.items()):
            if not task.start_pends:
                del self._unfed[id]
                self._assign(positions)
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._asked_ms >= COMMIT_AGAIN_MS:
            self._asked_ms = now_ms
            for task, _ in self._unfed.values():
                task.request_commit()
                self._changed[task] = None

    def _policy(self, partition: TopicPartition) -> ResetPolicy:
        if partition.topic in self._application.repartition_topics:
            return "earliest"
        policy = self._application.offset_reset(partition.topic)
        return self._config.auto_offset_reset if policy is None else policy

    def _begin(self, partition: TopicPartition, answer: Bounds) -> int:
        """Return the position at which a partition without a committed offset begins. Logs a warning if records are
        skipped."""
        position, (first, _) = self._reset(partition, answer), answer.bounds[partition]
        if position > first:
            log.warning(
                "%s begins at offset %d: nothing is committed of it, and auto_offset_reset has the %d offsets before "
                "skipped. In the first start of an application that is as it should be; else its offsets have expired, "
                "or the topic was made anew", partition, position, position - first,
            )  # fmt: skip
        return position

    def _reset(self, partition: TopicPartition, answer: Bounds) -> int:
        """Return the start position that the reset policy chooses when no committed offset can be used."""
        first, end = answer.bounds[partition]
        policy = self._policy(partition)
        if policy == "none":
            lost = self._lost.get(partition)
            why = "none is committed" if lost is None else f"offset {lost} is no longer in the log"
            raise SourceTopicError(
                f"{partition} has no offset to start from ({why}) and its reset policy is 'none'; set "
                "auto_offset_reset, or commit an offset for the group"
            )
        if isinstance(policy, timedelta):
            return max(first, answer.since[partition])
        return first if policy == "earliest" else end

    def _skip(self, partition: TopicPartition, answer: Bounds) -> None:
        lost = position = self._lost[partition]
        first, end = answer.bounds[partition]
        if not first <= lost <= end:
            position = self._reset(partition, answer)
            log.error(
                "%s: offset %d is no longer in the log, which has %d to %d, by its retention or a deletion of records: "
                "the records between are LOST to this application; it goes on at %d",
                partition, lost, first, end, position,
            )  # fmt: skip
        del self._lost[partition]
        self._tasks[partition].input.skip_to(partition, position)
        self._tasks[partition].request_commit()
        self._changed[self._tasks[partition]] = None
        self._assign({partition: position})

    def fetch(self, timeout_ms: int) -> bool:
        """Fetch once into the buffers. While `starving`, fetch repeatedly, for at most `DRAIN_MS`, until the client has
        no more records. Returns False when the first fetch brought nothing."""
        until_ms = self._clock.monotonic_ms() + DRAIN_MS
        starving = self.starving
        count = first = self._fetch(timeout_ms)
        while starving and count >= self._config.max_poll_records and self._clock.monotonic_ms() < until_ms:
            self._throttle.run_once(())
            if not self._throttle.hungry:
                break
            count = self._fetch(0)
        self._fetched_ms = self._clock.monotonic_ms()
        return first > 0

    @property
    def starving(self) -> bool:
        """True if, at the last `throttle`, one partition had no waiting records while others did, and nothing has been
        fetched for `RESTED_MS`. The client has one queue for all partitions. In it a record that could be processed
        immediately may lie behind many prefetched records of other partitions."""
        rested_ms = self._clock.monotonic_ms() - self._fetched_ms
        return rested_ms >= RESTED_MS and self._throttle.holding and self._throttle.hungry

    def _fetch(self, timeout_ms: int) -> int:
        """Fetch once. Returns the number of records that came."""
        began = perf_counter_ns()
        fetched = self._consumer.fetch(self._config.max_poll_records, timeout_ms)
        self.polls += 1
        self.poll_ns += perf_counter_ns() - began
        now_ms = self._clock.monotonic_ms()
        count = 0
        for partition, messages in fetched.records.items():
            self._tasks[partition].input.add(partition, messages)
            count += len(messages)
        self._throttle.look_at(fetched.records)
        self.fetched += count
        for partition, end in fetched.ends.items():
            self._tasks[partition].input.reached_end(partition, end, now_ms)
            self._changed[self._tasks[partition]] = None
        self._mend(fetched)
        return count

    def _mend(self, fetched: Fetched) -> None:
        for partition in fetched.out_of_range:
            task = self._tasks[partition]
            self._lost[partition] = task.input.next_fetch(partition)
            self._ask(task.id, frozenset({partition}))
        for partition in fetched.gone:
            # One broker doesn't know the partition. The housekeeper finds out whether the topic was deleted, or
            # recreated.
            self._have_looked_at(partition)
            log.warning("%s: a broker doesn't know this partition; it is looked for again", partition)
            self._consumer.unassign([partition])
            self._away[partition] = self._clock.monotonic_ms() + LATEST_MS
        for partition, error in fetched.refused.items():
            self._consumer.unassign([partition])
            self._failed.append((self._tasks[partition].id, error))

    def _have_looked_at(self, partition: TopicPartition) -> None:
        """Ask the housekeeper to check that the topic is still the one that the position belongs to. If it isn't, the
        housekeeper ends the client. The answer itself isn't needed."""
        known = known_ids([partition], {}, self._tasks[partition].topic_ids)
        self._context.housekeeper.try_put(AskTopicIds(0, frozenset({partition.topic}), known, Mailbox(1, "no one")))

    def throttle(self, changed: Iterable[Task] | None = None) -> None:
        """Pause the fetching of full partitions, and resume partitions that have drained, as `Throttle` says. Call it
        before each `fetch`. `changed`: the tasks that may have processed input since the last call; None means any
        task."""
        self._throttle.run_once(changed)

    def pause(self, subtopologies: frozenset[int]) -> None:
        """From the next `throttle` on, fetch nothing for tasks of these sub-topologies, and fetch for all others."""
        self._paused = subtopologies
        self._throttle.pause(subtopologies)

    @property
    def buffered_bytes(self) -> int:
        return self._throttle.buffered_bytes

    @property
    def pauses(self) -> int:
        return self._throttle.pauses

    def lags(self) -> dict[TopicPartition, int]:
        """Return the number of records that aren't processed yet, keyed by partition. Partitions whose end the consumer
        doesn't know are left out. Control records at the end of a partition count only until the consumer has reached
        the end."""
        ends = {partition: self._consumer.known_end(partition) for partition in self._tasks}
        return {p: max(0, end - self._tasks[p].input.next_offset(p)) for p, end in ends.items() if end is not None}
