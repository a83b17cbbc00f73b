"""Makes the jobs for the snapshots of one application: one job per store and partition.

*Guarantees*: a job is plain data, so that it can be sent to the process in which Spark runs it.
*Assumes*: jobs are made in the driver, which can also reach Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from milestones.common.assignment.plan import TaskPlan, plan_tasks
from milestones.common.clock import Clock
from milestones.common.config import StreamsConfig
from milestones.common.errors import SourceTopicError
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.snapshots.repository import SnapshotRepository
from milestones.common.state.snapshots.snapshot import usable_until
from milestones.common.state.spec import StoreSpec
from milestones.common.task.gone_rows import gone_by_commit
from milestones.common.task.metadata import committed_numbers
from milestones.common.windowed import FOREVER
from milestones.flags import parse_milestones
from milestones.instance.application import Application
from milestones.m6_state_manager.ranges import prefix_of
from milestones.pipeline.looking import looked_at

RANGES: Final = "state_manager"
"""The flag of the stages in which the keys of a store begin with the partition."""


@dataclass(frozen=True)
class SnapshotJob:
    """One store partition. `first`, `end`: the range of changelog offsets whose committed records are read; `end` is
    the offset of the snapshot. `committed_time`: the time by which rows expire; later times don't count, because the
    changelog may be ahead of the group's last commit. `created_ms`, `usable_until_ms`, `key_prefix`: as in the
    manifest. `options`, `encryption_key`, `timeout_ms`: as in `SnapshotRepository`. `parquet`: URL of a folder for a
    copy as Parquet, or None.
    """

    application_id: str
    url: str = field(repr=False)
    task: TaskId
    spec: StoreSpec
    changelog: TopicPartition
    changelog_id: str | None
    first: int
    end: int
    created_ms: int
    usable_until_ms: int | None
    consumer: Mapping[str, Any] = field(repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    encryption_key: str | None = field(default=None, repr=False)
    timeout_ms: int = 30_000
    parquet: str | None = None
    key_prefix: bytes = b""
    committed_time: int = FOREVER

    def repository(self) -> SnapshotRepository:
        """Where the snapshot goes."""
        return SnapshotRepository(
            self.url,
            self.application_id,
            options=self.options,
            encryption_key=self.encryption_key,
            timeout_ms=self.timeout_ms,
        )


def snapshot_jobs(application: Application, config: StreamsConfig, url: str, clock: Clock) -> list[SnapshotJob]:
    """Return the jobs of all stores that have a changelog, without Parquet. Raises a `SourceTopicError` if topics are
    missing, and `MilestonesError`.
    """
    cluster = Cluster(config.admin_settings(f"{application.id}-snapshots"))
    return looked_at(
        f"the changelogs of {application.id}", lambda: _jobs(application, config, url, cluster, clock)
    )


def _jobs(
    application: Application, config: StreamsConfig, url: str, cluster: Cluster, clock: Clock
) -> list[SnapshotJob]:
    plan = _plan(application, cluster)
    created_ms = clock.wall_ms()  # read before the ends: Kafka keeps later deletions for a while from now on
    changelogs = {at for logs in plan.changelogs.values() for at in logs}
    topics = {at.topic for at in changelogs}
    bounds = cluster.bounds(changelogs, committed=True)
    every = {at for partitions in plan.tasks.values() for at in partitions}
    inputs = changelogs & every
    asked = inputs if config.exactly_once else every
    committed = cluster.start_reading_committed(application.id, asked).result() if asked else {}
    ids, settings = cluster.topic_ids(topics), cluster.topic_settings(topics)
    consumer = config.restore_consumer_settings(f"{application.id}-snapshots")
    ranges = RANGES in parse_milestones(config.milestones)
    jobs = []
    for task, logs in sorted(plan.changelogs.items()):
        sub = application.subtopology(task.subtopology)
        of_task = committed_numbers({at: committed[at] for at in plan.tasks[task] if at in committed})
        for spec in sub.stores:
            at = TopicPartition(sub.changelogs.get(spec.name, ""), task.partition)
            if at not in logs:
                continue
            first, end = bounds[at]
            # If a source topic serves as the changelog, its uncommitted records are still input, not state.
            if at in inputs:
                end = min(end, max(first, committed[at].offset if at in committed else first))
            times_count = of_task.exact and not config.exactly_once
            jobs.append(SnapshotJob(
                application.id, url, task, spec.bare, at, ids.get(at.topic), first, end, created_ms,
                usable_until(settings[at.topic], created_ms), consumer,
                config.snapshot_options, config.snapshot_encryption_key, config.snapshot_timeout_ms,
                key_prefix=prefix_of(task.partition) if ranges else b"",
                committed_time=gone_by_commit(spec, of_task.numbers) if times_count else FOREVER,
            ))  # fmt: skip
    return jobs


def _plan(application: Application, cluster: Cluster) -> TaskPlan:
    counts = cluster.partition_counts()
    plan = plan_tasks(application.subtopologies, counts)
    if plan.error is not None:
        raise SourceTopicError(plan.error)
    missing = sorted(plan.changelog_counts.keys() - counts.keys())
    if missing:
        raise SourceTopicError(
            f"changelog topics don't exist: {', '.join(missing)}; the application has to run once before there is "
            "anything to make snapshots of; check application_id too"
        )
    return plan
