"""Changelogs of versioned stores: brokers compact what no store needs by its time, while an instance looks."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.kafka.topics import ALL
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.kinds import LONGEST_LAG
from milestones.common.state.times import observed_time
from milestones.common.task.metadata import OffsetMetadata
from milestones.instance.compaction_watch import (
    DAY_MS,
    FIRST_MS,
    HOUR_MS,
    LAG,
    MARGIN_MS,
    CompactionWatch,
    KeptHistory,
    committed_times,
    histories,
    wanted_lag,
)
from milestones.testing import until
from tests.common.kafka.fake_cluster import answered

IN_2015, NOW = 1_420_070_400_000, 1_800_000_000_000
HISTORY_MS = 5_000
TIME = observed_time("prices")
PRICES = KeptHistory("log", TIME, HISTORY_MS, own=False)


def committed(*times: int | None) -> dict[TopicPartition, OffsetAndMetadata]:
    """What the group has committed of each partition, with the store's time."""
    return {
        TopicPartition("in", number): OffsetAndMetadata(1, OffsetMetadata(others={TIME: time}).encode())
        for number, time in enumerate(times)
        if time is not None
    }


class Looked:
    """A cluster with the changelog "log" of two partitions. Answers at once; `changed` has all changes of its lag."""

    def __init__(self, lag: str = LONGEST_LAG) -> None:
        self.lag, self.changed, self.looks = lag, list[str](), 0
        self.committed = committed()
        self.refusal: Exception | None = None

    def start_reading_committed(self, group: str) -> Any:
        assert group == "app"
        return answered(self.committed)

    def start_looking(self, topics: list[str]) -> dict[str, Any]:
        self.looks += 1
        return {ALL: answered({"log": SimpleNamespace(partitions=2)})}

    def start_reading_settings(self, topics: list[str]) -> dict[str, Any]:
        return {"log": answered({LAG: SimpleNamespace(value=self.lag)})}

    def start_changing_settings(self, changes: dict[str, dict[str, str]]) -> dict[str, Any]:
        if self.refusal is not None:
            return {"log": answered(self.refusal)}
        self.lag = changes["log"][LAG]
        self.changed.append(self.lag)
        return {"log": answered(None)}

    def ask(self, begin: Any) -> Any:
        return answered(begin(self))


class Watching:
    """A watch over what the group has committed, by a clock of its own."""

    def __init__(self, cluster: Looked, one: KeptHistory = PRICES) -> None:
        self.cluster, self.now_ms = cluster, 0
        self.watch = CompactionWatch([one], "app")
        self.turn(0)

    def turn(self, after_ms: int) -> None:
        """One look after so long, and what comes of it."""
        self.now_ms += after_ms

        def idle() -> bool:
            self.watch.run_once(self.cluster.ask, self.now_ms, NOW + self.now_ms)
            return not self.watch.waits

        until(idle, "the look is over")


def test_while_the_time_of_a_partition_s_store_isn_t_known_nothing_is_compacted() -> None:
    one = Watching(Looked())
    for times in [(), (NOW,), (None, NOW)]:
        one.cluster.committed = committed(*times)
        one.turn(HOUR_MS)
    assert (one.cluster.changed, one.cluster.looks) == ([], 3)


def test_what_the_store_of_the_oldest_time_needs_and_a_week_more_is_kept() -> None:
    one = Watching(Looked())
    one.cluster.committed = committed(NOW, IN_2015)
    one.turn(FIRST_MS)
    assert one.cluster.changed == [str(NOW + FIRST_MS - IN_2015 + HISTORY_MS + MARGIN_MS)]


def test_a_store_whose_time_stands_still_keeps_its_versions_however_long() -> None:
    one = Watching(Looked())
    one.cluster.committed = committed(NOW, NOW)
    for _ in range(30):
        one.turn(DAY_MS)
        oldest_kept = NOW + one.now_ms - int(one.cluster.lag)
        assert oldest_kept <= NOW - HISTORY_MS - MARGIN_MS


def test_a_store_whose_time_follows_the_clock_has_its_setting_changed_once() -> None:
    one = Watching(Looked())
    for hour in range(100):
        one.cluster.committed = committed(NOW + hour * HOUR_MS, NOW + hour * HOUR_MS)
        one.turn(HOUR_MS)
    assert len(one.cluster.changed) == 1


def test_a_time_that_is_lost_has_nothing_compacted_again() -> None:
    """Such as by offsets that were set by hand, without metadata."""
    one = Watching(Looked("5"))
    one.turn(FIRST_MS)
    assert one.cluster.changed == [LONGEST_LAG]


def test_nothing_is_compacted_while_no_instance_looks() -> None:
    one = Watching(Looked())
    one.watch.end(one.cluster.ask)
    assert one.cluster.changed == [], "none has let it be"
    one.cluster.committed = committed(NOW, NOW)
    one.turn(FIRST_MS)
    one.watch.end(one.cluster.ask)
    assert one.cluster.changed[1:] == [LONGEST_LAG]


def test_an_end_closes_what_another_instance_has_opened() -> None:
    one = Watching(Looked(str(HISTORY_MS + MARGIN_MS)))
    one.cluster.committed = committed(NOW, NOW)
    one.turn(FIRST_MS)
    assert one.cluster.changed == []
    one.watch.end(one.cluster.ask)
    assert one.cluster.changed == [LONGEST_LAG]


def test_a_change_that_is_refused_is_said_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one = Watching(Looked())
    one.cluster.refusal = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    one.cluster.committed = committed(NOW, NOW)
    one.turn(FIRST_MS)
    assert "changelog log can't be given min.compaction.lag.ms=" in caplog.text
    one.cluster.refusal = None
    one.turn(HOUR_MS)
    assert len(one.cluster.changed) == 1


def test_a_lag_of_the_application_s_own_that_is_too_short_for_the_store_s_time_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = Watching(Looked(str(DAY_MS)), KeptHistory("log", TIME, HISTORY_MS, own=True))
    one.cluster.committed = committed(NOW, IN_2015)
    for _ in range(2):
        one.turn(HOUR_MS)
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "changelog log: its versioned store needs versions" in said
    assert f"min.compaction.lag.ms={DAY_MS}" in said
    assert one.cluster.changed == []


def test_a_history_without_end_is_never_compacted() -> None:
    assert wanted_lag(int(LONGEST_LAG), NOW - int(LONGEST_LAG), NOW) is None


def test_times_ahead_of_the_clock_do_no_harm() -> None:
    assert wanted_lag(int(LONGEST_LAG), NOW + 30 * DAY_MS, NOW) == "0"


def test_only_versioned_stores_with_a_changelog_of_their_own_are_watched() -> None:
    specs = [
        StoreSpec("prices", "versioned", retention_ms=5),
        StoreSpec("own", "versioned", retention_ms=6, changelog_config={LAG: "7"}),
        StoreSpec("unlogged", "versioned", retention_ms=5, logged=False),
        StoreSpec("of-input", "versioned", retention_ms=5, source_topic="in"),
        StoreSpec("plain"),
    ]
    sub: Any = SimpleNamespace(stores=specs, changelogs={spec.name: f"{spec.name}-log" for spec in specs})
    assert histories([sub]) == [
        KeptHistory("prices-log", TIME, 5, own=False), KeptHistory("own-log", observed_time("own"), 6, own=True),
    ]  # fmt: skip


def test_of_several_inputs_of_a_task_the_highest_time_counts() -> None:
    found = committed_times({
        TopicPartition("a", 0): OffsetAndMetadata(1, OffsetMetadata(others={TIME: 5}).encode()),
        TopicPartition("b", 0): OffsetAndMetadata(1, OffsetMetadata(others={TIME: 7}).encode()),
        TopicPartition("c", 0): OffsetAndMetadata(1, OffsetMetadata(others={TIME: 6}).encode()),
        TopicPartition("c", 1): OffsetAndMetadata(1, ""),
    })  # fmt: skip
    assert found == {(0, TIME): 7}
