"""The handshake by which a member joins a generation: JoinGroup, then SyncGroup.

*Guarantees*: a step waits `ANSWER_WAIT_MS` at most: the broker may hold either answer back for minutes. The leader
assigns in between, one step of `Leader.assign` in one step of the handshake. No connection ever has two requests
without an answer: the answer to the first would be read as that of the second. An answer counts for the time at which
its request was sent: it may have waited for a process that stood still.
*Assumes*: one owner, the member's machine, which chooses the step and answers errors.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from kio.schema.errors import ErrorCode
from kio.schema.join_group.v9 import JoinGroupResponse
from kio.schema.sync_group.v5 import SyncGroupResponse
from kio.static.protocol import RequestPayload

from milestones.common.assignment.model import Assignment, Subscription, UserDataError
from milestones.common.errors import MembershipError
from milestones.common.kafka.membership import protocol
from milestones.common.kafka.membership.coordinator import Coordinator, CoordinatorError
from milestones.common.kafka.membership.events import Assigning, Leader
from milestones.common.kafka.membership.heartbeat_timer import HeartbeatTimer
from milestones.common.kafka.membership.leading import lead
from milestones.common.kafka.membership.settings import MemberSettings
from milestones.common.kafka.wire import ConnectionLostError
from milestones.common.records import TopicPartition

log: Final = logging.getLogger(__name__)
R = TypeVar("R", JoinGroupResponse, SyncGroupResponse)

ANSWER_WAIT_MS = 20
"""The longest wait of a step for the answer to a JoinGroup or SyncGroup; a command waits for this time at most."""
LONG_JOIN_MS = 3_000
"""The time after which the log says that a join waits."""

JOIN_GRACE_MS = 5_000
"""The time beyond the rebalance timeout that the broker may take with JoinGroup."""


class Handshake:
    """`member_id` and `generation`: as the broker gave them last; the generation holds once SyncGroup is answered.
    `leads`: whether this member assigns."""

    def __init__(
        self, settings: MemberSettings, leader: Leader, coordinator: Coordinator, timer: HeartbeatTimer
    ) -> None:
        self._settings, self._leader, self._coordinator, self._timer = settings, leader, coordinator, timer
        self.member_id: str = ""
        self.generation: int = -1
        self.leads: bool = False
        self._protocol: str | None = None
        self._sent_ms: int | None = None
        self._sent_in_session_ms = 0
        self._assigning: Assigning | None = None
        self._assigns_from_ms = 0
        self._waits = False

    def give_up(self) -> None:
        """Give the request under way up, and the leader's work."""
        self._coordinator.end_slow()
        self._sent_ms = None
        if self._assigning is not None:
            self._assigning.close()
            self._assigning = None

    def send_again(self) -> None:
        """Begin again with a JoinGroup; on another connection if this one still owes an answer."""
        if self._sent_ms is not None or self._assigning is not None:
            self.give_up()

    def waited_ms(self, now_ms: int) -> int | None:
        """The time for which an answer has been due; None when none is."""
        return None if self._sent_ms is None else now_ms - self._sent_ms

    def busy_ms(self, now_ms: int) -> int | None:
        """The time for which an answer has been due, or the leader has worked; None for neither."""
        return self.waited_ms(now_ms) if self._assigning is None else now_ms - self._assigns_from_ms

    def join(self, subscription: Subscription, owned: Iterable[TopicPartition], reason: str, now_ms: int) -> bool:
        """Send JoinGroup, or look for its answer; True once the answer has come. A follower sends SyncGroup then; the
        leader has to assign first."""
        if self._sent_ms is None:
            request = protocol.join_request(self._settings, self.member_id, subscription, owned, reason)
            self._send(request, now_ms)
        answer = self._await(JoinGroupResponse, now_ms)
        if answer is None:
            self._say_that_it_waits(self.waited_ms(now_ms) or 0)
            return False
        self._waits = False
        if answer.error_code is not ErrorCode.none:
            raise CoordinatorError("JoinGroup", answer.error_code, answer.member_id)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.leads = answer.leader == answer.member_id
        self._note_protocol(answer.protocol_name)
        if self.leads and not answer.skip_assignment:
            self._assigning, self._assigns_from_ms = lead(self._leader, self._settings.group_id, answer), now_ms
        else:
            self._send_sync({}, now_ms)
        return True

    def _send_sync(self, result: Mapping[str, Assignment], now_ms: int) -> None:
        request = protocol.sync_request(self._settings, self.generation, self.member_id, self._protocol, result)
        self._send(request, now_ms)

    def _send(self, request: RequestPayload, now_ms: int) -> None:
        self._sent_in_session_ms = self._timer.in_session_ms(now_ms)
        self._coordinator.start(request)
        self._sent_ms = now_ms

    def _say_that_it_waits(self, ms: int) -> None:
        """Log a long wait, once per join: a start after a crash would look like a standstill."""
        if ms >= LONG_JOIN_MS and not self._waits:
            self._waits = True
            log.info(
                "group %s: waits for the other members to join; one that doesn't answer, such as one that was killed, "
                "is waited for until its session is over (session_timeout_ms, %d here)",
                self._settings.group_id, self._settings.session_timeout_ms,
            )  # fmt: skip

    def _note_protocol(self, name: str | None) -> None:
        """Note and log the protocol that the broker chose: the leader gets the members' metadata of its version."""
        if name != self._protocol:
            self._protocol = name
            log.info("group %s: protocol %s, of %s", self._settings.group_id, name, ", ".join(self._settings.protocols))

    def sync(self, now_ms: int) -> Assignment | None:
        """Do the leader's next step, or look for SyncGroup's answer: this member's assignment; None before it has
        come."""
        if self._assigning is not None:
            try:
                next(self._assigning)
            except StopIteration as done:
                self._assigning = None
                self._send_sync(done.value, now_ms)
            else:
                return None
        answer = self._await(SyncGroupResponse, now_ms)
        if answer is None:
            return None
        if answer.error_code is not ErrorCode.none:
            raise CoordinatorError("SyncGroup", answer.error_code)
        self.give_up()
        try:
            return protocol.read_assignment(answer.assignment)
        except UserDataError as error:
            raise MembershipError(f"group {self._settings.group_id}: {error}") from error

    def _await(self, kind: type[R], now_ms: int) -> R | None:
        """The answer to the request of `start`; None before it has come."""
        answer = self._coordinator.result(kind, ANSWER_WAIT_MS)
        assert self._sent_ms is not None
        if answer is not None:
            self._sent_ms = None
            if answer.error_code is ErrorCode.none:
                self._timer.heard(self._sent_in_session_ms)
        elif now_ms - self._sent_ms > self._settings.max_poll_interval_ms + JOIN_GRACE_MS:
            raise ConnectionLostError(f"no {kind.__name__} for longer than max_poll_interval_ms")
        return answer
