"""Stores are opened and closed by threads of their own: no disk keeps up the stream thread, nor another task."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from milestones.common import serdes
from milestones.common.errors import StateError, StateLockedError
from milestones.common.kafka.membership import JoinNeeded
from milestones.common.records import TaskId
from milestones.common.state.spec import StoreSpec
from milestones.m1_state_updater.opening import (
    OPENERS,
    REST_MS,
    OpenerHandle,
    StoreOpener,
    ThreadedOpening,
    Turn,
)
from milestones.parts import ClosedStores, OpenedStores, StoreAnswer
from milestones.stream_thread.task_registry import Phase
from milestones.testing import until
from tests.milestones.fakes import A, B, FakeState, World, counting, put
from tests.milestones.stepped import Openers, RunningUpdater, UpdaterWorld

C = TaskId(0, 2)
SOON_MS = 20_000


class Disk:
    """Opens a world's stores; those of `slow` tasks once `go` is set. `owners`: the threads that did."""

    def __init__(self, state: FakeState) -> None:
        self.slow: set[TaskId] = set()
        self.go = threading.Event()
        self.owners: set[str] = set()
        self._open = state.open
        state.open = self.open  # type: ignore[method-assign]

    def open(self, id: TaskId, *arguments: Any) -> Any:
        self.owners.add(threading.current_thread().name)
        if id in self.slow:
            self.go.wait()
        return self._open(id, *arguments)


@pytest.fixture
def world() -> World:
    return World(counting())


@pytest.fixture
def disk(world: World) -> Iterator[Disk]:
    disk = Disk(world.state)
    yield disk
    disk.go.set()


@pytest.fixture
def opening(world: World) -> Iterator[ThreadedOpening]:
    opening = ThreadedOpening(world.context)
    yield opening
    opening.close(0)


def answers(opening: ThreadedOpening, count: int) -> list[StoreAnswer]:
    found: list[StoreAnswer] = []
    while len(found) < count:
        opening.wait(SOON_MS)
        found += (more := opening.run_once())
        assert more, "no answer came"
    return found


def test_a_store_that_takes_long_to_open_keeps_up_no_other(disk: Disk, opening: ThreadedOpening) -> None:
    disk.slow.add(A)
    for partition in range(50):
        opening.open(TaskId(0, partition))
    assert {answer.task.partition for answer in answers(opening, 49)} == set(range(1, 50))
    disk.go.set()
    (last,) = answers(opening, 1)
    assert (last.task, isinstance(last, OpenedStores)) == (A, True)


def test_fifty_tasks_are_opened_by_a_few_threads_that_say_whose_they_are(disk: Disk, opening: ThreadedOpening) -> None:
    disk.slow.update(TaskId(0, partition) for partition in range(50))
    for task in sorted(disk.slow):
        opening.open(task)
    disk.go.set()
    answers(opening, 50)
    assert disk.owners <= {f"app-StoreOpener-1-{number}" for number in range(1, OPENERS + 1)}


def test_stores_are_closed_there_too(world: World, disk: Disk, opening: ThreadedOpening) -> None:
    opening.open(A)
    (opened,) = answers(opening, 1)
    assert isinstance(opened, OpenedStores)
    assert opened.stores is not None
    assert world.state.held == {A}
    opening.close_stores(A, opened.stores)
    assert answers(opening, 1) == [ClosedStores(A)]
    assert world.state.held == set()


def test_stores_are_closed_before_others_that_wait_are_opened(world: World) -> None:
    openers = Openers(world.clock)
    opening = openers.opening(world.context)
    opening.open(A)
    openers.step()
    (opened,) = opening.run_once()
    assert isinstance(opened, OpenedStores)
    assert opened.stores is not None
    for partition in range(1, 50):
        opening.open(TaskId(0, partition))
    opening.close_stores(A, opened.stores)
    openers.step()
    assert A not in world.state.held


def test_a_request_to_open_stores_that_is_cancelled_in_time_is_answered_at_once_without_any(world: World) -> None:
    openers = Openers(world.clock)
    opening = openers.opening(world.context)
    opening.open(A)
    opening.open(B)
    opening.cancel(B)
    assert opening.run_once() == [OpenedStores(B)]
    openers.step()
    (opened,) = opening.run_once()
    opening.cancel(A)
    assert (opened.task, opening.run_once(), world.state.opens) == (A, [], 1)


@pytest.mark.parametrize("error", [StateError("the disk is full"), StateLockedError("held"), RuntimeError("a bug")])
def test_what_goes_wrong_is_in_the_answer_and_the_opener_goes_on(
    world: World, opening: ThreadedOpening, error: Exception
) -> None:
    world.state.errors[A] = error
    opening.open(A)
    assert answers(opening, 1) == [OpenedStores(A, error=error)]
    opening.open(B)
    assert [answer.task for answer in answers(opening, 1)] == [B]


def test_when_no_opener_can_be_started_requests_wait_until_one_can(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    openers, full = Openers(world.clock), True

    def launch(name: str, opener: StoreOpener) -> OpenerHandle:
        if full:
            raise RuntimeError("can't start new thread")
        return openers.launch(name, opener)

    opening = ThreadedOpening(world.context, launch)
    opening.open(A)
    assert (opening.run_once(), opening.run_once(), world.state.opens) == ([], [], 0)
    assert caplog.text.count("can't start new thread") == 1
    full = False
    opening.run_once()
    openers.step()
    assert [answer.task for answer in opening.run_once()] == [A]


def test_an_opener_that_cannot_be_started_beside_others_is_missed_by_nobody(world: World) -> None:
    openers = Openers(world.clock)

    def launch(name: str, opener: StoreOpener) -> OpenerHandle:
        if openers.all:
            raise RuntimeError("can't start new thread")
        return openers.launch(name, opener)

    opening = ThreadedOpening(world.context, launch)
    opening.open(A)
    opening.open(B)
    openers.step()
    openers.step()
    assert [answer.task for answer in opening.run_once()] == [A, B]


@pytest.mark.parametrize("error", [None, StateError("the disk is full")])
def test_damaged_stores_are_set_aside_there_too_and_stay_open_unless_that_fails(
    world: World, error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    openers = Openers(world.clock)
    opening = openers.opening(world.context)
    stores = world.state.open(A, world.context.application.subtopology(0).stores)
    clear = Mock(side_effect=error)
    monkeypatch.setattr(stores, "clear", clear)
    opening.set_aside(A, stores, {"counts": "a block is damaged"})
    assert clear.call_count == 0
    openers.step()
    clear.assert_called_once_with("counts", "a block is damaged")
    assert opening.run_once() == [OpenedStores(A, None if error else stores, error)]
    assert world.state.held == (set() if error else {A})


def test_stores_that_are_open_only_after_the_end_are_closed_by_their_opener(
    world: World, disk: Disk, opening: ThreadedOpening
) -> None:
    disk.slow.add(A)
    opening.open(A)
    opening.close(0)
    disk.go.set()
    for thread in threading.enumerate():
        if thread.name.startswith("app-StoreOpener"):
            thread.join(SOON_MS / 1_000)
    assert (world.state.opens, world.state.held) == (1, set())


def test_at_the_end_no_opener_is_left(disk: Disk, opening: ThreadedOpening) -> None:
    for partition in range(50):
        opening.open(TaskId(0, partition))
    opening.close(SOON_MS)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("app-StoreOpener")]


def test_stores_that_were_opened_and_not_taken_are_closed_at_the_end(world: World, opening: ThreadedOpening) -> None:
    opening.open(A)
    opening.wait(SOON_MS)
    opening.close(SOON_MS)
    assert (world.state.opens, world.state.held) == (1, set())


def test_stores_that_were_opened_and_not_taken_are_closed_by_an_opener(world: World) -> None:
    openers = Openers(world.clock)
    opening = openers.opening(world.context)
    opening.open(A)
    openers.step()
    openers.hang = True
    opening.close(0)
    assert world.state.held == {A}
    openers.hang = False
    openers.step()
    assert world.state.held == set()


# -- one after the other


def in_a_thread(turn: Turn, done: list[str]) -> threading.Thread:
    def take() -> None:
        with turn.taken():
            done.append("another")

    thread = threading.Thread(target=take)
    thread.start()
    return thread


def test_an_opener_waits_for_its_turn() -> None:
    turn, done = Turn(slow_s=SOON_MS / 1_000), list[str]()
    with turn.taken():
        other = in_a_thread(turn, done)
        done.append("one")
    other.join(SOON_MS / 1_000)
    assert done == ["one", "another"]


def test_an_opener_that_takes_long_loses_its_turn_and_takes_no_other_ones_at_its_end() -> None:
    turn, done = Turn(slow_s=0.01), list[str]()
    with turn.taken():
        in_a_thread(turn, done).join(SOON_MS / 1_000)
        assert done == ["another"]
    with turn.taken():
        done.append("one")
    assert done == ["another", "one"]


def test_openers_of_all_stream_threads_take_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milestones.m1_state_updater.opening.TURN", Turn(slow_s=SOON_MS / 1_000))
    begun, together, opened = threading.Event(), list[bool](), world.state.open

    def open_stores(id: TaskId, *arguments: Any) -> Any:
        if id == B:
            begun.set()
        else:
            other.open(B)
            together.append(begun.wait(0.05))
        return opened(id, *arguments)

    world.state.open = open_stores  # type: ignore[method-assign]
    one, other = ThreadedOpening(world.context), ThreadedOpening(world.context)
    one.open(A)
    assert [answer.task for answer in answers(one, 1) + answers(other, 1)] == [A, B]
    assert together == [False], "both hold Python's global lock"
    one.close(SOON_MS)
    other.close(SOON_MS)


@pytest.mark.parametrize(("took_ms", "rest_ms"), [(0, 0), (30, 30), (5_000, REST_MS)])
def test_an_opener_rests_after_an_opening_so_that_the_stream_thread_has_its_share(
    world: World, took_ms: int, rest_ms: int
) -> None:
    opened = world.state.open
    world.state.open = lambda *arguments: (world.clock.advance(took_ms), opened(*arguments))[1]  # type: ignore[method-assign]
    openers = Openers(world.clock)
    opening = openers.opening(world.context)
    opening.open(A)
    began_ms = world.clock.monotonic_ms()
    openers.step()
    assert world.clock.monotonic_ms() - began_ms == took_ms + rest_ms
    opening.close(0)


# -- in a stream loop


def hanging() -> RunningUpdater:
    """Task 0_1 processes; the stores of 0_0 are being opened, which takes as long as `openers.hang`."""
    r = RunningUpdater(UpdaterWorld(counting())).run(1)
    r.world.openers.hang = True
    r.rebalance(0, 1, steps=3)
    assert r.tasks.places() == {A: Phase.OPENING, B: Phase.PROCESSING}
    return r


def release(r: RunningUpdater) -> None:
    r.world.openers.hang = False
    r.step(10)


def test_tasks_that_process_go_on_while_the_stores_of_another_one_are_opened() -> None:
    r = hanging()
    for number in range(5):
        r.feed(str(number), partition=1)
    assert r.tasks.processing[B].counters.processed == 5
    release(r)
    assert r.tasks.processing.keys() == {A, B}


def test_a_task_that_is_revoked_while_its_stores_are_opened_is_given_away_at_once_and_closed_once_they_are() -> None:
    r = hanging()
    r.rebalance(1)
    assert r.tasks.owned == {B}
    assert r.world.member.rejoins == ["tasks were released to their new owners"]
    release(r)
    assert (r.tasks.places(), r.world.state.held) == ({B: Phase.PROCESSING}, {B})


@pytest.mark.parametrize("standby", [False, True])
def test_a_task_that_is_wanted_again_while_its_stores_are_opened_is_made_of_those(standby: bool) -> None:
    r = hanging()
    r.rebalance(1)
    r.rebalance(*([1] if standby else [0, 1]), standby=frozenset({A} if standby else ()))
    release(r)
    assert r.tasks.places() == {A: Phase.STANDBY if standby else Phase.PROCESSING, B: Phase.PROCESSING}
    assert r.world.state.opens == 2


@pytest.mark.parametrize("wanted_again", [False, True])
def test_stores_of_a_task_that_is_revoked_before_their_turn_came_are_not_opened(
    monkeypatch: pytest.MonkeyPatch, wanted_again: bool
) -> None:
    monkeypatch.setattr("milestones.m1_state_updater.opening.OPENERS", 1)
    r = hanging()
    r.rebalance(0, 1, 2)
    r.step(3)
    assert r.tasks.places() == {A: Phase.OPENING, B: Phase.PROCESSING, C: Phase.OPENING}
    r.rebalance(0, 1)
    if wanted_again:
        r.assign(0, 1, 2)
    release(r)
    assert r.tasks.places() == dict.fromkeys([A, B, *([C] if wanted_again else [])], Phase.PROCESSING)
    assert r.world.state.opens == 2 + wanted_again


def test_a_task_that_is_wanted_again_while_its_stores_are_closed_is_opened_anew() -> None:
    r = RunningUpdater(UpdaterWorld(counting())).run(0, 1)
    r.world.openers.hang = True
    r.rebalance(1)
    assert r.tasks.places() == {A: Phase.LEAVING, B: Phase.PROCESSING}
    r.rebalance(0, 1)
    assert r.tasks.owned == {A, B}
    release(r)
    assert (r.tasks.processing.keys(), r.world.state.opens) == ({A, B}, 3)


def test_how_far_a_task_is_whose_stores_are_closed_right_now_is_told_to_the_group() -> None:
    r = RunningUpdater(UpdaterWorld(counting()))
    put(r.world, 0, "x", "y")
    r.run(0)
    r.step(4, ms=100)
    r.world.openers.hang = True
    r.rebalance()
    r.rebalance()
    assert r.world.member.joins[-1].positions == {A: 2}
    release(r)
    assert r.tasks.places() == {}


def test_how_far_a_task_is_whose_stores_were_opened_a_moment_ago_is_told_to_the_group() -> None:
    r = hanging()
    r.world.state.closed = {A: 7}
    r.world.openers.hang = False
    r.world.openers.step()
    assert (r.tasks.places()[A], r.world.state.held) == (Phase.OPENING, {A, B})
    r.hear(JoinNeeded("a test"))
    assert r.world.member.joins[-1].positions == {A: 7}


def test_a_store_of_64_tasks_with_three_each_that_hangs_for_minutes_keeps_up_its_own_task_only() -> None:
    topology = counting()
    for name in ("second", "third"):
        topology.add_state_store(StoreSpec(name, key_serde=serdes.STRING, value_serde=serdes.LONG), "counting")
    world = UpdaterWorld(topology, {"max_poll_interval_ms": 60_000})
    world.parts = replace(world.parts, opening=ThreadedOpening)
    disk, r = Disk(world.state), RunningUpdater(world)
    disk.slow.add(A)
    r.rebalance(*range(64))
    until(lambda: (r.step(ms=1), len(r.tasks.processing) == 63)[1], "all others process", SOON_MS / 1_000)
    for _ in range(10):
        r.feed("x", partition=1, steps=3, ms=18_000)
    assert (r.tasks.places()[A], len(world.state.stores[B])) == (Phase.OPENING, 3)
    assert r.tasks.processing[B].counters.processed == 10
    r.rebalance(*range(1, 64))
    assert A not in r.tasks.owned
    disk.go.set()
    until(lambda: (r.step(ms=1), A not in world.state.held)[1], "its stores are closed", SOON_MS / 1_000)
    assert len(r.tasks.processing) == 63
    r.loop.shut_down(leave_group=True)
    r.loop.close()
    assert world.state.held == set()


def test_the_end_of_a_thread_waits_for_stores_that_are_being_opened_and_closes_them() -> None:
    r = hanging()
    r.loop.shut_down(leave_group=True)
    r.world.openers.hang = False
    r.loop.close()
    assert (r.tasks.places(), r.world.state.held) == ({}, set())


def test_the_end_of_a_thread_does_not_wait_for_ever_for_stores_that_are_being_opened(
    caplog: pytest.LogCaptureFixture,
) -> None:
    r = hanging()
    r.loop.shut_down(leave_group=True)
    r.loop.close()
    assert "ends without tasks 0_0" in caplog.text
    r.world.openers.hang = False
    r.world.openers.step()
    assert r.world.state.held == set()


def test_tasks_whose_stores_come_one_after_the_other_are_fetched_for_from_the_same_turn_on() -> None:
    """A partition that comes during a fetch of others waits for that one's answer."""
    r = RunningUpdater(UpdaterWorld(counting()))
    r.rebalance(*range(3 * OPENERS), steps=1)
    fetched = []
    while not r.tasks.all_running:
        r.step()
        fetched.append(len(r.world.consumer.assigned))
    assert set(fetched) == {0, 3 * OPENERS}
    assert fetched.count(0) >= 3, "the stores were opened in several turns"
