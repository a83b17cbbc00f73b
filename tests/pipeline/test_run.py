"""What `run_on_spark` refuses at once, and what it makes of settings: no Spark, no Kafka."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from milestones import ConfigError, StreamsBuilder, TopologyError, serdes
from milestones.common.errors import MilestonesError
from milestones.pipeline import run_on_spark
from milestones.pipeline.backfill import archive_inputs, backfill
from milestones.pipeline.driving.driver import Driver
from milestones.pipeline.progress import Round
from milestones.pipeline.spark_jobs import reason_in

HERE: dict[str, Any] = {"application_id": "a", "bootstrap_servers": "b:1"}
SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]", defaultParallelism=2))


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[Driver]:
    """The drivers that would have been started."""
    found: list[Driver] = []
    monkeypatch.setattr(Driver, "start", lambda driver: found.append(driver))
    return found


def topology(**store: Any) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.STRING, value=serdes.STRING).group_by_key().count("counts", **store)
    return builder


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "forever"}, "mode='forever'"),
        ({"mode": "micro_batch", "interval_ms": -1}, "interval_ms"),
        ({"mode": "micro_batch", "max_records": 0}, "max_records"),
        ({"mode": "batch", "max_records": 10}, "max_records"),
        ({"commit_interval": 5}, "commit_interval"),
        ({"history": "memory://x"}, "history.*memory of its own"),
    ],
)
def test_a_setting_that_cant_be_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run_on_spark(topology(), SPARK, **HERE, **settings)


def test_an_archive_that_only_this_process_sees_is_refused() -> None:
    with pytest.raises(ConfigError, match="memory of its own"):
        archive_inputs(topology(), SPARK, "memory://x", **HERE)
    with pytest.raises(ConfigError, match="memory of its own"):
        backfill(topology(), SPARK, history="memory://x", **HERE)


def test_a_session_of_spark_connect_is_refused_with_what_to_use() -> None:
    with pytest.raises(MilestonesError, match=r"classic session.*spark_session"):
        run_on_spark(topology(), SimpleNamespace(), **HERE)  # type: ignore[arg-type]


def test_a_store_that_would_be_empty_in_every_task_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"stores counts .*changelog"):
        run_on_spark(topology(in_memory=True, logging=False), SPARK, **HERE)


def test_commits_are_rarer_than_live_unless_told_otherwise(started: list[Driver]) -> None:
    run_on_spark(topology(), SPARK, **HERE)
    run_on_spark(topology(), SPARK, **HERE, commit_interval_ms=70)
    run_on_spark(topology(), SPARK, **HERE, processing_guarantee="exactly_once_v2", transaction_timeout_ms=1_000)
    assert [driver._config.commit_interval_ms for driver in started] == [2_000, 70, 250]


def test_what_tasks_have_dropped_is_among_the_metrics_of_a_run(started: list[Driver]) -> None:
    run = run_on_spark(topology(), SPARK, **HERE)
    for number in (1, 2):
        started[0].progress = run.progress.after(Round(number, (0,), 1, 10, 1.0, records=8, dropped=2, punctuations=1))
    metrics = run.metrics()
    assert (metrics["records-total"], metrics["dropped-records-total"], metrics["punctuate-total"]) == (16, 4, 2)


def test_the_line_that_says_why_is_found_among_sparks_many() -> None:
    error = RuntimeError(
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times\n"
        "Traceback (most recent call last):\n"
        '  File "worker.py", line 5, in main\n'
        "milestones.TimeoutExceededError: nothing came of in-0\n"
        "\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:12)\n"
    )
    assert reason_in(error) == "milestones.TimeoutExceededError: nothing came of in-0"
