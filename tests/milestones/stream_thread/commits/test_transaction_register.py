"""The register of the transaction: one stage, no move that isn't in the table, an answer to each event."""

from __future__ import annotations

from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest

from milestones.baseline.failed_commit import ANSWERS as TO_M4
from milestones.common.errors import OwnershipError
from milestones.common.records import TaskId
from milestones.m5_committed_collector.failed_commit import ANSWERS as FROM_M5
from milestones.parts.transaction import CommitAction, CommitEvent, CommitStage
from milestones.stream_thread.commits.transaction_register import (
    ANSWERS,
    AT_REST,
    ENDS,
    MOVES,
    UNDER_WAY,
    TransactionRegister,
)

A, B = TaskId(0, 0), TaskId(0, 1)
TO_OFFSETS = (CommitStage.SENDING, CommitStage.FLUSHING, CommitStage.OFFSETS)
WAYS = {
    CommitStage.OPEN: (),
    **{stage: TO_OFFSETS[: count + 1] for count, stage in enumerate(TO_OFFSETS)},
    **{end: (*TO_OFFSETS, end) for end in ENDS},
    CommitStage.RESOLVING: (*TO_OFFSETS, CommitStage.ENDING, CommitStage.RESOLVING),
}
BEFORE_KAFKA_IS_ASKED = {CommitStage.SENDING, CommitStage.FLUSHING}
MAY_BE_MADE = {CommitStage.OFFSETS, *ENDS, CommitStage.RESOLVING}
EVERY_MILESTONE = [pytest.param(TO_M4, id="to m4"), pytest.param(FROM_M5, id="from m5")]


class Transaction:
    """A register; `admitted`: tasks whose outputs may be in the next transaction."""

    def __init__(self, answers: Any = TO_M4) -> None:
        self.admitted = {A, B}
        self.register = TransactionRegister(lambda id: id in self.admitted, answers)

    def to(self, stage: CommitStage) -> TransactionRegister:
        """Go the shortest way to the stage."""
        if stage is CommitStage.RECOVERING:
            self.fail()
        elif stage in (CommitStage.RETAINED, CommitStage.RETAINED_BEHIND):
            self.retain()
            self.admitted = {A} if stage is CommitStage.RETAINED else {B}
        for step in WAYS.get(stage, ()):
            self.register.move(step)
        return self.register

    def retain(self) -> None:
        task, boundary = Mock(id=A), Mock()
        self.register.retained = {task: boundary}

    def fail(self) -> None:
        self.register.errors.waiting.append((ValueError("a test"), 0))


@pytest.mark.parametrize(("before", "after"), list(product(MOVES, CommitStage)), ids=lambda stage: stage.name)
def test_a_commit_moves_as_the_table_says_and_in_no_other_way(before: CommitStage, after: CommitStage) -> None:
    register = Transaction().to(before)
    if after in MOVES[before]:
        register.move(after)
        assert register.step is after
    else:
        with pytest.raises(OwnershipError, match=f"a transaction in {before.name} can't be in {after.name} next"):
            register.move(after)
        assert register.step is before


@pytest.mark.parametrize("stage", MOVES)
def test_a_commit_may_be_over_in_every_stage(stage: CommitStage) -> None:
    register = Transaction().to(stage)
    register.commit_is_over()
    assert (register.stage, register.under_way) == (CommitStage.OPEN, False)


def test_every_stage_can_be_reached() -> None:
    assert [Transaction(FROM_M5).to(stage).stage for stage in CommitStage] == list(CommitStage)


@pytest.mark.parametrize(
    ("answers", "stage"),
    [
        *((TO_M4, stage) for stage in CommitStage if stage is not CommitStage.COMMITTING_OFFSETS_BESIDE),
        *((FROM_M5, stage) for stage in CommitStage),
    ],
)
@pytest.mark.parametrize("event", CommitEvent)
def test_each_event_has_an_answer_in_each_stage(answers: Any, stage: CommitStage, event: CommitEvent) -> None:
    assert Transaction(answers).to(stage).answer(event) is {**ANSWERS, **answers}[stage, event]


def test_a_pair_that_cannot_be_is_refused_as_a_bug() -> None:
    register = TransactionRegister(lambda id: True, {})
    with pytest.raises(OwnershipError, match="a transaction in OPEN can't meet CUT_FAILED"):
        register.answer(CommitEvent.CUT_FAILED)


@pytest.mark.parametrize("answers", EVERY_MILESTONE)
def test_a_failed_commit_decides_about_events_that_the_register_leaves_open_and_about_no_other(answers: Any) -> None:
    assert not answers.keys() & ANSWERS.keys()
    left_open = {event for _, event in answers}
    assert left_open == {event for _, event in TO_M4}
    for stage, event in product(CommitStage, left_open):
        never = stage is CommitStage.COMMITTING_OFFSETS_BESIDE and event is CommitEvent.ERROR and answers is TO_M4
        assert never or (stage, event) in {**ANSWERS, **answers}


def test_what_kafka_may_have_committed_is_never_abandoned() -> None:
    for answers in (TO_M4, FROM_M5):
        abandoned = {stage for (stage, _), action in {**ANSWERS, **answers}.items() if action is CommitAction.ABANDON}
        assert not abandoned & MAY_BE_MADE


ONLY_IN: list[tuple[CommitEvent, CommitAction, set[CommitStage]]] = [
    (CommitEvent.TURN, CommitAction.BEGIN, {CommitStage.OPEN}),
    (CommitEvent.TURN, CommitAction.BEGIN_ONCE_MORE, {CommitStage.RETAINED, CommitStage.RETAINED_BEHIND}),
    (CommitEvent.TURN, CommitAction.STEP, {*BEFORE_KAFKA_IS_ASKED, *MAY_BE_MADE}),
    (CommitEvent.JOIN_NEEDED, CommitAction.COMMIT, {CommitStage.OPEN}),
    (CommitEvent.JOIN_NEEDED, CommitAction.ANSWER, {CommitStage.ENDING}),
    (CommitEvent.TASKS_LEAVE, CommitAction.COMMIT, {CommitStage.OPEN}),
    (CommitEvent.TASKS_LEAVE, CommitAction.ANSWER, set()),
    (CommitEvent.TIME_IS_UP, CommitAction.ABANDON, BEFORE_KAFKA_IS_ASKED),
    (CommitEvent.TIME_IS_UP, CommitAction.WAIT, MAY_BE_MADE),
    (CommitEvent.MEMBERSHIP_LOST, CommitAction.ABANDON, BEFORE_KAFKA_IS_ASKED),
    (CommitEvent.MEMBERSHIP_LOST, CommitAction.WAIT, MAY_BE_MADE),
]


@pytest.mark.parametrize(
    ("event", "action", "stages"),
    ONLY_IN,
    ids=[
        "a commit is begun in open",
        "a failed one is begun once more whichever transaction comes first",
        "each commit under way takes steps",
        "what came since is committed before a join once nothing else comes first",
        "the member joins during an end that needs no generation",
        "what tasks that leave have done is committed once nothing else comes first",
        "tasks leave during no commit",
        "after the time what kafka can not have committed is dropped",
        "after the time what kafka may have committed is waited for",
        "who lost the membership drops what kafka can not have committed",
        "who lost the membership waits for what kafka may have committed",
    ],
)
def test_each_answer_is_given_in_these_stages_and_in_no_other(
    event: CommitEvent, action: CommitAction, stages: set[CommitStage]
) -> None:
    assert {stage for stage in CommitStage if ANSWERS[stage, event] is action} == stages


def test_up_to_m4_an_error_drops_what_kafka_can_not_have_committed_and_from_m5_on_no_commit() -> None:
    for stage in BEFORE_KAFKA_IS_ASKED:
        assert TO_M4[stage, CommitEvent.ERROR] is CommitAction.ABANDON
    for stage in MAY_BE_MADE - {CommitStage.COMMITTING_OFFSETS_BESIDE}:
        assert TO_M4[stage, CommitEvent.ERROR] is CommitAction.FINISH
    for stage in BEFORE_KAFKA_IS_ASKED | MAY_BE_MADE:
        assert FROM_M5[stage, CommitEvent.ERROR] is CommitAction.GO_ON


def test_nothing_is_sent_while_the_producer_belongs_to_a_commit_or_a_recovery() -> None:
    sends = {stage for stage in CommitStage if ANSWERS[stage, CommitEvent.OUTPUTS_MADE] is CommitAction.SEND}
    assert sends == {CommitStage.OPEN, CommitStage.RETAINED_BEHIND, CommitStage.COMMITTING_OFFSETS_BESIDE}


@pytest.mark.parametrize("stage", UNDER_WAY)
def test_an_error_during_a_commit_waits_for_the_end_of_that_commit(stage: CommitStage) -> None:
    transaction = Transaction(FROM_M5)
    register = transaction.to(stage)
    transaction.fail()
    assert register.stage in UNDER_WAY
    assert register.answer(CommitEvent.OUTPUTS_MADE) is CommitAction.WAIT, "the producer is to be recovered"
    register.commit_is_over()
    assert register.stage is CommitStage.RECOVERING


def test_outputs_wait_for_a_failed_commit_that_comes_first_also_during_an_offset_commit() -> None:
    transaction = Transaction(FROM_M5)
    register = transaction.to(CommitStage.COMMITTING_OFFSETS_BESIDE)
    transaction.retain()
    assert register.answer(CommitEvent.OUTPUTS_MADE) is CommitAction.WAIT
    transaction.admitted = {B}
    assert register.answer(CommitEvent.OUTPUTS_MADE) is CommitAction.SEND


@pytest.mark.parametrize("stage", CommitStage)
def test_a_transaction_is_at_rest_unless_a_commit_or_a_recovery_is_under_way(stage: CommitStage) -> None:
    register = Transaction(FROM_M5).to(stage)
    assert register.at_rest == (stage in AT_REST)
    assert register.under_way == (stage in UNDER_WAY)
    assert register.unsettled == (stage in (CommitStage.RETAINED, CommitStage.RETAINED_BEHIND, CommitStage.RECOVERING))


def test_nothing_is_sent_of_a_task_that_is_given_away_once_its_last_commit_is_cut() -> None:
    transaction = Transaction()
    transaction.register.cut_off = {A}
    assert [transaction.register.admits(task) for task in (A, B)] == [False, True]
    transaction.admitted = {A}
    assert [transaction.register.admits(task) for task in (A, B)] == [False, False]
