"""The seams of a thread's state: who makes tasks of open stores, and who opens and closes stores.

*Guarantees*: a task that is made holds the open stores that it was given; stores that couldn't be opened hold nothing.
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
    """State ownership: makes tasks of stores that are open, and knows what state lies closed on the disk."""

    def create(self, task: TaskId, partitions: Collection[TopicPartition], stores: TaskStorage) -> Task:
        """An active task with these stores. On any error the stores are closed."""
        ...

    def create_standby(self, task: TaskId, stores: TaskStorage) -> StandbyTask:
        """A standby with these stores; else as `create`."""
        ...

    def closed_positions(self) -> Mapping[TaskId, int]:
        """By task whose state lies on this instance's disk and isn't open: the sum of its changelogs' offsets, as far
        as they are known without opening it. A lower bound."""
        ...


@dataclass(frozen=True)
class OpenedStores:
    """What became of a request to open a task's stores: they are open, or there was an error."""

    task: TaskId
    stores: TaskStorage | None = None
    error: BaseException | None = None


@dataclass(frozen=True)
class ClosedStores:
    """A task's stores are closed, and its lock is given back, whatever the error of it was."""

    task: TaskId
    error: BaseException | None = None


StoreAnswer = OpenedStores | ClosedStores


class StoreOpening(Protocol):
    """Store opening: in which thread the stores of tasks are opened and closed, and when.

    Each request is answered once. Nothing but `wait` and `close` waits for an answer.
    """

    def open(self, task: TaskId) -> None:
        """Lock the task and open its stores. `StateLockedError` in the answer: ask again."""
        ...

    def close_stores(self, task: TaskId, stores: TaskStorage) -> None:
        """Close the stores and give the task's lock back."""
        ...

    def run_once(self, *, at_once: bool = False) -> list[StoreAnswer]:
        """The answers since the last call. What this thread has to do about requests it does for a bounded time;
        `at_once`: however long all of it takes."""
        ...

    def wait(self, timeout_ms: int) -> None:
        """Wait for an answer, at most so long."""
        ...

    def close(self) -> None:
        """The end. Stores that are opened later are closed where they are."""
        ...
