"""A consumer that reads each partition up to a given offset, as if the partition ended there.

*Guarantees*: no record at or behind a partition's end is returned. When all records before the end have been returned,
the end is reported as reached, and the partition isn't fetched any more.
*Assumes*: every partition that is assigned has an end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Message

from milestones.common.kafka.consumers import AssignedConsumer, Fetched
from milestones.common.records import TopicPartition


class BoundedConsumer(AssignedConsumer):
    """`ends`: for each partition, the offset in front of which reading ends."""

    def __init__(self, settings: Mapping[str, Any], ends: Mapping[TopicPartition, int]) -> None:
        super().__init__(settings)
        self._ends = dict(ends)
        self._reached: dict[TopicPartition, int] = {}
        self._untold: set[TopicPartition] = set()

    @property
    def complete(self) -> bool:
        """All ends are known."""
        return self._reached.keys() == self._ends.keys() and not self._untold

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        beyond = {partition: at for partition, at in positions.items() if at >= self._ends[partition]}
        super().assign({partition: at for partition, at in positions.items() if partition not in beyond})
        self._reached.update(beyond)
        self._untold |= beyond.keys()

    def fetch(self, limit: int, timeout_ms: int) -> Fetched:
        fetched = super().fetch(limit, timeout_ms if self.assigned and not self._untold else 0)
        for partition in fetched.records.keys() | fetched.ends.keys():
            self._bound(partition, fetched)
        for partition in self._untold:
            fetched.ends[partition] = self._reached[partition]
        self._untold.clear()
        return fetched

    def _bound(self, partition: TopicPartition, fetched: Fetched) -> None:
        end, messages = self._ends[partition], fetched.records.get(partition, [])
        position = fetched.ends.pop(partition, 0)
        if messages:
            position = max(position, (messages[-1].offset() or 0) + 1)
            if position > end:
                self._keep(partition, [message for message in messages if (message.offset() or 0) < end], fetched)
        if position >= end:
            self.unassign([partition])
            self._reached[partition] = end
            self._untold.add(partition)

    def _keep(self, partition: TopicPartition, messages: list[Message], fetched: Fetched) -> None:
        if messages:
            fetched.records[partition] = messages
        else:
            del fetched.records[partition]
