"""`PendingFetches`: asks the coordinator for the group's committed offsets.

*Guarantees*: an offset in an open transaction isn't reported. The question is repeated until the transaction has ended
(KIP-447), without a time limit; the log gets a line if this takes long. Each question gets one answer: the offsets or
an error.
*Assumes*: one owner, `MemberMachine`, which sends a heartbeat between a question and its answer.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v8 import OffsetFetchResponse

from milestones.common.errors import MilestonesError
from milestones.common.kafka.membership import protocol
from milestones.common.kafka.membership.coordinator import Coordinator, CoordinatorError
from milestones.common.kafka.membership.events import Committed, FetchOffsets, Offsets
from milestones.common.kafka.membership.reactions import Reaction, failure, reaction_to
from milestones.common.kafka.membership.settings import MemberSettings
from milestones.common.records import OffsetAndMetadata, TopicPartition

log: Final = logging.getLogger(__name__)

REQUEST = "OffsetFetch"
LONG_MS = 30_000
"""The time after which the log mentions a wait. The transaction of a dead instance usually ends sooner: it times out
after 10 s, and brokers check for time-outs every 10 s."""
_FINAL = frozenset({Reaction.REFUSE, Reaction.FAIL})
_WITHOUT_OFFSET = frozenset({ErrorCode.none, ErrorCode.unknown_topic_or_partition})


@dataclass(eq=False)
class _Waiting:
    """A question that hasn't been answered yet. `resume_ms`: the time before which it isn't sent. `since_ms`: the time
    at which an open transaction first delayed it. `told`: True once the log has mentioned the wait."""

    question: FetchOffsets
    resume_ms: int = 0
    since_ms: int | None = None
    told: bool = False


class PendingFetches:
    """A queue of questions. A question that waits for the end of a transaction doesn't delay the others."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self._waiting: deque[_Waiting] = deque()
        self._resume_ms = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, question: FetchOffsets) -> None:
        self._waiting.append(_Waiting(question))

    def next_ms(self) -> int:
        """Returns the time at which the next question can be sent."""
        return max(self._resume_ms, min(one.resume_ms for one in self._waiting))

    def pause(self, until_ms: int) -> None:
        """Send no question before `until_ms`, because the coordinator has answered with a passing error."""
        self._resume_ms = until_ms

    def step(self, coordinator: Coordinator, now_ms: int) -> bool:
        """Send the first question that is due. Returns True if a question was sent. Raises `CoordinatorError` if the
        coordinator can't answer any question."""
        waiting = next((one for one in self._waiting if one.resume_ms <= now_ms), None)
        if waiting is None or now_ms < self._resume_ms:
            return False
        question, group_id = waiting.question, self._settings.group_id
        response = coordinator.call(protocol.fetch_request(group_id, question.partitions), OffsetFetchResponse)
        (group,) = response.groups
        if group.error_code is not ErrorCode.none:
            raise CoordinatorError(REQUEST, group.error_code)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic in group.topics:
            for at in topic.partitions:
                if at.error_code is ErrorCode.unstable_offset_commit:
                    self._wait(waiting, TopicPartition(topic.name, at.partition_index), now_ms)
                    return True
                if reaction_to(at.error_code) in _FINAL and at.error_code not in _WITHOUT_OFFSET:
                    what = f"{REQUEST} of {topic.name}"
                    self._answer(waiting, {}, failure(self._settings, what, at.error_code))
                    return True
                if at.error_code not in _WITHOUT_OFFSET:
                    raise CoordinatorError(REQUEST, at.error_code)
                if at.committed_offset >= 0:
                    committed = OffsetAndMetadata(at.committed_offset, (at.metadata or "").rstrip("\0"))
                    found[TopicPartition(topic.name, at.partition_index)] = committed
        self._answer(waiting, found)
        return True

    def _answer(self, waiting: _Waiting, found: Offsets, error: MilestonesError | None = None) -> None:
        self._waiting.remove(waiting)
        waiting.question.reply_to.try_put(Committed(waiting.question.number, found, error))

    def _wait(self, waiting: _Waiting, pending: TopicPartition, now_ms: int) -> None:
        waiting.resume_ms = now_ms + self._settings.retry_backoff_ms
        if waiting.since_ms is None:
            waiting.since_ms = now_ms
        elif now_ms - waiting.since_ms > LONG_MS and not waiting.told:
            waiting.told = True
            log.warning(
                "group %s: a transaction with an offset of %s has been open for %d s; the task of this partition waits "
                "for its end. If it doesn't end by itself, find it with `kafka-transactions.sh find-hanging` and end "
                "it with `kafka-transactions.sh abort`",
                self._settings.group_id, pending, (now_ms - waiting.since_ms) // 1000,
            )  # fmt: skip

    def reject(self, error: MilestonesError) -> None:
        """Answer all questions with this error."""
        while self._waiting:
            self._answer(self._waiting[0], {}, error)
