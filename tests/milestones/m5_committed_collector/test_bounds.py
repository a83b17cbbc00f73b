"""What is kept until Kafka has confirmed it counts, and is bounded: half asks for a commit, all of it holds tasks."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.milestones.fakes import TaskId, kafka_error, put
from tests.milestones.m5_committed_collector.collecting import ALOS, RunningCollector, committing, withhold

TASKS = range(50)
LIMIT = 200_000
RECORD = 600
NEVER_MS = 600_000


def instance(**settings: Any) -> RunningCollector:
    """Fifty tasks and sixteen processing threads; nothing is committed by the clock."""
    defaults = {
        "num_processing_threads": 16, "commit_interval_ms": NEVER_MS, "transaction_timeout_ms": 2 * NEVER_MS,
    }  # fmt: skip
    r = RunningCollector(**{**defaults, **settings})
    r.run(*TASKS)
    return r


def feed_all(r: RunningCollector, records: int, size: int = 100) -> None:
    for partition in TASKS:
        for number in range(records):
            put(r.world, partition, "x" * size, key=f"key-{number}")


def most(r: RunningCollector, held: Any, turns: int = 60, records: int = 0) -> int:
    """The most that was held in so many turns, in each of which so many records come for each task."""
    found = 0
    for turn in range(turns):
        for partition in TASKS:
            for number in range(records):
                put(r.world, partition, "v", key=f"key-{turn}-{number}")
        r.step(ms=10)
        found = max(found, held(r))
    return found


def outputs(r: RunningCollector) -> int:
    return sum(task.output_bytes() for task in r.tasks.processing.values())


def uncommitted(r: RunningCollector) -> int:
    return sum(task.uncommitted_bytes() for task in r.tasks.processing.values())


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", ALOS])
def test_outputs_that_are_kept_hold_the_bound_and_are_committed_long_before_the_clock_asks(guarantee: str) -> None:
    r = instance(output_buffer_max_bytes=LIMIT, processing_guarantee=guarantee)
    feed_all(r, 40)
    assert 0 < most(r, outputs, turns=80) <= LIMIT + len(TASKS) * 2 * RECORD
    assert all(r.offset(partition) is not None for partition in TASKS)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", ALOS])
def test_one_task_of_fifty_that_fills_half_of_the_room_has_itself_committed(guarantee: str) -> None:
    """The others put out nothing."""
    r = instance(output_buffer_max_bytes=LIMIT, processing_guarantee=guarantee)
    r.step(60, ms=50)
    for number in range(500):
        put(r.world, 0, "v", key=f"key-{number}")
    r.until(lambda: r.loop._processing.processed == 500, ms=10)
    assert (r.offset() or 0) > 300


def test_outputs_that_are_kept_through_a_long_commit_hold_the_bound() -> None:
    r = instance(output_buffer_max_bytes=LIMIT, commit_interval_ms=100)
    r.world.producer.withheld = {"commit"}
    feed_all(r, 60)
    assert 0 < most(r, outputs, turns=80) <= LIMIT + len(TASKS) * 2 * RECORD
    r.world.producer.withheld.clear()
    r.until(lambda: all(r.offset(partition) == 60 for partition in TASKS), steps=1_000)


def test_state_of_both_intervals_holds_the_bound_while_an_end_has_no_answer() -> None:
    limit = 40_000
    r = instance(statestore_uncommitted_max_bytes=limit, commit_interval_ms=100)
    r.world.producer.withheld = {"commit"}
    held = most(r, uncommitted, turns=80, records=1)
    assert limit // 2 < held < 2 * limit
    r.world.producer.withheld.clear()
    r.until(lambda: all(r.offset(partition) == 80 for partition in TASKS), steps=2_000)


@pytest.mark.parametrize("wait", ["abort", "init_transactions"])
def test_state_holds_the_bound_while_a_recovery_has_no_answer(wait: str) -> None:
    limit = 40_000
    r = instance(statestore_uncommitted_max_bytes=limit, commit_interval_ms=100)
    r.world.producer.withheld, r.world.moods.unready = {"abort"}, True
    abortable = wait == "abort"
    error = KafkaError._MSG_TIMED_OUT if abortable else KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
    r.world.producer.fail("send_offsets", kafka_error(error, abort=abortable, fatal=not abortable))
    held = most(r, uncommitted, turns=80, records=1)
    assert r.loop._recoveries.under_way
    assert limit // 2 < held < 2 * limit
    r.world.moods.unready = False
    r.world.producer.withheld.clear()
    r.until(lambda: all(r.offset(partition) == 80 for partition in TASKS), steps=2_000)


def test_half_of_the_bound_of_state_asks_for_a_commit() -> None:
    r = instance(statestore_uncommitted_max_bytes=100_000)
    assert 50_000 < most(r, uncommitted, turns=100, records=1) < 100_000
    assert all(r.offset(partition) for partition in TASKS)


def test_at_three_quarters_the_greedy_task_waits_and_the_others_go_on() -> None:
    r = committing("commit", statestore_uncommitted_max_bytes=200_000)
    for number in range(1_000):
        put(r.world, 0, "v", key=f"key-{number}")
        if number % 20 == 0:
            r.step(ms=5)
    stands = r.world.user_code.seen.count("v")
    assert 0 < stands < 1_000
    r.feed("x", "y", partition=1, steps=5, ms=5)
    assert {"x", "y"} <= set(r.world.user_code.seen)
    assert r.world.user_code.seen.count("v") == stands
    assert r.commits.pace.greedy == {TaskId(0, 0)}


def test_what_is_kept_counts_for_its_task_until_it_is_confirmed() -> None:
    r = committing("commit")
    (task,) = [task for id, task in r.tasks.processing.items() if id == TaskId(0, 0)]
    assert task.output_bytes() > 0
    r.world.producer.withheld.clear()
    r.until_committed(1)
    r.step(5)
    assert task.output_bytes() == 0


def test_an_output_that_is_larger_than_the_whole_bound_is_sent() -> None:
    r = RunningCollector(output_buffer_max_bytes=1)
    r.run(0, 1)
    r.feed("a", "b", "c", steps=3)
    r.feed("x", partition=1, steps=3)
    r.until_committed(3, 1)
    assert len(r.sent()) == 4


def test_state_holds_the_bound_while_the_group_has_no_new_generation() -> None:
    """A commit waits for it, for a quarter of the transaction's time."""
    limit = 40_000
    r = instance(statestore_uncommitted_max_bytes=limit, commit_interval_ms=100)
    r.world.member.gate = True
    assert limit // 2 < most(r, uncommitted, turns=80, records=1) < 2 * limit
    r.world.member.gate = False
    r.until(lambda: all(r.offset(partition) == 80 for partition in TASKS), steps=2_000)


def test_a_task_that_fills_the_room_beside_a_commit_is_committed_right_after_it() -> None:
    r = RunningCollector(
        output_buffer_max_bytes=20_000, commit_interval_ms=NEVER_MS, transaction_timeout_ms=2 * NEVER_MS,
    )  # fmt: skip
    r.run(0, 1)
    r.step(80, ms=10)
    withhold(r, "commit")
    r.feed("commit", steps=10, ms=5)
    r.until(lambda: r.commits.under_way)
    for number in range(200):
        put(r.world, 1, "v", key=f"key-{number}")
    r.step(200, ms=10)
    before = r.loop._processing.processed
    assert before < 200, "it waits for room"
    r.world.producer.withheld.clear()
    r.until(lambda: r.loop._processing.processed == 201, steps=1_000, ms=10)
