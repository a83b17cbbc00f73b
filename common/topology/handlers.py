"""What to do with an error of one record: deserialisation, processing (KIP-1033) and production handlers.

A handler is a function `(context, error) -> Response`. The built-in ones also write to a dead letter topic when they
are given one (KIP-1034): the original key and value, the record's headers and those of the error.

*Guarantees*: built-in handlers have no state.
*Assumes*: the task runs handlers, writes the dead letters of a response, and then does what it says.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from milestones.common.records import Headers, Output, TaskId

_log = logging.getLogger(__name__)

HEADER_EXCEPTION = "__streams.errors.exception"
HEADER_MESSAGE = "__streams.errors.message"
HEADER_STACKTRACE = "__streams.errors.stacktrace"
HEADER_TOPIC = "__streams.errors.topic"
HEADER_PARTITION = "__streams.errors.partition"
HEADER_OFFSET = "__streams.errors.offset"


class Action(Enum):
    """CONTINUE skips the record, FAIL stops with its error, RETRY (production only, retriable errors) tries again."""

    CONTINUE = "continue"
    FAIL = "fail"
    RETRY = "retry"


class Response(NamedTuple):
    """A handler's decision, and records to write to dead letter topics before it takes effect."""

    action: Action
    dead_letters: tuple[Output, ...] = ()


class ErrorContext(NamedTuple):
    """Where an error happened. Topic None, partition and offset -1: no input record (a punctuation)."""

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
DeserializationExceptionHandler: TypeAlias = Handler
ProcessingExceptionHandler: TypeAlias = Handler
ProductionExceptionHandler: TypeAlias = Handler


@dataclass(frozen=True)
class LogAndContinue:
    """Log, write a dead letter if there is a topic for it, and skip the record."""

    dead_letter_topic: str | None = None

    def __call__(self, context: ErrorContext, error: Exception) -> Response:
        _log.warning("%s: skipped", describe_error(context, error), exc_info=error)
        return Response(Action.CONTINUE, _letters(self.dead_letter_topic, context, error))


@dataclass(frozen=True)
class LogAndFail:
    """Log, write a dead letter if there is a topic for it, and stop with the error. The default."""

    dead_letter_topic: str | None = None

    def __call__(self, context: ErrorContext, error: Exception) -> Response:
        _log.error("%s", describe_error(context, error), exc_info=error)
        return Response(Action.FAIL, _letters(self.dead_letter_topic, context, error))


@dataclass(frozen=True)
class RetryOrFail:
    """The default of production: retry what Kafka calls retriable, else as `LogAndFail`."""

    dead_letter_topic: str | None = None

    def __call__(self, context: ErrorContext, error: Exception) -> Response:
        return Response(Action.RETRY) if context.retriable else LogAndFail(self.dead_letter_topic)(context, error)


def send_to_dead_letter_topic(topic: str) -> LogAndContinue:
    """A handler that moves failing records to `topic`, which must exist, and goes on."""
    return LogAndContinue(topic)


def dead_letter(topic: str, context: ErrorContext, error: Exception) -> Output:
    """The record for a dead letter topic: original key, value and headers, and the error's headers as KIP-1034.

    Which input record an output came from isn't known once it has been sent: the letter then has the output's own.
    """
    key, value = context.source_raw_key, context.source_raw_value
    if context.topic is None and context.output is not None:
        key, value = context.output.key, context.output.value
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    headers: Headers = [
        *context.headers,
        (HEADER_EXCEPTION, name.encode()),
        (HEADER_MESSAGE, _encode(str(error))),
        (HEADER_STACKTRACE, _encode("".join(traceback.format_exception(error)))),
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
    record = "no input record" if context.topic is None else f"{context.topic}-{context.partition}@{context.offset}"
    return (
        f"task {context.task_id}, node {context.processor_node_id or 'unknown'}, record {record}: "
        f"{type(error).__name__}: {error}"
    )


def _letters(topic: str | None, context: ErrorContext, error: Exception) -> tuple[Output, ...]:
    return () if topic is None else (dead_letter(topic, context, error),)


def _encode(text: str) -> bytes:
    return text.encode(errors="replace")
