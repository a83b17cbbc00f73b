"""A runtime whose roll-backs leave something behind is found: by what user code remembers, and in changelogs."""

from __future__ import annotations

import pytest

from compat_tests import ALO, EOS
from compat_tests.apps.memories import MOMENTS
from compat_tests.cases.steps import armed, feed_until_it_says
from compat_tests.harness.judge import judge_disks
from compat_tests.harness.world import World
from compat_tests.oracles.findings import kinds
from compat_tests.planted.conftest import Break, judged
from compat_tests.planted.mutated import NOTHING
from milestones.testing import DeadlineError

STEP, TIMES = "commit.after-flush", 3

GONE = "what init has written is gone"
"""What the user code says when it finds that by itself, and goes on no more: a roll-back of a task's first commit."""


def rolled_back(world: World) -> bool:
    """User code that remembers meets roll-backs, goes on, and ends. False: it has found that something is gone."""
    world.create(ticks=2)
    feed = world.feeds["in"]
    app = world.instance("remembering").start(fault=armed(STEP, "abort", TIMES, first=2))
    feed_until_it_says(world, app, f"injected at {STEP}", TIMES)
    feed.send(world.records(100, keys=50))
    try:
        world.finish(app)
    except DeadlineError:
        if GONE not in app.log():
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("mutation", "found"),
    [("a-program-is-kept-over-a-roll-back", True), pytest.param(NOTHING, False, marks=pytest.mark.full)],
)
def test_a_program_that_outlives_a_roll_back_is_found(broken: Break, mutation: str, found: bool) -> None:
    world = broken(mutation, EOS)
    went_on = rolled_back(world)
    assert (not went_on or "lost" in judged(world)) == found


@pytest.mark.parametrize(
    ("mutation", "found"),
    [("a-roll-back-leaves-its-changelog-records", True), pytest.param(NOTHING, False, marks=pytest.mark.full)],
)
def test_a_changelog_that_keeps_what_its_store_took_back_is_found(broken: Break, mutation: str, found: bool) -> None:
    world = broken(mutation, ALO)
    assert rolled_back(world)
    assert ("missing" in kinds(judge_disks(world, MOMENTS))) == found
