"""Source topics that serve as changelogs.

*Guarantees*: a store that is restored from its source topic has no rows of unreadable records, as processing skips
them, too. (Kafka Streams restores these bytes, and fails when the row is read.)
*Assumes*: the source's serdes are those of the store. A restored row gets the timestamp of its record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from milestones.common.records import TaskId, TopicPartition
from milestones.common.serdes import Serde
from milestones.common.state.changelog import ChangelogRecord
from milestones.common.topology.nodes import SourceNode, SubTopology

log: Final = logging.getLogger(__name__)

Pick = Callable[[Iterable[ChangelogRecord]], list[ChangelogRecord]]
"""Returns the given records without the unreadable ones."""


def source_changelogs(sub: SubTopology, task: TaskId) -> frozenset[TopicPartition]:
    """Return the input partitions of a task that serve as changelogs."""
    return frozenset(
        TopicPartition(spec.source_topic, task.partition)
        for spec in sub.stores
        if spec.source_topic is not None and spec.name in sub.changelogs
    )


def picks(sub: SubTopology) -> dict[str, Pick]:
    """Return a function that picks the readable records, for each store that is restored from its source topic."""
    found = dict[str, Pick]()
    for spec in sub.stores:
        if (topic := spec.source_topic) is not None:
            nodes = [node for node in sub.nodes if isinstance(node, SourceNode) and topic in node.topics]
            found |= [(spec.name, _readable(spec.name, topic, node)) for node in nodes]
    return found


def _readable(store: str, topic: str, source: SourceNode) -> Pick:
    key, value = source.key, source.value
    assert isinstance(key, Serde)  # settled by `resolve`
    assert isinstance(value, Serde)
    read_key, read_value = key.deserializer(topic), value.deserializer(topic)

    def pick(records: Iterable[ChangelogRecord]) -> list[ChangelogRecord]:
        picked, passed_over = list[ChangelogRecord](), 0
        for record in records:
            key, value = record.key(), record.value()
            try:
                if key is not None:
                    read_key(key)
                if value is not None:
                    read_value(value)
            except Exception:  # whatever a user's serde raises
                passed_over += 1
            else:
                picked.append(record)
        if passed_over:
            log.warning(
                "store %s is restored from %s without %d records that can't be read", store, topic, passed_over
            )
        return picked

    return pick
