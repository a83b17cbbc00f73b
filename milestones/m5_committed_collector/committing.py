"""Confirmations of M5: during them, the next outputs of tasks are sent.

*Guarantees*: everything that `Confirmation` guarantees. Under `at_least_once` the outputs of the next interval are sent
during the OffsetCommit.
*Assumes*: the collector keeps the outputs that are sent then, as they may have to be sent once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from milestones.m3_fencing_tolerance.transaction import ResolvedTransaction
from milestones.parts.transaction import CommitStage
from milestones.shared_parts.offset_commit import OffsetCommit

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients, Confirmation


class OffsetCommitBesideOutputs(OffsetCommit):
    """`at_least_once`: an OffsetCommit during which outputs are sent."""

    @property
    def ending(self) -> CommitStage:
        """The stage of the commit's end. If the producer isolates batches to find a refused record, no output is sent
        during the OffsetCommit: this producer is replaced at the end, and its queue is dropped."""
        isolation = self.clients.producer.isolation is not None
        return CommitStage.COMMITTING_OFFSETS if isolation else CommitStage.COMMITTING_OFFSETS_BESIDE


def confirmation(context: ThreadContext, clients: Clients, move: Callable[[CommitStage], None]) -> Confirmation:
    """Return the confirmation for the configured processing guarantee."""
    if context.config.exactly_once:
        return ResolvedTransaction(context, clients, move)
    return OffsetCommitBesideOutputs(context, clients)
