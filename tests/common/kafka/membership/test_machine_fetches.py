"""Questions for committed offsets: whoever is answered was a member after it asked."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.kafka.membership import StaleGenerationError


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
