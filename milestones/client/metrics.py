"""The client's own metrics: its state, its threads, its version (KIP-444).

*Guarantees*: published at each change of the client's state, and about once a second.
*Assumes*: called by the supervisor's thread once it runs.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from milestones.common.clock import Clock
from milestones.common.metrics import PUBLISH_INTERVAL_MS, ClientMetrics, Metrics


class ClientPublisher:
    """Publishes the metrics of one client."""

    def __init__(self, metrics: Metrics, client_id: str, application_id: str, stage: str, clock: Clock) -> None:
        self._clock = clock
        self._scope = metrics.add(ClientMetrics, client_id=client_id)
        self._scope.version.value = _version()
        self._scope.application_id.value, self._scope.stage.value = application_id, stage

    def publish(self, state: str, alive: int, failed: int, *, at_once: bool) -> None:
        """`alive`, `failed`: stream threads that live, and that have died of an error so far."""
        scope, now_ms = self._scope, self._clock.monotonic_ms()
        if not (at_once or now_ms - scope.published.at_ms >= PUBLISH_INTERVAL_MS):
            return
        scope.state.value = state
        scope.alive_stream_threads.value, scope.failed_stream_threads.value = alive, failed
        scope.publish(now_ms)


def _version() -> str:
    try:
        return version("milestones")
    except PackageNotFoundError:  # run from a checkout that isn't installed
        return "unknown"
