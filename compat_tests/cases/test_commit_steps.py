"""Each step of a commit, met by a process or a broker that dies there or stands still.

Exactly once stays exact, at least once loses nothing, no store is wiped, and what is restored after a crash is at most
what the disk didn't have yet: of one commit.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.cases.steps import (
    AT_ONCE,
    COMMIT_STEPS,
    IN_TRANSACTION,
    PATIENT,
    STAYS,
    TOLERANT,
    Crash,
    armed,
    await_outputs,
    await_timed_out,
    commit_steps_of,
    crash,
    feed_until_it_dies,
    feed_until_it_stands,
    standing,
    uncommitted_tail,
    went_on,
)
from compat_tests.harness.brokers import Broker
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.stores import identities
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.in_place import Standing, in_place, kept, no_more_than

TIMES = 3
"""How often each fault meets each step in the full selection."""
AWAY_S = 4.0

once_or_more = pytest.mark.parametrize("times", [1, pytest.param(TIMES - 1, marks=pytest.mark.full)])


@once_or_more
@pytest.mark.parametrize("step", COMMIT_STEPS)
def test_a_crash_at_any_step_of_a_commit_is_survived(world: World, step: str, times: int) -> None:
    world.input("in", 2, out=2)
    app = world.instance("count", group_instance_id="one", **AT_ONCE)
    crashes, restored = list[Crash](), list[Counter[str]]()
    for _ in range(times):
        app.start(fault=f"{step}:kill:{world.rng.randint(1, 4)}")
        feed_until_it_dies(world, app)
        restored.append(app.restored())
        crashes.append(crash(world))
    stores = identities(app.state_dir, world.application_id)
    app.start()
    world.processed()
    restored.append(app.restored())
    end_and_judge(world, COUNT, crashed=True)
    hold(kept(stores, identities(app.state_dir, world.application_id)))
    for before, after in zip(crashes, restored[1:], strict=True):
        tail = uncommitted_tail(world, before)
        print(f"{world.stage}, {step}: restored {dict(after)}, not on disk at most {dict(tail)}")
        hold(no_more_than(tail, after))


@once_or_more
@pytest.mark.parametrize("step", commit_steps_of("commit.after-flush"))
def test_a_stall_beyond_the_transaction_timeout_costs_a_rebalance_without_fencing_tolerance_only(
    exact_world: World, step: str, times: int
) -> None:
    world = exact_world
    feed = world.input("in", 2, out=2)
    app = world.instance("count", **PATIENT).start(fault=armed(step, "stop", times))
    before: Standing | None = None
    with world.outputs() as outputs:
        for number in range(1, times + 1):
            feed_until_it_stands(world, app)
            before = before or standing(world, app)
            await_timed_out(world, number if step in IN_TRANSACTION else 0)
            feed.send(world.records(50, keys=50))  # behind a commit there may be nothing left to do
            seen, began = outputs.poll(), time.monotonic()
            app.resume()
            await_outputs(world, outputs, seen + 1)
            print(f"{world.stage}, {step}: outputs come again {time.monotonic() - began:.2f} s after the stall")
    after = went_on(world, app, crashed=True)
    assert before is not None
    if world.has(TOLERANT) or step not in IN_TRANSACTION:
        hold(in_place(before, after))
    else:
        hold(kept(before.stores, after.stores))
        assert after.generation > before.generation


Change = Callable[[Broker], None]
OUTAGES: dict[str, tuple[Change, Change, int]] = {
    "killed": (Broker.kill, Broker.start, TIMES),
    "away": (Broker.pause, Broker.resume, 1),
}
"""What happens to the broker, which is the coordinator of group and transactions; what ends it; how often."""


@pytest.mark.full
@pytest.mark.broker_faults
@pytest.mark.parametrize("step", COMMIT_STEPS)
@pytest.mark.parametrize("outage", OUTAGES)
def test_a_broker_that_is_killed_or_away_at_any_step_of_a_commit_costs_nothing(
    world: World, outage: str, step: str
) -> None:
    strike, back, times = OUTAGES[outage]
    world.input("in", 2, out=2)
    app = world.instance("count", **STAYS).start(fault=armed(step, "stop", times))
    before: Standing | None = None
    for _ in range(times):
        feed_until_it_stands(world, app)
        before = before or standing(world, app)
        strike(world.broker)
        app.resume()
        if outage == "away":
            world.let_pass(AWAY_S, "calls to the broker have timed out")
        back(world.broker)
    after = went_on(world, app, crashed=True)
    assert before is not None
    if world.has(TOLERANT) and world.exactly_once:
        hold(in_place(before, after))
