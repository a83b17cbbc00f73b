"""The tasks of one stream thread, from assignment to close.

    assigned ---> waiting ---> positioning ---> restoring ---> starting ---> processing ---> closed
                 (directory    (committed  ^   (Restoration)   (Inputs)     (Processing)
                  locked)       offsets)   |                                     |
                   |   ^                   +-- rolled back <-- returning --------+
                   v   |
                  standby (Restoration)

A task that changes its role is *recycled*: it is taken from wherever it is, gives its open stores away, and waits, with
them, for its other role. What restoration or processing has is in transit until it gives it back (`_leaving`): it
counts as gone, and a successor of it, in either role, waits for it and gets its stores. One that is to be rolled back
returns first (`_returning`).

*Guarantees*: a task is in exactly one of these places; nothing in here waits for Kafka, nor, but `finish`, for what is
in transit; a turn opens and closes stores for a bounded time, the rest waits, or is in transit, until the next; active
tasks are closed by `Processing`, as that is user code.
*Assumes*: driven by the thread that owns the tasks. What is taken away or recycled has been committed before.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from milestones.common.errors import MembershipError, StateLockedError, TimeoutExceededError
from milestones.common.kafka.membership import Committed
from milestones.common.mailbox import Mailbox
from milestones.common.records import OffsetAndMetadata, StoreId, TaskId, TopicPartition
from milestones.common.task.lifecycle import State
from milestones.common.testing.faults import reach
from milestones.parts import CloseMode
from milestones.stream_thread.pending_tasks import PendingTask, names
from milestones.stream_thread.rollback_metrics import RollBacks
from milestones.stream_thread.standby_read_limits import CommittedLimits

if TYPE_CHECKING:
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients, Processing, RemovedTask, Restoration, StateOwnership
    from milestones.stream_thread.inputs import Inputs

log = logging.getLogger(__name__)

STORES_MS = 100
"""How long a turn opens stores, and how long it closes some; the last one may take longer."""


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
        self._limits = CommittedLimits(context, clients)
        self._waiting: dict[TaskId, PendingTask] = {}
        self._positioning: dict[TaskId, Task] = {}
        self._restoring: dict[TaskId, Task] = {}
        self._starting: dict[TaskId, Task] = {}
        self._standbys: dict[TaskId, StandbyTask] = {}
        self._returning: dict[TaskId, Task] = {}
        self._damaged: dict[TaskId, dict[str, object]] = {}
        self._leaving: set[TaskId] = set()
        self._closing: deque[Task | StandbyTask] = deque()
        self._committed: dict[TaskId, Mapping[TopicPartition, OffsetAndMetadata]] = {}
        self._answers: Mailbox[Committed] = Mailbox(1_000, f"{context.name} committed offsets")
        self._asked: dict[TaskId, tuple[int, int]] = {}
        self._number = 0
        self._rolled_back: set[TaskId] = set()
        self._locked_out: set[TaskId] = set()
        self.processing: dict[TaskId, Task] = {}
        self.roll_backs = RollBacks(context.clock)
        self.created = self.closed = 0

    # -- what there is

    @property
    def owned(self) -> frozenset[TaskId]:
        """All active tasks of this thread, wherever they are."""
        waiting = {id for id, pending in self._waiting.items() if pending.partitions is not None}
        return frozenset().union(waiting, self.open)

    @property
    def open(self) -> dict[TaskId, Task]:
        """All active tasks that have been opened."""
        return {**self._positioning, **self._restoring, **self._starting, **self.processing, **self._returning}

    @property
    def standbys(self) -> Mapping[TaskId, StandbyTask]:
        """All standbys that have been opened."""
        return self._standbys

    @property
    def everything(self) -> frozenset[TaskId]:
        """All tasks of this thread, whatever their role."""
        return self.owned | self._standbys.keys() | self._waiting.keys()

    @property
    def assigned_partitions(self) -> int:
        """Input partitions of all tasks of this thread."""
        waiting = sum(len(pending.partitions or ()) for pending in self._waiting.values())
        return waiting + sum(len(task.partitions) for task in self.open.values())

    @property
    def all_running(self) -> bool:
        """All active tasks process."""
        waiting = any(pending.partitions is not None for pending in self._waiting.values())
        moving = self._positioning or self._restoring or self._starting or self._returning
        return not (waiting or moving or self._inputs.holds)

    def lags(self) -> Mapping[TaskId, int]:
        """Changelog records that standbys are behind, as far as it is known."""
        return self._restoration.lags()

    def positions(self) -> dict[TaskId, int]:
        """How far the state of our tasks is: of standbys, and of active tasks that don't have all of theirs yet. The
        thread with the lowest number adds what lies closed on the instance's disk. A task whose directory another
        thread of this instance holds is that one's to tell."""
        speaks = self._context.thread_registry.numbers()[:1] == [self._context.index]
        closed = self._state.closed_positions() if speaks or self._waiting else {}
        found = dict(closed) if speaks else {}
        found |= self._restoration.positions()
        for id, task in self._positioning.items():
            if task.needs_restoration:
                found[id] = sum(offset or 0 for offset in task.changelog_offsets().values())
        for id, pending in self._waiting.items():
            changelogs = self._context.application.subtopology(id.subtopology).changelogs
            if id in self._leaving:
                continue
            if pending.opened is not None:
                found[id] = sum(pending.opened.namespace(store).offset() or 0 for store in changelogs)
            elif pending.partitions is not None and changelogs and id not in self._locked_out:
                found[id] = closed.get(id, 0)
        return found

    # -- what comes and goes

    def assign(
        self, active: Mapping[TaskId, Collection[TopicPartition]], standbys: Collection[TaskId] = frozenset()
    ) -> None:
        """Have these tasks from now on, and no others: what stays as it is isn't touched, what changes its role is
        recycled, what went away is closed. Every one is tried, the first error is raised then."""
        pending_tasks = {id: PendingTask(frozenset(partitions)) for id, partitions in active.items()}
        pending_tasks |= {id: PendingTask(None) for id in standbys}
        kept = {id: task.partitions for id, task in self.open.items()}
        ours = {id: PendingTask(frozenset(partitions)) for id, partitions in kept.items()}
        ours |= {id: PendingTask(None) for id in self._standbys} | self._waiting
        stay = {
            id for id, own in ours.items() if id in pending_tasks and pending_tasks[id].partitions == own.partitions
        }
        taken = self._take(ours.keys() - stay, pending_tasks.keys())
        self._waiting |= {id: pending for id, pending in pending_tasks.items() if id not in self.everything}
        for id, own in ours.items():
            if own.opened is not None and id not in self._waiting:
                own.opened.close()
            elif own.opened is not None:
                self._waiting[id].opened = own.opened
        self._part_with(taken)

    def changed(self, active: Mapping[TaskId, Collection[TopicPartition]]) -> frozenset[TaskId]:
        """Our active tasks that aren't among these, or with other input partitions."""
        ours = {id: frozenset(task.partitions) for id, task in self.open.items()}
        ours |= {id: pending.partitions for id, pending in self._waiting.items() if pending.partitions is not None}
        return frozenset(id for id, own in ours.items() if id not in active or set(active[id]) != own)

    def close(self, ids: Collection[TaskId], *, at_once: bool = False) -> None:
        """Close these tasks, wherever they are; what wasn't committed is dropped. Every one is tried, the first error
        is raised then. `at_once`: no matter how long it takes."""
        waiting = [self._waiting.pop(id) for id in ids if id in self._waiting]
        for pending in waiting:
            if pending.opened is not None:
                pending.opened.close()
        self._part_with(self._take(ids), at_once=at_once)

    def finish(self, timeout_ms: int) -> None:
        """The end, once all tasks were closed: wait for those that are in transit, at most `timeout_ms`."""
        if self._leaving:
            log.info("%s waits for tasks in transit: %s", self._context.name, names(self._leaving))
        deadline_ms = self._context.clock.monotonic_ms() + timeout_ms
        try:
            self._restoration.close(timeout_ms)
            self._processing.close(max(0, deadline_ms - self._context.clock.monotonic_ms()))
        finally:
            self._part_with([], at_once=True)
        if self._leaving:
            log.error(
                "%s ends without tasks %s: user code, or a write to one of their stores, hasn't come back for more "
                "than %d ms. Their state stays locked until it does, or this process ends", self._context.name,
                names(self._leaving), timeout_ms,
            )  # fmt: skip

    def roll_back(self) -> None:
        """All processing tasks go back to their last commit, in place: stores stay open, inputs are read again."""
        for id, task in list(self.processing.items()):
            self._forget(id)
            self._inputs.stop(task)
            self._returning[id] = self.processing.pop(id)
            self._processing.remove(id, CloseMode.SUSPEND)
        self.roll_backs.began(self._returning)
        self._part_with([])

    def rebuild(self, damaged: Iterable[StoreId], reason: object) -> None:
        """Stores of tasks that were rolled back are damaged: open these tasks anew, with those stores empty."""
        for id, store in damaged:
            if id in self._positioning or id in self._returning:
                log.warning("task %s: store %s is damaged; it is set aside and restored from its changelog", id, store)
                self._damaged.setdefault(id, {})[store] = reason
        for id in sorted(self._damaged.keys() & self._positioning.keys()):
            self._reopen(self._positioning.pop(id))

    def _reopen(self, task: Task) -> None:
        for store, reason in self._damaged.pop(task.id).items():
            task.set_aside(store, reason)
        self._forget(task.id)
        self._part_with([task])
        self._waiting[task.id] = PendingTask(frozenset(task.partitions))

    # -- on and on

    def run_once(self, now_ms: int) -> None:
        """1. close what came back; 2. open what waits; 3. read committed offsets; 4. start what is restored; 5. process
        what is started. Raises what a task's restoration failed of."""
        self._part_with([])
        self._take_failed()
        self._open()
        self._position(now_ms)
        self._let_standbys_read(now_ms)
        restored = self._restoration.take_restored()
        self._starting.update({task.id: self._restoring.pop(task.id) for task in restored})
        for task in restored:
            self._start(task)
        self._inputs.run_once()
        for task in self._inputs.take_started():
            self.processing[task.id] = self._starting.pop(task.id)
            self._processing.add(task)
            self.roll_backs.is_back(task.id)

    def _take_failed(self) -> None:
        lasting: list[BaseException] = []
        for failed in self._restoration.take_failed():
            task = failed.task
            self._forget(task.id)
            self._standbys.pop(task.id, None)
            if self._restoring.pop(task.id, None) is None:
                pending = PendingTask(None)
            else:
                pending = PendingTask(frozenset(task.partitions))  # type: ignore[union-attr]  # an active one
            try:
                self._close_one(task)
            except BaseException as error:
                lasting.append(error)
            if failed.again:
                self._waiting[task.id] = pending
            else:
                lasting.append(failed.error)
        if lasting:
            raise lasting[0]

    def _open(self) -> None:
        until_ms = self._context.clock.monotonic_ms() + STORES_MS
        for id, pending in [(id, pending) for id, pending in self._waiting.items() if id not in self._leaving]:
            if self._context.clock.monotonic_ms() >= until_ms:
                return
            try:
                self._open_one(id, pending)
                self.created += 1
                self._locked_out.discard(id)
            except StateLockedError as error:
                if id not in self._locked_out:
                    log.info("task %s waits for its directory: %s", id, error)
                self._locked_out.add(id)

    def _open_one(self, id: TaskId, pending: PendingTask) -> None:
        opened, pending.opened = pending.opened, None  # the task's from here on, also when it can't be opened
        if pending.partitions is not None:
            self._positioning[id] = self._state.create(id, pending.partitions, opened)
            del self._waiting[id]
        else:
            standby = self._standbys[id] = self._state.create_standby(id, opened)
            del self._waiting[id]
            self._restoration.add_standby(standby)

    def _let_standbys_read(self, now_ms: int) -> None:
        limits = self._limits.run_once(self._standbys.values(), now_ms)
        if limits is not None:
            self._restoration.limit(limits)

    def _position(self, now_ms: int) -> None:
        for answer in self._answers.drain():
            if isinstance(answer.error, MembershipError):
                raise answer.error
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
        known = {p: committed[p] for p in task.partitions if p in committed}
        if task.id in self._rolled_back:
            # What has no commit yet goes on from where it began: the reset policy may name another place by now.
            task.compare(known)
            known = {p: OffsetAndMetadata(task.input.position(p)) for p in task.partitions} | known
        self._rolled_back.discard(task.id)
        self._committed[task.id] = known
        if task.needs_restoration:
            self._restoring[task.id] = task
            self._restoration.add(task, {p: at.offset for p, at in known.items()})
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

    # -- taking away

    def _take(self, ids: Iterable[TaskId], recycled: Collection[TaskId] = frozenset()) -> list[Task]:
        """Take tasks from where they are. What restoration and processing have comes back by itself (`_part_with`)."""
        taken: list[Task] = []
        for id in ids:
            self._forget(id)
            fed = self._starting.get(id) or self.processing.get(id)
            if fed is not None:
                self._inputs.stop(fed)
            for place in (self._positioning, self._starting):
                if id in place:
                    taken.append(place.pop(id))
            if self.processing.pop(id, None) is not None:
                self._leaving.add(id)
                self._processing.remove(id, CloseMode.RECYCLE if id in recycled else CloseMode.CLOSE)
            elif self._returning.pop(id, None) is not None:
                self._leaving.add(id)
            if id in self._restoring or id in self._standbys:
                self._restoring.pop(id, None)
                self._standbys.pop(id, None)
                self._leaving.add(id)
                self._restoration.remove(id, recycled=id in recycled)
        return taken

    def _forget(self, id: TaskId) -> None:
        self._waiting.pop(id, None)
        self._committed.pop(id, None)
        self._asked.pop(id, None)
        self._rolled_back.discard(id)
        self._locked_out.discard(id)
        self.roll_backs.is_back(id)
        self._damaged.pop(id, None)

    def _part_with(self, taken: Iterable[Task], *, at_once: bool = False) -> None:
        """Recycle those that are wanted in their other role, close the others; what comes back goes where it is to.
        What there is no time for in this turn, unless it is to be done `at_once`, is left to the next."""
        for task in taken:
            self._retire(task)
        self._closing.extend(self._restoration.take_removed())
        clock, errors = self._context.clock, list[BaseException]()
        until_ms = clock.monotonic_ms() + STORES_MS
        while at_once or clock.monotonic_ms() < until_ms:
            if self._closing:
                self._close_restored(self._closing.popleft(), errors)
            elif removed := self._processing.take_removed():
                errors += [one.error for one in removed if one.error is not None]
                for one in removed:
                    self._take_back(one)
            else:
                break
        if errors:
            raise errors[0]

    def _close_restored(self, task: Task | StandbyTask, errors: list[BaseException]) -> None:
        self._leaving.discard(task.id)
        try:
            self._close_one(task)
        except BaseException as error:
            errors.append(error)

    def _retire(self, task: Task) -> None:
        self._leaving.add(task.id)
        self._processing.retire(task, CloseMode.RECYCLE if task.id in self._waiting else CloseMode.CLOSE)

    def _take_back(self, removed: RemovedTask) -> None:
        """Processing gave an active task back."""
        task = removed.task
        if self._returning.pop(task.id, None) is not None:
            self.roll_backs.rolled_back(task.roll_back())
            if task.id in self._damaged:
                self._reopen(task)
            else:
                self._positioning[task.id] = task
                self._rolled_back.add(task.id)
            return
        if task.state is not State.CLOSED:
            self._retire(task)  # it was to be rolled back, and isn't wanted any more
            return
        self._leaving.discard(task.id)
        self.closed += 1
        pending = self._waiting.get(task.id)
        if removed.opened is not None and pending is not None:
            pending.opened = removed.opened
            self._recycled(pending)
        elif removed.opened is not None:
            removed.opened.close()

    def _close_one(self, task: Task | StandbyTask) -> None:
        self.closed += 1
        pending = self._waiting.get(task.id)
        try:
            if pending is None or task.state is State.CLOSED:
                task.close()
            else:
                pending.opened = task.recycle()
                self._recycled(pending)
        except BaseException as error:
            log.error("task %s didn't close cleanly", task.id, exc_info=error)
            raise

    def _recycled(self, pending: PendingTask) -> None:
        if pending.partitions is None:
            reach("recycle.to-standby")
        else:
            reach("recycle.to-active")
