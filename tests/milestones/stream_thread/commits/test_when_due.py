"""When a commit is due, and when it waits: by times and bytes alone."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.stream_thread.commits.when_due import (
    CommitReasons,
    CommitTimes,
    is_due,
    is_held,
    must_share,
    must_stop,
)

TIMES = CommitTimes(
    now=1_000, due=2_000, next_try=0, transaction_age=None, most_age=500, held_since=None, most_held=250
)
NO_REASON = CommitReasons(once_more=False, asked_for=False, rolled_back=False, bytes=9, most_bytes=10)


def test_without_a_reason_no_commit_is_due_before_its_interval_is_over() -> None:
    assert [is_due(TIMES._replace(now=now), NO_REASON) for now in (1_000, 1_999, 2_000)] == [False, False, True]


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ({}, {"once_more": True}),
        ({}, {"asked_for": True}),
        ({}, {"rolled_back": True}),
        ({}, {"bytes": 10}),
        ({"transaction_age": 500}, {}),
    ],
    ids=["a failed one is made once more", "asked for", "rolled back", "bytes", "the transaction is too old"],
)
def test_a_commit_is_due_at_once_for_each_reason_but_not_before_the_pause_after_a_failure(times: Any, why: Any) -> None:
    assert is_due(TIMES._replace(**times), NO_REASON._replace(**why))
    assert not is_due(TIMES._replace(**times, next_try=1_001), NO_REASON._replace(**why))


def test_a_commit_waits_for_a_new_generation_but_no_longer_than_it_may() -> None:
    assert not is_held(TIMES)
    held = TIMES._replace(held_since=1_000)
    assert [is_held(held._replace(now=now)) for now in (1_000, 1_249, 1_250)] == [True, True, False]


def test_a_transaction_that_is_too_old_waits_for_no_generation() -> None:
    held = TIMES._replace(held_since=1_000)
    assert [is_held(held._replace(transaction_age=age)) for age in (499, 500)] == [True, False]


def test_the_time_until_a_transaction_is_too_old_is_known_while_it_is_open_and_young() -> None:
    assert [TIMES._replace(transaction_age=age).too_old_in for age in (None, 0, 499, 500)] == [None, 500, 1, None]


def test_tasks_share_from_three_quarters_of_the_bound_on_and_stop_at_the_bound() -> None:
    added = (74, 75, 99, 100)
    assert [must_share(count, 100) for count in added] == [False, True, True, True]
    assert [must_stop(count, 100) for count in added] == [False, False, False, True]
