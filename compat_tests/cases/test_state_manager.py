"""What befalls the state of one sub-topology stays that one's, from M6 on, and is mended under the running instance."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compat_tests.apps.refusals import STALL, refusal
from compat_tests.cases.arrivals import Gaps
from compat_tests.cases.ends import ALONE, ENDED
from compat_tests.cases.flows import COUNT, COUNT_BESIDE
from compat_tests.cases.owned import all_is_owned
from compat_tests.cases.small_disks import FULL, ROOM, ROOM_FOR_A_WHILE, STATE_UNUSABLE, SmallDisk, small_disk
from compat_tests.cases.steps import (
    AT_ONCE,
    TIDY,
    counted,
    crash,
    feed_until_it_dies,
    feed_until_it_says,
    generation,
    nothing_read_twice,
    offsets_on_disk,
    uncommitted_tail,
)
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.other_stages import the_one_before
from compat_tests.harness.stores import identities
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.in_place import kept, no_more_than
from milestones.testing import NotYet

FLAG = "state_manager"
MENDED = "is mended, writes go on"
KEYS = 20_000
HIT = 0
"""The sub-topology that something befalls, which counts `in`."""
MENDING = "mend.begun", "mend.range", "mend.current"
"""Other steps of a mending than `mend.copied`."""
BEHIND_S = 30.0
BLOCK_BYTES = 1_000
"""Less than a block has."""


@pytest.fixture(autouse=True)
def from_m6_on(world: World) -> None:
    if not world.has(FLAG):
        pytest.skip("state has no manager before")


def databases(world: World, app: Instance) -> Path:
    return app.state_dir / world.application_id / "engines"


def send(world: World, count: int) -> None:
    for feed in world.feeds.values():
        feed.send(world.records(count, KEYS))


def counting(world: World) -> Instance:
    """An application with state of two sub-topologies, in table files."""
    for name, output in (("in", "out"), ("other", "beside")):
        world.input(name, 2, **{output: 2})
    send(world, KEYS)
    app = world.instance("two-counts").start()
    world.finish(app)
    return app


HELD_UP_S = 4.0
"""From here on a pause isn't just a slow machine's: one of outputs that wait for a database to be mended, or for room
on its disk, is a multiple of it."""


def damage(world: World, app: Instance) -> None:
    """Change bytes of the largest table file under the running database: in the blocks of the first partition."""
    files = (databases(world, app) / str(HIT) / "rocksdb").glob("*.sst")
    largest = max(files, key=lambda file: file.stat().st_size)
    with largest.open("r+b") as opened:
        for place in range(0, largest.stat().st_size // 3, BLOCK_BYTES):
            opened.seek(place)
            opened.write(b"\xff" * 10)


@contextmanager
def undisturbed(world: World, app: Instance, most_s: float = HELD_UP_S) -> Iterator[Callable[[], object]]:
    """The other sub-topology's output pauses for so long at most, over its usual pauses, and nothing is started anew.
    Gives a function that feeds, and looks: to be called often."""
    before, starts = generation(world), app.starts
    places = world.cluster.places([world.topic("other")])
    with world.outputs("beside") as tail:
        gaps = Gaps(tail)

        def feed() -> object:
            send(world, 20)
            gaps.look()
            return len(tail.rows) > 200 or NotYet("few outputs")

        world.wait(feed, "outputs flow")
        gaps.forget()
        yield feed
        paused = gaps.of(places)
        gaps.forget()
        world.let_pass(5, "nothing happens", feed)  # not before: what is cached hides damage
        usual = gaps.of(places)
        print(f"the other sub-topology's outputs paused for {paused:.2f} s at most, afterwards for {usual:.2f} s")
        assert paused < most_s + usual
    app.must_live()
    assert (generation(world), app.starts) == (before, starts)


def restored_whole(app: Instance) -> set[str]:
    """The tasks whose changelog it has read, and not just its tail."""
    return {task for task, count in app.restored().items() if count >= KEYS / 4}


@pytest.mark.parametrize("slow_ms", [0, pytest.param(30_000, marks=pytest.mark.full)], ids=["at once", "for 30 s"])
def test_a_damaged_database_is_mended_and_only_the_damaged_partition_is_restored(world: World, slow_ms: int) -> None:
    app = counting(world)
    app.start(fault=f"mend.begun:sleep={slow_ms}" if slow_ms else None)
    world.all_run()
    with undisturbed(world, app) as feed:
        damage(world, app)
        feed_until_it_says(world, app, MENDED, feed=feed)
        feed_until_it_says(world, app, f"task {HIT}_0 has restored", feed=feed)
    assert restored_whole(app) == {f"{HIT}_0"}, app.restored()
    end_and_judge(world, COUNT, COUNT_BESIDE, crashed=True)
    assert (databases(world, app) / str(HIT) / "corrupt").is_dir(), "the damaged files are kept"


@pytest.mark.full
def test_a_database_whose_compaction_is_behind_holds_back_the_tasks_of_its_sub_topology_alone(world: World) -> None:
    app = counting(world)
    app.start(refusals=world.directory)
    world.all_run()
    stalls = [refusal(world.directory, STALL, f"{HIT}_{partition}") for partition in range(2)]
    with undisturbed(world, app) as feed:
        for stall in stalls:
            stall.touch()
        world.let_pass(BEHIND_S, "the compaction is behind", feed)
        assert "compactions are behind" in app.log(), "no write was refused"
        for stall in stalls:
            stall.unlink()
    assert not app.restored().total()
    end_and_judge(world, COUNT, COUNT_BESIDE)


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("killed", [False, True], ids=["at once", "after a kill once all was given out"])
def test_an_earlier_stage_begins_with_what_can_be_read_of_a_damaged_database(world: World, killed: bool) -> None:
    app, lost = counting(world), f"store 'counts' of task {HIT}_0 can't be converted, and is restored"
    damage(world, app)
    send(world, 500)
    before = the_one_before(world.stage)
    if killed:
        app.start(fault="conversion.all-given:kill", milestones=before).dies(-9, lost)
    app.start(milestones=before)
    if not killed:
        app.says(lost)
    world.processed()
    assert restored_whole(app) == {f"{HIT}_0"}, app.restored()
    end_and_judge(world, COUNT, COUNT_BESIDE)
    aside = databases(world, app) / f"{HIT}-corrupt"
    assert str(aside) in app.log()
    assert aside.is_dir(), "the damaged files are kept"


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("point", ["mend.copied", *(pytest.param(point, marks=pytest.mark.full) for point in MENDING)])
def test_a_kill_in_the_middle_of_a_mending_loses_nothing(world: World, point: str) -> None:
    app = counting(world)
    app.start(fault=f"{point}:kill")
    world.all_run()
    damage(world, app)
    world.instances.remove(app)  # it dies

    def struck() -> bool:
        send(world, 20)
        return not app.running

    world.wait(struck, "the fault strikes")
    world.instances.append(app)
    app.start()
    send(world, 500)
    end_and_judge(world, COUNT, COUNT_BESIDE, crashed=True)
    assert restored_whole(app) <= {f"{HIT}_0"}, app.restored()
    all_is_owned(world, app)


@pytest.mark.short_under("exactly_once_v2")
def test_a_kill_between_the_steps_in_which_a_commit_is_written_costs_that_commit_at_most(world: World) -> None:
    app = counted(world, commit_interval_ms=1_000, **AT_ONCE)
    world.feeds["in"].send(world.records(KEYS // 2, KEYS))  # a commit of several steps
    app.start(fault="apply.step:kill:2")
    world.instances.remove(app)  # it dies

    def struck() -> bool:
        world.feeds["in"].send(world.records(500, KEYS))
        return not app.running

    world.wait(struck, "the fault strikes")
    world.instances.append(app)
    died, stores = crash(world), identities(app.state_dir, world.application_id)
    app.start()
    end_and_judge(world, COUNT, crashed=True)
    hold(kept(stores, identities(app.state_dir, world.application_id)))
    hold(no_more_than(uncommitted_tail(world, died), app.restored()))
    all_is_owned(world, app)


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("point", ["wipe.begun", pytest.param("wipe.made", marks=pytest.mark.full)])
def test_a_kill_while_the_range_of_a_task_that_has_gone_is_wiped_loses_nothing(world: World, point: str) -> None:
    world.input("in", 2, out=2).send(world.records(2_000, keys=300))
    first, second = (world.instance("count", name, **TIDY) for name in ("first", "second"))
    first.start(fault=f"{point}:kill")
    world.processed()
    second.start()
    feed_until_it_dies(world, first)
    had = offsets_on_disk(world, first)
    first.start()
    world.group_is(first, second)
    world.feeds["in"].send(world.records(500, keys=300))
    end_and_judge(world, COUNT, crashed=True)
    nothing_read_twice(world, had, first)
    for app in (first, second):
        all_is_owned(world, app)


@pytest.mark.full
def test_a_folder_that_is_removed_under_the_instance_is_named_and_restored(world: World) -> None:
    app = counting(world)
    app.start()
    world.all_run()
    gone = databases(world, app) / str(HIT)
    with undisturbed(world, app) as feed:
        shutil.rmtree(gone)
        feed_until_it_says(world, app, MENDED, feed=feed)
    assert f"{gone / 'rocksdb'} was removed" in app.log(), app.log_tail()
    end_and_judge(world, COUNT, COUNT_BESIDE, crashed=True)


@pytest.mark.full
def test_a_database_that_cannot_be_opened_ends_the_tasks_of_its_sub_topology_alone(world: World) -> None:
    app = counting(world)
    app.stop()
    database = databases(world, app) / str(HIT)
    aside = database.with_name("aside")
    database.rename(aside)
    database.write_text("no directory")
    places = world.cluster.places([world.topic("in")])
    before = {place: world.committed()[place] for place in places}
    app.start(task_failed=ALONE).says(ENDED)
    with undisturbed(world, app):
        assert str(database) in app.log(), app.log_tail()
    assert {place: world.committed()[place] for place in places} == before
    app.stop()
    database.unlink()
    aside.rename(database)
    app.start()
    end_and_judge(world, COUNT, COUNT_BESIDE, crashed=True)


@pytest.fixture
def own_disk(world: World) -> Iterator[tuple[Path, SmallDisk]]:
    """A state directory in which one sub-topology's database has a disk of its own."""
    state = world.directory / "state"
    folder = state / world.application_id / "engines" / str(HIT)
    folder.parent.mkdir(parents=True)
    with small_disk(folder) as disk:
        yield state, disk


def test_a_full_disk_is_waited_out_and_the_other_sub_topology_goes_on(
    world: World, own_disk: tuple[Path, SmallDisk]
) -> None:
    state, disk = own_disk
    for name, output in (("in", "out"), ("other", "beside")):
        world.input(name, 2, **{output: 2})
    send(world, 1_000)
    app = world.instance("two-counts", state_dir=str(state))
    app.state_dir = state
    app.start()
    world.processed()
    with undisturbed(world, app) as feed:
        disk.leave(ROOM_FOR_A_WHILE)

        def filled() -> object:
            feed()
            records = [one._replace(key=(one.key or b"") * 20) for one in world.records(200, keys=100_000)]
            world.feeds["in"].send(records)
            return FULL in app.log() or NotYet(f"after {len(world.feeds['in'].rows)} inputs")

        world.wait(filled, "the disk is full")
        world.let_pass(5, "the disk stays full", feed)
        disk.make_room()
        feed_until_it_says(world, app, ROOM, feed=feed)
    assert app.log().count(FULL) == 1, "it is said once"
    end_and_judge(world, COUNT, COUNT_BESIDE, crashed=True)


@pytest.mark.short_under("exactly_once_v2")
def test_state_of_a_newer_release_is_refused_with_the_way_out(world: World) -> None:
    app = counting(world)
    for manifest in databases(world, app).glob("*/manifest.json"):
        manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 99'))
    app.start().dies(STATE_UNUSABLE, "99", "run the version that wrote it")
    world.instances.remove(app)
