"""A task that fails by itself goes back, or ends, alone: the others' intervals are sent again."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from milestones.common.errors import StateCorruptError, TaskCorruptedError
from milestones.common.records import StoreId
from milestones.m3_fencing_tolerance.errors import RolledBackError
from tests.milestones.fakes import A, B, kafka_error, put
from tests.milestones.m5_committed_collector.collecting import (
    ALOS,
    DEAD,
    EXACTLY_ONCE,
    RunningCollector,
    answer,
    committing,
)

GUARANTEES = pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, ALOS])
DAMAGED = StateCorruptError("damaged", [StoreId(A, "counts")])


def busy(**settings: object) -> RunningCollector:
    """Two tasks, whose records are processed, and aren't committed."""
    r = RunningCollector(commit_interval_ms=5_000, **settings)
    r.run(0, 1)
    r.feed("a", steps=3)
    r.feed("x", partition=1, steps=3)
    return r


def fail(r: RunningCollector, error: Exception) -> None:
    with r.turn():
        r.loop._recoveries.recover(error, r.world.clock.monotonic_ms())


@GUARANTEES
@pytest.mark.parametrize("error", [TaskCorruptedError("a test", [A]), DAMAGED], ids=["corrupted", "damaged"])
def test_it_alone_goes_back_and_the_others_are_processed_once(guarantee: str, error: Exception) -> None:
    r = busy(processing_guarantee=guarantee)
    fail(r, error)
    r.step(10)
    r.loop._last_commit.commit()
    r.until_committed(1, 1)
    assert r.rolled_back() == {A: 1}
    assert r.world.user_code.seen.count("x") == 1
    assert r.world.user_code.seen.count("a") == 2


def test_a_damaged_store_is_made_anew_and_no_other_tasks() -> None:
    r = busy()
    created = r.tasks.created
    fail(r, DAMAGED)
    r.step(20)
    assert r.tasks.created == created + 1
    assert r.places == {A: "processing", B: "processing"}


@pytest.mark.parametrize("call", ["flush", "send_offsets", "commit"])
def test_it_goes_back_once_the_commit_that_is_under_way_is_over(call: str) -> None:
    r = committing(call)
    r.feed("b", steps=3)
    r.feed("x", partition=1, steps=3)
    fail(r, TaskCorruptedError("a test", [A]))
    r.step(3)
    assert r.rolled_back() == {}
    r.world.producer.withheld.clear()
    r.until_committed(2, 1)
    assert r.rolled_back() == {A: 1}
    assert r.world.written() == [("k", 1), ("k", 2)]
    assert sorted(r.world.user_code.seen) == ["a", "b", "b", "x"]


def test_the_error_of_a_commit_that_fails_meanwhile_is_answered_first() -> None:
    r = committing("commit")
    recovery: Any = r.loop._recoveries._recovery
    begin, answered = recovery.begin, list[type[Exception]]()
    recovery.begin = lambda error: (answered.append(type(error)), begin(error))
    r.world.producer.fail("commit", DEAD)
    with r.turn():
        r.loop._recoveries.recover(TaskCorruptedError("a test", [B]), 0)
    r.world.producer.withheld.clear()
    r.until(lambda: not r.loop._recoveries.under_way)
    assert answered == [RolledBackError, TaskCorruptedError]


def test_a_failure_that_is_found_together_with_a_damaged_store_of_another_task_is_told_too() -> None:
    r = busy(task_timeout_ms=1_000)
    failures = r.tasks.failures
    failures.note(A, DAMAGED)
    failures.note(B, RuntimeError("user code"))
    r.step(30, ms=50)
    assert r.places[B] == "ended"
    r.until(lambda: r.places[A] == "processing")
    r.until(lambda: r.offset(1) == 1)


def test_what_a_task_did_before_user_code_failed_is_committed_and_then_it_ends() -> None:
    r = RunningCollector(task_timeout_ms=1_000)
    r.world.user_code.refused = {"bad"}
    r.run(0, 1)
    r.feed("a", "b", "bad", steps=4)
    r.until(lambda: r.places.get(A) == "ended", ms=100)
    assert r.offset() == 2
    r.feed("x", partition=1)
    r.until(lambda: r.offset(1) == 1)
    assert r.tasks.roll_backs.count == 0


# -- a task that fails for good by a record: what it has done before is committed


def fails(r: RunningCollector) -> None:
    """User code of 0_0 fails for good."""
    r.tasks.failures.note(A, RuntimeError("a test"))
    r.step(3)


def test_what_it_has_done_is_committed_also_while_its_transaction_is_made_again() -> None:
    r = busy()
    r.world.producer.withheld = {"abort"}
    r.world.producer.fail("send_offsets", kafka_error(KafkaError._MSG_TIMED_OUT, abort=True))
    r.commits.pace.hasten()
    r.until(lambda: r.loop._recoveries.under_way, ms=0)
    fails(r)
    r.world.producer.withheld.clear()
    r.until(lambda: r.places[A] == "ended")
    assert r.offset() == 1


def test_what_it_has_done_is_committed_also_while_the_commit_before_is_written() -> None:
    r = committing("commit")
    r.feed("b", steps=3)
    r.world.workers.stuck = True
    answer(r)
    fails(r)
    r.world.workers.stuck = False
    r.until(lambda: r.places[A] == "ended")
    assert r.offset() == 2


def test_the_others_go_on_when_its_outputs_are_refused_after_that() -> None:
    r = busy(processing_guarantee=ALOS)
    r.world.moods.refused, r.world.handlers.held = {b"bad"}, True
    put(r.world, 0, "refused", key="bad")
    r.step(5)
    r.commits.pace.hasten()
    r.step(5)
    assert r.commits.under_way, "it waits for the production handler"
    r.feed("b", steps=3)
    fails(r)
    r.world.handlers.release()
    r.until(lambda: r.places[A] == "ended")
    r.feed("y", partition=1, steps=3)
    r.loop._last_commit.commit()
    assert (r.offset(0), r.offset(1)) == (None, 2)
