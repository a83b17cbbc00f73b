"""Fault points: named places in the code at which a test can make a running process fail.

`MILESTONES_FAULT=point:action:nth` arms one fault: when threads reach `point` for the nth time, `action` happens. The
actions are `kill` (SIGKILL to the process itself), `stop` (SIGSTOP), `raise`, `abort` (a commit fails as by an
abortable error of Kafka's), and `sleep=MS`. `point:action:nth@other` begins to count when any thread has reached the
point `other`. Several faults are separated by commas.

*Guarantees*: without `MILESTONES_FAULT`, reaching a point costs one call that finds an empty list.
*Assumes*: the environment is set before the process starts, or `arm` is called before the process has threads.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from milestones.common.errors import TaskCorruptedError

POINTS: dict[str, str] = {
    "commit.before-flush": "all tasks are frozen, their last outputs aren't sent",
    "commit.after-flush": "Kafka has acknowledged all outputs, no offset is sent",
    "commit.after-offsets": "the offsets are in the transaction, it isn't committed",
    "commit.ending": "the request that commits is begun, its answer isn't here",
    "commit.after-commit": "Kafka has committed, nothing is applied to the engines",
    "commit.in-apply": "the engines of one more task have what was committed, those of others may not",
    "task.write": "a processing thread begins to write what was committed of one more task to its engine",
    "apply.step": "one more step of a task's commit is in its database, the last one with the row isn't",
    "commit.after-apply": "the engines have what was committed",
    "interval.first-record": "outputs of a task's next commit interval are taken, the first ones; none of them is sent",
    "restore.batch": "a batch of changelog records was applied",
    "restore.complete": "a task's stores are complete, it doesn't run yet",
    "global.batch": "a batch of records is in the global stores, with the positions after it",
    "global.complete": "the global stores are complete, no task was started",
    "wipe.begun": "a range is about to be emptied, it still has all",
    "wipe.made": "a range is empty, and its row says so, or is gone",
    "snapshot.cutting": "a checkpoint has the table files and the manifest of a database, its logs aren't copied",
    "snapshot.checkpoint": "a checkpoint of a database is made, no helper process reads it yet",
    "snapshot.folding": "the deltas of a base have grown large, the new base isn't begun",
    "snapshot.uploaded": "one more file of a new snapshot is at its URL, others may not be",
    "snapshot.written": "all files of a new snapshot are at its URL, its manifest isn't",
    "snapshot.published": "a new snapshot's manifest is there, `latest.json` still names the one before it",
    "snapshot.pruning": "manifests that nobody needs are removed, their files aren't",
    "snapshot.removed": "one more file that no snapshot needs is removed",
    "snapshot.fetched": "one more file of a snapshot is here, others may not be",
    "snapshot.linking": "the files of a snapshot are here, the database of their range hasn't linked them",
    "snapshot.ingested": "a store has the content of a snapshot, its offset isn't written",
    "mend.begun": "a damaged database takes no writes, the one that is to replace it is there, and empty",
    "mend.range": "one more range of a damaged database is in the one that is to replace it, or can't be read",
    "mend.copied": "all that can be read of a damaged database is in the one that is to replace it, and on the disk",
    "mend.current": "the copy of a damaged database counts from the next start on, the damaged files aren't set aside",
    "conversion.begun": "a task is in folders, its range is empty",
    "conversion.written": "table files of one more store of a task are written, its range hasn't linked them",
    "conversion.store": "one more store of a task is in its range, there is no row",
    "conversion.row": "a task is in its range, and on the disk; its folder isn't removed",
    "conversion.given": "all stores of a task are in a folder that doesn't count yet",
    "conversion.folder": "a task's folder counts, its range is there, too",
    "conversion.all-given": "all tasks of a sub-topology are in folders, its database is there, too",
    "standby.batch": "a standby has taken a batch of changelog records",
    "recycle.to-standby": "an active task is committed and closed, its open stores wait to be a standby's",
    "recycle.to-active": "a standby is closed, its open stores wait to be an active task's",
    "ids.retired": "an obsolete transactional id is initialised, the state directory still has it",
    "static.left": "obsolete static members have left the group, the state directory still has their ids",
    "rebalance.before-join": "all is committed, JoinGroup isn't sent",
    "rebalance.assigned": "the new assignment is here, nothing was done about it",
    "rebalance.revoked": "the tasks that went away are committed and closed",
}
"""Every point, with what is true when a thread reaches the point."""


class InjectedFault(RuntimeError):
    """The error that the action `raise` raises."""


@dataclass
class Fault:
    """One armed fault. Without `after`, it counts from the start of the process. `performs`: gets `action` and `point`
    when the fault is due.

    *Concurrency*: `reached` counts over all threads, under a lock. Only processes with faults take this lock.
    """

    point: str
    action: str
    nth: int
    after: str | None = None
    reached: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    performs: Callable[[str, str], None] = field(default_factory=lambda: perform)

    def reach(self, point: str) -> None:
        with self.lock:
            if point == self.after:
                self.after = None
            if point != self.point or self.after is not None:
                return
            self.reached += 1
            due = self.reached == self.nth
        if due:
            self.performs(self.action, self.point)


def perform(action: str, point: str) -> None:
    """Perform an action of a fault."""
    name, _, argument = action.partition("=")
    if name == "raise":
        raise InjectedFault(f"injected at {point}")
    if name == "abort":
        raise TaskCorruptedError(f"injected at {point}", [])
    if name == "sleep":
        time.sleep(int(argument) / 1000)
    else:
        # Sent to this thread: another thread might take a signal to the process, and this one would run on meanwhile.
        signal.pthread_kill(threading.get_ident(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[name])


def parse(text: str) -> list[Fault]:
    """Return the faults that `MILESTONES_FAULT` names. Raises `ValueError` for a point or an action that doesn't exist.
    """
    faults = []
    for item in filter(None, text.split(",")):
        match = re.fullmatch(r"([\w.-]+):(kill|stop|raise|abort|sleep=\d+)(?::([1-9]\d*))?(?:@([\w.-]+))?", item)
        if match is None or not POINTS.keys() >= {match[1], match[4] or match[1]}:
            raise ValueError(
                f"MILESTONES_FAULT={text!r}: expected point:action:nth@other with points of "
                f"{', '.join(POINTS)} and an action of kill, stop, abort, raise, sleep=MS"
            )
        faults.append(Fault(match[1], match[2], int(match[3] or 1), match[4]))
    return faults


@dataclass
class Armed:
    """The faults of a process. *Concurrency*: the list changes only before there are threads."""

    faults: list[Fault]

    def reach(self, point: str) -> None:
        """Note that a thread is at this point, and perform the faults that are due."""
        for fault in self.faults:
            fault.reach(point)


def armed(environment: Mapping[str, str]) -> Callable[[str], None]:
    """Return the function that serves as `reach` in a process with this environment."""
    return Armed(_named(environment)).reach


def arm(environment: Mapping[str, str]) -> None:
    """Arm the faults of this environment, and disarm all others. A process that was forked from another process calls
    this."""
    _ours.faults = _named(environment)


def plant(fault: Fault) -> Callable[[], None]:
    """Arm one more fault. Returns the function that disarms it."""
    _ours.faults = [*_ours.faults, fault]

    def disarm() -> None:
        _ours.faults = [other for other in _ours.faults if other is not fault]

    return disarm


def _named(environment: Mapping[str, str]) -> list[Fault]:
    return parse(environment.get("MILESTONES_FAULT", ""))


_ours = Armed(_named(os.environ))
reach = _ours.reach
