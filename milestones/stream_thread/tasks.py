"""Leads the tasks of one stream thread from assignment to close, phase by phase.

`task_registry.py` draws the phases. `task_removal.py` takes tasks away.

*Guarantees*: no call waits for Kafka. Only `finish` waits for leaving tasks. No call uses a file or a store:
`StoreOpening` opens stores, sets them aside and closes them. Only `Processing` closes processors of active tasks, as
they are user code.
*Assumes*: driven by the thread that owns the tasks. The caller commits a task's work before it takes the task away or
recycles it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from milestones.common.diagnostics import line_of
from milestones.common.kafka.failures import caught
from milestones.common.records import OffsetAndMetadata, StoreId, TaskId, TopicPartition
from milestones.common.task.task import Task
from milestones.parts import CloseMode
from milestones.stream_thread.positioning import Positioning
from milestones.stream_thread.rollback_metrics import RollBacks
from milestones.stream_thread.standby_read_limits import CommittedLimits
from milestones.stream_thread.task_failures import TaskFailures
from milestones.stream_thread.task_positions import told
from milestones.stream_thread.task_registry import OPENED, PREPARED, STANDBY, AssignedTask, Phase, Role, TaskRegistry
from milestones.stream_thread.task_removal import TaskRemoval

if TYPE_CHECKING:
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import TaskStorage
    from milestones.instance.context import ThreadContext
    from milestones.parts import (
        Clients,
        Processing,
        Restoration,
        StateOwnership,
        StoreOpening,
        TaskFailurePolicy,
    )  # fmt: skip
    from milestones.stream_thread.inputs import Inputs

log: Final = logging.getLogger(__name__)

MAKE_MS = 100
"""The time for which a turn makes tasks of open stores."""

LOOK_MS = 10
"""How often the end of the thread looks for tasks that leave."""

WAITS_FOR_LOCK = "waiting for its lock"

Errors = list[BaseException]


class ThreadTasks:
    """Hands tasks to restoration, inputs and processing, and takes them back. *Owns*: the registry of tasks. For
    metrics: `created`, `closed`, `roll_backs`."""

    def __init__(
        self,
        context: ThreadContext,
        clients: Clients,
        state: StateOwnership,
        opening: StoreOpening,
        inputs: Inputs,
        restoration: Restoration,
        processing: Processing,
        ends: TaskFailurePolicy,
    ) -> None:
        self._context, self._state, self._opening, self._inputs = context, state, opening, inputs
        self._restoration, self._processing = restoration, processing
        self._registry = TaskRegistry()
        self.failures: TaskFailures = TaskFailures(self._registry, ends, context.clock)
        self._positioning = Positioning(context, clients)
        self._limits = CommittedLimits(context, clients)
        self.processing: Mapping[TaskId, Task] = self._registry.processing
        """The tasks that process: a view that changes with the registry."""
        self.roll_backs: RollBacks = RollBacks(context.clock)
        self._removal = TaskRemoval(
            context, self._registry, opening, inputs, restoration, processing, self._positioning, self.failures,
            self.roll_backs,
        )  # fmt: skip
        self.created: int = 0

    # -- which tasks there are

    @property
    def closed(self) -> int:
        """The number of tasks that have been closed."""
        return self._removal.closed

    def places(self) -> dict[TaskId, Phase]:
        """Return the phase of each task of this thread."""
        return self._registry.places()

    def place_labels(self) -> dict[TaskId, str]:
        """Return the phase of each task, as text. `Processing` may say more about a task that processes."""
        places = {entry.id: WAITS_FOR_LOCK if entry.locked_out else entry.phase.value for entry in self._registry}
        return places | dict(self._processing.places())

    @property
    def owned(self) -> frozenset[TaskId]:
        """All tasks with the role of an active task, in any phase."""
        return frozenset(entry.id for entry in self._registry if entry.active)

    @property
    def ended(self) -> dict[TaskId, str]:
        """The tasks that have failed for good, each with the reason. They have ended, or are about to end."""
        return {id: line_of(error) for id, error in self.failed.items()}

    @property
    def failed(self) -> dict[TaskId, BaseException]:
        """The errors of the tasks that have failed for good."""
        return {entry.id: entry.failure.error for entry in self._registry if entry.failure is not None}

    def failing(self) -> dict[TaskId, str]:
        """Return the tasks that fail and are retried, each with the error of its last try."""
        return {**self.unplaced(), **self._processing.failing()}

    def unplaced(self) -> dict[TaskId, str]:
        """Return the tasks whose start position can't be found out, each with the error of its last try."""
        return {**self._positioning.failing(), **self._inputs.failing()}

    def is_void(self, task: TaskId) -> bool:
        """True if the task has failed and its work since the last commit mustn't be committed."""
        entry = self._registry.get(task)
        return entry is not None and entry.failure is not None and entry.failure.void

    @property
    def open(self) -> dict[TaskId, Task]:
        """All active tasks that have been opened."""
        return {entry.id: entry.active_task for entry in self._registry.of(*OPENED)}

    @property
    def standbys(self) -> Mapping[TaskId, StandbyTask]:
        """All standbys that have been opened."""
        return {entry.id: entry.task for entry in self._registry.of(Phase.STANDBY)}  # type: ignore[misc]  # by phase

    @property
    def everything(self) -> frozenset[TaskId]:
        """All tasks of this thread that have a role."""
        return frozenset(entry.id for entry in self._registry if entry.role is not None)

    @property
    def assigned_partitions(self) -> frozenset[TopicPartition]:
        """Input partitions of all active tasks of this thread."""
        roles = [entry.role for entry in self._registry if entry.role is not None]
        return frozenset(partition for role in roles for partition in role.partitions or ())

    @property
    def all_running(self) -> bool:
        """True if all active tasks process."""
        if self._registry.any(*PREPARED):
            return False
        waiting = self._registry.of(Phase.WAITING, Phase.OPENING, Phase.LEAVING)
        return not (any(entry.active for entry in waiting) or self._inputs.holds)

    def lags(self) -> Mapping[TaskId, int]:
        """Return how many changelog records each standby is behind, for standbys of which this is known."""
        return self._restoration.lags()

    def positions(self) -> dict[TaskId, int]:
        """Return the positions of this thread's tasks, as `task_positions.told` does."""
        return told(self._context, self._registry, self._state, self._restoration)

    # -- what comes and goes

    def assign(
        self, active: Mapping[TaskId, Collection[TopicPartition]], standbys: Collection[TaskId] = frozenset()
    ) -> None:
        """Set which tasks the thread has from now on. A task whose role stays the same isn't touched. A task that
        changes its role is recycled. Any other task is closed. If a step fails, the other steps are still tried before
        the first error is raised."""
        roles = dict.fromkeys(standbys, STANDBY)
        roles |= {id: Role(frozenset(partitions)) for id, partitions in active.items()}
        for entry in self._registry:
            role = roles.get(entry.id)
            if role != entry.role:
                self._removal.change_role(entry, role)
        for id, role in roles.items():
            if self._registry.get(id) is None:
                self._registry.enter(id, role)
        self._removal.take_back()

    def changed(self, active: Mapping[TaskId, Collection[TopicPartition]]) -> frozenset[TaskId]:
        """Return this thread's active tasks that aren't in `active`, or that have other input partitions there."""
        return frozenset(
            entry.id
            for entry in self._registry
            if entry.active and (entry.id not in active or Role(frozenset(active[entry.id])) != entry.role)
        )

    def close(self, ids: Collection[TaskId], *, at_once: bool = False) -> None:
        """Close these tasks, in whichever phase they are. Their uncommitted work is dropped. If a close fails, the
        other tasks are still closed before the first error is raised. `at_once`: take all closed tasks back in this
        call, however long that takes."""
        for id in ids:
            entry = self._registry.get(id)
            if entry is not None and entry.role is not None:
                self._removal.change_role(entry, None)
        self._removal.take_back(at_once=at_once)

    def finish(self, timeout_ms: int) -> None:
        """Wait at most `timeout_ms` for tasks that leave, and end every part. This is the last step, after all tasks
        were closed."""
        if self._registry.any(Phase.LEAVING):
            log.info("%s waits for tasks that leave: %s", self._context.name, self._names_leaving())
        clock, errors = self._context.clock, Errors()
        deadline_ms = clock.monotonic_ms() + timeout_ms

        def do(step: Callable[[int], object], most_ms: int = timeout_ms) -> None:
            step_now = partial(step, max(0, min(most_ms, deadline_ms - clock.monotonic_ms())))
            found = caught(step_now, Exception), caught(partial(self._removal.take_back, at_once=True), Exception)
            errors.extend(filter(None, found))

        # In each round look at all parts: a part that hangs must not delay the tasks of another one.
        while self._registry.any(Phase.LEAVING) and clock.monotonic_ms() < deadline_ms:
            do(lambda _: self._restoration.run_once(clock.monotonic_ms()))
            do(self._opening.wait, LOOK_MS)
        for close in (self._restoration.close, self._processing.close, self._opening.close):
            do(close)
        if self._registry.any(Phase.LEAVING):
            log.error(
                "%s ends without tasks %s: user code, or a call of a store, hasn't come back for more than %d ms. "
                "Their state stays locked until it does, or this process ends", self._context.name,
                self._names_leaving(), timeout_ms,
            )  # fmt: skip
        _raise(errors)

    def _names_leaving(self) -> str:
        return ", ".join(sorted(str(entry.id) for entry in self._registry.of(Phase.LEAVING)))

    def roll_back(self, only: Collection[TaskId] | None = None) -> None:
        """Roll all processing tasks, or `only` these, back to their last commit. Their stores stay open, and their
        inputs are read once more."""
        going = [entry for entry in self._registry.of(Phase.PROCESSING) if only is None or entry.id in only]
        for entry in going:
            self._inputs.stop(entry.active_task)
            self._registry.move(entry, Phase.RETURNING)
            self._processing.remove(entry.id, CloseMode.SUSPEND)
        self.roll_backs.began(entry.id for entry in going)
        self._removal.take_back()

    def rebuild(self, damaged: Iterable[StoreId], reason: object) -> None:
        """Make tasks with damaged stores anew. The damaged stores are empty then. The tasks were rolled back before."""
        for id, store in damaged:
            entry = self._registry.get(id)
            if entry is not None and entry.phase in (Phase.POSITIONING, Phase.RETURNING):
                log.warning("task %s: store %s is damaged; it is set aside and restored from its changelog", id, store)
                entry.damage.setdefault(store, reason)
        for entry in self._registry.of(Phase.POSITIONING):
            if entry.damage:
                self._removal.change_role(entry, entry.role)
        self._removal.take_back()

    # -- each turn

    def run_once(self, now_ms: int) -> None:
        """Make one turn: 1. take back tasks that left; 2. give up failed tasks; 3. close and open stores; 4. read
        committed offsets; 5. start restored tasks; 6. process started tasks. Raises a task's error, if this error ends
        the thread."""
        self._removal.take_back()
        self._take_failed()
        self._give_up()
        self._open()
        positioning, opening = self._registry.of(Phase.POSITIONING), self._registry.any(Phase.OPENING)
        for entry, committed in self._positioning.run_once(positioning, now_ms, opening=opening):
            self._positioned(entry, entry.active_task, committed)
        limits = self._limits.run_once(self._registry, now_ms)
        if limits is not None:
            self._restoration.limit(limits)
        restored = [self._registry[task.id] for task in self._restoration.take_restored()]
        for entry in restored:
            self._registry.move(entry, Phase.STARTING)
        for entry in restored:
            self._inputs.start(entry.active_task, entry.committed)
        self._inputs.run_once()
        for task in self._inputs.take_started():
            self._registry.move(self._registry[task.id], Phase.PROCESSING)
            self._processing.add(task)
            self.roll_backs.is_back(task.id)
        self.failures.tell()

    def _take_failed(self) -> None:
        for failed in self._restoration.take_failed():
            entry = self._registry[failed.task.id]
            self._removal.leave(entry)
            if not failed.again:
                self.failures.note(entry.id, failed.error)
            self._removal.take_unrestored(failed.task)
        parts = self._processing, self._inputs, self._positioning
        for id, error in [failed for part in parts for failed in part.take_failed()]:
            self.failures.note(id, error)
        self.failures.tell()

    def _give_up(self) -> None:
        """Give up failed tasks, once their work is committed, or can't be committed. Open ended tasks anew, if that was
        decided."""
        self.failures.decide()
        for entry in self.failures.take_to_give_up():
            self._removal.take_away(entry)
        self.failures.open_anew()

    def _open(self) -> None:
        """Have stores opened and closed, and make tasks of the open stores."""
        now_ms = self._context.clock.monotonic_ms()
        for entry in self._registry.of(Phase.WAITING):
            if entry.stores is None and now_ms >= entry.next_try_ms:
                self._registry.move(entry, Phase.OPENING)
                self._opening.open(entry.id)
        self._removal.take_stores()
        until_ms = self._context.clock.monotonic_ms() + MAKE_MS
        for entry in self._registry.of(Phase.WAITING):
            if self._context.clock.monotonic_ms() >= until_ms:
                break
            if entry.stores is not None and entry.wanted:
                error = caught(partial(self._make, entry, entry.stores), Exception)
                if error is not None:
                    self.failures.note(entry.id, error)
        self.failures.tell()

    def _make(self, entry: AssignedTask, stores: TaskStorage) -> None:
        """Make the task of these stores. If that fails, the stores are closed."""
        entry.stores = None
        try:
            task = self._task_of(entry, stores)
        except BaseException:
            self._removal.leave(entry)
            self._removal.close_stores(entry, stores)
            raise
        entry.task = task
        if isinstance(task, Task):
            self._registry.move(entry, Phase.POSITIONING)
        else:
            self._registry.move(entry, Phase.STANDBY)
            self._restoration.add_standby(task)
        self.created += 1

    def _task_of(self, entry: AssignedTask, stores: TaskStorage) -> Task | StandbyTask:
        if entry.role is None or entry.role.partitions is None:
            return self._state.create_standby(entry.id, stores)
        return self._state.create(entry.id, entry.role.partitions, stores)

    def _positioned(
        self, entry: AssignedTask, task: Task, committed: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        known = {p: committed[p] for p in task.partitions if p in committed}
        begun: Mapping[TopicPartition, OffsetAndMetadata] = {}
        if entry.rolled_back:
            task.compare(known)
            # A partition without a commit is read once more from where it began: by now the reset policy may give
            # another position.
            begun = {p: OffsetAndMetadata(task.input.position(p)) for p in task.partitions}
        task.know(known)
        known = {**begun, **known}
        entry.rolled_back, entry.committed = False, known
        if task.needs_restoration:
            self._registry.move(entry, Phase.RESTORING)
            self._restoration.add(task, {p: at.offset for p, at in known.items()})
        else:
            self._registry.move(entry, Phase.STARTING)
            self._inputs.start(task, known)


def _raise(errors: Errors) -> None:
    if errors:
        raise errors[0]
