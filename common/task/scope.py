"""The record that a task is processing, and the changes that it has made so far.

*Guarantees*: a scope's outputs, writes and requests are invisible outside of the task until `merge`. `drop` removes
them.
*Assumes*: one record (or punctuation, or flush of a cached key) at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milestones.common.records import Emitted, Headers, RecordMetadata, TopicPartition
from milestones.common.state.layers import Staging
from milestones.common.topology.program import Former

_NOWHERE: Final = TopicPartition("", -1)


class RecordInWork:
    """The record that the task processes now (`program.RecordContext`). The task writes its fields, operators read
    them.

    `timestamp` (ms) is that of the input record, or the time of a punctuation. `offset` is -1 outside of records.
    `flushes` is the depth of nested flushes that have led to the current one. `most_flushes` is the limit of this
    depth.
    """

    __slots__ = ("_flushed", "flushes", "headers", "most_flushes", "offset", "partition", "timestamp")

    flushes: int
    most_flushes: int

    def __init__(self) -> None:
        self.headers: Headers | None = None
        self.timestamp: int = -1
        self.partition: TopicPartition = _NOWHERE
        self.offset: int = -1
        self.flushes = self.most_flushes = 0
        self._flushed: RecordMetadata | None = None

    @property
    def metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the input record. During a flush, those of the record that made the update.
        None in a punctuation."""
        if self.offset < 0:
            return self._flushed
        partition = self.partition
        # Half the steps of a call of the class.
        return tuple.__new__(RecordMetadata, (partition[0], partition[1], self.offset))

    def stand_in(self, timestamp: int, headers: Headers | None, metadata: RecordMetadata | None) -> Former:
        """Replace the record in work by a record that was kept back. Returns the state of the record in work, for
        `resume`."""
        former = self.headers, self.timestamp, self.offset, self._flushed
        self.leave(timestamp, headers, metadata)
        return former

    def resume(self, former: Former) -> None:
        """Restore the record in work, whose state `stand_in` returned."""
        self.headers, self.timestamp, self.offset, self._flushed = former

    def leave(self, timestamp: int, headers: Headers | None = None, metadata: RecordMetadata | None = None) -> None:
        """Note that no input record is in work, but a punctuation or a flush. `metadata`: for a flush, the record that
        made the update."""
        self.headers, self.timestamp = headers, timestamp
        self.offset, self._flushed = -1, metadata


class Requests:
    """The requests of user code to its task (schedule, cancel, commit). The requests take effect at `merge`."""

    __slots__ = ("_asked", "_touched")

    def __init__(self, touched: list[Staging]) -> None:
        self._asked: list[Callable[[], None]] = []
        self._touched = touched

    def add(self, grant: Callable[[], None]) -> None:
        """Call `grant` when the record is done."""
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
    """The outputs of the record in work, the stores and emit buffers that it has written to, and its `requests`."""

    __slots__ = ("outputs", "requests", "touched")

    def __init__(self) -> None:
        self.outputs: list[Emitted] = []
        self.touched: list[Staging] = []
        self.requests: Requests = Requests(self.touched)

    def __bool__(self) -> bool:
        """True if the scope has any change."""
        return bool(self.touched or self.outputs)

    @property
    def to_commit(self) -> bool:
        """True if the scope has outputs or writes, which must be committed. Requests alone need no commit."""
        return bool(self.outputs) or any(staging is not self.requests for staging in self.touched)

    def merge(self, outputs: list[Emitted]) -> None:
        """End the record: merge its writes into the stores, and append its outputs to `outputs`. The caller holds the
        task's lock."""
        if self.touched:
            for staging in self.touched:
                staging.merge()
            self.touched.clear()
        if self.outputs:
            outputs += self.outputs
            self.outputs.clear()

    def drop(self) -> None:
        """Drop all changes of a record that failed."""
        for staging in self.touched:
            staging.drop_scope()
        self.touched.clear()
        self.outputs.clear()
