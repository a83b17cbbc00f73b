"""Tasks without topology, as far as the scheduler and its threads know them; time is a step clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from milestones.common.errors import StateBusyError, StateError
from milestones.common.records import TaskId
from milestones.common.task.lifecycle import Lifecycle, TaskState
from milestones.common.testing.clock import StepClock
from milestones.m2_processing_threads.output_room import OutputRoom


def room_of(size: int) -> OutputRoom:
    """Room for outputs, of so many bytes."""
    return OutputRoom(lambda among: max(1, size // among))


PAUSE_MS = 40
"""How long a busy engine asks for."""


class Work:
    """Takes the place of a task: `waiting` records, each of which takes `record_ms`. `error` is raised by the next
    record, when set; `cached` has something to flush after each record; `busy`: so often the engine is, before it takes
    what is to be applied, or what waits; `waits_ms`: for so long that waits for the disk."""

    def __init__(
        self, clock: StepClock, partition: int = 0, waiting: int = 0, record_ms: int = 1, sub: int = 0
    ) -> None:
        self.id = TaskId(sub, partition)
        self.clock, self.waiting, self.record_ms = clock, waiting, record_ms
        self.counters = SimpleNamespace(processed=0)
        self.lifecycle = Lifecycle(self.id)
        self.lifecycle.move(TaskState.RESTORING)
        self.initialised = self.cached = self.unflushed = self.applying = self.commit_requested = False
        self.waits_ms = 0
        self.write_due_ms: int | None = None
        self.punctuation_ms: int | None = None
        self.error: BaseException | None = None
        self.busy = 0
        self.epoch = self.bytes = self.record_bytes = self.limit = 0
        self.done: list[str] = []
        self.limits: list[int] = []
        self.input = SimpleNamespace(waiting=lambda: self.waiting, on_arrival=None)

    @property
    def state(self) -> TaskState:
        return self.lifecycle.state

    def initialise(self) -> None:
        if not self.initialised:
            self.initialised = True
            self.lifecycle.move(TaskState.READY)
            self._do("initialise")

    def _do(self, what: str) -> None:
        self.done.append(what)
        if self.error is not None:
            raise self.error

    def ready(self, now_ms: int) -> bool:
        return self.waiting > 0

    def process(self, limit: int, now_ms: int) -> int:
        self.limits.append(limit)
        self.limit, done, epoch = limit, 0, self.epoch
        while done < self.limit and self.waiting and self.epoch == epoch:
            self.clock.advance(self.record_ms)
            if self.error is not None:
                raise self.error
            self.waiting -= 1
            done += 1
            self.counters.processed += 1
            self.bytes += self.record_bytes
            self.unflushed = self.cached
        return done

    def punctuation_due(self, wall_ms: int) -> bool:
        return self.punctuation_ms is not None and self.punctuation_ms <= wall_ms

    def next_punctuation_ms(self) -> int | None:
        return self.punctuation_ms

    def punctuate(self, wall_ms: int) -> bool:
        if self.punctuation_ms is None or not self.punctuation_due(wall_ms):
            return False
        self._do("punctuate")
        self.punctuation_ms += 1_000
        return True

    def output_bytes(self) -> int:
        return self.bytes

    def interrupt(self) -> None:
        self.limit = 0

    def invalidate(self) -> None:
        self.epoch += 1

    def commit_needed(self) -> bool:
        return self.counters.processed > 0

    def request_commit(self) -> None:
        self.commit_requested = True

    def flush(self) -> None:
        if self.unflushed:
            self._do("flush")
        self.unflushed = False

    def apply(self, *, last: bool = False) -> None:
        now_ms = self.clock.monotonic_ms()
        if self.applying:
            self._apply(last)
            if self.waits_ms and self.write_due_ms is None:
                self.write_due_ms = now_ms + self.waits_ms
        if not last and self.write_due_ms is not None and now_ms >= self.write_due_ms:
            self._refuse()
            self.write_due_ms = None
            self._do("write")

    def _refuse(self) -> None:
        if self.busy:
            self.busy -= 1
            self.done.append("busy")
            raise StateBusyError("its stores", "the disk is full", "make room", PAUSE_MS)

    def _apply(self, last: bool) -> None:
        if not last:
            self._refuse()
        self.applying = False
        if self.busy:
            raise StateError("given up")
        self._do("apply")

    def end(self) -> None:
        assert not self.applying, "what is confirmed is applied before the end"
        self.lifecycle.move(TaskState.CLOSING)
        self._do("close")

    def recycle(self) -> Any:
        if self.state is not TaskState.CLOSING:
            self.end()
        self.lifecycle.move(TaskState.CLOSED)
        return SimpleNamespace(close=lambda: self.done.append("stores closed"))
