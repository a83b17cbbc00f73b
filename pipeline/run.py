"""A topology on Spark: `run_on_spark`, and the run that it returns.

*Guarantees*: as the runtime, by the application's `processing_guarantee`; Kafka's committed offsets are the truth, so
whatever was interrupted, run twice, or shared with live instances of the application is processed as often as it says.
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
    """A run that has begun, in threads of its own, until it is complete, stopped, or fails; `with` stops it at the
    end."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @property
    def progress(self) -> Progress:
        """What it has done so far; from any thread."""
        return self._driver.progress

    @property
    def state(self) -> RunState:
        return self._driver.progress.state

    @property
    def error(self) -> BaseException | None:
        """Why it has failed."""
        return self._driver.error

    def metrics(self) -> Mapping[str, float]:
        """The numbers of `progress`, summed up over all Spark tasks under the names that they have in an instance, and
        the records per second of the last job that had any."""
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
        """Wait until it has ended; False when time is up before. Raises the error that it has ended with."""
        self._driver.join(timeout_s)
        if self._driver.error is not None:
            raise self._driver.error
        return not self._driver.is_alive()

    def stop(self, timeout_s: float = STOP_S) -> bool:
        """End it: the Spark tasks that run get some seconds to come to their end; what they haven't committed then is
        dropped. True when all has ended within the time. Errors: as in `wait`."""
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

    `mode`: a `batch` ends when all records that its inputs had at its beginning are processed; `micro_batch` runs one
    every `interval_ms`, of at most about `max_records` records each. `history`: URL of an archive of what Kafka no
    longer has of the inputs (see `backfill`). Settings as in `Streams`, by name or as `config`; `commit_interval_ms` is
    2,000 unless they say otherwise.

    The run joins the application's group. Live instances of the application may be members too: each has tasks of its
    own then, and a batch ends when those of the run are done (`progress.elsewhere` counts the others).

    `ConfigError`, `TopologyError` at once; all else ends the run, and is raised by `wait`.
    """
    complete = StreamsConfig(**settings) if config is None else config.replace(**settings)
    if complete.origin("commit_interval_ms") == "default":
        usual_ms = min(COMMIT_INTERVAL_MS, complete.transaction_timeout_ms // 4)
        complete = complete.replace(commit_interval_ms=usual_ms)
    built = topology.build() if isinstance(topology, StreamsBuilder) else topology
    if history is not None:
        from milestones.pipeline.backfill.archive import shared  # its package needs this module

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
    """Each Spark task may run in another process, on another machine: state comes back from changelogs alone."""
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
