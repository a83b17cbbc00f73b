"""Makes snapshots from changelogs on Spark, with one Spark task per store and partition.

*Guarantees*: a published snapshot has exactly the rows of a restoration up to its offset. Deletions, aborted
transactions and control records are handled as in the runtime. Partitions are published one by one: if one fails, the
others are still published, and its own earlier snapshot stays.
*Assumes*: `url` means the same place for the driver, for Spark's tasks and for the application's instances.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Unpack

from pyspark.sql import SparkSession

from milestones.common.clock import Clock, SystemClock
from milestones.common.config import StreamsConfig
from milestones.common.config.settings import StreamsSettings
from milestones.common.errors import ConfigError, SourceTopicError
from milestones.common.state.snapshots.repository import SnapshotRepository
from milestones.common.topology import StreamsBuilder, Topology
from milestones.instance.application import Application
from milestones.pipeline.hosting.payload import pack
from milestones.pipeline.snapshots.jobs import SnapshotJob, snapshot_jobs
from milestones.pipeline.snapshots.making import MadeSnapshot, make
from milestones.pipeline.spark_jobs import context_of, run_each


@dataclass(frozen=True)
class CompactionRun:
    """The snapshots that were made. `parquet`: for each store, the URL of its folder with Parquet files."""

    snapshots: Sequence[MadeSnapshot]
    seconds: float
    parquet: Mapping[str, str] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """The number of changelog records that were read."""
        return sum(made.records for made in self.snapshots)

    @property
    def entries(self) -> int:
        """The number of entries in all snapshots."""
        return sum(made.manifest.entries for made in self.snapshots)


def compact_changelog(
    topology: Topology | StreamsBuilder,
    spark: SparkSession,
    url: str | None = None,
    *,
    stores: Sequence[str] | None = None,
    parquet: bool = False,
    config: StreamsConfig | None = None,
    clock: Clock | None = None,
    **settings: Unpack[StreamsSettings],
) -> CompactionRun:
    """Make snapshots of the application's stores, for `snapshot_url`.

    `url`: the place of the snapshots, by default `snapshot_url`. `stores`: the names of the stores, by default all.
    `parquet`: True to write the content as Parquet, too. Settings are given as in `Streams`, by name or as `config`.
    The application may run at the same time: a snapshot has the records that were committed when this function was
    called. Give the setting `milestones` the value of the instances: their stage can link the files, while other stages
    have to read them. Raises `ConfigError`, `SourceTopicError` (there is no store to make snapshots of),
    `KafkaUnreachableError`, and `SparkJobError` (with the reason).
    """
    began = time.monotonic()
    config = StreamsConfig(**settings) if config is None else config.replace(**settings)
    url = _writable(url, config)
    built = topology.build() if isinstance(topology, StreamsBuilder) else topology
    application, context = Application.of(built, config), context_of(spark)
    jobs = _chosen(snapshot_jobs(application, config, url, clock or SystemClock()), stores, config.application_id)
    folders = {job.spec.name: _folder(url, job) for job in jobs if parquet}
    jobs = [replace(job, parquet=folders.get(job.spec.name)) for job in jobs]
    payload = pack(built, config, near=str(context.master).startswith("local"))
    made = run_each(context, partial(make, payload), jobs, f"snapshots of {config.application_id}")
    return CompactionRun(made, time.monotonic() - began, folders)


def _writable(url: str | None, config: StreamsConfig) -> str:
    url = url or config.snapshot_url
    if not SnapshotRepository.of(config, url).objects.lists:
        raise ConfigError("snapshot_url", url, "plain HTTP only reads: use the URL of the store behind it")
    return str(url)


def _chosen(jobs: list[SnapshotJob], stores: Sequence[str] | None, application_id: str) -> list[SnapshotJob]:
    known = {job.spec.name for job in jobs}
    unknown = sorted(set(stores or ()) - known)
    if unknown or not known:
        wanted, there_are = ", ".join(unknown) or "any", ", ".join(sorted(known)) or "none"
        raise SourceTopicError(f"stores of {application_id} with a changelog: wanted {wanted}, there are {there_are}")
    return [job for job in jobs if stores is None or job.spec.name in stores]


def _folder(url: str, job: SnapshotJob) -> str:
    """Return a new folder for each run, because its files never change."""
    return f"{url.rstrip('/')}/{job.application_id}/parquet/{job.created_ms}/{job.spec.name}"
