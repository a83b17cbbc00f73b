"""Global tables: complete before any task, on every instance, whatever ends a process; read by many tasks at once."""

from __future__ import annotations

from itertools import count

import pytest

from compat_tests import ALO, EOS
from compat_tests.cases.flows import EVERYWHERE
from compat_tests.cases.steps import under
from compat_tests.harness.feed import FIRST_TIMESTAMP, Feed, Sent
from compat_tests.harness.judge import end_and_judge, judge
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.global_rows import backwards
from milestones.testing import NotYet

ROWS, PARTITIONS, TASKS = 200, 4, 50


def row_feed(world: World, **outputs: int) -> Feed:
    """The topic of the global table, of which nothing is ever committed."""
    world.create(rows=PARTITIONS, **outputs)
    return Feed(world.cluster, world.topic("rows"), PARTITIONS)


def names(world: World, records: int) -> list[Sent]:
    """Records, each of which names a row."""
    return world.groups(records, keys=300, groups=ROWS)


def rows(told: str = "row of ") -> list[Sent]:
    return [Sent(b"g%d" % row, b"%sg%d" % (told.encode(), row), FIRST_TIMESTAMP + row) for row in range(ROWS)]


@pytest.mark.short_under("exactly_once_v2")
def test_fifty_tasks_find_all_rows_over_kills_and_restarts(world: World) -> None:
    feed = row_feed(world)
    # Each row three times, the right one last: a restoration that stops short finds others.
    feed.send([*rows("old "), *rows("older "), *rows()])
    inputs = world.input("in", TASKS, out=TASKS)
    inputs.send(names(world, 2_000))
    one, other = (world.instance("everywhere", name, num_stream_threads=2) for name in ("one", "other"))
    one.start()
    other.start()
    world.group_is(one, other)
    inputs.send(names(world, 2_000))
    one.kill()
    inputs.send(names(world, 2_000))
    one.start()
    world.group_is(one, other)
    inputs.send(names(world, 2_000))
    end_and_judge(world, EVERYWHERE, crashed=True)
    feed.close()


@pytest.mark.parametrize("step", [under(EOS, "global.batch:kill:1"), under(ALO, "global.complete:kill:1")])
def test_a_restoration_that_is_killed_is_continued(world: World, step: str) -> None:
    feed = row_feed(world)
    feed.send(rows("old "))
    inputs = world.input("in", 4, out=4)
    inputs.send(names(world, 500))
    app = world.instance("everywhere").start(fault=step)
    app.dies(-9)
    feed.send(rows())
    app.start(fault=step)
    app.dies(-9)
    app.start()
    end_and_judge(world, EVERYWHERE, crashed=True)
    feed.close()


def test_rows_never_go_back_whatever_ends_the_process(world: World) -> None:
    feed, versions = row_feed(world), count()
    inputs = world.input("in", 8, out=8)
    app = world.instance("everywhere", num_stream_threads=2)

    def next_version() -> None:
        version = next(versions)
        feed.send([Sent(b"g%d" % row, b"%d" % version, FIRST_TIMESTAMP + version) for row in range(ROWS)])

    next_version()
    for nth in (3, 7, 12):
        app.start(fault=f"commit.after-flush:kill:{nth}")

        def fed_until_it_dies() -> object:
            next_version()
            inputs.send(names(world, 100))
            return not app.running or NotYet("it runs")

        world.wait(fed_until_it_dies, "the fault strikes")
        app.dies(-9)
    next_version()
    app.start()
    inputs.send(names(world, 500))
    world.processed()
    world.finish(app)
    with world.outputs() as outputs:
        outputs.to_the_end()
        hold(backwards(outputs.rows))
        newest = max(int((row.value or b"").rpartition(b"=")[2]) for row in outputs.rows)
    assert newest == next(versions) - 1
    judge(world, crashed=True)
    feed.close()
