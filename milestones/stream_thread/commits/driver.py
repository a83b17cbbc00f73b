"""When to commit, and what is committed.

*Guarantees*: every `commit_interval_ms`, and sooner when a task asks for it, its uncommitted bytes reach their limit,
or the transaction has been open for half of `transaction_timeout_ms`; after a roll-back each turn, until a commit has
succeeded: what takes longer than a transaction may last is then alone in its own. Where outputs can't be sent beside a
commit and tasks wait for that, one that takes long is followed by a rest as long, of `commit_interval_ms` at most: else
a slow Kafka would leave one turn of processing to each commit.
There is one commit at a time; its tasks are frozen when it begins, and are processed beside it. A commit that failed
and may yet succeed is tried again after a pause; from the limit of uncommitted bytes on nothing is processed meanwhile,
nor beside one. Nothing is begun between our JoinGroup and the new generation, but never held back longer than a quarter
of `transaction_timeout_ms`, nor when the transaction is that old; repartition topics are purged up to what was
committed. A turn looks at the tasks that have changed, a commit at those that have since the last one.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from milestones.common.errors import TimeoutExceededError, UnsentError
from milestones.common.kafka.membership import CommitRetriableError
from milestones.common.memory import Account
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.steps import AT_ONCE_MS
from milestones.common.task.commit_set import freeze
from milestones.instance.admin_thread import Purge
from milestones.instance.changelog_trim import Trim
from milestones.stream_thread.commits.uncommitted import CommittedTasks, Uncommitted

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.boundary import PendingCommit
    from milestones.common.task.commit_set import CommitSet
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients, Commit, CommitGate, TaskEnds

log: Final = logging.getLogger(__name__)


FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 100, 2_000
"""Before a commit is tried again that failed and may yet succeed: each try takes some copying, and a request."""

STEP_MS = 10
"""How long a turn waits for a step of the commit that is under way. Until it is over there is nothing to send, and the
rest of the turn doesn't wait; where Kafka answers soon a commit takes one turn."""

TELL_MS = 10_000
"""How often the log says that commits fail."""


class CommitDriver:
    """Begins a commit when one is due, and sees it to its end.

    *Owns*: what is under way, the times of commits and purges, the offsets to purge to. *Sends*: `Purge`, `Trim`.
    """

    def __init__(
        self,
        context: ThreadContext,
        clients: Clients,
        commit: Commit,
        tasks: CommittedTasks,
        processing: CommitGate,
        ends: TaskEnds,
    ) -> None:
        self._context, self._clients, self._commit, self._tasks = context, clients, commit, tasks
        self._processing, self._ends = processing, ends
        self._most_age_ms = context.config.transaction_timeout_ms // 2
        now_ms = context.clock.monotonic_ms()
        self._due_ms, self._hastened = now_ms + context.config.commit_interval_ms, False
        self._last_purge = now_ms
        self._held_since: int | None = None
        self._failing_since: int | None = None
        self._pause_ms = FIRST_PAUSE_MS
        self._again_ms = self._tell_ms = self._began_ms = now_ms
        self._purgeable: dict[TopicPartition, int] = {}
        self._gone: dict[TopicPartition, int] = {}
        self._uncommitted = Uncommitted(tasks)
        self._unconfirmed: CommitSet = {}
        self._kept: dict[Task, PendingCommit] = {}
        self._over: list[Task] = []
        self._frozen_bytes = 0
        self._roll_backs = 0
        self.commits: int = 0
        self.stalls: int = 0
        """How often a commit failed that may yet succeed."""
        self.kept_up: Callable[[], bool] = lambda: False
        """Tells whether something else keeps the next commit from being begun, such as a recovery."""

    def tell(self, changed: Iterable[Task]) -> None:
        """Something has happened to these tasks: the next `run_once` looks at them."""
        self._uncommitted.tell(changed)

    def run_once(self, now_ms: int, *, may_begin: bool = True, wait_ms: int = STEP_MS) -> bool:
        """Take steps of the commit under way, each of which waits for Kafka `wait_ms` at most; begin one that is due
        and allowed; purge repartition topics, and trim changelogs, when that is due. Whether a commit was made."""
        self._uncommitted.look()
        committed = self._step(now_ms, wait_ms, may_begin=may_begin)
        if now_ms - self._last_purge >= self._context.config.repartition_purge_interval_ms:
            self._purge(now_ms)
        return committed

    def _step(self, now_ms: int, wait_ms: int, *, may_begin: bool) -> bool:
        if not self.under_way:
            due = may_begin and self._due(now_ms) and not self._held(now_ms) and self._prepared(now_ms)
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
        return self._commit.step is not None

    @property
    def committing(self) -> Collection[Task]:
        """The tasks of the commit that is under way, or that is kept, and of those that are to be made again."""
        waits = self.under_way or self._commit.keeps
        return self._kept.keys() | self._unconfirmed.keys() if waits else self._kept.keys()

    def unconfirmed(self) -> Mapping[TaskId, Mapping[TopicPartition, int]]:
        """The tasks of the last commit, if it wasn't made, and the offsets of its boundaries."""
        return {task.id: boundary.offsets for task, boundary in self._unconfirmed.items()}

    def forget(self) -> None:
        """The tasks of the last commit are rolled back, or lost."""
        self._unconfirmed = {}

    @property
    def keeps_boundaries(self) -> bool:
        """Whether the boundaries of a commit that fails stay frozen, to be committed again."""
        return self._commit.keeps

    @property
    def keeps(self) -> bool:
        """Whether boundaries of a commit that failed wait to be committed again."""
        return bool(self._kept)

    @property
    def comes_first(self) -> bool:
        """Whether a commit that is kept is the next one: others' outputs mustn't be in its transaction."""
        return any(self._ends.admits(task.id) for task in self._kept)

    def send_again(self, but: Collection[TaskId]) -> None:
        """Have the last commit, if it wasn't made, made again with the same boundaries where they are kept, but for
        those of these tasks; and the next one at once."""
        kept = {**self._kept, **self._unconfirmed} if self._commit.keeps else {}
        self._kept, self._unconfirmed = {task: at for task, at in kept.items() if task.id not in but}, {}
        self._hastened = True

    @property
    def joins_beside(self) -> bool:
        """Whether the member may join a new generation now, as far as the commit under way goes."""
        return self._commit.joins_beside

    @property
    def collects_beside(self) -> bool:
        """Whether outputs may be sent beside the commit under way."""
        return self._commit.collects_beside

    @property
    def may_be_abandoned(self) -> bool:
        """Whether no commit is under way, or it can be dropped without an answer from Kafka."""
        return self._commit.step is None or self._commit.step.may_be_abandoned

    def due_in_ms(self, now_ms: int) -> int:
        """Milliseconds until the next commit by the clock."""
        return 0 if self._hastened else max(0, self._due_ms - now_ms)

    def too_old_in_ms(self) -> int | None:
        """Milliseconds until the transaction is too old; None when none is open, or it is that already."""
        age_ms = self._clients.producer.age_ms()
        return None if age_ms is None or age_ms >= self._most_age_ms else self._most_age_ms - age_ms

    def hasten(self) -> None:
        """Have the next commit due now, however long ago the last one was."""
        self._hastened = True

    @property
    def failing(self) -> bool:
        """The last commit failed, and is to be tried again."""
        return self._failing_since is not None

    @property
    def behind(self) -> bool:
        """Commits fail, or none can be begun, and what isn't committed has reached its limit, or what has come since
        the one that is under way was begun: no more should be added to it."""
        return self._added_bytes() >= self._most_bytes()

    @property
    def greedy(self) -> frozenset[TaskId]:
        """The tasks to which no more should be added while the others still may grow: those that have more than an
        equal share of what isn't committed, once that has reached three quarters of its limit."""
        return self._uncommitted.greedy() if 4 * self._added_bytes() >= 3 * self._most_bytes() else frozenset()

    def _added_bytes(self) -> int:
        """What isn't committed, while a commit fails, is under way, or can't be begun."""
        kept_up = self._held_since is not None or self.kept_up()
        if not (self.failing or self.under_way or self.keeps or kept_up):
            return 0
        frozen_bytes = self._frozen_bytes if self.under_way and not self._commit.keeps else 0
        return self._uncommitted.bytes - frozen_bytes

    def _most_bytes(self) -> int:
        return self._context.memory.part(Account.UNCOMMITTED)

    def _due(self, now_ms: int) -> bool:
        if now_ms < self._again_ms:
            return False
        if self.keeps or self.failing or self.due_in_ms(now_ms) == 0:
            return True
        if self._uncommitted.requested or self._ends.isolating:
            return True
        if self._too_old() or self._tasks.roll_backs.count > self._roll_backs:
            return True
        # Where two boundaries of a task may wait at once, each has half.
        return self._uncommitted.commit_bytes >= self._most_bytes() // (2 if self._commit.keeps else 1)

    def _held(self, now_ms: int) -> bool:
        """The gate: a commit that races with a rebalance would be refused, so it waits for the new generation."""
        if not self._clients.member.joining():
            self._held_since = None
            return False
        if self._too_old():
            return False
        self._held_since = now_ms if self._held_since is None else self._held_since
        return now_ms - self._held_since < self._context.config.transaction_timeout_ms // 4

    def _too_old(self) -> bool:
        age_ms = self._clients.producer.age_ms()
        return age_ms is not None and age_ms >= self._most_age_ms

    # -- one commit

    def begin_now(self, now_ms: int) -> bool:
        """Begin the commit of all tasks that have anything to commit, and are at a boundary that can be, all in one; no
        other is under way. As many steps are taken as Kafka answers soon. Whether it is made now."""
        return self._begin_all(now_ms) and self._go_on_while_answered()

    def _begin_all(self, now_ms: int) -> bool:
        self._uncommitted.tell(self._tasks.processing.values())
        self._uncommitted.look()
        return self._begin(now_ms)

    def commit_now(self, now_ms: int) -> bool:
        """As `begin_now`, and all steps are taken at once; earlier commits are brought to their ends before."""
        return self.finish_kept(now_ms) and self._begin_all(now_ms) and self.finish()

    def finish_kept(self, now_ms: int, until_ms: float = math.inf) -> bool:
        """Take all steps of earlier commits, also of those that are to be made again, none of which is begun from
        `until_ms` on. Whether none of these is left: else outputs of other tasks must wait, which would be in its
        transaction."""
        self.finish()
        self._uncommitted.look()
        while self.keeps:
            if self._context.clock.monotonic_ms() >= until_ms or not (self._begin(now_ms) and self.finish()):
                return False
        return True

    def finish(self) -> bool:
        """Take the steps that are left of the commit under way, if there is one. Whether it was made.
        `UnsentError` when Kafka hasn't taken all of its outputs within `longest_wait_ms`: the group isn't left
        unanswered for that."""
        within_ms = self._context.longest_wait_ms
        until_ms = self._context.clock.monotonic_ms() + within_ms
        while (step := self._commit.step) is not None:
            if step.may_be_abandoned and self._context.clock.monotonic_ms() >= until_ms:
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
        """Have no commit under way: its tasks are to be rolled back, or lost. One that Kafka may have made by now is
        brought to its end, with its errors; another one is abandoned."""
        if self._commit.step is not None and self._commit.step.may_be_abandoned:
            self.abandon()
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
        if not self._others_came_first() and (kept := self._take_kept()):
            self._begin_with(kept)
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
        self._frozen_bytes = sum(task.uncommitted_bytes() for task in commit_set)

    def _may_cut(self, task: Task) -> bool:
        return task not in self._kept and self._ends.admits(task.id) and not self._tasks.is_void(task.id)

    def _others_came_first(self) -> bool:
        """Whether the open transaction has outputs of tasks whose commits aren't made again: theirs is the next one."""
        producer = self._clients.producer
        return producer.in_transaction and not producer.contributors <= {task.id for task in self._kept}

    def _take_kept(self) -> dict[Task, PendingCommit]:
        """The boundaries that are to be committed again now. Those of tasks that have gone, or back, are void; those
        that Kafka has confirmed are done."""
        processing = self._tasks.processing
        self._kept = {
            task: at for task, at in self._kept.items() if processing.get(task.id) is task and task.pends(at)
        }
        taken = {task: at for task, at in self._kept.items() if self._ends.admits(task.id)}
        for task in taken:
            del self._kept[task]
        return taken

    def _is_over(self) -> None:
        self._over += self._unconfirmed
        if not self._commit.keeps:
            now_ms = self._context.clock.monotonic_ms()
            rest_ms = min(now_ms - self._began_ms, self._context.config.commit_interval_ms)
            self._due_ms = max(self._due_ms, now_ms + rest_ms)

    def _go_on_while_answered(self, wait_ms: int = STEP_MS) -> bool:
        """As many steps as Kafka answers soon; whether the commit is made now."""
        while self.under_way:
            step = self._commit.step
            if self._go_on(wait_ms):
                return True
            if self._commit.step is step:
                break
        return False

    def _go_on(self, wait_ms: int) -> bool:
        """A step of the commit under way; whether it is made now."""
        try:
            committed = self._commit.run_once(wait_ms)
        except CommitRetriableError as error:
            self._repeat_later(self._began_ms, error)
            if self._commit.keeps:
                self.send_again(but=())
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
        self._note(committed)
        for task in confirmed:
            self._gone |= task.gone()
        if not self.commits:  # soon, in case that a changelog is kept for too short a time
            self._trim()
        self.commits += 1
        return True

    def _succeeded(self, now_ms: int) -> None:
        self._failing_since, self._pause_ms, self._again_ms = None, FIRST_PAUSE_MS, now_ms

    def _repeat_later(self, now_ms: int, error: CommitRetriableError) -> None:
        """At least once: everything is kept, and the next commit covers it. The pause before it grows."""
        self.stalls += 1
        if self._failing_since is None:
            self._failing_since = self._tell_ms = now_ms
        end_ms = self._failing_since + self._context.config.task_timeout_ms
        if now_ms > end_ms:
            raise TimeoutExceededError(f"offsets couldn't be committed within task_timeout_ms: {error}") from error
        self._again_ms = min(self._context.clock.monotonic_ms() + self._pause_ms, end_ms + 1)
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)
        if now_ms >= self._tell_ms:
            self._tell_ms = now_ms + TELL_MS
            log.warning("%s: commit will be repeated: %s", self._context.name, error)

    def _note(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        internal = self._context.application.repartition_topics
        self._purgeable.update({p: at.offset for p, at in committed.items() if p.topic in internal})

    def _purge(self, now_ms: int) -> None:
        self._last_purge = now_ms
        if self._purgeable and self._context.housekeeper.try_put(Purge(self._purgeable)):
            self._purgeable = {}
        self._trim()

    def _trim(self) -> None:
        """Tell what is gone by the times that the stores of tasks were committed with since."""
        gone, self._gone = self._gone, {}
        if gone:
            self._context.housekeeper.try_put(Trim(gone))
