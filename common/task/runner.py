"""`Runner`, the heart of a task: one record after the other through the program, each in a scope of its own.

One record:
1. look at the head; deserialise it; find its timestamp (a record that can't be read, or has none, is skipped);
2. advance stream time, call the program;
3. if that raised: drop the scope, ask the handler, skip the record or stop before it;
4. merge the scope: stores, outputs, offset and stream time become the next boundary, the head leaves;
5. call the stream-time punctuations that became due, flush caches that are full, each call in a scope of its own.

*Guarantees*: after an error the task stands at its last boundary, and the record is the next one again.
*Assumes*: one thread at a time; nothing in a program keeps the record in work beyond its call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, TypeVar

from milestones.common.diagnostics import text_of
from milestones.common.errors import MilestonesError, ProcessingError
from milestones.common.records import UNKNOWN_TIMESTAMP, Headers, Output, TaskId
from milestones.common.state.record_caches import TaskCaches
from milestones.common.state.stores.rows import Rows
from milestones.common.task.boundary import Boundary, Times
from milestones.common.task.buffers import FOREVER, TIME, Head, InputBuffer, InputRecord
from milestones.common.task.counters import TaskCounters
from milestones.common.task.failures import UNHANDLED, decide, handler_of
from milestones.common.task.punctuation import Due, Punctuation, PunctuationQueue
from milestones.common.task.scope import RecordInWork, RecordScope
from milestones.common.task.task_context import TaskSettings
from milestones.common.topology.compiled import CompiledSource
from milestones.common.topology.handlers import ErrorContext, describe_error
from milestones.common.topology.timestamps import SourceRecord, invalid_timestamp
from milestones.common.topology.tracebacks import failing_node

T = TypeVar("T")


class Runner:
    """Runs the program of one task.

    `stream_time` is that of the record in work; the boundary's stream time is in the buffers. `limit`: how many records
    a call of `process` may do; when any thread lowers it, the call ends at the next boundary. `dropped` counts a
    skipped record of a node; `forget` makes the stores forget remembered uncommitted values.
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

    # -- records

    def process(self, limit: int, now_ms: int) -> int:
        """Process at most `limit` records, and return their number, with skipped ones."""
        self._epoch, self.limit = self._boundary.epoch, limit
        if self.stream_time >= self.stream_punctuations.next_ms and not self._punctuate_by_stream_time():
            return 0
        if len(self._buffers) == 1:
            return self._run(self._buffers[0], limit, FOREVER)
        return self._run_oldest(now_ms)

    def _run(self, buffer: InputBuffer, most: int, before: int) -> int:  # noqa: C901 - see below
        """Process at most so many records of a partition, in order, the first one and what follows with a timestamp
        less than `before`: steps 1 to 5, in one frame, as calls would cost more than the steps."""
        messages, extract, process = buffer.messages, buffer.extract, buffer.process
        read_key, read_value = buffer.source.read_key, buffer.source.read_value
        boundary, epoch, record, punctuations = self._boundary, self._epoch, self.record, self.stream_punctuations
        acquire, release = self._lock.acquire, self._lock.release
        touched, outputs = self.scope.touched, self.scope.outputs
        record.partition = buffer.partition
        head, buffer.head = buffer.head, None
        done, go_on = 0, True
        try:
            while go_on and done < most and done < self.limit and messages:
                message = messages[0]
                if head is not None:
                    key, value, timestamp, headers = head
                    head = None
                else:
                    headers, key, value = message.headers(), message.key(), message.value()
                    try:
                        if key is not None:
                            key = read_key(key)
                        if value is not None:
                            value = read_value(value)
                    except Exception as error:
                        go_on = self._skip_unreadable(buffer, message, error)
                        done += 1
                        continue
                    timestamp = message.timestamp()[1]
                    if extract is not None or timestamp < 0:
                        timestamp = self._timestamp(buffer, message, key, value, timestamp, headers)
                        if timestamp < 0:
                            go_on = self._skip_timeless(buffer, message)
                            done += 1
                            continue
                    if timestamp >= before:
                        buffer.head = key, value, timestamp, headers
                        break
                record.headers, record.timestamp = headers, timestamp
                record.offset = offset = message.offset()
                if timestamp > self.stream_time:
                    self.stream_time = timestamp
                try:
                    process(key, value, timestamp)
                except Exception as error:
                    if boundary.epoch == epoch:  # else it doesn't matter any more
                        self._failed(buffer, message, timestamp, error)
                except BaseException:
                    self._stay()
                    raise
                acquire()
                try:
                    if boundary.epoch != epoch:
                        self._void()
                        done += 1
                        break
                    if touched:
                        for staging in touched:
                            staging.merge()
                        touched.clear()
                    if outputs:
                        boundary.outputs += outputs
                        outputs.clear()
                    messages.popleft()
                    buffer.position = offset + 1
                    if timestamp > buffer.stream_time:
                        buffer.stream_time = timestamp
                    boundary.changed = True
                finally:
                    release()
                done += 1
                if self.stream_time >= punctuations.next_ms:
                    go_on = self._punctuate_by_stream_time()
                if self.cached and go_on:
                    go_on = self._flush_if_full()
        finally:
            buffer.taken(done)
            self._counters.processed += done
        return done

    def _run_oldest(self, now_ms: int) -> int:
        """Process several partitions: always the head with the smallest timestamp, of equals the first partition's,
        once no older one can come."""
        done, max_idle_ms = 0, self._settings.max_task_idle_ms
        while done < self.limit and self._boundary.epoch == self._epoch:
            earliest, before, first = FOREVER, FOREVER, None
            for buffer in self._buffers:
                head = buffer.head or self._load_head(buffer)
                if head is None:
                    if not buffer.may_go_on_without(max_idle_ms, now_ms):
                        return done
                elif head[TIME] < earliest:
                    earliest, before, first = head[TIME], earliest, buffer
                elif head[TIME] < before:
                    before = head[TIME] + 1  # an equal one of an earlier partition comes first
            if first is None:
                return done
            done += self._run(first, self.limit - done, before)
        return done

    def _load_head(self, buffer: InputBuffer) -> Head | None:
        """Deserialise the head of a partition, skipping unreadable records. None when no record is left."""
        messages, source, go_on = buffer.messages, buffer.source, True
        while go_on and messages:
            message = messages[0]
            headers = message.headers()
            try:
                key, value = message.key(), message.value()
                if key is not None:
                    key = source.read_key(key)
                if value is not None:
                    value = source.read_value(value)
            except Exception as error:
                go_on = self._skip_unreadable(buffer, message, error)
                buffer.taken(1)
                self._counters.processed += 1
                continue
            timestamp = message.timestamp()[1]
            if buffer.extract is not None or timestamp < 0:
                timestamp = self._timestamp(buffer, message, key, value, timestamp, headers)
            if timestamp >= 0:
                buffer.head = key, value, timestamp, headers
                return buffer.head
            go_on = self._skip_timeless(buffer, message)
            buffer.taken(1)
            self._counters.processed += 1
        return None

    def _skip(self, buffer: InputBuffer, offset: int) -> bool:
        """Step 4 of a record that isn't processed; False when the task was rolled back meanwhile."""
        boundary = self._boundary
        with boundary.lock:
            if boundary.epoch != self._epoch:
                self._void()
                return False
            self.scope.merge(boundary.outputs)
            buffer.messages.popleft()
            buffer.position = offset + 1
            boundary.changed = True
        return True

    def _merge(self, punctuation: Punctuation | None = None, now_ms: int = 0) -> None:
        """Merge a scope without a record, and note that the punctuation was called."""
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

    # -- records that fail

    def _failed(self, buffer: InputBuffer, message: InputRecord, timestamp: int, error: Exception) -> None:
        """Answer an error of the program: return when the handler skips the record, else raise; the record is the next
        one then."""
        self.scope.drop()
        try:
            if isinstance(error, UNHANDLED):
                raise error
            node = failing_node(error) or buffer.source.node
            handler, key = handler_of(error, self._settings)
            letters = decide(handler, key, self._context(message, timestamp, node), error)
        except BaseException:
            self._stay()
            raise
        self._skipped(node, letters)

    def _skip_unreadable(self, buffer: InputBuffer, message: InputRecord, error: Exception) -> bool:
        """Answer an error of a deserialiser: the handler's text names serde and topic, as the source's own errors
        do."""
        source, key = buffer.source, "deserialization_exception_handler"
        self.record.partition, self.record.offset = buffer.partition, message.offset()
        try:
            context = self._context(message, message.timestamp()[1], source.node)
            letters = decide(self._settings.deserialization_handler, key, context, _explained(source, message, error))
        except BaseException:
            self._stay()
            raise
        self._skipped(source.node, letters)
        return self._skip(buffer, message.offset())

    def _skip_timeless(self, buffer: InputBuffer, message: InputRecord) -> bool:
        self.record.partition, self.record.offset = buffer.partition, message.offset()
        self.dropped(buffer.source.node, "negative timestamp")
        return self._skip(buffer, message.offset())

    def _skipped(self, node: str, letters: Sequence[Output]) -> None:
        self.dropped(node, "an exception handler skips it")
        now_ms = self._settings.clock.wall_ms()
        self.scope.outputs.extend(one if one.timestamp >= 0 else one._replace(timestamp=now_ms) for one in letters)

    def _timestamp(
        self, buffer: InputBuffer, message: InputRecord, key: Any, value: Any, own: int, headers: Headers | None
    ) -> int:
        """The timestamp by the source's extractor; an extractor that raises stops the task before the record."""
        topic, partition = buffer.partition
        try:
            if buffer.extract is None:
                raise invalid_timestamp(topic, partition, message.offset(), own)
            record = SourceRecord(key, value, own, topic, partition, message.offset(), list(headers or ()))
            timestamp: Any = buffer.extract(record, buffer.stream_time)
            if not isinstance(timestamp, int) or timestamp >= FOREVER:
                raise TypeError(f"expected milliseconds as an int of 64 bits, not {timestamp!r}")
            return timestamp
        except Exception as error:
            self._stay()
            why = text_of(error)
            if not isinstance(error, MilestonesError):
                why = f"the timestamp extractor raised {type(error).__name__}: {why}; mend it, or the data"
            raise ProcessingError(
                f"task {self._task}, source {buffer.source.node}, record {topic}-{partition}@{message.offset()}: no "
                f"timestamp: {why}", self._task, buffer.source.node,
            ) from error  # fmt: skip

    def _stay(self) -> None:
        """Keep the head that failed as the head, and take stream time back to the boundary's."""
        self.scope.drop()
        self.settle()

    def settle(self) -> None:
        """Set stream time to the boundary's."""
        self.stream_time = max(buffer.stream_time for buffer in self._buffers)

    def _context(self, message: InputRecord, timestamp: int, node: str) -> ErrorContext:
        return ErrorContext(
            message.topic(), message.partition(), message.offset(), timestamp, list(message.headers() or ()),
            message.key(), message.value(), self._task, node,
        )  # fmt: skip

    @property
    def unflushed(self) -> bool:
        """Whether updates wait in caches."""
        return any(store.buffer for store in self.cached)

    def punctuation_times(self) -> Times:
        """The times at which punctuations are due, for a later `take_over`."""
        return self.stream_punctuations.times(), self.wall_punctuations.times()

    def take_over(self, times: Times, now_ms: int) -> None:
        """Let the punctuations of a new program continue its predecessor's rhythm. `now_ms`: wall clock."""
        by_stream_time, by_wall_clock = times
        self.stream_punctuations.take_over(by_stream_time)
        self.wall_punctuations.take_over(by_wall_clock, now_ms)

    def unschedule(self) -> None:
        """Forget all punctuations of a program that has ended."""
        self.stream_punctuations.clear()
        self.wall_punctuations.clear()

    def rhythm(self) -> tuple[Due, Due]:
        """The times at which punctuations are due, by stream time and by the wall clock, for a successor's `go_on`."""
        return self.stream_punctuations.due(), self.wall_punctuations.due()

    def go_on(self, rhythm: tuple[Due, Due]) -> None:
        for queue, due in zip((self.stream_punctuations, self.wall_punctuations), rhythm, strict=True):
            queue.go_on(due)

    # -- what is called by time, or by a flush

    def punctuate(self, now_ms: int) -> bool:
        """Call the wall-clock punctuations that are due."""
        self._epoch = self._boundary.epoch
        self.wall_punctuations.follow(now_ms)
        return self.wall_punctuations.run_due(now_ms, lambda punctuation: self._punctuate(punctuation, now_ms))

    def _punctuate_by_stream_time(self) -> bool:
        now_ms = self.stream_time
        self.stream_punctuations.run_due(now_ms, lambda punctuation: self._punctuate(punctuation, now_ms))
        return self._boundary.epoch == self._epoch

    def _punctuate(self, punctuation: Punctuation, now_ms: int) -> bool:
        """Call a punctuation; False when the task was rolled back meanwhile, and the punctuation is due again."""
        began = perf_counter_ns()
        self.record.leave(now_ms)
        self._guarded(lambda: punctuation.callback(now_ms), punctuation.node, punctuation, now_ms)
        self._counters.punctuated += 1
        self._counters.punctuate_ns += perf_counter_ns() - began
        return self._flush_if_full()

    def run_alone(self, call: Callable[[], None], node: str) -> bool:
        """Call what begins the program, in a scope of its own; False when the task was rolled back meanwhile.
        `ProcessingError`, and no handler is asked: a program that has begun in part would process without the rest."""
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
                f"{describe_error(context, error)}. It is met again at the next start: mend the code; no handler is "
                f"asked about {node}", self._task, where,
            ) from error  # fmt: skip
        self._merge()
        return self._boundary.epoch == self._epoch

    def _guarded(
        self, call: Callable[[], None], node: str, punctuation: Punctuation | None = None, now_ms: int = 0
    ) -> bool:
        """Call user code; False when its handler skipped an error."""
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
        """Call a function that isn't part of the program, in a scope of its own; its errors are the caller's."""
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
        """Log and emit the updates that wait in caches, also those that this puts into other caches."""
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
                buffer.log(key, update)  # downstream did without it, the changelog can't
                self._merge()
        except BaseException:
            buffer.stays()
            raise
        buffer.done(key)


def _explained(source: CompiledSource, message: InputRecord, error: Exception) -> Exception:
    """`error` of a serde's own function, in the words of the source's deserialisers."""
    headers = message.headers()
    try:
        source.key(message.key(), headers)
        source.value(message.value(), headers)
    except Exception as explained:
        return explained
    return error
