"""The policy for a task that has failed for good.

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
    """The decision about an ended task. `again`: True if the task is opened anew. Otherwise the task stays ended as
    long as this thread has it."""

    task: TaskId
    again: bool


@dataclass(frozen=True)
class OpenTransaction:
    """The transaction that is open, or the last one. `reached`: the input offsets that each of its tasks has reached.
    `identifies_rejected`: True if its producer finds out which outputs Kafka refuses."""

    reached: Mapping[TaskId, Mapping[TopicPartition, int]]
    identifies_rejected: bool


@dataclass(frozen=True)
class Attribution:
    """The answer to the question which task caused an error. `failed`: this task, if it is known by now.
    `isolate_batches`: True if the next transaction needs a producer that finds out which outputs Kafka refuses. Only
    the tasks of the transaction are rolled back."""

    failed: TaskId | None = None
    isolate_batches: bool = False

    def void(self, message: str, tasks: Iterable[TaskId]) -> TaskCorruptedError:
        """Return the error that rolls these tasks back. From its type recovery knows which kind of producer is needed
        next."""
        if self.isolate_batches:
            return RefusedTogetherError(message, tasks)
        return (TaskCorruptedError if self.failed is None else RejectionIdentifiedError)(message, tasks)


class DecidedError(Exception):
    """The user's handler, or the configuration, has decided that the `error` of one task ends more than this task.
    `decision` says what it ends."""

    error: BaseException
    decision: UncaughtExceptionResponse

    def __init__(self, error: BaseException, decision: UncaughtExceptionResponse) -> None:
        super().__init__(str(error))
        self.error, self.decision = error, decision


class TaskFailurePolicy(Protocol):
    """Decides whether a task that has failed for good ends alone, or ends its thread."""

    def fail(self, task: TaskId, error: BaseException, *, owned: bool) -> None:
        """Decide about a failure. If this method returns, the failure ends only the task: the caller gives the task up
        at its last commit, and `take_decided` says what follows. Otherwise the method raises the error, and the thread
        recovers from it, or ends. `owned`: True if the thread still has the task; False if the task was closed because
        it leaves, and the close failed."""
        ...

    def attribute(self, error: BaseException, transaction: OpenTransaction) -> Attribution | None:
        """Find out which task caused this error of the collection or the transaction. Returns None if a recovery of all
        tasks answers the error."""
        ...

    @property
    def isolating(self) -> bool:
        """True while tasks are isolated in transactions of their own, to find out whose record Kafka refuses. Then a
        commit is always due."""
        ...

    def admits(self, task: TaskId) -> bool:
        """True if the task may be in the open transaction, or in the next one."""
        ...

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record that Kafka has confirmed a commit."""
        ...

    def between_transactions(self, now_ms: int, has_work: Callable[[TaskId], bool]) -> None:
        """Record that no transaction is open and no commit is under way, so that the turn may pass to another task.
        `has_work`: returns True if a task has anything to commit."""
        ...

    def stop_isolating(self) -> None:
        """Admit all tasks to the next commit, because some are about to be given away."""
        ...

    def forget(self, task: TaskId) -> None:
        """Forget the task: the thread no longer has it, so nothing must be decided about it."""
        ...

    def take_decided(self) -> Sequence[TaskDecision]:
        """Return the decisions since the last call. Raises `DecidedError` when the user's handler ends the thread."""
        ...
