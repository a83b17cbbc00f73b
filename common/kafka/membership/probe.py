"""`Probe`: checks that the coordinator is alive while the member waits for its answer to JoinGroup or SyncGroup.

*Why this way*: a dead connection that wasn't closed (power loss, a broken network) looks like a slow group, because
Kafka may answer JoinGroup after minutes, when every member has joined. So a heartbeat is sent over the other
connection, three times per session timeout. Any answer, also "the group rebalances", proves that the coordinator lives.
Without an answer the connection counts as lost, and the coordinator is looked up. A coordinator that answers heartbeats
may have missed the request itself. So after a session timeout the request is resent over a new connection. Kafka treats
a repeated JoinGroup like the first one.

*Guarantees*: a step waits for one answer at most. Only an answer to this member prolongs its session.
*Assumes*: one owner, `MemberMachine`. Brokers behave as in Kafka 3.2 and newer: during a rebalance they answer
heartbeats of the old generation until the join completes, and of the new generation after that.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4 import HeartbeatResponse

from milestones.common.kafka.membership import protocol
from milestones.common.kafka.membership.coordinator import Coordinator, CoordinatorError
from milestones.common.kafka.membership.handshake import Handshake
from milestones.common.kafka.membership.heartbeat_timer import HeartbeatTimer
from milestones.common.kafka.membership.reactions import Reaction, reaction_to
from milestones.common.kafka.membership.settings import MemberSettings

HEARTBEAT = "Heartbeat"
_ELSEWHERE = frozenset({Reaction.FIND, Reaction.RETRY})


class Probe:
    """Sends heartbeats with the member id and generation that the handshake got last."""

    def __init__(
        self, settings: MemberSettings, coordinator: Coordinator, handshake: Handshake, timer: HeartbeatTimer
    ) -> None:
        self._settings, self._coordinator, self._handshake, self._timer = settings, coordinator, handshake, timer

    def ask(self) -> ErrorCode:
        """Send one heartbeat, and return the coordinator's code."""
        request = protocol.heartbeat_request(self._settings, self._handshake.generation, self._handshake.member_id)
        return self._coordinator.call(request, HeartbeatResponse).error_code

    def is_due(self, now_ms: int, *, to_lose: bool) -> bool:
        """True if a probe is due: the member waits for an answer, or assigns as the leader. `to_lose`: True if the
        member has a generation to lose. Without one, the first probe comes after a third of the session timeout."""
        busy_ms = self._handshake.busy_ms(now_ms)
        if busy_ms is None or now_ms < self._timer.probe_ms:
            return False
        return to_lose or busy_ms >= self._settings.request_timeout_ms

    def send(self, now_ms: int, *, joining: bool) -> bool:
        """Send a probe. Returns True if the expected answer may still come. `joining`: True if the member waits for the
        answer to JoinGroup, False for SyncGroup. Raises `CoordinatorError` if the expected answer would be the same
        error."""
        self._timer.probing(now_ms)
        code = self.ask()
        reaction = reaction_to(code)
        if not self._handshake.member_id:
            # Without a member id yet, the probe can only show if JoinGroup was sent to the right broker.
            if reaction in _ELSEWHERE:
                raise CoordinatorError(HEARTBEAT, code)
        elif joining and reaction is Reaction.LOSE_GENERATION:
            # Either the join has just completed and its answer comes soon, or there never was a generation.
            pass
        elif code is ErrorCode.none or (joining and reaction is Reaction.REJOIN):
            self._timer.confirmed(now_ms)
        else:
            raise CoordinatorError(HEARTBEAT, code)
        # If the group had received JoinGroup, it would rebalance.
        unknown = joining and code is ErrorCode.none
        limit_ms = self._settings.request_timeout_ms if unknown else self._settings.session_timeout_ms
        return (self._handshake.waited_ms(now_ms) or 0) < limit_ms
