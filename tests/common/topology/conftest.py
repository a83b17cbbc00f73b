"""A task without a runtime: `run(topology)` compiles every sub-topology and feeds repartition topics back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from milestones.common.records import Emitted, Headers, Output, RecordMetadata, TaskId, output_of
from milestones.common.state.cells import Cells
from milestones.common.task.counters import TaskCounters
from milestones.common.topology import StreamsBuilder, Topology
from milestones.common.topology.compiled import Program, compile_program
from milestones.common.topology.nodes import SinkNode, SourceNode, SubTopology


class Store:
    """A table store in a dict. `cached`: keeps its updates until `flush`."""

    def __init__(self, cached: bool = False) -> None:
        self.rows: dict[Any, tuple[Any, int]] = {}
        self.cached, self.listener, self._before = cached, None, {}

    versioned = False
    immutable = True

    def get_raw(self, key: Any) -> tuple[Any, int] | None:
        return self.rows.get(key)

    def put_raw(self, key: Any, value: Any, timestamp: int) -> None:
        self._before.setdefault(key, self.rows.get(key, (None, 0))[0])
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = (value, timestamp)

    def delete_raw(self, key: Any, timestamp: int) -> None:
        self.put_raw(key, None, timestamp)

    def set_flush_listener(self, listener: Any, send_old_values: bool) -> bool:
        self.listener = listener
        return self.cached

    def flush(self) -> None:
        for key, old in self._before.items():
            new, timestamp = self.rows.get(key, (None, 0))
            self.listener(key, new, old, timestamp)
        self._before = {}


class Services:
    """`TaskServices` that remember what they were asked for."""

    def __init__(self, task_id: TaskId, stores: Mapping[str, Store], config: Mapping[str, Any]) -> None:
        self.task_id, self.application_id, self.config, self.stores = task_id, "app", config, stores
        self.record: Any = SimpleNamespace(headers=None, timestamp=-1, metadata=None)
        self.outputs: list[Output] = []
        self.scheduled: list[tuple[int, str, Callable[[int], None], str]] = []
        self.drops: list[tuple[str, str]] = []
        self.commits = 0
        cells = Cells([])
        self.time, self.kept, self.tally = cells.time, cells.kept, TaskCounters().tally
        self.global_store = lambda _: None

    def store(self, name: str) -> Store:
        return self.stores[name]

    def emit(self, output: Emitted) -> None:
        self.outputs.append(output_of(output))

    def schedule(
        self, interval_ms: int, kind: str, callback: Callable[[int], None], node: str, start_ms: int | None = None
    ) -> Any:
        self.scheduled.append((interval_ms, kind, callback, node))
        return self

    def cancel(self) -> None:
        self.scheduled.clear()

    def partitions_of(self, topic: str) -> int:
        return 4

    def request_commit(self) -> None:
        self.commits += 1

    def dropped(self, node: str, reason: str) -> None:
        self.drops.append((node, reason))

    def stream_time(self) -> int:
        return 77

    def wall_ms(self) -> int:
        return 1234


class Run:
    """All sub-topologies of a topology, one task each, partition 0."""

    def __init__(
        self,
        topology: Topology | StreamsBuilder,
        config: Mapping[str, Any] | None = None,
        topics: tuple[str, ...] = (),
        cached: bool = False,
    ) -> None:
        built = topology.build() if isinstance(topology, StreamsBuilder) else topology
        self.subs = built.resolve("app")
        self.stores = {spec.name: Store(cached and spec.cached) for sub in self.subs for spec in sub.stores}
        self.services = {sub.id: Services(TaskId(sub.id, 0), self.stores, config or {}) for sub in self.subs}
        self.programs: dict[int, Program] = {
            sub.id: compile_program(sub, self.services[sub.id], (*sub.source_topics, *self._matched(sub, topics)))
            for sub in self.subs
        }
        self.outputs: list[Output] = []
        self._sinks = {node.name: node for sub in self.subs for node in sub.nodes if isinstance(node, SinkNode)}
        for program in self.programs.values():
            program.init()

    @staticmethod
    def _matched(sub: SubTopology, topics: tuple[str, ...]) -> tuple[str, ...]:
        return topics if sub.source_patterns else ()

    def pipe(
        self, topic: str, key: Any, value: Any, timestamp: int = 1, headers: Headers | None = None
    ) -> list[Output]:
        """Process one record; gives what it wrote to topics that aren't repartition topics."""
        sub, node = self._reader(topic)
        raw = node.key.serialize(topic, key), node.value.serialize(topic, value)
        before = len(self.outputs)
        self._process(sub, topic, *raw, timestamp, headers)
        return self.outputs[before:]

    def feed(self, topic: str, *records: tuple[Any, ...]) -> Run:
        """`pipe` for each record, its key and value, then the rest."""
        for record in records:
            self.pipe(topic, *record)
        return self

    def rows(self, topic: str) -> list[tuple[Any, Any, int]]:
        """What was written to `topic`, decoded by the sink's serdes: (key, value, timestamp)."""
        return [
            (
                self._sinks[out.node].key.deserialize(topic, out.key),
                self._sinks[out.node].value.deserialize(topic, out.value),
                out.timestamp,
            )
            for out in self.outputs
            if out.topic == topic
        ]

    @property
    def drops(self) -> list[tuple[str, str]]:
        return [drop for services in self.services.values() for drop in services.drops]

    def flush(self, store: str) -> None:
        """Flush a cached store, as a commit does."""
        self.stores[store].flush()
        self._deliver()

    def _process(
        self, sub: SubTopology, topic: str, key: Any, value: Any, timestamp: int, headers: Headers | None
    ) -> None:
        services, source = self.services[sub.id], self.programs[sub.id].sources[topic]
        services.record.headers, services.record.timestamp = headers, timestamp
        services.record.metadata = RecordMetadata(topic, 0, 5)
        source.process(source.key(key, headers), source.value(value, headers), timestamp)
        self._deliver()

    def _deliver(self) -> None:
        internal = {topic: sub for sub in self.subs for topic in sub.repartition_topics}
        for services in self.services.values():
            written, services.outputs = services.outputs, []
            for out in written:
                if out.topic in internal:
                    self._process(internal[out.topic], out.topic, out.key, out.value, out.timestamp, out.headers)
                else:
                    self.outputs.append(out)

    def _reader(self, topic: str) -> tuple[SubTopology, SourceNode]:
        for sub in self.subs:
            if topic in self.programs[sub.id].sources:
                name = self.programs[sub.id].sources[topic].node
                (node,) = (node for node in sub.nodes if node.name == name)
                return sub, node
        raise AssertionError(f"nothing reads {topic}")


@pytest.fixture
def run() -> type[Run]:
    return Run
