"""What a task does when a record fails: ask the handler whose business it is.

| what failed | handler | CONTINUE |
|---|---|---|
| key or value of an input record can't be read | deserialisation | skips the record |
| a sink's serde refused an output | production | skips the record |
| any other error of the program: user code, a store's serde | processing | skips the record, or the punctuation |
| timestamp extractor, state (files, engines), errors that steer the runtime | none | they end the record's thread |

*Guarantees*: a skipped record leaves nothing behind but its offset, the dead letters of the handler, and a count.
*Assumes*: the record's scope was dropped before.
"""

from __future__ import annotations

from typing import Final

from milestones.common.errors import (
    OwnershipError,
    ProcessingError,
    StateError,
    TaskCorruptedError,
    TaskMigratedError,
)
from milestones.common.records import Output
from milestones.common.task.task_context import TaskSettings
from milestones.common.topology.handlers import Action, ErrorContext, Handler, Response, describe_error
from milestones.common.topology.sink import OutputSerializationError
from milestones.common.writable import writable

UNHANDLED: Final = (StateError, OwnershipError, TaskCorruptedError, TaskMigratedError)
"""Errors that no handler is asked about: they aren't about the record."""


def handler_of(error: Exception, settings: TaskSettings) -> tuple[Handler, str]:
    """Whose business an error of the program is, and the config key that chooses it."""
    if isinstance(error, OutputSerializationError):
        return settings.production_handler, "production_exception_handler"
    return settings.processing_handler, "processing_exception_handler"


def decide(handler: Handler, key: str, context: ErrorContext, error: Exception) -> tuple[Output, ...]:
    """The dead letters to write in place of the record; `ProcessingError` when the handler says FAIL, and no letters:
    the record stays uncommitted, so that each start would repeat them (a transaction would abort them)."""
    response = ask(handler, key, context, error)
    if response.action is Action.CONTINUE:
        return response.dead_letters
    raise ProcessingError(
        f"{describe_error(context, error)}. It is met again at the next start: mend the code or the data, or set {key}",
        context.task_id,
        context.processor_node_id,
    ) from error


def ask(handler: Handler, key: str, context: ErrorContext, error: Exception) -> Response:
    """What the handler says; `ProcessingError` when it raises, or says nothing that could be understood. `key`: the
    config key that chooses it."""
    try:
        response = handler(context, error)
        if not isinstance(response, Response):
            raise TypeError(f"a handler returns a Response, not {response!r}")
        return response._replace(dead_letters=tuple(map(writable, response.dead_letters)))
    except Exception as second:
        raise ProcessingError(
            f"{key} itself failed ({type(second).__name__}: {second}) on {describe_error(context, error)}; mend it",
            context.task_id,
            context.processor_node_id,
        ) from second
