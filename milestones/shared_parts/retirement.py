"""`retire`: closes a task that a thread no longer processes.

*Guarantees*: `retire` raises nothing. If closing the task fails, the answer has the error.
*Assumes*: the thread that owns the task makes all calls.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from milestones.common.diagnostics import brief
from milestones.parts import CloseMode, RemovedTask

if TYPE_CHECKING:
    from milestones.common.task.task import Task, TaskStorage

log: Final = logging.getLogger(__name__)


def retire(task: Task, close_mode: CloseMode) -> RemovedTask:
    """Close the task, unless it is suspended, and return it with its open stores. If closing fails, the error is logged
    and returned in the answer."""
    if close_mode is CloseMode.SUSPEND:
        return RemovedTask(task)
    failures: list[BaseException] = []
    stores: TaskStorage | None = None
    try:
        task.end()
    except BaseException as error:
        failures.append(error)
    try:
        stores = task.recycle()
    except BaseException as error:
        failures.append(error)
    for failure in failures:
        log.error("task %s didn't close cleanly", task.id, exc_info=brief(failure))
    return RemovedTask(task, stores, failures[0] if failures else None)
