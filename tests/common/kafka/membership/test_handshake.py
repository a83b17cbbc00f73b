"""JoinGroup and SyncGroup, step by step, against a coordinator in memory."""

from __future__ import annotations

import logging

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.errors import MembershipError
from milestones.common.kafka.membership.coordinator import CoordinatorError
from milestones.common.kafka.membership.handshake import JOIN_GRACE_MS, LONG_JOIN_MS, Handshake
from milestones.common.kafka.membership.heartbeat_timer import HeartbeatTimer
from milestones.common.kafka.wire import ConnectionLostError


@pytest.fixture
def bench(member_bench):
    bench = member_bench()
    bench.timer = HeartbeatTimer(bench.settings, 0)
    bench.handshake = Handshake(bench.settings, bench.leader, bench.coordinator, bench.timer)
    return bench


def join(bench, now_ms=0):
    return bench.handshake.join(bench.subscription(), (), "the test", now_ms)


def test_an_answer_that_is_held_back_is_awaited_without_sending_again(bench):
    bench.broker.holds = {"JoinGroup"}
    assert not join(bench)
    assert not join(bench, now_ms=1_000)
    assert bench.timer.contact_ms == 0, "that there is no answer tells nothing"
    assert bench.handshake.waited_ms(1_000) == 1_000
    bench.broker.holds = set()
    assert join(bench, now_ms=2_000)
    assert len(bench.broker.of("JoinGroup")) == 1


def test_a_join_that_waits_for_others_for_long_says_so_once(bench, caplog):
    caplog.set_level(logging.INFO)
    bench.broker.holds = {"JoinGroup"}
    join(bench)
    assert not [line for line in caplog.messages if "waits for the other members" in line]
    for now_ms in range(LONG_JOIN_MS, 3 * LONG_JOIN_MS, 1_000):
        join(bench, now_ms=now_ms)
    (line,) = [line for line in caplog.messages if "waits for the other members" in line]
    assert f"session_timeout_ms, {bench.settings.session_timeout_ms} here" in line


def test_an_answer_that_never_comes_is_a_lost_connection(bench):
    bench.broker.holds = {"JoinGroup"}
    join(bench)
    with pytest.raises(ConnectionLostError, match="no JoinGroupResponse for longer than max_poll_interval_ms"):
        join(bench, now_ms=bench.settings.max_poll_interval_ms + JOIN_GRACE_MS + 1)


def test_a_sync_that_is_refused_is_raised(bench):
    bench.broker.codes["SyncGroup"] = [ErrorCode.rebalance_in_progress]
    join(bench)
    with pytest.raises(CoordinatorError, match="SyncGroup: rebalance_in_progress"):
        bench.handshake.sync(0)


def test_an_assignment_that_can_t_be_read_names_the_group(bench):
    bench.broker.leader, bench.broker.stored = "other", b"\0"
    join(bench)
    with pytest.raises(MembershipError, match="group g: "):
        bench.handshake.sync(0)


def test_what_is_given_up_is_begun_anew_on_another_connection(bench):
    bench.broker.holds = {"JoinGroup"}
    join(bench)
    bench.handshake.give_up()
    bench.broker.holds = set()
    assert join(bench, now_ms=10)
    assert bench.handshake.sync(10) == bench.ASSIGNED
    assert len(bench.broker.of("JoinGroup")) == 1
