"""From offsets to ranges: what is left to do of the tasks that are ours. Pure.

*Guarantees*: a task with something left gets a range of all its input partitions, any other none. What the application
itself writes is read to its very end, open transactions included: the Spark task waits for their end. What others write
is read up to where their first open transaction begins, under exactly once.
*Assumes*: offsets were asked for after everything upstream was committed.
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
    """What is known of a task since an earlier range of it: when its punctuations are due, the earliest by the wall
    clock (ms since the epoch)."""

    schedule: PunctuationSchedule | None = None
    due_ms: int | None = None


@dataclass(frozen=True)
class RunLimits:
    """How a run wants its ranges. `limit`: records of all tasks together, about, None without limit. `punctuate`: tasks
    run by the wall clock too, each for a first time even without input."""

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
    """The ranges of the tasks that have something left, largest first; `now_ms`: wall clock."""
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
    """Each gets its share of the records by what it has left, and at least one."""
    total = sum(range_.size for range_ in ranges)
    if most is None or total <= most:
        return ranges
    return [replace(range_, limit=max(1, most * range_.size // total)) for range_ in ranges]


def capped(ends: Offsets, caps: Offsets) -> dict[TopicPartition, int]:
    """The ends, but none behind its cap."""
    return {partition: min(end, caps.get(partition, end)) for partition, end in ends.items()}
