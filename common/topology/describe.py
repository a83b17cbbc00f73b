"""Describes a topology as text: as Kafka Streams prints it, and as a Mermaid flow chart.

*Guarantees*: `str()` is exactly the text of `Topology.describe().toString()` of Kafka Streams 4.3 for the same
topology. One exception: if a function chooses the topic, Java prints an object's address. The text of a sink doesn't
show `upserts`.
*Assumes*: parents come before their children.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from milestones.common.topology.java_order import TreeSet, hash_order
from milestones.common.topology.nodes import Node, ProcessorNode, SourceNode, TopicExtractor, function_name
from milestones.common.topology.resolve import is_global


@dataclass(frozen=True)
class NodeDescription:
    """One node. `predecessors`, `successors`: the names of its neighbours, in the order of the text. `topics`: the
    topics that a source reads by name, or the topic that a sink writes to. `pattern`: the pattern of a source that has
    one. `topic_extractor`: the function that chooses the topics of a sink. `stores`: the stores that a processor is
    connected to. `upserts`: True for a sink with `upserts=True`."""

    name: str
    kind: Literal["Source", "Processor", "Sink"]
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    topic_extractor: TopicExtractor | None = None
    stores: tuple[str, ...] = ()
    upserts: bool = False

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.name} ({self._label()})"]
        if self.kind != "Sink":
            lines.append(f"      --> {', '.join(self.successors) or 'none'}")
        if self.kind != "Source":
            lines.append(f"      <-- {', '.join(self.predecessors) or 'none'}")
        return "\n".join(lines)

    def _label(self) -> str:
        match self.kind:
            case "Source":
                return f"topics: {_set(hash_order(self.topics, copied=True)) if self.pattern is None else self.pattern}"
            case "Processor":
                return f"stores: {_set(hash_order(hash_order(self.stores), copied=True))}"
        if self.topic_extractor is None:
            return f"topic: {self.topics[0]}"
        return f"extractor class: {function_name(self.topic_extractor)}"


@dataclass(frozen=True)
class SubTopologyDescription:
    """One sub-topology, with its nodes in the order of the text. `of_global_store`: it consists of a global store, its
    source and its processor. Every instance runs them, without a task."""

    id: int
    nodes: tuple[NodeDescription, ...]
    of_global_store: bool = False

    def __str__(self) -> str:
        nodes = "".join(f"    {node}\n" for node in self.nodes)
        if self.of_global_store:
            return f"Sub-topology: {self.id} for global store (will not generate tasks)\n{nodes}"
        return f"Sub-topology: {self.id}\n{nodes}\n"


@dataclass(frozen=True)
class TopologyDescription:
    """A whole topology. `str()` of it is Kafka Streams' text."""

    subtopologies: tuple[SubTopologyDescription, ...]

    def __str__(self) -> str:
        return "Topologies:\n " + "".join(f"  {sub}" for sub in self.subtopologies)

    def mermaid(self) -> str:
        """Make a Mermaid flow chart: topics are pipes, stores are drums, and each sub-topology is a box."""
        return _mermaid(self)


class _Draft:
    """A node whose neighbours are still being found. `size`: the number of nodes below it, itself included. A node that
    several paths lead to counts once for each path."""

    def __init__(self, node: Node) -> None:
        self.node, self.size = node, 1
        self.predecessors: TreeSet[_Draft] = TreeSet(_compare)
        self.successors: TreeSet[_Draft] = TreeSet(_compare)


def _compare(one: _Draft, other: _Draft) -> int:
    if one is other:
        return 0
    if one.size != other.size:
        return other.size - one.size
    left, right = one.node.name.encode("utf-16-be"), other.node.name.encode("utf-16-be")
    return (left > right) - (left < right)


def describe(groups: Mapping[int, Sequence[Node]]) -> TopologyDescription:
    """Describe sub-topologies. `groups`: the nodes of each, parents first, by the id of the sub-topology."""
    return TopologyDescription(
        tuple(
            SubTopologyDescription(number, _describe_group(groups[number]), is_global(groups[number]))
            for number in sorted(groups)
        )
    )


def _describe_group(nodes: Sequence[Node]) -> tuple[NodeDescription, ...]:
    by_name = {node.name: _Draft(node) for node in nodes}
    drafts = [by_name[name] for name in hash_order(by_name)]
    for draft in drafts:
        for parent in draft.node.parents:
            predecessor = by_name[parent]
            draft.predecessors.add(predecessor)
            predecessor.successors.add(draft)
            _grow(predecessor, draft.size)
    ordered: TreeSet[_Draft] = TreeSet(_compare)
    for draft in drafts:
        ordered.add(draft)
    return tuple(_finish(draft) for draft in ordered)


def _grow(draft: _Draft, by: int) -> None:
    draft.size += by
    for predecessor in draft.predecessors:
        _grow(predecessor, by)


def _finish(draft: _Draft) -> NodeDescription:
    node = draft.node
    before, after = (tuple(each.node.name for each in some) for some in (draft.predecessors, draft.successors))
    if isinstance(node, SourceNode):
        return NodeDescription(node.name, "Source", before, after, topics=node.topics, pattern=node.pattern)
    if isinstance(node, ProcessorNode):
        return NodeDescription(node.name, "Processor", before, after, stores=node.stores)
    if isinstance(node.topic, str):
        return NodeDescription(node.name, "Sink", before, after, topics=(node.topic,), upserts=node.upserts)
    return NodeDescription(node.name, "Sink", before, after, topic_extractor=node.topic, upserts=node.upserts)


def _set(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


def _mermaid(description: TopologyDescription) -> str:
    lines: list[str] = ["flowchart TD"]
    edges: list[str] = []
    ids: dict[tuple[str, str], str] = {}

    def ident(kind: str, name: str) -> str:
        return ids.setdefault((kind, name), f"{kind}{len(ids)}")

    def shape(kind: str, name: str) -> str:
        text = name.replace('"', "#quot;")
        left, right = _SHAPES[kind]
        return f'{ident(kind, name)}{left}"{text}"{right}'

    outside: dict[str, None] = {}
    for sub in description.subtopologies:
        lines.append(f'    subgraph sub{sub.id}["Sub-topology {sub.id}{" (global)" * sub.of_global_store}"]')
        for node in sub.nodes:
            me = ident("node", node.name)
            lines.append(f"        {shape('node', node.name)}")
            edges += [f"    {me} --> {ident('node', successor)}" for successor in node.successors]
            for topic in _topics(node):
                outside.setdefault(shape("topic", topic))
                ends = (ident("topic", topic), me)
                arrow = "-- upserts -->" if node.upserts else "-->"
                edges.append("    {1} {0} {2}".format(arrow, *(ends if node.kind == "Source" else reversed(ends))))
            for store in node.stores:
                if ("store", store) not in ids:
                    lines.append(f"        {shape('store', store)}")
                edges.append(f"    {me} <--> {ident('store', store)}")
        lines.append("    end")
    return "\n".join([*lines, *(f"    {each}" for each in outside), *edges]) + "\n"


def _topics(node: NodeDescription) -> tuple[str, ...]:
    if node.pattern is not None:
        return (node.pattern,)
    return node.topics if node.topic_extractor is None else (function_name(node.topic_extractor),)


_SHAPES = {"node": ("[", "]"), "topic": ("([", "])"), "store": ("[(", ")]")}
