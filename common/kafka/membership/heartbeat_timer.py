"""The times of a member: heartbeats, pauses after errors, how long the coordinator has been silent.

*Guarantees*: while a follow-up rebalance is due, heartbeats come every `FOLLOWUP_HEARTBEAT_MS`, for at most the
rebalance timeout: a heartbeat's answer is how a member learns that it has begun, and a task that moves waits for it.
The session counts the time for which the machine stood still, all else only that of its monotonic clock.
*Assumes*: one owner, the member's machine; `now_ms` doesn't go back.
"""

from __future__ import annotations

from collections.abc import Callable

from milestones.common.kafka.membership.settings import MemberSettings

FOLLOWUP_HEARTBEAT_MS = 100


class Pulse:
    """`beat_ms`: when the next heartbeat is due, `retry_ms`: not before that anything else after an error,
    `probe_ms`: when to see whether a coordinator that holds an answer back is still there. `contact_ms`: when, in the
    session's time, that was sent to which the coordinator last answered as to a member."""

    def __init__(self, settings: MemberSettings, now_ms: int, stood_still_ms: Callable[[], int] = lambda: 0) -> None:
        """`stood_still_ms`: for how long the machine has stood still so far."""
        self._settings, self._stood_still_ms = settings, stood_still_ms
        self.beat_ms = self.retry_ms = self.probe_ms = now_ms
        self._still_ms = stood_still_ms()
        self.contact_ms = self.in_session_ms(now_ms)
        self._hurry_until_ms = now_ms
        self._failures = 0
        self._unreached_ms: int | None = None

    def assigned(self, now_ms: int, *, followup: bool) -> None:
        """A new generation; `followup`: the next rebalance is due as soon as somebody has released tasks."""
        self._hurry_until_ms = now_ms + self._settings.max_poll_interval_ms if followup else now_ms
        self.beaten(now_ms)
        self.probing(now_ms)
        self._failures = 0
        if self.session_over(now_ms):
            # The answer had to wait for us: whether the group does, too, has to be seen first.
            self.hasten()

    def beaten(self, now_ms: int) -> None:
        """A heartbeat was answered."""
        interval = self._settings.heartbeat_interval_ms
        self.beat_ms = now_ms + (min(FOLLOWUP_HEARTBEAT_MS, interval) if now_ms < self._hurry_until_ms else interval)

    def hasten(self) -> None:
        """A heartbeat at once."""
        self.beat_ms = min(self.beat_ms, self.retry_ms)

    def known(self, now_ms: int) -> None:
        """The next rebalance is known of: no more hurry."""
        self._hurry_until_ms = now_ms

    def probing(self, now_ms: int) -> None:
        """A probe is sent: three fit into a session."""
        self.probe_ms = now_ms + self._settings.request_timeout_ms

    def step(self) -> None:
        """A step begins: what is sent in it may wait for its answer while the machine stands still."""
        self._still_ms = self._stood_still_ms()

    def in_session_ms(self, now_ms: int) -> int:
        """The step's time, as `contact_ms` counts it."""
        return now_ms + self._still_ms

    def heard(self, sent_ms: int) -> None:
        """What was sent then, in the session's time, was answered as to a member."""
        self.contact_ms = max(self.contact_ms, sent_ms)

    def confirmed(self, now_ms: int) -> None:
        """What was sent in this step was answered as to a member."""
        self.heard(self.in_session_ms(now_ms))
        self.probing(now_ms)
        self._failures = 0

    def pause_ms(self) -> int:
        """How long to wait after an error: twice as long after each."""
        settings = self._settings
        return min(settings.retry_backoff_ms << min(self._failures, 10), settings.retry_backoff_max_ms)

    def failed(self, now_ms: int) -> None:
        """All but commits waits for a while."""
        self.retry_ms = self.beat_ms = self.probe_ms = now_ms + self.pause_ms()
        self._failures += 1

    def unreachable(self, now_ms: int) -> bool:
        """Called each time that nobody answered at the very start: whether that goes on for too long."""
        self._unreached_ms = now_ms if self._unreached_ms is None else self._unreached_ms
        return now_ms - self._unreached_ms >= self._settings.unreachable_after_ms

    def session_over(self, now_ms: int) -> bool:
        """*Concurrency*: the owner asks, too; it reads one int, swapped whole."""
        return now_ms + self._stood_still_ms() - self.contact_ms > self._settings.session_timeout_ms
