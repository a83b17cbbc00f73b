"""Removes the state of tasks that have left this instance for good.

*Guarantees*: the cleaner never removes the state of a task that is locked, or that was locked within the delay. The
delay counts only time in which an instance runs. If a task was locked when the instance ended, its delay begins anew
with the next start, so that the task finds its state. If a task had left earlier, the delay continues over the restart.
If the removal of one task fails, the others are still cleaned, and the next cleaning tries the failed one once more.
*Assumes*: `now_ms` is from the state directory's clock. No cleaning runs while assigned tasks wait to be opened. The
state manager cleans from time to time (`state.cleanup.delay.ms` in Kafka Streams).
"""

from __future__ import annotations

import logging
from typing import Final

from milestones.common.errors import StateError, StateLockedError
from milestones.common.records import TaskId
from milestones.common.state.directory import StateDirectory
from milestones.common.state.disk import delete_left

log: Final = logging.getLogger(__name__)


def remove_unused(directory: StateDirectory, now_ms: int, delay_ms: int) -> list[TaskId]:
    """Remove the state of tasks whose delay is over, and return these tasks. `now_ms`: as in
    `StateDirectory.now_ms`."""
    removed: list[TaskId] = []
    locked = directory.locked()
    try:
        delete_left(directory.path)
    except StateError as error:
        log.warning("files of removed state are still on the disk, and their deletion is tried again: %s", error)
    try:
        tasks = directory.tasks()
    except StateError as error:
        log.warning("the state directory can't be listed, so no old state is removed: %s", error)
        return removed
    for task in tasks:
        idle_ms = now_ms - directory.idle_since(task)
        if task in locked or idle_ms < delay_ms:
            continue
        try:
            directory.remove(task, owner="the cleaner")
        except StateLockedError:
            continue
        except StateError as error:
            log.warning("state of task %s, unused for %d ms, can't be removed: %s", task, idle_ms, error)
            continue
        log.info("removed the state of task %s, unused for %d ms", task, idle_ms)
        removed.append(task)
    directory.unused.record()
    return removed
