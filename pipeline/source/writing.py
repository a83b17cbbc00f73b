"""The sink: rows into a topic.

*Guarantees*: a task ends well only when Kafka has taken all of its rows; retries of the client make no duplicates,
those of Spark do (at least once). Keys go where Kafka's own partitioner puts them, unless a row says otherwise.
*Assumes*: columns are checked before the first row is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from milestones.common.errors import ConfigError, ProductionError, TimeoutExceededError
from milestones.common.kafka.failures import is_passing
from milestones.common.kafka.producer import OutputProducer
from milestones.common.records import Emitted, TaskId
from milestones.common.writable import TIME_OF_SENDING
from milestones.pipeline.source.options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

FLUSH_MS = 120_000
NOBODY = TaskId(0, 0)
COLUMNS = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""By column, Spark's types of it."""


def check(schema: StructType, options: WriteOptions) -> None:
    """`ConfigError` when rows of this schema can't be written."""
    for column in schema.fields:
        kind, allowed = column.dataType.simpleString(), COLUMNS.get(column.name, ())
        if kind not in allowed:
            wanted = f"must be {' or '.join(allowed)}" if allowed else f"isn't one of {', '.join(COLUMNS)}"
            raise ConfigError(f"column {column.name}", kind, wanted)
    if "value" not in schema.names:
        raise ConfigError("column value", None, "is missing: it is what records are made of")
    if options.topic is None and "topic" not in schema.names:
        raise ConfigError("topic", None, "give it as an option, or as a column")


def write(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    """Write them all."""
    producer = OutputProducer(options.client)
    try:
        for batch in batches:
            if producer.send(NOBODY, _outputs(batch, options.topic), wait_ms=FLUSH_MS):
                raise TimeoutExceededError(f"Kafka took so little within {FLUSH_MS} ms that there is no room for rows")
            producer.poll()
            _must_be_taken(producer)
        try:
            producer.flush(FLUSH_MS)
        except KafkaException as exception:
            if not is_passing(exception):
                raise
            raise TimeoutExceededError(f"Kafka didn't take all rows within {FLUSH_MS} ms: {exception}") from exception
        _must_be_taken(producer)
    finally:
        producer.close()
    return WriterCommitMessage()


def _must_be_taken(producer: OutputProducer) -> None:
    if producer.refused:
        one = producer.refused[0]
        where, key = one.output.topic, one.output.key
        raise ProductionError(f"Kafka refused a row for topic {where} (key {key!r:.100}): {one.error.str()}", NOBODY)


def _outputs(batch: pa.RecordBatch, topic: str | None) -> list[Emitted]:
    count, names = batch.num_rows, batch.schema.names

    def column(name: str, otherwise: Any) -> Sequence[Any]:
        return batch.column(name).to_pylist() if name in names else [otherwise] * count

    topics = [topic] * count if topic is not None else column("topic", None)
    rows = zip(topics, column("partition", -1), column("key", None), column("value", None), column("headers", None),
               strict=True)  # fmt: skip
    return [
        (where, -1 if at is None else at, _bytes(key), _bytes(value), TIME_OF_SENDING, _headers(headers), "")
        for where, at, key, value, headers in rows
    ]


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _headers(headers: Any) -> list[tuple[str, bytes | None]] | None:
    return None if headers is None else [(one["key"], one["value"]) for one in headers]


class KafkaWriter(DataSourceArrowWriter):
    """A batch of rows."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self._options, iterator)


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """The micro-batches of a stream."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self._options, iterator)
