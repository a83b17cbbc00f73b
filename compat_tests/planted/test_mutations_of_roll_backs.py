"""A runtime whose roll-backs leave something behind is found: by what user code remembers, and in changelogs."""

from __future__ import annotations

import pytest

from compat_tests import ALO, EOS
from compat_tests.apps.memories import MOMENTS
from compat_tests.cases.steps import armed, feed_until_it_says
from compat_tests.harness.judge import judge_disks
from compat_tests.oracles.findings import kinds
from compat_tests.planted.conftest import Break, BrokenWorld, judged
from compat_tests.planted.mutated import NOTHING

STEP, TIMES = "commit.after-flush", 3


def rolled_back(mutated: BrokenWorld) -> None:
    """User code that remembers meets roll-backs, goes on, and ends."""
    world = mutated.world
    feed = world.input("in", 2, out=2, ticks=2)
    app = mutated.instance("remembering").start(fault=armed(STEP, "abort", TIMES, first=2))
    feed_until_it_says(world, feed, app, f"injected at {STEP}", TIMES)
    feed.send(world.records(100, keys=50))
    world.finish(app)


@pytest.mark.parametrize(
    ("mutation", "found"),
    [("a-program-is-kept-over-a-roll-back", True), pytest.param(NOTHING, False, marks=pytest.mark.full)],
)
def test_a_program_that_outlives_a_roll_back_is_found(broken: Break, mutation: str, found: bool) -> None:
    mutated = broken(mutation, EOS)
    rolled_back(mutated)
    assert ("lost" in judged(mutated.world)) == found


@pytest.mark.parametrize(
    ("mutation", "found"),
    [("a-roll-back-leaves-its-changelog-records", True), pytest.param(NOTHING, False, marks=pytest.mark.full)],
)
def test_a_changelog_that_keeps_what_its_store_took_back_is_found(broken: Break, mutation: str, found: bool) -> None:
    mutated = broken(mutation, ALO)
    rolled_back(mutated)
    assert ("missing" in kinds(judge_disks(mutated.world, MOMENTS))) == found
