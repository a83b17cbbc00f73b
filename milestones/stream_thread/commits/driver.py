"""Begins commits, and sees them to their end.

*Guarantees*: there is one commit at a time. `when_due.py` says when; its tasks are frozen when it begins, and are
processed during the commit. A commit that failed and may yet succeed is tried once more after a pause; from the limit
of uncommitted bytes on nothing is processed meanwhile. A commit that takes long is followed by a rest where tasks can't
send during one (`FailedCommit.rest_ms`). A turn looks at the tasks that have changed, a commit at those that have since
the last one.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from milestones.common.errors import TimeoutExceededError, UnsentError
from milestones.common.kafka.membership import CommitRetriableError
from milestones.common.memory import Account
from milestones.common.steps import AT_ONCE_MS
from milestones.common.task.commit_set import freeze
from milestones.parts.transaction import CommitAction, CommitEvent, CommitStage
from milestones.stream_thread.commits.purges import Purges
from milestones.stream_thread.commits.uncommitted import CommittedTasks, Uncommitted
from milestones.stream_thread.commits.when_due import (
    CommitReasons,
    CommitTimes,
    is_due,
    is_held,
    must_share,
    must_stop,
)

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.boundary import PendingCommit
    from milestones.common.task.commit_set import CommitSet
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients, Commit, CommitGate, FailedCommit, TaskEnds
    from milestones.stream_thread.commits.transaction_register import TransactionRegister

log: Final = logging.getLogger(__name__)


FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 100, 2_000
"""Before a commit is tried once more that failed and may yet succeed: each try takes some copying, and a request."""

STEP_MS = 10
"""How long a turn waits for a step of the commit that is under way. Until it is over there is nothing to send, and the
rest of the turn doesn't wait; where Kafka answers soon a commit takes one turn."""

TELL_MS = 10_000
"""How often the log says that commits fail."""


class CommitDriver:
    """*Owns*: the times of commits, the tasks of the one that is under way.

    `commits`: how many were made; `stalls`: how often one failed that may yet succeed.
    """

    def __init__(
        self,
        context: ThreadContext,
        clients: Clients,
        commit: Commit,
        tasks: CommittedTasks,
        processing: CommitGate,
        ends: TaskEnds,
        register: TransactionRegister,
        failed_commit: FailedCommit,
    ) -> None:
        self._context, self._clients, self._commit, self._tasks = context, clients, commit, tasks
        self._processing, self._ends = processing, ends
        self._register, self._failed_commit = register, failed_commit
        now_ms = context.clock.monotonic_ms()
        self._due_ms, self._hastened = now_ms + context.config.commit_interval_ms, False
        self._held_since: int | None = None
        self._failing_since: int | None = None
        self._pause_ms = FIRST_PAUSE_MS
        self._next_try_ms = self._tell_ms = self._began_ms = now_ms
        self._purges = Purges(context)
        self._uncommitted = Uncommitted(tasks)
        self._unconfirmed: CommitSet = {}
        self._over: list[Task] = []
        self._committing_bytes = 0
        self._roll_backs = 0
        self.commits: int = 0
        self.stalls: int = 0

    def note_changed(self, changed: Iterable[Task]) -> None:
        """Something has happened to these tasks: the next `run_once` looks at them."""
        self._uncommitted.note_changed(changed)

    def run_once(self, now_ms: int, *, may_begin: bool = True, wait_ms: int = STEP_MS) -> bool:
        """Take steps of the commit under way, each of which waits for Kafka `wait_ms` at most; or begin one that is due
        and allowed. Whether a commit was made."""
        self._uncommitted.look()
        committed = self._step(now_ms, wait_ms, may_begin=may_begin)
        self._purges.send_when_due(now_ms)
        return committed

    def _step(self, now_ms: int, wait_ms: int, *, may_begin: bool) -> bool:
        if not self.under_way:
            due = may_begin and self._is_due(now_ms) and not self._is_held(now_ms) and self._prepared(now_ms)
            if not (due and self._begin(now_ms)):
                return False
        return self._go_on_while_answered(wait_ms)

    def _prepared(self, now_ms: int) -> bool:
        return not self._uncommitted or self._processing.prepare_commit(now_ms)

    def take_changed(self) -> list[Task]:
        """The tasks of commits that are over since the last call, whatever became of them."""
        over, self._over = self._over, []
        return over

    @property
    def under_way(self) -> bool:
        """A commit was begun that isn't over."""
        return self._register.under_way

    @property
    def committing(self) -> Collection[Task]:
        """The tasks of the commit that is under way, and of those that are to be made once more."""
        unconfirmed = self._unconfirmed if self.under_way else self._failed_commit.retained(self._unconfirmed)
        return self._register.retained.keys() | unconfirmed.keys()

    @property
    def unconfirmed(self) -> Mapping[TaskId, PendingCommit]:
        """The boundaries of the last commit, if it wasn't made."""
        return {task.id: boundary for task, boundary in self._unconfirmed.items()}

    def drop_unconfirmed(self) -> None:
        """Forget the last commit, if it wasn't made: its tasks are rolled back, or lost."""
        self._unconfirmed = {}

    def commit_once_more(self, *, without: Collection[TaskId] = ()) -> None:
        """Have the next commit made at once. Where boundaries are retained it has those of the last commit that wasn't
        made, except those of the tasks `without`."""
        retained = {**self._register.retained, **self._failed_commit.retained(self._unconfirmed)}
        self._register.retained = {task: at for task, at in retained.items() if task.id not in without}
        self._unconfirmed = {}
        self._hastened = True

    def due_in_ms(self, now_ms: int) -> int:
        """Milliseconds until the next commit by the clock."""
        return 0 if self._hastened else max(0, self._due_ms - now_ms)

    def too_old_in_ms(self) -> int | None:
        """Milliseconds until the transaction is too old; None when none is open, or it is that already."""
        return self._times(0).too_old_in

    def hasten(self) -> None:
        """Have the next commit due now, however long ago the last one was."""
        self._hastened = True

    @property
    def failing(self) -> bool:
        """The last commit failed, and is to be tried again."""
        return self._failing_since is not None

    @property
    def behind(self) -> bool:
        """Whether no task should add anything, as commits don't keep pace."""
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
        committing_bytes = self._committing_bytes if register.under_way else 0
        return self._failed_commit.added_bytes(self._uncommitted.bytes, committing_bytes)

    def _most_bytes(self) -> int:
        return self._context.memory.part(Account.UNCOMMITTED)

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
        """The gate of a rebalance."""
        if not self._clients.member.joining():
            self._held_since = None
        elif self._held_since is None and not self._times(now_ms).too_old:
            self._held_since = now_ms
        return is_held(self._times(now_ms))

    # -- one commit

    def begin_now(self, now_ms: int) -> bool:
        """Begin the commit of all tasks that have anything to commit, and are at a boundary that can be, all in one; no
        other is under way. As many steps are taken as Kafka answers soon. Whether it is made now."""
        return self._begin_all(now_ms) and self._go_on_while_answered()

    def _begin_all(self, now_ms: int) -> bool:
        self._uncommitted.note_changed(self._tasks.processing.values())
        self._uncommitted.look()
        return self._begin(now_ms)

    def commit_now(self, now_ms: int) -> bool:
        """As `begin_now`, and all steps are taken at once; earlier commits are brought to their ends before."""
        return self.finish_earlier(now_ms) and self._begin_all(now_ms) and self.finish()

    def finish_earlier(self, now_ms: int, until_ms: float = math.inf) -> bool:
        """Take all steps of earlier commits, also of those that are to be made once more, none of which is begun from
        `until_ms` on. Whether none of these is left: else outputs of other tasks must wait, which would be in its
        transaction."""
        self.finish()
        self._uncommitted.look()
        while self._register.retained:
            if self._context.clock.monotonic_ms() >= until_ms or not (self._begin(now_ms) and self.finish()):
                return False
        return True

    def finish(self) -> bool:
        """Take the steps that are left of the commit under way, if there is one. Whether it was made.
        `UnsentError` when Kafka hasn't taken all of its outputs within `longest_wait_ms`: the group isn't left
        unanswered for that."""
        within_ms = self._context.longest_wait_ms
        until_ms = self._context.clock.monotonic_ms() + within_ms
        while self.under_way:
            may_abandon = self._register.answer(CommitEvent.TIME_IS_UP) is CommitAction.ABANDON
            if may_abandon and self._context.clock.monotonic_ms() >= until_ms:
                tasks = [task.id for task in self._unconfirmed]
                self.abandon()
                raise UnsentError(f"Kafka hasn't taken a commit's outputs within {within_ms} ms", tasks)
            if self._go_on(AT_ONCE_MS):
                return True
        return False

    def go_on(self) -> None:
        """Take as many steps of the commit under way as Kafka answers soon."""
        self._go_on_while_answered()

    def settle(self) -> None:
        """Have no commit under way, or one that is further, before an error is answered: by the register."""
        match self._register.answer(CommitEvent.ERROR):
            case CommitAction.GO_ON:
                self.go_on()
            case CommitAction.ABANDON:
                self.abandon()
            case CommitAction.FINISH:
                self.finish()

    def abandon(self) -> None:
        """Drop the commit under way, wherever it is: its tasks come to an end."""
        if self.under_way:
            self._commit.abandon()
            self._is_over()

    def _begin(self, now_ms: int) -> bool:
        """Whether there was anything to commit."""
        self._began_ms, self._due_ms = now_ms, now_ms + self._context.config.commit_interval_ms
        self._hastened = False
        if not self._others_came_first() and (retained := self._take_retained()):
            self._begin_with(retained)
            return True
        needed = [task for task in self._uncommitted.needed() if self._may_cut(task)]
        tasks = [task for task in needed if task.committable]
        if not needed:
            self._succeeded(now_ms)  # what failed has left with its tasks
        begun = False
        try:
            if tasks:
                self._begin_with(freeze(tasks))
                begun = True
        finally:
            self._processing.unlock()
            if not begun:
                self._over += tasks
        return begun

    def _begin_with(self, commit_set: CommitSet) -> None:
        self._commit.begin(commit_set)
        self._unconfirmed = commit_set
        self._committing_bytes = sum(task.uncommitted_bytes() for task in commit_set)

    def _may_cut(self, task: Task) -> bool:
        return task not in self._register.retained and self._ends.admits(task.id) and not self._tasks.is_void(task.id)

    def _others_came_first(self) -> bool:
        """Whether the open transaction has outputs of tasks whose commits aren't made once more: theirs comes next."""
        producer = self._clients.producer
        return producer.in_transaction and not producer.contributors <= {task.id for task in self._register.retained}

    def _take_retained(self) -> dict[Task, PendingCommit]:
        """The boundaries that are to be committed once more now. Those of tasks that have gone, or back, are void;
        those that Kafka has confirmed are done."""
        processing = self._tasks.processing
        retained = {
            task: at
            for task, at in self._register.retained.items()
            if processing.get(task.id) is task and task.pends(at)
        }
        taken = {task: at for task, at in retained.items() if self._ends.admits(task.id)}
        self._register.retained = {task: at for task, at in retained.items() if task not in taken}
        return taken

    def _is_over(self) -> None:
        self._over += self._unconfirmed
        now_ms = self._context.clock.monotonic_ms()
        self._due_ms = max(self._due_ms, now_ms + self._failed_commit.rest_ms(now_ms - self._began_ms))

    def _go_on_while_answered(self, wait_ms: int = STEP_MS) -> bool:
        """As many steps as Kafka answers soon; whether the commit is made now."""
        while self.under_way:
            step = self._register.step
            if self._go_on(wait_ms):
                return True
            if self._register.step in (step, CommitStage.RESOLVING):  # Kafka hasn't answered
                break
        return False

    def _go_on(self, wait_ms: int) -> bool:
        """A step of the commit under way; whether it is made now."""
        try:
            committed = self._commit.run_once(wait_ms)
        except CommitRetriableError as error:
            self._repeat_later(self._began_ms, error)
            if self._failed_commit.retained(self._unconfirmed):
                self.commit_once_more()
            return False
        finally:
            if not self.under_way:
                self._is_over()
        if committed is None:
            return False
        confirmed, self._unconfirmed = self._unconfirmed, {}
        self._ends.committed(committed)
        self._succeeded(self._began_ms)
        self._roll_backs = self._tasks.roll_backs.count
        self._purges.note(committed, confirmed)
        self.commits += 1
        return True

    def _succeeded(self, now_ms: int) -> None:
        self._failing_since, self._pause_ms, self._next_try_ms = None, FIRST_PAUSE_MS, now_ms

    def _repeat_later(self, now_ms: int, error: CommitRetriableError) -> None:
        """At least once: everything is kept, and the next commit covers it. The pause before it grows."""
        self.stalls += 1
        if self._failing_since is None:
            self._failing_since = self._tell_ms = now_ms
        end_ms = self._failing_since + self._context.config.task_timeout_ms
        if now_ms > end_ms:
            raise TimeoutExceededError(f"offsets couldn't be committed within task_timeout_ms: {error}") from error
        self._next_try_ms = min(self._context.clock.monotonic_ms() + self._pause_ms, end_ms + 1)
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)
        if now_ms >= self._tell_ms:
            self._tell_ms = now_ms + TELL_MS
            log.warning("%s: commit will be repeated: %s", self._context.name, error)
