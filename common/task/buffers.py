"""A task's input: records as they came from Kafka, and which of them is next.

The next record is the one with the smallest timestamp over the partitions' heads; equal ones in the order of the
partitions, so that the order doesn't depend on how records were batched. A record that is added to an empty partition
during a call of `Runner.process` may wait for the next call. A partition that is empty may still have an older record
in Kafka (KIP-353, KIP-695):

| partition is empty and | the task |
|---|---|
| its end hasn't been reached (`reached_end`) since the last `add` | waits: there is more to fetch |
| its end has been reached | waits `max_task_idle_ms` for new records, then does without that partition |
| `max_task_idle_ms` is -1 | never waits |

*Guarantees*: a partition's records are processed in offset order. Only heads are deserialised. A record stays the head
until its boundary is made, so that the record in work still counts as waiting. The offset to commit never falls.
*Assumes*: messages without error, in offset order per partition; one thread adds records, and one, the same or another,
takes them. `now_ms` is monotonic time: a wall clock that is put back holds no task up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
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
"""A time after that of any record."""


class InputRecord(Protocol):
    """A record as Kafka's client hands it out (`confluent_kafka.Message`); its `len` is the length of the value."""

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
"""Where the timestamp of a `Head` is."""


class InputBuffer:
    """The waiting records of one partition, and the partition's position.

    `position` is the next offset to process, `stream_time` the highest timestamp processed: both as of the last
    boundary. `end` is the partition's end while it is known to be reached.

    *Concurrency*: the thread that adds writes `end`, `_added` and `_passed`. The thread that processes writes `head`,
    `_taken`, and, under the task's lock, `position` and `stream_time`, and takes from `messages`. Both write
    `_idle_since`, a mere time.
    """

    __slots__ = ("_added", "_idle_since", "_passed", "_taken", "end", "extract", "head", "messages", "partition",
                 "position", "process", "source", "stream_time")  # fmt: skip

    source: CompiledSource
    process: Process
    extract: TimestampExtractor | None

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
        """Connect the buffer to the program's source, to which the records go."""
        self.source, self.process = source, source.process
        # The default extractor does what happens without an extractor.
        self.extract = None if source.timestamp is fail_on_invalid_timestamp else source.timestamp

    def add(self, messages: Collection[InputRecord]) -> None:
        """Append records."""
        if messages:
            self._added += _bytes(messages)
            self.next_offset()  # control records that were passed stay passed
            self.end = None
            self.messages.extend(messages)
            self._idle_since = None

    def reached_end(self, position: int, now_ms: int) -> None:
        """Note that all records before `position` have been added, and that Kafka has no more at present."""
        self.end = position
        if not self.messages and self._idle_since is None:
            self._idle_since = now_ms

    def next_offset(self) -> int:
        """The offset to commit: past trailing control records once all records before them are processed."""
        end = self.end
        if end is not None and end > self._passed and not self.messages:
            self._passed = end
        return max(self.position, self._passed)

    def next_fetch(self) -> int:
        """The offset after the last record that was added."""
        try:
            return self.messages[-1].offset() + 1  # type: ignore[no-any-return]
        except IndexError:
            return self.next_offset()

    def taken(self, count: int) -> None:
        """Note that `count` records have left, with their share of the bytes."""
        left, waiting = len(self.messages), self.bytes()
        self._taken += waiting * count // (left + count) if left else waiting

    def bytes(self) -> int:
        """Memory of the waiting records, an estimate between two calls of `add`."""
        return self._added - self._taken

    def drop_behind_head(self) -> int | None:
        """Drop the records behind the head, and return the offset of the first dropped one; None when there is none.

        A batch that ends meanwhile may write an old `_taken`, which the next call puts right."""
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
        """True if the task needn't wait (any longer) for this partition, which is empty."""
        if max_idle_ms < 0:
            return True
        if self.end is None:
            return False
        since = self._idle_since
        if since is None:
            since = self._idle_since = now_ms
        return now_ms - since >= max_idle_ms


def _bytes(messages: Collection[InputRecord]) -> int:
    """Memory of records, about. (Method calls within a comprehension: a `map` over them takes four times as long.)"""
    keys = sum([len(key) for message in messages if (key := message.key())])
    headers = [found for message in messages if (found := message.headers())]
    named = [(name, value or b"") for entries in headers for name, value in entries]
    size = sum(map(len, messages)) + len(messages) * RECORD_OVERHEAD_BYTES + keys
    return size + sum(len(name) + len(value) + HEADER_OVERHEAD_BYTES for name, value in named)
