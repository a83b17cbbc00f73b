"""What a broker that names no record of a batch reports as refused."""

from __future__ import annotations

from collections.abc import Sequence

from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.records import Output, TaskId

Sent = tuple[TaskId, Output]


def with_their_batch(bad: Sequence[Sent], sent: Sequence[Sent], isolation: BatchIsolation) -> list[Sent]:
    """These outputs, if each was sent alone; else all for `out` that were not, which are one batch."""
    if all(isolation.is_alone(output) for _, output in bad):
        return list(bad)
    return [(task, output) for task, output in sent if output.topic == "out" and not isolation.is_alone(output)]
