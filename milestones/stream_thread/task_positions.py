"""Reports to the group, when the member joins, how far the state of the thread's tasks is.

*Guarantees*: if another thread of this instance holds the directory of a task, that thread reports the task's position.
If a task leaves, this thread may still report the last position that it knew to be on the disk; this is never more than
the disk has. No file and no store is read.
*Assumes*: called by the thread that owns the tasks.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from milestones.stream_thread.task_registry import Phase

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.task import TaskStorage
    from milestones.instance.context import ThreadContext
    from milestones.parts import Restoration, StateOwnership
    from milestones.stream_thread.task_registry import TaskRegistry


def told(
    context: ThreadContext, tasks: TaskRegistry, state: StateOwnership, restoration: Restoration
) -> dict[TaskId, int]:
    """Return the position of each task, which is the sum of its changelogs' offsets. Positions are reported for
    standbys, for active tasks that haven't restored everything yet, and for tasks that leave. One thread of the
    instance also reports the tasks whose stores lie closed on the instance's disk."""
    speaks = context.identity.speaks()
    waiting, leaving = tasks.of(Phase.WAITING, Phase.OPENING), tasks.of(Phase.LEAVING)
    # The stores of these tasks may be open already. This thread knows that only when it has taken the answer.
    opening = {entry.id for entry in tasks.of(Phase.OPENING) if not entry.locked_out}
    opening |= {entry.id for entry in leaving if entry.position is None}
    closed = state.closed_positions(opening) if speaks or waiting or leaving else {}
    found = dict(closed) if speaks else {}
    found |= restoration.positions()
    for entry in tasks.of(Phase.POSITIONING, Phase.RETURNING):
        if entry.active_task.needs_restoration or entry.damage:
            found[entry.id] = entry.active_task.position(entry.damage)
    for entry in waiting:
        if entry.stores is not None:
            found[entry.id] = position_of(context, entry.id, entry.stores) or 0
        elif entry.active and _changelogs(context, entry.id) and not entry.locked_out:
            found[entry.id] = closed.get(entry.id, 0)
    for entry in leaving:
        if entry.position is not None:
            found[entry.id] = entry.position
        elif entry.id in closed:
            found.setdefault(entry.id, closed[entry.id])
    return found


def position_of(context: ThreadContext, task: TaskId, stores: TaskStorage, but: Collection[str] = ()) -> int | None:
    """Return the sum of the changelogs' offsets of these stores, without the stores in `but`. Returns None if no store
    has a changelog."""
    changelogs, offsets = _changelogs(context, task), stores.offsets()
    return sum(offsets.get(store) or 0 for store in changelogs if store not in but) if changelogs else None


def _changelogs(context: ThreadContext, task: TaskId) -> Collection[str]:
    """Return the names of the task's stores that have a changelog."""
    return context.application.subtopology(task.subtopology).changelogs.keys()
