"""The metrics of the databases: size, number of files, whether writes wait, and how old the oldest unsynced write is.

*Guarantees*: files are looked at once per `LOOK_MS`. `close` removes all metrics.
*Assumes*: the state thread makes all calls.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from milestones.common.metrics import StateDatabaseMetrics

if TYPE_CHECKING:
    from pathlib import Path

    from milestones.common.metrics import Metrics
    from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine

LOOK_MS: Final = 10_000
OPEN, FULL, MENDED = 0, 1, 2


class DatabaseMeasures:
    """*Owns*: the metrics, by sub-topology."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._scopes: dict[int, StateDatabaseMetrics] = {}
        self._next_look_ms = 0

    def publish(self, databases: Sequence[SubtopologyEngine], now_ms: int, unopened: Iterable[int] = ()) -> None:
        """Publish the present values. `unopened`: sub-topologies whose database can't be opened, as a disk is full."""
        looks = now_ms >= self._next_look_ms
        if looks:
            self._next_look_ms = now_ms + LOOK_MS
        for database in databases:
            known = database.number in self._scopes
            scope = self._scope(database.number)
            if looks or not known:
                scope.files.value, scope.size_bytes.value = files_of(database.folder)
            scope.writes_wait.value = MENDED if database.gate.reason else FULL if database.is_full else OPEN
            scope.unsynced_ms.value = database.unsynced_ms
            scope.publish(now_ms)
        for number in unopened:
            scope = self._scope(number)
            scope.writes_wait.value = FULL
            scope.publish(now_ms)

    def _scope(self, number: int) -> StateDatabaseMetrics:
        scope = self._scopes.get(number)
        if scope is None:
            scope = self._scopes[number] = self._metrics.add(StateDatabaseMetrics, subtopology_id=str(number))
        return scope

    def close(self) -> None:
        """Remove the metrics."""
        for scope in self._scopes.values():
            self._metrics.remove(scope)
        self._scopes = {}


def files_of(folder: Path) -> tuple[int, int]:
    """Return the number of files in a folder, and their size in bytes."""
    files = size = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                files += 1
                size += entry.stat().st_size
    except OSError:
        pass  # a compaction has removed one of the files, or the folder is gone
    return files, size
