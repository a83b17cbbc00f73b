"""The graph of a DSL program: operations, each of which writes one or more nodes.

The program is complete when the nodes are written. So decisions that depend on the whole program are made then: which
tables need their old values or a store, and which source is read twice.

*Guarantees*: building a topology doesn't change the graph, so the graph can be built several times. Nodes are written
in Kafka Streams' order: a node is written after all of its parents, and otherwise the operations are written in the
order in which they were added.
*Assumes*: one thread builds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from milestones.common.errors import TopologyError
from milestones.common.serdes import Serde
from milestones.common.state.spec import StoreSpec
from milestones.common.topology import naming
from milestones.common.topology.links import Links, Rewrite
from milestones.common.topology.nodes import Partitioner, ProcessorNode, SinkNode, SourceNode
from milestones.common.topology.operators.stateless import DropNullKeys, PassThrough
from milestones.common.topology.program import Operator
from milestones.common.topology.serde_choice import Choice
from milestones.common.topology.timestamps import TimestampExtractor
from milestones.common.topology.topology import Topology

N = TypeVar("N", bound="GraphNode")


@dataclass(eq=False)
class GraphNode:
    """One operation. `name`: the name of the node that is the parent of its children's nodes. `priority`: the
    operation's place in the order of writing. `looks_up`: the parents that are tables from which the operation only
    reads rows. `takes_null_keys`: repartition topics before the operation must not drop records without a key
    (KIP-962). `changes_keys`, `changes_values`, `merges`: how the operation changes the records of streams. `grace_ms`:
    for an aggregation by windows, how long after its end a window closes."""

    name: str
    parents: list[GraphNode] = field(default_factory=list, init=False)
    children: list[GraphNode] = field(default_factory=list, init=False)
    priority: int = field(default=-1, init=False)
    looks_up: tuple[GraphNode, ...] = field(default=(), init=False)
    takes_null_keys: bool = field(default=False, init=False)
    changes_keys: bool = field(default=False, init=False)
    changes_values: bool = field(default=False, init=False)
    merges: bool = field(default=False, init=False)
    grace_ms: int | None = field(default=None, init=False)

    @property
    def source_name(self) -> str | None:
        """The name of the operation's source node. None if it has none."""
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
    """A processor node. `make` makes its operator. `make` is called when the graph is written, as the needs of tables
    are known only then. `spec`, called at the same time, returns the spec of the node's own store, or None. `stores`:
    the names of other stores that the node uses. `brings`: stores that its user code brings with it."""

    make: Callable[[], Operator]
    spec: Callable[[], StoreSpec | None] = lambda: None
    stores: tuple[str, ...] = ()
    brings: tuple[StoreSpec, ...] = ()

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(ProcessorNode(self.name, parents, self.make()))
        own = self.spec()
        for spec in ((own,) if own is not None else ()) + self.brings:
            topology.add_state_store(spec, self.name)
        if self.stores:
            topology.connect_processor_and_state_stores(self.name, *self.stores)


@dataclass(eq=False)
class SideStream(GraphNode):
    """A stream of records that an operation sends in addition to its results."""

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(ProcessorNode(self.name, parents, PassThrough(), side=True))


@dataclass(eq=False)
class TableFromTopic(ProcessorGraphNode):
    """A source, and the table that is made of its records."""

    source: SourceNode = field(kw_only=True)

    @property
    def source_name(self) -> str | None:
        return self.source.name

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(self.source)
        super().write(topology, (self.source.name,))


@dataclass(eq=False)
class Repartition(GraphNode):
    """Sends records through an internal topic. `drop`: the name of the node before the topic that drops records without
    a key. For tables there is no such node. `movable`: an optimisation may move it. `null_keys`: records without a key
    aren't dropped."""

    topic: str
    sink: str
    source: str
    drop: str | None
    key: Choice
    value: Choice
    partitions: int | None = None
    partitioner: Partitioner | None = None
    movable: bool = False
    null_keys: bool = False

    @property
    def source_name(self) -> str | None:
        return self.source

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_internal_topic(self.topic, self.partitions)
        if self.drop is not None:
            operator = PassThrough() if self.null_keys else DropNullKeys()
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


@dataclass(eq=False)
class StoreFromTopic(GraphNode):
    """A source, and the store that its records are put into. `processor`: the name of the node that puts them there."""

    spec: StoreSpec
    topic: str
    processor: str
    supplier: Callable[[], Any] | None
    timestamp_extractor: TimestampExtractor | None

    @property
    def source_name(self) -> str | None:
        return self.name

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_read_only_state_store(
            self.spec, self.topic, self.supplier, source=self.name, processor=self.processor,
            timestamp_extractor=self.timestamp_extractor,
        )  # fmt: skip


class Graph:
    """The operations of one builder, and its counter of names."""

    def __init__(self) -> None:
        self.names: naming.Names = naming.Names()
        self.root: GraphNode = GraphNode("root")
        self.added: int = 0
        self._nodes: dict[GraphNode, None] = {self.root: None}
        self._copartitioned: list[frozenset[GraphNode]] = []

    def add(self, node: N, *parents: GraphNode) -> N:
        """Add `node` below `parents`, or below the root if there are none, and return it. A node that is added a second
        time moves to the end of the order."""
        for parent in parents or (self.root,):
            if node not in parent.children:
                parent.children.append(node)
                node.parents.append(parent)
            node.priority, self.added = self.added, self.added + 1
        self._nodes.setdefault(node)
        return node

    def repartition(
        self, prefix: str, key: Choice, value: Choice, partitions: int | None = None,
        partitioner: Partitioner | None = None, movable: bool = True,
    ) -> Repartition:
        """Make the operation for the topic `<prefix>-repartition`, without adding it."""
        return repartition_node(self.names, prefix, key, value, partitions, partitioner, movable)

    def copartition(self, *nodes: GraphNode) -> None:
        """Require that all topics whose records reach `nodes` have equal partition counts."""
        self._copartitioned.append(frozenset(source for node in nodes for source in _sources(node)))

    def build(self, rewrites: Iterable[Rewrite] = ()) -> Topology:
        """Apply these rewrites, and make a new `Topology` of all operations added so far."""
        links, names = Links(self._nodes), self.names.copy()
        _merge_sources(links, self.root)
        for rewrite in rewrites:
            rewrite(links, names)
        _let_null_keys_pass(links)
        topology = Topology()
        self._write(links, topology)
        for sources in self._copartitioned:
            found = (links.now(source).source_name for source in sources)
            topology.copartition_sources(name for name in found if name is not None)
        return topology

    def _write(self, links: Links, topology: Topology) -> None:
        written: set[GraphNode] = set()
        queue = [(links.priority[self.root], 0, self.root)]
        while queue:
            _, _, node = heapq.heappop(queue)
            if node in written or not written.issuperset(links.parents(node)):
                continue
            links.form(node).write(topology, tuple(parent.name for parent in links.sources_of(node)))
            written.add(node)
            for child in links.children(node):
                heapq.heappush(queue, (links.priority[child], id(child), child))


def repartition_node(
    names: naming.Names, prefix: str, key: Choice, value: Choice, partitions: int | None = None,
    partitioner: Partitioner | None = None, movable: bool = True,
) -> Repartition:
    """Make the operation for the topic `<prefix>-repartition`. As in Kafka Streams, three numbers are used up even if
    the generated names aren't needed."""
    topic = naming.repartition_topic(prefix)
    sink, drop, source = (names.processor(kind) for kind in (naming.SINK, naming.FILTER, naming.SOURCE))
    if not naming.is_generated(prefix):
        sink, drop, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
    return Repartition(source, topic, sink, source, drop, key, value, partitions, partitioner, movable)


def _sources(node: GraphNode) -> Iterator[GraphNode]:
    """Yield the nearest sources above `node`. If `node` is a source, yield `node` itself."""
    waiting, seen = [node], {node}
    while waiting:
        each = waiting.pop()
        if each.source_name is not None:
            yield each
            continue
        waiting += [parent for parent in each.parents if parent not in seen]
        seen.update(each.parents)


def _let_null_keys_pass(links: Links) -> None:
    """Make repartition topics pass records without a key, if an operation somewhere below takes such records."""
    for node in links.nodes:
        if isinstance(node, Repartition) and links.leads_to(node, lambda below: below.takes_null_keys):
            links.forms[node] = replace(node, null_keys=True)


def _merge_sources(links: Links, root: GraphNode) -> None:
    """Merge all sources of the same topics or pattern into the first of them, so that each topic is read once."""
    first: dict[str, StreamSource] = {}
    for node in links.children(root):
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
            for what, one, other in (("key", main.node.key, source.key), ("value", main.node.value, source.value)):
                if isinstance(one, Serde) and isinstance(other, Serde) and one.name != other.name:
                    raise TopologyError(
                        f"{key} is read by two streams with different serdes of its {what}, {one.name} and "
                        f"{other.name}, and a topic is read once: use one stream twice, or read bytes and deserialise"
                    )
            if node not in links.became:
                links.replace(node, main)
