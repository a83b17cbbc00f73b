"""The messages between the driver and a Spark task.

*Guarantees*: plain values that any pickle can carry; nothing of the user's in them.
*Assumes*: Kafka's committed offsets are the truth: a range is a plan, what is committed beyond its beginning is done.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from milestones.common.kafka.membership import LentMembership
from milestones.common.records import TaskId, TopicPartition
from milestones.common.task.punctuation import Due

PunctuationSchedule = tuple[Due, Due]
"""When punctuations are due: by stream time, by the wall clock."""


@dataclass(frozen=True)
class TaskRange:
    """One task's work: its input partitions, each from the committed offset, at most to before `ends`.

    `begins` is what was committed when it was planned, without partitions that have none. `limit`: records to process
    at most, None without limit. `lent`: the membership to commit under. `schedule`: of the task's last run, if it is
    known. `anyway`: run also when there is nothing to read, as something is due.
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
        """Offsets in it; control records count, what retention has removed as well."""
        return sum(max(0, end - self.begins.get(partition, 0)) for partition, end in self.ends.items())


class RangeEnd(enum.Enum):
    """How a run of a range ended."""

    DONE = "all of it is committed, or as much as its limit, or a broken connection, allows"
    STALE = "the generation is over: what wasn't committed was dropped"
    TOO_LATE = "an earlier attempt may still write, and nothing would fence it: it was left alone"
    FAILED = "an error that another try won't change"


@dataclass(frozen=True)
class RangeOutcome:
    """What became of a range. Counts are of this attempt only; `dropped`: records that it skipped (null key, late, a
    handler's decision), and outputs that it went on without; `punctuations` that it called.

    `schedule`: None when nothing is known of it: the task didn't run, as all was committed already. `due_ms`: when a
    wall-clock punctuation is due next (ms since the epoch), None without any. `gone`: the times (ms) up to which rows
    are gone, by partition of the changelogs that are trimmed. `error` and `exit_code` go with FAILED.
    `where`: host and process.
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
