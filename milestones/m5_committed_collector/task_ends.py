"""Task ends of M5: whose outputs Kafka refuses is found out by sending them again, not by processing them again.

*Guarantees*: as `SingleTaskEnds`. No task is suspected where records that are sent one by one will tell.
*Assumes*: as `SingleTaskEnds`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milestones.common.errors import TaskCorruptedError
from milestones.common.kafka.producer import RefusedInTransactionError
from milestones.m4_polling_thread.task_ends import SingleTaskEnds
from milestones.parts import Blame

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.parts import Transacted


class IntervalTaskEnds(SingleTaskEnds):
    """Ends single tasks, as in M4."""

    def fail(self, task: TaskId, error: BaseException, *, owned: bool) -> None:
        if isinstance(error, TaskCorruptedError) and not error.tasks:
            raise TaskCorruptedError(str(error), [task]) from error
        super().fail(task, error, owned=owned)

    def blame(self, error: BaseException, transaction: Transacted) -> Blame | None:
        if isinstance(error, RefusedInTransactionError) and error.single and not transaction.one_by_one:
            return self.tell_apart()
        return super().blame(error, transaction)
