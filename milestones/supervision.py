"""What the supervisor is told, what it shows, and what follows from the states of its threads.

*Guarantees*: messages are immutable.
*Assumes*: nothing.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from milestones.common.frames import frames
from milestones.common.records import TaskId, TopicPartition
from milestones.context import ThreadEvent
from milestones.housekeeper import NewSources
from milestones.states import StreamsState, ThreadState

log = logging.getLogger(__name__)

SAY_S = 5
"""Seconds between two words about a thread that is awaited."""


@dataclass(frozen=True)
class Close:
    leave_group: bool


@dataclass(frozen=True)
class ClientFailed:
    error: BaseException


@dataclass(frozen=True)
class AddThread:
    number: int


@dataclass(frozen=True)
class RemoveThread:
    """`done` is set once the thread has ended, or the client has."""

    number: int
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class ThreadGone:
    """A removed thread was joined: what it told before its end has been taken."""

    name: str


Event = ThreadEvent | Close | ClientFailed | NewSources | AddThread | RemoveThread | ThreadGone


@dataclass(frozen=True)
class Ending:
    """How a client ends: by itself, or of an error."""

    leave_group: bool
    error: BaseException | None


@dataclass(frozen=True)
class Status:
    """One instance at a glance. Lags count records not yet processed; `restoring` counts changelog records to go."""

    state: StreamsState
    stage: str
    threads: Mapping[str, ThreadState]
    tasks: Mapping[TaskId, str]
    lags: Mapping[TopicPartition, int]
    restoring: Mapping[TaskId, int]
    records: int
    generation: int


def client_state(threads: Iterable[ThreadState]) -> StreamsState | None:
    """The client's state while it runs: RUNNING once all threads are (without any too), REBALANCING when one isn't;
    None to stay."""
    states = set(threads)
    if states <= {ThreadState.RUNNING}:
        return StreamsState.RUNNING
    if states & {ThreadState.PARTITIONS_REVOKED, ThreadState.PARTITIONS_ASSIGNED}:
        return StreamsState.REBALANCING
    return None


def join(thread: threading.Thread) -> None:
    """Wait until the thread has ended; every few seconds say that it is awaited, and where it is."""
    waited_s = 0
    while True:
        thread.join(SAY_S)
        if not thread.is_alive():
            return
        waited_s += SAY_S
        log.warning("waiting for %s to end, for %d s now; it is in %s", thread.name, waited_s, _place(thread))


def _place(thread: threading.Thread) -> str:
    frame = frames().get(thread.ident or 0)
    calls = traceback.extract_stack(frame)[-1:] if frame is not None else []
    return "".join(f"{call.name}, {call.filename}:{call.lineno}" for call in calls) or "no Python code"
