"""A membership that one process holds and lends to others, which commit under its generation.

*Guarantees*: a commit is refused once the lender's generation is over; a borrower never joins, leaves or answers the
group.
*Assumes*: one owner thread; the lender keeps the membership alive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4 import HeartbeatResponse
from kio.schema.offset_commit.v8 import OffsetCommitResponse
from kio.static.protocol import ResponsePayload

from milestones.common.clock import Clock, Standstill
from milestones.common.kafka.membership.commits import COMMIT
from milestones.common.kafka.membership.coordinator import Coordinator, CoordinatorError, code_of
from milestones.common.kafka.membership.metadata import group_metadata, verify_group_metadata_format
from milestones.common.kafka.membership.protocol import commit_request, heartbeat_request
from milestones.common.kafka.membership.reactions import (
    CommitRetriableError,
    Reaction,
    StaleGenerationError,
    explain,
    failure,
    reaction_to,
)
from milestones.common.kafka.membership.settings import MemberSettings
from milestones.common.kafka.wire import Connect, ConnectionLostError, Connector
from milestones.common.kafka.wire_settings import WireSettings
from milestones.common.records import OffsetAndMetadata, TopicPartition

OVER = frozenset({Reaction.LOSE_GENERATION, Reaction.LOSE_MEMBER})
PAUSE_MS = 100


@dataclass(frozen=True)
class LentMembership:
    """A member and its generation."""

    member_id: str
    generation: int


class BorrowedMembership:
    """A borrower's membership. *Owns*: a connection to the coordinator, made at its first use; other questions may use
    it, too."""

    def __init__(
        self, settings: MemberSettings, lent: LentMembership, clock: Clock, connect: Connect | None = None
    ) -> None:
        """Raise `MembershipError` if this confluent-kafka isn't supported."""
        verify_group_metadata_format()
        wire = WireSettings.of(settings.client)
        self._settings, self._lent, self._clock = settings, lent, clock
        self.coordinator: Coordinator = Coordinator(
            settings.group_id, wire.bootstrap, connect or Connector(wire), settings.request_timeout_ms
        )
        self._standstill = Standstill(clock)
        self._confirmed_ms = self._time_ms()
        self._asked_ms = -math.inf
        self._over: StaleGenerationError | None = None

    def metadata(self) -> bytes:
        """The group metadata for `send_offsets_to_transaction`."""
        lent = self._lent
        return group_metadata(self._settings.group_id, lent.generation, lent.member_id, self._settings.instance_id)

    def commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Make an OffsetCommit under the generation, and wait for it. Errors: as in `GroupMember`."""
        request = commit_request(self._settings, self._lent.generation, self._lent.member_id, offsets)
        until_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            sent_ms = self._time_ms()
            try:
                return self._take(COMMIT, self.coordinator.call(request, OffsetCommitResponse), sent_ms)
            except (ConnectionLostError, CoordinatorError) as error:
                self.coordinator.forget()
                if self._clock.monotonic_ms() >= until_ms:
                    raise CommitRetriableError(f"the offsets weren't committed in {timeout_ms} ms: {error}") from error
            self._clock.sleep_ms(PAUSE_MS)

    def begin_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """As `commit_offsets`: a borrower has nothing else to do meanwhile."""
        self.commit_offsets(offsets, timeout_ms)

    def commit_returned(self, _wait_ms: int) -> bool:
        """True: `begin_commit` has waited for the answer, or raised."""
        return True

    def joining(self) -> bool:
        """True if a commit should wait for the next generation: never, the loan ends with its own."""
        return False

    def confirm(self) -> None:
        """Check that the membership holds, before it is used. `StaleGenerationError`: it doesn't, or no answer has
        confirmed it for a session."""
        while not self._beat():
            if self.session_over():
                break
            self._clock.sleep_ms(PAUSE_MS)
        self.check()

    def check(self) -> None:
        """Raise `StaleGenerationError` if the session is over. May be called at every step: the coordinator is asked
        once in a heartbeat's interval."""
        if self._over is None and self._time_ms() - self._asked_ms >= self._settings.heartbeat_interval_ms:
            self._beat()
        if self.session_over():
            raise self._over or StaleGenerationError("no coordinator has confirmed the membership for a session")

    def session_over(self) -> bool:
        """True if the group may have given the tasks to others by now. Asks by a heartbeat, unless an answer came
        within the last third of a session. A rebalance that the lender doesn't join in time counts as the lender's end:
        otherwise the borrowers' heartbeats would keep a dead lender in the group."""
        now_ms, session_ms = self._time_ms(), self._settings.session_timeout_ms
        if self._over is None and now_ms - max(self._asked_ms, self._confirmed_ms) > session_ms // 3:
            self._beat()
        return self._over is not None or now_ms - self._confirmed_ms > session_ms

    def _beat(self) -> bool:
        """Send a heartbeat; True when there was an answer."""
        self._asked_ms = sent_ms = self._time_ms()
        request = heartbeat_request(self._settings, self._lent.generation, self._lent.member_id)
        try:
            self._take("Heartbeat", self.coordinator.call(request, HeartbeatResponse), sent_ms)
        except StaleGenerationError as error:
            self._over = error
        except (ConnectionLostError, CoordinatorError):
            self.coordinator.forget()
            return False
        return True

    def _time_ms(self) -> int:
        return self._clock.monotonic_ms() + self._standstill.ms()

    def _take(self, request: str, answer: ResponsePayload, sent_ms: int) -> None:
        """Note an answer: an error, or that the group still knew the member when the request was sent."""
        code = code_of(answer)
        reaction = reaction_to(code)
        if code is ErrorCode.none:
            self._confirmed_ms = sent_ms
        elif reaction is Reaction.REJOIN and request != COMMIT:
            return
        elif reaction in OVER or reaction is Reaction.REJOIN or code is ErrorCode.fenced_instance_id:
            raise StaleGenerationError(f"{request}: {explain(code)}")
        elif reaction in (Reaction.REFUSE, Reaction.FAIL):
            raise failure(self._settings, request, code)
        else:
            raise CoordinatorError(request, code)

    def close(self) -> None:
        self.coordinator.forget()

