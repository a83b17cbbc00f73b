"""`IsolatingProcessing` is used before M2 if tasks end alone (`task_failed`): it reports a task's error, and goes on.

*Guarantees*: everything that `InlineProcessing` guarantees. After a task has failed, it isn't called any more. The
other tasks are called in the same round.
*Assumes*: everything that `InlineProcessing` assumes; a task that has failed is removed soon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milestones.baseline.processing import InlineProcessing
from milestones.common.kafka.failures import caught

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from milestones.common.records import TaskId
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import CloseMode


class IsolatingProcessing(InlineProcessing):
    """*Owns*: the failures that aren't reported yet, the names of the failed tasks, and all that `InlineProcessing`
    owns."""

    def __init__(self, context: ThreadContext) -> None:
        super().__init__(context)
        self._unreported: list[tuple[TaskId, BaseException]] = []
        self._isolated: set[TaskId] = set()

    def take_failed(self) -> Sequence[tuple[TaskId, BaseException]]:
        unreported, self._unreported = self._unreported, []
        return unreported

    def remove(self, task: TaskId, close_mode: CloseMode) -> None:
        self._isolated.discard(task)
        super().remove(task, close_mode)

    def apply(self, task: Task) -> None:
        self._call(task, lambda: super(IsolatingProcessing, self).apply(task))

    def _call(self, task: Task, call: Callable[[], object]) -> None:
        error = caught(call, Exception)
        if error is not None:
            self._isolate(task, error)

    def _isolate(self, task: Task, error: BaseException) -> None:
        """Note that the task has failed, so that it isn't called any more."""
        self._unreported.append((task.id, error))
        self._isolated.add(task.id)
        for kept in (self._new, self._going, self._fed, self._to_flush):
            kept.pop(task.id, None)
        self._alarms.forget(task.id)
        self._changed[task] = None

    def _resume(self, task: Task) -> None:
        if task.id not in self._isolated:
            super()._resume(task)

    def _worked(self, task: Task) -> None:
        if task.id not in self._isolated:
            super()._worked(task)

    def _initialise_task(self, task: Task) -> None:
        self._call(task, lambda: super(IsolatingProcessing, self)._initialise_task(task))

    def _write_task(self, task: Task, now_ms: int, *, due: bool) -> None:
        self._call(task, lambda: super(IsolatingProcessing, self)._write_task(task, now_ms, due=due))

    def _flush_task(self, task: Task) -> None:
        self._call(task, lambda: super(IsolatingProcessing, self)._flush_task(task))

    def _take_turn(self, task: Task, now_ms: int) -> int:
        self._call(task, lambda: super(IsolatingProcessing, self)._take_turn(task, now_ms))
        return self._clock.monotonic_ms()

    def _punctuate_task(self, task: Task) -> bool:
        self._call(task, lambda: super(IsolatingProcessing, self)._punctuate_task(task))
        return True
