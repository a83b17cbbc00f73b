"""`KTable`: the latest value per key, and the operators on it. Names and semantics are Kafka Streams'.

A table has a store only if the user named one, if the table is the result of an aggregation, or if an operator needs
the table's old values or looks up its rows.

*Guarantees*: see `operators/tables.py`.
*Assumes*: one thread builds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Unpack, overload

from milestones.common.errors import TopologyError
from milestones.common.state.spec import StoreSpec
from milestones.common.topology.connected_stores import stores_of
from milestones.common.topology.graph import Graph, GraphNode, ProcessorGraphNode
from milestones.common.topology.joins import INNER, LEFT, OUTER, Alone, ForeignKey, check_no_foreign_key
from milestones.common.topology.materialized import Materialized, StoreOptions
from milestones.common.topology.missing import Explained
from milestones.common.topology.nodes import Partitioner
from milestones.common.topology.operators.getters import FilterGetter, Getter, MapValuesGetter
from milestones.common.topology.operators.suppression import BufferGetter
from milestones.common.topology.operators.tables import (
    TableFilter,
    TableMapValues,
    TableRepartitionMap,
    ToStream,
)
from milestones.common.topology.operators.value_transformer import (
    TableTransformValues,
    TransformValuesGetter,
    ValueTransformer,
    check_transformers,
)
from milestones.common.topology.operators.versioned_tables import carrying, latest_only
from milestones.common.topology.program import Operator
from milestones.common.topology.serde_choice import Choice, as_fallback, check_serde
from milestones.common.topology.suppress import Suppression, Until, WhenFull
from milestones.common.topology.table_state import TableState
from milestones.common.topology.user_functions import function_of
from milestones.common.topology.windows import Duration
from milestones.common.type_variables import KR, VO, VR, K, V
from milestones.common.typed_serdes import SerdeLike

if TYPE_CHECKING:
    from milestones.common.topology.grouped import KGroupedTable
    from milestones.common.topology.stream import KStream


class KTable(Explained, Generic[K, V]):
    """A table with keys of type `K` and values of type `V`. `StreamsBuilder.table`, `KStream.to_table` and aggregations
    make tables. A program doesn't call this class."""

    name: str

    def __init__(self, graph: Graph, node: GraphNode, key: Choice, value: Choice, state: TableState) -> None:
        self._graph, self._node, self.name = graph, node, node.name
        self._key, self._value, self._state = key, value, state

    @property
    def queryable_store_name(self) -> str | None:
        """The store's name, if the user gave one."""
        return self._state.name if self._state.named else None

    def filter(
        self,
        predicate: Callable[[K, V], object],
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, V]:
        """Keep the rows for which `predicate(key, value)` holds. `store`: keep the result in a store of that name."""
        return self._filter(predicate, False, name, Materialized.of(store, **options))

    def filter_not(
        self,
        predicate: Callable[[K, V], object],
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, V]:
        """Drop the rows for which `predicate(key, value)` holds."""
        return self._filter(predicate, True, name, Materialized.of(store, **options))

    @overload
    def map_values(
        self,
        mapper: Callable[[V], VR],
        store: str | None = None,
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, VR]: ...

    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], VR],
        store: str | None = None,
        *,
        with_key: Literal[True],
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, VR]: ...

    def map_values(
        self,
        mapper: Callable[..., Any],
        store: str | None = None,
        *,
        with_key: bool = False,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, Any]:
        """Replace each value by `mapper(value) -> value`. With `with_key=True` the call is `mapper(key, value)`.
        Deletions pass unchanged."""
        function_of(mapper)
        materialized = Materialized.of(store, **options)
        value = materialized.value or as_fallback(self._value)
        return self._derive(
            "KTABLE-MAPVALUES-",
            name,
            materialized,
            value,
            lambda state: carrying(
                TableMapValues(mapper, with_key, state.store_name, state.send_old_values),
                self._state.versioned, state.store is not None,
            ),
            lambda parent: MapValuesGetter(parent, mapper, with_key),
        )

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer[K, V, VR]],
        *stores: str,
        store: str | None = None,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, VR]:
        """Replace each value by the one that a `ValueTransformer` returns. The transformer may use the stores that
        `stores` names, and knows the time. The transformer is called for deleted rows, too, with a value of None.
        `supplier`: the transformer's class, or a function that makes a new transformer at each call. `store`: the
        result is kept in a store of this name.

        A transformer that isn't a pure function of key and value needs a `store`. Without a store it is also called for
        old values, and for the rows that a join looks up.
        """
        node_name = self._graph.names.given(name, "KTABLE-TRANSFORMVALUES-")
        transformers, materialized = check_transformers(supplier, node_name), Materialized.of(store, **options)
        brought = stores_of(supplier, node_name)
        connected = (*stores, *(spec.name for spec in brought))
        key, value = materialized.key or self._key, materialized.value or as_fallback(self._value)
        state = TableState(
            materialized.spec(store or "", key, value), has_store=store is not None, parent=self._state,
            rows=lambda parent: TransformValuesGetter(parent, transformers, connected), chosen=materialized.given,
        )  # fmt: skip

        def operator() -> Operator:
            transforming = TableTransformValues(transformers, state.store_name, state.send_old_values)
            return carrying(transforming, self._state.versioned, state.store is not None)

        node = ProcessorGraphNode(node_name, operator, lambda: state.store, stores, brought)
        return KTable(self._graph, self._graph.add(node, self._node), key, value, state)

    def group_by(
        self,
        selector: Callable[[K, V], tuple[KR, VR] | None],
        *,
        name: str | None = None,
        key: SerdeLike[KR] | None = None,
        value: SerdeLike[VR] | None = None,
    ) -> KGroupedTable[KR, VR]:
        """Group the rows by the key that `selector(key, value) -> (key, value)` returns. A row for which it returns
        None is in no group.

        `name`: the name of the node and of the repartition topic.
        """
        from milestones.common.topology.grouped import KGroupedTable  # which makes tables

        function_of(selector)
        node = self._add(
            "KTABLE-SELECT-", name,
            lambda: latest_only(TableRepartitionMap(selector), self._state.versioned, counted=False),
        )
        self._state.want_old_values(force=True)
        key_choice = check_serde(key, "key") or as_fallback(self._key)
        value_choice = check_serde(value, "value") or as_fallback(self._value)
        return KGroupedTable(self._graph, node, key_choice, value_choice, name)

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], VR],
        store: str | None = None,
        *,
        foreign_key: None = None,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, VR]: ...

    @overload
    def join(
        self,
        other: KTable[KR, VO],
        joiner: Callable[[V, VO], VR],
        store: str | None = None,
        *,
        foreign_key: Callable[[K, V], KR | None],
        partitioner: Partitioner | None = None,
        other_partitioner: Partitioner | None = None,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, VR]: ...

    def join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[[Any, Any], Any],
        store: str | None = None,
        *,
        foreign_key: Callable[[Any, Any], Any] | None = None,
        partitioner: Partitioner | None = None,
        other_partitioner: Partitioner | None = None,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, Any]:
        """Join the rows of equal keys: for each key that both tables have, the value is
        `joiner(value, other_value) -> value`. `store`: the result is kept in a store of this name.

        A change of either row makes a new result, whose timestamp is the later of the two rows'. Both topics need the
        same number of partitions, and a key must lie in the partition of the same number in both. Both tables are kept
        in stores.

        With `foreign_key`, the row of each key is joined with the row of the other table whose key
        `foreign_key(key, value) -> key` returns. Two internal topics connect the tables, so their numbers of partitions
        may differ. If a table's topic wasn't written with the default partitioner, the join needs the one that was
        used: `partitioner(topic, key, None, partitions)` returns the partition of a key of this table, and
        `other_partitioner` that of a key of the other table.
        """
        by = ForeignKey(foreign_key, False, partitioner, other_partitioner)
        return self._join(other, joiner, INNER, by, name, Materialized.of(store, **options))

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], VR],
        store: str | None = None,
        *,
        foreign_key: None = None,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, VR]: ...

    @overload
    def left_join(
        self,
        other: KTable[KR, VO],
        joiner: Callable[[V, VO | None], VR],
        store: str | None = None,
        *,
        foreign_key: Callable[[K, V], KR | None],
        partitioner: Partitioner | None = None,
        other_partitioner: Partitioner | None = None,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, VR]: ...

    def left_join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[[Any, Any], Any],
        store: str | None = None,
        *,
        foreign_key: Callable[[Any, Any], Any] | None = None,
        partitioner: Partitioner | None = None,
        other_partitioner: Partitioner | None = None,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, Any]:
        """Join as `join` does, but make a result for each key of this table. `other_value` is None if the other table
        hasn't the key, or if `foreign_key` returns None."""
        by = ForeignKey(foreign_key, True, partitioner, other_partitioner)
        return self._join(other, joiner, LEFT, by, name, Materialized.of(store, **options))

    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V | None, VO | None], VR],
        store: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable:
        """Join as `join` does, but make a result for each key of either table. A table that hasn't the key contributes
        None as its value."""
        check_no_foreign_key(self.name, options)
        return self._join(other, joiner, OUTER, ForeignKey(), name, Materialized.of(store, **options))

    def suppress(
        self,
        *,
        until: Until | None = None,
        after: Duration | None = None,
        max_records: int | None = None,
        max_bytes: int | None = None,
        when_full: WhenFull | None = None,
        name: str | None = None,
        logging: bool = True,
        in_memory: bool = False,
        changelog_config: Mapping[str, str] | None = None,
    ) -> KTable[K, V]:
        """Hold updates back in a buffer, which keeps only the last update of each key. Give one of `until` and `after`.

        `until="window_closes"`: the result of a window is sent once, when the window has closed. `after` (`timedelta`
        or ms): a key's last update is sent when the time of the records is `after` later than the first update that the
        buffer got for that key.

        `max_records`, `max_bytes`: the bounds of the buffer. `when_full`: the reaction when the buffer reaches a bound.
        `"emit"`, the default with `after`, sends the oldest updates early. `"stop"`, the default with `until`, stops
        the application with a `SuppressBufferFullError`. `name`: the name of the node. With `-store` after it, it is
        the name of the store. The other keywords are those of `StoreOptions`.
        """
        if self._state.versioned:
            raise TopologyError(
                f"{self.name} is versioned, of which every update counts: suppress() takes other tables; keep it in a "
                "store of its own first, without history="
            )
        choice = Suppression(
            until, after, max_records, max_bytes, when_full, name, logging, in_memory, changelog_config or {}
        )
        node_name, store = choice.named(self._graph)
        operator, spec = choice.operator(store, self._node), choice.spec(store, self._key, self._value)
        self._state.want_old_values(force=True)  # the row before the first update in the buffer is an old value
        state = TableState(spec, has_store=False, parent=self._state, rows=lambda parent: BufferGetter(store, parent))
        node = self._graph.add(ProcessorGraphNode(node_name, lambda: operator, lambda: spec), self._node)
        return KTable(self._graph, node, self._key, self._value, state)

    @overload
    def to_stream(self, mapper: None = None, *, name: str | None = None) -> KStream[K, V]: ...

    @overload
    def to_stream(self, mapper: Callable[[K, V], KR], *, name: str | None = None) -> KStream[KR, V]: ...

    def to_stream(
        self, mapper: Callable[[K, V], Any] | None = None, *, name: str | None = None
    ) -> KStream[Any, V]:
        """Make a stream of the table's updates. A deleted row has the value None. `mapper(key, value) -> key` chooses a
        new key."""
        from milestones.common.topology.stream import KStream  # streams and tables make each other

        node = self._add("KTABLE-TOSTREAM-", name, ToStream)
        stream: KStream[Any, V] = KStream(self._graph, node, self._key, self._value)
        return stream if mapper is None else stream.select_key(mapper)

    def _join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[..., Any],
        alone: Alone,
        by: ForeignKey,
        name: str | None,
        materialized: Materialized,
    ) -> KTable[K, Any]:
        # Both make tables.
        from milestones.common.topology.foreign_keys import join_by_foreign_key
        from milestones.common.topology.table_joins import join_tables

        if by.of_row is not None:
            return join_by_foreign_key(self, other, joiner, by, name, materialized)
        by.check_unused(self.name)
        return join_tables(self, other, joiner, alone, name, materialized)

    def _filter(
        self, predicate: Callable[[Any, Any], Any], negate: bool, name: str | None, materialized: Materialized
    ) -> KTable:
        function_of(predicate)
        table = self._derive(
            "KTABLE-FILTER-",
            name,
            materialized,
            materialized.value or self._value,
            lambda state: carrying(
                TableFilter(predicate, negate, state.store_name, state.send_old_values, self._state.versioned),
                self._state.versioned, state.store is not None,
            ),
            lambda parent: FilterGetter(parent, predicate, negate),
        )
        table._state.send_old_values = self._state.want_old_values(force=False)
        return table

    def _derive(
        self,
        prefix: str,
        name: str | None,
        materialized: Materialized,
        value: Choice,
        operator: Callable[[TableState], Operator],
        rows: Callable[[Getter], Getter],
    ) -> KTable:
        if materialized.given and materialized.store is None:
            self._graph.names.store(prefix)
        key = materialized.key or self._key
        spec: StoreSpec = materialized.spec(materialized.store or "", key, value)
        state = TableState(
            spec, has_store=materialized.store is not None, parent=self._state, rows=rows, chosen=materialized.given
        )
        node = self._add(prefix, name, lambda: operator(state), lambda: state.store)
        return KTable(self._graph, node, key, value, state)

    def _add(
        self, prefix: str, name: str | None, make: Callable[[], Operator],
        spec: Callable[[], StoreSpec | None] = lambda: None,
    ) -> GraphNode:
        return self._graph.add(ProcessorGraphNode(self._graph.names.given(name, prefix), make, spec), self._node)
