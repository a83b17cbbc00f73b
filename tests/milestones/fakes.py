"""A stream thread's surroundings without Kafka: clients that answer from logs in memory, and real tasks on engines in
memory. Nothing here has a thread; time is a step clock.

`World` puts them together; `World.loop()` is a real `StreamLoop` on them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message

from milestones import wiring
from milestones.application import Application
from milestones.baseline.stream_loop import StreamLoop
from milestones.common import serdes
from milestones.common.assignment.model import Assignment, Subscription
from milestones.common.config import StreamsConfig
from milestones.common.errors import MilestonesError, StateLockedError
from milestones.common.kafka.consumers import Fetched
from milestones.common.kafka.membership import Assigned, Committed, JoinNeeded
from milestones.common.metrics import Metrics
from milestones.common.records import OffsetAndMetadata, Output, Record, TaskId, TopicPartition
from milestones.common.state.engine import Engine, Namespace
from milestones.common.state.memory_engine import MemoryEngines
from milestones.common.state.spec import StoreSpec
from milestones.common.task.task import Task, TaskSettings
from milestones.common.testing import StepClock
from milestones.common.topology import Processor, Topology
from milestones.context import Exceptions, ThreadContext, ThreadEvent
from milestones.housekeeper import AskBounds, Bounds, Purge
from milestones.states import ThreadState

CHANGELOG = "app-counts-changelog"


def kafka_error(code: int, *, fatal: bool = False, retriable: bool = False, abort: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, "made by a test", fatal, retriable, abort))


FENCED = kafka_error(KafkaError._FENCED, fatal=True)
ILLEGAL_GENERATION = kafka_error(KafkaError.ILLEGAL_GENERATION, abort=True)
TIMED_OUT = kafka_error(KafkaError._TIMED_OUT, retriable=True)


class Log:
    """One partition. None in `entries` is a control record or an aborted one: an offset that no reader sees."""

    def __init__(self, partition: TopicPartition, first: int = 0) -> None:
        self.partition, self.first = partition, first
        self.entries: list[Message | None] = []

    @property
    def end(self) -> int:
        return self.first + len(self.entries)

    def add(self, *values: str, key: str = "k", timestamp: int = 1_000) -> Log:
        for value in values:
            topic, partition = self.partition
            self.entries.append(
                Message(
                    topic=topic, partition=partition, offset=self.end, key=key.encode(), value=value.encode(),
                    timestamp=(1, timestamp),
                )
            )
        return self

    def control(self, count: int = 1) -> Log:
        self.entries += [None] * count
        return self

    def cut_to(self, first: int) -> None:
        """Retention, or a purge: what is before `first` is gone."""
        self.entries = self.entries[first - self.first :]
        self.first = first


class Logs(dict[TopicPartition, Log]):
    """The cluster's partitions, made when first asked for."""

    def __missing__(self, partition: TopicPartition) -> Log:
        self[partition] = Log(partition)
        return self[partition]

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return {p: (self[p].first, self[p].end) for p in partitions}


class FakeConsumer:
    """`AssignedConsumer` on `Logs`. `waits` has the time-outs of all fetches; `next` is handed out instead of one."""

    blocked_ns = 0

    def __init__(self, logs: Logs) -> None:
        self.logs = logs
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.told: set[TopicPartition] = set()
        self.waits: list[int] = []
        self.next: deque[Fetched | Exception] = deque()
        self.moves: list[dict[TopicPartition, int]] = []
        self.fail_assign: Exception | None = None
        self.closed = False

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self.positions)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        if self.fail_assign is not None:
            raise self.fail_assign
        self.moves.append(dict(positions))
        self.unassign(positions)
        self.positions.update(positions)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in list(partitions):
            self.positions.pop(partition, None)
            self.paused.discard(partition)
            self.told.discard(partition)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused |= self.positions.keys() & set(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused -= set(partitions)

    def fetch(self, limit: int, timeout_ms: int) -> Fetched:
        self.waits.append(timeout_ms)
        if self.next:
            scripted = self.next.popleft()
            if isinstance(scripted, Exception):
                raise scripted
            return scripted
        fetched = Fetched()
        for partition in sorted(self.positions.keys() - self.paused):
            self._fetch(partition, limit, fetched)
        return fetched

    def _fetch(self, partition: TopicPartition, limit: int, fetched: Fetched) -> None:
        log, at = self.logs[partition], self.positions[partition]
        at = log.first if at == OFFSET_BEGINNING else at
        if not log.first <= at <= log.end:
            if partition not in self.told:
                fetched.out_of_range.append(partition)
                self.told.add(partition)
            return
        entries = log.entries[at - log.first : at - log.first + limit]
        messages = [message for message in entries if message is not None]
        if messages:
            fetched.records[partition] = messages
        self.positions[partition] = at + len(entries)
        if entries or partition not in self.told:
            self.told.discard(partition)
            if self.positions[partition] == log.end:
                fetched.ends[partition] = log.end
                self.told.add(partition)

    def known_end(self, partition: TopicPartition) -> int | None:
        return self.logs[partition].end

    def partitions_of(self, topic: str, timeout_ms: int) -> int:
        return 1

    def close(self) -> None:
        self.closed = True


class FakeProducer:
    """`OutputProducer`. `calls` has what was done; `errors` what the next call of a name raises."""

    blocked_ns = 0

    def __init__(self, *, transactional: bool = True) -> None:
        self.transactional = transactional
        self.in_transaction = False
        self.acknowledged: dict[TopicPartition, int] = {}
        self.refused: list[Any] = []
        self.calls: list[str] = []
        self.errors: dict[str, deque[Exception]] = {}
        self.sent: list[tuple[TaskId, Output]] = []
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._ends: dict[TopicPartition, int] = {}
        self.closed = False

    def fail(self, call: str, *errors: Exception) -> None:
        self.errors.setdefault(call, deque()).extend(errors)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.errors.get(name):
            raise self.errors[name].popleft()

    def send(self, task: TaskId, outputs: Iterable[Output], changelogs: Collection[str] = (), **_: Any) -> None:
        self._call("send")
        self.begin()
        for output in outputs:
            self.sent.append((task, output))
            at = TopicPartition(output.topic, output.partition)
            self._ends[at] = self._ends.get(at, 0) + 1
            if output.topic in changelogs:
                self.acknowledged[at] = self._ends[at]

    def poll(self) -> None:
        self._call("poll")

    def flush(self, timeout_ms: int) -> None:
        self._call("flush")

    def begin(self) -> None:
        if self.transactional and not self.in_transaction:
            self._call("begin")
            self.in_transaction = True

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: bytes, timeout_ms: int
    ) -> None:
        self._call("send_offsets")
        self.offsets = dict(offsets)

    def commit(self, timeout_ms: int) -> None:
        self._call("commit")
        self.committed.update(self.offsets)
        self.in_transaction = False

    def abort(self, timeout_ms: int) -> None:
        self._call("abort")
        self.in_transaction = False
        self.acknowledged.clear()

    def close(self) -> None:
        self._call("close")
        self.closed = True


class FakeMember:
    """`GroupMember`. Events are what the test puts into `events`; offsets are answered from `committed` at once, unless
    `holds`."""

    blocked_ns = 0

    def __init__(self) -> None:
        self.events: deque[Any] = deque()
        self.joins: list[Subscription] = []
        self.rejoins: list[str] = []
        self.gate = False
        self.metadata_error: MilestonesError | None = None
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.commits: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.commit_errors: deque[Exception] = deque()
        self.holds = False
        self.questions: list[tuple[int, frozenset[TopicPartition], Any]] = []
        self.on_join: Callable[[Subscription], None] = lambda _: None
        self.closed: bool | None = None
        self.started = False

    def start(self) -> None:
        self.started = True

    def poll(self) -> list[Any]:
        events = list(self.events)
        self.events.clear()
        return events

    def join(self, subscription: Subscription) -> None:
        self.joins.append(subscription)
        self.on_join(subscription)

    def request_rejoin(self, reason: str) -> None:
        self.rejoins.append(reason)

    def joining(self) -> bool:
        return self.gate

    def metadata(self) -> bytes:
        if self.metadata_error is not None:
            raise self.metadata_error
        return b"metadata"

    def commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        if self.commit_errors:
            raise self.commit_errors.popleft()
        self.commits.append(dict(offsets))
        self.committed.update(offsets)

    def fetch_offsets(self, number: int, partitions: frozenset[TopicPartition], reply_to: Any) -> None:
        self.questions.append((number, partitions, reply_to))
        if not self.holds:
            self.answer()

    def answer(self, error: MilestonesError | None = None) -> None:
        """Answer all questions that wait."""
        for number, partitions, reply_to in self.questions:
            found = {p: self.committed[p] for p in partitions if p in self.committed}
            reply_to.try_put(Committed(number, {} if error else found, error))
        self.questions.clear()

    def close(self, leave: bool) -> None:
        self.closed = leave


class FakeRequests:
    """The housekeeper's mailbox. Questions are answered at once from the logs, unless `holds`; `error` is the answer
    instead, when set."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs
        self.questions: list[AskBounds] = []
        self.purges: list[Purge] = []
        self.holds = False
        self.error: Exception | None = None
        self.full = False

    def put(self, question: AskBounds, timeout_ms: int) -> None:
        self.questions.append(question)
        if not self.holds:
            self.answer()

    def try_put(self, purge: Purge) -> bool:
        if not self.full:
            self.purges.append(purge)
        return not self.full

    def answer(self) -> None:
        for question in self.questions:
            bounds = {} if self.error else self.logs.bounds(question.partitions)
            question.reply_to.try_put(Bounds(question.task, bounds, self.error))
        self.questions.clear()


class FakeClients:
    """`Clients` of one thread."""

    def __init__(self, logs: Logs, *, transactional: bool = True) -> None:
        self.consumer, self.restore_consumer = FakeConsumer(logs), FakeConsumer(logs)
        self.producer: Any = FakeProducer(transactional=transactional)
        self.member = FakeMember()
        self.renewed = 0
        self.renewal_error: Exception | None = None
        self.closed: bool | None = None

    def renew_producer(self) -> None:
        self.renewed += 1
        if self.renewal_error is not None:
            raise self.renewal_error
        self.producer.close()
        self.producer = FakeProducer(transactional=self.producer.transactional)

    def close(self, *, leave_group: bool) -> None:
        self.closed = leave_group


class FakeTaskState:
    """A task's open stores; the engines outlive it, as a disk does."""

    def __init__(self, engines: dict[str, Engine], specs: Iterable[StoreSpec], on_close: Callable[[], None]) -> None:
        self.engines, self._on_close = engines, on_close
        self.stores: dict[str, tuple[Engine, Namespace]] = {}
        for spec in specs:
            engine = engines.setdefault(spec.name, MemoryEngines().open(Path(), spec.name))
            self.stores[spec.name] = engine, engine.open(spec.name)

    def rebuild(self, store: str) -> tuple[Engine, Namespace]:
        engine = self.engines[store] = MemoryEngines().open(Path(), store)
        self.stores[store] = engine, engine.open(store)
        return self.stores[store]

    def memory_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self._on_close()


class FakeState:
    """`StateOwnership`: real tasks. `locked`: whose directory somebody else holds; `held`: which are open."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.locked: set[TaskId] = set()
        self.errors: dict[TaskId, Exception] = {}
        self.held: set[TaskId] = set()
        self.engines: dict[TaskId, dict[str, Engine]] = {}
        self.tasks: dict[TaskId, Task] = {}

    def create(self, id: TaskId, partitions: Collection[TopicPartition]) -> Task:
        if id in self.errors:
            raise self.errors[id]
        if id in self.locked | self.held:
            raise StateLockedError(f"task {id} is held by a test")
        sub = self._world.context.application.subtopology(id.subtopology)

        def open_stores() -> FakeTaskState:
            self.held.add(id)
            engines = self.engines.setdefault(id, {})
            return FakeTaskState(engines, sub.stores, lambda: self.held.discard(id))

        settings = TaskSettings(
            application_id="app", clock=self._world.clock, partitions_of=lambda _: 1,
            transactional_id="app-tx", max_task_idle_ms=self._world.config.max_task_idle_ms,
        )  # fmt: skip
        task = self.tasks[id] = Task(id, sub, partitions, settings, open_stores)
        task.open()
        return task

    def content(self, id: TaskId, store: str = "counts") -> dict[bytes, bytes]:
        engine = self.engines[id].get(store)
        return {} if engine is None else dict(engine.open(store).scan(None, None))

    def offset(self, id: TaskId, store: str = "counts") -> int | None:
        return self.engines[id][store].open(store).offset()


class Counting(Processor):
    """Counts per key, emits the count. The value "fail" raises; `close_error` and `init_error` are raised, when set."""

    close_error: Exception | None = None
    init_error: Exception | None = None

    def init(self, context: Any) -> None:
        super().init(context)
        if type(self).init_error is not None:
            raise type(self).init_error
        self.store = context.get_state_store("counts")

    def process(self, record: Record) -> None:
        if record.value == "fail":
            raise RuntimeError("user code")
        if record.value == "commit":
            self.context.commit()
        count = (self.store.get(record.key) or 0) + 1
        self.store.put(record.key, count)
        self.context.forward(record.with_value(count))

    def close(self) -> None:
        if type(self).close_error is not None:
            raise type(self).close_error


class Passing(Processor):
    def process(self, record: Record) -> None:
        if record.value == "fail":
            raise RuntimeError("user code")
        self.context.forward(record)


def counting(
    topics: tuple[str, ...] = ("in",), processor: type[Processor] = Counting, **source: Any
) -> Topology:
    """in -> count per key, with a changelog -> out."""
    topology = Topology()
    topology.add_source("source", *topics, key=serdes.STRING, value=serdes.STRING, **source)
    topology.add_processor("counting", processor, "source")
    topology.add_sink("sink", "out", "counting", key=serdes.STRING, value=serdes.LONG)
    topology.add_state_store(StoreSpec("counts", key_serde=serdes.STRING, value_serde=serdes.LONG), "counting")
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
        }  # fmt: skip
        self.config = StreamsConfig(**{**defaults, **self.settings})
        self.clock = StepClock()
        self.logs = Logs()
        self.events: list[ThreadEvent] = []
        self.states: list[ThreadState] = []
        self.requests = FakeRequests(self.logs)
        self.clients = FakeClients(self.logs, transactional=self.config.exactly_once)
        self.context = ThreadContext(
            name="app-StreamThread-1", index=1, stage="baseline", config=self.config, clock=self.clock,
            application=Application.of(self.topology, self.config), process_id="process", transactional_id="app-tx",
            state=None, metrics=Metrics(self.clock), housekeeper=self.requests, notify=self.events.append,  # type: ignore[arg-type]
            decide=lambda _: Exceptions.SHUTDOWN_CLIENT,
        )  # fmt: skip
        self.state = FakeState(self)
        self.parts = replace(
            wiring.BASELINE,
            clients=lambda context: self.clients,  # type: ignore[arg-type,return-value]
            state=lambda context, clients: self.state,
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

    def commit(self, partition: TopicPartition, offset: int, metadata: str = "") -> None:
        """What the group has committed."""
        self.member.committed[partition] = OffsetAndMetadata(offset, metadata)


def inputs(world: World, id: TaskId) -> tuple[TopicPartition, ...]:
    topics = world.context.application.subtopology(id.subtopology).source_topics
    return tuple(TopicPartition(topic, id.partition) for topic in topics)


def assignment(world: World, *partitions: int, **fields: Any) -> Assignment:
    """An assignment of the tasks 0_p."""
    ids = [TaskId(0, partition) for partition in partitions]
    return Assignment(active=frozenset(ids), partitions={id: inputs(world, id) for id in ids}, **fields)


class Running:
    """A loop with its world, driven by hand."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World()
        self.loop = self.world.loop()
        self.generation = 0

    @property
    def tasks(self) -> Any:
        return self.loop._tasks

    def step(self, times: int = 1, *, ms: int = 0) -> None:
        for _ in range(times):
            self.world.clock.advance(ms)
            self.loop.run_once(self.world.clock.monotonic_ms())

    def rebalance(self, *partitions: int, **fields: Any) -> None:
        """JoinNeeded, the join, then an assignment of the tasks 0_p."""
        self.world.member.events.append(JoinNeeded("a test"))
        self.step()
        self.assign(*partitions, **fields)

    def assign(self, *partitions: int, **fields: Any) -> None:
        self.generation += 1
        assigned = assignment(self.world, *partitions, **fields)
        self.world.member.events.append(Assigned(self.generation, "member", assigned))
        self.step()

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
