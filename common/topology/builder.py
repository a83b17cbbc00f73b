"""`StreamsBuilder`: where a program of the DSL begins.

*Guarantees*: each call of `build()` returns a new `Topology` of all operators that were added before the call.
*Assumes*: one thread uses the builder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, Unpack

from milestones.common.errors import TopologyError
from milestones.common.state.spec import StoreSpec
from milestones.common.topology import naming
from milestones.common.topology.global_tables import GlobalKTable, GlobalStoreNode
from milestones.common.topology.graph import Graph, Store, StoreFromTopic, StreamSource, TableFromTopic
from milestones.common.topology.java_order import hash_order
from milestones.common.topology.materialized import KeepOptions, Materialized
from milestones.common.topology.missing import Explained
from milestones.common.topology.naming import check_name
from milestones.common.topology.nodes import OffsetReset, SourceNode, check_reset
from milestones.common.topology.operators.tables import TableSource
from milestones.common.topology.optimization import check_parts, rewrites_of
from milestones.common.topology.processor import ProcessorOperator, check_supplier
from milestones.common.topology.serde_choice import Choice, check_serde
from milestones.common.topology.stream import KStream
from milestones.common.topology.table import KTable
from milestones.common.topology.table_state import TableState
from milestones.common.topology.timestamps import TimestampExtractor
from milestones.common.topology.topology import Topology
from milestones.common.type_variables import K, V
from milestones.common.typed_serdes import SerdeLike

_TABLE_SOURCE = "KTABLE-SOURCE-"


class StreamsBuilder(Explained):
    """Collects streams and tables. `build()` makes a topology from them."""

    def __init__(self) -> None:
        self._graph = Graph()

    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Make a stream of the records of one topic, of several topics, or of all topics that a compiled pattern
        matches. A pattern must match the whole name of a topic."""
        (names, pattern), source_name = _topics(topics), self._graph.names.given(name, naming.SOURCE)
        source = SourceNode(
            name=source_name,
            topics=names,
            pattern=pattern,
            key=check_serde(key, "key"),
            value=check_serde(value, "value"),
            timestamp_extractor=timestamp_extractor,
            offset_reset=check_reset(offset_reset, source_name),
        )
        node = self._graph.add(StreamSource(source.name, source))
        return KStream(self._graph, node, source.key, source.value)

    def table(
        self,
        topic: str,
        store: str | None = None,
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
        **options: Unpack[KeepOptions],
    ) -> KTable[K, V]:
        """Make a table of the latest value of each key of `topic`. A value of None deletes the key's row. Records
        without a key are dropped.

        `store`: the table is kept in a store of this name. Without a name, the table is kept only if an operator needs
        a store.
        """
        materialized, names = Materialized.of(store, key=key, value=value, **options), self._graph.names
        store_name = store or names.store(check_name(topic, "a topic") + "-")
        source_name = names.given(name, naming.SOURCE, "-source")
        source = SourceNode(
            name=source_name,
            topics=(check_name(topic, "a topic"),),
            key=materialized.key,
            value=materialized.value,
            timestamp_extractor=timestamp_extractor,
            offset_reset=check_reset(offset_reset, source_name),
        )
        spec = materialized.spec(store_name, materialized.key, materialized.value)
        state = TableState(spec, has_store=store is not None)
        node = TableFromTopic(
            names.given(name, _TABLE_SOURCE),
            lambda: TableSource(state.store_name, state.send_old_values),
            spec=lambda: state.store,
            source=source,
        )
        return KTable(self._graph, self._graph.add(node), materialized.key, materialized.value, state)

    def global_table(
        self,
        topic: str,
        store: str | None = None,
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        in_memory: bool = False,
        name: str | None = None,
    ) -> GlobalKTable[K, V]:
        """Make a table of the latest value of each key of `topic`. Every instance keeps all rows of the table, so a
        stream can be joined with it by any key (`stream.join(table, joiner, on=...)`). A value of None deletes the
        key's row. Records without a key are dropped.

        Before any task starts, the instance reads the whole topic. From then on it reads new records as they come. The
        table needs no changelog. No other source of the topology may read the topic. A join takes the row that the
        table has when the record is processed, whatever the record's time is. So after a failure the same record may be
        joined with a newer row. `store`: the name of the table's store. `in_memory=True`: the store is kept in memory,
        not in RocksDB.
        """
        materialized = Materialized.of(store, key=key, value=value, in_memory=in_memory)
        names = self._graph.names
        store_name = store or names.store(check_name(topic, "a topic") + "-")
        source = self._global_source(topic, store_name, name, materialized.key, materialized.value)
        node = GlobalStoreNode(
            names.given(name, _TABLE_SOURCE), source,
            materialized.spec(store_name, materialized.key, materialized.value), TableSource(store_name),
        )  # fmt: skip
        return GlobalKTable(self._graph, self._graph.add(node), store_name, named=store is not None)

    def add_global_store(
        self,
        spec: StoreSpec,
        topic: str,
        supplier: Callable[[], Any],
        *,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Keep a store of all records of `topic` on every instance. The `Processor` that `supplier` makes writes each
        record to the store. Any other processor may read the store by its name, without being connected to it. `key`,
        `value`: the serdes of the topic. The store's own serdes are those of `spec`."""
        check_name(spec.name, "a store")
        source = self._global_source(topic, spec.name, name, check_serde(key, "key"), check_serde(value, "value"))
        processor = self._graph.names.given(name, _TABLE_SOURCE)
        operator = ProcessorOperator(check_supplier(supplier, processor))
        self._graph.add(GlobalStoreNode(processor, source, spec, operator))
        return self

    def _global_source(
        self, topic: str, store: str, name: str | None, key: Choice, value: Choice
    ) -> SourceNode:
        return SourceNode(
            name=self._graph.names.given(name, naming.SOURCE, "-source"),
            topics=(check_name(topic, "a topic"),),
            key=key,
            value=value,
            own_timestamps=True,
            global_store=store,
        )

    def add_state_store(self, spec: StoreSpec) -> StreamsBuilder:
        """Add a store. A call of `process` or `process_values` that names it connects its processor to the store."""
        check_name(spec.name, "a store")
        self._graph.add(Store(spec.name, spec))
        return self

    def add_read_only_state_store(
        self,
        spec: StoreSpec,
        topic: str,
        supplier: Callable[[], Any] | None = None,
        *,
        timestamp_extractor: TimestampExtractor | None = None,
    ) -> StreamsBuilder:
        """Add a store whose rows are the latest records of `topic` (KIP-813), as `Topology.add_read_only_state_store`
        does. Processors of `process` and `process_values` that name the store can read it, but not write to it."""
        name = check_name(spec.name, "a store")
        node = StoreFromTopic(
            f"{name}-source", spec, check_name(topic, "a topic"), f"{name}-processor", supplier, timestamp_extractor
        )
        self._graph.add(node)
        return self

    def build(self, *, topology_optimization: str | Collection[str] | None = None) -> Topology:
        """Make the topology of all streams and tables that were added before this call.

        `topology_optimization`: the value of the config key of the same name, for a program that needs the optimised
        topology before there is a config, such as for `describe()`. Without this argument, `Streams` and
        `TopologyTestDriver` apply the config's value. By default nothing is optimised. If both are given and differ,
        `Streams` and `TopologyTestDriver` raise `TopologyError`.
        """
        graph, added = self._graph, self._graph.added
        if topology_optimization is not None:
            return _built(graph, check_parts(topology_optimization))

        def again(parts: frozenset[str]) -> Topology:
            if graph.added != added:
                raise TopologyError(
                    f"topology_optimization={', '.join(sorted(parts))} is applied to the whole program, and the "
                    "StreamsBuilder has got more operators since build(): call build() last"
                )
            return _built(graph, parts)

        topology = graph.build()
        topology.may_be_optimized(again)
        return topology


def _built(graph: Graph, parts: frozenset[str]) -> Topology:
    topology = graph.build(rewrites_of(parts))
    topology.optimization = parts
    return topology


def _topics(topics: Any) -> tuple[tuple[str, ...], str | None]:
    if isinstance(topics, re.Pattern):
        return (), topics.pattern
    if not isinstance(topics, str | Iterable):
        raise TopologyError(f"a stream needs the name of a topic, several, or a compiled pattern, not {topics!r}")
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise TopologyError("a stream needs at least one topic")
    return tuple(hash_order((check_name(name, "a topic") for name in names), copied=True)), None
