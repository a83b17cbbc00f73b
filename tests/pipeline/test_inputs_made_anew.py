"""An input topic that is deleted and made anew, on a real Kafka and a real Spark: what reads it next ends and names the
topic, or reads every record of the new one. What is at an offset of the former topic is never taken for the new one's.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from milestones.common.errors import MilestonesError, SourceTopicError
from milestones.common.partitioner import partition_of
from milestones.testing import until
from tests.pipeline.audit.test_audit import NOW_MS, PARTITIONS, TIMEOUT_S, App, Sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from milestones.pipeline import SparkRun

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

FORMER = 20
COUNTS = {"fewer": 6, "as many": FORMER, "more": 50}
"""Records of the new topic, beside those that were read of the former one."""


def lines(what: str, count: int) -> list[Sent]:
    """Records of keys of their own."""
    keys = [f"{what}-{number}" for number in range(count)]
    return [Sent(partition_of(k.encode(), PARTITIONS), k, b"v", NOW_MS + number) for number, k in enumerate(keys)]


class Anew(App):
    """An application whose input is made anew."""

    def __init__(self, kafka: str, directory: Path, spark: SparkSession) -> None:
        super().__init__(kafka, directory, spark)
        self.history = f"file://{directory}/history"

    def run(self, **settings: Any) -> SparkRun:
        from milestones.pipeline import run_on_spark

        return run_on_spark(self.counting(), self.spark, config=self.config.replace(**settings.pop("config", {})),
                            **settings)  # fmt: skip

    def batch(self, guarantee: str) -> None:
        with self.run(config={"processing_guarantee": guarantee}) as run:
            assert run.wait(TIMEOUT_S)

    def archive(self) -> int:
        from milestones.pipeline.backfill import archive_inputs

        return archive_inputs(self.counting(), self.spark, self.history, config=self.config).records

    def backfill(self, **options: Any) -> int:
        from milestones.pipeline.backfill import backfill

        return backfill(self.counting(), self.spark, config=self.config, **options).records

    def make_anew(self, count: int) -> list[Sent]:
        """Faster than any look at the topics; the records of the new one."""
        self.probe.make_anew({self.topic("in"): PARTITIONS})
        new = lines("new", count)
        self.send("in", new)
        return new

    def ends_well(self, run: Callable[[], object], new: list[Sent]) -> bool:
        """Whether all of the new topic is processed after a call, or the call has ended with an error that names it."""
        try:
            run()
        except MilestonesError as error:
            return error.exit_code == 2 and self.topic("in") in str(error) and "deleted" in str(error)
        return {sent.key for sent in new} <= self.processed()

    def processed(self) -> set[str]:
        return {(record.key or b"").decode() for record in self.probe.read(self.topic("out"), stable=True)}


@pytest.fixture
def app(kafka: str, tmp_path: Path, spark: SparkSession) -> Anew:
    made = Anew(kafka, tmp_path, spark)
    made.send("in", lines("old", FORMER))
    return made


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_a_batch_reads_all_of_an_input_made_anew_since_the_last_one_or_ends_and_names_it(
    app: Anew, count: int, guarantee: str
) -> None:
    app.batch(guarantee)
    new = app.make_anew(count)
    assert app.ends_well(lambda: app.batch(guarantee), new)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_micro_batches_read_all_of_an_input_made_anew_between_two_of_them_or_end_and_name_it(
    app: Anew, count: int, guarantee: str
) -> None:
    with app.run(mode="micro_batch", interval_ms=100, config={"processing_guarantee": guarantee}) as run:
        until(lambda: len(app.processed()) == FORMER, "the former topic is processed", TIMEOUT_S)
        new = app.make_anew(count)
        all_ = FORMER + len(new)

        def go_on() -> None:
            until(lambda: run.wait(0.1) or len(app.processed()) == all_, "it ends, or all is processed", TIMEOUT_S)

        assert app.ends_well(go_on, new)


@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_an_archive_never_continues_the_history_of_an_input_with_another_topic_of_its_name(
    app: Anew, count: int
) -> None:
    assert app.archive() == FORMER
    app.make_anew(count)
    with pytest.raises(MilestonesError, match=f"{app.topic('in')}.* was deleted and made anew since"):
        app.archive()


@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_a_backfill_never_takes_a_topic_made_anew_for_what_follows_the_archive(app: Anew, count: int) -> None:
    assert app.archive() == FORMER
    app.make_anew(count)
    with pytest.raises(MilestonesError, match=f"{app.topic('in')}.* was deleted and made anew since"):
        app.backfill(history=app.history)
    assert app.processed() == set()


def test_nor_does_it_take_one_that_is_made_anew_once_it_has_looked(app: Anew, monkeypatch: pytest.MonkeyPatch) -> None:
    from milestones.pipeline import run_on_spark

    def made_anew_before(*args: Any, **options: Any) -> SparkRun:
        app.make_anew(COUNTS["more"])
        return run_on_spark(*args, **options)

    assert app.archive() == FORMER
    backfilling = importlib.import_module("milestones.pipeline.backfill.backfill")
    monkeypatch.setattr(backfilling, "run_on_spark", made_anew_before)
    with pytest.raises(SourceTopicError, match=f"{app.topic('in')}.* was deleted and made anew since"):
        app.backfill(history=app.history)
    assert app.processed() == set()


@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_a_backfill_of_what_kafka_has_reads_all_of_an_input_made_anew_or_ends_and_names_it(
    app: Anew, count: int
) -> None:
    assert app.backfill() == FORMER
    new = app.make_anew(count)
    assert app.ends_well(app.backfill, new)
