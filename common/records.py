"""The small immutable values that travel between parts.

*Guarantees*: every type here is immutable and hashable, except `Record.headers`, a list that is the receiver's own.
*Assumes*: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, Self

from milestones.common.type_variables import KR, VR, K, V

Header = tuple[str, bytes | None]
"""One record header, as Kafka has it: a name, and bytes or nothing."""

Headers = list[Header]
"""Headers in the order of the record; names may repeat."""

Change = tuple[Any, Any]
"""An update of a table's row as it travels between table nodes: (new value, old value); None is absence."""


class StaleChange(tuple[Any, Any]):
    """A `Change` of a versioned table that isn't the latest of its key: it came out of order, and the row stays."""

    __slots__ = ()


def is_latest(change: Change) -> bool:
    """Whether an update is the latest of its key. Only a versioned table has others."""
    return type(change) is not StaleChange

UNKNOWN_TIMESTAMP = -1
"""A record without a timestamp, as Kafka's protocol writes it."""


class TopicPartition(NamedTuple):
    """A partition of a topic. Prints as Kafka does: `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TaskId(NamedTuple):
    """A task: sub-topology and partition. Prints as Kafka Streams does: `0_1`; also its directory's name."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}" if self.subtopology >= 0 else "global"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """The task that `text` names (`"0_1"`); `ValueError` when it names none."""
        match = re.fullmatch(r"(\d+)_(\d+)", text)
        if match is None:
            raise ValueError(f"{text!r} is not a task id: expected SUBTOPOLOGY_PARTITION, such as 0_1")
        return cls(int(match[1]), int(match[2]))


GLOBAL: Final = TaskId(-1, -1)
"""In place of a task, where an instance's global stores are meant. Prints as `global`, the name of their directory."""


class StoreId(NamedTuple):
    """One store of one task, whatever keeps it on disk. Prints as errors name it."""

    task: TaskId
    store: str

    def __str__(self) -> str:
        return f"store {self.store!r} of task {self.task}"


class _RecordFields(NamedTuple, Generic[K, V]):
    """What both kinds of records are made of."""

    key: K
    value: V
    timestamp: int
    headers: Headers


class _OwnHeaders(_RecordFields[K, V]):
    """A record with a list of headers of its own, whatever it is made of."""

    __slots__ = ()

    def __new__(cls, key: K, value: V, timestamp: int, headers: Headers | None = None) -> Self:
        return tuple.__new__(cls, (key, value, timestamp, list(headers) if headers else []))

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Self:  # type: ignore[override]  # of this class, not of any
        return cls(*iterable)

    def with_timestamp(self, timestamp: int) -> Self:
        """This record at another time, ms since the epoch."""
        return type(self)(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Self:
        """This record with a copy of `headers` in place of its own."""
        return type(self)(self.key, self.value, self.timestamp, headers)


class Record(_OwnHeaders[K, V]):
    """A record as a `Processor` sees it (KIP-820): key, value, timestamp in ms since the epoch, headers. Each record
    has a list of headers of its own, to which a processor may add."""

    __slots__ = ()

    def with_key(self, key: KR) -> Record[KR, V]:
        """This record with another key, and a copy of its headers."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: VR) -> Record[K, VR]:
        """This record with another value, and a copy of its headers."""
        return Record(self.key, value, self.timestamp, self.headers)


class FixedKeyRecord(_OwnHeaders[K, V]):
    """A record whose key stays as it is, so that nothing has to be repartitioned behind `process_values`."""

    __slots__ = ()

    def with_value(self, value: VR) -> FixedKeyRecord[K, VR]:
        """This record with another value, and a copy of its headers."""
        return FixedKeyRecord(self.key, value, self.timestamp, self.headers)


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read, and a text of at most 4 KB (the broker's limit)."""

    offset: int
    metadata: str = ""


class RecordMetadata(NamedTuple):
    """Where the record being processed came from. Absent (None) in a punctuation."""

    topic: str
    partition: int
    offset: int


Emitted = tuple[str, int, "bytes | None", "bytes | None", int, "Headers | None", str]
"""The fields of an `Output` as a plain tuple: what programs and stores hand out by the million. A named one takes twice
the time to make, and the garbage collector never lets go of it."""


_EMITTED_BYTES: Final = 250
"""Memory of an output besides its key and value: the tuple, its numbers, the objects of both."""
_SAMPLE: Final = 32
_PLACES: Final = tuple(int(65_536 * (place * 0.6180339887 % 1)) for place in range(_SAMPLE))
"""Where samples are taken, in 65,536ths: at no regular distances, as a processor's outputs may be large and small by
turns."""


def emitted_bytes(outputs: Sequence[Emitted]) -> int:
    """Memory of outputs, by the mean of `_SAMPLE` of them when there are many. Any thread may ask, of outputs that only
    grow meanwhile."""
    count = len(outputs)
    if not count:
        return 0
    sample = outputs if count <= _SAMPLE else [outputs[count * place >> 16] for place in _PLACES]
    sampled = sum([len(output[2] or b"") + len(output[3] or b"") for output in sample])
    return count * _EMITTED_BYTES + sampled * count // len(sample)


class Output(NamedTuple):
    """One record on its way to Kafka, already serialised.

    `partition` is -1 where librdkafka's murmur2 partitioner decides; `timestamp` is ms since the epoch.
    `node` is the sink node or the state store that wrote it, for errors.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers | None
    node: str
