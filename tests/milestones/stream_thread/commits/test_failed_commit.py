"""What a failed commit leaves, and what that means for those after it: up to M4, and from M5 on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from milestones.baseline.failed_commit import DroppedCommit
from milestones.m5_committed_collector.failed_commit import RetainedCommit
from tests.milestones.fakes import IN

CONTEXT: Any = SimpleNamespace(config=SimpleNamespace(exactly_once=True, commit_interval_ms=100))
TASK: Any = SimpleNamespace(reached=lambda: {IN: 7})
FROZEN: Any = SimpleNamespace(offsets={IN: 5})
DROPPED, RETAINED = DroppedCommit(CONTEXT), RetainedCommit(CONTEXT)


def test_up_to_m4_a_tasks_part_of_a_transaction_reaches_as_far_as_it_has_processed() -> None:
    assert [DROPPED.reached(TASK, frozen) for frozen in (None, FROZEN)] == [{IN: 7}, {IN: 7}]


def test_from_m5_on_it_reaches_as_far_as_the_boundary_that_the_commit_has() -> None:
    assert [RETAINED.reached(TASK, frozen) for frozen in (None, FROZEN)] == [{IN: 7}, {IN: 5}]


def test_only_from_m5_on_the_boundaries_are_retained_and_the_bytes_of_the_commit_count_meanwhile() -> None:
    commit_set: Any = {TASK.reached: FROZEN}
    assert [part.retained(commit_set) for part in (DROPPED, RETAINED)] == [{}, commit_set]
    assert [part.added_bytes(10, 4) for part in (DROPPED, RETAINED)] == [6, 10]
    assert [part.most_bytes_of_commit(10) for part in (DROPPED, RETAINED)] == [10, 5]


def test_only_up_to_m4_tasks_process_before_the_next_commit_for_a_commit_interval_at_most() -> None:
    assert [DROPPED.rest_ms(took_ms) for took_ms in (20, 100, 200)] == [20, 100, 100]
    assert RETAINED.rest_ms(200) == 0
