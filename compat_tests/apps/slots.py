"""User code that scans: it keeps a key's values in a few slots, and writes all of them after each record.

*Guarantees*: no bound of a scan is held by anything but the call.
*Assumes*: keys have no `|`. `oracles/slots.py` says the same in plain Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compat_tests.oracles.slots import reads_all, slot_of
from milestones import Processor, ProcessorContext, Record, StoreSpec, ValueAndTimestamp, serdes

Rows = Iterable[tuple[str, ValueAndTimestamp]]


def slots_store(name: str, *, in_memory: bool = False) -> StoreSpec:
    return StoreSpec(
        name, "timestamped-key-value", persistent=not in_memory, key_serde=serdes.STRING, value_serde=serdes.STRING
    )


class OfAStore(Processor):
    """User code with one store, of this name."""

    def __init__(self, store: str) -> None:
        self._name = store

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: Any = context.get_state_store(self._name)


class Slots(OfAStore):
    """Records without a key or a value are passed over."""

    def process(self, record: Record) -> None:
        key, value = record.key, record.value
        if key is None or value is None:
            return
        place = f"{key}|{slot_of(value.encode())}"
        before = self._store.get(place)
        if before is not None and before.value == value:
            self._store.delete(place)
        else:
            self._store.put(place, ValueAndTimestamp(value, record.timestamp))
        scans = [_text(scan, key) for scan in self._scans(key, value)]
        self.context.forward(record.with_value("|".join(scans)))

    def _scans(self, key: str, value: str) -> Iterable[Rows]:
        store = self._store
        yield store.range(f"{key}|", f"{key}|~")
        yield store.reverse_range(f"{key}|", f"{key}|~")
        yield store.prefix_scan(f"{key}|")
        yield store.range(f"{key}|1", f"{key}|3")
        yield store.reverse_range(f"{key}|1", f"{key}|3")
        if reads_all(value.encode()):
            yield ((place, row) for place, row in store.all() if place.startswith(f"{key}|"))


def _text(rows: Rows, key: str) -> str:
    return ",".join(f"{place.removeprefix(f'{key}|')}={row.value}" for place, row in rows)
