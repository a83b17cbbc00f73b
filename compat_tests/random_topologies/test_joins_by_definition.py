"""Planted: joins with a result too few, too many, or of what was never joined. No broker."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from compat_tests.oracles.findings import Findings, kinds
from compat_tests.oracles.rows import Origin
from compat_tests.random_topologies.joins_by_definition import (
    Part,
    judge_ends,
    judge_lookups,
    judge_rows,
    judge_streams,
    of_streams,
)
from compat_tests.random_topologies.shapes import LEAP_MS, Join
from compat_tests.random_topologies.windows_by_definition import Output

INNER, LEFT, OUTER = (Join(1, how, before=10, after=10, grace=100) for how in ("inner", "left", "outer"))
KEY = b"k"
Known = list[tuple[Origin | None, Output]]


def part(side: str, offset: int, value: bytes | None, timestamp: int, at: int = 0, key: bytes | None = KEY) -> Part:
    """`at`: the round, later than the ones before by more than any window."""
    return Part(Origin(side, 0, offset), key, value, at * LEAP_MS + timestamp, at, 0)


def out(value: bytes | None, timestamp: int, key: bytes | None = KEY) -> Output:
    return Output(key, value, timestamp)


# ---- streams

LEFTS = [part("l", 0, b"a", 100), part("l", 1, b"b", 200), part("l", 2, b"z", 100, at=1)]
RIGHTS = [part("r", 0, b"x", 105), part("r", 1, b"y", 150), part("r", 2, b"z", 101, at=1)]
PAIR, ALONE = out(b"a+x", 105), out(b"b+?", 200)
LAST = out(b"z+z", LEAP_MS + 101)


def of_left(*found: Output, repeats: bool = False) -> set[str]:
    return kinds(judge_streams(LEFT, LEFTS, RIGHTS, found, repeats=repeats))


def test_pairs_and_those_whose_time_is_over_are_right() -> None:
    assert of_left(PAIR, ALONE, LAST) == set()
    assert kinds(judge_streams(INNER, LEFTS, RIGHTS, [PAIR, LAST], repeats=False)) == set()
    assert kinds(judge_streams(OUTER, LEFTS, RIGHTS, [PAIR, ALONE, out(b"?+y", 150), LAST], repeats=False)) == set()


@pytest.mark.parametrize("repeats", [False, True])
def test_a_result_that_is_lost_or_that_nothing_accounts_for_is_found(repeats: bool) -> None:
    assert of_left(PAIR, LAST, repeats=repeats) == of_left(ALONE, LAST, repeats=repeats) == {"lost"}
    assert of_left(PAIR, ALONE, LAST, out(b"b+y", 200), repeats=repeats) == {"unknown"}


def test_a_result_that_is_there_again_is_found_where_nothing_may_be_repeated() -> None:
    assert of_left(PAIR, PAIR, ALONE, LAST) == {"duplicate"}
    assert of_left(PAIR, PAIR, ALONE, LAST, repeats=True) == set()


def test_a_record_with_a_partner_is_never_sent_alone() -> None:
    assert of_left(PAIR, ALONE, LAST, out(b"a+?", 100)) == {"unknown"}  # though the task had, perhaps, seen 200 before


def test_a_record_is_not_sent_alone_before_its_window_and_the_grace_are_over() -> None:
    near = [part("l", 0, b"a", 100), part("l", 1, b"b", 210), part("l", 2, b"c", 211)]
    for ended, times in ((near[:2], 0), (near, 1)):
        _, may = of_streams(LEFT, ended, [])
        assert may[out(b"a+?", 100)] == times


def test_a_record_without_a_key_is_sent_at_once_by_a_side_that_needs_no_partner() -> None:
    must, _ = of_streams(LEFT, [part("l", 0, b"a", 100, key=None)], [])
    assert must == {out(b"a+?", 100, key=None): 1}
    assert not of_streams(INNER, [part("l", 0, b"a", 100, key=None)], [])[1]


# ---- a stream with a table

RECORDS = [part("l", 0, b"a", 5), part("l", 1, b"b", 6), part("l", 2, b"c", 7, at=1)]
ROWS = [part("r", 0, b"x", 1), part("r", 1, None, 2), part("r", 2, b"y", 3)]


def looked_up(join: Join, *values: bytes | None, repeats: bool = False) -> Findings:
    """The findings when the records in turn have given these; None: nothing."""
    given = zip(RECORDS, values, strict=True)
    found: Known = [(one.origin, out(value, one.timestamp)) for one, value in given if value is not None]
    return judge_lookups(join, RECORDS, ROWS, found, repeats=repeats)


def test_a_record_is_joined_with_any_version_of_its_round_and_never_an_earlier_one_than_before() -> None:
    assert looked_up(LEFT, b"a+x", b"b+?", b"c+y") == looked_up(LEFT, b"a+?", b"b+x", b"c+y") == []
    assert looked_up(INNER, None, b"b+x", b"c+y") == looked_up(INNER, b"a+y", b"b+y", b"c+y") == []
    assert kinds(looked_up(LEFT, b"a+y", b"b+x", b"c+y")) == {"wrong-value"}
    assert kinds(looked_up(LEFT, b"a+x", b"b+x", b"c+x")) == {"wrong-value"}
    assert kinds(looked_up(LEFT, b"a+x", None, b"c+y")) == kinds(looked_up(INNER, b"a+x", b"b+y", None)) == {"lost"}


def test_after_a_repetition_records_may_be_joined_again_with_what_they_might_have_met() -> None:
    assert looked_up(LEFT, b"a+y", b"b+x", b"c+y", repeats=True) == []
    twice: Known = [(one.origin, out(b"%s+y" % (one.value or b""), one.timestamp)) for one in (*RECORDS, RECORDS[0])]
    assert judge_lookups(LEFT, RECORDS, ROWS, twice, repeats=True) == []
    assert kinds(judge_lookups(LEFT, RECORDS, ROWS, twice, repeats=False)) == {"duplicate"}


def test_an_output_of_no_record_is_found() -> None:
    found: Known = [(one.origin, out(b"%s+y" % (one.value or b""), one.timestamp)) for one in RECORDS]
    assert kinds(judge_lookups(LEFT, RECORDS, ROWS, [*found, (None, out(b"a+y", 5))], repeats=False)) == {"unknown"}


# ---- tables

OF_LEFT = [part("l", 0, b"a", 1), part("l", 1, None, 5), part("l", 2, b"b", 6)]
OF_RIGHT = [part("r", 0, b"x", 2), part("r", 1, b"y", 4)]
L0, L1, L2, R0, R1 = (one.origin for one in (*OF_LEFT, *OF_RIGHT))


def rows(join: Join, *found: tuple[Origin, bytes | None, int]) -> set[str]:
    return kinds(judge_rows(join, OF_LEFT, OF_RIGHT, [(origin, out(value, at)) for origin, value, at in found]))


RIGHT = ((R0, b"a+x", 2), (R1, b"a+y", 4), (L1, None, 5), (L2, b"b+y", 6))


@pytest.mark.parametrize(
    "found",
    [
        RIGHT,
        ((L0, b"a+x", 2), (L1, None, 5), (L2, b"b+x", 6), (R1, b"b+y", 6)),
        ((R0, None, 2), (L0, b"a+x", 2), *RIGHT[1:]),  # a deletion of nothing may be there
        ((L2, b"b+y", 6),),  # nothing of one side came before the other
    ],
)
def test_updates_of_two_tables_may_come_in_any_order(found: tuple[tuple[Origin, bytes | None, int], ...]) -> None:
    assert rows(INNER, *found) == set()


def test_an_update_that_is_not_joined_as_it_must_be_is_found() -> None:
    assert rows(INNER, *RIGHT[:2], *RIGHT[3:]) == {"lost"}
    assert rows(INNER, *RIGHT, RIGHT[-1]) == {"duplicate"}
    assert "wrong-value" in rows(INNER, RIGHT[1], RIGHT[0], *RIGHT[2:])
    assert "wrong-value" in rows(INNER, *RIGHT[:3], (L2, b"b+x", 6))
    assert "lost" in rows(LEFT, *RIGHT[:3])


def ends(found: Iterable[Output], left: list[Part] = OF_LEFT) -> set[str]:
    return kinds(judge_ends(INNER, left, OF_RIGHT, found))


def test_what_a_key_ends_with_is_known_whatever_was_repeated_or_left_out() -> None:
    assert ends([out(b"a+x", 2), out(b"b+y", 6)]) == ends([], OF_LEFT[:2]) == ends([out(None, 5)], OF_LEFT[:2]) == set()
    assert ends([out(b"b+y", 6), out(b"a+x", 2)]) == ends([out(b"a+y", 4)], OF_LEFT[:2]) == {"wrong-value"}
    assert ends([]) == {"lost"}
    assert ends([out(b"b+y", 6), out(b"b+y", 6, key=b"other")]) == {"unknown"}
