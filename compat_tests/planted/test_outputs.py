"""Faults planted in outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from compat_tests.cases.flows import COPY, COUNT
from compat_tests.oracles.findings import kinds
from compat_tests.oracles.flows import Flow
from compat_tests.oracles.outputs import at_least_once, exact, in_order, table
from compat_tests.oracles.rows import Origin, Place, Row, origin_of
from compat_tests.planted.samples import PAIRS, PARTITIONS, copies, counts, inputs, pairs, placed, swapped

IN = inputs()
COPIES, COUNTS, TWICE = copies(IN), counts(IN), pairs(IN)
SAME_KEY = [at for at, row in enumerate(IN) if row.key == IN[0].key]
OTHER_KEY = next(at for at, row in enumerate(IN) if row.partition == IN[0].partition and row.key != IN[0].key)
KEPT_BACK = replace(COPY, kept_back=True)

GAP = placed(COPIES[:7] + COPIES[8:])
SWAPPED = swapped(COPIES, SAME_KEY[1], SAME_KEY[2])
SKIPPED = placed([row for row in COPIES if row is not COPIES[SAME_KEY[2]]] + [COPIES[SAME_KEY[2]]])
BEGUN_ANEW = placed(counts(IN[:20]) + counts(IN[20:]))


def changed(rows: list[Row], at: int = 3, **change: Any) -> list[Row]:
    return placed([*rows[:at], rows[at]._replace(**change), *rows[at + 1 :]])


@pytest.mark.parametrize(
    ("flow", "found", "expected"),
    [
        pytest.param(COPY, COPIES, set(), id="right copies"),
        pytest.param(COUNT, COUNTS, set(), id="right counts"),
        pytest.param(PAIRS, TWICE, set(), id="right pairs"),
        pytest.param(COPY, GAP, {"lost"}, id="a lost one"),
        pytest.param(COPY, COPIES[:-1], {"lost"}, id="a lost last one"),
        pytest.param(PAIRS, placed(TWICE[:5] + TWICE[6:]), {"lost"}, id="a lost one of several of an input"),
        pytest.param(COPY, placed([*COPIES, COPIES[-1]]), {"duplicate", "order"}, id="a duplicate"),
        pytest.param(COUNT, counts([*IN, IN[-1]]), {"duplicate", "order"}, id="a duplicate whose count went on"),
        pytest.param(COPY, SWAPPED, {"order"}, id="two swapped ones of a key"),
        pytest.param(PAIRS, swapped(TWICE, 0, 1), {"order"}, id="two swapped ones of an input"),
        pytest.param(KEPT_BACK, SKIPPED, {"order"}, id="one that was kept back and comes late"),
        pytest.param(COPY, placed([*COPIES, COPIES[0]._replace(headers=())]), {"unknown"}, id="one that nobody sent"),
        pytest.param(COPY, placed([*COPIES, copies(inputs(41))[-1]]), {"unknown"}, id="one of an input beyond the end"),
        pytest.param(COUNT, changed(COUNTS, 9, value=b"\0" * 8), {"wrong-value"}, id="a wrong count"),
        pytest.param(COUNT, BEGUN_ANEW, {"wrong-value"}, id="a count that starts again"),
        pytest.param(COPY, changed(COPIES, timestamp=5), {"wrong-timestamp"}, id="a wrong timestamp"),
        pytest.param(COPY, changed(COPIES, key=b"other"), {"wrong-key"}, id="a wrong key"),
        pytest.param(
            COPY, changed(COPIES, partition=1 - COPIES[3].partition), {"misplaced", "order"}, id="a wrong partition"
        ),
    ],
)
def test_under_exactly_once_each_fault_is_found(flow: Flow, found: list[Row], expected: set[str]) -> None:
    assert kinds(exact(flow, IN, found, PARTITIONS)) == expected


@pytest.mark.parametrize(
    ("flow", "found", "expected"),
    [
        pytest.param(COPY, COPIES, set(), id="right copies"),
        pytest.param(COUNT, COUNTS, set(), id="right counts"),
        pytest.param(COPY, placed(COPIES[:20] + COPIES[10:]), set(), id="a repetition from an earlier offset"),
        pytest.param(COUNT, counts([*IN, *IN]), set(), id="a count that is too high"),
        pytest.param(KEPT_BACK, SKIPPED, set(), id="one that was kept back and comes late"),
        pytest.param(COPY, GAP, {"lost", "order"}, id="a lost one"),
        pytest.param(COPY, SWAPPED, {"order"}, id="two swapped ones of a key"),
        pytest.param(COPY, SKIPPED, {"order"}, id="one that was skipped and comes later"),
        pytest.param(COPY, changed(COPIES, value=b"v999"), {"wrong-value"}, id="a wrong value"),
        pytest.param(COUNT, BEGUN_ANEW, {"too-low"}, id="a count that is too low"),
    ],
)
def test_under_at_least_once_each_fault_but_a_repetition_is_found(
    flow: Flow, found: list[Row], expected: set[str]
) -> None:
    assert kinds(at_least_once(flow, IN, found, PARTITIONS)) == expected


def test_behind_a_zombie_a_count_may_be_too_low() -> None:
    assert at_least_once(COUNT, IN, BEGUN_ANEW, PARTITIONS, zombies=True) == []


def test_two_swapped_keys_are_found_where_the_order_of_the_partition_is_promised() -> None:
    order: dict[Place, list[Origin]] = {}
    for row in COPIES:
        if (origin := origin_of(row)) is not None:
            order.setdefault(row.place, []).append(origin)
    wrong = swapped(COPIES, 0, OTHER_KEY)
    assert exact(COPY, IN, wrong, PARTITIONS) == []
    assert in_order(COPIES, order) == []
    assert kinds(in_order(wrong, order)) == {"order"}
    assert kinds(in_order(COPIES[:-1], order)) == {"order"}


def test_the_table_is_what_the_last_outputs_say() -> None:
    latest = {row.key: row.value for row in COUNTS}
    assert {key: entry.value for key, entry in table(COUNT, IN, COUNTS).items()} == latest
