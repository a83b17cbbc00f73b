"""The supervisor's messages, the `Status` of a client, and the function that derives the client's state from its
threads' states.

*Guarantees*: messages are immutable.
*Assumes*: nothing.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from milestones.common.errors import CloseTimeoutError
from milestones.common.records import TaskId, TopicPartition
from milestones.common.thread_stacks import frames, in_user_code, place
from milestones.instance.admin_thread import NewSources
from milestones.instance.context import GlobalEvent, ThreadEvent, ThreadReport
from milestones.instance.states import StreamsState, ThreadState

if TYPE_CHECKING:
    from milestones.client.long_calls import LongCall
    from milestones.common.clock import Clock

log: Final = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often a thread that waits for the end of a client checks whether the client's state listener has returned."""

SAY_S = 5
"""Seconds between two lines of the log about a thread that is awaited."""


@dataclass(frozen=True)
class CloseClient:
    leave_group: bool


@dataclass(frozen=True)
class ClientFailed:
    error: BaseException


@dataclass(frozen=True)
class AddThread:
    number: int


@dataclass(frozen=True)
class RemoveThread:
    """Remove a thread. `serial`: as in `ThreadRegistry`; `done` is set once the thread or the client has ended."""

    number: int
    serial: int
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class ThreadGone:
    """A removed thread was joined, and all its messages have been taken."""

    name: str


Event = ThreadEvent | GlobalEvent | CloseClient | ClientFailed | NewSources | AddThread | RemoveThread | ThreadGone


OfClient = CloseClient | ClientFailed | GlobalEvent
"""Events that have a meaning before the first stream thread exists."""


def give_up_removals(events: Iterable[Event]) -> None:
    """Answer the open requests to remove threads, because all threads have ended or never began."""
    for event in events:
        if isinstance(event, RemoveThread):
            event.done.set()


@dataclass(frozen=True)
class Ending:
    """The end of a client, by a request or by an error."""

    leave_group: bool
    error: BaseException | None


@dataclass(frozen=True)
class Status:
    """One instance at a glance. Lags count records not yet processed; `restoring` counts changelog records to go.
    `error`: why the client is in state ERROR, or couldn't be closed in time; `failing`: the error of the last try, by
    task that is retried; `calls` of your functions that have been running for a second or longer; `places`: the
    task's place on its way from its assignment to its close, by task: "waiting", "waiting for its lock", "opening",
    "positioning", "restoring", "starting", "processing", "locked for commit", "quarantined", "returning" for a
    roll-back, "standby", "leaving", "ended"; `ended`: the error of each task that has failed for good."""

    state: StreamsState
    stage: str
    threads: Mapping[str, ThreadState]
    tasks: Mapping[TaskId, str]
    lags: Mapping[TopicPartition, int]
    restoring: Mapping[TaskId, int]
    records: int
    generation: int
    error: BaseException | None = None
    failing: Mapping[TaskId, str] = field(default_factory=dict)
    places: Mapping[TaskId, str] = field(default_factory=dict)
    ended: Mapping[TaskId, str] = field(default_factory=dict)
    calls: tuple[LongCall, ...] = ()


def merged(reports: Iterable[ThreadReport]) -> dict[str, Any]:
    """Return the fields of `Status` that have an entry for each task or partition, merged from all threads."""
    return {
        name: {key: value for report in reports for key, value in getattr(report, name).items()}
        for name in ("tasks", "lags", "restoring", "places", "ended", "failing")
    }


def client_state(threads: Iterable[ThreadState]) -> StreamsState | None:
    """The state of a client that runs: RUNNING once all threads are RUNNING (or there are none), REBALANCING when a
    thread isn't. Returns None if the state doesn't change.
    """
    states = set(threads)
    if states <= {ThreadState.RUNNING}:
        return StreamsState.RUNNING
    if states & {ThreadState.PARTITIONS_REVOKED, ThreadState.PARTITIONS_ASSIGNED}:
        return StreamsState.REBALANCING
    return None


class Joinable(Protocol):
    """A thread that a client waits for at its end."""

    @property
    def name(self) -> str: ...

    @property
    def ident(self) -> int | None: ...

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...


OF_A_FUNCTION: Final = "let the function return sooner"
OF_NO_FUNCTION: Final = "no function of yours was running: Kafka or a disk was awaited, as the lines before say"
"""What to do about a client that isn't closed in time."""


class Closing:
    """The time limit for a client's end. `hanging`: the threads that didn't end in time, and the code in which they
    are.
    """

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self._timeout_ms, self._end_ms = timeout_ms, clock.monotonic_ms() + timeout_ms
        self.hanging: dict[str, str] = {}
        self._in_functions = False

    @property
    def over(self) -> bool:
        """Whether time is up."""
        return self._clock.monotonic_ms() >= self._end_ms

    def join(self, thread: Joinable, helpers: Callable[[], Collection[int]] = frozenset) -> bool:
        """Wait until the thread has ended. Returns False if the time is up before. `helpers`: as in `join`."""
        if not join(thread, helpers, lambda: (self._end_ms - self._clock.monotonic_ms()) / 1000):
            self.hangs(thread, helpers())
        return thread.name not in self.hanging

    def hangs(self, thread: Joinable, helpers: Iterable[int] = ()) -> None:
        """Record that the thread hangs, and in which code."""
        busy = in_functions(thread, helpers)
        self._in_functions |= bool(busy)
        self.hanging[thread.name] = _places(thread, busy)

    def error(self) -> CloseTimeoutError:
        """Return the error that names the hanging threads."""
        places = "; ".join(f"{name} is in {place}" for name, place in self.hanging.items())
        remedy = OF_A_FUNCTION if self._in_functions else OF_NO_FUNCTION
        return CloseTimeoutError(
            f"not closed within close_timeout_ms ({self._timeout_ms}): {places}. What they didn't commit is processed "
            f"again after the next start; {remedy}, or raise close_timeout_ms"
        )


def join(
    thread: Joinable,
    helpers: Callable[[], Collection[int]] = frozenset,
    left_s: Callable[[], float] = lambda: math.inf,
) -> bool:
    """Wait until the thread has ended. Returns False if no time is left. Every few seconds, a log line names the thread
    and the code in which it is. `helpers`: the idents of threads that call the user's functions for it.
    """
    waited_s = 0.0
    while True:
        step_s = max(0.0, min(SAY_S, left_s()))
        thread.join(step_s)
        if not thread.is_alive():
            return True
        if left_s() <= 0:
            return False
        waited_s += step_s
        where = whereabouts(thread, helpers())
        log.warning("waiting for %s to end, for %.0f s now; it is in %s", thread.name, waited_s, where)


def whereabouts(thread: Joinable, helpers: Iterable[int]) -> str:
    """Return the user's functions in which the thread or its helpers are, or else the code in which the thread is."""
    return _places(thread, in_functions(thread, helpers))


def in_functions(thread: Joinable, helpers: Iterable[int]) -> list[int]:
    """Return the idents of the thread and of its helpers, if they are in the user's functions."""
    known = frames()
    return [ident for ident in (*helpers, thread.ident or 0) if in_user_code(known.get(ident)) is not None]


def _places(thread: Joinable, busy: Sequence[int]) -> str:
    return ", and ".join(place(ident) for ident in busy or [thread.ident or 0])
