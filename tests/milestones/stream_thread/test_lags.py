"""How far partitions are behind: those that are fetched, those that stand still, those that no assignment has."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import KafkaUnreachableError, MilestonesError
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.stream_thread.lags import ASK_MS, FIRST_MS, PartitionLags

A, B = TopicPartition("in", 0), TopicPartition("in", 1)
ALL = (A, B)


def done(result: Any = None, error: Exception | None = None) -> Future[Any]:
    future: Future[Any] = Future()
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
    return future


class Cluster:
    """Answers at once: `firsts`, `ends`, `committed` by partition; one without an end isn't told."""

    def __init__(self) -> None:
        self.firsts, self.ends, self.committed = {A: 0, B: 0}, {A: 10, B: 20}, {B: 5}
        self.read_committed: list[bool] = []
        self.coordinator: MilestonesError | None = None

    def start_listing(self, partitions: Any, *, end: bool, committed: bool = False) -> dict[Any, Any]:
        self.read_committed.append(committed)
        found = self.ends if end else self.firsts
        away = KafkaException(KafkaError(KafkaError._TIMED_OUT))
        offsets = {at: found.get(at) for at in partitions}
        return {at: done(error=away) if offset is None else done(SimpleNamespace(offset=offset))
                for at, offset in offsets.items()}  # fmt: skip

    def start_reading_committed(self, group: str, partitions: Any) -> Any:
        assert group == "app"
        if self.coordinator is not None:
            return done(error=self.coordinator)
        return done({at: OffsetAndMetadata(self.committed[at]) for at in partitions if at in self.committed})


class Asked:
    """Lags over a cluster; `away`: no question is answered; `asked`: how many there were."""

    def __init__(self) -> None:
        self.cluster, self.away, self.asked, self.now_ms = Cluster(), False, 0, 0
        context: Any = SimpleNamespace(
            config=SimpleNamespace(application_id="app", exactly_once=True), admin=SimpleNamespace(ask=self.ask)
        )
        self.lags = PartitionLags(context)

    def ask(self, begin: Any) -> Any:
        self.asked += 1
        if self.away:
            return done(error=KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return done(begin(self.cluster))

    def after(self, ms: int, fetched: Any = None, assigned: Any = ALL, *, joining: bool = False) -> dict[Any, Any]:
        """What is known so much later, with the age in ms."""
        self.now_ms += ms
        found = self.lags.look(fetched or {}, assigned, self.now_ms, joining=joining)
        return {partition: (lag.records, self.now_ms - lag.known_ms) for partition, lag in found.items()}


def test_a_partition_that_is_fetched_has_the_lag_that_the_consumer_knows() -> None:
    asked = Asked()
    assert asked.after(0, {A: 3, B: 0}) == {A: (3, 0), B: (0, 0)}
    assert asked.after(10 * ASK_MS, {A: 1, B: 2}) == {A: (1, 0), B: (2, 0)}
    assert asked.asked == 0


def test_of_a_partition_that_stands_still_kafka_is_asked() -> None:
    asked = Asked()
    assert asked.after(0, {A: 3}) == {A: (3, 0)}
    assert asked.after(FIRST_MS, {A: 3}) == {A: (3, 0)}
    assert asked.after(500, {A: 3}) == {A: (3, 0), B: (15, 0)}
    asked.cluster.ends[B] = 30
    asked.after(ASK_MS, {A: 3})
    assert asked.after(500, {A: 3}) == {A: (3, 0), B: (25, 0)}
    assert asked.cluster.read_committed == [False, True] * 2


def test_where_nothing_is_committed_all_that_the_partition_has_is_its_lag() -> None:
    asked = Asked()
    asked.cluster.firsts[A], asked.cluster.firsts[B] = 4, 7  # the broker has deleted what was committed, too
    asked.after(0)
    asked.after(FIRST_MS)
    assert asked.after(0) == {A: (6, 0), B: (13, 0)}


def test_while_kafka_does_not_answer_the_last_known_lag_stays_and_grows_old() -> None:
    asked = Asked()
    asked.after(0, {A: 3, B: 9})
    asked.away = True
    assert asked.after(FIRST_MS) == {A: (3, FIRST_MS), B: (9, FIRST_MS)}
    assert asked.after(ASK_MS) == {A: (3, FIRST_MS + ASK_MS), B: (9, FIRST_MS + ASK_MS)}
    asked.away = False
    del asked.cluster.ends[A]  # its leader is still away
    asked.after(ASK_MS)
    assert asked.after(0) == {A: (3, FIRST_MS + 2 * ASK_MS), B: (15, 0)}


def test_while_the_coordinator_does_not_answer_the_last_known_lag_stays_and_the_thread_goes_on() -> None:
    asked = Asked()
    asked.after(0, {A: 3, B: 9})
    asked.cluster.coordinator = KafkaUnreachableError("the group's offsets can't be read")
    asked.after(FIRST_MS)
    assert asked.after(ASK_MS) == {A: (3, FIRST_MS + ASK_MS), B: (9, FIRST_MS + ASK_MS)}
    assert asked.after(0) == {A: (3, FIRST_MS + ASK_MS), B: (9, FIRST_MS + ASK_MS)}
    asked.cluster.coordinator = None
    asked.after(ASK_MS)
    assert asked.after(0) == {A: (10, 0), B: (15, 0)}


def test_a_member_that_the_group_has_lost_keeps_its_lags_until_another_assignment_takes_them_away() -> None:
    asked = Asked()
    asked.after(0, {A: 3, B: 9})
    assert asked.after(60_000, assigned=(), joining=True) == {A: (3, 60_000), B: (9, 60_000)}
    assert asked.after(1, {A: 5}, (A,)) == {A: (5, 0)}
