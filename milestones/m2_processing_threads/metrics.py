"""The metrics of the scheduler and its threads.

*Guarantees*: nothing is measured per record. When a task or a thread is gone, its metrics are removed.
*Assumes*: each object is made, called and closed by the thread that owns it.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

from milestones.common.diagnostics import class_of
from milestones.common.metrics import (
    PUBLISH_INTERVAL_MS,
    Metrics,
    ProcessingThreadMetrics,
    QuarantineMetrics,
    SchedulerMetrics,
)
from milestones.common.records import TaskId

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.metrics.sensors import Timing
    from milestones.m2_processing_threads.quarantine import TaskFailure
    from milestones.m2_processing_threads.scheduled_task import Lease

MS = 1_000_000


class Times:
    """Durations of one kind, in ms: their count, sum and longest since the last readout."""

    def __init__(self) -> None:
        self.count = self.sum_ms = self.longest_ms = 0

    def add(self, ms: int) -> None:
        self.count, self.sum_ms, self.longest_ms = self.count + 1, self.sum_ms + ms, max(self.longest_ms, ms)

    def tell(self, sensor: Timing) -> None:
        """Add the durations to the sensor: the longest as one value, all others as one sum."""
        if self.count:
            sensor.add(self.longest_ms * MS)
            sensor.add((self.sum_ms - self.longest_ms) * MS, self.count - 1)


class SchedulerStatistics(NamedTuple):
    """Numbers about a scheduler: the tasks in each place, the tasks whose engine is busy, and how often a task was held
    back. `waits` and `pauses` count since the last readout: the waits of ready tasks for a thread, and the times for
    which tasks had input but no thread, for any reason."""

    running: int
    ready: int
    quarantined: int
    busy: int
    full: int
    held_back: int
    waits: Times
    pauses: Times


class SchedulerMeasures:
    """*Owns*: the scheduler's metrics."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self._metrics, self._scope = metrics, metrics.add(SchedulerMetrics, thread_id=name)
        self._name, self._failing = name, dict[TaskId, QuarantineMetrics]()
        self._next_ms = 0

    def due(self, now_ms: int) -> bool:
        return now_ms >= self._next_ms

    def publish(
        self, now_ms: int, statistics: SchedulerStatistics, threads: int, output_bytes: int, rests: int
    ) -> None:
        self._next_ms = now_ms + PUBLISH_INTERVAL_MS
        scope = self._scope
        scope.processing_threads.value, scope.running_tasks.value = threads, statistics.running
        scope.ready_tasks.value, scope.quarantined_tasks.value = statistics.ready, statistics.quarantined
        scope.busy_tasks.value = statistics.busy
        scope.held_back_tasks.value, scope.held_back.total = statistics.full, statistics.held_back
        scope.output_buffer_bytes_total.value, scope.rest.total = output_bytes, rests
        statistics.waits.tell(scope.task_wait)
        statistics.pauses.tell(scope.task_pause)
        scope.publish(now_ms)

    def failing(self, now_ms: int, failures: Mapping[TaskId, TaskFailure]) -> None:
        """Publish why tasks are in quarantine. When a task leaves quarantine, its metrics are removed."""
        for id in self._failing.keys() - failures.keys():
            self._metrics.remove(self._failing.pop(id))
        for id, failure in failures.items():
            scope = self._failing.get(id)
            if scope is None:
                scope = self._metrics.add(QuarantineMetrics, thread_id=self._name, task_id=str(id))
                self._failing[id] = scope
            scope.quarantine_error.value = class_of(failure.error)
            scope.quarantine_seconds_left.value = max(0, failure.end_ms - now_ms) // 1000
            scope.publish(now_ms)

    def close(self) -> None:
        self.failing(0, {})
        self._metrics.remove(self._scope)


class WorkerMeasures:
    """*Owns*: a processing thread's metrics."""

    def __init__(self, metrics: Metrics, name: str, clock: Clock) -> None:
        self._metrics, self._clock = metrics, clock
        self._scope = metrics.add(ProcessingThreadMetrics, thread_id=name)
        self._next_ms = self._began_ns = 0

    def begin(self) -> None:
        self._began_ns = perf_counter_ns()

    def end(self, lease: Lease) -> None:
        self._scope.turn.add(perf_counter_ns() - self._began_ns)
        self._scope.process.total += lease.processed

    def publish(self) -> None:
        """Publish the metrics, about once a second."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + PUBLISH_INTERVAL_MS
            self._scope.publish(now_ms)

    def close(self) -> None:
        self._metrics.remove(self._scope)
