"""`task_ends`: the ends of the tasks' changelogs, with which the leader turns positions into lags.

*Guarantees*: one question for all changelogs. A task whose ends can't be found out is left out, with a line in the log;
no error is raised for it.
*Assumes*: the thread that owns the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError
from milestones.common.kafka.clients import text_of

if TYPE_CHECKING:
    from milestones.common.assignment.plan import TaskPlan
    from milestones.common.kafka.topics import Cluster
    from milestones.common.records import TaskId, TopicPartition

log = logging.getLogger(__name__)


def task_ends(
    cluster: Cluster, plan: TaskPlan, group: str, *, new: Collection[str] = (), timeout_ms: int
) -> dict[TaskId, int]:
    """The sums of the ends of changelogs, in offsets, by task; a task with an unknown end is left out.

    `new`: topics that have just been made, which are empty, and may have no leaders yet. A source topic that serves as
    changelog ends at the group's committed offset.
    """
    inputs = {at for task in plan.changelogs for at in plan.tasks[task]}
    all_ = {at for logs in plan.changelogs.values() for at in logs}
    ends = dict.fromkeys((at for at in all_ if at.topic in new), 0)
    ours, read = sorted(at for at in all_ - inputs if at.topic not in new), sorted(all_ & inputs)
    ends |= _told("where the changelogs end", lambda: cluster.known_ends(ours, timeout_ms=timeout_ms))
    if read:
        zero = dict.fromkeys(read, 0)
        ends |= _told("the group's committed offsets", lambda: zero | cluster.committed(group, read))
    unknown = sorted(task for task, logs in plan.changelogs.items() if not ends.keys() >= set(logs))
    if unknown:
        names = ", ".join(map(str, unknown[:10])) + ("" if len(unknown) <= 10 else f" and {len(unknown) - 10} more")
        log.warning("it isn't known how far members lag on %s: these tasks stay where they are", names)
    return {task: sum(ends[at] for at in logs) for task, logs in plan.changelogs.items() if ends.keys() >= set(logs)}


def _told(what: str, ask: Callable[[], dict[TopicPartition, int]]) -> dict[TopicPartition, int]:
    try:
        return ask()
    except (KafkaException, MilestonesError) as error:
        log.warning("%s can't be asked: %s", what, text_of(error))
        return {}
