"""When a record fails, a handler decides what happens. The table shows which handler is asked.

| what failed | handler | CONTINUE |
|---|---|---|
| key or value of an input record can't be read | deserialisation | skips the record |
| a sink's serde refused an output, or an upsert sink got one without a key | production | skips the record |
| any other error of the program: user code, a store's serde | processing | skips the record, or the punctuation |
| timestamp extractor, state (files, engines), errors that steer the runtime | none | the record's thread ends |
| a suppress buffer is full and may not emit early | none | the record's thread ends |

*Guarantees*: of a skipped record only its offset, the handler's dead letters and a count remain.
*Assumes*: the record's scope was dropped before.
"""

from __future__ import annotations

from typing import Final

from milestones.common.diagnostics import shortened, text_of
from milestones.common.errors import (
    OwnershipError,
    ProcessingError,
    StateError,
    SuppressBufferFullError,
    TaskCorruptedError,
    TaskMigratedError,
)
from milestones.common.records import Output
from milestones.common.task.task_context import TaskSettings
from milestones.common.topology.handlers import Action, ErrorContext, Handler, Response, describe_error
from milestones.common.topology.sink import OutputSerializationError
from milestones.common.writable import writable

UNHANDLED: Final = (StateError, OwnershipError, SuppressBufferFullError, TaskCorruptedError, TaskMigratedError)
"""Errors that aren't about the record, so that no handler is asked."""


def handler_of(error: Exception, settings: TaskSettings) -> tuple[Handler, str]:
    """Return the handler of an error of the program, and the config key that chooses the handler."""
    if isinstance(error, OutputSerializationError):
        return settings.production_handler, "production_exception_handler"
    return settings.processing_handler, "processing_exception_handler"


def decide(handler: Handler, key: str, context: ErrorContext, error: Exception) -> tuple[Output, ...]:
    """Return the dead letters to write in place of the record.

    Raises `ProcessingError` if the handler says FAIL. No dead letters are written then: the record stays uncommitted,
    so that each start would write them once more (and a transaction would abort them).
    """
    response = ask(handler, key, context, error)
    if response.action is Action.CONTINUE:
        return response.dead_letters
    raise ProcessingError(
        f"{describe_error(context, error)}. The error will come back at the next start. Mend the code or the data, "
        f"or set {key}",
        context.task_id,
        context.processor_node_id,
    ) from error


def ask(handler: Handler, key: str, context: ErrorContext, error: Exception) -> Response:
    """Return the handler's response. Raises `ProcessingError` if the handler raises an error or returns no response.
    `key`: the config key that chooses the handler."""
    try:
        response = handler(context, error)
        if not isinstance(response, Response):
            raise TypeError(f"a handler returns a Response, not {shortened(repr(response))}")
        return response._replace(dead_letters=tuple(map(writable, response.dead_letters)))
    except Exception as second:
        raise ProcessingError(
            f"{key} itself failed ({type(second).__name__}: {text_of(second)}) on {describe_error(context, error)}; "
            "mend it",
            context.task_id,
            context.processor_node_id,
        ) from second
