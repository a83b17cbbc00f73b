"""Exactly once, whatever becomes of the ends of transactions: a coordinator in memory, and chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from milestones import wiring
from milestones.common.records import Record
from milestones.common.task.task import Task
from milestones.m3_fencing_tolerance.transaction import ResolvedTransaction
from tests.milestones.m3_fencing_tolerance.scenario import SETTINGS, Scenario
from tests.milestones.planted import keep_programs
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing

SEEDS = range(60)
THREADED = wiring.parts(frozenset({"state_updater", "processing_threads", "fencing_tolerance"})).thread


class TolerantProcessingWorld(ProcessingWorld):
    """A world of stage m3."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parts = replace(self.parts, confirmation=THREADED.confirmation, recovery=THREADED.recovery)


def threaded(seed: int) -> Scenario:
    """Processing threads work on, whatever becomes of the transaction. Now and then the stream thread has a turn
    while a record is in work."""
    made = Scenario(seed, TolerantProcessingWorld(heartbeat_interval_ms=10, **SETTINGS), RunningProcessing)
    running: Any = made.running
    world, busy = running.world, False

    def meanwhile(_: Record) -> None:
        nonlocal busy
        if not busy and not running.inside and made.chance.random() < 0.3:
            busy = True
            with running.turn():
                running.loop.run_once(world.clock.monotonic_ms())
            busy = False

    world.user_code.at = meanwhile
    return made


@pytest.mark.parametrize(("make", "seed"), [*product([Scenario], SEEDS), *product([threaded], range(40))])
def test_every_record_is_counted_once_and_no_task_is_lost_unless_an_outcome_stayed_unknown(
    make: Callable[[int], Scenario], seed: int
) -> None:
    scenario = make(seed)
    scenario.play()
    scenario.must_be_exact()
    scenario.must_have_lost_nothing_in_vain()


def _goes_wrong(seed: int) -> bool:
    scenario = Scenario(seed)
    try:
        scenario.play()
        scenario.must_be_exact()
    except AssertionError:
        return True
    return False


def test_the_simulation_sees_a_producer_that_goes_on_over_a_broken_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milestones.m3_fencing_tolerance.transaction.ready_for_the_next", lambda *_: ())
    assert any(_goes_wrong(seed) for seed in SEEDS)


def _guess(self: Any, error: Exception, offsets: Any, budget: Any) -> None:
    raise error


def test_the_simulation_sees_an_outcome_that_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResolvedTransaction, "_resolve", _guess)
    monkeypatch.setattr(Task, "compare", lambda *_: None)
    assert any(_goes_wrong(seed) for seed in SEEDS)


def test_a_wrong_guess_would_be_mended_where_the_committed_offsets_contradict_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ResolvedTransaction, "_resolve", _guess)
    assert not any(_goes_wrong(seed) for seed in SEEDS)


def test_the_simulation_sees_a_program_that_is_kept_over_a_roll_back(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_programs(monkeypatch)
    assert any(_goes_wrong(seed) for seed in SEEDS)
