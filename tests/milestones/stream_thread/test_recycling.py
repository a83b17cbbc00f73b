"""Tasks that change their role with their stores open."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from milestones.common.errors import StateError
from milestones.common.kafka.consumers import Fetched
from milestones.common.task.task import State
from milestones.common.task.task_stores import TaskStores
from milestones.stream_thread.tasks import LOCK_PAUSE_MS
from tests.milestones.baseline.standbys import IN, LOG, A, B, content, standby, stores_of, writing
from tests.milestones.fakes import (
    ILLEGAL_GENERATION,
    Counting,
    Running,
    World,
    counting,
    put,
)
from tests.milestones.stream_thread.test_tasks import places


def test_a_standby_becomes_active_with_its_stores_open_and_restores_the_tail_only() -> None:
    world = World()
    world.logs[LOG].add(*"123", key="a")
    r = standby(world)
    stores = stores_of(world.state.standbys[A])
    world.logs[LOG].add("4", key="a").control()
    world.restorer.next.append(Fetched())
    r.rebalance(0)
    r.step(5)
    assert places(r.tasks) == {A: "processing"}
    assert stores_of(world.state.tasks[A]) is stores
    assert (world.state.opens, world.state.tasks[A].counters.restored) == (1, 1)
    assert world.state.standbys[A].state is State.CLOSED
    assert content(r) == {"a": "4"}


def test_a_standby_that_has_all_becomes_active_without_reading_a_record() -> None:
    world = World()
    world.logs[LOG].add(*"123").control()
    r = standby(world)
    moves = len(world.restorer.moves)
    r.rebalance(0)
    r.step(3)
    assert places(r.tasks) == {A: "processing"}
    assert world.restorer.moves[moves:] == []


def test_an_active_task_becomes_a_standby_after_a_commit_with_its_stores_open() -> None:
    world = writing(World(settings={"commit_interval_ms": 10_000}))
    put(world, 0, "x", "y")
    r = Running(world).run(0)
    r.step(2)
    stores = stores_of(world.state.tasks[A])
    r.rebalance(standby=frozenset({A}))
    assert world.producer.committed[IN].offset == 2
    r.step(3)
    assert places(r.tasks) == {A: "standby"}
    assert stores_of(world.state.standbys[A]) is stores
    assert world.state.opens == 1
    assert world.state.content(A) == {b"k": (2).to_bytes(8, "big")}
    assert world.member.rejoins == ["tasks were released to their new owners"]
    assert world.state.standbys[A].counters.restored == 0


def test_there_and_back_again_the_stores_stay_open_and_nothing_is_restored() -> None:
    world = writing(World())
    put(world, 0, "x", "y")
    r = Running(world).run(0)
    r.step(3)
    for number in range(3):
        r.rebalance(standby=frozenset({A}))
        world.commit(IN, world.producer.committed[IN].offset)
        r.step(3)
        r.run(0)
        put(world, 0, f"round {number}")
        r.step(3)
    assert world.state.opens == 1
    assert world.state.tasks[A].counters.restored == 0
    r.step(3, ms=100)
    assert world.state.content(A) == {b"k": (5).to_bytes(8, "big")}


@pytest.mark.parametrize("place", ["waiting", "positioning", "restoring"])
def test_an_active_task_that_does_not_run_yet_becomes_a_standby_from_wherever_it_is(place: str) -> None:
    world = World()
    world.logs[LOG].add(*"123")
    if place == "waiting":
        world.state.locked.add(A)
    world.member.holds, world.requests.holds = place == "positioning", place == "restoring"
    r = Running(world)
    r.rebalance(0)
    r.step()
    assert places(r.tasks) == {A: place}
    r.rebalance(standby=frozenset({A}))
    world.member.holds = world.requests.holds = False
    world.member.answer()
    world.requests.answer()
    world.state.locked.clear()
    world.clock.advance(LOCK_PAUSE_MS)
    r.step(4)
    assert places(r.tasks) == {A: "standby"}
    assert world.state.opens == 1
    assert world.state.offset(A) == 3


def test_a_task_that_is_starting_becomes_a_standby() -> None:
    world = World()
    world.requests.holds = True
    r = Running(world)
    r.rebalance(0)
    r.step()
    world.requests.answer()
    r.step(2)
    assert places(r.tasks) == {A: "starting"}
    r.rebalance(standby=frozenset({A}))
    world.requests.holds = False
    world.requests.answer()
    r.step(2)
    assert places(r.tasks) == {A: "standby"}
    assert world.consumer.assigned == frozenset()


def test_stores_that_wait_for_their_other_role_are_closed_when_that_goes_away() -> None:
    r = standby()
    r.tasks.assign({A: [IN]})
    assert r.tasks._registry[A].stores is not None
    r.tasks.assign({})
    r.step()
    assert r.world.state.held == set()
    assert places(r.tasks) == {}


def test_stores_that_wait_for_their_other_role_can_go_back_to_their_former_one() -> None:
    r = standby()
    r.tasks.assign({A: [IN]})
    r.tasks.assign({}, {A})
    r.step(2)
    assert places(r.tasks) == {A: "standby"}
    assert r.world.state.opens == 1


@pytest.mark.parametrize("end", ["shut_down", "fail"])
def test_at_the_end_of_a_thread_standbys_and_stores_between_two_roles_are_closed(end: str) -> None:
    r = standby(None, A, B)
    r.tasks.assign({A: [IN]}, {B})
    assert r.world.state.held == {A, B}
    r.loop.shut_down(leave_group=True) if end == "shut_down" else r.loop.fail(shut_application_down=None)
    assert r.world.state.held == set()
    assert places(r.tasks) == {}


class FailsToClose(Counting):
    close_error = ValueError("user's close")


def test_a_processor_that_fails_to_close_while_its_task_is_recycled_ends_the_thread_with_nothing_left_open() -> None:
    world = World(counting(processor=FailsToClose))
    r = Running(world).run(0)
    with pytest.raises(ValueError, match="user's close"):
        r.rebalance(standby=frozenset({A}))
    r.loop.fail(shut_application_down=None)
    assert world.state.held == set()


def test_the_lock_of_a_standby_whose_stores_are_broken_is_free_once_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    r = standby()
    monkeypatch.setattr(TaskStores, "release", Mock(side_effect=StateError("bad block")))
    assert r.world.state.held == {A}
    with pytest.raises(StateError, match="bad block"):
        r.rebalance()
    assert r.world.state.held == set()


def test_stores_that_cannot_be_opened_in_their_new_role_are_closed() -> None:
    r = standby()
    r.world.state.errors[A] = StateError("the disk is full")
    with pytest.raises(StateError, match="disk is full"):
        r.rebalance(0)
    assert r.world.state.held == set()


def test_a_rolled_back_task_becomes_a_standby_without_what_was_not_committed() -> None:
    world = World(settings={"commit_interval_ms": 10_000})
    put(world, 0, "x", "y")
    r = Running(world).run(0)
    r.step(2)
    r.tasks.roll_back()
    r.rebalance(standby=frozenset({A}))
    r.step(2)
    assert places(r.tasks) == {A: "standby"}
    assert world.state.content(A) == {}
    assert world.state.opens == 1


def test_when_the_commit_before_recycling_fails_in_place_the_standby_has_committed_data_only() -> None:
    world = writing(World(settings={"commit_interval_ms": 10_000}))
    put(world, 0, "x", "y")
    r = Running(world).run(0)
    r.step(2)
    r.assign(standby=frozenset({A}))
    assert world.producer.committed[IN].offset == 2
    world.commit(IN, 2)
    r.run(0)
    put(world, 0, "z")
    r.step(2)
    world.producer.fail("send_offsets", ILLEGAL_GENERATION)
    r.assign(standby=frozenset({A}))
    r.step(2)
    assert places(r.tasks) == {A: "standby"}
    assert world.state.content(A) == {b"k": (2).to_bytes(8, "big")}
