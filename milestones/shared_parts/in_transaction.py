"""`InTransaction`: what all confirmations of a commit by a transaction have in common.

*Guarantees*: a commit waits for room for its outputs no longer than its transaction may last.
*Assumes*: the thread that owns the producer makes all calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from milestones.common.errors import MilestonesError, UnsentError
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.task.commit_set import CommitSet
from milestones.common.testing.faults import reach
from milestones.parts.transaction import CommitStage

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]

CALL_MS = 10_000
"""The time-out of one transactional call. A call that has no answer by then is repeated."""

NO_ROOM = "the client had no room for all outputs of a commit in time: Kafka doesn't take the outputs in its queue"


def end_begun() -> None:
    """Reach a fault point of tests: the request that makes Kafka commit is on its way."""
    reach("commit.ending")


class InTransaction:
    """Base class of the confirmations by transactions.

    `move` moves the transaction to another stage. Kafka checks the generation when it gets the offsets. So the end of
    the transaction needs only the producer.
    """

    ending = CommitStage.ENDING

    def __init__(self, context: ThreadContext, clients: Clients, move: Callable[[CommitStage], None]) -> None:
        self.context: ThreadContext = context
        self.clients: Clients = clients
        self.move: Callable[[CommitStage], None] = move

    @property
    def room_ms(self) -> int:
        """The longest wait for room, from the last sent output on: the time until the transaction ends anyway."""
        return max(0, self.context.config.transaction_timeout_ms - (self.clients.producer.age_ms() or 0))

    def unsent(self, commit_set: CommitSet) -> MilestonesError:
        return UnsentError(NO_ROOM, [task.id for task in commit_set])

    def begin_end(self, call_ms: int) -> None:
        self.clients.producer.begin_commit(call_ms)
        end_begun()
