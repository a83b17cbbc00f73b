"""Restoration by a state updater, as the stream thread sees it.

*Guarantees*: no call but `close` waits. A task that was added comes back once: by `take_restored`, `take_removed` or
`take_failed`. An updater that dies is replaced by the next task that is added; what it had failed with its error.
*Assumes*: driven by the stream thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError
from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.common.records import TaskId, TopicPartition
from milestones.common.task.lifecycle import State
from milestones.m1_state_updater.handover import CAPACITY, Desk
from milestones.m1_state_updater.messages import (
    Add,
    AddStandby,
    Answer,
    Ended,
    Failed,
    Limit,
    Pause,
    Remove,
    Removed,
    Restored,
    Standing,
    Stop,
)
from milestones.m1_state_updater.updater import UpdaterThread
from milestones.parts import FailedTask

if TYPE_CHECKING:
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients

log = logging.getLogger(__name__)

LOOK_MS, LONG_LOOK_MS, FAR = 10, 50, 20_000
"""How often the stream thread looks for answers; and how often with so many records to be restored."""

MOST_DEATHS, SERIES_MS = 3, 60_000
"""So many deaths of updaters within this time are one too many: the stream thread dies of the last one."""


class Running(Protocol):
    """An updater at work: a thread."""

    def join(self, timeout: float | None = None) -> None: ...
    def is_alive(self) -> bool: ...


class Away:
    """A task that the updater has, or that is in transit. `number`: of its stay; `position`: when it was sent."""

    def __init__(self, number: int, position: int, *, standby: bool) -> None:
        self.number, self.position, self.standby = number, position, standby
        self.removing = False


class UpdaterRestoration:
    """*Owns*: who is away, and what came back until it is taken. *Sends*: `Request`s. *Receives*: `Answer`s."""

    blocked_ns = 0

    def __init__(
        self, context: ThreadContext, clients: Clients, launch: Callable[[Desk], Running] | None = None
    ) -> None:
        """`launch` starts an updater at the desk it is given; another one is for tests."""
        self._context, self._clients = context, clients
        self._launch = self._start if launch is None else launch
        self._answers: Mailbox[Answer] = Mailbox(CAPACITY, f"{context.name} answers of the state updater")
        self._desk: Desk | None = None
        self._threads: list[Running] = []  # the newest last; one that has died may still be closing its consumer
        self._away: dict[TaskId, Away] = {}
        self._numbers = count(1)
        self._paused: frozenset[int] = frozenset()
        self._limit: Mapping[TopicPartition, int] = {}
        self._deaths: list[int] = []
        self._again = True
        self._restored: list[Task] = []
        self._removed: list[Task | StandbyTask] = []
        self._failed: list[FailedTask] = []

    def _start(self, desk: Desk) -> Running:
        thread = UpdaterThread(self._context, self._clients, desk)
        thread.start()
        return thread

    @property
    def look_ms(self) -> int:
        """Python threads that wake up hold up those that work; nobody needs us soon while much is to be restored."""
        return LONG_LOOK_MS if sum(self.remaining().values()) >= FAR else LOOK_MS

    # -- requests

    def add(self, task: Task, committed: Mapping[TopicPartition, int]) -> None:
        self._send(Add(self._goes(task, standby=False), task, committed))

    def add_standby(self, task: StandbyTask) -> None:
        self._send(AddStandby(self._goes(task, standby=True), task))

    def _goes(self, task: Task | StandbyTask, *, standby: bool) -> int:
        position = sum(offset or 0 for offset in task.changelog_offsets().values())
        away = self._away[task.id] = Away(next(self._numbers), position, standby=standby)
        task.lifecycle.move(State.IN_TRANSIT)
        return away.number

    def _send(self, request: Add | AddStandby) -> None:
        if self._desk is not None and self._desk.put(request):
            return
        name = self._context.name.replace("StreamThread", "StateUpdater")
        desk = self._desk = Desk(name, self._answers)
        for first in (Pause(self._paused), Limit(self._limit), request):
            desk.put(first)
        self._threads = [*(thread for thread in self._threads if thread.is_alive()), self._launch(desk)]

    def remove(self, task: TaskId, *, recycled: bool = False) -> None:
        here = [*self._restored, *(failed.task for failed in self._failed)]
        self._removed += [back for back in here if back.id == task]
        self._restored = [back for back in self._restored if back.id != task]
        self._failed = [failed for failed in self._failed if failed.task.id != task]
        if task in self._away:
            self._away[task].removing = True
            self._tell(Remove(task, recycled))

    def pause(self, subtopologies: frozenset[int]) -> None:
        self._paused = subtopologies
        self._tell(Pause(subtopologies))

    def limit(self, committed: Mapping[TopicPartition, int]) -> None:
        if committed != self._limit:
            self._limit = dict(committed)
            self._tell(Limit(self._limit))

    def _tell(self, request: Remove | Pause | Limit | Stop) -> None:
        """An updater that has ended needs no request: what it had is on its way back, the next one is told all."""
        if self._desk is not None:
            self._desk.put(request)

    # -- answers

    def run_once(self, now_ms: int) -> bool:
        """Take the answers that came."""
        answers = self._answers.drain()
        for answer in answers:
            self._hear(answer, now_ms)
        return bool(answers)

    def _hear(self, answer: Answer, now_ms: int) -> None:
        match answer:
            case Ended(error):
                if error is not None:
                    self._mourn(error, now_ms)
                return
            case Restored(task):
                self._back(task, lambda: self._complete(task))
            case Removed(removed):
                self._away.pop(removed.id, None)
                self._removed.append(removed)
            case Failed(failed, error, died):
                again = died and self._again
                self._back(failed, lambda: self._failed.append(FailedTask(failed, error, again)))

    def _back(self, task: Task | StandbyTask, keep: Callable[[], None]) -> None:
        """A task came back; one that is being removed isn't kept, whatever has become of it."""
        if self._away.pop(task.id).removing:
            self._removed.append(task)
        else:
            keep()

    def _complete(self, task: Task) -> None:
        task.lifecycle.move(State.RESTORING)
        self._restored.append(task)

    def _mourn(self, error: BaseException, now_ms: int) -> None:
        """What is known to last, and what kills one updater after the other, is the stream thread's end."""
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
            id: self._standing(away).remaining or 0
            for id, away in self._away.items()
            if not (away.standby or away.removing)
        }

    def lags(self) -> Mapping[TaskId, int]:
        lags = {id: self._standing(away).lag for id, away in self._away.items() if not away.removing}
        return {id: lag for id, lag in lags.items() if lag is not None}

    def positions(self) -> Mapping[TaskId, int]:
        return {id: self._standing(away).position for id, away in self._away.items()}

    def _standing(self, away: Away) -> Standing:
        known = None if self._desk is None else self._desk.standings.get(away.number)
        return Standing(away.position) if known is None else known

    # -- the end

    def close(self, timeout_ms: int) -> None:
        self._tell(Stop())
        clock = self._context.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        for thread in self._threads:
            thread.join(max(0, deadline_ms - clock.monotonic_ms()) / 1000)
        self._answers.close()
        try:
            self.run_once(self._context.clock.monotonic_ms())
        except MailboxClosedError:
            return  # nothing came any more
