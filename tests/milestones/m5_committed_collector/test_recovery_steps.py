"""A recovery whose answers take their time stops no turn: records are fetched and processed, the group is answered."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from milestones.common.kafka.membership import Assigned, JoinNeeded, Lost, StaleGenerationError
from tests.milestones.fakes import A, assignment, kafka_error, put
from tests.milestones.m5_committed_collector.collecting import (
    ALOS,
    EXACTLY_ONCE,
    RunningCollector,
    committing,
    withhold,
)

ABORTABLE = kafka_error(KafkaError._MSG_TIMED_OUT, abort=True)
DEAD = kafka_error(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True)


def recovering(wait: str, **settings: object) -> RunningCollector:
    """A thread whose transaction has failed, and whose recovery waits for an answer: of the abort, of the new producer,
    or of the group."""
    r = committing("send_offsets", **settings)
    producer = r.world.producer
    producer.fail("send_offsets", ABORTABLE if wait == "abort" else DEAD)
    producer.withheld = {"abort"}
    r.world.moods.unready = wait == "producer"
    r.world.member.holds = wait == "group"
    r.until(lambda: r.loop._recoveries.under_way)
    r.step(2)
    assert r.loop._recoveries.under_way
    return r


def answer(r: RunningCollector) -> None:
    r.world.producer.withheld.clear()
    r.world.moods.unready = r.world.member.holds = False
    r.world.member.answer()


WAITS = pytest.mark.parametrize("wait", ["abort", "producer", "group"])


@WAITS
def test_records_are_fetched_and_processed_and_nothing_is_sent(wait: str) -> None:
    r = recovering(wait)
    tries = len(r.tries)
    r.feed("b", "c", steps=4)
    r.feed("x", partition=1, steps=4)
    assert sorted(r.world.user_code.seen) == ["a", "b", "c", "x"]
    assert len(r.tries) == tries
    answer(r)
    r.until_committed(3, 1)
    assert r.world.user_code.seen.count("a") == 1
    assert r.world.written() == [("k", 1), ("k", 3)]
    assert r.tasks.roll_backs.count == 0


@WAITS
def test_the_group_is_answered_after_a_quarter_of_max_poll_interval_ms(wait: str) -> None:
    r = recovering(wait, max_poll_interval_ms=8_000)
    joins, began_ms = len(r.world.member.joins), r.world.clock.monotonic_ms()
    r.hear(JoinNeeded("a test"))
    r.until(lambda: len(r.world.member.joins) > joins, ms=50)
    assert r.world.clock.monotonic_ms() - began_ms <= 2_500


@pytest.mark.parametrize("wait", ["abort", "producer"])
def test_new_tasks_come_meanwhile(wait: str) -> None:
    r = recovering(wait)
    r.assign(0, 1, 2, steps=5)
    put(r.world, 2, "z")
    r.step(5)
    assert "z" in r.world.user_code.seen
    answer(r)
    r.until_committed(1)
    r.until(lambda: r.offset(2) == 1)


@WAITS
def test_who_loses_the_membership_meanwhile_drops_both_intervals_and_goes_on_with_the_next_generation(
    wait: str,
) -> None:
    r = recovering(wait)
    r.feed("b", steps=3)
    r.world.member.metadata_error = StaleGenerationError("a test")
    r.hear(Lost("session timeout"), steps=2)
    assert r.tasks.owned == frozenset()
    r.world.member.metadata_error = None
    answer(r)
    r.rebalance(0, 1, steps=10)
    r.until_committed(2)
    assert r.sent() == [("k", 1), ("k", 2)]


def pass_one_flush(r: RunningCollector) -> None:
    """Kafka answers the flush that waits; the next one waits again."""
    producer, flush = r.world.producer, r.world.producer.flush

    def and_withhold(timeout_ms: int) -> None:
        flush(timeout_ms)
        withhold(r, "flush")

    producer.flush = and_withhold  # type: ignore[method-assign]
    producer.withheld.clear()
    r.until(r.world.written, ms=0)
    producer.flush = flush  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("guarantee", "flushes", "counts"), [(EXACTLY_ONCE, 1, [2]), (ALOS, 1, [2]), (ALOS, 2, [1, 3])]
)
def test_a_lost_member_drops_both_intervals_and_its_tasks_begin_at_the_last_commit(
    guarantee: str, flushes: int, counts: list[int]
) -> None:
    """At least once what a changelog has of the first one, by the second flush, stays: it is restored, and counted
    again."""
    r = committing("flush", processing_guarantee=guarantee)
    if flushes == 2:
        pass_one_flush(r)
    r.feed("b", steps=3)
    r.world.member.metadata_error = StaleGenerationError("a test")
    r.hear(Lost("session timeout"), steps=3)
    assert (r.tasks.owned, r.offset(), r.commits.under_way) == (frozenset(), None, False)
    r.world.member.metadata_error = None
    r.world.producer.withheld.clear()
    r.rebalance(0, 1, steps=10)
    r.until_committed(2)
    assert r.world.written() == [("k", count) for count in counts]
    assert r.world.user_code.seen == ["a", "b", "a", "b"]


def test_a_recovery_that_finds_the_member_gone_gives_the_tasks_up() -> None:
    r = recovering("group")
    rejoins = len(r.world.member.rejoins)
    r.world.member.answer_error = StaleGenerationError("a test")
    r.world.member.answer(StaleGenerationError("a test"))
    r.until(lambda: len(r.world.member.rejoins) > rejoins)
    assert r.tasks.owned == frozenset()
    assert r.offset() is None
    assert not r.loop._register.retained


def test_the_last_commit_of_a_task_that_leaves_waits_for_the_recovery() -> None:
    r = recovering("producer")
    r.feed("b", steps=3)
    r.generation += 1
    r.hear(Assigned(r.generation, "member", assignment(r.world, 1)), steps=5)
    assert A in r.tasks.owned
    answer(r)
    r.until(lambda: A not in r.tasks.owned)
    assert (r.offset(), r.world.user_code.seen) == (2, ["a", "b"])
