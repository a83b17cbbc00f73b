"""`kill -9` at each step in which state goes into the databases of m6, or out of them again: nothing is restored."""

from __future__ import annotations

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.cases.owned import all_is_owned
from compat_tests.cases.steps import counted
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.other_stages import the_one_before
from compat_tests.harness.world import World

STEPS = {
    "in": ("conversion.begun", "conversion.written", "conversion.store", "conversion.row"),
    "out": ("conversion.given", "conversion.folder", "conversion.all-given"),
}
"""Of a conversion into databases, and out of them, in their order."""


@pytest.fixture(autouse=True)
def from_m6_on(world: World) -> None:
    if not world.has("state_manager"):
        pytest.skip("stages before m6 have one layout")


def stages(world: World, way: str) -> tuple[str, str]:
    """The stage before a conversion, and the one after it."""
    found = the_one_before(world.stage), world.stage
    return found if way == "in" else found[::-1]


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("way", STEPS)
def test_a_conversion_that_is_killed_at_each_of_its_steps_ends_with_all_state(world: World, way: str) -> None:
    before, after = stages(world, way)
    app = counted(world, milestones=before)
    for step in STEPS[way]:
        app.start(fault=f"{step}:kill", milestones=after).dies(-9)
    world.feeds["in"].send(world.records(500, keys=200))
    app.start(milestones=after)
    end_and_judge(world, COUNT)
    assert not app.restored(), "nothing is read again"
    all_is_owned(world, app)


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("way", [pytest.param("in", marks=pytest.mark.full), "out"])
def test_a_conversion_that_is_killed_can_be_turned_back_at_each_of_its_steps(world: World, way: str) -> None:
    before, after = stages(world, way)
    app = counted(world, milestones=before)
    for step in STEPS[way]:
        world.feeds["in"].send(world.records(100, keys=50))
        app.start(fault=f"{step}:kill", milestones=after).dies(-9)
        app.start(milestones=before)
        world.finish(app)
        assert not app.restored(), f"nothing is read again after {step}"
        all_is_owned(world, app)
    app.start(milestones=before)
    end_and_judge(world, COUNT)
