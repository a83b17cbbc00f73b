"""`ScopedCalls` makes the calls of a task that aren't for a record, each in a scope of its own: punctuations, the start
of the program, flushes of caches, functions of other code.

*Guarantees*: if a call raises an error, or its task was rolled back meanwhile, all of its changes are undone. If a
flush fails, the waiting updates stay in the cache.
*Assumes*: one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TypeVar

from milestones.common.errors import ProcessingError
from milestones.common.records import UNKNOWN_TIMESTAMP, DeadLetter, Output, TaskId, emitted_of
from milestones.common.state.record_caches import TaskCaches
from milestones.common.state.stores.rows import Rows
from milestones.common.task.boundary import Boundary, Times
from milestones.common.task.buffers import InputBuffer
from milestones.common.task.counters import TaskCounters
from milestones.common.task.failures import UNHANDLED, decide, handler_of
from milestones.common.task.punctuation import Due, Punctuation, PunctuationQueue
from milestones.common.task.scope import RecordInWork, RecordScope
from milestones.common.task.task_context import TaskSettings
from milestones.common.topology.handlers import ErrorContext, describe_error
from milestones.common.topology.tracebacks import failing_node

T = TypeVar("T")


class ScopedCalls:
    """Calls the program of one task, each call in a scope of its own.

    `stream_time` includes the record in work. The boundary's stream time is in the buffers. `limit` is the number of
    records that a call of `process` may process. If any thread lowers it, the call ends after the current record.
    `dropped` counts a skipped record of a node. `forget` makes the stores forget the uncommitted values that they have
    cached.
    """

    scope: RecordScope
    record: RecordInWork
    stream_punctuations: PunctuationQueue
    wall_punctuations: PunctuationQueue

    def __init__(
        self,
        task: TaskId,
        settings: TaskSettings,
        buffers: Sequence[InputBuffer],
        boundary: Boundary,
        counters: TaskCounters,
        caches: TaskCaches,
    ) -> None:
        self.scope, self.record = RecordScope(), RecordInWork()
        self.stream_time: int = UNKNOWN_TIMESTAMP
        self.limit: int = 0
        self.stream_punctuations, self.wall_punctuations = PunctuationQueue(), PunctuationQueue()
        self.cached: list[Rows] = []
        self.dropped: Callable[[str, str], None]
        self.forget: Callable[[], None]
        self._task, self._settings = task, settings
        self._buffers, self._boundary, self._counters, self._caches = buffers, boundary, counters, caches
        self._lock = boundary.lock
        self._epoch = 0

    # -- the scope's end

    def _merge(self, punctuation: Punctuation | None = None, now_ms: int = 0) -> None:
        """Merge a scope that has no record. Note that `punctuation`, if given, was called."""
        boundary = self._boundary
        with boundary.lock:
            if boundary.epoch != self._epoch:
                self._void()
                return
            if punctuation is not None:
                punctuation.called(now_ms)
            if self.scope:
                boundary.changed |= self.scope.to_commit
                self.scope.merge(boundary.outputs)

    def _void(self) -> None:
        """Drop a scope of an epoch that was rolled back."""
        self.scope.drop()
        self.forget()

    def _skipped(self, node: str, letters: Sequence[Output]) -> None:
        self.dropped(node, "an exception handler skips it")
        now_ms = self._settings.clock.wall_ms()
        timed = (one if one.timestamp >= 0 else one._replace(timestamp=now_ms) for one in letters)
        self.scope.outputs.extend(DeadLetter(emitted_of(one)) for one in timed)

    def settle(self) -> None:
        """Set stream time to the boundary's."""
        self.stream_time = max(buffer.stream_time for buffer in self._buffers)

    @property
    def unflushed(self) -> bool:
        """True if updates wait in caches."""
        return any(store.buffer for store in self.cached)

    def punctuation_times(self) -> Times:
        """Return the times at which punctuations are due. `take_over` uses them later."""
        return self.stream_punctuations.times(), self.wall_punctuations.times()

    def take_over(self, times: Times, now_ms: int) -> None:
        """Make the punctuations of a new program due when those of its predecessor were due. `now_ms` is the wall-clock
        time."""
        by_stream_time, by_wall_clock = times
        self.stream_punctuations.take_over(by_stream_time)
        self.wall_punctuations.take_over(by_wall_clock, now_ms)

    def unschedule(self) -> None:
        """Forget all punctuations of a program that has ended."""
        self.stream_punctuations.clear()
        self.wall_punctuations.clear()

    def punctuation_schedule(self) -> tuple[Due, Due]:
        """Return the times at which punctuations are due, by stream time and by the wall clock. The task's successor in
        another process continues with them."""
        return self.stream_punctuations.due(), self.wall_punctuations.due()

    def resume_punctuations(self, schedule: tuple[Due, Due]) -> None:
        for queue, due in zip((self.stream_punctuations, self.wall_punctuations), schedule, strict=True):
            queue.resume(due)

    # -- punctuations and flushes

    def punctuate(self, now_ms: int) -> bool:
        """Call the wall-clock punctuations that are due. Returns True if one was called."""
        self._epoch = self._boundary.epoch
        self.wall_punctuations.follow(now_ms)
        return self.wall_punctuations.run_due(now_ms, lambda punctuation: self._punctuate(punctuation, now_ms))

    def _punctuate_by_stream_time(self) -> bool:
        now_ms = self.stream_time
        self.stream_punctuations.run_due(now_ms, lambda punctuation: self._punctuate(punctuation, now_ms))
        return self._boundary.epoch == self._epoch

    def _punctuate(self, punctuation: Punctuation, now_ms: int) -> bool:
        """Call a punctuation. Returns False if the task was rolled back meanwhile. The punctuation is then due once
        more."""
        began = perf_counter_ns()
        self.record.leave(now_ms)
        self._guarded(lambda: punctuation.callback(now_ms), punctuation.node, punctuation, now_ms)
        self._counters.punctuated += 1
        self._counters.punctuate_ns += perf_counter_ns() - began
        return self._flush_if_full()

    def run_alone(self, call: Callable[[], None], node: str) -> bool:
        """Call the function that begins the program, in a scope of its own. Returns False if the task was rolled back
        meanwhile.

        Raises `ProcessingError`. No handler is asked: a program that is only partly initialised would process records
        incompletely.
        """
        self._epoch = self._boundary.epoch
        try:
            call()
        except BaseException as error:
            self.scope.drop()
            if not isinstance(error, Exception) or isinstance(error, UNHANDLED):
                raise
            where = failing_node(error) or node
            context = ErrorContext(None, -1, -1, self.record.timestamp, [], None, None, self._task, where)
            raise ProcessingError(
                f"{describe_error(context, error)}. The error will come back at the next start. Mend the code. No "
                f"handler is asked about {node}", self._task, where,
            ) from error  # fmt: skip
        self._merge()
        return self._boundary.epoch == self._epoch

    def _guarded(
        self, call: Callable[[], None], node: str, punctuation: Punctuation | None = None, now_ms: int = 0
    ) -> bool:
        """Call user code. Returns False if a handler skipped an error."""
        done = True
        try:
            call()
        except Exception as error:
            self.scope.drop()
            if isinstance(error, UNHANDLED):
                raise
            where = failing_node(error) or node
            context = ErrorContext(None, -1, -1, self.record.timestamp, [], None, None, self._task, where)
            handler, key = handler_of(error, self._settings)
            self._skipped(where, decide(handler, key, context, error))
            done = False
        except BaseException:
            self.scope.drop()
            raise
        self._merge(punctuation, now_ms)
        return done

    def call(self, function: Callable[[], T], now_ms: int) -> T:
        """Call a function that isn't part of the program, in a scope of its own, and return its result. Its errors
        reach the caller."""
        self._epoch = self._boundary.epoch
        self.record.leave(now_ms)
        try:
            result = function()
        except BaseException:
            self.scope.drop()
            raise
        self._merge()
        return result

    def _flush_if_full(self) -> bool:
        if not self._caches.hold(sum(store.buffer.bytes for store in self.cached if store.buffer)):
            self._flush()
        return self._boundary.epoch == self._epoch

    def flush(self) -> None:
        """Log and emit the updates that wait in caches. Updates that reach other caches by this are logged and emitted,
        too."""
        self._epoch = self._boundary.epoch
        self._flush()

    def _flush(self) -> None:
        self.record.most_flushes = len(self.cached)
        try:
            while waiting := [store for store in self.cached if store.buffer]:
                for store in waiting:
                    self._flush_oldest(store)
        finally:
            self.record.flushes = 0
        self._caches.release()

    def _flush_oldest(self, store: Rows) -> None:
        buffer = store.buffer
        assert buffer is not None  # cached
        key, update = buffer.oldest()
        self.record.leave(update.timestamp, update.headers, update.metadata)
        self.record.flushes = update.flushes + 1

        def emit() -> None:
            buffer.log(key, update)
            store.flush(key, update)

        try:
            if not self._guarded(emit, store.name):
                buffer.log(key, update)  # the error was skipped downstream, but the changelog needs the update
                self._merge()
        except BaseException:
            buffer.stays()
            raise
        buffer.done(key)
