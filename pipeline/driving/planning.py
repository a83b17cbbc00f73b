"""Plans, from offsets, the ranges that the run's tasks still have to process. Pure.

*Guarantees*: each task with unprocessed input gets a range of all its input partitions. Topics that the application
itself writes are read to their ends, including open transactions: the Spark task waits until these end. Under
`exactly_once_v2`, other topics are read up to their first open transaction.
*Assumes*: the offsets were asked for after all upstream tasks had committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from milestones.common.kafka.membership import LentMembership
from milestones.common.records import TaskId, TopicPartition
from milestones.pipeline.hosting.ranges import PunctuationSchedule, TaskRange

Tasks = Mapping[TaskId, Sequence[TopicPartition]]
Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class KnownPunctuations:
    """The punctuations of a task, known from its last range: when they are due. The earliest wall-clock time is in ms
    since the epoch.
    """

    schedule: PunctuationSchedule | None = None
    due_ms: int | None = None


@dataclass(frozen=True)
class RunLimits:
    """The limits of a run's ranges. `limit`: the approximate number of records of all tasks together, or None.
    `punctuate`: True if tasks also run for wall-clock punctuations. Then each task runs once even without input.
    """

    limit: int | None = None
    punctuate: bool = False


def plan(
    tasks: Tasks,
    committed: Offsets,
    ends: Offsets,
    known: Mapping[TaskId, KnownPunctuations],
    lent: LentMembership,
    limits: RunLimits,
    now_ms: int,
) -> list[TaskRange]:
    """Return the ranges of the tasks that have unprocessed input, largest first. `now_ms`: the wall clock's time."""
    found = []
    for task, partitions in sorted(tasks.items()):
        begins = {partition: committed[partition] for partition in partitions if partition in committed}
        own = {partition: max(ends[partition], begins.get(partition, 0)) for partition in partitions}
        at = known.get(task)
        due = limits.punctuate and (at is None or (at.due_ms is not None and at.due_ms <= now_ms))
        if due or any(begins.get(partition, -1) < end for partition, end in own.items()):
            found.append(TaskRange(task, begins, own, lent, None, None if at is None else at.schedule, anyway=due))
    return sorted(_limited(found, limits.limit), key=lambda range_: -range_.size)


def _limited(ranges: Sequence[TaskRange], most: int | None) -> Sequence[TaskRange]:
    """Divide the limit among ranges, in proportion to their unprocessed records. Each range gets at least one record.
    """
    total = sum(range_.size for range_ in ranges)
    if most is None or total <= most:
        return ranges
    return [replace(range_, limit=max(1, most * range_.size // total)) for range_ in ranges]


def capped(ends: Offsets, caps: Offsets) -> dict[TopicPartition, int]:
    """Return the ends, each reduced to its cap if it lies behind it."""
    return {partition: min(end, caps.get(partition, end)) for partition, end in ends.items()}
