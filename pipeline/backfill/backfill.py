"""An application's history in one batch on Spark, and the hand-over to its live instances.

1. see that the history is whole: archive, then Kafka, without a gap, from where the group is;
2. run it as a batch of `run_on_spark`: outputs, changelogs and offsets are committed as live instances would;
3. make snapshots of the state, if live instances are to begin with them.

The hand-over is what Kafka has after that: the group's committed offsets, the changelogs up to them. A live instance
that starts then restores, and processes exactly the records that came since.

*Guarantees*: those of `run_on_spark`. Interrupted, it goes on from what is committed.
*Assumes*: no live instance runs while history comes from an archive: what it would be given has offsets that Kafka no
longer has, and its reset policy would skip them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Position
from pyspark.sql import SparkSession

from milestones.application import Application
from milestones.common.config import StreamsConfig
from milestones.common.errors import MilestonesError
from milestones.common.kafka.clients import text_of
from milestones.common.kafka.groups import GroupReader
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TopicPartition
from milestones.common.topology import StreamsBuilder, Topology
from milestones.pipeline.backfill.archive import Archive
from milestones.pipeline.backfill.archiving import check_join, outer_topics
from milestones.pipeline.run import run_on_spark
from milestones.pipeline.snapshots import CompactionRun, compact_changelog

IDLE = ("Empty", "Dead")
"""States of a group without members."""

TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class HandOver:
    """What live instances go on from. `records`: processed now; `archived`: of the archive, about, in offsets.
    `offsets`: the group's, by input partition. `snapshots`: None without any."""

    records: int
    archived: int
    offsets: Mapping[TopicPartition, int]
    seconds: float
    snapshots: CompactionRun | None = None


def backfill(
    topology: Topology | StreamsBuilder,
    spark: SparkSession,
    *,
    history: str | None = None,
    snapshot_url: str | None = None,
    config: StreamsConfig | None = None,
    **settings: Any,
) -> HandOver:
    """Process all history there is, and hand over.

    `history`: URL of an archive (`archive_inputs`) of what Kafka no longer has; None: all is in Kafka. `snapshot_url`:
    where to put snapshots for live instances. Settings as of `Streams`, by name or as `config`. Returns once all that
    was there at the beginning is committed. `ConfigError`, `ArchiveError` (a gap), `MilestonesError` (instances run).
    """
    began = time.monotonic()
    config = StreamsConfig(**settings) if config is None else config.replace(**settings)
    built = topology.build() if isinstance(topology, StreamsBuilder) else topology
    application = Application.of(built, config)
    cluster = Cluster(config.admin_settings(f"{application.id}-backfill"))
    partitions = _inputs(application, cluster)
    archived = 0 if history is None else _prepare(application, config, cluster, Archive(history), partitions)
    with run_on_spark(built, spark, mode="batch", config=config, history=history) as run:
        run.wait()
        progress = run.progress
    offsets = _committed(config, partitions)
    if history is not None and progress.elsewhere:
        raise MilestonesError(
            f"instances of {application.id} joined while its history was processed, and have {progress.elsewhere} "
            "tasks: what Kafka no longer had of their input they have skipped; stop them, reset the application, and "
            "begin anew"
        )
    made = None
    if snapshot_url is not None:
        made = compact_changelog(built, spark, snapshot_url, config=config)
    return HandOver(progress.records, archived, offsets, time.monotonic() - began, made)


def _inputs(application: Application, cluster: Cluster) -> list[TopicPartition]:
    topics = outer_topics(application, cluster.partition_counts())
    return [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]


def _prepare(
    application: Application,
    config: StreamsConfig,
    cluster: Cluster,
    archive: Archive,
    partitions: Iterable[TopicPartition],
) -> int:
    """See that all is there, and let the group begin at the archive's beginning; how much of it is left, in offsets."""
    group = GroupReader(config.admin_settings(f"{application.id}-backfill"), application.id, timeout_ms=TIMEOUT_MS)
    try:
        state = group.describe().state
    finally:
        group.close()
    if state not in IDLE:
        raise MilestonesError(
            f"instances of {application.id} are running (its group is {state}): stop them first; they would be given "
            "tasks whose input Kafka no longer has"
        )
    known, committed = archive.ranges({at.topic for at in partitions}), _committed(config, partitions)
    bounds = cluster.bounds(partitions, committed=False)
    begins: dict[TopicPartition, int] = {}
    left = 0
    for at, (first, end) in known.items():
        if at not in bounds or committed.get(at, -1) >= end:
            continue
        check_join(at, end, *bounds[at], archive.url)
        position = committed.get(at, first)
        if position < first:
            raise MilestonesError(
                f"the archive of {at} in {archive.url} begins at offset {first}, and the group {application.id} is at "
                f"{position}: the records between are missing; find their archive"
            )
        left += end - position
        if at not in committed:
            begins[at] = first
    _commit(config, begins)
    return left


def _committed(config: StreamsConfig, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    reader = GroupReader(config.admin_settings(f"{config.application_id}-backfill"), config.application_id,
                         timeout_ms=TIMEOUT_MS)  # fmt: skip
    try:
        return {at: found.offset for at, found in reader.stable(partitions).items()}
    finally:
        reader.close()


def _commit(config: StreamsConfig, offsets: Mapping[TopicPartition, int]) -> None:
    """Set offsets of a group without members."""
    if not offsets:
        return
    consumer = Consumer(config.restore_consumer_settings(f"{config.application_id}-backfill"))
    try:
        consumer.commit(offsets=[Position(*at, offset) for at, offset in offsets.items()], asynchronous=False)
    except KafkaException as exception:
        why = text_of(exception)
        raise MilestonesError(
            f"the offsets of the group {config.application_id} can't be set: {why}; is an instance running?"
        ) from exception
    finally:
        consumer.close()
