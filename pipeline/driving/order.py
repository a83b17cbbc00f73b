"""In which order sub-topologies run. Pure.

*Guarantees*: a sub-topology comes after all that write to its topics, unless they form a circle; those of one level
have nothing to do with each other. A circle is cut before its lowest number.
*Assumes*: sinks whose topic a function chooses write to topics that the application doesn't read.
"""

from __future__ import annotations

from collections.abc import Sequence

from milestones.common.patterns import matching
from milestones.common.topology.topology import SubTopology


def levels(subtopologies: Sequence[SubTopology]) -> tuple[tuple[int, ...], ...]:
    """The numbers of the sub-topologies, level by level."""
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
    """Topics that the application both writes and reads: repartition topics, and any other between sub-topologies."""
    return frozenset(topic for sub in subtopologies for topic in sub.sink_topics if _read_by(topic, subtopologies))


def circular_topics(subtopologies: Sequence[SubTopology]) -> frozenset[str]:
    """Inner topics that a sub-topology reads in no later level than one that writes to them."""
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
