"""The graph of a DSL program: operations, each of which writes one or more nodes.

Between the two there is time to decide what only the whole program tells: which tables need their old values or a
store, which source is read twice.

*Guarantees*: building doesn't change the graph, so that it can be built again. Nodes are written in Kafka Streams'
order: each as soon as its parents are, by the order in which the operations were added.
*Assumes*: one thread builds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from milestones.common.errors import TopologyError
from milestones.common.state.spec import StoreSpec
from milestones.common.topology import naming
from milestones.common.topology.nodes import Partitioner, ProcessorNode, SinkNode, SourceNode
from milestones.common.topology.operators import DropNullKeys, PassThrough
from milestones.common.topology.program import Operator
from milestones.common.topology.serde_choice import Choice
from milestones.common.topology.topology import Topology

N = TypeVar("N", bound="GraphNode")


@dataclass(eq=False)
class GraphNode:
    """One operation. `name`: the node that its children have as parent. `priority`: the place in the order.
    `looks_up`: the parents that are tables whose rows it only reads. `takes_null_keys`: records without a key may come
    to it through repartition topics, too (KIP-962). `grace_ms`: of an aggregation by windows, how long after its end
    a window closes."""

    name: str
    parents: list[GraphNode] = field(default_factory=list, init=False)
    children: list[GraphNode] = field(default_factory=list, init=False)
    priority: int = field(default=-1, init=False)
    looks_up: tuple[GraphNode, ...] = field(default=(), init=False)
    takes_null_keys: bool = field(default=False, init=False)
    grace_ms: int | None = field(default=None, init=False)

    @property
    def source_name(self) -> str | None:
        """The name of the source node that this operation begins with, None for others."""
        return None

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        """Add this operation's nodes to `topology`."""


@dataclass(eq=False)
class StreamSource(GraphNode):
    node: SourceNode

    @property
    def source_name(self) -> str | None:
        return self.name

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(self.node)


@dataclass(eq=False)
class ProcessorGraphNode(GraphNode):
    """A processor node. `make` is called when the graph is written, when the needs of tables are known. `spec`: the
    node's own store, if it has one by then; `stores`: the names of others."""

    make: Callable[[], Operator]
    spec: Callable[[], StoreSpec | None] = lambda: None
    stores: tuple[str, ...] = ()

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(ProcessorNode(self.name, parents, self.make()))
        own = self.spec()
        if own is not None:
            topology.add_state_store(own, self.name)
        if self.stores:
            topology.connect_processor_and_state_stores(self.name, *self.stores)


@dataclass(eq=False)
class TableFromTopic(ProcessorGraphNode):
    """A source and the table made of it."""

    source: SourceNode = field(kw_only=True)

    @property
    def source_name(self) -> str | None:
        return self.source.name

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(self.source)
        super().write(topology, (self.source.name,))


@dataclass(eq=False)
class Repartition(GraphNode):
    """A way through an internal topic. `drop`: the node before it that drops null keys; tables have none."""

    topic: str
    sink: str
    source: str
    drop: str | None
    key: Choice
    value: Choice
    partitions: int | None = None
    partitioner: Partitioner | None = None

    @property
    def source_name(self) -> str | None:
        return self.source

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_internal_topic(self.topic, self.partitions)
        if self.drop is not None:
            operator = PassThrough() if _leads_to_null_keys(self) else DropNullKeys()
            topology.add_node(ProcessorNode(self.drop, parents, operator))
            parents = (self.drop,)
        topology.add_node(SinkNode(self.sink, parents, self.topic, self.key, self.value, self.partitioner))
        topology.add_node(SourceNode(self.source, (self.topic,), key=self.key, value=self.value, own_timestamps=True))


@dataclass(eq=False)
class Sink(GraphNode):
    node: SinkNode

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(replace(self.node, parents=parents))


@dataclass(eq=False)
class Store(GraphNode):
    spec: StoreSpec

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_state_store(self.spec)


class Graph:
    """The operations of one builder, and its counter of names."""

    def __init__(self) -> None:
        self.names: naming.Names = naming.Names()
        self.root: GraphNode = GraphNode("root")
        self._added = 0
        self._copartitioned: list[frozenset[GraphNode]] = []

    def add(self, node: N, *parents: GraphNode) -> N:
        """Add `node` below `parents` (none: the root), and return it. A node that is added again moves back in the
        order."""
        for parent in parents or (self.root,):
            if node not in parent.children:
                parent.children.append(node)
                node.parents.append(parent)
            node.priority, self._added = self._added, self._added + 1
        return node

    def repartition(
        self, prefix: str, key: Choice, value: Choice, partitions: int | None = None,
        partitioner: Partitioner | None = None,
    ) -> Repartition:
        """The operation for the topic `<prefix>-repartition`, not yet added. As in Kafka Streams three numbers are used
        up, whether the names are used or not."""
        topic = naming.repartition_topic(prefix)
        sink, drop, source = (self.names.processor(kind) for kind in (naming.SINK, naming.FILTER, naming.SOURCE))
        if not naming.is_generated(prefix):
            sink, drop, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
        return Repartition(source, topic, sink, source, drop, key, value, partitions, partitioner)

    def copartition(self, *nodes: GraphNode) -> None:
        """Require equal partition counts of all topics whose records reach `nodes`."""
        self._copartitioned.append(frozenset(source for node in nodes for source in _sources(node)))

    def build(self) -> Topology:
        """A new `Topology` of all that was added so far."""
        topology = Topology()
        merged = _merge_sources(self.root.children)
        written: set[GraphNode] = set()
        queue = [(self.root.priority, 0, self.root)]
        while queue:
            _, _, node = heapq.heappop(queue)
            parents = [parent for parent in node.parents if parent not in merged]
            parents += [merged[parent] for parent in node.parents if parent in merged]
            if node in written or not written.issuperset(parents):
                continue
            above = (parent.name for parent in parents if parent not in node.looks_up)
            node.write(topology, tuple(dict.fromkeys(above)))
            written.add(node)
            twins = [twin for twin, main in merged.items() if main is node]
            for child in (child for each in (node, *twins) for child in each.children if child not in merged):
                heapq.heappush(queue, (child.priority, id(child), child))
        for sources in self._copartitioned:
            names = (merged.get(source, source).source_name for source in sources)
            topology.copartition_sources(name for name in names if name is not None)
        return topology


def _sources(node: GraphNode) -> Iterator[GraphNode]:
    """The nearest sources above `node`, itself included."""
    waiting, seen = [node], {node}
    while waiting:
        each = waiting.pop()
        if each.source_name is not None:
            yield each
            continue
        waiting += [parent for parent in each.parents if parent not in seen]
        seen.update(each.parents)


def _leads_to_null_keys(node: GraphNode) -> bool:
    """Whether anything below `node`, however far, takes records without a key."""
    waiting, seen = [node], {node}
    while waiting:
        each = waiting.pop()
        below = [child for child in each.children if each not in child.looks_up]
        if any(child.takes_null_keys for child in below):
            return True
        waiting += [child for child in below if child not in seen]
        seen.update(below)
    return False


def _merge_sources(nodes: Iterable[GraphNode]) -> dict[GraphNode, GraphNode]:
    """The first source of the same topics or pattern, by each further one: these are read once."""
    first: dict[str, StreamSource] = {}
    merged: dict[GraphNode, GraphNode] = {}
    for node in nodes:
        if not isinstance(node, StreamSource):
            continue
        source = node.node
        keys = [f"pattern {source.pattern}"] if source.pattern is not None else source.topics
        for key in keys:
            main = first.setdefault(key, node)
            if main is node:
                continue
            if set(main.node.topics) != set(source.topics):
                raise TopologyError(
                    f"topic {key} is read by two streams, one of {list(main.node.topics)} and one of "
                    f"{list(source.topics)}: read equal sets of topics, or each topic by a stream of its own and merge"
                )
            if main.node.offset_reset != source.offset_reset:
                raise TopologyError(
                    f"{key} is read by two streams with different offset_reset: give both {source.offset_reset!r} "
                    f"or both {main.node.offset_reset!r}"
                )
            merged[node] = main
    return merged
