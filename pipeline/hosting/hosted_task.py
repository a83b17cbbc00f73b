"""Runs one task of the topology over a range of its input, from its committed state to the last commit.

    committed offsets ---> restored ---> started ---> fetch, process, send, commit ... ---> all committed

The task and the parts around it are the runtime's: the parts of the baseline, and the stream thread's inputs and
schedule of commits. This module only calls them in the right order.

*Guarantees*: those of the runtime. A commit ends with a whole record, and under `exactly_once_v2` its outputs,
changelog records and offsets are one transaction. When `run` returns, all work is committed. When it raises an error,
the uncommitted work isn't committed later: its records are processed once more. `run` ends soon after its generation is
over, unless user code is running.
*Assumes*: one thread calls it. The clients were made before any offset was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import cast

from milestones.common.errors import StateCorruptError, TimeoutExceededError
from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
from milestones.common.task.task import Task
from milestones.instance.topic_ids import known_ids, numbers_of, refuse_former
from milestones.parts import Clients
from milestones.pipeline.hosting.ranges import PunctuationSchedule, TaskRange
from milestones.pipeline.hosting.surroundings import HostedClients
from milestones.shared_parts.store_requests import open_stores
from milestones.stream_thread.commits.driver import CommitDriver
from milestones.stream_thread.commits.transaction_register import TransactionRegister
from milestones.stream_thread.inputs import Inputs
from milestones.stream_thread.rollback_metrics import RollBacks
from milestones.wiring import BASELINE

TURN = 500
"""The number of records between two looks at the clock."""

SLICE_MS = 50
"""The time of processing between two fetches. It is long enough to process all fetched records where possible, because
a partition whose buffer is full is paused, and a pause throws the client's prefetched records away."""

FETCH_MS = 50
"""How long a fetch waits for the first record."""

RETRY_MS = 20
"""The pause between two tries of the last commit."""

LAST_CLOSE_MS = 10_000


@dataclass(frozen=True)
class Done:
    """What a run has done. `schedule`: the task's punctuations, or None if the task didn't run. `gone`: as in
    `Task.gone`.
    """

    records: int = 0
    commits: int = 0
    dropped: int = 0
    punctuations: int = 0
    schedule: PunctuationSchedule | None = None
    due_ms: int | None = None
    gone: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass
class HostedTasks:
    """The tasks for the schedule of commits: the one task, when it processes. It is never rolled back: the attempt ends
    instead.
    """

    processing: dict[TaskId, Task]
    roll_backs: RollBacks

    def is_void(self, task: TaskId) -> bool:
        """A failure ends the attempt."""
        return False

    def prepare_commit(self, now_ms: int) -> bool:
        """Flush the caches, because their updates belong to the commit."""
        for task in self.processing.values():
            task.flush()
        return True

    def unlock(self) -> None:
        """Do nothing: the task is never locked."""

    def apply(self, task: Task) -> None:
        task.apply()


class HostedTask:
    """*Owns*: the task, the parts around it. `records`: processed so far."""

    def __init__(self, clients: HostedClients, work: TaskRange) -> None:
        self._clients, self._work = clients, work
        self._context = context = clients.context
        self._clock, self._config = context.clock, context.config
        # The member is borrowed, so it can do less than a thread's: a Spark task neither joins nor leaves the group.
        self._all_clients = every = cast("Clients", clients)
        self._inputs = Inputs(context, clients)
        self._written = context.application.written_topics(work.task.subtopology)
        self._parts = parts = BASELINE.thread
        self._collection = parts.collection(context, every)
        self._tasks = HostedTasks({}, RollBacks(context.clock))
        ends, failed_commit = parts.task_failure_policy(context), parts.failed_commit(context)
        register = TransactionRegister(ends.admits, failed_commit.answers)
        confirmation = parts.confirmation(context, every, register.move)
        commit = parts.commit(self._collection, confirmation, self._tasks, register, failed_commit)
        self._commits = CommitDriver(
            context, every, commit, self._tasks, self._tasks, ends, register, failed_commit
        )
        self.records: int = 0
        self._moved_ms = self._clock.monotonic_ms()

    def run(self) -> Done:
        """Process all records of the range that aren't committed yet. Errors are the runtime's own."""
        committed = self._clients.offsets.stable(self._work.ends)
        ids = self._topic_ids(committed)
        if not (self._work.anyway or self._left(committed)):
            return Done()
        if self._clients.everyone is not None:
            self._clients.everyone.catch_up(self._clients.member.check)
        state = self._parts.state(self._context, self._parts.partition_counts(self._context, self._all_clients))
        stores = open_stores(self._context, self._work.task)
        with closing(stores), closing(state.create(self._work.task, frozenset(self._work.ends), stores)) as task:
            try:
                task.belongs_to(ids, self._written)
                task.know(committed)
                self._restore(task, committed)
                self._start(task, committed)
                self._work_off(task)
                return self._done(task)
            except StateCorruptError as error:
                for damaged in error.damaged:
                    stores.clear(damaged.store, error)  # the next attempt restores the store
                raise

    def _done(self, task: Task) -> Done:
        dropped = task.dropped_records + self._collection.dropped[task.id]
        commits, punctuations = self._commits.commits, task.counters.punctuated
        schedule, due_ms = task.punctuation_schedule(), task.next_punctuation_ms()
        return Done(self.records, commits, dropped, punctuations, schedule, due_ms, task.gone())

    def _left(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        """True if there are records to read, or a partition without a committed offset."""
        return any(p not in committed or committed[p].offset < end for p, end in self._work.ends.items())

    def _topic_ids(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> Mapping[str, int]:
        """Return the present ids of the topics. Raises a `SourceTopicError` if committed offsets belong to a former
        topic of the same name.
        """
        found = self._clients.topics({at.topic for at in self._work.ends} | self._written)
        refuse_former(found, known_ids(self._work.ends, committed), self._context.application.internal_topics)
        return numbers_of(found)

    def _restore(self, task: Task, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if not task.needs_restoration:
            return
        restoration = self._parts.restoration(self._context, self._all_clients)
        try:
            restoration.add(task, {partition: at.offset for partition, at in committed.items()})
            while not restoration.take_restored():
                self._clients.member.check()
                if not restoration.run_once(self._clock.monotonic_ms()):
                    self._clock.sleep_ms(1)
        finally:
            restoration.close(LAST_CLOSE_MS)

    def _start(self, task: Task, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._inputs.start(task, committed)
        while not self._inputs.take_started():
            self._clients.member.check()
            self._begin_inputs()
        task.initialise()
        self._tasks.processing[task.id] = task
        if self._work.schedule is not None:
            task.resume_punctuations(self._work.schedule)
        if not self._work.ends.keys() <= committed.keys():
            # Commit the start that the reset policy chose, so that the next range doesn't choose another one.
            task.commit_start()
            self._commits.commit_now(self._clock.monotonic_ms())

    def _begin_inputs(self) -> None:
        """Begin to read the inputs. Raises the error that prevents this."""
        self._inputs.run_once()
        for _, error in self._inputs.take_failed():
            raise error

    def _work_off(self, task: Task) -> None:
        """While the generation lasts: 1. fetch; 2. process and punctuate; 3. send; 4. commit when it is due; until
        all is done, then commit."""
        busy = False
        while not self._finished(task):
            self._clients.member.check()
            self._begin_inputs()
            fetched = self._inputs.fetch(0 if busy else FETCH_MS)
            self._inputs.throttle()
            processed = not (self._collection.client_queue_full or self._commits.pace.behind) and self._process(task)
            self._send_and_commit(task)
            busy = self._note(fetched or processed)
        if self._clients.spent:
            return
        task.punctuate(self._clock.wall_ms())
        while task.commit_needed() and not self._clients.spent:
            self._clients.member.check()
            self._commits.pace.hasten()
            if not self._send_and_commit(task):
                self._clock.sleep_ms(RETRY_MS)

    def _send_and_commit(self, task: Task) -> bool:
        """Send the outputs, and commit if a commit is due. Returns True if a commit was made."""
        self._collection.collect([task])
        self._commits.note_changed([task])
        self._commits.take_changed()  # not needed: `note_changed` names the task each time
        return self._commits.run_once(self._clock.monotonic_ms(), may_begin=not self._collection.client_queue_full)

    def _finished(self, task: Task) -> bool:
        limit = self._work.limit
        if self._clients.spent or (limit is not None and self.records >= limit):
            return True
        return self._clients.consumer.complete and task.input.waiting() == 0

    def _process(self, task: Task) -> bool:
        before, until_ms = self.records, self._clock.monotonic_ms() + SLICE_MS
        while processed := task.process(self._turn(), self._clock.monotonic_ms()):
            self.records += processed
            if self._clock.monotonic_ms() >= until_ms:
                break
        return task.punctuate(self._clock.wall_ms()) or self.records > before

    def _turn(self) -> int:
        limit = self._work.limit
        return TURN if limit is None else min(TURN, limit - self.records)

    def _note(self, moved: bool) -> bool:
        """Note whether records came. Records may fail to come while an open transaction lies before them, but not for
        ever.
        """
        now_ms = self._clock.monotonic_ms()
        if moved:
            self._moved_ms = now_ms
        elif now_ms - self._moved_ms > self._config.task_timeout_ms:
            open_ = sorted(str(partition) for partition in self._clients.consumer.assigned)
            raise TimeoutExceededError(
                f"task {self._work.task}: nothing came of {', '.join(open_)} within task_timeout_ms "
                f"({self._config.task_timeout_ms}), though they don't end yet: an abandoned transaction may be "
                "open there, or their brokers are away"
            )
        return moved
