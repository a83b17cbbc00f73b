"""Follow-up rebalances, and which version of the protocol a group speaks."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.assignment.model import Assignment
from milestones.common.kafka.membership.heartbeat_timer import FOLLOWUP_HEARTBEAT_MS
from milestones.common.kafka.membership.protocol import assignment_bytes, read_subscription
from milestones.common.kafka.membership.settings import PROTOCOLS
from milestones.common.kafka.wire import ConnectionLostError

FOLLOWUP = Assignment(followup=True)


def test_heartbeats_come_fast_while_a_follow_up_rebalance_is_due_and_no_longer_once_it_has_begun(member_bench):
    bench = member_bench(heartbeat_interval_ms=3_000)
    bench.broker.leader, bench.broker.stored = "other", assignment_bytes(FOLLOWUP)
    bench.stable().run(2_000)
    beats = len(bench.broker.of("Heartbeat"))
    assert beats == 2_000 // FOLLOWUP_HEARTBEAT_MS
    assert bench.machine.wait_ms(bench.now) == FOLLOWUP_HEARTBEAT_MS
    bench.broker.codes["Heartbeat"] = [ErrorCode.rebalance_in_progress] * 100
    bench.run(3_000)
    assert bench.kinds() == ["JoinNeeded"]
    assert len(bench.broker.of("Heartbeat")) <= beats + 2
    bench.broker.codes["Heartbeat"], bench.broker.stored = [], assignment_bytes(bench.ASSIGNED)
    bench.joined()
    beats = len(bench.broker.of("Heartbeat"))
    bench.run(3_000)
    assert len(bench.broker.of("Heartbeat")) == beats + 1


def test_heartbeats_are_fast_for_no_longer_than_the_rebalance_timeout(member_bench):
    bench = member_bench(heartbeat_interval_ms=3_000, max_poll_interval_ms=5_000)
    bench.broker.leader, bench.broker.stored = "other", assignment_bytes(FOLLOWUP)
    bench.stable().run(60_000)
    fast = 5_000 // FOLLOWUP_HEARTBEAT_MS
    assert fast <= len(bench.broker.of("Heartbeat")) <= fast + 60_000 // 3_000


def test_a_short_heartbeat_interval_is_kept_while_a_follow_up_is_due(member_bench):
    bench = member_bench(heartbeat_interval_ms=50)
    bench.broker.leader, bench.broker.stored = "other", assignment_bytes(FOLLOWUP)
    bench.stable()
    assert bench.machine.wait_ms(bench.now) == 50


def test_a_static_member_that_dies_before_its_release_asks_for_the_follow_up_when_it_returns(member_bench):
    bench = member_bench(instance_id="i")
    bench.broker.leader, bench.broker.stored = "other", assignment_bytes(FOLLOWUP)
    bench.asked()
    assert bench.joined() == ["Assigned", "JoinNeeded"]
    assert bench.joined() == ["Assigned"]


@pytest.mark.parametrize("selected", ["milestones-v2", "milestones-v1"])
def test_the_broker_chooses_the_protocol_and_the_leader_reads_metadata_of_that_version(selected, member_bench):
    bench = member_bench()
    bench.broker.selected = selected
    bench.stable()
    (members,) = bench.leader.seen
    assert [member.version for member in members.values()] == [PROTOCOLS[selected]]
    assert [request.protocol_name for request in bench.broker.of("SyncGroup")] == [selected]


def test_a_member_that_nobody_understands_is_told_what_it_offers_and_what_to_do(member_bench):
    bench = member_bench(protocols={"milestones-v9": 2})
    bench.broker.codes["JoinGroup"] = [ErrorCode.inconsistent_group_protocol]
    bench.asked()
    bench.join()
    bench.run()
    (failed,) = bench.take()
    assert "set upgrade_from" in str(failed.error)
    assert "offers milestones-v9" in str(failed.error)


def test_the_members_that_it_does_not_understand_are_named(member_bench):
    bench = member_bench()
    bench.broker.others = dict.fromkeys(["java-1", "java-2", "java-3", "java-4"], b"")
    bench.broker.described = "stream"
    bench.broker.codes["JoinGroup"] = [ErrorCode.inconsistent_group_protocol]
    bench.asked()
    bench.join()
    bench.run()
    (failed,) = bench.take()
    said = "java-1 on 10.0.0.7, java-2 on 10.0.0.7, java-3 on 10.0.0.7 and 1 more, which speak stream of Kafka Streams"
    assert said in str(failed.error)
    assert "A Java instance that was stopped" in str(failed.error)
    assert "LEAVE_GROUP" in str(failed.error)


def test_a_coordinator_that_does_not_name_them_takes_nothing_from_the_error(member_bench):
    bench = member_bench()
    bench.broker.codes["JoinGroup"] = [ErrorCode.inconsistent_group_protocol]
    bench.broker.codes["DescribeGroups"] = [ConnectionLostError("gone")]
    bench.asked()
    bench.join()
    bench.run()
    (failed,) = bench.take()
    assert "INCONSISTENT_GROUP_PROTOCOL" in str(failed.error)
    assert "in the group are" not in str(failed.error)


def test_what_a_member_reads_is_in_its_subscription_so_that_the_broker_keeps_the_offsets(member_bench):
    """The leader knows what a pattern matches; the coordinator knows what subscriptions name."""
    bench = member_bench().asked()
    assert bench.joined(topics=()) == ["Assigned", "JoinNeeded"], "its first subscription doesn't name the topic"
    assert bench.joined(topics=()) == ["Assigned"], "once is enough"
    assert read_subscription(bench.broker.metadata).topics == ("in",)


def test_a_member_that_was_lost_still_names_what_it_read(bench):
    bench.beat(ErrorCode.unknown_member_id)
    bench.joined(topics=())
    assert read_subscription(bench.broker.metadata).topics == ("in",)
