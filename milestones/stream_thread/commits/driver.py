"""Begins commits, and sees them to their end.

*Guarantees*: there is one commit at a time. `CommitPace` says when it may begin. When it begins, the boundaries of its
tasks are frozen; the tasks are still processed during the commit. A turn looks only at the tasks that have changed. A
commit looks only at the tasks that have changed since the last commit.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from milestones.common.errors import UnsentError
from milestones.common.kafka.membership import CommitRetriableError
from milestones.common.steps import AT_ONCE_MS
from milestones.common.task.commit_set import freeze
from milestones.parts.transaction import CommitAction, CommitEvent, CommitStage
from milestones.stream_thread.commits.pace import CommitPace
from milestones.stream_thread.commits.purges import Purges
from milestones.stream_thread.commits.uncommitted import CommittedTasks, Uncommitted

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.boundary import PendingCommit
    from milestones.common.task.commit_set import CommitSet
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients, Commit, CommitGate, FailedCommit, TaskFailurePolicy
    from milestones.stream_thread.commits.transaction_register import TransactionRegister

STEP_MS = 10
"""How long a turn waits for a step of the commit that is under way. During such a step there is nothing to send, and
nothing else in the turn waits. If Kafka answers soon, a whole commit takes one turn."""


class CommitDriver:
    """*Owns*: the tasks of the commit that is under way.

    `commits`: how many commits Kafka has confirmed; `pace`: decides how fast commits follow each other.
    """

    def __init__(
        self,
        context: ThreadContext,
        clients: Clients,
        commit: Commit,
        tasks: CommittedTasks,
        processing: CommitGate,
        ends: TaskFailurePolicy,
        register: TransactionRegister,
        failed_commit: FailedCommit,
    ) -> None:
        self._context, self._clients, self._commit, self._tasks = context, clients, commit, tasks
        self._processing, self._ends = processing, ends
        self._register, self._failed_commit = register, failed_commit
        self._purges = Purges(context)
        self._uncommitted = Uncommitted(tasks)
        self.pace: CommitPace = CommitPace(
            context, clients, self._uncommitted, tasks, ends, register, failed_commit
        )
        self._unconfirmed: CommitSet = {}
        self._over: list[Task] = []
        self.commits: int = 0

    def note_changed(self, changed: Iterable[Task]) -> None:
        """Record that these tasks have changed, so that the next `run_once` looks at them."""
        self._uncommitted.note_changed(changed)

    def run_once(self, now_ms: int, *, may_begin: bool = True, wait_ms: int = STEP_MS) -> bool:
        """Take steps of the commit under way, or begin a commit that is due if `may_begin` allows it. Each step waits
        for Kafka for `wait_ms` at most. Returns True if Kafka has confirmed a commit in this call."""
        self._uncommitted.look()
        committed = self._step(now_ms, wait_ms, may_begin=may_begin)
        self._purges.send_when_due(now_ms)
        return committed

    def _step(self, now_ms: int, wait_ms: int, *, may_begin: bool) -> bool:
        if not self.under_way:
            due = may_begin and self.pace.may_begin(now_ms) and self._prepared(now_ms)
            if not (due and self._begin(now_ms)):
                return False
        return self._go_on_while_answered(wait_ms)

    def _prepared(self, now_ms: int) -> bool:
        return not self._uncommitted or self._processing.prepare_commit(now_ms)

    def take_changed(self) -> list[Task]:
        """Return the tasks of all commits that have ended since the last call, successfully or not."""
        over, self._over = self._over, []
        return over

    @property
    def under_way(self) -> bool:
        """True while a commit has begun and hasn't ended."""
        return self._register.under_way

    @property
    def committing(self) -> Collection[Task]:
        """The tasks of the commit that is under way, and the tasks of failed commits that will be repeated."""
        unconfirmed = self._unconfirmed if self.under_way else self._failed_commit.retained(self._unconfirmed)
        return self._register.retained.keys() | unconfirmed.keys()

    @property
    def unconfirmed(self) -> Mapping[TaskId, PendingCommit]:
        """The boundaries of the last commit, as long as Kafka hasn't confirmed it."""
        return {task.id: boundary for task, boundary in self._unconfirmed.items()}

    def drop_unconfirmed(self) -> None:
        """Forget the last commit if it failed: its tasks are rolled back, or lost."""
        self._unconfirmed = {}

    def commit_once_more(self, *, without: Collection[TaskId] = ()) -> None:
        """Make the next commit begin immediately. If `FailedCommit` retains the boundaries of a failed commit, the next
        commit repeats them, except those of the tasks in `without`."""
        retained = {**self._register.retained, **self._failed_commit.retained(self._unconfirmed)}
        self._register.retained = {task: at for task, at in retained.items() if task.id not in without}
        self._unconfirmed = {}
        self.pace.hasten()

    # -- one commit

    def begin_now(self, now_ms: int) -> bool:
        """Begin one commit of all tasks that have anything to commit and are at a boundary that can be committed. Call
        it only while no other commit is under way. Then take steps as long as Kafka answers soon. Returns True if Kafka
        has already confirmed the commit."""
        return self._begin_all(now_ms) and self._go_on_while_answered()

    def _begin_all(self, now_ms: int) -> bool:
        self._uncommitted.note_changed(self._tasks.processing.values())
        self._uncommitted.look()
        return self._begin(now_ms)

    def commit_now(self, now_ms: int) -> bool:
        """Finish earlier commits first. Then do the same as `begin_now`, but take all steps of the commit, and wait for
        each step."""
        return self.finish_earlier(now_ms) and self._begin_all(now_ms) and self.finish()

    def finish_earlier(self, now_ms: int, until_ms: float = math.inf) -> bool:
        """Take all steps of earlier commits, and repeat earlier commits that failed, but begin no commit from
        `until_ms` on. Returns True if no earlier commit is left. Otherwise outputs of other tasks must wait: they would
        be in the transaction of the commit that is left."""
        self.finish()
        self._uncommitted.look()
        while self._register.retained:
            if self._context.clock.monotonic_ms() >= until_ms or not (self._begin(now_ms) and self.finish()):
                return False
        return True

    def finish(self) -> bool:
        """Take the remaining steps of the commit under way, if there is one. Returns True if Kafka has confirmed it.
        Raises `UnsentError` when Kafka hasn't taken all of its outputs within `longest_wait_ms`, as the group can't
        wait longer for its answer."""
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

    def settle(self) -> None:
        """Advance, finish or abandon the commit under way, as the register says, before an error is answered."""
        match self._register.answer(CommitEvent.ERROR):
            case CommitAction.GO_ON:
                self._go_on_while_answered()
            case CommitAction.ABANDON:
                self.abandon()
            case CommitAction.FINISH:
                self.finish()

    def abandon(self) -> None:
        """Drop the commit under way, in whichever step it is."""
        if self.under_way:
            self._commit.abandon()
            self._is_over()

    def _begin(self, now_ms: int) -> bool:
        """Begin a commit. Returns False if there was nothing to commit."""
        self.pace.begins(now_ms)
        if not self._others_came_first() and (retained := self._take_retained()):
            self._begin_with(retained)
            return True
        needed = [task for task in self._uncommitted.needed() if self._may_cut(task)]
        tasks = [task for task in needed if task.committable]
        if not needed:
            self.pace.succeeded()  # the tasks whose commit failed have left
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
        self.pace.committing_bytes = sum(task.uncommitted_bytes() for task in commit_set)

    def _may_cut(self, task: Task) -> bool:
        return task not in self._register.retained and self._ends.admits(task.id) and not self._tasks.is_void(task.id)

    def _others_came_first(self) -> bool:
        """True if the open transaction has outputs of tasks whose boundaries aren't retained: their commit comes
        next."""
        producer = self._clients.producer
        return producer.in_transaction and not producer.contributors <= {task.id for task in self._register.retained}

    def _take_retained(self) -> dict[Task, PendingCommit]:
        """Take from the register the boundaries of failed commits that are repeated now. Boundaries are dropped if
        their task is gone or was rolled back, or if Kafka has confirmed them meanwhile."""
        processing = self._tasks.processing
        retained = {
            task: at
            for task, at in self._register.retained.items()
            if processing.get(task.id) is task and task.is_pending(at)
        }
        taken = {task: at for task, at in retained.items() if self._ends.admits(task.id)}
        self._register.retained = {task: at for task, at in retained.items() if task not in taken}
        return taken

    def _is_over(self) -> None:
        self._over += self._unconfirmed
        self.pace.rest()

    def _go_on_while_answered(self, wait_ms: int = STEP_MS) -> bool:
        """Take steps as long as Kafka answers soon. Returns True if Kafka has confirmed the commit."""
        while self.under_way:
            before = self._register.step
            if self._go_on(wait_ms):
                return True
            after = self._register.step
            # Kafka hasn't answered the step. Or the end has had no answer, and finding out how it ended takes long.
            if after is before or (before, after) == (CommitStage.ENDING, CommitStage.RESOLVING):
                break
        return False

    def _go_on(self, wait_ms: int) -> bool:
        """Take one step of the commit under way. Returns True if Kafka has confirmed the commit."""
        try:
            committed = self._commit.run_once(wait_ms)
        except CommitRetriableError as error:
            self.pace.repeat_later(error)
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
        self.pace.succeeded()
        self.pace.made()
        self._purges.note(committed, confirmed)
        self.commits += 1
        return True
