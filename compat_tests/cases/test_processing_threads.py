"""User code that blocks or fails: whom it holds up, and whom it doesn't."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from compat_tests.apps.calls import TICK_MS
from compat_tests.apps.waits import WAITED
from compat_tests.cases.arrivals import PROMPT_S, are_prompt
from compat_tests.cases.calls import Call, failing, taking, threaded, waiting
from compat_tests.cases.flows import BY_VALUE_REPARTITION, CALLS, COPY, COUNT, COUNT_BY_VALUE
from compat_tests.cases.steps import await_outputs, feed_until_it_says, generation, loading
from compat_tests.harness.emitting import COLLECTED
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.oracles.rows import Place, Row
from milestones.testing import NotYet, TopicTail

KEYS = 200
PARTITIONS = 4
CACHE = 10_000_000
THREADS: dict[str, Any] = {"num_stream_threads": 1, "num_processing_threads": PARTITIONS}
LIMIT_MS = 3_000
"""`max_poll_interval_ms`."""
CALL_MS = 3 * LIMIT_MS
FAILED = 1
LOST = "membership lost"
ROLLED_BACK, SENT_AGAIN = "tasks go on from their last commit", "what the transaction held is sent again"


def running(world: World, topology: str = "calls", fault: str | None = None, **settings: Any) -> Instance:
    """An instance that has processed something."""
    feed = world.input("in", PARTITIONS, out=PARTITIONS)
    app = world.instance(topology, **THREADS, **settings).start(fault, watch=threaded(world))
    feed.send(world.records(200, KEYS))
    world.processed()
    return app


def all_but(world: World, *places: Place) -> set[Place]:
    """The other partitions of the input."""
    return set(world.cluster.places([world.feeds["in"].topic])) - set(places)


@pytest.mark.short_under("exactly_once_v2")
def test_a_call_longer_than_max_poll_interval_costs_a_member_its_place_without_processing_threads_only(
    world: World,
) -> None:
    app = running(world, max_poll_interval_ms=LIMIT_MS)
    call = taking(world, 0, CALL_MS)
    with world.outputs() as outputs:
        *_, row = world.feeds["in"].send([*world.records(100, KEYS), call.sent])
        call.begins(app)
        if threaded(world):
            goes_on_beside(world, app, outputs, call, row)
        else:
            app.says(LOST)
    end_and_judge(world, CALLS, crashed=not threaded(world))


def goes_on_beside(world: World, app: Instance, outputs: TopicTail, call: Call, row: Row) -> None:
    """While the call runs: the same generation, commits of all tasks, its own up to the call, others' outputs."""
    before, rest = generation(world), all_but(world, call.place)

    def committed() -> object:
        world.feeds["in"].send(world.records(20, KEYS))
        now = world.committed()
        return (now.get(row.place) == row.offset and now.keys() >= rest) or NotYet(f"{row} is in work, committed {now}")

    world.wait(committed, "what was before the call is committed")
    at = world.committed()
    are_prompt(world, outputs, rest, lambda: call.has_ended(app) or NotYet("it runs"), "a call ends", keys=KEYS)
    now = world.committed()
    assert all(now[place] > at[place] for place in rest), f"nothing was committed beside the call: {at}, {now}"
    assert generation(world) == before
    assert LOST not in app.log()
    assert WAITED not in app.log(), app.log_tail()


def calls_in(world: World, app: Instance, places: Collection[Place]) -> list[Call]:
    """One in each of these partitions, all of them running until they are released."""
    calls = [waiting(world, place.partition) for place in sorted(places)]
    world.feeds["in"].send(call.sent for call in calls)
    for call in calls:
        call.begins(app)
    return calls


def return_to(app: Instance, calls: Collection[Call]) -> None:
    """The calls have run all the time; now they return."""
    assert not any(call.has_ended(app) for call in calls)
    for call in calls:
        call.release()
    for call in calls:
        call.ends(app)


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("back", [False, pytest.param(True, marks=pytest.mark.full)], ids=["away", "and back"])
def test_a_task_that_is_taken_away_while_its_call_runs_is_released_at_once_and_the_call_does_nothing(
    world: World, back: bool
) -> None:
    if not threaded(world):
        pytest.skip("the stream thread makes the calls: it answers nobody meanwhile")
    one = running(world)
    feed = world.feeds["in"]
    calls = calls_in(world, one, all_but(world))
    began = time.monotonic()
    other = world.instance("calls", "other", **THREADS).start()
    world.group_is(one, other)
    moved = world.inputs_of(other)
    feed.send(world.records(200, KEYS))
    world.wait(lambda: world.inputs_committed(moved), "the new owner has processed what the calls are about")
    print(f"{len(moved)} tasks had moved and gone on after {time.monotonic() - began:.1f} s; their calls still ran")
    assert WAITED not in one.log(), one.log_tail()
    if back:
        other.stop()
        world.group_is(one)
    return_to(one, calls)
    feed.send(world.records(200, KEYS))
    end_and_judge(world, CALLS)


@pytest.mark.short_under("exactly_once_v2")
def test_a_call_that_runs_while_its_task_is_rolled_back_or_what_it_did_before_is_sent_again_counts_once(
    world: World,
) -> None:
    if not threaded(world):
        pytest.skip("nothing is committed while a call runs, so nothing can fail")
    app = running(world, fault="commit.after-flush:abort:12")
    calls = calls_in(world, app, [Place(world.feeds["in"].topic, 0)])
    rest = all_but(world, calls[0].place)
    feed_until_it_says(world, app, SENT_AGAIN if world.has(COLLECTED) else ROLLED_BACK)
    world.feeds["in"].send(world.records(200, KEYS))
    world.wait(lambda: world.inputs_committed(rest), "the other tasks go on")
    return_to(app, calls)
    end_and_judge(world, CALLS, crashed=True)


@pytest.mark.short_under("exactly_once_v2")
def test_a_kill_while_calls_run_is_survived(world: World) -> None:
    if not threaded(world):
        pytest.skip("a crash like any other")
    app = running(world, group_instance_id="one")
    calls_in(world, app, all_but(world, Place(world.feeds["in"].topic, 0)))
    world.feeds["in"].send(world.records(200, KEYS))
    app.kill()
    app.start()
    end_and_judge(world, CALLS, crashed=True)


@pytest.mark.short_under("exactly_once_v2")
def test_an_instance_that_is_stopped_while_calls_run_has_handed_its_tasks_over_before_they_return(
    world: World,
) -> None:
    if not threaded(world):
        pytest.skip("the stream thread makes the calls: it hears of the stop when they have returned")
    one = running(world)
    other = world.instance("calls", "other", **THREADS).start()
    world.group_is(one, other)
    calls = calls_in(world, one, world.inputs_of(one))
    began = time.monotonic()
    one.ask_to_stop()
    world.group_is(other)
    world.feeds["in"].send(world.records(200, KEYS))
    world.inputs_processed()
    print(f"all had moved and gone on after {time.monotonic() - began:.1f} s; the calls still ran")
    return_to(one, calls)
    one.dies(0)
    end_and_judge(world, CALLS)


@pytest.mark.full
def test_a_stop_while_a_call_runs_ends_cleanly(world: World) -> None:
    app = running(world)
    call = taking(world, 0, CALL_MS)
    world.feeds["in"].send([call.sent, *world.records(200, KEYS)])
    call.begins(app)
    app.stop()
    app.start()
    # A transaction that is open in a call of the only thread gets too old; else nothing may have happened to anybody.
    end_and_judge(world, CALLS, crashed=world.exactly_once and not threaded(world))


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize(
    ("cache", "keys"),
    [
        pytest.param(2_000, 10, id="small cache", marks=pytest.mark.full),
        pytest.param(CACHE, KEYS, id="large cache"),
    ],
)
def test_behind_a_cache_every_key_ends_with_the_right_value(world: World, cache: int, keys: int) -> None:
    feed = world.input("in", PARTITIONS, out=PARTITIONS)
    app = world.instance("count", group_instance_id="one", statestore_cache_max_bytes=cache, **THREADS).start()
    with world.outputs() as outputs:
        for _ in range(10):
            feed.send(world.records(500, keys))
        await_outputs(world, outputs, 1)
        feed.send(world.records(3_000, keys))
        app.kill()
    feed.send(world.records(500, keys))
    app.start()
    thinned = world.thins(cache)
    end_and_judge(world, replace(COUNT, thinned=thinned), crashed=True)
    inputs, found = len(feed.rows), len(world.cluster.read(world.topic("out")))
    print(f"{found} outputs of {inputs} inputs")
    assert (found < inputs) == thinned


@pytest.mark.full
def test_behind_caches_too_other_tasks_are_committed_while_a_call_runs(world: World) -> None:
    if not threaded(world):
        pytest.skip("one thread does everything, one thing after the other")
    app = running(world, statestore_cache_max_bytes=CACHE)
    call, took = taking(world, 0, CALL_MS), list[float]()
    rest = all_but(world, call.place)
    world.feeds["in"].send([*world.records(200, KEYS), call.sent])  # what comes before it waits in caches
    call.begins(app)
    while not call.has_ended(app):
        world.feeds["in"].send(world.records(50, KEYS))
        began = time.monotonic()
        world.wait(lambda: world.inputs_committed(rest), "the other tasks are committed")
        took.append(time.monotonic() - began)
    print(f"beside a call {len(took)} commits took {max(took):.2f} s at most")
    end_and_judge(world, replace(CALLS, thinned=world.thins(CACHE)))
    assert max(took) < PROMPT_S


@pytest.mark.short_under("exactly_once_v2")
def test_what_goes_by_the_clock_is_punctual_while_another_tasks_call_runs(world: World) -> None:
    if not threaded(world):
        pytest.skip("one thread does everything, one thing after the other")
    world.create(ticks=1)
    app = running(world, topology="ticks")
    call = taking(world, 0, CALL_MS)
    world.feeds["in"].send([call.sent])
    call.begins(app)
    began = time.time_ns() // 10**6
    call.ends(app)
    ended = time.time_ns() // 10**6
    end_and_judge(world, COPY)
    late = {place.partition: longest_pause(world, f"0_{place.partition}", began, ended) for place in all_but(world)}
    print(f"by task, the longest time without a punctuation that is due every {TICK_MS} ms, in ms: {late}")
    assert late.pop(call.place.partition) >= CALL_MS * 3 // 4, "a task is with one thread at a time"
    assert max(late.values()) < PROMPT_S * 1000


def longest_pause(world: World, task: str, began: int, ended: int) -> int:
    """Between two punctuations of a task, within a time, its ends included; all in ms."""
    ticks = world.cluster.read(world.topic("ticks"))
    at = sorted(int(row.value or b"") for row in ticks if row.key == task.encode())
    inside = [began, *(tick for tick in at if began <= tick <= ended), ended]
    return max(after - before for before, after in pairwise(inside))


@pytest.mark.short_under("exactly_once_v2")
def test_a_task_that_fails_holds_up_no_other_one_with_processing_threads(world: World) -> None:
    app = running(world)
    call = failing(world, 0, "no-answer-from-the-service")
    with world.outputs() as outputs:
        *_, row = world.feeds["in"].send([*world.records(50, KEYS), call.sent])
        if threaded(world):
            app.says("no-answer-from-the-service")
            assert f"{row.topic}-{row.partition}@{row.offset}" in app.log(), app.log_tail()
            rest, goal = all_but(world, call.place), len(outputs.rows) + 2_000
            enough = lambda: outputs.poll() > goal or NotYet("few outputs")  # noqa: E731
            are_prompt(world, outputs, rest, enough, "others go on", keys=KEYS)
            assert world.committed()[row.place] == row.offset
            call.release()
        else:
            app.dies(FAILED, "no-answer-from-the-service")
            call.release()
            app.start()
    end_and_judge(world, CALLS, crashed=not threaded(world))


@pytest.mark.short_under("exactly_once_v2")
def test_the_errors_of_two_tasks_are_kept_apart(world: World) -> None:
    if not threaded(world):
        pytest.skip("the first error ends the thread")
    app = running(world)
    texts = ("the-first-service-is-down", "the-second-is-down")
    first, second = (failing(world, partition, text) for partition, text in enumerate(texts))
    rows = world.feeds["in"].send([first.sent, second.sent, *world.records(200, KEYS)])[:2]
    for text, own, foreign in zip(texts, rows, reversed(rows), strict=True):
        app.says(text)
        told = [line for line in app.log().splitlines() if text in line]
        assert any(f"{own.topic}-{own.partition}@{own.offset}" in line for line in told), app.log_tail()
        assert not any(f"{foreign.topic}-{foreign.partition}@" in line for line in told), app.log_tail()
    second.release()
    world.wait(lambda: world.inputs_committed(all_but(world, first.place)), "the second task goes on")
    assert world.committed()[first.place] == rows[0].offset
    first.release()
    end_and_judge(world, CALLS)


@pytest.mark.full
def test_however_small_the_output_buffers_are_everything_is_sent_in_order(world: World) -> None:
    """What is kept until it is confirmed fills them, too: then each record of a task needs a commit."""
    feed = world.input("in", 6, out=PARTITIONS)
    feed.send(world.groups(500 if world.has(COLLECTED) else 5_000, KEYS, 200))
    world.instance("count-by-value", output_buffer_max_bytes=1, **THREADS).start()
    end_and_judge(world, COUNT_BY_VALUE, repartitions=[BY_VALUE_REPARTITION])


@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("static", [None, pytest.param("me", marks=pytest.mark.full)], ids=["dynamic", "static"])
def test_stream_threads_come_and_go_under_load_down_to_none_and_the_output_stays_exact(
    world: World, static: str | None
) -> None:
    world.input("in", 6, out=PARTITIONS)
    settings: dict[str, Any] = {"num_stream_threads": 1, "num_processing_threads": 2, "group_instance_id": static}
    app = world.instance("count-by-value", **settings).start()
    load = loading(world, 300, KEYS, 200)
    load()
    world.group_is(app)
    for change in (Instance.add_thread, Instance.add_thread, Instance.remove_thread, Instance.remove_thread):
        load()
        change(app)
        load()
        world.group_is(app)
    app.remove_thread()
    load()
    app.add_thread()
    load()
    end_and_judge(world, COUNT_BY_VALUE, repartitions=[BY_VALUE_REPARTITION])
