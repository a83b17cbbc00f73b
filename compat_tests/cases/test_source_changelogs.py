"""A table whose topic is its changelog (`topology_optimization`): nothing is written for it, and its rows are there
again after whatever ended the process, also on an empty disk."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from compat_tests.harness.feed import Feed, Sent
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.windows import once
from milestones.testing import NotYet

KEYS, UNREADABLE = 300, b"\xff"
NOW_MS = 1_700_000_000_000
SETTINGS: dict[str, Any] = {
    "topology_optimization": "reuse.ktable.source.topics",
    "deserialization_exception_handler": "log_and_continue",
}


def rows(world: World, count: int) -> list[Sent]:
    """Updates, deletions, and now and then one that can't be read."""
    kinds = [b"v%d", b"v%d", b"v%d", b"v%d", None, UNREADABLE]
    chosen = ((number, world.rng.choice(kinds)) for number in range(count))
    return [
        Sent(b"k%d" % world.rng.randrange(KEYS), kind % number if kind and b"%" in kind else kind, NOW_MS)
        for number, kind in chosen
    ]


def ask_for_all(world: World, asks: Feed, latest: dict[bytes, bytes]) -> None:
    """Ask for every key once, and hold the answers against the latest rows."""
    with world.outputs() as outputs:
        outputs.to_the_end()
        before = len(outputs.rows)
        asks.send([Sent(b"k%d" % number, b"?", NOW_MS) for number in range(KEYS)])
        world.processed()
        outputs.to_the_end()
        found = Counter((row.key or b"", row.value or b"") for row in outputs.rows[before:])
    keys = [b"k%d" % number for number in range(KEYS)]
    hold(once(Counter((key, b"? " + latest.get(key, b"None")) for key in keys), found, repeats=False))


def latest_of(sent: Iterable[Any]) -> dict[bytes, bytes]:
    latest: dict[bytes, bytes] = {}
    for row in sent:
        if row.value is None:
            latest.pop(row.key, None)
        elif row.value != UNREADABLE:
            latest[row.key] = row.value
    return latest


def killed_in_the_middle(world: World, app: Instance, fault: str) -> None:
    """Feed the table until the fault strikes."""

    def fed() -> object:
        world.feeds["in"].send(rows(world, 40))
        return not app.running or NotYet("it runs")

    app.start(fault=fault)
    world.wait(fed, "the fault strikes")
    app.dies(-9)


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("disk", ["kept", "lost"])
def test_a_table_is_restored_from_its_topic_after_kills(world: World, disk: str) -> None:
    feed, asks = world.input("in", 2, out=2), world.input("asks", 2)
    app = world.instance("lookups", num_stream_threads=1, **SETTINGS)
    for step in ("commit.after-flush:kill:2", "commit.after-commit:kill:3"):
        killed_in_the_middle(world, app, step)
        if disk == "lost":
            shutil.rmtree(app.state_dir)
    app.start()
    world.processed()
    ask_for_all(world, asks, latest_of(feed.rows))
    made = [topic for topic in world.cluster.topics() if topic.startswith(f"{world.application_id}-rows")]
    assert made == []
    app.stop()
    shutil.rmtree(app.state_dir)
    app.start()
    ask_for_all(world, asks, latest_of(feed.rows))
    end_and_judge(world, crashed=True)


@pytest.mark.short_under("exactly_once_v2")
def test_a_kill_during_the_restoration_of_a_table_from_its_topic_is_survived(world: World) -> None:
    feed, asks = world.input("in", 1, out=1), world.input("asks", 1)
    feed.send(rows(world, 5_000))
    app = world.instance("lookups", group_instance_id="one", **SETTINGS).start()
    world.finish(app)
    shutil.rmtree(app.state_dir)
    feed.send(rows(world, 100))
    app.start(fault="restore.batch:kill:2")
    app.dies(-9)
    app.start()
    world.processed()
    ask_for_all(world, asks, latest_of(feed.rows))
    end_and_judge(world, crashed=True)
