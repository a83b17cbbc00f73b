"""Commits that stop nobody: what a crash, a stall or a lost broker leaves between two commit intervals.

The steps that every stage has are met in `test_commit_steps.py` and `test_fencing.py`. Here are those at which the
next interval counts: the request that commits is on its way, and the first outputs of what follows are taken.
"""

from __future__ import annotations

import time

import pytest

from compat_tests import EOS
from compat_tests.cases.flows import COUNT
from compat_tests.cases.sleepers import oversleep_at
from compat_tests.cases.steps import (
    AT_ONCE,
    ENDING,
    NEXT,
    PATIENT,
    STAYS,
    TOLERANT,
    armed,
    await_outputs,
    await_timed_out,
    crash,
    feed_until_it_dies,
    feed_until_it_stands,
    proxy_of,
    standing,
    uncommitted_tail,
    under,
    went_on,
)
from compat_tests.harness.emitting import COLLECTED
from compat_tests.harness.judge import end_and_judge, judge_store
from compat_tests.harness.stores import identities
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.in_place import in_place, kept, no_more_than
from compat_tests.oracles.thinned import table
from milestones.flags import parse_milestones
from milestones.testing import NotYet

STEPS = ENDING, NEXT
TIMES, KILLS, LONG_S = 3, 50, 1_500
"""How often each fault meets each step in the full selection; crashes in all, and what these take at most."""
RARELY_MS = 6_000
"""Between two commits; what happens within half of that after one is outside of any."""
FULL_S = 4.0
"""Many commit intervals."""

ARRIVED_S = 1.0
"""What a process had sent when it was killed is at the broker by then."""

once_or_more = pytest.mark.parametrize("times", [1, pytest.param(TIMES, marks=pytest.mark.full)])


@pytest.fixture(autouse=True)
def _reaches_the_step(request: pytest.FixtureRequest, stage: str) -> None:
    if request.node.callspec.params.get("step") == NEXT and COLLECTED not in parse_milestones(stage):
        pytest.skip("what comes after a commit is no interval of its own")


def what_was_sent_has_arrived(world: World) -> None:
    """A transaction whose end was on its way is over, or stays open."""
    topics = [world.topic("out"), world.topic("counts-changelog")]
    over = time.monotonic() + ARRIVED_S

    def arrived() -> object:
        found = world.cluster.open_transactions(topics)
        return not found or time.monotonic() > over or NotYet(str(found))

    world.wait(arrived, "what was sent has arrived")


@once_or_more
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_between_two_intervals_costs_at_most_what_the_disk_did_not_have(
    world: World, step: str, times: int
) -> None:
    world.input("in", 2, out=2)
    app = world.instance("count", group_instance_id="one", **AT_ONCE)
    stores: dict[str, str] = {}
    for _ in range(times):
        app.start(fault=f"{step}:kill:{world.rng.randint(2, 5)}")
        feed_until_it_dies(world, app)
        what_was_sent_has_arrived(world)
        before, found = crash(world), identities(app.state_dir, world.application_id)
        hold(kept(stores, found))
        stores = found
        app.start()
        world.processed()
        tail, after = uncommitted_tail(world, before), app.restored()
        print(f"{world.stage}, {step}: restored {dict(after)}, not on disk at most {dict(tail)}")
        hold(no_more_than(tail, after))
        app.stop()
    app.start()
    end_and_judge(world, COUNT, crashed=True)
    hold(kept(stores, identities(app.state_dir, world.application_id)))


@once_or_more
@pytest.mark.parametrize("step", STEPS)
def test_a_stall_beyond_the_transactions_time_between_two_intervals_moves_nothing(
    exact_world: World, step: str, times: int
) -> None:
    world = exact_world
    feed = world.input("in", 2, out=2)
    app = world.instance("count", **PATIENT).start(fault=armed(step, "stop", times))
    before = None
    with world.outputs() as outputs:
        for _ in range(times):
            feed_until_it_stands(world, app)
            before = before or standing(world, app)
            await_timed_out(world, 0)
            feed.send(world.records(50, keys=50))
            seen = outputs.poll()
            app.resume()
            await_outputs(world, outputs, seen + 1)
    after = went_on(world, app, crashed=True)
    assert before is not None
    hold(in_place(before, after) if world.has(TOLERANT) else kept(before.stores, after.stores))


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_stands_between_two_intervals_until_its_group_gives_it_up_sends_nothing_of_either(
    world: World, step: str
) -> None:
    oversleep_at(world, step)


@pytest.mark.broker_faults
@once_or_more
@pytest.mark.parametrize("step", [ENDING, under(EOS, NEXT)])
def test_a_broker_that_is_killed_between_two_intervals_costs_nothing(world: World, step: str, times: int) -> None:
    world.input("in", 2, out=2)
    app = world.instance("count", **STAYS).start(fault=armed(step, "stop", times))
    before = None
    for _ in range(times):
        feed_until_it_stands(world, app)
        before = before or standing(world, app)
        world.broker.kill()
        app.resume()
        world.broker.start()
    after = went_on(world, app, crashed=True)
    assert before is not None
    if world.has(TOLERANT) and world.exactly_once:
        hold(in_place(before, after))


@pytest.mark.parametrize("kills", [2, pytest.param(KILLS, marks=[pytest.mark.full, pytest.mark.timeout(LONG_S)])])
def test_at_least_once_crashes_outside_of_commits_count_nothing_twice(plain_world: World, kills: int) -> None:
    """What goes to the changelog goes there in a commit. Outputs are sent as they are made, and are repeated."""
    world = plain_world
    if not world.has(COLLECTED):
        pytest.skip("a changelog's records are sent as they are made")
    feed = world.input("in", 3, out=3)
    app = world.instance("count", commit_interval_ms=RARELY_MS, group_instance_id="one")
    with world.outputs() as outputs:
        while kills:
            app.start()
            feed.send(world.records(100, keys=100))
            world.processed()
            over, seen = time.monotonic() + RARELY_MS / 2_000, outputs.poll()
            feed.send(world.records(500, keys=100))
            await_outputs(world, outputs, seen + world.rng.randint(1, 400))
            if time.monotonic() < over:
                app.kill()
                kills -= 1
            else:
                app.stop()
    app.start()
    end_and_judge(world, COUNT, crashed=True)
    hold(judge_store(world, "counts", table(COUNT, feed.rows)))


@pytest.mark.broker_faults
def test_at_least_once_no_state_is_ahead_of_outputs_that_kafka_does_not_take(plain_world: World) -> None:
    """A store that had seen a record whose output is lost would give it no other one."""
    world = plain_world
    if not world.has(COLLECTED):
        pytest.skip("a changelog's records are sent as they are made")
    feed, proxy = world.input("in", 3, out=1), proxy_of(world)
    app = world.instance("count", group_instance_id="one", bootstrap_servers=proxy.bootstrap_servers).start()
    feed.send(world.records(500, keys=100))
    world.processed()
    refused = proxy.refuse(world.topic("out"))
    feed.send(world.records(20, keys=100))
    refused.wait()
    before = world.committed()
    world.let_pass(FULL_S, "commits are tried", lambda: feed.send(world.records(20, keys=100)))
    assert world.committed() == before
    app.kill()
    refused.end()
    app.start()
    end_and_judge(world, COUNT, crashed=True)
    hold(judge_store(world, "counts", table(COUNT, feed.rows)))
