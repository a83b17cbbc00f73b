"""Inputs that Kafka deleted before they were processed: the loss is named, and the reset policy says how it goes on.

With `latest`: where the application began is where it goes on, whatever happens to it.
"""

from __future__ import annotations

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge, judge
from compat_tests.harness.world import World
from compat_tests.oracles.rows import Place, Row

BAD_TOPIC = 2
LOST = 100
"""Records of each partition that are deleted unprocessed."""
SECOND_COMMIT = "commit.before-flush:kill:2"
"""The first one says where the only partition begins, the second one has the first records."""


def overtaken(world: World) -> tuple[Instance, dict[Place, int]]:
    """An application that has ended, more inputs, and of these the first deleted: its committed offsets are older
    than what the log has. With the first offsets that are left."""
    feed = world.input("in", 2, out=2)
    feed.send(world.records(1_000, keys=100))
    app = world.instance("count").start()
    world.finish(app)
    first = {place: offset + LOST for place, offset in world.committed().items()}
    feed.send(world.records(1_000, keys=100))
    world.cluster.truncate(first)
    return app, first


def forget(world: World, from_offsets: dict[Place, int], to_offsets: dict[Place, int]) -> None:
    """These inputs can't have outputs."""

    def lost(row: Row) -> bool:
        return from_offsets[row.place] <= row.offset < to_offsets[row.place]

    feed = world.feeds["in"]
    feed.rows = [row for row in feed.rows if not lost(row)]


def loss_lines(app: Instance) -> list[str]:
    return [line for line in app.log().splitlines() if "ERROR" in line and "LOST" in line]


def assert_named(app: Instance, committed: dict[Place, int], goes_on: dict[Place, int]) -> None:
    """One error line for each partition: which, from where, to where."""
    lines = loss_lines(app)
    assert len(lines) == len(committed), app.log_tail()
    for place, offset in committed.items():
        (line,) = (line for line in lines if str(place) in line)
        assert f"offset {offset} " in line, line
        assert f"goes on at {goes_on[place]}" in line, line


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("policy", ["earliest", pytest.param("latest", marks=pytest.mark.full)])
def test_it_goes_on_at_the_first_record_that_is_left_or_with_what_comes_next(world: World, policy: str) -> None:
    app, first = overtaken(world)
    committed = world.committed()
    goes_on = first if policy == "earliest" else world.cluster.ends(list(committed))
    app.start(auto_offset_reset=policy)
    world.wait(lambda: len(loss_lines(app)) == len(committed), "each partition's loss is in the log")
    world.feeds["in"].send(world.records(1_000, keys=100))
    world.finish(app)
    assert_named(app, committed, goes_on)
    forget(world, committed, goes_on)
    judge(world, COUNT)


@pytest.mark.full
def test_with_none_it_stops_before_anything_is_skipped(world: World) -> None:
    app, first = overtaken(world)
    committed = world.committed()
    app.start(auto_offset_reset="none")
    app.dies(BAD_TOPIC, "set auto_offset_reset")
    why = "has no offset to start from (offset {} is no longer in the log)"
    texts = [f"{place} {why.format(offset)}" for place, offset in committed.items()]
    assert any(text in app.log() for text in texts), app.log_tail()
    assert world.committed() == committed
    app.start(auto_offset_reset="earliest")
    forget(world, committed, first)
    end_and_judge(world, COUNT)


@pytest.mark.short_under("at_least_once")
def test_a_crash_in_the_first_commit_of_records_skips_none_of_what_came_since(world: World) -> None:
    feed = world.input("in", 1, out=1)
    app = world.instance("count", auto_offset_reset="latest").start(fault=SECOND_COMMIT)
    world.processed()
    feed.send(world.records(200, keys=50))
    app.dies(-9)
    feed.send(world.records(200, keys=50))
    app.start()
    end_and_judge(world, COUNT, crashed=True)
