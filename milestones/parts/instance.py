"""The seams of an instance: which threads there are, who makes their clients, what keeps state, what looks on.

*Guarantees*: the supervisor knows only these; `wiring.py` alone knows which class stands behind which.
*Assumes*: each factory is called once per client, by the supervisor or on its behalf.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from milestones.parts.thread import ThreadParts

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.common.kafka.consumers import AssignedConsumer
    from milestones.common.kafka.membership import GroupMember
    from milestones.common.kafka.producer import OutputProducer
    from milestones.common.metrics import Metrics
    from milestones.common.state.directory import StateDirectory
    from milestones.common.state.engine import Engines
    from milestones.common.state.storage import StateManager
    from milestones.instance.context import ThreadContext
    from milestones.instance.thread_registry import ThreadRegistry


class InstanceThread(Protocol):
    """A thread of an instance as its supervisor sees it; it tells its state, its reports and its failure by
    `ThreadEvent`s."""

    @property
    def name(self) -> str: ...

    @property
    def ident(self) -> int | None: ...

    def start(self) -> None: ...

    def stop(self, *, leave_group: bool) -> None:
        """Ask the thread to commit, close and end; the caller joins it."""
        ...

    def rejoin(self, reason: str) -> None:
        """Have the group assign anew."""
        ...

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...


class Workforce(Protocol):
    """Which threads work for an instance, by number from 1, and what their names are.

    `name`, `numbers`, `add`, `remove` are called by any thread; the others by the supervisor.
    """

    def first(self) -> Sequence[int]:
        """The threads that the supervisor starts with the client."""
        ...

    def name(self, number: int) -> str:
        """What the thread is called: in logs, metrics and `Streams.status()`."""
        ...

    def numbers(self) -> Sequence[int]:
        """The threads that are there, those that leave not counted."""
        ...

    def add(self) -> int:
        """The number of one more, which the supervisor then starts."""
        ...

    def remove(self, number: int | None, *, own: int | None) -> int:
        """Choose who leaves: `number`, else one that isn't the caller's `own`, unless that is the last one.
        `MilestonesError`: there is none."""
        ...

    def make(self, context: ThreadContext) -> InstanceThread:
        """A thread, not started: one of the first, one that was added, or the successor of one that died."""
        ...

    def gone(self, number: int) -> None:
        """The thread that was removed has ended, and everything of it is closed: its number is free."""
        ...


class ClientFactory(Protocol):
    """Makes Kafka clients; each belongs to the thread that asks for it."""

    def consumer(self) -> AssignedConsumer: ...

    def restore_consumer(self) -> AssignedConsumer: ...

    def producer(self, *, one_record_per_batch: bool = False) -> OutputProducer:
        """A producer, not initialised. `one_record_per_batch`: one that says which output a batch or a transaction
        fails of."""
        ...

    def member(self, tell: Callable[[int, int], None]) -> GroupMember:
        """A group member, not started. `tell(now_ms, silent_ms)`: for how long its coordinator has been silent."""
        ...


class Observer(threading.Thread, ABC):
    """A thread of its own that only looks."""

    @abstractmethod
    def close(self) -> None:
        """Ask it to end: a client that closes waits for that."""


@dataclass(frozen=True)
class InstanceParts:
    """One factory per seam."""

    workforce: Callable[
        [StreamsConfig, str, ThreadRegistry, ThreadParts, Callable[[ThreadContext], ClientFactory]], Workforce
    ]
    """Gets the config, the client id, the registry of threads, what a thread is made of, and the next part."""
    client_factory: Callable[[ThreadContext], ClientFactory]
    """Called once per thread that owns clients, in that thread."""
    state_manager: Callable[[StateDirectory, Engines, str, str | None], StateManager]
    """Gets the locked state directory, the engines, the stage and the static id (`group_instance_id`)."""
    observers: tuple[Callable[[str, StateManager, Metrics, Clock], Observer], ...]
    """What watches the instance's state: the supervisor starts and closes each. Flags add to them."""


@dataclass(frozen=True)
class Parts:
    """What a set of flags chooses."""

    instance: InstanceParts
    thread: ThreadParts
