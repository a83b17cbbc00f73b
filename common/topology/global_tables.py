"""Global tables, of which every instance keeps all rows, and the joins of streams with them.

*Guarantees*: names and their numbers are those of Kafka Streams. It names every join with a global table as a left
join, even an inner one. Neither the stream nor the table is repartitioned.
*Assumes*: one thread builds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from milestones.common.errors import TopologyError
from milestones.common.state.spec import StoreSpec
from milestones.common.topology.graph import Graph, GraphNode, ProcessorGraphNode
from milestones.common.topology.joins import JoinStores, StreamJoin, check_one_builder
from milestones.common.topology.missing import Explained
from milestones.common.topology.nodes import ProcessorNode, SourceNode
from milestones.common.topology.operators.aggregates import NULL_KEY_OR_VALUE
from milestones.common.topology.program import Operator, OperatorContext, Process, TableStore
from milestones.common.topology.serde_choice import Choice
from milestones.common.topology.topology import Topology
from milestones.common.topology.user_functions import function_of
from milestones.common.type_variables import K, V

if TYPE_CHECKING:
    from milestones.common.topology.stream import KStream

_LEFT_JOIN = "KSTREAM-LEFTJOIN-"


class GlobalKTable(Explained, Generic[K, V]):
    """A table with keys of type `K` and values of type `V`. Each instance keeps all of its rows, so any stream may be
    joined with it by any key. `StreamsBuilder.global_table` makes it."""

    name: str

    def __init__(self, graph: Graph, node: GraphNode, store: str, *, named: bool) -> None:
        self._graph, self._store, self._named = graph, store, named
        self.name = node.name

    @property
    def queryable_store_name(self) -> str | None:
        """The store's name, if the user gave one."""
        return self._store if self._named else None


@dataclass(eq=False)
class GlobalStoreNode(GraphNode):
    """A global store with its two nodes."""

    source: SourceNode
    spec: StoreSpec
    operator: Operator = field(repr=False)

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_global_nodes(
            self.spec, self.source, ProcessorNode(self.name, (self.source.name,), self.operator)
        )


@dataclass(frozen=True)
class StreamGlobalJoin:
    """Joins each record with the row whose key is `select(key, value)`, as the row is at that moment. `alone`: a record
    for which there is no row is joined with None."""

    store: str
    select: Callable[[Any, Any], Any]
    joiner: Callable[..., Any]
    with_key: bool
    alone: bool

    def bind(self, context: OperatorContext) -> Process:
        store: TableStore = context.store(self.store)
        get, select, joiner, with_key, alone = store.get_raw, self.select, self.joiner, self.with_key, self.alone
        forward, dropped, node = context.forward, context.dropped, context.node

        def process(key: Any, value: Any, timestamp: int) -> None:
            at = None if value is None else select(key, value)
            if value is None or (at is None and not alone):
                dropped(node, NULL_KEY_OR_VALUE)
                return
            row = None if at is None else get(at)
            if row is None and not alone:
                return
            other = None if row is None else row[0]
            forward(key, joiner(key, value, other) if with_key else joiner(value, other), timestamp)

        return process


def check_on(stream: KStream, other: Any, join: StreamJoin) -> None:
    """Raise `TopologyError` if `on` is given in a join with anything but a global table."""
    if join.on is not None and not isinstance(other, GlobalKTable):
        raise TopologyError(
            f"{stream.name} is joined with {other.name} by the record's own key: `on` belongs to joins with a global "
            "table; select_key gives the stream another key"
        )


def join_global_table(stream: KStream, table: GlobalKTable, join: StreamJoin) -> tuple[GraphNode, Choice]:
    """Add the join of a stream and a global table. Returns the node and the serde of its keys."""
    graph = stream._graph
    check_one_builder(stream, graph, table, table._graph)
    if join.alone.right:
        raise TopologyError("a stream has no outer join with a global table: its rows have no place among the records")
    if join.on is None:
        raise TopologyError(
            f"{stream.name} is joined with the global table {table.name}, by a key that `on` chooses: pass "
            "on=lambda key, value: ..., which gives the key of the table's row"
        )
    of_others = (join.key, join.value, join.other_value, join.within, join.grace)
    if join.stores != JoinStores() or any(choice is not None for choice in of_others):
        raise TopologyError(
            f"{stream.name} is joined with the global table {table.name}, whose present rows are looked up, without a "
            "store or topic of the join's own: key, value, other_value, within, grace, store, logging, in_memory "
            "and changelog_config belong to other joins"
        )
    operator = StreamGlobalJoin(
        table._store, function_of(join.on), join.joiner, join.with_key, join.alone.left
    )
    node = ProcessorGraphNode(graph.names.given(join.name, _LEFT_JOIN), lambda: operator)
    node.takes_null_keys = join.alone.left
    return graph.add(node, stream._node), stream._key
