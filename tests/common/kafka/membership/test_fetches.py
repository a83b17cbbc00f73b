"""Questions for committed offsets, each with its own patience."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v8.response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kio.static.primitive import i32Timedelta

from milestones.common.kafka.membership.events import Committed, FetchOffsets
from milestones.common.kafka.membership.fetches import LONG_MS, PendingFetches
from milestones.common.kafka.membership.settings import MemberSettings
from milestones.common.mailbox import Mailbox
from milestones.common.records import TopicPartition

PAUSE_MS = 100
SETTINGS = MemberSettings("g", {}, retry_backoff_ms=PAUSE_MS)
STABLE, PENDING = TopicPartition("stable", 0), TopicPartition("pending", 0)


class Coordinator:
    """Offset 5 of every partition, but for those on which a transaction pends."""

    def __init__(self) -> None:
        self.pending = {PENDING}
        self.asked: list[Collection[str]] = []

    def call(self, request: Any, response: type) -> OffsetFetchResponse:
        (group,) = request.groups
        self.asked.append([topic.name for topic in group.topics or ()])
        topics: Any = tuple(
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=tuple(self._answer(topic.name, index) for index in topic.partition_indexes),
            )
            for topic in group.topics or ()
        )
        answer = OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=ErrorCode.none)
        return OffsetFetchResponse(throttle_time=i32Timedelta.parse(timedelta()), groups=(answer,))  # type: ignore[arg-type]

    def _answer(self, topic: str, index: int) -> OffsetFetchResponsePartitions:
        code = ErrorCode.unstable_offset_commit if TopicPartition(topic, index) in self.pending else ErrorCode.none
        at: Any = 5
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=at, committed_leader_epoch=at, metadata="", error_code=code
        )  # type: ignore[arg-type]


def asking(fetches: PendingFetches, *partitions: TopicPartition) -> Mailbox[Committed]:
    reply: Mailbox[Committed] = Mailbox(1)
    fetches.add(FetchOffsets(1, frozenset(partitions), reply))
    return reply


def test_a_question_that_has_to_wait_for_a_transaction_keeps_no_other_back() -> None:
    fetches, coordinator = PendingFetches(SETTINGS), Coordinator()
    first, second = asking(fetches, PENDING), asking(fetches, STABLE)
    while fetches.step(coordinator, 0):  # type: ignore[arg-type]
        pass
    assert first.get(0) is None
    answer = second.get(0)
    assert answer is not None
    assert answer.offsets[STABLE].offset == 5


def test_it_is_asked_again_after_a_pause_until_the_transaction_has_ended() -> None:
    fetches, coordinator = PendingFetches(SETTINGS), Coordinator()
    reply = asking(fetches, PENDING, STABLE)
    assert fetches.step(coordinator, 0)  # type: ignore[arg-type]
    assert not fetches.step(coordinator, PAUSE_MS - 1)  # type: ignore[arg-type]
    assert fetches.next_ms() == PAUSE_MS
    coordinator.pending.clear()
    assert fetches.step(coordinator, PAUSE_MS)  # type: ignore[arg-type]
    answer = reply.get(0)
    assert answer is not None
    assert answer.offsets.keys() == {PENDING, STABLE}
    assert not fetches


def test_a_transaction_that_stays_open_for_long_is_named_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    fetches, coordinator = PendingFetches(SETTINGS), Coordinator()
    asking(fetches, PENDING)
    for now_ms in range(0, LONG_MS + 1, PAUSE_MS):
        assert fetches.step(coordinator, now_ms)  # type: ignore[arg-type]
    assert not caplog.records
    for now_ms in range(LONG_MS + PAUSE_MS, LONG_MS + 10 * PAUSE_MS, PAUSE_MS):
        assert fetches.step(coordinator, now_ms)  # type: ignore[arg-type]
    (record,) = caplog.records
    assert "for 30 s" in record.getMessage()
    assert "pending-0" in record.getMessage()
    assert "find-hanging" in record.getMessage()
