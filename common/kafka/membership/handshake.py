"""`Handshake`: joins a generation of the group with the requests JoinGroup and SyncGroup.

*Guarantees*: a step waits `ANSWER_WAIT_MS` at most, although the broker may delay either answer for minutes. Between
the two requests the leader assigns; each step of the handshake takes one step of `Leader.assign`. A connection never
has two unanswered requests, because the answer to the first would be read as the answer to the second. An answer proves
that the session was alive when its request was sent, not later: this process may have been suspended since.
*Assumes*: one owner, `MemberMachine`, which chooses the step and handles the errors.
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
"""The longest wait of a step for the answer to JoinGroup or SyncGroup. The owner's commands wait for the step."""
LONG_JOIN_MS = 3_000
"""The time after which the log says that a join waits for other members."""

JOIN_GRACE_MS = 5_000
"""The time that the broker may need for JoinGroup in addition to the rebalance timeout."""


class Handshake:
    """One handshake after the other. `member_id` and `generation`: the last ones that the broker has given. A new
    generation is valid once SyncGroup is answered. `leads`: True if this member is the leader, so assigns the tasks."""

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
        """Give up the unanswered request, and the leader's work."""
        self._coordinator.end_slow()
        self._sent_ms = None
        if self._assigning is not None:
            self._assigning.close()
            self._assigning = None

    def send_again(self) -> None:
        """Begin once more with JoinGroup. If a request is unanswered, use a new connection."""
        if self._sent_ms is not None or self._assigning is not None:
            self.give_up()

    def waited_ms(self, now_ms: int) -> int | None:
        """Returns the time since the unanswered request was sent, or None without such a request."""
        return None if self._sent_ms is None else now_ms - self._sent_ms

    def busy_ms(self, now_ms: int) -> int | None:
        """Returns the time since the unanswered request was sent or the leader began to assign. Returns None if neither
        is the case."""
        return self.waited_ms(now_ms) if self._assigning is None else now_ms - self._assigns_from_ms

    def join(self, subscription: Subscription, owned: Iterable[TopicPartition], reason: str, now_ms: int) -> bool:
        """Send JoinGroup, or look for its answer. Returns True once the answer has come. After the answer a follower
        sends SyncGroup, and the leader begins to assign."""
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
        """Log a long wait, once per join. Otherwise a start after a crash would look as if the program hung."""
        if ms >= LONG_JOIN_MS and not self._waits:
            self._waits = True
            log.info(
                "group %s: waits for the other members to join; if one was killed, the group waits until its session "
                "is over (session_timeout_ms, %d here)",
                self._settings.group_id, self._settings.session_timeout_ms,
            )  # fmt: skip

    def _note_protocol(self, name: str | None) -> None:
        """Note and log the protocol that the broker chose. The leader gets the members' metadata in this protocol's
        version."""
        if name != self._protocol:
            self._protocol = name
            log.info("group %s: protocol %s, of %s", self._settings.group_id, name, ", ".join(self._settings.protocols))

    def sync(self, now_ms: int) -> Assignment | None:
        """Take the leader's next step, or look for the answer to SyncGroup. Returns this member's assignment, or None
        if it hasn't come yet."""
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
        """Wait at most `ANSWER_WAIT_MS` for the answer to the last request. Returns None without an answer. Raises
        `ConnectionLostError` if the broker needs longer than the rebalance timeout and `JOIN_GRACE_MS`."""
        answer = self._coordinator.result(kind, ANSWER_WAIT_MS)
        assert self._sent_ms is not None
        if answer is not None:
            self._sent_ms = None
            if answer.error_code is ErrorCode.none:
                self._timer.heard(self._sent_in_session_ms)
        elif now_ms - self._sent_ms > self._settings.max_poll_interval_ms + JOIN_GRACE_MS:
            raise ConnectionLostError(f"no {kind.__name__} for longer than max_poll_interval_ms")
        return answer
