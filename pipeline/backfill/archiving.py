"""Copies topics into an archive, before Kafka's retention deletes their records.

*Guarantees*: added records begin where the archive ends. Only committed records are added, up to the first open
transaction. Each further run adds the records since the last one. An archive never has records of two different topics
with the same name.
*Assumes*: runs are so frequent that Kafka still has the records behind the archive's end.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Unpack

from confluent_kafka import Message
from pyspark.sql import SparkSession

from milestones.common.config import StreamsConfig
from milestones.common.config.settings import StreamsSettings
from milestones.common.errors import MilestonesError, SourceTopicError
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TopicPartition
from milestones.common.topology import StreamsBuilder, Topology
from milestones.instance.application import Application
from milestones.pipeline.backfill.archive import Archive, Stored, shared
from milestones.pipeline.backfill.beginning import check_join, check_topic
from milestones.pipeline.driving.order import inner_topics
from milestones.pipeline.looking import looked_at
from milestones.pipeline.reading import PartitionRange, read
from milestones.pipeline.spark_jobs import context_of, run_each


@dataclass(frozen=True)
class ArchivedRange:
    """The offsets of one partition that were added."""

    partition: TopicPartition
    first: int
    end: int
    records: int


@dataclass(frozen=True)
class ArchiveJob:
    """The job to add one partition's offsets. `topic_id`: Kafka's id of the topic, if it has one. `admin`: settings of
    a client.
    """

    range: PartitionRange
    topic_id: str | None
    admin: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class ArchiveRun:
    """What was added."""

    ranges: Sequence[ArchivedRange]
    seconds: float

    @property
    def records(self) -> int:
        return sum(one.records for one in self.ranges)


def archive_inputs(
    topology: Topology | StreamsBuilder,
    spark: SparkSession,
    url: str,
    *,
    config: StreamsConfig | None = None,
    **settings: Unpack[StreamsSettings],
) -> ArchiveRun:
    """Add the new records of the application's input topics to the archive at `url`. Settings are given as in
    `Streams`, by name or as `config`. Raises `ConfigError` (for example, only this process can reach the URL),
    `SourceTopicError` (also if a topic is deleted or made anew during the run), and `ArchiveError` (Kafka has deleted
    the records that follow the archive).
    """
    began = time.monotonic()
    config = StreamsConfig(**settings) if config is None else config.replace(**settings)
    built = topology.build() if isinstance(topology, StreamsBuilder) else topology
    application, archive = Application.of(built, config), Archive(shared(url))
    cluster = Cluster(config.admin_settings(f"{application.id}-archive"))
    jobs = planned(application, archive, cluster, config)
    added = run_each(context_of(spark), partial(add, url), jobs, f"archive of {application.id}")
    return ArchiveRun(added, time.monotonic() - began)


def outer_topics(application: Application, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the partition counts of the topics that the application reads and doesn't write itself.
    `SourceTopicError`.
    """
    topics = application.external_topics(counts) - inner_topics(application.subtopologies)
    missing = sorted(topics - counts.keys())
    if missing:
        raise SourceTopicError(f"source topics don't exist: {', '.join(missing)}")
    return {topic: counts[topic] for topic in sorted(topics)}


def planned(
    application: Application, archive: Archive, cluster: Cluster, config: StreamsConfig
) -> list[ArchiveJob]:
    """What is new, by partition. `SourceTopicError`, `ArchiveError`."""

    def look() -> list[ArchiveJob]:
        return _jobs(archive, cluster, outer_topics(application, cluster.partition_counts()), config)

    return looked_at(f"the inputs of {application.id}", look)


def _jobs(archive: Archive, cluster: Cluster, topics: Mapping[str, int], config: StreamsConfig) -> list[ArchiveJob]:
    partitions = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    known, archived = archive.ranges(topics), archive.topic_ids(topics)
    name = f"{config.application_id}-archive"
    consumer, admin = config.restore_consumer_settings(name), config.admin_settings(name)
    ids, bounds = cluster.topic_ids(topics), cluster.bounds(partitions, committed=True)
    jobs = []
    for at, (first, end) in bounds.items():
        check_topic(at, archived.get(at, frozenset()), ids.get(at.topic), archive.url)
        begin = known[at][1] if at in known else first
        check_join(at, begin, first, end, archive.url)
        if begin < end:
            jobs.append(ArchiveJob(PartitionRange(at, begin, end, consumer), ids.get(at.topic), admin))
    return jobs


def add(url: str, job: ArchiveJob) -> ArchivedRange:
    """Add one partition's records to the archive; Spark calls this function for each partition."""
    what = job.range
    batches = read(what.consumer, what.partition, what.first, what.end)
    rows = _of_one_topic(url, job, map(_rows, batches))
    records = Archive(url).write(what.partition, what.first, what.end, rows, job.topic_id)
    return ArchivedRange(what.partition, what.first, what.end, records)


def _of_one_topic(url: str, job: ArchiveJob, rows: Iterable[Sequence[Stored]]) -> Iterator[Sequence[Stored]]:
    """Yield the rows. Raises a `SourceTopicError` behind the last row if the topic was deleted or made anew while the
    rows were read. If the rows can't be read to the end, this is checked first, as the likeliest reason.
    """
    try:
        yield from rows
    except MilestonesError:
        _must_be_there(url, job)
        raise
    _must_be_there(url, job)


def _must_be_there(url: str, job: ArchiveJob) -> None:
    """Raise an error unless Kafka still has the job's topic."""
    at = job.range.partition
    now = Cluster(job.admin).look([at.topic]).get(at.topic)
    if now is None:
        raise SourceTopicError(f"{at} is gone: its topic was deleted while it was archived")
    if job.topic_id is not None:
        check_topic(at, frozenset([job.topic_id]), now.id, url)


def _rows(messages: Collection[Message]) -> list[Stored]:
    return [(m.offset() or 0, m.timestamp()[1], m.key(), m.value(), m.headers()) for m in messages]  # type: ignore[misc]
