"""The metrics of one client. Their owners make scopes here, and other threads read them here.

*Guarantees*: reading never waits for, and never slows, a thread that records.
*Assumes*: owners publish about every `PUBLISH_INTERVAL_MS`. The last publication of a stuck owner stays readable, with
its age.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from milestones.common.clock import Clock, SystemClock
from milestones.common.metrics.scopes import Scope

if TYPE_CHECKING:
    from milestones.common.task.profile import Profile

K = TypeVar("K", bound=Scope)

PUBLISH_INTERVAL_MS = 1000
"""The interval at which an owner publishes its scopes, ms."""


class Metrics:
    """All scopes of a client. `level` and `window_ms` are `metrics_recording_level` and `metrics_sample_window_ms`.

    `address`: the `host:port` of the metrics endpoint, if there is one. The address is set before stream threads start.
    `labels`: the labels that each metric has in Prometheus besides its tags. `profile`: has the times of a run that is
    timed. The profile is set before the start.

    *Concurrency*: the list of scopes changes when a thread or task comes or goes. A lock protects the list. Recording
    and publishing never take this lock.
    """

    def __init__(self, clock: Clock | None = None, *, level: str = "INFO", window_ms: int = 30_000) -> None:
        self._clock: Clock = clock or SystemClock()
        self._level, self._window_ms = level, window_ms
        self._lock = threading.Lock()
        self._scopes: dict[int, Scope] = {}
        self.address: str | None = None
        self.labels: Mapping[str, str] = {}
        self.profile: Profile | None = None

    @property
    def debug(self) -> bool:
        """True if metrics of level DEBUG are recorded. A program asks once, before it records metrics per record."""
        return self._level != "INFO"

    def add(self, kind: type[K], **tags: str) -> K:
        """Make a scope, such as `metrics.add(TaskMetrics, thread_id="app-StreamThread-1", task_id="0_1")`."""
        named = {name.replace("_", "-"): text for name, text in tags.items()}
        if set(named) != set(kind.tag_names):
            raise TypeError(f"{kind.__name__} takes the tags {', '.join(kind.tag_names)}, not {', '.join(named)}")
        ordered = {name: named[name] for name in kind.tag_names}
        scope = kind(ordered, self._clock.monotonic_ms(), self._window_ms, self._level)
        with self._lock:
            self._scopes[id(scope)] = scope
        return scope

    def remove(self, scope: Scope) -> None:
        """Remove the scope of a thread, task or node that has gone. Harmless when repeated."""
        with self._lock:
            self._scopes.pop(id(scope), None)

    def scopes(self) -> Collection[Scope]:
        with self._lock:
            return tuple(self._scopes.values())

    def snapshot(self) -> dict[str, list[dict[str, Any]]]:
        """Return the last publications of all scopes: for each group, a list of `{"tags": {...}, "metrics": {...},
        "age_ms": n}`.

        Any thread may call this. The values can be written as JSON.
        """
        now_ms = self._clock.monotonic_ms()
        groups: dict[str, list[dict[str, Any]]] = {}
        for scope in self.scopes():
            at_ms, values = scope.published
            entry = {"tags": dict(scope.tags), "metrics": dict(values), "age_ms": now_ms - at_ms}
            groups.setdefault(scope.group, []).append(entry)
        return groups


def summed(snapshot: dict[str, list[dict[str, Any]]], group: str, name: str) -> float:
    """Return the sum of one metric over all scopes of a snapshot. Useful for rates and totals, but not for averages."""
    return float(sum(entry["metrics"].get(name, 0) for entry in snapshot.get(group, ())))
