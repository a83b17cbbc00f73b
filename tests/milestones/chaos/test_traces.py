"""The golden trace of a campaign: the same each time, and the campaign is what it is without it."""

from __future__ import annotations

import pytest

from tests.milestones.chaos.campaign import play
from tests.milestones.chaos.traces import trace_of
from tests.milestones.chaos.world import INTOLERANT
from tests.milestones.golden_trace import ACTIONS, EVENTS, Line

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("stage", ["m4", INTOLERANT, "m5"])
def test_a_seed_has_the_same_trace_each_time(stage: str) -> None:
    first = trace_of(3, stage)
    assert first == trace_of(3, stage)
    assert len(first) > 100


def test_a_campaign_that_is_watched_goes_as_one_that_is_not() -> None:
    before = play(5, "m5").happened
    trace_of(5, "m5")
    assert play(5, "m5").happened == before


def test_every_event_and_every_action_is_met() -> None:
    missing = {*EVENTS.values(), *ACTIONS.values()}
    for seed in range(50, 200):  # from here on the rare ones are met soon
        for line in trace_of(seed, "m5"):
            missing -= {line.event, *line.actions}
        if not missing:
            return
    raise AssertionError(f"never met: {missing}")


def test_a_line_reads_as_a_row_of_a_table() -> None:
    line = Line("OPEN", "turn", ("begin", "step"), "False", "FLUSHING")
    assert str(line) == "OPEN | turn -> begin, step: False | FLUSHING"
