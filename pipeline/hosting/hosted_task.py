"""One task of the topology over a range of its input, from its committed state to its committed result.

    committed offsets ---> restored ---> started ---> fetch, process, send, commit ... ---> all committed

It is the runtime's task, with the runtime's parts around it: restoration, inputs, collection and committer are those of
the baseline. What is left for here is their order.

*Guarantees*: those of the runtime: what is committed is a boundary, its outputs, changelogs and offsets in one
transaction under exactly once. After `run` nothing is uncommitted; when it raises, what wasn't committed never was. It
ends soon after its generation, whatever it is doing but the user's code.
*Assumes*: one thread; the clients were made before anything was read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from milestones.baseline.collection import DirectCollection
from milestones.baseline.committing import Committer, OffsetCommit, Transaction
from milestones.baseline.processing import InlineProcessing
from milestones.baseline.restoration import InlineRestoration
from milestones.baseline.state import TaskOwnedState, asked_of_consumer
from milestones.common.errors import StateCorruptError, TimeoutExceededError
from milestones.common.kafka.membership import CommitRetriableError
from milestones.common.kafka.producer import can_start_another_transaction
from milestones.common.memory import Account
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.steps import until_done
from milestones.common.task.commit_set import freeze
from milestones.common.task.task import Task
from milestones.pipeline.hosting.ranges import Rhythm, TaskRange
from milestones.pipeline.hosting.surroundings import HostedClients
from milestones.restoration.store_requests import open_stores
from milestones.stream_thread.inputs import Inputs

log = logging.getLogger(__name__)

TURN = 500
"""Records between two looks at the clock."""

SLICE_MS = 50
"""How long processing goes on between two fetches. What was fetched is worked off where that allows: a partition that
fills up is paused, which throws away what the client has prefetched."""

FETCH_MS = 50
"""How long a fetch waits for the first record."""

LAST_CLOSE_MS = 10_000


@dataclass(frozen=True)
class Done:
    """What a run has done. `rhythm`: None when there was nothing to do, and nothing was learnt of it."""

    records: int = 0
    commits: int = 0
    dropped: int = 0
    punctuations: int = 0
    rhythm: Rhythm | None = None
    due_ms: int | None = None


class HostedTask:
    """*Owns*: the task, the parts around it. `records`: processed so far. `_spent`: its producer makes no further
    transaction."""

    def __init__(self, clients: HostedClients, work: TaskRange) -> None:
        self._clients, self._work = clients, work
        self._context = context = clients.context
        self._clock, self._config = context.clock, context.config
        self._inputs = Inputs(context, clients)
        self._collection = DirectCollection(context, clients)
        confirmation = (Transaction if self._config.exactly_once else OffsetCommit)(context, clients)
        self._processing = InlineProcessing(context)
        self._committer = Committer(clients, self._collection, confirmation, self._processing)
        self.records = self._commits = 0
        self._spent = False
        self._committed_ms = self._moved_ms = self._clock.monotonic_ms()

    def run(self) -> Done:
        """Do all of the range that isn't committed yet. Errors are the runtime's own."""
        committed = self._clients.offsets.stable(self._work.ends)
        if not (self._work.anyway or self._left(committed)):
            return Done()
        state = TaskOwnedState(self._context, asked_of_consumer(self._context, self._clients))
        task = state.create(
            self._work.task, frozenset(self._work.ends), open_stores(self._context, self._work.task)
        )
        try:
            self._restore(task, committed)
            self._start(task, committed)
            self._work_off(task)
            done = self._done(task)
        except StateCorruptError as error:
            for damaged in error.damaged:
                task.set_aside(damaged.store, error)  # the next attempt restores it
            raise
        finally:
            task.close()
        return done

    def _done(self, task: Task) -> Done:
        dropped = task.dropped_records + self._collection.dropped[task.id]
        punctuations = task.counters.punctuated
        return Done(self.records, self._commits, dropped, punctuations, task.rhythm(), task.next_punctuation_ms())

    def _left(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        """Whether there is anything to read, or a partition that nothing was ever committed of."""
        return any(p not in committed or committed[p].offset < end for p, end in self._work.ends.items())

    def _restore(self, task: Task, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if not task.needs_restoration:
            return
        restoration = InlineRestoration(self._context, self._clients)
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
            self._inputs.run_once()
        task.initialise()
        self._processing.add(task)
        if self._work.rhythm is not None:
            task.go_on(self._work.rhythm)
        if not self._work.ends.keys() <= committed.keys():
            # Where the reset policy said to begin is settled now, for the next range too.
            self._commit(task)

    def _work_off(self, task: Task) -> None:
        """While the generation lasts: 1. fetch; 2. process and punctuate; 3. send; 4. commit when it is due; until
        all is done, then commit."""
        busy = False
        while not self._finished(task):
            self._clients.member.check()
            self._inputs.run_once()
            fetched = self._inputs.fetch(0 if busy else FETCH_MS)
            self._inputs.throttle()
            processed = not self._collection.held and self._process(task)
            self._collection.collect([task])
            self._commit_if_due(task)
            busy = self._note(fetched or processed)
        if self._spent:
            return
        task.punctuate(self._clock.wall_ms())
        self._collection.collect([task])
        while task.commit_needed() and not self._spent:
            self._commit(task)

    def _finished(self, task: Task) -> bool:
        limit = self._work.limit
        if self._spent or (limit is not None and self.records >= limit):
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
        """Records stay away when a transaction is open before them; not for ever."""
        now_ms = self._clock.monotonic_ms()
        if moved:
            self._moved_ms = now_ms
        elif now_ms - self._moved_ms > self._config.task_timeout_ms:
            open_ = sorted(str(partition) for partition in self._clients.consumer.assigned)
            raise TimeoutExceededError(
                f"task {self._work.task}: nothing came of {', '.join(open_)} within task_timeout_ms "
                f"({self._config.task_timeout_ms}), though they don't end yet: a transaction that nobody ends may be "
                "open there, or their brokers are away"
            )
        return moved

    def _commit_if_due(self, task: Task) -> None:
        elapsed_ms = self._clock.monotonic_ms() - self._committed_ms
        full = task.uncommitted_bytes() >= self._context.memory.part(Account.UNCOMMITTED)
        if (elapsed_ms >= self._config.commit_interval_ms or full or task.commit_requested()) and task.commit_needed():
            self._commit(task)

    def _commit(self, task: Task) -> None:
        """At least once: a commit without an answer is made again, with all that has come since."""
        until_ms = self._clock.monotonic_ms() + self._config.task_timeout_ms
        while True:
            task.flush()  # what waits in caches belongs to the boundary
            try:
                self._committer.begin(freeze([task]))
                until_done(self._committer.run_once)
                break
            except CommitRetriableError as error:
                if self._clock.monotonic_ms() >= until_ms:
                    raise TimeoutExceededError(
                        f"task {task.id}: offsets couldn't be committed within task_timeout_ms: {error}"
                    ) from error
        self._commits += 1
        self._spent = self._config.exactly_once and not self._goes_on()
        self._committed_ms = self._clock.monotonic_ms()

    def _goes_on(self) -> bool:
        """A new producer here might fence a later attempt that has committed meanwhile, so where this one can't go on
        the range ends: the next one begins with what is committed."""
        if can_start_another_transaction(self._clients.producer):
            return True
        log.info("task %s: a connection was lost; the rest of its range is for a new producer", self._work.task)
        return False
