"""Confirmations that let tasks' next outputs pass.

*Guarantees*: those of `Confirmation`. At least once the outputs of the next interval are sent during the OffsetCommit.
*Assumes*: what is sent then is kept by the collector, as it may have to be sent once more.
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
        """A producer that tells outputs apart is replaced at the end, with all that it has: nothing is sent by it."""
        isolation = self.clients.producer.isolation is not None
        return CommitStage.COMMITTING_OFFSETS if isolation else CommitStage.COMMITTING_OFFSETS_BESIDE


def confirmation(context: ThreadContext, clients: Clients, move: Callable[[CommitStage], None]) -> Confirmation:
    """The confirmation by the processing guarantee."""
    if context.config.exactly_once:
        return ResolvedTransaction(context, clients, move)
    return OffsetCommitBesideOutputs(context, clients)
