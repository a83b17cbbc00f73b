"""The three optimisations of Kafka Streams' `topology.optimization`, as rewrites of a graph.

| name | what it does |
|---|---|
| `reuse.ktable.source.topics` | a table that is read from a topic gets no changelog: its store is restored from the topic |
| `merge.repartition.topics` | an operation that changes keys is followed by one repartition topic, in place of several further down |
| `single.store.self.join` | a stream that is joined with itself is kept in one store, not in two |

The names of nodes, stores and topics are those that Kafka Streams gives with the same optimisations.

*Guarantees*: the results are those of the topology without optimisations, except that the order between branches of a
stream may differ. A repartition topic is moved upward to an operation only if all of its records come through that
operation.
*Assumes*: rewrites are applied in the order of `REWRITES`.
"""  # noqa: E501  a row of a table

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from milestones.common.errors import TopologyError
from milestones.common.state.spec import StoreSpec
from milestones.common.topology.graph import GraphNode, Repartition, TableFromTopic, repartition_node
from milestones.common.topology.links import Links, Rewrite
from milestones.common.topology.naming import Names
from milestones.common.topology.serde_choice import Choice, Upstream
from milestones.common.topology.stream_joins import StreamJoinNode

REUSE: Final = "reuse.ktable.source.topics"
MERGE: Final = "merge.repartition.topics"
SELF_JOIN: Final = "single.store.self.join"
ALL, NONE = "all", "none"


def reuse_source_topics(links: Links, _: Names) -> None:
    """Use the topics that tables are read from as the changelogs of their stores."""
    for node in links.nodes:
        if isinstance(node, TableFromTopic):
            (topic,) = node.source.topics
            links.forms[node] = replace(node, spec=_kept_in(topic, node.spec))


def _kept_in(topic: str, spec: Callable[[], StoreSpec | None]) -> Callable[[], StoreSpec | None]:
    def kept() -> StoreSpec | None:
        own = spec()
        return None if own is None else replace(own, logged=False, source_topic=topic)

    return kept


def merge_repartition_topics(links: Links, names: Names) -> None:
    """Repartition once after each operation that changes keys, instead of once before each operation that needs them.
    """
    for changer, repartitions in _by_changer(links).items():
        movable = [each for each in repartitions if links.always_through(each, changer)]
        if movable:
            _repartition_after(changer, movable, links, names)


def _by_changer(links: Links) -> dict[GraphNode, list[Repartition]]:
    """Return the repartitions that one repartition can replace, by the operation after which it would stand. This is
    the operation that changed the keys, or the last one that merged the changed records with other records."""
    found: dict[GraphNode, list[Repartition]] = {node: [] for node in links.nodes if node.changes_keys}
    for node in links.nodes:
        if isinstance(node, Repartition) and node.movable:
            changer = next((each for each in links.above(node) if each.changes_keys or each.changes_values), None)
            if changer is not None and changer.changes_keys:
                found[changer].append(node)
    for merge in reversed([node for node in links.nodes if node.merges]):
        above = set(links.above(merge))
        changers = [
            each for each, repartitions in found.items()
            if each in above and not each.merges and all(merge in links.above(one) for one in repartitions)
        ]  # fmt: skip
        found[merge] = [each for changer in changers for each in found.pop(changer)]
    return found


def _repartition_after(changer: GraphNode, merged: list[Repartition], links: Links, names: Names) -> None:
    key, value = _first(each.key for each in merged), _first(each.value for each in merged)
    one = repartition_node(names, merged[0].topic, key, value)
    links.add(one, links.priority[changer])
    for node in merged:
        for child in [each for each in links.above(node) if changer in links.parents(each)]:
            links.unlink(changer, child)
            links.link(one, child)
        for parent in links.parents(node):
            for below in links.children(node):
                links.link(parent, below)
        links.take_out(node)
        links.became[node] = one
    links.link(changer, one)


def _first(choices: Iterable[Choice]) -> Choice:
    """Return the first serde that was chosen explicitly, or else the first one that was inherited from upstream."""
    given = [choice for choice in choices if choice is not None]
    return next((choice for choice in given if not isinstance(choice, Upstream)), given[0] if given else None)


def keep_self_joins_once(links: Links, _: Names) -> None:
    """Keep a stream that is joined with itself in one store."""
    for node in links.nodes:
        if not isinstance(node, StreamJoinNode) or len(parents := links.parents(node)) != 1:
            continue
        (other,) = [each for each in links.children(parents[0]) if each.name == node.windowed[1]]
        links.take_out(other)
        links.forms[node] = node.of_itself()


REWRITES: Final[Mapping[str, Rewrite]] = MappingProxyType({
    REUSE: reuse_source_topics,
    MERGE: merge_repartition_topics,
    SELF_JOIN: keep_self_joins_once,
})  # fmt: skip


def parts_of(value: str | Collection[str]) -> frozenset[str]:
    """Return the optimisations that a value of `topology_optimization` names. A value is `all`, `none`, or names, as a
    collection or as one text with commas. Raises `ValueError` for any other value."""
    names = frozenset(each.strip() for each in (value.split(",") if isinstance(value, str) else value))
    if names == {ALL}:
        return frozenset(REWRITES)
    if names in ({NONE}, frozenset()):
        return frozenset()
    if not names <= REWRITES.keys():
        raise ValueError(f"is {ALL!r}, {NONE!r}, or some of {', '.join(REWRITES)}")
    return names


def rewrites_of(parts: Collection[str]) -> list[Rewrite]:
    """Return the rewrites for these optimisations, in the order of `REWRITES`."""
    return [rewrite for name, rewrite in REWRITES.items() if name in parts]


def check_parts(value: str | Collection[str]) -> frozenset[str]:
    """Return the same as `parts_of`, but raise `TopologyError` for a wrong value."""
    try:
        return parts_of(value)
    except ValueError as error:
        raise TopologyError(f"topology_optimization {error}, not {value!r}") from error
