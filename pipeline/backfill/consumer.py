"""A consumer of history that reads each partition first from the archive, if there is one, and then from Kafka.

*Guarantees*: those of `BoundedConsumer`, from whatever offset the archive has; each record is read exactly once. If
Kafka has deleted records before they were read, an error is raised.
*Assumes*: no records are added in front of the archive's first ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from milestones.common.kafka.consumers import Fetched
from milestones.common.records import TopicPartition
from milestones.pipeline.backfill.archive import IN_KAFKA, Archive, ArchiveError
from milestones.pipeline.bounded import BoundedConsumer
from milestones.pipeline.records import StoredRecord


class ArchiveConsumer(BoundedConsumer):
    """`history`: URL of the archive, or `IN_KAFKA`."""

    def __init__(self, settings: Mapping[str, Any], ends: Mapping[TopicPartition, int], history: str) -> None:
        super().__init__(settings, ends)
        self._archive = None if history == IN_KAFKA else Archive(history)
        topics = {partition.topic for partition in ends}
        self._archived = {} if self._archive is None else self._archive.ranges(topics)
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
        if self._archive is not None:
            ends = {at: self._archived[at][1] for at in old}
            self._reading.update({at: self._archive.read(at, position, ends[at]) for at, position in old.items()})

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
        if fetched.out_of_range:
            raise ArchiveError(
                f"Kafka no longer has the next records of {', '.join(map(str, fetched.out_of_range))}: retention has "
                "overtaken the run; run it again to be told what is missing, with an archive that has it"
            )
        fetched.records.update(records)
        return fetched
