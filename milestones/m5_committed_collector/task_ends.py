"""Task ends of M5: whose outputs Kafka refuses is found out by sending them again, not by processing them again.

*Guarantees*: as `SingleTaskEnds`. No task is suspected where outputs that are told apart will say whose it is; one
whose outputs are to be resent is committed alone meanwhile.
*Assumes*: as `SingleTaskEnds`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milestones.common.errors import RefusedTogetherError, SendAgainError, TaskCorruptedError
from milestones.common.kafka.refusals import RefusedInTransactionError
from milestones.ended_tasks.task_ends import SingleTaskEnds
from milestones.parts import Blame

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.parts import Transacted


class IntervalTaskEnds(SingleTaskEnds):
    """Ends single tasks, as in M4."""

    def fail(self, task: TaskId, error: BaseException, *, owned: bool) -> None:
        if isinstance(error, TaskCorruptedError) and not error.tasks:
            # Without a name all tasks would go back; what the others have done is kept.
            raise TaskCorruptedError(str(error), [task]) from error
        super().fail(task, error, owned=owned)

    def blame(self, error: BaseException, transaction: Transacted) -> Blame | None:
        if isinstance(error, RefusedInTransactionError) and error.single and not transaction.identifies_rejected:
            self.extend_turn()
            return Blame(isolate_batches=True)
        if isinstance(error, RefusedTogetherError):
            self.extend_turn()
        if isinstance(error, SendAgainError):
            again = {id: reached for id, reached in transaction.reached.items() if id in error.tasks}
            self.isolate(again, rests=True)
        return super().blame(error, transaction)
