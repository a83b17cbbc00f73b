"""What a broker that names no record of a batch reports as refused."""

from __future__ import annotations

from collections.abc import Sequence

from milestones.common.kafka.apart import Apart
from milestones.common.records import Output, TaskId

Sent = tuple[TaskId, Output]


def with_their_batch(bad: Sequence[Sent], sent: Sequence[Sent], apart: Apart) -> list[Sent]:
    """These outputs, if each was sent alone; else all for `out` that were not, which are one batch."""
    if all(apart.is_alone(output) for _, output in bad):
        return list(bad)
    return [(task, output) for task, output in sent if output.topic == "out" and not apart.is_alone(output)]
