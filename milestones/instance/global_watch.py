"""`GlobalWatch` watches the topics of global stores while an instance runs.

*Guarantees*: a topic that was deleted, made anew, or given more partitions is reported once.
*Assumes*: the thread that calls `look` owns the watch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from milestones.common.errors import SourceTopicError
from milestones.common.kafka.topic_metadata import Described


def uncompacted(settings: Mapping[str, Mapping[str, str]]) -> str | None:
    """Return the warning about topics of global stores whose settings let Kafka delete records, or None."""
    losing = sorted(topic for topic, told in settings.items() if told.get("cleanup.policy", "compact") != "compact")
    if not losing:
        return None
    return (
        f"global stores are made of {', '.join(losing)}, from which old records are deleted: an instance with an empty "
        "disk won't have their rows, while others do; set cleanup.policy=compact"
    )


class GlobalWatch:
    """*Owns*: the descriptions of the topics at the first look."""

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics
        self._seen: dict[str, Described] = {}
        self._missing: frozenset[str] = frozenset()

    def look(self, found: Mapping[str, Described]) -> list[SourceTopicError]:
        """Return the errors of a look that has `found` these topics. A topic counts as deleted if it is missing in two
        looks in a row.
        """
        missing = frozenset(self._seen) - found.keys()
        gone, self._missing = missing & self._missing, missing
        news = [
            SourceTopicError(
                f"topic {topic} of a global store was deleted under the running application: create it again, with all "
                "records of the table, and restart"
            )
            for topic in sorted(gone)
        ]
        return [*news, *self.changed(found).values()]

    def changed(self, found: Mapping[str, Described]) -> dict[str, SourceTopicError]:
        """Return the errors of topics that have changed since the first look, by topic. For looks at some of the
        topics.
        """
        news: dict[str, SourceTopicError] = {}
        for topic in sorted(found.keys() & set(self._topics)):
            told = found[topic]
            before = self._seen.setdefault(topic, told)
            if before.id != told.id and None not in (before.id, told.id):
                news[topic] = SourceTopicError(
                    f"topic {topic} of a global store was deleted and made anew under the running application: restart "
                    "it, and the store is read anew"
                )
            elif before.partitions != told.partitions:
                news[topic] = SourceTopicError(
                    f"topic {topic} of a global store had {before.partitions} partitions and has {told.partitions} "
                    "now, so keys have moved between them: restart the application, and all of them are read"
                )
        return news
