"""Joins of two streams, as operations of the graph.

*Guarantees*: names and their numbers, the stores and their settings are those of Kafka Streams.
*Assumes*: one thread builds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from milestones.common.errors import TopologyError
from milestones.common.state.spec import StoreSpec
from milestones.common.topology.graph import Graph, GraphNode, ProcessorGraphNode
from milestones.common.topology.join_windows import JoinWindows
from milestones.common.topology.joins import JoinStores, StreamJoin, check_one_builder
from milestones.common.topology.naming import check_name
from milestones.common.topology.nodes import ProcessorNode
from milestones.common.topology.operators.stateless import PassThrough
from milestones.common.topology.operators.stream_joins import InnerSide, KeepRecords, OuterSide, SelfJoin
from milestones.common.topology.operators.unmatched import UnmatchedSerde, unmatched_values
from milestones.common.topology.serde_choice import Choice, MadeOf
from milestones.common.topology.topology import Topology

if TYPE_CHECKING:
    from milestones.common.topology.stream import KStream

_WINDOWED, _MERGE, _SHARED = "KSTREAM-WINDOWED-", "KSTREAM-MERGE-", "KSTREAM-OUTERSHARED-"

_THIS: Final = {False: ("KSTREAM-JOINTHIS-", "-this-join"), True: ("KSTREAM-OUTERTHIS-", "-outer-this-join")}
_OTHER: Final = {False: ("KSTREAM-JOINOTHER-", "-other-join"), True: ("KSTREAM-OUTEROTHER-", "-outer-other-join")}
"""The beginning of a side's generated name, and the end of its name if the user gave one. The key is True if records of
the other side are sent without a partner, too."""

_SHARED_SUFFIX: Final = {False: "-left-shared-join", True: "-outer-shared-join"}


class _Names(NamedTuple):
    """The names of a join's nodes and stores. In each pair, the left side is first."""

    windowed: tuple[str, str]
    sides: tuple[str, str]
    merge: str
    stores: tuple[str, str]
    waiting: str


def _names(graph: Graph, join: StreamJoin) -> _Names:
    name, store, given = join.name, join.stores.store, graph.names.given
    (this, this_suffix), (other, other_suffix) = _THIS[join.alone.right], _OTHER[join.alone.left]
    windowed = given(name, _WINDOWED, "-this-windowed"), given(name, _WINDOWED, "-other-windowed")
    generated = graph.names.processor(this), graph.names.processor(other)
    sides, stores, waiting = generated, generated, _SHARED + generated[0].removeprefix(this)
    if name is not None:
        sides = name + this_suffix, name + other_suffix
    if store is not None:
        check_name(store, "a store")
        stores, waiting = (store + this_suffix, store + other_suffix), store + _SHARED_SUFFIX[join.alone.right]
    merge = given(name, _MERGE, "-merge")
    return _Names(windowed, sides, merge, (f"{stores[0]}-store", f"{stores[1]}-store"), f"{waiting}-store")


@dataclass(eq=False)
class StreamJoinNode(GraphNode):
    """The nodes of both sides, and the node that merges their results. `windowed`: the nodes before the two sides,
    which store the records. `waiting`: the store of the records without a partner."""

    windowed: tuple[str, str]
    sides: tuple[str, str]
    operators: tuple[InnerSide, InnerSide]
    waiting: StoreSpec | None

    def of_itself(self) -> GraphNode:
        """Return the same join for the case that both sides are one stream. The records of this stream are stored once.
        """
        left, right = self.operators
        operator = SelfJoin(right.other, left.windows, left.joiner, left.with_key, left=True)
        return SelfJoinNode(self.name, self.windowed[0], operator)

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        for name, parent, operator in zip(self.sides, self.windowed, self.operators, strict=True):
            topology.add_node(ProcessorNode(name, (parent,), operator))
            topology.connect_processor_and_state_stores(name, operator.other)
        topology.add_node(ProcessorNode(self.name, self.sides, PassThrough()))
        if self.waiting is not None:
            topology.add_state_store(self.waiting, *self.sides)


@dataclass(eq=False)
class SelfJoinNode(GraphNode):
    """The node of a stream's join with itself. `windowed`: the node before it."""

    windowed: str
    operator: SelfJoin

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(ProcessorNode(self.name, (self.windowed,), self.operator))
        topology.connect_processor_and_state_stores(self.name, self.operator.other)


def join_streams(left: KStream, right: KStream, join: StreamJoin) -> tuple[GraphNode, Choice]:
    """Add the join of two streams. Returns the node and the serde of its keys."""
    graph, windows = left._graph, join.within
    check_one_builder(left, graph, right, right._graph)
    if not isinstance(windows, JoinWindows):
        raise TopologyError(
            f"a join of two streams needs within=JoinWindows(...), how far apart in time its records may be, not "
            f"{windows!r}"
        )
    if join.grace is not None:
        raise TopologyError(
            f"{left.name} is joined with the stream {right.name}, whose windows have the grace: JoinWindows(..., "
            "grace=...); grace= of a join belongs to versioned tables"
        )
    topics = (None, None) if join.name is None else (f"{join.name}-left", f"{join.name}-right")
    this = left._by_key(topics[0], join.key, join.value)
    other = right._by_key(topics[1], join.key, join.other_value)
    graph.copartition(this._node, other._node)
    names = _names(graph, join)
    key, this_value, other_value = join.key or this._key, join.value or this._value, join.other_value or other._value
    graph.add(_keeping(names.windowed[0], _records(names.stores[0], windows, key, this_value, join)), this._node)
    graph.add(_keeping(names.windowed[1], _records(names.stores[1], windows, key, other_value, join)), other._node)
    waiting = _waiting(names.waiting, key, this_value, other_value, join.stores) if join.alone.left else None
    node = StreamJoinNode(names.merge, names.windowed, names.sides, _sides(names, windows, join), waiting)
    node.takes_null_keys = join.alone.left or join.alone.right
    return graph.add(node, this._node, other._node), key


def _keeping(name: str, spec: StoreSpec) -> GraphNode:
    return ProcessorGraphNode(name, lambda: KeepRecords(spec.name), spec=lambda: spec)


def _sides(names: _Names, windows: JoinWindows, join: StreamJoin) -> tuple[InnerSide, InnerSide]:
    def side(left: bool) -> InnerSide:
        store = names.stores[1] if left else names.stores[0]
        if not join.alone.left:
            return InnerSide(store, windows, join.joiner, join.with_key, left)
        alone = join.alone if left else join.alone[::-1]
        return OuterSide(store, windows, join.joiner, join.with_key, left, names.waiting, *alone, names.merge)

    return side(True), side(False)


def _records(name: str, windows: JoinWindows, key: Choice, value: Choice, join: StreamJoin) -> StoreSpec:
    """Return the spec of the store of one side's records."""
    return StoreSpec(
        name=name,
        kind="window",
        persistent=not join.stores.in_memory,
        logged=join.stores.logging,
        key_serde=key,
        value_serde=value,
        changelog_config={**join.stores.changelog_config, "cleanup.policy": "delete"},
        retention_ms=max(1, windows.size_ms + windows.grace_ms),
        window_ms=windows.size_ms,
        duplicates=True,
    )


def _waiting(name: str, key: Choice, left: Choice, right: Choice, stores: JoinStores) -> StoreSpec:
    """Return the spec of the store of records that have no partner yet."""
    return StoreSpec(
        name=name,
        kind="key-value",
        persistent=not stores.in_memory,
        logged=stores.logging,
        key_serde=MadeOf(UnmatchedSerde, (key,)),
        value_serde=MadeOf(unmatched_values, (left, right)),
        changelog_config=dict(stores.changelog_config),
        results_wait=True,
    )
