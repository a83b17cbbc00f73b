"""A consumer whose partitions begin in an archive and go on in Kafka.

*Guarantees*: those of `BoundedConsumer`, from whatever offset the archive has; nothing is read twice.
*Assumes*: every partition's archive ends within what Kafka has of it, and before the partition's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from milestones.common.kafka.consumers import Fetched
from milestones.common.records import TopicPartition
from milestones.pipeline.backfill.archive import Archive
from milestones.pipeline.hosting.bounded import BoundedConsumer
from milestones.pipeline.records import StoredRecord


class ArchiveConsumer(BoundedConsumer):
    """`history`: URL of the archive."""

    def __init__(self, settings: Mapping[str, Any], ends: Mapping[TopicPartition, int], history: str) -> None:
        super().__init__(settings, ends)
        self._archive = Archive(history)
        self._archived = self._archive.ranges({partition.topic for partition in ends})
        self._reading: dict[TopicPartition, Iterator[list[StoredRecord]]] = {}
        self._resting: set[TopicPartition] = set()

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return super().assigned | self._reading.keys()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return super().paused | self._resting

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        old = {at: position for at, position in positions.items() if position < self._archived.get(at, (0, 0))[1]}
        super().assign({at: position for at, position in positions.items() if at not in old})
        self._reading.update({at: self._archive.read(at, position) for at, position in old.items()})

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        leaving = set(partitions)
        for at in leaving & self._reading.keys():
            del self._reading[at]
        self._resting -= leaving
        super().unassign(leaving)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        stopping = set(partitions)
        self._resting |= stopping & self._reading.keys()
        super().pause(stopping)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        starting = set(partitions)
        self._resting -= starting
        super().resume(starting)

    def fetch(self, limit: int, timeout_ms: int) -> Fetched:
        records: dict[TopicPartition, Any] = {}
        for at in self._reading.keys() - self._resting:
            batch = next(self._reading[at], None)
            if batch is not None:
                records[at] = batch
            else:
                del self._reading[at]
                super().assign({at: self._archived[at][1]})
        fetched = super().fetch(limit, 0 if records else timeout_ms)
        fetched.records.update(records)
        return fetched
