"""The threads of an instance, each a step that runs when it is told to, also in the midst of another one's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from milestones.m1_state_updater.opening import StoreOpener
from milestones.m4_polling_thread.collection import ThreadedProductionHandler
from milestones.shared_parts.store_requests import StoreRequest
from milestones.stream_thread.loop import StreamLoop
from tests.milestones.stepped import Openers, Stepped
from tests.milestones.stepped_workers import SteppedWorker

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.shared_parts.refused_outputs import Answer
    from tests.milestones.chaos.world import ChaosWorld


LENDING = 0.3
"""How often the polling thread lends its loop, or looks on: at other times it makes its turns."""


class UnderWay:
    """The threads that are in the midst of a step. `stack`: the last one runs, each other one waits for the next."""

    def __init__(self) -> None:
        self.stack: list[object] = []

    @contextmanager
    def now(self, thread: object) -> Iterator[None]:
        self.stack.append(thread)
        try:
            yield
        finally:
            self.stack.pop()

    def amidst(self, kind: type) -> bool:
        """Whether a thread of this kind is in the midst of a step."""
        return any(isinstance(thread, kind) for thread in self.stack)

    def on_top(self, kind: type) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1], kind)


class ChaosWorker(SteppedWorker):
    """A worker that ends as a processing thread does. `inside`: it is in the midst of a step."""

    def __init__(self, worker: Any, running: UnderWay, failed: Callable[[BaseException], None]) -> None:
        super().__init__(worker)
        self._running, self._failed = running, failed

    def step(self) -> bool:
        worker = self.worker
        if self.inside or worker.ended:
            return False
        if worker.leaving and not worker.over:
            worker.close()
            return False
        self.inside, did = True, False
        try:
            with self._running.now(self):
                did = worker.run_once()
        except Exception as error:
            self._failed(error)
            worker.died(error)
            worker.close()
        finally:
            self.inside = False
        if worker.over and not did:
            worker.close()
        return did


class ChaosUpdater(Stepped):
    """An updater that is never in two steps at once."""

    inside = False

    def step(self, times: int = 1) -> None:
        if not self.inside:
            self.inside = True
            try:
                with self.world.running.now(self):  # type: ignore[attr-defined]
                    super().step(times)
            finally:
                self.inside = False


class ChaosOpeners(Openers):
    """Openers of which one at a time is in the midst of a request; others have taken theirs."""

    def __init__(self, world: ChaosWorld) -> None:
        super().__init__(world.clock)
        self._world = world
        self._now: StoreOpener | None = None

    def for_an_ended_thread(self) -> bool:
        """Whether the opener that runs opens stores for a polling thread that has ended."""
        return self._now is not None and self._now._requests.closed

    def wait(self, _: object, timeout_ms: int) -> None:
        self._world.waits.ask("openers", timeout_ms)
        self.clock.advance(min(5, timeout_ms))
        self._world.waits.others()

    def step(self) -> None:
        if self._world.running.amidst(Openers):
            return
        with self._world.running.now(self):
            for opener in list(self.all):
                if opener not in self.taken:
                    self._take(opener)
                elif not self.hang:
                    self._now = opener
                    opener.carry_out(self.taken[opener])
                    self._now = None
                    del self.taken[opener]

    def requests(self, opening: Any) -> list[StoreRequest]:
        """What was asked for by this `ThreadedOpening`, and isn't answered yet."""
        mine: list[StoreOpener] = [opener for opener in self.all if opener._requests is opening._requests]
        return [*opening._requests._items, *(self.taken[opener] for opener in mine if opener in self.taken)]

    def over(self) -> bool:
        """Whether no opener has anything to do."""
        return not self.taken and not any(len(opener._requests) for opener in self.all)


class ChaosHandler(ThreadedProductionHandler):
    """The production exception handler. The polling thread that waits for its answer sees other threads run."""

    def __init__(self, world: ChaosWorld, context: ThreadContext) -> None:
        super().__init__(context, world.handler_threads.append)
        self._world = world

    def take(self, wait_ms: int = 0) -> Answer | None:
        if wait_ms:
            self._world.waits.ask("handlers", wait_ms)
            self._world.clock.advance(min(5, wait_ms))
            self._world.waits.others()
        return super().take()


class SteppedPolling:
    """The polling thread: what `StreamThread.run` does, step by step. `died`: of what; `ended`: all is closed;
    `unsent`: the group was answered before Kafka had taken all of the tasks that leave. At its end: `in_calls`: some
    tasks were in calls; `unanswered`: Kafka, or a handler, didn't answer it; `unwritten`: no processing thread was left
    that writes what is confirmed."""

    def __init__(self, world: ChaosWorld) -> None:
        self.world = world
        self.loop: StreamLoop | None = None
        self.died: BaseException | None = None
        self.ended = self.left_group = self.in_calls = self.unanswered = self.unwritten = self.late = False
        self.unsent = False
        self._stops = False

    @property
    def name(self) -> str:
        return self.world.context.name

    def start(self) -> None:
        self.world.renew()
        self.context, self.clients = self.world.context, self.world.clients
        self.loop = StreamLoop(self.context, self.world.parts, self.clients, self.world.states.append)  # type: ignore[arg-type]
        self._turn, self.loop.run_once = self.loop.run_once, self._run_once  # type: ignore[method-assign]
        answering: Any = self.loop._answering
        self._give_up, answering._give_up_commit = answering._give_up_commit, self._give_up_commit
        self.world.group.welcome()

    def _run_once(self, now_ms: int) -> bool:
        """A turn, whichever thread makes it."""
        with self.world.running.now(self):
            return self._turn(now_ms)

    def _give_up_commit(self, *, final: bool) -> None:
        self.unsent |= final
        self._give_up(final=final)

    def stop(self, *, leave_group: bool) -> None:
        self.context.retry_policy.hurry(self.context.config.close_timeout_ms // 2)
        self._stops = True

    def rejoin(self, reason: str) -> None:
        self.clients.member.request_rejoin(reason)

    def join(self) -> None:
        """It has ended: no step of it is under way."""

    def step(self) -> None:
        loop, running = self.loop, self.world.running
        if loop is None or self.ended or running.amidst(SteppedPolling):
            return
        with running.now(self):
            try:
                if not self._stops:
                    self._drive(loop)
                    return
                if (error := loop._processing.take_back_loop()) is not None:
                    raise error
                self.unwritten, self.unanswered = self._unwritten(loop), self._silent()
                loop.shut_down(leave_group=True)
                self.late = self.context.retry_policy.rest_ms() <= 0
            except BaseException as error:
                self.died = error
            self._end(loop)

    def _drive(self, loop: StreamLoop) -> None:
        """Lend the loop, look on, or make a turn."""
        if self.world.chance.random() < LENDING:
            loop._processing.run_turn(loop)
            return
        if (error := loop._processing.take_back_loop()) is not None:
            raise error
        loop.run_once(self.world.clock.monotonic_ms())

    def _silent(self) -> bool:
        """Whether Kafka, or a handler, doesn't answer."""
        kafka = self.clients.producer.withheld or self.clients.member.withholds
        moods = self.world.moods
        takes_not_all = moods.room is not None or moods.undelivered or moods.forbidden
        return bool(kafka or self.world.handler_threads or takes_not_all)

    def _unwritten(self, loop: Any) -> bool:
        """Whether confirmed writes of tasks wait, or will, for processing threads, of which there is none any more."""
        commits, tasks = loop._commits, loop._tasks.processing.values()
        waits = commits.under_way or loop._register.unsettled or any(task.applying for task in tasks)
        return waits and not self.world.context.thread_registry.threads

    def _end(self, loop: StreamLoop) -> None:
        """Errors of stores that don't close cleanly are logged only."""
        if self.died is not None:
            with suppress(Exception):
                loop.fail(shut_application_down=None)
        self.in_calls = bool(loop._processing._scheduler._void)  # type: ignore[attr-defined]
        self.unanswered |= self._silent()
        self.clients.close(leave_group=True)
        with suppress(Exception):
            loop.close()
        self.context.memory.leave()
        self.ended = True


def next_context(world: ChaosWorld) -> Any:
    """The surroundings of the next polling thread."""
    return replace(world.context, memory=world.budget.join())
