"""Broken processing threads, from the application's process over Kafka to the judgement: each mutation is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from compat_tests import EOS
from compat_tests.apps.waits import WAITED
from compat_tests.cases.calls import Call, failing, waiting
from compat_tests.cases.flows import CALLS, COUNT
from compat_tests.cases.steps import feed_until_it_says
from compat_tests.harness.instance import Instance
from compat_tests.harness.other_stages import one_that_rolls_back
from compat_tests.harness.world import World
from compat_tests.planted.conftest import Break, judged
from compat_tests.planted.mutated import NOTHING

PARTITIONS, KEYS = 2, 20
CACHE = 10_000_000
ROLLED_BACK = "tasks go on from their last commit"


def shows(kind: str, found: set[str]) -> None:
    """This kind is among what was found; with none, nothing was."""
    assert kind in found if kind else not found, found


def started(
    broken: Break, mutation: str, topology: str = "calls", fault: str | None = None, rolls_back: bool = False,
    **config: Any,
) -> tuple[World, Instance]:  # fmt: skip
    """An instance with processing threads, and some input; `rolls_back`: at a stage whose failed transactions take
    tasks back."""
    world = broken(mutation, EOS, "processing_threads")
    if rolls_back:
        config["milestones"] = one_that_rolls_back(world.stage)
    app = world.instance(topology, group_instance_id="one", num_processing_threads=PARTITIONS, **config)
    app.start(fault, watch=True)
    load(world)
    return world, app


def running(broken: Break, mutation: str, fault: str | None = None) -> tuple[World, Instance]:
    """The same, once that is processed."""
    world, app = started(broken, mutation, fault=fault)
    world.processed()
    return world, app


def load(world: World) -> None:
    world.feeds["in"].send(world.records(40, KEYS))


def beside(world: World, calls: Sequence[Call]) -> None:
    """Input for all tasks, processed and committed by those that aren't in these calls."""
    load(world)
    rest = set(world.cluster.places([world.feeds["in"].topic])) - {call.place for call in calls}
    world.wait(lambda: world.inputs_committed(rest), "the other tasks go on")


def in_a_call(world: World, app: Instance) -> Call:
    """The first task's; it runs until it is released."""
    call = waiting(world, 0)
    world.feeds["in"].send([call.sent])
    call.begins(app)
    return call


@pytest.mark.parametrize(
    ("mutation", "kind"),
    [("half-a-record-is-committed", "duplicate"), pytest.param(NOTHING, "", marks=pytest.mark.full)],
)
def test_a_boundary_that_takes_half_a_record_is_found(broken: Break, mutation: str, kind: str) -> None:
    world, app = running(broken, mutation)
    beside(world, [in_a_call(world, app)])
    app.kill()
    app.start()
    world.finish(app)
    shows(kind, judged(world, CALLS, crashed=True))


@pytest.mark.full
@pytest.mark.parametrize(("mutation", "kind"), [("a-void-result-is-sent-after-all", "duplicate"), (NOTHING, "")])
def test_a_result_of_an_old_epoch_that_counts_is_found(broken: Break, mutation: str, kind: str) -> None:
    world, app = started(broken, mutation, fault="commit.after-flush:abort:12", rolls_back=True)
    world.processed()
    call = in_a_call(world, app)
    feed_until_it_says(world, app, ROLLED_BACK)
    call.release()
    call.ends(app)
    world.finish(app)
    shows(kind, judged(world, CALLS, crashed=True))


@pytest.mark.full
@pytest.mark.parametrize(
    ("mutation", "kind"), [("a-task-that-failed-is-never-given-back", "unprocessed"), (NOTHING, "")]
)
def test_a_lease_that_leaks_is_found(broken: Break, mutation: str, kind: str) -> None:
    world, app = running(broken, mutation)
    call = failing(world, 0, "no-answer")
    world.feeds["in"].send([call.sent])
    beside(world, [call])
    call.release()
    if mutation == NOTHING:
        world.finish(app)
    else:
        app.kill()
    shows(kind, judged(world, CALLS, crashed=True))


@pytest.mark.full
@pytest.mark.parametrize("mutation", ["commits-wait-for-user-code", NOTHING])
def test_a_commit_that_waits_for_user_code_is_found(broken: Break, mutation: str) -> None:
    world, app = running(broken, mutation)
    call = in_a_call(world, app)
    beside(world, [call])
    if mutation == NOTHING:
        assert WAITED not in app.log(), app.log_tail()
    else:
        app.says(WAITED)  # the others' commit may have come before the call was a long one


@pytest.mark.full
@pytest.mark.parametrize(("mutation", "kind"), [("commits-forget-the-caches", "lost"), (NOTHING, "")])
def test_a_commit_of_what_is_still_in_a_cache_is_found(broken: Break, mutation: str, kind: str) -> None:
    world, app = started(broken, mutation, "count", statestore_cache_max_bytes=CACHE)
    if not world.thins(CACHE):
        pytest.skip("no store keeps updates back here")
    world.processed()
    app.kill()
    app.entry = Instance.entry
    app.start()
    world.finish(app)
    shows(kind, judged(world, replace(COUNT, thinned=True), crashed=True))
