"""What the probes `/livez` and `/readyz` are told of a client.

*Guarantees*: nothing here waits for a thread of the client, for Kafka or for a store; what is said is at most a few
seconds old.
*Assumes*: any thread asks; a membership thread publishes its `HeartbeatMetrics` at least once per heartbeat interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milestones.common.metrics import HeartbeatMetrics
from milestones.instance.states import StreamsState

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.common.metrics import Metrics

LEAST_SILENCE_MS = 10_000

ENDING = frozenset({StreamsState.PENDING_ERROR, StreamsState.ERROR, StreamsState.NOT_RUNNING})


class PublishedClient(Protocol):
    """What a client shows to any thread."""

    @property
    def state(self) -> StreamsState: ...
    @property
    def error(self) -> BaseException | None: ...
    @property
    def hanging(self) -> bool: ...


class ClientHealth:
    """A client's health. Ready: RUNNING, and the group's coordinator has answered each of its members lately."""

    def __init__(self, client: PublishedClient, metrics: Metrics, config: StreamsConfig, clock: Clock) -> None:
        self._client, self._metrics, self._clock = client, metrics, clock
        self._silence_ms = max(LEAST_SILENCE_MS, 3 * config.heartbeat_interval_ms)

    def not_alive(self) -> str | None:
        """A client that has failed, or that couldn't be closed in time, doesn't come back: the process is to be ended.
        One whose brokers are away, or that rebalances or restores, lives."""
        client = self._client
        if client.state in ENDING or client.hanging:
            return f"{client.state.value}: {client.error}" if client.error is not None else client.state.value
        return None

    def not_ready(self) -> str | None:
        state = self._client.state
        if state is not StreamsState.RUNNING:
            return self.not_alive() or state.value
        silent_ms = self.silent_ms()
        if silent_ms > self._silence_ms:
            seconds = silent_ms // 1000
            return f"no answer from the group's coordinator for {seconds} s: it is away, or a rebalance awaits others"
        return None

    def silent_ms(self) -> int:
        """How long the coordinator hasn't answered the member that it has answered longest ago."""
        now_ms, most_ms = self._clock.monotonic_ms(), 0
        for scope in self._metrics.scopes():
            if isinstance(scope, HeartbeatMetrics) and scope.published.values:
                at_ms, values = scope.published
                most_ms = max(most_ms, now_ms - at_ms + 1000 * int(values["last-heartbeat-seconds-ago"]))
        return most_ms
