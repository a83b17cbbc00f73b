from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.errors import MembershipError, OffsetsRefusedError, TaskMigratedError
from milestones.common.kafka.membership import CommitRetriableError, StaleGenerationError
from milestones.common.kafka.membership.reactions import Reaction
from milestones.common.records import OffsetAndMetadata, TopicPartition
from tests.common.kafka.fake_broker import LOSSES, codes_of


def test_a_commit_carries_generation_member_and_metadata(bench):
    assert bench.answer(bench.commit()) is None
    [request] = bench.broker.of("OffsetCommit")
    assert (request.generation_id_or_member_epoch, request.member_id) == (1, "m-1")
    [topic] = request.topics
    [partition] = topic.partitions
    assert (topic.name, partition.committed_offset, partition.committed_metadata) == ("in", 7, "x")


@pytest.mark.parametrize("code", codes_of(Reaction.RETRY, Reaction.FIND, Reaction.REJOIN))
def test_a_commit_is_repeated_within_its_time_and_then_handed_back_to_be_asked_again(code, bench):
    bench.broker.codes["OffsetCommit"] = [code]
    assert bench.answer(bench.commit(), 900) is None
    bench.broker.codes["OffsetCommit"] = [code] * 100
    assert isinstance(bench.answer(bench.commit(), 2_000), CommitRetriableError)
    assert bench.membership.generation == 1


@pytest.mark.parametrize("code", LOSSES)
def test_a_commit_under_a_stale_generation_migrates_the_tasks(code, bench):
    bench.broker.codes["OffsetCommit"] = [code]
    error = bench.answer(bench.commit())
    assert isinstance(error, StaleGenerationError)
    assert isinstance(error, TaskMigratedError)
    assert bench.kinds() == ["Lost", "JoinNeeded"]


def test_a_commit_that_crosses_the_end_of_a_join_goes_out_again_under_the_new_generation(bench):
    bench.join_held()
    bench.broker.codes["OffsetCommit"] = [ErrorCode.illegal_generation]
    reply = bench.commit(timeout_ms=5_000)
    bench.run()
    assert len(reply) == 0
    assert bench.released(1_000) == ["Assigned"]
    assert bench.answer(reply) is None
    assert [r.generation_id_or_member_epoch for r in bench.broker.of("OffsetCommit")] == [1, 2]


@pytest.mark.parametrize("code", codes_of(Reaction.REFUSE))
def test_a_commit_that_can_never_succeed_is_refused_and_the_member_lives_on(code, bench):
    bench.broker.codes["OffsetCommit"] = [code]
    error = bench.answer(bench.commit())
    assert isinstance(error, MembershipError)
    assert code.name.upper() in str(error)
    bench.run(4_000)
    assert bench.take() == []


def test_a_commit_of_which_one_topic_is_refused_names_its_partitions_and_no_others(bench):
    bench.broker.refused = {"mine": ErrorCode.topic_authorization_failed}
    places = [TopicPartition("in", 0), TopicPartition("mine", 3), TopicPartition("mine", 4)]
    error = bench.answer(bench.commit(offsets={place: OffsetAndMetadata(1) for place in places}))
    assert isinstance(error, OffsetsRefusedError)
    assert error.partitions == frozenset(places[1:])
    assert "mine-3, mine-4" in str(error)


def test_a_commit_without_a_generation_is_refused_at_once(member_bench):
    assert isinstance(member_bench().asked().commit().get(0), StaleGenerationError)


def test_a_fenced_static_member_fails_with_its_waiting_commits(member_bench):
    bench = member_bench(instance_id="i").stable()
    bench.broker.codes["OffsetCommit"] = [ErrorCode.fenced_instance_id]
    first, second = bench.commit(), bench.commit()
    assert "group_instance_id" in str(bench.answer(first))
    assert isinstance(second.get(0), MembershipError)
    assert bench.kinds() == ["Failed"]
    assert bench.broker.of("LeaveGroup") == []
