"""Questions for committed offsets, each with its own patience."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from milestones.common.kafka.membership.events import Committed, FetchOffsets
from milestones.common.kafka.membership.fetches import LONG_MS, PendingFetches
from milestones.common.kafka.membership.settings import MemberSettings
from milestones.common.mailbox import Mailbox
from milestones.common.records import TopicPartition

PAUSE_MS = 100
STABLE, PENDING = TopicPartition("stable", 0), TopicPartition("pending", 0)


class Asking:
    """Questions to a coordinator that has offset 5 of every partition; on `PENDING` a transaction pends."""

    def __init__(self, bench: Any) -> None:
        self._coordinator, self.refused = bench.coordinator, bench.broker.refused
        bench.broker.committed = {STABLE: 5, PENDING: 5}
        self.refused["pending"] = ErrorCode.unstable_offset_commit
        self.fetches = PendingFetches(MemberSettings("g", {}, retry_backoff_ms=PAUSE_MS))

    def ask(self, *partitions: TopicPartition) -> Mailbox[Committed]:
        reply: Mailbox[Committed] = Mailbox(1)
        self.fetches.add(FetchOffsets(1, frozenset(partitions), reply))
        return reply

    def step(self, now_ms: int) -> bool:
        return self.fetches.step(self._coordinator, now_ms)


@pytest.fixture
def asking(member_bench: Any) -> Asking:
    return Asking(member_bench())


def test_a_question_that_has_to_wait_for_a_transaction_keeps_no_other_back(asking: Asking) -> None:
    first, second = asking.ask(PENDING), asking.ask(STABLE)
    while asking.step(0):
        pass
    assert first.get(0) is None
    answer = second.get(0)
    assert answer is not None
    assert answer.offsets[STABLE].offset == 5


def test_it_is_asked_again_after_a_pause_until_the_transaction_has_ended(asking: Asking) -> None:
    reply = asking.ask(PENDING, STABLE)
    assert asking.step(0)
    assert not asking.step(PAUSE_MS - 1)
    assert asking.fetches.next_ms() == PAUSE_MS
    asking.refused.clear()
    assert asking.step(PAUSE_MS)
    answer = reply.get(0)
    assert answer is not None
    assert answer.offsets.keys() == {PENDING, STABLE}
    assert not asking.fetches


def test_a_transaction_that_stays_open_for_long_is_named_in_the_log_once(
    asking: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    asking.ask(PENDING)
    for now_ms in range(0, LONG_MS + 1, PAUSE_MS):
        assert asking.step(now_ms)
    assert not caplog.records
    for now_ms in range(LONG_MS + PAUSE_MS, LONG_MS + 10 * PAUSE_MS, PAUSE_MS):
        assert asking.step(now_ms)
    (record,) = caplog.records
    assert "for 30 s" in record.getMessage()
    assert "pending-0" in record.getMessage()
    assert "find-hanging" in record.getMessage()
