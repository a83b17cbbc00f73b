"""What a supervisor drives, faked: threads that do what a test says, an instance, a housekeeper; a client of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

from milestones import Streams, wiring
from milestones.client.supervisor import Supervisor
from milestones.common.clock import SystemClock
from milestones.common.memory import MemoryBudget
from milestones.instance.context import ThreadFailed, ThreadMoved
from milestones.instance.states import StreamsState, ThreadState
from milestones.parts import Parts
from milestones.stream_thread.workforce import StreamThreads
from tests.milestones.fakes import World, counting

WAIT_S = 10


class FakeThread:
    """A stream thread as the supervisor sees it."""

    all: list[FakeThread]
    start_error: Exception | None = None
    ident: int | None = None

    def __init__(self, context: Any, parts: Any = None, client_factory: Any = None) -> None:
        self.context, self.name = context, context.name
        self.started = self.joined = self.left_group = False
        self.stopped: list[bool] = []
        self.on_stop: Callable[[], None] = lambda: None
        FakeThread.all.append(self)

    def start(self) -> None:
        if FakeThread.start_error is not None and len(FakeThread.all) > 1:
            raise FakeThread.start_error
        self.started = True

    def stop(self, *, leave_group: bool) -> None:
        self.stopped.append(leave_group)
        self.on_stop()

    def join(self, timeout_s: float | None = None) -> None:
        self.joined = True

    def is_alive(self) -> bool:
        return not self.joined

    def moves(self, *states: ThreadState) -> None:
        for state in states:
            self.context.notify(ThreadMoved(self.name, state.value))

    def fails(self, error: BaseException) -> None:
        decision = self.context.decide(error)
        self.moves(ThreadState.PENDING_SHUTDOWN)
        self.context.notify(ThreadFailed(self.name, error, decision))


class FakeThreads(StreamThreads):
    """The workforce of every stage so far, with threads that do what a test says."""

    def make(self, context: Any) -> Any:
        return FakeThread(context)


class FakeInstance:
    sources: frozenset[str] = frozenset()
    prepare_error: Exception | None = None
    close_error: Exception | None = None
    closed = 0
    left: ClassVar[list[Any]] = []
    left_error: Exception | None = None
    client_id = "app-process"

    def __init__(self, config: Any, application: Any, stage: str, clock: Any, state_manager: Any) -> None:
        self.memory = MemoryBudget(config)
        self.state = state_manager(None, None, stage, None, {})

    def prepare(self, numbers: Any) -> None:
        if FakeInstance.prepare_error is not None:
            raise FakeInstance.prepare_error

    def cleaner(self) -> None:
        return None

    def note_internal(self, ids: Any) -> None:
        """It has no directory to write them to."""

    def thread_context(
        self, identity: Any, metrics: Any, requests: Any, notify: Any, decide: Any, thread_registry: Any, listeners: Any
    ) -> Any:
        return SimpleNamespace(
            name=identity.name, number=identity.number, notify=notify, decide=decide, thread_registry=thread_registry
        )

    def left_group(self, number: int) -> None:
        """It notes the calling thread too."""
        if FakeInstance.left_error is not None:
            raise FakeInstance.left_error
        FakeInstance.left.append((number, threading.current_thread().name))

    def close(self) -> None:
        FakeInstance.closed += 1
        if FakeInstance.close_error is not None:
            raise FakeInstance.close_error


class FakeHousekeeper:
    name = "app-process-housekeeper"
    last: FakeHousekeeper

    def __init__(self, *arguments: Any) -> None:
        self.requests = None
        *_, self.on_error, self.runs, _sources, _note = arguments
        self.did: list[str] = []
        FakeHousekeeper.last = self

    def start(self) -> None:
        self.did.append("start")

    def close(self) -> None:
        self.did.append("close")

    def join(self, timeout_s: float | None = None) -> None:
        self.did.append("join")

    def is_alive(self) -> bool:
        return "join" not in self.did


MAKERS: dict[str, Any] = {"instance": FakeInstance, "housekeeper": FakeHousekeeper}


def parts(*observers: Any) -> Parts:
    """The baseline's parts, but for its threads."""
    instance = replace(
        wiring.BASELINE.instance, workforce=FakeThreads, state_manager=lambda *_: None, observers=observers  # type: ignore[arg-type,return-value]
    )
    return replace(wiring.BASELINE, instance=instance)


def faked(streams: Streams) -> Streams:
    """The same client, whose supervisor drives fakes."""
    made = Supervisor(streams.config, frozenset(), streams._application, parts(), SystemClock(), **MAKERS)
    streams._supervisor = made
    return streams


class Client:
    """A supervisor, started. `heard` has the state changes of the listener."""

    all: list[Client]

    def __init__(self, *observers: Any, handler: Any = None, **settings: Any) -> None:
        world = World(counting(), settings)
        application = world.context.application
        self.supervisor = Supervisor(world.config, frozenset(), application, parts(*observers), world.clock, **MAKERS)
        self.heard: list[tuple[str, str]] = []
        self.also: Callable[[StreamsState], None] = lambda _: None
        self.supervisor.listener = self.listen
        self.supervisor.handler = handler or self.supervisor.handler
        self._take = self.supervisor._take
        self.supervisor._take = self.take  # type: ignore[method-assign]
        Client.all.append(self)

    def listen(self, new: StreamsState, old: StreamsState) -> None:
        self.heard.append((old.value, new.value))
        self.also(new)

    def take(self, event: Any) -> Any:
        """A test's own event only says that all before it has been taken."""
        if isinstance(event, threading.Event):
            return event.set()
        return self._take(event)

    def begin(self) -> Client:
        self.supervisor.begin()
        return self.until(lambda: len(FakeThread.all) >= self.supervisor._config.num_stream_threads)

    def until(self, true: Callable[[], bool]) -> Client:
        """The supervisor's thread has taken everything that was told before."""
        done = threading.Event()
        self.supervisor._mailbox.put(done, timeout_ms=1_000)  # type: ignore[arg-type]
        assert done.wait(WAIT_S)
        assert true()
        return self

    def settle(self) -> Client:
        return self.until(lambda: True)

    def end(self) -> Client:
        self.supervisor.ask_to_close(True)
        return self.ended()

    def ended(self) -> Client:
        assert self.supervisor.wait(WAIT_S)
        return self

    @property
    def states(self) -> list[str]:
        return [new for _, new in self.heard]
