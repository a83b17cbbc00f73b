"""What the campaign finds of stage m5: each rule about commit intervals has a fault that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.common.records import TOPIC
from milestones.common.state.commit_log import CommitLog
from milestones.common.state.memory_storage import MemoryTaskStorage
from milestones.common.steps import Steps
from milestones.m3_fencing_tolerance.commit_outcome import CommitOutcome
from milestones.m5_committed_collector.collector import CommittedCollector
from milestones.m5_committed_collector.intervals import TaskIntervals
from milestones.m5_committed_collector.upserts import WaitingOutputs
from milestones.shared_parts.committer import Committer
from milestones.stream_thread.commits.group_answers import GroupAnswers
from milestones.stream_thread.commits.recoveries import Recoveries
from tests.milestones.chaos.test_whatever_comes import found
from tests.milestones.chaos.windows import AGAIN
from tests.milestones.fakes import CHANGELOG

SEEDS = range(150)
A_TRANSACTION = "a transaction from"


def sees(*words: str) -> str:
    return found(*words, seeds=SEEDS, stage="m5")


def test_a_record_of_the_next_interval_in_this_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = CommittedCollector.flush

    def and_more(self: Any) -> Steps[None]:
        yield from flush(self)
        for kept in list(self._intervals.values()):
            task = kept._task
            if kept.cut and (outputs := task.take_outputs()):
                self._sender.hand_over(task.id, outputs, task.changelog_topics, 0)

    monkeypatch.setattr(CommittedCollector, "flush", and_more)
    assert "out: " in sees(A_TRANSACTION)


def test_the_last_value_of_a_key_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = TaskIntervals._begin_changelog

    def but_one(self: Any) -> None:
        begin(self)
        records = list(self._changelog)
        counts = [at for at, record in enumerate(records) if record[TOPIC] == CHANGELOG]
        for last in counts[1:][-1:]:
            del records[last]
        self._changelog = iter(records)

    monkeypatch.setattr(TaskIntervals, "_begin_changelog", but_one)
    assert "changelog: " in sees(A_TRANSACTION)


def test_a_key_collapsed_over_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    take = WaitingOutputs.take

    def now_and_then(self: Any, count: list[int] = []) -> Any:  # noqa: B006
        count.append(1)
        return [] if len(count) % 2 else take(self)

    monkeypatch.setattr(WaitingOutputs, "take", now_and_then)
    assert "latest: " in sees(A_TRANSACTION)


def test_an_upsert_collapsed_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = frozenset({"sink", "latest"})
    monkeypatch.setattr("milestones.m5_committed_collector.intervals.upsert_sinks", lambda _: everything)
    assert "out: " in sees(A_TRANSACTION)


def test_an_interval_sent_again_that_was_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    always = lambda *_: CommitOutcome.ROLLED_BACK  # noqa: E731
    monkeypatch.setattr("milestones.m3_fencing_tolerance.transaction.outcome", always)
    found(A_TRANSACTION, "changelog", seeds=range(400, 1_200), stage="m5")


def test_a_write_applied_before_it_was_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Committer.begin

    def too_early(self: Any, commit_set: Any) -> None:
        begin(self, commit_set)
        for task in commit_set:
            stores = task._stores._stores.items()
            batches = {name: store.layers.frozen() for name, store in stores if store.layers.frozen()}
            MemoryTaskStorage.apply(task._stores.storage, batches, {})

    monkeypatch.setattr(Committer, "begin", too_early)
    sees(A_TRANSACTION, "changelog", "out")


def test_outputs_that_are_not_sent_again_with_their_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskIntervals, "mark_unsent", lambda self: self._begin_changelog() or 0)
    assert "out: " in sees(A_TRANSACTION)


def test_dead_letters_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    take = TaskIntervals.take_letters

    def twice(self: Any) -> Any:
        letters = take(self)
        return [*letters, *letters]

    monkeypatch.setattr(TaskIntervals, "take_letters", twice)
    assert "letters" in found(A_TRANSACTION, seeds=range(1055, 1500), stage="m5")


def test_innocent_tasks_that_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = Recoveries._follow

    def all_of_them(self: Any, recovered: Any, recovering: Any) -> None:
        follow(self, recovered, recovering)
        self._tasks.roll_back(None)

    monkeypatch.setattr(Recoveries, "_follow", all_of_them)
    sees("more than once")


def test_a_task_given_away_before_its_last_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: Any, now_ms: int, leaving: Any) -> bool:
        return bool(self._register.at_rest)

    monkeypatch.setattr(GroupAnswers, "may_release", at_once)
    sees("more than once", A_TRANSACTION)


def test_a_store_that_its_changelog_disagrees_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history loses a record; another machine restores another store."""
    merge = CommitLog.merge

    def now_and_then(self: Any, count: list[int] = []) -> None:  # noqa: B006
        count.append(1)
        if len(count) % 7 == 0 and len(self._scope) > 0 and self._emitted:
            self._scope = []
        merge(self)

    monkeypatch.setattr(CommitLog, "merge", now_and_then)
    sees("its changelog")


@pytest.mark.parametrize(("topic", "finding"), [("closed", "closes"), (AGAIN, "gives"), ("totals", "totals has")])
def test_an_output_of_a_window_or_between_sub_topologies_dropped(
    topic: str, finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = TaskIntervals.add

    def but_these(self: Any, outputs: Any) -> None:
        add(self, [output for output in outputs if output[TOPIC] != topic])

    monkeypatch.setattr(TaskIntervals, "add", but_these)
    sees(finding)
