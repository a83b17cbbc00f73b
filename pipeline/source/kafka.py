"""The data source itself: from options to readers and writers.

*Guarantees*: options and columns are checked before anything is read or written.
*Assumes*: nothing.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from milestones.common.errors import ConfigError
from milestones.pipeline.source.options import ReadOptions, WriteOptions
from milestones.pipeline.source.reading import KafkaReader, KafkaStreamReader
from milestones.pipeline.source.writing import KafkaStreamWriter, KafkaWriter, check

FORMAT = "milestones-kafka"

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS = "headers array<struct<key: string, value: binary>>"


class KafkaSource(DataSource):
    """Kafka's topics; see the package."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        headers = ReadOptions.of(self.options, stream=False).headers
        return f"{COLUMNS}, {HEADERS}" if headers else COLUMNS

    def reader(self, schema: StructType) -> KafkaReader:
        return KafkaReader(ReadOptions.of(self.options, stream=False))

    def streamReader(self, schema: StructType) -> KafkaStreamReader:  # noqa: N802  Spark's name
        return KafkaStreamReader(ReadOptions.of(self.options, stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> KafkaWriter:
        if overwrite:
            raise ConfigError("mode", "overwrite", "a topic can't be overwritten: use append")
        options = WriteOptions.of(self.options)
        check(schema, options)
        return KafkaWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:  # noqa: N802
        options = WriteOptions.of(self.options)
        check(schema, options)
        return KafkaStreamWriter(options)
