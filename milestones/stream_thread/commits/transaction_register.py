"""The register of a thread's transaction: one table of moves, one of answers.

    OPEN --> SENDING --> FLUSHING --> OFFSETS --+--> ENDING --> RESOLVING           exactly once
     ^                                          +--> COMMITTING_OFFSETS(_BESIDE)    at least once
     |                                                 |
     +--- RECOVERING, RETAINED, RETAINED_BEHIND <------+   also from each step before, by an error

`task_registry.py` says where a *task* is; this register says where the *transaction* is. Every decision that depends on
this stage is a row of `ANSWERS`, or of the part `failed_commit`. No part asks another part about its progress.

*Guarantees*: a move that isn't in `MOVES` raises `OwnershipError`, as it is a bug. So does an event for which a stage
has no answer.
*Assumes*: one owner, the thread that owns the tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from milestones.common.errors import OwnershipError
from milestones.parts.transaction import Answers, CommitAction, CommitEvent, CommitStage

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.task.boundary import PendingCommit
    from milestones.common.task.task import Task
    from milestones.stream_thread.commits.recoveries import Recovering

OFFSET_COMMITS: Final = (CommitStage.COMMITTING_OFFSETS, CommitStage.COMMITTING_OFFSETS_BESIDE)
ENDS: Final = (CommitStage.ENDING, *OFFSET_COMMITS)
"""The stages in which the end of a commit may begin; the part `Confirmation` says which."""

MOVES: Final[Mapping[CommitStage, Set[CommitStage]]] = {
    CommitStage.OPEN: {CommitStage.SENDING},
    CommitStage.SENDING: {CommitStage.FLUSHING, CommitStage.OPEN},
    CommitStage.FLUSHING: {CommitStage.OFFSETS, CommitStage.OPEN},
    CommitStage.OFFSETS: {*ENDS, CommitStage.OPEN},
    CommitStage.ENDING: {CommitStage.RESOLVING, CommitStage.OPEN},
    CommitStage.RESOLVING: {CommitStage.OPEN},
    CommitStage.COMMITTING_OFFSETS: {CommitStage.OPEN},
    CommitStage.COMMITTING_OFFSETS_BESIDE: {CommitStage.OPEN},
}
"""The moves of a commit. In `OPEN` the commit is over, successfully or not. An error, or the loss of the membership,
may end it in each stage."""

AT_REST: Final = (CommitStage.OPEN, CommitStage.RETAINED, CommitStage.RETAINED_BEHIND)
BEFORE_THE_OFFSETS: Final = (CommitStage.SENDING, CommitStage.FLUSHING)
FROM_THE_OFFSETS_ON: Final = (CommitStage.OFFSETS, *ENDS, CommitStage.RESOLVING)
UNDER_WAY: Final = (*BEFORE_THE_OFFSETS, *FROM_THE_OFFSETS_ON)


def _rows(event: CommitEvent, rows: Mapping[CommitStage | tuple[CommitStage, ...], CommitAction]) -> Answers:
    """Return the rows of the table for one event. A key of `rows` is the stage of the transaction, or a tuple of the
    stages in which the same action follows."""
    return {
        (stage, event): action
        for stages, action in rows.items()
        for stage in (stages if isinstance(stages, tuple) else (stages,))
    }


ANSWERS: Final[Answers] = {
    **_rows(
        CommitEvent.OUTPUTS_MADE,
        {
            (CommitStage.OPEN, CommitStage.RETAINED_BEHIND, CommitStage.COMMITTING_OFFSETS_BESIDE): CommitAction.SEND,
            # Outputs that are sent now would be in the transaction of the failed commit, which must come first.
            CommitStage.RETAINED: CommitAction.WAIT,
            (CommitStage.RECOVERING, *BEFORE_THE_OFFSETS, CommitStage.OFFSETS): CommitAction.WAIT,
            (CommitStage.ENDING, CommitStage.RESOLVING, CommitStage.COMMITTING_OFFSETS): CommitAction.WAIT,
        },
    ),
    **_rows(
        CommitEvent.TURN,
        {
            CommitStage.OPEN: CommitAction.BEGIN,
            (CommitStage.RETAINED, CommitStage.RETAINED_BEHIND): CommitAction.BEGIN_ONCE_MORE,
            CommitStage.RECOVERING: CommitAction.WAIT,
            UNDER_WAY: CommitAction.STEP,
        },
    ),
    **_rows(
        CommitEvent.JOIN_NEEDED,
        {
            CommitStage.OPEN: CommitAction.COMMIT,
            (CommitStage.RETAINED, CommitStage.RETAINED_BEHIND, CommitStage.RECOVERING): CommitAction.WAIT,
            (*BEFORE_THE_OFFSETS, CommitStage.OFFSETS): CommitAction.WAIT,
            # Kafka checked the generation when it got the offsets. A task's next owner reads them only when no
            # transaction is pending on them.
            CommitStage.ENDING: CommitAction.ANSWER,
            # In both stages a request is under way that needs the present generation, which a join would end.
            (CommitStage.RESOLVING, *OFFSET_COMMITS): CommitAction.WAIT,
        },
    ),
    **_rows(
        CommitEvent.TASKS_LEAVE,
        {
            CommitStage.OPEN: CommitAction.COMMIT,
            (CommitStage.RETAINED, CommitStage.RETAINED_BEHIND, CommitStage.RECOVERING): CommitAction.WAIT,
            UNDER_WAY: CommitAction.WAIT,
        },
    ),
    **_rows(
        CommitEvent.TIME_IS_UP,
        {
            (*AT_REST, CommitStage.RECOVERING): CommitAction.ANSWER,
            BEFORE_THE_OFFSETS: CommitAction.ABANDON,
            FROM_THE_OFFSETS_ON: CommitAction.WAIT,
        },
    ),
    **_rows(
        CommitEvent.MEMBERSHIP_LOST,
        {
            (*AT_REST, CommitStage.RECOVERING): CommitAction.ANSWER,
            BEFORE_THE_OFFSETS: CommitAction.ABANDON,
            # Kafka may have committed. Only its answer says which state is right.
            FROM_THE_OFFSETS_ON: CommitAction.WAIT,
        },
    ),
    **_rows(CommitEvent.ERROR, {(*AT_REST, CommitStage.RECOVERING): CommitAction.RECOVER}),
}
"""The action that is taken about each event in each stage. All milestones have these rows. `FailedCommit.answers` has
the other rows."""


@dataclass
class UnansweredErrors:
    """Errors that haven't been recovered from yet. *Owner*: `Recoveries`.

    `waiting`: the errors whose recovery hasn't begun, each with the beginning of its turn in ms, the oldest first.
    """

    waiting: deque[tuple[Exception, int]] = field(default_factory=deque)
    recovering: Recovering | None = None

    def __bool__(self) -> bool:
        return self.recovering is not None or bool(self.waiting)


class TransactionRegister:
    """*Owns*: the stage of the commit under way.

    Three other objects write into the register, because its answers depend on what they know. `errors` (written by
    `Recoveries`): errors that haven't been recovered from yet. `retained` (written by `CommitDriver`): the boundaries
    of failed commits that will be repeated. `cut_off` (written by `GroupAnswers`): tasks that are given away and whose
    last commit was cut. A long call of user code in such a task may end after the cut. Its outputs mustn't be sent, as
    no commit has its offsets.
    """

    def __init__(
        self, admits: Callable[[TaskId], bool], answers: Answers, errors: UnansweredErrors | None = None
    ) -> None:
        """`admits`: returns True if a task's outputs may be in the next transaction. `answers`: the rows of the part
        `failed_commit`."""
        self._admits, self._answers = admits, {**ANSWERS, **answers}
        self.errors: UnansweredErrors = UnansweredErrors() if errors is None else errors
        self.retained: dict[Task, PendingCommit] = {}
        self.cut_off: Set[TaskId] = frozenset()
        self._commit = CommitStage.OPEN

    @property
    def stage(self) -> CommitStage:
        """The stage that `answer` looks up: the stage of the commit under way, or one that errors and failed commits
        lead to."""
        if self._commit is not CommitStage.OPEN:
            # A producer that must be recovered sends nothing more, and nothing is sent before a failed commit that
            # comes first.
            beside = self._commit is CommitStage.COMMITTING_OFFSETS_BESIDE
            return CommitStage.COMMITTING_OFFSETS if beside and (self.errors or self._comes_first()) else self._commit
        if self.errors:
            return CommitStage.RECOVERING
        if self.retained:
            return CommitStage.RETAINED if self._comes_first() else CommitStage.RETAINED_BEHIND
        return CommitStage.OPEN

    def _comes_first(self) -> bool:
        """True if the next commit repeats a failed one: outputs of other tasks mustn't be in its transaction."""
        return any(self._admits(task.id) for task in self.retained)

    @property
    def step(self) -> CommitStage:
        """The stage of the commit under way, without regard to errors and failed commits; `OPEN` if there is none."""
        return self._commit

    @property
    def under_way(self) -> bool:
        """True while a commit has begun and hasn't ended."""
        return self._commit is not CommitStage.OPEN

    @property
    def at_rest(self) -> bool:
        """True while no commit is under way and no error waits for its recovery."""
        return self._commit is CommitStage.OPEN and not self.errors

    @property
    def unsettled(self) -> bool:
        """True while an error hasn't been recovered from, or a failed commit must be repeated."""
        return bool(self.errors or self.retained)

    def move(self, stage: CommitStage) -> None:
        """Record that the commit under way is in this stage now."""
        if stage not in MOVES.get(self._commit, ()):
            raise OwnershipError(f"a transaction in {self._commit.name} can't be in {stage.name} next. This is a bug")
        self._commit = stage

    def commit_is_over(self) -> None:
        """Record that the commit under way has succeeded, has failed, or was dropped. Does nothing when there is
        none."""
        if self._commit is not CommitStage.OPEN:
            self.move(CommitStage.OPEN)

    def answer(self, event: CommitEvent) -> CommitAction:
        """Return the action to take about the event now."""
        stage = self.stage
        try:
            return self._answers[stage, event]
        except KeyError:
            raise OwnershipError(f"a transaction in {stage.name} can't meet {event.name}. This is a bug") from None

    def admits(self, task: TaskId) -> bool:
        """True if outputs of the task may be sent, as far as other tasks and the group decide that."""
        return task not in self.cut_off and self._admits(task)
