"""Snapshots that running instances make (m6 on): an instance whose disk is gone begins with them, whatever befell."""

from __future__ import annotations

import shutil
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.cases.sleepers import BRIEF, asleep
from compat_tests.cases.steps import feed_until_it_dies, feed_until_it_says
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.other_stages import the_one_before
from compat_tests.harness.world import World
from milestones.common.state.snapshots.repository import SnapshotRepository
from milestones.common.state.snapshots.snapshot import SnapshotManifest

INTERVAL_MS = 1_000
KEY = "k1:" + b64encode(b"k" * 32).decode()
MADE, BEGINS, DELTA = "a snapshot of store counts is there", "begins with the", ": delta"
NOT_MADE = "weren't made, and are tried again later"
HELPERS = ("snapshot.written", "snapshot.published", "snapshot.pruning", "snapshot.folding")
"""Where the helper process is killed."""
MANY = 5_000
"""Records of a store that is large beside what changes in a second."""


def with_input(world: World) -> World:
    if not world.has("state_manager"):
        pytest.skip("instances make snapshots from m6 on")
    world.input("in", 2, out=2)
    return world


@pytest.fixture
def makes(world: World) -> World:
    """A world of a stage on which instances make snapshots."""
    return with_input(world)


def url_of(world: World) -> str:
    return f"file://{world.directory}/snapshots"


def maker(world: World, name: str = "one", **settings: Any) -> Instance:
    """An instance that makes snapshots once a second."""
    live = {"snapshot_url": url_of(world), "snapshot_interval_ms": INTERVAL_MS}
    return world.instance("count", name, **{**live, **settings})


def that_has_made(world: World, snapshots: int, **settings: Any) -> Instance:
    """An instance that has made so many, and was stopped."""
    app = maker(world, **settings).start()
    feed_until_it_says(world, app, MADE, times=snapshots)
    app.stop()
    return app


def repository(world: World, **options: Any) -> SnapshotRepository:
    return SnapshotRepository(url_of(world), world.application_id, **options)


def newest(world: World, **options: Any) -> list[SnapshotManifest]:
    """Of each partition, all of whose files are read."""
    found, kept = [], repository(world, **options)
    for changelog in kept.partitions():
        manifest = kept.newest(changelog, "counts")
        assert manifest is not None
        for file in manifest.files:
            kept.verify(manifest, file)
        found.append(manifest)
    return found


def lose(app: Instance) -> None:
    """Its disk is gone."""
    shutil.rmtree(app.state_dir)


def begins_with_snapshots(world: World, app: Instance, *, crashed: bool = False, **settings: Any) -> None:
    """It starts on an empty disk, begins with a snapshot of each task, goes on, and everything is right."""
    world.feeds["in"].send(world.records(500, keys=200))
    app.start(**settings)
    app.says("task 0_0: store counts begins with")
    app.says("task 0_1: store counts begins with")
    end_and_judge(world, COUNT, crashed=crashed)


@pytest.mark.short_under("exactly_once_v2")
def test_a_lost_disk_serves_from_the_instances_own_snapshots_and_what_came_since(makes: World) -> None:
    world = makes
    world.feeds["in"].send(world.records(MANY, keys=MANY))
    app = maker(world).start()
    feed_until_it_says(world, app, DELTA, times=4)
    app.stop()
    assert len(newest(world)) == 2
    written = len(world.feeds["in"].rows)
    lose(app)
    begins_with_snapshots(world, app)
    assert sum(app.restored().values()) < written / 2


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("point", HELPERS)
def test_a_helper_that_is_killed_at_any_step_costs_a_warning_and_the_newest_snapshot_is_whole(
    makes: World, point: str
) -> None:
    world = makes
    app = that_has_made(world, 2)
    app.start(fault=f"{point}:kill")
    feed_until_it_says(world, app, NOT_MADE)
    app.stop()
    assert len(newest(world)) == 2
    lose(app)
    begins_with_snapshots(world, app)


@pytest.mark.short_under("exactly_once_v2")
def test_an_instance_that_is_killed_with_a_checkpoint_goes_on_and_leaves_nothing_of_it(makes: World) -> None:
    world = makes
    app = that_has_made(world, 2)
    app.start(fault="snapshot.checkpoint:kill:2")
    feed_until_it_dies(world, app)
    left = [path for path in (app.state_dir / world.application_id).iterdir() if path.name.startswith(".trash-")]
    assert left
    app.start()
    feed_until_it_says(world, app, MADE)
    assert not any(path.exists() for path in left)
    app.stop()
    lose(app)
    begins_with_snapshots(world, app, crashed=True)


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("point", ["snapshot.linking", "snapshot.ingested"])
def test_an_instance_that_is_killed_while_it_takes_a_snapshot_in_begins_with_it_again(makes: World, point: str) -> None:
    world = makes
    app = that_has_made(world, 2)
    lose(app)
    app.start(fault=f"{point}:kill").dies(-9)
    world.feeds["in"].send(world.records(500, keys=200))
    app.start()
    app.says("store counts begins with")
    end_and_judge(world, COUNT, crashed=True)


@pytest.mark.short_under("exactly_once_v2")
def test_standbys_make_them_where_there_are_some(makes: World) -> None:
    world = makes
    # An active task leaves its standby two intervals' time, which is to be enough on a slow machine, too.
    apps = [maker(world, name, num_standby_replicas=1, snapshot_interval_ms=10 * INTERVAL_MS) for name in "ab"]
    for app in apps:
        app.start()
    world.group_is(*apps)
    for app in apps:
        feed_until_it_says(world, app, MADE)
    end_and_judge(world, COUNT)
    # What an active task makes names the commit that it ends with.
    assert [manifest.commit_number for manifest in newest(world)] == [None, None]


def test_what_an_instance_made_that_was_given_up_is_not_found(exact_world: World) -> None:
    world = with_input(exact_world)
    sleeper, other = maker(world, "sleeper", **BRIEF).start(), maker(world, "other").start()
    world.group_is(sleeper, other)
    for app in (sleeper, other):
        feed_until_it_says(world, app, MADE)
    with asleep(world, sleeper) as nap:
        world.group_is(other)
        feed_until_it_says(world, other, MADE, times=4)
    feed_until_it_says(world, other, MADE, times=5)
    end_and_judge(world, COUNT, crashed=True, asleep=[nap])
    kept = repository(world)
    for changelog in kept.partitions():
        first, *others = [one.manifest for one in kept.published(changelog) if one.manifest is not None]
        assert others
        assert all(first.offset >= one.offset and first.generation >= one.generation for one in others)


@pytest.mark.short_under("exactly_once_v2")
def test_encrypted_ones_need_their_key_and_without_it_changelogs_are_read(makes: World) -> None:
    world = makes
    world.feeds["in"].send(world.records(1_000, keys=300))
    app = that_has_made(world, 2, snapshot_encryption_key=KEY)
    assert {file.key_id for one in newest(world, encryption_key=KEY) for file in one.files} == {"k1"}
    lose(app)
    app.start(snapshot_encryption_key="k2:" + KEY.partition(":")[2])
    app.says("it needs the key of the id 'k1'")
    world.finish(app)
    lose(app)
    begins_with_snapshots(world, app)


@pytest.mark.short_under("exactly_once_v2")
def test_a_place_that_cannot_be_written_costs_warnings_and_nothing_else(makes: World) -> None:
    world = makes
    Path(world.directory, "snapshots").write_text("no directory")
    app = maker(world).start()
    feed_until_it_says(world, app, NOT_MADE, times=2)
    end_and_judge(world, COUNT)


@pytest.mark.short_under("exactly_once_v2")
def test_an_instance_of_an_earlier_stage_begins_with_them_too(makes: World) -> None:
    world = makes
    app = that_has_made(world, 4)
    lose(app)
    begins_with_snapshots(world, app, milestones=the_one_before(world.stage))

