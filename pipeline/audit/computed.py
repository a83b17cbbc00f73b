"""The records that should have been written to a repartition topic, for tasks that read it after its purge.

    <folder>/topic=<topic>/partition=<p>/*.parquet

*Guarantees*: the records in the order of their timestamps, those of one upstream task in its order: one of the orders
that Kafka may have had.
*Assumes*: written by `write_computed`; the folder can be reached from everywhere.
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
    """The outputs among `expected` that go to these topics, sorted, below `folder`."""
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
    """The records of one partition, in batches; none when there are none."""
    files, root = fsspec.url_to_fs(folder)
    place = f"{root}/topic={partition.topic}/partition={partition.partition}"
    files.invalidate_cache()  # this process may have listed the folder before all of it was there
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
