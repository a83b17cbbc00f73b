"""The parts of an instance, as Protocols: its threads, the factory of their clients, the state manager, the observers.

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
        """True if the group has confirmed that the thread's member left it. Ask after the thread has ended."""
        ...

    def start(self) -> None: ...

    def stop(self, *, leave_group: bool) -> None:
        """Ask the thread to commit, close and end; the caller joins it."""
        ...

    def rejoin(self, reason: str) -> None:
        """Ask the thread's group member for a rebalance."""
        ...

    def shut_application_down(self, error: BaseException) -> None:
        """Ask the thread to end all instances of the application, and itself, as if it had failed with `error`."""
        ...

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...


class Workforce(Protocol):
    """The threads of an instance: the threads that the user counts, with numbers from 1, and the threads that poll. Up
    to M3 these are the same threads; from M4 on one thread polls for all.

    The numbers are those of the `ThreadRegistry`, which a workforce fills at its start. Any thread may call `name`;
    only the supervisor calls the other methods. The supervisor starts, stops and replaces the threads that poll. A
    thread that polls for several threads starts and ends these itself, and reports that by `ProcessingThreadMoved`.
    """

    def first(self) -> Sequence[int]:
        """Return the numbers of the polling threads that the supervisor starts with the client."""
        ...

    def polls_for(self, number: int) -> int:
        """Return the number of the thread that polls for this thread: the same number, or another. A polling thread
        runs as long as it polls for any thread."""
        ...

    def identity(self, number: int) -> ThreadIdentity:
        """Return the identity of the polling thread of this number."""
        ...

    def name(self, number: int) -> str:
        """Return the thread's name in logs, metrics and `Streams.status()`."""
        ...

    def make(self, context: ThreadContext) -> InstanceThread:
        """Return a polling thread that isn't started yet."""
        ...


class Observer(threading.Thread, ABC):
    """A thread of the instance that reads and reports, and changes nothing."""

    @abstractmethod
    def close(self) -> None:
        """Ask the observer to end; a client that closes joins the thread."""


@dataclass(frozen=True)
class InstanceParts:
    """The factories of an instance's parts, one for each part."""

    workforce: Callable[
        [StreamsConfig, str, ThreadRegistry, ThreadParts, Callable[[ThreadContext], ClientFactory]], Workforce
    ]
    """Makes the workforce of the config, the client id, the registry of threads, the parts of a thread, and
    `client_factory`."""
    client_factory: Callable[[ThreadContext], ClientFactory]
    """Makes the factory of a thread's Kafka clients. It is called once per thread that owns clients, in that thread."""
    state_manager: Callable[[StateDirectory, Engines, str, str | None, Mapping[int, int]], StateManager]
    """Makes the state manager of the locked state directory, the engines, the stage, the static id
    (`group_instance_id`) and the weights of sub-topologies (`task_priorities`)."""
    observers: tuple[Callable[[str, StateManager, Metrics, Clock], Observer], ...]
    """The factories of the observers. The supervisor starts and closes the observers. Flags may add observers."""


@dataclass(frozen=True)
class Parts:
    """The parts that a set of flags chooses."""

    instance: InstanceParts
    thread: ThreadParts
