"""The seams of a thread's state: making tasks of open stores, opening and closing stores.

*Guarantees*: a task holds the open stores that it was made of; stores that couldn't be opened hold no lock and no file.
*Assumes*: both parts are driven by the thread that owns the tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from milestones.common.records import TaskId, TopicPartition

if TYPE_CHECKING:
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task, TaskStorage


class StateOwnership(Protocol):
    """State ownership: makes tasks of open stores, and knows the positions of closed state on the disk."""

    def create(self, task: TaskId, partitions: Collection[TopicPartition], stores: TaskStorage) -> Task:
        """An active task with these stores, which stay the caller's on an error. No store is read."""
        ...

    def create_standby(self, task: TaskId, stores: TaskStorage) -> StandbyTask:
        """A standby with these stores; errors as in `create`."""
        ...

    def closed_positions(self, opening: Collection[TaskId] = ()) -> Mapping[TaskId, int]:
        """Lower bounds of the sums of changelog offsets, by task whose state lies closed on this instance's disk, or is
        among `opening`, whose stores may be open by now. No file is read."""
        ...


@dataclass(frozen=True)
class OpenedStores:
    """The answer to a request to open a task's stores, or to set damaged ones aside: the open stores, or an error;
    neither if it was cancelled."""

    task: TaskId
    stores: TaskStorage | None = None
    error: BaseException | None = None


@dataclass(frozen=True)
class ClosedStores:
    """The answer to a request to close a task's stores: they are closed and the lock is free, also after an error."""

    task: TaskId
    error: BaseException | None = None


StoreAnswer = OpenedStores | ClosedStores


class StoreOpening(Protocol):
    """Store opening: opens and closes the stores of tasks, in a thread of its choice.

    Each request is answered once. Only `wait` and `close` wait for an answer.
    """

    def open(self, task: TaskId) -> None:
        """Lock the task and open its stores. `StateLockedError` in the answer: ask again."""
        ...

    def cancel(self, task: TaskId) -> None:
        """The task's stores needn't be opened any more. The answer has no stores, and no error, unless they are being
        opened already."""
        ...

    def set_aside(self, task: TaskId, stores: TaskStorage, damage: Mapping[str, object]) -> None:
        """Set damaged stores aside, which begin anew. `damage`: by store, why. Answered as `open` is. An error closes
        all stores."""
        ...

    def close_stores(self, task: TaskId, stores: TaskStorage) -> None:
        """Close the stores and free the task's lock."""
        ...

    def run_once(self, *, at_once: bool = False) -> list[StoreAnswer]:
        """The answers since the last call. A part that carries requests out in the calling thread does so for a bounded
        time; `at_once`: all of them, without a bound."""
        ...

    def wait(self, timeout_ms: int) -> None:
        """Wait for an answer, at most `timeout_ms`."""
        ...

    def close(self, timeout_ms: int) -> None:
        """End, and wait for that at most `timeout_ms`. The opener closes stores that it opens later."""
        ...
