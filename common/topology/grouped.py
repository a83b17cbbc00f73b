"""`KGroupedStream`: records by key, to be aggregated into a table.

*Guarantees*: Kafka Streams' names and semantics; a repartition topic only when the key may have changed.
*Assumes*: one thread builds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from milestones.common import serdes
from milestones.common.topology.aggregates import StreamAggregate, StreamCount, StreamReduce
from milestones.common.topology.graph import Graph, GraphNode, ProcessorGraphNode, Repartition
from milestones.common.topology.materialized import Materialized, StoreOptions
from milestones.common.topology.missing import Explained
from milestones.common.topology.program import Operator
from milestones.common.topology.repartition import repartition_node
from milestones.common.topology.serde_choice import Choice, weaken
from milestones.common.topology.table import KTable, TableState

_AGGREGATE = "KSTREAM-AGGREGATE-"
_REDUCE = "KSTREAM-REDUCE-"


class KGroupedStream(Explained):
    """Records grouped by key. Made by `KStream.group_by` and `group_by_key`, not by hand.

    `store` names the table's store, and with it its changelog topic; `name` names the operator's node. `StoreOptions`
    has the other keyword arguments.
    """

    def __init__(
        self,
        graph: Graph,
        node: GraphNode,
        key: Choice,
        value: Choice,
        sources: frozenset[str],
        rekeyed: bool,
        topic: str | None,
    ) -> None:
        self._graph, self._node, self._key, self._value = graph, node, key, value
        self._sources, self._rekeyed, self._topic = sources, rekeyed, topic
        self._repartition: Repartition | None = None

    def count(
        self, store: str | None = None, *, name: str | None = None, **options: Unpack[StoreOptions]
    ) -> KTable:
        """Count the records per key, without those with a None value. The table's values are LONG by default."""
        materialized = Materialized(store, **options)
        if store is None and materialized.given:
            self._graph.names.store(_AGGREGATE)
        return self._aggregate(
            _AGGREGATE, materialized, serdes.LONG, name, lambda state: StreamCount(state.name, state.send_old_values)
        )

    def reduce(
        self,
        reducer: Callable[[Any, Any], Any],
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable:
        """Reduce the values per key by `reducer(aggregate, value) -> aggregate`; the first value is the first
        aggregate."""
        return self._aggregate(
            _REDUCE,
            Materialized(store, **options),
            self._value,
            name,
            lambda state: StreamReduce(state.name, reducer, state.send_old_values),
        )

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable:
        """Aggregate the values per key by `aggregator(key, value, aggregate) -> aggregate`, starting with
        `initializer()`. None deletes the row."""
        return self._aggregate(
            _AGGREGATE,
            Materialized(store, **options),
            weaken(self._value),
            name,
            lambda state: StreamAggregate(state.name, initializer, aggregator, state.send_old_values),
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
        store = materialized.store or names.store(prefix)
        key, value = materialized.key or self._key, materialized.value or default_value
        state = TableState(materialized.spec(store, key, value), has_store=True, named=materialized.store is not None)
        node = ProcessorGraphNode(names.given(name, prefix), lambda: operator(state), spec=lambda: state.store)
        parent, sources = self._node, self._sources
        if self._rekeyed:
            parent = self._through_topic(self._topic or store)
            sources = frozenset((parent.source,))
        self._graph.add(node, parent)
        return KTable(self._graph, node, key, value, sources, state)

    def _through_topic(self, prefix: str) -> Repartition:
        node = repartition_node(self._graph, prefix, self._key, self._value)
        if self._repartition is None or self._topic is None:
            self._repartition = node
        self._graph.add(self._repartition, self._node)
        return self._repartition
