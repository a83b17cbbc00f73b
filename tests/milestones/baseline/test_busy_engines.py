"""An engine that can't take a write now, on stages without processing threads: restorations, standbys, commits."""

from __future__ import annotations

import pytest

from milestones.common.errors import StateError
from milestones.common.records import TopicPartition
from tests.milestones.fakes import BUSY_MS, CHANGELOG, ILLEGAL_GENERATION, LOG, LOG_B, A, B, put, standby
from tests.milestones.stepped_workers import STAGES

FOR_EVER = 1_000_000


@pytest.mark.parametrize("stage", ["baseline", "m1"])
def test_a_commit_waits_for_a_busy_engine_and_is_written_once(stage: str) -> None:
    r = STAGES[stage](commit_interval_ms=100)
    r.run(0, 1)
    r.world.state.busy[A] = 5
    for partition in (0, 1):
        put(r.world, partition, "a", "b")
    r.step(20, ms=50)
    for id in (A, B):
        written = r.world.producer.sent
        (last,) = [o.value for task, o in written if task == id and o.topic == CHANGELOG][-1:]
        assert r.world.state.content(id) == {b"k": last}
    assert len([id for id, _ in r.world.state.writes if id == A]) == 1


def test_a_commit_waits_no_longer_than_the_group_keeps_the_thread() -> None:
    r = STAGES["baseline"](commit_interval_ms=100, max_poll_interval_ms=10_000)
    r.run(0)
    r.world.state.busy[A] = FOR_EVER
    began_ms = r.world.clock.monotonic_ms()
    with pytest.raises(StateError, match="task 0_0: the stores of 0_0: no write is possible now"):
        r.feed("a", steps=20, ms=50)
    assert r.world.clock.monotonic_ms() - began_ms < 2_500 + 20 * 50


@pytest.mark.parametrize("stage", list(STAGES))
def test_a_task_is_rolled_back_while_the_disk_refuses_what_has_waited_for_it(stage: str) -> None:
    r = STAGES[stage](commit_interval_ms=100, state_write_interval_ms=1_000, max_poll_interval_ms=10_000)
    r.run(0, 1)
    put(r.world, 0, "a")
    r.step(20, ms=20)
    put(r.world, 0, "b")
    r.step(20, ms=20)
    r.world.state.busy[A] = FOR_EVER
    r.step(20, ms=100)
    put(r.world, 1, "x")
    r.world.producer.fail("commit", ILLEGAL_GENERATION)
    r.step(30, ms=50)
    assert r.tasks.processing.keys() == {A, B}
    assert r.world.state.offset(A) == 1, "the first commit is written at once, the second one waits"
    r.world.state.busy[A] = 0
    put(r.world, 0, "c")
    r.step(40, ms=100)
    counts = [o.value for task, o in r.world.producer.sent if task == A and o.topic == CHANGELOG]
    assert (len(counts), r.world.state.offset(A), r.world.state.content(A)) == (3, 3, {b"k": counts[-1]})


@pytest.mark.parametrize("stage", list(STAGES))
def test_a_task_that_waits_for_its_engine_keeps_no_other_from_being_restored(stage: str) -> None:
    r = STAGES[stage](commit_interval_ms=100)
    for log in (LOG, LOG_B):
        r.world.logs[log].add("11111111", "22222222", key="k")
    r.world.state.busy[A] = FOR_EVER
    r.rebalance(0, 1)
    r.step(20, ms=20)
    assert r.tasks.processing.keys() == {B}
    assert (r.world.state.content(A), r.world.state.offset(A)) == ({}, None)
    r.world.state.busy[A] = 0
    r.step(20, ms=20)
    assert r.tasks.processing.keys() == {A, B}
    for id in (A, B):
        assert (r.world.state.content(id), r.world.state.offset(id)) == ({b"k": b"22222222"}, 2)
    assert [dict(offsets) for id, offsets in r.world.state.writes if id == A] == [{"counts": 2}]


def test_a_standby_whose_engine_was_busy_has_every_record_in_order() -> None:
    r = standby()
    for number in range(10):
        r.world.state.busy[A] = number % 3
        r.world.logs[LOG].add(f"v{number}", key="k")
        r.step(3, ms=BUSY_MS // 2)
    r.step(10, ms=BUSY_MS)
    assert (r.world.state.content(A), r.world.state.offset(A)) == ({b"k": b"v9"}, 10)
    offsets = [offsets["counts"] for _, offsets in r.world.state.writes]
    assert offsets == sorted(set(offsets))


def test_a_task_that_is_taken_away_while_its_restoration_waits_begins_where_its_store_is() -> None:
    r = STAGES["baseline"]()
    r.world.logs[LOG].add("11111111", key="k")
    r.world.state.busy[A] = FOR_EVER
    r.rebalance(0, steps=5, ms=20)
    r.rebalance(steps=5, ms=20)
    assert r.world.state.held == set()
    r.world.state.busy[A] = 0
    r.run(0)
    assert (r.world.state.content(A), r.world.state.offset(A)) == ({b"k": b"11111111"}, 1)
    assert TopicPartition("in", 0) in r.world.consumer.assigned
