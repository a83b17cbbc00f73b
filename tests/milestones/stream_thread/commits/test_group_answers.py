"""The commits that an answer to the group waits for, and for how long."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from milestones.common.errors import TaskCorruptedError
from milestones.common.kafka.membership import Assigned, JoinNeeded
from milestones.parts.transaction import CommitStage
from tests.milestones.fakes import assignment, kafka_error
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing
from tests.milestones.stream_thread.commits.test_beside_a_commit import answer, committed

MOST_POLL_MS = 8_000
QUARTER_MS, STEP_MS = MOST_POLL_MS // 4, 50


def busy(**settings: object) -> RunningProcessing:
    """A thread with two tasks, of which one has something to commit, though it isn't time for that."""
    defaults = {"commit_interval_ms": 60_000, "transaction_timeout_ms": 600_000, "max_poll_interval_ms": MOST_POLL_MS}
    r = RunningProcessing(ProcessingWorld(**{**defaults, **settings}))
    r.run(0, 1)
    r.feed("a", steps=10, ms=5)
    return r


def joined_after_ms(r: RunningProcessing) -> int:
    began_ms, joins = r.world.clock.monotonic_ms(), len(r.world.member.joins)
    r.hear(JoinNeeded("a test"))
    while len(r.world.member.joins) == joins:
        r.step(ms=STEP_MS)
        assert r.world.clock.monotonic_ms() - began_ms < MOST_POLL_MS, "the group isn't answered"
    return r.world.clock.monotonic_ms() - began_ms


def test_a_thread_commits_before_it_joins() -> None:
    r = busy()
    assert joined_after_ms(r) <= 2 * STEP_MS
    assert committed(r) == 1


def test_the_group_is_answered_without_another_try_after_a_commit_that_fails_before_its_cut() -> None:
    """Its tasks are rolled back: there is nothing left to commit."""
    r = busy()

    def fail() -> None:
        raise TaskCorruptedError("a test", r.tasks.owned)

    answering: Any = r.loop._answering
    answering._collect = fail
    with r.turn():
        assert answering.may_join(r.world.clock.monotonic_ms())
    assert r.tasks.roll_backs.count == 1
    assert committed(r) is None


@pytest.mark.parametrize("call", ["flush", "send_offsets"])
def test_the_group_waits_for_a_commit_without_an_answer_at_most_half_of_the_poll_interval(call: str) -> None:
    r = busy(request_timeout_ms=60_000)
    r.world.producer.withheld, r.world.producer.clock = {call}, r.world.clock
    r.world.producer.answers_ms = r.world.clock.monotonic_ms() + 2 * QUARTER_MS - 500
    assert joined_after_ms(r) <= 2 * QUARTER_MS


def test_outputs_that_kafka_does_not_take_keep_the_group_waiting_for_a_quarter_of_the_poll_interval() -> None:
    r = busy()
    r.world.producer.withheld = {"flush"}
    assert QUARTER_MS <= joined_after_ms(r) <= QUARTER_MS + 4 * STEP_MS
    r.world.producer.withheld.clear()
    r.assign(0, 1, steps=20, ms=STEP_MS)
    r.loop._last_commit.commit()
    assert committed(r) == 1, "it is processed again"


def test_offsets_of_tasks_that_leave_are_waited_for_as_long() -> None:
    r = busy(processing_guarantee="at_least_once", request_timeout_ms=60_000)
    r.world.member.withholds = True
    began_ms = r.world.clock.monotonic_ms()
    r.generation += 1
    r.hear(Assigned(r.generation, "member", assignment(r.world, 1)))
    for _ in range(QUARTER_MS // STEP_MS):
        r.step(ms=STEP_MS)
    assert r.loop._commits.under_way, "the answer may still come"
    assert r.world.clock.monotonic_ms() - began_ms < MOST_POLL_MS // 2
    answer(r)
    r.step(5)
    assert r.world.member.rejoins == ["tasks were released to their new owners"]


@pytest.mark.parametrize("fails", [False, True])
def test_without_transactions_what_tasks_that_leave_have_sent_is_taken_by_kafka_or_thrown_away(fails: bool) -> None:
    r = busy(processing_guarantee="at_least_once")
    old = r.world.producer
    if fails:
        old.fail("flush", kafka_error(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True))
    r.loop._answering.part()
    assert "flush" in old.calls
    assert r.world.clients.renewed == int(fails)


def test_tasks_that_stay_are_processed_while_the_group_waits_for_a_commit() -> None:
    r = busy()
    r.world.producer.withheld = {"flush"}
    r.hear(JoinNeeded("a test"))
    before, joins = r.loop._processing.processed, len(r.world.member.joins)
    r.feed("b", steps=10, ms=5)
    assert r.loop._processing.processed == before + 1
    assert len(r.world.member.joins) == joins


def give_away_the_first(r: RunningProcessing) -> None:
    r.generation += 1
    r.hear(Assigned(r.generation, "member", assignment(r.world, 1)))


def never_prepared(r: RunningProcessing) -> None:
    """Outputs of both tasks are in the transaction, and no commit of them can be cut."""
    r.loop._processing.prepare_commit = lambda *_, **__: False  # type: ignore[method-assign]
    assert r.world.producer.in_transaction


def test_outputs_of_tasks_that_leave_do_not_stay_in_a_transaction_when_no_commit_was_cut_in_time() -> None:
    r = busy()
    never_prepared(r)
    give_away_the_first(r)
    for _ in range(QUARTER_MS // STEP_MS + 4):
        r.step(ms=STEP_MS)
    assert "abort" in r.world.producer.calls
    assert r.world.member.rejoins == ["tasks were released to their new owners"]
    assert committed(r) is None, "the new owner processes it once more"


def test_a_transaction_stays_open_when_the_member_joins_without_a_commit_in_time() -> None:
    r = busy()
    never_prepared(r)
    assert QUARTER_MS <= joined_after_ms(r) <= QUARTER_MS + 4 * STEP_MS
    assert "abort" not in r.world.producer.calls
    assert r.world.producer.in_transaction


def test_a_commit_that_kafka_may_have_made_is_waited_for_also_when_the_time_for_the_group_is_up() -> None:
    r = busy()
    r.world.producer.withheld = {"commit"}
    give_away_the_first(r)
    for _ in range(QUARTER_MS // STEP_MS + 4):
        r.step(ms=STEP_MS)
    assert r.loop._register.step is CommitStage.ENDING
    assert "abort" not in r.world.producer.calls
    answer(r)
    r.step(5)
    assert committed(r) == 1
    assert r.world.member.rejoins == ["tasks were released to their new owners"]


def test_each_answer_has_its_whole_time_also_after_one_that_was_given_during_a_commit() -> None:
    r = busy()
    joins = len(r.world.member.joins)
    r.world.producer.withheld = {"flush"}
    r.hear(JoinNeeded("a test"))
    r.step(10, ms=STEP_MS)
    r.world.producer.withheld = {"commit"}
    r.step(5, ms=STEP_MS)
    assert len(r.world.member.joins) == joins + 1, "the member joins during the end of the transaction"
    answer(r)
    r.assign(0, 1, steps=5, ms=STEP_MS)
    r.world.clock.advance(QUARTER_MS)
    r.feed("b", steps=10, ms=5)
    r.world.producer.withheld = {"flush"}
    assert QUARTER_MS <= joined_after_ms(r) <= QUARTER_MS + 4 * STEP_MS


def test_outputs_of_a_task_that_comes_back_do_not_wait_for_a_commit() -> None:
    r = busy()
    give_away_the_first(r)
    r.step(20, ms=STEP_MS)
    r.assign(0, 1, steps=20, ms=STEP_MS)
    sent, commits = len(r.world.producer.sent), r.loop._commits.commits
    r.feed("b", steps=10, ms=5)
    assert r.loop._commits.commits == commits
    assert len(r.world.producer.sent) > sent
