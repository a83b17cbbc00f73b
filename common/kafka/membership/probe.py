"""`Probe`: asks whether a coordinator that holds the answer to JoinGroup or SyncGroup back is still there.

A connection that is dead, but not closed (power loss, a broken network), looks like a group that takes its time: Kafka
answers a JoinGroup when every member has joined, after minutes if need be. So a heartbeat goes over the other
connection, three times in a session. The answer "the group rebalances" is a sign of life. Without an answer in time the
connection counts as lost, and the coordinator is looked up anew. A request may be lost on its way to a coordinator that
answers heartbeats: after a session the request is resent, over a new connection. Kafka takes a repeated JoinGroup
for the first one.

*Guarantees*: no step waits for more than this one answer. Only an answer about the member's session counts for the
session.
*Assumes*: one owner, the member's machine; broker semantics of Kafka 3.2 and newer: a heartbeat is answered while the
group rebalances, under the generation before until the join completes, under the new one after that.
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
    """Sends heartbeats, under the member id and generation that the handshake got last."""

    def __init__(
        self, settings: MemberSettings, coordinator: Coordinator, handshake: Handshake, timer: HeartbeatTimer
    ) -> None:
        self._settings, self._coordinator, self._handshake, self._timer = settings, coordinator, handshake, timer

    def ask(self) -> ErrorCode:
        """Send one heartbeat, and return the coordinator's code."""
        request = protocol.heartbeat_request(self._settings, self._handshake.generation, self._handshake.member_id)
        return self._coordinator.call(request, HeartbeatResponse).error_code

    def is_due(self, now_ms: int, *, to_lose: bool) -> bool:
        """True if a probe is due, while an answer is awaited or the leader works. A member that has nothing `to_lose`
        waits for a third of a session first."""
        busy_ms = self._handshake.busy_ms(now_ms)
        if busy_ms is None or now_ms < self._timer.probe_ms:
            return False
        return to_lose or busy_ms >= self._settings.request_timeout_ms

    def send(self, now_ms: int, *, joining: bool) -> bool:
        """Send a probe; True when the awaited answer may still come. `joining`: the answer is JoinGroup's, else
        SyncGroup's. `CoordinatorError`: the awaited answer would be the same."""
        self._timer.probing(now_ms)
        code = self.ask()
        reaction = reaction_to(code)
        if not self._handshake.member_id:
            # The first JoinGroup has brought no id yet: the probe tells only whether it went to the right broker.
            if reaction in _ELSEWHERE:
                raise CoordinatorError(HEARTBEAT, code)
        elif joining and reaction is Reaction.LOSE_GENERATION:
            # The join has completed just now, so that its answer is under way; or there never was a generation.
            pass
        elif code is ErrorCode.none or (joining and reaction is Reaction.REJOIN):
            self._timer.confirmed(now_ms)
        else:
            raise CoordinatorError(HEARTBEAT, code)
        # A group that had the JoinGroup would rebalance.
        unknown = joining and code is ErrorCode.none
        limit_ms = self._settings.request_timeout_ms if unknown else self._settings.session_timeout_ms
        return (self._handshake.waited_ms(now_ms) or 0) < limit_ms
