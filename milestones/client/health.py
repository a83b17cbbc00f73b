"""The health of a client, for the probes `/livez` and `/readyz`.

*Guarantees*: an answer waits for no thread of the client, for no broker and for no store. It is at most a few seconds
old.
*Assumes*: any thread may ask; a membership thread publishes its `HeartbeatMetrics` at least once per heartbeat
interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milestones.common.config.watch_keys import PROCESSING
from milestones.common.metrics import EndedTaskMetrics, HeartbeatMetrics, StateDatabaseMetrics
from milestones.instance.states import StreamsState

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.common.metrics import Metrics

LEAST_SILENCE_MS = 10_000
DISK_FULL = 1
"""The value of the metric `writes_wait` while a disk is full."""

ENDING = frozenset({StreamsState.PENDING_ERROR, StreamsState.ERROR, StreamsState.NOT_RUNNING})


class PublishedClient(Protocol):
    """The part of a client that any thread may read."""

    @property
    def state(self) -> StreamsState: ...
    @property
    def error(self) -> BaseException | None: ...
    @property
    def hanging(self) -> bool: ...


class ClientHealth:
    """A client's health. A client is ready if it is RUNNING and the group's coordinator has recently answered each of
    its members. Unless `readiness` is `running`, all of its tasks must be able to process, too.
    """

    def __init__(self, client: PublishedClient, metrics: Metrics, config: StreamsConfig, clock: Clock) -> None:
        self._client, self._metrics, self._clock = client, metrics, clock
        self._silence_ms = max(LEAST_SILENCE_MS, 3 * config.heartbeat_interval_ms)
        self._standing = self._what_stands if config.readiness == PROCESSING else lambda: None

    def not_alive(self) -> str | None:
        """Return the reason why the process should be restarted, or None while the client lives. A client that has
        failed, or couldn't be closed in time, never recovers. A client lives while its brokers are away, and while it
        rebalances or restores.
        """
        client = self._client
        if client.state in ENDING or client.hanging:
            return f"{client.state.value}: {client.error}" if client.error is not None else client.state.value
        return None

    def not_ready(self) -> str | None:
        state = self._client.state
        if state is not StreamsState.RUNNING:
            why = ": ".join(filter(None, (state.value, self._what_stands())))
            return self.not_alive() or why
        silent_ms = self.silent_ms()
        if silent_ms > self._silence_ms:
            seconds = silent_ms // 1000
            return f"no answer from the group's coordinator for {seconds} s: it is away, or a rebalance awaits others"
        return self._standing()

    def _what_stands(self) -> str | None:
        """Return a text about the tasks that have ended, and the sub-topologies whose disk is full."""
        ended, full = [], []
        for scope in self._metrics.scopes():
            if isinstance(scope, EndedTaskMetrics):
                ended.append(scope.tags["task-id"])
            elif isinstance(scope, StateDatabaseMetrics) and scope.published.values.get("writes-wait") == DISK_FULL:
                full.append(scope.tags["subtopology-id"])
        said = [f"tasks that have ended: {', '.join(sorted(ended))}"] if ended else []
        said += [f"the disk of the state is full, of sub-topologies: {', '.join(sorted(full))}"] if full else []
        return "; ".join(said) or None

    def silent_ms(self) -> int:
        """Return the longest time for which the coordinator hasn't answered one of this client's members."""
        now_ms, most_ms = self._clock.monotonic_ms(), 0
        for scope in self._metrics.scopes():
            if isinstance(scope, HeartbeatMetrics) and scope.published.values:
                at_ms, values = scope.published
                most_ms = max(most_ms, now_ms - at_ms + 1000 * int(values["last-heartbeat-seconds-ago"]))
        return most_ms
