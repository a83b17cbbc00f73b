"""Restoration of active tasks and standbys.

*Guarantees*: a task that was added comes back once: restored, removed or failed.
*Assumes*: driven by the thread that owns the tasks, by `run_once(now_ms)`, where `now_ms` is monotonic time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task


@dataclass(frozen=True)
class FailedTask:
    """A task whose restoration ended with an error. `again`: True if the task may be opened and restored anew.
    Otherwise the thread ends with the error."""

    task: Task | StandbyTask
    error: BaseException
    again: bool


class Restoration(Protocol):
    """The part that brings an active task's stores up to the end of their changelogs, and keeps the stores of standbys
    up to date.

    A removed task is *leaving* until `take_removed` gives it back, immediately or at any later time. Only `close` waits
    for leaving tasks.
    """

    @property
    def blocked_ns(self) -> int:
        """The time, in ns, for which this part has made the stream thread wait for Kafka so far."""
        ...

    @property
    def poll_interval_ms(self) -> int:
        """The longest time that the stream thread may wait for input while a task isn't running yet."""
        ...

    def add(self, task: Task, committed: Mapping[TopicPartition, int]) -> None:
        """Take the task over. `committed`: the committed offsets of its inputs, which were read while no transaction
        was pending on them."""
        ...

    def add_standby(self, task: StandbyTask) -> None:
        """Take the standby over. The restoration of a standby never completes."""
        ...

    def remove(self, task: TaskId, *, recycled: bool = False) -> None:
        """Stop restoring the task, however far it is restored. `take_removed` then returns it. `recycled`: True if the
        task changes its role."""
        ...

    def pause(self, subtopologies: frozenset[int]) -> None:
        """Pause the restoration of tasks of these sub-topologies, and of no others."""
        ...

    def limit(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Let standbys read source topics that serve as changelogs up to these offsets. The group has committed these
        offsets. Standbys also drop windows that the metadata of these offsets reports as emitted."""
        ...

    def run_once(self, now_ms: int) -> bool: ...

    def take_restored(self) -> list[Task]: ...

    def take_removed(self) -> list[Task | StandbyTask]: ...

    def take_failed(self) -> list[FailedTask]:
        """Return the tasks that can't be restored. Removed tasks aren't among them."""
        ...

    def close(self, timeout_ms: int) -> None:
        """Close the restore consumer, after every task was removed, and wait at most `timeout_ms` for leaving tasks. If
        a task comes back later, the thread that holds the task closes it."""
        ...

    def remaining(self) -> Mapping[TaskId, int]:
        """Return the number of changelog records that must still be restored, keyed by active task."""
        ...

    def lags(self) -> Mapping[TaskId, int]:
        """Return the number of changelog records that a standby is behind, keyed by task, once the changelogs' ends are
        known."""
        ...

    def positions(self) -> Mapping[TaskId, int]:
        """Return the sum of changelog offsets of each task in restoration, and of each leaving task, keyed by task."""
        ...
