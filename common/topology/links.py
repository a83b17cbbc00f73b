"""The connections between the operations of a graph, while a topology is made of them.

*Guarantees*: the graph itself doesn't change. Rewrites here are for one topology only.
*Assumes*: one thread builds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from milestones.common.topology.naming import Names

if TYPE_CHECKING:
    from milestones.common.topology.graph import GraphNode


class Links:
    """The parents and children of operations. `nodes`: all operations, in the order in which they were added.
    `priority`: their places in the order of writing. `forms`: for some operations, another one that is written in their
    place. `became`: for each operation that isn't written, the one that replaced it."""

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
        """Return the parents whose records `node` gets. Tables whose rows it only looks up are left out."""
        return [parent for parent in self._parents[node] if parent not in node.looks_up]

    def add(self, node: GraphNode, priority: int) -> None:
        """Add an operation that isn't in the graph."""
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
        """Make the children of `node` children of `other`, and take `node` out."""
        for child in self.children(node):
            self.link(other, child)
        self.take_out(node)
        self.became[node] = other

    def take_out(self, node: GraphNode) -> None:
        """Remove all connections of `node`, so that it isn't written."""
        for child in self.children(node):
            self.unlink(node, child)
        for parent in self.parents(node):
            self.unlink(parent, node)

    def now(self, node: GraphNode) -> GraphNode:
        """Return the operation that stands in the place of `node` now."""
        while node in self.became:
            node = self.became[node]
        return node

    def form(self, node: GraphNode) -> GraphNode:
        """Return the operation that is written for `node`: another form of it, or `node` itself."""
        return self.forms.get(node, node)

    def above(self, node: GraphNode) -> Iterator[GraphNode]:
        """Yield `node` and all operations from which its records come, depth first: each parent, then its own parents.
        """
        waiting: list[GraphNode] = [node]
        seen: set[GraphNode] = set()
        while waiting:
            each = waiting.pop()
            if each not in seen:
                seen.add(each)
                yield each
                waiting += reversed(self.sources_of(each))

    def always_through(self, node: GraphNode, gate: GraphNode) -> bool:
        """True if all records of `node` come through `gate`."""
        waiting, seen = [node], {node}
        while waiting:
            parents = [parent for parent in self.sources_of(waiting.pop()) if parent is not gate]
            if any(parent.source_name is not None for parent in parents):
                return False
            waiting += [parent for parent in parents if parent not in seen]
            seen.update(parents)
        return True

    def leads_to(self, node: GraphNode, wanted: Callable[[GraphNode], bool]) -> bool:
        """True if the records of `node` reach an operation for which `wanted` is true, directly or through others."""
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
"""Changes the operations of which a topology is made. New names come from the counter."""
