"""Standbys: what they hold, who takes over, and what that costs."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.cases.steps import await_outputs, feed_until_it_dies
from compat_tests.harness.followers import METRICS, caught_up
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge, judge, judge_disks
from compat_tests.harness.stores import opened_at
from compat_tests.harness.world import World, stop_all
from compat_tests.oracles.findings import hold
from compat_tests.oracles.group import Generation
from milestones.testing import NotYet

TASKS = ("0_0", "0_1", "0_2", "0_3")
STANDBY = {"num_standby_replicas": 1, **METRICS}


def pair(world: World) -> tuple[Instance, Instance]:
    """Two instances that share four tasks that count, each the standby of the other one's. What they restore until
    they do depends on who was first: count `restored()` from here on."""
    feed = world.input("in", 4, out=4)
    feed.send(world.records(2_000, keys=500))
    one, other = (world.instance("count", name, num_stream_threads=1, **STANDBY).start() for name in ("one", "other"))
    world.group_is(one, other)
    world.processed()
    caught_up(world, TASKS, one, other)
    return one, other


def copies(generation: Generation) -> dict[str, list[str]]:
    """By task: who has it, the owner first, by client id."""
    members = generation.members
    having = [(one.client_id, one.active) for one in members] + [(one.client_id, one.standby) for one in members]
    return {task: [client for client, tasks in having if task in tasks] for task in TASKS}


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("step", ["commit.after-flush", pytest.param("commit.after-offsets", marks=pytest.mark.full)])
def test_a_standby_holds_what_was_committed_and_nothing_else(world: World, step: str) -> None:
    """The active instance dies within a commit, and its standby at the same time: so what lies on that one's disk is
    what it had read while the transaction was open."""
    one, other = pair(world)
    one.stop()
    one.start(fault=f"{step}:kill:6")
    feed_until_it_dies(world, one)
    other.kill()
    hold(judge_disks(world, "counts"))
    one.start()
    other.start()
    world.group_is(one, other)
    world.processed()
    caught_up(world, TASKS, one, other)
    end_and_judge(world, COUNT, crashed=True)


def test_the_standby_of_a_killed_instance_takes_over_with_next_to_nothing_to_restore(world: World) -> None:
    one, other = pair(world)
    feed, before = world.feeds["in"], other.restored()
    with world.outputs() as outputs:
        feed.send(world.records(8_000, keys=500))
        await_outputs(world, outputs, 3_000)
        one.kill()
        feed.send(world.records(1_000, keys=500))
        world.group_is(other)
        world.processed()
    restored = other.restored() - before
    print(f"restored at the take-over from a killed instance: {dict(restored)}")
    assert restored.total() == 0
    end_and_judge(world, COUNT, crashed=True)


@pytest.mark.short_under("exactly_once_v2")
def test_the_standby_of_an_instance_that_leaves_takes_over_without_restoring(world: World) -> None:
    one, other = pair(world)
    before = other.restored()
    one.stop()
    world.group_is(other)
    world.feeds["in"].send(world.records(1_000, keys=500))
    world.finish(other)
    assert other.restored() == before
    judge(world, COUNT)


@pytest.mark.full
def test_under_load_the_standby_of_an_instance_that_leaves_restores_its_last_commits_at_most(world: World) -> None:
    one, other = pair(world)
    feed, before = world.feeds["in"], other.restored()
    for _ in range(20):
        feed.send(world.records(100, keys=500))
    last = feed.send(world.records(400, keys=500))
    one.stop()
    world.group_is(other)
    world.finish(other)
    restored = other.restored() - before
    print(f"restored at the take-over from an instance that left under load: {dict(restored)}")
    assert restored.total() <= len(last) + 100
    judge(world, COUNT)


def roles(instance: Instance) -> list[tuple[str, set[str]]]:
    """Each assignment that the log tells of: at what time of the day, and which tasks it had as active ones."""
    lines = re.findall(r"^(\S+) .*: generation \d+, tasks \[(.*?)\], standbys", instance.log(), re.MULTILINE)
    return [(at, set(re.findall(r"\d+_\d+", tasks))) for at, tasks in lines]


@pytest.mark.short_under("exactly_once_v2")
def test_a_task_that_changes_its_role_again_and_again_keeps_its_stores_open(world: World) -> None:
    one, other = pair(world)
    feed, before, settled = world.feeds["in"], one.restored(), datetime.now()  # RocksDB writes local times too
    for _ in range(3):
        feed.send(world.records(500, keys=500))
        world.processed()
        caught_up(world, TASKS, one, other)  # else the last commits of the one that leaves are still to be read
        other.stop()
        world.group_is(one)
        feed.send(world.records(500, keys=500))
        world.processed()
        other.start()
        world.group_is(one, other)
    feed.send(world.records(500, keys=500))
    world.processed()
    caught_up(world, TASKS, one, other)
    stop_all([one, other])
    assignments = roles(one)
    swapped = {task for _, had in assignments for task in had ^ assignments[-1][1]}
    assert len(swapped) >= 2, f"no task has changed its role: {assignments}"
    opened = opened_at(one.state_dir, world.application_id)
    late = {path: str(at) for path, at in opened.items() if at > settled}
    assert not late, f"opened anew, though the process had all tasks from {settled} on in one role or the other: {late}"
    assert one.restored() == before
    judge(world, COUNT)


@pytest.mark.short_under("exactly_once_v2")
def test_standbys_are_in_another_rack_and_never_with_their_active(world: World) -> None:
    feed = world.input("in", 4, out=4)
    feed.send(world.records(1_000, keys=500))
    zones = {"one": "a", "two": "a", "three": "b", "four": "b"}
    settings = {"rack_aware_assignment_tags": ["zone"], "num_stream_threads": 2, **STANDBY}
    group = [
        world.instance("count", name, client_tags={"zone": zone}, **settings).start() for name, zone in zones.items()
    ]

    def spread() -> object:
        found = copies(world.history().generations[-1])
        racks = {task: [zones[client.partition("-")[0]] for client in having] for task, having in found.items()}
        return all(sorted(both) == ["a", "b"] for both in racks.values()) or NotYet(str(found))

    world.group_is(*group)
    world.wait(spread, "each task has a standby in the other zone")
    world.processed()
    caught_up(world, TASKS, *group)
    end_and_judge(world, COUNT)
