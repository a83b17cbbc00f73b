"""The transactions of an application, as their coordinator wrote them down: how long each was open, who ended it, how.

| kind | what was found |
|---|---|
| left-open | a transaction that nobody has ended |
| timed-out | one that Kafka has aborted because it was older than `transaction_timeout_ms` |
| too-old | one that was open for longer than this case allows |

*Guarantees*: pure. The formats (`TransactionLogKey/Value`, versions 0 and 1) are read with a reader of their own.
*Assumes*: rows in the log's order. What compaction took is a transaction less, never a wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.group import Reader
from compat_tests.oracles.rows import Row

ONGOING, COMMITTING, ABORTING = 1, 2, 3
"""Of a transaction's states those that say something new; the others are before it or behind it."""


@dataclass(frozen=True)
class Transaction:
    """One transaction of a transactional id. `epoch`: the producer's, as it began; `began_ms`, `ended_ms`: wall clock
    of the coordinator, None: open. `fenced`: not its producer has ended it, but the coordinator or a successor."""

    id: str
    producer: int
    epoch: int
    timeout_ms: int
    began_ms: int
    ended_ms: int | None = None
    committed: bool = False
    fenced: bool = False

    @property
    def open_ms(self) -> int | None:
        """How long it was open; None: it still is."""
        return None if self.ended_ms is None else self.ended_ms - self.began_ms


@dataclass(frozen=True)
class _State:
    producer: int
    epoch: int
    timeout_ms: int
    status: int
    updated_ms: int
    began_ms: int


def transactions(prefix: str, rows: Iterable[Row]) -> list[Transaction]:
    """What the rows of `__transaction_state` say about the transactional ids that begin with `prefix`, each id's in
    order."""
    open_now: dict[str, Transaction] = {}
    found: list[Transaction] = []
    for id, state in _states(prefix, rows):
        known = open_now.get(id)
        if state.status == ONGOING and known is None:
            open_now[id] = Transaction(id, state.producer, state.epoch, state.timeout_ms, state.began_ms)
        elif state.status in (COMMITTING, ABORTING) and known is not None:
            found.append(_ended(open_now.pop(id), state))
    return found + list(open_now.values())


def _ended(known: Transaction, state: _State) -> Transaction:
    return replace(
        known,
        ended_ms=state.updated_ms,
        committed=state.status == COMMITTING,
        fenced=(known.producer, known.epoch) != (state.producer, state.epoch),
    )


def expired(prefix: str, rows: Iterable[Row]) -> set[str]:
    """The ids that Kafka has forgotten (`transactional.id.expiration.ms`), and that nobody has used since."""
    found: set[str] = set()
    for row in rows:
        id = _id(row)
        if id.startswith(prefix):
            (found.add if row.value is None else found.discard)(id)
    return found


def _states(prefix: str, rows: Iterable[Row]) -> Iterator[tuple[str, _State]]:
    for row in rows:
        if row.value is not None and (id := _id(row)).startswith(prefix):
            yield id, _state(row.value)


def _id(row: Row) -> str:
    reader = Reader(row.key or b"\xff\xff")
    return reader.text() if reader.number(">h") == 0 else ""


def _state(value: bytes) -> _State:
    reader = Reader(value)
    version = reader.number(">h")
    if version not in (0, 1):
        raise ValueError(f"TransactionLogValue has version {version}; this reader knows 0 and 1")
    producer, epoch, timeout_ms, status = (reader.number(kind) for kind in (">q", ">h", ">i", ">b"))
    if version == 0:
        for _ in range(reader.number(">i")):
            reader.text()
            reader.take(4 * reader.number(">i"))
    else:  # flexible: lengths are one more than they mean, 0 is null
        for _ in range(reader.varint() - 1):
            reader.take(reader.varint() - 1)
            reader.take(4 * (reader.varint() - 1))
            assert reader.varint() == 0, "tagged fields of partitions are unknown"
    return _State(producer, epoch, timeout_ms, status, updated_ms=reader.number(">q"), began_ms=reader.number(">q"))


def none_left_open(transactions: Iterable[Transaction]) -> Findings:
    """Everybody has ended what he began."""
    return [Finding("left-open", f"{_told(one)} is still open") for one in transactions if one.ended_ms is None]


def none_timed_out(transactions: Iterable[Transaction]) -> Findings:
    """Kafka had to end none because of its age."""
    return [
        Finding("timed-out", f"{_told(one)} was aborted by Kafka after {one.open_ms} ms of {one.timeout_ms}")
        for one in transactions
        if one.fenced and one.open_ms is not None and one.open_ms >= one.timeout_ms
    ]


def none_older(transactions: Iterable[Transaction], most_ms: int) -> Findings:
    """Each was ended in time."""
    return [
        Finding("too-old", f"{_told(one)} was open for {one.open_ms} ms, at most {most_ms} expected")
        for one in transactions
        if one.open_ms is not None and one.open_ms > most_ms
    ]


def _told(one: Transaction) -> str:
    return f"a transaction of {one.id} (producer {one.producer}, epoch {one.epoch})"
