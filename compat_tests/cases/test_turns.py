"""The turns of the polling thread: whatever is away, or hangs, none of them takes long, and what can be committed is.

Timed by the polling thread itself, as its metrics say: the time between two looks at the group.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.cases.arrivals import CommitGaps
from compat_tests.cases.calls import failing, waiting
from compat_tests.cases.flows import CALLS, COUNT
from compat_tests.cases.steps import proxy_of
from compat_tests.cases.test_coordinator import COMMITS, OF_THE_GROUP
from compat_tests.harness.emitting import COLLECTED
from compat_tests.harness.followers import METRICS, of_all
from compat_tests.harness.instance import Instance, Settings
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.network.faults import Side
from milestones.testing import NotYet

pytestmark = [pytest.mark.full, pytest.mark.broker_faults, pytest.mark.timeout(400)]

LONG_MS = 1_000
"""What a loaded machine makes of 100 ms."""
AWAY_S = 30.0
COMMITTED_S = 20.0
"""Many commit intervals, on a loaded machine."""
PARTITIONS = 6
SETTINGS: Settings = {
    **METRICS, "num_stream_threads": 1, "num_processing_threads": 4, "session_timeout_ms": 120_000,
    "transaction_timeout_ms": 60_000, "request_timeout_ms": 5_000, "task_timeout_ms": 300_000,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _never_waits(world: World) -> None:
    if not world.has(COLLECTED):
        pytest.skip("its stream thread waits for commits")


def started(
    world: World, application: str = "count", fault: str | None = None, out: int = PARTITIONS, **settings: object
) -> Instance:
    """At work, its turns short."""
    world.input("in", PARTITIONS, out=out)
    app = world.instance(application, **{**SETTINGS, **settings}).start(fault=fault)
    world.group_is(app)

    def calm() -> object:
        feed(world)
        longest = longest_turn_ms(app)
        return 0 < longest < LONG_MS or NotYet(f"the longest turn was {longest} ms")

    world.wait(calm, "what the start has taken is forgotten", 150)
    return app


def feed(world: World) -> None:
    world.feeds["in"].send(world.records(100, keys=100))


def longest_turn_ms(app: Instance) -> int:
    return of_all(app, "thread_time_between_poll_max")


def turns_stay_short(world: World, app: Instance, seconds: float, also: Callable[[], object] = lambda: None) -> None:
    longest = 0

    def look() -> None:
        nonlocal longest
        feed(world)
        also()
        longest = max(longest, longest_turn_ms(app))

    world.let_pass(seconds, "it goes on for so long", look)
    print(f"{world.stage}, {world.guarantee}: the longest turn was {longest} ms")
    assert 0 < longest < LONG_MS


@pytest.mark.parametrize("threads", [1, 4])
def test_turns_are_short_while_the_coordinators_are_away(world: World, threads: int) -> None:
    """The only processing thread makes them itself while its calls are short."""
    app = started(world, bootstrap_servers=proxy_of(world).bootstrap_servers, num_processing_threads=threads)
    requests = {*OF_THE_GROUP, *COMMITS[world.guarantee]}
    faults = [proxy_of(world).hold(api, Side.REQUEST) for api in requests]
    turns_stay_short(world, app, AWAY_S)
    for fault in faults:
        fault.end()
    end_and_judge(world, COUNT, crashed=True)


@pytest.mark.parametrize("threads", [1, 4])
def test_turns_are_short_while_an_output_topic_takes_no_writes(world: World, threads: int) -> None:
    app = started(
        world, out=1, bootstrap_servers=proxy_of(world).bootstrap_servers, num_processing_threads=threads
    )
    refused = proxy_of(world).refuse(world.topic("out"))
    feed(world)
    refused.wait()
    turns_stay_short(world, app, AWAY_S)
    refused.end()
    end_and_judge(world, COUNT, crashed=True)


def test_turns_are_short_while_the_only_processing_thread_is_in_a_call_that_does_not_return(world: World) -> None:
    app = started(world, "calls", num_processing_threads=1)
    call = waiting(world, 0)
    world.feeds["in"].send([call.sent])
    call.begins(app)
    turns_stay_short(world, app, AWAY_S)
    call.release()
    end_and_judge(world, CALLS)


@pytest.mark.parametrize("for_s", [AWAY_S, pytest.param(600.0, marks=[pytest.mark.soak, pytest.mark.timeout(1_200)])])
def test_turns_are_short_beside_a_write_that_hangs_a_call_that_does_not_return_and_a_task_that_fails(
    world: World, for_s: float
) -> None:
    """And the other tasks are committed meanwhile."""
    hangs = f"task.write:sleep={int(1000 * (for_s + 150))}:60"
    app = started(world, "calls", hangs, task_timeout_ms=1_000_000, num_processing_threads=6)
    call, failure = waiting(world, 0), failing(world, 1, "as-it-was-told")
    world.feeds["in"].send([call.sent, failure.sent])
    call.begins(app)
    app.says("is in quarantine")
    others = [place for place in world.cluster.places([world.topic("in")]) if place.partition > 1]
    gaps = CommitGaps(world)
    gaps.forget()
    turns_stay_short(world, app, for_s, gaps.look)
    longest = {place: gaps.of([place]) for place in others}
    print(f"longest times between two commits: {longest}; one has a write that hangs")
    assert sum(seconds > COMMITTED_S for seconds in longest.values()) == 1
    call.release()
    failure.release()
    app.kill()
