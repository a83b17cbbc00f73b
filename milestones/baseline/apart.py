"""Processing before M2 where a task ends alone (`task_failed`): an error of one task is reported for that task.

*Guarantees*: as `InlineProcessing`. A task that has failed isn't called again; the others are, in the same round.
*Assumes*: as `InlineProcessing`; a task that has failed is removed soon.
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


class ApartProcessing(InlineProcessing):
    """*Owns*: the failures that aren't reported yet, and which tasks have failed, besides what `InlineProcessing`
    owns."""

    def __init__(self, context: ThreadContext) -> None:
        super().__init__(context)
        self._untold: list[tuple[TaskId, BaseException]] = []
        self._apart: set[TaskId] = set()

    def take_failed(self) -> Sequence[tuple[TaskId, BaseException]]:
        untold, self._untold = self._untold, []
        return untold

    def remove(self, task: TaskId, close_mode: CloseMode) -> None:
        self._apart.discard(task)
        super().remove(task, close_mode)

    def apply(self, task: Task) -> None:
        self._call(task, lambda: super(ApartProcessing, self).apply(task))

    def _call(self, task: Task, call: Callable[[], object]) -> None:
        error = caught(call, Exception)
        if error is not None:
            self._set_apart(task, error)

    def _set_apart(self, task: Task, error: BaseException) -> None:
        """Note that the task has failed, and call it no more."""
        self._untold.append((task.id, error))
        self._apart.add(task.id)
        for kept in (self._new, self._going, self._fed, self._to_flush):
            kept.pop(task.id, None)
        self._alarms.forget(task.id)
        self._changed[task] = None

    def _let_go_on(self, task: Task) -> None:
        if task.id not in self._apart:
            super()._let_go_on(task)

    def _worked(self, task: Task) -> None:
        if task.id not in self._apart:
            super()._worked(task)

    def _initialise_task(self, task: Task) -> None:
        self._call(task, lambda: super(ApartProcessing, self)._initialise_task(task))

    def _write_task(self, task: Task, now_ms: int, *, due: bool) -> None:
        self._call(task, lambda: super(ApartProcessing, self)._write_task(task, now_ms, due=due))

    def _flush_task(self, task: Task) -> None:
        self._call(task, lambda: super(ApartProcessing, self)._flush_task(task))

    def _take_turn(self, task: Task, now_ms: int) -> int:
        self._call(task, lambda: super(ApartProcessing, self)._take_turn(task, now_ms))
        return self._clock.monotonic_ms()

    def _punctuate_task(self, task: Task) -> bool:
        self._call(task, lambda: super(ApartProcessing, self)._punctuate_task(task))
        return True
