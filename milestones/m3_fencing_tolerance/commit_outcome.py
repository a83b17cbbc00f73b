"""`outcome`: tells from the committed offsets how an unanswered commit ended.

A commit has a number for each of its tasks. Each commit writes an offset for every partition of the task, even when it
hasn't changed. The offset's metadata carries the number and the transactional id. So the committed metadata names the
commit. What is asked here before a roll-back, of all tasks of one commit, `TaskCommits.made_unanswered` asks after it,
of one task.

*Guarantees*: a pure function; an answer is given only when all partitions agree.
*Assumes*: `committed` was read when the transaction had ended and no other one pended on the offsets. A task's numbers
never fall, also when the task changes its owner.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.task.metadata import OffsetMetadata


class CommitOutcome(enum.Enum):
    """The end of a commit."""

    COMMITTED = "it was committed"
    ROLLED_BACK = "it was rolled back"
    FOREIGN = "another process has committed these partitions"


def outcome(
    tried: Mapping[TopicPartition, OffsetAndMetadata], committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> CommitOutcome:
    """How the commit of `tried` ended, given the offsets that are `committed` now."""
    found = {_of_one(at, committed.get(partition)) for partition, at in tried.items()}
    return found.pop() if len(found) == 1 else CommitOutcome.FOREIGN


def _of_one(tried: OffsetAndMetadata, committed: OffsetAndMetadata | None) -> CommitOutcome:
    ours = OffsetMetadata.decode(tried.metadata)
    theirs = OffsetMetadata() if committed is None else OffsetMetadata.decode(committed.metadata)
    if theirs.commit < ours.commit:
        return CommitOutcome.ROLLED_BACK
    same = (theirs.commit, theirs.transactional_id) == (ours.commit, ours.transactional_id)
    return (
        CommitOutcome.COMMITTED
        if same and committed is not None and committed.offset == tried.offset
        else CommitOutcome.FOREIGN
    )
