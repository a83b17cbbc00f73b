"""Source topics that serve as changelogs.

*Guarantees*: a store that is restored from its source topic has no row of a record that processing couldn't read, and
so had to skip. (Kafka Streams restores these bytes, and fails when the row is read.)
*Assumes*: the source's serdes are those of the store. A restored row has its record's own timestamp.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from milestones.common.records import TaskId, TopicPartition
from milestones.common.serdes import Serde
from milestones.common.state.changelog import ChangelogRecord
from milestones.common.topology.nodes import SourceNode, SubTopology

log = logging.getLogger(__name__)

Pick = Callable[[Iterable[ChangelogRecord]], list[ChangelogRecord]]
"""Leaves out the records that can't be read."""


def source_changelogs(sub: SubTopology, task: TaskId) -> frozenset[TopicPartition]:
    """The input partitions of a task that serve as changelogs, up to the group's committed offsets."""
    return frozenset(
        TopicPartition(spec.source_topic, task.partition)
        for spec in sub.stores
        if spec.source_topic is not None and spec.name in sub.changelogs
    )


def picks(sub: SubTopology) -> dict[str, Pick]:
    """By store that is restored from its source topic, what picks the records to restore."""
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
