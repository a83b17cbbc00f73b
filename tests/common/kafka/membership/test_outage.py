"""What the log says while a coordinator doesn't answer."""

from __future__ import annotations

import logging

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.kafka.membership.outage import AGAIN_MS, Outage
from milestones.common.kafka.wire import ConnectionLostError


def test_an_outage_is_a_warning_at_its_begin_and_now_and_then_and_a_line_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    outage = Outage("words")
    outage.over(0)
    for second in range(65):
        outage.lost(ConnectionLostError("refused"), 1_000 * second)
    outage.over(70_000)
    outage.over(80_000)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "group words: the coordinator doesn't answer, the request is repeated: refused"),
        ("WARNING", f"group words: the coordinator hasn't answered for {AGAIN_MS // 1000} s: refused"),
        ("WARNING", f"group words: the coordinator hasn't answered for {2 * AGAIN_MS // 1000} s: refused"),
        ("INFO", "group words: the coordinator answers again, after 70000 ms"),
    ]


def test_what_every_start_brings_is_no_news(member_bench, caplog):  # type: ignore[no-untyped-def]
    caplog.set_level(logging.INFO)
    bench = member_bench()
    bench.broker.codes["JoinGroup"] = [ErrorCode.member_id_required, ErrorCode.coordinator_load_in_progress]
    assert bench.asked().joined(2_000) == ["Assigned"]
    assert [line for line in caplog.messages if "JoinGroup" in line] == []
