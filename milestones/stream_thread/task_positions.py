"""How far the state of a thread's tasks is, as it is reported to the group when the member joins.

*Guarantees*: if another thread of this instance holds the directory of a task, that thread reports it. If a task
leaves, this thread may also report what it last knew to be on the disk, which is never too much. No file and no store
is read.
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
    """By task, the sum of its changelogs' offsets: of standbys, of active tasks that don't have all of theirs yet, and
    of those that leave. The thread that speaks for the instance adds what lies closed on the instance's disk."""
    speaks = context.identity.speaks()
    waiting, leaving = tasks.of(Phase.WAITING, Phase.OPENING), tasks.of(Phase.LEAVING)
    # Their stores may be open already: it isn't known before the answer is taken.
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
    """The sum of the changelogs' offsets of these stores, without those in `but`; None without changelogs."""
    changelogs, offsets = _changelogs(context, task), stores.offsets()
    return sum(offsets.get(store) or 0 for store in changelogs if store not in but) if changelogs else None


def _changelogs(context: ThreadContext, task: TaskId) -> Collection[str]:
    """The stores that have one."""
    return context.application.subtopology(task.subtopology).changelogs.keys()
