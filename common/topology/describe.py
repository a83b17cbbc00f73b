"""A topology as text: as Kafka Streams prints it, and as a Mermaid flow chart.

*Guarantees*: `str()` is, to the letter, what `Topology.describe().toString()` of Kafka Streams 4.3 gives for the same
topology (a dynamic topic excepted: Java prints an object's address there).
*Assumes*: parents come before their children.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from milestones.common.topology.java_order import TreeSet, hash_order
from milestones.common.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode, function_name
from milestones.common.topology.resolve import is_global


@dataclass(frozen=True)
class NodeDescription:
    """One node; its neighbours in the order of the text. `label`: the text in parentheses."""

    node: Node
    kind: str
    label: str
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.node.name} ({self.label})"]
        if self.kind != "Sink":
            lines.append(f"      --> {', '.join(self.successors) or 'none'}")
        if self.kind != "Source":
            lines.append(f"      <-- {', '.join(self.predecessors) or 'none'}")
        return "\n".join(lines)


@dataclass(frozen=True)
class SubTopologyDescription:
    """One sub-topology, its nodes in the order of the text."""

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
    """A whole topology. `str()` is Kafka Streams' text."""

    subtopologies: tuple[SubTopologyDescription, ...]

    def __str__(self) -> str:
        return "Topologies:\n " + "".join(f"  {sub}" for sub in self.subtopologies)

    def mermaid(self) -> str:
        """A Mermaid flow chart: topics as pipes, stores as drums, one box per sub-topology."""
        return _mermaid(self)


class _Draft:
    """A node while its neighbours are found. `size`: nodes below it (once per path), itself included."""

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
    """Describe sub-topologies by id, each with its nodes, parents first."""
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
    kind, label = _label(draft.node)
    return NodeDescription(
        node=draft.node,
        kind=kind,
        label=label,
        predecessors=tuple(each.node.name for each in draft.predecessors),
        successors=tuple(each.node.name for each in draft.successors),
    )


def _label(node: Node) -> tuple[str, str]:
    if isinstance(node, SourceNode):
        names = hash_order(node.topics, copied=True)
        return "Source", f"topics: {node.pattern if node.pattern is not None else _set(names)}"
    if isinstance(node, ProcessorNode):
        return "Processor", f"stores: {_set(hash_order(hash_order(node.stores), copied=True))}"
    if isinstance(node.topic, str):
        return "Sink", f"topic: {node.topic}"
    return "Sink", f"extractor class: {function_name(node.topic)}"


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
        for each in sub.nodes:
            node, me = each.node, ident("node", each.node.name)
            lines.append(f"        {shape('node', node.name)}")
            edges += [f"    {me} --> {ident('node', successor)}" for successor in each.successors]
            if isinstance(node, SourceNode):
                for topic in [node.pattern] if node.pattern is not None else node.topics:
                    outside.setdefault(shape("topic", topic))
                    edges.append(f"    {ident('topic', topic)} --> {me}")
            elif isinstance(node, SinkNode):
                topic = node.topic if isinstance(node.topic, str) else function_name(node.topic)
                outside.setdefault(shape("topic", topic))
                edges.append(f"    {me} --> {ident('topic', topic)}")
            else:
                for store in node.stores:
                    if ("store", store) not in ids:
                        lines.append(f"        {shape('store', store)}")
                    edges.append(f"    {me} <--> {ident('store', store)}")
        lines.append("    end")
    return "\n".join([*lines, *(f"    {each}" for each in outside), *edges]) + "\n"


_SHAPES = {"node": ("[", "]"), "topic": ("([", "])"), "store": ("[(", ")]")}
