"""Exception handlers decide what happens after an error of one record: in deserialisation, processing (KIP-1033) or
production.

A handler is a function `(context, error) -> Response`. A handler that skips a record may write it to a dead letter
topic (KIP-1034): the original key and value, the record's headers, and headers that describe the error. A handler that
fails writes no dead letter: the record stays unprocessed, and the next start reads it once more.

*Guarantees*: built-in handlers have no state.
*Assumes*: the task runs handlers, and commits the dead letters of a response together with the skipped record's offset.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from milestones.common.dead_letters import (
    HEADER_EXCEPTION,
    HEADER_MESSAGE,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_STACKTRACE,
    HEADER_TOPIC,
)
from milestones.common.diagnostics import brief, text_of, traceback_of
from milestones.common.errors import SerializationError
from milestones.common.records import Headers, Output, TaskId
from milestones.common.topology.tracebacks import failing_call

_log = logging.getLogger(__name__)



class Action(Enum):
    """CONTINUE skips the record. FAIL stops with the error. RETRY sends the record once more, which is possible only
    for retriable errors of production."""

    CONTINUE = "continue"
    FAIL = "fail"
    RETRY = "retry"


class Response(NamedTuple):
    """A handler's decision. With CONTINUE, it may hold records to write to dead letter topics."""

    action: Action
    dead_letters: tuple[Output, ...] = ()


class ErrorContext(NamedTuple):
    """The place of an error: the record and the node. Without an input record (in a punctuation), the topic is None,
    and partition and offset are -1."""

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    source_raw_key: bytes | None
    source_raw_value: bytes | None
    task_id: TaskId
    processor_node_id: str | None
    """The node that failed: the innermost node that the record had reached. The node can also be a source or a sink."""
    output: Output | None = None
    """The record that Kafka refused, for errors of production. None if the record could not be serialised. If `output`
    is set, `headers` and `timestamp` are those of the output, and the input record is unknown."""
    retriable: bool = False
    """True if Kafka says that sending once more may help. Only for errors of production."""


Handler: TypeAlias = Callable[[ErrorContext, Exception], Response]


MOST_LINES, PAUSE_S = 20, 10.0
"""The number of log lines about records for which one node fails with one kind of error. After that, the number of
seconds between two lines."""


class RateLimitedLog:
    """Chooses which lines of a kind are logged: the first `MOST_LINES`, then one every `PAUSE_S` seconds.

    *Concurrency*: any thread may ask. If two ask at the same moment, both may be allowed to log.
    """

    def __init__(self) -> None:
        self._told: dict[str, tuple[int, float, int]] = {}  # lines logged, time of the last one, lines left out since

    def left_out(self, kind: str) -> int | None:
        """Return how many lines were left out since the last logged one. Returns None if this line must be left out."""
        told, at_s, left_out = self._told.get(kind, (0, 0.0, 0))
        now_s = time.monotonic()
        if told >= MOST_LINES and now_s - at_s < PAUSE_S:
            self._told[kind] = told, at_s, left_out + 1
            return None
        self._told[kind] = told + 1, now_s, 0
        return left_out


@dataclass(frozen=True)
class LogAndContinue:
    """Log the error, write a dead letter if a topic for it is set, and skip the record.

    If Kafka refuses a dead letter, no dead letter is written for it. For an error of user code the log shows the
    traceback, for an error of a serde one line. If one node keeps failing with one kind of error, only some of the
    errors are logged.
    """

    dead_letter_topic: str | None = None
    _log_rate: RateLimitedLog = field(default_factory=RateLimitedLog, init=False, repr=False, compare=False)

    def __call__(self, context: ErrorContext, error: Exception) -> Response:
        left_out = self._log_rate.left_out(f"{context.processor_node_id} {type(error).__qualname__}")
        if left_out is not None:
            told = None if isinstance(error, SerializationError) else brief(error)
            more = f"; {left_out} others were skipped since the last such line" if left_out else ""
            _log.warning("%s: skipped%s", describe_error(context, error), more, exc_info=told)
        topic = self.dead_letter_topic
        is_letter = context.output is not None and context.output.topic == topic
        letters = () if topic is None or is_letter else (dead_letter(topic, context, error),)
        return Response(Action.CONTINUE, letters)


@dataclass(frozen=True)
class LogAndFail:
    """Stop with the error. This is the default. The record stays unprocessed, and no dead letter is written. The stream
    thread that dies of the error logs its traceback. From stage m2 on the task is quarantined before that, which logs
    the traceback, too."""

    def __call__(self, context: ErrorContext, error: Exception) -> Response:
        return Response(Action.FAIL)


@dataclass(frozen=True)
class RetryOrFail:
    """Retry if Kafka calls the error retriable, else do as `LogAndFail`. This is the default for production."""

    def __call__(self, context: ErrorContext, error: Exception) -> Response:
        return Response(Action.RETRY) if context.retriable else LogAndFail()(context, error)


def send_to_dead_letter_topic(topic: str) -> LogAndContinue:
    """Make a handler that skips failing records and writes them to `topic`. The topic must exist."""
    return LogAndContinue(topic)


def dead_letter(topic: str, context: ErrorContext, error: Exception) -> Output:
    """Make the record for a dead letter topic: the original key, value and headers, and the error's headers as in
    KIP-1034.

    The error's text and traceback are shortened, so that even a letter about a large record usually fits into the
    topic. After an output was sent, its input record isn't known. Then the letter has the output's key, value and
    headers.
    """
    key, value = context.source_raw_key, context.source_raw_value
    if context.topic is None and context.output is not None:
        key, value = context.output.key, context.output.value
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    headers: Headers = [
        *context.headers,
        (HEADER_EXCEPTION, name.encode()),
        (HEADER_MESSAGE, _encode(text_of(error))),
        (HEADER_STACKTRACE, _encode(traceback_of(error))),
        (HEADER_TOPIC, None if context.topic is None else context.topic.encode()),
        (HEADER_PARTITION, str(context.partition).encode()),
        (HEADER_OFFSET, str(context.offset).encode()),
    ]
    return Output(
        topic=topic,
        partition=-1,
        key=key,
        value=value,
        timestamp=context.timestamp,
        headers=headers,
        node=context.processor_node_id or "",
    )


def describe_error(context: ErrorContext, error: Exception) -> str:
    """Describe an error in one line: what failed, where, and for which record."""
    if context.topic is not None:
        record = f"record {context.topic}-{context.partition}@{context.offset}"
    elif context.output is not None:
        record = f"an output to {context.output.topic}"
    else:
        call = failing_call(error)
        record = "no input record" if call is None else f"in {call}"
    return (
        f"task {context.task_id}, node {context.processor_node_id or 'unknown'}, {record}: "
        f"{type(error).__name__}: {text_of(error)}"
    )


def _encode(text: str) -> bytes:
    return text.encode(errors="replace")
