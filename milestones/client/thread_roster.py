"""`ThreadRoster`: the threads of a client as its supervisor knows them: those that poll, and those they poll for.

*Guarantees*: a thread that polls runs as long as it polls for a thread that isn't removed. The successor of a thread
that died, or was removed, starts when that one has ended and closed everything. Each removal is answered once.
*Assumes*: the supervisor's thread calls it; other threads read `states`, `reports` and `records`, and ask for changes.
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
    """One thread that polls. `processing`: the states of the threads that it polls for, where these are others, by
    name and serial; `leaves`: it is to end, as it polls for no thread any more; `gone`: it has ended, and was joined;
    `removals` are answered at its end."""

    number: int
    thread: InstanceThread
    state: ThreadState = ThreadState.CREATED
    report: ThreadReport | None = None
    processing: dict[tuple[str, int], ThreadState] = field(default_factory=dict)
    leaves: bool = False
    gone: bool = False
    removals: list[RemoveThread] = field(default_factory=list)

    def over(self) -> None:
        """Note that the thread has ended: it has no tasks any more, and its number of processed records stays."""
        self.state, self.processing = ThreadState.DEAD, {}
        if self.report is not None:
            self.report = replace(
                self.report, tasks={}, lags={}, restoring={}, standby_lags={}, places={}, ended={},
                failing={}, last=None,
            )  # fmt: skip


class ThreadRoster:
    """*Owns*: the members. `make` makes the thread that polls of this number; `left_group` gets the number of a
    thread that has ended and whose member has left the group."""

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
        """Ask for the end of a thread by `told`, which gives False when the client has ended; its name, and what is set
        once it has ended. `name` None: any thread but the caller, if there is one."""
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
        """Records processed by all threads so far, also by those that have ended."""
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
        """The idents of the threads that poll, and of those that call functions of the user's for them."""
        members = list(self.members.values())
        idents = frozenset(member.thread.ident for member in members if member.thread.ident is not None)
        return idents.union(*(self._registry.helpers(member.number) for member in members))

    @property
    def staying(self) -> list[ThreadState]:
        """The states of the threads that poll, without those that are to end."""
        return [member.state for member in self.members.values() if not member.leaves]

    def all_ended(self) -> BaseException | None:
        """What the last active task has failed of, when the active tasks of all threads have ended for good, as all of
        them have reported of the same generation."""
        reports = self.reports
        if len(reports) < len(self.members) or len({report.generation for report in reports}) > 1:
            return None
        active = [report for report in reports if any(role != "standby" for role in report.tasks.values())]
        return active[-1].last if active and all(report.last is not None for report in active) else None

    def join_gone(self, tell: Callable[[ThreadGone], object]) -> None:
        """Wait for the end of each thread that was to leave and is dead, whichever came first, and tell it."""
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
        """The number of living threads that a user counts."""
        return sum(len(member.processing) or 1 for member in self.alive)

    # -- what comes and goes

    def start(self) -> None:
        """Start the first threads that poll."""
        for number in self.workforce.first():
            self._start(number)

    def _start(self, number: int, removals: Iterable[RemoveThread] = ()) -> None:
        """Start the thread that polls of this number. `removals`: those that its predecessor hasn't answered."""
        thread = self._make(number)
        self.members[thread.name] = PollingMember(number, thread, removals=list(removals))
        try:
            thread.start()
        except BaseException:
            del self.members[thread.name]
            raise

    def add(self, number: int) -> None:
        """A thread of this number is to run: where one polls for it that is to end, after that."""
        polls = self.workforce.polls_for(number)
        if all(member.number != polls for member in self.members.values()):
            self._start(polls)

    def _polls(self, number: int) -> bool:
        """Whether the thread that polls of this number has a thread to poll for."""
        return any(self.workforce.polls_for(counted) == number for counted in self._registry.numbers())

    def remove(self, removal: RemoveThread) -> None:
        """Have the thread end: itself, or by the one that polls for it. One that polls for no other thread any more
        commits, closes and leaves the group, also as a static member: it isn't expected back."""
        polls = self.workforce.polls_for(removal.number)
        member = next(member for member in self.members.values() if member.number == polls)
        member.removals.append(removal)
        log.info("%s is removed; %d are left", self.workforce.name(removal.number), self._registry.threads)
        if not (member.leaves or self._polls(polls)):
            member.leaves = True
            member.thread.stop(leave_group=True)

    def processing_moved(self, moved: ProcessingThreadMoved) -> None:
        """A thread came, or has ended, for which another one polls."""
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
        """A thread that was to end has ended, and all its messages have been taken."""
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
        """Note that all threads have ended, and answer the removals that they were asked for."""
        for member in self.members.values():
            member.over()
            self._note_leave(member)
            for removal in member.removals:
                removal.done.set()
