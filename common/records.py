"""The small immutable values that the parts of the runtime pass to each other.

*Guarantees*: every type here is immutable and hashable. One exception: the list `headers` of a record can be changed.
It belongs to the receiver of the record.
*Assumes*: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, Self

from milestones.common.type_variables import KR, VR, K, V

Header = tuple[str, bytes | None]
"""One record header as in Kafka: a name, and bytes or None."""

Headers = list[Header]
"""Headers in the order of the record. Several may have the same name."""

Change = tuple[Any, Any]
"""An update of a table's row, as table nodes forward it: (new value, old value). None stands for no value."""


class StaleChange(tuple[Any, Any]):
    """A `Change` of a versioned table that isn't the latest of its key. It came out of order, and the key's latest row
    stays as it is."""

    __slots__ = ()


def is_latest(change: Change) -> bool:
    """True if an update is the latest of its key. Only versioned tables send other updates, too."""
    return type(change) is not StaleChange

UNKNOWN_TIMESTAMP = -1
"""The timestamp of a record that has none, as in Kafka's protocol."""


class TopicPartition(NamedTuple):
    """A partition of a topic. It prints as in Kafka: `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TaskId(NamedTuple):
    """A task: the numbers of its sub-topology and its partition. It prints as in Kafka Streams, such as `0_1`. The
    task's directory has the same name."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}" if self.subtopology >= 0 else "global"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """The task that `text` names, such as `"0_1"`. Raises `ValueError` if it names none."""
        match = re.fullmatch(r"(\d+)_(\d+)", text)
        if match is None:
            raise ValueError(f"{text!r} is not a task id: expected SUBTOPOLOGY_PARTITION, such as 0_1")
        return cls(int(match[1]), int(match[2]))


GLOBAL: Final = TaskId(-1, -1)
"""Stands in place of a task for the global stores of an instance. It prints as `global`, the name of their
directory."""


class StoreId(NamedTuple):
    """One store of one task, whatever engine keeps it on disk. It prints as in error texts."""

    task: TaskId
    store: str

    def __str__(self) -> str:
        return f"store {self.store!r} of task {self.task}"


class _RecordFields(NamedTuple, Generic[K, V]):
    """The fields of both kinds of records."""

    key: K
    value: V
    timestamp: int
    headers: Headers


class _OwnHeaders(_RecordFields[K, V]):
    """A record that makes its own copy of the headers it is given."""

    __slots__ = ()

    def __new__(cls, key: K, value: V, timestamp: int, headers: Headers | None = None) -> Self:
        return tuple.__new__(cls, (key, value, timestamp, list(headers) if headers else []))

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Self:  # type: ignore[override]  # of this class, not of any
        return cls(*iterable)

    def with_timestamp(self, timestamp: int) -> Self:
        """A copy of this record with another timestamp, in ms since the epoch."""
        return type(self)(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Self:
        """A copy of this record with other headers. The list `headers` is copied."""
        return type(self)(self.key, self.value, self.timestamp, headers)


class Record(_OwnHeaders[K, V]):
    """A record as a `Processor` sees it (KIP-820): key, value, timestamp in ms since the epoch, and headers. Each
    record has its own list of headers, and a processor may add headers to it."""

    __slots__ = ()

    def with_key(self, key: KR) -> Record[KR, V]:
        """A copy of this record with another key. Its headers are copied, too."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: VR) -> Record[K, VR]:
        """A copy of this record with another value. Its headers are copied, too."""
        return Record(self.key, value, self.timestamp, self.headers)


class FixedKeyRecord(_OwnHeaders[K, V]):
    """A record whose key can't be changed. So no repartitioning is needed after `process_values`."""

    __slots__ = ()

    def with_value(self, value: VR) -> FixedKeyRecord[K, VR]:
        """A copy of this record with another value. Its headers are copied, too."""
        return FixedKeyRecord(self.key, value, self.timestamp, self.headers)


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read, and a text. The broker limits the text to 4 KB."""

    offset: int
    metadata: str = ""


class RecordMetadata(NamedTuple):
    """Where the current record came from. In a punctuation there is None in its place."""

    topic: str
    partition: int
    offset: int


Emitted = tuple[str, int, "bytes | None", "bytes | None", int, "Headers | None", str]
"""The fields of an `Output` as a plain tuple. Programs and stores make millions of them. A named tuple takes twice as
long to make, and the garbage collector never stops tracking it."""


_EMITTED_BYTES: Final = 250
"""The bytes of memory that an output needs in addition to the content of its key and value."""
_SAMPLE: Final = 32
_PLACES: Final = tuple(int(65_536 * (place * 0.6180339887 % 1)) for place in range(_SAMPLE))
"""The places of the samples, in 65,536ths. Their distances are irregular, because a processor's outputs may be large
and small in turn."""


def emitted_bytes(outputs: Sequence[Emitted]) -> int:
    """Estimate the bytes of memory that outputs need. If there are many, the mean of `_SAMPLE` of them counts. Any
    thread may ask, as long as outputs are only added meanwhile."""
    count = len(outputs)
    if not count:
        return 0
    sample = outputs if count <= _SAMPLE else [outputs[count * place >> 16] for place in _PLACES]
    sampled = sum([len(output[2] or b"") + len(output[3] or b"") for output in sample])
    return count * _EMITTED_BYTES + sampled * count // len(sample)


class Output(NamedTuple):
    """One record on its way to Kafka, already serialised.

    `partition` is -1 if librdkafka's murmur2 partitioner is to choose. `timestamp` is in ms since the epoch. `node` is
    the sink node or the state store that wrote the record. Error texts name it.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers | None
    node: str
