"""Where a batch ends while others go on writing."""

from __future__ import annotations

import pytest

from milestones.common.records import TopicPartition
from milestones.pipeline.driving.batch_ends import BatchEnds

OUTER, INNER, ROUND = TopicPartition("in", 0), TopicPartition("repartition", 0), TopicPartition("circle", 0)


@pytest.fixture
def ends() -> BatchEnds:
    return BatchEnds({"circle"})


def test_what_others_write_ends_where_it_did_when_it_was_first_looked_at(ends: BatchEnds) -> None:
    assert ends.ends({OUTER: 5}, {}, settled=False) == {OUTER: 5}
    assert ends.ends({OUTER: 9}, {}, settled=True) == {OUTER: 5}


def test_what_the_application_writes_is_followed_until_all_before_it_is_done(ends: BatchEnds) -> None:
    assert ends.ends({}, {INNER: 5}, settled=False) == {INNER: 5}
    assert ends.ends({}, {INNER: 9}, settled=True) == {INNER: 9}
    assert ends.ends({}, {INNER: 12}, settled=False) == {INNER: 9}


def test_new_tasks_of_the_run_write_more_that_belongs_to_the_batch(ends: BatchEnds) -> None:
    ends.ends({OUTER: 1}, {INNER: 5}, settled=True)
    ends.reopen()
    assert ends.ends({OUTER: 2}, {INNER: 9}, settled=False) == {OUTER: 1, INNER: 9}


def test_a_circle_is_followed_until_nothing_is_left_in_it(ends: BatchEnds) -> None:
    ends.ends({}, {ROUND: 5}, settled=True)
    assert ends.ends({}, {ROUND: 9}, settled=True) == {ROUND: 9}
