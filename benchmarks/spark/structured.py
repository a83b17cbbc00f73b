"""A running count per key by what Spark has for it: each is a stream from the topic to nowhere, with its state in
RocksDB, in micro-batches of `PER_BATCH` records.

*Guarantees*: what is counted is the same for all; nobody parses values.
*Assumes*: the topic doesn't grow meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

PER_BATCH = 250_000
CONNECTOR = {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"}
"""Spark's own source; Spark downloads it at its start, once."""
STATE = {
    "spark.sql.streaming.stateStore.providerClass":
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}  # fmt: skip
COUNTED = "key binary, count long"


class ByKey(StatefulProcessor):
    """A count for each key, an output for each record."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        found = self._count.get()
        count = found[0] if found else 0
        for _ in rows:
            count += 1
            yield Row(key=key[0], count=count)
        self._count.update((count,))

    def close(self) -> None: ...


class ByPartition(StatefulProcessor):
    """All keys of a partition in one map, so that their order is kept; each key is read and written once a batch."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._counts = handle.getMapState("counts", "key binary", "count long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        known: dict[bytes, int] = {}
        for row in rows:
            one = bytes(row.key)
            if one not in known:
                found = self._counts.getValue((one,))
                known[one] = found[0] if found else 0
            known[one] += 1
            yield Row(key=one, count=known[one])
        for one, count in known.items():
            self._counts.updateValue((one,), (count,))

    def close(self) -> None: ...


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "groupby-count": lambda records: records.groupBy("key").count(),
    "transform-by-key": lambda records: (
        records.select("key").groupBy("key").transformWithState(ByKey(), COUNTED, "Update", "None")
    ),
    "transform-by-partition": lambda records: (
        records.select("partition", "key").groupBy("partition")
        .transformWithState(ByPartition(), COUNTED, "Update", "None")
    ),
}  # fmt: skip


def count(spark: SparkSession, servers: str, topic: str, query: str, folder: Path) -> int:
    """Run the query over all there is; how many records it had."""
    options = {
        "kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(PER_BATCH),
    }  # fmt: skip
    counted = QUERIES[query](spark.readStream.format("kafka").options(**options).load())
    running = (
        counted.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination()
    return sum(progress["numInputRows"] for progress in running.recentProgress)
