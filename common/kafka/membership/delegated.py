"""`BorrowedMembership`: commits under the generation of a group member in another process, the lender.

*Guarantees*: Kafka refuses a commit once the lender's generation is over. A borrower never joins or leaves the group.
*Assumes*: one owner thread. The lender keeps the membership alive.
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
    """The member id and the generation that a lender gives to borrowers."""

    member_id: str
    generation: int


class BorrowedMembership:
    """The membership of a borrower. *Owns*: a connection to the coordinator, opened at its first use. Other code of the
    same thread may use the connection, too."""

    def __init__(
        self, settings: MemberSettings, lent: LentMembership, clock: Clock, connect: Connect | None = None
    ) -> None:
        """Raises `MembershipError` if this version of confluent-kafka isn't supported."""
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
        """Returns the group metadata for `send_offsets_to_transaction`."""
        lent = self._lent
        return group_metadata(self._settings.group_id, lent.generation, lent.member_id, self._settings.instance_id)

    def commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Commit the offsets under the lender's generation, and wait for the answer. Raises the errors of
        `GroupMember.commit_returned`."""
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
        """Do `commit_offsets`, so wait for the answer. A borrower has nothing else to do meanwhile."""
        self.commit_offsets(offsets, timeout_ms)

    def commit_returned(self, _wait_ms: int) -> bool:
        """Returns True, because `begin_commit` has already waited for the answer."""
        return True

    def joining(self) -> bool:
        """Returns False: a borrower never waits for the next generation, because it commits under the lent one only."""
        return False

    def confirm(self) -> None:
        """Wait until the coordinator has confirmed the membership. Raises `StaleGenerationError` if the generation is
        over, or if the coordinator hasn't confirmed it for a session timeout."""
        while not self._beat():
            if self.session_over():
                break
            self._clock.sleep_ms(PAUSE_MS)
        self.check()

    def check(self) -> None:
        """Raise `StaleGenerationError` if the session is over. The coordinator is asked at most once per
        `heartbeat_interval_ms`, so the method may be called at every step."""
        if self._over is None and self._time_ms() - self._asked_ms >= self._settings.heartbeat_interval_ms:
            self._beat()
        if self.session_over():
            raise self._over or StaleGenerationError("no coordinator has confirmed the membership for a session")

    def session_over(self) -> bool:
        """True if the group may have given the tasks to other members by now.

        Sends a heartbeat first, unless one was sent or confirmed within the last third of the session timeout. During a
        rebalance the answers to heartbeats don't confirm the session. Otherwise the borrowers' heartbeats would keep a
        dead lender in the group."""
        now_ms, session_ms = self._time_ms(), self._settings.session_timeout_ms
        if self._over is None and now_ms - max(self._asked_ms, self._confirmed_ms) > session_ms // 3:
            self._beat()
        return self._over is not None or now_ms - self._confirmed_ms > session_ms

    def _beat(self) -> bool:
        """Send a heartbeat. Returns True if the coordinator has answered."""
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
        """Handle an answer. Without an error code, the session is confirmed for the time at which the request was sent.
        Otherwise raises the error that the code means."""
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

