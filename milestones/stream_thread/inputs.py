"""From the main consumer into the tasks' input buffers.

*Guarantees*
- A task's partition is fetched from its committed position. Without one, the reset policy of its source says where. If
  the policy names an end, the end is committed before the partition's first record is read. So nothing is skipped when
  the task begins once more.
- Buffers are bounded as `throttle.py` says.
- The client may have a record for a partition that has none. It doesn't wait behind records of other partitions, even
  if these are processed slowly.
- A turn looks at the tasks that have changed, and at partitions that got records.

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
"""How often a commit of where a task begins is asked for."""

TELL_MS = 30_000
"""The time between two log lines about a task that can't be fed."""

RESTED_MS, DRAIN_MS = 50, 20
"""How long nothing has been fetched, while input waits, before the client's queue is drained for partitions
without records; and for how long it is."""


class Inputs:
    """The tasks that are fed, and those that wait for where to start.

    *Owns*: the main consumer's assignment. *Sends*: `AskBounds`. *Receives*: `Bounds`. For metrics: `polls`, `poll_ns`
    the time they took, `fetched` records; `pauses`, `buffered_bytes` as in `Throttle`.
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
        """Since when a task's bounds aren't known, when the log says so next, and why."""
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
        """Start the task at its committed offsets, at once or as soon as it is known where partitions without one
        begin; `take_started` gives it back."""
        missing = frozenset(task.partitions) - committed.keys()
        if missing:
            self._waiting[task.id] = task, committed
            self._ask(task.id, missing)
        else:
            self._feed(task, committed, {})

    @property
    def holds(self) -> bool:
        """A task isn't fed yet, though it has started: where it begins is to be committed first."""
        return any(id.subtopology not in self._paused for id in self._unfed)

    def take_started(self) -> list[Task]:
        started, self._started = self._started, []
        return started

    def take_failed(self) -> list[tuple[TaskId, MilestonesError]]:
        """The tasks that can't be fed, each with its error: Kafka doesn't say where an input begins, the reset policy
        doesn't allow to say it, or this principal may not read it. They are to be stopped."""
        failed, self._failed = self._failed, []
        return failed

    def failing(self) -> dict[TaskId, str]:
        """Why a task isn't fed, by task whose inputs' bounds Kafka doesn't say."""
        return {id: f"the bounds of its inputs aren't known: {error}" for id, (_, _, error) in self._failing.items()}

    def take_changed(self) -> dict[Task, None]:
        """The tasks that may have something to commit since the last call: an end that was reached, a place to begin
        at."""
        changed, self._changed = self._changed, {}
        return changed

    def stop(self, task: Task) -> None:
        """Feed the task no more."""
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
        """Start the tasks whose bounds have come, or whose beginning is committed."""
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
        """Fetch from there; the client pauses none of them any more."""
        self._consumer.assign(positions)
        self._throttle.look_at(positions)

    def _ask(self, task: TaskId, partitions: frozenset[TopicPartition]) -> None:
        if partitions:
            since = self._since(partitions)
            question = AskBounds(task, partitions, self._answers, committed=self._config.exactly_once, since=since)
            self._context.housekeeper.put(question, timeout_ms=1_000)

    def _since(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The time from which on records are wanted of those partitions of which only young ones are, ms."""
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
        if any(self._policy(partition) != "earliest" for partition in resets):  # what they name moves on
            task.commit_start()
        if task.start_pends:
            self._unfed[task.id] = task, positions
        else:
            self._assign(positions)

    def _feed_committed(self) -> None:
        """Feed the tasks whose beginning is committed by now; have that of the others committed."""
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
        """Where a partition begins of which nothing is committed; a warning of records that are skipped."""
        position, (first, _) = self._reset(partition, answer), answer.bounds[partition]
        if position > first:
            log.warning(
                "%s begins at offset %d: nothing is committed of it, and auto_offset_reset has the %d offsets before "
                "skipped. In the first start of an application that is as it should be; else its offsets have expired, "
                "or the topic was made anew", partition, position, position - first,
            )  # fmt: skip
        return position

    def _reset(self, partition: TopicPartition, answer: Bounds) -> int:
        """The first position without a usable committed offset, as the reset policy says."""
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
        """One fetch into the buffers; False when nothing came. While `starving`, one after the other, for at most
        `DRAIN_MS`, until the client has no more."""
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
        """A partition has no records, while others' records wait for so long that nothing is fetched meanwhile,
        as of the last `throttle`: the client has one queue, in which a record that would be processed at once may lie
        behind all that was prefetched of the others."""
        rested_ms = self._clock.monotonic_ms() - self._fetched_ms
        return rested_ms >= RESTED_MS and self._throttle.holding and self._throttle.hungry

    def _fetch(self, timeout_ms: int) -> int:
        """The number of records that came."""
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
            # One broker doesn't know it. Whether it was deleted, or made anew, the housekeeper says.
            self._have_looked_at(partition)
            log.warning("%s: a broker doesn't know this partition; it is looked for again", partition)
            self._consumer.unassign([partition])
            self._away[partition] = self._clock.monotonic_ms() + LATEST_MS
        for partition, error in fetched.refused.items():
            self._consumer.unassign([partition])
            self._failed.append((self._tasks[partition].id, error))

    def _have_looked_at(self, partition: TopicPartition) -> None:
        """Have the housekeeper look whether the topic is still the one that the position belongs to, which is an error
        of the client otherwise; the answer isn't needed."""
        known = known_ids([partition], {}, self._tasks[partition].topic_ids)
        self._context.housekeeper.try_put(AskTopicIds(0, frozenset({partition.topic}), known, Mailbox(1, "no one")))

    def throttle(self, changed: Iterable[Task] | None = None) -> None:
        """Fetch no more for full partitions, and again for those that have drained, as `Throttle` says; before each
        `fetch`. `changed`: the tasks that may have processed input since the last call, by default any."""
        self._throttle.run_once(changed)

    def pause(self, subtopologies: frozenset[int]) -> None:
        """Fetch nothing for tasks of these sub-topologies, from the next `throttle` on; for all others again."""
        self._paused = subtopologies
        self._throttle.pause(subtopologies)

    @property
    def buffered_bytes(self) -> int:
        return self._throttle.buffered_bytes

    @property
    def pauses(self) -> int:
        return self._throttle.pauses

    def lags(self) -> dict[TopicPartition, int]:
        """Records not yet processed, by partition, as far as the consumer knows. Control records that nothing follows
        don't count, as soon as the end was seen to be reached."""
        ends = {partition: self._consumer.known_end(partition) for partition in self._tasks}
        return {p: max(0, end - self._tasks[p].input.next_offset(p)) for p, end in ends.items() if end is not None}
