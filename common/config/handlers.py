"""The exception handlers that names in a config stand for.

*Guarantees*: a built-in handler that skips records writes them to the dead letter topic of the same config.
*Assumes*: handlers are those of `milestones.common.topology.handlers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOG_AND_FAIL, LOG_AND_CONTINUE, RETRY_OR_FAIL = "log_and_fail", "log_and_continue", "retry_or_fail"


def built_in(handler: Any, values: Mapping[str, Any]) -> Any:
    """The handler that a name stands for; a handler of the user is what it is."""
    from milestones.common.topology import handlers  # here, so that a config alone doesn't load the topology

    by_name = {
        LOG_AND_FAIL: handlers.LogAndFail(),
        LOG_AND_CONTINUE: handlers.LogAndContinue(values["errors_dead_letter_queue_topic_name"]),
        RETRY_OR_FAIL: handlers.RetryOrFail(),
    }
    return by_name[handler] if isinstance(handler, str) else handler
