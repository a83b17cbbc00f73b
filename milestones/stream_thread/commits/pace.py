"""Decides when the next commit may begin, and whether tasks may add outputs meanwhile. `when_due.py` has the rules.

*Guarantees*: a commit that failed and may still succeed is retried after a pause, which grows with each failure. After
`task_timeout_ms` of such failures an error is raised. While a commit fails, is under way, or can't begin, tasks add
nothing once the uncommitted bytes have reached their limit. If tasks can't send during a commit, a long commit is
followed by a time in which no other commit is due (`FailedCommit.rest_ms`).
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
    from milestones.parts import Clients, FailedCommit, TaskFailurePolicy
    from milestones.stream_thread.commits.transaction_register import TransactionRegister
    from milestones.stream_thread.commits.uncommitted import CommittedTasks, Uncommitted

log: Final = logging.getLogger(__name__)

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 100, 2_000
"""The pause before a failed commit is retried. Each try costs some copying and a request."""

SAY_EVERY_MS = 10_000
"""How often the log says that commits fail."""


class CommitPace:
    """*Owns*: the times of commits.

    `stalls`: how often a commit failed that may still succeed. `committing_bytes`: the uncommitted bytes in the commit
    that is under way, or in the last one.
    """

    def __init__(
        self,
        context: ThreadContext,
        clients: Clients,
        uncommitted: Uncommitted,
        tasks: CommittedTasks,
        ends: TaskFailurePolicy,
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
        """True if a commit is due and needn't wait for a rebalance."""
        times = self._times(now_ms)
        return self._is_due(times) and not self._is_held(times)

    def _is_due(self, times: CommitTimes) -> bool:
        why = CommitReasons(
            once_more=self.failing or bool(self._register.retained),
            asked_for=self._hastened or self._uncommitted.requested or self._ends.isolating,
            rolled_back=self._tasks.roll_backs.count > self._roll_backs,
            bytes=self._uncommitted.commit_bytes,
            most_bytes=self._failed_commit.most_bytes_of_commit(self._most_bytes()),
        )
        return is_due(times, why)

    def _is_held(self, times: CommitTimes) -> bool:
        if not self._clients.member.joining():
            self._held_since = None
        elif self._held_since is None and not times.too_old:
            self._held_since = times.now
        return is_held(times._replace(held_since=self._held_since))

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
        """Make the next commit due now, independently of the time of the last commit."""
        self._hastened = True

    def due_in_ms(self, now_ms: int) -> int:
        """Return the milliseconds until the next commit is due by the clock. 0 if the next commit was hastened."""
        return 0 if self._hastened else max(0, self._due_ms - now_ms)

    def too_old_in_ms(self) -> int | None:
        """Return the milliseconds until the transaction is too old, or None if no transaction is open, or if it is too
        old already."""
        return self._times(0).too_old_in

    # -- what tasks may add

    @property
    def failing(self) -> bool:
        """True if the last commit failed and will be retried."""
        return self._failing_since is not None

    @property
    def behind(self) -> bool:
        """True while no task should process anything that adds uncommitted bytes."""
        return must_stop(self._added_bytes(), self._most_bytes())

    @property
    def greedy(self) -> frozenset[TaskId]:
        """The tasks that should add nothing, while the others still may: they hold more than an equal share of the
        uncommitted bytes."""
        share = must_share(self._added_bytes(), self._most_bytes())
        return self._uncommitted.greedy() if share else frozenset()

    def _added_bytes(self) -> int:
        """Return the number of uncommitted bytes that count against the limit. It is 0 unless a commit fails, is under
        way, or can't begin."""
        register = self._register
        if not (self.failing or register.under_way or register.unsettled or self._held_since is not None):
            return 0
        committing_bytes = self.committing_bytes if register.under_way else 0
        return self._failed_commit.added_bytes(self._uncommitted.bytes, committing_bytes)

    def _most_bytes(self) -> int:
        return self._context.memory.part(Account.UNCOMMITTED)

    # -- what becomes of a commit

    def begins(self, now_ms: int) -> None:
        """Record that a commit begins, if there is anything to commit."""
        self._began_ms, self._due_ms = now_ms, now_ms + self._context.config.commit_interval_ms
        self._hastened = False

    def rest(self) -> None:
        """Record that a commit has ended, successfully or not: the next commit isn't due before `FailedCommit.rest_ms`
        have passed."""
        now_ms = self._context.clock.monotonic_ms()
        self._due_ms = max(self._due_ms, now_ms + self._failed_commit.rest_ms(now_ms - self._began_ms))

    def made(self) -> None:
        """Record that Kafka has confirmed a commit. Roll-backs before it don't make another commit due."""
        self._roll_backs = self._tasks.roll_backs.count

    def succeeded(self) -> None:
        """Record that no commit is failing any more."""
        self._failing_since, self._pause_ms, self._next_try_ms = None, FIRST_PAUSE_MS, self._began_ms

    def repeat_later(self, error: CommitRetriableError) -> None:
        """Set the pause before the failed commit is retried. The pause doubles with each failure. Nothing is lost under
        `at_least_once`: the next commit covers the same work. Raises `TimeoutExceededError` once commits have failed
        for `task_timeout_ms`."""
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
