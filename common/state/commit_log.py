"""The log of a store that logs at a commit instead of at each write: its changelog records of one interval.

| | what is logged |
|---|---|
| keys collapse | the last value of each key, which is that of the frozen layer: no second copy of it |
| a history (`Kind.history`) | every write, in order |

    write ---> scope ---merge---> this interval's ---freeze---> frozen ---applied---> gone
                 | failed                ^                        |
                 v                       +---------thaw-----------+
               dropped

*Guarantees*: the records of a frozen interval can be made again, the same, until it is applied. No interval logs a
write of a record that failed. A record has the time and the headers that it would have at its write.
A crash may leave the first part of an interval's records in Kafka; where keys collapse, they are in `safe_order`.
*Assumes*: as `layers.py`, whose frozen layer is frozen, thawed and applied together with this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from milestones.common.records import UNKNOWN_TIMESTAMP, Emitted, Headers, emitted_bytes

if TYPE_CHECKING:
    from milestones.common.state.changelog import HasHeaders, Layout, Log
    from milestones.common.state.layers import Staging, StoreLayers

AT_ONCE = 256
"""Records that are made in one go."""

NOTE_BYTES = 150
"""Memory of a write's time: its tuple, a number, a dictionary's slot."""


class Noted(NamedTuple):
    """What a row doesn't say of its last write."""

    timestamp: int
    headers: Headers | None


NOTHING = Noted(UNKNOWN_TIMESTAMP, None)


Written: TypeAlias = tuple[bytes, bytes | None]
"""A local key, and its value; None: it is deleted."""


def safe_order(rows: Iterable[Written]) -> list[Written]:
    """The rows in an order of which each first part may be all that Kafka has. An example: a row moves to another key,
    which is a put and a deletion; the put comes first, or a crash between them would lose both. So deletions come last.
    Puts go from the last key to the first one, deletions the other way: the sliding window that ends with a record says
    that this record was here, and the other windows that the record makes begin later."""
    puts = sorted((row for row in rows if row[1] is not None), key=_key_of, reverse=True)
    return puts + sorted((row for row in rows if row[1] is None), key=_key_of)


def _key_of(row: Written) -> bytes:
    return row[0]


class CommitLog:
    """The log of one store. `headers`: of the deletion that `records` is about, for the function that logs it."""

    headers: Headers | None = None

    def __init__(
        self, layers: StoreLayers, touched: list[Staging], record: HasHeaders, *, rows_have_times: bool,
        rows_depend: bool = False,
    ) -> None:  # fmt: skip
        """`record`: the one in work, whose headers a deletion has. `rows_depend`: rows follow from one another."""
        self._layers, self._touched, self._record = layers, touched, record
        self._rows_have_times, self._rows_depend = rows_have_times, rows_depend
        self._noted_scope: dict[bytes, Noted] = {}
        self._noted: dict[bytes, Noted] = {}
        self._noted_frozen: dict[bytes, Noted] = {}
        self._scope: list[Emitted] = []
        self._emitted: list[Emitted] = []
        self._frozen: list[Emitted] = []

    # -- writes

    @property
    def knows_puts(self) -> bool:
        """True if the frozen layer has all that there is to log of a put, so that none need be noted."""
        return self._rows_have_times

    def note(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None = None) -> None:
        """Note a write whose value the frozen layer will have; the store calls this as its `changelog.Log`."""
        if value is None:
            headers = self._record.headers
        elif self._rows_have_times:
            return
        self._join()
        self._noted_scope[key] = Noted(timestamp, headers)

    def append(self, emitted: Emitted) -> None:
        """Note a changelog record that is logged as it is, before the last values of keys."""
        self._join()
        self._scope.append(emitted)

    def _join(self) -> None:
        if not (self._noted_scope or self._scope):
            self._touched.append(self)

    def merge(self) -> None:
        self._noted |= self._noted_scope
        self._emitted += self._scope
        self.drop_scope()

    def drop_scope(self) -> None:
        self._noted_scope, self._scope = {}, []

    # -- the commit

    def freeze(self) -> None:
        """Make this interval's log that of the commit; later writes are the next interval's."""
        self._noted_frozen, self._noted = self._noted, {}
        self._frozen, self._emitted = self._emitted, []

    def records(
        self, layout: Layout, make: Callable[[Callable[[Emitted], None], HasHeaders], Log]
    ) -> Iterator[Emitted]:
        """The changelog records of the frozen interval, one by one. `make`: makes the function that gives its first
        argument the records of writes; its second one has the headers of a deletion."""
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
        """Leave the interval to the next one: it is logged again, once, with what came later."""
        self._noted = self._noted_frozen | self._noted
        self._emitted = self._frozen + self._emitted
        self.applied()

    def applied(self) -> None:
        """Forget the interval, which is committed."""
        self._noted_frozen, self._frozen = {}, []

    def abort(self) -> None:
        """Forget all that isn't committed."""
        self.drop_scope()
        self._noted, self._emitted = {}, []
        self.applied()

    def memory_bytes(self) -> int:
        """Memory of the notes, without the layers, about."""
        noted = len(self._noted) + len(self._noted_frozen)
        return NOTE_BYTES * noted + emitted_bytes(self._emitted) + emitted_bytes(self._frozen)


class HistoryLog(CommitLog):
    """The log of a store whose keys don't collapse: only what was appended."""

    knows_puts = False

    def _collapsed(self) -> Iterator[Written]:
        return iter(())
