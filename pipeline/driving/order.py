"""In which order sub-topologies run. Pure.

*Guarantees*: a sub-topology comes after all sub-topologies that write to its topics, unless they form a circle.
Sub-topologies of one level are independent of each other. A circle begins with its lowest number.
*Assumes*: if a function chooses a sink's topic, the application doesn't read that topic.
"""

from __future__ import annotations

from collections.abc import Sequence

from milestones.common.patterns import matching
from milestones.common.topology.topology import SubTopology


def levels(subtopologies: Sequence[SubTopology]) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of the sub-topologies, level by level."""
    upstream = {
        sub.id: {other.id for other in subtopologies if other is not sub and _feeds(other, sub)}
        for sub in subtopologies
    }
    waiting, found = set(upstream), []
    while waiting:
        ready = [id for id in waiting if not upstream[id] & waiting] or [min(waiting)]
        found.append(tuple(sorted(ready)))
        waiting -= set(ready)
    return tuple(found)


def inner_topics(subtopologies: Sequence[SubTopology]) -> frozenset[str]:
    """Return the topics that the application both writes and reads: repartition topics, and other topics between
    sub-topologies.
    """
    return frozenset(topic for sub in subtopologies for topic in sub.sink_topics if _read_by(topic, subtopologies))


def circular_topics(subtopologies: Sequence[SubTopology]) -> frozenset[str]:
    """Return the inner topics that are part of a circle: a sub-topology reads the topic in the same level as its
    writer, or in an earlier one.
    """
    level = {id: number for number, ids in enumerate(levels(subtopologies)) for id in ids}
    return frozenset(
        topic
        for writer in subtopologies
        for topic in writer.sink_topics
        for reader in subtopologies
        if _read_by(topic, [reader]) and level[reader.id] <= level[writer.id]
    )


def _feeds(one: SubTopology, other: SubTopology) -> bool:
    return any(_read_by(topic, [other]) for topic in one.sink_topics)


def _read_by(topic: str, subtopologies: Sequence[SubTopology]) -> bool:
    return any(topic in sub.source_topics or matching(sub.source_patterns, [topic]) for sub in subtopologies)
