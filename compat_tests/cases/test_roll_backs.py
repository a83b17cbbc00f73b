"""What a roll-back leaves behind: nothing. User code that remembers meets a fault at each step of a commit.

Exactly once: every count, in the output and in the stores, is exact, though it is kept in an attribute; what `init` has
written is there; what a schedule from `process` is to do is done once. At least once: nothing is lost; and under both,
stores are their changelogs, though the wall clock has the second try do something else than the first.
"""

from __future__ import annotations

import pytest

from compat_tests.apps.memories import BEGUN, BEGUN_AT, MOMENTS
from compat_tests.cases.flows import COUNT, REMEMBERED_TICKS, as_long
from compat_tests.cases.steps import (
    COMMIT_STEPS,
    IN_TRANSACTION,
    armed,
    commit_steps_of,
    feed_until_it_dies,
    feed_until_it_says,
    standing,
)
from compat_tests.harness.feed import Feed
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge, judge_store
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.flows import Entry
from compat_tests.oracles.in_place import in_place

PARTITIONS, TIMES = 2, 3


def remembering(world: World) -> tuple[Feed, Instance]:
    return world.input("in", PARTITIONS, out=2, ticks=2), world.instance("remembering", num_stream_threads=1)


def settled(world: World, feed: Feed, app: Instance, *, crashed: bool) -> None:
    """It processes what comes after all of that, ends, and is judged."""
    feed.send(world.records(300, keys=50))
    end_and_judge(world, COUNT, REMEMBERED_TICKS, crashed=crashed)
    begun = {b"0_%d" % partition: Entry(BEGUN_AT, as_long(1)) for partition in range(PARTITIONS)}
    hold(judge_store(world, BEGUN, begun) + judge_store(world, MOMENTS, None))


@pytest.mark.parametrize("step", commit_steps_of("commit.after-flush", "commit.after-offsets", "commit.after-commit"))
def test_user_code_that_remembers_is_exact_after_roll_backs_at_any_step_of_a_commit(world: World, step: str) -> None:
    feed, app = remembering(world)
    app.start(fault=armed(step, "abort", TIMES, first=1))
    feed_until_it_says(world, app, f"injected at {step}")
    world.all_run()  # the first commit comes before the last store is open
    before = standing(world, app)
    feed_until_it_says(world, app, f"injected at {step}", TIMES)
    feed.send(world.records(100, keys=50))
    world.processed()
    if step in IN_TRANSACTION:
        hold(in_place(before, standing(world, app)))
    settled(world, feed, app, crashed=not world.exactly_once)


@pytest.mark.full
@pytest.mark.parametrize("step", COMMIT_STEPS)
@pytest.mark.parametrize(("action", "code"), [("raise", 1), ("kill", -9)])
def test_user_code_that_remembers_is_exact_after_a_restart_too(
    world: World, step: str, action: str, code: int
) -> None:
    feed, app = remembering(world)
    for number in range(TIMES):
        app.start(fault=f"{step}:{action}:{1 + 3 * number}")
        feed_until_it_dies(world, app, code)
    app.start()
    settled(world, feed, app, crashed=True)
