"""Wall-clock punctuations come in time, though no turn looks at a task that isn't due."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.common.records import Record
from milestones.common.topology import Processor
from tests.milestones.fakes import Running, counting
from tests.milestones.stepped_workers import STAGES

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


class Ticking(Processor):
    """Has a punctuation each minute; `calls` tells when."""

    calls: list[int]

    def init(self, context: Any) -> None:
        super().init(context)
        self.context.schedule(MINUTE_MS, "wall-clock-time", self.calls.append)

    def process(self, record: Record) -> None:
        raise AssertionError("there is no input")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []
    monkeypatch.setattr(Ticking, "calls", made, raising=False)
    return made


def ticking(stage: str) -> Running:
    r = STAGES[stage](counting(processor=Ticking)).run(0)
    r.step(5, ms=100)
    return r


def put_back(r: Running) -> int:
    """The wall clock shows what it showed an hour ago: this."""
    shown: int = r.world.clock.wall_ms() - HOUR_MS
    r.world.clock.set_wall_ms(shown)
    return shown


@pytest.mark.parametrize("stage", STAGES)
def test_after_the_clock_was_put_back_the_first_call_comes_after_one_interval(stage: str, calls: list[int]) -> None:
    r = ticking(stage)
    began_ms = put_back(r)
    r.step(62, ms=1_000)
    assert len(calls) == 1
    assert calls[0] <= began_ms + MINUTE_MS + 1_000


@pytest.mark.parametrize("stage", STAGES)
def test_a_clock_that_was_put_back_during_a_pause_holds_up_no_punctuation_after_it(
    stage: str, calls: list[int]
) -> None:
    r = ticking(stage)
    r.world.context.thread_registry.pause({0})
    r.step(2)
    put_back(r)
    r.step(2)
    r.world.context.thread_registry.resume({0})
    r.step(62, ms=1_000)
    assert len(calls) == 1
