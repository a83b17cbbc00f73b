"""Refused outputs: the questions to the production exception handler, and the errors for cases that no handler decides.

*Guarantees*: each `Question` is answered once, even if the handler raises an error.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import KafkaError

from milestones.common.dead_letters import is_dead_letter
from milestones.common.errors import ProcessingError, ProductionError, RefusedTogetherError
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.failures import REFUSED_BATCH, REFUSED_TOPIC, TOO_LARGE, may_succeed_later
from milestones.common.kafka.refusals import BY_SIZE, BY_TIME, Refused
from milestones.common.records import UNKNOWN_TIMESTAMP, Output
from milestones.common.task.failures import ask
from milestones.common.topology.handlers import ErrorContext, Handler, Response
from milestones.common.topology.nodes import SinkNode, SubTopology

if TYPE_CHECKING:
    from milestones.common.records import TaskId


@dataclass(frozen=True, eq=False)
class Question:
    """Asks what to do about a refused output. `error` is raised unless the output is left out or resent.
    `may_be_left_out`: False for a changelog record, which may only be resent."""

    refused: Refused
    context: ErrorContext
    error: ProductionError
    may_be_left_out: bool

    @property
    def task(self) -> TaskId:
        return self.refused.task


@dataclass(frozen=True)
class Answer:
    """The handler's response, or the error that prevented one."""

    question: Question
    response: Response | ProcessingError


def answer(handler: Handler, question: Question) -> Answer:
    """Ask the user's handler, and return its answer."""
    try:
        response = ask(handler, "production_exception_handler", question.context, question.error)
    except ProcessingError as error:
        return Answer(question, error)
    return Answer(question, response)


class ProductionHandler(Protocol):
    """Asks the user's production exception handler."""

    def ask(self, question: Question) -> None:
        """Have the handler asked. `take` returns the answer, perhaps later."""
        ...

    def take(self, wait_ms: int = 0) -> Answer | None:
        """Return the next answer; None if none came within `wait_ms`."""
        ...


class InlineProductionHandler:
    """Asks the handler in the calling thread, when the answer is taken. *Owns*: the questions without an answer."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._questions: deque[Question] = deque()

    def ask(self, question: Question) -> None:
        self._questions.append(question)

    def take(self, wait_ms: int = 0) -> Answer | None:
        return answer(self._handler, self._questions.popleft()) if self._questions else None


def must_be_of_one(refused: Sequence[Refused], isolation: BatchIsolation | None, *, transactional: bool) -> None:
    """Raise an error if a whole batch was refused and the refused output isn't known. The other outputs of the batch
    can't be resent alone: later outputs of the partition may already be in Kafka, and the order would break. In a
    transaction the client reports the failure by itself."""
    if transactional and isolation is None:
        return
    batches: dict[tuple[str, int], list[Refused]] = {}
    for one in refused:
        alone = isolation is not None and isolation.is_alone(one.output)
        if one.sent and one.error.code() in REFUSED_BATCH and not alone:
            batches.setdefault((one.output.topic, one.output.partition), []).append(one)
    # In a transaction, when the broker has named one record of a batch, nothing is reported about the others.
    known = 1 if transactional else 0
    together = [one for batch in batches.values() if len(batch) > known for one in batch]
    if together:
        topics = ", ".join(sorted({one.output.topic for one in together}))
        raise RefusedTogetherError(
            f"Kafka refused a batch of records for {topics} because of one in it ({together[0].error.str()}); they are "
            "made once more, to find out which one",
            {one.task for one in together},
            [one.output for one in together],
        )


def error_context(refused: Refused, subtopology: SubTopology) -> ErrorContext:
    """Make the context of an error about a refused output. The input record of the output isn't known."""
    output = refused.output
    sinks = [node.name for node in subtopology.nodes if isinstance(node, SinkNode) and node.topic == output.topic]
    return ErrorContext(
        topic=None,
        partition=-1,
        offset=-1,
        timestamp=output.timestamp,
        headers=list(output.headers or ()),
        source_raw_key=None,
        source_raw_value=None,
        task_id=refused.task,
        processor_node_id=output.node or (sinks[0] if len(sinks) == 1 else None),
        output=output,
        retriable=may_succeed_later(refused.error),
    )


def is_about_one(refused: Refused) -> bool:
    code = refused.error.code()
    return not (refused.dead_letter or code in REFUSED_TOPIC or (refused.sent and code in TOO_LARGE))


def describe(refused: Refused, *, changelog: bool) -> str:
    """Return the error text for an output that wasn't taken."""
    output, letter = refused.output, refused.dead_letter or is_dead_letter(refused.output.headers)
    what = "a dead letter" if letter else "a record"
    ways = "mend its cause (size limits, rights, the topic)"
    if changelog:
        ways += "; no handler can skip it: the store would differ from what is restored"
    elif is_about_one(refused):
        ways += ", or set production_exception_handler"
    elif refused.sent and refused.error.code() in TOO_LARGE:
        ways += f"; {BY_SIZE}"
    if letter and refused.error.code() in TOO_LARGE:
        ways += (
            "; a dead letter has key, value and headers of its record: its topic and producer_message_max_bytes must "
            "take what the input topic takes, and 1,000 bytes more"
        )
    if refused.error.code() == KafkaError.INVALID_TIMESTAMP:
        ways += f"; {BY_TIME.format(topic=output.topic)}"
    if output.key is None and refused.error.code() == KafkaError.INVALID_RECORD:
        ways += "; a topic with cleanup.policy=compact takes no record without a key"
    where = output.topic if output.partition < 0 else f"{output.topic}-{output.partition}"
    return (
        f"task {refused.task}: Kafka refused {what} for {where} (key {output.key!r:.100}, value of "
        f"{len(output.value or b'')} bytes{_time_of(output)}): {refused.error.str()}; {ways}"
    )


def _time_of(output: Output) -> str:
    """Return the output's time for an error text; nothing if the error report has no time."""
    return f", time {output.timestamp}" if output.timestamp != UNKNOWN_TIMESTAMP else ""
