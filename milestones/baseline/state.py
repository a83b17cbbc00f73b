"""State ownership without flags, none of which replaces it yet: each task holds its own stores.

*Guarantees*: a task that is returned is open; the stores of one that couldn't be made are closed.
*Assumes*: the thread that asks becomes the task's owner.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, TypeVar

from milestones.common.errors import StateError
from milestones.common.records import TaskId, TopicPartition
from milestones.common.task.standby import StandbyTask
from milestones.common.task.task import Task, TaskSettings, TaskStorage

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext

log = logging.getLogger(__name__)

T = TypeVar("T", Task, StandbyTask)


class TaskOwnedState:
    """Makes tasks of the thread it is made for."""

    def __init__(self, context: ThreadContext, partitions_of: Callable[[str], int]) -> None:
        """`partitions_of`: how many partitions a topic has."""
        self._context = context
        config = context.config
        self._settings = TaskSettings(
            application_id=config.application_id,
            clock=context.clock,
            partitions_of=partitions_of,
            config=config.as_dict(),
            transactional_id=context.transactional_id if config.exactly_once else "",
            max_task_idle_ms=config.max_task_idle_ms,
            deserialization_handler=config.deserialization_exception_handler,
            processing_handler=config.processing_exception_handler,
            production_handler=config.production_exception_handler,
            count_nodes=context.metrics.debug,
            record_caches=context.memory.record_caches,
            read_caches=context.memory.read_caches,
        )

    def create(self, id: TaskId, partitions: Collection[TopicPartition], stores: TaskStorage) -> Task:
        subtopology = self._context.application.subtopology(id.subtopology)
        return _opened(stores, lambda: Task(id, subtopology, partitions, self._settings, lambda: stores))

    def create_standby(self, id: TaskId, stores: TaskStorage) -> StandbyTask:
        subtopology = self._context.application.subtopology(id.subtopology)
        return _opened(stores, lambda: StandbyTask(id, subtopology, lambda: stores))

    def closed_positions(self, opening: Collection[TaskId] = ()) -> Mapping[TaskId, int]:
        changelogs = {sub.id: sub.changelogs.keys() for sub in self._context.application.subtopologies}
        try:
            closed = self._context.state.closed_offsets(opening)
        except StateError as error:
            log.warning("what state lies on the disk can't be told to the group: %s", error)
            return {}
        return {
            task: sum(offset for store, offset in offsets.items() if store in changelogs[task.subtopology])
            for task, offsets in closed.items()
            if changelogs.get(task.subtopology)
        }


def _opened(stores: TaskStorage, make: Callable[[], T]) -> T:
    try:
        task = make()
        task.open()
    except BaseException:
        stores.close()
        raise
    return task
