"""What every confirmation of a commit by a transaction has in common.

*Guarantees*: a commit waits for room for its outputs no longer than its transaction may last.
*Assumes*: driven by the thread that owns the producer.
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
"""The time-out of one transactional call. A call without an answer by then is repeated."""

NO_ROOM = "the client had no room for all outputs of a commit in time: Kafka doesn't take what it has"


def end_begun() -> None:
    """Note that the request that makes Kafka commit is on its way."""
    reach("commit.ending")


class InTransaction:
    """What all confirmations by transactions have in common.

    `move`: moves the transaction to another stage. Kafka checked the generation when it got the offsets; so the end of
    the transaction needs only the producer.
    """

    ending = CommitStage.ENDING

    def __init__(self, context: ThreadContext, clients: Clients, move: Callable[[CommitStage], None]) -> None:
        self.context: ThreadContext = context
        self.clients: Clients = clients
        self.move: Callable[[CommitStage], None] = move

    @property
    def room_ms(self) -> int:
        """The time after which the transaction ends anyway. The wait begins anew each time an output has left."""
        return max(0, self.context.config.transaction_timeout_ms - (self.clients.producer.age_ms() or 0))

    def unsent(self, commit_set: CommitSet) -> MilestonesError:
        return UnsentError(NO_ROOM, [task.id for task in commit_set])

    def begin_end(self, call_ms: int) -> None:
        self.clients.producer.begin_commit(call_ms)
        end_begun()
