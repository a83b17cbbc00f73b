"""`TopologyTestDriver` runs a topology without a broker. Tasks, stores and programs are those of the runtime. Records
are piped in, and time is virtual.

The driver works like Kafka Streams' TopologyTestDriver. Every topic has one partition. A record is processed and
committed immediately, with all records that follow from it. If the topology writes to a topic that it also reads, these
records are processed, too. All records of an upsert sink are visible, as each of them is the last one of its commit.

*Guarantees*: nothing happens without a call of the test. Time passes only in `advance_wall_clock`.
*Assumes*: one thread.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, Unpack, overload

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from milestones.common.config import StreamsConfig
from milestones.common.errors import TopologyError
from milestones.common.patterns import matching
from milestones.common.records import Headers, Output, TaskId, TopicPartition, output_of
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.global_storage import MemoryGlobalStorage
from milestones.common.state.global_stores import GlobalStores
from milestones.common.state.memory_storage import MemoryTaskStorage
from milestones.common.state.record_caches import RecordCaches
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.storage import TaskStorage
from milestones.common.task.global_task import GlobalTask
from milestones.common.task.task import Task, TaskSettings
from milestones.common.testing.clock import StepClock
from milestones.common.testing.topics import InputTopic, OutputTopic, topic_serdes
from milestones.common.topology.builder import StreamsBuilder
from milestones.common.topology.configured import configured
from milestones.common.topology.nodes import SubTopology
from milestones.common.topology.topology import Topology
from milestones.common.type_variables import K, V
from milestones.common.typed_serdes import SerdeLike

if TYPE_CHECKING:
    from milestones.common.config.settings import StreamsSettings

S = TypeVar("S")

APPLICATION_ID = "topology-test-driver"
MOST_TIME = (1 << 63) - 1
"""The latest timestamp that a record can have, in ms."""


class HasTopology(Protocol):
    """An application, such as a `Streams`, with a topology and its settings."""

    topology: Topology
    config: StreamsConfig


def topology_and_config(
    given: object, config: Mapping[str, Any] | StreamsConfig | None, settings: Mapping[str, Any], runner: str
) -> tuple[Topology, StreamsConfig]:
    """Return the topology and all settings. Environment variables count only if the program has read them into its
    config itself. `runner`: the class that runs the topology."""
    topology = given.build() if isinstance(given, StreamsBuilder) else getattr(given, "topology", given)
    if not isinstance(topology, Topology):
        hint = "call it" if callable(given) else "make one with a StreamsBuilder"
        raise TopologyError(f"{runner} runs a Topology, a StreamsBuilder or a Streams, not {given!r}: {hint}")
    base = config if isinstance(config, StreamsConfig) else getattr(given, "config", None)
    said = {**({} if config is None or isinstance(config, StreamsConfig) else config), **settings}
    if isinstance(base, StreamsConfig):
        return topology, base.replace(**said)
    defaults = {"application_id": APPLICATION_ID, "bootstrap_servers": "no-broker:9092"}
    return topology, StreamsConfig(variables={}, **{**defaults, **said})


class TopologyTestDriver:
    """Runs `topology`: a `Topology`, a `StreamsBuilder`, or a `Streams` with its settings. The driver is a context
    manager.

    The settings are those of `StreamsConfig`. Settings are given by name as keywords, or in `config`. A keyword
    overrides the same setting in `config`. `start_time_ms`: the wall clock's time at the beginning. `persistent`:
    stores that the topology keeps on disk are in a temporary directory. Otherwise all stores are in memory. `topics`:
    the existing topics, for sources that read a pattern. With the setting `milestones`, changelogs and emitted updates
    are those of the stage. From m5 on, a changelog gets one record per key and commit, and every update is emitted,
    whatever the cache's size is. In the driver, each input record has a commit of its own.

        with TopologyTestDriver(builder.build()) as driver:
            lines = driver.create_input_topic("lines", value=serdes.STRING)
            counts = driver.create_output_topic("counts", key=serdes.STRING, value=serdes.LONG)
            lines.pipe(None, "to be or not to be")
            assert counts.read_key_values_to_map() == {"to": 2, "be": 2, "or": 1, "not": 1}
    """

    config: StreamsConfig

    def __init__(
        self,
        topology: Topology | StreamsBuilder | HasTopology,
        config: Mapping[str, Any] | StreamsConfig | None = None,
        *,
        start_time_ms: int = 1_700_000_000_000,
        persistent: bool = False,
        topics: Iterable[str] = (),
        **settings: Unpack[StreamsSettings],
    ) -> None:
        built, self.config = topology_and_config(topology, config, settings, "TopologyTestDriver")
        self.clock: StepClock = StepClock(start_time_ms)
        self._cleanup = ExitStack()
        self._produced: dict[str, deque[Output]] = {}
        self._ends: dict[str, int] = {}
        self._tasks: list[Task] = []
        self._readers: dict[str, Task | GlobalTask] = {}
        self._globals: GlobalTask | None = None
        self._global_stores = GlobalStores()
        self._record_caches = RecordCaches(self.config.statestore_cache_max_bytes)
        known = tuple(topics)
        try:
            disk = self._on_disk() if persistent else None
            made = configured(built, self.config)
            if made.everywhere is not None:
                self._start_global(made.everywhere, disk)
            for sub in made.subtopologies:
                self._start(sub, known, MemoryTaskStorage if disk is None else disk.open)
            for task in self._tasks:
                self._reach_end(task)
                self._commit(task)
            self._process()
        except BaseException:
            self.close()
            raise

    # -- topics

    def create_input_topic(
        self,
        name: str,
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        start_time_ms: int | None = None,
        advance_ms: int = 0,
    ) -> InputTopic[K, V]:
        """Return an object that pipes records into a topic. The time of its records begins at `start_time_ms` (by
        default now) and moves by `advance_ms` with each record. The default serdes are the application's, or else
        BYTES. Raises `ValueError` for a topic that isn't a source."""
        self._reader(name)
        start_ms = self.clock.wall_ms() if start_time_ms is None else start_time_ms
        return InputTopic(self, name, *topic_serdes(self.config, key, value), start_ms, advance_ms)

    def create_output_topic(
        self, name: str, *, key: SerdeLike[K] | None = None, value: SerdeLike[V] | None = None
    ) -> OutputTopic[K, V]:
        """Return an object that reads the records written to a topic. The serdes have the same defaults as for inputs.
        """
        return OutputTopic(self, name, *topic_serdes(self.config, key, value))

    def produced(self) -> dict[str, list[Output]]:
        """Return the outputs that weren't read yet, for every topic that was written to."""
        return {topic: list(outputs) for topic, outputs in self._produced.items()}

    def unread(self, topic: str) -> deque[Output]:
        """Return the outputs of a topic that weren't read yet. For `OutputTopic`."""
        return self._produced.get(topic, deque())

    # -- records and time

    def pipe(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers | None = None
    ) -> None:
        """Process one record of bytes. `InputTopic.pipe` is more comfortable. Raises `ValueError` for a timestamp that
        no record can have."""
        if not -MOST_TIME <= timestamp <= MOST_TIME:
            raise ValueError(f"topic {topic}: timestamp={timestamp} is no time of a record: it has 64 bits, in ms")
        self._enqueue(self._reader(topic), topic, key, value, timestamp, headers)
        self._process()

    def advance_wall_clock(self, by: int | timedelta) -> None:
        """Let time pass (ms or a timedelta), in one step. Each punctuation that is due is called once."""
        self.clock.advance(by // timedelta(milliseconds=1) if isinstance(by, timedelta) else by)
        for task in self._tasks:
            task.punctuate(self.clock.wall_ms())
            self._commit(task)
        self._process()

    @overload
    def store(self, name: str) -> Any: ...

    @overload
    def store(self, name: str, kind: type[S]) -> S: ...

    def store(self, name: str, kind: type[Any] = object) -> Any:
        """Return a state store, as a processor sees it. Writes of the test are committed immediately. `kind`: the
        store's class, such as `KeyValueStore`, for the type checker. Raises `KeyError` if there is no such store, and
        `TypeError` if the store is of another class."""
        tasks = self._with_stores()
        if name not in tasks:
            raise KeyError(f"no store {name!r}; there are {sorted(tasks)}")
        store = tasks[name].store(name)
        if not isinstance(store, kind):
            raise TypeError(f"store {name!r} is a {type(store).__name__}, not a {kind.__name__}")
        return _DriverStore(store, partial(self._call, tasks[name]))

    def stores(self) -> dict[str, Any]:
        """Return all state stores by name, like the result of `store`."""
        return {name: self.store(name) for name in self._with_stores()}

    def _with_stores(self) -> dict[str, Task | GlobalTask]:
        """Return the task of each store."""
        everything: list[Task | GlobalTask] = [*self._tasks, *([] if self._globals is None else [self._globals])]
        return {spec.name: task for task in everything for spec in task.subtopology.stores}

    def close(self) -> None:
        """Close processors and stores. Raises the errors of processors. Harmless when repeated."""
        with self._cleanup:
            tasks, self._tasks, self._globals = self._tasks, [], None
            for task in tasks:
                self._cleanup.callback(task.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- below

    def _start(self, sub: SubTopology, known: Iterable[str], opener: Callable[..., TaskStorage]) -> None:
        topics = sorted(matching(sub.source_patterns, known).union(sub.source_topics))
        partitions = [TopicPartition(topic, 0) for topic in topics]
        id = TaskId(sub.id, 0)
        task = Task(id, sub, partitions, self._settings(), partial(opener, id, sub.stores))
        self._tasks.append(task)
        task.open()
        task.start(dict.fromkeys(partitions, 0), {})
        self._readers.update(dict.fromkeys(topics, task))

    def _start_global(self, sub: SubTopology, disk: LocalStateManager | None) -> None:
        partitions = [TopicPartition(topic, 0) for topic in sub.source_topics]
        opener = MemoryGlobalStorage if disk is None else disk.open_global
        task = GlobalTask(sub, partitions, replace(self._settings(), max_task_idle_ms=-1), partial(opener, sub.stores))
        self._cleanup.callback(task.close)
        self._globals = task
        task.open()
        task.start(dict.fromkeys(partitions, 0))
        task.show(self._global_stores)
        self._readers.update(dict.fromkeys(sub.source_topics, task))

    def _follow(self) -> None:
        """Make the global stores read the new records of their topics."""
        if self._globals is not None:
            self._globals.process(self.clock.monotonic_ms())

    def _settings(self) -> TaskSettings:
        config = self.config
        settings = TaskSettings(
            application_id=config.application_id,
            clock=self.clock,
            partitions_of=lambda _: 1,
            config=config.as_dict(),
            max_task_idle_ms=config.max_task_idle_ms,
            record_caches=self._record_caches,
            global_stores=self._global_stores,
            deserialization_handler=config.deserialization_exception_handler,
            processing_handler=config.processing_exception_handler,
            production_handler=config.production_exception_handler,
        )
        return self.of_stage(config.milestones, settings)

    @staticmethod
    def of_stage(_stage: Any, settings: TaskSettings) -> TaskSettings:
        """Return the settings of tasks of a stage. `milestones.testing`, which knows the stages, replaces this
        function."""
        return settings

    def _on_disk(self) -> LocalStateManager:
        directory = self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="topology-test-driver-"))
        home = StateDirectory(directory, self.config.application_id, self.clock)
        state = LocalStateManager(home, open_engines(self.config.rocksdb_engine), "test")
        self._cleanup.callback(state.release)
        return state

    def _reader(self, topic: str) -> Task | GlobalTask:
        if topic not in self._readers:
            raise ValueError(f"no source reads topic {topic!r}, only {sorted(self._readers)}")
        return self._readers[topic]

    def _enqueue(
        self,
        task: Task | GlobalTask,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers | None,
    ) -> None:
        offset = self._append(topic)
        message = Message(
            topic=topic, partition=0, offset=offset, key=key, value=value, headers=[*headers] if headers else None,
            timestamp=(TIMESTAMP_CREATE_TIME, timestamp),
        )  # fmt: skip
        task.input.add(TopicPartition(topic, 0), [message])

    def _append(self, topic: str) -> int:
        offset = self._ends.get(topic, 0)
        self._ends[topic] = offset + 1
        return offset

    def _reach_end(self, task: Task | GlobalTask) -> None:
        for partition in task.partitions:
            task.input.reached_end(partition, self._ends.get(partition.topic, 0), self.clock.monotonic_ms())

    def _process(self) -> None:
        """Process and commit until no record is left that may be processed now."""
        self._follow()
        moved = True
        while moved:
            moved = False
            for task in self._tasks:
                self._reach_end(task)
                while task.process(1, self.clock.monotonic_ms()) or task.commit_needed():
                    moved = True
                    self._commit(task)

    def _commit(self, task: Task) -> None:
        commit = task.freeze()
        for output in map(output_of, commit.all_outputs()):
            self._produced.setdefault(output.topic, deque()).append(output)
            if output.topic in self._readers:
                reader = self._readers[output.topic]
                self._enqueue(reader, output.topic, output.key, output.value, output.timestamp, output.headers)
                self._reach_end(reader)
            else:
                self._append(output.topic)
        changelogs = task.subtopology.changelogs
        task.applied(commit, {store: self._ends.get(topic, 0) for store, topic in changelogs.items()})
        self._follow()

    def _call(self, task: Task | GlobalTask, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        result = task.call(lambda: method(*arguments, **named))
        if isinstance(task, Task):
            self._commit(task)
        self._process()
        return result


class _DriverStore:
    """A store of which every call is committed separately."""

    def __init__(self, store: Any, call: Callable[..., Any]) -> None:
        self._store, self._call = store, call

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        return partial(self._call, attribute) if callable(attribute) else attribute
