"""The tasks of one stream thread, from assignment to close.

    assigned ---> waiting ---> positioning ---> restoring ---> starting ---> processing ---> closed
                 (directory    (committed  ^   (Restoration)   (Inputs)     (Processing)
                  locked)       offsets)   |                                     |
                                           +------------ rolled back ------------+

*Guarantees*: a task is in exactly one of these places; nothing in here waits for Kafka.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from milestones.common.errors import StateLockedError, TimeoutExceededError
from milestones.common.kafka.membership import Committed
from milestones.common.mailbox import Mailbox
from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition

if TYPE_CHECKING:
    from milestones.baseline.inputs import Inputs
    from milestones.common.task.task import Task
    from milestones.context import ThreadContext
    from milestones.parts import Clients, Processing, Restoration, StateOwnership

log = logging.getLogger(__name__)


class ThreadTasks:
    """*Owns*: the tasks that wait or are being positioned; it lends the others to restoration, inputs and processing.
    *Sends*: questions for committed offsets. *Receives*: `Committed`. For metrics: `created`, `closed`, `roll_backs`.
    """

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
        self._answers: Mailbox[Committed] = Mailbox(1_000, f"{context.name} committed offsets")
        self._asked: dict[TaskId, tuple[int, int]] = {}
        self._number = 0
        self._rolled_back: set[TaskId] = set()
        self._locked_out: set[TaskId] = set()
        self.processing: dict[TaskId, Task] = {}
        self.created = self.closed = self.roll_backs = 0

    @property
    def owned(self) -> frozenset[TaskId]:
        """All tasks of this thread, wherever they are."""
        return frozenset().union(
            self._waiting, self._positioning, self._restoring, self._starting, self.processing
        )

    @property
    def open(self) -> dict[TaskId, Task]:
        """All tasks that have been opened."""
        return {**self._positioning, **self._restoring, **self._starting, **self.processing}

    @property
    def assigned_partitions(self) -> int:
        """Input partitions of all tasks of this thread."""
        return sum(map(len, self._waiting.values())) + sum(len(task.partitions) for task in self.open.values())

    @property
    def all_running(self) -> bool:
        return not (self._waiting or self._positioning or self._restoring or self._starting)

    def with_other_partitions(self, partitions: Mapping[TaskId, Collection[TopicPartition]]) -> frozenset[TaskId]:
        """Those of our tasks that have other input partitions than these."""
        ours = self._waiting | {id: task.partitions for id, task in self.open.items()}
        return frozenset(id for id, own in ours.items() if id in partitions and set(own) != set(partitions[id]))

    def assign(self, tasks: Mapping[TaskId, Collection[TopicPartition]]) -> None:
        """Take what is new of an assignment; what went away has been closed before."""
        self._waiting.update({id: partitions for id, partitions in tasks.items() if id not in self.owned})

    def run_once(self, now_ms: int) -> None:
        """1. open what waits; 2. read committed offsets; 3. start what is restored; 4. process what is started."""
        self._open()
        self._position(now_ms)
        restored = self._restoration.take_restored()
        self._starting.update({task.id: self._restoring.pop(task.id) for task in restored})
        for task in restored:
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
                self.created += 1
                self._locked_out.discard(id)
            except StateLockedError as error:
                if id not in self._locked_out:
                    log.info("task %s waits for its directory: %s", id, error)
                self._locked_out.add(id)

    def _position(self, now_ms: int) -> None:
        for answer in self._answers.drain():
            for id in [id for id, (number, _) in self._asked.items() if number == answer.number]:
                del self._asked[id]
                if answer.error is None:
                    self._positioned(self._positioning.pop(id), answer.offsets)
        ready = [task for task in self._ready_to_position() if task.id not in self._asked]
        if ready:
            self._number += 1
            self._asked.update({task.id: (self._number, now_ms) for task in ready})
            partitions = frozenset(partition for task in ready for partition in task.partitions)
            self._clients.member.fetch_offsets(self._number, partitions, self._answers)
        self._check_patience(now_ms)

    def _positioned(self, task: Task, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._rolled_back.discard(task.id)
        self._committed[task.id] = {p: committed[p] for p in task.partitions if p in committed}
        if task.needs_restoration:
            self._restoring[task.id] = task
            self._restoration.add(task, {p: at.offset for p, at in self._committed[task.id].items()})
        else:
            self._start(task)

    def _ready_to_position(self) -> list[Task]:
        """What was rolled back while we join waits for the new generation: the old one could commit nothing more."""
        held = self._rolled_back if self._clients.member.joining() else frozenset()
        return [task for id, task in self._positioning.items() if id not in held]

    def _check_patience(self, now_ms: int) -> None:
        limit = self._context.config.task_timeout_ms
        late = sorted(str(id) for id, (_, asked_ms) in self._asked.items() if now_ms - asked_ms > limit)
        if late:
            raise TimeoutExceededError(
                f"the committed offsets of tasks {', '.join(late)} didn't get stable within task_timeout_ms ({limit}): "
                "the coordinator is away, or a transaction of another instance pends on them"
            )

    def _start(self, task: Task) -> None:
        self._starting[task.id] = task
        self._inputs.start(task, self._committed.pop(task.id))

    def roll_back(self) -> None:
        """All processing tasks go back to their last commit, in place: stores stay open, inputs are read again."""
        self.roll_backs += 1
        for task in self._take(list(self.processing)):
            task.roll_back()
            self._positioning[task.id] = task
            self._rolled_back.add(task.id)

    def rebuild(self, id: TaskId, store: str, reason: object) -> None:
        """A store of this task, which was rolled back, is damaged: open the task anew, with that store empty."""
        log.warning("task %s: store %s is damaged; it is set aside and restored from its changelog", id, store)
        task = self._positioning.pop(id)
        task.set_aside(store, reason)
        self.close([id])
        task.close()
        self._waiting[id] = task.partitions

    def close(self, ids: Collection[TaskId]) -> None:
        """Close these tasks, wherever they are; what wasn't committed is dropped. Every one is tried, the first error
        is raised then."""
        for id in ids:
            self._waiting.pop(id, None)
            self._committed.pop(id, None)
            self._asked.pop(id, None)
            self._rolled_back.discard(id)
        errors: list[BaseException] = []
        for task in self._take(ids):
            self.closed += 1
            try:
                task.close()
            except BaseException as error:
                log.error("task %s didn't close cleanly", task.id, exc_info=error)
                errors.append(error)
        if errors:
            raise errors[0]

    def _take(self, ids: Collection[TaskId]) -> list[Task]:
        """Take tasks from restoration, processing, or between."""
        for id in ids:
            fed = self._starting.get(id) or self.processing.get(id)
            if fed is not None:
                self._inputs.stop(fed)
        taken = [task for id in ids if (task := self._positioning.pop(id, None)) is not None]
        for id in ids:
            if id in self._restoring:
                self._restoration.remove(id)
                del self._restoring[id]
            elif id in self._starting:
                taken.append(self._starting.pop(id))
            elif id in self.processing:
                self._processing.remove(id)
                del self.processing[id]
        return taken + self._restoration.take_removed() + self._processing.take_removed()
