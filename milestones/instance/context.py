"""`ThreadContext`, all that a stream thread is given, and the events that the thread sends to its supervisor.

*Guarantees*: a context is immutable, except `thread_registry` and `retry_policy`; a part gets everything that it needs
from its thread's context.
*Assumes*: `notify` and `housekeeper` may be called from any thread (both are mailboxes); `decide` calls the user's
uncaught exception handler in the thread that dies, as Kafka Streams does.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from milestones.common.kafka.retry import RetryPolicy
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.global_stores import GlobalStores
from milestones.instance.admin_thread import HousekeeperAdmin
from milestones.instance.listeners import Listeners
from milestones.instance.snapshot_fetcher import NoSnapshots, SnapshotSource
from milestones.instance.thread_registry import ThreadRegistry

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.common.kafka.admin import Admin
    from milestones.common.memory import MemoryShare
    from milestones.common.metrics import Metrics
    from milestones.common.state.storage import StateManager
    from milestones.instance.admin_thread import Requests
    from milestones.instance.application import Application
    from milestones.instance.identity import ThreadIdentity


@dataclass(frozen=True)
class ThreadContext:
    """The surroundings of one thread that polls. `retry_policy`: how long the thread retries calls to Kafka; a request
    to stop shortens that. `memory`: the thread's share of the instance's memory."""

    identity: ThreadIdentity
    stage: str
    config: StreamsConfig
    clock: Clock
    application: Application
    process_id: str
    transactional_id: str
    state: StateManager
    metrics: Metrics
    housekeeper: Requests
    notify: Callable[[ThreadEvent], None]
    decide: Decide
    memory: MemoryShare
    thread_registry: ThreadRegistry = field(default_factory=ThreadRegistry)
    listeners: Listeners = field(default_factory=Listeners)
    snapshots: SnapshotSource = field(default_factory=NoSnapshots)
    global_stores: GlobalStores = field(default_factory=GlobalStores)
    retry_policy: RetryPolicy = field(init=False)

    @property
    def admin(self) -> Admin:
        """The instance's admin client, by messages to the housekeeper."""
        return HousekeeperAdmin(self.housekeeper)

    def __post_init__(self) -> None:
        object.__setattr__(self, "retry_policy", RetryPolicy(self.config.task_timeout_ms, self.clock))

    @property
    def longest_wait_ms(self) -> int:
        """The longest time for which the thread waits for one answer of Kafka: a quarter of `max_poll_interval_ms`. So
        even with three such waits in one turn, the thread stays in the group.
        """
        return self.config.max_poll_interval_ms // 4

    @property
    def name(self) -> str:
        """The thread's name in logs and metrics."""
        return self.identity.name

    @property
    def number(self) -> int:
        """The thread's number, from 1."""
        return self.identity.number


class UncaughtExceptionResponse(enum.Enum):
    """The answer of an uncaught exception handler to the death of a stream thread (KIP-671); from M4 on, and if
    `task_failed` isn't `shutdown_client`, also the answer to the end of a task. For a task, REPLACE_THREAD means that
    the task is opened anew.
    """

    REPLACE_THREAD = "a new thread takes its place"
    SHUTDOWN_CLIENT = "this instance shuts down, in state ERROR"
    SHUTDOWN_APPLICATION = "all instances of the application shut down, in state ERROR"
    END_TASK = "the task that failed ends, the others go on; what isn't about a task is SHUTDOWN_CLIENT"


class Decide(Protocol):
    """Asks the user's uncaught exception handler. If the user has set no handler, the answer is `default`. The answer
    can be `END_TASK` only if the failure is that of a task (`of_task`).
    """

    def __call__(
        self,
        error: BaseException,
        default: UncaughtExceptionResponse = UncaughtExceptionResponse.SHUTDOWN_CLIENT,
        *,
        of_task: bool = False,
    ) -> UncaughtExceptionResponse: ...


@dataclass(frozen=True)
class ThreadMoved:
    """A stream thread changed its state (`milestones.instance.states.ThreadState`)."""

    thread: str
    state: str


@dataclass(frozen=True)
class ThreadFailed:
    """A stream thread died of `error`, and is DEAD; its clients and stores are closed."""

    thread: str
    error: BaseException
    decision: UncaughtExceptionResponse


@dataclass(frozen=True)
class ProcessingThreadMoved:
    """A processing thread that the user counts changed its state: `RUNNING`, or `DEAD`, also if it never ran. `thread`:
    the polling thread to which it belongs. `serial`: as in `ThreadRegistry`.
    """

    thread: str
    name: str
    serial: int
    state: str


@dataclass(frozen=True)
class ThreadReport:
    """A stream thread's tasks, lags and records, sent twice a second: the client merges the threads' reports for
    `Streams.status()`. `last`: if all its active tasks have ended for good, the error of the last one."""

    thread: str
    tasks: Mapping[TaskId, str]
    lags: Mapping[TopicPartition, int]
    restoring: Mapping[TaskId, int]
    records: int
    generation: int
    standby_lags: Mapping[TaskId, int] = field(default_factory=dict)
    places: Mapping[TaskId, str] = field(default_factory=dict)
    ended: Mapping[TaskId, str] = field(default_factory=dict)
    failing: Mapping[TaskId, str] = field(default_factory=dict)
    last: BaseException | None = None


@dataclass(frozen=True)
class GlobalMoved:
    """The global thread changed its state: `RUNNING` once its stores are complete."""

    state: str


@dataclass(frozen=True)
class GlobalFailed:
    """The global thread died of `error`; its stores stay open until it is asked to end."""

    error: BaseException
    decision: UncaughtExceptionResponse


@dataclass(frozen=True)
class GlobalReport:
    """The progress of the global stores. `restoring`: the number of records to be read before tasks start. `lags`: for
    each partition, the number of unread records at the last fetch.
    """

    restoring: int
    lags: Mapping[TopicPartition, int]


GlobalEvent = GlobalMoved | GlobalFailed | GlobalReport
ThreadEvent = ThreadMoved | ProcessingThreadMoved | ThreadFailed | ThreadReport
