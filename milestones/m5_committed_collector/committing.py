"""Commits whose boundaries stay frozen until Kafka has confirmed them, and that let others' outputs pass.

*Guarantees*: those of `Committer`. A commit that fails leaves all of its boundaries as they are, to be committed again
with the same numbers. At least once the outputs of the next interval flow while the OffsetCommit is under way.
*Assumes*: what is kept of a boundary's outputs is the collector's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milestones.m3_fencing_tolerance.transaction import ResolvedTransaction
from milestones.shared_parts.committer import Committer
from milestones.shared_parts.offset_commit import OffsetCommit

if TYPE_CHECKING:
    from milestones.common.task.commit_set import CommitSet
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients, Confirmation


class IntervalCommitter(Committer):
    """Commits intervals, one after the other."""

    keeps = True


class KeptOffsetCommit(OffsetCommit):
    """`at_least_once`: a commit without an answer is made again as it was."""

    def failed(self, commit_set: CommitSet) -> None:
        """Nothing: the boundaries stay frozen."""


def confirmation(context: ThreadContext, clients: Clients) -> Confirmation:
    """The confirmation by the processing guarantee."""
    return ResolvedTransaction(context, clients) if context.config.exactly_once else KeptOffsetCommit(context, clients)
