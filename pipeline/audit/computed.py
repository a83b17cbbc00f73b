"""Stores the records that should have been written to a repartition topic. Folds of later sub-topologies read them if
Kafka has already deleted the topic's records.

    <folder>/topic=<topic>/partition=<p>/*.parquet

*Guarantees*: records are in the order of their timestamps, and records of one upstream task are in that task's order.
This is one of the orders that Kafka may have had.
*Assumes*: the files were written by `write_computed`. All Spark tasks can reach the folder.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import fsspec
import pyarrow.parquet as pq

from milestones.common.records import Headers, TopicPartition
from milestones.pipeline.records import StoredRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = 10_000


def write_computed(expected: DataFrame, topics: Sequence[str], folder: str, partitions: int) -> None:
    """Write the outputs among `expected` that belong to these topics, sorted, below `folder`."""
    order = ("topic", "partition", "time", "sub", "task", "seq")
    (
        expected.where(expected["topic"].isin(list(topics)) & (expected["kind"] == "output"))
        .select(*order, "key", "value", "headers")
        .repartition(partitions, "topic", "partition")
        .sortWithinPartitions(*order)
        .write.partitionBy("topic", "partition")
        .mode("append")
        .parquet(folder)
    )


def computed_records(folder: str, partition: TopicPartition) -> Iterator[Sequence[StoredRecord]]:
    """Yield the records of one partition in batches."""
    files, root = fsspec.url_to_fs(folder)
    place = f"{root}/topic={partition.topic}/partition={partition.partition}"
    files.invalidate_cache()  # this process may have listed the folder before all files were there
    offset = 0
    for path in sorted(files.glob(f"{place}/*.parquet")):
        with files.open(path, "rb") as file:
            for batch in pq.ParquetFile(file).iter_batches(ROWS, columns=["key", "value", "time", "headers"]):
                columns = [column.to_pylist() for column in batch.columns]
                records = [
                    StoredRecord(partition, offset + number, key, value, time, _headers(headers))
                    for number, (key, value, time, headers) in enumerate(zip(*columns, strict=True))
                ]
                offset += len(records)
                yield records


def _headers(data: bytes | None) -> Headers | None:
    return None if data is None else list(ast.literal_eval(data.decode()))
