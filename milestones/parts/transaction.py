"""Names for a thread's transaction: its stages, the events that happen to it, and the actions that follow.

The tables in `stream_thread/commits/transaction_register.py` use these names.

*Guarantees*: these are only names; nothing here decides anything.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from milestones.common.identity_enum import IdentityEnum


class CommitStage(IdentityEnum):
    """The stage of a thread's transaction. Under `at_least_once` there is no transaction, but the same steps lead to an
    OffsetCommit."""

    OPEN = "tasks add to it; no commit is under way"
    RETAINED = "a commit has failed, and is made once more; it comes next"
    RETAINED_BEHIND = "a commit has failed, and is made once more; another transaction comes first"
    RECOVERING = "an error is recovered from; no commit is under way"
    SENDING = "the rest of a commit's outputs is handed to the client"
    FLUSHING = "Kafka hasn't acknowledged all of a commit's outputs yet"
    OFFSETS = "a commit's offsets are handed over"
    ENDING = "Kafka was asked to end the transaction, and hasn't answered"
    RESOLVING = "the end had no answer, and the group is asked what is committed"
    COMMITTING_OFFSETS = "an OffsetCommit is under way"
    COMMITTING_OFFSETS_BESIDE = "an OffsetCommit is under way, and tasks' next outputs are sent meanwhile"


class CommitEvent(IdentityEnum):
    """An event that happens to the transaction."""

    OUTPUTS_MADE = "tasks have made outputs"
    TURN = "a turn of the loop comes to its commit"
    JOIN_NEEDED = "the member is to join a new generation"
    TASKS_LEAVE = "the group gives tasks of this thread to others"
    TIME_IS_UP = "the group has waited long enough for a commit"
    MEMBERSHIP_LOST = "the member is fenced, or its session is over"
    ERROR = "something fails that isn't the commit under way"
    CUT_FAILED = "a commit for the group fails before its cut"
    LAST_COMMIT_FAILED = "the commit of a thread that is to stop fails"
    OUTPUTS_LEFT = "tasks leave, and without transactions nothing fences what the client still has of them"


class CommitAction(IdentityEnum):
    """The action that is taken about an event."""

    SEND = "the outputs are handed to the client"
    WAIT = "nothing, until the stage is another one"
    BEGIN = "a commit is begun if one is due, no rebalance is near, and no output waits for room"
    BEGIN_ONCE_MORE = "a commit is begun after its pause, even if a rebalance is near: the failed one if it comes next"
    STEP = "the commit under way takes the steps that Kafka answers soon"
    COMMIT = "a commit of all that came since the last one is made first"
    ANSWER = "the group is answered now, without another commit"
    ABANDON = "the commit under way is dropped: Kafka can't have committed yet"
    FINISH = "the commit under way is taken to its end, with its errors"
    GO_ON = "the commit under way goes on over the next turns"
    RECOVER = "the error is recovered from"
    RAISE = "the error is raised"
    TRY_ONCE_MORE = "the error is recovered from, and the commit is tried once more"
    FLUSH = "Kafka takes them, or they are thrown away with the producer"
    REPLACE_PRODUCER = "they are thrown away with the producer, and those of tasks that stay are sent by the next one"


Answers: TypeAlias = Mapping[tuple[CommitStage, CommitEvent], CommitAction]
"""The action that is taken about each event in each stage."""
