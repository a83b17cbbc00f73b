"""Task ends up to M3: a task that fails for good ends its thread, as in Kafka Streams.

*Guarantees*: the thread gets the error itself.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.instance.context import ThreadContext
    from milestones.parts import TaskDecision


class ThreadEnds:
    """Ends the thread with each task."""

    def __init__(self, context: ThreadContext) -> None:
        pass

    def fail(self, task: TaskId, error: BaseException, *, owned: bool) -> None:
        raise error

    def task_of(self, error: BaseException) -> TaskId | None:
        return None

    def forget(self, task: TaskId) -> None:
        """Nothing is remembered."""

    def take_decided(self) -> Sequence[TaskDecision]:
        return ()
