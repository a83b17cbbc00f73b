"""Processes an application's history in one batch on Spark, and hands over to its live instances.

1. see that the history is whole: archive, then Kafka, without a gap, from where the group is (`beginning.py`); let the
   group begin there where it hasn't;
2. run it as a batch of `run_on_spark`: outputs, changelogs and offsets are committed as live instances would;
3. make snapshots of the state, if live instances are to begin with them.

The state of the hand-over is in Kafka: the group's committed offsets, and the changelogs up to these. A live instance
that starts after the batch restores its stores, and processes exactly the later records.

*Guarantees*: those of `run_on_spark`. Reset policies have no effect: every record in the archive or in Kafka is
processed, and a gap that arises during the run is an error. After an interruption, a backfill continues from the
committed offsets. If an instance joins the group while history is read from an archive, the run ends with an error. The
instance would get offsets that Kafka has already deleted, and its reset policy would skip records.
*Assumes*: during the run, archives change only by additions at their ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, Unpack

from pyspark.sql import SparkSession

from milestones.common.clock import SystemClock
from milestones.common.config import StreamsConfig
from milestones.common.config.settings import StreamsSettings
from milestones.common.errors import KafkaUnreachableError, MilestonesError
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TopicPartition
from milestones.common.secrets import without_credentials
from milestones.common.topology import StreamsBuilder, Topology
from milestones.instance.application import Application
from milestones.pipeline.backfill.archive import IN_KAFKA, Archive, shared
from milestones.pipeline.backfill.archiving import outer_topics
from milestones.pipeline.backfill.beginning import Beginning, beginning, check_topics
from milestones.pipeline.backfill.decisions import until_decided
from milestones.pipeline.backfill.group import Group
from milestones.pipeline.looking import looked_at
from milestones.pipeline.run import run_on_spark
from milestones.pipeline.snapshots import CompactionRun, compact_changelog

log: Final = logging.getLogger(__name__)

LOOK_S = 0.2
"""The seconds between two looks at the run and its group. A live instance is a member for longer than this before it
commits anything, because the run must first give it tasks, in two generations."""


@dataclass(frozen=True)
class HandOver:
    """The state from which live instances continue. `records`: the number of records that this run processed.
    `archived`: the number of offsets that came from the archive. `offsets`: the group's committed offset of each input
    partition. `elsewhere`: tasks that live instances took during the run; they finish these tasks' input. `missing`:
    for each input partition whose history doesn't begin at 0, the offset at which it begins. Neither the archive nor
    Kafka has the records before. `snapshots`: None without any.
    """

    records: int
    archived: int
    offsets: Mapping[TopicPartition, int]
    seconds: float
    snapshots: CompactionRun | None = None
    elsewhere: int = 0
    missing: Mapping[TopicPartition, int] = field(default_factory=dict)


def backfill(
    topology: Topology | StreamsBuilder,
    spark: SparkSession,
    *,
    history: str | None = None,
    config: StreamsConfig | None = None,
    **settings: Unpack[StreamsSettings],
) -> HandOver:
    """Process the whole history, and hand over to live instances.

    `history`: URL of an archive (`archive_inputs`) with the records that Kafka has deleted, or None if Kafka has all.
    Settings are given as in `Streams`, by name or as `config`. The keyword `snapshot_url` says where to write snapshots
    for live instances; a `snapshot_url` in `config` has no such effect. Returns when all records that were there at the
    beginning are committed, except those of tasks that live instances took. Raises `ConfigError`, `ArchiveError` (a
    gap), and `MilestonesError` (instances are running).
    """
    began = time.monotonic()
    snapshot_url = settings.pop("snapshot_url", None)
    config = StreamsConfig(**settings) if config is None else config.replace(**settings)
    built = topology.build() if isinstance(topology, StreamsBuilder) else topology
    application = Application.of(built, config)
    archive = None if history is None else Archive(shared(history))
    cluster = Cluster(config.admin_settings(f"{application.id}-backfill"))
    with closing(Group(config)) as group:
        inputs, found = looked_at(
            f"the inputs of {application.id}", lambda: _prepare(application, cluster, group, archive)
        )
        with run_on_spark(built, spark, mode="batch", config=config, history=history or IN_KAFKA) as run:
            while not run.wait(LOOK_S):
                if history is not None:
                    _must_be_alone(group, application)
            progress = run.progress
        offsets = group.committed(inputs)
    if history is not None and progress.elsewhere:
        raise _disturbed(application, f"they have {progress.elsewhere} tasks")
    made = None
    if snapshot_url is not None:
        until_decided(cluster, _changelogs(application, cluster), config.transaction_timeout_ms, SystemClock())
        made = compact_changelog(built, spark, snapshot_url, config=config)
    return HandOver(
        records=progress.records,
        archived=sum(one.archived for one in found.values()),
        offsets=offsets,
        seconds=time.monotonic() - began,
        snapshots=made,
        elsewhere=progress.elsewhere,
        missing={at: one.missing for at, one in found.items() if one.missing},
    )


def _prepare(
    application: Application, cluster: Cluster, group: Group, archive: Archive | None
) -> tuple[list[TopicPartition], Mapping[TopicPartition, Beginning]]:
    """Set the beginning of each input partition in the group, and return the inputs. Topics that the application both
    writes and reads get a beginning, too, because a reset policy could skip the records that this run writes to them.
    """
    counts = cluster.partition_counts()
    outer = _partitions(outer_topics(application, counts), counts)
    all_ = {*outer, *_partitions(application.external_topics(counts) & counts.keys(), counts)}
    if archive is not None or all_ - group.committed(all_).keys():
        group.come_to_rest()
    committed = group.committed(all_)
    topics = {at.topic for at in outer}
    archived = {} if archive is None else archive.ranges(topics)
    place = IN_KAFKA if archive is None else without_credentials(archive.url)
    if archive is not None:
        check_topics(archive.topic_ids(topics), cluster.look(topics), place)
    bounds = cluster.bounds(all_, committed=False)
    found = {
        at: beginning(at, committed.get(at), archived.get(at), bounds[at], place, application.id)
        for at in outer
    }
    for at, one in found.items():
        if one.missing:
            log.warning(
                "the history of %s begins at offset %d: what was before is neither in Kafka nor in an archive",
                at, one.missing,
            )  # fmt: skip
    group.commit({at: found[at].position if at in found else bounds[at][0] for at in all_ - committed.keys()})
    return outer, found


def _changelogs(application: Application, cluster: Cluster) -> list[TopicPartition]:
    counts = cluster.partition_counts()
    topics = {topic for sub in application.subtopologies for topic in sub.changelogs.values()}
    return _partitions(topics & counts.keys(), counts)


def _must_be_alone(group: Group, application: Application) -> None:
    """Raise an error if a live instance is in the group. This is checked all the time, because even an instance that
    left soon may have skipped records that Kafka has deleted.
    """
    try:
        live = group.live()
    except KafkaUnreachableError as error:
        log.warning("the group of %s can't be looked at now: %s", application.id, error)
        return
    if live:
        raise _disturbed(application, ", ".join(live))


def _disturbed(application: Application, who: str) -> MilestonesError:
    return MilestonesError(
        f"instances of {application.id} joined while its history was processed ({who}): what Kafka no longer had of "
        "their input they have skipped; stop them, reset the application, and begin anew"
    )


def _partitions(topics: Iterable[str], counts: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic in sorted(topics) for number in range(counts[topic])]
