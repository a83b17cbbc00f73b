"""Tasks that change their role with their stores open."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.common.errors import StateError
from milestones.common.kafka.consumers import Fetched
from milestones.common.kafka.membership import JoinNeeded
from milestones.common.records import StoreId
from milestones.common.task.task import TaskState
from milestones.stream_thread.task_removal import LOCK_PAUSE_MS
from tests.milestones.fake_kafka import ILLEGAL_GENERATION
from tests.milestones.fakes import IN, LOG, A, B, FailsToClose, Running, World, busy, counting, standby
from tests.milestones.stepped_workers import STAGES, with_ledger


def stores_of(task: Any) -> Any:
    return task._stores.storage.stores


def test_a_standby_becomes_active_with_its_stores_open_and_restores_the_tail_only() -> None:
    r = standby(World().logged(*"123", key="a"))
    stores = stores_of(r.world.state.standbys[A])
    r.world.logs[LOG].add("4", key="a").control()
    r.world.restorer.next.append(Fetched())
    r.rebalance(0, steps=5)
    assert r.places == {A: "processing"}
    assert stores_of(r.world.state.tasks[A]) is stores
    assert (r.world.state.opens, r.world.state.tasks[A].counters.restored) == (1, 1)
    assert r.world.state.standbys[A].state is TaskState.CLOSED
    assert r.world.state.text() == {"a": "4"}


def test_a_standby_that_has_all_becomes_active_without_reading_a_record() -> None:
    world = World()
    world.logs[LOG].add(*"123").control()
    r = standby(world)
    moves = len(world.restorer.moves)
    r.rebalance(0, steps=3)
    assert r.places == {A: "processing"}
    assert world.restorer.moves[moves:] == []


def test_a_standby_whose_stores_no_other_task_may_have_becomes_active_with_stores_that_are_opened_anew() -> None:
    r = standby(World().logged(*"123", key="a"))
    r.world.state.standbys[A].reusable = False
    r.rebalance(0, steps=5)
    assert (r.places, r.world.state.opens) == ({A: "processing"}, 2)


def test_an_active_task_becomes_a_standby_after_a_commit_with_its_stores_open() -> None:
    world = with_ledger(World(settings={"commit_interval_ms": 10_000}).fed("x", "y"))
    r = Running(world).run(0)
    r.step(2)
    stores = stores_of(world.state.tasks[A])
    r.rebalance(standby=frozenset({A}))
    assert world.producer.committed[IN].offset == 2
    r.step(3)
    assert r.places == {A: "standby"}
    assert stores_of(world.state.standbys[A]) is stores
    assert world.state.opens == 1
    assert world.state.content(A) == {b"k": (2).to_bytes(8, "big")}
    assert world.member.rejoins == ["tasks were released to their new owners"]
    assert world.state.standbys[A].counters.restored == 0


@pytest.mark.parametrize("held", ["processing", "being rolled back"])
def test_a_released_task_that_a_processing_thread_still_has_counts_as_far_as_its_last_commit(held: str) -> None:
    """Else the group takes its state for lost, and moves it to another instance instead of another thread of this."""
    r = STAGES["m2"](commit_interval_ms=10_000)
    r.world.fed("x", "y")
    r.run(0)
    r.step(2)
    r.world.workers.stuck = held == "processing"
    if held == "being rolled back":
        r.hear(JoinNeeded("a test"))
        r.world.workers.stuck = True
        r.tasks.roll_back()
    r.rebalance()
    assert r.places == {A: "leaving"}
    r.hear(JoinNeeded("a test"))
    said = r.world.member.joins[-1]
    assert (said.active, said.positions) == (frozenset(), {A: 2})


def test_a_task_that_leaves_while_its_stores_are_opened_is_as_far_as_what_lies_on_the_disk() -> None:
    """Also when another thread tells what else lies there: it takes the task for an open one."""
    r = STAGES["m1"]()
    r.world.state.closed = {A: 2}
    r.world.context.thread_registry.add()
    r.world.context.thread_registry.remove(1)
    r.world.openers.hang = True
    r.rebalance(0)
    r.step()
    r.rebalance()
    assert (r.places, r.tasks.positions()) == ({A: "leaving"}, {A: 2})


@pytest.mark.parametrize("roles", [(), (0,)], ids=["taken away", "kept"])
def test_a_task_with_a_damaged_store_counts_as_far_as_what_isnt_to_be_rebuilt(roles: tuple[int, ...]) -> None:
    r = STAGES["m2"](commit_interval_ms=10_000)
    r.world.fed("x", "y")
    r.run(0)
    r.step(2)
    r.hear(JoinNeeded("a test"))
    r.rebalance(0)
    r.world.state.closed = {A: 2}
    r.world.workers.stuck = True
    r.tasks.roll_back()
    r.tasks.rebuild([StoreId(A, "counts")], "a block is damaged")
    r.rebalance(*roles)
    r.hear(JoinNeeded("a test"))
    assert r.places in ({A: "leaving"}, {A: "returning"})
    assert r.world.member.joins[-1].positions == {A: 0}


def test_there_and_back_again_the_stores_stay_open_and_nothing_is_restored() -> None:
    world = with_ledger(World().fed("x", "y"))
    r = Running(world).run(0)
    r.step(3)
    for number in range(3):
        r.rebalance(standby=frozenset({A}), steps=3)
        r.run(0)
        r.feed(f"round {number}", steps=3)
    assert world.state.opens == 1
    assert world.state.tasks[A].counters.restored == 0
    r.step(3, ms=100)
    assert world.state.content(A) == {b"k": (5).to_bytes(8, "big")}


@pytest.mark.parametrize("place", ["waiting", "positioning", "restoring"])
def test_an_active_task_that_does_not_run_yet_becomes_a_standby_from_wherever_it_is(place: str) -> None:
    r = Running(World().logged(*"123"))
    if place == "waiting":
        r.world.state.locked.add(A)
    r.world.member.holds, r.world.requests.holds = place == "positioning", place == "restoring"
    r.rebalance(0, steps=1)
    assert r.places == {A: place}
    r.rebalance(standby=frozenset({A}))
    r.world.member.holds = r.world.requests.holds = False
    r.world.member.answer()
    r.world.requests.answer()
    r.world.state.locked.clear()
    r.world.clock.advance(LOCK_PAUSE_MS)
    r.step(4)
    assert r.places == {A: "standby"}
    assert r.world.state.opens == 1
    assert r.world.state.offset(A) == 3


def test_a_task_that_is_starting_becomes_a_standby() -> None:
    r = Running()
    r.world.requests.holds = True
    r.rebalance(0, steps=1)
    r.world.requests.answer()
    r.step(2)
    assert r.places == {A: "starting"}
    r.rebalance(standby=frozenset({A}))
    r.world.requests.holds = False
    r.world.requests.answer()
    r.step(2)
    assert r.places == {A: "standby"}
    assert r.world.consumer.assigned == frozenset()


def test_stores_that_wait_for_their_other_role_are_closed_when_that_goes_away() -> None:
    r = standby()
    r.tasks.assign({A: [IN]})
    assert r.tasks._registry[A].stores is not None
    r.tasks.assign({})
    r.step()
    assert r.world.state.held == set()
    assert r.places == {}


def test_stores_that_wait_for_their_other_role_can_go_back_to_their_former_one() -> None:
    r = standby()
    r.tasks.assign({A: [IN]})
    r.tasks.assign({}, {A})
    r.step(2)
    assert r.places == {A: "standby"}
    assert r.world.state.opens == 1


@pytest.mark.parametrize("end", ["shut_down", "fail"])
def test_at_the_end_of_a_thread_standbys_and_stores_between_two_roles_are_closed(end: str) -> None:
    r = standby(None, A, B)
    r.tasks.assign({A: [IN]}, {B})
    assert r.world.state.held == {A, B}
    r.loop.shut_down(leave_group=True) if end == "shut_down" else r.loop.fail(shut_application_down=None)
    assert r.world.state.held == set()
    assert r.places == {}


def test_a_processor_that_fails_to_close_while_its_task_is_recycled_ends_the_thread_with_nothing_left_open() -> None:
    r = Running(World(counting(processor=FailsToClose))).run(0)
    with pytest.raises(ValueError, match="user's close"):
        r.rebalance(standby=frozenset({A}))
    r.loop.fail(shut_application_down=None)
    assert r.world.state.held == set()


def test_stores_of_which_no_task_can_be_made_in_its_new_role_are_closed() -> None:
    r = standby()
    r.world.state.errors[A] = StateError("a bug")
    with pytest.raises(StateError, match="a bug"):
        r.rebalance(0)
    assert r.places == {A: "leaving"}
    r.loop.fail(shut_application_down=None)
    assert (r.places, r.world.state.held) == ({}, set())


def test_a_rolled_back_task_becomes_a_standby_without_what_was_not_committed() -> None:
    r = busy(0)
    r.tasks.roll_back()
    r.rebalance(standby=frozenset({A}), steps=2)
    assert r.places == {A: "standby"}
    assert (r.world.state.content(A), r.world.state.opens) == ({}, 1)


def test_when_the_commit_before_recycling_fails_in_place_the_standby_has_committed_data_only() -> None:
    world = with_ledger(World(settings={"commit_interval_ms": 10_000}).fed("x", "y"))
    r = Running(world).run(0)
    r.step(2)
    r.assign(standby=frozenset({A}))
    assert world.producer.committed[IN].offset == 2
    r.run(0)
    r.feed("z", steps=2)
    world.producer.fail("send_offsets", ILLEGAL_GENERATION)
    r.assign(standby=frozenset({A}), steps=2)
    assert r.places == {A: "standby"}
    assert world.state.content(A) == {b"k": (2).to_bytes(8, "big")}
