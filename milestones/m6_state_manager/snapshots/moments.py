"""`Moments` makes a checkpoint and takes the changed keys, both at one moment when no task is half written.

*Guarantees*: for each store partition that is returned, the changes are exactly those between the previous checkpoint
and this one. If no better moment is found, tasks that are being written, or whose last write broke off, are left out.
*Assumes*: one thread at a time calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from milestones.common.errors import StateError
from milestones.common.records import TaskId
from milestones.common.state.disk import remove_tree
from milestones.common.testing.faults import reach
from milestones.m6_state_manager.snapshots.changed_keys import ChangedKeys, Changes, RangeChanges
from milestones.m6_state_manager.snapshots.checkpoint import Checkpoint, TornError
from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine

if TYPE_CHECKING:
    from milestones.m6_state_manager.snapshots.jobs import PartitionJob

TRIES, PAUSE_S = 20, 0.002
"""The number of looks for a moment when no task is being written, and the time between two looks."""

Taken = dict[tuple[TaskId, str], tuple[RangeChanges, Changes]]
"""The changes that were taken, by store partition."""


class Moments:
    """Makes checkpoints. `changed`: the keys that writers have changed."""

    def __init__(self, changed: ChangedKeys) -> None:
        self._changed = changed

    def checkpoint(
        self, database: SubtopologyEngine, target: Path, wanted: Callable[[], list[PartitionJob]]
    ) -> tuple[Taken, list[PartitionJob]]:
        """Make a checkpoint of the database. Returns the changes up to the checkpoint, and the jobs of `wanted` that
        can use the checkpoint. If there is no such job, no checkpoint is made. Raises `StateError`."""
        for left in range(TRIES - 1, -1, -1):
            if database.gate.reason:
                raise StateError(f"{database.folder} is damaged, and being mended")
            at, checkpoint = (database.linked, database.epoch), Checkpoint(database.folder, target)
            taken: Taken = {}
            try:
                checkpoint.begin()
                jobs = self._cut(checkpoint, wanted(), taken, waits=left > 0)
                if jobs is not None and (database.linked, database.epoch) == at:
                    if jobs:
                        reach("snapshot.cutting")
                        checkpoint.finish()
                    return taken, jobs
                self.put_back(taken)
            except BaseException as error:
                self.put_back(taken)
                if not (isinstance(error, TornError) and left):
                    raise
            remove_tree(target)
            time.sleep(PAUSE_S)
        raise TornError(f"{database.path} was written all the time, so that no moment was found for a checkpoint")

    def _cut(
        self, checkpoint: Checkpoint, wanted: list[PartitionJob], taken: Taken, *, waits: bool
    ) -> list[PartitionJob] | None:
        """Take the changes of all tasks that aren't being written, and fix the moment of the checkpoint. With `waits`,
        returns None if a task is being written."""
        ranges = {job.task: self._changed.range(*job.task) for job in wanted}
        for _ in range(TRIES):
            if all(map(self._changed.whole, ranges.values())):
                break
            time.sleep(PAUSE_S)
        at: dict[TaskId, int] = {}
        for task, of in ranges.items():
            found = self._changed.take(of, [job.store for job in wanted if job.task == task])
            if found is not None:
                at[task], changes = found
                taken.update(((task, store), (of, one)) for store, one in changes.items())
        checkpoint.cut()
        moved = {task for task, writes in at.items() if ranges[task].writes != writes}
        if waits and (moved or len(at) < len(ranges)):
            return None
        overtaken = {place: taken.pop(place) for place in list(taken) if place[0] in moved}
        self.put_back(overtaken)
        return [job for job in wanted if job.place in taken]

    def put_back(self, taken: Mapping[tuple[TaskId, str], tuple[RangeChanges, Changes]]) -> None:
        """Put the changes back, as their snapshots aren't made."""
        for (_, store), (of, changes) in taken.items():
            self._changed.put_back(of, store, changes)
