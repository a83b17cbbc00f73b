"""Snapshots that running instances make (m6 on): an instance whose disk is gone begins with them, whatever befell."""

from __future__ import annotations

import os
import shutil
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.cases.owned import all_are_whole, all_is_owned, all_is_owned_an_hour_later
from compat_tests.cases.sleepers import BRIEF, asleep
from compat_tests.cases.steps import feed_until, feed_until_it_dies, feed_until_it_says, nothing_read_twice
from compat_tests.harness.instance import Instance, Settings
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.other_stages import the_one_before
from compat_tests.harness.world import World
from compat_tests.network.bucket import SECRET, Bucket
from milestones.common.state.snapshots.garbage import GRACE_MS
from milestones.common.state.snapshots.repository import SnapshotRepository
from milestones.common.state.snapshots.snapshot import SnapshotManifest, new_id
from milestones.testing import NotYet

INTERVAL_MS = 1_000
KEY = "k1:" + b64encode(b"k" * 32).decode()
MADE, BEGINS, DELTA = "a snapshot of store counts is there", "begins with the", ": delta"
NOT_MADE = "weren't made, and are tried again later"
HELPERS = ("snapshot.uploaded", "snapshot.written", "snapshot.published", "snapshot.folding")
"""Where the helper process is killed as it makes a snapshot."""
TAKING_IN = ("snapshot.fetched", "snapshot.linking", "snapshot.ingested", "wipe.begun", "wipe.made")
"""Where an instance is killed as it begins with snapshots: the next beginning wipes what a broken-off one has left."""
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
        found.append(manifest)
    all_are_whole(kept, found)
    return found


def lose(app: Instance) -> None:
    """Its disk is gone."""
    shutil.rmtree(app.state_dir)


def have_others_of_long_ago(world: World, count: int) -> None:
    """Have so many more snapshots of each partition, and everything at the URL older than the grace."""
    kept = repository(world)
    for manifest in newest(world):
        for number in range(1, count + 1):
            older = replace(manifest, id=new_id(), offset=manifest.offset - number)
            kept.publish(replace(kept.fetch(manifest, world.directory), manifest=older))
    long_ago_s = time.time() - 2 * GRACE_MS / 1000
    for path in files_at(world):
        os.utime(path, (long_ago_s, long_ago_s))


def files_at(world: World) -> list[Path]:
    """What is at the URL."""
    return [path for path in (world.directory / "snapshots").rglob("*") if path.is_file()]


def begins_with_snapshots(
    world: World, app: Instance, *, crashed: bool = False, lost: bool = False, **settings: Any
) -> None:
    """It starts on an empty disk (`lost`: this makes it so), begins with a snapshot of each task, goes on, and
    everything is right."""
    if lost:
        lose(app)
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
    all_is_owned(world, app)
    lose(app)
    begins_with_snapshots(world, app)
    all_is_owned_an_hour_later(repository(world))


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("point", ["snapshot.removed", pytest.param("snapshot.pruning", marks=pytest.mark.full)])
def test_a_helper_that_is_killed_while_it_prunes_leaves_whole_snapshots_and_the_next_one_ends_it(
    makes: World, point: str
) -> None:
    world = makes
    app = that_has_made(world, 2)
    have_others_of_long_ago(world, 3)
    app.start(fault=f"{point}:kill")
    feed_until_it_says(world, app, NOT_MADE)
    app.stop()
    kept = repository(world)
    there = [one.manifest for changelog in kept.partitions() for one in kept.published(changelog)]
    assert None not in there
    all_are_whole(kept, filter(None, there))
    all_is_owned_an_hour_later(kept)
    begins_with_snapshots(world, app, lost=True)


@pytest.mark.short_under("exactly_once_v2")
def test_the_helper_of_an_instance_that_is_killed_ends_with_it_and_nothing_of_its_work_stays(makes: World) -> None:
    world = makes
    app = that_has_made(world, 2)
    app.start(fault="snapshot.written:sleep=600000")
    known = files_at(world)
    feed_until(world, app, lambda: len(files_at(world)) > len(known) or NotYet("nothing new"), "the helper has written")
    (helper,) = psutil.Process(app.pid).children()
    app.kill()
    world.wait(lambda: not helper.is_running(), "the helper ends")
    app.start()
    feed_until_it_says(world, app, MADE)
    app.stop()
    all_is_owned(world, app)
    all_is_owned_an_hour_later(repository(world))
    begins_with_snapshots(world, app, crashed=True, lost=True)


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("point", ["snapshot.checkpoint", pytest.param("snapshot.cutting", marks=pytest.mark.full)])
def test_an_instance_that_is_killed_with_a_checkpoint_goes_on_and_leaves_nothing_of_it(
    makes: World, point: str
) -> None:
    world = makes
    app = that_has_made(world, 2)
    app.start(fault=f"{point}:kill:2")
    feed_until_it_dies(world, app)
    left = [path for path in (app.state_dir / world.application_id).iterdir() if path.name.startswith(".trash-")]
    assert left
    app.start()
    feed_until_it_says(world, app, MADE)
    assert not any(path.exists() for path in left)
    app.stop()
    all_is_owned(world, app)
    begins_with_snapshots(world, app, crashed=True, lost=True)


@pytest.mark.short_under("exactly_once_v2")
def test_an_instance_that_is_killed_at_each_step_of_taking_a_snapshot_in_begins_with_it_again(makes: World) -> None:
    world = makes
    app = that_has_made(world, 2)
    lose(app)
    for point in TAKING_IN:
        app.start(fault=f"{point}:kill").dies(-9)
    snapshots = {f"0_{one.partition}": one.offset for one in newest(world)}
    world.feeds["in"].send(world.records(500, keys=200))
    app.start()
    app.says("task 0_0: store counts begins with")
    app.says("task 0_1: store counts begins with")
    end_and_judge(world, COUNT)
    nothing_read_twice(world, snapshots, app)
    all_is_owned(world, app)


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


AWAY: Mapping[str, Settings] = {"hangs up": {"hangs_up": True}, "503": {"answers": 503}, "403": {"answers": 403}}
"""What befalls a bucket that is of no use at all."""
CANT_BE_HAD = "as snapshots can't be had"
TIMEOUT_MS = 3_000


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def in_bucket(bucket: Bucket) -> Iterator[Settings]:
    """The settings of an instance whose snapshots are in the bucket."""
    with bucket.serving() as endpoint:
        options = bucket.options(endpoint)
        yield {"snapshot_url": bucket.url, "snapshot_options": options, "snapshot_timeout_ms": TIMEOUT_MS}


def befalls(bucket: Bucket, trouble: Settings) -> None:
    for name, value in trouble.items():
        setattr(bucket, name, value)


def warnings(app: Instance, text: str) -> int:
    """How many warnings of the current process have this text."""
    return sum(text in line for line in app.log().splitlines() if " WARNING " in line)


def mix(*names: str) -> list[object]:
    first, *others = names
    return [first, *(pytest.param(name, marks=pytest.mark.full) for name in others)]


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("trouble", mix("503", "hangs up", "403", "read only"))
def test_a_bucket_in_trouble_costs_warnings_and_afterwards_all_is_published(
    makes: World, bucket: Bucket, in_bucket: Settings, trouble: str
) -> None:
    world = makes
    app = maker(world, **in_bucket).start()
    feed_until_it_says(world, app, MADE, times=2)
    befalls(bucket, AWAY.get(trouble, {"read_only": True}))
    feed_until_it_says(world, app, NOT_MADE, times=2)
    assert warnings(app, NOT_MADE) == app.log().count(NOT_MADE), "one for all stores that weren't made at once"
    befalls(bucket, {"answers": None, "hangs_up": False, "read_only": False})
    feed_until_it_says(world, app, MADE, times=app.log().count(MADE) + 2)
    app.stop()
    lose(app)
    begins_with_snapshots(world, app)
    assert SECRET not in app.log_file.read_text()


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("trouble", mix("silent", *AWAY))
def test_a_bucket_that_is_away_at_the_start_is_one_warning_and_changelogs_are_read(
    makes: World, bucket: Bucket, in_bucket: Settings, trouble: str
) -> None:
    world = makes
    app = that_has_made(world, 2, **in_bucket)
    lose(app)
    silent = Event()
    befalls(bucket, AWAY.get(trouble, {"silent": silent}))
    app.start(snapshot_interval_ms=600_000)
    world.feeds["in"].send(world.records(500, keys=200))
    world.processed()
    assert warnings(app, CANT_BE_HAD) + warnings(app, "(snapshot_timeout_ms)") == 1, app.log_tail()
    assert app.restored().keys() == {"0_0", "0_1"}
    end_and_judge(world, COUNT)
    silent.set()
    assert SECRET not in app.log_file.read_text()


@pytest.mark.full
def test_a_minute_of_503_stops_nobody_and_afterwards_snapshots_are_made_and_found(
    makes: World, bucket: Bucket, in_bucket: Settings
) -> None:
    world = makes
    making, restoring = maker(world, "making", **in_bucket).start(), maker(world, "restoring", **in_bucket)
    feed_until_it_says(world, making, MADE, times=2)
    bucket.answers, over_s = 503, time.monotonic() + 60
    restoring.start()
    world.group_is(making, restoring)
    while time.monotonic() < over_s:
        world.feeds["in"].send(world.records(100, keys=50))
        world.processed(timeout_s=30)
    assert warnings(making, NOT_MADE) >= 2, "it is tried again and again"
    assert warnings(restoring, CANT_BE_HAD) == 1, restoring.log_tail()
    bucket.answers = None
    for app in (making, restoring):
        feed_until_it_says(world, app, MADE, times=app.log().count(MADE) + 1)
        app.stop()
    lose(making)
    begins_with_snapshots(world, making)


@pytest.mark.short_under("exactly_once_v2")
def test_a_bucket_that_lists_late_costs_nothing(makes: World, bucket: Bucket, in_bucket: Settings) -> None:
    world = makes
    bucket.late_s = 600
    app = that_has_made(world, 6, **in_bucket)
    assert NOT_MADE not in app.log()
    lose(app)
    begins_with_snapshots(world, app, snapshot_interval_ms=600_000)


@pytest.mark.short_under("exactly_once_v2")
def test_an_instance_of_an_earlier_stage_begins_with_them_too(makes: World) -> None:
    world = makes
    app = that_has_made(world, 4)
    lose(app)
    begins_with_snapshots(world, app, milestones=the_one_before(world.stage))

