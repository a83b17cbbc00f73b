"""State updaters driven by hand: real `StateUpdater`s, without threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from milestones.common.mailbox import MailboxClosedError
from milestones.common.records import TaskId
from milestones.common.task.standby import StandbyTask
from milestones.common.task.task import Task
from milestones.common.testing import StepClock
from milestones.m1_state_updater.handover import TaskHandover
from milestones.m1_state_updater.opening import StoreOpener, ThreadedOpening
from milestones.m1_state_updater.restoration import UpdaterRestoration
from milestones.m1_state_updater.updater import StateUpdater, end
from milestones.shared_parts.store_requests import StoreRequest
from tests.milestones.fakes import LOG, Running, World


class Stepped:
    """An updater at work in a thread that never runs by itself. `hangs`: it does nothing, as in a write that hangs;
    `error`: what it died of."""

    def __init__(self, world: UpdaterWorld, handover: TaskHandover) -> None:
        self.world, self.handover = world, handover
        self.updater: StateUpdater | None = None
        self.hangs = self.ended = False
        self.error: BaseException | None = None
        self.joined: list[float | None] = []

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            if self.ended or self.hangs:
                return
            try:
                if self.updater is None:
                    clients: Any = self.world.clients
                    self.updater = StateUpdater(self.world.context, clients, self.handover)
                self.updater.run_once(self.world.clock.monotonic_ms())
            except BaseException as error:
                self._end(error)
                return
            if self.updater.stopping:
                self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self.ended, self.error = True, error
        end(self.handover, self.updater, error)

    def join(self, timeout: float | None = None) -> None:
        self.joined.append(timeout)
        if self.hangs:
            self.world.clock.advance(int(1_000 * (timeout or 0)))
            self.world.work()
        self.step()

    def is_alive(self) -> bool:
        return not self.ended


class Updaters:
    """All updaters of a world, the newest last. `refusing`: the system starts no more threads."""

    def __init__(self, world: UpdaterWorld) -> None:
        self.world = world
        self.all: list[Stepped] = []
        self.refusing = False

    def launch(self, handover: TaskHandover) -> Stepped:
        if self.refusing:
            raise RuntimeError("can't start new thread")
        self.all.append(Stepped(self.world, handover))
        return self.all[-1]

    def restoration(self, context: Any, clients: Any) -> UpdaterRestoration:
        return UpdaterRestoration(context, clients, self.launch)

    def step(self, times: int = 1) -> None:
        for updater in self.all:
            updater.step(times)

    @property
    def newest(self) -> Stepped:
        return self.all[-1]


class Openers:
    """All store openers of a world, in threads that never run by themselves. `hang`: each takes a request, and no
    further step; `meanwhile`: what other threads do while the stream thread waits."""

    def __init__(self, clock: StepClock, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.clock, self.meanwhile = clock, meanwhile
        self.all: list[StoreOpener] = []
        self.taken: dict[StoreOpener, StoreRequest] = {}
        self.hang = False

    def launch(self, _: str, opener: StoreOpener) -> Openers:
        self.all.append(opener)
        return self

    def join(self, timeout: float | None = None) -> None:
        self.step()

    def wait(self, _: object, timeout_ms: int) -> None:
        self.clock.advance(min(5, timeout_ms))
        self.step()
        self.meanwhile()

    def opening(self, context: Any) -> ThreadedOpening:
        return ThreadedOpening(context, self.launch, self.wait)

    def step(self) -> None:
        """A request each."""
        for opener in self.all:
            if self.hang:
                self._take(opener)
            elif opener in self.taken:
                opener.carry_out(self.taken.pop(opener))
            else:
                opener.run_once(0)

    def _take(self, opener: StoreOpener) -> None:
        with suppress(MailboxClosedError):
            if opener not in self.taken and (request := opener._requests.get(0)) is not None:
                self.taken[opener] = request


class UpdaterWorld(World):
    """A world of stage m1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.updaters = Updaters(self)
        self.openers = Openers(self.clock, self.work)
        make: Callable[[Any, Any], UpdaterRestoration] = self.updaters.restoration
        self.parts = replace(self.parts, restoration=make, opening=self.openers.opening)

    def work(self) -> None:
        """Other threads than the stream thread and its openers take a step."""
        self.updaters.step()


class RunningUpdater(Running):
    """A loop with a world of stage m1. Its updater takes a step after each of the loop's."""

    world: UpdaterWorld

    def __init__(self, world: UpdaterWorld | None = None) -> None:
        super().__init__(world or UpdaterWorld())

    def step(self, times: int = 1, *, ms: int = 0) -> None:
        for _ in range(times):
            super().step(ms=ms)
            self.world.updaters.step()
            self.world.openers.step()


class Updating:
    """A stream thread's restoration with its updater. `step` is a turn of each."""

    def __init__(self, world: UpdaterWorld | None = None) -> None:
        self.world = world or UpdaterWorld()
        self.restoration: UpdaterRestoration = self.world.updaters.restoration(self.world.context, self.world.clients)

    @property
    def updater(self) -> Stepped:
        return self.world.updaters.newest

    def add(self, partition: int = 0, *values: str) -> Task:
        """Add a task, with these records in its changelog."""
        self.world.logs[LOG._replace(partition=partition)].add(*values)
        task = self.world.task(partition)
        self.restoration.add(task, {})
        return task

    def add_standby(self, partition: int = 0) -> StandbyTask:
        standby = self.world.state.create_standby(TaskId(0, partition))
        self.restoration.add_standby(standby)
        return standby

    def step(self, times: int = 1, *, ms: int = 1) -> None:
        for _ in range(times):
            self.world.clock.advance(ms)
            self.world.updaters.step()
            self.restoration.run_once(self.world.clock.monotonic_ms())
