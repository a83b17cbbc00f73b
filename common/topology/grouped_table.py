"""`KGroupedTable`: rows of a table by a new key, to be aggregated into another table.

*Guarantees*: always through a repartition topic of updates (new, old); names and semantics are Kafka Streams'.
*Assumes*: one thread builds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from milestones.common import serdes
from milestones.common.topology import naming
from milestones.common.topology.aggregates import TableAggregate, TableReduce
from milestones.common.topology.graph import Graph, GraphNode, ProcessorGraphNode, Repartition
from milestones.common.topology.materialized import Materialized, StoreOptions
from milestones.common.topology.missing import Explained
from milestones.common.topology.program import Operator
from milestones.common.topology.serde_choice import ChangeOf, Choice, weaken
from milestones.common.topology.table_state import TableState

if TYPE_CHECKING:
    from milestones.common.topology.table import KTable

_AGGREGATE = "KTABLE-AGGREGATE-"
_REDUCE = "KTABLE-REDUCE-"


class KGroupedTable(Explained):
    """Rows of a table, grouped by a new key. Made by `KTable.group_by`, not by hand. Keyword arguments are those of
    `KGroupedStream`."""

    def __init__(
        self,
        graph: Graph,
        node: GraphNode,
        key: Choice,
        value: Choice,
        topic: str | None,
        table: type[KTable],
    ) -> None:
        self._graph, self._node, self._key, self._value = graph, node, key, value
        self._topic, self._table = topic, table
        self._repartition: Repartition | None = None

    def count(
        self, store: str | None = None, *, name: str | None = None, **options: Unpack[StoreOptions]
    ) -> KTable:
        """Count the rows per key."""
        return self._aggregate(
            _AGGREGATE,
            Materialized(store, **options),
            serdes.LONG,
            name,
            lambda state: TableAggregate.count(state.name, state.send_old_values),
        )

    def reduce(
        self,
        adder: Callable[[Any, Any], Any],
        subtractor: Callable[[Any, Any], Any],
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable:
        """Reduce the rows per key by `adder(aggregate, value)` for a row's new value, after
        `subtractor(aggregate, value)` for its old one."""
        return self._aggregate(
            _REDUCE,
            Materialized(store, **options),
            self._value,
            name,
            lambda state: TableReduce(state.name, adder, subtractor, state.send_old_values),
        )

    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable:
        """Aggregate the rows per key by `adder(key, value, aggregate)` for a row's new value, after
        `subtractor(key, value, aggregate)` for its old one, starting with `initializer()`."""
        return self._aggregate(
            _AGGREGATE,
            Materialized(store, **options),
            weaken(self._value),
            name,
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
        store = materialized.store or names.store(_AGGREGATE)
        key, value = materialized.key or self._key, materialized.value or default_value
        sink = names.given(name, naming.SINK, "-sink")
        source = names.given(name, naming.SOURCE, "-source")
        function = names.given(name, prefix)
        topic = (self._topic or store) + naming.REPARTITION_SUFFIX
        if self._repartition is None or self._topic is None:
            changes = ChangeOf(self._value)
            self._repartition = Repartition(source, topic, sink, source, None, self._key, changes)
        self._graph.add(self._repartition, self._node)
        state = TableState(materialized.spec(store, key, value), has_store=True, named=materialized.store is not None)
        node = ProcessorGraphNode(function, lambda: operator(state), spec=lambda: state.store)
        self._graph.add(node, self._repartition)
        return self._table(self._graph, node, key, value, frozenset((self._repartition.source,)), state)
