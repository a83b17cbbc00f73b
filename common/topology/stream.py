"""`KStream`: a stream of records, and the operators on it. Names and semantics are Kafka Streams'.

Each operator adds a node to the builder's graph and returns a new stream. A stream may be used several times. `name=`
is the name of the operator's node. A new stream takes over the serdes of the stream before it, unless its operator may
change the type of keys or values.

*Guarantees*: a repartition topic is inserted only when an operator that may change keys comes before an operator that
needs equal keys in the same partition.
*Assumes*: one thread builds a topology.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TextIO, Unpack, overload

from milestones.common.errors import TopologyError
from milestones.common.serdes import Serde
from milestones.common.topology import naming
from milestones.common.topology.connected_stores import stores_of
from milestones.common.topology.global_tables import GlobalKTable, check_on, join_global_table
from milestones.common.topology.graph import Graph, GraphNode, ProcessorGraphNode, Repartition, Sink
from milestones.common.topology.grouped import KGroupedStream
from milestones.common.topology.joinable import JoinableStream
from milestones.common.topology.joins import StreamJoin, not_joinable
from milestones.common.topology.materialized import Materialized, StoreOptions
from milestones.common.topology.naming import check_name
from milestones.common.topology.nodes import Partitioner, SinkNode, TopicExtractor
from milestones.common.topology.operators import stateless
from milestones.common.topology.operators.stateless import Make
from milestones.common.topology.operators.tables import TableSource
from milestones.common.topology.processor import (
    FixedKeyProcessor,
    FixedKeyProcessorOperator,
    Processor,
    ProcessorOperator,
    check_supplier,
)
from milestones.common.topology.program import Operator
from milestones.common.topology.serde_choice import Choice, as_fallback, check_serde
from milestones.common.topology.split import BranchedKStream
from milestones.common.topology.stream_joins import join_streams
from milestones.common.topology.table import KTable
from milestones.common.topology.table_joins import join_table
from milestones.common.topology.table_state import TableState
from milestones.common.topology.user_functions import function_of
from milestones.common.type_variables import KR, VR, K, V
from milestones.common.typed_serdes import SerdeLike


class KStream(JoinableStream[K, V]):
    """A stream of records with keys of type `K` and values of type `V`. `StreamsBuilder.stream` and the operators make
    streams. A program doesn't call this class."""

    name: str

    def __init__(self, graph: Graph, node: GraphNode, key: Choice, value: Choice, rekeyed: bool = False) -> None:
        self._graph, self._node, self.name = graph, node, node.name
        self._key, self._value, self._rekeyed = key, value, rekeyed
        self._join_topic: Repartition | None = None

    # ---- one record at a time

    def filter(self, predicate: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Keep the records for which `predicate(key, value)` holds."""
        return self._then("KSTREAM-FILTER-", stateless.filter_, predicate, name)

    def filter_not(self, predicate: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Drop the records for which `predicate(key, value)` holds."""
        return self._then("KSTREAM-FILTER-", stateless.filter_not, predicate, name)

    def map(self, mapper: Callable[[K, V], tuple[KR, VR]], *, name: str | None = None) -> KStream[KR, VR]:
        """Replace each record by `mapper(key, value) -> (key, value)`."""
        return self._then("KSTREAM-MAP-", stateless.map_, mapper, name, rekey=True, revalue=True)

    @overload
    def map_values(
        self, mapper: Callable[[V], VR], *, with_key: Literal[False] = False, name: str | None = None
    ) -> KStream[K, VR]: ...

    @overload
    def map_values(
        self, mapper: Callable[[K, V], VR], *, with_key: Literal[True], name: str | None = None
    ) -> KStream[K, VR]: ...

    def map_values(
        self, mapper: Callable[..., Any], *, with_key: bool = False, name: str | None = None
    ) -> KStream[K, Any]:
        """Replace each value by `mapper(value) -> value`. With `with_key=True` the call is `mapper(key, value)`."""
        make: Make = stateless.map_values_with_key if with_key else stateless.map_values
        return self._then("KSTREAM-MAPVALUES-", make, mapper, name, revalue=True)

    def flat_map(
        self, mapper: Callable[[K, V], Iterable[tuple[KR, VR]]], *, name: str | None = None
    ) -> KStream[KR, VR]:
        """Replace each record by all records that `mapper(key, value) -> [(key, value), ...]` returns, or by none."""
        return self._then("KSTREAM-FLATMAP-", stateless.flat_map, mapper, name, rekey=True, revalue=True)

    @overload
    def flat_map_values(
        self, mapper: Callable[[V], Iterable[VR]], *, with_key: Literal[False] = False, name: str | None = None
    ) -> KStream[K, VR]: ...

    @overload
    def flat_map_values(
        self, mapper: Callable[[K, V], Iterable[VR]], *, with_key: Literal[True], name: str | None = None
    ) -> KStream[K, VR]: ...

    def flat_map_values(
        self, mapper: Callable[..., Iterable[Any]], *, with_key: bool = False, name: str | None = None
    ) -> KStream[K, Any]:
        """Replace each value by all values that `mapper(value) -> [value, ...]` returns, or by none. With
        `with_key=True` the call is `mapper(key, value)`."""
        make: Make = stateless.flat_map_values_with_key if with_key else stateless.flat_map_values
        return self._then("KSTREAM-FLATMAPVALUES-", make, mapper, name, revalue=True)

    def select_key(self, mapper: Callable[[K, V], KR], *, name: str | None = None) -> KStream[KR, V]:
        """Replace each key by `mapper(key, value) -> key`."""
        return self._then("KSTREAM-KEY-SELECT-", stateless.select_key, mapper, name, rekey=True)

    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Call `action(key, value)` for each record, and pass the record on unchanged."""
        return self._then("KSTREAM-PEEK-", stateless.peek, action, name)

    def for_each(self, action: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Call `action(key, value)` for each record. The stream ends here."""
        self._then("KSTREAM-FOREACH-", stateless.for_each, action, name)

    def print(
        self,
        label: str | None = None,
        *,
        file: TextIO | None = None,
        mapper: Callable[[K, V], str] | None = None,
        name: str | None = None,
    ) -> None:
        """Print `[label]: key, value` for each record, by default to standard output. The stream ends here."""
        self._add("KSTREAM-PRINTER-", stateless.Print(label or self.name, file, mapper), name)

    def process(
        self, supplier: Callable[[], Processor[K, V, KR, VR]], *stores: str, name: str | None = None
    ) -> KStream[KR, VR]:
        """Run one `Processor` in each task. The processor may use the stores that `stores` names, and may forward
        records with other keys and values. `supplier`: the processor's class, or a function that makes a new processor
        at each call. While the topology is built, such a function is called twice as a check. A supplier may bring
        stores of its own in its attribute `stores`: `StoreSpec`s, or a method that returns them (KIP-401)."""
        node = self._processor("KSTREAM-PROCESSOR-", ProcessorOperator, supplier, stores, name)
        node.changes_keys = node.changes_values = True
        return KStream(self._graph, node, as_fallback(self._key), as_fallback(self._value), True)

    def process_values(
        self, supplier: Callable[[], FixedKeyProcessor[K, V, VR]], *stores: str, name: str | None = None
    ) -> KStream[K, VR]:
        """Run one `FixedKeyProcessor` in each task. The processor may use the stores that `stores` names. It can't
        change keys. `supplier`: as in `process`."""
        node = self._processor("KSTREAM-PROCESSVALUES-", FixedKeyProcessorOperator, supplier, stores, name)
        node.changes_values = True
        return KStream(self._graph, node, self._key, as_fallback(self._value), self._rekeyed)

    # ---- several streams

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Split the stream into branches (KIP-418). Each record goes to the first branch whose predicate is true."""
        return BranchedKStream(
            self._graph, self._node, name,
            lambda node: KStream(self._graph, node, self._key, self._value, self._rekeyed),
        )  # fmt: skip

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Make a stream of the records of both streams. The order between records of different streams isn't
        defined."""
        given: object = other
        if not isinstance(given, KStream) or given._graph is not self._graph:
            hint = "; of a table, to_stream() makes one" if hasattr(other, "to_stream") else ""
            raise TopologyError(f"merge needs another stream of the same StreamsBuilder, not {other!r}{hint}")
        node = ProcessorGraphNode(self._graph.names.given(name, "KSTREAM-MERGE-"), stateless.PassThrough)
        node.merges = True
        return KStream(
            self._graph,
            self._graph.add(node, self._node, other._node),
            self._key if self._key == other._key else None,
            self._value if self._value == other._value else None,
            self._rekeyed or other._rekeyed,
        )

    # ---- by key

    def repartition(
        self,
        *,
        name: str | None = None,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
    ) -> KStream[K, V]:
        """Write all records to the internal topic `<application_id>-<name>-repartition`, and read them from there.
        `partitions`: the topic's number of partitions. By default it is that of the source with most partitions."""
        if partitions is not None and partitions < 1:
            raise TopologyError(f"repartition needs at least one partition, not {partitions}")
        prefix = self._graph.names.processor("KSTREAM-REPARTITION-") if name is None else check_name(name, "a topic")
        key_choice, value_choice = check_serde(key, "key") or self._key, check_serde(value, "value") or self._value
        node = self._graph.repartition(prefix, key_choice, value_choice, partitions, partitioner, movable=False)
        return KStream(self._graph, self._graph.add(node, self._node), key_choice, value_choice)

    def group_by_key(
        self, *, name: str | None = None, key: SerdeLike[K] | None = None, value: SerdeLike[V] | None = None
    ) -> KGroupedStream[K, V]:
        """Group the records by the key that they have. `name`: the name of the repartition topic, if one is needed."""
        return self._group(self._node, name, check_serde(key, "key") or self._key, value, self._rekeyed)

    def group_by(
        self,
        selector: Callable[[K, V], KR],
        *,
        name: str | None = None,
        key: SerdeLike[KR] | None = None,
        value: SerdeLike[V] | None = None,
    ) -> KGroupedStream[KR, V]:
        """Group by the new key that `selector(key, value)` returns. `name`: the name of the node and of the repartition
        topic."""
        operator = stateless.Stateless(stateless.select_key, function_of(selector))
        node = self._add("KSTREAM-KEY-SELECT-", operator, name)
        node.changes_keys = True
        return self._group(node, name, check_serde(key, "key") or as_fallback(self._key), value, True)

    def to_table(
        self, store: str | None = None, *, name: str | None = None, **options: Unpack[StoreOptions]
    ) -> KTable[K, V]:
        """Make a table of the latest value of each key. A value of None deletes the key's row."""
        materialized, names = Materialized.of(store, **options), self._graph.names
        table_name = names.given(name, "KSTREAM-TOTABLE-")
        store_name = store or names.store("KSTREAM-TOTABLE-")
        key, value = materialized.key or self._key, materialized.value or self._value
        parent = self._node
        if self._rekeyed:
            parent = self._graph.add(self._graph.repartition(table_name, key, value), parent)
        state = TableState(materialized.spec(store_name, key, value), has_store=store is not None)
        node = ProcessorGraphNode(
            table_name, lambda: TableSource(state.store_name, state.send_old_values), spec=lambda: state.store
        )
        return KTable(self._graph, self._graph.add(node, parent), key, value, state)

    def to(
        self,
        topic: str | TopicExtractor,
        *,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        partitioner: Partitioner | None = None,
        upserts: bool = False,
        name: str | None = None,
    ) -> None:
        """Write all records to `topic`, or to the topic that `topic(key, value, record)` returns.

        Without a `partitioner`, the murmur2 hash of the key chooses the partition, as in Java's producer. For a
        windowed key it is the hash of the key without its window. `upserts=True` says that the topic is read as a
        table: a record replaces the earlier records of its key. Then, from stage m5 on, each commit sends only the last
        record of each key. Earlier stages send all records, which leads to the same table. On every stage, a record
        without a key is then an error, like a record that the serde refuses."""
        node = SinkNode(
            name=self._graph.names.given(name, naming.SINK),
            parents=(),
            topic=topic,
            key=check_serde(key, "key") or self._key,
            value=check_serde(value, "value") or self._value,
            partitioner=partitioner,
            by_inner_key=True,
            upserts=upserts,
        )
        if not callable(topic):
            check_name(topic, "a topic")
        self._graph.add(Sink(node.name, node), self._node)

    # ---- how

    def _then(
        self, prefix: str, make: Make, function: Any, name: str | None, rekey: bool = False, revalue: bool = False
    ) -> KStream:
        node = self._add(prefix, stateless.Stateless(make, function_of(function)), name)
        node.changes_keys, node.changes_values = rekey, revalue
        key = as_fallback(self._key) if rekey else self._key
        value = as_fallback(self._value) if revalue else self._value
        return KStream(self._graph, node, key, value, rekey or self._rekeyed)

    def _add(self, prefix: str, operator: Operator, name: str | None) -> GraphNode:
        return self._graph.add(ProcessorGraphNode(self._graph.names.given(name, prefix), lambda: operator), self._node)

    def _join(self, other: object, join: StreamJoin) -> KStream[K, Any]:
        for kind, add in _JOINS.items():
            if isinstance(other, kind):
                check_on(self, other, join)
                node, key = add(self, other, join)
                rekeyed = self._rekeyed and kind is GlobalKTable
                return KStream(self._graph, node, key, as_fallback(self._value), rekeyed)
        raise not_joinable(self, other, "a KTable, a GlobalKTable or another KStream")

    def _by_key(self, topic: str | None, key: Serde[Any] | None, value: Serde[Any] | None) -> KStream:
        """Return this stream. If its keys may have changed, return the stream that is read from a repartition topic.
        All joins that don't name the topic share one topic."""
        if not self._rekeyed:
            return self
        key_choice, value_choice = key or self._key, value or self._value
        node = self._graph.repartition(self.name if topic is None else topic, key_choice, value_choice)
        if self._join_topic is None or topic is not None:
            self._join_topic = self._graph.add(node, self._node)
        return KStream(self._graph, self._join_topic, key_choice, value_choice)

    def _processor(
        self, prefix: str, kind: Callable[[Any], Operator], supplier: Any, stores: tuple[str, ...], name: str | None
    ) -> GraphNode:
        name = self._graph.names.processor(prefix) if name is None else check_name(name, "a processor")
        operator = kind(check_supplier(supplier, name))
        node = ProcessorGraphNode(name, lambda: operator, stores=stores, brings=stores_of(supplier, name))
        return self._graph.add(node, self._node)

    def _group(
        self, node: GraphNode, name: str | None, key: Choice, value: object, rekeyed: bool
    ) -> KGroupedStream:
        topic = None if name is None else check_name(name, "a repartition topic")
        choice = check_serde(value, "value") or self._value
        return KGroupedStream(self._graph, node, key, choice, rekeyed, topic)


_JOINS: Final[Mapping[type, Callable[[KStream, Any, StreamJoin], tuple[GraphNode, Choice]]]] = {
    KStream: join_streams,
    KTable: join_table,
    GlobalKTable: join_global_table,
}
"""The function that adds the nodes of a join, by the class of the other side. Such a function returns the last node and
the serde of that node's keys."""
