"""The times of a member: heartbeats, pauses after errors, the coordinator's silence.

*Guarantees*: while a follow-up rebalance is due, heartbeats come every `FOLLOWUP_HEARTBEAT_MS`, for at most the
rebalance timeout: by a heartbeat's answer a member learns of the rebalance, for which a moving task waits. The session
counts the time for which the machine stood still; all other times are those of the monotonic clock.
*Assumes*: one owner, the member's machine; `now_ms` doesn't go back.
"""

from __future__ import annotations

from collections.abc import Callable

from milestones.common.kafka.membership.settings import MemberSettings

FOLLOWUP_HEARTBEAT_MS = 100


class HeartbeatTimer:
    """`beat_ms`: the time of the next heartbeat. `retry_ms`: the earliest time of other requests after an error.
    `probe_ms`: the time to ask whether a coordinator that holds an answer back is still there. `contact_ms`: the time,
    in the session's time, of the last request that the coordinator has answered as to a member."""

    beat_ms: int
    retry_ms: int
    probe_ms: int

    def __init__(self, settings: MemberSettings, now_ms: int, stood_still_ms: Callable[[], int] = lambda: 0) -> None:
        """`stood_still_ms`: gives the time for which the machine has stood still so far."""
        self._settings, self._stood_still_ms = settings, stood_still_ms
        self.beat_ms = self.retry_ms = self.probe_ms = now_ms
        self._still_ms = stood_still_ms()
        self.contact_ms: int = self.in_session_ms(now_ms)
        self._hurry_until_ms = now_ms
        self._failures = 0
        self._unreached_ms: int | None = None

    def assigned(self, now_ms: int, *, followup: bool) -> None:
        """Note a new generation; `followup`: the next rebalance is due as soon as a member has released tasks."""
        self._hurry_until_ms = now_ms + self._settings.max_poll_interval_ms if followup else now_ms
        self.beaten(now_ms)
        self.probing(now_ms)
        self._failures = 0
        if self.session_over(now_ms):
            # The answer had to wait for this process: a heartbeat tells whether the generation still holds.
            self.hasten()

    def beaten(self, now_ms: int) -> None:
        interval = self._settings.heartbeat_interval_ms
        self.beat_ms = now_ms + (min(FOLLOWUP_HEARTBEAT_MS, interval) if now_ms < self._hurry_until_ms else interval)

    def hasten(self) -> None:
        """Make a heartbeat due at once."""
        self.beat_ms = min(self.beat_ms, self.retry_ms)

    def known(self, now_ms: int) -> None:
        """End the hurry, as the member knows of the follow-up rebalance."""
        self._hurry_until_ms = now_ms

    def probing(self, now_ms: int) -> None:
        """Note a probe; the next one is due so that three fit into a session."""
        self.probe_ms = now_ms + self._settings.request_timeout_ms

    def step(self) -> None:
        """Begin a step: an answer in it may have waited while the machine stood still."""
        self._still_ms = self._stood_still_ms()

    def in_session_ms(self, now_ms: int) -> int:
        """The step's time, in the session's time."""
        return now_ms + self._still_ms

    def heard(self, sent_ms: int) -> None:
        """Note that the coordinator answered, as to a member, a request sent at `sent_ms` of the session's time."""
        self.contact_ms = max(self.contact_ms, sent_ms)

    def confirmed(self, now_ms: int) -> None:
        """Note that the coordinator answered, as to a member, a request of this step."""
        self.heard(self.in_session_ms(now_ms))
        self.probing(now_ms)
        self._failures = 0

    def pause_ms(self) -> int:
        """The pause after an error, doubled after each."""
        settings = self._settings
        return min(settings.retry_backoff_ms << min(self._failures, 10), settings.retry_backoff_max_ms)

    def failed(self, now_ms: int) -> None:
        """Let all requests but commits wait for the pause."""
        self.retry_ms = self.beat_ms = self.probe_ms = now_ms + self.pause_ms()
        self._failures += 1

    def unreachable(self, now_ms: int) -> bool:
        """Note that no broker has answered since the start; True when that has lasted for too long."""
        self._unreached_ms = now_ms if self._unreached_ms is None else self._unreached_ms
        return now_ms - self._unreached_ms >= self._settings.unreachable_after_ms

    def session_over(self, now_ms: int) -> bool:
        """True if the session is over. *Concurrency*: the owner asks, too, and reads one int, swapped whole."""
        return now_ms + self._stood_still_ms() - self.contact_ms > self._settings.session_timeout_ms
