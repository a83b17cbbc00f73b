"""`HeartbeatTimer`: computes when a member's heartbeats are due, pauses after errors, and the end of the session.

*Guarantees*: while a follow-up rebalance is due, heartbeats are sent every `FOLLOWUP_HEARTBEAT_MS`, for at most the
rebalance timeout. The answer to a heartbeat tells the member of the rebalance, and tasks that move wait for it. Time in
which the computer was suspended counts for the session. All other times are those of the monotonic clock.
*Assumes*: one owner, `MemberMachine`. `now_ms` never decreases.
"""

from __future__ import annotations

from collections.abc import Callable

from milestones.common.kafka.membership.settings import MemberSettings

FOLLOWUP_HEARTBEAT_MS = 100


class HeartbeatTimer:
    """The times of one member. `beat_ms`: the time of the next heartbeat. `retry_ms`: after an error, the earliest time
    of the next request. `probe_ms`: the time of the next `Probe`. `contact_ms`: the time at which the last request was
    sent whose answer proved that the group knows this member. It is measured in session time: monotonic time plus the
    time in which the computer was suspended."""

    beat_ms: int
    retry_ms: int
    probe_ms: int

    def __init__(self, settings: MemberSettings, now_ms: int, stood_still_ms: Callable[[], int] = lambda: 0) -> None:
        """`stood_still_ms`: a function that returns how long the computer has been suspended so far (`Standstill`)."""
        self._settings, self._stood_still_ms = settings, stood_still_ms
        self.beat_ms = self.retry_ms = self.probe_ms = now_ms
        self._still_ms = stood_still_ms()
        self.contact_ms: int = self.in_session_ms(now_ms)
        self._hurry_until_ms = now_ms
        self._failures = 0
        self._unreached_ms: int | None = None

    def assigned(self, now_ms: int, *, followup: bool) -> None:
        """Note a new generation. `followup`: True if the next rebalance comes as soon as a member has released
        tasks."""
        self._hurry_until_ms = now_ms + self._settings.max_poll_interval_ms if followup else now_ms
        self.beaten(now_ms)
        self.probing(now_ms)
        self._failures = 0
        if self.session_over(now_ms):
            # This process was suspended before it read the answer. A heartbeat shows if the generation is still valid.
            self.hasten()

    def beaten(self, now_ms: int) -> None:
        interval = self._settings.heartbeat_interval_ms
        self.beat_ms = now_ms + (min(FOLLOWUP_HEARTBEAT_MS, interval) if now_ms < self._hurry_until_ms else interval)

    def hasten(self) -> None:
        """Make a heartbeat due now, or as soon as the pause after an error is over."""
        self.beat_ms = min(self.beat_ms, self.retry_ms)

    def known(self, now_ms: int) -> None:
        """Return to the normal heartbeat interval, because the member knows of the follow-up rebalance now."""
        self._hurry_until_ms = now_ms

    def probing(self, now_ms: int) -> None:
        """Note a probe. The next one is due after a third of the session timeout."""
        self.probe_ms = now_ms + self._settings.request_timeout_ms

    def step(self) -> None:
        """Note the beginning of a step of the member. Requests of the step count as sent at this time."""
        self._still_ms = self._stood_still_ms()

    def in_session_ms(self, now_ms: int) -> int:
        """Converts the time of this step to session time."""
        return now_ms + self._still_ms

    def heard(self, sent_ms: int) -> None:
        """Note an answer that proves that the group knows this member. `sent_ms`: the time of its request, in session
        time."""
        self.contact_ms = max(self.contact_ms, sent_ms)

    def confirmed(self, now_ms: int) -> None:
        """Note an answer to a request of this step. The answer proves that the group knows this member."""
        self.heard(self.in_session_ms(now_ms))
        self.probing(now_ms)
        self._failures = 0

    def pause_ms(self) -> int:
        """Returns the pause after an error. The pause doubles with each further error."""
        settings = self._settings
        return min(settings.retry_backoff_ms << min(self._failures, 10), settings.retry_backoff_max_ms)

    def failed(self, now_ms: int) -> None:
        """Note an error: all requests of the member's steps, also commits, wait until the pause is over."""
        self.retry_ms = self.beat_ms = self.probe_ms = now_ms + self.pause_ms()
        self._failures += 1

    def unreachable(self, now_ms: int) -> bool:
        """Note that no broker has answered since the start. Returns True after `unreachable_after_ms`."""
        self._unreached_ms = now_ms if self._unreached_ms is None else self._unreached_ms
        return now_ms - self._unreached_ms >= self._settings.unreachable_after_ms

    def session_over(self, now_ms: int) -> bool:
        """True if the session is over. *Concurrency*: the owner calls this method, too. It reads one int, which is
        replaced as a whole."""
        return now_ms + self._stood_still_ms() - self.contact_ms > self._settings.session_timeout_ms
