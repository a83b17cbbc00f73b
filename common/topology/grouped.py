"""`KGroupedStream` and `KGroupedTable`: records by key, or rows of a table by a new key, to be aggregated into a table.

*Guarantees*: nodes, stores and internal topics have Kafka Streams' names, and aggregations give its results. A stream
gets a repartition topic only if the key may have changed. A table always gets one, whose records are updates (new
value, old value).
*Assumes*: one thread builds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, Unpack

from milestones.common import serdes
from milestones.common.state.spec import StoreSpec
from milestones.common.topology import naming
from milestones.common.topology.cogrouped import CogroupedKStream
from milestones.common.topology.graph import Graph, GraphNode, ProcessorGraphNode, Repartition
from milestones.common.topology.materialized import Materialized, StoreOptions
from milestones.common.topology.missing import Explained
from milestones.common.topology.operators.aggregates import (
    StreamAggregate,
    StreamCount,
    StreamReduce,
    TableAggregate,
    TableReduce,
)
from milestones.common.topology.program import Operator
from milestones.common.topology.serde_choice import ChangeOf, Choice, as_fallback
from milestones.common.topology.table import KTable
from milestones.common.topology.table_state import TableState
from milestones.common.topology.windowed_stream import Emit, WindowedKStream, Windows
from milestones.common.type_variables import VR, K, V

if TYPE_CHECKING:
    from milestones.common.topology.stream import KStream

_STREAM_AGGREGATE, _STREAM_REDUCE = "KSTREAM-AGGREGATE-", "KSTREAM-REDUCE-"
_TABLE_AGGREGATE, _TABLE_REDUCE = "KTABLE-AGGREGATE-", "KTABLE-REDUCE-"


class BoundedTable(Protocol):
    """The properties of an aggregation's windows that its store needs."""

    @property
    def grace_ms(self) -> int:
        """The time from a window's end until the window closes."""
        ...

    def spec(self, materialized: Materialized, store: str, key: Choice, value: Choice) -> StoreSpec: ...

    def keys(self, key: Choice) -> Choice:
        """Return the serde of the table's keys."""
        ...


class _Grouped(Explained):
    def __init__(self, graph: Graph, node: GraphNode, key: Choice, value: Choice, topic: str | None) -> None:
        self._graph, self._node, self._key, self._value, self._topic = graph, node, key, value, topic
        self._repartition: Repartition | None = None

    def _table(
        self, materialized: Materialized, store: str, default_value: Choice, node: str, parent: GraphNode,
        operator: Callable[[TableState], Operator], bounds: BoundedTable | None = None,
    ) -> KTable:
        """Add the aggregating node, with its store."""
        key, value = materialized.key or self._key, materialized.value or default_value
        spec = materialized.spec(store, key, value) if bounds is None else bounds.spec(materialized, store, key, value)
        state = TableState(spec, has_store=True, named=materialized.store is not None)
        aggregate = ProcessorGraphNode(node, lambda: operator(state), spec=lambda: state.store)
        keys = key
        if bounds is not None:
            keys, aggregate.grace_ms = bounds.keys(key), bounds.grace_ms
        return KTable(self._graph, self._graph.add(aggregate, parent), keys, value, state)


class KGroupedStream(_Grouped, Generic[K, V]):
    """Records grouped by key. `KStream.group_by` and `KStream.group_by_key` make it. A program doesn't call this class.

    In all methods, `store` is the name of the table's store, and the name of the store's changelog topic follows from
    it. `name` is the name of the operator's node. `StoreOptions` describes the other keyword arguments.
    """

    def __init__(
        self, graph: Graph, node: GraphNode, key: Choice, value: Choice, rekeyed: bool, topic: str | None
    ) -> None:
        super().__init__(graph, node, key, value, topic)
        self._rekeyed = rekeyed

    def count(
        self, store: str | None = None, *, name: str | None = None, **options: Unpack[StoreOptions]
    ) -> KTable[K, int]:
        """Count the records of each key. Records whose value is None don't count. By default the serde of the counts is
        LONG."""
        materialized = Materialized.of(store, **options)
        if store is None and materialized.given:
            self._graph.names.store(_STREAM_AGGREGATE)
        return self._aggregate(
            _STREAM_AGGREGATE, materialized, serdes.LONG, name,
            lambda state: StreamCount(state.name, state.send_old_values),
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, V]:
        """Combine the values of each key by `reducer(aggregate, value) -> aggregate`. A key's first value is its first
        aggregate."""
        return self._aggregate(
            _STREAM_REDUCE, Materialized.of(store, **options), self._value, name,
            lambda state: StreamReduce(state.name, reducer, state.send_old_values),
        )

    def aggregate(
        self,
        initializer: Callable[[], VR],
        aggregator: Callable[[K, V, VR], VR | None],
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, VR]:
        """Aggregate the values of each key by `aggregator(key, value, aggregate) -> aggregate`, starting with
        `initializer()`. If `aggregator` returns None, the row is deleted."""
        return self._aggregate(
            _STREAM_AGGREGATE, Materialized.of(store, **options), as_fallback(self._value), name,
            lambda state: StreamAggregate(state.name, initializer, aggregator, state.send_old_values),
        )

    def windowed_by(
        self,
        windows: Windows,
        *,
        emit: Emit = "on_update",
        on_late: Callable[[KStream[K, V]], object] | None = None,
    ) -> WindowedKStream[K, V]:
        """Group the records by windows of time, too.

        `emit`: by default each update of a window is emitted. With `"on_close"` each window's result is emitted once,
        when the window has closed. `on_late`: a function for records that come too late for all of their windows. By
        default such records are dropped. Each aggregation calls `on_late(stream)` while the topology is built, with a
        stream of its late records. An example is `lambda late: late.to("late")`.
        """
        return WindowedKStream(self, windows, emit, on_late)

    def cogroup(self, aggregator: Callable[[K, V, VR], VR | None]) -> CogroupedKStream[K, VR]:
        """Begin to aggregate this stream and others into one table. On the result, `cogroup(other, aggregator)` adds
        another stream, and `aggregate` makes the table. `aggregator(key, value, aggregate) -> aggregate` adds a value
        of this stream to the aggregate."""
        return CogroupedKStream(self._graph, {}, {}).cogroup(self, aggregator)

    def _aggregate(
        self,
        prefix: str,
        materialized: Materialized,
        default_value: Choice,
        name: str | None,
        operator: Callable[[TableState], Operator],
        bounds: BoundedTable | None = None,
    ) -> KTable:
        names = self._graph.names
        store = materialized.store or names.store(prefix)
        node, parent = names.given(name, prefix), self._node
        if self._rekeyed:
            parent = self._through_topic(self._topic or store)
        return self._table(materialized, store, default_value, node, parent, operator, bounds)

    def _through_topic(self, prefix: str) -> Repartition:
        node = self._graph.repartition(prefix, self._key, self._value)
        if self._repartition is None or self._topic is None:
            self._repartition = node
        return self._graph.add(self._repartition, self._node)


class KGroupedTable(_Grouped, Generic[K, V]):
    """Rows of a table, grouped by a new key. `KTable.group_by` makes it. A program doesn't call this class. The keyword
    arguments are those of `KGroupedStream`."""

    def count(
        self, store: str | None = None, *, name: str | None = None, **options: Unpack[StoreOptions]
    ) -> KTable[K, int]:
        """Count the rows of each key."""
        return self._aggregate(
            _TABLE_AGGREGATE, Materialized.of(store, **options), serdes.LONG, name,
            lambda state: TableAggregate.count(state.name, state.send_old_values),
        )

    def reduce(
        self,
        adder: Callable[[V, V], V | None],
        subtractor: Callable[[V, V], V | None],
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, V]:
        """Combine the rows of each key. When a row changes, `subtractor(aggregate, value)` first removes its old value,
        then `adder(aggregate, value)` adds its new one. Both return the new aggregate."""
        return self._aggregate(
            _TABLE_REDUCE, Materialized.of(store, **options), self._value, name,
            lambda state: TableReduce(state.name, adder, subtractor, state.send_old_values),
        )

    def aggregate(
        self,
        initializer: Callable[[], VR],
        adder: Callable[[K, V, VR], VR | None],
        subtractor: Callable[[K, V, VR], VR | None],
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, VR]:
        """Aggregate the rows of each key, starting with `initializer()`. When a row changes,
        `subtractor(key, value, aggregate)` first removes its old value, then `adder(key, value, aggregate)` adds its
        new one. Both return the new aggregate."""
        return self._aggregate(
            _TABLE_AGGREGATE, Materialized.of(store, **options), as_fallback(self._value), name,
            lambda state: TableAggregate(state.name, initializer, adder, subtractor, state.send_old_values),
        )

    def _aggregate(
        self,
        prefix: str,
        materialized: Materialized,
        default_value: Choice,
        name: str | None,
        operator: Callable[[TableState], Operator],
    ) -> KTable:
        names = self._graph.names
        store = materialized.store or names.store(_TABLE_AGGREGATE)
        sink = names.given(name, naming.SINK, "-sink")
        source = names.given(name, naming.SOURCE, "-source")
        node = names.given(name, prefix)
        topic = (self._topic or store) + naming.REPARTITION_SUFFIX
        if self._repartition is None or self._topic is None:
            changes = ChangeOf(self._value)
            self._repartition = Repartition(source, topic, sink, source, None, self._key, changes)
        parent = self._graph.add(self._repartition, self._node)
        return self._table(materialized, store, default_value, node, parent, operator)
