"""Shares of sub-topologies that restore at once, by their weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milestones.m1_state_updater.restore_shares import LONGEST_MS, RestoreShares
from milestones.restoration.changelog_reader import MUCH

ROUND_MS, BATCH, QUANTUM = 7, 2_000, 20_000


def restored(
    weights: Mapping[int, int],
    left: Mapping[int, int],
    until: Callable[[Counter[int]], bool],
    away: frozenset[int] = frozenset(),
) -> tuple[Counter[int], dict[int, int]]:
    """Who has taken how many records when `until` says so, and the longest time that each stood back in one go, in ms.
    A round's batch is parted among all that read; those that are `away` get nothing."""
    shares, took, now_ms = RestoreShares(weights, QUANTUM), Counter[int](), 0
    longest, since = dict.fromkeys(left, 0), dict[int, int]()
    while not until(took):
        rest = {number: records - took[number] for number, records in left.items() if took[number] < records}
        back = shares.stand_back(now_ms, rest)
        assert back < rest.keys(), "nobody reads"
        since = {number: since.get(number, now_ms) for number in back}
        longest.update({number: max(longest[number], now_ms - at) for number, at in since.items()})
        reading = [number for number in rest if number not in back and number not in away]
        for number in reading:
            records = min(rest[number], max(1, BATCH // len(reading)))
            took[number] += records
            shares.took(number, records)
        now_ms += ROUND_MS
    return took, longest


MANY = 100_000_000


@pytest.mark.parametrize("weight", [2, 4, 10])
def test_records_are_in_proportion_to_weights(weight: int) -> None:
    took, _ = restored({0: weight}, {0: MANY, 1: MANY}, lambda took: took.total() > 4_000_000)
    assert took[0] / took[1] == pytest.approx(weight, rel=0.15)


def test_each_of_several_weights_gets_its_own_share() -> None:
    took, _ = restored({0: 4, 1: 2}, {0: MANY, 1: MANY, 2: MANY, 3: MANY}, lambda took: took.total() > 8_000_000)
    assert [took[number] / took[3] for number in range(3)] == pytest.approx([4, 2, 1], rel=0.2)


@pytest.mark.parametrize("weights", [{}, {0: 4, 1: 4}])
def test_those_of_one_weight_read_all_at_once(weights: Mapping[int, int]) -> None:
    shares = RestoreShares(weights, QUANTUM)
    shares.stand_back(0, {0: MANY, 1: MANY})
    shares.took(0, 50 * QUANTUM)
    assert shares.stand_back(1, {0: MANY, 1: MANY}) == frozenset()


def test_one_with_little_left_neither_stands_back_nor_has_others_do_so() -> None:
    shares = RestoreShares({0: 4}, QUANTUM)
    for left in ({0: MANY, 1: MUCH - 1}, {0: MUCH - 1, 1: MANY}):
        shares.stand_back(0, left)
        shares.took(1, 50 * QUANTUM)
        assert shares.stand_back(1, left) == frozenset()


def test_one_that_comes_later_begins_where_the_others_are() -> None:
    shares = RestoreShares({0: 4}, QUANTUM)
    shares.stand_back(0, {1: MANY})
    shares.took(1, 50 * QUANTUM)
    assert shares.stand_back(1, {0: MANY, 1: MANY}) == frozenset()
    shares.took(1, QUANTUM)
    assert shares.stand_back(2, {0: MANY, 1: MANY}) == {1}
    assert shares.stand_back(3, {1: MANY}) == frozenset()


def test_nobody_stands_back_for_long_for_one_whose_broker_is_away() -> None:
    took, longest = restored({0: 4}, {0: MANY, 1: MANY}, lambda took: took[1] > 1_000_000, away=frozenset({0}))
    assert took[0] == 0
    assert longest[1] <= LONGEST_MS


@given(
    st.dictionaries(st.integers(0, 4), st.integers(1, 20)),
    st.dictionaries(st.integers(0, 4), st.integers(1, 500_000), min_size=1),
)
def test_all_are_restored_whatever_their_weights_and_none_stands_back_for_long(
    weights: Mapping[int, int], left: Mapping[int, int]
) -> None:
    took, longest = restored(weights, left, lambda took: took == Counter(left))
    assert took == Counter(left)
    assert max(longest.values()) <= LONGEST_MS
