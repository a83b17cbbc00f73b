"""Kafka's topics as Spark's source and sink, on a real broker and a real session."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from milestones.pipeline.source import FORMAT, register_kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TIME = 1_700_000_000_123


class Bench:
    """A topic of two partitions, and Spark's view of it."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self.spark, self.servers, self.folder = spark, servers, folder
        self.topic, self.other = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("in", "out"))
        self.admin = AdminClient({"bootstrap.servers": servers})
        forever = {"retention.ms": "-1"}  # the records are of another year
        new = [NewTopic(topic, 2, 1, config=forever) for topic in (self.topic, self.other)]
        for future in self.admin.create_topics(new).values():
            future.result()
        self.options = {"kafka.bootstrap.servers": servers, "subscribe": self.topic}

    def send(self, first: int, count: int, *, commit: bool | None = None) -> None:
        """Numbers as values; in a transaction, when `commit` says how it ends."""
        settings = {} if commit is None else {"transactional.id": f"{self.topic}-writer"}
        producer = Producer({"bootstrap.servers": self.servers, **settings})
        if commit is not None:
            producer.init_transactions(30)
            producer.begin_transaction()
        for number in range(first, first + count):
            producer.produce(
                self.topic, b"%d" % number, b"k%d" % number, number % 2, timestamp=TIME, headers=[("h", b"x")]
            )
        producer.flush()
        if commit is not None:
            (producer.commit_transaction if commit else producer.abort_transaction)(30)

    def batch(self, **options: str) -> DataFrame:
        return self.spark.read.format(FORMAT).options(**{**self.options, **options}).load()

    def numbers(self, frame: DataFrame) -> list[int]:
        return sorted(int(bytes(row["value"])) for row in frame.select("value").collect())

    def stream_into(self, name: str, **options: str) -> list[int]:
        """Rows per micro-batch of a query that goes on from its checkpoint to what is there now; they are written to
        Parquet files."""
        frame = self.spark.readStream.format(FORMAT).options(**{**self.options, **options}).load()
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(self.folder / name))
            .option("checkpointLocation", str(self.folder / f"{name}-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def written(self, name: str) -> list[int]:
        return self.numbers(self.spark.read.parquet(str(self.folder / name)))


@pytest.fixture
def bench(spark: SparkSession, kafka: str, tmp_path: Path) -> Iterator[Bench]:
    register_kafka(spark)
    made = Bench(spark, kafka, tmp_path)
    yield made
    made.admin.delete_topics([made.topic, made.other])


def test_a_batch_has_the_columns_of_sparks_connector(bench: Bench) -> None:
    bench.send(0, 3)
    rows = bench.batch(includeHeaders="true").orderBy("partition", "offset").collect()
    assert [(bytes(r["key"]), bytes(r["value"]), r["partition"], r["offset"]) for r in rows] == [
        (b"k0", b"0", 0, 0), (b"k2", b"2", 0, 1), (b"k1", b"1", 1, 0),
    ]  # fmt: skip
    first = rows[0]
    assert (first["topic"], first["timestampType"]) == (bench.topic, 0)
    assert first["timestamp"].timestamp() == TIME / 1000
    assert [(h["key"], bytes(h["value"])) for h in first["headers"]] == [("h", b"x")]


def test_a_batch_is_read_between_the_offsets_it_is_given(bench: Bench) -> None:
    bench.send(0, 20)
    start, end = f'{{"{bench.topic}": {{"0": 4}}}}', f'{{"{bench.topic}": {{"0": 6, "1": 1}}}}'
    assert bench.numbers(bench.batch(startingOffsets=start, endingOffsets=end)) == [1, 8, 10]


def test_only_committed_records_are_read(bench: Bench) -> None:
    bench.send(0, 10, commit=True)
    bench.send(10, 10, commit=False)
    bench.send(20, 4, commit=True)
    assert bench.numbers(bench.batch()) == [*range(10), *range(20, 24)]
    everything = bench.batch(**{"kafka.isolation.level": "read_uncommitted"})
    assert bench.numbers(everything) == list(range(24))


def test_a_stream_goes_on_from_its_checkpoint(bench: Bench) -> None:
    bench.send(0, 10)
    bench.stream_into("rows", startingOffsets="earliest")
    bench.send(10, 7)
    assert sum(bench.stream_into("rows", startingOffsets="earliest")) == 7
    assert bench.stream_into("rows", startingOffsets="earliest") == []
    assert bench.written("rows") == list(range(17))


def test_a_stream_keeps_to_its_rate(bench: Bench) -> None:
    bench.send(0, 100)
    batches = bench.stream_into("rows", startingOffsets="earliest", maxOffsetsPerTrigger="30")
    # With "available now" Spark asks for all at once unless the source has a limit of its own.
    assert max(batches) <= 30
    assert bench.written("rows") == list(range(100))


def test_a_partition_that_comes_up_under_a_query_is_read_from_its_first_record_on(bench: Bench) -> None:
    from confluent_kafka.admin import NewPartitions

    bench.send(0, 10)
    bench.stream_into("rows", startingOffsets="earliest")
    bench.admin.create_partitions([NewPartitions(bench.topic, 3)])[bench.topic].result()
    producer = Producer({"bootstrap.servers": bench.servers})
    for number in range(10, 20):
        producer.produce(bench.topic, b"%d" % number, partition=2)
    assert producer.flush(30) == 0
    bench.stream_into("rows", maxOffsetsPerTrigger="4")
    assert bench.written("rows") == list(range(20))


def test_records_that_retention_has_taken_are_an_error_unless_told_otherwise(bench: Bench) -> None:
    from confluent_kafka import TopicPartition as Position

    bench.send(0, 10)
    bench.stream_into("rows", startingOffsets="earliest")
    bench.send(10, 10)
    for future in bench.admin.delete_records([Position(bench.topic, 0, 8)]).values():
        future.result()
    with pytest.raises(Exception, match="failOnDataLoss"):
        bench.stream_into("rows", startingOffsets="earliest")
    bench.stream_into("rows", startingOffsets="earliest", failOnDataLoss="false")
    assert bench.written("rows") == [*range(10), 11, 13, 15, 16, 17, 18, 19]


def test_a_missing_topic_is_named(bench: Bench) -> None:
    with pytest.raises(Exception, match="nowhere"):
        bench.batch(subscribe="nowhere").collect()


def test_rows_are_written_with_keys_and_headers(bench: Bench) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    bench.send(0, 50)
    rows = bench.batch(includeHeaders="true").select("key", "value", "headers", F.lit(bench.other).alias("topic"))
    rows.write.format(FORMAT).mode("append").options(**{"kafka.bootstrap.servers": bench.servers}).save()
    found = bench.batch(subscribe=bench.other, includeHeaders="true")
    assert bench.numbers(found) == list(range(50))
    row = found.where("partition = 0").first()
    assert row is not None
    assert row["headers"][0]["key"] == "h"


def test_a_stream_is_written(bench: Bench) -> None:
    bench.send(0, 30)
    frame = bench.spark.readStream.format(FORMAT).options(**bench.options, startingOffsets="earliest").load()
    query = (
        frame.selectExpr("cast(value as string) as value")
        .writeStream.format(FORMAT)
        .options(**{"kafka.bootstrap.servers": bench.servers, "topic": bench.other})
        .option("checkpointLocation", str(bench.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert bench.numbers(bench.batch(subscribe=bench.other)) == list(range(30))


@pytest.mark.parametrize(
    ("columns", "message"),
    [(["key"], "column value"), (["value", "offset"], "column offset"), (["value"], "topic")],
)
def test_rows_that_cant_be_written_are_refused_with_the_reason(bench: Bench, columns: list[str], message: str) -> None:
    bench.send(0, 1)
    writer = bench.batch().select(*columns).write.format(FORMAT).mode("append")

    def save() -> Any:
        writer.options(**{"kafka.bootstrap.servers": bench.servers}).save()

    with pytest.raises(Exception, match=message):
        save()
