"""Makes the commits that must be over before the stream thread may answer its group.

    what the group said ---> earlier commits are over ---> the tasks are ready ---> cut: one more commit ---> the answer

*Guarantees*: no call waits, with one exception: without transactions, `part` waits for outputs of tasks that are given
away. Each turn checks if the group can be answered. The answer is delayed for `longest_wait_ms` at most, and for
`STALLED_MS` at most if Kafka takes no outputs at all. Then the group is answered in any case, and an answer that
follows soon after isn't delayed. If a task that is given away isn't committed by then, its uncommitted work is dropped,
and no more of its outputs are sent.
*Assumes*: the thread that owns the tasks calls it once per turn, for one answer at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError, UnsentError
from milestones.common.kafka.failures import caught
from milestones.common.kafka.membership import CommitRetriableError
from milestones.common.steps import to_the_end
from milestones.parts.transaction import CommitAction, CommitEvent

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients, OutputCollection, Processing, TaskFailurePolicy
    from milestones.stream_thread.commits.driver import CommitDriver
    from milestones.stream_thread.commits.recoveries import Recoveries
    from milestones.stream_thread.commits.transaction_register import TransactionRegister
    from milestones.stream_thread.tasks import ThreadTasks


STALLED_MS = 10_000
"""How long the group waits for outputs that Kafka doesn't take at all."""


class GroupAnswers:
    """Implements `rebalance.Answering` for a loop. *Owns*: the progress of the current answer.

    `leaving`: tasks that are about to be given away. They aren't processed, so that the commit contains all of their
    work.
    """

    def __init__(
        self,
        context: ThreadContext,
        clients: Clients,
        tasks: ThreadTasks,
        processing: Processing,
        collection: OutputCollection,
        ends: TaskFailurePolicy,
        commits: CommitDriver,
        recoveries: Recoveries,
        register: TransactionRegister,
        collect: Callable[[], object],
        hold_back: Callable[[], object],
    ) -> None:
        """`collect`: sends the outputs of all tasks; `hold_back`: makes processing begin no record and no punctuation
        of tasks in `leaving`."""
        self._context, self._clients, self._clock = context, clients, context.clock
        self._tasks, self._processing, self._collection, self._ends = tasks, processing, collection, ends
        self._commits, self._recoveries, self._collect = commits, recoveries, collect
        self._register = register
        self._hold_back = hold_back
        self.leaving: Set[TaskId] = frozenset()
        self._until_ms: int | None = None
        self._since_ms, self._cut = 0, False
        self._commits_before = self._stalls_before = 0
        self._untaken_until_ms = 0

    def may_join(self, now_ms: int) -> bool:
        if self._register.answer(CommitEvent.JOIN_NEEDED) is CommitAction.ANSWER:
            self._until_ms = None
            return True
        return self._committed(now_ms, CommitEvent.JOIN_NEEDED)

    def may_release(self, now_ms: int, leaving: Set[TaskId]) -> bool:
        if leaving != self.leaving:
            self.leaving = leaving
            self._hold_back()
        return self._committed(now_ms, CommitEvent.TASKS_LEAVE)

    def may_abandon(self) -> bool:
        return self._register.answer(CommitEvent.MEMBERSHIP_LOST) is not CommitAction.WAIT

    def _committed(self, now_ms: int, event: CommitEvent) -> bool:
        """True if the commit that was cut for this answer has ended, successfully or not, or has taken too long."""
        final = event is CommitEvent.TASKS_LEAVE
        if self._until_ms is None:
            if self._commits.commits > self._commits_before:
                self._untaken_until_ms = 0
            self._since_ms, self._until_ms, self._cut = now_ms, now_ms + self._context.longest_wait_ms, False
            self._register.cut_off = frozenset()
            self._commits_before, self._stalls_before = self._commits.commits, self._stalls()
        if self._takes_nothing(now_ms):
            self._until_ms, self._untaken_until_ms = now_ms, now_ms + STALLED_MS
        if now_ms >= self._until_ms:
            self._recovering(lambda: self._give_up_commit(final=final), now_ms)
        elif self._register.answer(event) is CommitAction.WAIT:
            return False
        elif not self._cut:
            rest = self._processing.at_rest(self.leaving)
            if not (self._processing.prepare_commit(now_ms, final=final) and rest):
                return False
            self._commits_before = self._commits.commits
            self._recovering(lambda: self._commit(now_ms), now_ms)
            if self._missed():
                return False
        if self._register.under_way and self._register.answer(event) is CommitAction.WAIT:
            return False
        self._until_ms = None
        return True

    def _takes_nothing(self, now_ms: int) -> bool:
        """True if Kafka has taken no outputs for `STALLED_MS`, in this wait or in one shortly before."""
        if self._commits.commits > self._commits_before:
            return False
        stalled = self._stalls() > self._stalls_before and now_ms - self._since_ms >= STALLED_MS
        return stalled or now_ms < self._untaken_until_ms

    def _stalls(self) -> int:
        """Return how often Kafka hasn't taken the outputs that a commit needed."""
        return self._commits.pace.stalls + self._recoveries.stalls

    def answered(self) -> None:
        """Record that the tasks in `leaving` have been given away."""
        self.leaving = self._register.cut_off = frozenset()

    def _missed(self) -> bool:
        """True if an error has prevented the cut, or an error or a failed commit isn't settled yet."""
        return not self._cut or self._register.unsettled

    def _recovering(self, step: Callable[[], object], now_ms: int) -> None:
        """Take the step. If it fails, recover from the error."""
        if (error := caught(step, KafkaException, MilestonesError)) is not None:
            self._recoveries.recover(error, now_ms)

    def _commit(self, now_ms: int) -> None:
        """Cut the commit, and begin it. If sending fails before the cut, the register decides: the group is answered in
        any case, or the cut is tried once more."""
        self._cut = self._register.answer(CommitEvent.CUT_FAILED) is CommitAction.ANSWER
        self._ends.stop_isolating()
        self._collect()
        self._cut, self._register.cut_off = True, self.leaving
        self._commits.begin_now(now_ms)

    def _give_up_commit(self, *, final: bool) -> None:
        """Give up the commit if its stage allows that, because the group can't wait any longer for outputs that Kafka
        doesn't take. Outputs of tasks that are given away mustn't stay in an open transaction."""
        sent = self._clients.producer.in_transaction and self._register.at_rest
        if self._register.answer(CommitEvent.TIME_IS_UP) is CommitAction.ABANDON or (final and sent):
            tasks = [task.id for task in self._commits.committing]
            self._commits.abandon()
            raise UnsentError(f"Kafka hasn't taken a commit's outputs within {self._context.longest_wait_ms} ms", tasks)

    def part(self) -> None:
        """Without transactions, drop the outputs of leaving tasks that Kafka hasn't taken. Nothing fences these
        outputs, so they could still be sent after outputs of the tasks' next owners."""
        producer = self._clients.producer
        if self._commits.commits > self._commits_before or producer.transactional:
            return
        if self._register.answer(CommitEvent.OUTPUTS_LEFT) is CommitAction.REPLACE_PRODUCER:
            # The outputs of the other tasks are kept, and resent.
            if producer.unacknowledged:
                left = "outputs of tasks that leave wait in the client"
                self._recoveries.recover(UnsentError(left, self.leaving), self._clock.monotonic_ms())
            return
        error = caught(lambda: to_the_end(self._collection.flush()), KafkaException, MilestonesError)
        if error is None:
            return
        left = f"outputs of tasks that leave wait: {error}"
        unsent = UnsentError(left, self._tasks.owned) if isinstance(error, CommitRetriableError) else error
        self._recoveries.recover(unsent, self._clock.monotonic_ms())

    def abandon(self, reason: str) -> None:
        """Abort the transaction, and close the active tasks, because another member may have them by now. Standbys stay
        open."""
        self._until_ms = None
        self.answered()
        self._recoveries.give_up(reason)
        self._tasks.close(self._tasks.owned)
