"""Finds the exception handlers that a config gives by name.

*Guarantees*: if a built-in handler skips a record, it writes the record to the config's dead letter topic.
*Assumes*: built-in handlers are defined in `milestones.common.topology.handlers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milestones.common.config.streams import StreamsConfig

LOG_AND_FAIL, LOG_AND_CONTINUE, RETRY_OR_FAIL = "log_and_fail", "log_and_continue", "retry_or_fail"


def built_in(handler: Any, values: Mapping[str, Any]) -> Any:
    """Returns the built-in handler with this name. A handler of the user is returned unchanged."""
    from milestones.common.topology import handlers  # here, so that a config alone doesn't load the topology

    by_name = {
        LOG_AND_FAIL: handlers.LogAndFail(),
        LOG_AND_CONTINUE: handlers.LogAndContinue(values["errors_dead_letter_queue_topic_name"]),
        RETRY_OR_FAIL: handlers.RetryOrFail(),
    }
    return by_name[handler] if isinstance(handler, str) else handler


def unused_dead_letters(config: StreamsConfig) -> str | None:
    """Returns a warning if a dead letter topic is configured, but no handler skips records, so that no dead letter is
    ever written. Otherwise returns None."""
    from milestones.common.topology import handlers  # here, so that a config alone doesn't load the topology

    topic = config.errors_dead_letter_queue_topic_name
    chosen = (
        config.deserialization_exception_handler, config.processing_exception_handler,
        config.production_exception_handler,
    )  # fmt: skip
    if topic is None or not all(isinstance(one, handlers.LogAndFail | handlers.RetryOrFail) for one in chosen):
        return None
    return (
        f"errors_dead_letter_queue_topic_name={topic!r} has no effect: no handler skips records; set "
        f"deserialization_exception_handler or processing_exception_handler to {LOG_AND_CONTINUE!r}"
    )
