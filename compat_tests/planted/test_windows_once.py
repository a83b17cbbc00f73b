"""Planted: windows that are emitted never, twice, or with a result of no window."""

from __future__ import annotations

from collections import Counter

import pytest

from compat_tests.oracles.findings import kinds
from compat_tests.oracles.windows import Emitted, once

WANTED: Emitted = Counter({(b"a@0", b"3"): 1, (b"b@0", b"1"): 1})


def found(*changes: tuple[bytes, bytes, int]) -> Emitted:
    return Counter({**WANTED, **{(window, result): times for window, result, times in changes}})


def test_each_window_once_is_right() -> None:
    assert once(WANTED, WANTED, repeats=False) == once(WANTED, WANTED, repeats=True) == []


@pytest.mark.parametrize("repeats", [False, True])
def test_a_window_that_is_never_emitted_is_found(repeats: bool) -> None:
    assert kinds(once(WANTED, Counter({(b"a@0", b"3"): 1}), repeats=repeats)) == {"lost"}


def test_a_window_that_is_emitted_twice_is_found_where_nothing_may_be_repeated() -> None:
    assert kinds(once(WANTED, found((b"a@0", b"3", 2)), repeats=False)) == {"duplicate"}
    assert once(WANTED, found((b"a@0", b"3", 2)), repeats=True) == []


def test_a_result_that_no_window_has_is_found_where_nothing_may_be_repeated() -> None:
    assert kinds(once(WANTED, found((b"a@0", b"4", 1)), repeats=False)) == {"wrong-value"}
    assert once(WANTED, found((b"a@0", b"4", 1)), repeats=True) == []
