"""The changelog records of a store that logs at a commit instead of at each write.

| kind of store | what a commit logs |
|---|---|
| one value per key | the last value of each key; it is read from the frozen layer, so that no copy is kept here |
| the same, without times in rows (`RecordLog`) | the same, at the times of the writes, which are noted |
| a history (`Kind.history`) | every write, in order |

    write ---> scope ---merge---> this interval's ---freeze---> frozen ---applied---> gone
                 | failed                ^                        |
                 v                       +---------thaw-----------+
               dropped

*Guarantees*: the changelog records of a frozen commit interval can be made several times until the commit is applied,
and are the same each time. Writes of a record that failed are never logged. A changelog record has the time and the
headers that it would have if it had been logged at its write. A crash may leave only the first of a commit's changelog
records in Kafka. So the records of a store with one value per key are in `safe_order` if its rows depend on each other.
*Assumes*: as `layers.py`. The store's layers are frozen, thawed and applied together with this log.

*Why this way*: some stores must not be logged before their results. Under `at_least_once`, a crash could leave
changelog records without these results, and a replay would lose the results (`StoreSpec.results_wait`). From m5 on all
stores log at a commit, because one record per key is less to send than a record per write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from milestones.common.records import UNKNOWN_TIMESTAMP, Emitted, Headers, emitted_bytes
from milestones.common.state.changelog import TIMESTAMP, TIMESTAMP_BYTES
from milestones.common.writable import first_timestamp

if TYPE_CHECKING:
    from milestones.common.state.changelog import HasHeaders, Layout, Log
    from milestones.common.state.layers import Staging, StoreLayers

AT_ONCE = 256
"""The number of changelog records that `records` makes before it yields them."""

NOTE_BYTES = 150
"""Memory of a noted write: its tuple, a number, a dictionary's slot."""


class Noted(NamedTuple):
    """The time and the headers of a key's last write, if the stored row doesn't contain them."""

    timestamp: int
    headers: Headers | None


NOTHING = Noted(UNKNOWN_TIMESTAMP, None)


Written: TypeAlias = tuple[bytes, bytes | None]
"""A local key, and its value. None means that the key is deleted."""


class Place(NamedTuple):
    """The topic and the partition of a changelog. `key_of`: turns a local key into the changelog's key. None means that
    both are the same."""

    topic: str
    partition: int
    key_of: Callable[[bytes], bytes] | None


def safe_order(rows: Iterable[Written]) -> list[Written]:
    """Sort the rows so that nothing is lost if a crash leaves only the first of them in Kafka.

    Deletions come last. If a row moves to another key (a put and a deletion), a crash between the two leaves the row
    twice, not never. Puts are sorted from the last key to the first one, deletions from the first key to the last one.
    This is for sliding windows. The window that ends with a record shows that the record was processed. All other
    windows that the record creates begin later, so they must be logged before this window."""
    puts = sorted((row for row in rows if row[1] is not None), key=_key_of, reverse=True)
    return puts + sorted((row for row in rows if row[1] is None), key=_key_of)


def _key_of(row: Written) -> bytes:
    return row[0]


class CommitLog:
    """The log of one store. `headers`: the headers of the deletion that is being logged. The function that logs it
    reads them here."""

    headers: Headers | None = None

    def __init__(
        self, layers: StoreLayers, touched: list[Staging], record: HasHeaders, *, rows_have_times: bool,
        rows_depend: bool = False,
    ) -> None:  # fmt: skip
        """`record`: the current record, whose headers a deletion gets. `rows_have_times`: a stored row contains its
        time (and its headers, if the kind has them). `rows_depend`: one row is computed from others (sliding
        windows)."""
        self._layers, self._touched, self._record = layers, touched, record
        self._rows_have_times, self._rows_depend = rows_have_times, rows_depend
        self._noted_scope: dict[bytes, Any] = {}
        self._noted: dict[bytes, Any] = {}
        self._noted_frozen: dict[bytes, Any] = {}
        """What is noted of a key's last write: a `Noted`, or another class of log's own notes."""
        self._scope: list[Emitted] = []
        self._emitted: list[Emitted] = []
        self._frozen: list[Emitted] = []

    # -- writes

    @property
    def knows_puts(self) -> bool:
        """True if the frozen layer contains everything that is logged for a put. Then a put needs no note."""
        return self._rows_have_times

    def note(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None = None) -> None:
        """Note the time and headers of a write. Its value will be read from the frozen layer. The store calls this as
        its `changelog.Log`."""
        if value is None:
            headers = self._record.headers
        elif self._rows_have_times:
            return
        self._join()
        self._noted_scope[key] = Noted(timestamp, headers)

    def append(self, emitted: Emitted) -> None:
        """Note a changelog record that is logged as it is. These records are logged before the last values of keys."""
        self._join()
        self._scope.append(emitted)

    def _join(self) -> None:
        if not (self._noted_scope or self._scope):
            self._touched.append(self)

    def merge(self) -> None:
        if self._noted_scope:
            self._noted |= self._noted_scope
            self._noted_scope = {}
        if self._scope:
            self._emitted += self._scope
            self._scope = []

    def drop_scope(self) -> None:
        self._noted_scope, self._scope = {}, []

    # -- the commit

    def freeze(self) -> None:
        """Freeze the notes for a commit. Later writes are noted for the next commit."""
        self._noted_frozen, self._noted = self._noted, {}
        self._frozen, self._emitted = self._emitted, []

    def records(
        self, layout: Layout, make: Callable[[Callable[[Emitted], None], HasHeaders], Log]
    ) -> Iterator[Emitted]:
        """Yield the changelog records of the frozen commit interval, one by one.

        `make` makes the store's `Log`: its first argument takes each changelog record, and its second argument has the
        headers of a deletion."""
        yield from self._frozen
        made: list[Emitted] = []
        log, rows = make(made.append, self), self._collapsed()
        while some := list(islice(rows, AT_ONCE)):
            self._log(layout, log, some)
            yield from made
            made.clear()

    def _log(self, layout: Layout, log: Log, rows: Sequence[Written]) -> None:
        noted = self._noted_frozen
        if not noted and self._rows_have_times:  # no row was deleted
            layout.log_rows(log, rows)
            return
        for key, value in rows:
            if layout.logs(key):
                timestamp, self.headers = noted.get(key, NOTHING)
                layout.log_stored(log, key, value, timestamp)

    def _collapsed(self) -> Iterator[Written]:
        rows = (self._layers.frozen() or {}).items()
        if self._rows_depend:
            return iter(safe_order(rows))
        if self._rows_have_times and not self._noted_frozen:  # no row was deleted
            return iter(rows)
        return chain((row for row in rows if row[1] is not None), (row for row in rows if row[1] is None))

    def thaw(self) -> None:
        """Give the frozen notes back to the next commit, which logs them together with later writes."""
        self._noted = self._noted_frozen | self._noted
        self._emitted = self._frozen + self._emitted
        self.applied()

    def applied(self) -> None:
        """Drop the frozen notes, because their commit is made."""
        self._noted_frozen, self._frozen = {}, []

    def abort(self) -> None:
        """Drop all notes, because everything uncommitted is rolled back."""
        self.drop_scope()
        self._noted, self._emitted = {}, []
        self.applied()

    def memory_bytes(self) -> int:
        """Estimate the memory of the notes, without the layers."""
        noted = len(self._noted) + len(self._noted_frozen)
        return NOTE_BYTES * noted + emitted_bytes(self._emitted) + emitted_bytes(self._frozen)


class TimedLog(CommitLog):
    """The log of a store whose rows begin with their time, in 8 bytes, and have no headers."""

    def __init__(
        self, layers: StoreLayers, touched: list[Staging], record: HasHeaders, place: Place,
        logs: Callable[[bytes], bool] | None,
    ) -> None:  # fmt: skip
        """`logs`: True for local keys whose rows are in the changelog. None means that all are."""
        super().__init__(layers, touched, record, rows_have_times=True)
        self._place, self._logs = place, logs

    def records(
        self, layout: Layout, make: Callable[[Callable[[Emitted], None], HasHeaders], Log]
    ) -> Iterator[Emitted]:
        written = self._layers.frozen()
        if not written or None in written.values():  # a row was deleted
            yield from super().records(layout, make)
            return
        yield from self._frozen
        (topic, partition, key_of), store, logs = self._place, self._layers.name, self._logs
        time_of, head, rows = TIMESTAMP.unpack_from, TIMESTAMP_BYTES, iter(written.items())
        while some := list(islice(rows, AT_ONCE)):
            yield from [
                (topic, stored[head:], key if key_of is None else key_of(key), partition, None, store,
                 time_of(stored)[0], None)
                for key, stored in some
                if stored is not None and (logs is None or logs(key))  # none is None
            ]  # fmt: skip


NO_KEYS: Final[AbstractSet[bytes]] = frozenset()


class RecordLog(CommitLog):
    """The log of a store whose rows have neither a time nor headers. What is noted of a write is its time.

    Under exactly once, a row that comes and goes within a commit interval, such as the former bounds of a session, has
    no record. The layers know such rows (`Layer.fresh`): when the row came, the store had none of its key. At this time
    a reader of the changelog sees the same: what it sees is the store's content, and the records of failed commits are
    those of aborted transactions, which it doesn't see. So it neither needs the row nor its deletion.
    Under at least once, records of a commit that failed, also those of another instance, may be in the changelog. They
    may come even after a restoration has read its end. So all deletions are logged."""

    def __init__(
        self, layers: StoreLayers, touched: list[Staging], record: HasHeaders, place: Place, *, transactional: bool
    ) -> None:
        """`transactional`: True under exactly once."""
        super().__init__(layers, touched, record, rows_have_times=False)
        self._place, self._store, self._transactional = place, layers.name, transactional

    def note(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None = None) -> None:
        scope = self._noted_scope
        if not scope:
            self._touched.append(self)
        scope[key] = timestamp

    def records(
        self, layout: Layout, make: Callable[[Callable[[Emitted], None], HasHeaders], Log]
    ) -> Iterator[Emitted]:
        yield from self._frozen
        (topic, partition, key_of), store, times = self._place, self._store, self._noted_frozen
        rows = self._layers.frozen()
        if rows is None:
            return
        come_and_gone = rows.fresh if self._transactional else NO_KEYS
        yield from [
            (topic, value, key if key_of is None else key_of(key), partition, None, store,
             times[key] or first_timestamp(), None)
            for key, value in rows.items()
            if value is not None and key in times
        ]  # fmt: skip
        # Deletions come last. If a row moves to another key, a crash between the two leaves the row twice, not never.
        yield from [
            (topic, None, key if key_of is None else key_of(key), partition, None, store,
             times[key] or first_timestamp(), None)
            for key, value in rows.items()
            if value is None and key in times and key not in come_and_gone
        ]  # fmt: skip


class HistoryLog(CommitLog):
    """The log of a store with a history. A commit logs all writes in order, which were noted with `append`."""

    knows_puts = False

    def _collapsed(self) -> Iterator[Written]:
        return iter(())
