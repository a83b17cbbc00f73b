"""`ResendingPolicy`: to find the task whose output Kafka refuses, outputs are resent; no record is processed anew.

*Guarantees*: everything that `TaskEndingPolicy` guarantees. If outputs are resent one per batch, Kafka's answer names
the task, so that no task is suspected. A task whose outputs are resent is committed alone in the meantime.
*Assumes*: everything that `TaskEndingPolicy` assumes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milestones.common.errors import RefusedTogetherError, SendAgainError, TaskCorruptedError
from milestones.common.kafka.refusals import RefusedInTransactionError
from milestones.ended_tasks.task_failure_policy import TaskEndingPolicy
from milestones.parts import Attribution

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.parts import OpenTransaction


class ResendingPolicy(TaskEndingPolicy):
    """Ends single tasks, as in M4, and resends outputs to find a refused one."""

    def fail(self, task: TaskId, error: BaseException, *, owned: bool) -> None:
        if isinstance(error, TaskCorruptedError) and not error.tasks:
            # An error that names no task would roll all tasks back; the work of the others is kept.
            raise TaskCorruptedError(str(error), [task]) from error
        super().fail(task, error, owned=owned)

    def attribute(self, error: BaseException, transaction: OpenTransaction) -> Attribution | None:
        if isinstance(error, RefusedInTransactionError) and error.single and not transaction.identifies_rejected:
            self.extend_turn()
            return Attribution(isolate_batches=True)
        if isinstance(error, RefusedTogetherError):
            self.extend_turn()
        if isinstance(error, SendAgainError):
            again = {id: reached for id, reached in transaction.reached.items() if id in error.tasks}
            self.isolate(again, rests=True)
        return super().attribute(error, transaction)
