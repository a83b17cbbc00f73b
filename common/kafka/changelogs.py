"""`task_ends`: finds the end offsets of the tasks' changelogs. With them the leader turns positions into lags.

*Guarantees*: one question is asked for all changelogs. A task with an unknown end offset is left out of the result, and
the log names the task. No error is raised.
*Assumes*: one thread takes all steps of the generator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Mapping
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError
from milestones.common.kafka.admin import answered
from milestones.common.kafka.answers import told
from milestones.common.kafka.clients import text_of

if TYPE_CHECKING:
    from milestones.common.assignment.plan import TaskPlan
    from milestones.common.clock import Clock
    from milestones.common.kafka.admin import Admin
    from milestones.common.records import TaskId, TopicPartition

log: Final = logging.getLogger(__name__)

LAGS_TIMEOUT_MS = 5_000
"""The time-out of the question for the end offsets of changelogs."""

Committed = Callable[[Collection["TopicPartition"]], "Mapping[TopicPartition, int]"]
"""A function that returns the group's committed offsets of the given partitions. Partitions without a committed offset
are left out."""


def task_ends(
    admin: Admin, committed: Committed, plan: TaskPlan, clock: Clock, *, new: Collection[str] = ()
) -> Generator[None, None, dict[TaskId, int]]:
    """Returns for each task the sum of the end offsets of its changelogs. A task with an unknown end is left out.

    `new`: topics that have just been created. They are empty, and may have no leaders yet. If a source topic serves as
    a changelog, the group's committed offset counts as its end.
    """
    inputs = {at for task in plan.changelogs for at in plan.tasks[task]}
    all_ = {at for logs in plan.changelogs.values() for at in logs}
    ends = dict.fromkeys((at for at in all_ if at.topic in new), 0)
    ends |= yield from _ends(admin, sorted(at for at in all_ - inputs if at.topic not in new), clock)
    ends |= _committed(committed, sorted(all_ & inputs))
    unknown = sorted(task for task, logs in plan.changelogs.items() if not ends.keys() >= set(logs))
    if unknown:
        names = ", ".join(map(str, unknown[:10])) + ("" if len(unknown) <= 10 else f" and {len(unknown) - 10} more")
        log.warning("the lags of these tasks aren't known, so the tasks stay where they are: %s", names)
    return {task: sum(ends[at] for at in logs) for task, logs in plan.changelogs.items() if ends.keys() >= set(logs)}


def _ends(
    admin: Admin, changelogs: Collection[TopicPartition], clock: Clock
) -> Generator[None, None, dict[TopicPartition, int]]:
    """Returns the end offsets of these partitions. Partitions whose brokers don't answer are left out."""
    found: dict[TopicPartition, int] = {}
    if not changelogs:
        return found
    asked = admin.ask(lambda cluster: cluster.start_listing(changelogs, end=True, timeout_ms=LAGS_TIMEOUT_MS))
    try:
        answers = yield from answered(asked, clock)
    except KafkaException as error:
        log.warning("can't ask for the end offsets of the changelogs: %s", text_of(error))
        return found
    for at, future in answers.items():
        try:
            found[at] = told(at, future)
        except KafkaException as error:
            log.debug("no end offset of %s: %s", at, text_of(error))
    return found


def _committed(committed: Committed, inputs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    if not inputs:
        return {}
    try:
        return {**dict.fromkeys(inputs, 0), **committed(inputs)}
    except (KafkaException, MilestonesError) as error:
        log.warning("can't ask for the group's committed offsets: %s", text_of(error))
        return {}
