"""Publishes the metrics of a client: its state, threads and version (KIP-444), and its memory.

*Guarantees*: the metrics are published at each change of the client's state and about once a second, and those of
memory every few seconds.
*Assumes*: after the start, only the supervisor's thread calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib.metadata import PackageNotFoundError, version

from milestones.client.long_calls import LongCalls
from milestones.common.clock import Clock
from milestones.common.memory import MemoryBudget, MemoryReport
from milestones.common.metrics import PUBLISH_INTERVAL_MS, ClientMetrics, Metrics
from milestones.instance.memory_metrics import MemoryMeasures


class ClientPublisher:
    def __init__(
        self, metrics: Metrics, client_id: str, application_id: str, stage: str, memory: MemoryBudget, clock: Clock
    ) -> None:
        self._metrics = metrics
        self._clock, self._memory = clock, MemoryMeasures(memory, metrics, client_id)
        self.calls: LongCalls = LongCalls()
        self._scope = metrics.add(ClientMetrics, client_id=client_id)
        self._scope.version.value = _version()
        self._scope.application_id.value, self._scope.stage.value = application_id, stage

    def publish(
        self, state: str, alive: int, failed: int, callers: Callable[[], Collection[int]], *, at_once: bool
    ) -> None:
        """Publish the client's state. `alive`: the number of living stream threads. `failed`: the number of stream
        threads that have died of an error so far. `callers`: returns the idents of the threads that call the user's
        functions.
        """
        scope, now_ms = self._scope, self._clock.monotonic_ms()
        if not (at_once or now_ms - scope.published.at_ms >= PUBLISH_INTERVAL_MS):
            return
        scope.state.value = state
        scope.alive_stream_threads.value, scope.failed_stream_threads.value = alive, failed
        self.calls.look(callers(), now_ms)
        scope.longest_call_seconds.value = self.calls.longest_seconds
        scope.publish(now_ms)
        self._memory.run_once(now_ms)

    def memory(self) -> MemoryReport:
        """Return the memory of the process now. Any thread may call it."""
        return self._memory.report()

    def close(self) -> None:
        """Publish only the client's state from now on, because the instance has released its memory."""
        self._memory.close()

    def discard(self) -> None:
        """Remove the client's metrics, because it hasn't started."""
        self._memory.close()
        self._metrics.remove(self._scope)


def _version() -> str:
    try:
        return version("milestones")
    except PackageNotFoundError:  # run from a checkout that isn't installed
        return "unknown"
