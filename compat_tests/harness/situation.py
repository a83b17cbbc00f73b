"""What a wait that wasn't over in time says of Kafka, so that its failure can be explained without being repeated.

| what is seen | what it rules out, or in |
|---|---|
| partitions of the inputs end where the feed stopped | a feed that wrote nothing |
| committed offsets stand still below the ends | an application that doesn't fetch, or can't commit |
| an instance's own status (`SIGUSR1`) has no lag of a partition | that one was never fetched |
| stable ends below the ends | an open transaction |
| a fresh reader sees what the case's reader doesn't | the case's own reader |
| members and their partitions | a group that has lost a member, or a task |

*Guarantees*: a part that can't be learned says why, in its place.
*Assumes*: Kafka is asked only here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from compat_tests.harness.cluster import Cluster
from compat_tests.oracles.rows import Place
from milestones.testing import TopicTail

READ_S = 15.0


def situation(cluster: Cluster, group: str, tails: Iterable[TopicTail]) -> str:
    """Everything about the topics and the group of the application `group`, in lines."""
    parts: dict[str, Callable[[], str]] = {
        "partitions": lambda: partitions(cluster, group),
        "members": lambda: members(cluster, group),
        **{f"reader {number} of the case": lambda tail=tail: str(tail) for number, tail in enumerate(tails, 1)},  # type: ignore[misc]
        "a fresh reader of committed records": lambda: fresh_reader(cluster, group, uncommitted=False),
        "a fresh reader of all records": lambda: fresh_reader(cluster, group, uncommitted=True),
    }
    return "\n".join(f"{what}: {_told(tell)}" for what, tell in parts.items())


def _told(tell: Callable[[], str]) -> str:
    try:
        return tell()
    except Exception as error:  # the failure that is being explained must not be replaced by another one
        return f"can't be told: {error!r}"


def _own_places(cluster: Cluster, group: str) -> list[Place]:
    return cluster.places(topic for topic in cluster.topics() if topic.startswith(f"{group}-"))


def partitions(cluster: Cluster, group: str) -> str:
    """Each partition's committed offset, last stable offset and end."""
    places = _own_places(cluster, group)
    ends, stable = cluster.ends(places), cluster.ends(places, stable=True)
    committed = cluster.committed(group)
    lines = []
    for place in places:
        pending = "" if stable[place] == ends[place] else f", OPEN TRANSACTION from {stable[place]} on"
        lines.append(f"{place}: committed {committed.get(place, 'nothing')}, ends at {ends[place]}{pending}")
    return "".join(f"\n    {line}" for line in lines)


def members(cluster: Cluster, group: str) -> str:
    """Who has what; nobody while the group rebalances."""
    found = cluster.members(group)
    lines = [f"{name}: {', '.join(map(str, sorted(assigned))) or 'nothing'}" for name, assigned in found.items()]
    return "".join(f"\n    {line}" for line in lines) or "none"


def fresh_reader(cluster: Cluster, group: str, *, uncommitted: bool) -> str:
    """How many records of each partition a new consumer is given."""
    places = _own_places(cluster, group)
    with TopicTail(cluster, places, uncommitted=uncommitted) as tail:
        try:
            tail.to_the_end(READ_S)
            stuck = ""
        except AssertionError as error:
            stuck = f"; {error}"
        counts = {str(place): sum(row.place == place for row in tail.rows) for place in places}
    return f"{counts}{stuck}"
