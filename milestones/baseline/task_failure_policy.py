"""`ThreadEndingPolicy`: a task that fails for good ends its thread, as in Kafka Streams.

It is the default up to M3; the setting `task_failed` chooses another policy.

*Guarantees*: the thread gets the task's error itself.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
    from milestones.instance.context import ThreadContext
    from milestones.parts import Attribution, OpenTransaction, TaskDecision


class ThreadEndingPolicy:
    """Ends the thread when a task fails for good."""

    isolating = False

    def __init__(self, context: ThreadContext) -> None:
        pass

    def fail(self, task: TaskId, error: BaseException, *, owned: bool) -> None:
        raise error

    def attribute(self, error: BaseException, transaction: OpenTransaction) -> Attribution | None:
        return None

    def admits(self, task: TaskId) -> bool:
        return True

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Do nothing: no task is isolated."""

    def between_transactions(self, now_ms: int, has_work: Callable[[TaskId], bool]) -> None:
        """Do nothing: no task is isolated."""

    def stop_isolating(self) -> None:
        """Do nothing: no task is isolated."""

    def forget(self, task: TaskId) -> None:
        """Do nothing: no failure is remembered."""

    def take_decided(self) -> Sequence[TaskDecision]:
        return ()
