"""Planted: an operator, and an engine, that do something else than the interpreter. Random topologies find it."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest

from compat_tests.oracles.rows import Row
from compat_tests.random_topologies import interpretation
from compat_tests.random_topologies.plans import Path, Plan
from compat_tests.random_topologies.test_in_the_driver import PLANS, check, is_thinned
from milestones.common.state import rocksdict_engine

NO_CACHE: dict[str, Any] = {"statestore_cache_max_bytes": 0}


def test_a_wrong_operator_is_found_in_the_smallest_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(interpretation.STEPS, "tag", lambda key, value: [(key, value)])

    def differs(plan: Plan) -> bool:
        try:
            check(plan, [Row("in0", 0, 0, b"a", b"b", 1)], NO_CACHE)
        except AssertionError:
            return True
        return False

    settings = hypothesis.settings(max_examples=500, database=None, derandomize=True, deadline=None)
    found = hypothesis.find(PLANS, differs, settings=settings)
    assert [(*path.steps, *path.more) for path in found.paths] == [("tag",)]


def test_an_upper_bound_that_is_freed_while_a_scan_goes_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = rocksdict_engine._RocksdictCursor.__init__

    def freeing(cursor: Any, *arguments: Any) -> None:
        opened(cursor, *arguments)
        del cursor._options

    monkeypatch.setattr(rocksdict_engine._RocksdictCursor, "__init__", freeing)
    rows = [Row("in0", 0, number, b"k%d" % (number % 5), b"v%d" % number, number) for number in range(200)]
    with pytest.raises(AssertionError):
        check(Plan((Path((), "slots"),)), rows, NO_CACHE)


def test_a_cache_may_thin_changes_out_but_not_swap_or_drop_the_last() -> None:
    one, two, three = ((b"k", bytes([number]), 1) for number in (1, 2, 3))
    assert is_thinned([one, three], [one, two, three])
    assert not is_thinned([two, one, three], [one, two, three])
    assert not is_thinned([one, two], [one, two, three])
    assert not is_thinned([one, three, three], [one, two, three])


def test_only_a_deletion_of_what_nobody_saw_may_stay_unseen() -> None:
    put, deleted = (b"k", b"v", 1), (b"k", None, 2)
    assert is_thinned([], [put, deleted])
    assert not is_thinned([put], [put, deleted])
    assert not is_thinned([], [deleted, put])
