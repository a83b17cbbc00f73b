"""The source: where ranges are planned, and where they are read.

*Guarantees*: a range is read completely or the task fails, unless losses are allowed; control records and aborted ones
are passed over. A partition that comes up under a query is read from its first record on.
*Assumes*: `read` runs in a process of Spark's, everything else in one that plans: each makes its own clients.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from confluent_kafka import Message
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from milestones.common.errors import MilestonesError, SourceTopicError, TimeoutExceededError
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TopicPartition
from milestones.pipeline.bounded import BoundedConsumer
from milestones.pipeline.source.offsets import Json, as_json, behind, limited, of_json
from milestones.pipeline.source.options import EARLIEST, LATEST, ReadOptions, Start

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

ROWS = 10_000
"""Records of one Arrow batch, at most."""
FETCH_MS = 200
SILENT_S = 120.0
"""How long nothing may come before a task fails; Spark makes another attempt then."""
ADMIN = ("bootstrap.servers", "security.", "sasl.", "ssl.", "client.id")

Ranges = dict[TopicPartition, tuple[int, int]]


class Range(InputPartition):
    """One Spark task's: a partition, from an offset to before another."""

    def __init__(self, partition: TopicPartition, start: int, end: int) -> None:
        super().__init__(f"{partition}[{start},{end})")
        self.partition, self.start, self.end = partition, start, end


class OffsetPlanner:
    """*Owns*: an admin client, made when it is first needed."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._cluster: Cluster | None = None

    def bounds(self) -> Ranges:
        """First offset and end of each partition there is now. `SourceTopicError` for a topic that is missing."""
        if self._cluster is None:
            self._cluster = Cluster({k: v for k, v in self._options.client.items() if k.startswith(ADMIN)})
        counts = self._cluster.partition_counts()
        if self._options.pattern is not None:
            topics = tuple(sorted(topic for topic in counts if re.fullmatch(self._options.pattern, topic)))
        else:
            topics = self._options.topics
        missing = [topic for topic in topics if topic not in counts]
        if missing:
            raise SourceTopicError(f"topics to read don't exist: {', '.join(missing)}; create them, then start again")
        partitions = [TopicPartition(topic, number) for topic in topics for number in range(counts[topic])]
        return self._cluster.bounds(partitions, committed=self._options.committed)

    def resolve(self, start: Start, bounds: Ranges, otherwise: str) -> dict[TopicPartition, int]:
        """Offsets of an option's value; partitions that it doesn't name are at `otherwise`."""
        symbols = {-2: 0, -1: 1}
        if isinstance(start, str):
            named: dict[TopicPartition, int] = {}
            otherwise = start
        else:
            named = of_json(start)
        side = {EARLIEST: 0, LATEST: 1}[otherwise]
        found = {}
        for partition, both in bounds.items():
            at = named.get(partition)
            found[partition] = both[side] if at is None else both[symbols[at]] if at in symbols else at
        return found

    def plan(self, start: dict[TopicPartition, int], end: dict[TopicPartition, int], bounds: Ranges) -> list[Range]:
        """The ranges with anything in them, once it is sure that nothing of them is lost."""
        ranges = []
        for partition in sorted(end):
            first, last = bounds.get(partition, (0, 0))
            begin = start.get(partition, min(first, end[partition]))
            if begin < first or end[partition] > last:
                self._lost(partition, begin, end[partition], first, last)
                begin, end[partition] = max(begin, first), min(end[partition], last)
            if begin < end[partition]:
                ranges.append(Range(partition, begin, end[partition]))
        return ranges

    def _lost(self, partition: TopicPartition, start: int, end: int, first: int, last: int) -> None:
        if self._options.fail_on_data_loss:
            raise MilestonesError(
                f"{partition}: offsets {start} to {end} were to be read, it has {first} to {last}: retention has "
                "removed some, or the topic was made anew; set failOnDataLoss to false to go on without them, or use "
                "a new checkpoint"
            )


class KafkaReader(DataSourceReader):
    """A batch."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[Range]:
        planner = OffsetPlanner(self._options)
        bounds = planner.bounds()
        start = planner.resolve(self._options.starting, bounds, EARLIEST)
        return planner.plan(start, planner.resolve(self._options.ending, bounds, LATEST), bounds)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, partition)


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Spark keeps the offsets in its checkpoint; the group of consumers has none."""

    def __init__(self, options: ReadOptions) -> None:
        self._options, self._planner = options, OffsetPlanner(options)
        self._target: dict[TopicPartition, int] | None = None

    def initialOffset(self) -> Json:  # noqa: N802  Spark's name
        return as_json(self._planner.resolve(self._options.starting, self._planner.bounds(), LATEST))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        bounds, known = self._planner.bounds(), of_json(start)
        end = {partition: at for partition, (_, at) in bounds.items()}
        if self._target is not None:
            end = behind(end, self._target)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(end.values()) + 1
        # One that came up under the query has its first offset written down before anything of it is read: a batch that
        # is run again begins at the same place, and what retention takes from there on is seen.
        new = {partition: bounds[partition][0] for partition in end.keys() - known.keys()}
        read_on = {partition: at for partition, at in end.items() if partition in known}
        return as_json({**known, **new, **limited(known, read_on, most)})

    def reportLatestOffset(self) -> Json:  # noqa: N802
        return as_json(self._ends())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ends()

    def _ends(self) -> dict[TopicPartition, int]:
        return {partition: end for partition, (_, end) in self._planner.bounds().items()}

    def partitions(self, start: Json, end: Json) -> list[Range]:
        return self._planner.plan(of_json(start), of_json(end), self._planner.bounds())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, partition)


def read(options: ReadOptions, range_: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of a range, in order."""
    assert isinstance(range_, Range)  # as it was planned
    partition = range_.partition
    consumer = BoundedConsumer(options.client, {partition: range_.end})
    try:
        consumer.assign({partition: range_.start})
        heard = time.monotonic()
        while not consumer.complete:
            fetched = consumer.fetch(ROWS, FETCH_MS)
            if fetched.out_of_range:
                consumer.assign({partition: _after_loss(options, range_)})
            if fetched.gone:
                raise SourceTopicError(f"{partition} was deleted while it was read")
            if fetched.records:
                heard = time.monotonic()
                yield as_arrow(partition, fetched.records[partition], headers=options.headers)
            elif time.monotonic() - heard > SILENT_S:
                raise TimeoutExceededError(f"{range_.value}: nothing came for {SILENT_S:.0f} s; are its brokers up?")
    finally:
        consumer.close()


def _after_loss(options: ReadOptions, range_: Range) -> int:
    """Where to go on when Kafka has deleted what comes next."""
    if options.fail_on_data_loss:
        raise MilestonesError(
            f"{range_.value}: retention has removed some of these offsets meanwhile; set failOnDataLoss to false to go "
            "on without them"
        )
    cluster = Cluster({name: value for name, value in options.client.items() if name.startswith(ADMIN)})
    first, _ = cluster.bounds([range_.partition], committed=options.committed)[range_.partition]
    log.warning("%s: retention has removed records before offset %d: they are passed over", range_.value, first)
    return first


def as_arrow(partition: TopicPartition, messages: list[Message], *, headers: bool) -> pa.RecordBatch:
    """The columns of Spark's own connector."""
    import pyarrow as pa

    count = len(messages)
    times = [message.timestamp() for message in messages]
    columns: dict[str, Any] = {
        "key": pa.array([message.key() for message in messages], pa.binary()),
        "value": pa.array([message.value() for message in messages], pa.binary()),
        "topic": pa.array([partition.topic] * count, pa.string()),
        "partition": pa.array([partition.partition] * count, pa.int32()),
        "offset": pa.array([message.offset() for message in messages], pa.int64()),
        "timestamp": pa.array([ms * 1000 for _, ms in times], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        # Kafka's numbers: 0 the producer's, 1 the broker's; the client counts from "not available".
        "timestampType": pa.array([kind - 1 for kind, _ in times], pa.int32()),
    }
    if headers:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        columns["headers"] = pa.array([_headers(message.headers()) for message in messages], kind)
    return pa.RecordBatch.from_pydict(columns)


def _headers(found: Any) -> list[dict[str, Any]] | None:
    return None if found is None else [{"key": name, "value": value} for name, value in found]
