"""`outcome`: finds out from the committed offsets how a commit without an answer ended.

A commit has a number for each of its tasks. Each commit writes an offset for every partition of the task, even when the
offset hasn't changed. The metadata of the offset carries the number and the transactional id. So the committed metadata
names the last commit. `outcome` decides for all tasks of a commit, before they are rolled back. After a roll-back
`TaskCommits.made_unanswered` decides the same for one task.

*Why this way*:
- The client has given the commit up, so it can't say how the commit ended.
- Offsets are committed in the same transaction as outputs and changelogs, so their metadata can't disagree with them.
- Offsets alone decide nothing: a commit without new input has the same offsets as the one before. Hence the number.
- The number alone decides nothing: another process may have made a commit of this number. Hence the transactional id.

*Guarantees*: `outcome` is a pure function. COMMITTED and ROLLED_BACK are returned only if all partitions agree.
*Assumes*: when `committed` was read, the transaction had ended, and no other transaction had pending offsets. A task's
numbers never fall, even when the task changes its owner.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.task.metadata import OffsetMetadata


class CommitOutcome(enum.Enum):
    """How a commit ended."""

    COMMITTED = "it was committed"
    ROLLED_BACK = "it was rolled back"
    FOREIGN = "another process has committed these partitions"


def outcome(
    tried: Mapping[TopicPartition, OffsetAndMetadata], committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> CommitOutcome:
    """Return how the commit of `tried` ended. `committed`: the offsets that are committed now."""
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
