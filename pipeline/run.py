"""`run_on_spark` runs a topology on Spark, and returns a `SparkRun`.

*Guarantees*: those of the runtime, by the application's `processing_guarantee`. Kafka's committed offsets decide what
is processed. So the guarantee also holds if a run was interrupted, was started twice, or shares the tasks with live
instances.
*Assumes*: a classic Spark session (not Spark Connect); Spark's processes reach Kafka under the same addresses.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Literal, Unpack

from pyspark import SparkContext
from pyspark.sql import SparkSession

from milestones.common.clock import SystemClock
from milestones.common.config import StreamsConfig
from milestones.common.config.settings import StreamsSettings
from milestones.common.errors import ConfigError, TopologyError
from milestones.common.topology import StreamsBuilder, Topology
from milestones.instance.application import Application
from milestones.pipeline.driving.driver import Driver, Pace
from milestones.pipeline.driving.driver_membership import DriverMembership
from milestones.pipeline.driving.kafka import KafkaView
from milestones.pipeline.driving.order import levels
from milestones.pipeline.driving.spark_thread import SparkThread
from milestones.pipeline.hosting.payload import pack
from milestones.pipeline.hosting.surroundings import stores_without_changelog
from milestones.pipeline.progress import Progress, RunState
from milestones.pipeline.session import is_near
from milestones.pipeline.spark_jobs import context_of

log: Final = logging.getLogger(__name__)

Mode = Literal["batch", "micro_batch"]

COMMIT_INTERVAL_MS = 2_000
"""The time between two commits of a Spark task, unless the application sets one: a batch's outputs aren't urgent."""

STOP_S = 60.0


class SparkRun:
    """A run, which works in threads of its own until it is complete, is stopped, or fails. Used in a `with`, it is
    stopped at the end of the block.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @property
    def progress(self) -> Progress:
        """The run's progress so far. May be read from any thread."""
        return self._driver.progress

    @property
    def state(self) -> RunState:
        return self._driver.progress.state

    @property
    def error(self) -> BaseException | None:
        """Why it has failed."""
        return self._driver.error

    def metrics(self) -> Mapping[str, float]:
        """Return the numbers of `progress`, summed over all Spark tasks, under the same names as the metrics of an
        instance. Also returns the records per second of the last job that had records.
        """
        progress = self.progress
        rates = [done.records_per_second for done in progress.rounds if done.records]
        return {
            "tasks": progress.tasks,
            "jobs-total": progress.jobs,
            "failed-jobs-total": progress.failed_jobs,
            "records-total": progress.records,
            "restored-records-total": progress.restored,
            "commits-total": progress.commits,
            "dropped-records-total": progress.dropped,
            "punctuate-total": progress.punctuations,
            "generations-total": progress.generations,
            "records-lag": progress.lag,
            "records-rate": rates[-1] if rates else 0.0,
        }

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the run has ended. Returns False if the time is up before. Raises the error that has ended the
        run.
        """
        self._driver.join(timeout_s)
        if self._driver.error is not None:
            raise self._driver.error
        return not self._driver.is_alive()

    def stop(self, timeout_s: float = STOP_S) -> bool:
        """Stop the run. Running Spark tasks get some seconds to finish; then their uncommitted work is dropped. Returns
        True if the run has ended within the time. Errors: as in `wait`.
        """
        self._driver.ask_to_stop()
        return self.wait(timeout_s)

    def __enter__(self) -> SparkRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.ask_to_stop()
        self._driver.join(STOP_S)


def run_on_spark(
    topology: Topology | StreamsBuilder,
    spark: SparkSession,
    *,
    mode: Mode = "batch",
    interval_ms: int = 1_000,
    max_records: int | None = None,
    history: str | None = None,
    config: StreamsConfig | None = None,
    **settings: Unpack[StreamsSettings],
) -> SparkRun:
    """Run the topology inside Spark tasks, with its stores, changelogs, repartition topics and transactions.

    `mode`: a `batch` ends when all records that its inputs had at its beginning are processed; `micro_batch` runs a
    batch every `interval_ms`, each of about `max_records` records at most. `history`: URL of an archive with the
    inputs' records that Kafka has deleted (see `backfill`). Settings are given as in `Streams`, by name or as `config`;
    `commit_interval_ms` is 2,000 unless they say otherwise.

    The run joins the application's group. Live instances of the application may be members too: each member has its own
    tasks then, and a batch ends when the tasks of the run are done (`progress.elsewhere` counts the others). Raises
    `ConfigError` and `TopologyError` immediately. All other errors end the run, and `wait` raises them.
    """
    complete = StreamsConfig(**settings) if config is None else config.replace(**settings)
    if complete.origin("commit_interval_ms") == "default":
        usual_ms = min(COMMIT_INTERVAL_MS, complete.transaction_timeout_ms // 4)
        complete = complete.replace(commit_interval_ms=usual_ms)
    built = topology.build() if isinstance(topology, StreamsBuilder) else topology
    if history is not None:
        from milestones.pipeline.backfill.archive import shared  # not at the top: a circular import

        shared(history)
    driver = _driver(built, complete, context_of(spark), _pace(mode, interval_ms, max_records), history)
    driver.start()
    return SparkRun(driver)


def _pace(mode: str, interval_ms: int, max_records: int | None) -> Pace:
    if mode not in ("batch", "micro_batch"):
        raise ConfigError("mode", mode, "choose batch or micro_batch")
    if interval_ms < 0:
        raise ConfigError("interval_ms", interval_ms, "must be at least 0")
    if max_records is not None and (max_records < 1 or mode == "batch"):
        raise ConfigError("max_records", max_records, "must be at least 1, and is for micro_batch: a batch has no end")
    return Pace(interval_ms if mode == "micro_batch" else None, max_records)


def _driver(
    topology: Topology, config: StreamsConfig, context: SparkContext, pace: Pace, history: str | None
) -> Driver:
    application = Application.of(topology, config)
    near = is_near(str(context.master))
    _check_stores(application, near=near)
    payload = replace(pack(topology, config, near=near), history=history)
    client_id = f"{config.client_id or config.application_id}-spark-{uuid.uuid4().hex[:8]}"
    clock = SystemClock()
    return Driver(
        config,
        levels(application.subtopologies),
        pace,
        clock,
        membership=partial(DriverMembership, config, application, client_id, max(1, context.defaultParallelism), clock),
        view=partial(KafkaView, config, application, client_id, batch=pace.batch, history=history),
        spark=partial(SparkThread, context, payload, client_id),
    )


def _check_stores(application: Application, *, near: bool) -> None:
    """Raise an error if a store has no changelog. Each Spark task may run on another machine, so that only changelogs
    can restore the state.
    """
    loose = [spec for sub in application.subtopologies for spec in stores_without_changelog(sub)]
    volatile = sorted(spec.name for spec in loose if not spec.persistent)
    if volatile:
        raise TopologyError(
            f"stores {', '.join(volatile)} are in memory and have no changelog: on Spark they would be empty in every "
            "task; give them a changelog, or make them persistent"
        )
    if loose and not near:
        names = ", ".join(sorted(spec.name for spec in loose))
        log.warning("stores %s have no changelog: they are empty wherever Spark runs their task next", names)
