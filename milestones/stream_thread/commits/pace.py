"""How fast commits follow each other, and what tasks may add meanwhile. `when_due.py` has the rules.

*Guarantees*: a commit that failed and may yet succeed is tried once more after a pause, which grows; after
`task_timeout_ms` of that it is an error. From the limit of uncommitted bytes on no task adds anything while a commit
fails, is under way, or can't be begun. A commit that takes long is followed by a rest where tasks can't send during one
(`FailedCommit.rest_ms`).
*Assumes*: driven by `CommitDriver`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from milestones.common.errors import TimeoutExceededError
from milestones.common.memory import Account
from milestones.stream_thread.commits.when_due import (
    CommitReasons,
    CommitTimes,
    is_due,
    is_held,
    must_share,
    must_stop,
)

if TYPE_CHECKING:
    from milestones.common.kafka.membership import CommitRetriableError
    from milestones.common.records import TaskId
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients, FailedCommit, TaskEnds
    from milestones.stream_thread.commits.transaction_register import TransactionRegister
    from milestones.stream_thread.commits.uncommitted import CommittedTasks, Uncommitted

log: Final = logging.getLogger(__name__)

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 100, 2_000
"""Before a commit is tried once more that failed and may yet succeed: each try takes some copying, and a request."""

SAY_EVERY_MS = 10_000
"""How often the log says that commits fail."""


class CommitPace:
    """*Owns*: the times of commits.

    `stalls`: how often a commit failed that may yet succeed; `committing_bytes`: what the commit under way has, or the
    last one had.
    """

    def __init__(
        self,
        context: ThreadContext,
        clients: Clients,
        uncommitted: Uncommitted,
        tasks: CommittedTasks,
        ends: TaskEnds,
        register: TransactionRegister,
        failed_commit: FailedCommit,
    ) -> None:
        self._context, self._clients, self._uncommitted, self._tasks = context, clients, uncommitted, tasks
        self._ends, self._register, self._failed_commit = ends, register, failed_commit
        now_ms = context.clock.monotonic_ms()
        self._due_ms, self._hastened = now_ms + context.config.commit_interval_ms, False
        self._held_since: int | None = None
        self._failing_since: int | None = None
        self._pause_ms = FIRST_PAUSE_MS
        self._next_try_ms = self._next_words_ms = self._began_ms = now_ms
        self._roll_backs = 0
        self.committing_bytes: int = 0
        self.stalls: int = 0

    # -- when the next commit begins

    def may_begin(self, now_ms: int) -> bool:
        """Whether a commit is due, and no rebalance holds it."""
        return self._is_due(now_ms) and not self._is_held(now_ms)

    def _is_due(self, now_ms: int) -> bool:
        why = CommitReasons(
            once_more=self.failing or bool(self._register.retained),
            asked_for=self._hastened or self._uncommitted.requested or self._ends.isolating,
            rolled_back=self._tasks.roll_backs.count > self._roll_backs,
            bytes=self._uncommitted.commit_bytes,
            most_bytes=self._failed_commit.most_bytes_of_commit(self._most_bytes()),
        )
        return is_due(self._times(now_ms), why)

    def _is_held(self, now_ms: int) -> bool:
        if not self._clients.member.joining():
            self._held_since = None
        elif self._held_since is None and not self._times(now_ms).too_old:
            self._held_since = now_ms
        return is_held(self._times(now_ms))

    def _times(self, now_ms: int) -> CommitTimes:
        timeout_ms = self._context.config.transaction_timeout_ms
        return CommitTimes(
            now=now_ms,
            due=self._due_ms,
            next_try=self._next_try_ms,
            transaction_age=self._clients.producer.age_ms(),
            most_age=timeout_ms // 2,
            held_since=self._held_since,
            most_held=timeout_ms // 4,
        )

    def hasten(self) -> None:
        """Have the next commit due now, however long ago the last one was."""
        self._hastened = True

    def due_in_ms(self, now_ms: int) -> int:
        """Milliseconds until the next commit by the clock."""
        return 0 if self._hastened else max(0, self._due_ms - now_ms)

    def too_old_in_ms(self) -> int | None:
        """Milliseconds until the transaction is too old; None when none is open, or it is that already."""
        return self._times(0).too_old_in

    # -- what tasks may add

    @property
    def failing(self) -> bool:
        """The last commit failed, and is to be tried once more."""
        return self._failing_since is not None

    @property
    def behind(self) -> bool:
        """Whether no task should add anything."""
        return must_stop(self._added_bytes(), self._most_bytes())

    @property
    def greedy(self) -> frozenset[TaskId]:
        """The tasks that should add nothing while the others still may: those with more than an equal share of what
        isn't committed."""
        share = must_share(self._added_bytes(), self._most_bytes())
        return self._uncommitted.greedy() if share else frozenset()

    def _added_bytes(self) -> int:
        """What isn't committed, while a commit fails, is under way, or can't be begun; else 0."""
        register = self._register
        if not (self.failing or register.under_way or register.unsettled or self._held_since is not None):
            return 0
        committing_bytes = self.committing_bytes if register.under_way else 0
        return self._failed_commit.added_bytes(self._uncommitted.bytes, committing_bytes)

    def _most_bytes(self) -> int:
        return self._context.memory.part(Account.UNCOMMITTED)

    # -- what becomes of a commit

    def begins(self, now_ms: int) -> None:
        """A commit begins, if there is anything to commit."""
        self._began_ms, self._due_ms = now_ms, now_ms + self._context.config.commit_interval_ms
        self._hastened = False

    def rest(self) -> None:
        """The commit is over, made or not: the next one isn't due before the rest that follows it."""
        now_ms = self._context.clock.monotonic_ms()
        self._due_ms = max(self._due_ms, now_ms + self._failed_commit.rest_ms(now_ms - self._began_ms))

    def made(self) -> None:
        """Kafka has confirmed the commit, and so what followed roll-backs before it."""
        self._roll_backs = self._tasks.roll_backs.count

    def succeeded(self) -> None:
        """No commit fails any more."""
        self._failing_since, self._pause_ms, self._next_try_ms = None, FIRST_PAUSE_MS, self._began_ms

    def repeat_later(self, error: CommitRetriableError) -> None:
        """At least once: everything is kept, and the next commit covers it. The pause before it grows.
        `TimeoutExceededError` after `task_timeout_ms` of that."""
        self.stalls += 1
        began_ms = self._began_ms
        if self._failing_since is None:
            self._failing_since = self._next_words_ms = began_ms
        end_ms = self._failing_since + self._context.config.task_timeout_ms
        if began_ms > end_ms:
            raise TimeoutExceededError(f"offsets couldn't be committed within task_timeout_ms: {error}") from error
        self._next_try_ms = min(self._context.clock.monotonic_ms() + self._pause_ms, end_ms + 1)
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)
        if began_ms >= self._next_words_ms:
            self._next_words_ms = began_ms + SAY_EVERY_MS
            log.warning("%s: commit will be repeated: %s", self._context.name, error)
