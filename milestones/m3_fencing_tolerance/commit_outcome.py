"""What became of a commit that nobody answered: the committed offsets tell.

Every commit has a number of its own for each of its tasks, and carries it, with the transactional id, in the metadata
of a real offset of each of the task's partitions, be it an unchanged one. So what is committed says which commit it is.

*Guarantees*: a pure function; an answer is given only when all partitions agree.
*Assumes*: what is `committed` was read when the transaction had ended, and no other one pended on the offsets; numbers
of a task never fall, whoever commits it.
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
    FOREIGN = "somebody else has committed these partitions"


def outcome(
    tried: Mapping[TopicPartition, OffsetAndMetadata], committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> CommitOutcome:
    """What became of the commit of `tried`, given what is `committed` now."""
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
