"""Calls of a store, and what a dict says that they must give.

A row of the reference is (number, timestamp, ms): `Values` says which value stands for a number, so that no object that
user code may change is shared between a store and its reference.

*Guarantees*: uses nothing of the stores but the store that it is given; whatever is wrong is kept in `wrong`, as an
error raised in user code may be skipped by a handler.
*Assumes*: one thread.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from milestones.common import serdes
from milestones.common.errors import SerializationError
from milestones.common.records import Header
from milestones.common.serdes import Serde
from milestones.common.state.changelog import TIMESTAMP
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.state.stores.stores_with_headers import ValueTimestampHeaders


class Row(NamedTuple):
    """`number`: of the value. `timestamp`: the value's own, of a plain store that of the record that put it. `headers`:
    of a store that has them."""

    number: int
    timestamp: int
    headers: tuple[Header, ...] = ()


Rows = dict[bytes, Row]
Logged = tuple[bytes, "bytes | None", int, "tuple[Header, ...]"]
"""Key, value, timestamp and headers of a changelog record."""


@dataclass(frozen=True)
class Values:
    """The values of a store. `put`, `read`: what is put for a number, and what is read then. `unwritable`: nothing that
    the serde could write."""

    serde: Serde[Any]
    put: Callable[[int], Any]
    read: Callable[[int], Any]
    unwritable: Any

    def encoded(self, number: int) -> bytes:
        return self.serde.serialize("topic", self.put(number))  # type: ignore[return-value]


def _text(number: int) -> str:
    """Among them the empty one, and one that is too long to be remembered."""
    return {0: "", 5: "long" * 150}.get(number, f"v{number}")


VALUES: Mapping[str, Values] = {
    "text": Values(serdes.STRING, _text, _text, 1),
    "lists": Values(serdes.JSON, lambda number: [number], lambda number: [number], object()),
    "whole numbers": Values(serdes.LONG, int, int, "text"),
    # A whole number that is put comes back as what the serde reads.
    "numbers": Values(serdes.DOUBLE, int, float, "text"),
}

ODD_KEYS = [
    b"", b"\x00", b"a", b"a\x00", b"a\xfe", b"a\xff", b"a\xff\x00", b"a\xff\xff", b"ab", b"b", b"\xff", b"\xff\xff",
]  # fmt: skip
SCANS = ("range", "reverse_range", "all", "reverse_all", "prefix_scan", "prefix_scan by a serializer")
WITHIN = ("freeze", "freeze", "confirm", "confirm", "thaw", "send", "void", "squeeze")
WEIGHTS = {
    "put": 6, "put_if_absent": 2, "put_raw": 2, "delete_raw": 2, "put_row": 3, "delete_row": 2, "put_all": 2,
    "get": 4, "get_raw": 2, "delete": 4, "change": 1, "scan": 6, "begin": 2, "go_on": 2, "approximate_num_entries": 1,
    "refused": 1, "fail": 2, "within": 2, "echo": 1,
}  # fmt: skip


class Draw:
    """Calls by chance. Hypothesis decides the seed and how many: drawn one by one they would use up its choices within
    a few records."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def calls(self, count: int) -> list[Any]:
        names = self._random.choices([*WEIGHTS], [*WEIGHTS.values()], k=count)
        return [self._call(name) for name in names]

    def key(self) -> bytes:
        chance = self._random
        return chance.choice(ODD_KEYS) if chance.random() < 0.6 else b"k%02d" % chance.randrange(40)

    def number(self) -> int:
        return self._random.randrange(6)

    def entries(self) -> list[tuple[bytes, int | None, int]]:
        """A few, or more than an engine's cursor takes at once."""
        chance = self._random
        if chance.random() < 0.5:
            return [(b"k%02d" % number, self.number(), 1) for number in range(chance.randrange(40))]
        some = [self.number(), self.number(), None]
        return [(self.key(), chance.choice(some), chance.randrange(1, 10)) for _ in range(chance.randrange(5))]

    def scan(self) -> Any:
        name = self._random.choice(SCANS)
        if name.endswith("all"):
            return (name,)
        return (name, self._bound()) if name.startswith("prefix") else (name, self._or_none(), self._or_none())

    def _bound(self) -> bytes:
        """Of a row, or of none."""
        chance = self._random
        return self.key() if chance.random() < 0.7 else chance.randbytes(chance.randrange(3))

    def _or_none(self) -> bytes | None:
        return None if self._random.random() < 0.2 else self._bound()

    def _call(self, name: str) -> Any:
        chance = self._random
        match name:
            case "put":
                return name, self.key(), None if chance.random() < 0.2 else self.number(), chance.randrange(1, 10)
            case "put_if_absent":
                return name, self.key(), self.number(), chance.randrange(1, 10)
            case "put_raw" | "put_row":
                return name, self.key(), self.number(), chance.randrange(1, 10)
            case "delete_raw" | "delete_row":
                return name, self.key(), chance.randrange(1, 10)
            case "put_all":
                return name, self.entries()
            case "get" | "get_raw" | "delete" | "change":
                return name, self.key()
            case "scan":
                return self.scan()
            case "begin":
                return name, self.scan()
            case "go_on":
                return name, chance.randrange(30)
            case "within":
                return name, chance.choice(WITHIN)
            case "echo":
                return name, [chance.choice([None, self.key()]) for _ in range(chance.randrange(1, 4))]
            case _:
                return (name,)


class Plain:
    """What a `key-value` store takes and gives for a row."""

    timestamped = False
    by_bytes = False
    """Operators read and write rows by the bytes of their keys."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def given(self, number: int | None, timestamp: int) -> Any:
        return None if number is None else self.values.put(number)

    def row(self, number: int, timestamp: int, now: int) -> Row:
        return Row(number, now)

    def read(self, row: Row | None) -> Any:
        return None if row is None else self.values.read(row.number)

    raw = read

    def stored(self, row: Row) -> bytes:
        """The bytes in the engine."""
        return self.values.encoded(row.number)

    def plain(self, stored: bytes) -> bytes:
        """The value in the changelog."""
        return stored

    def wrapped(self, value: Any) -> Any:
        """A value as it is put."""
        return value


class Timestamped(Plain):
    """The same of a `timestamped-key-value` store."""

    timestamped = by_bytes = True

    def given(self, number: int | None, timestamp: int) -> Any:
        value = super().given(number, timestamp)
        return None if value is None and timestamp % 2 else ValueAndTimestamp(value, timestamp)

    def row(self, number: int, timestamp: int, now: int) -> Row:
        return Row(number, timestamp)

    def read(self, row: Row | None) -> Any:
        return None if row is None else ValueAndTimestamp(self.values.read(row.number), row.timestamp)

    def raw(self, row: Row | None) -> Any:
        return None if row is None else (self.values.read(row.number), row.timestamp)

    def stored(self, row: Row) -> bytes:
        return TIMESTAMP.pack(row.timestamp) + self.values.encoded(row.number)

    def plain(self, stored: bytes) -> bytes:
        return stored[TIMESTAMP.size :]

    def wrapped(self, value: Any) -> Any:
        return ValueAndTimestamp(value, 1)


class WithHeaders(Timestamped):
    """The same of a `timestamped-key-value-with-headers` store."""

    by_bytes = False

    def given(self, number: int | None, timestamp: int) -> Any:
        if number is None:
            return None if timestamp % 2 else ValueTimestampHeaders(None, timestamp, [])
        return ValueTimestampHeaders(self.values.put(number), timestamp, [*_headers(number, timestamp)])

    def row(self, number: int, timestamp: int, now: int) -> Row:
        return Row(number, timestamp, _headers(number, timestamp))

    def read(self, row: Row | None) -> Any:
        if row is None:
            return None
        return ValueTimestampHeaders(self.values.read(row.number), row.timestamp, [*row.headers])

    def stored(self, row: Row) -> bytes:
        plain = super().stored(row)
        if not row.headers:
            return plain
        block = bytes((2 * len(row.headers),)) + b"".join(map(_written, row.headers))
        return b"".join((bytes((plain[0] + 128,)), plain[1:8], bytes((2 * len(block),)), block, plain[8:]))

    def plain(self, stored: bytes) -> bytes:
        return stored[8:] if stored[0] < 128 else stored[9 + stored[8] // 2 :]

    def wrapped(self, value: Any) -> Any:
        return ValueTimestampHeaders(value, 1, [])


def _headers(number: int, timestamp: int) -> tuple[Header, ...]:
    """The headers that stand for a row, among them none, one without a value, and one name twice."""
    return ((), (("n", b"%d" % number),), (("é", None), ("n", b""), ("n", b"%d" % timestamp)))[timestamp % 3]


def _written(header: Header) -> bytes:
    """The bytes of a header, all of whose lengths are below 64: so many, doubled, in one byte; 1 says none."""
    name, value = header[0].encode(), header[1]
    return b"".join((bytes((2 * len(name),)), name, b"\x01" if value is None else bytes((2 * len(value),)) + value))


KINDS: Mapping[str, type[Plain]] = {
    "key-value": Plain, "timestamped-key-value": Timestamped, "timestamped-key-value-with-headers": WithHeaders,
}  # fmt: skip


def in_order(rows: Rows) -> list[tuple[bytes, Row]]:
    return sorted(rows.items())


def scanned(rows: Rows, scan: Any) -> list[tuple[bytes, Row]]:
    """What a scan must give."""
    name, *bounds = scan
    if name.startswith("prefix_scan"):
        return [entry for entry in in_order(rows) if entry[0].startswith(bounds[0])]
    low, high = bounds or (None, None)
    found = [(key, row) for key, row in in_order(rows) if (low is None or low <= key) and (high is None or key <= high)]
    return found[::-1] if name.startswith("reverse") else found


def own(key: bytes | None) -> bytes | None:
    """The same bytes in an object that nobody else holds."""
    return None if key is None else bytes(bytearray(key))


class Scan:
    """A scan that was begun: the store's iterator, and what is to come of it."""

    def __init__(self, call: str, found: Iterator[Any], expected: list[Any]) -> None:
        self.call, self.found, self.expected = call, found, expected

    def read(self, count: int, wrong: list[str]) -> bool:
        """Take so many entries; False at the end."""
        for _ in range(count):
            want = self.expected.pop(0) if self.expected else None
            have = next(self.found, None)
            if not same(have, want):
                wrong.append(f"{self.call} gave {have!r} for {want!r}, then {self.expected!r} were to come")
            if have is None:
                return False
        return True


def same(have: Any, want: Any) -> bool:
    """Equal, and of the same type: 1 isn't 1.0."""
    return have == want and repr(have) == repr(want)


class Calls:
    """Calls of one store within one record (a punctuation, a test's call) whose time is `now`.

    `rows`: the reference, which the calls change. `logged`: the changelog records they must write. `scans`: those that
    were begun, by earlier records too. `committed`: how many entries a store in memory has in its engine.
    """

    def __init__(
        self, store: Any, kind: Plain, rows: Rows, now: int, scans: list[Scan], wrong: list[str], committed: int | None
    ) -> None:
        self.rows, self.logged = rows, list[Logged]()
        self._store, self._kind, self._now = store, kind, now
        self._scans, self._wrong, self.committed = scans, wrong, committed

    def perform(self, call: Any) -> None:
        name, *arguments = call
        if name in SCANS:
            self.scan(call)
        else:
            getattr(self, name)(*arguments)

    def _expect(self, call: str, have: Any, want: Any) -> None:
        if not same(have, want):
            self._wrong.append(f"{call} gave {have!r:.300}, should give {want!r:.300}")

    def _set(self, key: bytes, number: int | None, timestamp: int) -> None:
        if number is None:
            self.rows.pop(key, None)
            self.logged.append((key, None, self._now, ()))
        else:
            self._keep(key, self._kind.row(number, timestamp, self._now))

    def _keep(self, key: bytes, row: Row) -> None:
        self.rows[key] = row
        self.logged.append((key, self._kind.values.encoded(row.number), row.timestamp, row.headers))

    # -- one key

    def put(self, key: bytes, number: int | None, timestamp: int) -> None:
        self._store.put(own(key), self._kind.given(number, timestamp))
        self._set(key, number, timestamp)

    def put_raw(self, key: bytes, number: int, timestamp: int) -> None:
        if self._kind.timestamped:
            self._store.put_raw(own(key), self._kind.values.put(number), timestamp)
            self._keep(key, Row(number, timestamp))  # operators give no headers

    def delete_raw(self, key: bytes, timestamp: int) -> None:
        if self._kind.timestamped:
            self._store.delete_raw(own(key), timestamp)
            self.rows.pop(key, None)
            self.logged.append((key, None, timestamp, ()))

    def put_row(self, key: bytes, number: int, timestamp: int) -> None:
        """As an operator does it: a row is read, and then put by the bytes of its key."""
        if self._kind.by_bytes:
            data, row = self._store.row_of(own(key))
            self._expect(f"row_of({key!r})", row, self._kind.raw(self.rows.get(key)))
            encoded = self._store.put_row(data, self._kind.values.put(number), timestamp)
            self._expect(f"put_row({key!r})", encoded, self._kind.values.encoded(number))
            self._keep(key, Row(number, timestamp))

    def delete_row(self, key: bytes, timestamp: int) -> None:
        if self._kind.by_bytes:
            self._store.delete_row(self._store.bytes_of(own(key)), timestamp)
            self.rows.pop(key, None)
            self.logged.append((key, None, timestamp, ()))

    def put_if_absent(self, key: bytes, number: int, timestamp: int) -> None:
        before = self.rows.get(key)
        have = self._store.put_if_absent(own(key), self._kind.given(number, timestamp))
        self._expect(f"put_if_absent({key!r})", have, self._kind.read(before))
        if before is None:
            self._set(key, number, timestamp)

    def put_all(self, entries: list[tuple[bytes, int | None, int]]) -> None:
        self._store.put_all((own(key), self._kind.given(number, at)) for key, number, at in entries)
        for key, number, at in entries:
            self._set(key, number, at)

    def get(self, key: bytes) -> None:
        self._expect(f"get({key!r})", self._store.get(own(key)), self._kind.read(self.rows.get(key)))

    def get_raw(self, key: bytes) -> None:
        if self._kind.timestamped:
            self._expect(f"get_raw({key!r})", self._store.get_raw(own(key)), self._kind.raw(self.rows.get(key)))

    def delete(self, key: bytes) -> None:
        self._expect(f"delete({key!r})", self._store.delete(own(key)), self._kind.read(self.rows.get(key)))
        self._set(key, None, 0)

    def change(self, key: bytes) -> None:
        """User code changes the object that it was given: that is its own."""
        self.get(key)
        value = self._store.get(own(key))
        if isinstance(value, ValueTimestampHeaders):
            value.headers.append(("changed", b"by the user"))
        value = value.value if isinstance(value, ValueAndTimestamp | ValueTimestampHeaders) else value
        if isinstance(value, list):
            value.append("changed by the user")
        self.get(key)

    def refused(self) -> None:
        """What can't be a key or a value is said, and changes nothing."""
        store, unwritable = self._store, self._kind.values.unwritable
        value = self._kind.wrapped(unwritable)
        calls: list[Callable[[], Any]] = [
            lambda: store.get(None), lambda: store.put(None, value), lambda: store.put_if_absent(None, value),
            lambda: store.delete(None), lambda: store.prefix_scan(None), lambda: store.put(b"a", value),
            lambda: store.get("no bytes"), lambda: store.range("no bytes"), lambda: store.put_all([("no bytes", None)]),
        ]  # fmt: skip
        if self._kind.timestamped:
            calls += [lambda: store.put(b"a", "no row"), lambda: store.put_raw(b"a", unwritable, 1)]
        if self._kind.by_bytes:
            calls += [lambda: store.row_of("no bytes"), lambda: store.bytes_of(None)]
            calls += [lambda: store.bytes_of("no bytes"), lambda: store.put_row(b"a", unwritable, 1)]
        for number, call in enumerate(calls):
            try:
                call()
            except SerializationError:
                continue
            self._wrong.append(f"wrong arguments {number} were taken")

    # -- many keys

    def scan(self, scan: Any) -> None:
        self._expect(f"{scan}", list(self._scan(scan)), self._scanned(scan))

    def begin(self, scan: Any) -> None:
        self._scans.append(Scan(f"{scan}, begun earlier,", self._scan(scan), self._scanned(scan)))

    def go_on(self, count: int) -> None:
        self._scans[:] = [scan for scan in self._scans if scan.read(count, self._wrong)]

    def _scan(self, scan: Any) -> Iterator[Any]:
        name, *bounds = scan
        if name == "prefix_scan by a serializer":
            return self._store.prefix_scan(bounds[0].decode("latin-1"), serializer=lambda text: text.encode("latin-1"))
        if name == "reverse_range":
            return self._store.reverse_range(start=own(bounds[0]), end=own(bounds[1]))
        return getattr(self._store, name)(*map(own, bounds))

    def _scanned(self, scan: Any) -> list[Any]:
        return [(key, self._kind.read(row)) for key, row in scanned(self.rows, scan)]

    def approximate_num_entries(self) -> None:
        """An estimate but for stores in memory."""
        have = self._store.approximate_num_entries()
        want = have if self.committed is None and have >= 0 else self.committed
        self._expect("approximate_num_entries()", have, want)
