"""`UpdaterRestoration` is the stream thread's side of a state updater.

*Guarantees*: only `close` waits. A task that was added comes back once: by `take_restored`, `take_removed` or
`take_failed`. When an updater has died, the next added task starts a new one. The tasks of the dead updater fail with
its error.
*Assumes*: the stream thread makes all calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError
from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
from milestones.common.task.lifecycle import TaskState
from milestones.m1_state_updater.handover import TaskHandover
from milestones.m1_state_updater.messages import (
    CAPACITY,
    Add,
    AddStandby,
    Answer,
    Ended,
    Limit,
    Pause,
    Remove,
    Removed,
    RestorationFailed,
    Restored,
    RestoreProgress,
    StopUpdater,
)
from milestones.m1_state_updater.updater import UpdaterThread
from milestones.parts import FailedTask

if TYPE_CHECKING:
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients

log: Final = logging.getLogger(__name__)

LOOK_MS, LONG_LOOK_MS, FAR = 10, 50, 20_000
"""The stream thread looks for answers every `LOOK_MS`; every `LONG_LOOK_MS` while at least `FAR` records are left to
restore."""

MOST_DEATHS, SERIES_MS = 3, 60_000
"""If `MOST_DEATHS` updaters die within `SERIES_MS`, the stream thread ends with the error of the last one."""


class UpdaterHandle(Protocol):
    """A started updater: a thread."""

    def join(self, timeout: float | None = None) -> None: ...
    def is_alive(self) -> bool: ...


class PendingRestoration:
    """A task that was sent to the updater and isn't back yet. `number` identifies its stay. `position`: the task's
    position when it was sent. `removing`: True if `Remove` was sent for the task."""

    number: int
    position: int
    standby: bool

    def __init__(self, number: int, position: int, *, standby: bool) -> None:
        self.number, self.position, self.standby = number, position, standby
        self.removing = False


class UpdaterRestoration:
    """*Owns*: the list of tasks at the updater; tasks that came back, until they are taken. *Sends*: `Request`s.
    *Receives*: `Answer`s."""

    blocked_ns = 0

    def __init__(
        self, context: ThreadContext, clients: Clients, launch: Callable[[TaskHandover], UpdaterHandle] | None = None
    ) -> None:
        """`launch` starts an updater that serves this handover. The default starts a thread; tests pass another
        function."""
        self._context, self._clients = context, clients
        self._launch = self._start if launch is None else launch
        self._answers: Mailbox[Answer] = Mailbox(CAPACITY, f"{context.name} answers of the state updater")
        self._handover: TaskHandover | None = None
        self._threads: list[UpdaterHandle] = []  # the newest is last; a dead one may still be closing its consumer
        self._pending: dict[TaskId, PendingRestoration] = {}
        self._numbers = count(1)
        self._paused: frozenset[int] = frozenset()
        self._limit: Mapping[TopicPartition, OffsetAndMetadata] = {}
        self._deaths: list[int] = []
        self._again = True
        self._restored: list[Task] = []
        self._removed: list[Task | StandbyTask] = []
        self._failed: list[FailedTask] = []

    def _start(self, handover: TaskHandover) -> UpdaterHandle:
        thread = UpdaterThread(self._context, self._clients, handover)
        thread.start()
        return thread

    @property
    def poll_interval_ms(self) -> int:
        """The time between two looks for answers. The time is longer while much is left to restore, as each look takes
        Python's global lock from the updater."""
        return LONG_LOOK_MS if sum(self.remaining().values()) >= FAR else LOOK_MS

    # -- requests

    def add(self, task: Task, committed: Mapping[TopicPartition, int]) -> None:
        self._send(Add(self._put_in_transit(task, standby=False), task, committed))

    def add_standby(self, task: StandbyTask) -> None:
        self._send(AddStandby(self._put_in_transit(task, standby=True), task))

    def _put_in_transit(self, task: Task | StandbyTask, *, standby: bool) -> int:
        pending = PendingRestoration(next(self._numbers), task.position(), standby=standby)
        self._pending[task.id] = pending
        task.lifecycle.move(TaskState.IN_TRANSIT)
        return pending.number

    def _send(self, request: Add | AddStandby) -> None:
        if self._handover is not None and self._handover.put(request):
            return
        name = self._context.identity.helper("StateUpdater")
        handover = self._handover = TaskHandover(name, self._answers)
        for first in (Pause(self._paused), Limit(self._limit), request):
            handover.put(first)
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        try:
            self._threads.append(self._launch(handover))
        except RuntimeError as error:  # if no thread can be started, that counts as a death, too
            handover.end(error)

    def remove(self, task: TaskId, *, recycled: bool = False) -> None:
        here = [*self._restored, *(failed.task for failed in self._failed)]
        self._removed += [back for back in here if back.id == task]
        self._restored = [back for back in self._restored if back.id != task]
        self._failed = [failed for failed in self._failed if failed.task.id != task]
        pending = self._pending.get(task)
        if pending is not None:
            pending.removing = True
            self._tell(Remove(pending.number, task, recycled))

    def pause(self, subtopologies: frozenset[int]) -> None:
        self._paused = subtopologies
        self._tell(Pause(subtopologies))

    def limit(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if committed != self._limit:
            self._limit = dict(committed)
            self._tell(Limit(self._limit))

    def _tell(self, request: Remove | Pause | Limit | StopUpdater) -> None:
        """Send the request to the present updater. An updater that has ended doesn't need the request: its tasks are on
        their way back, and the next updater gets all requests."""
        if self._handover is not None:
            self._handover.put(request)

    # -- answers

    def run_once(self, now_ms: int) -> bool:
        """Take the answers that have come."""
        answers = self._answers.drain()
        for answer in answers:
            self._take_answer(answer, now_ms)
        return bool(answers)

    def _take_answer(self, answer: Answer, now_ms: int) -> None:
        match answer:
            case Ended(error):
                if error is not None:
                    self._note_death(error, now_ms)
                return
            case Restored(task):
                self._take_back(task, lambda: self._complete(task))
            case Removed(removed):
                self._pending.pop(removed.id, None)
                self._removed.append(removed)
            case RestorationFailed(failed, error, died):
                failed.reusable, again = False, died and self._again
                self._take_back(failed, lambda: self._failed.append(FailedTask(failed, error, again)))

    def _take_back(self, task: Task | StandbyTask, keep: Callable[[], None]) -> None:
        """Take a task that came back. A task that is being removed isn't kept, even if it is restored or has failed."""
        if self._pending.pop(task.id).removing:
            self._removed.append(task)
        else:
            keep()

    def _complete(self, task: Task) -> None:
        task.lifecycle.move(TaskState.RESTORING)
        self._restored.append(task)

    def _note_death(self, error: BaseException, now_ms: int) -> None:
        """Note that an updater has died. The stream thread ends with this error if the error is known to be permanent,
        or if one updater after the other dies."""
        self._deaths = [at for at in self._deaths if now_ms - at < SERIES_MS] + [now_ms]
        lasting = isinstance(error, MilestonesError | KafkaException)
        self._again = not lasting and len(self._deaths) < MOST_DEATHS
        log.warning(
            "%s: its state updater died (%s); %s", self._context.name, error,
            "a new one restores its tasks" if self._again else "that ends this thread too",
        )  # fmt: skip

    def take_restored(self) -> list[Task]:
        restored, self._restored = self._restored, []
        return restored

    def take_removed(self) -> list[Task | StandbyTask]:
        removed, self._removed = self._removed, []
        return removed

    def take_failed(self) -> list[FailedTask]:
        failed, self._failed = self._failed, []
        return failed

    # -- what is published

    def remaining(self) -> Mapping[TaskId, int]:
        return {
            id: self._progress_of(pending).remaining or 0
            for id, pending in self._pending.items()
            if not (pending.standby or pending.removing)
        }

    def lags(self) -> Mapping[TaskId, int]:
        lags = {id: self._progress_of(pending).lag for id, pending in self._pending.items() if not pending.removing}
        return {id: lag for id, lag in lags.items() if lag is not None}

    def positions(self) -> Mapping[TaskId, int]:
        """Return the positions of the updater's tasks, and of tasks that came back. The updater sends its answer before
        it takes a task out of `progress`. This method reads both in the other order, so it misses no task."""
        away = {id: self._progress_of(pending) for id, pending in self._pending.items()}
        self.run_once(self._context.clock.monotonic_ms())
        back = [*self._removed, *(failed.task for failed in self._failed)]
        told = {id: progress.position for id, progress in away.items() if id in self._pending}
        return told | {task.id: task.position() for task in back}

    def _progress_of(self, pending: PendingRestoration) -> RestoreProgress:
        known = None if self._handover is None else self._handover.progress.get(pending.number)
        return RestoreProgress(pending.position) if known is None else known

    # -- the end

    def close(self, timeout_ms: int) -> None:
        self._tell(StopUpdater())
        clock = self._context.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        for thread in self._threads:
            thread.join(max(0, deadline_ms - clock.monotonic_ms()) / 1000)
        self._answers.close()
        try:
            self.run_once(self._context.clock.monotonic_ms())
        except MailboxClosedError:
            return  # no answer came after the last one
