"""Exception handlers, which answer an error of one record: deserialisation, processing (KIP-1033), production.

A handler is a function `(context, error) -> Response`. One that skips a record may write it to a dead letter topic
(KIP-1034): the original key and value, the record's headers and those of the error. One that fails writes none: the
record isn't passed, and is met again at the next start.

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
    """CONTINUE skips the record, FAIL stops with its error, RETRY (production only, retriable errors) tries again."""

    CONTINUE = "continue"
    FAIL = "fail"
    RETRY = "retry"


class Response(NamedTuple):
    """A handler's decision, and, with CONTINUE, the records to write to dead letter topics."""

    action: Action
    dead_letters: tuple[Output, ...] = ()


class ErrorContext(NamedTuple):
    """The place of an error. Topic None, partition and offset -1: no input record (a punctuation)."""

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    source_raw_key: bytes | None
    source_raw_value: bytes | None
    task_id: TaskId
    processor_node_id: str | None
    """The node that failed: the innermost one the record had reached, a source or a sink."""
    output: Output | None = None
    """The record that Kafka refused, production only; None when it could not be serialised. With it, `headers` and
    `timestamp` are the output's, and the input record is unknown."""
    retriable: bool = False
    """Kafka says that trying again may help; production only."""


Handler: TypeAlias = Callable[[ErrorContext, Exception], Response]


MOST_LINES, PAUSE_S = 20, 10.0
"""The number of lines about records at which one node fails with one kind of error, and the seconds between later
lines."""


class RateLimitedLog:
    """Chooses the lines of a kind that are logged: the first `MOST_LINES`, then one in `PAUSE_S`.

    *Concurrency*: any thread asks; two that ask at the same moment may both get True.
    """

    def __init__(self) -> None:
        self._told: dict[str, tuple[int, float, int]] = {}  # lines told, when the last was, how many left out since

    def left_out(self, kind: str) -> int | None:
        """The number of lines left out since the last logged one; None: leave this line out, too."""
        told, at_s, left_out = self._told.get(kind, (0, 0.0, 0))
        now_s = time.monotonic()
        if told >= MOST_LINES and now_s - at_s < PAUSE_S:
            self._told[kind] = told, at_s, left_out + 1
            return None
        self._told[kind] = told + 1, now_s, 0
        return left_out


@dataclass(frozen=True)
class LogAndContinue:
    """Log, write a dead letter if there is a topic for it, and skip the record.

    A dead letter that Kafka refuses itself has none. The log has the traceback of an error of user code, and one line
    for an error of a serde. Errors of one kind that a node repeats are logged less and less often.
    """

    dead_letter_topic: str | None = None
    _log_rate: RateLimitedLog = field(default_factory=RateLimitedLog, init=False, repr=False, compare=False)

    def __call__(self, context: ErrorContext, error: Exception) -> Response:
        left_out = self._log_rate.left_out(f"{context.processor_node_id} {type(error).__qualname__}")
        if left_out is not None:
            told = None if isinstance(error, SerializationError) else brief(error)
            more = f"; {left_out} others were, that weren't told of one by one" if left_out else ""
            _log.warning("%s: skipped%s", describe_error(context, error), more, exc_info=told)
        topic = self.dead_letter_topic
        is_letter = context.output is not None and context.output.topic == topic
        letters = () if topic is None or is_letter else (dead_letter(topic, context, error),)
        return Response(Action.CONTINUE, letters)


@dataclass(frozen=True)
class LogAndFail:
    """Stop with the error, before the record, without a dead letter. The default. The stream thread that dies of the
    error logs its traceback; so does, from m2 on, the quarantine that comes before."""

    def __call__(self, context: ErrorContext, error: Exception) -> Response:
        return Response(Action.FAIL)


@dataclass(frozen=True)
class RetryOrFail:
    """Retry errors that Kafka calls retriable, else do as `LogAndFail`. The default of production."""

    def __call__(self, context: ErrorContext, error: Exception) -> Response:
        return Response(Action.RETRY) if context.retriable else LogAndFail()(context, error)


def send_to_dead_letter_topic(topic: str) -> LogAndContinue:
    """A handler that skips failing records and writes them to `topic`, which must exist."""
    return LogAndContinue(topic)


def dead_letter(topic: str, context: ErrorContext, error: Exception) -> Output:
    """The record for a dead letter topic: original key, value and headers, and the error's headers as KIP-1034.

    The error's text and traceback are shortened, so that a record that is nearly as large as its topic takes fits.
    Once an output has been sent, its input record isn't known: the letter has the output's key, value and headers then.
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
    """One line: what failed, where, on which record."""
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
