"""`InputTopic` and `OutputTopic`: a test writes records to a topology's inputs, and reads its outputs.

*Guarantees*: keys and values go through the given serdes in both directions, as with a real Kafka.
*Assumes*: `TopologyTestDriver` or `SteppedApplication` makes the objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol

from milestones.common import serdes
from milestones.common.records import Headers, Output, Record
from milestones.common.serdes import Serde
from milestones.common.type_variables import K, V
from milestones.common.typed_serdes import SerdeLike
from milestones.common.typed_serdes import of as serde_of

if TYPE_CHECKING:
    from milestones.common.config import StreamsConfig


class TopicDriver(Protocol):
    """What takes the records of an input topic, and has those of an output topic."""

    def pipe(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers | None = None
    ) -> None:
        """Write one record of bytes."""
        ...

    def unread(self, topic: str) -> deque[Output]:
        """Return the outputs of a topic that weren't read yet."""
        ...

    def produced(self) -> Mapping[str, Sequence[Output]]:
        """Return the outputs that weren't read yet, for every topic that was written to."""
        ...


def topic_serdes(
    config: StreamsConfig, key: SerdeLike[K] | None, value: SerdeLike[V] | None
) -> tuple[Serde[K], Serde[V]]:
    """Return the serdes of a topic: by default those of the application, or else BYTES."""
    return (
        serde_of(key or config.default_key_serde or serdes.BYTES),
        serde_of(value or config.default_value_serde or serdes.BYTES),
    )


class InputTopic(Generic[K, V]):
    """An input topic. A record without a timestamp gets the topic's own time, which `advance_ms` moves after each
    record."""

    def __init__(
        self, driver: TopicDriver, name: str, key: Serde[K], value: Serde[V], start_ms: int, advance_ms: int
    ) -> None:
        if advance_ms < 0:
            raise ValueError(f"advance_ms={advance_ms}: a topic's time can't go back")
        self.name = name
        self._driver, self._key, self._value = driver, key, value
        self._now_ms, self._advance_ms = start_ms, advance_ms

    def pipe(
        self, key: K | None, value: V | None, *, timestamp: int | None = None, headers: Headers | None = None
    ) -> None:
        """Write one record. `TopologyTestDriver` processes and commits the record immediately, with all records that
        follow from it, and raises errors of the topology here. `SteppedApplication` processes it in its next steps."""
        if timestamp is None:
            timestamp = self._now_ms
            self._now_ms += self._advance_ms
        raw_key, raw_value = self._key.serialize(self.name, key), self._value.serialize(self.name, value)
        self._driver.pipe(self.name, raw_key, raw_value, timestamp, headers)

    def pipe_values(self, values: Iterable[V | None]) -> None:
        """Write a record without a key for each value."""
        for value in values:
            self.pipe(None, value)

    def pipe_all(self, entries: Iterable[tuple[K | None, V | None]]) -> None:
        """Write a record for each (key, value)."""
        for key, value in entries:
            self.pipe(key, value)

    def pipe_records(self, records: Iterable[Record[K, V]]) -> None:
        """Write records with their own timestamps and headers."""
        for key, value, timestamp, headers in records:
            self.pipe(key, value, timestamp=timestamp, headers=headers)

    def advance(self, ms: int) -> None:
        """Move the topic's own time forward."""
        if ms < 0:
            raise ValueError(f"a topic's time can't go back by {-ms} ms")
        self._now_ms += ms


class OutputTopic(Generic[K, V]):
    """The records that the topology wrote to a topic, each read once. The topic may be a changelog or a repartition
    topic."""

    def __init__(self, driver: TopicDriver, name: str, key: Serde[K], value: Serde[V]) -> None:
        self.name = name
        self._driver, self._key, self._value = driver, key, value

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """Return the number of records that weren't read yet."""
        return len(self._driver.unread(self.name))

    def is_empty(self) -> bool:
        """Return True if all records were read."""
        return not self.size()

    def read_record(self) -> Record[K, V]:
        """Return the next record. Raises `LookupError` if there is none."""
        unread = self._driver.unread(self.name)
        if not unread:
            produced = ", ".join(sorted(self._driver.produced())) or "nothing at all"
            raise LookupError(f"topic {self.name} has no record left to read; topics written to: {produced}")
        output = unread.popleft()
        # Keys and values may be None, although the topic's types don't say so.
        key: Any = self._key.deserialize(self.name, output.key)
        value: Any = self._value.deserialize(self.name, output.value)
        return Record(key, value, output.timestamp, output.headers)

    def read_records(self) -> list[Record[K, V]]:
        """Return all records that weren't read yet."""
        return [self.read_record() for _ in range(self.size())]

    def read_key_value(self) -> tuple[K, V]:
        """Return key and value of the next record. Raises `LookupError` if there is none."""
        record = self.read_record()
        return record.key, record.value

    def read_key_values(self) -> list[tuple[K, V]]:
        """Return keys and values of all records that weren't read yet."""
        return [(record.key, record.value) for record in self.read_records()]

    def read_value(self) -> V:
        """Return the value of the next record. Raises `LookupError` if there is none."""
        return self.read_record().value

    def read_values(self) -> list[V]:
        """Return the values of all records that weren't read yet."""
        return [record.value for record in self.read_records()]

    def read_key_values_to_map(self) -> dict[K, V]:
        """Return the last value of each key. Raises `ValueError` for a record without a key."""
        latest: dict[K, V] = {}
        for key, value in self.read_key_values():
            if key is None:
                raise ValueError(f"topic {self.name} has a record without a key: read_key_values returns it")
            latest[key] = value
        return latest
