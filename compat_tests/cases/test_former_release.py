"""A live group of the release before is upgraded, one instance after the other, and goes back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from compat_tests.cases.closings import Closings
from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT_BY_VALUE
from compat_tests.cases.steps import bounce, loading
from compat_tests.harness.instance import ROOT, Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from milestones.flags import parse_milestones

RELEASE_BEFORE = "82c6e86"
"""The commit: with windows and joins of streams, before suppress, cogroup, foreign keys and all that came with them."""
NEWEST_STAGE = "m4"
"""That it has."""
NAMES = ("one", "two", "three")
ANY_APPLICATION = """
from milestones import StreamsBuilder
builder = StreamsBuilder()
builder.stream("in").to("out")
"""

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def release_before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkout of it."""
    folder = tmp_path_factory.mktemp("release-before") / "checkout"
    git = ("git", "-C", str(ROOT), "worktree")
    made = subprocess.run([*git, "add", "--detach", str(folder), RELEASE_BEFORE], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"this clone can't check {RELEASE_BEFORE} out: {made.stderr.strip()}")
    yield folder
    subprocess.run([*git, "remove", "--force", str(folder)], check=True, capture_output=True)


def runs(one: Instance, stage: str, source: Path) -> None:
    """Its next process runs the code of that checkout, at this stage or the newest that is there."""
    there = source == ROOT or parse_milestones(stage) <= parse_milestones(NEWEST_STAGE)
    one.source, one.config["milestones"] = source, stage if there else NEWEST_STAGE


def moved(world: World, one: Instance, source: Path) -> None:
    """End it; its next process runs the code of that checkout, which knows the state of stages before m6 only."""
    one.stop()
    if source != ROOT and world.has("state_manager"):
        give_out(world, one)
    runs(one, world.stage, source)


def give_out(world: World, one: Instance) -> None:
    """The state of an instance that has ended is in folders."""
    app = world.directory / "any_application.py"
    app.write_text(ANY_APPLICATION)
    command = [sys.executable, "-c", "from milestones.cli import main; main()", "state", "export", str(app)]
    options = ["-a", world.application_id, "--set", f"state_dir={one.state_dir}"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def group_of(world: World, topology: str, source: Path) -> list[Instance]:
    group = [world.instance(topology, name, num_stream_threads=2) for name in NAMES]
    for one in group:
        runs(one, world.stage, source)
        one.start()
    world.group_is(*group)
    return group


def test_a_live_group_of_the_release_before_goes_to_this_one_and_back_and_the_output_stays_exact(
    world: World, release_before: Path
) -> None:
    world.input("in", 6, out=4)
    load = loading(world, 500, 300, 200)
    load()
    group = group_of(world, "count-by-value", release_before)
    for source in (ROOT, release_before, ROOT):
        for one in group:
            bounce(world, one, load, partial(moved, world, source=source))
    end_and_judge(world, COUNT_BY_VALUE, repartitions=[BY_VALUE_REPARTITION])


def test_each_window_is_emitted_once_by_a_group_that_goes_from_the_release_before_to_this_one(
    world: World, release_before: Path
) -> None:
    closings = Closings(world)
    closings.send()
    group = group_of(world, "windows", release_before)
    for one in group:
        bounce(world, one, closings.send, partial(moved, world, source=ROOT))
    closings.send()
    world.processed()
    closings.emitted_once()
    end_and_judge(world)
