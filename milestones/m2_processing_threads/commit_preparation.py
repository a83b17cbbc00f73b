"""Brings tasks with caches to where they can be committed: flushed, and locked until they are.

*Guarantees*: a task that is asked for its flush gets one, unless the commit is over before. One that is in a long call
isn't waited for; another commit follows the call.
*Assumes*: under the scheduler's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milestones.m2_processing_threads.scheduled_task import Entry, Place

if TYPE_CHECKING:
    from milestones.m2_processing_threads.agenda import Agenda

LOCK_MS = 10_000
"""How long a task that was flushed waits to be committed."""

CALL_MS = 250
"""So long after the end of its slice a task that still works on one record is in a long call."""


def is_in_a_call(entry: Entry, now_ms: int) -> bool:
    return entry.lease is not None and now_ms >= entry.lease.deadline_ms + CALL_MS


class CommitPreparation:
    """*Owns*: `flush` and `missed` of the entries, their locks."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._touched: dict[Entry, None] = {}

    def flush(self, now_ms: int, *, parting: bool) -> bool:
        """As `Scheduler.flush`."""
        waiting = 0
        for entry in self._agenda.entries.values():
            if entry.place is Place.LOCKED:
                entry.locked_until_ms = now_ms + LOCK_MS
            elif entry.failure is None and self._lacks(entry, now_ms, parting=parting):
                self._agenda.look(entry, now_ms)
                waiting += not is_in_a_call(entry, now_ms)
        return not waiting

    def _lacks(self, entry: Entry, now_ms: int, *, parting: bool) -> bool:
        """Whether a thread has something to do, and was asked for it, before all of the task can be committed."""
        task, leased = entry.task, entry.lease is not None
        if task.cached and (task.unflushed or (parting and leased)):
            self._ask(entry)
            return True
        if parting and task.applying and (task.cached or leased or task.commit_needed()):
            return True
        if parting and task.cached and task.initialised:
            self._lock(entry, now_ms)
        return False

    def _ask(self, entry: Entry) -> None:
        if not entry.flush:
            entry.flush = True
            self._touched[entry] = None
            if entry.lease is not None:
                entry.lease.end()

    def _lock(self, entry: Entry, now_ms: int) -> None:
        self._touched[entry] = None
        entry.lock(now_ms + LOCK_MS)
        self._agenda.look(entry, now_ms)

    def flushed(self, entry: Entry, now_ms: int) -> None:
        """A thread has done it. Nothing but the commit may follow, if one still waits."""
        if entry.flush:
            if entry.missed:
                entry.task.request_commit()
            entry.flush = entry.missed = False
            self._lock(entry, now_ms)

    def unlock(self, now_ms: int) -> None:
        """As `Scheduler.unlock`."""
        touched, self._touched = self._touched, {}
        for entry in touched:
            entry.flush = entry.missed = entry.flush and is_in_a_call(entry, now_ms)
            if entry.flush:
                self._touched[entry] = None
            if entry.place is Place.LOCKED:
                entry.release()
            self._agenda.look(entry, now_ms)

    def forget(self, entry: Entry) -> None:
        """The task is given back."""
        self._touched.pop(entry, None)
