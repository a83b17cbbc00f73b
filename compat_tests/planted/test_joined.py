"""Planted: a table of a join with a row too few, one too many, and a former value."""

from __future__ import annotations

import pytest

from compat_tests.oracles.findings import kinds
from compat_tests.oracles.joined import ends_as, folded, joined
from compat_tests.oracles.rows import Row

WANTED = {b"k": b"a+x", b"j": b"b+none"}


def row(offset: int, key: bytes, value: bytes | None) -> Row:
    return Row("out", 0, offset, key, value, 1, ())


def test_the_table_that_a_join_ends_as_is_right() -> None:
    found = folded([row(0, b"k", b"a+y"), row(1, b"i", b"c+z"), row(2, b"k", b"a+x"), row(3, b"i", None)])
    assert ends_as({**found, b"j": b"b+none"}, WANTED) == []


def test_a_left_join_has_each_left_row() -> None:
    def join(value: bytes, other: bytes | None) -> bytes:
        return value + b"+" + (other or b"none")

    left, right = {b"k": b"a", b"j": b"b", b"i": b"-"}, {b"a": b"x"}
    found = joined(left, right, lambda value: None if value == b"-" else value, join)
    assert found == {**WANTED, b"i": b"-+none"}


@pytest.mark.parametrize("leftovers", [False, True])
def test_a_row_that_is_not_there_is_found(leftovers: bool) -> None:
    assert kinds(ends_as({b"k": b"a+x"}, WANTED, leftovers=leftovers)) == {"lost"}


@pytest.mark.parametrize("leftovers", [False, True])
def test_a_former_value_is_found(leftovers: bool) -> None:
    assert kinds(ends_as({**WANTED, b"k": b"a+y"}, WANTED, leftovers=leftovers)) == {"wrong-value"}


def test_a_row_that_stays_behind_is_found_where_none_may() -> None:
    found = {**WANTED, b"h": b"c+x"}
    assert kinds(ends_as(found, WANTED)) == {"stale"}
    assert ends_as(found, WANTED, leftovers=True) == []
