"""A membership thread never spins: in every state, whatever waits, it sleeps until there is something to do."""

from __future__ import annotations

from itertools import combinations

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.kafka.membership.events import Rejoin
from milestones.common.records import OffsetAndMetadata, TopicPartition

OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(7, "")}
LOOK_MS = 20
"""How long a look for an answer that isn't there takes."""


def unjoined(bench):
    bench.run()


def lost(bench):
    bench.stable()
    bench.broker.codes["Heartbeat"] = [ErrorCode.unknown_member_id]
    bench.run(3_000)


def joining_for_the_first_time(bench):
    bench.run()
    bench.broker.holds = {"JoinGroup"}
    bench.join()
    bench.run()


def joining(bench):
    bench.stable()
    bench.broker.holds = {"JoinGroup"}
    bench.join()
    bench.run()


def syncing(bench):
    bench.stable()
    bench.broker.holds = {"SyncGroup"}
    bench.join()
    bench.run()


def leading(bench):
    bench.stable()
    bench.leader.steps = 10**9
    bench.join()
    bench.run()


def stable(bench):
    bench.stable()


def stable_and_the_coordinator_away(bench):
    bench.stable()
    bench.broker.down = True
    bench.run(3_000)


def joining_and_the_coordinator_away(bench):
    joining(bench)
    bench.broker.down = True
    bench.run(3_000)


def stable_and_a_transaction_pends(bench):
    bench.stable()
    bench.broker.refused["in"] = ErrorCode.unstable_offset_commit


def joining_and_commits_have_to_wait(bench):
    joining(bench)
    bench.broker.codes["OffsetCommit"] = [ErrorCode.rebalance_in_progress] * 1_000


STATES = [
    unjoined, lost, joining_for_the_first_time, joining, syncing, leading, stable, stable_and_the_coordinator_away,
    joining_and_the_coordinator_away, stable_and_a_transaction_pends, joining_and_commits_have_to_wait,
]  # fmt: skip
WAITING = {
    "a question": lambda bench: bench.fetch(),
    "a commit": lambda bench: bench.commit(OFFSETS, timeout_ms=5_000),
    "a rejoin": lambda bench: bench.machine.receive(Rejoin("why not")),
}


def traces(bench):
    """All that a step can leave behind: requests, looks for answers, the leader's steps, connections, events."""
    broker, machine = bench.broker, bench.machine
    return (
        len(broker.requests), broker.looks, bench.leader.done, len(broker.hosts), len(bench.events), machine.state,
        bool(machine._commits),
    )  # fmt: skip


@pytest.mark.parametrize("waiting", [w for n in range(4) for w in combinations(WAITING, n)], ids=str)
@pytest.mark.parametrize("state", STATES)
def test_a_step_that_has_nothing_to_do_isn_t_asked_for(state, waiting, member_bench):
    bench = member_bench(session_timeout_ms=6_000, heartbeat_interval_ms=1_000)
    state(bench)
    for name in waiting:
        WAITING[name](bench)
    bench.machine.run_once(bench.now)
    end, idle = bench.now + 10_000, 0
    while bench.now < end and idle < 3:
        bench.machine.polled_ms = bench.now
        before, wait_ms = traces(bench), bench.machine.wait_ms(bench.now)
        bench.now += wait_ms
        bench.machine.run_once(bench.now)
        if traces(bench) != before:
            idle = 0
            bench.now += LOOK_MS
        elif wait_ms == 0:
            idle += 1
    assert idle < 3, f"{bench.machine.state.name} with {waiting}: steps follow each other and none does anything"
