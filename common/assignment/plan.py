"""Computes the tasks of an application from its sub-topologies and partition counts. Pure functions.

*Guarantees*: the plan doesn't depend on the order of mappings. The rules are Kafka Streams'. A sub-topology has one
task per partition of its largest source topic. A repartition topic without a count takes the largest count of its
upstream source topics, through chains of repartition topics. Co-partitioned repartition topics get one count. Errors
are collected, never raised: the leader sends them to every member.
*Assumes*: `partitions` contains at least the existing topics that the sub-topologies name or that their patterns match.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

import orjson

from milestones.common.patterns import matching
from milestones.common.records import TaskId, TopicPartition


class RepartitionTopicLike(Protocol):
    @property
    def partitions(self) -> int | None: ...


class SubTopologyLike(Protocol):
    """The attributes of a `SubTopology` that the plan needs."""

    @property
    def id(self) -> int: ...
    @property
    def source_topics(self) -> tuple[str, ...]: ...
    @property
    def source_patterns(self) -> tuple[str, ...]: ...
    @property
    def sink_topics(self) -> tuple[str, ...]: ...
    @property
    def repartition_topics(self) -> Mapping[str, RepartitionTopicLike]: ...
    @property
    def changelogs(self) -> Mapping[str, str]: ...
    @property
    def copartition_groups(self) -> tuple[frozenset[str], ...]: ...
    @property
    def copartition_patterns(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def shared_stores(self) -> Mapping[str, frozenset[str]]: ...


@dataclass(frozen=True)
class TaskPlan:
    """All tasks of an application, and the internal topics that the tasks need.

    `tasks` contains the input partitions of each task, by topic name. `changelog_counts` leaves out source topics that
    serve as changelogs. `changelogs` contains the changelog partitions of each stateful task. Only a task with
    changelogs can have a copy of its state on another process. `missing_topics` are source topics that don't exist.
    `problems` are all other errors.
    """

    tasks: Mapping[TaskId, tuple[TopicPartition, ...]]
    changelogs: Mapping[TaskId, tuple[TopicPartition, ...]]
    repartition_counts: Mapping[str, int]
    changelog_counts: Mapping[str, int]
    missing_topics: frozenset[str]
    problems: tuple[str, ...]
    fingerprint: str

    @property
    def stateful(self) -> Set[TaskId]:
        """The tasks that have a changelog."""
        return self.changelogs.keys()

    @property
    def error(self) -> str | None:
        """The reason why nothing can run, in words for a user. None if the plan has no errors."""
        reasons = list(self.problems)
        if self.missing_topics:
            names = ", ".join(sorted(self.missing_topics))
            reasons.insert(0, f"source topics don't exist: {names}; create them, then start again")
        return "; ".join(reasons) or None


def plan_tasks(subtopologies: Iterable[SubTopologyLike], partitions: Mapping[str, int]) -> TaskPlan:
    """Return the tasks of these sub-topologies. `partitions`: the partition counts of the existing topics (at least 1
    each).

    Counts of internal topics in `partitions` are ignored, as the plan decides them.
    """
    subs = sorted(subtopologies, key=lambda sub: sub.id)
    owned = {topic: spec.partitions for sub in subs for topic, spec in sub.repartition_topics.items()}
    internal = internal_names(subs)
    external = {topic: count for topic, count in partitions.items() if topic not in internal}
    sources = {sub.id: _sources(sub, external) for sub in subs}
    missing = {topic for topics in sources.values() for topic in topics if topic not in external | owned}

    repartition_counts, problems = _repartition_counts(subs, sources, owned, external)
    if not missing:
        for sub in subs:
            for group, patterns in _copartitioned(sub):
                topics = group | matching(patterns, external)
                problems += _copartition(topics, owned, external, repartition_counts)

    counts = external | repartition_counts
    if not (missing or problems):
        problems += [reason for sub in subs for reason in _apart(sub, counts)]
    tasks: dict[TaskId, tuple[TopicPartition, ...]] = {}
    changelog_counts: dict[str, int] = {}
    for sub in subs:
        known = [(topic, counts[topic]) for topic in sources[sub.id] if topic in counts]
        size = max((count for _, count in known), default=0)
        for number in range(size):
            tasks[TaskId(sub.id, number)] = tuple(TopicPartition(t, number) for t, count in known if number < count)
        for topic in sub.changelogs.values():
            if topic not in sources[sub.id] and size:
                changelog_counts[topic] = max(size, changelog_counts.get(topic, 0))
    return TaskPlan(
        tasks=tasks,
        changelogs=_changelogs(subs, sources, tasks),
        repartition_counts=repartition_counts,
        changelog_counts=changelog_counts,
        missing_topics=frozenset(missing),
        problems=tuple(problems),
        fingerprint=fingerprint(subs),
    )


def internal_names(subtopologies: Collection[SubTopologyLike]) -> frozenset[str]:
    """Return the topics that the application creates for itself: repartition topics, and changelogs that aren't source
    topics. No source pattern matches them."""
    named = {topic for sub in subtopologies for topic in sub.source_topics}
    changelogs = {topic for sub in subtopologies for topic in sub.changelogs.values()}
    return frozenset(topic for sub in subtopologies for topic in sub.repartition_topics) | (changelogs - named)


def fingerprint(subtopologies: Iterable[SubTopologyLike]) -> str:
    """Return a short digest of everything that decides about tasks and their state. Instances with equal digests may
    share a group (rolling upgrade)."""
    shape = [
        [
            sub.id, sorted(sub.source_topics), sorted(sub.source_patterns), sorted(sub.changelogs.items()),
            sorted((topic, spec.partitions or 0) for topic, spec in sub.repartition_topics.items()),
            sorted(sorted(group) + sorted(patterns) for group, patterns in _copartitioned(sub)),
        ]
        for sub in sorted(subtopologies, key=lambda sub: sub.id)
    ]  # fmt: skip
    return sha256(orjson.dumps(shape)).hexdigest()[:12]


def _copartitioned(sub: SubTopologyLike) -> Iterable[tuple[frozenset[str], tuple[str, ...]]]:
    """Return the topics and the patterns of each group."""
    groups = sub.copartition_groups
    return zip(groups, sub.copartition_patterns or ((),) * len(groups), strict=True)


def _sources(sub: SubTopologyLike, external: Mapping[str, int]) -> tuple[str, ...]:
    """Return all source topics, including those that match the source patterns."""
    return tuple(sorted(matching(sub.source_patterns, external).union(sub.source_topics)))


def _changelogs(
    subs: Sequence[SubTopologyLike],
    sources: Mapping[int, tuple[str, ...]],
    tasks: Mapping[TaskId, tuple[TopicPartition, ...]],
) -> dict[TaskId, tuple[TopicPartition, ...]]:
    """Return the changelog partitions of each task that has any. A source topic that serves as a changelog may have
    fewer partitions than there are tasks."""
    topics = {sub.id: sorted(set(sub.changelogs.values())) for sub in subs}
    found: dict[TaskId, tuple[TopicPartition, ...]] = {}
    for task, inputs in tasks.items():
        own = [TopicPartition(topic, task.partition) for topic in topics[task.subtopology]]
        logs = tuple(at for at in own if at.topic not in sources[task.subtopology] or at in inputs)
        if logs:
            found[task] = logs
    return found


def _repartition_counts(
    subs: Sequence[SubTopologyLike],
    sources: Mapping[int, tuple[str, ...]],
    owned: Mapping[str, int | None],
    external: Mapping[str, int],
) -> tuple[dict[str, int], list[str]]:
    """Return the partition count of each repartition topic, and the problems that were found. The count is the one that
    the topic was given, or else the largest count of the topics upstream of it."""
    known = {topic: count for topic, count in owned.items() if count is not None}
    upstream = {
        topic: {source for sub in subs if topic in sub.sink_topics for source in sources[sub.id]} for topic in owned
    }
    open_topics = sorted(set(owned) - set(known))
    while open_topics:
        counts = {**external, **known}
        # A topic waits until all counts upstream are known. Only in a cycle, some of them are enough.
        ready = [topic for topic in open_topics if upstream[topic] and upstream[topic] <= counts.keys()]
        ready = ready or [topic for topic in open_topics if upstream[topic] & counts.keys()]
        if not ready:
            names = ", ".join(open_topics)
            reason = (
                f"no partition count for the repartition topics {names}: nothing upstream of them exists; create the "
                "source topics, or give the repartition a number of partitions"
            )
            return known, [reason]
        for topic in ready:
            known[topic] = max(counts[source] for source in upstream[topic] if source in counts)
        open_topics = [topic for topic in open_topics if topic not in known]
    return known, []


def _apart(sub: SubTopologyLike, counts: Mapping[str, int]) -> list[str]:
    """Return the stores for which records of one key would be in different tasks. This happens if several topics reach
    a store and have different partition counts."""
    reasons: dict[str, str] = {}
    for store, topics in sorted(sub.shared_stores.items()):
        known = {topic: counts[topic] for topic in sorted(topics) if topic in counts}
        if len(set(known.values())) > 1:
            listing = ", ".join(f"{topic} ({count})" for topic, count in known.items())
            reasons.setdefault(listing, (
                f"topics whose records reach the same store ({store}) need equal partition counts, else records of one "
                f"key are in different tasks: {listing}; repartition one of them to the other's count: "
                "repartition(partitions=...)"
            ))  # fmt: skip
    return list(reasons.values())


def _copartition(
    group: frozenset[str], owned: Mapping[str, int | None], external: Mapping[str, int], counts: dict[str, int]
) -> list[str]:
    """Give all repartition topics of a group the same count. Returns the reasons if that is impossible."""
    ours = sorted(topic for topic in group if topic in counts)
    others = {topic: external[topic] for topic in sorted(group) if topic in external}
    fixed = {topic: count for topic in ours if (count := owned[topic]) is not None}
    wanted = others or fixed
    target = next(iter(wanted.values())) if wanted else max((counts[topic] for topic in ours), default=0)
    clash = {topic: count for topic, count in {**others, **fixed}.items() if count != target}
    if clash:
        listing = ", ".join(f"{topic} ({count})" for topic, count in sorted({**others, **fixed}.items()))
        reason = "topics that are joined or share a processor need equal partition counts"
        return [f"{reason}: {listing}; repartition one side to the other's count"]
    counts.update((topic, target) for topic in ours)
    return []
