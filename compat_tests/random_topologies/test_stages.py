"""Planted: two stages that didn't commit the same. No broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.oracles.findings import kinds
from compat_tests.oracles.placement import partition_of
from compat_tests.oracles.rows import Origin, Row
from compat_tests.random_topologies.cases import Case
from compat_tests.random_topologies.plans import Path, Plan
from compat_tests.random_topologies.stages import Committed, Outcome, differences, interpreted

PLAN = Plan((Path((), "copy"), Path((), "join-texts"), Path(("by-value",), "count")), (2,))
CASE = Case(1, "exactly_once_v2", PLAN)
KEYS = [b"k%d" % number for number in range(4)]


def rows() -> list[Row]:
    ends = [0, 0]
    found = []
    for number in range(24):
        key = KEYS[number % len(KEYS)]
        at = partition_of(key, 2)
        found.append(Row("in0", at, ends[at], key, b"ab"[number % 2 :], 1_000 + number))
        ends[at] += 1
    return found


RIGHT = interpreted(PLAN, rows())


def spoilt(output: str, change: Callable[[dict[Origin, Outcome]], object]) -> Committed:
    some = dict(RIGHT[output])
    change(some)
    return {**RIGHT, output: some}


def wrong_value(some: dict[Origin, Outcome]) -> None:
    last = [*some][-1]
    some[last] = some[last]._replace(value=b"wrong")


def lacking(some: dict[Origin, Outcome]) -> None:
    some.pop([*some][-1])


def more(some: dict[Origin, Outcome]) -> None:
    some[Origin("in0", 0, 999)] = Outcome(b"k0", b"v", 1)


@pytest.mark.parametrize("output", ["out0", "out1", "out2"])
def test_what_only_one_of_two_stages_has_is_found(output: str) -> None:
    assert differences(CASE, RIGHT, RIGHT) == []
    assert "missing" in kinds(differences(CASE, RIGHT, spoilt(output, lacking)))
    assert "extra" in kinds(differences(CASE, RIGHT, spoilt(output, more)))


@pytest.mark.parametrize("output", ["out0", "out1", "out2"])
def test_another_value_is_found(output: str) -> None:
    assert kinds(differences(CASE, RIGHT, spoilt(output, wrong_value))) == {"differs"}


def test_the_order_in_which_partitions_were_merged_is_no_difference() -> None:
    """Both partitions have values `ab`, whose counts come in another order."""
    otherwise = interpreted(PLAN, [row._replace(partition=1 - row.partition) for row in rows()])
    back = {
        name: {origin._replace(partition=1 - origin.partition): outcome for origin, outcome in some.items()}
        for name, some in otherwise.items()
    }
    assert back["out2"] != RIGHT["out2"]
    assert [one for one in differences(CASE, RIGHT, back) if one.text.startswith("out2") and "gives" in one.text] == []


def test_where_a_cache_leaves_out_outputs_only_what_keys_end_with_is_compared() -> None:
    fewer = spoilt("out1", lambda some: some.pop(next(iter(some))))
    assert differences(CASE, RIGHT, fewer, thinned=True) == []
    assert kinds(differences(CASE, RIGHT, spoilt("out1", wrong_value), thinned=True)) == {"differs"}
    assert kinds(differences(CASE, RIGHT, spoilt("out1", lacking), thinned=True)) == {"differs"}
