"""Static members: whoever is back within the session time-out was never away, for the group."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.cases.steps import proxy_of
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.network.faults import Side
from compat_tests.network.frames import Api
from compat_tests.oracles.findings import hold
from compat_tests.oracles.group import no_ghosts
from milestones.testing import NotYet

FAILED, UNREACHABLE = 1, 3
RESTARTS = {"short": 6, "full": 30, "soak": 30}


@pytest.mark.short_under("exactly_once_v2")
def test_rolling_restarts_of_a_static_group_under_load_are_no_rebalance(
    world: World, request: pytest.FixtureRequest
) -> None:
    feed = world.input("in", 6, out=4)
    group = [
        world.instance("count", name, group_instance_id=name, num_stream_threads=2, session_timeout_ms=25_000).start()
        for name in ("one", "two", "three")
    ]

    even = [2] * 3 if world.has("polling_thread") else [1] * 6

    def one_each() -> object:
        shares = sorted(map(len, world.members().values()))
        return shares == even or NotYet(str(shares))

    def load() -> None:
        feed.send(world.records(300, keys=100))

    load()
    world.wait(one_each, "each of six threads has one partition")
    world.all_run()
    before = world.history().generations[-1]
    restarts = RESTARTS[request.config.option.selection]
    for number in range(restarts):
        one = group[number % len(group)]
        load()
        one.stop()
        load()
        one.start()
        load()
        world.all_run()
    world.processed()
    after = world.history().generations[-1]
    print(f"{restarts} restarts: generation {before.number} before, {after.number} after")
    assert (after.number, len(after.members)) == (before.number, len(even))
    end_and_judge(world, COUNT)


SESSION_MS = 45_000
"""So long that a start that waits for a session to end is noticed."""
STATIC: dict[str, Any] = {"group_instance_id": "one", "session_timeout_ms": SESSION_MS}


def settles(world: World, app: Instance, members: int) -> float:
    """Wait until the group is stable with so many members; the seconds since the instance began to join."""
    app.says("joins the group")
    began = time.monotonic()

    def settled() -> object:
        names = sorted(world.members())
        return len(names) == members or NotYet(str(names))

    world.wait(settled, f"the group has {members} members", SESSION_MS / 1000 / 2)
    return time.monotonic() - began


def ids_on_disk(app: Instance, kind: str) -> set[str]:
    """What the state directory of an instance that has ended remembers: the last parts of its ids."""
    (identity,) = app.state_dir.glob("*/process")
    return {id.rpartition("-")[2] for id in json.loads(identity.read_text())[kind]}


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("others", [pytest.param(0, marks=pytest.mark.full), 1])
def test_a_start_with_fewer_threads_leaves_no_member_behind_and_waits_for_no_session(world: World, others: int) -> None:
    """From the baseline with four stream threads to this stage with one, and back, twice, alone or beside another. With
    a polling thread, an instance of four threads is one member."""
    feed = world.input("in", 8, out=4)
    if others:
        world.instance("count", "two", **{**STATIC, "group_instance_id": "two"}).start()
    app = world.instance("count", **STATIC)
    fewer = 4 if world.has("polling_thread") else 1
    for stage, threads, members in [("baseline", 4, 4), (world.stage, fewer, 1)] * 2:
        before = len(world.history().generations)
        app.start(milestones=stage, num_stream_threads=threads)
        took = settles(world, app, members + others)
        print(f"{stage} with {threads} threads: the group is settled {took:.2f} s after the first join")
        hold(no_ghosts(world.history().generations[before:], app.name, members))
        feed.send(world.records(300, keys=100))
        world.processed()
        app.stop()
        assert ids_on_disk(app, "static_ids") == {str(number) for number in range(1, members + 1)}
    app.start(num_stream_threads=1)
    end_and_judge(world, COUNT)


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("point", ["ids.retired:kill:2", "static.left:kill"])
def test_a_start_that_is_killed_while_it_retires_ids_is_made_up_for_by_the_next(world: World, point: str) -> None:
    if point.startswith("ids") and not world.exactly_once:
        pytest.skip("there are no transactional ids")
    feed = world.input("in", 8, out=4)
    app = world.instance("count", **STATIC)
    app.start(milestones="baseline", num_stream_threads=6)
    settles(world, app, 6)
    feed.send(world.records(300, keys=100))
    world.processed()
    app.stop()
    feed.send(world.records(300, keys=100))
    app.start(fault=point, num_stream_threads=1)
    app.dies(-9)
    assert ids_on_disk(app, "static_ids") == {"1", "2", "3", "4", "5", "6"}
    app.start(num_stream_threads=1)
    settles(world, app, 1)
    world.processed()
    app.stop()
    assert ids_on_disk(app, "static_ids") == {"1"}
    assert ids_on_disk(app, "transactional_ids") == ({"1"} if world.exactly_once else set())
    app.start(num_stream_threads=1)
    end_and_judge(world, COUNT, crashed=True)


@pytest.mark.full
@pytest.mark.broker_faults
def test_a_start_ends_while_the_coordinator_of_obsolete_ids_is_away_and_forgets_none(exact_world: World) -> None:
    """The broker is there, but the transaction coordinator answers nothing."""
    world, proxy = exact_world, proxy_of(exact_world)
    feed = world.input("in", 8, out=4)
    app = world.instance("count", **STATIC, bootstrap_servers=proxy.bootstrap_servers)
    app.start(milestones="baseline", num_stream_threads=6)
    settles(world, app, 6)
    feed.send(world.records(300, keys=100))
    world.processed()
    app.stop()
    away = proxy.lose(Api.INIT_PRODUCER_ID, Side.REQUEST)
    app.start(num_stream_threads=1)
    app.dies(UNREACHABLE, "transactional id", "start again")
    assert ids_on_disk(app, "transactional_ids") == ids_on_disk(app, "static_ids") == {"1", "2", "3", "4", "5", "6"}
    away.end()
    app.start(num_stream_threads=1)
    settles(world, app, 1)
    feed.send(world.records(300, keys=100))
    world.processed()
    assert ids_on_disk(app, "transactional_ids") == ids_on_disk(app, "static_ids") == {"1"}
    end_and_judge(world, COUNT)


@pytest.mark.short_under("exactly_once_v2")
def test_of_two_instances_with_one_group_instance_id_the_older_ends_with_the_way_out_and_nothing_is_lost(
    world: World,
) -> None:
    feed = world.input("in", 8, out=4)
    one, other = (world.instance("count", name, **STATIC) for name in ("one", "other"))
    one.start()
    feed.send(world.records(300, keys=100))
    world.processed()
    other.start()
    one.dies(FAILED, "group_instance_id")
    feed.send(world.records(300, keys=100))
    world.processed()
    assert not one.running
    one.start(group_instance_id="another")
    world.all_run()
    feed.send(world.records(300, keys=100))
    end_and_judge(world, COUNT, crashed=True)


@pytest.mark.short_under("exactly_once_v2")
def test_a_removed_thread_is_no_member_of_the_next_start_either(world: World) -> None:
    feed = world.input("in", 4, out=4)
    app = world.instance("count", **STATIC, milestones="baseline").start(num_stream_threads=2)
    settles(world, app, 2)
    app.remove_thread()
    settles(world, app, 1)
    feed.send(world.records(300, keys=100))
    world.processed()
    app.stop()
    assert ids_on_disk(app, "static_ids") == {"1"}
    app.start(num_stream_threads=1)
    end_and_judge(world, COUNT)
