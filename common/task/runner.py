"""`Runner`, the core of a task, takes one record after the other through the program, each in a scope of its own.

The steps for one record:
1. Deserialise the head, and find its timestamp. A record that can't be read, or that has no timestamp, is skipped.
2. Advance stream time, and call the program.
3. If the program raised an error: drop the scope, and ask the handler. Then skip the record, or stop before it.
4. Merge the scope: the writes, outputs, offset and stream time go into the boundary. The head leaves the buffer.
5. Call the stream-time punctuations that became due, and flush caches that are full. Each call has a scope of its own.

*Guarantees*: after an error the task is at its last boundary, and the failed record is the next one.
*Assumes*: one thread at a time. No code of a program uses the current record after its call has returned.
*Why this way*: the steps of a record are one long function (`_run`), as calls between the steps would cost more than
the steps (1,700 machine instructions per record, measured). With several partitions, `_run` processes one partition
until another head is older, so that not every record needs a comparison of all heads. Then it goes on with the other
partition: joined streams change places after one or two records, so a call per change would be dear, too.
"""

from __future__ import annotations

from typing import Any

from milestones.common.diagnostics import text_of
from milestones.common.errors import MilestonesError, ProcessingError
from milestones.common.records import Headers
from milestones.common.task.buffers import FOREVER, TIME, Head, InputBuffer, InputRecord
from milestones.common.task.failures import UNHANDLED, decide, handler_of
from milestones.common.task.scoped_calls import ScopedCalls
from milestones.common.topology.compiled import CompiledSource
from milestones.common.topology.handlers import ErrorContext
from milestones.common.topology.timestamps import SourceRecord, invalid_timestamp
from milestones.common.topology.tracebacks import failing_node


class Runner(ScopedCalls):
    """Runs the program of one task."""

    # -- records

    def process(self, limit: int, now_ms: int) -> int:
        """Process at most `limit` records, and return their number. Skipped records count."""
        self._epoch, self.limit = self._boundary.epoch, limit
        if self.stream_time >= self.stream_punctuations.next_ms and not self._punctuate_by_stream_time():
            return 0
        if len(self._buffers) == 1:
            return self._run(self._buffers[0], FOREVER, now_ms)
        return self._run(*self._oldest(now_ms), now_ms) if self.limit > 0 else 0

    def _run(self, buffer: InputBuffer | None, before: int, now_ms: int) -> int:  # noqa: C901 - see below
        """Process the records of a partition in order (steps 1 to 5), up to a record whose timestamp is `before` or
        later. Then process those of the partition that has the oldest record now, and so on. Returns the number of
        processed records. (All steps are in one function, as calls would cost more than the steps.)"""
        boundary, epoch, record, punctuations = self._boundary, self._epoch, self.record, self.stream_punctuations
        acquire, release = self._lock.acquire, self._lock.release
        touched, outputs, cached = self.scope.touched, self.scope.outputs, self.cached
        stream_time = self.stream_time
        done, go_on, several = 0, True, len(self._buffers) > 1
        left: dict[InputBuffer, int] = {}  # how many records have left each partition
        try:
            while buffer is not None:
                began = done
                messages, extract, process, read_key, read_value, record.partition = buffer.to_run
                head, buffer.head = buffer.head, None
                while go_on and messages and done < self.limit:
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
                    if timestamp > stream_time:
                        stream_time = self.stream_time = timestamp
                    try:
                        process(key, value, timestamp)
                    except Exception as error:
                        if boundary.epoch == epoch:  # after a roll-back the error doesn't matter
                            self._failed(buffer, message, timestamp, error)
                    except BaseException:
                        self._stay()
                        raise
                    acquire()
                    try:
                        if boundary.epoch != epoch:
                            self._void()
                            done += 1
                            go_on = False
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
                    if stream_time >= punctuations.next_ms:
                        go_on = self._punctuate_by_stream_time()
                    if cached and go_on:
                        go_on = self._flush_if_full()
                left[buffer] = left.get(buffer, 0) + done - began
                buffer = None
                if several and go_on and done < self.limit:
                    buffer, before = self._oldest(now_ms)
        finally:
            if buffer is not None:
                left[buffer] = left.get(buffer, 0) + done - began
            for each, count in left.items():
                each.taken(count)
            self._counters.processed += done
        return done

    def _oldest(self, now_ms: int) -> tuple[InputBuffer | None, int]:
        """Return the partition of the next record, and the timestamp that a record of another partition must not have
        before it. The next record is always the head with the smallest timestamp, and of equal ones that of the first
        partition. Returns None if there is no record, or if a partition may still get an older one."""
        earliest, before, first = FOREVER, FOREVER, None
        for buffer in self._buffers:
            head = buffer.head or self._load_head(buffer)
            if head is None:
                if not buffer.may_go_on_without(self._settings.max_task_idle_ms, now_ms):
                    return None, FOREVER
            else:
                time = head[TIME]
                if time < earliest:
                    earliest, before, first = time, earliest, buffer
                elif time < before:
                    before = time + 1  # an equal timestamp of an earlier partition comes first
        return first, before

    def _load_head(self, buffer: InputBuffer) -> Head | None:
        """Deserialise and return the head of a partition. Unreadable records are skipped. Returns None when no record
        is left."""
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
        """Do step 4 for a record that isn't processed. Returns False if the task was rolled back meanwhile."""
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

    # -- records that fail

    def _failed(self, buffer: InputBuffer, message: InputRecord, timestamp: int, error: Exception) -> None:
        """Ask the handler about an error of the program. Returns if the handler skips the record. Otherwise raises, and
        the record stays the next one."""
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
        """Ask the handler about an error of a deserialiser, and skip the record if the handler says so. The handler
        gets an error that names the serde and the topic. Returns False if the task was rolled back meanwhile."""
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

    def _timestamp(
        self, buffer: InputBuffer, message: InputRecord, key: Any, value: Any, own: int, headers: Headers | None
    ) -> int:
        """Return the timestamp that the source's extractor finds. If the extractor raises an error, the task stops
        before the record."""
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
        """Keep the failed record as the head, and set stream time back to that of the boundary."""
        self.scope.drop()
        self.settle()

    def _context(self, message: InputRecord, timestamp: int, node: str) -> ErrorContext:
        return ErrorContext(
            message.topic(), message.partition(), message.offset(), timestamp, list(message.headers() or ()),
            message.key(), message.value(), self._task, node,
        )  # fmt: skip


def _explained(source: CompiledSource, message: InputRecord, error: Exception) -> Exception:
    """Return an error with the text of the source's deserialisers, which name serde and topic. `error` was raised by
    the serde's own function."""
    headers = message.headers()
    try:
        source.key(message.key(), headers)
        source.value(message.value(), headers)
    except Exception as explained:
        return explained
    return error
