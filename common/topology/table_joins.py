"""Joins with tables, as operations of the graph: table and table, stream and table, by equal keys.

*Guarantees*: names and their numbers, and which tables get a store, are as in Kafka Streams. A join reads rows of
tables, so the first table of each chain gets a store.
*Assumes*: one thread builds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from milestones.common.errors import TopologyError
from milestones.common.state.spec import StoreSpec
from milestones.common.topology.grace_joins import WaitingJoin
from milestones.common.topology.graph import GraphNode, ProcessorGraphNode
from milestones.common.topology.joins import Alone, Joiner, JoinStores, StreamJoin, check_one_builder, not_joinable
from milestones.common.topology.materialized import Materialized
from milestones.common.topology.nodes import ProcessorNode
from milestones.common.topology.operators.getters import Getter, JoinGetter, StoreGetter
from milestones.common.topology.operators.table_joins import KeepUpdates, PassUpdates, StreamTableJoin, TableJoin
from milestones.common.topology.operators.versioned_tables import latest_only
from milestones.common.topology.serde_choice import Choice, as_fallback
from milestones.common.topology.table import KTable
from milestones.common.topology.table_state import TableState
from milestones.common.topology.topology import Topology
from milestones.common.topology.user_functions import function_of
from milestones.common.topology.windows import Duration, milliseconds

if TYPE_CHECKING:
    from milestones.common.topology.stream import KStream

_MERGE, _THIS, _OTHER = "KTABLE-MERGE-", "KTABLE-JOINTHIS-", "KTABLE-JOINOTHER-"
_JOIN, _LEFT_JOIN = "KSTREAM-JOIN-", "KSTREAM-LEFTJOIN-"


class JoinedState(TableState):
    """The state of a join of two tables. The old value of a joined row is made from the old values of both tables."""

    def __init__(
        self, spec: StoreSpec, has_store: bool, left: TableState, right: TableState, joiner: Joiner, alone: Alone
    ) -> None:
        super().__init__(spec, has_store)
        self._sides = left, right
        self.getters: tuple[Getter, Getter] = left.getter(), right.getter()
        self._getter: Getter = JoinGetter(*self.getters, joiner=joiner, alone=alone)
        if has_store:
            self._getter = StoreGetter(spec.name, spec.kind == "versioned")

    @property
    def versioned_sides(self) -> tuple[bool, bool]:
        """For each of the two tables, True if the table is versioned."""
        left, right = self._sides
        return left.versioned, right.versioned

    def want_old_values(self, force: bool) -> bool:
        for side in self._sides:
            side.want_old_values(force=True)
        self.send_old_values = True
        return True

    def getter(self) -> Getter:
        self._looked_up = True
        return self._getter


@dataclass(eq=False)
class TableJoinNode(GraphNode):
    """The three nodes of a join of two tables: one for the updates of each table, and one that merges the results."""

    sides: tuple[str, str]
    tables: tuple[str, str]
    joiner: Joiner
    alone: Alone
    state: JoinedState = field(repr=False)

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        left_rows, right_rows = self.state.getters
        left_alone, right_alone = self.alone
        send, store = self.state.send_old_values, self.state.store
        operators = (
            TableJoin(right_rows, self.joiner, False, left_alone, right_alone, send),
            TableJoin(left_rows, self.joiner, True, right_alone, left_alone, send),
        )
        for name, table, operator, versioned in zip(
            self.sides, self.tables, operators, self.state.versioned_sides, strict=True
        ):
            topology.add_node(ProcessorNode(name, (table,), latest_only(operator, versioned)))
        merge = PassUpdates() if store is None else KeepUpdates(store.name, send)
        topology.add_node(ProcessorNode(self.name, self.sides, merge))
        for name, operator in zip(self.sides, operators, strict=True):
            topology.connect_processor_and_state_stores(name, *operator.other.stores)
        if store is not None:
            topology.add_state_store(store, self.name)


def join_tables(
    left: KTable, right: Any, joiner: Joiner, alone: Alone, name: str | None, materialized: Materialized
) -> KTable:
    """Add the join of two tables. Returns the table of its results."""
    function_of(joiner)
    if not isinstance(right, KTable):
        raise not_joinable(left, right, "another KTable")
    graph = left._graph
    check_one_builder(left, graph, right, right._graph)
    store = materialized.store or (graph.names.store(_MERGE) if materialized.given else None)
    node_name = graph.names.given(name, _MERGE)
    sides = left._state, right._state
    for table, wanted in zip(sides, alone, strict=True):
        if wanted:
            table.want_old_values(force=True)
    key, value = materialized.key or left._key, materialized.value or as_fallback(left._value)
    spec = materialized.spec(store or "", key, value)
    state = JoinedState(spec, store is not None, *sides, joiner=joiner, alone=alone)
    names = graph.names.given(name, _THIS, "-join-this"), graph.names.given(name, _OTHER, "-join-other")
    node = TableJoinNode(node_name, names, (left.name, right.name), joiner, alone, state)
    graph.copartition(left._node, right._node)
    return KTable(graph, graph.add(node, left._node, right._node), key, value, state)


def join_table(stream: KStream, table: KTable, join: StreamJoin) -> tuple[GraphNode, Choice]:
    """Add the join of a stream and a table. Returns the node and the serde of its keys."""
    graph = stream._graph
    check_one_builder(stream, graph, table, table._graph)
    if join.alone.right:
        raise TopologyError("a stream has no outer join with a table: its rows have no place among the records")
    if join.within is not None or join.stores != JoinStores():
        raise TopologyError(
            f"{stream.name} is joined with the table {table.name}, whose present rows are looked up: within, store, "
            "logging, in_memory and changelog_config belong to joins with a stream"
        )
    grace_ms = None if join.grace is None else _grace_of(stream, table, join.grace)
    by_key = stream._by_key(join.name, join.key, join.value)
    name = graph.names.given(join.name, _LEFT_JOIN if join.alone.left else _JOIN)
    rows = table._state.getter()
    join_now = StreamTableJoin(rows, join.joiner, join.with_key, join.alone.left)
    key = join.key or by_key._key
    if grace_ms is None:
        node = ProcessorGraphNode(name, lambda: join_now, stores=rows.stores)
    else:
        buffer = StoreSpec(f"{name}-Buffer", "join-buffer", key_serde=key, value_serde=join.value or by_key._value)
        waiting = WaitingJoin(join_now, buffer.name, grace_ms)
        node = ProcessorGraphNode(name, lambda: waiting, lambda: buffer, rows.stores)
    node.looks_up, node.takes_null_keys = (table._node,), join.alone.left
    graph.copartition(by_key._node, table._node)
    return graph.add(node, by_key._node, table._node), key


def _grace_of(stream: KStream, table: KTable, grace: Duration) -> int:
    grace_ms, history_ms = milliseconds(grace, "a grace"), table._state.history_ms
    if history_ms is None:
        raise TopologyError(
            f"{stream.name} is joined with the table {table.name} with a grace, but the table isn't versioned: it has "
            "no rows of former times; keep it with history=..., or leave grace= out"
        )
    if grace_ms > history_ms:
        raise TopologyError(
            f"{stream.name} is joined with the table {table.name} with a grace of {grace_ms} ms, longer than the "
            f"table's history of {history_ms} ms: rows would be gone when their records are joined"
        )
    return grace_ms
