from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.errors import MembershipError, TaskMigratedError
from milestones.common.kafka.membership import CommitRetriableError, StaleGenerationError
from milestones.common.kafka.membership.reactions import TABLE, Reaction
from milestones.common.records import OffsetAndMetadata, TopicPartition

OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(7, "x")}
RETRIED = [code for code, (reaction, _) in TABLE.items() if reaction is Reaction.RETRY]
FOUND_AGAIN = [code for code, (reaction, _) in TABLE.items() if reaction is Reaction.FIND]
LOSSES = [ErrorCode.illegal_generation, ErrorCode.unknown_member_id]


def test_a_commit_carries_generation_member_and_metadata(member_bench):
    bench = member_bench().stable()
    reply = bench.commit(OFFSETS)
    bench.run()
    assert reply.get(0) is None
    [request] = bench.broker.of("OffsetCommit")
    assert (request.generation_id_or_member_epoch, request.member_id) == (1, "m-1")
    [topic] = request.topics
    [partition] = topic.partitions
    # The zero byte is what confluent-kafka looks for when it reads the metadata.
    assert (topic.name, partition.committed_offset, partition.committed_metadata) == ("in", 7, "x\0")


@pytest.mark.parametrize("code", [*RETRIED, *FOUND_AGAIN, ErrorCode.rebalance_in_progress])
def test_a_commit_is_repeated_within_its_time_and_then_handed_back_to_be_asked_again(code, member_bench):
    bench = member_bench().stable()
    bench.broker.codes["OffsetCommit"] = [code]
    reply = bench.commit(OFFSETS)
    bench.run(900)
    assert len(reply) == 1
    assert reply.get(0) is None
    bench.broker.codes["OffsetCommit"] = [code] * 100
    late = bench.commit(OFFSETS)
    bench.run(2_000)
    assert isinstance(late.get(0), CommitRetriableError)
    assert bench.membership.generation == 1


@pytest.mark.parametrize("code", LOSSES)
def test_a_commit_under_a_stale_generation_migrates_the_tasks(code, member_bench):
    bench = member_bench().stable()
    bench.broker.codes["OffsetCommit"] = [code]
    reply = bench.commit(OFFSETS)
    bench.run()
    error = reply.get(0)
    assert isinstance(error, StaleGenerationError)
    assert isinstance(error, TaskMigratedError)
    assert bench.kinds() == ["Lost", "JoinNeeded"]


def test_a_commit_that_crosses_the_end_of_a_join_goes_out_again_under_the_new_generation(member_bench):
    bench = member_bench().stable()
    bench.broker.held = True
    bench.join()
    bench.run()
    bench.broker.codes["OffsetCommit"] = [ErrorCode.illegal_generation]
    reply = bench.commit(OFFSETS, timeout_ms=5_000)
    bench.run()
    assert len(reply) == 0
    bench.broker.held = False
    bench.run(1_000)
    assert len(reply) == 1
    assert reply.get(0) is None
    assert [r.generation_id_or_member_epoch for r in bench.broker.of("OffsetCommit")] == [1, 2]
    assert bench.kinds() == ["Assigned"]


@pytest.mark.parametrize("code", [code for code, (reaction, _) in TABLE.items() if reaction is Reaction.REFUSE])
def test_a_commit_that_can_never_succeed_is_refused_and_the_member_lives_on(code, member_bench):
    bench = member_bench().stable()
    bench.broker.codes["OffsetCommit"] = [code]
    reply = bench.commit(OFFSETS)
    bench.run()
    error = reply.get(0)
    assert isinstance(error, MembershipError)
    assert code.name.upper() in str(error)
    bench.run(4_000)
    assert bench.take() == []


def test_a_commit_without_a_generation_is_refused_at_once(member_bench):
    bench = member_bench()
    bench.run()
    assert isinstance(bench.commit(OFFSETS).get(0), StaleGenerationError)


def test_a_fenced_static_member_fails_with_its_waiting_commits(member_bench):
    bench = member_bench(instance_id="i").stable()
    bench.broker.codes["OffsetCommit"] = [ErrorCode.fenced_instance_id]
    first, second = bench.commit(OFFSETS), bench.commit(OFFSETS)
    bench.run()
    assert "group.instance.id" in str(first.get(0))
    assert isinstance(second.get(0), MembershipError)
    assert bench.kinds() == ["Failed"]
    assert bench.broker.of("LeaveGroup") == []
