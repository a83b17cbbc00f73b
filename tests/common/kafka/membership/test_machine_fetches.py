"""Questions for committed offsets: whoever is answered was a member after it asked."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.errors import MembershipError
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.kafka.membership.events import Close


def test_a_heartbeat_goes_before_the_question(member_bench):
    bench = member_bench().stable()
    bench.broker.requests.clear()
    reply = bench.fetch()
    bench.run()
    assert bench.broker.names()[-2:] == ["Heartbeat", "OffsetFetch"]
    assert reply.get(0).error is None


@pytest.mark.parametrize("code", [ErrorCode.illegal_generation, ErrorCode.unknown_member_id])
def test_who_is_no_member_any_more_is_told_so_and_no_offsets(code, member_bench):
    bench = member_bench().stable()
    bench.broker.codes["Heartbeat"] = [code]
    reply = bench.fetch()
    bench.run()
    assert isinstance(reply.get(0).error, StaleGenerationError)
    assert bench.broker.of("OffsetFetch") == []
    assert bench.kinds() == ["Lost", "JoinNeeded"]


def test_a_heartbeat_without_an_answer_is_repeated_before_the_question(member_bench):
    bench = member_bench().stable()
    bench.broker.codes["Heartbeat"] = [ErrorCode.coordinator_not_available]
    reply = bench.fetch()
    bench.run(1_000)
    assert [name for name in bench.broker.names() if name in {"Heartbeat", "OffsetFetch"}] == [
        "Heartbeat", "Heartbeat", "OffsetFetch",
    ]  # fmt: skip
    assert reply.get(0).error is None


def test_a_rebalance_that_has_begun_does_not_keep_the_answer_back(member_bench):
    bench = member_bench().stable()
    bench.broker.codes["Heartbeat"] = [ErrorCode.rebalance_in_progress]
    reply = bench.fetch()
    bench.run()
    assert reply.get(0).error is None
    assert bench.kinds() == ["JoinNeeded"]


REFUSED = ErrorCode.topic_authorization_failed


@pytest.mark.parametrize("joining", [False, True])
def test_a_question_that_is_refused_is_answered_with_the_reason_and_what_to_do(joining, member_bench):
    bench = member_bench().stable()
    if joining:
        bench.broker.held = True
        bench.join()
        bench.run()
    bench.broker.refused["in"] = REFUSED
    reply = bench.fetch()
    bench.run(10_000)
    answer = reply.get(0)
    assert isinstance(answer.error, MembershipError)
    assert "OffsetFetch of in: TOPIC_AUTHORIZATION_FAILED" in str(answer.error)
    assert "grant the user READ" in str(answer.error)
    assert len(bench.broker.of("OffsetFetch")) == 1, "asked once"
    assert bench.kinds() == []


@pytest.mark.parametrize("code", [ErrorCode.coordinator_load_in_progress, ErrorCode.network_exception])
def test_a_question_that_fails_in_passing_is_asked_again_and_sends_no_second_join(code, member_bench):
    bench = member_bench().stable()
    bench.broker.held = True
    bench.join()
    bench.run()
    bench.broker.codes["OffsetFetch"] = [code] * 3
    reply = bench.fetch()
    bench.run(10_000)
    assert reply.get(0).error is None
    bench.broker.held = False
    bench.run()
    assert bench.kinds() == ["Assigned"]
    assert len(bench.broker.of("JoinGroup")) == 2, "the first one's and this one"


def test_a_topic_that_the_coordinator_does_not_know_has_no_offset(member_bench):
    bench = member_bench().stable()
    bench.broker.refused["in"] = ErrorCode.unknown_topic_or_partition
    reply = bench.fetch()
    bench.run()
    assert reply.get(0).error is None
    bench.broker.refused.clear()


def test_a_question_to_a_member_that_has_ended_is_answered(member_bench):
    bench = member_bench().stable()
    bench.machine.receive(Close(leave=False))
    assert isinstance(bench.fetch().get(0).error, StaleGenerationError)
