"""The loop of a stream thread, that every stage drives its parts with.

*Guarantees*: `run_once` waits for input at most `poll_ms`; for user code, before m2, about 150 ms, or as long as one
call, or a turn of records that have become slow, takes; for Kafka only when it sends, a moment, or commits: for each
step a moment; where all are taken at once (before m2, and before a task is given away) without transactions some
seconds, with them at most `task_timeout_ms`. It opens and closes stores for a bounded time. What can't be sent or
committed isn't made: then nothing is processed.
*Assumes*: made and driven by one thread; the parts come from `wiring.py`: nothing here knows of which stage they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from milestones.common.errors import (
    MilestonesError,
    StateCorruptError,
    TaskCorruptedError,
    TimeoutExceededError,
)
from milestones.common.kafka.failures import caught
from milestones.common.kafka.membership import CommitRetriableError
from milestones.common.kafka.producer import RefusedInTransactionError
from milestones.common.kafka.retry import RETRY_PAUSE_MS
from milestones.common.steps import to_the_end
from milestones.instance.context import ThreadContext, ThreadReport
from milestones.instance.states import ThreadState
from milestones.parts import Clients, ThreadParts, Transacted
from milestones.stream_thread.commit_schedule import CommitSchedule
from milestones.stream_thread.error_series import ErrorSeries
from milestones.stream_thread.inputs import Inputs
from milestones.stream_thread.metrics import Measured, ThreadMeasures, TimedCommit
from milestones.stream_thread.rebalance import Rebalance
from milestones.stream_thread.tasks import ThreadTasks

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.task import Task

log: Final = logging.getLogger(__name__)

OF_ONE_TRANSACTION = KafkaException, TaskCorruptedError, RefusedInTransactionError
"""Errors that cost only the tasks of the transaction their work, while transactions are kept apart."""

REPORT_INTERVAL_MS = 500

LAST_FLUSH_MS, SHORT_MS = 10_000, 5
"""How long the last commit waits for caches that are to be flushed (a third of `close_timeout_ms` if that is less); and
how often it looks."""

LAST_COMMIT_MS = 10_000
"""How long a last commit that may yet succeed is tried again, or a third of `close_timeout_ms` if that is less."""


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
        self._recovery = parts.recovery(context, clients)
        self._inputs = Inputs(context, clients)
        state = parts.state(context, parts.partition_counts(context, clients))
        opening = parts.opening(context)
        self._ends = parts.task_ends(context)
        self._tasks = ThreadTasks(
            context, clients, state, opening, self._inputs, self._restoration, self._processing, self._ends
        )
        confirmation = parts.confirmation(context, clients)
        commit = TimedCommit(parts.commit(clients, self._collection, confirmation, self._processing))
        self._commits = CommitSchedule(context, clients, commit, self._tasks, self._processing, self._ends)
        failures = self._tasks.failures
        failures.committing, failures.hasten = lambda: self._commits.committing, self._commits.hasten
        self._rebalance = Rebalance(context, clients, self._tasks, self)
        self._error_series = ErrorSeries(context.config.task_timeout_ms)
        self._paused = frozenset[int]()
        self._settled = True
        self._busy = False
        self._changed: list[Task] = []
        self._unsent: dict[Task, None] = {}
        self._turn_ms = context.clock.monotonic_ms()
        self._next_report_ms = 0
        self._measures = ThreadMeasures(
            context,
            Measured(
                clients, self._inputs, self._tasks, self._restoration, self._collection, commit, self._rebalance,
                self._recovery,
            ),
        )

    def run_once(self, now_ms: int) -> bool:
        """1. answer the group; 2. move tasks on; 3. restore; 4. fetch; 5. process and punctuate; 6. send; 7. commit
        when it is due. A failed transaction is recovered from; any other error ends the thread."""
        self._turn_ms = now_ms
        if (error := caught(lambda: self._turn(now_ms), KafkaException, MilestonesError)) is not None:
            self._recover(error)
        self._measures.turn(self._changed)
        self._report(now_ms)
        return self._busy

    def _turn(self, now_ms: int) -> None:
        self._answer_group()
        self._tasks.run_once(now_ms)
        restored = self._restoration.run_once(now_ms)
        self._settle()
        idle_ms = 0 if self._busy or restored or self._commits.under_way else self._idle_ms(now_ms)
        self.pause(self._context.thread_registry.paused)
        self._inputs.throttle(self._changed)
        needed = self._inputs.starving or self._processing.should_fetch(idle_ms)
        fetched = needed and self._inputs.fetch(idle_ms)
        self._processing.hold(self._collection.held or self._commits.behind)
        processed = self._processing.run_once(self._clock.monotonic_ms())
        self._take_changed()
        if not self._commits.under_way:
            if not self._clients.producer.in_transaction:
                self._ends.between_transactions(now_ms, self._has_work)
            self._collect()
        may_begin = not (self._rebalance.preparing or self._collection.held)
        committed = self._commits.run_once(self._clock.monotonic_ms(), may_begin=may_begin)
        self._busy = processed or fetched or committed

    def _take_changed(self) -> None:
        """Ask which tasks something has happened to since the last turn. No part looks at the others."""
        told = (self._processing.take_changed(), self._inputs.take_changed(), self._commits.take_changed())
        self._changed = list(dict.fromkeys(chain.from_iterable(told)))
        self._unsent.update(dict.fromkeys(self._changed))
        self._commits.tell(self._changed)

    def _collect(self) -> None:
        """Send what tasks have made that something has happened to since their outputs were taken last."""
        processing = self._tasks.processing
        admitted: list[Task] = []
        waiting: list[Task] = []
        for task in self._unsent:
            if processing.get(task.id) is task:
                (admitted if self._ends.admits(task.id) else waiting).append(task)
        self._collection.collect(admitted)
        self._unsent = dict.fromkeys([*self._collection.unsent, *waiting])

    def _has_work(self, id: TaskId) -> bool:
        """Whether the task has anything to commit, and may be committed once its caches are flushed."""
        task = self._tasks.processing.get(id)
        return task is not None and task.commit_needed() and (task.committable or task.unflushed)

    def pause(self, subtopologies: frozenset[int]) -> None:
        """Leave the tasks of these sub-topologies, and only these, alone; what they did is committed (KIP-834)."""
        if subtopologies != self._paused:
            self._paused = subtopologies
            for part in (self._inputs, self._processing, self._restoration):
                part.pause(subtopologies)
            self._commits.hasten()

    def _answer_group(self) -> None:
        for state in self._rebalance.run_once():
            self._settled = False
            self._move(state)

    def _settle(self) -> None:
        """After a rebalance: the thread is RUNNING once no task waits or restores."""
        if not self._settled and self._tasks.all_running and not self._rebalance.joining:
            self._settled = True
            self._move(ThreadState.RUNNING)

    def _move(self, state: ThreadState) -> None:
        self._measures.moved(state)
        self._on_state(state)

    def _idle_ms(self, now_ms: int) -> int:
        """How long a fetch may wait: until processing or restoration needs us, a commit is due; at most `poll_ms`."""
        waits = [self._context.config.poll_ms, self._processing.wake_up_ms(now_ms), self._commits.too_old_in_ms()]
        if self._rebalance.joining or not self._tasks.all_running:
            waits.append(self._restoration.poll_interval_ms)
        else:
            waits.append(self._commits.due_in_ms(now_ms))
        return min(wait for wait in waits if wait is not None)

    def _recover(self, error: Exception) -> None:
        """After a commit that is under way: what it fails of comes first."""
        failed = caught(self._commits.settle, KafkaException, MilestonesError)
        if failed is not None:
            self._recover_from(failed)
        self._recover_from(error)

    def _recover_from(self, error: Exception) -> None:
        """Roll back in place where that is enough, else drop all active tasks and rejoin; standbys stay, they have
        nothing uncommitted. Other errors are raised again."""
        isolated, transaction = self._ends.isolating, self._transaction()
        blame = self._ends.blame(error, transaction)
        if blame is None:
            self._error_series.note(error, self._commits.commits, self._turn_ms, self._clock.monotonic_ms())
        else:
            if blame.failed is not None:
                self._tasks.failures.note(blame.failed, error, void=True)
                self._tasks.failures.tell()
                self._error_series.explained()
            if not self._clients.producer.transactional:
                self._commits.hasten()  # what the other tasks have sent stays, and may have been in the one that failed
                return
            error = blame.void(f"the transaction has an output that isn't taken: {error}", transaction.reached)
        recovered = self._recovery.recover(error)
        self._error_series.over(self._clock.monotonic_ms())
        if recovered:
            log.info("%s: transaction aborted (%s); tasks go on from their last commit", self._context.name, error)
            apart = blame is not None or (isolated and isinstance(error, OF_ONE_TRANSACTION))
            self._tasks.roll_back(transaction.reached.keys() | corrupted_by(error) if apart else None)
            if isinstance(error, StateCorruptError):
                self._tasks.rebuild(error.damaged, error)
        else:
            self._tasks.close(self._tasks.owned)
            self._clients.member.request_rejoin(f"tasks lost: {error}")

    def _transaction(self) -> Transacted:
        """The transaction that is open, or was last, and the tasks that are in it."""
        producer, processing = self._clients.producer, self._tasks.processing
        ids = producer.contributors | {task.id for task in self._commits.take_unconfirmed()}
        reached = {id: processing[id].reached() for id in ids if id in processing}
        return Transacted(reached, one_by_one=producer.one_record_per_batch)

    # -- before the group is answered: see `Answering`

    def may_join(self, now_ms: int) -> bool:
        if self._commits.under_way:
            return self._commits.joins_beside
        return self._processing.prepare_commit(now_ms)

    def may_part(self, now_ms: int) -> bool:
        return not self._commits.under_way and self._processing.prepare_commit(now_ms, final=True)

    def may_abandon(self) -> bool:
        return self._commits.may_be_abandoned

    def commit(self) -> None:
        if not self._commits.under_way:
            self._commit_or_recover()

    def _commit_or_recover(self) -> None:
        if (error := caught(self._commit, KafkaException, MilestonesError)) is not None:
            self._recover(error)

    def part(self) -> None:
        """Commit before tasks are given away. Without transactions nothing fences what Kafka hasn't taken of them: it
        would be sent behind what their next owners have written, so it is thrown away instead."""
        commits = self._commits.commits
        self._commit_or_recover()
        if self._commits.commits > commits or self._clients.producer.transactional:
            return
        error = caught(lambda: to_the_end(self._collection.flush()), KafkaException, MilestonesError)
        if isinstance(error, CommitRetriableError):
            self._recover(TaskCorruptedError(f"outputs of tasks that leave wait: {error}", self._tasks.owned))
        elif error is not None:
            self._recover(error)

    def _commit(self) -> None:
        """At once, and all tasks."""
        self._commits.finish()
        self._ends.stop_isolating()
        self._unsent = dict.fromkeys(self._tasks.processing.values())
        self._collect()
        self._commits.commit_now(self._clock.monotonic_ms())

    def abandon(self, reason: str) -> None:
        """Abort, and close the active tasks: another member may have them by now. Standbys stay."""
        self._commits.abandon()
        self._commits.take_unconfirmed()
        self._recovery.recover(TaskCorruptedError(reason, self._tasks.owned))
        self._tasks.close(self._tasks.owned)

    def shut_down(self, *, leave_group: bool) -> None:
        """A clean end: commit what can be committed, close every task, leave the group."""
        self._measures.moved(ThreadState.PENDING_SHUTDOWN)
        try:
            committed = self._commit_at_last()
            self._tasks.close(self._tasks.owned, at_once=True)
            if committed and leave_group:
                # This thread has nothing open in Kafka: the group needn't wait until standbys and clients are closed.
                self._clients.member.close(leave=True)
        finally:
            self._tasks.close(self._tasks.everything, at_once=True)
            self._measures.close()

    def _commit_at_last(self) -> bool:
        clock = self._context.clock
        patience_ms = min(LAST_FLUSH_MS, self._context.config.close_timeout_ms // 3)
        try:
            self._commits.finish()
            while not self._processing.prepare_commit(clock.monotonic_ms(), patience_ms, final=True):
                clock.sleep_ms(SHORT_MS)
            self._commit()
            most_ms = min(LAST_COMMIT_MS, self._context.config.close_timeout_ms // 3)
            until_ms = clock.monotonic_ms() + min(most_ms, self._context.retry_policy.rest_ms())
            while self._commits.failing and clock.monotonic_ms() < until_ms:
                clock.sleep_ms(RETRY_PAUSE_MS)
                self._commit()
            if self._commits.failing:
                raise TimeoutExceededError("Kafka hasn't confirmed it in time")
        except (KafkaException, MilestonesError) as error:
            log.error(
                "%s: the last commit failed: %s; nothing is lost, but what came since the commit before it is "
                "processed again after the next start", self._context.name, error,
            )  # fmt: skip
            return False
        return True

    def fail(self, *, shut_application_down: str | None) -> None:
        """Ended by an error: close every task, nothing more is committed; tell the other instances when asked to."""
        try:
            try:
                self._commits.abandon()
            finally:
                self._tasks.close(self._tasks.everything, at_once=True)
        finally:
            self._measures.close()
            if shut_application_down is not None:
                self._rebalance.shut_application_down(shut_application_down)

    def close(self) -> None:
        """The very end, when the group has been left: wait for tasks that aren't back yet, but not for ever."""
        self._tasks.finish(self._context.config.close_timeout_ms)

    def _report(self, now_ms: int) -> None:
        if now_ms < self._next_report_ms:
            return
        self._next_report_ms = now_ms + REPORT_INTERVAL_MS
        running, ended = self._tasks.processing.keys(), self._tasks.ended
        report = ThreadReport(
            thread=self._context.name,
            tasks=dict.fromkeys(self._tasks.standbys, "standby")
            | {id: "running" if id in running else "restoring" for id in self._tasks.owned}
            | dict.fromkeys(ended, "ended"),
            lags=self._inputs.lags(),
            restoring=self._restoration.remaining(),
            records=self._processing.processed,
            generation=self._rebalance.generation,
            standby_lags=self._tasks.lags(),
            places=self._tasks.told_places(),
            ended=ended,
        )
        # Metrics first: what the status says of a task has its metrics by then.
        self._measures.follow()
        self._measures.publish(now_ms, report)
        self._context.notify(report)
        self._collection.let_go(self._tasks.open)


def corrupted_by(error: BaseException) -> frozenset[TaskId]:
    """The tasks whose uncommitted work is void by this error."""
    return error.tasks if isinstance(error, TaskCorruptedError) else frozenset()
