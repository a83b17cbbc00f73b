"""Planted: an operator that does something else than the interpreter. Random topologies find it."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest

from compat_tests.oracles.rows import Row
from compat_tests.random_topologies import plans
from compat_tests.random_topologies.plans import Plan, Step
from compat_tests.random_topologies.test_in_the_driver import check, is_thinned

WRONG = Step(plans.STEPS["tag"].stream, lambda key, value: [(key, value)])
NO_CACHE: dict[str, Any] = {"statestore_cache_max_bytes": 0}


def test_a_wrong_operator_is_found_in_the_smallest_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plans.STEPS, "tag", WRONG)

    def differs(plan: Plan) -> bool:
        try:
            check(plan, [Row("in", 0, 0, b"a", b"b", 1)], NO_CACHE)
        except AssertionError:
            return True
        return False

    settings = hypothesis.settings(max_examples=500, database=None, derandomize=True, deadline=None)
    found = hypothesis.find(plans.plans(), differs, settings=settings)
    assert [path.steps for path in found.paths] == [("tag",)]


def test_a_cache_may_thin_changes_out_but_not_swap_or_drop_the_last() -> None:
    one, two, three = ((b"k", bytes([number]), 1) for number in (1, 2, 3))
    assert is_thinned([one, three], [one, two, three])
    assert not is_thinned([two, one, three], [one, two, three])
    assert not is_thinned([one, two], [one, two, three])
    assert not is_thinned([one, three, three], [one, two, three])
