"""The end of one task that has failed for good.

*Guarantees*: each failure is decided about once.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from milestones.common.errors import RefusedTogetherError, RejectionIdentifiedError, TaskCorruptedError

if TYPE_CHECKING:
    from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
    from milestones.instance.context import UncaughtExceptionResponse


@dataclass(frozen=True)
class TaskDecision:
    """What is to become of a task that has ended. `again`: it is opened anew; else it stays ended for as long as this
    thread has it."""

    task: TaskId
    again: bool


@dataclass(frozen=True)
class Transacted:
    """The transaction that is open, or was last. `reached`: how far each of its tasks has come in its inputs;
    `identifies_rejected`: its producer tells which outputs Kafka refuses."""

    reached: Mapping[TaskId, Mapping[TopicPartition, int]]
    identifies_rejected: bool


@dataclass(frozen=True)
class Blame:
    """`failed`: the task whose failure it is, if that is known by now. `isolate_batches`: the next transaction needs a
    producer that tells which outputs Kafka refuses. Only the tasks of the transaction are rolled back."""

    failed: TaskId | None = None
    isolate_batches: bool = False

    def void(self, message: str, tasks: Iterable[TaskId]) -> TaskCorruptedError:
        """The error that rolls these tasks back, by which recovery knows the next producer."""
        if self.isolate_batches:
            return RefusedTogetherError(message, tasks)
        return (TaskCorruptedError if self.failed is None else RejectionIdentifiedError)(message, tasks)


class DecidedError(Exception):
    """A task failed of `error`, for which the user's handler, or the configuration, has ended more than the task:
    `decision`."""

    error: BaseException
    decision: UncaughtExceptionResponse

    def __init__(self, error: BaseException, decision: UncaughtExceptionResponse) -> None:
        super().__init__(str(error))
        self.error, self.decision = error, decision


class TaskEnds(Protocol):
    """Task ends: whether a failure for good ends the task, or its thread."""

    def fail(self, task: TaskId, error: BaseException, *, owned: bool) -> None:
        """Return when the failure ends the task only: then the task is to be given up at its last commit, and
        `take_decided` says what follows. Otherwise raise the error, of which the thread recovers or ends. `owned`: the
        thread still has the task; one that has left fails at its close."""
        ...

    def blame(self, error: BaseException, transaction: Transacted) -> Blame | None:
        """Whose failure this error of the collection or the transaction is; None when recovery alone answers it, for
        all tasks."""
        ...

    @property
    def isolating(self) -> bool:
        """Whether transactions are kept apart, to find out whose record Kafka refuses: then a commit is always due."""
        ...

    def admits(self, task: TaskId) -> bool:
        """Whether the task may be in the transaction that is open, or is next."""
        ...

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note a commit that was made."""
        ...

    def between_transactions(self, now_ms: int, has_work: Callable[[TaskId], bool]) -> None:
        """No transaction is open, and no commit under way: another task's may be next. `has_work`: whether a task has
        anything to commit."""
        ...

    def stop_isolating(self) -> None:
        """All tasks are to be in the next commit, as some are about to be given away."""
        ...

    def forget(self, task: TaskId) -> None:
        """The thread doesn't have the task any more: nothing is to be decided."""
        ...

    def take_decided(self) -> Sequence[TaskDecision]:
        """The decisions since the last call. `DecidedError` when the user's handler ends the thread."""
        ...
