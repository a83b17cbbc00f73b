"""The question whether a coordinator that holds JoinGroup's or SyncGroup's answer back is there still.

A connection that is dead, but not closed (power loss, a broken network), looks like a group that takes its time: Kafka
answers a JoinGroup when every member has joined, after minutes if need be. So a heartbeat goes over the other
connection, three times in a session. "The group rebalances" is a sign of life; that no answer comes in time is a lost
connection, and the coordinator is looked up anew. What was sent may be lost all the same, between us and a coordinator
that answers heartbeats: after a session it is sent again, over a new connection. Kafka takes a repeated JoinGroup for
the first one.

*Guarantees*: no step waits for more than this one answer. An answer that says nothing of our session isn't taken for
one that does.
*Assumes*: one owner, the member's machine; broker semantics of Kafka 3.2 and newer: a heartbeat is answered while the
group rebalances, under the generation before until the join completes, under the new one after that.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4 import HeartbeatResponse

from milestones.common.kafka.membership import protocol
from milestones.common.kafka.membership.coordinator import Coordinator, CoordinatorError
from milestones.common.kafka.membership.handshake import Handshake
from milestones.common.kafka.membership.heartbeat_timer import Pulse
from milestones.common.kafka.membership.reactions import Reaction, reaction_to
from milestones.common.kafka.membership.settings import MemberSettings

HEARTBEAT = "Heartbeat"
_ELSEWHERE = frozenset({Reaction.FIND, Reaction.RETRY})


class Probe:
    """Sends heartbeats, under what the broker gave to the handshake last."""

    def __init__(self, settings: MemberSettings, coordinator: Coordinator, handshake: Handshake, pulse: Pulse) -> None:
        self._settings, self._coordinator, self._handshake, self._pulse = settings, coordinator, handshake, pulse

    def ask(self) -> ErrorCode:
        """One heartbeat, and what the coordinator answers to it."""
        request = protocol.heartbeat_request(self._settings, self._handshake.generation, self._handshake.member_id)
        return self._coordinator.call(request, HeartbeatResponse).error_code

    def is_due(self, now_ms: int, *, to_lose: bool) -> bool:
        """Whether something is waited for, or the leader works, and it is time. A member that has nothing `to_lose`
        gives it a third of a session first."""
        busy_ms = self._handshake.busy_ms(now_ms)
        if busy_ms is None or now_ms < self._pulse.probe_ms:
            return False
        return to_lose or busy_ms >= self._settings.request_timeout_ms

    def send(self, now_ms: int, *, joining: bool) -> bool:
        """`joining`: JoinGroup's answer is waited for, else SyncGroup's. Whether it may still come.
        `CoordinatorError`: what was sent would be answered so, too."""
        self._pulse.probing(now_ms)
        code = self.ask()
        reaction = reaction_to(code)
        if not self._handshake.member_id:
            # Our first JoinGroup has brought no id yet: only whether it went to the right broker can be told.
            if reaction in _ELSEWHERE:
                raise CoordinatorError(HEARTBEAT, code)
        elif joining and reaction is Reaction.LOSE_GENERATION:
            # The join has completed just now, so that its answer is under way; or there never was a generation.
            pass
        elif code is ErrorCode.none or (joining and reaction is Reaction.REJOIN):
            self._pulse.confirmed(now_ms)
        else:
            raise CoordinatorError(HEARTBEAT, code)
        # A group that knew of our JoinGroup would rebalance.
        unknown = joining and code is ErrorCode.none
        limit_ms = self._settings.request_timeout_ms if unknown else self._settings.session_timeout_ms
        return (self._handshake.waited_ms(now_ms) or 0) < limit_ms
