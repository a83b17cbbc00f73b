"""Processes and brokers that stop answering: what they were doing is fenced, what comes back goes on."""

from __future__ import annotations

import time

import pytest

from compat_tests.cases.arrivals import Gaps
from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT, COUNT_BY_VALUE
from compat_tests.cases.sleepers import BRIEF, in_blocks, oversleep, pause_in_a_transaction
from compat_tests.cases.steps import PATIENT, TOLERANT, await_outputs, await_timed_out, standing
from compat_tests.harness.emitting import COLLECTED
from compat_tests.harness.followers import METRICS, PUBLISHED_S, of_all, of_tasks
from compat_tests.harness.instance import Settings
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.oracles.findings import hold
from compat_tests.oracles.in_place import in_place
from milestones.testing import NotYet

MISSED_HEARTBEATS_S = 3.0
"""Several heartbeats of the suite's applications, far less than the session of the case that stands still so long."""
TASKS, LATE_MS = 16, 5_000
"""`LATE_MS`: the time of a transaction, in which a loaded machine makes its commits."""
AFTERWARDS = 1_600
"""Records that come while the process stands still."""


def test_a_process_stopped_beyond_session_and_transaction_timeout_is_fenced(world: World) -> None:
    feed = world.input("in", 4, out=3)
    sleeper, other = world.instance("count", "sleeper", **BRIEF).start(), world.instance("count", "other").start()
    world.group_is(sleeper, other)
    with world.outputs() as outputs:
        feed.send(in_blocks(world.records(10_000, keys=500)))
        await_outputs(world, outputs, 1_000)
        oversleep(world, sleeper, other, 1_000, 500)


@pytest.mark.full
def test_a_process_stopped_for_less_than_its_session_keeps_its_tasks(world: World) -> None:
    feed = world.input("in", 2, out=2)
    app = world.instance("count", session_timeout_ms=30_000, transaction_timeout_ms=20_000).start()
    world.group_is(app)
    feed.send(world.records(1_000, keys=100))
    app.pause()
    feed.send(world.records(1_000, keys=100))
    world.let_pass(MISSED_HEARTBEATS_S, "heartbeats were missed")
    app.resume()
    end_and_judge(world, COUNT)
    assert len({generation.number for generation in world.history().generations}) == 1


@pytest.mark.full
@pytest.mark.broker_faults
def test_a_broker_that_is_killed_and_comes_back_costs_nothing(world: World) -> None:
    feed = world.input("in", 3, out=3)
    world.instance("count-by-value", num_stream_threads=2).start()
    with world.outputs() as outputs:
        feed.send(world.groups(5_000, 300, 300))
        await_outputs(world, outputs, 500)
        world.broker.kill()
        world.broker.start()
        feed.send(world.groups(1_000, 300, 300))
    end_and_judge(world, COUNT_BY_VALUE, crashed=True, repartitions=[BY_VALUE_REPARTITION])


@pytest.mark.full
def test_a_stall_beyond_the_transaction_timeout_costs_every_task_what_was_not_committed_once(
    exact_world: World,
) -> None:
    """It is rolled back and processed again; from M5 on it is sent again."""
    world = exact_world
    if not world.has(TOLERANT):
        pytest.skip("the tasks are lost with their producer: `test_commit_steps.py`")
    feed = world.input("in", TASKS, out=4)
    settings: Settings = {**PATIENT, **METRICS, "transaction_timeout_ms": LATE_MS, "num_processing_threads": 4}
    app = world.instance("count", **settings).start()
    places = world.cluster.places([feed.topic])
    sent = list[tuple[float, int]]()
    with world.outputs() as outputs:
        gaps = Gaps(outputs)

        def flows() -> object:
            feed.send(world.records(80, keys=500))
            sent.append((time.time(), len(feed.rows)))
            gaps.look()
            return gaps.longest.keys() >= set(places) or NotYet(f"{len(gaps.longest)} of {TASKS} tasks process")

        world.wait(flows, "all tasks process")
        before = standing(world, app)
        world.let_pass(3, "commits flow", flows)
        pause_in_a_transaction(world, app, flows)
        stood, known = time.time(), len(feed.rows)
        await_timed_out(world, 1)
        uncommitted = known - sum(world.committed()[place] for place in places)
        ended = max(one.ended_ms or 0 for one in world.transactions() if one.committed)
        feed.send(world.records(AFTERWARDS, keys=500))
        gaps.forget()
        began = time.monotonic()
        app.resume()

        def all_process() -> object:
            gaps.look()
            return gaps.longest.keys() >= set(places) or NotYet(f"{len(gaps.longest)} of {TASKS} tasks process")

        world.wait(all_process, "all tasks process again")
        took = time.monotonic() - began
    world.processed()
    if world.has(COLLECTED):
        world.let_pass(PUBLISHED_S, "metrics are published")
    else:
        world.wait(
            lambda: of_all(app, "thread_rolled_back_ms_total") or NotYet("none is told"), "the roll-back is told"
        )
    in_vain, times = of_all(app, "thread_rolled_back_records_total"), of_tasks(app, "rolled_back_total")
    interval_s = int(PATIENT["commit_interval_ms"]) / 1000
    brought = known - next(count for at, count in reversed(sent) if at <= stood - interval_s)
    print(
        f"{world.stage}: it stood still {stood - ended / 1000:.2f} s after its last commit, whose interval is "
        f"{interval_s} s; {in_vain} records were rolled back, {uncommitted} weren't committed, one commit interval had "
        f"brought {brought}; all {TASKS} tasks had committed outputs again after {took:.2f} s, and processed again "
        f"after {of_all(app, 'thread_rolled_back_ms_total')} ms"
    )
    after = standing(world, app)
    end_and_judge(world, COUNT, crashed=True)
    hold(in_place(before, after))
    if world.has(COLLECTED):
        assert (in_vain, set(times.values())) == (0, {0}), times
    else:
        # A thread that is slow to learn of the abort processes what has come since in the same transaction.
        assert 0 < in_vain <= uncommitted + AFTERWARDS < known
        assert set(times.values()) <= {0, 1}, times
