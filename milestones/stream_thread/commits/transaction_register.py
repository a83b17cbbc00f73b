"""The register of a thread's transaction: one table of moves, one of answers.

    OPEN --> SENDING --> FLUSHING --> OFFSETS --+--> ENDING --> RESOLVING           exactly once
     ^                                          +--> COMMITTING_OFFSETS(_BESIDE)    at least once
     |                                                 |
     +--- RECOVERING, RETAINED, RETAINED_BEHIND <------+   also from each step before, by an error

Where a *task* is says `task_registry.py`; where the *transaction* is says this. Whatever depends on that is a row of
`ANSWERS`, or of the part `failed_commit`; no part asks another one how far it is.

*Guarantees*: a move that isn't in `MOVES` is refused as a bug, and so is an event that a stage can't meet.
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
"""How the end of a commit begins: the confirmation chooses."""

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
"""The moves of a commit. It is over in `OPEN`, made or not; an error, or a loss, may end it in each stage."""

AT_REST: Final = (CommitStage.OPEN, CommitStage.RETAINED, CommitStage.RETAINED_BEHIND)
BEFORE_THE_OFFSETS: Final = (CommitStage.SENDING, CommitStage.FLUSHING)
FROM_THE_OFFSETS_ON: Final = (CommitStage.OFFSETS, *ENDS, CommitStage.RESOLVING)
UNDER_WAY: Final = (*BEFORE_THE_OFFSETS, *FROM_THE_OFFSETS_ON)


def _rows(event: CommitEvent, rows: Mapping[CommitStage | tuple[CommitStage, ...], CommitAction]) -> Answers:
    """The answers to an event, by stage or by several stages."""
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
            # They would be in the transaction of the commit that comes first.
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
            # The generation was checked when the offsets went in, and a task's next owner reads offsets once no
            # transaction pends on them.
            CommitStage.ENDING: CommitAction.ANSWER,
            # Both ask the group under the generation that the member would leave.
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
            # Kafka may have committed: whose state is right is known with its answer only.
            FROM_THE_OFFSETS_ON: CommitAction.WAIT,
        },
    ),
    **_rows(CommitEvent.ERROR, {(*AT_REST, CommitStage.RECOVERING): CommitAction.RECOVER}),
}
"""What is done about each event in each stage, on every milestone. `FailedCommit.answers` has the other rows."""


@dataclass
class UnansweredErrors:
    """Errors that aren't recovered from yet. *Owner*: `Recoveries`.

    `waiting`: each with the beginning of its turn in ms, the oldest first.
    """

    waiting: deque[tuple[Exception, int]] = field(default_factory=deque)
    recovering: Recovering | None = None

    def __bool__(self) -> bool:
        return self.recovering is not None or bool(self.waiting)


class TransactionRegister:
    """*Owns*: how far the commit under way is.

    Others write into it what its answers depend on. `errors`: those that aren't recovered from yet, by `Recoveries`.
    `retained`: the boundaries that are to be committed once more, by `CommitDriver`. `cut_off`: tasks that are given
    away and whose last commit was cut, by `GroupAnswers`. A call of user code that was too long for that commit may end
    in them later: nothing of it may be sent, as no commit has its offsets.
    """

    def __init__(
        self, admits: Callable[[TaskId], bool], answers: Answers, errors: UnansweredErrors | None = None
    ) -> None:
        """`admits`: whether a task's outputs may be in the next transaction; `answers`: those of the part
        `failed_commit`."""
        self._admits, self._answers = admits, {**ANSWERS, **answers}
        self.errors: UnansweredErrors = UnansweredErrors() if errors is None else errors
        self.retained: dict[Task, PendingCommit] = {}
        self.cut_off: Set[TaskId] = frozenset()
        self._commit = CommitStage.OPEN

    @property
    def stage(self) -> CommitStage:
        """Where the transaction is, with what failed commits and errors make of it: what `answer` goes by."""
        if self._commit is not CommitStage.OPEN:
            # Nothing more is sent by a producer that is to be recovered, nor before what comes first.
            beside = self._commit is CommitStage.COMMITTING_OFFSETS_BESIDE
            return CommitStage.COMMITTING_OFFSETS if beside and (self.errors or self._comes_first()) else self._commit
        if self.errors:
            return CommitStage.RECOVERING
        if self.retained:
            return CommitStage.RETAINED if self._comes_first() else CommitStage.RETAINED_BEHIND
        return CommitStage.OPEN

    def _comes_first(self) -> bool:
        """Whether a failed commit is the next one: others' outputs mustn't be in its transaction."""
        return any(self._admits(task.id) for task in self.retained)

    @property
    def step(self) -> CommitStage:
        """How far the commit under way is, whatever else happens; `OPEN` without one."""
        return self._commit

    @property
    def under_way(self) -> bool:
        """Whether a commit was begun that isn't over."""
        return self._commit is not CommitStage.OPEN

    @property
    def at_rest(self) -> bool:
        """Whether no commit and no recovery is under way."""
        return self._commit is CommitStage.OPEN and not self.errors

    @property
    def unsettled(self) -> bool:
        """Whether an error isn't recovered from yet, or a failed commit is to be made once more."""
        return bool(self.errors or self.retained)

    def move(self, stage: CommitStage) -> None:
        """The commit under way is in this stage now."""
        if stage not in MOVES.get(self._commit, ()):
            raise OwnershipError(f"a transaction in {self._commit.name} can't be in {stage.name} next. This is a bug")
        self._commit = stage

    def commit_is_over(self) -> None:
        """The commit under way was made, or has failed, or was dropped. Does nothing when there is none."""
        if self._commit is not CommitStage.OPEN:
            self.move(CommitStage.OPEN)

    def answer(self, event: CommitEvent) -> CommitAction:
        """What is to be done about the event now."""
        stage = self.stage
        try:
            return self._answers[stage, event]
        except KeyError:
            raise OwnershipError(f"a transaction in {stage.name} can't meet {event.name}. This is a bug") from None

    def admits(self, task: TaskId) -> bool:
        """Whether outputs of the task may be sent, as far as other tasks and the group go."""
        return task not in self.cut_off and self._admits(task)
