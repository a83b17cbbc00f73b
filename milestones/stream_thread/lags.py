"""Finds out how many unprocessed records a thread's input partitions have, even while the partitions aren't fetched.

    fetched ---------------------> the consumer knows the end
    not fetched, as its task waits, restores or has ended --each `ASK_MS`--> Kafka tells end and committed offset
    no assignment, as the group has lost the member -----------------------> the last known lag

*Guarantees*: once the lag of an active task's partition is known, it is reported until another assignment takes the
partition away. No call waits for Kafka.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError
from milestones.common.kafka.answers import told

if TYPE_CHECKING:
    from collections.abc import Collection
    from concurrent.futures import Future

    from milestones.common.kafka.admin import Answers
    from milestones.common.kafka.topics import Cluster
    from milestones.common.records import TopicPartition
    from milestones.instance.context import ThreadContext

FIRST_MS, ASK_MS = 2_000, 10_000
"""`FIRST_MS`: Kafka is first asked when a partition hasn't been fetched for this time. `ASK_MS`: after that, Kafka is
asked at intervals of this time."""

COMMITTED = "committed"
"""The key of the group's committed offsets in an answer."""


class Lag(NamedTuple):
    """`records`: the number of records that weren't processed yet at the time `known_ms` (monotonic)."""

    records: int
    known_ms: int


class PartitionLags:
    """*Owns*: the last known lags, and the question under way. *Sends*: questions to the housekeeper's admin client."""

    def __init__(self, context: ThreadContext) -> None:
        self._context, self._committed = context, context.config.exactly_once
        self.known: dict[TopicPartition, Lag] = {}
        self._asked: frozenset[TopicPartition] = frozenset()
        self._answers: Answers[Any, Any] | None = None
        self._ask_ms: int | None = None

    def look(
        self,
        fetched: Mapping[TopicPartition, int],
        assigned: Collection[TopicPartition],
        now_ms: int,
        *,
        joining: bool,
    ) -> Mapping[TopicPartition, Lag]:
        """Return the known lags. `fetched`: the lags that the consumer knows. `assigned`: the partitions of all active
        tasks. `joining`: True while the thread joins its group, so that another assignment is about to come."""
        if not joining:
            wanted = frozenset(assigned)
            self.known = {partition: lag for partition, lag in self.known.items() if partition in wanted}
        self._take(now_ms)
        self.known |= {partition: Lag(records, now_ms) for partition, records in fetched.items()}
        self._ask(frozenset(assigned) - fetched.keys(), now_ms)
        return self.known

    def _ask(self, standing: frozenset[TopicPartition], now_ms: int) -> None:
        if not standing:
            self._ask_ms = None
        elif self._ask_ms is None:
            self._ask_ms = now_ms + FIRST_MS
        elif now_ms >= self._ask_ms and self._answers is None:
            self._ask_ms, self._asked = now_ms + ASK_MS, standing
            self._answers = self._context.admin.ask(partial(self._begin, standing))

    def _begin(self, asked: frozenset[TopicPartition], cluster: Cluster) -> Mapping[Any, Future[Any]]:
        firsts = cluster.start_listing(asked, end=False)
        ends = cluster.start_listing(asked, end=True, committed=self._committed)
        return {
            COMMITTED: cluster.start_reading_committed(self._context.config.application_id, asked),
            **{(False, partition): future for partition, future in firsts.items()},
            **{(True, partition): future for partition, future in ends.items()},
        }

    def _take(self, now_ms: int) -> None:
        """Take the answers that have come. A partition without an answer keeps its last known lag."""
        answers = self._answers
        if answers is None or not answers.done():
            return
        self._answers = None
        if answers.cancelled() or answers.exception() is not None:
            return
        found = answers.result()
        try:
            committed = {partition: at.offset for partition, at in found[COMMITTED].result().items()}
        except MilestonesError:
            return
        for partition in self._asked:
            try:
                first, end = told(partition, found[False, partition]), told(partition, found[True, partition])
            except KafkaException:
                continue
            self.known[partition] = Lag(max(0, end - max(first, committed.get(partition, first))), now_ms)
