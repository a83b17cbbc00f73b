"""Reads the committed records of output topics, inside Spark tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from milestones.pipeline.audit.rows import ACTUAL, batches, headers_as_bytes
from milestones.pipeline.reading import PartitionRange, read

if TYPE_CHECKING:
    import pyarrow as pa


def actual(ranges: Sequence[PartitionRange], numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges with these numbers; Spark calls this function."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from batches(_rows(ranges[number]), ACTUAL)


def _rows(part: PartitionRange) -> Iterator[tuple[Any, ...]]:
    topic, number = part.partition
    for messages in read(part.consumer, part.partition, part.first, part.end):
        for message in messages:
            yield (
                topic, number, message.offset(), message.key(), message.value(), message.timestamp()[1],
                headers_as_bytes(message.headers()),  # type: ignore[arg-type]  # a list, as confluent-kafka gives it
            )  # fmt: skip
