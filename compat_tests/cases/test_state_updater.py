"""Restorations that take longer than a member may be silent: who is evicted by them, and who isn't."""

from __future__ import annotations

import time

import pytest

from compat_tests.apps.waits import WAITED
from compat_tests.cases.flows import COUNT
from compat_tests.cases.steps import counted, generation
from compat_tests.harness import stores
from compat_tests.harness.followers import METRICS, lags, remaining
from compat_tests.harness.instance import Instance, Settings
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World, stop_all
from milestones.testing import NotYet, TopicTail

UPDATER = "state_updater"
"""The flag of stages on which restorations have a thread of their own."""
LIMIT_MS = 4_000
"""`max_poll_interval_ms`."""
BLOCKED_MS = 3 * LIMIT_MS
LONG = 60_000
"""Input records of a state that isn't restored before the other task runs: that takes 15 rounds and more, also of a
changelog with one record per key and commit, as each has a key of its own, mostly."""
ROUND_MS = 300
SLOW = ",".join(
    [*(f"restore.batch:sleep={ROUND_MS}:{nth}" for nth in range(1, 15)),
     f"restore.batch:sleep={BLOCKED_MS}:1@restore.complete"]
)  # fmt: skip
"""The first write of a restoration blocks that comes when the other task is complete. That has, under exactly once, the
marker of its last transaction to read, and the updater's rounds are common to all that restore: its end may be told a
few rounds later."""
GAP_S = BLOCKED_MS / 1000 / 3
"""What other tasks' outputs may pause on a busy machine: a third of what they do if they wait for the write."""
BEGIN_SHARE = 0.5
"""Of the restoration, until the other task has its first output: it is opened, restored and fetched for meanwhile."""
LOST = "membership lost"
SMALL_FETCHES: Settings = {
    "restore_consumer_queued_min_messages": 1_000,
    "restore_consumer_fetch_message_max_bytes": 16_384,
}
"""What was prefetched for one task comes before another one's records; in these cases all is small."""


def lose(world: World, app: Instance, *tasks: str) -> None:
    """Its disk is empty where the state of these tasks was."""
    stores.lose(app.state_dir, world.application_id, *tasks)


@pytest.mark.short_under("exactly_once_v2")
def test_a_restoration_longer_than_max_poll_interval_costs_a_member_its_place_without_a_state_updater_only(
    world: World,
) -> None:
    app = counted(world, LONG, LONG, num_stream_threads=1)
    lose(world, app, "0_0")
    with world.outputs() as outputs:
        app.start(fault=SLOW, max_poll_interval_ms=LIMIT_MS, **SMALL_FETCHES)
        if not world.has(UPDATER):
            app.says(LOST)
        else:
            widest = widest_gap(world, app, outputs)
            print(f"the other task's outputs paused for {widest:.2f} s at most")
            assert widest < GAP_S
            assert LOST not in app.log()
    end_and_judge(world, COUNT, crashed=not world.has(UPDATER))


def widest_gap(world: World, app: Instance, outputs: TopicTail) -> float:
    """Feed until the restoration is over; the longest that no output of the other task came, in seconds,
    from its first output to the end. The generation must not change."""
    feed, gaps = world.feeds["in"], list[float]()
    app.says("task 0_0 restores")
    seen, last = len(feed.rows), time.monotonic()
    began = generation(world)

    def restored() -> object:
        nonlocal last, seen
        feed.send(world.records(20, keys=500))
        found, now = outputs.poll(), time.monotonic()
        if found > seen:
            gaps.append(now - last)
            seen, last = found, now
        return "task 0_0 has restored" in app.log() or NotYet(f"{found} outputs, gaps {gaps}")

    world.wait(restored, "the task is restored")
    gaps.append(time.monotonic() - last)
    print(f"the other task had its first output after {gaps[0]:.1f} s, the restoration took {sum(gaps):.1f} s")
    assert gaps[0] < BEGIN_SHARE * sum(gaps)
    assert len(gaps) > 10, "the other task wasn't processed while this one was restored"
    assert generation(world) == began
    return max(gaps[1:])


@pytest.mark.short_under("exactly_once_v2")
def test_a_task_that_is_taken_away_while_a_write_of_it_blocks_is_released_at_once(world: World) -> None:
    if not world.has(UPDATER):
        pytest.skip("the stream thread restores: it answers nobody meanwhile, and is evicted")
    one = counted(world, 20_000, 500, num_stream_threads=1)
    lose(world, one, "0_0", "0_1")
    fault = f"restore.batch:sleep={BLOCKED_MS}:1"
    one.start(fault=fault, watch=True, max_poll_interval_ms=LIMIT_MS)
    world.wait(lambda: " restores {" in one.log() or NotYet("nothing restores"), "a task restores")
    other = world.instance("count", "other", num_stream_threads=1).start()
    other.says("joins the group")  # a process may take as long to start as the write blocks
    began = time.monotonic()
    world.group_is(one, other)
    took = time.monotonic() - began
    print(f"the group was complete after {took:.1f} s, the write blocks for {BLOCKED_MS / 1000:.0f} s")
    assert took < BLOCKED_MS / 1000 - 2, "the rebalance waited for the write"
    world.feeds["in"].send(world.records(1_000, keys=500))
    world.processed()
    assert LOST not in one.log()
    assert WAITED not in one.log(), one.log_tail()
    end_and_judge(world, COUNT)


RECORDS, BATCHES = 300_000, 60
BEHIND = 20_000
"""So many records still to be restored are much: below, standbys needn't stand back."""
SLOWLY = ",".join(f"restore.batch:sleep=150:{number}" for number in range(1, BATCHES))


@pytest.mark.full
def test_a_standby_comes_nearer_while_an_active_task_of_the_same_thread_restores(world: World) -> None:
    """Static members are given what they had, whatever their disks have lost: each one task, and the other as a
    standby."""
    if not world.has(UPDATER):
        pytest.skip("it shares time, not records")
    world.input("in", 2, out=2).send(world.records(RECORDS, keys=RECORDS))
    settings = {
        "num_stream_threads": 1,
        "num_standby_replicas": 1,
        "session_timeout_ms": 60_000,
        "restore_active_weight": 1,  # turns come sooner
    }
    pair = [
        world.instance("count", name, group_instance_id=name, **settings, **METRICS, **SMALL_FETCHES).start()
        for name in ("one", "two")
    ]
    world.group_is(*pair)
    world.processed(timeout_s=300)
    stop_all(pair)
    for one in pair:
        lose(world, one, "0_0", "0_1")
        one.start(fault=SLOWLY)
    seen: dict[str, list[int]] = {one.name: [] for one in pair}

    def restored() -> object:
        for one in pair:
            behind = [lag for lag in lags(one).values() if lag >= 0]
            if "has restored" not in one.log() and min(remaining(one).values(), default=0) >= BEHIND:
                seen[one.name] += [lag for lag in behind if lag not in seen[one.name][-1:]]
        return all("has restored" in one.log() for one in pair) or NotYet(f"standbys' lags {seen}")

    world.wait(restored, "both have restored", timeout_s=300)
    print(f"standbys' lags while an active task restored beside them: {seen}")
    for name, behind in seen.items():
        assert behind, f"{name} had no standby while it restored"
        assert behind[-1] < behind[0], f"{name}: its standby starved: lags {behind}"
    end_and_judge(world, COUNT)
