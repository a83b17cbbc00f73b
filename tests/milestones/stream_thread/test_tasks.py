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
from milestones.common.kafka.membership import Assigned, Committed, StaleGenerationError
from milestones.common.records import StoreId, TaskId, TopicPartition
from milestones.common.task.task import State, Task
from milestones.stream_thread.task_registry import Phase
from milestones.stream_thread.tasks import LOCK_PAUSE_MS, ThreadTasks
from tests.milestones.disturber import Disturber
from tests.milestones.fakes import (
    CHANGELOG,
    FENCED,
    Counting,
    Running,
    World,
    assignment,
    counting,
    passing,
    put,
)
from tests.milestones.stepped import RunningUpdater
from tests.milestones.stepped_workers import RunningProcessing

A, B = TaskId(0, 0), TaskId(0, 1)
IN, LOG = TopicPartition("in", 0), TopicPartition(CHANGELOG, 0)


def running(*partitions: int, world: World | None = None) -> Running:
    return Running(world).run(*partitions)


def places(tasks: ThreadTasks) -> dict[TaskId, str]:
    return {id: phase.value for id, phase in tasks.places().items()}


def test_a_stateless_task_goes_from_assignment_to_processing_without_restoration() -> None:
    r = running(0, world=World(passing()))
    assert places(r.tasks) == {A: "processing"}
    assert r.world.restorer.moves == []


def test_a_task_waits_while_somebody_else_holds_its_directory_and_the_others_go_on() -> None:
    world = World()
    world.state.locked.add(A)
    r = Running(world)
    r.rebalance(0, 1)
    r.step(5)
    assert places(r.tasks) == {A: "waiting", B: "processing"}
    assert not r.tasks.all_running
    world.state.locked.clear()
    world.clock.advance(LOCK_PAUSE_MS)
    r.step(5)
    assert places(r.tasks) == {A: "processing", B: "processing"}


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
    assert r.tasks.told_places() == {A: "waiting for its lock"}
    r.world.state.locked.clear()
    r.step(20, ms=10)
    assert places(r.tasks) == {A: "processing"}


def test_a_task_that_waits_for_its_directory_is_owned_and_can_be_revoked() -> None:
    world = World()
    world.state.locked.add(A)
    r = Running(world)
    r.rebalance(0)
    assert r.tasks.owned == {A}
    r.rebalance()
    assert r.tasks.owned == frozenset()
    assert world.state.held == set()


def test_a_new_assignment_leaves_tasks_that_still_wait_where_they_are() -> None:
    world = World()
    world.state.locked.add(A)
    r = Running(world)
    r.rebalance(0)
    r.rebalance(0, 1)
    world.state.locked.clear()
    world.clock.advance(LOCK_PAUSE_MS)
    r.step(5)
    assert places(r.tasks) == {A: "processing", B: "processing"}


def test_a_task_whose_state_cannot_be_used_ends_the_thread_and_the_others_are_closed() -> None:
    world = World()
    world.state.errors[B] = StateError("the disk is full")
    r = Running(world)
    with pytest.raises(StateError, match="disk is full"):
        r.rebalance(0, 1)
    r.loop.fail(shut_application_down=None)
    assert world.state.held == set()


@pytest.mark.parametrize("stage", [Running, RunningUpdater])
def test_a_task_whose_stores_could_not_be_opened_is_opened_again_when_the_thread_recovers(stage: type[Running]) -> None:
    r = stage().run(1)
    r.world.state.errors[A] = StateCorruptError("bad block")
    r.rebalance(0, 1)
    r.step(3)
    assert (r.tasks.owned, A in r.tasks.processing) == ({A, B}, False)
    r.world.state.errors.clear()
    r.step(5)
    assert places(r.tasks) == {A: "processing", B: "processing"}


def test_a_task_is_positioned_only_once_its_committed_offsets_are_stable() -> None:
    world = World()
    world.member.holds = True
    r = Running(world)
    r.rebalance(0)
    r.step(3)
    assert places(r.tasks) == {A: "positioning"}
    assert len(world.member.questions) == 1
    world.member.answer()
    r.step(5)
    assert places(r.tasks) == {A: "processing"}


def test_offsets_that_do_not_get_stable_within_task_timeout_end_the_thread() -> None:
    world = World(settings={"task_timeout_ms": 1_000})
    world.member.holds = True
    r = Running(world)
    r.rebalance(0)
    with pytest.raises(TimeoutExceededError, match=r"0_0.*task_timeout_ms"):
        r.step(ms=1_001)


def test_a_question_that_a_lost_membership_left_unanswered_is_asked_again() -> None:
    world = World()
    world.member.holds = True
    r = Running(world)
    r.rebalance(0)
    world.member.answer(error=StaleGenerationError("lost"))
    world.member.holds = False
    r.step(5)
    assert places(r.tasks) == {A: "processing"}


def test_a_question_that_the_coordinator_refuses_ends_the_thread_with_the_reason() -> None:
    world = World()
    world.member.holds = True
    r = Running(world)
    r.rebalance(0)
    world.member.answer(error=MembershipError("OffsetFetch of in: TOPIC_AUTHORIZATION_FAILED"))
    with pytest.raises(MembershipError, match="TOPIC_AUTHORIZATION_FAILED"):
        r.step()


def test_an_answer_to_the_question_of_a_task_that_was_closed_since_is_not_taken() -> None:
    world = World()
    world.member.holds = True
    world.commit(IN, 5)
    world.logs[IN].control(9)
    r = Running(world)
    r.rebalance(0)
    r.rebalance()
    old = world.member.questions.pop()
    world.member.holds = False
    old[2].try_put(Committed(old[0], {}))
    r.rebalance(0)
    r.step(5)
    assert world.state.tasks[A].input.position(IN) == 5
    assert places(r.tasks) == {A: "processing"}


def test_a_task_that_is_revoked_while_positioning_is_closed() -> None:
    world = World()
    world.member.holds = True
    r = Running(world)
    r.rebalance(0)
    r.rebalance()
    assert world.state.tasks[A].state is State.CLOSED
    world.member.answer()
    r.step()
    assert places(r.tasks) == {}


def test_a_task_that_is_revoked_while_restoring_is_closed_and_keeps_what_is_restored() -> None:
    world = World()
    world.logs[LOG].add(*"abc").control()
    r = Running(world)
    world.member.events.append(_assigned(world, 0))
    r.step()
    world.restorer.next.append(Fetched())
    r.step()
    assert places(r.tasks) == {A: "restoring"}
    r.rebalance()
    assert world.state.tasks[A].state is State.CLOSED
    assert world.restorer.assigned == frozenset()
    assert world.state.held == set()


def test_a_task_that_is_revoked_in_the_very_round_after_its_restoration_is_closed() -> None:
    world = World()
    world.logs[LOG].add(*"abc")
    r = Running(world)
    world.member.events.append(_assigned(world, 0))
    while not r.loop._restoration._restored:  # type: ignore[attr-defined]
        r.step()
    assert places(r.tasks) == {A: "restoring"}
    world.member.events.append(_assigned(world))
    r.step()
    assert world.state.tasks[A].state is State.CLOSED
    assert places(r.tasks) == {}


def test_a_task_that_is_revoked_while_starting_is_closed() -> None:
    world = World(passing())
    world.requests.holds = True
    r = Running(world)
    r.rebalance(0)
    r.step(2)
    assert places(r.tasks) == {A: "starting"}
    r.rebalance()
    world.requests.answer()
    r.step()
    assert world.state.tasks[A].state is State.CLOSED
    assert places(r.tasks) == {}


def test_a_revoked_task_is_committed_before_it_is_closed() -> None:
    world = World()
    put(world, 0, "a", "b")
    r = running(0, 1, world=world)
    r.step()
    r.rebalance(1)
    assert world.producer.committed[IN].offset == 2
    assert world.state.tasks[A].state is State.CLOSED
    assert world.state.offset(A) == 2
    assert places(r.tasks) == {B: "processing"}


def test_a_rolled_back_task_reads_its_input_again_from_the_last_commit_with_its_stores_open() -> None:
    world = World()
    put(world, 0, "a", "b")
    r = running(0, world=world)
    r.step()
    world.commit(IN, 0)
    r.tasks.roll_back()
    assert places(r.tasks) == {A: "positioning"}
    assert world.state.held == {A}
    assert world.consumer.assigned == frozenset()
    r.step(5)
    assert places(r.tasks) == {A: "processing"}
    assert world.state.tasks[A].epoch == 1
    r.step(3, ms=100)
    assert world.state.content(A) == {b"k": (2).to_bytes(8, "big")}


def test_a_rolled_back_task_waits_for_the_new_generation_before_it_asks_for_offsets() -> None:
    world = World()
    r = running(0, world=world)
    world.member.gate = True
    r.tasks.roll_back()
    r.step(3)
    assert places(r.tasks) == {A: "positioning"}
    world.member.gate = False
    r.step(3)
    assert places(r.tasks) == {A: "processing"}


def test_a_rolled_back_task_can_be_closed_at_once() -> None:
    r = running(0)
    r.tasks.roll_back()
    r.tasks.close([A])
    assert r.world.state.tasks[A].state is State.CLOSED
    r.step()
    assert places(r.tasks) == {}


def test_a_roll_back_leaves_restoring_tasks_where_they_are() -> None:
    world = World()
    r = running(0, world=world)
    world.logs[TopicPartition(CHANGELOG, 1)].add("x")
    world.requests.holds = True
    r.rebalance(0, 1)
    r.step()
    r.tasks.roll_back()
    assert places(r.tasks) == {A: "positioning", B: "restoring"}


class FailsToClose(Counting):
    close_error = ValueError("user's close")


def test_when_one_task_does_not_close_cleanly_the_others_are_closed_all_the_same() -> None:
    world = World(counting(processor=FailsToClose))
    r = running(0, 1, world=world)
    with pytest.raises(ValueError, match="user's close"):
        r.tasks.close([A, B])
    r.step()
    assert world.state.held == set()
    assert {task.state for task in world.state.tasks.values()} == {State.CLOSED}
    assert places(r.tasks) == {}


class FailsToInit(Counting):
    init_error = ValueError("user's init")


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("changelog", [(), ("x",)])
def test_when_one_task_cannot_start_no_other_is_lost_sight_of(changelog: tuple[str, ...], committed: bool) -> None:
    world = World(counting(processor=FailsToInit))
    for partition in (0, 1, 2):
        world.logs[TopicPartition(CHANGELOG, partition)].add(*changelog)
        if committed:
            world.commit(TopicPartition("in", partition), 0)
    r = Running(world)
    with pytest.raises(ProcessingError, match="user's init"):
        r.run(0, 1, 2)
    r.loop.fail(shut_application_down=None)
    assert world.state.held == set()
    assert places(r.tasks) == {}


def test_a_consumer_that_refuses_an_assignment_leaves_no_ghost_of_the_task() -> None:
    world = World(passing())
    r = Running(world)
    world.consumer.fail_assign = FENCED
    r.rebalance(0)
    r.step()
    world.consumer.fail_assign = None
    r.rebalance(0)
    r.step(3)
    assert places(r.tasks) == {A: "processing"}


@pytest.mark.parametrize("seed", range(4))
def test_every_task_is_in_one_place_at_a_time_whatever_comes(seed: int) -> None:
    r = Running(World())
    world, disturber = r.world, Disturber(r, seed)
    r.rebalance()
    for _ in range(300):
        disturber.once()
        r.step(ms=disturber.rng.randrange(60))
        where = places(r.tasks)
        recycled = {entry.id for entry in r.tasks._registry if entry.stores is not None}
        assert world.state.held == {id for id, place in where.items() if place != "waiting"} | recycled
        fed = {TopicPartition("in", id.partition) for id, place in where.items() if place == "processing"}
        assert world.consumer.assigned == fed
        restored = {id for id, place in where.items() if place in ("standby", "restoring")}
        assert world.restorer.assigned <= {TopicPartition(CHANGELOG, id.partition) for id in restored}
    disturber.calm()
    r.rebalance(0, 1, 2, 3)
    r.step(20, ms=100)
    assert set(places(r.tasks).values()) == {"processing"}


def _assigned(world: World, *partitions: int) -> Assigned:
    return Assigned(1, "member", assignment(world, *partitions))



def test_a_damaged_store_that_cannot_be_set_aside_costs_no_other_task_its_way_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    r = RunningProcessing().run(0, 1, 2)

    def set_aside(task: Task, store: str, reason: object) -> None:
        raise StateError("the disk is full")

    monkeypatch.setattr(Task, "set_aside", set_aside)
    monkeypatch.setattr(Task, "applying", True)  # so that a processing thread has to do something before
    r.tasks.roll_back()
    r.tasks.rebuild([StoreId(TaskId(0, partition), "counts") for partition in range(3)], "a test")
    assert set(r.tasks.places().values()) == {Phase.RETURNING}
    r.world.workers.step(5)
    with pytest.raises(StateError, match="disk is full"):
        r.tasks.run_once(r.world.clock.monotonic_ms())
    assert set(r.tasks.places().values()) == {Phase.POSITIONING}
    monkeypatch.undo()
    r.loop.fail(shut_application_down=None)
    r.loop.close()
    assert (places(r.tasks), r.world.state.held) == ({}, set())
