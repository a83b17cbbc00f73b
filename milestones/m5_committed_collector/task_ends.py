"""Task ends of M5: to find the task whose output Kafka refuses, outputs are sent once more, and no record is processed.

*Guarantees*: everything that `SingleTaskEnds` guarantees. If outputs are resent one per batch, Kafka's answer names the
task, so that no task is suspected. A task whose outputs are resent is committed alone in the meantime.
*Assumes*: everything that `SingleTaskEnds` assumes.
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
    """Ends single tasks, as in M4, and resends outputs to find a refused one."""

    def fail(self, task: TaskId, error: BaseException, *, owned: bool) -> None:
        if isinstance(error, TaskCorruptedError) and not error.tasks:
            # An error that names no task would roll all tasks back; the work of the others is kept.
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
