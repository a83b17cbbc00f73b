"""Producers that are fenced, by Kafka's clock or by a successor: who goes on in place, who rejoins, who must stop."""

from __future__ import annotations

import shutil

import pytest

from compat_tests import EOS
from compat_tests.apps.topologies import WAITING
from compat_tests.cases.calls import threaded, waiting
from compat_tests.cases.flows import CALLS, COPY, COUNT
from compat_tests.cases.sleepers import oversleep_at, pause_between_transactions
from compat_tests.cases.steps import (
    COMMIT_STEPS,
    PATIENT,
    TOLERANT,
    TRANSACTION_MS,
    await_outputs,
    standing,
    went_on,
)
from compat_tests.harness.judge import end_and_judge, judge, judge_disks
from compat_tests.harness.world import MakeWorld, World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.group import at_most_generations
from compat_tests.oracles.in_place import in_place
from compat_tests.oracles.transactions import none_older
from compat_tests.oracles.zombies import fallen
from milestones.testing import NotYet

LOOKED_S = 8.0
"""The suite's brokers look for transactions that are too old every 7 s."""
CONFIG_ERROR = 2
"""The exit code."""
TRANSACTIONS = 4
"""So many say how long each may be open."""


def test_an_application_that_is_idle_for_longer_than_a_transaction_may_last_has_none_open(exact_world: World) -> None:
    world = exact_world
    feed = world.input("in", 2, out=2)
    world.instance("count", **PATIENT).start()
    feed.send(world.records(1_000, keys=100))
    world.processed()
    topics = [world.topic("out"), world.topic("counts-changelog")]

    def none_open() -> object:
        found = world.cluster.open_transactions(topics)
        return not found or NotYet(str(found))

    world.wait(none_open, "the last commit's markers are written")

    def idle() -> None:
        assert none_open() is True

    world.let_pass(TRANSACTION_MS / 1000 + LOOKED_S, "Kafka has looked for transactions that are too old", idle)
    feed.send(world.records(1_000, keys=100))
    end_and_judge(world, COUNT)
    hold(
        at_most_generations(world.history().generations, 1),
        none_older(world.transactions(), TRANSACTION_MS // 2 + int(PATIENT["commit_interval_ms"])),
    )


FORGETFUL = {
    "transactional.id.expiration.ms": "2000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    "producer.id.expiration.ms": "2000",
    "producer.id.expiration.check.interval.ms": "500",
}
"""Kafka's defaults are 7 days, an hour, a day and 10 minutes."""


@pytest.fixture
def forgetful_world(make_world: MakeWorld) -> World:
    """On a broker of its own, which forgets producers that are idle."""
    return make_world(EOS, FORGETFUL)


@pytest.mark.full
def test_an_application_that_is_idle_until_kafka_forgets_its_transactional_ids_goes_on(forgetful_world: World) -> None:
    world = forgetful_world
    feed = world.input("in", 2, out=2)
    app = world.instance("count", session_timeout_ms=60_000).start()
    feed.send(world.records(1_000, keys=100))
    world.processed()
    before = standing(world, app)
    world.wait(world.expired, "Kafka forgets the transactional id")
    after = went_on(world, app, crashed=False)
    if world.has(TOLERANT):
        hold(in_place(before, after))


@pytest.mark.full
def test_a_process_that_sleeps_until_its_group_and_kafka_have_forgotten_it_spoils_nothing(
    forgetful_world: World,
) -> None:
    """Its transactional id is nobody's then, so nothing fences it but its generation (KAFKA-18019)."""
    world = forgetful_world
    feed = world.input("in", 2, out=2)
    sleeper, other = world.instance("count", "sleeper").start(), world.instance("count", "other").start()
    world.group_is(sleeper, other)
    with world.outputs() as outputs:
        feed.send(world.records(2_000, keys=100))
        await_outputs(world, outputs, 500)
        sleeper.pause()
        world.group_is(other)
        world.inputs_processed()
        world.wait(lambda: len(world.expired()) == 2, "Kafka forgets both transactional ids: nobody has anything to do")
        feed.send(world.records(500, keys=100))
        sleeper.resume()
        world.group_is(sleeper, other)
        feed.send(world.records(500, keys=100))
    end_and_judge(world, COUNT, crashed=True)


def test_a_transaction_is_committed_before_it_is_too_old_however_rare_commits_are(exact_world: World) -> None:
    """`commit_interval_ms` at its very limit."""
    world = exact_world
    timeout_ms = 4_000
    feed = world.input("in", 2, out=2)
    app = world.instance("count", transaction_timeout_ms=timeout_ms, commit_interval_ms=timeout_ms).start()

    def enough() -> object:
        feed.send(world.records(20, keys=50))
        ended = [one for one in world.transactions() if one.ended_ms is not None]
        return len(ended) >= TRANSACTIONS or NotYet(f"{len(ended)} transactions have ended")

    world.wait(enough, f"{TRANSACTIONS} transactions under load")
    world.finish(app)
    past = world.transactions()
    print(f"{world.stage}: transactions were open for {max(one.open_ms or 0 for one in past)} ms at most")
    judge(world, COUNT)
    hold(none_older(past, timeout_ms // 2 + 500), at_most_generations(world.history().generations, 1))


def test_two_processes_with_one_transactional_id_are_told_so_and_spoil_nothing(exact_world: World) -> None:
    """A state directory that was copied: both have its process id, from which the transactional ids are made."""
    world = exact_world
    if not world.has(TOLERANT):
        pytest.skip("each takes the id from the other, and rejoins, for ever")
    feed = world.input("in", 4, out=4)
    pair = one, other = world.instance("count", "one"), world.instance("count", "other")
    feed.send(world.records(500, keys=100))
    one.start()
    world.finish(one)
    shutil.copytree(one.state_dir, other.state_dir)
    for each in pair:
        each.start()
        each.may_end = True

    def ended() -> object:
        feed.send(world.records(20, keys=100))
        return any(not each.running for each in pair) or NotYet("both go on")

    world.wait(ended, "one of the two ends")
    loser = one if not one.running else other
    loser.dies(CONFIG_ERROR, "another process uses the transactional id", "state_dir")
    for each in pair:
        if each.running:
            each.ask_to_stop()
            each.wait()
    one.start()
    end_and_judge(world, COUNT, crashed=True)


# ---- zombies


@pytest.mark.full
@pytest.mark.parametrize("step", COMMIT_STEPS)
def test_a_process_that_stands_at_a_step_of_a_commit_until_its_group_gives_it_up_spoils_nothing(
    world: World, step: str
) -> None:
    oversleep_at(world, step)


@pytest.mark.full
def test_a_record_that_takes_longer_than_the_poll_interval_leaves_nothing_behind_what_the_next_owner_wrote(
    world: World,
) -> None:
    """The process leaves its group by itself. It hasn't stood still, so it knows: of the outputs of the turn that the
    record was in none is sent, also where nothing fences the producer."""
    if threaded(world):
        pytest.skip("a call holds up no poll there")
    feed = world.input("in", 2, out=2)
    settings = {"max_poll_interval_ms": 6_000, "session_timeout_ms": 30_000}
    slow, other = world.instance("calls", "slow", **settings), world.instance("calls", "other", **settings)
    slow.start()
    feed.send(world.records(200, keys=5))
    world.processed()
    call = waiting(world, 0)
    feed.send([*world.records(200, keys=5), call.sent, *world.records(200, keys=5)])
    call.begins(slow)
    other.start()
    world.group_is(other)
    feed.send(world.records(200, keys=5))
    world.inputs_processed()
    call.release()
    call.ends(slow)
    world.group_is(slow, other)
    feed.send(world.records(200, keys=5))
    end_and_judge(world, CALLS, crashed=True)
    for topic in (world.topic("out"), world.topic("counts-changelog")):
        assert not fallen(world.cluster.read(topic)), f"an old count was written to {topic} behind a newer one"


@pytest.mark.short_under("exactly_once_v2")
def test_a_process_that_was_given_up_does_not_commit_what_only_punctuation_has_done(world: World) -> None:
    """Its offsets don't move any more: nothing but the member's generation can tell Kafka that it is a zombie."""
    feed = world.input("in", 2, out=2)
    sleeper, other = world.instance("later", "sleeper").start(), world.instance("later", "other").start()
    world.group_is(sleeper, other)
    feed.send(world.records(600, keys=100))
    world.inputs_processed()
    pause_between_transactions(world, sleeper)
    with world.outputs() as outputs:
        world.group_is(other)
        await_outputs(world, outputs, len(feed.rows) - 100)
        sleeper.resume()
        world.group_is(sleeper, other)
        await_outputs(world, outputs, len(feed.rows))
    end_and_judge(world, COPY, crashed=True, zombies=True)
    if world.exactly_once:
        hold(judge_disks(world, WAITING))
