"""`ThreadRoster` is the supervisor's view of a client's threads: the polling threads, and the processing threads that
they serve.

*Guarantees*: a polling thread runs as long as it serves a thread that isn't removed. If a thread died or was removed,
its successor starts only when the thread has ended and closed everything. Each removal is answered once.
*Assumes*: the supervisor's thread calls it. Other threads only read `states`, `reports` and `records`, and ask for
changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from milestones.client.client_events import RemoveThread, ThreadGone, join
from milestones.common.errors import MilestonesError
from milestones.common.kafka.failures import caught
from milestones.instance.context import ProcessingThreadMoved, ThreadReport
from milestones.instance.states import ALIVE_THREADS, ThreadState

if TYPE_CHECKING:
    from milestones.instance.thread_registry import ThreadRegistry
    from milestones.parts import InstanceThread, Workforce

log: Final = logging.getLogger(__name__)


@dataclass
class PollingMember:
    """A polling thread. `processing`: the states of the processing threads that it serves, if there are any, by name
    and serial. `leaves`: True if it should end, because it serves no thread any more. `gone`: True if it has ended and
    was joined. `removals`: the requests that are answered at its end.
    """

    number: int
    thread: InstanceThread
    state: ThreadState = ThreadState.CREATED
    report: ThreadReport | None = None
    processing: dict[tuple[str, int], ThreadState] = field(default_factory=dict)
    leaves: bool = False
    gone: bool = False
    removals: list[RemoveThread] = field(default_factory=list)

    def over(self) -> None:
        """Record that the thread has ended. It has no tasks any more, and its number of processed records is kept."""
        self.state, self.processing = ThreadState.DEAD, {}
        if self.report is not None:
            self.report = replace(
                self.report, tasks={}, lags={}, restoring={}, standby_lags={}, places={}, ended={},
                failing={}, last=None,
            )  # fmt: skip


class ThreadRoster:
    """*Owns*: the members. `make` makes the polling thread with a given number. `left_group` is called with the number
    of a thread that has ended, if its member has left the group.
    """

    def __init__(
        self,
        workforce: Workforce,
        thread_registry: ThreadRegistry,
        make: Callable[[int], InstanceThread],
        left_group: Callable[[int], None],
    ) -> None:
        self.workforce: Workforce = workforce
        self._registry, self._make, self._left_group = thread_registry, make, left_group
        self.members: dict[str, PollingMember] = {}
        self._records_before = 0

    # -- what any thread may ask for

    def ask_to_add(self, tell: Callable[[int], object]) -> str:
        """Ask for one more thread by `tell`, with the lowest free number, and return its name."""
        return self.workforce.name(self._registry.add(tell))

    def ask_to_remove(self, name: str | None, told: Callable[[RemoveThread], bool]) -> tuple[str, threading.Event]:
        """Ask for the end of a thread by `told`, which returns False if the client has ended. Returns the thread's
        name, and the event that is set when it has ended. If `name` is None, the calling thread is chosen only if there
        is no other one.
        """
        names = {self.workforce.name(number): number for number in self._registry.numbers()}
        if name is not None and name not in names:
            there_are = ", ".join(names) or "none"
            raise MilestonesError(f"no thread is called {name!r}, or it is being removed; there are {there_are}")
        own = names.get(threading.current_thread().name) or self._registry.helped()
        done = threading.Event()

        def ask(number: int, serial: int) -> None:
            if not told(RemoveThread(number, serial, done)):
                done.set()

        number = self._registry.remove(None if name is None else names[name], own=own, tell=ask)
        return self.workforce.name(number), done

    # -- the threads

    @property
    def records(self) -> int:
        """The number of records that all threads have processed so far, including ended threads."""
        return self._records_before + sum(report.records for report in self.reports)

    @property
    def reports(self) -> list[ThreadReport]:
        return [member.report for member in list(self.members.values()) if member.report is not None]

    @property
    def states(self) -> dict[str, ThreadState]:
        """By name of all threads."""
        found: dict[str, ThreadState] = {}
        for member in list(self.members.values()):
            found[member.thread.name] = member.state
            found |= {name: state for (name, _), state in member.processing.items()}
        return found

    def callers(self) -> frozenset[int]:
        """Return the idents of the polling threads, and of the threads that call the user's functions for them."""
        members = list(self.members.values())
        idents = frozenset(member.thread.ident for member in members if member.thread.ident is not None)
        return idents.union(*(self._registry.helpers(member.number) for member in members))

    @property
    def staying(self) -> list[ThreadState]:
        """Return the states of the polling threads, without those that are leaving."""
        return [member.state for member in self.members.values() if not member.leaves]

    def all_ended(self) -> BaseException | None:
        """Return the error of the last active task, if the active tasks of all threads have ended for good. All threads
        must have reported this for the same generation.
        """
        reports = self.reports
        if len(reports) < len(self.members) or len({report.generation for report in reports}) > 1:
            return None
        active = [report for report in reports if any(role != "standby" for role in report.tasks.values())]
        return active[-1].last if active and all(report.last is not None for report in active) else None

    def join_gone(self, tell: Callable[[ThreadGone], object]) -> None:
        """Join each leaving thread that is dead, and report its end."""
        for name, member in self.members.items():
            if member.leaves and member.state is ThreadState.DEAD and not member.gone:
                member.gone = True
                join(member.thread)
                tell(ThreadGone(name))

    @property
    def alive(self) -> list[PollingMember]:
        return [member for member in self.members.values() if member.state in ALIVE_THREADS]

    @property
    def alive_threads(self) -> int:
        """Return the number of living threads, as a user counts them."""
        return sum(len(member.processing) or 1 for member in self.alive)

    # -- what comes and goes

    def start(self) -> None:
        """Start the first threads that poll."""
        for number in self.workforce.first():
            self._start(number)

    def _start(self, number: int, removals: Iterable[RemoveThread] = ()) -> None:
        """Start the polling thread with this number. `removals`: the requests that its predecessor hasn't answered."""
        thread = self._make(number)
        self.members[thread.name] = PollingMember(number, thread, removals=list(removals))
        try:
            thread.start()
        except BaseException:
            del self.members[thread.name]
            raise

    def add(self, number: int) -> None:
        """Start a thread with this number. If its polling thread is just leaving, the new thread starts after that."""
        polls = self.workforce.polls_for(number)
        if all(member.number != polls for member in self.members.values()):
            self._start(polls)

    def _polls(self, number: int) -> bool:
        """True if the polling thread with this number has a thread to serve."""
        return any(self.workforce.polls_for(counted) == number for counted in self._registry.numbers())

    def remove(self, removal: RemoveThread) -> None:
        """End the thread, directly or through its polling thread. A polling thread that serves no other thread commits,
        closes and leaves the group. A static member leaves the group, too, because it isn't expected back.
        """
        polls = self.workforce.polls_for(removal.number)
        member = next(member for member in self.members.values() if member.number == polls)
        member.removals.append(removal)
        log.info("%s is removed; %d are left", self.workforce.name(removal.number), self._registry.threads)
        if not (member.leaves or self._polls(polls)):
            member.leaves = True
            member.thread.stop(leave_group=True)

    def processing_moved(self, moved: ProcessingThreadMoved) -> None:
        """Record that a processing thread has started or has ended."""
        member, state, thread = self.members[moved.thread], ThreadState(moved.state), (moved.name, moved.serial)
        if state is not ThreadState.DEAD:
            member.processing = member.processing | {thread: state}
            return
        member.processing = {one: state for one, state in member.processing.items() if one != thread}
        for removal in [one for one in member.removals if (self.workforce.name(one.number), one.serial) == thread]:
            member.removals.remove(removal)
            self._answer(removal)

    def _answer(self, removal: RemoveThread) -> None:
        self._registry.gone(removal.number)
        removal.done.set()

    def ended(self, name: str) -> None:
        """Record that a leaving thread has ended, and that all its messages have been processed."""
        member = self._forget(name)
        for removal in member.removals:
            self._answer(removal)
        if self._polls(member.number):  # for threads that were added since it was asked to end
            self._start(member.number)

    def replace(self, name: str) -> None:
        """Start a dead thread's successor, with the same number."""
        dead = self._forget(name)
        self._start(dead.number, dead.removals)

    def _forget(self, name: str) -> PollingMember:
        """Wait for the thread's end."""
        member = self.members.pop(name)
        member.thread.join()
        self._note_leave(member)
        self._records_before += member.report.records if member.report is not None else 0
        return member

    def _note_leave(self, member: PollingMember) -> None:
        if member.thread.left_group and (error := caught(partial(self._left_group, member.number), Exception)):
            log.warning("%s: that its member left the group can't be noted: %s", member.thread.name, error)

    def stop(self, *, leave_group: bool) -> None:
        """Ask all threads to end."""
        for member in self.members.values():
            member.thread.stop(leave_group=leave_group)

    def over(self) -> None:
        """Record that all threads have ended, and answer the requests to remove threads."""
        for member in self.members.values():
            member.over()
            self._note_leave(member)
            for removal in member.removals:
                removal.done.set()
