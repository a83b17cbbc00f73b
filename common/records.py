"""Defines the small immutable values that the parts of the runtime pass to each other.

*Guarantees*: every type here is immutable and hashable. One exception: the list `headers` of a record can be changed by
the receiver of the record.
*Assumes*: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, Self

from milestones.common.type_variables import KR, VR, K, V

Header = tuple[str, bytes | None]
"""One record header as in Kafka: a name, and bytes or None."""

Headers = list[Header]
"""The headers of a record, in the record's order. Several headers may have the same name."""

Change = tuple[Any, Any]
"""An update of a table's row, as table nodes forward it: (new value, old value). None stands for no value."""


class StaleChange(tuple[Any, Any]):
    """A `Change` of a versioned table that came out of order. The table already has a newer row for the key, and keeps
    it."""

    __slots__ = ()


def is_latest(change: Change) -> bool:
    """True if an update is the latest of its key. Only versioned tables send updates that aren't the latest."""
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
        """Returns the task that `text` names, such as `"0_1"`. Raises `ValueError` if `text` isn't a task id."""
        match = re.fullmatch(r"(\d+)_(\d+)", text)
        if match is None:
            raise ValueError(f"{text!r} is not a task id: expected SUBTOPOLOGY_PARTITION, such as 0_1")
        return cls(int(match[1]), int(match[2]))


GLOBAL: Final = TaskId(-1, -1)
"""The task id that is used for the global stores of an instance, which belong to no task. It prints as `global`. The
directory of global stores has the same name."""


class StoreId(NamedTuple):
    """One store of one task, in any engine. `str` returns it as error texts name it."""

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
    """Base class of records. The constructor copies the list of headers."""

    __slots__ = ()

    def __new__(cls, key: K, value: V, timestamp: int, headers: Headers | None = None) -> Self:
        return tuple.__new__(cls, (key, value, timestamp, list(headers) if headers else []))

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Self:  # type: ignore[override]  # of this class, not of any
        return cls(*iterable)

    def with_timestamp(self, timestamp: int) -> Self:
        """Returns a copy of this record with another timestamp, in ms since the epoch."""
        return type(self)(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Self:
        """Returns a copy of this record with other headers. The list `headers` is copied."""
        return type(self)(self.key, self.value, self.timestamp, headers)


class Record(_OwnHeaders[K, V]):
    """A record as a `Processor` sees it (KIP-820): key, value, timestamp in ms since the epoch, and headers. Each
    record has its own list of headers, and a processor may add headers to it."""

    __slots__ = ()

    def with_key(self, key: KR) -> Record[KR, V]:
        """Returns a copy of this record with another key. The headers are copied, too."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: VR) -> Record[K, VR]:
        """Returns a copy of this record with another value. The headers are copied, too."""
        return Record(self.key, value, self.timestamp, self.headers)


class FixedKeyRecord(_OwnHeaders[K, V]):
    """A record whose key can't be changed. `process_values` uses it, so that its result needs no repartitioning."""

    __slots__ = ()

    def with_value(self, value: VR) -> FixedKeyRecord[K, VR]:
        """Returns a copy of this record with another value. The headers are copied, too."""
        return FixedKeyRecord(self.key, value, self.timestamp, self.headers)


class OffsetAndMetadata(NamedTuple):
    """A committed offset (the next offset to read) and its metadata, a text. By default the broker accepts up to 4 KB
    of metadata."""

    offset: int
    metadata: str = ""


class RecordMetadata(NamedTuple):
    """The topic, partition and offset of the current record. During a punctuation there is no current record, and
    processors get None."""

    topic: str
    partition: int
    offset: int


Emitted = tuple[
    str, "bytes | None", "bytes | None", int, "Callable[..., None] | None", str, int, "Headers | None"
]  # fmt: skip
"""An output that waits to be sent: a plain tuple with the arguments of confluent-kafka's `Producer.produce`, in their
order. So one call of C code hands over many outputs.

| argument of `produce` | here |
|---|---|
| topic, value, key, partition | as in an `Output` |
| callback | None; `OutputProducer` puts the delivery report here |
| on_delivery | the node: the client ignores this argument if it is given a callback, even None |
| timestamp, headers | as in an `Output` |

Programs and stores make millions of these tuples. Making a named tuple takes twice as long. The garbage collector stops
tracking a tuple of strings, bytes and numbers when it first finds it. It never stops tracking a named tuple, or a tuple
with an object of a class that is written in Python, such as a subclass of `str` that knows its node. `output_of` and
`emitted_of` convert between both kinds of output."""

TOPIC: Final = 0
VALUE: Final = 1
KEY: Final = 2
PARTITION: Final = 3
REPORT: Final = 4
NODE: Final = 5
"""Places of fields in an `Emitted`."""


class DeadLetter(Emitted):
    """An `Emitted` that an exception handler has made, for the node that failed. No sink and no store makes one."""

    __slots__ = ()


_EMITTED_BYTES: Final = 250
"""The bytes of memory that an output needs in addition to the content of its key and value."""
_SAMPLE: Final = 32
_PLACES: Final = tuple(int(65_536 * (place * 0.6180339887 % 1)) for place in range(_SAMPLE))
"""The places of the samples in the list of outputs, in 65,536ths of its length. Their distances are irregular, because
a processor may write large and small outputs in a regular pattern."""


def emitted_bytes(outputs: Sequence[Emitted]) -> int:
    """Estimate the bytes of memory that outputs need. If there are more than `_SAMPLE`, only a sample of them is
    measured. Any thread may call it, if other threads only add outputs meanwhile."""
    count = len(outputs)
    if not count:
        return 0
    sample = outputs if count <= _SAMPLE else [outputs[count * place >> 16] for place in _PLACES]
    sampled = sum([len(output[KEY] or b"") + len(output[VALUE] or b"") for output in sample])
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


def output_of(emitted: Emitted) -> Output:
    """Return the output with names for its fields."""
    topic, value, key, partition, _, node, timestamp, headers = emitted
    return Output(topic, partition, key, value, timestamp, headers, node)


def emitted_of(output: Output) -> Emitted:
    """Return the output as a plain tuple, without a delivery report."""
    topic, partition, key, value, timestamp, headers, node = output
    return topic, value, key, partition, None, node, timestamp, headers


def with_report(outputs: Iterable[Emitted], report: Callable[..., None]) -> list[Emitted]:
    """Return the outputs, each with this delivery report. The client calls it when it knows what became of the output.
    """
    return [
        (topic, value, key, partition, report, node, timestamp, headers)
        for topic, value, key, partition, _, node, timestamp, headers in outputs
    ]
