"""What the other bounded stores must give, said by dicts: histories, the last used, times to live, and what operators
keep back.

*Guarantees*: uses nothing of the stores but the tuples that they give.
*Assumes*: as `model_values.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from milestones.common.state.stores.suppress_layout import Context
from milestones.common.windowed import FOREVER
from tests.common.task.storemodel.histories import History
from tests.common.task.storemodel.model_values import HISTORY_MS, MOST, TTL_MS, Model, Value, between, listed

# -- histories, the last used, times to live


class Versions(Model):
    """Each version of each key; None is a deletion."""

    def __init__(self) -> None:
        super().__init__()
        self.history = History[Value](HISTORY_MS)

    @property
    def observed(self) -> int:
        return self.history.observed

    def put(self, key: str, value: Value | None, time: int) -> int:
        return self.history.put(key, value, time)

    def put_raw(self, key: str, value: Value | None, time: int) -> None:
        self.put(key, value, time)

    def delete_raw(self, key: str, time: int) -> None:
        self.put(key, None, time)

    def delete(self, key: str, time: int) -> Any:
        former = None if self.history.too_old(time) else self.get(key, time)
        self.put(key, None, time)
        return former

    def get(self, key: str, time: int | None = None) -> Any:
        found = self.history.at(key, time)
        return None if found is None else found._replace(value=found.value.list)

    def get_as_of(self, key: str, time: int | None) -> Any:
        found = self.get(key, time)
        return None if found is None else tuple(found)

    def get_raw(self, key: str) -> Any:
        return self.get_as_of(key, None)

    def versions(self, key: str, first: int, last: int) -> Any:
        return [found._replace(value=found.value.list) for found in self.history.between(key, first, last)]

    def all(self) -> Any:
        found = {key: self.get(key) for key in self.history.all_keys()}
        return sorted(((k, v) for k, v in found.items() if v is not None), key=lambda one: one[0].encode())


class KeyValues(Model, ABC):
    """Values by key, some of which are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, Value] = {}

    def visible(self) -> list[tuple[str, Any]]:
        return sorted(((k, v.list) for k, v in self.entries.items()), key=lambda one: one[0].encode())

    @abstractmethod
    def set(self, key: str, value: Value | None) -> None: ...

    def get(self, key: str) -> Any:
        return dict(self.visible()).get(key)

    def put(self, key: str, value: Value | None) -> None:
        self.set(key, value)

    def put_if_absent(self, key: str, value: Value) -> Any:
        former = self.get(key)
        if former is None:
            self.set(key, value)
        return former

    def put_all(self, entries: Iterable[tuple[str, Value | None]]) -> None:
        for key, value in entries:
            self.set(key, value)

    def delete(self, key: str) -> Any:
        former = self.get(key)
        self.set(key, None)
        return former

    def range(self, low: str | None, high: str | None) -> Any:
        return [one for one in self.visible() if between(one[0], low, high)]

    def reverse_range(self, low: str | None, high: str | None) -> Any:
        return self.range(low, high)[::-1]

    def all(self) -> Any:
        return self.visible()

    def reverse_all(self) -> Any:
        return self.visible()[::-1]

    def prefix_scan(self, prefix: str) -> Any:
        return [one for one in self.visible() if one[0].startswith(prefix)]


class LastUsed(KeyValues):
    """The eldest entry first."""

    def set(self, key: str, value: Value | None) -> None:
        if value is not None and key not in self.entries and len(self.entries) == MOST:
            del self.entries[next(iter(self.entries))]
        self.entries.pop(key, None)
        if value is not None:
            self.entries[key] = value

    def get(self, key: str) -> Any:
        if key not in self.entries:
            return None
        self.entries[key] = self.entries.pop(key)
        return self.entries[key].list

    def approximate_num_entries(self) -> int:
        return len(self.entries)


class Expiring(KeyValues):
    """The time of a value is that of the record that put it."""

    def __init__(self) -> None:
        super().__init__()
        self.highest = -1

    def visible(self) -> list[tuple[str, Any]]:
        self.highest = max(self.highest, self.now)
        return [one for one in super().visible() if self.entries[one[0]].time >= self.highest - TTL_MS]

    def set(self, key: str, value: Value | None) -> None:
        self.highest = max(self.highest, self.now)
        self.entries.pop(key, None)
        if value is not None:
            self.entries[key] = value._replace(time=self.now)


# -- what operators keep back


class Suppressed(Model):
    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, tuple[int, Value | None, Value | None, Value | None, Context]] = {}

    def _first(self) -> str | None:
        return min(self.kept, key=lambda key: (self.kept[key][0], key.encode()), default=None)

    def keep(self, time: int, key: str, new: Value | None, old: Value | None, context: Context) -> None:
        before = self.kept.get(key)
        self.kept[key] = (*((time, old) if before is None else before[:2]), old, new, context)

    keep_row = keep

    def take_first(self) -> Any:
        key = self._first()
        if key is None:
            return None
        _, _, old, new, context = self.kept.pop(key)
        return key, (listed(new), listed(old)), context

    def first_times(self) -> Any:
        key = self._first()
        return len(self.kept), FOREVER if key is None else self.kept[key][0]

    def prior_of(self, key: str) -> Any:
        return listed(self.kept[key][1]) if key in self.kept else "absent"


class Waiting(Model):
    """Records in the order in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, Value | None, Context]] = []
        self.observed = -1

    def wait(self, key: str, value: Value | None, context: Context) -> None:
        self.observed = max(self.observed, context.timestamp)
        self.records.append((key, value, context))

    def too_late(self, time: int, grace: int) -> bool:
        return time < self.observed - grace

    def take_due(self, grace: int) -> Any:
        due = [one for one in self.records if one[2].timestamp <= self.observed - grace]
        self.records = [one for one in self.records if one[2].timestamp > self.observed - grace]
        due.sort(key=lambda one: (one[2].timestamp, one[0].encode()))
        return [(key, listed(value), context) for key, value, context in due]
