"""`KStream.split()`: the branches of a stream (KIP-418).

*Guarantees*: Kafka Streams' names. A branch's node is named by the splitter's name, followed by the branch's name or
number. The default branch has the number 0.
*Assumes*: one thread builds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from milestones.common.topology.graph import Graph, GraphNode, ProcessorGraphNode
from milestones.common.topology.missing import Explained
from milestones.common.topology.naming import check_name
from milestones.common.topology.operators import stateless
from milestones.common.type_variables import K, V

if TYPE_CHECKING:
    from milestones.common.topology.stream import KStream

Chain = Callable[["KStream"], "KStream | None"]
"""A function that is called with a branch as soon as it is added. The function's result takes the place of the branch
in the returned branches. If the function returns None, the branch is left out there."""


class BranchedKStream(Explained, Generic[K, V]):
    """The branches of a stream that were added so far. The last call must be `default_branch` or
    `no_default_branch`."""

    def __init__(
        self, graph: Graph, parent: GraphNode, name: str | None, stream: Callable[[GraphNode], KStream[K, V]]
    ) -> None:
        self._graph, self._stream = graph, stream
        self._predicates: list[Callable[[Any, Any], Any]] = []
        self._children: list[str] = []
        self._default: str | None = None
        self._branches: dict[str, KStream[K, V]] = {}
        splitter = ProcessorGraphNode(graph.names.given(name, "KSTREAM-BRANCH-"), self._operator)
        self._splitter = graph.add(splitter, parent)

    def branch(
        self, predicate: Callable[[K, V], object], *, name: str | None = None, chain: Chain | None = None
    ) -> BranchedKStream[K, V]:
        """Add a branch. A record goes to this branch if `predicate(key, value)` is true and the predicates of all
        earlier branches are false."""
        self._predicates.append(predicate)
        self._children.append(self._add(str(len(self._predicates)), name, chain))
        return self

    def default_branch(self, *, name: str | None = None, chain: Chain | None = None) -> dict[str, KStream[K, V]]:
        """Add a branch for all other records, and return all branches by name. A name is the splitter's name followed
        by the branch's."""
        self._default = self._add("0", name, chain)
        return self._branches

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Drop all other records, and return all branches by name. A name is the splitter's name followed by the
        branch's."""
        return self._branches

    def _operator(self) -> stateless.Branch:
        return stateless.Branch(tuple(self._predicates), tuple(self._children), self._default)

    def _add(self, number: str, name: str | None, chain: Chain | None) -> str:
        child = check_name(self._splitter.name + (number if name is None else name), "a branch")
        self._graph.names.processor(child)
        node = self._graph.add(ProcessorGraphNode(child, stateless.PassThrough), self._splitter)
        stream: KStream[K, V] | None = self._stream(node)
        if chain is not None and stream is not None:
            stream = chain(stream)
        if stream is not None:
            self._branches[child] = stream
        return child
