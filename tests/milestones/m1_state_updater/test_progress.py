"""Rates, times left, and the line in the log."""

from __future__ import annotations

import pytest

from milestones.common.records import TaskId
from milestones.m1_state_updater.progress import RestoreRate, StoreRestoreProgress, line


def progress(partition: int = 0, left: int = 300_000, rate: float = 1_000.0) -> StoreRestoreProgress:
    return StoreRestoreProgress(TaskId(0, partition), "counts", 100_000, left, left * 100, rate)


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    rate = RestoreRate()
    assert rate.per_second(0, 0) == 0
    assert rate.per_second(1_000, 500) == 500
    rates = [rate.per_second(1_000 * second, 500 + 100 * (second - 1)) for second in range(2, 20)]
    assert rates[-1] == 100


def test_a_store_that_begins_anew_has_no_rate_below_zero() -> None:
    rate = RestoreRate()
    rate.per_second(0, 1_000)
    assert rate.per_second(1_000, 10) == 0
    assert rate.per_second(2_000, 20) == 10


def test_what_is_left_is_told_in_percent_and_seconds() -> None:
    assert progress().percent == 25
    assert progress().seconds_left == 300
    assert progress(rate=0).seconds_left is None
    assert StoreRestoreProgress(TaskId(0, 0), "counts", 0, 0, 0, 0).percent == 100


def test_the_line_names_what_takes_longest() -> None:
    text = line([progress(p, left=1_000 * p) for p in range(1, 8)], [5, 7])
    assert text == (
        "restoring 7 stores of 7 tasks: 28,000 records (about 2.8 MB) to go at 7,000/s, 4 s left; 0_7 counts 93 %; "
        "0_6 counts 94 %; 0_5 counts 95 %; 0_4 counts 96 %; and 3 more; 2 standbys are 12 records behind"
    )


@pytest.mark.parametrize(("left", "text"), [(60_000, "60 s"), (600_000, "10 min"), (36_000_000, "10.0 h")])
def test_long_times_are_told_in_larger_units(left: int, text: str) -> None:
    assert f", {text} left" in line([progress(left=left)], [])
