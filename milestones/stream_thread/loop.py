"""The loop of a stream thread. All milestones use this loop, each with its own parts.

*Guarantees*: `run_once` takes a bounded time:
- It waits for input for at most `poll_ms`.
- Before m2 it runs user code for about 150 ms. A single call of user code, or a turn of records that have become slow,
  may take longer.
- It waits briefly for Kafka when it sends, and in each step of a commit. Before m2, and before a task is given away,
  all steps of a commit are taken in one call. This call may take some seconds without transactions, and
  `task_timeout_ms` at most with them.
- It opens and closes stores for a bounded time.

While outputs can't be sent or committed, no record is processed, so that no more outputs are made.
*Assumes*: one thread makes and drives the loop. The parts come from `wiring.py`; nothing here knows to which milestone
they belong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError
from milestones.common.kafka.failures import caught
from milestones.instance.context import ThreadContext, ThreadReport
from milestones.instance.states import ThreadState
from milestones.parts import Clients, ThreadParts
from milestones.parts.transaction import CommitAction, CommitEvent
from milestones.stream_thread.commits.driver import STEP_MS, CommitDriver
from milestones.stream_thread.commits.group_answers import GroupAnswers
from milestones.stream_thread.commits.last_commit import LastCommit
from milestones.stream_thread.commits.recoveries import Recoveries
from milestones.stream_thread.commits.timed_commit import TimedCommit
from milestones.stream_thread.commits.transaction_register import TransactionRegister
from milestones.stream_thread.inputs import Inputs
from milestones.stream_thread.lags import PartitionLags
from milestones.stream_thread.metrics import Measured, ThreadMeasures
from milestones.stream_thread.rebalance import Rebalance
from milestones.stream_thread.tasks import ThreadTasks

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.task import Task

T = TypeVar("T")

log: Final = logging.getLogger(__name__)

REPORT_INTERVAL_MS = 500

class StreamLoop:
    """Answers the group, restores, fetches, processes, sends, commits.

    *Owns*: the tasks and all parts. *Receives*: membership events. *Sends*: commits, reports, thread states.
    """

    def __init__(
        self, context: ThreadContext, parts: ThreadParts, clients: Clients, on_state: Callable[[ThreadState], None]
    ) -> None:
        self._context, self._clients, self._clock, self._on_state = context, clients, context.clock, on_state
        self._collection = parts.collection(context, clients)
        self._processing = parts.processing(context)
        self._restoration = parts.restoration(context, clients)
        recovery = parts.recovery(context, clients)
        self._inputs = Inputs(context, clients)
        state = parts.state(context, parts.partition_counts(context, clients))
        opening = parts.opening(context)
        self._ends = parts.task_failure_policy(context)
        self._tasks = ThreadTasks(
            context, clients, state, opening, self._inputs, self._restoration, self._processing, self._ends
        )
        failed_commit = parts.failed_commit(context)
        self._register = register = TransactionRegister(self._ends.admits, failed_commit.answers)
        confirmation = parts.confirmation(context, clients, register.move)
        committer = parts.commit(self._collection, confirmation, self._processing, register, failed_commit)
        commit = TimedCommit(committer, register)
        self._commits = CommitDriver(
            context, clients, commit, self._tasks, self._processing, self._ends, register, failed_commit
        )
        self._pace = self._commits.pace
        failures = self._tasks.failures
        failures.committing, failures.hasten = lambda: self._commits.committing, self._pace.hasten
        self._recoveries = Recoveries(
            context, clients, recovery, self._collection, self._commits, self._tasks, self._ends, register,
            failed_commit,
        )  # fmt: skip
        self._answering = GroupAnswers(
            context, clients, self._tasks, self._processing, self._collection, self._ends, self._commits,
            self._recoveries, register, self._collect_all, self._hold_back,
        )  # fmt: skip
        self._rebalance = Rebalance(context, clients, self._tasks, self._answering)
        self._last_commit = LastCommit(
            context, self._tasks, self._processing, self._ends, self._commits, self._recoveries, register,
            self._collect_all,
        )  # fmt: skip
        self._paused = frozenset[int]()
        self._settled = True
        self._busy = False
        self._changed: list[Task] = []
        self._unsent: dict[Task, None] = {}
        self._next_report_ms = 0
        self._lags = PartitionLags(context)
        self._measures = ThreadMeasures(
            context,
            Measured(
                clients, self._inputs, self._tasks, self._restoration, self._collection, commit, self._rebalance,
                recovery,
            ),
        )
        if context.metrics.profile is not None:
            context.metrics.profile.follow_thread(context.name, self._timed())

    def _timed(self) -> Iterator[tuple[object, Mapping[str, str]]]:
        """Return the methods that a profile measures, each with the words under which the profile shows its time."""
        yield self, {"run_once": "the rest", "_collect": "sends outputs", "shut_down": "ends"}
        yield self._rebalance, {"run_once": "answers the group"}
        yield self._tasks, {"run_once": "opens and closes tasks"}
        yield self._restoration, {"run_once": "restores"}
        yield self._inputs, {"fetch": "fetches, and waits for input"}
        yield self._processing, {"run_once": "processes", "should_fetch": "waits, as enough input is there"}
        yield self._recoveries, {"run_once": "recovers"}
        yield self._commits, {"run_once": "commits", "commit_now": "commits", "finish_earlier": "commits"}

    def run(self, next_stop: Callable[[], T | None]) -> T:
        """Make turns until `next_stop` returns a stop. Returns that stop."""
        try:
            while (stop := next_stop()) is None:
                self._processing.run_turn(self)
        finally:
            error = self._processing.take_back_loop()
        if error is not None:
            raise error
        return stop

    @property
    def steady(self) -> bool:
        """True if the next turn has no recovery and no rebalance to work on."""
        return self._settled and not (self._recoveries.under_way or self._rebalance.preparing)

    def run_once(self, now_ms: int) -> bool:
        """Make one turn: 1. answer the group; 2. move tasks on; 3. restore; 4. fetch; 5. process and punctuate;
        6. send; 7. commit when it is due. If a transaction fails, the thread recovers. Any other error ends
        the thread."""
        if (error := caught(lambda: self._turn(now_ms), KafkaException, MilestonesError)) is not None:
            self._recoveries.recover(error, now_ms)
        self._measures.turn(self._changed)
        self._report(now_ms)
        return self._busy

    def _turn(self, now_ms: int) -> None:
        self._answer_group()
        self._tasks.run_once(now_ms)
        restored = self._restoration.run_once(now_ms)
        self._settle()
        waits = self._register.under_way or self._recoveries.under_way
        idle_ms = 0 if self._busy or restored or waits else self._idle_ms(now_ms)
        self.pause(self._context.thread_registry.paused)
        self._inputs.throttle(self._changed)
        needed = self._inputs.starving or self._processing.should_fetch(idle_ms)
        fetched = needed and self._inputs.fetch(idle_ms)
        self._processing.hold_all(self._collection.client_queue_full or self._pace.behind)
        self._hold_back()
        processed = self._processing.run_once(self._clock.monotonic_ms())
        self._take_changed()
        self._recoveries.run_once(STEP_MS)
        self._send(now_ms)
        wait_ms = STEP_MS if self._processing.may_wait_for_kafka() else 0
        committed = self._commits.run_once(self._clock.monotonic_ms(), may_begin=self._may_commit(), wait_ms=wait_ms)
        self._busy = processed or fetched or committed

    def _hold_back(self) -> None:
        self._processing.hold_tasks(self._pace.greedy | self._answering.leaving)

    def _send(self, now_ms: int) -> None:
        """Send the tasks' outputs, unless a commit or a recovery uses the producer."""
        if self._register.at_rest and not self._clients.producer.in_transaction:
            self._ends.between_transactions(now_ms, self._has_work)
        if self._register.answer(CommitEvent.OUTPUTS_MADE) is CommitAction.SEND:
            self._collect()

    def _may_commit(self) -> bool:
        match self._register.answer(CommitEvent.TURN):
            case CommitAction.BEGIN:
                return not (self._rebalance.preparing or self._collection.client_queue_full)
            case CommitAction.BEGIN_ONCE_MORE:
                return True
        return False

    def _take_changed(self) -> None:
        """Ask which tasks have changed since the last turn. No part looks at the other tasks."""
        told = (self._processing.take_changed(), self._inputs.take_changed(), self._commits.take_changed())
        self._changed = list(dict.fromkeys(chain.from_iterable(told)))
        self._unsent.update(dict.fromkeys(self._changed))
        self._commits.note_changed(self._changed)

    def _collect(self) -> None:
        """Send the outputs of the tasks that have changed since their outputs were last taken."""
        processing = self._tasks.processing
        admitted: list[Task] = []
        waiting: list[Task] = []
        for task in self._unsent:
            if processing.get(task.id) is task and not self._tasks.is_void(task.id):
                (admitted if self._register.admits(task.id) else waiting).append(task)
        self._collection.collect(admitted)
        self._commits.note_changed(admitted)  # collection may have asked for a commit
        self._unsent = dict.fromkeys([*self._collection.unsent, *waiting])

    def _has_work(self, id: TaskId) -> bool:
        """True if the task has something to commit and may be committed once its caches are flushed, or if a commit of
        the task is under way or will be repeated."""
        task = self._tasks.processing.get(id)
        if task is None or task in self._commits.committing:
            return task is not None
        return task.commit_needed() and (task.committable or task.unflushed)

    def pause(self, subtopologies: frozenset[int]) -> None:
        """Pause the tasks of these sub-topologies, and no others. Their finished work is committed (KIP-834)."""
        if subtopologies != self._paused:
            self._paused = subtopologies
            for part in (self._inputs, self._processing, self._restoration):
                part.pause(subtopologies)
            self._pace.hasten()

    def _answer_group(self) -> None:
        for state in self._rebalance.run_once():
            self._settled = False
            self._move(state)

    def _settle(self) -> None:
        """After a rebalance, set the thread's state to RUNNING as soon as all its active tasks process."""
        if not self._settled and self._tasks.all_running and not self._rebalance.joining:
            self._settled = True
            self._move(ThreadState.RUNNING)

    def _move(self, state: ThreadState) -> None:
        self._measures.moved(state)
        self._on_state(state)

    def _idle_ms(self, now_ms: int) -> int:
        """Return how long a fetch may wait: until processing or restoration needs this thread, or a commit is due, and
        at most `poll_ms`."""
        waits = [self._context.config.poll_ms, self._processing.wake_up_ms(now_ms), self._pace.too_old_in_ms()]
        if self._rebalance.joining or not self._tasks.all_running:
            waits.append(self._restoration.poll_interval_ms)
        else:
            waits.append(self._pace.due_in_ms(now_ms))
        return min(wait for wait in waits if wait is not None)

    def _collect_all(self) -> None:
        self._unsent = dict.fromkeys(self._tasks.processing.values())
        self._collect()

    def shut_down(self, *, leave_group: bool) -> None:
        """End cleanly: commit all work that can be committed, close every task, leave the group."""
        self._measures.moved(ThreadState.PENDING_SHUTDOWN)
        try:
            committed = self._last_commit.make()
            self._tasks.close(self._tasks.owned, at_once=True)
            if committed and leave_group:
                # This thread has nothing open in Kafka, so it leaves the group before it closes standbys and clients.
                self._clients.member.close(leave=True)
        finally:
            self._tasks.close(self._tasks.everything, at_once=True)
            self._measures.close()

    def fail(self, *, shut_application_down: str | None) -> None:
        """End because of an error: close every task without a commit. With `shut_application_down`, tell the other
        instances to shut down, too."""
        try:
            try:
                self._recoveries.abandon()
            finally:
                self._tasks.close(self._tasks.everything, at_once=True)
        finally:
            self._measures.close()
            if shut_application_down is not None:
                self._rebalance.shut_application_down(shut_application_down)

    def close(self) -> None:
        """Wait, for a bounded time, for tasks that other threads still hold. This is the last step, after the thread
        has left the group."""
        self._tasks.finish(self._context.config.close_timeout_ms)

    def _report(self, now_ms: int) -> None:
        if now_ms < self._next_report_ms:
            return
        self._next_report_ms = now_ms + REPORT_INTERVAL_MS
        running, ended = self._tasks.processing.keys(), self._tasks.ended
        lags = self._lags.look(
            self._inputs.lags(), self._tasks.assigned_partitions, now_ms, joining=self._rebalance.joining
        )
        report = ThreadReport(
            thread=self._context.name,
            tasks=dict.fromkeys(self._tasks.standbys, "standby")
            | {id: "running" if id in running else "restoring" for id in self._tasks.owned}
            | dict.fromkeys(ended, "ended"),
            lags={partition: lag.records for partition, lag in lags.items()},
            restoring=self._restoration.remaining(),
            records=self._processing.processed,
            generation=self._rebalance.generation,
            standby_lags=self._tasks.lags(),
            places=self._tasks.place_labels(),
            ended=ended,
            failing=self._tasks.failing(),
            last=self._tasks.failures.last,
        )
        # Metrics come first, so that each task in the status already has its metrics.
        self._measures.follow()
        self._measures.publish(now_ms, report, lags)
        self._context.notify(report)
        self._collection.forget_all_but(self._tasks.open)

