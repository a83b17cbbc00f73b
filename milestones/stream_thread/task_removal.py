"""Takes tasks away: asks the part that has a task to give it back, and closes the task's stores.

A task that is taken away is *leaving* until restoration, processing or store opening has given it back. If this thread
is assigned the same task again, the new task waits until the part has given the old one back. A task that changes its
role is *recycled*: its stores stay open, and it waits with them for its new role.

*Guarantees*: no call waits, and none uses a store: `StoreOpening` closes stores, or sets them aside. Only `Processing`
closes processors, as they are user code.
*Assumes*: driven by the thread that owns the tasks. The caller commits a task's work before it takes the task away or
recycles it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from milestones.common.errors import StateLockedError
from milestones.common.kafka.failures import caught
from milestones.common.task.lifecycle import TaskState
from milestones.common.task.task import Task
from milestones.common.testing.faults import reach
from milestones.parts import CloseMode, OpenedStores
from milestones.stream_thread.task_positions import position_of
from milestones.stream_thread.task_registry import AssignedTask, Phase, Role, TaskRegistry

if TYPE_CHECKING:
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import TaskStorage
    from milestones.instance.context import ThreadContext
    from milestones.parts import Processing, RemovedTask, Restoration, StoreOpening
    from milestones.stream_thread.inputs import Inputs
    from milestones.stream_thread.positioning import Positioning
    from milestones.stream_thread.rollback_metrics import RollBacks
    from milestones.stream_thread.task_failures import TaskFailures

log: Final = logging.getLogger(__name__)

TAKE_MS = 100
"""The time for which a turn takes back closed tasks. The last task may exceed it."""

LOCK_PAUSE_MS = 100
"""The pause before the thread tries once more to open a task whose directory another thread holds."""


class TaskRemoval:
    """Moves the tasks of a registry. *Owns*: nothing. For metrics: `closed`, the number of closed tasks."""

    def __init__(
        self,
        context: ThreadContext,
        registry: TaskRegistry,
        opening: StoreOpening,
        inputs: Inputs,
        restoration: Restoration,
        processing: Processing,
        positioning: Positioning,
        failures: TaskFailures,
        roll_backs: RollBacks,
    ) -> None:
        self._context, self._registry, self._opening, self._inputs = context, registry, opening, inputs
        self._restoration, self._processing, self._positioning = restoration, processing, positioning
        self._failures, self._roll_backs = failures, roll_backs
        self.closed: int = 0
        self._part_from: Mapping[Phase, Callable[[AssignedTask], None]] = {
            Phase.WAITING: self._part_from_waiting,
            Phase.OPENING: self._part_from_opening,
            Phase.POSITIONING: self._retire,
            Phase.RESTORING: self._part_from_restoration,
            Phase.STARTING: self._part_from_inputs,
            Phase.PROCESSING: self._part_from_processing,
            Phase.RETURNING: self._leave_with_state,
            Phase.STANDBY: self._part_from_restoration,
            Phase.LEAVING: lambda _: None,
            Phase.ENDED: self._part_from_waiting,
        }

    # -- taking away

    def change_role(self, entry: AssignedTask, role: Role | None) -> None:
        """Take the task from the part that has it, and set its new role. If there is a role, the task is made anew in
        it once it has left."""
        entry.role = role
        if entry.failure is not None:
            entry.failure = None
            self._failures.forget(entry.id)
        self.take_away(entry)

    def take_away(self, entry: AssignedTask) -> None:
        """Take the task from the part that has it. Its role stays."""
        self._roll_backs.is_back(entry.id)
        self._positioning.forget(entry)
        self._part_from[entry.phase](entry)

    def leave(self, entry: AssignedTask) -> None:
        """Record that the task leaves: a part is about to give the task back."""
        self._registry.move(entry, Phase.LEAVING)

    def _part_from_waiting(self, entry: AssignedTask) -> None:
        if entry.wanted:
            entry.locked_out = False  # it goes on waiting, now for its new role
            if entry.phase is Phase.ENDED:
                self._registry.move(entry, Phase.WAITING)
            return
        stores, entry.stores = entry.stores, None
        if stores is None:
            self._closed(entry)
        else:
            self.leave(entry)
            self.close_stores(entry, stores)

    def _part_from_opening(self, entry: AssignedTask) -> None:
        if not entry.wanted:
            self.leave(entry)
            self._opening.cancel(entry.id)

    def _part_from_restoration(self, entry: AssignedTask) -> None:
        self.leave(entry)
        self._restoration.remove(entry.id, recycled=entry.wanted)

    def _part_from_inputs(self, entry: AssignedTask) -> None:
        self._inputs.stop(entry.active_task)
        self._retire(entry)

    def _part_from_processing(self, entry: AssignedTask) -> None:
        self._inputs.stop(entry.active_task)
        self._leave_with_state(entry)
        self._processing.remove(entry.id, CloseMode.CLOSE)

    def _retire(self, entry: AssignedTask) -> None:
        task = entry.active_task
        self._leave_with_state(entry)
        self._processing.retire(task, CloseMode.CLOSE)

    def _leave_with_state(self, entry: AssignedTask) -> None:
        """Record that an open active task leaves, and the position of its state. The group may get this position before
        the task is given back."""
        task = entry.active_task
        position = task.position(entry.damage) if task.subtopology.changelogs else None
        self.leave(entry)
        entry.position = position

    # -- what comes back

    def take_back(self, *, at_once: bool = False) -> None:
        """Take the tasks that restoration and processing give back, for a bounded time. With `at_once`, take all of
        them and all answers of store opening, without a time limit. Errors of closing tasks are raised after all tasks
        have been taken."""
        clock = self._context.clock
        for task in self._restoration.take_removed():
            self.take_unrestored(task)
        until_ms = clock.monotonic_ms() + TAKE_MS
        while (at_once or clock.monotonic_ms() < until_ms) and (removed := self._processing.take_removed()):
            for one in removed:
                error = caught(partial(self._take_removed, one), Exception)
                if error is not None:
                    self._failures.note(one.task.id, error)
        if at_once:
            self.take_stores(at_once=True)
        self._failures.tell()

    def take_unrestored(self, task: Task | StandbyTask) -> None:
        """Close a task that restoration gave back."""
        if isinstance(task, Task):
            self._processing.retire(task, CloseMode.CLOSE)
        else:
            self._take_task(self._registry[task.id], task, task.recycle())

    def _take_removed(self, removed: RemovedTask) -> None:
        """Take an active task that processing gave back. The task is rolled back now, or processing has closed it."""
        task = removed.task
        entry = self._registry[task.id]
        if removed.error is not None:
            self._failures.note(task.id, removed.error)
            task.reusable = False
        if entry.phase is Phase.RETURNING:
            self._roll_backs.rolled_back(task.roll_back())
            self._registry.move(entry, Phase.POSITIONING)
            entry.rolled_back = True
            if entry.damage:
                self.change_role(entry, entry.role)
        elif task.state is not TaskState.CLOSED:
            self._processing.retire(task, CloseMode.CLOSE)  # the task isn't wanted any more, so it isn't rolled back
        else:
            self._take_task(entry, task, removed.stores)

    def _take_task(self, entry: AssignedTask, task: Task | StandbyTask, stores: TaskStorage | None) -> None:
        """Record that the task is closed. The task's stores, which are still open, are reused for its new role, or
        closed."""
        self.closed += 1
        if stores is not None and entry.wanted and task.reusable:
            if entry.active:
                reach("recycle.to-active")
            else:
                reach("recycle.to-standby")
            self._wait_with(entry, stores)
        elif stores is not None:
            self.close_stores(entry, stores)
        else:
            self._closed(entry)

    def close_stores(self, entry: AssignedTask, stores: TaskStorage) -> None:
        """Record the position of the stores, then have the stores closed."""
        entry.position = position_of(self._context, entry.id, stores, but=entry.damage)
        self._opening.close_stores(entry.id, stores)

    def take_stores(self, *, at_once: bool = False) -> None:
        """Take the answers of store opening: stores have been opened, or closed. `at_once`: take all, without a time
        limit."""
        for answer in self._opening.run_once(at_once=at_once):
            entry = self._registry[answer.task]
            if isinstance(answer, OpenedStores):
                self._take_opened(entry, answer)
            else:
                if answer.error is not None:
                    self._failures.note(entry.id, answer.error)
                self._closed(entry)

    def _take_opened(self, entry: AssignedTask, answer: OpenedStores) -> None:
        if answer.stores is not None and entry.wanted:
            self._wait_with(entry, answer.stores)
        elif answer.stores is not None:
            self.close_stores(entry, answer.stores)
        elif entry.role is None or answer.error is None:
            self._closed(entry)
        elif isinstance(answer.error, StateLockedError):
            if not entry.locked_out:
                log.info("task %s waits for its directory: %s", entry.id, answer.error)
            self._registry.move(entry, Phase.WAITING)
            entry.locked_out, entry.next_try_ms = True, self._context.clock.monotonic_ms() + LOCK_PAUSE_MS
        else:
            self._failures.note(entry.id, answer.error)
            self._registry.move(entry, Phase.WAITING)  # its role stays until the group or the end takes it

    def _wait_with(self, entry: AssignedTask, stores: TaskStorage) -> None:
        """Let the task wait with these stores. The task object will be made of them. Damaged stores are set aside
        first."""
        if entry.damage:
            damage, entry.damage = entry.damage, {}
            entry.position = position_of(self._context, entry.id, stores, but=damage)
            self._opening.set_aside(entry.id, stores, damage)
            return
        entry.stores, entry.locked_out = stores, False
        self._registry.move(entry, Phase.WAITING)

    def _closed(self, entry: AssignedTask) -> None:
        """Record that nothing of the task is open any more."""
        if entry.role is None:
            self._failures.forget(entry.id)
            self._registry.move(entry, Phase.GONE)
        else:
            self._registry.move(entry, Phase.WAITING if entry.failure is None else Phase.ENDED)
