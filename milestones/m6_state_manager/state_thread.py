"""The state thread of an instance: opens and closes tasks' stores, syncs the databases, gives room back.

    polling thread --StoreRequest--> mailbox --> StateThread --StoreAnswer--> polling thread
                                                  v every state_sync_interval_ms: sync what was written,
                                                      flush the largest memtable, have wiped ranges compacted;
                                                      a step of the snapshots

*Guarantees*: a quiet database doesn't hold the memory that a busy one has to flush for. What was applied is on the disk
`state_sync_interval_ms` later, about. A database that can't be synced is a warning: its next write says more. A part of
a step that fails is logged, and what follows is done: a request is answered whatever else fails. An error that ends the
thread goes to the polling thread, which ends by it.
*Assumes*: one per instance; the manager outlives it.
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
    """A request of a polling thread, whose context is `context`; `answers`: where the answer goes."""

    context: ThreadContext
    request: StoreRequest
    answers: Mailbox[StoreAnswer]


class DatabaseDamaged(NamedTuple):
    """A database has proved damaged: it is looked for at once."""


class Snapshots(Protocol):
    """What the state thread does about snapshots."""

    def run_once(self) -> None:
        """The next step."""
        ...

    def wait_ms(self) -> int | None:
        """How long the thread may wait for requests before the next step; None: for ever."""
        ...

    def close(self) -> None:
        """End, with the helper. Harmless when repeated."""
        ...


class StateKeeper:
    """The step function of the state thread. *Owns*: when the databases are synced next. *Receives*: `StateRequest`s,
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
        """`name`: of the thread; `metrics`: where the databases are shown, None for tests."""
        self._manager, self._clock, self._interval_ms, self._snapshots = manager, clock, sync_interval_ms, snapshots
        self.requests: Mailbox[StateRequest | DatabaseDamaged] = Mailbox(CAPACITY, "stores to open and to close")
        self._measures = None if metrics is None else DatabaseMeasures(metrics)
        self._mender = Mender(manager.engines, clock, name)
        manager.tell_damage = self._hear_of_damage
        self._next_sync_ms = clock.monotonic_ms() + sync_interval_ms
        self._compacting: CompactionThread | None = None
        self.tell_death: Callable[[BaseException], object] = lambda _: None
        """Called with the error that has ended the thread."""
        if metrics is not None and metrics.profile is not None:
            metrics.profile.follow_thread(name, self._timed())

    def _timed(self) -> Iterator[tuple[object, Mapping[str, str]]]:
        """What a profile times, with its words for that."""
        yield self, {"run_once": "waits for requests", "_carry_out": "opens and closes stores", "sync": "syncs stores"}
        yield self._snapshots, {"run_once": "makes snapshots"}

    def run_once(self) -> bool:
        """1. carry out a request, if one comes before the next sync; 2. see to damaged databases; 3. sync; 4. flush
        what is largest where little memory is left; 5. give room back; 6. where no request came, take a step of the
        snapshots. False: no request will come any more."""
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
            self._try("makes memory free", self._flush_largest)
            self._try("publishes metrics", self._publish)
            self._try("gives room back", self._give_room_back)
        if request is None:
            self._try("makes snapshots", self._snapshots.run_once)
        return True

    def _try(self, what: str, part: Callable[[], object]) -> None:
        """Do a part of the step. An error of it is logged: what was asked for, and the other parts, don't wait."""
        try:
            part()
        except Exception as error:
            report(log, "a step of the state thread that %s has failed, and is made again", what, error=error)

    def _publish(self) -> None:
        if self._measures is not None:
            now_ms = self._clock.monotonic_ms()
            self._measures.publish(self._manager.databases(), now_ms, self._manager.unopened())

    def _hear_of_damage(self) -> None:
        """From any thread. At the instance's end nothing is mended any more: the next start finds the damage."""
        with suppress(MailboxClosedError):
            self.requests.try_put(DatabaseDamaged())

    def _left_ms(self) -> int:
        return self._next_sync_ms - self._clock.monotonic_ms()

    def _carry_out(self, request: StateRequest) -> None:
        answer_or_close(request.context, carry_out(request.context, request.request), request.answers)

    def sync(self) -> None:
        """Sync the databases that were written since."""
        self._next_sync_ms = self._clock.monotonic_ms() + self._interval_ms
        for database in self._manager.databases():
            try:
                database.look()
                # An engine whose log can't be synced takes no write any more, also with room again.
                if database.unsynced and not database.gate.reason and not database.is_full:
                    database.sync()
                database.settle()
            except StateError as error:
                log.warning("what sub-topology %d has written isn't synced: %s", database.number, error)

    def _flush_largest(self) -> None:
        """Make room for what is written: RocksDB flushes the database that writes, never the one that holds most."""
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
            log.warning("no memory is made free for what is written: %s", error)

    def _give_room_back(self) -> None:
        """Have wiped ranges compacted by another thread, as this may take long; remove the notes of compacted ones."""
        databases = self._manager.databases()
        for database in databases:
            try:
                database.remove_notes()
            except StateError as error:
                log.debug("the notes of what was wiped in sub-topology %d stay: %s", database.number, error)
        wiped = any(database.wiped for database in databases)
        if wiped and (self._compacting is None or not self._compacting.is_alive()):
            self._compacting = CompactionThread(f"{threading.current_thread().name}-compaction", databases)
            self._compacting.start()

    def died(self, error: BaseException) -> None:
        """Tell the polling thread that this error has ended the thread; end the snapshots."""
        self.tell_death(error)
        self._snapshots.close()

    def end(self, timeout_s: float) -> None:
        """Give no more room back, mend nothing more, and wait for what is under way."""
        if self._measures is not None:
            self._measures.close()
        self._mender.end(timeout_s)
        if self._compacting is not None and self._compacting.is_alive():
            self._compacting.interrupt()
            self._compacting.join(timeout_s)


class CompactionThread(threading.Thread):
    """Gives the room of what was wiped in these databases back, until none is left. *Receives*: what is wiped
    meanwhile. What is left at its end, also by an error, is given back by the next one."""

    def __init__(self, name: str, databases: Sequence[SubtopologyEngine]) -> None:
        super().__init__(name=name, daemon=True)
        self._databases = databases
        self._at: SubtopologyEngine | None = None
        self._over = False

    def interrupt(self) -> None:
        """Have what is under way come to its end, and begin nothing more; any thread may call it."""
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
                    log.info("the room of what is gone of store %r isn't given back: %s", wiped.store, error)
                else:
                    if not self._over:  # one that was interrupted ends without an error
                        database.wiped.given_back(wiped)
            self._at = None


class StateThread(threading.Thread):
    """Drives a `StateKeeper` until its mailbox is closed and empty, or by an error, which is its last message."""

    def __init__(self, name: str, keeper: StateKeeper) -> None:
        super().__init__(name=name, daemon=True)
        self._keeper = keeper

    def run(self) -> None:
        drive(self.name, self._step, self._keeper.died)

    def _step(self) -> bool:
        return self._keeper.run_once()
