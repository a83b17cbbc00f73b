"""The tasks of one stream thread, from assignment to close.

    assigned ---> waiting ---> positioning ---> restoring ---> starting ---> processing ---> closed
                 (directory    (committed  ^   (Restoration)   (Inputs)     (Processing)
                  locked)       offsets)   |                                     |
                                           +------------ rolled back ------------+

*Guarantees*: a task is in exactly one of these places; nothing in here waits longer than one request to Kafka.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from milestones.common.errors import StateLockedError, TimeoutExceededError
from milestones.common.kafka.failures import is_passing
from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition

if TYPE_CHECKING:
    from milestones.baseline.inputs import Inputs
    from milestones.common.task.task import Task
    from milestones.context import ThreadContext
    from milestones.parts import Clients, Processing, Restoration, StateOwnership

log = logging.getLogger(__name__)


class ThreadTasks:
    """*Owns*: the tasks that wait or are being positioned; it lends the others to restoration and processing."""

    def __init__(
        self,
        context: ThreadContext,
        clients: Clients,
        state: StateOwnership,
        inputs: Inputs,
        restoration: Restoration,
        processing: Processing,
    ) -> None:
        self._context, self._clients, self._state, self._inputs = context, clients, state, inputs
        self._restoration, self._processing = restoration, processing
        self._waiting: dict[TaskId, Collection[TopicPartition]] = {}
        self._positioning: dict[TaskId, Task] = {}
        self._restoring: dict[TaskId, Task] = {}
        self._starting: dict[TaskId, Task] = {}
        self._committed: dict[TaskId, Mapping[TopicPartition, OffsetAndMetadata]] = {}
        self.processing: dict[TaskId, Task] = {}
        self._stuck_since: int | None = None

    @property
    def owned(self) -> frozenset[TaskId]:
        """All tasks of this thread, wherever they are."""
        return frozenset().union(
            self._waiting, self._positioning, self._restoring, self._starting, self.processing
        )

    @property
    def all_running(self) -> bool:
        return not (self._waiting or self._positioning or self._restoring or self._starting)

    def assign(self, tasks: Mapping[TaskId, Collection[TopicPartition]]) -> None:
        """Take what is new of an assignment; what went away has been closed before."""
        self._waiting.update({id: partitions for id, partitions in tasks.items() if id not in self.owned})

    def run_once(self, now_ms: int) -> None:
        """1. open what waits; 2. read committed offsets; 3. start what is restored; 4. process what is started."""
        self._open()
        self._position(now_ms)
        for task in self._restoration.take_restored():
            del self._restoring[task.id]
            self._start(task)
        self._inputs.run_once()
        for task in self._inputs.take_started():
            del self._starting[task.id]
            self.processing[task.id] = task
            self._processing.add(task)

    def _open(self) -> None:
        for id, partitions in list(self._waiting.items()):
            try:
                self._positioning[id] = self._state.create(id, partitions)
                del self._waiting[id]
            except StateLockedError as error:
                log.info("task %s waits for its directory: %s", id, error)

    def _position(self, now_ms: int) -> None:
        if not self._positioning:
            return
        partitions = [p for task in self._positioning.values() for p in task.partitions]
        try:
            committed = self._clients.consumer.committed(partitions, self._context.config.request_timeout_ms)
        except KafkaException as exception:
            self._still_stuck(now_ms, exception)
            return
        self._stuck_since = None
        positioned, self._positioning = self._positioning, {}
        for id, task in positioned.items():
            self._committed[id] = {p: committed[p] for p in task.partitions if p in committed}
            if task.needs_restoration:
                self._restoring[id] = task
                self._restoration.add(task, {p: at.offset for p, at in self._committed[id].items()})
            else:
                self._start(task)

    def _still_stuck(self, now_ms: int, exception: KafkaException) -> None:
        self._stuck_since = now_ms if self._stuck_since is None else self._stuck_since
        if not is_passing(exception):
            raise exception
        if now_ms - self._stuck_since > self._context.config.task_timeout_ms:
            raise TimeoutExceededError(
                f"committed offsets of {sorted(map(str, self._positioning))} can't be read within task_timeout_ms: "
                f"{exception.args[0]}"
            ) from exception

    def _start(self, task: Task) -> None:
        self._starting[task.id] = task
        self._inputs.start(task, self._committed.pop(task.id))

    def roll_back(self) -> None:
        """All processing tasks go back to their last commit, in place: stores stay open, inputs are read again."""
        for task in self._take(list(self.processing)):
            task.roll_back()
            self._positioning[task.id] = task

    def close(self, ids: Collection[TaskId]) -> None:
        """Close these tasks, wherever they are; what wasn't committed is dropped."""
        for id in ids:
            self._waiting.pop(id, None)
            self._committed.pop(id, None)
        for task in self._take(ids):
            task.close()

    def _take(self, ids: Collection[TaskId]) -> list[Task]:
        """Take tasks from restoration, processing, or between."""
        taken = [task for id in ids if (task := self._positioning.pop(id, None)) is not None]
        for id in ids:
            if id in self._restoring:
                del self._restoring[id]
                self._restoration.remove(id)
            elif id in self._starting:
                taken.append(self._starting.pop(id))
                self._inputs.stop(taken[-1])
            elif id in self.processing:
                self._inputs.stop(self.processing.pop(id))
                self._processing.remove(id)
        return taken + self._restoration.take_removed() + self._processing.take_removed()
