"""User code that remembers: in attributes, by schedules, by what `init` writes.

A right runtime gives it a new processor wherever records come again, so nothing of it is seen in what it writes.

*Guarantees*: as long as no record comes again to the same processor, each gives its key's count to `out`, and itself,
by a punctuation, to `ticks`.
*Assumes*: a task has one partition.
"""

from __future__ import annotations

import json

from milestones import Cancellable, Processor, ProcessorContext, Record, ValueAndTimestamp

COUNTS, WAITING, BEGUN, MOMENTS = "counts", "waiting", "begun", "moments"
"""Its stores: the counts; the records that wait for the punctuation; what `init` writes; what the wall clock does."""
OUT, TICKS = "out", "ticks"
"""Its children."""
BEGUN_AT = 1_700_000_000_000
MOMENT_MS = 20


def kept(record: Record) -> ValueAndTimestamp:
    """A record as a row of a store of text."""
    headers = [(name, (value or b"").decode()) for name, value in record.headers]
    return ValueAndTimestamp(json.dumps([record.key, record.value, headers]), record.timestamp)


def restored(row: ValueAndTimestamp) -> Record:
    """The record that was kept."""
    key, value, headers = json.loads(row.value)
    return Record(key, value, row.timestamp, [(name, text.encode()) for name, text in headers])


class Remembering(Processor):
    """Counts in an attribute, which is ahead of its store; passes on what it hasn't seen yet; schedules when there is
    something to do, and cancels that when it is done; and does something by the wall clock that no second try does
    again."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._stores = {name: context.get_state_store(name) for name in (COUNTS, WAITING, BEGUN, MOMENTS)}
        self._stores[BEGUN].put_if_absent(str(context.task_id), ValueAndTimestamp(1, BEGUN_AT))
        self._seen = set[int]()
        self._counts = {key: tuple(row) for key, row in self._stores[COUNTS].all()}
        self._scheduled: Cancellable | None = None
        if any(True for _ in self._stores[WAITING].all()):
            self._schedule()
        context.schedule(MOMENT_MS, "wall-clock-time", self._note)

    def process(self, record: Record) -> None:
        metadata = self.context.record_metadata()
        assert metadata is not None  # only a punctuation has none
        if self._stores[BEGUN].get(str(self.context.task_id)) is None:
            raise RuntimeError("what init has written is gone")
        if metadata.offset in self._seen:
            return
        self._seen.add(metadata.offset)
        count, latest = self._counts.get(record.key, (0, record.timestamp))
        counted = self._counts[record.key] = count + 1, max(latest, record.timestamp)
        self._stores[COUNTS].put(record.key, ValueAndTimestamp(*counted))
        self._stores[WAITING].put(f"{metadata.offset:09d}", kept(record))
        if self._scheduled is None:
            self._schedule()
        self.context.forward(Record(record.key, counted[0], counted[1], record.headers), OUT)

    def _schedule(self) -> None:
        self._scheduled = self.context.schedule(1, "stream-time", self._tick)

    def _tick(self, _: int) -> None:
        for place, row in list(self._stores[WAITING].all()):
            self.context.forward(restored(row), TICKS)
            self._stores[WAITING].delete(place)
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None

    def _note(self, now_ms: int) -> None:
        self._stores[MOMENTS].put(str(now_ms), ValueAndTimestamp(1, now_ms))
