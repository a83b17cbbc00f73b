"""`LruStore`: a key-value store of at most `max_entries` entries. If it is full, a new entry replaces the entry whose
last use is the longest ago.

*Guarantees*: as in Kafka Streams, the changelog first gets the deletion of the replaced entry, then the new entry. If a
record fails or the task is rolled back, the order of use is restored together with the entries. A restoration restores
the order of the writes in the changelog, because reads aren't in the changelog.
*Assumes*: as `rows.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from milestones.common.errors import StateCorruptError
from milestones.common.records import StoreId
from milestones.common.state.stores import lru_rows
from milestones.common.state.stores.key_value_stores import KeyValueStore
from milestones.common.state.stores.lru_rows import KEYS, VALUES, Uses
from milestones.common.state.stores.rows import StoreParts
from milestones.common.type_variables import K, V


class LruStore(KeyValueStore[K, V]):
    """Values by key. Only the `max_entries` entries that were used last are kept. `get` and `put` are uses, scans
    aren't."""

    __slots__ = ("_max_entries", "_uses")

    def __init__(self, parts: StoreParts) -> None:
        self._max_entries = parts.spec.max_entries
        self._uses = parts.cells.cell(f"store {parts.spec.name} uses", Uses())
        super().__init__(parts)

    def open(self) -> None:
        super().open()
        encode, decode = self._encode_key, self._decode_key
        self._encode_key = lambda key: VALUES + encode(key)
        self._decode_key = lambda local: decode(local[len(VALUES) :])
        self._uses.back(self._found())

    def get(self, key: K) -> V | None:
        value: V | None = self._get_row(key)
        if value is not None:
            self._use(self._key(key, "get")[len(VALUES) :])
        return value

    def put(self, key: K, value: V | None) -> None:
        local, encoded = self._key(key, "put"), None
        if value is not None:
            try:
                encoded = self._encode_value(value)
            except Exception as error:
                self._refused(1, value, error)
            if self._layers.get(local) is None:
                self._make_room()
        self._write(local, encoded, self._uses.value)

    def prefix_scan(self, prefix: Any, serializer: Callable[[Any], bytes] | None = None) -> Iterator[tuple[K, V]]:
        if serializer is None:
            return super().prefix_scan(prefix)
        return super().prefix_scan(prefix, lambda value: VALUES + serializer(value))

    def approximate_num_entries(self) -> int:
        """Return the exact number of entries."""
        self._check_open()
        return int(self._uses.value.entries)

    def _scan_rows(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        return super()._scan_rows(start or VALUES, end or KEYS, reverse=reverse)

    def _use(self, key: bytes) -> None:
        """Note a read of an entry."""
        self._note(lru_rows.used(self._layers, key, self._uses.value))

    def _found(self) -> Uses:
        return lru_rows.found(self._layers)

    def _make_room(self) -> None:
        """Delete the entries whose last use is the longest ago, until one more entry has room. There may be several, if
        `max_entries` was lowered."""
        while self._uses.value.entries >= self._max_entries:
            eldest = lru_rows.eldest(self._layers, self._uses.value)
            if eldest is None:
                raise self._lost_rows()
            key, uses = eldest
            self._write(VALUES + key, None, uses)

    def _lost_rows(self) -> StateCorruptError:
        entries, first, end = self._uses.value
        return StateCorruptError(
            f"store {self.name} of task {self._task} counts {entries} entries, and has none of their last uses, "
            f"{first} to {end - 1}: rows were lost on disk",
            [StoreId(self._task, self.name)],
        )

    def _write(self, local: bytes, value: bytes | None, uses: Uses) -> None:
        self._log(local, value, self._record.timestamp)
        self._layers.put(local, value)
        self._read_cache.forget(local)
        note = lru_rows.gone if value is None else lru_rows.used
        self._note(note(self._layers, local[len(VALUES) :], uses))

    def _note(self, uses: Uses) -> None:
        if uses != self._uses.value:
            self._uses.set(uses)
