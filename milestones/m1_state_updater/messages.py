"""The messages between a stream thread and its state updater.

*Guarantees*: messages are immutable, except the tasks in them. The thread that takes a message out owns its task from
then on.
*Assumes*: one mailbox for each direction, so that messages are read in the order in which they were sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition

if TYPE_CHECKING:
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task

CAPACITY = 100_000
"""The most messages in a mailbox. An instance has fewer tasks, so that only a bug fills a mailbox."""


@dataclass(frozen=True)
class Add:
    """Restore this active task. `number` identifies this stay of the task at the updater, and is in the published
    progress. `committed`: the committed offsets of the task's inputs, read while no transaction was pending on
    them."""

    number: int
    task: Task
    committed: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class AddStandby:
    """Keep this standby up to date."""

    number: int
    task: StandbyTask


@dataclass(frozen=True)
class Remove:
    """Give the task back, open. `number`: the stay that must end. If the stay has ended already, the task is on its
    way back. `recycled`: True if the task changes its role."""

    number: int
    task: TaskId
    recycled: bool


@dataclass(frozen=True)
class Pause:
    """Pause the tasks of these sub-topologies, and no others."""

    subtopologies: frozenset[int]


@dataclass(frozen=True)
class Limit:
    """The group's committed offsets that standbys need."""

    committed: Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True)
class StopUpdater:
    """Give all tasks back and end."""


Request = Add | AddStandby | Remove | Pause | Limit | StopUpdater


@dataclass(frozen=True)
class Restored:
    """The active task's stores are complete."""

    task: Task


@dataclass(frozen=True)
class Removed:
    """A task that is given back because of a `Remove`."""

    task: Task | StandbyTask


@dataclass(frozen=True)
class RestorationFailed:
    """A task that can't be restored. `died`: True if the reason is that the updater died."""

    task: Task | StandbyTask
    error: BaseException
    died: bool


@dataclass(frozen=True)
class Ended:
    """The updater has ended, because of an error or a request. The next messages are its tasks."""

    error: BaseException | None


Answer = Restored | Removed | RestorationFailed | Ended


@dataclass(frozen=True)
class RestoreProgress:
    """The progress of one task. `position` is the sum of its stores' offsets. An active task also has the number of
    records `remaining`. A standby has its `lag`, None while the lag isn't known."""

    position: int
    remaining: int | None = None
    lag: int | None = None
