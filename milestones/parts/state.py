"""Two parts of a thread that concern state: one makes tasks of open stores, the other opens and closes stores.

*Guarantees*: a task holds the open stores of which it was made. If stores couldn't be opened, no lock and no file of
them is held.
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
    """The part that makes tasks of open stores, and knows the positions of closed state on the disk."""

    def create(self, task: TaskId, partitions: Collection[TopicPartition], stores: TaskStorage) -> Task:
        """Make an active task with these stores. If that fails, the stores still belong to the caller. No store is
        read."""
        ...

    def create_standby(self, task: TaskId, stores: TaskStorage) -> StandbyTask:
        """Make a standby with these stores. If that fails, the stores still belong to the caller."""
        ...

    def closed_positions(self, opening: Collection[TaskId] = ()) -> Mapping[TaskId, int]:
        """Return, for each task whose stores lie closed on this instance's disk, a lower bound of the sum of its
        changelog offsets. Tasks in `opening` are included, although their stores may be open by now. No file is
        read."""
        ...


@dataclass(frozen=True)
class OpenedStores:
    """The answer to a request to open a task's stores, or to set damaged stores aside. The answer has the open stores,
    or an error. It has neither if the request was cancelled."""

    task: TaskId
    stores: TaskStorage | None = None
    error: BaseException | None = None


@dataclass(frozen=True)
class ClosedStores:
    """The answer to a request to close a task's stores. The stores are closed and the lock is free, even if there was
    an error."""

    task: TaskId
    error: BaseException | None = None


StoreAnswer = OpenedStores | ClosedStores


class StoreOpening(Protocol):
    """The part that opens and closes the stores of tasks, in a thread that the part chooses.

    Each request is answered once. Only `wait` and `close` wait for an answer.
    """

    def open(self, task: TaskId) -> None:
        """Lock the task and open its stores. If the answer has a `StateLockedError`, the caller may ask once more
        later."""
        ...

    def cancel(self, task: TaskId) -> None:
        """Record that the task's stores needn't be opened any more. The answer has neither stores nor an error, unless
        the stores are being opened already."""
        ...

    def set_aside(self, task: TaskId, stores: TaskStorage, damage: Mapping[str, object]) -> None:
        """Set damaged stores aside; in their place new, empty stores are opened. `damage`: the damaged stores, each
        with the reason. The answer is like that of `open`. If it is an error, all stores of the task are closed."""
        ...

    def close_stores(self, task: TaskId, stores: TaskStorage) -> None:
        """Close the stores and free the task's lock."""
        ...

    def run_once(self, *, at_once: bool = False) -> list[StoreAnswer]:
        """Return the answers since the last call. A part that carries requests out in the calling thread does so for a
        bounded time; with `at_once` it carries all of them out."""
        ...

    def wait(self, timeout_ms: int) -> None:
        """Wait for an answer, at most `timeout_ms`."""
        ...

    def close(self, timeout_ms: int) -> None:
        """End the part, and wait for that at most `timeout_ms`. If the opener opens stores after that, it closes them
        itself."""
        ...
