"""A broken runtime, from the application's process over Kafka to the judgement: each mutation is seen.

The mutations are in `mutations/`. What only samples can show is in the other files of this folder.
"""

from __future__ import annotations

import shutil
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from compat_tests import ALO, EOS
from compat_tests.apps.memories import MOMENTS
from compat_tests.apps.waits import WAITED
from compat_tests.cases.flows import BY_VALUE_REPARTITION, COPY, COUNT_BY_VALUE, SLOTS
from compat_tests.cases.steps import AT_ONCE, armed, await_outputs, feed_until_it_dies, feed_until_it_says, order_of
from compat_tests.harness.emitting import COLLECTED
from compat_tests.harness.followers import METRICS, lags
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import judge_disks
from compat_tests.harness.other_stages import one_that_rolls_back
from compat_tests.harness.stores import opened_at
from compat_tests.harness.world import World, stop_all
from compat_tests.oracles.findings import kinds
from compat_tests.oracles.group import (
    all_owned,
    at_most_generations,
    at_most_warming,
    copies_apart,
    no_ghosts,
    one_owner,
)
from compat_tests.oracles.outputs import in_order
from compat_tests.planted.conftest import Break, judged
from compat_tests.planted.mutated import NOTHING
from milestones.testing import DeadlineError, NotYet

RECORDS, KEYS = 300, 20


def live(world: World, app: Instance, *, uncommitted: bool = False) -> None:
    """One life of an instance: more input, all of it processed, a clean end."""
    world.feeds["in"].send(world.records(RECORDS, KEYS, value=lambda number: f"g{number % 7}"))
    with world.cluster.tail(world.topic("out")) as outputs:
        app.start()
        if uncommitted:
            await_outputs(world, outputs, len(world.feeds["in"].rows))
        else:
            world.wait(lambda: world.inputs_committed(but=1), "inputs are committed, but for one record")
    app.stop()


def lives(
    world: World, count: int = 2, *, wipe: bool = False, crashed: bool = False, uncommitted: bool = False
) -> set[str]:
    """An application that counts, is stopped and started again; what is found then. `wipe`: on an empty disk;
    `uncommitted`: its commits say nothing about its progress."""
    app = world.instance("count")
    for number in range(count):
        if number and wipe:
            shutil.rmtree(app.state_dir)
        live(world, app, uncommitted=uncommitted)
    return judged(world, crashed=crashed)


@pytest.mark.parametrize(
    ("guarantee_of_it", "wipe"),
    [(EOS, True), *(pytest.param(one, wipe, marks=pytest.mark.full) for one, wipe in ((ALO, True), (ALO, False)))],
)
def test_with_no_mutation_nothing_is_found(broken: Break, guarantee_of_it: str, wipe: bool) -> None:
    assert lives(broken(NOTHING, guarantee_of_it), wipe=wipe) == set()


def test_an_output_that_is_never_sent_is_found(broken: Break) -> None:
    assert lives(broken("an-output-is-skipped", EOS), 1) == {"lost"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("mutation", "guarantee_of_it", "count", "kind"),
    [
        ("an-output-is-skipped", ALO, 1, "lost"),
        ("an-output-is-sent-twice", EOS, 1, "duplicate"),
        ("an-output-has-another-key", ALO, 1, "wrong-key"),
        ("an-output-has-another-value", ALO, 1, "wrong-value"),
        ("an-output-has-another-timestamp", ALO, 1, "wrong-timestamp"),
        ("an-output-has-no-headers", ALO, 1, "unknown"),
        ("outputs-go-to-the-wrong-partition", ALO, 1, "misplaced"),
        ("two-outputs-of-a-key-are-swapped", ALO, 1, "order"),
        ("the-changelog-lacks-a-key", ALO, 1, "missing"),
        ("the-changelog-lacks-the-last-write-of-each-batch", ALO, 2, "stale"),
        ("the-changelog-has-a-foreign-key", ALO, 1, "extra"),
        ("a-changelog-record-has-another-value", ALO, 1, "never-was"),
        ("commits-go-back-and-forth", ALO, 1, "went-back"),
        ("a-roll-back-does-not-abort", EOS, 1, "duplicate"),
        ("stores-say-more-than-they-have", ALO, 1, "ahead"),
        ("stores-say-less-than-they-have", ALO, 1, "behind"),
        ("stores-are-gone-after-the-end", ALO, 1, "nowhere"),
        ("a-thread-is-left", ALO, 1, "thread"),
        ("a-consumer-stays-open", ALO, 1, "connection"),
        ("a-closed-task-is-still-held", ALO, 1, "memory"),
        ("commits-are-one-too-far", ALO, 2, "beyond-end"),
        ("commits-are-one-too-far", EOS, 2, "lost"),
        ("commits-are-one-too-early", ALO, 2, "unprocessed"),
        ("commits-are-one-too-early", EOS, 2, "duplicate"),
        ("what-is-committed-is-not-applied", EOS, 2, "wrong-value"),
        ("a-store-loses-a-key-at-its-close", EOS, 2, "wrong-value"),
    ],
)
def test_a_broken_runtime_is_found_after_one_life_or_two(
    broken: Break, mutation: str, guarantee_of_it: str, count: int, kind: str
) -> None:
    assert kind in lives(broken(mutation, guarantee_of_it), count)


@pytest.mark.full
def test_a_task_that_stays_locked_is_found(broken: Break) -> None:
    """Its lock is a file before m6, and an entry of a table from m6 on."""
    assert lives(broken("a-task-stays-locked", ALO), 1) & {"file", "memory"}


@pytest.mark.parametrize("guarantee_of_it", [EOS, pytest.param(ALO, marks=pytest.mark.full)])
def test_a_key_that_is_logged_again_in_a_commit_is_found(broken: Break, guarantee_of_it: str) -> None:
    assert "logged-twice" in lives(broken("a-commit-logs-its-keys-again-and-again", guarantee_of_it, COLLECTED), 1)


@pytest.mark.full
def test_a_store_that_does_not_say_up_to_where_is_found_after_a_crash(broken: Break) -> None:
    """A task that is closed empties such a store."""
    world = broken("stores-do-not-say-up-to-where")
    app = world.instance("count").start()
    for _ in range(2):  # a commit is written to the stores before the next one is made
        world.feeds["in"].send(world.records(RECORDS, KEYS))
        world.processed()
    app.kill()
    assert "no-offset" in judged(world, crashed=True)


@pytest.mark.full
def test_scans_that_end_somewhere_are_found(broken: Break) -> None:
    world = broken("scans-end-somewhere", EOS)
    app = world.instance("slots")
    for _ in range(2):  # what the second one scans was committed by the first
        live(world, app)
    assert "wrong-value" in judged(world, SLOTS)


def test_outputs_whose_inputs_are_not_committed_are_found(broken: Break) -> None:
    found = lives(broken("transactions-have-no-offsets", EOS), uncommitted=True)
    assert found >= {"duplicate", "not-committed"}


@pytest.mark.full
@pytest.mark.parametrize(("crashed", "kind"), [(False, "wrong-value"), (True, "too-low")])
def test_a_restoration_that_stops_short_is_found(broken: Break, crashed: bool, kind: str) -> None:
    assert kind in lives(broken("restoration-stops-short"), wipe=True, crashed=crashed)


@pytest.mark.full
def test_a_swap_that_is_legal_for_each_key_is_found_where_the_whole_order_is_promised(broken: Break) -> None:
    world = broken("two-outputs-of-a-partition-are-swapped")
    feed = world.feeds["in"]
    live(world, world.instance("copy"))
    assert judged(world, COPY) == set()
    assert kinds(in_order(world.cluster.read(world.topic("out")), order_of(world, feed.rows))) == {"order"}


@pytest.mark.full
def test_a_repartition_topic_that_is_never_committed_is_found(broken: Break) -> None:
    world = broken("a-repartition-topic-is-never-committed")
    live(world, world.instance("count-by-value"), uncommitted=True)
    found = judged(world, COUNT_BY_VALUE, repartition=BY_VALUE_REPARTITION)
    assert "not-committed" in found


@pytest.mark.parametrize(
    ("mutation", "expected"),
    [
        ("what-is-frozen-is-applied-before-the-commit", {"uncommitted"}),
        pytest.param(NOTHING, set(), marks=pytest.mark.full),
    ],
)
def test_an_uncommitted_write_on_a_crashed_disk_is_found(broken: Break, mutation: str, expected: set[str]) -> None:
    world = broken(mutation, EOS)
    app = world.instance("count", **AT_ONCE)  # else a commit that was made and waits for the disk is there early, too
    live(world, app)  # a store whose first commit is the one that is cut off says no offset at all
    feed_until_it_dies(world, app.start(fault="commit.after-flush:kill:3"))
    assert kinds(judge_disks(world, "counts")) == expected


@pytest.mark.full
def test_a_restoration_of_what_was_aborted_is_found(broken: Break) -> None:
    world = broken("restoration-reads-what-was-aborted", EOS)
    app = world.instance("count").start(fault="commit.after-flush:kill:3")
    feed_until_it_dies(world, app)
    shutil.rmtree(app.state_dir)
    live(world, app)
    assert "wrong-value" in judged(world)


@pytest.mark.full
@pytest.mark.parametrize(
    ("mutation", "expected"), [("restoration-reads-what-was-aborted", {"uncommitted"}), (NOTHING, set())]
)
def test_a_standby_that_reads_what_was_aborted_is_found(broken: Break, mutation: str, expected: set[str]) -> None:
    world = broken(mutation, EOS)
    settings = {"num_standby_replicas": 1, "session_timeout_ms": 60_000, **METRICS}
    active, standby = (world.instance("count", name, **settings) for name in ("active", "standby"))
    active.start(fault="commit.after-flush:kill:30")
    standby.start()
    world.group_is(active, standby)
    feed_until_it_dies(world, active)
    if expected:
        world.wait(
            lambda: set(lags(standby).values()) == {0} or NotYet(lags(standby)), "the standby has read to the end"
        )
    standby.kill()
    assert kinds(judge_disks(world, "counts")) == expected


@pytest.mark.full
@pytest.mark.parametrize(("mutation", "reopened"), [("a-recycled-task-opens-its-stores-anew", True), (NOTHING, False)])
def test_a_store_that_is_closed_when_its_task_is_recycled_is_found(
    broken: Break, mutation: str, reopened: bool
) -> None:
    world = broken(mutation)
    if world.has("state_manager"):
        pytest.skip("stores are ranges of a database that stays open")
    world.feeds["in"].send(world.records(RECORDS, KEYS))
    one, other = (world.instance("count", name, num_standby_replicas=1).start() for name in ("one", "other"))
    world.group_is(one, other)
    world.processed()
    before = datetime.now()
    other.stop()
    world.group_is(one)
    world.finish(one)
    assert any(at > before for at in opened_at(one.state_dir, world.application_id).values()) == reopened


@pytest.mark.full
@pytest.mark.parametrize(("mutation", "kind"), [("static-members-stay", {"ghost"}), (NOTHING, set())])
def test_a_static_member_whose_thread_is_gone_is_found(broken: Break, mutation: str, kind: set[str]) -> None:
    world = broken(mutation)
    one = world.instance("count", group_instance_id="one", session_timeout_ms=45_000)
    one.start(milestones="baseline", num_stream_threads=2)
    world.wait(lambda: len(world.members()) == 2, "the group has two members")
    one.stop()
    before = len(world.history().generations)
    one.start(num_stream_threads=1)
    world.wait(lambda: len(world.history().generations) > before, "the broker has noted the member that came back")
    assert kinds(no_ghosts(world.history().generations[before:], one.name, 1)) == kind


def rebalanced(world: World, *, members: int = 1, generations: int = 1) -> World:
    """Instances that join one after the other, until there was a generation of all and so many of any."""
    world.feeds["in"].send(world.records(RECORDS, KEYS))

    def has_been(count: int) -> object:
        past = world.history().generations
        seen = len({generation.number for generation in past}), max((len(one.members) for one in past), default=0)
        return (seen[0] >= generations and seen[1] >= count) or NotYet(f"{seen[0]} generations, {seen[1]} members")

    for number in range(1, members + 1):
        world.instance("count", f"i{number}").start()
        world.wait(lambda count=number: has_been(count), f"a generation of {number}")  # type: ignore[misc]
    return world


@pytest.mark.full
@pytest.mark.parametrize(
    ("mutation", "how", "check", "kind", "besides"),
    [
        ("tasks-are-given-to-everybody", {"members": 2}, one_owner, "two-owners", {"too-early"}),
        ("tasks-are-given-away-at-once", {"members": 2}, one_owner, "too-early", set()),
        ("standbys-are-where-their-actives-are", {}, copies_apart, "together", set()),
        ("a-member-is-restless", {"generations": 3}, partial(at_most_generations, most=1), "rebalanced", set()),
    ],
    ids=["two owners", "given away too early", "a standby beside its active", "rebalances without a reason"],
)
def test_wrong_assignments_are_found(
    broken: Break, mutation: str, how: dict[str, int], check: Any, kind: str, besides: set[str]
) -> None:
    world = rebalanced(broken(mutation), **how)
    assert kinds(check(world.history().generations)) - besides == {kind}


@pytest.mark.full
def test_more_warm_ups_than_allowed_are_found(broken: Break) -> None:
    world = rebalanced(broken("everything-warms-up"), members=2)

    def found() -> object:
        return "warming" in kinds(at_most_warming(world.history().generations, 1)) or NotYet("none is found")

    world.wait(found, "two warm-ups: both tasks must have an owner first, one changes it")


@pytest.mark.full
def test_a_task_that_is_given_to_nobody_is_found(broken: Break) -> None:
    world = rebalanced(broken("a-task-is-given-to-nobody"))
    places = world.cluster.places([world.feeds["in"].topic])
    assert kinds(all_owned(world.history().generations, places)) == {"unassigned"}


@pytest.mark.full
def test_an_owner_that_does_not_let_go_is_found(broken: Break) -> None:
    world = rebalanced(broken("a-revoked-task-goes-on"), members=2)
    world.group_is(*world.instances)  # else all may be processed before there is a second owner
    world.processed()
    with world.cluster.tail(world.topic("out")) as outputs:
        world.feeds["in"].send(world.records(RECORDS, KEYS))
        await_outputs(world, outputs, 2 * RECORDS + 1)
    stop_all(world.instances)
    assert "duplicate" in judged(world)


@pytest.mark.full
def test_a_wrong_exit_code_is_found(broken: Break) -> None:
    world = broken("the-exit-code-is-wrong")
    with pytest.raises(AssertionError, match="ended with exit code 1"):
        live(world, world.instance("count"))
    without_input = world.instance("several", "two").start()
    with pytest.raises(AssertionError, match="exit code 0, expected 2"):
        without_input.dies(2)


@pytest.mark.full
def test_a_stream_thread_that_waits_for_its_state_updater_is_found(broken: Break) -> None:
    world = broken("what-restores-is-waited-for", needs="state_updater")
    world.feeds["in"].send(world.records(RECORDS, KEYS))
    app = world.instance("count").start()
    world.finish(app)
    shutil.rmtree(app.state_dir)
    app.start(fault="restore.batch:sleep=30000:1", watch=True)
    app.says(" restores {")
    world.instance("count", "other").start()
    app.says(WAITED)


def test_a_task_that_reads_another_ones_range_is_found(broken: Break) -> None:
    assert "wrong-value" in lives(broken("a-range-is-read-with-the-prefix-of-its-neighbour", EOS, "state_manager"))


@pytest.mark.parametrize(
    "mutation",
    [
        "the-disk-is-read-at-each-join",
        pytest.param("stores-are-closed-by-the-thread-that-polls", marks=pytest.mark.full),
    ],
)
def test_a_thread_that_polls_and_uses_the_disk_is_found(broken: Break, mutation: str) -> None:
    assert lives(broken(mutation, EOS, "state_updater"), 1) == {"disk"}


# ---- roll-backs: what user code remembers, and what is in changelogs

STEP, TIMES = "commit.after-flush", 3

GONE = "what init has written is gone"
"""What the user code says when it finds that by itself, and goes on no more: a roll-back of a task's first commit."""


def rolled_back(world: World) -> bool:
    """User code that remembers meets roll-backs, goes on, and ends. False: it has found that something is gone."""
    world.create(ticks=2)
    feed = world.feeds["in"]
    app = world.instance("remembering", milestones=one_that_rolls_back(world.stage))
    app.start(fault=armed(STEP, "abort", TIMES, first=2))
    feed_until_it_says(world, app, f"injected at {STEP}", TIMES)
    feed.send(world.records(100, keys=50))
    try:
        world.finish(app)
    except DeadlineError:
        if GONE not in app.log():
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("mutation", "found"),
    [("a-program-is-kept-over-a-roll-back", True), pytest.param(NOTHING, False, marks=pytest.mark.full)],
)
def test_a_program_that_outlives_a_roll_back_is_found(broken: Break, mutation: str, found: bool) -> None:
    world = broken(mutation, EOS)
    went_on = rolled_back(world)
    assert (not went_on or "lost" in judged(world)) == found


@pytest.mark.parametrize(
    ("mutation", "found"),
    [("a-roll-back-leaves-its-changelog-records", True), pytest.param(NOTHING, False, marks=pytest.mark.full)],
)
def test_a_changelog_that_keeps_what_its_store_took_back_is_found(broken: Break, mutation: str, found: bool) -> None:
    world = broken(mutation, ALO)
    assert rolled_back(world)
    assert ("missing" in kinds(judge_disks(world, MOMENTS))) == found
