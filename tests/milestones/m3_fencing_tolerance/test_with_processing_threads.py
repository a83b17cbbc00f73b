"""Fencing tolerance where processing threads work on, whatever becomes of the transaction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milestones import wiring
from milestones.common.records import Record
from tests.milestones.m3_fencing_tolerance.scenario import SETTINGS, Scenario
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing

TOLERANT = wiring.parts(frozenset({"state_updater", "processing_threads", "fencing_tolerance"})).thread
SEEDS = range(40)


class TolerantProcessingWorld(ProcessingWorld):
    """A world of stage m3."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parts = replace(self.parts, confirmation=TOLERANT.confirmation, recovery=TOLERANT.recovery)


def scenario(seed: int) -> Scenario:
    """Now and then the stream thread has a turn while a record is in work."""
    made = Scenario(seed, TolerantProcessingWorld(heartbeat_interval_ms=10, **SETTINGS), RunningProcessing)
    running, world, busy = made.running, made.world, False
    assert isinstance(running, RunningProcessing)
    assert isinstance(world, TolerantProcessingWorld)

    def meanwhile(_: Record) -> None:
        nonlocal busy
        if not busy and not running.inside and made.chance.random() < 0.3:
            busy = True
            with running.turn():
                running.loop.run_once(world.clock.monotonic_ms())
            busy = False

    world.user_code.at = meanwhile
    return made


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_counted_once_and_no_task_is_lost_unless_an_outcome_stayed_unknown(seed: int) -> None:
    made = scenario(seed)
    made.play()
    made.must_be_exact()
    made.must_have_lost_nothing_in_vain()
