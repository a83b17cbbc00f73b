"""`LogConsumer`: reads partitions in memory.

*Guarantees*: it has the methods of `AssignedConsumer` that the runtime calls. A fetch never waits.
*Assumes*: all records in the partitions are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import OFFSET_BEGINNING

from milestones.common.kafka.consumers import Fetched
from milestones.common.records import TopicPartition
from milestones.stepped.kafka import ClusterLogs


class LogConsumer:
    """`positions`: the next offset of each assigned partition. `reported`: the partitions whose end was reported since
    their last record; `lost`: the partitions whose position was reported as out of range."""

    blocked_ns = 0

    def __init__(self, logs: ClusterLogs, partitions_of: Callable[[str], int] = lambda _: 1) -> None:
        self.logs, self._partitions_of = logs, partitions_of
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.reported: set[TopicPartition] = set()
        self.lost: set[TopicPartition] = set()
        self.closed = False

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return frozenset(self.positions)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Assign these partitions too, at these positions. Partitions that are already assigned move to their new
        positions."""
        self.unassign(positions)
        self.positions.update(positions)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions."""
        for partition in list(partitions):
            self.positions.pop(partition, None)
            self.paused.discard(partition)
            self.reported.discard(partition)
            self.lost.discard(partition)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Don't fetch from these partitions until `resume`."""
        self.paused |= self.positions.keys() & set(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch from these partitions from now on."""
        self.paused -= set(partitions)

    def fetch(self, limit: int, timeout_ms: int) -> Fetched:
        """Return at most `limit` records of each partition."""
        fetched = Fetched()
        for partition in sorted(self.positions.keys() - self.paused):
            self._fetch(partition, limit, fetched)
        return fetched

    def _fetch(self, partition: TopicPartition, limit: int, fetched: Fetched) -> None:
        log, at = self.logs[partition], self.positions[partition]
        at = log.first if at == OFFSET_BEGINNING else at
        if not log.first <= at <= log.end:
            if partition not in self.lost:
                fetched.out_of_range.append(partition)
                self.lost.add(partition)
            return
        entries = log.entries[at - log.first : at - log.first + limit]
        messages = [message for message in entries if message is not None]
        if messages:
            fetched.records[partition] = messages
        self.positions[partition] = at + len(entries)
        if entries or partition not in self.reported:
            self.reported.discard(partition)
            if self.positions[partition] == log.end:
                fetched.ends[partition] = log.end
                self.reported.add(partition)

    def known_end(self, partition: TopicPartition) -> int | None:
        """Return the end offset of a partition."""
        return self.logs[partition].end

    def partitions_of(self, topic: str, timeout_ms: int) -> int:
        """Return the partition count of a topic."""
        return self._partitions_of(topic)

    def close(self) -> None:
        """Record that the consumer is closed."""
        self.closed = True
