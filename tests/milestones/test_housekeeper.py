"""The housekeeper: questions, purges, a watch over the source topics; driven by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import KafkaUnreachableError, SourceTopicError, StateError
from milestones.common.mailbox import Mailbox
from milestones.common.records import TaskId, TopicPartition
from milestones.housekeeper import WATCH_INTERVAL_MS, AskBounds, Bounds, Housekeeper, Purge, changed_sources
from tests.milestones.fakes import World, counting

A = TaskId(0, 0)
IN = TopicPartition("in", 0)


class FakeCluster:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {"in": 2, "unrelated": 9}
        self.error: Exception | None = None
        self.asked: list[tuple[frozenset[TopicPartition], bool]] = []
        self.purged: list[Mapping[TopicPartition, int]] = []

    def partition_counts(self) -> dict[str, int]:
        if self.error is not None:
            raise self.error
        return dict(self.counts)

    def bounds(self, partitions: Any, *, committed: bool) -> dict[TopicPartition, tuple[int, int]]:
        self.asked.append((frozenset(partitions), committed))
        if self.error is not None:
            raise self.error
        return dict.fromkeys(partitions, (3, 8))

    def topic_ids(self, topics: Any) -> dict[str, str]:
        return {topic: f"id of {topic}" for topic in topics}

    def purge(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.purged.append(offsets)


class FakeCleaner:
    def __init__(self) -> None:
        self.runs: list[int] = []
        self.error: Exception | None = None

    def run_once(self, now_ms: int) -> bool:
        if self.error is not None:
            raise self.error
        self.runs.append(now_ms)
        return False


class Keeping:
    def __init__(self, **settings: Any) -> None:
        self.world = World(counting(), settings)
        self.cluster, self.cleaner = FakeCluster(), FakeCleaner()
        self.errors: list[Exception] = []
        cleaner: Any = self.cleaner
        self.runs = True
        self.keeper = Housekeeper(
            "keeper", self.world.config, self.world.context.application, cleaner, self.world.clock, self.errors.append,
            lambda: self.runs,
        )  # fmt: skip

    def step(self, request: Any = None, *, ms: int = 0) -> None:
        self.world.clock.advance(ms)
        cluster: Any = self.cluster
        self.keeper.run_once(cluster, self.world.clock.monotonic_ms(), request)

    def look(self) -> list[str]:
        """Look at the topics once more; the errors so far."""
        self.step(ms=WATCH_INTERVAL_MS)
        return [str(error) for error in self.errors]


def ask(committed: bool = False) -> AskBounds:
    return AskBounds(A, frozenset({IN}), Mailbox(5), committed)


@pytest.mark.parametrize("committed", [True, False])
def test_a_question_is_answered_into_the_mailbox_of_whoever_asked(committed: bool) -> None:
    k, question = Keeping(), ask(committed)
    k.step(question)
    assert question.reply_to.drain() == [Bounds(A, {IN: (3, 8)})]
    assert k.cluster.asked == [(frozenset({IN}), committed)]


def test_the_ids_of_the_topics_come_along_when_they_are_asked_for() -> None:
    k, question = Keeping(), AskBounds(A, frozenset({IN}), Mailbox(1), topic_ids=True)
    k.step(question)
    assert question.reply_to.drain() == [Bounds(A, {IN: (3, 8)}, topic_ids={"in": "id of in"})]


@pytest.mark.parametrize(
    "error", [KafkaUnreachableError("no broker"), KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))]
)
def test_a_question_that_kafka_cannot_answer_is_answered_with_its_error(error: Exception) -> None:
    k, question = Keeping(), ask()
    k.step()
    k.cluster.error = error
    k.step(question)
    assert question.reply_to.drain() == [Bounds(A, {}, error)]


def test_somebody_who_no_longer_reads_its_answers_stops_nobody() -> None:
    k, question = Keeping(), AskBounds(A, frozenset({IN}), Mailbox(1))
    for _ in range(3):
        k.step(question)
    assert len(question.reply_to.drain()) == 1


def test_a_purge_is_handed_on() -> None:
    k = Keeping()
    k.step(Purge({IN: 7}))
    assert k.cluster.purged == [{IN: 7}]


def test_a_source_topic_that_gets_more_partitions_is_an_error_that_says_what_to_do() -> None:
    k = Keeping()
    assert k.look() == []
    k.cluster.counts["in"] = 3
    assert k.look()[0].startswith("source topic in had 2 partitions and has 3 now")
    assert "milestones reset" in str(k.errors[0])


def test_a_source_topic_that_two_looks_in_a_row_miss_was_deleted() -> None:
    k = Keeping()
    k.look()
    del k.cluster.counts["in"]
    assert k.look() == []
    assert k.look()[0].startswith("source topic in was deleted")


def test_a_source_topic_that_brokers_do_not_know_for_a_moment_is_no_error() -> None:
    k = Keeping()
    k.look()
    count = k.cluster.counts.pop("in")
    k.look()
    k.cluster.counts["in"] = count
    k.look()
    del k.cluster.counts["in"]
    assert k.look() == []


def test_topics_of_others_may_change() -> None:
    k = Keeping()
    k.look()
    k.cluster.counts = {"in": 2, "new": 1}
    assert k.look() == []
    assert k.look() == []


def test_a_cluster_that_does_not_answer_is_looked_at_later() -> None:
    k = Keeping()
    k.look()
    k.cluster.error = KafkaUnreachableError("no broker")
    assert k.look() == []
    k.cluster.error = None
    k.cluster.counts["in"] = 3
    assert len(k.look()) == 1


def test_topics_are_looked_at_every_few_seconds_only() -> None:
    k = Keeping()
    k.step()
    k.cluster.counts["in"] = 3
    k.step(ms=WATCH_INTERVAL_MS - 1)
    assert k.errors == []
    k.step(ms=1)
    assert len(k.errors) == 1


def test_the_state_directory_is_cleaned_ten_times_per_cleanup_delay_at_most_once_a_second() -> None:
    k = Keeping(state_cleanup_delay_ms=100_000)
    for _ in range(21):
        k.step(ms=1_000)
    assert len(k.cleaner.runs) == 3
    k = Keeping(state_cleanup_delay_ms=0)
    for _ in range(10):
        k.step(ms=500)
    assert len(k.cleaner.runs) == 5


def test_nothing_is_cleaned_away_while_tasks_may_be_about_to_be_opened_or_closed_for_the_end() -> None:
    k = Keeping(state_cleanup_delay_ms=0)
    k.runs = False
    k.step(ms=5_000)
    assert not k.cleaner.runs
    k.runs = True
    k.step()
    assert len(k.cleaner.runs) == 1


def test_a_housekeeper_that_dies_tells_the_client_and_refuses_further_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    k = Keeping()
    monkeypatch.setattr("milestones.housekeeper.Cluster", lambda _, stopped: k.cluster)
    k.cleaner.error = error = StateError("the disk is gone")
    k.keeper.run()
    assert k.errors == [error]
    with pytest.raises(StateError, match="the disk is gone"):
        k.keeper.requests.put(ask(), timeout_ms=0)


def test_a_housekeeper_ends_when_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    k = Keeping()
    monkeypatch.setattr("milestones.housekeeper.Cluster", lambda _, stopped: k.cluster)
    k.keeper.close()
    k.keeper.run()
    assert k.errors == []


def test_changed_sources_is_about_what_was_there_before_only() -> None:
    assert changed_sources({}, {"in": 1}) is None
    assert changed_sources({"in": 1}, {"in": 1, "new": 3}) is None
    assert isinstance(changed_sources({"in": 1}, {}), SourceTopicError)
    assert isinstance(changed_sources({"in": 1}, {"in": 2}), SourceTopicError)
