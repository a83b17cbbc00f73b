"""A stream thread's surroundings without Kafka: clients that answer from logs in memory, and real tasks on engines in
memory. Nothing here has a thread; time is a step clock.

`World` puts them together; `World.loop()` is a real `StreamLoop` on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from milestones import wiring
from milestones.common import serdes
from milestones.common.assignment.model import Assignment
from milestones.common.config import StreamsConfig
from milestones.common.errors import StateBusyError, StateLockedError
from milestones.common.kafka.membership import Assigned, JoinNeeded
from milestones.common.memory import MemoryBudget
from milestones.common.metrics import Metrics
from milestones.common.records import OffsetAndMetadata, Record, TaskId, TopicPartition
from milestones.common.state.engine import Batch
from milestones.common.state.spec import StoreSpec
from milestones.common.state.store_engine import StoreEngine
from milestones.common.task.standby import StandbyTask
from milestones.common.task.task import Task, TaskStorage
from milestones.common.testing import StepClock
from milestones.common.topology import Processor, Topology
from milestones.instance.application import Application
from milestones.instance.context import ThreadContext, ThreadEvent, UncaughtExceptionResponse
from milestones.instance.identity import StreamThreadIdentity
from milestones.instance.states import ThreadState
from milestones.instance.thread_registry import ThreadRegistry
from milestones.shared_parts.state import TaskOwnedState
from milestones.stepped.state import KeptTaskStorage
from milestones.stream_thread.loop import StreamLoop
from tests.milestones.fake_kafka import (
    FENCED,
    ILLEGAL_GENERATION,
    TIMED_OUT,
    FakeClients,
    FakeConsumer,
    FakeMember,
    FakeProducer,
    FakeRequests,
    Log,
    Logs,
    kafka_error,
)

__all__ = [
    "CHANGELOG", "FENCED", "ILLEGAL_GENERATION", "IN", "LOG", "LOG_B", "TIMED_OUT", "A", "B", "Counting",
    "FailsToClose", "FakeClients", "FakeConsumer", "FakeMember", "FakeProducer", "FakeState", "Log", "Logs", "Passing",
    "Running", "World", "assignment", "busy", "counting", "inputs", "kafka_error", "passing", "put", "standby",
]  # fmt: skip

CHANGELOG = "app-counts-changelog"
A, B = TaskId(0, 0), TaskId(0, 1)
IN, LOG, LOG_B = TopicPartition("in", 0), TopicPartition(CHANGELOG, 0), TopicPartition(CHANGELOG, 1)


BUSY_MS = 40
"""How long a busy engine asks for."""


class FakeTaskStorage(KeptTaskStorage):
    """A task's open stores; they and the changelog ids outlive it, as a disk does. `busy`: how often the engines of
    tasks still are, before they take a write; `writes`: what they took, by task, as the offsets of its stores."""

    def __init__(
        self,
        task: TaskId,
        specs: Iterable[StoreSpec],
        stores: dict[str, StoreEngine],
        ids: dict[str, str],
        on_close: Callable[[], None],
    ) -> None:
        super().__init__(task, specs, stores, ids, on_close)
        self.busy, self.writes = Counter[TaskId](), list[tuple[TaskId, Mapping[str, int]]]()

    def apply(self, batches: Mapping[str, Batch], offsets: Mapping[str, int]) -> None:
        if self.busy[self.task] > 0:
            self.busy[self.task] -= 1
            raise StateBusyError(f"the stores of {self.task}", "the disk is full", "make room", BUSY_MS)
        self.writes.append((self.task, dict(offsets)))
        super().apply(batches, offsets)


class FakeState:
    """`StateManager` in memory, and `StateOwnership` of real tasks. `locked`: whose directory another thread holds;
    `held`: which are open; `opens`: how often stores were opened; `made`: how many active tasks were; `closed`:
    what is told of the tasks that lie on the disk; `busy` and `writes` are those of all storages."""

    ownership: Callable[[ThreadContext, Callable[[str], int]], TaskOwnedState] = TaskOwnedState

    def __init__(self, world: World) -> None:
        self._world = world
        self.locked: set[TaskId] = set()
        self.errors: dict[TaskId, Exception] = {}
        self.held: set[TaskId] = set()
        self.stores: dict[TaskId, dict[str, StoreEngine]] = {}
        self.changelog_ids: dict[TaskId, dict[str, str]] = {}
        self.tasks: dict[TaskId, Task] = {}
        self.standbys: dict[TaskId, StandbyTask] = {}
        self.busy, self.writes = Counter[TaskId](), list[tuple[TaskId, Mapping[str, int]]]()
        self.opens = self.made = 0
        self.closed: dict[TaskId, int] = {}

    def open(
        self, id: TaskId, specs: Iterable[StoreSpec], transactional_id: str | None = None, owner: str | None = None
    ) -> TaskStorage:
        if id in self.errors:
            raise self.errors[id]
        if id in self.locked | self.held:
            raise StateLockedError(f"task {id} is held by a test")
        self.held.add(id)
        self.opens += 1
        stores = self.stores.setdefault(id, {})
        ids = self.changelog_ids.setdefault(id, {})
        storage = FakeTaskStorage(id, specs, stores, ids, lambda: self.held.discard(id))
        storage.busy, storage.writes = self.busy, self.writes
        return storage

    def _usable(self, id: TaskId, stores: TaskStorage | None) -> TaskStorage:
        """`stores`, or newly opened ones: for tests that make a task themselves."""
        if stores is None:
            return self.open(id, self._world.context.application.subtopology(id.subtopology).stores)
        if id in self.errors:
            raise self.errors[id]
        return stores

    @property
    def _owned(self) -> TaskOwnedState:
        return self.ownership(self._world.context, lambda _: 1)

    def create_standby(self, id: TaskId, stores: TaskStorage | None = None) -> StandbyTask:
        standby = self.standbys[id] = self._owned.create_standby(id, self._usable(id, stores))
        return standby

    def closed_positions(self, opening: Collection[TaskId] = ()) -> Mapping[TaskId, int]:
        open_now = self.held.difference(opening)
        return {id: position for id, position in self.closed.items() if id not in open_now}

    def create(self, id: TaskId, partitions: Collection[TopicPartition], stores: TaskStorage | None = None) -> Task:
        task = self.tasks[id] = self._owned.create(id, partitions, self._usable(id, stores))
        self.made += 1
        return task

    def content(self, id: TaskId, store: str = "counts") -> dict[bytes, bytes]:
        found = self.stores[id].get(store)
        return {} if found is None else dict(found.namespace.scan(None, None))

    def text(self, store: str = "counts", id: TaskId = A) -> dict[str, str]:
        return {key.decode(): value.decode() for key, value in self.content(id, store).items()}

    def offset(self, id: TaskId, store: str = "counts") -> int | None:
        return self.stores[id][store].namespace.offset()


class Counting(Processor):
    """Counts per key, emits the count. It keeps what it has counted in an attribute too, and believes that before its
    store: one that outlives a roll-back counts wrong. The value "fail" raises; `close_error` and `init_error` are
    raised, when set."""

    close_error: Exception | None = None
    init_error: Exception | None = None

    def init(self, context: Any) -> None:
        super().init(context)
        if type(self).init_error is not None:
            raise type(self).init_error
        self.store = context.get_state_store("counts")
        self.counts: dict[str, int] = {}

    def process(self, record: Record) -> None:
        if record.value == "fail":
            raise RuntimeError("user code")
        if record.value == "commit":
            self.context.commit()
        count = self.counts[record.key] = (self.counts.get(record.key) or self.store.get(record.key) or 0) + 1
        self.store.put(record.key, count)
        self.context.forward(record.with_value(count))

    def close(self) -> None:
        if type(self).close_error is not None:
            raise type(self).close_error


class FailsToClose(Counting):
    close_error = ValueError("user's close")


class Passing(Processor):
    def process(self, record: Record) -> None:
        if record.value == "fail":
            raise RuntimeError("user code")
        self.context.forward(record)


def counting(
    topics: tuple[str, ...] = ("in",), processor: type[Processor] = Counting, cached: bool = False,
    source_topic: str | None = None, into: Topology | None = None, **source: Any,
) -> Topology:  # fmt: skip
    """in -> count per key, with a changelog -> out. `source_topic`: serves as that changelog; `into`: a topology that
    has the source by now."""
    topology = into or Topology()
    if into is None:
        topology.add_source("source", *topics, key=serdes.STRING, value=serdes.STRING, **source)
    topology.add_processor("counting", processor, "source")
    topology.add_sink("sink", "out", "counting", key=serdes.STRING, value=serdes.LONG)
    store = StoreSpec(
        "counts", key_serde=serdes.STRING, value_serde=serdes.LONG, cached=cached, source_topic=source_topic
    )
    topology.add_state_store(store, "counting")
    return topology


def passing(topics: tuple[str, ...] = ("in",), **source: Any) -> Topology:
    """in -> out, without state."""
    topology = Topology()
    topology.add_source("source", *topics, key=serdes.STRING, value=serdes.STRING, **source)
    topology.add_processor("passing", Passing, "source")
    topology.add_sink("sink", "out", "passing", key=serdes.STRING, value=serdes.STRING)
    return topology


@dataclass
class World:
    """One stream thread's surroundings. `settings` go into the config; `events` has what the thread told."""

    topology: Topology = field(default_factory=counting)
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        defaults = {
            "application_id": "app", "bootstrap_servers": "localhost:1", "processing_guarantee": "exactly_once_v2",
            "state_write_interval_ms": 0,  # what is committed is on the disk, to be looked at
        }  # fmt: skip
        self.config = StreamsConfig(**{**defaults, **self.settings})
        self.clock = StepClock()
        self.logs = Logs()
        self.events: list[ThreadEvent] = []
        self.states: list[ThreadState] = []
        self.requests = FakeRequests(self.logs)
        self.clients = FakeClients(self.logs, transactional=self.config.exactly_once, clock=self.clock)
        self.budget = MemoryBudget(self.config)
        shares = [self.budget.join() for _ in range(self.config.num_stream_threads)]
        self.state = FakeState(self)
        registry = ThreadRegistry(self.config.num_stream_threads)
        self.context = ThreadContext(
            identity=StreamThreadIdentity(self.config, "app", registry, 1), stage="baseline", config=self.config,
            clock=self.clock,
            application=Application.of(self.topology, self.config), process_id="process", transactional_id="app-tx",
            state=self.state, metrics=Metrics(self.clock), housekeeper=self.requests, notify=self.events.append,  # type: ignore[arg-type]
            decide=lambda *_, **__: UncaughtExceptionResponse.SHUTDOWN_CLIENT, thread_registry=registry,
            memory=shares[0],
        )  # fmt: skip
        self.parts = replace(
            wiring.BASELINE.thread,
            clients=lambda context, factory: self.clients,  # type: ignore[arg-type,return-value]
            state=lambda context, partitions_of: self.state,
        )

    @property
    def consumer(self) -> FakeConsumer:
        return self.clients.consumer

    @property
    def restorer(self) -> FakeConsumer:
        return self.clients.restore_consumer

    @property
    def producer(self) -> FakeProducer:
        producer: FakeProducer = self.clients.producer
        return producer

    @property
    def member(self) -> FakeMember:
        return self.clients.member

    def loop(self) -> StreamLoop:
        return StreamLoop(self.context, self.parts, self.clients, self.states.append)  # type: ignore[arg-type]

    def task(self, partition: int = 0, *, subtopology: int = 0) -> Task:
        """A task, opened."""
        id = TaskId(subtopology, partition)
        return self.state.create(id, inputs(self, id))

    def fed(self, *values: str) -> World:
        """With these values in the input of 0_0."""
        self.logs[IN].add(*values)
        return self

    def logged(self, *values: str, key: str = "k") -> World:
        """With these values in the changelog of 0_0."""
        self.logs[LOG].add(*values, key=key)
        return self

    def commit(self, partition: TopicPartition, offset: int, metadata: str = "") -> None:
        """What the group has committed."""
        self.member.committed[partition] = OffsetAndMetadata(offset, metadata)


NO_CLIENTS: Any = lambda context: None  # noqa: E731
"""A client factory for a thread whose clients are fakes."""


def inputs(world: World, id: TaskId) -> tuple[TopicPartition, ...]:
    topics = world.context.application.subtopology(id.subtopology).source_topics
    return tuple(TopicPartition(topic, id.partition) for topic in topics)


def assignment(world: World, *partitions: int, **fields: Any) -> Assignment:
    """An assignment of the tasks 0_p."""
    ids = [TaskId(0, partition) for partition in partitions]
    return Assignment(active=frozenset(ids), partitions={id: inputs(world, id) for id in ids}, **fields)


class Running:
    """A loop with its world, driven by hand. `settings`: of a world that isn't given."""

    def __init__(self, world: World | None = None, **settings: Any) -> None:
        self.world = world or World(settings=settings)
        self.loop = self.world.loop()
        self.generation = 0

    @property
    def tasks(self) -> Any:
        return self.loop._tasks

    @property
    def places(self) -> dict[TaskId, str]:
        return {id: phase.value for id, phase in self.tasks.places().items()}

    def step(self, times: int = 1, *, ms: int = 0) -> None:
        for _ in range(times):
            self.world.clock.advance(ms)
            self.loop.run_once(self.world.clock.monotonic_ms())

    def feed(self, *values: str, partition: int = 0, steps: int = 1, ms: int = 0) -> None:
        """These values come for 0_p; steps follow."""
        put(self.world, partition, *values)
        self.step(steps, ms=ms)

    def hear(self, *events: Any, steps: int = 1, ms: int = 0) -> None:
        """The group says this; steps follow."""
        self.world.member.events += events
        self.step(steps, ms=ms)

    def rebalance(self, *partitions: int, steps: int = 0, ms: int = 0, **fields: Any) -> None:
        """JoinNeeded, the join, then an assignment of the tasks 0_p; steps follow."""
        self.hear(JoinNeeded("a test"))
        self.assign(*partitions, steps=steps, ms=ms, **fields)

    def assign(self, *partitions: int, steps: int = 0, ms: int = 0, **fields: Any) -> None:
        self.generation += 1
        self.hear(Assigned(self.generation, "member", assignment(self.world, *partitions, **fields)))
        self.step(steps, ms=ms)

    def run(self, *partitions: int) -> Running:
        """Rebalance, and go on until all tasks process."""
        self.rebalance(*partitions)
        for _ in range(20):
            if self.tasks.all_running:
                break
            self.step()
        assert self.tasks.all_running, "the tasks don't start"
        return self


def put(world: World, partition: int, *values: str, key: str = "k", topic: str = "in") -> None:
    world.logs[TopicPartition(topic, partition)].add(*values, key=key)


def busy(*partitions: int, **settings: Any) -> Running:
    """A thread whose tasks have processed two records each, uncommitted."""
    r = Running(**{"commit_interval_ms": 10_000, **settings})
    for partition in partitions:
        put(r.world, partition, "a", "b")
    r.run(*partitions).step(2)
    return r


def standby(world: World | None = None, *tasks: TaskId, active: tuple[int, ...] = (), **kinds: Any) -> Running:
    """A thread with these tasks as standbys, some rounds later."""
    r = Running(world)
    r.rebalance(*active, **{"standby": frozenset(tasks or {A}), **kinds}, steps=5)
    return r
