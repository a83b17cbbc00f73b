"""Gives tasks to processing threads: one stream thread's tasks, one task to one thread at a time.

*Guarantees*
- A task has one place: idle, leased, locked for a commit, quarantined; or it was given back.
- No ready task waits for a thread longer than `choose_next.py` says.
- What has to be done about a task (its fate, what is confirmed, a flush) comes before its records, and is done at the
  next record's boundary. A task that is given back was asked for once, and comes back once.
- A task that fails doesn't keep the others; its error is its own (`quarantine.py`).

*Assumes*: nothing is called under the lock but what is quick: no user code, no store, no client.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from milestones.common.errors import OwnershipError
from milestones.m2_processing_threads.choose_next import Waiting, choose
from milestones.m2_processing_threads.metrics import Standing
from milestones.m2_processing_threads.quarantine import Failure, failed, lasts
from milestones.m2_processing_threads.scheduled_task import Entry, Job, Lease, Place
from milestones.parts import Fate, Removed

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.records import TaskId
    from milestones.common.task.task import Task

log = logging.getLogger(__name__)

SLICE_MS = 50
"""How long a task is worked on while others wait."""

LOCK_MS = 10_000
"""How long a task that was flushed waits to be committed."""

CALL_MS = 250
"""So long after the end of its slice a task that still works on one record is in a long call."""

IDLE_MS, LOOK_MS = 1_000, 20
"""How long a thread without work sleeps; and while a task waits for the records of another of its partitions."""


def wait(condition: threading.Condition, timeout_ms: int) -> None:
    """In real time."""
    condition.wait(timeout_ms / 1000)


class Scheduler:
    """*Owns*: where each task is. *Concurrency*: all of it is under one lock; `look` is what threads that have nothing
    to do wait for, `news` what the stream thread waits for."""

    def __init__(
        self,
        clock: Clock,
        threads: int,
        timeout_ms: int,
        weight: Callable[[TaskId], int] = lambda _: 1,
        most_output_bytes: Callable[[], int] = lambda: 1 << 62,
        wait: Callable[[threading.Condition, int], object] = wait,
    ) -> None:
        """`timeout_ms`: how long a task may fail; `most_output_bytes`: of one task, from which on it has to wait.
        `wait`: for a condition, at most so many ms; another one is for tests."""
        self._clock, self._threads, self._timeout_ms = clock, threads, timeout_ms
        self._weight, self._most_output_bytes, self._wait = weight, most_output_bytes, wait
        self._lock = threading.Lock()
        self._look, self._news = threading.Condition(self._lock), threading.Condition(self._lock)
        self._entries: dict[TaskId, Entry] = {}
        self._retiring: list[Entry] = []
        self._in_transit = 0
        self._removed: list[Removed] = []
        self._paused: frozenset[int] = frozenset()
        self._idle = 0
        self._dead: BaseException | None = None
        self.closing = self._abandoned = False
        self.processed = 0
        self.held_back = 0
        self._waits = self._waited_ms = self._longest_ms = 0

    # -- the stream thread's side

    def add(self, task: Task) -> None:
        with self._lock:
            self._entries[task.id] = Entry(task, self._weight(task.id))
            self._look.notify()

    def remove(self, id: TaskId, fate: Fate) -> None:
        """Give the task back after its fate; whatever it does from now on is void."""
        with self._lock:
            entry = self._entries.pop(id)
            entry.task.invalidate()
            self._leave(entry, fate)

    def retire(self, task: Task, fate: Fate) -> None:
        """The same for a task that was given back."""
        with self._lock:
            self._leave(Entry(task, 1), fate)

    def _leave(self, entry: Entry, fate: Fate) -> None:
        entry.fate = fate
        self._in_transit += 1
        if entry.lease is not None:
            entry.lease.end()
        entry.release()
        if entry.lease is not None:
            entry.place = Place.LEASED
        elif fate is Fate.KEEP and not entry.task.applying:
            self._give(Removed(entry.task))
            return
        self._retiring.append(entry)
        self._look.notify()

    def take_removed(self) -> list[Removed]:
        with self._lock:
            removed, self._removed = self._removed, []
            return removed

    def apply(self, id: TaskId) -> None:
        """Something of the task was confirmed."""
        with self._lock:
            entry = self._entries[id]
            if entry.lease is not None:
                entry.lease.end()
            self._look.notify()

    def pause(self, subtopologies: frozenset[int]) -> None:
        with self._lock:
            self._paused = subtopologies
            for entry in self._entries.values():
                if entry.lease is not None and self._is_paused(entry):
                    entry.lease.end()
            self._look.notify_all()

    def _is_paused(self, entry: Entry) -> bool:
        return entry.task.id.subtopology in self._paused

    def flush(self, *, parting: bool = False) -> bool:
        """Have the caches of all tasks flushed, and these tasks locked; whether they are. One that fails has other
        troubles, and one that is in a long call isn't waited for.

        `parting`: no other commit may follow this one. So that it takes all that is done, every task with a cache is
        locked, not only those where something waits by chance; and what was confirmed is applied before, where more
        has been done since, or may yet be.
        """
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            waiting = 0
            for entry in self._entries.values():
                if entry.place is Place.LOCKED:
                    entry.locked_until_ms = now_ms + LOCK_MS
                elif entry.failure is None and self._lacks(entry, now_ms, parting=parting):
                    waiting += not self._is_in_a_call(entry, now_ms)
            return not waiting

    def _lacks(self, entry: Entry, now_ms: int, *, parting: bool) -> bool:
        """Whether a thread has something to do, and was asked for it, before all of the task can be committed."""
        task, leased = entry.task, entry.lease is not None
        if task.cached and (task.unflushed or (parting and leased)):
            self._ask_for_flush(entry)
            return True
        if parting and task.applying and (task.cached or leased or task.commit_needed()):
            return True
        if parting and task.cached and task.initialised:
            entry.lock(now_ms + LOCK_MS)
        return False

    def _ask_for_flush(self, entry: Entry) -> None:
        if not entry.flush:
            entry.flush = True
            if entry.lease is not None:
                entry.lease.end()
            self._look.notify()

    def unlock(self) -> None:
        """Let go on what was locked. What wasn't flushed needn't be any more, but for what is in a long call: another
        commit is to follow that one."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            for entry in self._entries.values():
                entry.flush = entry.missed = entry.flush and self._is_in_a_call(entry, now_ms)
                if entry.place is Place.LOCKED:
                    entry.release()
            self._look.notify_all()

    def _is_in_a_call(self, entry: Entry, now_ms: int) -> bool:
        return entry.lease is not None and now_ms >= entry.lease.deadline_ms + CALL_MS

    def wake(self) -> None:
        """There may be something to do: input came, outputs have left, or time has passed."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            for entry in self._entries.values():
                lease = entry.lease
                if lease is not None and now_ms >= lease.deadline_ms and not lease.stop:
                    lease.end()
            self._look_for_room()
            takable = sum(1 for _ in self._takable(now_ms))
            for _ in range(min(self._idle, takable)):
                self._look.notify()

    def _look_for_room(self) -> None:
        limit = self._most_output_bytes() // 2
        for entry in self._entries.values():
            if entry.full and entry.task.output_bytes() <= limit:
                entry.full = False

    def died(self, error: BaseException) -> None:
        """A processing thread ends, of a bug."""
        with self._lock:
            self._dead = error
            self._news.notify_all()

    def failure(self) -> Failure | None:
        """That of a task that has failed for too long, and is none of the scheduler's business any more."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if self._dead is not None:
                return failed(self._dead, None, now_ms, 0, lasting=True)
            return next(
                (e.failure for e in self._entries.values() if e.failure is not None and now_ms >= e.failure.end_ms),
                None,
            )

    def failures(self) -> dict[TaskId, Failure]:
        """All failing tasks."""
        with self._lock:
            return {id: entry.failure for id, entry in self._entries.items() if entry.failure is not None}

    def places(self) -> dict[TaskId, Place]:
        with self._lock:
            return {id: entry.place for id, entry in self._entries.items()}

    def working(self) -> tuple[int, int]:
        """How many tasks threads work on; how many more they could."""
        with self._lock:
            leased = sum(entry.lease is not None for entry in self._entries.values())
            now_ms = self._clock.monotonic_ms()
            return leased, sum(1 for _ in self._takable(now_ms))

    def wait_for_news(self, timeout_ms: int, until: Callable[[], bool]) -> bool:
        """Wait until a thread has something to tell and `until` holds, at most so long. Whether it holds."""
        with self._lock:
            return self._wait_until(until, timeout_ms)

    def _wait_until(self, holds: Callable[[], bool], timeout_ms: int) -> bool:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while not holds():
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return False
            self._wait(self._news, left_ms)
        return True

    def close(self, timeout_ms: int) -> bool:
        """Wait at most so long until all that left is back; what comes later is closed where it is. Threads end."""
        with self._lock:
            back = self._wait_until(lambda: self._in_transit == 0, timeout_ms)
            self.closing = self._abandoned = True
            self._look.notify_all()
            return back

    # -- the processing threads' side

    def take(self, owner: str) -> Lease | None:
        """What the thread is to do next."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            chosen = self._choose(now_ms)
            if chosen is None:
                return None
            entry, job = chosen
            entry.release()
            if job is Job.TURN:
                self._count_wait(now_ms - (now_ms if entry.since_ms is None else entry.since_ms))
            entry.place, entry.since_ms = Place.LEASED, None
            entry.lease = Lease(entry, job, owner, now_ms + max(1, SLICE_MS * entry.weight // self._heaviest()))
            return entry.lease

    def _count_wait(self, ms: int) -> None:
        self._waits, self._waited_ms = self._waits + 1, self._waited_ms + ms
        self._longest_ms = max(self._longest_ms, ms)

    def _heaviest(self) -> int:
        return max((entry.weight for entry in self._entries.values()), default=1)

    def _choose(self, now_ms: int) -> tuple[Entry, Job] | None:
        for entry in self._retiring:
            if entry.lease is None:
                return entry, Job.LEAVE
        ready: list[Entry] = []
        for entry, job in self._takable(now_ms):
            if job is not Job.TURN:
                return entry, job
            ready.append(entry)
        if not ready:
            return None
        waiting = [Waiting(e.since_ms or 0, e.task.input.waiting() * e.weight) for e in ready]
        leased = [e.lease for e in self._entries.values() if e.lease is not None]
        overdue = sum(now_ms >= lease.deadline_ms for lease in leased)
        index = choose(
            waiting, now_ms, ready=len(ready) + len(leased), threads=max(1, self._threads - overdue), slice_ms=SLICE_MS
        )
        return ready[index], Job.TURN

    def _takable(self, now_ms: int) -> Iterator[tuple[Entry, Job]]:
        """What could be done, in no order; notes since when tasks are ready."""
        wall_ms = self._clock.wall_ms()
        for entry in self._retiring:
            if entry.lease is None:
                yield entry, Job.LEAVE
        for entry in () if self.closing else self._entries.values():
            if entry.lease is not None:
                continue
            if entry.place is Place.LOCKED and now_ms >= entry.locked_until_ms:
                entry.release()
            job = self._job(entry, now_ms, wall_ms)
            if job is None:
                entry.since_ms = None
                continue
            if entry.since_ms is None:
                entry.since_ms = now_ms
            yield entry, job

    def _job(self, entry: Entry, now_ms: int, wall_ms: int) -> Job | None:
        task = entry.task
        if task.applying:
            return Job.APPLY
        if entry.place is Place.LOCKED or (entry.failure is not None and now_ms < entry.failure.again_ms):
            return None
        if entry.flush and (task.unflushed or entry.failure is None):
            return Job.FLUSH
        if self._is_paused(entry):
            return None
        if not task.initialised:
            return Job.TURN
        ready = task.punctuation_due(wall_ms) or (not entry.full and task.ready(now_ms))
        return Job.TURN if ready else None

    def give_back(self, lease: Lease, error: BaseException | None = None, removed: Removed | None = None) -> None:
        """The thread is done with it: it was this far, or failed, or this is what became of the task."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            entry = lease.entry
            if entry.lease is not lease:
                raise OwnershipError(f"{lease.owner} gives back task {lease.task.id}, which it has not. This is a bug")
            entry.lease, entry.place, entry.limit = None, Place.IDLE, lease.limit
            self.processed += lease.processed
            if lease.full and not entry.full:
                entry.full = True
                self.held_back += 1
            if entry.fate is not None:
                self._gone(entry, removed, error)
            elif error is not None:
                self._note(entry, error, lease.processed > 0, now_ms)
            else:
                self._settle(entry, lease, now_ms)
            self._news.notify_all()

    def _settle(self, entry: Entry, lease: Lease, now_ms: int) -> None:
        if lease.processed or (lease.job is Job.TURN and not lease.stop):
            entry.failure = None
        if entry.failure is not None:
            entry.quarantine(entry.failure)
        elif lease.job is Job.FLUSH and entry.flush:
            if entry.missed:
                entry.task.request_commit()
            entry.flush = entry.missed = False
            entry.lock(now_ms + LOCK_MS)

    def _note(self, entry: Entry, error: BaseException, progress: bool, now_ms: int) -> None:
        before = None if progress else entry.failure
        lasting = lasts(error) or not entry.task.initialised
        failure = failed(error, before, now_ms, self._timeout_ms, lasting=lasting)
        entry.quarantine(failure)
        if failure.first and not lasting:
            log.warning(
                "task %s failed and is in quarantine, the others go on; it is tried again for %d ms (task_timeout_ms): "
                "%s",
                entry.task.id, self._timeout_ms, error, exc_info=error,
            )  # fmt: skip

    def _gone(self, entry: Entry, removed: Removed | None, error: BaseException | None) -> None:
        """Its fate has come, or it is still to come."""
        if removed is not None:
            self._retiring.remove(entry)
            self._give(removed)
            return
        if error is not None:
            log.info("task %s failed after it was taken away, which is void: %s", entry.task.id, error)
        self._look.notify()

    def _give(self, removed: Removed) -> None:
        self._in_transit -= 1
        if self._abandoned:
            log.info("task %s is back after the end of its thread, and closed", removed.task.id)
        self._removed.append(removed)
        self._news.notify_all()

    @property
    def abandoned(self) -> bool:
        """Nobody takes back what is in transit."""
        return self._abandoned

    def sleep(self, most_ms: int = IDLE_MS) -> None:
        """Sleep until there may be something to do."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if self.closing or any(True for _ in self._takable(now_ms)):
                return
            self._idle += 1
            try:
                self._wait(self._look, self._sleep_ms(now_ms, most_ms))
            finally:
                self._idle -= 1

    def _sleep_ms(self, now_ms: int, most_ms: int) -> int:
        """Until the next punctuation, or the next try of what failed."""
        wall_ms, sleep_ms = self._clock.wall_ms(), most_ms
        for entry in self._entries.values():
            if entry.lease is not None or self._is_paused(entry):
                continue
            if entry.failure is not None:
                sleep_ms = min(sleep_ms, entry.failure.again_ms - now_ms)
                continue
            due_ms = entry.task.next_punctuation_ms()
            if due_ms is not None:
                sleep_ms = min(sleep_ms, due_ms - wall_ms)
            if not entry.full and entry.task.input.waiting():
                sleep_ms = min(sleep_ms, LOOK_MS)
        return max(1, sleep_ms)

    # -- what there is

    def standing(self) -> Standing:
        """For metrics; waits are counted anew from here on."""
        with self._lock:
            entries = self._entries.values()
            running = sum(entry.lease is not None for entry in entries)
            ready = sum(1 for _ in self._takable(self._clock.monotonic_ms()))
            failing = sum(entry.failure is not None for entry in entries)
            full = sum(entry.full for entry in entries)
            waits = self._waits, self._waited_ms, self._longest_ms
            self._waits = self._waited_ms = self._longest_ms = 0
            return Standing(running, ready, failing, full, self.held_back, *waits)
