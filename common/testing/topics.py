"""How a test writes to a topology's inputs and reads its outputs.

*Guarantees*: bytes go through the given serdes both ways, as they would through Kafka.
*Assumes*: made by `TopologyTestDriver`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic

from milestones.common.records import Headers, Record
from milestones.common.serdes import Serde
from milestones.common.type_variables import K, V

if TYPE_CHECKING:
    from milestones.common.testing.driver import TopologyTestDriver


class InputTopic(Generic[K, V]):
    """An input topic. Records without a timestamp get the topic's own time, which moves by `advance_ms` per record."""

    def __init__(
        self, driver: TopologyTestDriver, name: str, key: Serde[K], value: Serde[V], start_ms: int, advance_ms: int
    ) -> None:
        if advance_ms < 0:
            raise ValueError(f"advance_ms={advance_ms}: a topic's time can't go back")
        self.name = name
        self._driver, self._key, self._value = driver, key, value
        self._now_ms, self._advance_ms = start_ms, advance_ms

    def pipe(
        self, key: K | None, value: V | None, *, timestamp: int | None = None, headers: Headers | None = None
    ) -> None:
        """One record, processed and committed with all that follows from it. Errors of the topology come out here."""
        if timestamp is None:
            timestamp = self._now_ms
            self._now_ms += self._advance_ms
        raw_key, raw_value = self._key.serialize(self.name, key), self._value.serialize(self.name, value)
        self._driver.pipe(self.name, raw_key, raw_value, timestamp, headers)

    def pipe_values(self, values: Iterable[V | None]) -> None:
        """Records without a key."""
        for value in values:
            self.pipe(None, value)

    def pipe_all(self, entries: Iterable[tuple[K | None, V | None]]) -> None:
        """A record per (key, value)."""
        for key, value in entries:
            self.pipe(key, value)

    def pipe_records(self, records: Iterable[Record[K, V]]) -> None:
        """Records with their times and headers."""
        for key, value, timestamp, headers in records:
            self.pipe(key, value, timestamp=timestamp, headers=headers)

    def advance(self, ms: int) -> None:
        """Move the topic's own time."""
        if ms < 0:
            raise ValueError(f"a topic's time can't go back by {-ms} ms")
        self._now_ms += ms


class OutputTopic(Generic[K, V]):
    """What the topology wrote to a topic (a changelog, a repartition topic too), each record read once."""

    def __init__(self, driver: TopologyTestDriver, name: str, key: Serde[K], value: Serde[V]) -> None:
        self.name = name
        self._driver, self._key, self._value = driver, key, value

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """Records not read yet."""
        return len(self._driver.unread(self.name))

    def is_empty(self) -> bool:
        """Whether all were read."""
        return not self.size()

    def read_record(self) -> Record[K, V]:
        """The next record; `LookupError` when there is none."""
        unread = self._driver.unread(self.name)
        if not unread:
            produced = ", ".join(sorted(self._driver.produced())) or "nothing at all"
            raise LookupError(f"topic {self.name} has no record left to read; topics written to: {produced}")
        output = unread.popleft()
        # None comes as the topic's types don't say, as in the rest of the language.
        key: Any = self._key.deserialize(self.name, output.key)
        value: Any = self._value.deserialize(self.name, output.value)
        return Record(key, value, output.timestamp, output.headers)

    def read_records(self) -> list[Record[K, V]]:
        """All that are left."""
        return [self.read_record() for _ in range(self.size())]

    def read_key_value(self) -> tuple[K, V]:
        """Key and value of the next record; `LookupError` when there is none."""
        record = self.read_record()
        return record.key, record.value

    def read_key_values(self) -> list[tuple[K, V]]:
        """Keys and values of all that are left."""
        return [(record.key, record.value) for record in self.read_records()]

    def read_value(self) -> V:
        """The value of the next record; `LookupError` when there is none."""
        return self.read_record().value

    def read_values(self) -> list[V]:
        """The values of all that are left."""
        return [record.value for record in self.read_records()]

    def read_key_values_to_map(self) -> dict[K, V]:
        """The last value of each key; `ValueError` for a record without a key."""
        latest: dict[K, V] = {}
        for key, value in self.read_key_values():
            if key is None:
                raise ValueError(f"topic {self.name} has a record without a key: read_key_values gives it")
            latest[key] = value
        return latest
