"""Stores against their changelogs: a store holds what its changelog says up to the store's own offset, exactly.

| kind | what was found |
|---|---|
| stale | a key has another value than the changelog gives at the store's offset |
| missing | a key isn't in the store, or not in the table |
| extra | a key is in the store, or in the table, and shouldn't be: a lost deletion, a write that wasn't logged |
| uncommitted | a key has the value of a changelog record that was aborted, or isn't committed |
| ahead | the store says that it holds more than the changelog has |
| behind | a store that was closed cleanly doesn't have all of its changelog |
| no-offset | a store has entries but doesn't say up to where |
| nowhere | no disk has a store of a task whose changelog has records |
| too-low | at least once: a count of the changelog forgets an input |

A standby's store is judged as an active one's: neither may have what isn't committed.

*Guarantees*: pure; the byte formats are written down here once more, apart from the runtime's.
*Assumes*: the changelog partition was read from its beginning to its end, under read committed, in order. Where a store
is short of that end, nothing was compacted: what it holds may lie where the changelog has only a key's later value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from compat_tests.oracles.findings import Finding, Findings
from compat_tests.oracles.flows import Entry
from compat_tests.oracles.rows import Place, Row


@dataclass(frozen=True)
class StoreDump:
    """What a store on disk holds. `offset`: of its changelog, exclusive. Timestamped values begin with 8 bytes."""

    task: str
    store: str
    offset: int | None
    entries: Mapping[bytes, bytes]

    def __str__(self) -> str:
        return f"store {self.store} of task {self.task}"


@dataclass(frozen=True)
class Form:
    """How a kind of store keeps rows. `timed`: a local value begins with its time. `time_of`: of stores that keep rows
    for `retention_ms` only, the time of a changelog key: a local key begins with the number of its segment of time.
    `history`: its changelog needs every write, at stages that log at commits too."""

    timed: bool = True
    time_of: Callable[[bytes], int] | None = None
    retention_ms: int = 0
    history: bool = False

    def stored(self, entry: Entry) -> bytes:
        return _stored(entry) if self.timed else entry.value

    def entries(self, dump: StoreDump) -> Mapping[bytes, bytes]:
        """By changelog key; rows that only keep an order by time aren't in the changelog."""
        if self.time_of is None:
            return dump.entries
        return {key[SEGMENT:]: value for key, value in dump.entries.items() if not key.startswith(BY_TIME)}

    def must_have(self, table: Mapping[bytes, bytes], newest: int) -> Mapping[bytes, bytes]:
        """What isn't gone yet. `newest`: the highest time that the store has seen."""
        if self.time_of is None:
            return table
        return {key: value for key, value in table.items() if self.time_of(key) > newest - self.retention_ms}

    def newest(self, rows: Iterable[Row]) -> int:
        return max((self.time_of(row.key) for row in rows if row.key is not None), default=0) if self.time_of else 0


TIMED, PLAIN = Form(), Form(timed=False)
SEGMENT, BY_TIME = 8, b"\xff" * 8
"""The bytes of a segment's number, and what stands in its place where rows are in the order of time."""


def start_of(key: bytes) -> int:
    """Of a window store's changelog key: key, start (8), sequence (4)."""
    return int.from_bytes(key[-12:-4])


def end_of(key: bytes) -> int:
    """Of a session store's changelog key: key, end (8), start (8)."""
    return int.from_bytes(key[-16:-8])


def fold(rows: Iterable[Row], below: int | None = None) -> dict[bytes, Entry]:
    """The table that a changelog stands for, up to the offset `below`."""
    table: dict[bytes, Entry] = {}
    for row in rows:
        if row.key is None or (below is not None and row.offset >= below):
            continue
        if row.value is None:
            table.pop(row.key, None)
        else:
            table[row.key] = Entry(row.timestamp, row.value)
    return table


def store_equals_changelog(
    dump: StoreDump, rows: Sequence[Row], end: int, aborted: Iterable[Row] = (), form: Form = TIMED
) -> Findings:
    """`end`: the changelog's read-uncommitted end offset. `aborted`: what lies in it and isn't among the committed
    `rows`; it only serves to name what a store has and shouldn't."""
    if dump.offset is None:
        return [Finding("no-offset", f"{dump} has {len(dump.entries)} entries")] if dump.entries else []
    if dump.offset > end:
        return [Finding("ahead", f"{dump} is at offset {dump.offset}, its changelog ends at {end}")]
    table = fold(rows, dump.offset)
    right = {key: form.stored(entry) for key, entry in table.items()}
    needed = form.must_have(right, form.newest(row for row in rows if row.offset < dump.offset))
    uncommitted = {(row.key, form.stored(Entry(row.timestamp, row.value))) for row in aborted if row.value}
    return _compare(f"{dump} at offset {dump.offset}", right, form.entries(dump), uncommitted, needed)


def store_is_complete(dump: StoreDump, rows: Sequence[Row]) -> Findings:
    """After a clean close: no record of the changelog lies behind the store's offset."""
    offset = dump.offset or 0
    left = [row for row in rows if row.offset >= offset and row.key is not None]
    text = f"{dump} is at {offset}; {len(left)} records follow"
    return [Finding("behind", f"{text}, the first {left[0]}")] if left else []


def somebody_has_it_all(place: Place, dumps: Iterable[StoreDump], rows: Sequence[Row]) -> Findings:
    """After a clean close: of the stores of one task on all disks, at least one is complete."""
    found = [store_is_complete(dump, rows) for dump in dumps]
    if not found:
        return [Finding("nowhere", f"no disk has a store of {place}, which has {len(rows)} records")] if rows else []
    return min(found, key=len)


def changelog_equals_table(rows: Iterable[Row], table: Mapping[bytes, Entry]) -> Findings:
    """All partitions of a changelog together, against the reference interpreter's table."""
    folded = {key: _stored(entry) for key, entry in fold(rows).items()}
    return _compare("the changelog", {key: _stored(entry) for key, entry in table.items()}, folded)


def counts_at_least(rows: Iterable[Row], least: Mapping[bytes, int]) -> Findings:
    """All partitions of a changelog of counts together: who restores them may find too much, never too little."""
    folded = {key: int.from_bytes(entry.value) for key, entry in fold(rows).items()}
    return [
        Finding("too-low", f"the changelog has {key!r:.60} = {folded.get(key, 0)}, should have {count} at least")
        for key, count in least.items()
        if folded.get(key, 0) < count
    ]


def _stored(entry: Entry) -> bytes:
    return struct.pack(">q", entry.timestamp) + entry.value


def _compare(
    what: str,
    right: Mapping[bytes, bytes],
    found: Mapping[bytes, bytes],
    uncommitted: Container[tuple[bytes | None, bytes]] = frozenset(),
    needed: Mapping[bytes, bytes] | None = None,
) -> Findings:
    """`needed`: what of the right rows must be there, by default all."""
    lacking = (right if needed is None else needed).keys() - found.keys()
    findings = [Finding("missing", f"{what} lacks key {key!r:.60}") for key in lacking]
    for key, value in found.items():
        if right.get(key) == value:
            continue
        text = f"{what} has {key!r:.60} = {value!r:.60}"
        if (key, value) in uncommitted:
            findings.append(Finding("uncommitted", f"{text}, which was never committed"))
        elif key in right:
            findings.append(Finding("stale", f"{text}, should be {right[key]!r:.60}"))
        else:
            findings.append(Finding("extra", text))
    return sorted(findings)
