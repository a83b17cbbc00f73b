"""A task that is given away, and all tasks at the end of the client, rest before their last cut: no record is done that
isn't committed, and the next owner does none again."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from milestones.common.kafka.membership import Assigned, CommitRetriableError, JoinNeeded
from milestones.common.topology.handlers import Action
from milestones.stream_thread.commits.group_answers import STALLED_MS
from milestones.stream_thread.commits.transaction_register import ENDS
from tests.milestones.fakes import A, B, assignment, kafka_error, put
from tests.milestones.m5_committed_collector.collecting import (
    ALOS,
    EXACTLY_ONCE,
    LETTER,
    RunningCollector,
    answer,
    committing,
    feed_keys,
    saying,
    withhold,
)

DEAD = kafka_error(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True)
GUARANTEES = pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, ALOS])
CALLS = pytest.mark.parametrize("call", ["flush", "send_offsets", "commit"])


def give_away(r: RunningCollector, *left: int) -> None:
    """The group gives away all tasks but these."""
    r.generation += 1
    r.hear(Assigned(r.generation, "member", assignment(r.world, *left)))


@CALLS
def test_a_task_that_leaves_begins_no_record_any_more_and_the_others_go_on(call: str) -> None:
    r = committing(call)
    give_away(r, 1)
    r.step(2)
    seen = list(r.world.user_code.seen)
    r.feed("late", steps=5)
    r.feed("x", partition=1, steps=5)
    assert r.world.user_code.seen == [*seen, "x"]
    answer(r)
    r.until(lambda: r.tasks.owned == {B})
    assert (r.offset(), r.world.user_code.seen.count("late")) == (1, 0)


@CALLS
def test_what_it_has_done_beside_a_commit_is_committed_before_it_leaves(call: str) -> None:
    r = committing(call)
    r.feed("b", "c", steps=3)
    give_away(r, 1)
    answer(r)
    r.until(lambda: r.tasks.owned == {B})
    assert (r.offset(), r.world.written()) == (3, [("k", 1), ("k", 3)])


@GUARANTEES
def test_a_task_that_comes_back_goes_on_where_it_was_and_no_record_is_done_twice(guarantee: str) -> None:
    r = RunningCollector(processing_guarantee=guarantee)
    r.run(0, 1)
    for turn in range(5):
        r.feed("v", "v", "v", steps=1)
        r.assign(*([1] if turn % 2 == 0 else [0, 1]), steps=6, ms=5)
    r.rebalance(0, 1, steps=10, ms=20)
    r.until_committed(15)
    assert len(r.world.user_code.done) == 15


@pytest.mark.parametrize("call", ["poll", "send_offsets", "commit"])
def test_what_fails_at_its_last_cut_is_sent_again_before_it_leaves(call: str) -> None:
    """Also when all of that takes one turn."""
    r = RunningCollector(commit_interval_ms=5_000)
    r.run(0, 1)
    r.feed("a", "b", steps=3)
    r.world.workers.stuck = True
    r.feed("c")
    r.world.workers.stuck = False
    r.world.workers.step()
    r.world.producer.fail(call, DEAD)
    give_away(r, 1)
    r.until(lambda: r.tasks.owned == {B})
    assert (r.offset(), r.world.user_code.done) == (3, ["a", "b", "c"])
    assert r.sent() == [("k", 1), ("k", 2), ("k", 3)]


def test_a_task_leaves_once_it_is_known_which_record_of_another_one_is_refused() -> None:
    r = RunningCollector(processing_guarantee=ALOS, commit_interval_ms=5_000)
    r.run(0, 1)
    r.feed("a", "b", steps=3)
    r.world.moods.refused = {b"bad"}
    r.world.workers.stuck = True
    put(r.world, 1, "x", key="bad")
    r.feed("c")
    r.world.workers.stuck = False
    r.world.workers.step()
    give_away(r, 1)
    r.until(lambda: A not in r.tasks.owned)
    assert r.offset() == 3


def test_it_rests_until_it_is_given_away_also_while_another_answer_comes_first() -> None:
    r = committing("flush")
    r.world.member.events.append(JoinNeeded("a test"))
    give_away(r, 1)
    answer(r)
    r.until(lambda: r.tasks.owned == {B})
    assert r.offset() == 1


@GUARANTEES
def test_at_the_end_of_the_client_no_record_is_done_after_the_last_cut(guarantee: str) -> None:
    r = RunningCollector(processing_guarantee=guarantee, commit_interval_ms=5_000)
    r.run(0, 1)
    clock: Any = r.world.clock
    sleep, returned = clock.sleep_ms, r.world.producer.returned

    def meanwhile() -> None:
        """Threads work, and records come, while the polling thread waits."""
        r.world.workers.step()

    def slowly(wait_ms: int) -> bool:
        meanwhile()
        return returned(wait_ms)

    clock.sleep_ms = lambda ms: (sleep(ms), meanwhile())
    r.world.producer.returned = slowly  # type: ignore[method-assign]
    r.feed(*"abc", steps=3)
    r.world.workers.stuck = True
    r.feed(*"de")
    r.world.workers.stuck = False
    with r.turn():
        r.loop.shut_down(leave_group=True)
    assert len(r.world.user_code.done) == r.offset()
    assert A not in r.tasks.owned


@pytest.mark.parametrize("call", ["poll", "flush", "send_offsets", "commit"])
def test_a_last_commit_that_fails_is_sent_again_before_the_client_ends(call: str) -> None:
    r = RunningCollector(commit_interval_ms=5_000)
    r.run(0, 1)
    r.feed(*"abc", steps=3)
    r.world.producer.fail(call, DEAD)
    with r.turn():
        r.loop.shut_down(leave_group=True)
    assert (r.offset(), r.sent()) == (3, [("k", 1), ("k", 2), ("k", 3)])


def test_a_client_that_ends_waits_for_a_group_that_answers_no_commit_as_long_as_for_one_request() -> None:
    r = RunningCollector(
        processing_guarantee=ALOS, commit_interval_ms=100, request_timeout_ms=5_000, close_timeout_ms=25_000
    )
    r.run(0, 1)
    member: Any = r.world.member
    asked: list[int] = []

    def begin_commit(_: Any, timeout_ms: int) -> None:
        asked.append(r.world.clock.monotonic_ms() + 2 * timeout_ms)

    def commit_returned(wait_ms: int) -> bool:
        r.world.clock.advance(wait_ms)
        if r.world.clock.monotonic_ms() >= asked[-1]:
            raise CommitRetriableError("no answer in time")
        return False

    member.begin_commit, member.commit_returned = begin_commit, commit_returned
    r.feed(*"abc")
    r.until(lambda: asked, ms=100)
    began_ms = r.world.clock.monotonic_ms()
    with r.turn():
        r.loop.shut_down(leave_group=True)
    assert len(asked) == 1
    assert r.world.clock.monotonic_ms() - began_ms < 25_000
    assert r.tasks.owned == set()


def test_a_last_commit_of_which_a_record_is_refused_is_made_without_it_as_the_handler_says() -> None:
    r = RunningCollector(
        commit_interval_ms=5_000, production_exception_handler=saying(Action.CONTINUE, LETTER),
    )  # fmt: skip
    r.world.moods.refused = {b"bad"}
    r.run(0, 1)
    feed_keys(r, 0, "k", "bad", "k")
    r.step(3)
    with r.turn():
        r.loop.shut_down(leave_group=True)
    assert (r.offset(), r.sent(), r.sent("letters")) == (3, [("k", 1), ("k", 2)], [("k", 7)])


def test_at_the_end_of_the_client_what_was_done_beside_a_commit_that_failed_is_committed_too() -> None:
    """Once the engines have what that commit has confirmed."""
    r = committing("send_offsets")
    r.feed("b", "c", steps=3)
    r.world.producer.fail("send_offsets", DEAD)
    r.world.moods.unready = True
    r.world.producer.withheld.clear()
    r.until(lambda: r.loop._recoveries.under_way)
    clock: Any = r.world.clock
    sleep = clock.sleep_ms
    clock.sleep_ms = lambda ms: (sleep(ms), r.world.workers.step())
    r.world.producer.withheld.clear()
    with r.turn():
        r.loop.shut_down(leave_group=True)
    assert (r.offset(), r.world.user_code.seen) == (3, ["a", "b", "c"])


@GUARANTEES
def test_a_kafka_that_takes_nothing_keeps_the_group_waiting_once_for_the_join_and_the_hand_over(guarantee: str) -> None:
    r = RunningCollector(processing_guarantee=guarantee, task_timeout_ms=300_000)
    r.run(0, 1)
    r.world.moods.full = True
    r.feed("a", steps=10)
    began_ms, joins = r.world.clock.monotonic_ms(), len(r.world.member.joins)
    r.hear(JoinNeeded("a test"))
    r.until(lambda: len(r.world.member.joins) > joins, steps=2 * STALLED_MS // 100, ms=100)
    give_away(r, 1)
    r.until(lambda: r.tasks.owned == {B}, steps=STALLED_MS // 100, ms=100)
    assert r.world.clock.monotonic_ms() - began_ms < 2 * STALLED_MS


def test_what_the_client_still_has_of_tasks_that_leave_is_thrown_away_and_not_waited_for() -> None:
    r = RunningCollector(processing_guarantee=ALOS)
    r.run(0, 1)
    old = r.world.producer
    old.unacknowledged, old.withheld = 3, {"flush"}
    r.loop._answering.part()
    assert r.world.clients.renewed == 1
    assert "flush" not in old.calls


def test_the_producer_stays_when_kafka_has_taken_all_of_the_tasks_that_leave() -> None:
    r = RunningCollector(processing_guarantee=ALOS)
    r.run(0, 1)
    assert r.world.producer.unacknowledged == 0
    r.loop._answering.part()
    assert r.world.clients.renewed == 0


def cut_beside_a_call(call: str, **settings: Any) -> RunningCollector:
    """The last commit of the first task waits for the answer to this call; a record of the task took too long for
    it, and ends now."""
    r = RunningCollector(commit_interval_ms=5_000, **settings)
    r.run(0, 1)
    r.feed("a", steps=3)

    def cut(record: Any) -> None:
        if record.value == "slow":
            r.world.user_code.at = lambda _: None
            withhold(r, call)
            r.world.clock.advance(5_000)
            give_away(r, 1)
            r.until(lambda: r.loop._register.step in ENDS)

    r.world.user_code.at = cut
    r.feed("slow", steps=6)
    assert r.world.user_code.done == ["a", "slow"]
    return r


def test_a_record_that_ends_after_the_last_cut_isnt_sent_behind_what_the_next_owner_writes() -> None:
    r = cut_beside_a_call("OffsetCommit", processing_guarantee=ALOS)
    answer(r)
    r.until(lambda: r.tasks.owned == {B})
    assert (r.offset(), r.sent()) == (1, [("k", 1)])


@pytest.mark.parametrize(("guarantee", "call"), [(ALOS, "OffsetCommit"), (EXACTLY_ONCE, "commit")])
def test_a_task_that_stays_after_all_has_such_a_record_sent_and_committed(guarantee: str, call: str) -> None:
    r = cut_beside_a_call(call, processing_guarantee=guarantee)
    give_away(r, 0, 1)
    answer(r)
    r.step(5, ms=100)
    r.feed("next", steps=5)
    r.until(lambda: r.offset() == 3, ms=500)
    assert (r.tasks.owned, r.sent()) == ({A, B}, [("k", 1), ("k", 2), ("k", 3)])


def test_nor_is_it_committed_without_its_offset_when_the_producer_dies_meanwhile() -> None:
    r = cut_beside_a_call("commit")
    restore = r.loop._restoration.run_once

    def die(now_ms: int) -> bool:
        r.loop._restoration.run_once = restore  # type: ignore[method-assign]
        raise DEAD

    r.loop._restoration.run_once = die  # type: ignore[method-assign]
    r.world.moods.unready = True
    r.step()
    r.world.producer.withheld.clear()
    r.until(lambda: r.loop._recoveries.under_way and not r.commits.under_way, ms=0)
    r.step(3)
    r.world.producer.withheld.clear()
    r.until(lambda: r.tasks.owned == {B})
    r.feed("x", partition=1, steps=20, ms=500)
    assert (r.offset(), r.offset(1), r.sent()) == (1, 1, [("k", 1), ("k", 1)])


def test_a_task_in_quarantine_leaves_with_all_that_it_has_done_also_while_the_commit_before_is_written() -> None:
    r = committing("commit")
    r.world.user_code.refused = {"bad"}
    r.feed("b", "bad", steps=3)
    r.world.workers.stuck = True
    answer(r)
    give_away(r, 1)
    r.step()
    r.world.workers.stuck = False
    r.until(lambda: r.tasks.owned == {B})
    assert (r.offset(), r.world.user_code.done.count("b")) == (2, 1)
