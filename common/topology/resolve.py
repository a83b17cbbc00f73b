"""Makes the sub-topologies of a topology's nodes. The functions are pure.

*Guarantees*: sub-topologies are numbered as Kafka Streams numbers them, in the order of their first nodes.
*Assumes*: parents come before their children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from milestones.common.errors import TopologyError
from milestones.common.records import GLOBAL
from milestones.common.serdes import Serde
from milestones.common.state.spec import StoreSpec
from milestones.common.topology.naming import changelog_topic
from milestones.common.topology.nodes import (
    Node,
    ProcessorNode,
    RepartitionTopic,
    SinkNode,
    SourceNode,
    SubTopology,
)
from milestones.common.topology.serde_choice import Choice, settle

_Real: TypeAlias = Callable[[str], str]
_Defaults: TypeAlias = tuple[Serde[Any] | None, Serde[Any] | None]


def group_nodes(nodes: Mapping[str, Node]) -> list[list[Node]]:
    """Group the nodes that parents or stores connect. Groups, and the nodes in each group, are in the order of
    `nodes`."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while (above := leader.setdefault(name, name)) != name:
            leader[name] = leader[above]
            name = above
        return name

    users: dict[str, str] = {}
    for node in nodes.values():
        for parent in node.parents:
            leader[find(node.name)] = find(parent)
        for store in node.stores if isinstance(node, ProcessorNode) else ():
            leader[find(node.name)] = find(users.setdefault(store, node.name))
    groups: dict[str, list[Node]] = {}
    for node in nodes.values():
        groups.setdefault(find(node.name), []).append(node)
    return list(groups.values())


def resolve(
    application_id: str,
    *,
    nodes: Mapping[str, Node],
    stores: Mapping[str, StoreSpec],
    internal: Mapping[str, int | None],
    copartitioned: Sequence[frozenset[str]],
    defaults: _Defaults,
) -> tuple[SubTopology, ...]:
    """Return the sub-topologies of `application_id`."""
    _check_whole(nodes, stores)

    def real(topic: str) -> str:
        return f"{application_id}-{topic}" if topic in internal else topic

    groups = _copartition_groups(nodes, copartitioned, internal)
    return tuple(
        _sub_topology(number, group, application_id, stores, internal, groups, real, defaults)
        for number, group in enumerate(group_nodes(nodes))
        if not is_global(group)
    )


def is_global(group: Iterable[Node]) -> bool:
    """True if the nodes are those of a global store, for which there are no tasks."""
    return any(isinstance(node, SourceNode) and node.global_store is not None for node in group)


def resolve_global(
    nodes: Mapping[str, Node], stores: Mapping[str, StoreSpec], defaults: _Defaults
) -> SubTopology | None:
    """Return the nodes of all global stores as one sub-topology. None if there are no global stores."""
    group = [node for each in group_nodes(nodes) if is_global(each) for node in each]
    if not group:
        return None
    return _sub_topology(GLOBAL.subtopology, group, "", stores, {}, (), lambda topic: topic, defaults, changelogs={})


def _check_whole(nodes: Mapping[str, Node], stores: Mapping[str, StoreSpec]) -> None:
    if not any(isinstance(node, SourceNode) for node in nodes.values()):
        raise TopologyError("the topology reads no topic: add a source")
    used = {store for node in nodes.values() if isinstance(node, ProcessorNode) for store in node.stores}
    for store in stores:
        if store not in used:
            raise TopologyError(
                f"the store {store} is connected to no processor: name it in process(supplier, {store!r}) or "
                "connect_processor_and_state_stores, or remove it"
            )


def _sub_topology(
    number: int,
    group: Sequence[Node],
    application_id: str,
    stores: Mapping[str, StoreSpec],
    internal: Mapping[str, int | None],
    copartitioned: Iterable[frozenset[str]],
    real: _Real,
    defaults: _Defaults,
    changelogs: Mapping[str, str] | None = None,
) -> SubTopology:
    sources = [node for node in group if isinstance(node, SourceNode)]
    topics = {topic for node in sources for topic in node.topics}
    sinks = {node.topic for node in group if isinstance(node, SinkNode) and isinstance(node.topic, str)}
    names = dict.fromkeys(store for node in group if isinstance(node, ProcessorNode) for store in node.stores)
    specs = tuple(_settle_store(stores[name], defaults) for name in names)
    equal = [[source for source in sources if source.name in names] for names in copartitioned]
    equal = [each for each in equal if len(each) > 1 or any(len(source.topics) > 1 for source in each)]
    return SubTopology(
        id=number,
        nodes=tuple(_settle_node(node, real, defaults) for node in group),
        source_topics=tuple(sorted(map(real, topics))),
        source_patterns=tuple(node.pattern for node in sources if node.pattern is not None),
        sink_topics=tuple(sorted(map(real, sinks))),
        repartition_topics={
            real(topic): RepartitionTopic(real(topic), internal[topic]) for topic in sorted(topics) if topic in internal
        },
        stores=specs,
        changelogs=_changelogs(application_id, specs) if changelogs is None else changelogs,
        copartition_groups=tuple(frozenset(real(topic) for each in group for topic in each.topics) for group in equal),
        copartition_patterns=tuple(
            tuple(each.pattern for each in group if each.pattern is not None) for group in equal
        ),
        shared_stores=_shared_stores(group, real),
    )


def _changelogs(application_id: str, specs: Iterable[StoreSpec]) -> dict[str, str]:
    return {
        spec.name: spec.source_topic or changelog_topic(application_id, spec.name)
        for spec in specs
        if spec.logged or spec.source_topic
    }


def _shared_stores(group: Sequence[Node], real: _Real) -> dict[str, frozenset[str]]:
    """Return, for each store that several source topics reach, these topics."""
    reached: dict[str, frozenset[str]] = {}
    stores: dict[str, frozenset[str]] = {}
    for node in group:  # parents first
        topics = frozenset().union(*(reached[parent] for parent in node.parents))
        if isinstance(node, SourceNode):
            topics = frozenset(map(real, node.topics))
        reached[node.name] = topics
        if isinstance(node, ProcessorNode):
            stores |= {store: stores.get(store, frozenset()) | topics for store in node.stores}
    return {store: topics for store, topics in stores.items() if len(topics) > 1}


def _settle_store(spec: StoreSpec, defaults: _Defaults) -> StoreSpec:
    key, value = _settle_pair(spec.key_serde, spec.value_serde, defaults)
    return replace(spec, key_serde=key, value_serde=value)


def _settle_node(node: Node, real: _Real, defaults: _Defaults) -> Node:
    if isinstance(node, ProcessorNode):
        return node
    key, value = _settle_pair(node.key, node.value, defaults)
    if isinstance(node, SourceNode):
        return replace(node, topics=tuple(map(real, node.topics)), key=key, value=value)
    topic = real(node.topic) if isinstance(node.topic, str) else node.topic
    return replace(node, topic=topic, key=key, value=value)


def _settle_pair(key: Choice, value: Choice, defaults: _Defaults) -> tuple[Serde[Any], Serde[Any]]:
    return settle(key, defaults[0]), settle(value, defaults[1], defaults[0])


def _copartition_groups(
    nodes: Mapping[str, Node],
    copartitioned: Sequence[frozenset[str]],
    internal: Mapping[str, int | None],
) -> list[frozenset[str]]:
    """Return groups of source names whose topics need equal partition counts. Groups that share a source are merged."""
    groups: list[set[str]] = []
    for names in copartitioned:
        sources = [node for name in names if isinstance(node := nodes[name], SourceNode)]
        _check_counts((topic for node in sources for topic in node.topics), internal)
        merged = {node.name for node in sources}
        apart = []
        for group in groups:
            if group & merged:
                merged |= group
            else:
                apart.append(group)
        groups = [*apart, merged]
    return [frozenset(group) for group in groups]


def _check_counts(topics: Iterable[str], internal: Mapping[str, int | None]) -> None:
    counts = {topic: internal.get(topic) for topic in sorted(topics)}
    known = {count for count in counts.values() if count is not None}
    if None not in counts.values() and len(known) > 1:
        raise TopologyError(f"these topics are joined and need equal partition counts: {counts}")
