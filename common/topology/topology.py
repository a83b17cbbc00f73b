"""`Topology`: named nodes, topics and store specs, and their sub-topologies.

With the Processor API a program adds nodes itself, parents first. With the DSL, `StreamsBuilder.build()` adds them, and
the program may add more nodes to the result.

*Guarantees*: each call that adds a node or a store checks it. For a mistake it raises a `TopologyError` that says what
to do. `resolve` checks the topology as a whole and changes nothing, so threads may share a complete topology.
*Assumes*: one thread builds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from typing import Any

from milestones.common.errors import TopologyError
from milestones.common.patterns import matches
from milestones.common.serdes import Serde
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.kinds import KINDS, kind_of
from milestones.common.topology.connected_stores import stores_of
from milestones.common.topology.describe import TopologyDescription, describe
from milestones.common.topology.missing import Explained
from milestones.common.topology.nodes import (
    Node,
    OffsetReset,
    Partitioner,
    ProcessorNode,
    RepartitionTopic,
    SinkNode,
    SourceNode,
    SubTopology,
    TopicExtractor,
    check_reset,
)
from milestones.common.topology.processor import ProcessorOperator, check_supplier
from milestones.common.topology.program import Operator
from milestones.common.topology.read_only import keeping
from milestones.common.topology.resolve import group_nodes, resolve, resolve_global
from milestones.common.topology.serde_choice import check_serde
from milestones.common.topology.timestamps import TimestampExtractor
from milestones.common.topology.user_functions import check_functions
from milestones.common.typed_serdes import SerdeLike

__all__ = ["RepartitionTopic", "SubTopology", "Topology"]


class Topology(Explained):
    """Nodes and stores, in the order in which they were added.

    `optimization`: the parts of `topology_optimization` that the topology was made with. If `optimization` is None, the
    config may still name some parts.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._stores: dict[str, StoreSpec] = {}
        self._globals: dict[str, StoreSpec] = {}
        self._internal: dict[str, int | None] = {}
        self._copartitioned: list[frozenset[str]] = []
        self.optimization: frozenset[str] | None = None
        self._again: Callable[[frozenset[str]], Topology] | None = None
        self._as_built = 0

    # ---- for users of the Processor API

    def add_source(
        self,
        name: str,
        *topics: str | re.Pattern[str],
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
    ) -> Topology:
        """Add a source node that reads `topics`: names, or one pattern that must match a topic's whole name."""
        plain = tuple(topic for topic in topics if isinstance(topic, str))
        patterns = [topic.pattern for topic in topics if isinstance(topic, re.Pattern)]
        if len(plain) + len(patterns) != len(topics) or not topics or (patterns and len(topics) > 1):
            raise TopologyError(f"source {name} needs topic names, or one compiled pattern, not {topics!r}")
        return self.add_node(
            SourceNode(
                name=name,
                topics=plain,
                pattern=patterns[0] if patterns else None,
                key=check_serde(key, f"key of source {name}"),
                value=check_serde(value, f"value of source {name}"),
                timestamp_extractor=timestamp_extractor,
                offset_reset=check_reset(offset_reset, name),
            )
        )

    def add_processor(self, name: str, supplier: Callable[[], Any], *parents: str) -> Topology:
        """Add a processor node: each task runs one `Processor` on the records of `parents`. `supplier`: the processor's
        class, or a function that makes a new processor at each call. A supplier may bring stores of its own in its
        attribute `stores` (KIP-401)."""
        self.add_node(ProcessorNode(name, parents, ProcessorOperator(check_supplier(supplier, name))))
        for spec in stores_of(supplier, name):
            self.add_state_store(spec, name)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicExtractor,
        *parents: str,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        partitioner: Partitioner | None = None,
        upserts: bool = False,
    ) -> Topology:
        """Add a sink node that writes the records of `parents` to `topic`. `topic` may be a function, which chooses a
        topic for each record. `upserts`: as in `KStream.to`."""
        return self.add_node(
            SinkNode(
                name=name,
                parents=parents,
                topic=topic,
                key=check_serde(key, f"key of sink {name}"),
                value=check_serde(value, f"value of sink {name}"),
                partitioner=partitioner,
                upserts=upserts,
            )
        )

    def add_state_store(self, spec: StoreSpec, *processors: str) -> Topology:
        """Add a store and connect `processors` to it. The same `StoreSpec` object may be added several times. Another
        object with the same store name may not, even if it is equal: two parts of a program might write into one store
        by mistake."""
        if self._stores.get(spec.name, spec) is not spec or spec.name in self._globals:
            raise TopologyError(
                f"there are two stores named {spec.name}: give one another name. To share a store, add one StoreSpec "
                "and connect each of its processors to it"
            )
        self._stores[spec.name] = spec
        for processor in processors:
            self.connect_processor_and_state_stores(processor, spec.name)
        return self

    def add_read_only_state_store(
        self,
        spec: StoreSpec,
        topic: str,
        supplier: Callable[[], Any] | None = None,
        *,
        source: str | None = None,
        processor: str | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
    ) -> Topology:
        """Add a store whose rows are the latest records of `topic` (KIP-813). Processors that are connected to it may
        only read it.

        The topic serves as the store's changelog. No other changelog is written, and a restoration puts the topic's
        records into the store as they are. `supplier` makes a `Processor` that puts each record into the store. This
        processor must store the same rows as a restoration. A key-value store needs no supplier. The topic is read from
        its beginning, with the store's serdes. Each task reads one partition of it. `source`, `processor`: the names of
        the two nodes. By default they are the store's name with `-source` and with `-processor`.
        """
        source, processor = source or f"{spec.name}-source", processor or f"{spec.name}-processor"
        operator = keeping(spec) if supplier is None else ProcessorOperator(check_supplier(supplier, processor))
        self.add_node(
            SourceNode(
                name=source,
                topics=(topic,),
                key=check_serde(spec.key_serde, f"key of source {source}"),
                value=check_serde(spec.value_serde, f"value of source {source}"),
                timestamp_extractor=timestamp_extractor,
                offset_reset="earliest",
            )
        )
        self.add_node(ProcessorNode(processor, (source,), operator))
        return self.add_state_store(replace(spec, logged=False, source_topic=topic), processor)

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Let `processor` use `stores`. Processors that share a store are in the same sub-topology."""
        node = self._nodes.get(processor)
        if not isinstance(node, ProcessorNode):
            what = "isn't in the topology" if node is None else "is a source or a sink"
            raise TopologyError(f"stores {list(stores)} can't be connected to {processor}: it {what}")
        for store in stores:
            if store in self._globals:
                raise TopologyError(
                    f"processor {processor} is connected to the global store {store}, which every processor may read "
                    "without: leave the name out, and call get_state_store"
                )
            if store not in self._stores:
                own = f"; the table's own store is given as store={store!r}" if _makes_a_table(node.operator) else ""
                raise TopologyError(
                    f"processor {processor} wants the store {store}, which isn't in the topology: add_state_store "
                    f"first{own}"
                )
        self._nodes[processor] = replace(node, stores=tuple(dict.fromkeys((*node.stores, *stores))))
        return self

    def add_global_store(
        self,
        spec: StoreSpec,
        source: str,
        topic: str,
        processor: str,
        supplier: Callable[[], Any],
        *,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
    ) -> Topology:
        """Keep a store of all records of `topic` on every instance. The processor that `supplier` makes writes each
        record to the store. Any other processor may read the store by its name. The topic serves as the store's
        changelog. `source`, `processor`: the names of the two nodes."""
        named: object = topic
        if not isinstance(named, str) or not named:
            raise TopologyError(f"the global store {spec.name} needs the name of one topic, not {topic!r}")
        node = SourceNode(
            name=source,
            topics=(topic,),
            key=check_serde(key, f"key of source {source}"),
            value=check_serde(value, f"value of source {source}"),
            own_timestamps=True,
            global_store=spec.name,
        )
        operator = ProcessorOperator(check_supplier(supplier, processor))
        return self.add_global_nodes(spec, node, ProcessorNode(processor, (source,), operator))

    # ---- for the DSL

    def add_global_nodes(self, spec: StoreSpec, source: SourceNode, processor: ProcessorNode) -> Topology:
        """Add a global store with its two nodes."""
        if spec.name in self._stores or spec.name in self._globals:
            raise TopologyError(f"there are two stores named {spec.name}, one of them global: give one another name")
        if kind_of(spec).reader is None:
            possible = (kind for kind, its in KINDS.items() if its.reader is not None)
            raise TopologyError(
                f"the global store {spec.name} can't be of kind {spec.kind!r}: the kinds of global stores are "
                f"{', '.join(map(repr, possible))}"
            )
        self._globals[spec.name] = replace(spec, logged=False, cached=False, source_topic=source.topics[0])
        self.add_node(source)
        return self.add_node(replace(processor, stores=(spec.name,)))

    def rewritten(self, change: Callable[[ProcessorNode], tuple[Operator, tuple[StoreSpec, ...]]]) -> Topology:
        """Return a copy in which each processor node has the operator that `change` returns for it, and is connected to
        the stores that `change` returns."""
        made = copy(self)
        made._nodes, made._stores = dict(self._nodes), dict(self._stores)
        for node in self._nodes.values():
            if isinstance(node, ProcessorNode):
                operator, stores = change(node)
                if stores and not self._globals.keys().isdisjoint(node.stores):
                    raise TopologyError(f"{node.name} writes a global store, and has no other one: bring it none")
                made._nodes[node.name] = replace(node, operator=operator)
                for spec in stores:
                    made.add_state_store(spec, node.name)
        return made

    def add_node(self, node: Node) -> Topology:
        """Add a node. The node's parents must have been added before."""
        name: Any = node.name
        if not isinstance(name, str) or not name:
            raise TopologyError(f"a node's name must be a str with something in it, not {name!r}")
        if node.name in self._nodes:
            raise TopologyError(f"there are two nodes named {node.name}: give one another name")
        if isinstance(node, SourceNode):
            self._check_source(node)
        else:
            self._check_parents(node)
        if isinstance(node, SinkNode) and not ((isinstance(node.topic, str) and node.topic) or callable(node.topic)):
            raise TopologyError(f"sink {node.name} needs a topic's name, or a function that gives one")
        check_functions(node)
        self._nodes[node.name] = node
        return self

    def add_internal_topic(self, name: str, partitions: int | None) -> None:
        """Declare a repartition topic of this application. `name`: without the prefix of the application id."""
        self._internal[name] = partitions

    def copartition_sources(self, sources: Iterable[str]) -> None:
        """Require that the topics of these source nodes have equal partition counts."""
        self._copartitioned.append(frozenset(sources))

    def may_be_optimized(self, again: Callable[[frozenset[str]], Topology]) -> None:
        """Note that the function `again` can make this topology once more, in its present state, with optimisations."""
        self._again, self._as_built = again, self._size

    @property
    def _size(self) -> int:
        return len(self._nodes) + len(self._stores) + len(self._globals)

    def _check_source(self, node: SourceNode) -> None:
        others = [each for each in self._nodes.values() if isinstance(each, SourceNode)]
        taken = {topic: each for each in others for topic in each.topics}
        for topic in node.topics:
            if topic in taken:
                raise _read_twice(topic, node, taken[topic])
            for each in others:
                if each.pattern is not None and matches(each.pattern, topic):
                    raise _read_twice(topic, node, each)
        if node.pattern is not None:
            for topic, each in taken.items():
                if matches(node.pattern, topic):
                    raise _read_twice(topic, node, each)

    def _check_parents(self, node: ProcessorNode | SinkNode) -> None:
        if not node.parents:
            raise TopologyError(f"{node.name} has no parent, so no record would reach it: name at least one")
        for parent in node.parents:
            if parent == node.name:
                raise TopologyError(f"{node.name} is its own parent: a topology can't have cycles but through topics")
            if parent not in self._nodes:
                raise TopologyError(f"{node.name} has the parent {parent}, which isn't in the topology: add it first")
            if isinstance(self._nodes[parent], SinkNode):
                raise TopologyError(f"{node.name} has the parent {parent}, a sink: read its topic with a source")
            store = self._global_store(self._nodes[parent])
            if store is not None and self._global_store(node) != store:
                raise TopologyError(
                    f"{node.name} has the parent {parent}, which writes the global store {store} and sends no records "
                    "on: have it read that store instead"
                )

    def _global_store(self, node: Node) -> str | None:
        """Return the global store that the node belongs to. None if there is none."""
        if isinstance(node, SourceNode):
            return node.global_store
        stores = node.stores if isinstance(node, ProcessorNode) else ()
        return next((store for store in stores if store in self._globals), None)

    # ---- the finished topology

    def describe(self) -> TopologyDescription:
        """Describe the sub-topologies. `str()` of the result is Kafka Streams' text. The result's method `mermaid()`
        makes a chart."""
        return describe(dict(enumerate(group_nodes(self._nodes))))

    def optimized(self, parts: frozenset[str] | None) -> Topology:
        """Return this topology with the optimisations that the config names, or with none if `parts` is None. Raises
        `TopologyError` if the topology was made with other ones. A topology that was written node by node isn't
        changed."""
        if parts is None or parts == (self.optimization or frozenset()):
            return self
        wanted = ", ".join(sorted(parts)) or "none"
        if self.optimization is not None:
            raise TopologyError(
                f"the config has topology_optimization={wanted}, and the topology was made by "
                f"build(topology_optimization={', '.join(sorted(self.optimization)) or 'none'!r}): say it in one place"
            )
        if self._again is None:
            return self
        if self._size != self._as_built:
            raise TopologyError(
                f"topology_optimization={wanted} makes the StreamsBuilder's topology anew, and nodes or stores were "
                "added to it after build(): say build(topology_optimization=...), then add them"
            )
        return self._again(parts)

    def resolve(
        self,
        application_id: str,
        *,
        default_key_serde: Serde[Any] | None = None,
        default_value_serde: Serde[Any] | None = None,
    ) -> tuple[SubTopology, ...]:
        """Return the sub-topologies, with the full names of topics and the serdes that are used. Raises `TopologyError`
        if they can't run."""
        return resolve(
            application_id,
            nodes=self._nodes,
            stores=self._stores,
            internal=self._internal,
            copartitioned=self._copartitioned,
            defaults=(default_key_serde, default_value_serde),
        )

    def resolve_global(
        self, *, default_key_serde: Serde[Any] | None = None, default_value_serde: Serde[Any] | None = None
    ) -> SubTopology | None:
        """Return all global stores with their nodes. One thread of each instance runs these nodes. None if there are no
        global stores."""
        return resolve_global(self._nodes, self._globals, (default_key_serde, default_value_serde))


def _makes_a_table(operator: Operator) -> bool:
    """True if the node is one of `KTable.transform_values`."""
    from milestones.common.topology.operators.value_transformer import TableTransformValues  # which need the topology
    from milestones.common.topology.operators.versioned_tables import Carrying

    return isinstance(operator.operator if isinstance(operator, Carrying) else operator, TableTransformValues)


def _read_twice(topic: str, one: SourceNode, other: SourceNode) -> TopologyError:
    names = [node.name if node.pattern is None else f"{node.name} (pattern {node.pattern})" for node in (one, other)]
    way_out = "read it once and use the stream twice"
    stores = [node.global_store for node in (one, other) if node.global_store is not None]
    if stores:
        way_out = (
            f"it makes the global store {stores[0]}, whose topic nothing else may read; join with that store, or have "
            "a copy of the topic"
        )
    return TopologyError(f"topic {topic} is read by two sources, {' and '.join(names)}: {way_out}")
