"""The exception handlers that names in a config stand for.

*Guarantees*: a built-in handler writes to the dead letter topic of the same config.
*Assumes*: handlers are those of `milestones.common.topology.handlers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milestones.common.kafka.producer import Refused

LOG_AND_FAIL, LOG_AND_CONTINUE, RETRY_OR_FAIL = "log_and_fail", "log_and_continue", "retry_or_fail"


def built_in(handler: Any, values: Mapping[str, Any]) -> Any:
    """The handler that a name stands for; a handler of the user is what it is."""
    from milestones.common.topology import handlers  # here, so that a config alone doesn't load the topology

    classes = {
        LOG_AND_FAIL: handlers.LogAndFail,
        LOG_AND_CONTINUE: handlers.LogAndContinue,
        RETRY_OR_FAIL: handlers.RetryOrFail,
    }
    if isinstance(handler, str):
        return classes[handler](values["errors_dead_letter_queue_topic_name"])
    return handler


def goes_on_without(handler: Any, refused: Refused) -> bool:
    """Whether a production exception handler lets an output go that Kafka refused. The client has retried it for as
    long as it may, so a handler that wants more retries is answered with the failure."""
    from milestones.common.errors import ProductionError
    from milestones.common.records import Output
    from milestones.common.topology.handlers import Action, ErrorContext

    output = Output(refused.topic, refused.partition, refused.key, refused.value, -1, None, "")
    context = ErrorContext(
        topic=None,
        partition=-1,
        offset=-1,
        timestamp=-1,
        headers=[],
        source_raw_key=None,
        source_raw_value=None,
        task_id=refused.task,
        processor_node_id=None,
        output=output,
        retriable=False,
    )
    error = ProductionError(f"Kafka refused a record for {refused.topic}: {refused.error}", refused.task)
    answer: Any = handler(context, error)
    return bool(answer.action is Action.CONTINUE)
