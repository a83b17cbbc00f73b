"""State ownership of the baseline: each task holds its own engines and its directory's lock.

*Guarantees*: a task that is returned is open; one that couldn't be opened holds nothing.
*Assumes*: the thread that asks becomes the task's owner.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from milestones.common.records import TaskId, TopicPartition
from milestones.common.task.task import Task, TaskSettings

if TYPE_CHECKING:
    from milestones.context import ThreadContext
    from milestones.parts import Clients

class TaskOwnedState:
    """Makes tasks of the thread it is made for."""

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._context = context
        config = context.config
        self._settings = TaskSettings(
            application_id=config.application_id,
            clock=context.clock,
            partitions_of=lambda topic: clients.consumer.partitions_of(topic, config.request_timeout_ms),
            config=config.as_dict(),
            transactional_id=context.transactional_id if config.exactly_once else "",
            max_task_idle_ms=config.max_task_idle_ms,
            cache_max_bytes=config.statestore_cache_max_bytes // config.num_stream_threads,
            deserialization_handler=config.deserialization_exception_handler,
            processing_handler=config.processing_exception_handler,
            production_handler=config.production_exception_handler,
            count_nodes=context.metrics.debug,
        )

    def create(self, id: TaskId, partitions: Collection[TopicPartition]) -> Task:
        context = self._context
        subtopology = context.application.subtopology(id.subtopology)
        open_stores = partial(
            context.state.open, id, subtopology.stores, self._settings.transactional_id or None, context.name
        )
        task = Task(id, subtopology, partitions, self._settings, open_stores)
        task.open()
        return task
