"""The record in work, and what it has changed so far.

*Guarantees*: what a scope holds is invisible outside of the task until `merge`, and gone after `drop`: outputs, writes
to stores, and what user code asked its task for.
*Assumes*: one record (or punctuation, or flush of a cached key) at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milestones.common.records import Emitted, Headers, RecordMetadata, TopicPartition
from milestones.common.state.layers import Staging

_NOWHERE: Final = TopicPartition("", -1)


class RecordInWork:
    """The record that the task processes now (`program.RecordContext`). The task writes it, operators read it.

    `timestamp` is the input record's, ms; in a punctuation its time. `offset` is -1 outside of records. `flushes`: how
    many of them, one below the other, have led to this one; `most_flushes` may.
    """

    __slots__ = ("_flushed", "flushes", "headers", "most_flushes", "offset", "partition", "timestamp")

    def __init__(self) -> None:
        self.headers: Headers | None = None
        self.timestamp = -1
        self.partition = _NOWHERE
        self.offset = -1
        self.flushes = self.most_flushes = 0
        self._flushed: RecordMetadata | None = None

    @property
    def metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the input record; None in a punctuation."""
        if self.offset < 0:
            return self._flushed
        topic, partition = self.partition
        return RecordMetadata(topic, partition, self.offset)

    def leave(self, timestamp: int, headers: Headers | None = None, metadata: RecordMetadata | None = None) -> None:
        """No input record is in work: a punctuation, or the flush of an update that came from `metadata`."""
        self.headers, self.timestamp = headers, timestamp
        self.offset, self._flushed = -1, metadata


class Requests:
    """What user code asks its task for: to punctuate, to punctuate no more, to commit. It holds from `merge` on."""

    __slots__ = ("_asked", "_touched")

    def __init__(self, touched: list[Staging]) -> None:
        self._asked: list[Callable[[], None]] = []
        self._touched = touched

    def add(self, grant: Callable[[], None]) -> None:
        """Have `grant` called when the record is done."""
        if not self._asked:
            self._touched.append(self)
        self._asked.append(grant)

    def merge(self) -> None:
        for grant in self._asked:
            grant()
        self._asked.clear()

    def drop_scope(self) -> None:
        self._asked.clear()


class RecordScope:
    """Outputs of the record in work, the stores (and emit buffers) it has written to, and its `requests`."""

    __slots__ = ("outputs", "requests", "touched")

    def __init__(self) -> None:
        self.outputs: list[Emitted] = []
        self.touched: list[Staging] = []
        self.requests = Requests(self.touched)

    def __bool__(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.touched or self.outputs)

    @property
    def to_commit(self) -> bool:
        """Whether Kafka has to know of it: requests are the task's own."""
        return bool(self.outputs) or any(staging is not self.requests for staging in self.touched)

    def merge(self, outputs: list[Emitted]) -> None:
        """The record is done: stores keep its writes, `outputs` gets what it emitted. Under the task's lock."""
        if self.touched:
            for staging in self.touched:
                staging.merge()
            self.touched.clear()
        if self.outputs:
            outputs += self.outputs
            self.outputs.clear()

    def drop(self) -> None:
        """The record failed: nothing of it has ever been."""
        for staging in self.touched:
            staging.drop_scope()
        self.touched.clear()
        self.outputs.clear()
