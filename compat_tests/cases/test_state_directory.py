"""State directories that are gone, old, damaged, taken or somebody else's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.cases.steps import counted
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.stores import homes, identities
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.in_place import kept
from milestones.common.state.task_storage import ROCKSDB

STATE_UNUSABLE = 4


def counts_on(world: World, app: Instance) -> None:
    """It goes on with more input, and everything is right."""
    world.feeds["in"].send(world.records(500, keys=200))
    app.start()
    end_and_judge(world, COUNT)


def all_but(world: World, app: Instance, home: Path) -> dict[str, str]:
    """The stores that are there, but for those in one place."""
    found = identities(app.state_dir, world.application_id)
    mine = f"{home.parts[-3]}/{home.name}" if in_folders(home) else f"{home.name}_"
    return {store: identity for store, identity in found.items() if not store.startswith(mine)}


def in_folders(home: Path) -> bool:
    return home.parent.name == ROCKSDB


def manifest_of(home: Path) -> Path:
    return (home.parents[1] if in_folders(home) else home) / "manifest.json"


def corrupt(pattern: str) -> Callable[[Path], None]:
    def damage(store: Path) -> None:
        files = sorted(store.rglob(pattern))
        assert files, f"{store} has no file {pattern}: {sorted(path.name for path in store.iterdir())}"
        for file in files:
            file.write_bytes(b"\x00damaged\xff" * max(1, file.stat().st_size // 9))

    return damage


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("file", ["CURRENT", pytest.param("MANIFEST-*", marks=pytest.mark.full)])
def test_a_damaged_store_is_rebuilt_from_its_changelog(world: World, file: str) -> None:
    app = counted(world)
    damaged, *_ = homes(app.state_dir, world.application_id)
    others = all_but(world, app, damaged)
    corrupt(file)(damaged)
    counts_on(world, app)
    hold(kept(others, identities(app.state_dir, world.application_id)))
    assert str(damaged) in app.log(), app.log_tail()


@pytest.mark.short_under("exactly_once_v2")
def test_a_store_that_is_gone_is_restored_and_the_others_stay(world: World) -> None:
    app = counted(world)
    *_, gone = homes(app.state_dir, world.application_id)
    others = all_but(world, app, gone)
    shutil.rmtree(gone)
    counts_on(world, app)
    hold(kept(others, identities(app.state_dir, world.application_id)))


@pytest.mark.short_under("exactly_once_v2")
def test_an_older_state_directory_catches_up(world: World) -> None:
    app = counted(world)
    shutil.copytree(app.state_dir, world.directory / "old")
    counts_on(world, app)
    shutil.rmtree(app.state_dir)
    shutil.move(world.directory / "old", app.state_dir)
    counts_on(world, app)


def test_a_directory_in_use_is_refused_and_its_owner_goes_on(plain_world: World) -> None:
    world = plain_world
    app = counted(world)
    app.start()
    world.group_is(app)
    intruder = world.instance("count", "intruder", state_dir=str(app.state_dir)).start()
    intruder.dies(STATE_UNUSABLE, str(app.state_dir))
    world.instances.remove(intruder)
    world.feeds["in"].send(world.records(500, keys=200))
    end_and_judge(world, COUNT)


def test_a_directory_of_somebody_else_is_refused_and_left_alone(plain_world: World) -> None:
    world = plain_world
    world.create(out=1, **{"in": 1})
    app = world.instance("count")
    foreign = app.state_dir / world.application_id / "thesis.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("years of work")
    app.start().dies(STATE_UNUSABLE, str(foreign.parent))
    assert foreign.read_text() == "years of work"


def test_a_state_dir_that_is_a_file_is_refused(plain_world: World) -> None:
    plain_world.create(out=1, **{"in": 1})
    app = plain_world.instance("count")
    app.state_dir.write_text("no directory")
    app.start().dies(STATE_UNUSABLE, str(app.state_dir))


def test_a_store_of_another_kind_is_refused_with_the_ways_out_and_the_former_topology_goes_on(
    plain_world: World,
) -> None:
    world = plain_world
    app = counted(world)
    app.topology = "windows"
    app.start().dies(STATE_UNUSABLE, "go back to the former kind", "delete its changelog topic")
    app.topology = "count"
    counts_on(world, app)


def test_state_of_an_unknown_format_is_refused_with_the_way_out(plain_world: World) -> None:
    app = counted(plain_world)
    manifest = manifest_of(homes(app.state_dir, plain_world.application_id)[0])
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))
    app.start().dies(STATE_UNUSABLE, "99", str(manifest))
