"""A coordinator that is away: work goes on or waits, the output stays what is promised, nobody has to help."""

from __future__ import annotations

import pytest

from compat_tests.cases.flows import COUNT
from compat_tests.cases.steps import await_outputs, proxy_of
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.network.faults import Side
from compat_tests.network.frames import Api

pytestmark = [pytest.mark.full, pytest.mark.broker_faults]

BEYOND_S = 9.0
"""Longer than the session and the transactions of the suite's applications, shorter than their `task_timeout_ms`. That
a thread says that it lost its membership can't be waited for: it may be waiting for the broker itself."""

VANISHES_S = 60.0
"""Ten sessions."""
SETTLED_S = 15.0
"""A session, another for what the group knew of before, and what a rebalance takes on a busy machine."""
OF_THE_GROUP = (
    Api.FIND_COORDINATOR, Api.JOIN_GROUP, Api.SYNC_GROUP, Api.HEARTBEAT, Api.LEAVE_GROUP, Api.OFFSET_COMMIT,
    Api.OFFSET_FETCH,
)  # fmt: skip
MEMBERS = "*consumer*"
"""The client ids of group members."""

COMMITS = {
    "at_least_once": [Api.OFFSET_COMMIT],
    "exactly_once_v2": [Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN],
}
"""By guarantee, the requests of a commit that a coordinator answers."""


def running_count(world: World) -> Instance:
    """An application that reaches the broker through the proxy, at work."""
    feed = world.input("in", 2, out=2)
    app = world.instance("count", bootstrap_servers=proxy_of(world).bootstrap_servers).start()
    world.group_is(app)
    feed.send(world.records(500, keys=100))
    world.processed()
    return app


def finish(world: World) -> None:
    world.feeds["in"].send(world.records(500, keys=100))
    end_and_judge(world, COUNT, crashed=True)


def test_a_member_that_the_coordinator_gave_up_comes_back_by_itself(world: World) -> None:
    app = running_count(world)
    proxy = proxy_of(world)
    faults = [proxy.lose(api, Side.REQUEST) for api in (Api.HEARTBEAT, Api.JOIN_GROUP)]
    world.feeds["in"].send(world.records(500, keys=100))
    world.wait(lambda: not world.members(), "the group gave its member up")
    for fault in faults:
        fault.end()
    world.group_is(app)
    finish(world)


@pytest.mark.parametrize("side", Side)
def test_commits_that_the_coordinator_does_not_answer_are_made_again(world: World, side: Side) -> None:
    running_count(world)
    proxy = proxy_of(world)
    faults = [proxy.lose(api, side, times=3) for api in COMMITS[world.guarantee]]
    world.feeds["in"].send(world.records(500, keys=100))
    for fault in faults:
        fault.wait(3)
        fault.end()
    finish(world)


def test_a_broker_that_hangs_beyond_session_and_transaction_costs_nothing(world: World) -> None:
    app = running_count(world)
    feed = world.feeds["in"]
    with world.outputs() as outputs:
        feed.send(world.records(20_000, keys=100))
        await_outputs(world, outputs, 700)
        world.broker.pause()
        try:
            world.let_pass(BEYOND_S, "session and transaction have timed out")
        finally:
            world.broker.resume()
        world.group_is(app)
    finish(world)


def test_a_coordinator_whose_packets_vanish_during_a_rebalance_costs_no_thread_and_nobody_more_than_a_session(
    world: World,
) -> None:
    """No connection breaks: what waits for JoinGroup's answer can't tell it from a group that takes its time."""
    one = running_count(world)
    proxy, feed = proxy_of(world), world.feeds["in"]
    faults = [proxy.vanish(api, client=MEMBERS) for api in OF_THE_GROUP]
    other = world.instance("count", "other", bootstrap_servers=proxy.bootstrap_servers).start()
    faults[0].wait()
    world.let_pass(VANISHES_S, "ten sessions pass", lambda: feed.send(world.records(20, keys=100)))
    for fault in faults:
        fault.end()
    world.group_is(one, other, timeout_s=SETTLED_S)
    finish(world)


def test_a_join_group_that_vanishes_holds_its_group_up_for_no_longer_than_a_session(world: World) -> None:
    one = running_count(world)
    proxy = proxy_of(world)
    fault = proxy.vanish(Api.JOIN_GROUP, client="one-*", times=1)
    other = world.instance("count", "other", bootstrap_servers=proxy.bootstrap_servers).start()
    fault.wait()
    world.group_is(one, other, timeout_s=SETTLED_S)
    finish(world)
