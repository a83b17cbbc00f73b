"""A transaction that fails while the member holds is sent again: the same outputs, offsets, metadata and numbers, and
no record is processed again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError

from milestones.common.task.metadata import OffsetMetadata
from milestones.common.topology.handlers import Action
from tests.milestones.fakes import CHANGELOG, FENCED, IN, A, B, kafka_error
from tests.milestones.m5_committed_collector.collecting import (
    LETTER,
    RunningCollector,
    answer,
    committing,
    feed_keys,
    saying,
    withhold,
)

ABORTABLE = kafka_error(KafkaError._MSG_TIMED_OUT, abort=True)
DEAD = kafka_error(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True)
ERRORS = pytest.mark.parametrize("error", [ABORTABLE, FENCED, DEAD], ids=["abortable", "fenced", "dead"])
CALLS = pytest.mark.parametrize("call", ["send_offsets", "commit"])


def failing(call: str, error: Exception) -> RunningCollector:
    """The commit of two records fails of this; a third one is processed before."""
    r = committing(call, "a", "b")
    r.feed("c", steps=3)
    r.world.producer.fail(call, error)
    return r


@ERRORS
@CALLS
def test_what_failed_is_sent_again_as_it_was_and_nothing_is_processed_again(call: str, error: Exception) -> None:
    r = failing(call, error)
    withheld = r.world.producer
    withheld.withheld.clear()
    r.until(lambda: r.offset() is not None)
    first, again = r.tries[-2:]
    assert (again.outputs, again.offsets) == (first.outputs, first.offsets)
    r.until_committed(3)
    assert r.sent() == [("k", 1), ("k", 2), ("k", 3)]
    assert r.world.written() == [("k", 2), ("k", 3)]
    assert r.world.user_code.seen == ["a", "b", "c"]
    assert (r.tasks.roll_backs.count, r.tasks.created) == (0, 2)


def test_the_metadata_and_the_commit_number_are_the_same_however_often_it_is_sent() -> None:
    r = committing("commit")
    r.world.moods.failing_ends = 3
    answer(r)
    r.until_committed(1)
    said = [one.offsets[IN] for one in r.tries if IN in one.offsets]
    assert len(said) >= 4
    assert set(said) == {said[0]}
    assert OffsetMetadata.decode(said[0].metadata).commit == 1


@pytest.mark.parametrize("fate", ["made", "not made"])
def test_an_end_without_an_answer_is_sent_again_only_if_it_was_not_made(fate: str) -> None:
    r = committing("commit")
    r.feed("b", steps=3)
    if fate == "made":
        r.world.moods.made_unanswered = True
    else:
        r.world.producer.fail("commit", FENCED)
    answer(r)
    r.until_committed(2)
    assert r.sent() == [("k", 1), ("k", 2)]
    assert r.world.written() == [("k", 1), ("k", 2)]
    assert r.world.user_code.seen == ["a", "b"]
    assert r.collector.sent_again == (0 if fate == "made" else 1)


def test_a_producer_that_is_lost_before_the_cut_costs_no_call_of_user_code() -> None:
    r = RunningCollector(commit_interval_ms=1_000)
    r.run(0, 1)
    r.feed("a", "b", steps=5)
    assert r.tries[-1].outputs, "sinks flow before the cut"
    r.world.producer.fail("poll", FENCED)
    r.feed("c", steps=5)
    r.until_committed(3)
    assert r.sent() == [("k", 1), ("k", 2), ("k", 3)]
    assert r.world.user_code.seen == ["a", "b", "c"]
    assert r.world.clients.renewed == 1


def test_both_tasks_of_the_transaction_are_sent_again_and_those_that_had_nothing_are_not_in_it() -> None:
    r = committing("commit")
    r.feed("x", partition=1, steps=3)
    r.world.producer.fail("commit", FENCED)
    r.world.producer.withheld.clear()
    r.until(lambda: r.offset() is not None)
    assert [output.partition for output in r.tries[-1].to(CHANGELOG)] == [0]
    assert r.offset(1) is None
    r.until_committed(1, 1)


def test_dead_letters_are_sent_again_with_their_interval_and_once_in_all() -> None:
    r = RunningCollector(production_exception_handler=saying(Action.CONTINUE, LETTER))
    r.world.moods.too_large = {b"big"}
    r.run(0)
    withhold(r, "commit")
    feed_keys(r, 0, "big", "k")
    r.until(lambda: r.commits.under_way)
    r.step(3)
    r.world.producer.fail("commit", FENCED)
    r.world.producer.withheld.clear()
    r.until_committed(2)
    assert r.tries[-2].to("letters") == [LETTER], "it was in the transaction that failed"
    assert r.sent("letters") == [("k", 7)]
    assert r.sent() == [("k", 1)]
    assert r.collector.dropped == {A: 1}


def test_at_the_end_of_the_client_what_failed_is_committed_before_what_others_have_put_out_since() -> None:
    """Else it would be in the transaction of the former interval, without the offsets of its task."""
    r = committing("send_offsets")
    r.world.producer.fail("send_offsets", DEAD)
    r.world.moods.unready = True
    r.world.producer.withheld.clear()
    r.until(lambda: r.loop._recoveries.under_way)
    r.feed("x", partition=1, steps=3)
    r.world.producer.withheld.clear()
    with r.turn():
        r.loop.shut_down(leave_group=True)
    for one in r.tries:
        parts = {at.partition for at in one.offsets}
        assert {output.partition for output in one.to(CHANGELOG)} <= parts
        assert len(one.to("out")) == len(parts), "each task has put out one record"
    assert (r.offset(0), r.offset(1)) == (1, 1)


def suspected(r: RunningCollector, undelivered: set[bytes]) -> Callable[[], None]:
    """Outputs for these keys aren't delivered, until what is returned is called."""
    send_offsets = type(r.world.producer).send_offsets

    def fail(producer: object, *arguments: object) -> None:
        send_offsets(producer, *arguments)  # type: ignore[arg-type]
        if any(output.key in undelivered for output in producer._open if output.topic == "out"):  # type: ignore[attr-defined]
            raise kafka_error(KafkaError._TIMED_OUT, abort=True)

    new_producer = r.world.new_producer

    def producer() -> object:
        made = new_producer()
        made.send_offsets = fail.__get__(made)  # type: ignore[method-assign]
        return made

    r.world.new_producer = producer  # type: ignore[method-assign,assignment]
    r.world.producer.send_offsets = fail.__get__(r.world.producer)  # type: ignore[method-assign]
    return undelivered.clear


def test_outputs_that_are_not_delivered_hold_up_their_own_task_only_also_while_nothing_new_comes() -> None:
    r = RunningCollector()
    deliver = suspected(r, {b"k1"})
    r.run(0, 1)
    feed_keys(r, 0, "k0")
    feed_keys(r, 1, "k1")
    r.step(100, ms=20)
    assert (r.offset(0), r.offset(1)) == (1, None)
    deliver()
    r.step(100, ms=20)
    assert (r.offset(0), r.offset(1)) == (1, 1)
    assert len(r.world.user_code.seen) == 2


def test_dead_letters_go_with_the_offsets_of_their_task_also_while_tasks_are_committed_one_by_one() -> None:
    r = RunningCollector(production_exception_handler=saying(Action.CONTINUE, LETTER))
    r.world.moods.too_large = {b"big"}
    deliver = suspected(r, {b"k1"})
    r.run(0, 1)
    feed_keys(r, 0, "k0")
    feed_keys(r, 1, "big", "k1")
    r.step(100, ms=20)
    assert (r.offset(0), r.offset(1)) == (1, None)
    assert r.sent("letters") == []
    deliver()
    r.step(100, ms=20)
    assert (r.offset(0), r.offset(1)) == (1, 2)
    assert r.sent("letters") == [("k", 7)]


def test_what_is_kept_of_a_task_that_left_is_sent_no_more() -> None:
    r = RunningCollector(commit_interval_ms=5_000)
    r.run(0, 1)
    r.feed("x", partition=1, steps=3)
    r.assign(0, steps=10)
    assert r.offset(1) == 1
    r.world.producer.fail("poll", FENCED)
    r.feed("a", steps=5)
    r.loop._last_commit.commit()
    assert all(output.partition == 0 for output in r.tries[-1].to(CHANGELOG))
    assert B not in r.collector._intervals
