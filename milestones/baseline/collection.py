"""Collection of the baseline: outputs go from the task straight to the producer.

*Guarantees*: only outputs of finished boundaries are sent; each knows its task; one that Kafka refuses is shown to
the production exception handler, by its task.
*Assumes*: driven by the thread that owns the producer and the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from milestones.common.errors import ProductionError
from milestones.common.kafka.failures import Failure, classify
from milestones.common.kafka.producer import Refused
from milestones.common.records import TopicPartition

if TYPE_CHECKING:
    from milestones.common.task.task import Staged, Task
    from milestones.context import ThreadContext
    from milestones.parts import Clients


class DirectCollection:
    """Sends as tasks process; `flush` waits for Kafka's word."""

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._config, self._clients, self._clock = context.config, clients, context.clock

    def collect(self, tasks: Iterable[Task]) -> bool:
        sent = False
        for task in tasks:
            outputs = task.take_outputs()
            if outputs:
                sent = True
                self._clients.producer.send(task.id, outputs, task.changelog_topics)
        if sent:
            self._clients.producer.poll()
            self._check()
        return sent

    def send(self, task: Task, staged: Staged) -> None:
        if staged.outputs:
            self._clients.producer.send(task.id, staged.outputs, task.changelog_topics)

    def flush(self) -> None:
        deadline = self._clock.monotonic_ms() + self._config.task_timeout_ms
        while True:
            try:
                self._clients.producer.flush(timeout_ms=1_000)
                break
            except KafkaException as exception:
                if classify(exception) is not Failure.RETRIABLE or self._clock.monotonic_ms() > deadline:
                    raise
        self._check()

    def _check(self) -> None:
        refused, self._clients.producer.refused = self._clients.producer.refused, []
        for output in refused:
            if not self._config.production_handler_continues(output):
                raise ProductionError(describe(output), output.task)

    def changelog_offsets(self, task: Task) -> dict[str, int]:
        acknowledged = self._clients.producer.acknowledged
        offsets = {}
        for store, topic in task.subtopology.changelogs.items():
            offset = acknowledged.pop(TopicPartition(topic, task.id.partition), None)
            if offset is not None:
                offsets[store] = offset
        return offsets


def describe(refused: Refused) -> str:
    """The error text for an output that Kafka refused."""
    size = len(refused.value or b"")
    return (
        f"task {refused.task}: Kafka refused a record for {refused.topic}-{refused.partition} "
        f"(key {refused.key!r:.100}, value of {size} bytes): {refused.error}; "
        "mend its cause (size limits, rights, the topic), or set production_exception_handler"
    )
