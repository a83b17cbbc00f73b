"""A network that delays or loses what is said of a commit: how the transaction ended is found out, never guessed.

What happens to the request that ends a transaction (EndTxn) and to its answer:

| | the broker has ended the transaction | the client's first attempt |
|---|---|---|
| `late` | yes | is answered when nobody waits any more |
| `lost` | yes | is never answered |
| `cut before` | no | its connection breaks, the request is gone |
| `cut after` | yes | its connection breaks, the answer is gone |
| `sent late` | yes, twice | its connection breaks; the request arrives behind the second attempt's |
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.apps.topologies import WAITING
from compat_tests.cases.flows import COPY, COUNT
from compat_tests.cases.steps import TOLERANT, await_outputs, generation, proxy_of
from compat_tests.containers.faults import Fault, Side
from compat_tests.containers.frames import Api
from compat_tests.containers.proxy import KafkaProxy
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import judge, judge_disks
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold

pytestmark = pytest.mark.broker_faults

SOCKET_MS = 2_000
LATE_S = 3.0
SETTINGS = {
    "session_timeout_ms": 60_000,
    "producer_socket_timeout_ms": SOCKET_MS,
    "group_instance_id": "one",  # one that was killed is back at once
    "num_stream_threads": 1,
}


def late(proxy: KafkaProxy) -> Fault:
    return proxy.delay(LATE_S, Api.END_TXN, Side.ANSWER, times=1)


def lost(proxy: KafkaProxy) -> Fault:
    return proxy.hold(Api.END_TXN, Side.ANSWER, times=1)


def cut_before(proxy: KafkaProxy) -> Fault:
    return proxy.lose(Api.END_TXN, Side.REQUEST, times=1)


def cut_after(proxy: KafkaProxy) -> Fault:
    return proxy.lose(Api.END_TXN, Side.ANSWER, times=1)


ONCE: dict[str, Callable[[KafkaProxy], Fault]] = {
    "late": late,
    "lost": lost,
    "cut before": cut_before,
    "cut after": cut_after,
}
SHORT = ("cut after",)


def once(*short: str) -> list[object]:
    return [pytest.param(one, marks=() if one in short else pytest.mark.full) for one in ONCE]


def started(world: World, topology: str) -> Instance:
    """An application that reaches the broker through the proxy, at work."""
    world.create(out=2)
    world.input("in", 2)
    app = world.instance(topology, bootstrap_servers=proxy_of(world).bootstrap_servers, **SETTINGS).start()
    world.group_is(app)
    return app


def finish(world: World, app: Instance, before: int) -> None:
    """More input, all of it processed; then the judgement. On a stage that tolerates it nobody has rejoined."""
    world.feeds["in"].send(world.records(500, keys=100))
    world.processed()
    after = generation(world)
    app.stop()
    judge(world, COUNT, crashed=True)
    if world.has(TOLERANT):
        assert after == before


@pytest.mark.parametrize("what", once("cut after"))
def test_a_commit_whose_answer_does_not_come_is_made_once(exact_world: World, what: str) -> None:
    world = exact_world
    app = started(world, "count")
    feed = world.feeds["in"]
    feed.send(world.records(500, keys=100))
    world.processed()
    before = generation(world)
    fault = ONCE[what](proxy_of(world))
    feed.send(world.records(500, keys=100))
    fault.wait()
    world.processed()
    fault.end()
    finish(world, app, before)


@pytest.mark.full
@pytest.mark.parametrize("what", ONCE)
def test_a_commit_of_what_only_punctuation_has_done_is_made_once_too(exact_world: World, what: str) -> None:
    """Offsets that don't move can't tell whether it was made."""
    world = exact_world
    app = started(world, "later")
    feed = world.feeds["in"]
    with world.outputs() as outputs:
        feed.send(world.records(300, keys=100))
        world.inputs_processed()
        fault = ONCE[what](proxy_of(world))
        fault.wait()
        await_outputs(world, outputs, len(feed.rows))
    fault.end()
    world.processed()
    app.stop()
    judge(world, COPY, crashed=True)
    hold(judge_disks(world, WAITING))


@pytest.mark.parametrize(
    "side", [Side.ANSWER, pytest.param(Side.REQUEST, marks=pytest.mark.full)], ids=["made", "not made"]
)
@pytest.mark.parametrize("topology", ["count", pytest.param("later", marks=pytest.mark.full)])
def test_how_a_commit_has_ended_that_is_never_answered_is_found_out(
    exact_world: World, topology: str, side: Side
) -> None:
    """Every attempt to end the transaction fails, until the application takes another way: a new producer."""
    world = exact_world
    app = started(world, topology)
    proxy, feed = proxy_of(world), world.feeds["in"]
    feed.send(world.records(300, keys=100))
    world.processed()
    before = generation(world)
    ends = proxy.lose(Api.END_TXN, side)
    begins = proxy.delay(0, Api.INIT_PRODUCER_ID)
    with world.outputs() as outputs:
        feed.send(world.records(300, keys=100))
        begins.wait()
        ends.end()
        await_outputs(world, outputs, len(feed.rows))
        if topology == "count":
            finish(world, app, before)
            return
    app.stop()
    judge(world, COPY, crashed=True)
    hold(judge_disks(world, WAITING))


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
    world.processed()
    app.stop()
    judge(world, COUNT, crashed=True)


@pytest.mark.full
def test_an_end_that_arrives_behind_its_repetition_ends_no_later_transaction(exact_world: World) -> None:
    """With Kafka's old transactions (KIP-890 ends that) nothing in the request says which transaction it means: the
    defence is a producer with an epoch of its own after each connection that broke. Without it, what the next
    transaction has sent so far is committed without its offsets."""
    world = exact_world
    app = started(world, "count")
    feed, proxy = world.feeds["in"], proxy_of(world)
    feed.send(world.records(500, keys=100))
    world.processed()
    with world.outputs() as outputs:
        for _ in range(5):
            held = proxy.hold(Api.END_TXN, Side.REQUEST, times=1)
            feed.send(world.records(100, keys=100))
            held.wait()
            proxy.disconnect("*producer*")
            await_outputs(world, outputs, len(feed.rows))
            offsets = proxy.hold(Api.ADD_OFFSETS_TO_TXN, Side.REQUEST, times=1)
            feed.send(world.records(100, keys=100))
            offsets.wait()  # outputs are in the next transaction
            held.end()
            app.kill()
            offsets.end()
            app.start()
            await_outputs(world, outputs, len(feed.rows))
    world.processed()
    app.stop()
    judge(world, COUNT, crashed=True)
