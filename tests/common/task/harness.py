"""What tests make tasks of: engines in memory, topologies of one processor, records fed by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Message

from milestones.common import serdes
from milestones.common.records import (
    Emitted,
    OffsetAndMetadata,
    Output,
    Record,
    StoreId,
    TaskId,
    TopicPartition,
    output_of,
)
from milestones.common.state.engine import Batch, Engine
from milestones.common.state.memory_storage import MemoryTaskStorage
from milestones.common.state.read_cache import DEFAULT_BYTES, ReadCaches
from milestones.common.state.record_caches import RecordCaches
from milestones.common.state.spec import StoreSpec
from milestones.common.task.task import PendingCommit, Task, TaskSettings, TaskState
from milestones.common.testing import StepClock
from milestones.common.topology import Processor, Topology

Call = tuple[Batch, int | None]


class Spy:
    """An engine that remembers each apply: (entries, offset)."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name
        self.calls: list[Call] = []

    def apply(self, batches: Any, offsets: Any) -> None:
        self.calls.append((dict(batches.get(self._name, {})), offsets.get(self._name)))
        self._engine.apply(batches, offsets)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class OpenedInMemory(MemoryTaskStorage):
    """What a state manager opens, without a disk. What is in it can be looked at after its close."""

    closed = 0

    def _engine(self, id: StoreId) -> Any:
        return Spy(super()._engine(id), id.store)

    def close(self) -> None:
        self.closed += 1


def message(
    offset: int, key: bytes | None, value: bytes | None, timestamp: int, topic: str = "in", headers: Any = None,
    partition: int = 0,
) -> Message:
    return Message(
        topic=topic, partition=partition, offset=offset, key=key, value=value, timestamp=(1, timestamp), headers=headers
    )


class Harness:
    """A task, its engines, and what Kafka would have of it: committed offsets and changelogs.

    `opens`: what opens the task's stores, instead of the engines in memory (`state`)."""

    def __init__(
        self,
        topology: Topology,
        cache_max_bytes: int = 0,
        read_cache_max_bytes: int = DEFAULT_BYTES,
        partition: int = 0,
        opens: Callable[[TaskId, Sequence[StoreSpec]], Any] | None = None,
        **settings: Any,
    ) -> None:
        (sub,) = topology.resolve("app")
        id = TaskId(sub.id, partition)
        self.clock = StepClock(1_000_000)
        if opens is None:
            self.state = OpenedInMemory(id, sub.stores)
        defaults = {
            "application_id": "app", "clock": self.clock, "partitions_of": lambda topic: 3,
            "record_caches": RecordCaches(cache_max_bytes), "read_caches": ReadCaches(read_cache_max_bytes),
        }  # fmt: skip
        self.task = Task(
            id,
            sub,
            [TopicPartition(topic, partition) for topic in sub.source_topics],
            TaskSettings(**{**defaults, **settings}),
            (lambda: self.state) if opens is None else (lambda: opens(id, sub.stores)),
        )
        self.ends: dict[str, int] = {}
        self.sent: list[Output] = []
        self._logged: dict[str, int] = {}

    def start(self, metadata: Mapping[TopicPartition, str] | None = None) -> Harness:
        self.task.open()
        self.task.start(dict.fromkeys(self.task.partitions, 0), metadata or {})
        return self

    def feed(self, *records: tuple[Any, Any, int], topic: str = "in", headers: Any = None) -> None:
        """Records (key, value, timestamp) into the buffer; keys and values are texts."""
        first = self.ends.get(topic, 0)
        messages = [
            message(first + index, _bytes(key), _bytes(value), timestamp, topic, headers, self.task.id.partition)
            for index, (key, value, timestamp) in enumerate(records)
        ]
        self.ends[topic] = first + len(messages)
        self.task.input.add(TopicPartition(topic, self.task.id.partition), messages)

    def run(self, limit: int = 1000) -> int:
        self.go_on()
        return self.task.process(limit, self.clock.monotonic_ms())

    def pipe(self, *records: tuple[Any, Any, int], **options: Any) -> int:
        """`feed`, then `run`."""
        self.feed(*records, **options)
        return self.run()

    def outputs(self) -> list[tuple[Any, ...]]:
        """(topic, key, value, timestamp) of what was taken now."""
        taken = named(self.task.take_outputs())
        self.sent += taken
        return [(output.topic, output.key, output.value, output.timestamp) for output in taken]

    def pipe_in_parts(
        self, records: Sequence[tuple[Any, Any, int]], chance: random.Random,
        given: Callable[[Harness], list[tuple[Any, ...]]], topic: str = "in", commit_fails: float = 0,
    ) -> list[tuple[Any, ...]]:
        """Pipe some records, and roll them back or commit them, until all are committed. Returns what `given` found of
        committed ones. `commit_fails`: how probable it is that a commit fails, and is made by the next one."""
        found, at = list[tuple[Any, ...]](), 0
        while at < len(records):
            count = chance.randrange(1, 9)
            self.pipe(*records[at : at + count], topic=topic)
            happens = chance.random()
            if happens < 0.4:
                self.roll_back(at, topic)
                continue
            found += given(self)
            if happens < 0.4 + commit_fails:
                self.task.thaw(self.task.freeze())
            self.commit()
            at += count
        return found

    def roll_back(self, at: int, topic: str = "in") -> None:
        """The work since the last commit is void. The topic's records from offset `at` on come again."""
        self.task.roll_back()
        self.outputs()
        self.ends[topic] = at
        offsets = {TopicPartition(topic, self.task.id.partition): end for topic, end in self.ends.items()}
        self.task.start(offsets, {}, initialise=False)
        self.go_on()

    def go_on(self) -> None:
        """After a roll-back: what the processing thread does first."""
        if self.task.state is TaskState.RESTORING:
            self.task.initialise()

    def commit(self) -> PendingCommit:
        self.go_on()
        commit = self.task.freeze()
        self.sent += named(commit.all_outputs())
        ends = self.changelog_ends()
        # As of a producer: of the changelogs that got records since the last commit.
        self.task.applied(commit, {store: end for store, end in ends.items() if end != self._logged.get(store, 0)})
        self._logged = ends
        return commit

    def changelog_ends(self) -> dict[str, int]:
        topics = self.task.subtopology.changelogs
        return {store: sum(o.topic == topic for o in self.sent) for store, topic in topics.items()}

    def engine(self, store: str) -> dict[bytes, bytes]:
        return dict(self.state.namespace(store).scan(None, None))


def committed(commit: PendingCommit) -> dict[TopicPartition, OffsetAndMetadata]:
    """What Kafka has of a commit's offsets."""
    return {at: OffsetAndMetadata(offset, commit.metadata[at]) for at, offset in commit.offsets.items()}


def named(outputs: list[Emitted]) -> list[Output]:
    return [*map(output_of, outputs)]


def _bytes(text: Any) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def processing(
    function: Callable[[Any, Record], None],
    stores: Sequence[StoreSpec] = (),
    init: Callable[[Any], None] | None = None,
    topics: Sequence[str] = ("in",),
    close: Callable[[], None] | None = None,
    **source: Any,
) -> Topology:
    """A source, a processor that calls `function(context, record)`, a sink "out"."""

    class Calling(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            if init is not None:
                init(context)

        def process(self, record: Record) -> None:
            function(self.context, record)

        def close(self) -> None:
            if close is not None:
                close()

    topology = Topology()
    topology.add_source("source", *topics, **{"key": serdes.STRING, "value": serdes.STRING, **source})
    topology.add_processor("worker", Calling, "source")
    topology.add_sink("sink", "out", "worker", key=serdes.STRING, value=serdes.STRING)
    for spec in stores:
        topology.add_state_store(spec, "worker")
    return topology


def a_store(name: str = "store", **options: Any) -> StoreSpec:
    return StoreSpec(name, **{"key_serde": serdes.STRING, "value_serde": serdes.STRING, **options})


def forward(context: Any, record: Record) -> None:
    """Pass on; a value "fail" raises."""
    if record.value == "fail":
        raise RuntimeError("user code")
    context.forward(record)


def forwarding(topics: Sequence[str] = ("in",), **settings: Any) -> Harness:
    """A started task that passes records on."""
    return Harness(processing(forward, topics=topics), **settings).start()


def keep(context: Any, record: Record) -> None:
    """Put into "store", forward; "fail" raises after it has put."""
    context.get_state_store("store").put(record.key, record.value)
    context.forward(record)
    if record.value == "fail":
        raise RuntimeError("user code")


def keeping(**settings: Any) -> Harness:
    """A started task that keeps records in a store and passes them on."""
    return Harness(processing(keep, [a_store()]), **settings).start()
