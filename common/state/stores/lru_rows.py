"""The rows of an LRU store, by key and in the order of their last use.

    0 | key         -> value
    1 | number (8)  -> key
    2 | key         -> number of the last use (8)

*Guarantees*: each entry has one number. A higher number means a later use.
*Assumes*: one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from milestones.common.state.changelog import TIMESTAMP, ChangelogRecord, Log, OneRowPerRecord
from milestones.common.state.engine import EMPTY, Namespace
from milestones.common.state.layers import StoreLayers
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.versioned_layout import NothingRemembered
from milestones.common.state.stores.versions import Writable

VALUES: Final = b"\x00"
KEYS: Final = b"\x01"
NUMBERS: Final = b"\x02"


class Uses(NamedTuple):
    """`entries`: the number of entries. `eldest`: a lower bound of the lowest number of an entry. `next`: the number of
    the next use."""

    entries: int = 0
    eldest: int = 0
    next: int = 0


def found(rows: Writable) -> Uses:
    """Compute the `Uses` from the stored rows."""
    count, eldest, last = 0, 0, -1
    for local, _ in rows.scan(KEYS, NUMBERS):
        (last,) = TIMESTAMP.unpack_from(local, len(KEYS))
        eldest = eldest if count else last
        count += 1
    return Uses(count, eldest, last + 1)


def used(rows: Writable, key: bytes, uses: Uses) -> Uses:
    """Note a use of an entry. The entry may be new."""
    former = rows.get(NUMBERS + key)
    number = TIMESTAMP.pack(uses.next)
    if former is None:
        uses = uses._replace(entries=uses.entries + 1)
    elif former == TIMESTAMP.pack(uses.next - 1):
        return uses
    else:
        rows.put(KEYS + former, None)
    rows.put(KEYS + number, key)
    rows.put(NUMBERS + key, number)
    return uses._replace(next=uses.next + 1)


def gone(rows: Writable, key: bytes, uses: Uses) -> Uses:
    """Note that the entry of this key is deleted. Does nothing if there was none."""
    former = rows.get(NUMBERS + key)
    if former is None:
        return uses
    rows.put(KEYS + former, None)
    rows.put(NUMBERS + key, None)
    return uses._replace(entries=uses.entries - 1)


def eldest(rows: Writable, uses: Uses) -> tuple[bytes, Uses] | None:
    """Find the key of the entry whose last use is the longest ago. Returns None if no use is stored."""
    for number in range(uses.eldest, uses.next):
        key = rows.get(KEYS + TIMESTAMP.pack(number))
        if key is not None:
            return key, uses._replace(eldest=number)
    return None


class LruLayout(OneRowPerRecord):
    """The layout of an LRU store. The order of the changelog's records becomes the order of use. The changelog also has
    the deletions of replaced entries, so that a restoration need not replace any."""

    def __init__(self, _: StoreSpec) -> None:
        self._uses: Uses | None = None

    def restored(
        self, records: Iterable[ChangelogRecord], stored: Namespace = EMPTY
    ) -> dict[bytes, bytes | None]:
        layers = StoreLayers(stored, [], NothingRemembered())
        uses = self._uses or found(layers)
        for record in records:
            key = record.key()
            if key is not None:
                layers.put(VALUES + key, value := record.value())
                uses = (gone if value is None else used)(layers, key, uses)
        self._uses = uses
        layers.merge()
        layers.freeze()
        return dict(layers.frozen() or {})

    def log_stored(self, log: Log, key: bytes, stored: bytes | None, timestamp: int) -> None:
        log(key, stored, timestamp)

    def key_of(self, local: bytes) -> bytes:
        return local[len(VALUES) :]

    def logs(self, local: bytes) -> bool:
        return local.startswith(VALUES)
