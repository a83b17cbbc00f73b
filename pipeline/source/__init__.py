"""Kafka's topics as a source and a sink of Spark's DataFrames and streams, without a jar.

    register_kafka(spark)
    lines = spark.readStream.format("milestones-kafka").option("kafka.bootstrap.servers", ...).option("subscribe", "in")

Options and columns are those of Spark's own connector, so that either can take the other's place.

*Guarantees*: the source reads committed records only, unless told otherwise, each exactly once per query and
checkpoint; what retention has removed unread is an error, unless told otherwise. The sink writes at least once: a task
ends well only when Kafka has all its records.
*Assumes*: `confluent-kafka` where Spark's tasks run.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from milestones.common.public import publish
from milestones.pipeline.source.kafka import FORMAT, KafkaSource


def register_kafka(spark: SparkSession) -> None:
    """Let this session know the format `milestones-kafka`. Harmless when repeated."""
    spark.dataSource.register(KafkaSource)


__all__ = ["FORMAT", "KafkaSource", "register_kafka"]

publish(__name__)
