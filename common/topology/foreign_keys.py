"""Joins of tables by foreign key, as operations of the graph (KIP-213).

    left table -> send -> topic of subscriptions -> keep -> answer -> topic of responses -> join -> result
                                   right table -> answer all ------'

*Guarantees*: names and their numbers, topics and the store of subscriptions are those of Kafka Streams. The store is
never cached. The topic of subscriptions has as many partitions as the right table's topic. The topic of responses has
as many as the left table's topic.
*Assumes*: one thread builds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from milestones.common import serdes
from milestones.common.errors import TopologyError
from milestones.common.state.spec import StoreSpec
from milestones.common.topology.graph import Graph, GraphNode, ProcessorGraphNode, Repartition
from milestones.common.topology.joins import ForeignKey, Joiner, check_one_builder, not_joinable
from milestones.common.topology.materialized import Materialized
from milestones.common.topology.nodes import Partitioner, SinkNode
from milestones.common.topology.operators.foreign_keys import (
    AnswerSubscribers,
    AnswerSubscription,
    KeepSubscriptions,
    Link,
    ResolveResponses,
    SendSubscriptions,
)
from milestones.common.topology.operators.subscriptions import (
    SubscriptionResponseSerde,
    SubscriptionResponseWrapper,
    SubscriptionSerde,
)
from milestones.common.topology.operators.tables import TableSource
from milestones.common.topology.operators.versioned_tables import latest_only
from milestones.common.topology.program import Operator
from milestones.common.topology.serde_choice import Choice, KeyOf, MadeOf, as_fallback
from milestones.common.topology.table import KTable
from milestones.common.topology.table_state import TableState
from milestones.common.topology.user_functions import check_functions, function_of

_JOIN: Final = "KTABLE-FK-JOIN-"
_REGISTRATION, _RESPONSE = f"{_JOIN}SUBSCRIPTION-REGISTRATION-", f"{_JOIN}SUBSCRIPTION-RESPONSE-"
_STORE, _PROCESSOR = f"{_JOIN}SUBSCRIPTION-STATE-STORE-", f"{_JOIN}SUBSCRIPTION-PROCESSOR-"
_RESOLVER, _OUTPUT = f"{_JOIN}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-", f"{_JOIN}OUTPUT-"
_SINK, _SOURCE, _TOPIC = "KTABLE-SINK-", "KTABLE-SOURCE-", "-topic"


class _ForeignKeyNames(NamedTuple):
    """The names of a join's nodes, topics and store, in the order in which Kafka Streams numbers them."""

    subscriptions: str
    send: str
    subscriptions_sink: str
    subscriptions_source: str
    store: str
    keep: str
    answer: str
    answer_all: str
    responses: str
    responses_sink: str
    responses_source: str
    join: str
    result: str


def _names(graph: Graph, name: str | None) -> _ForeignKeyNames:
    def given(prefix: str, suffix: str) -> str:
        return graph.names.given(name, prefix, suffix)

    return _ForeignKeyNames(
        given(_REGISTRATION, "-subscription-registration") + _TOPIC,
        given(_REGISTRATION, "-subscription-registration-processor"),
        given(_SINK, "-subscription-registration-sink"),
        given(_SOURCE, "-subscription-registration-source"),
        given(_STORE, "-subscription-store"),
        given(_PROCESSOR, "-subscription-receive"),
        given(_PROCESSOR, "-subscription-join-foreign"),
        given(_PROCESSOR, "-foreign-join-subscription"),
        given(_RESPONSE, "-subscription-response") + _TOPIC,
        given(_SINK, "-subscription-response-sink"),
        given(_SOURCE, "-subscription-response-source"),
        given(_RESOLVER, "-subscription-response-resolver"),
        given(_OUTPUT, "-result"),
    )


@dataclass(frozen=True)
class ByKey:
    """Calls a user's partitioner for a key, without a value."""

    partitioner: Partitioner

    def __call__(self, topic: str, key: Any, _: Any, partitions: int) -> int | None:
        chosen = self.partitioner(topic, key, None, partitions)
        if chosen is None or isinstance(chosen, int):
            return chosen
        several = tuple(chosen)
        if len(several) != 1:
            raise TopologyError(
                f"the partitioner of a join by foreign key chose {len(several)} partitions of {topic} for the key "
                f"{key!r}: a row is in one"
            )
        return several[0]


def to_the_row(_topic: str, _key: Any, response: SubscriptionResponseWrapper, _partitions: int) -> int | None:
    """Return the partition of the row that a response is for. Subscriptions of version 0 don't contain the partition.
    Then the result is None, and the key decides."""
    return response.partition


def join_by_foreign_key(
    left: KTable, right: Any, joiner: Joiner, by: ForeignKey, name: str | None, materialized: Materialized
) -> KTable:
    """Add the join of two tables by foreign key. Returns the table of its results."""
    function_of(joiner)
    of_row = function_of(by.of_row)
    if not isinstance(right, KTable):
        raise not_joinable(left, right, "another KTable")
    graph = left._graph
    check_one_builder(left, graph, right, right._graph)
    for table in (right, left):
        table._state.want_old_values(force=True)
    names = _names(graph, name)
    link = Link(names.subscriptions, names.store, left._key, left._value, right._key)
    subscribe = SendSubscriptions(link, of_row, by.left)
    send = graph.add(_processor(names.send, lambda: latest_only(subscribe, left._state.versioned)), left._node)
    responses = _right_side(graph, send, left, right, by, names, link)
    rows = left._state.getter()
    join = _processor(names.join, lambda: ResolveResponses(link, rows, joiner, by.left), stores=rows.stores)
    join.looks_up = (left._node,)
    graph.copartition(left._node, responses)
    return _result(graph, left, graph.add(join, responses, left._node), names.result, materialized)


def _right_side(
    graph: Graph, send: GraphNode, left: KTable, right: KTable, by: ForeignKey, names: _ForeignKeyNames, link: Link
) -> GraphNode:
    """Add all nodes after `send`, up to the topic of the responses. Returns the node of that topic."""
    subscriptions = Repartition(
        names.subscriptions_source, names.subscriptions, names.subscriptions_sink, names.subscriptions_source, None,
        right._key, MadeOf(SubscriptionSerde, (KeyOf(left._key),)),
        partitioner=_by_key(by.other_partitioner, names.subscriptions_sink),
    )  # fmt: skip
    graph.add(subscriptions, send)
    graph.copartition(right._node, subscriptions)
    spec = StoreSpec(
        name=names.store, kind="timestamped-key-value", key_serde=serdes.BYTES, value_serde=serdes.BYTES,
        logs_headers=True,
    )  # fmt: skip
    keep = graph.add(_processor(names.keep, lambda: KeepSubscriptions(link), spec), subscriptions)
    rows = right._state.getter()
    answer = _processor(names.answer, lambda: AnswerSubscription(rows), stores=rows.stores)
    answer.looks_up = (right._node,)
    graph.add(answer, keep, right._node)
    all_of_row = AnswerSubscribers(link)
    answer_all = graph.add(
        _processor(names.answer_all, lambda: latest_only(all_of_row, right._state.versioned), spec), right._node
    )
    responses = Repartition(
        names.responses_source, names.responses, names.responses_sink, names.responses_source, None,
        left._key, MadeOf(SubscriptionResponseSerde, (right._value,)),
        partitioner=_by_key(by.partitioner, names.responses_sink) or to_the_row,
    )  # fmt: skip
    return graph.add(responses, answer, answer_all)


def _processor(
    name: str, make: Callable[[], Operator], spec: StoreSpec | None = None, stores: tuple[str, ...] = ()
) -> ProcessorGraphNode:
    return ProcessorGraphNode(name, make, lambda: spec, stores)


def _by_key(partitioner: Partitioner | None, sink: str) -> ByKey | None:
    if partitioner is None:
        return None
    check_functions(SinkNode(sink, (), "", partitioner=function_of(partitioner)))
    return ByKey(partitioner)


def _result(graph: Graph, left: KTable, join: GraphNode, name: str, materialized: Materialized) -> KTable:
    """Add the table of the joined rows."""
    store = materialized.store or graph.names.store(_OUTPUT)
    value: Choice = materialized.value or as_fallback(left._value)
    spec = materialized.spec(store, materialized.key or left._key, value)
    state = TableState(spec, has_store=materialized.store is not None)
    node = ProcessorGraphNode(
        name, lambda: TableSource(state.store_name, state.send_old_values), spec=lambda: state.store
    )
    return KTable(graph, graph.add(node, join), left._key, value, state)
