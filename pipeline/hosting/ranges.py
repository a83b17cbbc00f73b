"""The messages between the driver and a Spark task.

*Guarantees*: messages are plain values that can be pickled, and contain no objects of the user.
*Assumes*: Kafka's committed offsets decide what is done. A range is only a plan: records of the range before the
committed offset are already processed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from milestones.common.kafka.membership import LentMembership
from milestones.common.records import TaskId, TopicPartition
from milestones.common.task.punctuation import Due

PunctuationSchedule = tuple[Due, Due]
"""The due times of punctuations: first those by stream time, then those by the wall clock."""


@dataclass(frozen=True)
class TaskRange:
    """The work of one task: its input partitions, each from the committed offset to before `ends` at most. `begins`:
    the committed offsets at the time of the plan, without partitions that had none. `limit`: the largest number of
    records to process, or None. `lent`: the membership under which to commit. `schedule`: the punctuations after the
    task's last run, if they are known. `anyway`: True if the task must run even without records, because a punctuation
    is due.
    """

    task: TaskId
    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    lent: LentMembership
    limit: int | None = None
    schedule: PunctuationSchedule | None = None
    anyway: bool = False

    @property
    def size(self) -> int:
        """The number of offsets in the range, including those of control records and of deleted records."""
        return sum(max(0, end - self.begins.get(partition, 0)) for partition, end in self.ends.items())


class RangeEnd(enum.Enum):
    """How a run of a range ended."""

    DONE = "all of it is committed, or as much as its limit, or a broken connection, allows"
    STALE = "the generation is over: what wasn't committed was dropped"
    TOO_LATE = "an earlier attempt may still write, and nothing would fence it: it was left alone"
    FAILED = "an error that another try won't change"


@dataclass(frozen=True)
class RangeOutcome:
    """The outcome of a range. Counts are those of this attempt only. `dropped`: the number of skipped records (null
    key, late, a handler's decision) and of outputs that were left out. `punctuations`: the number of calls. `schedule`:
    None if the task didn't run, because all was already committed. `due_ms`: the time of the next wall-clock
    punctuation (ms since the epoch), or None. `gone`: for each partition of a trimmed changelog, the time (ms) up to
    which rows have expired. `error` and `exit_code` are set if the end is FAILED. `where`: host and process.
    """

    task: TaskId
    end: RangeEnd
    records: int = 0
    restored: int = 0
    commits: int = 0
    dropped: int = 0
    punctuations: int = 0
    seconds: float = 0.0
    schedule: PunctuationSchedule | None = None
    due_ms: int | None = None
    gone: Mapping[TopicPartition, int] = field(default_factory=dict)
    error: str = ""
    exit_code: int = 1
    where: str = field(default="", compare=False)
