"""The metrics of a state updater: its own, and the progress of each store that it restores.

*Guarantees*: nothing is measured per record. When a store or the updater is gone, its metrics are removed.
*Assumes*: the updater's thread makes and calls it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from milestones.common.metrics import PUBLISH_INTERVAL_MS, RestorationMetrics, UpdaterMetrics
from milestones.m1_state_updater.progress import RestoreRate, StoreRestoreProgress, line

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.instance.context import ThreadContext
    from milestones.m1_state_updater.reader_hooks import UpdaterHooks
    from milestones.restoration.changelog_reader import ChangelogReader

log: Final = logging.getLogger(__name__)

LOG_INTERVAL_MS = 10_000


class _Store:
    """A store that is restored, with its metrics and its rate."""

    def __init__(self, scope: RestorationMetrics) -> None:
        self.scope, self.rate = scope, RestoreRate()


class UpdaterMeasures:
    """*Owns*: the updater's metrics, and those of the stores that are restored."""

    def __init__(self, context: ThreadContext, name: str, reader: ChangelogReader, hooks: UpdaterHooks) -> None:
        self._name, self._reader, self._hooks, self._metrics = name, reader, hooks, context.metrics
        self._thread = context.metrics.add(UpdaterMetrics, thread_id=name)
        self._stores: dict[tuple[TaskId, str], _Store] = {}
        self._busy_ns = 0
        now_ms = context.clock.monotonic_ms()
        self._published_ms, self._logged_ms = now_ms, now_ms
        self._before = (0, 0, 0)

    def turn(self, now_ms: int, elapsed_ns: int) -> None:
        """Note the end of a round. `elapsed_ns`: the time of the round without its waits."""
        self._busy_ns += elapsed_ns
        if now_ms - self._published_ms >= PUBLISH_INTERVAL_MS:
            self._publish(now_ms)

    def _publish(self, now_ms: int) -> None:
        thread, hooks = self._thread, self._hooks
        active, standbys, active_paused, standbys_paused = self._counts()
        thread.active_restoring_tasks.value, thread.standby_updating_tasks.value = active, standbys
        thread.active_paused_tasks.value, thread.standby_paused_tasks.value = active_paused, standbys_paused
        span_ns = (now_ms - self._published_ms) * 1_000_000
        spent = self._busy_ns, hooks.active_ns, hooks.standby_ns
        busy, restoring, updating = (min(1.0, (b - a) / span_ns) for a, b in zip(self._before, spent, strict=True))
        thread.idle_ratio.value = 1.0 - busy
        thread.active_restore_ratio.value, thread.standby_update_ratio.value = restoring, updating
        thread.restore_records.total = hooks.active_records + hooks.standby_records
        thread.restore_call.total = hooks.calls
        thread.publish(now_ms)
        self._before, self._published_ms = spent, now_ms
        self._follow(now_ms)

    def _counts(self) -> tuple[int, int, int, int]:
        """Return four counts: active tasks and standbys that aren't paused, then those that are paused."""
        reader = self._reader
        active = sum(id.subtopology in reader.paused for id in reader.active)
        standbys = sum(id.subtopology in reader.paused for id in reader.standbys)
        return len(reader.active) - active, len(reader.standbys) - standbys, active, standbys

    def _follow(self, now_ms: int) -> None:
        """Publish the progress of each store that is restored."""
        restoring: list[StoreRestoreProgress] = []
        for changelogs in self._reader.active.values():
            missing = changelogs.missing()
            for partition, store in changelogs.stores.items():
                if partition in missing:
                    mean = self._hooks.bytes_per_record.get(partition, 0.0)
                    count, left = changelogs.counts[partition], missing[partition]
                    rate = self._store(changelogs.task.id, store).rate.per_second(now_ms, count)
                    restoring.append(
                        StoreRestoreProgress(changelogs.task.id, store, count, left, round(left * mean), rate)
                    )
        for progress in restoring:
            self._show(progress, now_ms)
        for gone in self._stores.keys() - {(one.task, one.store) for one in restoring}:
            self._metrics.remove(self._stores.pop(gone).scope)
        if now_ms - self._logged_ms >= LOG_INTERVAL_MS:
            self._logged_ms = now_ms
            if restoring:
                log.info("%s: %s", self._name, line(restoring, self._reader.lags().values()))

    def _store(self, task: TaskId, store: str) -> _Store:
        known = self._stores.get((task, store))
        if known is None:
            scope = self._metrics.add(RestorationMetrics, thread_id=self._name, task_id=str(task), state_id=store)
            known = self._stores[task, store] = _Store(scope)
        return known

    def _show(self, progress: StoreRestoreProgress, now_ms: int) -> None:
        scope = self._store(progress.task, progress.store).scope
        scope.restore.total = progress.restored
        scope.restore_remaining_records_total.value = progress.records_left
        scope.restore_remaining_bytes_total.value = progress.bytes_left
        seconds = progress.seconds_left
        scope.restore_remaining_seconds.value = -1 if seconds is None else round(seconds, 1)
        scope.publish(now_ms)

    def close(self) -> None:
        for store in self._stores.values():
            self._metrics.remove(store.scope)
        self._stores.clear()
        self._metrics.remove(self._thread)
