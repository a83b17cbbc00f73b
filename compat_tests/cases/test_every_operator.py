"""Every operator that keeps state, through what may happen to it: each shape below, in each scenario below.

A new operator is a path of a plan (see `random_topologies/`) in one of the shapes, or in a shape of its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from compat_tests.cases.small_disks import FULL, ROOM, ROOM_FOR_A_WHILE, STATE_UNUSABLE, SmallDisk
from compat_tests.cases.steps import COMMIT_STEPS, feed_until_it_says
from compat_tests.harness.other_stages import the_one_before
from compat_tests.harness.world import World
from compat_tests.random_topologies.cases import Case, Fault
from compat_tests.random_topologies.plans import Path, Plan
from compat_tests.random_topologies.running import Course, judge_course, run_in
from compat_tests.random_topologies.shapes import (
    COUNT,
    HOPPING,
    LATE_MS,
    LETTERS,
    MOST,
    SESSION,
    SKEW_MS,
    SLIDING,
    STREAMS,
    TABLES,
    TO_TABLE,
    TUMBLING,
    Join,
    Windows,
)
from milestones.testing import NotYet

NEAR = {"before": 5, "after": 20, "grace": SKEW_MS}

WINDOWS = Plan(
    (
        Path((), COUNT, windows=Windows(TUMBLING, 50, LATE_MS, on_close=True), partitions=3),
        Path((), LETTERS, windows=Windows(SESSION, 5, LATE_MS), partitions=3),
        Path((), MOST, windows=Windows(SLIDING, 10, LATE_MS, on_close=True), partitions=3),
        Path(("by-value",), COUNT, windows=Windows(HOPPING, 50, SKEW_MS, advance=10), partitions=3),
    ),
    (3,),
)
JOINS = Plan(
    (
        Path((), STREAMS, join=Join(1, "outer", **NEAR), partitions=3),
        Path(("swap",), STREAMS, again=3, join=Join(1, "left", **NEAR), partitions=3),
        Path((), TO_TABLE, join=Join(1, "left"), partitions=3),
        Path((), TABLES, join=Join(1, "outer"), partitions=3),
    ),
    (3, 3),
)


def in_memory(plan: Plan) -> Plan:
    """The plan with stores that every start restores."""
    return replace(plan, paths=tuple(replace(path, in_memory=True) for path in plan.paths))


SHAPES = {
    "windows": WINDOWS,
    "joins": JOINS,
    "windows in memory": in_memory(WINDOWS),
    "joins in memory": in_memory(JOINS),
}
PAIR: dict[str, Any] = {"instances": 2, "standbys": 1, "lag": 0, "threads": 1}

SCENARIOS: dict[str, tuple[list[Fault], dict[str, Any]]] = {
    "restarts": ([Fault("restart", 20), Fault("restart", 20, down=20, calm=False)], {}),
    "restarts behind a cache": ([Fault("restart", 20), Fault("kill", 20, down=20)], {"cache": 1_000_000}),
    "an empty disk": ([Fault("wipe", 20), Fault("wipe", 20, down=20)], {}),
    "kills": ([Fault("kill", 20), Fault("kill", 20, down=10, calm=False)], {}),
    "a kill in a restoration": ([Fault("point", 20, down=10, point="restore.batch:kill:2")], {}),
    "a process that is given up": ([Fault("stall", 20)], {"instances": 2}),
    "a take-over by standbys": ([Fault("kill", 30, down=60), Fault("leave", 30), Fault("join", 20)], PAIR),
    "tasks that become standbys and back": (
        [Fault("join", 20), Fault("restart", 30, down=40), Fault("leave", 40), Fault("join", 20)], PAIR,
    ),
    **{f"a kill at {step}": ([Fault("point", 10, down=30, point=f"{step}:kill:3")], {}) for step in COMMIT_STEPS},
    **{
        f"a stall beyond the transaction at {step}": (
            [Fault("stand", 10, point=f"{step}:stop:3")], {"session_ms": 60_000},
        )
        for step in COMMIT_STEPS[:4]
    },
}  # fmt: skip
SHORT = {("windows", "kills"), ("joins", "restarts"), ("windows in memory", "restarts")}
"""What the short selection has, under exactly once; the full one has every shape in every scenario."""


def case_of(world: World, plan: Plan, faults: list[Fault], **settings: Any) -> Case:
    return Case(world.seed, world.guarantee, plan, tuple(faults), **{"rest": 20, "keys": 20, **settings})


EACH = [
    pytest.param(shape, scenario, marks=() if (shape, scenario) in SHORT else pytest.mark.full)
    for shape in SHAPES
    for scenario in SCENARIOS
]


@pytest.mark.timeout(600)
@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize(("shape", "scenario"), EACH)
def test_an_operator_is_as_promised_whatever_happens_to_it(world: World, shape: str, scenario: str) -> None:
    faults, settings = SCENARIOS[scenario]
    run_in(world, case_of(world, SHAPES[shape], faults, **settings))


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_operator_goes_from_the_stage_before_to_this_one_and_back(world: World, shape: str) -> None:
    before = the_one_before(world.stage)
    if before == world.stage:
        pytest.skip("there is none before")
    faults = [Fault("restart", 20, who=number % 2) for number in range(4)]
    run_in(world, case_of(world, SHAPES[shape], faults, instances=2, beside=before))


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_operator_is_as_promised_while_its_group_goes_to_the_newest_protocol(world: World, shape: str) -> None:
    case = case_of(world, SHAPES[shape], [], instances=2)
    course = Course(world, case, upgrade_from="v1")
    course.start()
    course.feed_until_they_run(course.group)
    for one in course.group:
        course.feed(10)
        one.stop()
        one.start(upgrade_from=None)
        course.feed_until_they_run(course.group)

    def newest() -> object:
        protocols = [generation.protocol for generation in world.history().generations]
        return protocols[0] != protocols[-1] or NotYet(str(protocols))

    world.wait(newest, "the group speaks the newest protocol")
    course.feed(case.rest)
    course.come_to_rest()
    judge_course(world, case, course)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shape", ["windows", "joins"])
def test_an_operator_goes_on_with_room_again_after_its_disk_was_full(world: World, shape: str, disk: SmallDisk) -> None:
    state_dir = disk.path / "state"
    case = case_of(world, SHAPES[shape], [], batch=200, keys=5_000)
    course = Course(world, case, state_dir=str(state_dir))
    course.start()
    (app,) = course.group
    app.state_dir = state_dir
    course.feed_until_they_run([app])
    disk.leave(ROOM_FOR_A_WHILE)
    if world.has("state_manager"):  # a full disk is waited out
        feed_until_it_says(world, app, FULL, feed=partial(course.feed, 2))
        disk.make_room()
        feed_until_it_says(world, app, ROOM, feed=partial(course.feed, 2))
    else:
        world.instances.remove(app)  # it may die
        world.wait(partial(fed_until_it_dies, course), "the disk is full")
        world.instances.append(app)
        app.dies(STATE_UNUSABLE)
        disk.make_room()
        course.repeats = True
        app.start()
    course.feed(case.rest)
    course.come_to_rest()
    judge_course(world, case, course)


def fed_until_it_dies(course: Course) -> object:
    course.feed(2)
    return not course.group[0].running or NotYet("it runs")
