"""Changelogs of windows, sessions and joins: what is gone by their store's time is deleted, and nothing else."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from milestones.common.kafka.creation import create_topics
from milestones.common.kafka.internal_topics import InternalTopic
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TopicPartition
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.kinds import changelog_settings
from milestones.instance.changelog_trim import STEP_MS, ChangelogTrim, Trim, own_limits, trimmed_to
from milestones.testing import KafkaProbe, until
from tests.common.kafka.fake_cluster import answered
from tests.topics import named

LOG, OTHER = TopicPartition("log", 0), TopicPartition("other", 0)
IN_2015, NOW = 1_420_070_400_000, 1_800_000_000_000


class Asked:
    """Answers each search with the offset 7, unless `answer` says something else; `times` has all that was asked."""

    def __init__(self) -> None:
        self.times: list[dict[TopicPartition, int]] = []
        self.answer: Any = 7

    def start_searching(self, times: dict[TopicPartition, int], *, committed: bool) -> dict[TopicPartition, Any]:
        self.times.append(times)
        offset = self.answer if isinstance(self.answer, Exception) else SimpleNamespace(offset=self.answer)
        return {at: answered(offset) for at in times}

    def ask(self, begin: Any) -> Any:
        return answered(begin(self))


def trim(additional_ms: int = 0, **limits: int) -> ChangelogTrim:
    return ChangelogTrim(additional_ms, limits)


def test_records_go_once_their_rows_are_gone_for_the_additional_time() -> None:
    assert trimmed_to(IN_2015, 86_400_000) == IN_2015 - 86_400_000
    assert trimmed_to(IN_2015 + STEP_MS - 1, 86_400_000) == IN_2015 - 86_400_000
    assert trimmed_to(5, 86_400_000) == 0


def test_what_is_older_than_the_first_record_of_that_time_is_purged() -> None:
    asked, one = Asked(), trim()
    one.take(Trim({LOG: IN_2015}), NOW)
    assert one.run_once(asked.ask) == {}
    assert one.waits
    assert one.run_once(asked.ask) == {LOG: 7}
    assert asked.times == [{LOG: IN_2015}]


def test_a_time_is_looked_for_once_and_the_next_one_again() -> None:
    asked, one = Asked(), trim()
    for gone in (IN_2015, IN_2015 + 1, IN_2015 + STEP_MS):
        one.take(Trim({LOG: gone}), NOW)
        one.run_once(asked.ask)
        one.run_once(asked.ask)
    assert [times[LOG] for times in asked.times] == [IN_2015, IN_2015 + STEP_MS]


@pytest.mark.parametrize("offset", [-1, 0])
def test_nothing_is_purged_where_all_records_are_older_or_none_is(offset: int) -> None:
    asked, one = Asked(), trim()
    asked.answer = offset
    one.take(Trim({LOG: IN_2015}), NOW)
    one.run_once(asked.ask)
    assert one.run_once(asked.ask) == {}


def test_a_search_that_fails_is_repeated() -> None:
    asked, one = Asked(), trim()
    asked.answer = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    one.take(Trim({LOG: IN_2015}), NOW)
    one.run_once(asked.ask)
    assert one.run_once(asked.ask) == {}
    asked.answer = 7
    one.take(Trim({LOG: IN_2015}), NOW)
    one.run_once(asked.ask)
    assert one.run_once(asked.ask) == {LOG: 7}


def test_a_question_that_had_no_answer_ends_nothing() -> None:
    one, lost = trim(), Future[Any]()
    lost.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    one.take(Trim({LOG: IN_2015}), NOW)
    one.run_once(lambda _: lost)
    assert one.run_once(lambda _: lost) == {}


def test_a_retention_of_the_application_s_own_that_is_too_short_for_its_store_s_time_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = trim(log=5_000, other=NOW)
    for _ in range(2):
        one.take(Trim({LOG: IN_2015, OTHER: IN_2015}), NOW)
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "changelog log:" in said
    assert "retention.ms=5000" in said
    assert "Leave retention.ms out" in said


def test_the_limits_that_count_are_those_of_stores_whose_rows_go_by_time() -> None:
    limited = {"retention.ms": "9"}
    specs = [
        StoreSpec("windows", "window", retention_ms=5, window_ms=5, changelog_config=limited),
        StoreSpec("free", "window", retention_ms=5, window_ms=5),
        StoreSpec("table", changelog_config=limited),
        StoreSpec("unlogged", "window", retention_ms=5, window_ms=5, changelog_config=limited, logged=False),
    ]
    changelogs = {spec.name: f"{spec.name}-log" for spec in specs if spec.logged}
    sub: Any = SimpleNamespace(stores=specs, changelogs=changelogs)
    assert own_limits([sub]) == {"windows-log": 9}


# -- on a real broker


@pytest.mark.kafka
def test_a_broker_that_deletes_by_age_keeps_what_a_store_of_2015_needs_and_loses_what_it_does_not(kafka: str) -> None:
    spec = StoreSpec("s", "window", retention_ms=5, window_ms=5)
    name, cluster, probe = named("log"), Cluster({"bootstrap.servers": kafka}), KafkaProbe(kafka)
    create_topics(cluster, [InternalTopic(name, 1, changelog_settings(spec, {}))], -1)
    canary = named("canary")
    probe.create({canary: 1}, {"retention.ms": "604800000"})
    producer, at = Producer({"bootstrap.servers": kafka}), TopicPartition(name, 0)
    for topic in (name, canary):
        for minute in range(60):
            producer.produce(topic, b"v", b"%d" % minute, timestamp=IN_2015 + minute * 60_000)
    producer.flush(20)
    until(lambda: cluster.bounds([TopicPartition(canary, 0)], committed=False)[TopicPartition(canary, 0)][0] == 60,
          "the broker deletes by age")  # fmt: skip
    assert cluster.bounds([at], committed=False) == {at: (0, 60)}
    one = trim()
    one.take(Trim({at: IN_2015 + 30 * 60_000}), NOW)
    cluster.purge(one.found(times := one.due(), cluster.start_searching(times, committed=False)))
    assert cluster.bounds([at], committed=False) == {at: (30, 60)}
