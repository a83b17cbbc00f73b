"""Exactly once, whatever becomes of the ends of transactions: a coordinator in memory, and chance."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.m3_fencing_tolerance.transaction import ResolvedTransaction
from tests.milestones.m3_fencing_tolerance.scenario import Scenario

SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_counted_once_and_no_task_is_lost_unless_an_outcome_stayed_unknown(seed: int) -> None:
    scenario = Scenario(seed)
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
    monkeypatch.setattr(ResolvedTransaction, "_go_on", lambda *_: None)
    assert any(_goes_wrong(seed) for seed in SEEDS)


def test_the_simulation_sees_an_outcome_that_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    def guess(self: Any, error: Exception, offsets: Any, budget: Any) -> None:
        raise error

    monkeypatch.setattr(ResolvedTransaction, "_resolve", guess)
    assert any(_goes_wrong(seed) for seed in SEEDS)
