"""Watches an application's internal topics and source topics while it runs.

*Guarantees*: topics are compared by id, so that a watch notices a topic that was deleted and made anew between two
looks.
*Assumes*: the thread that calls `look` owns the watches.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from milestones.common.errors import SourceTopicError
from milestones.common.kafka.topic_metadata import Described
from milestones.instance.application import Application
from milestones.instance.topic_ids import KEPT, LOST


@dataclass(frozen=True)
class NewSources:
    """New topics that a source's pattern matches, for which the group needs a rebalance."""

    topics: frozenset[str]


def made_anew(before: Described, now: Described) -> bool:
    """True if two descriptions with the same name belong to two different topics."""
    return before.id != now.id and None not in (before.id, now.id)


class InternalWatch:
    """Watches the application's own topics. *Owns*: the topics as it has seen them."""

    def __init__(self) -> None:
        self._seen: dict[str, Described] = {}
        self._missing: frozenset[str] = frozenset()

    @property
    def ids(self) -> dict[str, str]:
        """Kafka's ids of the topics that were seen."""
        return {topic: told.id for topic, told in self._seen.items() if told.id is not None}

    def look(self, found: Mapping[str, Described], expected: Collection[str] = ()) -> list[SourceTopicError]:
        """Return the errors of a look that has `found` these topics. `expected`: the topics that must exist. A topic
        counts as deleted if it is missing in two looks in a row.
        """
        missing = frozenset(self._seen.keys() | set(expected)) - found.keys()
        gone, self._missing = missing & self._missing, missing
        news = [
            SourceTopicError(f"internal topic {topic} was deleted under the running application; {LOST}")
            for topic in sorted(gone)
        ]
        return [*news, *self.changed(found).values()]

    def changed(self, found: Mapping[str, Described]) -> dict[str, SourceTopicError]:
        """Return the errors of existing topics, by topic. If a topic was made anew, this is an error immediately,
        before a store is restored from the topic.
        """
        news: dict[str, SourceTopicError] = {}
        for topic, told in sorted(found.items()):
            before = self._seen.setdefault(topic, told)
            if made_anew(before, told):
                news[topic] = SourceTopicError(
                    f"internal topic {topic} was deleted and made anew under the running application; {LOST}"
                )
            elif before.partitions != told.partitions:
                news[topic] = SourceTopicError(
                    f"internal topic {topic} had {before.partitions} partitions and has {told.partitions} now: keys "
                    "would move between tasks; reset the application (`milestones reset`) to start over"
                )
        return news


class SourceWatch:
    """Watches the source topics that the application doesn't make. *Owns*: the topics as it has seen them."""

    def __init__(self, application: Application, known: frozenset[str] = frozenset()) -> None:
        """`known`: topics that don't count as new, in addition to those that the application names."""
        self._application = application
        self._known = known.union(application.source_topics)
        self._seen: dict[str, Described] = {}
        self._missing: frozenset[str] = frozenset()

    def look(self, found: Mapping[str, Described]) -> list[SourceTopicError | NewSources]:
        """Return the errors of a look at all topics. A topic counts as deleted if it is missing in two
        looks in a row, because a broker that has just started may not know it yet.
        """
        news: list[SourceTopicError | NewSources] = []
        missing = self._seen.keys() - found.keys()
        unsure = {topic: self._seen[topic] for topic in missing - self._missing}
        self._missing = frozenset(missing)
        changed = changed_sources(self._seen, {**found, **unsure})
        if changed is not None:
            news.append(changed)
        sources = self._sources(found)
        new = frozenset(sources - self._seen.keys() - self._known)
        if new:
            news.append(NewSources(new))
        self._seen |= {topic: found[topic] for topic in sources}
        return news

    def changed(self, found: Mapping[str, Described]) -> dict[str, SourceTopicError]:
        """Return the errors of topics that were made anew since the first look, by topic. For looks at some of the
        topics.
        """
        seen = {topic: self._seen.setdefault(topic, found[topic]) for topic in self._sources(found)}
        return {
            topic: error
            for topic, before in seen.items()
            if (error := changed_sources({topic: before}, found)) is not None
        }

    def _sources(self, found: Mapping[str, Described]) -> set[str]:
        return self._application.external_topics(found) & found.keys()


def changed_sources(before: Mapping[str, Described], now: Mapping[str, Described]) -> SourceTopicError | None:
    """Return the error that says how the source topics have changed, or None if they haven't."""
    for topic, was in before.items():
        if topic not in now:
            return SourceTopicError(
                f"source topic {topic} was deleted under the running application; create it again with "
                f"{was.partitions} partitions and restart, or reset the application (`milestones reset`)"
            )
        if made_anew(was, now[topic]):
            return SourceTopicError(
                f"source topic {topic} was deleted and made anew under the running application, which may have read "
                "records of the new one at offsets of the former one, and skipped those before. Stop all instances, "
                f"then: {KEPT.format(topic=topic)}"
            )
        if now[topic].partitions != was.partitions:
            return SourceTopicError(
                f"source topic {topic} had {was.partitions} partitions and has {now[topic].partitions} now: keys have "
                "moved between tasks, so state would be wrong; reset the application (`milestones reset`) to start over"
            )
    return None
