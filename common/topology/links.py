"""The lines between the operations of a graph, while a topology is made of them.

*Guarantees*: the graph stays as it is; what is rewritten here is rewritten for one topology.
*Assumes*: one thread builds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from milestones.common.topology.naming import Names

if TYPE_CHECKING:
    from milestones.common.topology.graph import GraphNode


class Links:
    """The parents and children of operations. `nodes`: all of them, in the order in which they were added. `priority`:
    their places in the order of writing. `forms`: what is written in place of an operation. `became`: what took the
    place of an operation that isn't written."""

    def __init__(self, nodes: Iterable[GraphNode]) -> None:
        self.nodes = list(nodes)
        self.priority = {node: node.priority for node in self.nodes}
        self.forms: dict[GraphNode, GraphNode] = {}
        self.became: dict[GraphNode, GraphNode] = {}
        self._children = {node: dict.fromkeys(node.children) for node in self.nodes}
        self._parents = {node: dict.fromkeys(node.parents) for node in self.nodes}

    def children(self, node: GraphNode) -> list[GraphNode]:
        return list(self._children[node])

    def parents(self, node: GraphNode) -> list[GraphNode]:
        return list(self._parents[node])

    def sources_of(self, node: GraphNode) -> list[GraphNode]:
        """The parents whose records `node` gets: without tables that it only looks into."""
        return [parent for parent in self._parents[node] if parent not in node.looks_up]

    def add(self, node: GraphNode, priority: int) -> None:
        """Add an operation that the graph doesn't have."""
        self.nodes.append(node)
        self.priority[node] = priority
        self._children[node], self._parents[node] = {}, {}

    def link(self, parent: GraphNode, child: GraphNode) -> None:
        self._children[parent][child] = None
        self._parents[child][parent] = None

    def unlink(self, parent: GraphNode, child: GraphNode) -> None:
        del self._children[parent][child]
        del self._parents[child][parent]

    def replace(self, node: GraphNode, other: GraphNode) -> None:
        """Let the operations after `node` follow `other`, and take `node` out."""
        for child in self.children(node):
            self.link(other, child)
        self.take_out(node)
        self.became[node] = other

    def take_out(self, node: GraphNode) -> None:
        """Cut all lines of `node`, which isn't written then."""
        for child in self.children(node):
            self.unlink(node, child)
        for parent in self.parents(node):
            self.unlink(parent, node)

    def now(self, node: GraphNode) -> GraphNode:
        """The operation that has the place of `node`."""
        while node in self.became:
            node = self.became[node]
        return node

    def form(self, node: GraphNode) -> GraphNode:
        """What is written for `node`."""
        return self.forms.get(node, node)

    def above(self, node: GraphNode) -> Iterator[GraphNode]:
        """`node` and what its records come from: each parent before the parent's own parents, the first line first."""
        waiting: list[GraphNode] = [node]
        seen: set[GraphNode] = set()
        while waiting:
            each = waiting.pop()
            if each not in seen:
                seen.add(each)
                yield each
                waiting += reversed(self.sources_of(each))

    def always_through(self, node: GraphNode, gate: GraphNode) -> bool:
        """Whether all records of `node` come through `gate`."""
        waiting, seen = [node], {node}
        while waiting:
            parents = [parent for parent in self.sources_of(waiting.pop()) if parent is not gate]
            if any(parent.source_name is not None for parent in parents):
                return False
            waiting += [parent for parent in parents if parent not in seen]
            seen.update(parents)
        return True

    def leads_to(self, node: GraphNode, wanted: Callable[[GraphNode], bool]) -> bool:
        """Whether the records of `node` reach an operation that is `wanted`, however far."""
        waiting, seen = [node], {node}
        while waiting:
            each = waiting.pop()
            below = [child for child in self._children[each] if each not in child.looks_up]
            if any(map(wanted, below)):
                return True
            waiting += [child for child in below if child not in seen]
            seen.update(below)
        return False


Rewrite: TypeAlias = Callable[[Links, Names], None]
"""Changes what a topology is made of; new names come from the counter."""
