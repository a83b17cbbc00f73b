"""The state thread of an instance opens and closes tasks' stores, syncs the databases, and frees disk space.

    polling thread --StoreRequest--> mailbox --> StateThread --StoreAnswer--> polling thread
                                                  v every state_sync_interval_ms: sync what was written,
                                                      flush the largest memtable, have deleted spans compacted;
                                                      when no request came: a step of the snapshots

*Guarantees*: an idle database doesn't keep memory that a busy one needs: its memtable is flushed. Applied writes are on
the disk about `state_sync_interval_ms` later. If a database can't be synced, a warning is logged, and its next write
fails with the error. If one part of a step fails, the error is logged and the other parts are done, so that every
request is answered. An error that ends this thread is sent to the polling thread, which ends with the same error.
*Assumes*: one state thread per instance; the manager outlives it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from milestones.common.errors import StateError
from milestones.common.last_words import report
from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.m6_state_manager.measures import DatabaseMeasures
from milestones.m6_state_manager.mending.mender import Mender
from milestones.shared_parts.opening_by_message import answer_or_close, drive
from milestones.shared_parts.store_requests import StoreRequest, carry_out

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.metrics import Metrics
    from milestones.instance.context import ThreadContext
    from milestones.m6_state_manager.manager import RangeStateManager
    from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine
    from milestones.parts import StoreAnswer

log: Final = logging.getLogger(__name__)

CAPACITY: Final = 100_000


class StateRequest(NamedTuple):
    """A request of the polling thread whose context is `context`. The answer is put into `answers`."""

    context: ThreadContext
    request: StoreRequest
    answers: Mailbox[StoreAnswer]


class DatabaseDamaged(NamedTuple):
    """Says that a database has proved damaged. The message wakes the state thread, which looks for the database."""


class Snapshots(Protocol):
    """The state thread's part that makes snapshots."""

    def run_once(self) -> None:
        """Take the next step."""
        ...

    def wait_ms(self) -> int | None:
        """Return how long the thread may wait for requests before the next step; None if it may wait for ever."""
        ...

    def close(self) -> None:
        """End, and end the helper process. Harmless when repeated."""
        ...


class StateKeeper:
    """The step function of the state thread. *Owns*: the time of the next sync. *Receives*: `StateRequest`s,
    `DatabaseDamaged`. *Sends*: `StoreAnswer`s."""

    def __init__(
        self,
        manager: RangeStateManager,
        clock: Clock,
        sync_interval_ms: int,
        snapshots: Snapshots,
        name: str = "State",
        metrics: Metrics | None = None,
    ) -> None:
        """`name`: the thread's. `metrics`: where the databases' metrics are added; None in tests."""
        self._manager, self._clock, self._interval_ms, self._snapshots = manager, clock, sync_interval_ms, snapshots
        self.requests: Mailbox[StateRequest | DatabaseDamaged] = Mailbox(CAPACITY, "stores to open and to close")
        self._measures = None if metrics is None else DatabaseMeasures(metrics)
        self._mender = Mender(manager.engines, clock, name)
        manager.tell_damage = self._hear_of_damage
        self._next_sync_ms = clock.monotonic_ms() + sync_interval_ms
        self._compacting: CompactionThread | None = None
        self.tell_death: Callable[[BaseException], object] = lambda _: None
        """Called with the error that ended the thread."""
        if metrics is not None and metrics.profile is not None:
            metrics.profile.follow_thread(name, self._timed())

    def _timed(self) -> Iterator[tuple[object, Mapping[str, str]]]:
        """Yield the methods whose time a profile measures, with the names that the profile shows."""
        yield self, {"run_once": "waits for requests", "_carry_out": "opens and closes stores", "sync": "syncs stores"}
        yield self._snapshots, {"run_once": "makes snapshots"}

    def run_once(self) -> bool:
        """Take one step: 1. carry out a request, if one comes before the next sync; 2. mend damaged databases; 3. sync;
        4. flush the largest memtable if memory is short; 5. free disk space; 6. if no request came, take a step of the
        snapshots. Returns False if no request can come any more."""
        try:
            request = self.requests.get(max(0, min(self._left_ms(), self._snapshots.wait_ms() or self._interval_ms)))
        except MailboxClosedError:
            self._snapshots.close()
            return False
        if isinstance(request, StateRequest):
            self._carry_out(request)
        self._try("mends databases", lambda: self._mender.run_once(self._manager.databases()))
        if self._left_ms() <= 0:
            self._try("syncs databases", self.sync)
            self._try("frees memory", self._flush_largest)
            self._try("publishes metrics", self._publish)
            self._try("frees disk space", self._give_room_back)
        if request is None:
            self._try("makes snapshots", self._snapshots.run_once)
        return True

    def _try(self, what: str, part: Callable[[], object]) -> None:
        """Do a part of the step. Its error is logged, so that requests and the other parts are still served."""
        try:
            part()
        except Exception as error:
            report(log, "the part of the state thread that %s has failed, and is retried", what, error=error)

    def _publish(self) -> None:
        if self._measures is not None:
            now_ms = self._clock.monotonic_ms()
            self._measures.publish(self._manager.databases(), now_ms, self._manager.unopened())

    def _hear_of_damage(self) -> None:
        """Wake the state thread to mend a database. Any thread calls. At the instance's end nothing is mended: the next
        start finds the damage."""
        with suppress(MailboxClosedError):
            self.requests.try_put(DatabaseDamaged())

    def _left_ms(self) -> int:
        return self._next_sync_ms - self._clock.monotonic_ms()

    def _carry_out(self, request: StateRequest) -> None:
        answer_or_close(request.context, carry_out(request.context, request.request), request.answers)

    def sync(self) -> None:
        """Sync the databases that were written since the last sync."""
        self._next_sync_ms = self._clock.monotonic_ms() + self._interval_ms
        for database in self._manager.databases():
            try:
                database.look()
                # An engine that fails to sync its log refuses all later writes, even when the disk has room once more.
                if database.unsynced and not database.gate.reason and not database.is_full:
                    database.sync()
                database.settle()
            except StateError as error:
                log.warning("the writes of sub-topology %d can't be synced: %s", database.number, error)

    def _flush_largest(self) -> None:
        """Flush the largest memtable if memory is short. By itself RocksDB flushes the database that is written, even
        if another one holds most of the memory."""
        if not self._manager.engines.crowded():
            return
        try:
            sizes = [
                (size, database.number, store, database)
                for database in self._manager.databases()
                for store, size in database.engine.unflushed().items()
            ]
            if sizes:
                *_, store, database = max(sizes, key=lambda one: one[:3])
                database.engine.flush(store)
        except StateError as error:
            log.warning("the largest memtable can't be flushed, and memory stays short: %s", error)

    def _give_room_back(self) -> None:
        """Remove the notes of compacted spans, and begin a thread that compacts the others, as this may take long."""
        databases = self._manager.databases()
        for database in databases:
            try:
                database.remove_notes()
            except StateError as error:
                log.debug("notes of deleted spans in sub-topology %d can't be removed: %s", database.number, error)
        wiped = any(database.wiped for database in databases)
        if wiped and (self._compacting is None or not self._compacting.is_alive()):
            self._compacting = CompactionThread(f"{threading.current_thread().name}-compaction", databases)
            self._compacting.start()

    def died(self, error: BaseException) -> None:
        """Send the error that has ended this thread to the polling thread, and end the snapshots."""
        self.tell_death(error)
        self._snapshots.close()

    def end(self, timeout_s: float) -> None:
        """End compactions and mendings, and wait for those that are under way."""
        if self._measures is not None:
            self._measures.close()
        self._mender.end(timeout_s)
        if self._compacting is not None and self._compacting.is_alive():
            self._compacting.interrupt()
            self._compacting.join(timeout_s)


class CompactionThread(threading.Thread):
    """Compacts the deleted spans of these databases, until none is left. *Receives*: spans that are deleted in the
    meantime. If this thread ends early, the next one compacts the rest."""

    def __init__(self, name: str, databases: Sequence[SubtopologyEngine]) -> None:
        super().__init__(name=name, daemon=True)
        self._databases = databases
        self._at: SubtopologyEngine | None = None
        self._over = False

    def interrupt(self) -> None:
        """End the compaction that is under way, and begin no other one. Any thread may call."""
        self._over = True
        if (database := self._at) is not None:
            database.engine.interrupt()

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            report(log, "%s ends, and another one follows", self.name, error=error)

    def _run(self) -> None:
        for database in self._databases:
            self._at = database
            while not self._over and (wiped := database.wiped.take()) is not None:
                try:
                    database.compact(wiped)
                except StateError as error:
                    log.info("the disk space of deleted entries of store %r can't be freed: %s", wiped.store, error)
                else:
                    if not self._over:  # an interrupted compaction ends without an error
                        database.wiped.given_back(wiped)
            self._at = None


class StateThread(threading.Thread):
    """Drives a `StateKeeper` until its mailbox is closed and empty. An error that ends the thread is its last
    message."""

    def __init__(self, name: str, keeper: StateKeeper) -> None:
        super().__init__(name=name, daemon=True)
        self._keeper = keeper

    def run(self) -> None:
        drive(self.name, self._step, self._keeper.died)

    def _step(self) -> bool:
        return self._keeper.run_once()
