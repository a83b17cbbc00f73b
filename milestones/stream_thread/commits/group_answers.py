"""What the stream thread does about its tasks before the group is answered: the commits that an answer waits for.

    what the group said ---> earlier commits are over ---> the tasks are ready ---> cut: one more commit ---> the answer

*Guarantees*: nothing waits in here but what is given away without transactions and not taken by Kafka: each turn looks,
for `longest_wait_ms` at most, `STALLED_MS` where Kafka takes nothing; then the group is answered all the same, and
an answer that follows soon isn't waited with again.
What isn't committed by then of a task that is given away is dropped, and nothing more of it is sent.
*Assumes*: driven by the thread that owns the tasks, once per turn, for one answer at a time.
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
    from milestones.parts import Clients, OutputCollection, Processing, TaskEnds
    from milestones.stream_thread.commits.driver import CommitDriver
    from milestones.stream_thread.commits.recoveries import Recoveries
    from milestones.stream_thread.commits.transaction_register import TransactionRegister
    from milestones.stream_thread.tasks import ThreadTasks


STALLED_MS = 10_000
"""How long the group waits for outputs that Kafka doesn't take at all."""


class GroupAnswers:
    """`rebalance.Answering` of a loop. *Owns*: how far the present answer is.

    `leaving`: tasks that are about to be given away. They rest, so that the commit takes all that they have done.
    """

    def __init__(
        self,
        context: ThreadContext,
        clients: Clients,
        tasks: ThreadTasks,
        processing: Processing,
        collection: OutputCollection,
        ends: TaskEnds,
        commits: CommitDriver,
        recoveries: Recoveries,
        register: TransactionRegister,
        collect: Callable[[], object],
        hold_back: Callable[[], object],
    ) -> None:
        """`collect`: sends what all tasks have made; `hold_back`: has processing leave `leaving` alone."""
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

    def may_part(self, now_ms: int, leaving: Set[TaskId]) -> bool:
        if leaving != self.leaving:
            self.leaving = leaving
            self._hold_back()
        return self._committed(now_ms, CommitEvent.TASKS_LEAVE)

    def may_abandon(self) -> bool:
        return self._register.answer(CommitEvent.MEMBERSHIP_LOST) is not CommitAction.WAIT

    def _committed(self, now_ms: int, event: CommitEvent) -> bool:
        """Whether a commit that was cut for this answer is over, made or not, or it isn't waited for any longer."""
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
        """Whether Kafka has taken nothing for `STALLED_MS` of this wait, or of one that was shortly before."""
        if self._commits.commits > self._commits_before:
            return False
        stalled = self._stalls() > self._stalls_before and now_ms - self._since_ms >= STALLED_MS
        return stalled or now_ms < self._untaken_until_ms

    def _stalls(self) -> int:
        """How often Kafka hasn't taken what a commit needed."""
        return self._commits.pace.stalls + self._recoveries.stalls

    def answered(self) -> None:
        """What leaves is given away."""
        self.leaving = self._register.cut_off = frozenset()

    def _missed(self) -> bool:
        """Whether the commit isn't cut, or is to be made again, after an error."""
        return not self._cut or self._register.unsettled

    def _recovering(self, step: Callable[[], object], now_ms: int) -> None:
        """Take the step, and recover from an error of it."""
        if (error := caught(step, KafkaException, MilestonesError)) is not None:
            self._recoveries.recover(error, now_ms)

    def _commit(self, now_ms: int) -> None:
        """Cut the commit, and begin it. Should the sending before the cut fail, the register says whether the group is
        answered all the same, or there is another try."""
        self._cut = self._register.answer(CommitEvent.CUT_FAILED) is CommitAction.ANSWER
        self._ends.stop_isolating()
        self._collect()
        self._cut, self._register.cut_off = True, self.leaving
        self._commits.begin_now(now_ms)

    def _give_up_commit(self, *, final: bool) -> None:
        """There is no more time: the group isn't left unanswered for outputs that Kafka doesn't take. None of tasks
        that are given away may stay in a transaction."""
        sent = self._clients.producer.in_transaction and self._register.at_rest
        if self._register.answer(CommitEvent.TIME_IS_UP) is CommitAction.ABANDON or (final and sent):
            tasks = [task.id for task in self._commits.committing]
            self._commits.abandon()
            raise UnsentError(f"Kafka hasn't taken a commit's outputs within {self._context.longest_wait_ms} ms", tasks)

    def part(self) -> None:
        """Without transactions nothing fences what Kafka hasn't taken of tasks that are given away: it would be sent
        behind what their next owners have written, so it is thrown away instead."""
        producer = self._clients.producer
        if self._commits.commits > self._commits_before or producer.transactional:
            return
        if self._register.answer(CommitEvent.OUTPUTS_LEFT) is CommitAction.REPLACE_PRODUCER:
            # What others have sent is kept, and sent again.
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
        """Abort, and close the active tasks: another member may have them by now. Standbys stay."""
        self._until_ms = None
        self.answered()
        self._recoveries.give_up(reason)
        self._tasks.close(self._tasks.owned)
