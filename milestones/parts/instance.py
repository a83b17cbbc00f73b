"""The seams of an instance: its threads, the factory of their clients, the state manager, the observers.

*Guarantees*: the supervisor knows only these Protocols; `wiring.py` alone knows the classes behind them.
*Assumes*: each factory is called once per instance, by the supervisor or on its behalf.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from milestones.parts.thread import ThreadParts

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.common.metrics import Metrics
    from milestones.common.state.directory import StateDirectory
    from milestones.common.state.engine import Engines
    from milestones.common.state.storage import StateManager
    from milestones.instance.context import ThreadContext
    from milestones.instance.identity import ThreadIdentity
    from milestones.instance.thread_registry import ThreadRegistry
    from milestones.parts.clients import ClientFactory


class InstanceThread(Protocol):
    """A thread of an instance as its supervisor sees it. The thread sends its state, its reports and its failure as
    `ThreadEvent`s."""

    @property
    def name(self) -> str: ...

    @property
    def ident(self) -> int | None: ...

    @property
    def left_group(self) -> bool:
        """Whether the group has confirmed that the thread's member left it; to be asked once the thread has ended."""
        ...

    def start(self) -> None: ...

    def stop(self, *, leave_group: bool) -> None:
        """Ask the thread to commit, close and end; the caller joins it."""
        ...

    def rejoin(self, reason: str) -> None:
        """Ask the thread's group member for a rebalance."""
        ...

    def shut_application_down(self, error: BaseException) -> None:
        """Ask the thread to end all instances of the application, and itself, as by `error`."""
        ...

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...


class Workforce(Protocol):
    """The threads that a user counts, by number from 1, and the threads that poll for them: the same ones, or others.

    The numbers are those of the `ThreadRegistry`, which a workforce fills at its start. `name` is called by any thread,
    the others by the supervisor, which starts, stops and replaces threads that poll. One that polls for several threads
    sees itself which of them come and go, and tells by `ProcessingThreadMoved`.
    """

    def first(self) -> Sequence[int]:
        """The threads that poll, which the supervisor starts with the client."""
        ...

    def polls_for(self, number: int) -> int:
        """The number of the thread that polls for this one: its own, or another's. It runs as long as it polls for
        one."""
        ...

    def identity(self, number: int) -> ThreadIdentity:
        """Of the thread that polls of this number."""
        ...

    def name(self, number: int) -> str:
        """The thread's name in logs, metrics and `Streams.status()`."""
        ...

    def make(self, context: ThreadContext) -> InstanceThread:
        """A thread that polls, not started."""
        ...


class Observer(threading.Thread, ABC):
    """A thread of the instance that reads and reports, and changes nothing."""

    @abstractmethod
    def close(self) -> None:
        """Ask the observer to end; a client that closes joins the thread."""


@dataclass(frozen=True)
class InstanceParts:
    """One factory per seam."""

    workforce: Callable[
        [StreamsConfig, str, ThreadRegistry, ThreadParts, Callable[[ThreadContext], ClientFactory]], Workforce
    ]
    """Makes the workforce of the config, the client id, the registry of threads, the parts of a thread, and
    `client_factory`."""
    client_factory: Callable[[ThreadContext], ClientFactory]
    """Called once per thread that owns clients, in that thread."""
    state_manager: Callable[[StateDirectory, Engines, str, str | None, Mapping[int, int]], StateManager]
    """Makes the state manager of the locked state directory, the engines, the stage, the static id
    (`group_instance_id`) and the weights of sub-topologies (`task_priorities`)."""
    observers: tuple[Callable[[str, StateManager, Metrics, Clock], Observer], ...]
    """Make the observers, which the supervisor starts and closes. Flags add to them."""


@dataclass(frozen=True)
class Parts:
    """The parts that a set of flags chooses."""

    instance: InstanceParts
    thread: ThreadParts
