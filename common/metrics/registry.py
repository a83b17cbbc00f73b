"""The metrics of one client: where scopes are made, and where others read them.

*Guarantees*: reading never waits for, and never slows, a thread that records.
*Assumes*: owners publish about every `PUBLISH_INTERVAL_MS`; what a stuck owner last published stays readable, with
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
"""How often an owner publishes its scopes."""


class Metrics:
    """All scopes of a client. `level` and `window_ms` are `metrics_recording_level` and `metrics_sample_window_ms`.

    `address`: the `host:port` at which they are served, if they are; set before stream threads start. `labels`: what
    Prometheus is given with each metric, besides its tags. `profile`: has the times of a run that is timed; set
    before the start.

    *Concurrency*: the list of scopes changes when a thread or task comes or goes, under a lock that recording and
    publishing never take.
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
        """True if metrics of level DEBUG are wanted; asked once, before such metrics are recorded per record."""
        return self._level != "INFO"

    def add(self, kind: type[K], **tags: str) -> K:
        """A new scope, such as `metrics.add(TaskMetrics, thread_id="app-StreamThread-1", task_id="0_1")`."""
        named = {name.replace("_", "-"): text for name, text in tags.items()}
        if set(named) != set(kind.tag_names):
            raise TypeError(f"{kind.__name__} takes the tags {', '.join(kind.tag_names)}, not {', '.join(named)}")
        ordered = {name: named[name] for name in kind.tag_names}
        scope = kind(ordered, self._clock.monotonic_ms(), self._window_ms, self._level)
        with self._lock:
            self._scopes[id(scope)] = scope
        return scope

    def remove(self, scope: Scope) -> None:
        """Forget a scope whose thing is gone. Harmless when repeated."""
        with self._lock:
            self._scopes.pop(id(scope), None)

    def scopes(self) -> Collection[Scope]:
        with self._lock:
            return tuple(self._scopes.values())

    def snapshot(self) -> dict[str, list[dict[str, Any]]]:
        """Everything as last published: by group, a list of `{"tags": {...}, "metrics": {...}, "age_ms": n}`. May be
        called from any thread; plain values that JSON can hold."""
        now_ms = self._clock.monotonic_ms()
        groups: dict[str, list[dict[str, Any]]] = {}
        for scope in self.scopes():
            at_ms, values = scope.published
            entry = {"tags": dict(scope.tags), "metrics": dict(values), "age_ms": now_ms - at_ms}
            groups.setdefault(scope.group, []).append(entry)
        return groups


def summed(snapshot: dict[str, list[dict[str, Any]]], group: str, name: str) -> float:
    """One metric of a snapshot, added up over all things that have it (rates and totals; not averages)."""
    return float(sum(entry["metrics"].get(name, 0) for entry in snapshot.get(group, ())))
