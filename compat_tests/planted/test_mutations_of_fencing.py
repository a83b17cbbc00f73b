"""A runtime that answers fencing wrongly, from the application's process to the judgement: each mutation is seen."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from compat_tests import ALO, EOS
from compat_tests.cases.flows import COPY, COUNT
from compat_tests.cases.sleepers import BRIEF, asleep, in_blocks, pause_between_transactions
from compat_tests.cases.steps import (
    AT_ONCE,
    PATIENT,
    TOLERANT,
    await_outputs,
    await_timed_out,
    crash,
    feed_until_it_dies,
    feed_until_it_stands,
    meet_late_ends,
    proxy_of,
    standing,
    uncommitted_tail,
)
from compat_tests.harness.instance import Settings
from compat_tests.harness.judge import judge_transactions
from compat_tests.harness.other_stages import one_that_rolls_back
from compat_tests.harness.stores import identities
from compat_tests.harness.world import World
from compat_tests.network.faults import Side
from compat_tests.network.frames import Api
from compat_tests.oracles.findings import kinds
from compat_tests.oracles.flows import Flow
from compat_tests.oracles.in_place import in_place, kept, no_more_than
from compat_tests.oracles.transactions import none_older, none_timed_out
from compat_tests.planted.conftest import Break, judged
from compat_tests.planted.mutated import NOTHING

pytestmark = pytest.mark.full

WIPES = "recovery-wipes-stores"
"""By a roll-back: it is tried at a stage that has some."""
MOST_MS = 1_000
"""Of a transaction that is committed every 500 ms."""
LONG_MS = 60_000
"""`transaction_timeout_ms`: Kafka must not end a transaction before it was judged."""


@pytest.mark.parametrize(
    ("mutation", "topology", "flow"),
    [("a-zombie-commits", "count", COUNT), ("punctuations-commit-without-offsets", "later", COPY)],
)
def test_a_zombie_that_commits_is_found(broken: Break, mutation: str, topology: str, flow: Flow) -> None:
    world = broken(mutation, EOS)
    feed = world.feeds["in"]
    zombie, other = world.instance(topology, "zombie").start(), World.instance(world, topology, "other").start()
    world.group_is(zombie, other)
    feed.send(world.records(600, keys=100))
    world.inputs_processed()
    pause_between_transactions(world, zombie)
    with world.outputs() as outputs:
        world.group_is(other)
        if flow is COUNT:
            feed.send(world.records(300, keys=100))
        await_outputs(world, outputs, len(feed.rows))
        zombie.resume()
        await_outputs(world, outputs, len(feed.rows) + 1)
    zombie.kill()
    other.stop()
    assert "duplicate" in judged(world, flow, crashed=True)


def test_a_zombie_that_goes_on_without_a_transaction_is_found(broken: Break) -> None:
    world = broken("a-zombie-goes-on", ALO)
    feed = world.feeds["in"]
    zombie, other = world.instance("count", "zombie", **BRIEF).start(), World.instance(world, "count", "other").start()
    world.group_is(zombie, other)
    feed.send(in_blocks(world.records(600, keys=100)))
    world.inputs_processed()
    with world.outputs() as outputs:
        with asleep(world, zombie) as nap:
            feed.send(in_blocks(world.records(300, keys=100), b"while"))
            world.group_is(other)
            world.inputs_processed()
        await_outputs(world, outputs, len(feed.rows) + 1)
    zombie.kill()
    other.stop()
    assert "fell-back" in judged(world, crashed=True, asleep=[nap])


@pytest.mark.broker_faults
@pytest.mark.parametrize(
    ("mutation", "side", "expected"),
    [
        ("an-unknown-end-counts-as-committed", Side.REQUEST, {"lost"}),
        ("an-unknown-end-counts-as-rolled-back", Side.ANSWER, {"wrong-value", "duplicate"}),
        (NOTHING, Side.REQUEST, set()),
        (NOTHING, Side.ANSWER, set()),
    ],
)
def test_a_guess_about_the_end_of_a_commit_is_found(
    broken: Break, mutation: str, side: Side, expected: set[str]
) -> None:
    """What didn't end as one thinks is processed again, or sent again."""
    world = broken(mutation, EOS, TOLERANT)
    proxy = proxy_of(world)
    feed = world.feeds["in"]
    settings: Settings = {"session_timeout_ms": 60_000, "producer_socket_timeout_ms": 2_000}
    app = world.instance("count", bootstrap_servers=proxy.bootstrap_servers, **settings).start()
    feed.send(world.records(300, keys=50))
    world.processed()
    ends, begins = proxy.lose(Api.END_TXN, side), proxy.delay(0, Api.INIT_PRODUCER_ID)
    feed.send(world.records(300, keys=50))
    begins.wait()
    ends.end()
    feed.send(world.records(300, keys=50))
    world.finish(app)
    found = judged(world, crashed=True)
    assert found & expected if expected else found == set()


@pytest.mark.broker_faults
def test_an_end_that_ends_the_wrong_transaction_is_found(broken: Break) -> None:
    world = broken("a-producer-goes-on-after-a-lost-connection", EOS, TOLERANT)
    app = world.instance("count", bootstrap_servers=proxy_of(world).bootstrap_servers, group_instance_id="one")
    meet_late_ends(world, app.start())
    world.finish(app)
    assert "duplicate" in judged(world, crashed=True)


@pytest.mark.parametrize(
    ("mutation", "expected"),
    [
        (WIPES, {"wiped", "restored"}),
        ("recovery-gives-tasks-up", {"rejoined", "reopened"}),
        (NOTHING, set()),
    ],
)
def test_a_recovery_that_does_not_stay_in_place_is_found(broken: Break, mutation: str, expected: set[str]) -> None:
    world = broken(mutation, EOS, TOLERANT)
    stage = one_that_rolls_back(world.stage) if mutation == WIPES else world.stage
    app = world.instance("count", milestones=stage, **PATIENT)
    app.start(fault="commit.after-flush:stop:4")
    feed_until_it_stands(world, app)
    before = standing(world, app)
    await_timed_out(world, 1)
    app.resume()
    world.processed()
    found = kinds(in_place(before, standing(world, app)))
    app.stop()
    if world.has("state_manager"):
        expected = expected - {"reopened"}  # a task's stores are ranges of a database that stays open
    assert found >= expected
    assert bool(found) == bool(expected)


@pytest.mark.parametrize(
    ("mutation", "expected"),
    [("stores-are-wiped-after-a-crash", {"restored-more", "wiped"}), (NOTHING, set())],
)
def test_a_crash_that_costs_more_than_it_must_is_found(broken: Break, mutation: str, expected: set[str]) -> None:
    world = broken(mutation, EOS)
    app = world.instance("count", group_instance_id="one", **AT_ONCE).start(fault="commit.after-commit:kill:4")
    feed_until_it_dies(world, app)
    at, stores = crash(world), identities(app.state_dir, world.application_id)
    app.start()
    world.processed()
    restored = app.restored()
    app.stop()
    found = no_more_than(uncommitted_tail(world, at), restored)
    assert kinds(found + kept(stores, identities(app.state_dir, world.application_id))) == expected


def test_a_transaction_that_is_left_open_is_found(broken: Break) -> None:
    world = lived(broken("a-transaction-stays-open", EOS), idle=False, transaction_timeout_ms=LONG_MS)
    found = kinds(judge_transactions(world, exact=True))
    end_what_is_open(world)
    assert found == {"left-open"}


def test_a_transaction_that_stays_open_while_its_application_idles_is_found(broken: Break) -> None:
    world = lived(broken("a-transaction-stays-open", EOS), idle=True)
    assert {"timed-out", "too-old"} <= kinds(
        none_timed_out(world.transactions()) + none_older(world.transactions(), MOST_MS)
    )


def end_what_is_open(world: World) -> None:
    """Else the next test's readers wait for it."""
    for one in world.transactions():
        if one.ended_ms is None:
            successor = {"bootstrap.servers": world.cluster.bootstrap_servers, "transactional.id": one.id}
            Producer(successor).init_transactions(30)


def lived(world: World, *, idle: bool, **settings: int) -> World:
    """One life, with much idleness at its end or none."""
    feed = world.feeds["in"]
    app = world.instance("count", **{**PATIENT, **settings}).start()
    feed.send(world.records(300, keys=50))
    with world.outputs() as outputs:
        await_outputs(world, outputs, 1)
    if idle:
        world.let_pass(1, "nothing is to do")
        await_timed_out(world, 1)
    app.stop()
    return world
