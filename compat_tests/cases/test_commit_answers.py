"""A network that delays or loses what is said of a commit: how the transaction ended is found out, never guessed.

What happens to the request that ends a transaction (EndTxn) and to its answer:

| | the broker has ended the transaction | the client's first attempt |
|---|---|---|
| `late` | yes | is answered when nobody waits any more |
| `lost` | yes | is never answered |
| `cut before` | no | its connection breaks, the request is gone |
| `cut after` | yes | its connection breaks, the answer is gone |
| `sent late` | yes, twice | its connection breaks; the request arrives behind that of the second attempt |
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.apps.topologies import WAITING
from compat_tests.cases.calls import threaded
from compat_tests.cases.flows import COPY, COUNT
from compat_tests.cases.steps import TOLERANT, await_outputs, generation, meet_late_ends, proxy_of, standing
from compat_tests.harness.instance import Instance, Settings
from compat_tests.harness.judge import end_and_judge, judge_disks
from compat_tests.harness.world import World
from compat_tests.network.faults import Fault, Side
from compat_tests.network.frames import Api
from compat_tests.network.proxy import KafkaProxy
from compat_tests.oracles.findings import hold
from compat_tests.oracles.in_place import Standing, in_place
from milestones.testing import DeadlineError

pytestmark = pytest.mark.broker_faults

SOCKET_MS = 2_000
LATE_S = 3.0
ANSWERED_S = 5.0
"""A heartbeat, which tells of the rebalance, and a loaded machine; a commit may stay without an answer for longer."""
SETTINGS: Settings = {
    "session_timeout_ms": 60_000,
    "producer_socket_timeout_ms": SOCKET_MS,
    "group_instance_id": "one",  # one that was killed is back at once
    "num_stream_threads": 1,
}


ONCE: dict[str, Callable[[KafkaProxy], Fault]] = {
    "cut after": lambda proxy: proxy.lose(Api.END_TXN, Side.ANSWER, times=1),
    "cut before": lambda proxy: proxy.lose(Api.END_TXN, Side.REQUEST, times=1),
    "late": lambda proxy: proxy.delay(LATE_S, Api.END_TXN, Side.ANSWER, times=1),
    "lost": lambda proxy: proxy.hold(Api.END_TXN, Side.ANSWER, times=1),
}
TOPOLOGIES = ["count", pytest.param("later", marks=pytest.mark.full)]
"""Commits of `later` are of what only punctuation has done: their offsets don't move, so these can't tell how one
ended."""


def started(world: World, topology: str) -> Instance:
    """An application that reaches the broker through the proxy, at work."""
    world.input("in", 2, out=2)
    app = world.instance(topology, bootstrap_servers=proxy_of(world).bootstrap_servers, **SETTINGS).start()
    world.group_is(app)
    return app


def finish(world: World, app: Instance, before: Standing) -> None:
    """More input, all of it processed; then the judgement. On a stage that tolerates it nothing has moved."""
    feed, flow = world.feeds["in"], COUNT if app.topology == "count" else COPY
    with world.outputs() as outputs:
        feed.send(world.records(200, keys=100))
        await_outputs(world, outputs, len(feed.rows))
    world.processed()
    after = standing(world, app)
    end_and_judge(world, flow, crashed=True)
    if flow is COPY:
        hold(judge_disks(world, WAITING))
    if world.has(TOLERANT):
        hold(in_place(before, after))


@pytest.mark.parametrize("what", ["cut after", *(pytest.param(one, marks=pytest.mark.full) for one in [*ONCE][1:])])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_commit_whose_answer_does_not_come_is_made_once(exact_world: World, topology: str, what: str) -> None:
    world = exact_world
    app = started(world, topology)
    feed = world.feeds["in"]
    feed.send(world.records(300, keys=100))
    world.processed()
    before = standing(world, app)
    fault = ONCE[what](proxy_of(world))
    fed_until(world, app, lambda: fault.hits > 0)
    world.processed()
    fault.end()
    finish(world, app, before)


@pytest.mark.parametrize(
    "side", [Side.ANSWER, pytest.param(Side.REQUEST, marks=pytest.mark.full)], ids=["made", "not made"]
)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_how_a_commit_has_ended_that_is_never_answered_is_found_out(
    exact_world: World, topology: str, side: Side
) -> None:
    """Every attempt to end the transaction fails, until the application takes another way: a new producer."""
    world = exact_world
    app = started(world, topology)
    proxy, feed = proxy_of(world), world.feeds["in"]
    feed.send(world.records(300, keys=100))
    world.processed()
    before = standing(world, app)
    ends, begins = proxy.lose(Api.END_TXN, side), proxy.delay(0, Api.INIT_PRODUCER_ID)
    fed_until(world, app, lambda: begins.hits > 0)
    ends.end()
    finish(world, app, before)


def fed_until(world: World, app: Instance, met: Callable[[], bool]) -> None:
    """Until the fault has met something: of a count a commit of input, of punctuations one of theirs alone."""
    if app.topology == "count":
        world.feeds["in"].send(world.records(300, keys=100))
    world.wait(met, "the network meets a commit")


def test_while_a_commit_has_no_answer_the_group_is_answered_where_other_threads_process(exact_world: World) -> None:
    """One more member joins the group; its first generation waits for all members. Where the stream thread processes
    itself it also waits for its commits."""
    world = exact_world
    patient: Settings = {"producer_socket_timeout_ms": 60_000, "transaction_timeout_ms": 60_000}
    feed, proxy = world.input("in", 2, out=2), proxy_of(world)
    app = world.instance("count", bootstrap_servers=proxy.bootstrap_servers, **{**SETTINGS, **patient}).start()
    world.group_is(app)
    feed.send(world.records(300, keys=100))
    world.processed()
    before, fault = generation(world), proxy.hold(Api.END_TXN, Side.ANSWER, times=1)
    feed.send(world.records(300, keys=100))
    fault.wait()
    settings = {"bootstrap_servers": proxy.bootstrap_servers, **SETTINGS, **patient, "group_instance_id": None}
    other = world.instance("count", "other", **settings).start()
    other.says("joins the group")
    answered = True
    try:
        world.wait(lambda: generation(world) > before, "the thread that commits joins the new generation", ANSWERED_S)
    except DeadlineError:
        answered = False
    fault.end()
    assert answered == threaded(world)
    end_and_judge(world, COUNT)


@pytest.mark.full
@pytest.mark.parametrize("side", Side, ids=["not made", "made"])
def test_a_process_that_is_killed_while_it_waits_for_the_answer_finds_out_when_it_is_back(
    exact_world: World, side: Side
) -> None:
    world = exact_world
    app = started(world, "count")
    feed, proxy = world.feeds["in"], proxy_of(world)
    feed.send(world.records(500, keys=100))
    world.processed()
    fault = proxy.hold(Api.END_TXN, side)
    feed.send(world.records(500, keys=100))
    fault.wait()
    app.kill()
    fault.end()
    app.start()
    end_and_judge(world, COUNT, crashed=True)


@pytest.mark.full
def test_an_end_that_arrives_behind_its_repetition_ends_no_later_transaction(exact_world: World) -> None:
    world = exact_world
    app = started(world, "count")
    meet_late_ends(world, app)
    end_and_judge(world, COUNT, crashed=True)


