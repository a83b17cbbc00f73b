"""`TaskOwnedState`: each task owns its stores.

*Guarantees*: a task that is returned is open. No call reads or writes a file or a store.
*Assumes*: the calling thread becomes the task's owner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from milestones.common.records import TaskId, TopicPartition
from milestones.common.task.standby import StandbyTask
from milestones.common.task.task import Task, TaskSettings, TaskStorage

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext


class TaskOwnedState:
    """Makes tasks for one thread."""

    def __init__(self, context: ThreadContext, partitions_of: Callable[[str], int]) -> None:
        """`partitions_of` returns the number of partitions of a topic."""
        self._context = context
        config = context.config
        self.settings: TaskSettings = TaskSettings(
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
            profile=context.metrics.profile,
            record_caches=context.memory.record_caches,
            global_stores=context.global_stores,
            read_caches=context.memory.read_caches,
            refuses_behind=config.unlogged_state == "refuse",
        )

    def create(self, id: TaskId, partitions: Collection[TopicPartition], stores: TaskStorage) -> Task:
        subtopology = self._context.application.subtopology(id.subtopology)
        task = Task(id, subtopology, partitions, self.settings, lambda: stores)
        task.open()
        return task

    def create_standby(self, id: TaskId, stores: TaskStorage) -> StandbyTask:
        standby = StandbyTask(id, self._context.application.subtopology(id.subtopology), lambda: stores)
        standby.open()
        return standby

    def closed_positions(self, opening: Collection[TaskId] = ()) -> Mapping[TaskId, int]:
        changelogs = {sub.id: sub.changelogs.keys() for sub in self._context.application.subtopologies}
        return {
            task: sum(offset for store, offset in offsets.items() if store in changelogs[task.subtopology])
            for task, offsets in self._context.state.closed_offsets(opening).items()
            if changelogs.get(task.subtopology)
        }
