"""`CogroupedKStream`: several grouped streams that are aggregated into one table, each by an aggregator of its own.

*Guarantees*: nodes, stores and internal topics have the names that `CogroupedKStream` of Kafka Streams gives them, and
aggregations give its results. Each stream has a node of its own before the table's node. With windows, each of these
nodes keeps its own stream time. All of them share the table's store.
*Assumes*: one thread builds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, Unpack

from milestones.common.errors import TopologyError
from milestones.common.topology.graph import Graph, GraphNode, ProcessorGraphNode
from milestones.common.topology.materialized import Materialized, StoreOptions, WindowOptions
from milestones.common.topology.missing import Explained
from milestones.common.topology.operators.aggregates import Aggregator, StreamAggregate
from milestones.common.topology.operators.table_joins import PassUpdates
from milestones.common.topology.program import Operator
from milestones.common.topology.serde_choice import as_fallback
from milestones.common.topology.table import KTable
from milestones.common.topology.table_state import TableState
from milestones.common.topology.user_functions import function_of
from milestones.common.topology.windowed_stream import (
    WindowBounds,
    Windows,
    bounds_of,
    checked_merger,
    windowed_operator,
)
from milestones.common.type_variables import VO, VR, K
from milestones.common.windowed import Windowed

if TYPE_CHECKING:
    from milestones.common.topology.grouped import KGroupedStream

_AGGREGATE, _MERGE = "COGROUPKSTREAM-AGGREGATE-", "COGROUPKSTREAM-MERGE-"

Make = Callable[[Aggregator, TableState], Operator]
"""Makes the operator of one stream: (the stream's aggregator, the table's state) -> operator."""


class CogroupedKStream(Explained, Generic[K, VR]):
    """Grouped streams with keys of type `K`, each with an aggregator of its own. `KGroupedStream.cogroup` makes it. A
    program doesn't call this class."""

    def __init__(
        self, graph: Graph, groups: Mapping[KGroupedStream, Aggregator], parents: dict[KGroupedStream, GraphNode]
    ) -> None:
        """`parents`: the nodes behind repartition topics, which the tables of one cogroup share."""
        self._graph, self._groups, self._parents = graph, dict(groups), parents

    def cogroup(
        self, grouped: KGroupedStream[K, VO], aggregator: Callable[[K, VO, VR], VR | None]
    ) -> CogroupedKStream[K, VR]:
        """Add a grouped stream. `aggregator(key, value, aggregate) -> aggregate` adds a value of this stream to the
        aggregate. The topics of all streams need the same number of partitions."""
        from milestones.common.topology.grouped import KGroupedStream  # which makes cogroups

        if not isinstance(grouped, KGroupedStream):
            raise TopologyError(
                f"cogroup takes a grouped stream and its aggregator, not {grouped!r}: group with group_by_key() or "
                "group_by(...)"
            )
        if grouped._graph is not self._graph:
            raise TopologyError(
                "the streams of a cogroup belong to two StreamsBuilders, and so to two topologies: make all with one "
                "builder"
            )
        if grouped in self._groups:
            raise TopologyError(
                "this grouped stream is in the cogroup already: have one aggregator do both, or group the stream again"
            )
        return CogroupedKStream(self._graph, {**self._groups, grouped: function_of(aggregator)}, self._parents)

    def aggregate(
        self,
        initializer: Callable[[], VR],
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, VR]:
        """Aggregate the values of all streams by key, starting with `initializer()`. If an aggregator returns None, the
        row is deleted. `store`: the name of the table's store. The name of the store's changelog topic follows from it.
        `name`: the names of the nodes begin with it."""
        function_of(initializer)

        def make(aggregator: Aggregator, state: TableState) -> Operator:
            return StreamAggregate(state.name, initializer, aggregator, state.send_old_values)

        return self._add(Materialized.of(store, **options), name, make, None)

    def windowed_by(self, windows: Windows) -> WindowedCogroupedKStream[K, VR]:
        """Group the records by windows of time, too."""
        return WindowedCogroupedKStream(self, windows)

    def _add(self, materialized: Materialized, name: str | None, make: Make, bounds: WindowBounds | None) -> KTable:
        graph, given = self._graph, self._graph.names.given
        store = materialized.store or graph.names.store(_AGGREGATE)
        parents = self._by_key(store)
        graph.copartition(*parents)
        first = next(iter(self._groups))
        key, value = materialized.key or as_fallback(first._key), materialized.value or as_fallback(first._value)
        spec = materialized.spec(store, key, value) if bounds is None else bounds.spec(materialized, store, key, value)
        state = TableState(spec, has_store=True, named=materialized.store is not None)
        nodes = []
        for number, (aggregator, parent) in enumerate(zip(self._groups.values(), parents, strict=True)):
            node = _aggregating(given(name, _AGGREGATE, f"-cogroup-agg-{number}"), make, aggregator, state)
            node.grace_ms = None if bounds is None else bounds.grace_ms
            nodes.append(graph.add(node, parent))
        merge = graph.add(ProcessorGraphNode(given(name, _MERGE, "-cogroup-merge"), PassUpdates), *nodes)
        return KTable(graph, merge, key if bounds is None else bounds.keys(key), value, state)

    def _by_key(self, store: str) -> list[GraphNode]:
        """Return the node of each stream after which its records are partitioned by the keys of the groups."""
        topics: set[str] = set()
        nodes = []
        for grouped in self._groups:
            node = grouped._node
            if grouped._rekeyed:
                prefix = grouped._topic or store
                through = self._graph.repartition(prefix, grouped._key, grouped._value)
                if through.topic in topics:
                    raise TopologyError(
                        f"two streams of a cogroup would go through one repartition topic, {through.topic}: name their "
                        "topics, group_by(..., name=...)"
                    )
                topics.add(through.topic)
                if grouped not in self._parents:
                    self._parents[grouped] = self._graph.add(through, node)
                node = self._parents[grouped]
            nodes.append(node)
        return nodes


def _aggregating(name: str, make: Make, aggregator: Aggregator, state: TableState) -> ProcessorGraphNode:
    return ProcessorGraphNode(name, lambda: make(aggregator, state), lambda: state.store)


class WindowedCogroupedKStream(Explained, Generic[K, VR]):
    """Cogrouped streams, grouped by windows of time. `CogroupedKStream.windowed_by` makes it. A program doesn't call
    this class."""

    def __init__(self, cogrouped: CogroupedKStream[K, VR], windows: Windows) -> None:
        self._cogrouped, self._windows = cogrouped, windows
        self._bounds = bounds_of(windows, closing=False)

    def aggregate(
        self,
        initializer: Callable[[], VR],
        merger: Callable[[K, VR, VR], VR | None] | None = None,
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[WindowOptions],
    ) -> KTable[Windowed[K], VR]:
        """Aggregate the values of all streams by key and window, starting with `initializer()`. The keys of the table
        are `Windowed`. Session windows need `merger(key, aggregate, other) -> aggregate`, because a record between two
        sessions merges them. The other arguments are those of `CogroupedKStream.aggregate`."""
        function_of(initializer)
        windows, merge = self._windows, checked_merger(self._windows, merger)

        def make(aggregator: Aggregator, state: TableState) -> Operator:
            return windowed_operator(windows, state, initializer, aggregator, merge)

        return self._cogrouped._add(Materialized.of_windows(store, **options), name, make, self._bounds)
