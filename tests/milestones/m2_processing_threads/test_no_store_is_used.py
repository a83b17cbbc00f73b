"""The stream thread uses no store, whatever comes: store openers, the state updater and processing threads do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from milestones.common.records import StoreId, TaskId
from milestones.common.state.engines.memory_engine import MemoryEngine, MemoryNamespace
from milestones.m1_state_updater import updater
from milestones.m1_state_updater.opening import StoreOpener
from milestones.m1_state_updater.updater import StateUpdater
from milestones.m2_processing_threads.worker import Worker
from milestones.stream_thread.loop import StreamLoop
from milestones.stream_thread.task_registry import Phase
from tests.milestones.disturber import Disturber
from tests.milestones.fakes import A, B, FakeTaskStorage, put
from tests.milestones.m2_processing_threads.test_whatever_comes import ProcessingDisturber
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing

USES = [(MemoryEngine, name) for name in ("__init__", "open", "apply", "drop", "close", "memory")]
USES += [(MemoryNamespace, name) for name in ("scan", "offset", "approximate_entries")]  # type: ignore[list-item]
USES += [(FakeTaskStorage, name) for name in ("clear", "close")]  # type: ignore[list-item]
OTHERS = {f"{kind.__name__}." for kind in (StoreOpener, StateUpdater, Worker)}
"""Whose turn is the innermost of a call that uses a store."""


def callers() -> Iterator[str]:
    frame = sys._getframe(1)
    while (outer := frame.f_back) is not None:
        frame = outer
        yield frame.f_code.co_qualname


def by_the_stream_thread() -> list[str]:
    """The way of a call to a store; nothing for one of another thread, or of the test."""
    way: list[str] = []
    for caller in callers():
        way.append(caller)
        if caller.startswith(tuple(OTHERS)) or caller == updater.end.__name__:
            return []
        if caller.startswith(f"{StreamLoop.__name__}."):
            return way
    return []


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The ways in which the stream thread used a store."""
    found: list[list[str]] = []
    for owner, name in USES:
        monkeypatch.setattr(owner, name, noting(getattr(owner, name), found))
    return found


def noting(original: Any, found: list[list[str]]) -> Any:
    def use(*arguments: Any, **named: Any) -> Any:
        if way := by_the_stream_thread():
            found.append([original.__qualname__, *way])
        return original(*arguments, **named)

    return use


class DamagingDisturber(ProcessingDisturber):
    """Finds damaged stores too, and has updaters and openers stand still."""

    def __init__(self, r: RunningProcessing, seed: int) -> None:
        super().__init__(r, seed)
        self.actions += [self.damage, self.hang_openers, self.hang_updaters]

    def damage(self) -> None:
        self.r.tasks.roll_back()
        self.r.tasks.rebuild([StoreId(TaskId(0, self.rng.randrange(4)), "counts")], "a test")

    def hang_openers(self) -> None:
        self.r.world.openers.hang = not self.r.world.openers.hang

    def hang_updaters(self) -> None:
        for one in self.r.world.updaters.all[-1:]:
            one.hangs = not one.hangs

    def calm(self) -> None:
        super().calm()
        self.r.world.openers.hang = False
        for one in self.r.world.updaters.all:
            one.hangs = False


@pytest.mark.parametrize("seed", range(6))
def test_the_stream_thread_uses_no_store_whatever_comes(seed: int, used: list[list[str]]) -> None:
    r = RunningProcessing(ProcessingWorld())
    disturber: Disturber = DamagingDisturber(r, seed)
    r.rebalance(0, 1, standby=frozenset({TaskId(0, 2)}))
    for _ in range(250):
        disturber.once()
        r.step(ms=disturber.rng.randrange(60))
    disturber.calm()
    r.rebalance(0, 1, 2, 3, steps=60, ms=100)
    assert set(r.places.values()) == {"processing"}
    r.loop.shut_down(leave_group=True)
    r.loop.close()
    assert (r.world.state.held, used) == (set(), [])


def damaged() -> RunningProcessing:
    """A store of 0_0 is damaged, while no opener moves."""
    r = RunningProcessing(ProcessingWorld())
    for partition in (0, 1):
        put(r.world, partition, "x", "y")
    r.run(0, 1).step(5, ms=100)
    r.world.openers.hang = True
    r.tasks.roll_back()
    r.tasks.rebuild([StoreId(A, "counts")], "a block is damaged")
    r.step(5)
    return r  # type: ignore[return-value]


def test_a_damaged_store_is_set_aside_by_an_opener_and_keeps_up_no_other_task(used: list[list[str]]) -> None:
    r = damaged()
    assert r.tasks.places() == {A: Phase.LEAVING, B: Phase.PROCESSING}
    assert r.world.state.content(A) != {}
    r.world.openers.hang = False
    r.step(20)
    assert (r.places, used) == ({A: "processing", B: "processing"}, [])
    assert (r.world.state.opens, r.world.state.tasks[A].counters.restored) == (2, 2)
    assert r.world.state.content(A) == {b"k": (2).to_bytes(8, "big")}


def test_a_damaged_store_of_a_task_that_is_taken_away_meanwhile_is_closed() -> None:
    r = damaged()
    r.rebalance(1)
    assert r.tasks.owned == {B}
    r.world.openers.hang = False
    r.step(10)
    assert (r.places, r.world.state.held) == ({B: "processing"}, {B})


def test_how_far_a_task_is_whose_damaged_store_is_set_aside_is_told_without_that_store() -> None:
    r = damaged()
    r.rebalance(0, 1)
    assert r.world.member.joins[-1].positions[A] == 0
