"""How a member gets its place in the group: JoinGroup, then SyncGroup.

*Guarantees*: a step waits `ANSWER_WAIT_MS` at most: the broker may hold either answer back for minutes. The leader
assigns in between.
*Assumes*: one owner, the member's machine, which says which of the two steps it is at, and what an error leads to.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TypeVar

from kio.schema.errors import ErrorCode
from kio.schema.join_group.v9 import JoinGroupResponse
from kio.schema.sync_group.v5 import SyncGroupResponse
from kio.static.protocol import ResponsePayload

from milestones.common.assignment.model import Assignment, Subscription, UserDataError
from milestones.common.errors import MembershipError
from milestones.common.kafka.membership import protocol
from milestones.common.kafka.membership.coordinator import Coordinator, CoordinatorError
from milestones.common.kafka.membership.events import Leader
from milestones.common.kafka.membership.leading import lead
from milestones.common.kafka.membership.pulse import Pulse
from milestones.common.kafka.membership.settings import MemberSettings
from milestones.common.kafka.wire import ConnectionLostError
from milestones.common.records import TopicPartition

log = logging.getLogger(__name__)
R = TypeVar("R", bound=ResponsePayload)

ANSWER_WAIT_MS = 20
"""How long a step looks for the answer to a JoinGroup or SyncGroup; commands wait so long at most."""
JOIN_GRACE_MS = 5_000
"""How much longer than the rebalance timeout the broker may take with JoinGroup."""


class Handshake:
    """`member_id` and `generation`: what the broker gave last; the generation is ours once SyncGroup is answered.
    `leads`: whether this member is the one that assigns."""

    def __init__(self, settings: MemberSettings, leader: Leader, coordinator: Coordinator, pulse: Pulse) -> None:
        self._settings, self._leader, self._coordinator, self._pulse = settings, leader, coordinator, pulse
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self._protocol: str | None = None
        self._sent_ms: int | None = None

    def give_up(self) -> None:
        """What was sent is answered to nobody."""
        self._coordinator.end_slow()
        self._sent_ms = None

    def send_again(self) -> None:
        """The next step is a JoinGroup that isn't sent yet."""
        self._sent_ms = None

    def join(self, subscription: Subscription, owned: Iterable[TopicPartition], reason: str, now_ms: int) -> bool:
        """Send JoinGroup, or look for its answer; once that is there, SyncGroup is sent. Whether it is."""
        if self._sent_ms is None:
            request = protocol.join_request(self._settings, self.member_id, subscription, owned, reason)
            self._coordinator.start(request)
            self._sent_ms = now_ms
        answer = self._await(JoinGroupResponse, now_ms)
        if answer is None:
            return False
        if answer.error_code is not ErrorCode.none:
            raise CoordinatorError("JoinGroup", answer.error_code, answer.member_id)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.leads = answer.leader == answer.member_id
        self._note_protocol(answer.protocol_name)
        assigns = self.leads and not answer.skip_assignment
        result = lead(self._leader, self._settings.group_id, answer) if assigns else {}
        self._coordinator.start(
            protocol.sync_request(self._settings, self.generation, self.member_id, answer.protocol_name, result)
        )
        self._sent_ms = now_ms
        return True

    def _note_protocol(self, name: str | None) -> None:
        """Which one the broker chose: the members' metadata that the leader gets is that of this version."""
        if name != self._protocol:
            self._protocol = name
            log.info("group %s: protocol %s, of %s", self._settings.group_id, name, ", ".join(self._settings.protocols))

    def sync(self, now_ms: int) -> Assignment | None:
        """What SyncGroup's answer gives this member; None when it isn't there yet."""
        answer = self._await(SyncGroupResponse, now_ms)
        if answer is None:
            return None
        if answer.error_code is not ErrorCode.none:
            raise CoordinatorError("SyncGroup", answer.error_code)
        self.give_up()
        self._pulse.confirmed(now_ms)
        try:
            return protocol.read_assignment(answer.assignment)
        except UserDataError as error:
            raise MembershipError(f"group {self._settings.group_id}: {error}") from error

    def _await(self, kind: type[R], now_ms: int) -> R | None:
        """The answer to what was sent by `start`, when it is there."""
        answer = self._coordinator.result(kind, ANSWER_WAIT_MS)
        assert self._sent_ms is not None
        # The broker holds the answer back, so it is there; that is as good as a heartbeat.
        self._pulse.contact_ms = now_ms
        if answer is None and now_ms - self._sent_ms > self._settings.max_poll_interval_ms + JOIN_GRACE_MS:
            raise ConnectionLostError(f"no {kind.__name__} for longer than max_poll_interval_ms")
        return answer
