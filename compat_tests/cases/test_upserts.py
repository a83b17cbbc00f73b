"""Upsert sinks: every record before M5, the last one of each key and commit from M5 on, which ends the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compat_tests.cases.flows import COUNT, LAST
from compat_tests.cases.steps import bounce, commit_steps_of, feed_until_it_dies, loading
from compat_tests.cases.test_poison import FAILED, PATIENCE, continuing
from compat_tests.harness.emitting import COLLECTED
from compat_tests.harness.feed import FIRST_TIMESTAMP, Sent
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.other_stages import the_one_before
from compat_tests.harness.world import World
from compat_tests.oracles.flows import Flow
from compat_tests.oracles.rows import Row

KEYLESS = b"keyless"


def upserted(world: World) -> tuple[Flow, Flow]:
    """The flows of `upserts`; the changelog is as of any count."""
    thinned = world.has(COLLECTED)
    return replace(COUNT, thinned=thinned), replace(LAST, thinned=thinned)


def send_with_keyless(world: World) -> list[Row]:
    """Records with a key, two without one, records with a key; where the two lie."""
    feed = world.input("in", 2, out=2, last=2)
    feed.send(world.records(300, keys=20))
    found = feed.send(Sent(None, KEYLESS, FIRST_TIMESTAMP + 1_000 + number, 0) for number in range(2))
    feed.send(world.records(300, keys=20))
    return found


def test_each_key_ends_with_its_last_record(world: World) -> None:
    feed = world.input("in", 3, out=3, last=3)
    app = world.instance("upserts").start()
    for _ in range(4):
        feed.send(world.records(1_500, keys=100))
        world.processed()
    app.must_live()
    end_and_judge(world, *upserted(world))


@pytest.mark.parametrize("step", commit_steps_of("commit.after-offsets"))
def test_a_crash_in_a_commit_leaves_no_key_with_an_older_record(world: World, step: str) -> None:
    world.input("in", 3, out=3, last=3)
    app = world.instance("upserts").start(fault=f"{step}:kill:4")
    feed_until_it_dies(world, app)
    app.start()
    world.feeds["in"].send(world.records(500, keys=50))
    end_and_judge(world, *upserted(world), crashed=True)


@pytest.mark.short_under("exactly_once_v2")
def test_a_rolling_restart_may_add_upserts_to_a_live_group_and_take_them_away(world: World) -> None:
    """Names, changelogs and the group's fingerprint are those of the topology with plain sinks."""
    world.input("in", 4, out=4, last=4)
    load = loading(world, 500, 100, 100)
    load()
    group = [world.instance("plain", "first").start(), world.instance("plain", "second").start()]
    world.group_is(*group)
    for name, topology in (("third", "upserts"), ("fourth", "upserts"), ("fifth", "plain")):
        load()
        group.append(world.instance(topology, name).start())
        world.group_is(*group)
        load()
        group.pop(0).stop()
        world.group_is(*group)
        load()
    end_and_judge(world, *upserted(world))


@pytest.mark.full
def test_a_live_group_goes_from_the_stage_before_to_this_one_and_back(world: World) -> None:
    before = the_one_before(world.stage)
    if before == world.stage:
        pytest.skip("it is the first")
    world.input("in", 4, out=4, last=4)
    load = loading(world, 500, 100, 100)
    load()
    group = [world.instance("upserts", name).start(milestones=before) for name in ("one", "two")]
    world.group_is(*group)
    for stage in (world.stage, before):
        for one in group:
            bounce(world, one, load, milestones=stage)
    end_and_judge(world, *upserted(world))


@pytest.mark.short_under("exactly_once_v2")
def test_a_record_without_a_key_stops_its_task_on_every_stage_and_is_named(world: World) -> None:
    row, _ = send_with_keyless(world)
    app = world.instance("upserts", **PATIENCE).start()
    app.dies(FAILED, f"record {row.place}@{row.offset}", "has no key", "upserts=True")
    assert world.committed().get(row.place, 0) <= row.offset
    app.start(**continuing("production"))
    end_and_judge(world, *upserted(world), crashed=True, poisoned=frozenset({KEYLESS}))


@pytest.mark.short_under("exactly_once_v2")
def test_records_without_a_key_are_skipped_where_the_handler_says_so_each_with_its_dead_letter(world: World) -> None:
    """The letters are of one sink and one key, none: no upsert replaces another one's letter."""
    world.create(dead=1)
    found = send_with_keyless(world)
    dead = world.topic("dead")
    world.instance("upserts", errors_dead_letter_queue_topic_name=dead, **continuing("production")).start()
    end_and_judge(world, *upserted(world), poisoned=frozenset({KEYLESS}))
    letters = [dict(letter.headers)["__streams.errors.offset"] for letter in world.cluster.read(dead)]
    assert letters == [str(row.offset).encode() for row in found]
