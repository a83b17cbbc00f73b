"""What the handler of a refused record says counts for that record: others are sent again, and none is processed again.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from milestones.common.errors import UnsentError
from milestones.common.kafka.membership import Lost
from milestones.common.topology.handlers import Action
from tests.milestones.fakes import A, B, kafka_error
from tests.milestones.m5_committed_collector import collecting
from tests.milestones.m5_committed_collector.collecting import (
    ALOS,
    EXACTLY_ONCE,
    LETTER,
    RunningCollector,
    feed_keys,
    saying,
)

DEAD = kafka_error(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True)
GUARANTEES = pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, ALOS])
BY = pytest.mark.parametrize("by", ["refused", "too_large"])
MAY_BE_TAKEN = KafkaError(KafkaError.INVALID_RECORD, "made by a test", False, True)


def refusing(handler: object, by: str = "refused", **settings: object) -> RunningCollector:
    """Two tasks; Kafka (`refused`), or the client (`too_large`), doesn't take the middle one of three records of the
    first."""
    r = RunningCollector(production_exception_handler=handler, **settings)
    getattr(r.world.moods, by).add(b"bad")
    r.run(0, 1)
    feed_keys(r, 0, "good", "bad", "good")
    feed_keys(r, 1, "other")
    return r


@BY
@GUARANTEES
def test_with_continue_it_is_left_out_and_its_letter_takes_its_place(guarantee: str, by: str) -> None:
    r = refusing(saying(Action.CONTINUE, LETTER), by, processing_guarantee=guarantee)
    r.until_committed(3, 1)
    assert [count for key, count in r.sent() if key == "good"][-2:] == [1, 2]
    assert all(key != "bad" for key, _ in r.sent())
    assert set(r.sent("letters")) == {("k", 7)}
    if guarantee == EXACTLY_ONCE:
        assert len(r.sent("letters")) == 1
        assert sorted(r.sent()) == [("good", 1), ("good", 2), ("other", 1)]
    assert r.collector.dropped == {A: 1}
    assert len(r.world.user_code.seen) == 4
    assert r.tasks.roll_backs.count == 0


@pytest.mark.parametrize("action", [Action.CONTINUE, Action.FAIL])
def test_where_kafka_does_not_name_the_record_its_handler_is_asked_about_no_other(action: Action) -> None:
    asked: list[object] = []

    def handler(context: object, error: object) -> object:
        asked.append(context)
        return saying(action)(context, error)

    r = RunningCollector(production_exception_handler=handler)
    r.world.moods.refused, r.world.moods.unnamed = {b"bad"}, True
    r.run(0, 1)
    feed_keys(r, 0, "good", "bad", "good")
    feed_keys(r, 1, "other")
    r.until(lambda: r.offset(1) == 1)
    r.until(lambda: r.offset(0) == (3 if action is Action.CONTINUE else None))
    assert [context.output.key for context in asked] == [b"bad"]
    assert r.world.clients.renewed == 3, "one with small batches, one that sends their outputs alone, an ordinary one"


def test_a_letter_is_there_once_however_often_its_transaction_fails_again() -> None:
    r = refusing(saying(Action.CONTINUE, LETTER))
    r.until(lambda: r.collector.dropped[A])
    for call in ("flush", "send_offsets", "commit"):
        r.world.producer.fail(call, DEAD)
        r.step(3, ms=20)
    r.until_committed(3, 1)
    assert r.sent("letters") == [("k", 7)]
    assert r.collector.dropped == {A: 1}
    assert len(r.world.user_code.seen) == 4


def test_the_handler_is_asked_once_about_an_output_that_it_has_given_up() -> None:
    asked: list[object] = []

    def handler(context: object, error: object) -> object:
        asked.append(context)
        return saying(Action.CONTINUE)(context, error)

    r = refusing(handler)
    r.until_committed(3, 1)
    r.world.producer.fail("poll", DEAD)
    feed_keys(r, 0, "good")
    r.until_committed(4, 1)
    assert len(asked) == 1


def test_of_two_equal_outputs_that_are_refused_both_are_left_out() -> None:
    r = RunningCollector(production_exception_handler=saying(Action.CONTINUE, LETTER))
    r.world.moods.refused.add(b"bad")
    r.run(0, 1)
    feed_keys(r, 0, "bad", "bad", "good")
    r.until_committed(3)
    assert r.sent() == [("good", 1)]
    assert r.sent("letters") == [("k", 7), ("k", 7)]


@GUARANTEES
@pytest.mark.parametrize("by", ["refused", "too_large"])
def test_with_fail_its_task_alone_ends_at_its_last_commit(guarantee: str, by: str) -> None:
    r = refusing(saying(Action.FAIL), by, processing_guarantee=guarantee)
    r.until(lambda: r.places.get(A) == "ended")
    r.until(lambda: r.offset(1) == 1)
    assert r.offset(0) is None
    assert "Kafka refused a record for out" in r.tasks.ended[A]
    assert r.places[B] == "processing"
    assert r.rolled_back()[B] == 0
    feed_keys(r, 1, "other")
    r.until(lambda: r.offset(1) == 2)
    assert {count for key, count in r.sent() if key == "other"} == {1, 2}


@GUARANTEES
def test_a_handler_that_raises_ends_the_task_that_it_was_asked_about(guarantee: str) -> None:
    def broken(*_: object) -> object:
        raise RuntimeError("no")

    r = refusing(broken, processing_guarantee=guarantee)
    r.until(lambda: r.places.get(A) == "ended")
    r.until(lambda: r.offset(1) == 1)
    assert (r.offset(0), r.rolled_back()[B]) == (None, 0)


@GUARANTEES
def test_a_handler_that_is_silent_ends_its_task_after_a_quarter_of_max_poll_interval_ms(guarantee: str) -> None:
    r = refusing(saying(Action.CONTINUE), processing_guarantee=guarantee, max_poll_interval_ms=8_000)
    r.world.handlers.held = True
    r.step(30, ms=10)
    feed_keys(r, 1, "other")
    r.step(5)
    assert len(r.world.user_code.seen) == 5, "the others go on meanwhile"
    r.until(lambda: r.places.get(A) == "ended", ms=100)
    r.until(lambda: r.offset(1) == 2)
    assert "hasn't answered" in r.tasks.ended[A]


def test_with_retry_it_is_sent_again_until_kafka_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "INVALID", MAY_BE_TAKEN)
    r = refusing(saying(Action.RETRY))
    r.step(50, ms=20)
    assert (r.offset(0), r.tasks.ended) == (None, {})
    r.world.moods.refused.clear()
    r.until_committed(3, 1)
    assert sorted(r.sent()) == [("bad", 1), ("good", 1), ("good", 2), ("other", 1)]
    assert len(r.world.user_code.seen) == 4


@GUARANTEES
def test_a_refused_record_after_an_outage_in_which_nothing_was_committed_ends_no_thread(guarantee: str) -> None:
    r = RunningCollector(
        processing_guarantee=guarantee, task_timeout_ms=2_000, production_exception_handler=saying(Action.CONTINUE)
    )
    r.world.moods.refused = {b"bad"}
    r.run(0, 1)
    r.loop._recoveries.recover(UnsentError("a leader is away", [A]), r.world.clock.monotonic_ms())
    r.step(5)
    r.world.clock.advance(3_000)
    feed_keys(r, 0, "good", "bad")
    r.until_committed(2)
    assert r.collector.dropped == {A: 1}


@GUARANTEES
def test_with_retry_the_other_tasks_are_committed_meanwhile_and_kafka_is_asked_ever_more_rarely(
    guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "INVALID", MAY_BE_TAKEN)
    r = refusing(saying(Action.RETRY), processing_guarantee=guarantee)
    for number in range(2, 7):
        feed_keys(r, 1, "other")
        r.until(lambda: r.offset(1) == number, steps=500)  # noqa: B023
    asked, began_ms = r.collector.sent_again, r.world.clock.monotonic_ms()
    r.step(500, ms=20)
    seconds = (r.world.clock.monotonic_ms() - began_ms) / 1000
    assert r.offset(0) is None
    assert 0 < r.world.clients.renewed < 2 * seconds + 20
    assert r.collector.sent_again > asked
    r.world.moods.refused.clear()
    r.until_committed(3, 6)
    assert r.tasks.roll_backs.count == 0


@GUARANTEES
def test_retry_is_bounded_by_task_timeout_ms(guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "INVALID", MAY_BE_TAKEN)
    r = refusing(saying(Action.RETRY), processing_guarantee=guarantee, task_timeout_ms=2_000)
    began_ms = r.world.clock.monotonic_ms()
    r.until(lambda: r.places.get(A) == "ended", steps=1_000)
    assert 1_500 <= r.world.clock.monotonic_ms() - began_ms <= 6_000
    r.until(lambda: r.offset(1) == 1)


def test_two_tasks_with_refused_records_are_both_found_and_only_they_end() -> None:
    r = RunningCollector()
    r.world.moods.refused = {b"bad", b"worse"}
    r.run(0, 1, 2)
    for partition, key in enumerate(["bad", "worse", "good"]):
        feed_keys(r, partition, key)
    r.until(lambda: len(r.tasks.ended) == 2 and r.offset(2) == 1)
    assert (r.offset(0), r.offset(1)) == (None, None)
    assert len(r.world.user_code.seen) == 3


def test_what_a_handler_has_left_out_is_forgotten_with_a_membership_that_is_lost() -> None:
    """No transaction of the next generation is made again for it."""
    r = RunningCollector(production_exception_handler=saying(Action.CONTINUE, LETTER))
    r.world.moods.refused, r.world.handlers.held = {b"bad", b"worse"}, True
    r.run(0, 1)
    feed_keys(r, 0, "bad")
    feed_keys(r, 1, "worse")
    r.until(lambda: len(r.world.handlers.waiting) == 2)
    r.world.handlers.waiting.pop(0).run()
    r.until(lambda: len(r.world.producer.undecided) == 1)
    r.world.moods.refused.clear()
    r.hear(Lost("session timeout"), steps=5)
    r.world.handlers.release()
    tries = len(r.tries)
    r.rebalance(0, 1, steps=10)
    r.until_committed(1, 1)
    assert [bool(one.offsets) for one in r.tries[tries:]] == [True] * (len(r.tries) - tries)
    assert r.sent("letters") == []


def test_the_next_interval_of_a_guilty_task_is_void() -> None:
    r = refusing(saying(Action.FAIL))
    r.until(lambda: r.loop._recoveries.under_way or r.loop._register.retained or r.tasks.ended)
    feed_keys(r, 0, "good", "good")
    r.until(lambda: r.places.get(A) == "ended")
    r.step(20, ms=50)
    assert all(key != "good" for key, _ in r.sent())
    assert r.world.state.content(A) == {}
    assert not r.loop._register.retained
