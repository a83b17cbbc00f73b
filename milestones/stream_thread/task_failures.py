"""Records the failures of single tasks, and reports them to the `TaskFailurePolicy`, which decides about them. Finds
out when a failed task may be given up, and when an ended task is opened anew.

*Guarantees*: each time a task is opened, at most one failure of the task is reported. Failures that are found together
are all noted before the first of them is reported. The work of a task since its last commit is committed before the
task is given up, unless this work is `void`.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from milestones.common.clock import Clock
from milestones.common.kafka.failures import caught
from milestones.stream_thread.task_registry import Phase, TaskFailed, TaskRegistry

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.task import Task
    from milestones.parts import TaskFailurePolicy
    from milestones.stream_thread.task_registry import AssignedTask

log: Final = logging.getLogger(__name__)

FIRST_PAUSE_MS, LONGEST_PAUSE_MS, SERIES_MS = 1_000, 60_000, 600_000
"""The pause before an ended task is opened anew. It begins with `FIRST_PAUSE_MS` and doubles with each failure, up to
`LONGEST_PAUSE_MS`. If the last failure was longer than `SERIES_MS` ago, it begins with `FIRST_PAUSE_MS`."""


class TaskFailures:
    """*Owns*: the failures that aren't reported yet; the tasks that will be given up; the pauses of ended tasks."""

    def __init__(self, registry: TaskRegistry, ends: TaskFailurePolicy, clock: Clock) -> None:
        self._registry, self._ends, self._clock = registry, ends, clock
        self.committing: Callable[[], Collection[Task]] = lambda: ()
        """Returns the tasks of the commit that is under way."""
        self.hasten: Callable[[], object] = lambda: None
        """Asks for a commit. A failed task that has something to commit is given up only after this commit."""
        self._untold: list[tuple[TaskId, BaseException, bool]] = []
        self._to_give_up: dict[TaskId, AssignedTask] = {}
        self._pauses: dict[TaskId, tuple[int, int]] = {}

    def note(self, id: TaskId, error: BaseException, *, void: bool = False) -> None:
        """Record that the task has failed because of this error. `tell` must be called after that."""
        self._untold.append((id, error, void))

    def tell(self) -> None:
        """Report all noted failures to the policy, which decides about each. If a failure ends the thread, or the
        thread must recover from it, its error is raised. Of several such errors only the first is raised, because the
        answer to it answers the others, too."""
        untold, self._untold = self._untold, []
        raised: BaseException | None = None
        for id, error, void in untold:
            found = caught(partial(self._tell, id, error, void), BaseException)
            raised = raised or found
        if raised is not None:
            raise raised

    def _tell(self, id: TaskId, error: BaseException, void: bool) -> None:
        entry = self._registry.get(id)
        owned = entry is not None and entry.role is not None
        if owned and entry is not None and entry.failure is not None:
            entry.failure.void |= void
            return
        self._ends.fail(id, error, owned=owned)
        if owned and entry is not None:
            entry.failure = TaskFailed(error, void)
            self._to_give_up[id] = entry

    def take_to_give_up(self) -> Iterator[AssignedTask]:
        """Yield the failed tasks that may be given up now, each once. The caller takes each from the part that has
        it."""
        for id, entry in list(self._to_give_up.items()):
            if entry.failure is None or self._registry.get(id) is not entry:
                del self._to_give_up[id]
            elif self._may_give_up(entry, entry.failure):
                del self._to_give_up[id]
                yield entry

    def _may_give_up(self, entry: AssignedTask, failure: TaskFailed) -> bool:
        if entry.phase is not Phase.PROCESSING:
            return entry.phase is not Phase.RETURNING
        task = entry.active_task
        if task in self.committing():
            return False
        if failure.void or not task.commit_needed():
            return True
        if task.applying:
            return False
        if not task.committable:
            return True
        if not failure.hastened:
            failure.hastened = True
            self.hasten()
        return False

    def open_anew(self) -> None:
        """Move the ended tasks whose pause is over to phase WAITING, so that their stores are opened anew."""
        now_ms = self._clock.monotonic_ms()
        for entry in self._registry.of(Phase.ENDED):
            again_ms = None if entry.failure is None else entry.failure.again_ms
            if again_ms is not None and now_ms >= again_ms:
                entry.failure = None
                self._registry.move(entry, Phase.WAITING)

    def decide(self) -> None:
        """Take the policy's decisions about ended tasks, and set when a task is opened anew. Raises `DecidedError` when
        the user's handler, or the configuration, ends more than the task."""
        for decision in self._ends.take_decided():
            entry = self._registry.get(decision.task)
            if entry is None or entry.failure is None:
                continue
            entry.failure.decided = True
            if decision.again:
                entry.failure.again_ms = self._next_try_ms(entry.id)

    @property
    def last(self) -> BaseException | None:
        """The error of the last active task, if all active tasks have ended for good. None if an active task hasn't, or
        if there is no active task."""
        if not self._registry.any(Phase.ENDED):
            return None
        active = [entry for entry in self._registry if entry.active]
        failures = [entry.failure for entry in active if entry.failure is not None]
        return failures[-1].error if failures and all(map(_for_good, active)) else None

    def _next_try_ms(self, id: TaskId) -> int:
        now_ms = self._clock.monotonic_ms()
        pause_ms, before_ms = self._pauses.get(id, (0, now_ms))
        if now_ms - before_ms > SERIES_MS:
            pause_ms = 0
        pause_ms = max(FIRST_PAUSE_MS, min(2 * pause_ms, LONGEST_PAUSE_MS))
        self._pauses[id] = pause_ms, now_ms
        log.info("task %s is opened anew in %d ms", id, pause_ms)
        return now_ms + pause_ms

    def forget(self, id: TaskId) -> None:
        """Forget the failure of the task, because the task has got another role, or is gone."""
        self._pauses.pop(id, None)
        self._to_give_up.pop(id, None)
        self._ends.forget(id)


def _for_good(entry: AssignedTask) -> bool:
    """True if the task has ended and won't be opened anew."""
    failure = entry.failure if entry.phase is Phase.ENDED else None
    return failure is not None and failure.decided and failure.again_ms is None
