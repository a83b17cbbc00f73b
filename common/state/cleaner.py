"""Removes the state of tasks that have left this instance for good.

*Guarantees*: a task that is locked, or was held within the delay, is never touched. The delay counts the time for which
an instance has run. For tasks that were held at its end it begins anew after a restart, so that they find their state.
For tasks that had left before, the time that had passed counts. A failure about one task doesn't stop the cleaning of
others; the next cleaning tries the failed one once more.
*Assumes*: `now_ms` is of the state directory's clock; no cleaning takes place while assigned tasks are to be opened.
The state manager cleans now and then (Kafka Streams: `state.cleanup.delay.ms`).
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
        log.warning("the state of tasks that moved away can't be looked for: %s", error)
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
