"""The end of one task that has failed for good.

*Guarantees*: each failure is decided about once.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.instance.context import Exceptions


@dataclass(frozen=True)
class TaskDecision:
    """What is to become of a task that has ended. `again`: it is opened anew; else it stays ended for as long as this
    thread has it."""

    task: TaskId
    again: bool


class DecidedError(Exception):
    """A task failed of `error`, for which the user's handler has ended more than the task: `decision`."""

    def __init__(self, error: BaseException, decision: Exceptions) -> None:
        super().__init__(str(error))
        self.error, self.decision = error, decision


class TaskEnds(Protocol):
    """Task ends: whether a failure for good ends the task, or its thread."""

    def fail(self, task: TaskId, error: BaseException, *, owned: bool) -> None:
        """Return when the failure ends the task only: then the task is to be given up at its last commit, and
        `take_decided` says what follows. Otherwise raise the error, of which the thread recovers or ends. `owned`: the
        thread still has the task; one that has left fails at its close."""
        ...

    def task_of(self, error: BaseException) -> TaskId | None:
        """The task that alone has failed with this error of the transaction or the collection; None when recovery
        answers the error."""
        ...

    def forget(self, task: TaskId) -> None:
        """The thread doesn't have the task any more: nothing is to be decided."""
        ...

    def take_decided(self) -> Sequence[TaskDecision]:
        """The decisions since the last call. `DecidedError` when the user's handler ends the thread."""
        ...
