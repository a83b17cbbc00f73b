"""A task's way from assignment to close."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from milestones.common.errors import (
    MembershipError,
    ProcessingError,
    StateCorruptError,
    StateError,
    TimeoutExceededError,
)
from milestones.common.kafka.consumers import Fetched
from milestones.common.kafka.membership import Committed, StaleGenerationError
from milestones.common.records import StoreId, TaskId, TopicPartition
from milestones.common.task.task import Task, TaskState
from milestones.stream_thread.task_registry import Phase
from milestones.stream_thread.task_removal import LOCK_PAUSE_MS
from tests.milestones.disturber import Disturber
from tests.milestones.fake_kafka import FENCED
from tests.milestones.fakes import (
    IN,
    LOG,
    LOG_B,
    A,
    B,
    Counting,
    FailsToClose,
    FakeTaskStorage,
    Running,
    World,
    busy,
    counting,
    passing,
)
from tests.milestones.stepped import RunningUpdater
from tests.milestones.stepped_workers import RunningProcessing


def locked_out(*partitions: int) -> Running:
    """Another thread has the directory of 0_0."""
    r = Running()
    r.world.state.locked.add(A)
    r.rebalance(*partitions)
    return r


def positioning(**settings: int) -> Running:
    """What is committed for 0_0 was asked for, and isn't answered."""
    r = Running(**settings)
    r.world.member.holds = True
    r.rebalance(0)
    return r


def test_a_stateless_task_goes_from_assignment_to_processing_without_restoration() -> None:
    r = Running(World(passing())).run(0)
    assert r.places == {A: "processing"}
    assert r.world.restorer.moves == []


def test_a_task_waits_while_somebody_else_holds_its_directory_and_the_others_go_on() -> None:
    r = locked_out(0, 1)
    r.step(5)
    assert r.places == {A: "waiting", B: "processing"}
    assert not r.tasks.all_running
    r.world.state.locked.clear()
    r.world.clock.advance(LOCK_PAUSE_MS)
    r.step(5)
    assert r.places == {A: "processing", B: "processing"}


@pytest.mark.parametrize("stage", [Running, RunningUpdater])
def test_a_directory_that_somebody_else_holds_is_tried_every_so_often_and_not_in_every_turn(
    stage: type[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    r = stage()
    r.world.state.locked.add(A)
    tries = Mock(wraps=r.world.state.open)
    monkeypatch.setattr(r.world.state, "open", tries)
    r.rebalance(0)
    r.step(100, ms=10)
    assert 5 <= tries.call_count <= 12
    assert r.tasks.place_labels() == {A: "waiting for its lock"}
    r.world.state.locked.clear()
    r.step(20, ms=10)
    assert r.places == {A: "processing"}


def test_a_task_that_waits_for_its_directory_is_owned_and_can_be_revoked() -> None:
    r = locked_out(0)
    assert r.tasks.owned == {A}
    r.rebalance()
    assert (r.tasks.owned, r.world.state.held) == (frozenset(), set())


def test_a_new_assignment_leaves_tasks_that_still_wait_where_they_are() -> None:
    r = locked_out(0)
    r.rebalance(0, 1)
    r.world.state.locked.clear()
    r.world.clock.advance(LOCK_PAUSE_MS)
    r.step(5)
    assert r.places == {A: "processing", B: "processing"}


def test_a_task_whose_state_cannot_be_used_ends_the_thread_and_the_others_are_closed() -> None:
    r = Running()
    r.world.state.errors[B] = StateError("the disk is full")
    with pytest.raises(StateError, match="disk is full"):
        r.rebalance(0, 1)
    r.loop.fail(shut_application_down=None)
    assert r.world.state.held == set()


@pytest.mark.parametrize("stage", [Running, RunningUpdater])
def test_a_task_whose_stores_could_not_be_opened_is_opened_again_when_the_thread_recovers(stage: type[Running]) -> None:
    r = stage().run(1)
    r.world.state.errors[A] = StateCorruptError("bad block")
    r.rebalance(0, 1, steps=3)
    assert (r.tasks.owned, A in r.tasks.processing) == ({A, B}, False)
    r.world.state.errors.clear()
    r.step(5)
    assert r.places == {A: "processing", B: "processing"}


def test_a_task_is_positioned_only_once_its_committed_offsets_are_stable() -> None:
    r = positioning()
    r.step(3)
    assert r.places == {A: "positioning"}
    assert len(r.world.member.questions) == 1
    r.world.member.answer()
    r.step(5)
    assert r.places == {A: "processing"}


def test_offsets_that_do_not_get_stable_within_task_timeout_end_the_thread() -> None:
    r = positioning(task_timeout_ms=1_000)
    with pytest.raises(TimeoutExceededError, match=r"0_0.*task_timeout_ms"):
        r.step(ms=1_001)


def test_a_question_that_a_lost_membership_left_unanswered_is_asked_again() -> None:
    r = positioning()
    r.world.member.answer(error=StaleGenerationError("lost"))
    r.world.member.holds = False
    r.step(5)
    assert r.places == {A: "processing"}


def test_a_question_that_the_coordinator_refuses_ends_the_thread_with_the_reason() -> None:
    r = positioning()
    r.world.member.answer(error=MembershipError("OffsetFetch of in: TOPIC_AUTHORIZATION_FAILED"))
    with pytest.raises(MembershipError, match="TOPIC_AUTHORIZATION_FAILED"):
        r.step()


def test_an_answer_to_the_question_of_a_task_that_was_closed_since_is_not_taken() -> None:
    r = positioning()
    world = r.world
    world.commit(IN, 5)
    world.logs[IN].control(9)
    r.rebalance()
    old = world.member.questions.pop()
    world.member.holds = False
    old[2].try_put(Committed(old[0], {}))
    r.rebalance(0, steps=5)
    assert world.state.tasks[A].input.position(IN) == 5
    assert r.places == {A: "processing"}


def test_a_task_that_is_revoked_while_positioning_is_closed() -> None:
    r = positioning()
    r.rebalance()
    assert r.world.state.tasks[A].state is TaskState.CLOSED
    r.world.member.answer()
    r.step()
    assert r.places == {}


def test_a_task_that_is_revoked_while_restoring_is_closed_and_keeps_what_is_restored() -> None:
    r = Running()
    r.world.logs[LOG].add(*"abc").control()
    r.assign(0)
    r.world.restorer.next.append(Fetched())
    r.step()
    assert r.places == {A: "restoring"}
    r.rebalance()
    assert r.world.state.tasks[A].state is TaskState.CLOSED
    assert r.world.restorer.assigned == frozenset()
    assert r.world.state.held == set()


def test_a_task_that_is_revoked_in_the_very_round_after_its_restoration_is_closed() -> None:
    r = Running(World().logged(*"abc"))
    r.assign(0)
    while not r.loop._restoration._restored:  # type: ignore[attr-defined]
        r.step()
    assert r.places == {A: "restoring"}
    r.assign()
    assert r.world.state.tasks[A].state is TaskState.CLOSED
    assert r.places == {}


def test_a_task_that_is_revoked_while_starting_is_closed() -> None:
    r = Running(World(passing()))
    r.world.requests.holds = True
    r.rebalance(0, steps=2)
    assert r.places == {A: "starting"}
    r.rebalance()
    r.world.requests.answer()
    r.step()
    assert r.world.state.tasks[A].state is TaskState.CLOSED
    assert r.places == {}


def test_a_revoked_task_is_committed_before_it_is_closed() -> None:
    r = busy(0, 1)
    world = r.world
    r.rebalance(1)
    assert world.producer.committed[IN].offset == 2
    assert world.state.tasks[A].state is TaskState.CLOSED
    assert world.state.offset(A) == 2
    assert r.places == {B: "processing"}


def test_a_rolled_back_task_reads_its_input_again_from_the_last_commit_with_its_stores_open() -> None:
    r = busy(0, commit_interval_ms=100)
    world = r.world
    world.commit(IN, 0)
    r.tasks.roll_back()
    assert r.places == {A: "positioning"}
    assert world.state.held == {A}
    assert world.consumer.assigned == frozenset()
    r.step(5)
    assert r.places == {A: "processing"}
    assert world.state.tasks[A].epoch == 1
    r.step(3, ms=100)
    assert world.state.content(A) == {b"k": (2).to_bytes(8, "big")}


def test_a_rolled_back_task_waits_for_the_new_generation_before_it_asks_for_offsets() -> None:
    r = Running().run(0)
    r.world.member.gate = True
    r.tasks.roll_back()
    r.step(3)
    assert r.places == {A: "positioning"}
    r.world.member.gate = False
    r.step(3)
    assert r.places == {A: "processing"}


def test_a_rolled_back_task_can_be_closed_at_once() -> None:
    r = Running().run(0)
    r.tasks.roll_back()
    r.tasks.close([A])
    assert r.world.state.tasks[A].state is TaskState.CLOSED
    r.step()
    assert r.places == {}


def test_a_roll_back_leaves_restoring_tasks_where_they_are() -> None:
    r = Running().run(0)
    r.world.logs[LOG_B].add("x")
    r.world.requests.holds = True
    r.rebalance(0, 1, steps=1)
    r.tasks.roll_back()
    assert r.places == {A: "positioning", B: "restoring"}


def test_when_one_task_does_not_close_cleanly_the_others_are_closed_all_the_same() -> None:
    r = Running(World(counting(processor=FailsToClose))).run(0, 1)
    with pytest.raises(ValueError, match="user's close"):
        r.tasks.close([A, B])
    r.step()
    assert r.world.state.held == set()
    assert {task.state for task in r.world.state.tasks.values()} == {TaskState.CLOSED}
    assert r.places == {}


class FailsToInit(Counting):
    init_error = ValueError("user's init")


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("changelog", [(), ("x",)])
def test_when_one_task_cannot_start_no_other_is_lost_sight_of(changelog: tuple[str, ...], committed: bool) -> None:
    r = Running(World(counting(processor=FailsToInit)))
    for partition in (0, 1, 2):
        r.world.logs[LOG._replace(partition=partition)].add(*changelog)
        if committed:
            r.world.commit(TopicPartition("in", partition), 0)
    with pytest.raises(ProcessingError, match="user's init"):
        r.run(0, 1, 2)
    r.loop.fail(shut_application_down=None)
    assert r.world.state.held == set()
    assert r.places == {}


def test_a_consumer_that_refuses_an_assignment_leaves_no_ghost_of_the_task() -> None:
    r = Running(World(passing()))
    r.world.consumer.fail_assign = FENCED
    r.rebalance(0, steps=1)
    r.world.consumer.fail_assign = None
    r.rebalance(0, steps=3)
    assert r.places == {A: "processing"}


@pytest.mark.parametrize("seed", range(4))
def test_every_task_is_in_one_place_at_a_time_whatever_comes(seed: int) -> None:
    r = Running(World())
    world, disturber = r.world, Disturber(r, seed)
    r.rebalance()
    for _ in range(300):
        disturber.once()
        r.step(ms=disturber.rng.randrange(60))
        where = r.places
        recycled = {entry.id for entry in r.tasks._registry if entry.stores is not None}
        assert world.state.held == {id for id, place in where.items() if place != "waiting"} | recycled
        fed = {TopicPartition("in", id.partition) for id, place in where.items() if place == "processing"}
        assert world.consumer.assigned == fed
        restored = {id for id, place in where.items() if place in ("standby", "restoring")}
        assert world.restorer.assigned <= {LOG._replace(partition=id.partition) for id in restored}
    disturber.calm()
    r.rebalance(0, 1, 2, 3, steps=20, ms=100)
    assert set(r.places.values()) == {"processing"}


def test_a_damaged_store_that_cannot_be_set_aside_costs_no_other_task_its_way_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    r = RunningProcessing().run(0, 1, 2)
    monkeypatch.setattr(FakeTaskStorage, "clear", Mock(side_effect=StateError("the disk is full")))
    monkeypatch.setattr(Task, "applying", True)  # so that a processing thread has to do something before
    r.tasks.roll_back()
    r.tasks.rebuild([StoreId(TaskId(0, partition), "counts") for partition in range(3)], "a test")
    assert set(r.tasks.places().values()) == {Phase.RETURNING}
    r.world.workers.step(5)
    r.tasks.run_once(r.world.clock.monotonic_ms())
    assert set(r.tasks.places().values()) == {Phase.LEAVING}
    r.world.workers.step(5)
    r.tasks.run_once(r.world.clock.monotonic_ms())
    r.world.openers.step()
    with pytest.raises(StateError, match="disk is full"):
        r.tasks.run_once(r.world.clock.monotonic_ms())
    assert set(r.tasks.places().values()) == {Phase.WAITING}
    monkeypatch.undo()
    r.loop.fail(shut_application_down=None)
    r.loop.close()
    assert (r.places, r.world.state.held) == ({}, set())
