"""`Committer` makes a commit in steps. A step is begun, and later calls check whether it is done (docs/commits.md).

*Guarantees*: only writes that Kafka has confirmed are applied to the engines. The offsets of every task are committed
with its outputs, even if they haven't moved (Kafka wouldn't fence an empty list of offsets).
*Assumes*: the thread that owns the tasks makes all calls. During a commit none of its tasks is rolled back, closed or
given away. During a commit no other code uses the producer. The exceptions are the steps of the commit in which the
transaction's register lets outputs be sent.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from milestones.common.errors import OwnershipError, StateError
from milestones.common.steps import Steps
from milestones.common.task.commit_set import CommitSet, offsets_of
from milestones.common.testing.faults import reach
from milestones.parts.transaction import CommitStage
from milestones.shared_parts.in_transaction import Offsets

if TYPE_CHECKING:
    from milestones.parts import CommitGate, Confirmation, FailedCommit, OutputCollection
    from milestones.parts.commit import StageRegister

log: Final = logging.getLogger(__name__)


class Committer:
    """Commits tasks of one thread, step by step, and moves the transaction's register to each stage.

    1. Send the remaining outputs and flush. 2. Confirm: offsets, end. 3. Apply the writes to the engines.
    """

    def __init__(
        self,
        collection: OutputCollection,
        confirmation: Confirmation,
        processing: CommitGate,
        stages: StageRegister,
        failed_commit: FailedCommit,
    ) -> None:
        self._collection, self._confirmation, self._processing = collection, confirmation, processing
        self._stages, self._failed_commit = stages, failed_commit
        self._steps: Steps[Offsets] | None = None

    def begin(self, commit_set: CommitSet) -> None:
        if self._steps is not None:
            raise OwnershipError("a commit is under way. This is a bug")
        self._stages.move(CommitStage.SENDING)
        self._steps = self._commit(commit_set)
        next(self._steps)

    def run_once(self, wait_ms: int) -> Offsets | None:
        if self._steps is None:
            raise OwnershipError("no commit is under way. This is a bug")
        try:
            self._steps.send(wait_ms)
        except StopIteration as end:
            self._end()
            committed: Offsets = end.value
            return committed
        except BaseException:
            self._end()
            raise
        return None

    def abandon(self) -> None:
        steps = self._steps
        self._end()
        if steps is not None:
            steps.close()

    def _end(self) -> None:
        self._steps = None
        self._stages.commit_is_over()

    def _commit(self, commit_set: CommitSet) -> Steps[Offsets]:
        try:
            yield
            if not commit_set:
                return {}
            reach("commit.before-flush")
            if not (yield from self._collection.send(commit_set, self._confirmation.room_ms)):
                raise self._confirmation.unsent(commit_set)
            self._stages.move(CommitStage.FLUSHING)
            yield from self._collection.flush()
            reach("commit.after-flush")
            offsets = offsets_of(commit_set)
            self._stages.move(CommitStage.OFFSETS)
            yield from self._confirmation.hand_over(offsets)
            reach("commit.after-offsets")
            self._stages.move(self._confirmation.ending)
            yield from self._confirmation.end(offsets)
        except BaseException:
            self._failed_commit.failed(commit_set)
            raise
        for task, boundary in commit_set.items():
            task.confirmed(boundary, self._collection.take_changelog_offsets(task))
        try:
            reach("commit.after-commit")
        finally:  # Kafka has committed, and no error can undo that
            self._apply(commit_set)
        reach("commit.after-apply")
        return offsets

    def _apply(self, commit_set: CommitSet) -> None:
        """Apply every task's writes, even if those of another task can't be applied: Kafka has committed them all."""
        failed: StateError | None = None
        for task in commit_set:
            try:
                self._processing.apply(task)
            except StateError as error:
                log.error("task %s: what was committed can't be written, it will be restored: %s", task.id, error)
                failed = failed or error
            reach("commit.in-apply")
        if failed is not None:
            raise failed
