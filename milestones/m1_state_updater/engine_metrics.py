"""`EngineMetricsThread` publishes RocksDB's statistics as metrics. A client has one, as Kafka Streams has.

*Guarantees*: no other thread waits for this thread while it runs. When a store is gone, its metrics are removed.
*Assumes*: reading the statistics is cheap, and any thread may do it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from milestones.common.last_words import report
from milestones.common.mailbox import Mailbox
from milestones.common.metrics import EngineMetrics
from milestones.parts import Observer

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.metrics import Metrics
    from milestones.common.records import TaskId

log: Final = logging.getLogger(__name__)

INTERVAL_MS = 10_000
"""Kafka Streams' interval."""

Statistics = Callable[[], Mapping[tuple["TaskId", str], Mapping[str, int]]]


class EngineMetricsThread(Observer):
    """*Owns*: the metrics of all engines. *Receives*: a request to stop.

    `read`: returns RocksDB's numbers, keyed by task and store."""

    def __init__(self, name: str, read: Statistics, metrics: Metrics, clock: Clock) -> None:
        super().__init__(name=name, daemon=True)
        self._read, self._metrics, self._clock = read, metrics, clock
        self._scopes: dict[tuple[TaskId, str], EngineMetrics] = {}
        self._requests: Mailbox[None] = Mailbox(1, f"{name} requests")

    def run(self) -> None:
        while not self._requests.wait(INTERVAL_MS):
            try:
                self.run_once(self._clock.monotonic_ms())
            except BaseException as error:
                report(log, "the engines' statistics can't be read now", error=error)
        for key in list(self._scopes):
            self._metrics.remove(self._scopes.pop(key))

    def run_once(self, now_ms: int) -> None:
        found = self._read()
        for key in self._scopes.keys() - found.keys():
            self._metrics.remove(self._scopes.pop(key))
        for (task, store), numbers in found.items():
            scope = self._scopes.get((task, store))
            if scope is None:
                scope = self._metrics.add(EngineMetrics, task_id=str(task), rocksdb_state_id=store)
                self._scopes[task, store] = scope
            for name, number in numbers.items():
                getattr(scope, name.replace("-", "_")).value = number
            scope.publish(now_ms)

    def close(self) -> None:
        self._requests.close()
