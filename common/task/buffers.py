"""A task's input buffers: the records as they came from Kafka, and the order in which a task takes them.

The head of a partition is its first waiting record. The task's next record is the head with the smallest timestamp. Of
heads with the same timestamp, the one of the first partition is next, so that the order doesn't depend on how records
were batched. A record that is added to an empty partition during a call of `Runner.process` may wait for the next call.
For an empty partition, Kafka may still have an older record (KIP-353, KIP-695):

| partition is empty and | the task |
|---|---|
| its end hasn't been reached (`reached_end`) since the last `add` | waits: there is more to fetch |
| its end has been reached | waits `max_task_idle_ms` for new records, then processes the other partitions |
| `max_task_idle_ms` is -1 | never waits |

*Guarantees*: a partition's records are processed in offset order. Only heads are deserialised. A record stays the head
until its changes are in the boundary, so that the record in work still counts as waiting. The offset to commit never
falls.
*Assumes*: messages have no error, and come in offset order per partition. One thread adds records. One thread takes
records, which may be the same thread. `now_ms` is monotonic time, so that a wall clock that is put back delays no task.
*Why this way*: two threads use a buffer, and adding takes no lock. While records are added and processed, each field
except `_idle_since` has one writer, and `extend` and `popleft` of a deque are safe at the same time. The next record is
chosen by Kafka Streams' rules, so that Kafka Streams and this runtime process the same input in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final, Protocol

from milestones.common.records import UNKNOWN_TIMESTAMP, Headers, TopicPartition
from milestones.common.topology.compiled import CompiledSource
from milestones.common.topology.program import Process
from milestones.common.topology.timestamps import TimestampExtractor, fail_on_invalid_timestamp

RECORD_OVERHEAD_BYTES: Final = 300
"""Memory of a buffered record besides its key, value and headers: the client's message and a slot."""

HEADER_OVERHEAD_BYTES: Final = 200
"""Memory of a header besides its name and value."""

FOREVER: Final = 2**63
"""A time that is later than that of any record."""


class InputRecord(Protocol):
    """A record as Kafka's client returns it (`confluent_kafka.Message`). Its `len` is the length of the value."""

    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...
    def topic(self) -> Any: ...
    def partition(self) -> Any: ...
    def offset(self) -> Any: ...
    def __len__(self) -> int: ...


Head = tuple[Any, Any, int, "Headers | None"]
"""The next record of a partition, deserialised for its timestamp extractor: key, value, timestamp, headers."""

TIME: Final = 2
"""The index of the timestamp in a `Head`."""


ToRun = tuple[
    "deque[InputRecord]", "TimestampExtractor | None", Process, Callable[[bytes], Any], Callable[[bytes], Any],
    TopicPartition,
]  # fmt: skip
"""What the runner needs of a partition, in one object: `messages`, `extract`, the source's `process`, the deserialisers
of keys and of values, `partition`. The runner may change the partition after each record."""


class InputBuffer:
    """The waiting records of one partition, and the partition's position.

    `position` is the next offset to process. `stream_time` is the highest processed timestamp. Both are those of the
    last boundary. `end` is the end of the partition in Kafka while all records before it have been added. Otherwise
    `end` is None.

    *Concurrency*: the adding thread writes `end`, `_added` and `_passed`. The processing thread writes `head` and
    `_taken`, and takes from `messages`. The processing thread writes `position` and `stream_time` under the task's
    lock. Both threads write `_idle_since`, which does no harm, as it is only the time at which waiting began.
    """

    __slots__ = ("_added", "_idle_since", "_passed", "_taken", "end", "extract", "head", "messages", "partition",
                 "position", "source", "stream_time", "to_run")  # fmt: skip

    source: CompiledSource
    extract: TimestampExtractor | None
    to_run: ToRun

    def __init__(self, partition: TopicPartition) -> None:
        self.partition: TopicPartition = partition
        self.messages: deque[InputRecord] = deque()
        self.head: Head | None = None
        self.position: int = 0
        self.stream_time: int = UNKNOWN_TIMESTAMP
        self.end: int | None = None
        self._idle_since: int | None = None
        self._passed = 0
        self._added = self._taken = 0

    def connect(self, source: CompiledSource) -> None:
        """Connect the buffer to the program's source, which receives the records."""
        self.source = source
        # Without an extractor, the runner does what the default extractor does.
        self.extract = None if source.timestamp is fail_on_invalid_timestamp else source.timestamp
        self.to_run = self.messages, self.extract, source.process, source.read_key, source.read_value, self.partition

    def add(self, messages: Collection[InputRecord]) -> None:
        """Append records."""
        if messages:
            self._added += _bytes(messages)
            self.next_offset()  # control records that count as processed stay so
            self.end = None
            self.messages.extend(messages)
            self._idle_since = None

    def reached_end(self, position: int, now_ms: int) -> None:
        """Note that all records before `position` have been added, and that Kafka has no more at present."""
        self.end = position
        if not self.messages and self._idle_since is None:
            self._idle_since = now_ms

    def next_offset(self) -> int:
        """Return the offset to commit. When all records before trailing control records are processed, the offset after
        the control records is returned."""
        end = self.end
        if end is not None and end > self._passed and not self.messages:
            self._passed = end
        return max(self.position, self._passed)

    def next_fetch(self) -> int:
        """Return the offset after the last record that was added."""
        try:
            return self.messages[-1].offset() + 1  # type: ignore[no-any-return]
        except IndexError:
            return self.next_offset()

    def taken(self, count: int) -> None:
        """Note that `count` records have left the buffer, and subtract their share of the bytes."""
        left, waiting = len(self.messages), self.bytes()
        self._taken += waiting * count // (left + count) if left else waiting

    def bytes(self) -> int:
        """Return the memory of the waiting records. Between two calls of `add` the result is an estimate."""
        return self._added - self._taken

    def drop_behind_head(self) -> int | None:
        """Drop the records behind the head, and return the offset of the first dropped record. Returns None if there
        was none.

        If the processing thread ends a batch at the same time, it may write an old value of `_taken`. The next call
        corrects it.
        """
        messages = self.messages
        first: int | None = None
        if len(messages) > 1:
            first = messages[1].offset()
            while len(messages) > 1:
                messages.pop()
            self.end = None
        if first is not None or self._taken:
            self._added, self._taken = _bytes(messages), 0
        return first

    def seek(self, position: int, stream_time: int) -> None:
        """Drop all waiting records, and begin at `position`."""
        self.clear()
        self.position, self.stream_time = position, stream_time

    def clear(self) -> None:
        """Drop all waiting records."""
        self.messages.clear()
        self.head = self.end = self._idle_since = None
        self._passed = 0
        self._added = self._taken = 0

    def may_go_on_without(self, max_idle_ms: int, now_ms: int) -> bool:
        """True if the task needn't wait, or needn't wait any longer, for this empty partition."""
        if max_idle_ms < 0:
            return True
        if self.end is None:
            return False
        since = self._idle_since
        if since is None:
            since = self._idle_since = now_ms
        return now_ms - since >= max_idle_ms


def _bytes(messages: Collection[InputRecord]) -> int:
    """Return the approximate memory of records. (Comprehensions call the methods, as `map` takes four times as long.)
    """
    keys = sum([len(key) for message in messages if (key := message.key())])
    headers = [found for message in messages if (found := message.headers())]
    named = [(name, value or b"") for entries in headers for name, value in entries]
    size = sum(map(len, messages)) + len(messages) * RECORD_OVERHEAD_BYTES + keys
    return size + sum(len(name) + len(value) + HEADER_OVERHEAD_BYTES for name, value in named)
