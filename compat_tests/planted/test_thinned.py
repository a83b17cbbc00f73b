"""Planted: outputs behind a cache that lack a key's last change, repeat one, or have a wrong one."""

from __future__ import annotations

from dataclasses import replace

from compat_tests.cases.flows import COUNT
from compat_tests.oracles.findings import kinds
from compat_tests.oracles.rows import Row
from compat_tests.oracles.thinned import table, thinned
from compat_tests.planted import samples
from compat_tests.planted.samples import KEYS, PARTITIONS

FLOW = replace(COUNT, thinned=True)
INPUTS = samples.inputs()
ALL = samples.counts(INPUTS)
LAST = [[row for row in ALL if row.key == key][-1] for key in KEYS]


def kinds_of(rows: list[Row], *, exact: bool = True) -> set[str]:
    return kinds(thinned(FLOW, INPUTS, rows, PARTITIONS, exact=exact))


def changed(change: dict[str, object]) -> list[Row]:
    return [LAST[0]._replace(**change), *LAST[1:]]  # type: ignore[arg-type]


def test_all_changes_some_and_only_the_last_are_right() -> None:
    assert kinds_of(ALL) == kinds_of(sorted({*ALL[::3], *LAST})) == kinds_of(LAST) == set()


def test_a_key_without_its_last_change_is_found() -> None:
    assert kinds_of([row for row in ALL if row != LAST[0]]) == {"lost"}
    assert kinds_of([row for row in ALL if row != LAST[0]], exact=False) == {"lost"}


def test_a_key_without_any_output_is_found() -> None:
    assert kinds_of(LAST[1:]) == {"lost"}


def test_a_repeated_change_is_found_unless_repetitions_are_allowed() -> None:
    twice = [*LAST, LAST[0]._replace(offset=10_000)]
    assert "duplicate" in kinds_of(twice)
    assert kinds_of(twice, exact=False) == set()


def test_swapped_changes_are_found() -> None:
    first, last = (row for row in (ALL[0], next(row for row in LAST if row.key == ALL[0].key)))
    others = [row for row in LAST if row.key != first.key]
    assert "order" in kinds_of([first._replace(offset=last.offset), last._replace(offset=first.offset), *others])


def test_wrong_values_and_timestamps_are_found_and_a_repeated_count_may_only_be_too_high() -> None:
    low, high = ((8 + by).to_bytes(8) for by in (-1, 1))
    assert kinds_of(changed({"value": low})) >= {"too-low"}
    assert kinds_of(changed({"value": high})) == kinds_of(changed({"timestamp": 1})) == {"wrong-value"}
    assert kinds_of(changed({"value": low}), exact=False) == {"too-low"}
    assert kinds_of(changed({"value": high}), exact=False) == set()


def test_outputs_from_nowhere_of_other_keys_and_in_other_partitions_are_found() -> None:
    assert kinds_of([*ALL, ALL[0]._replace(headers=(("origin", b"in/0/9999"),), offset=10_000)]) == {"unknown"}
    assert kinds_of(changed({"key": KEYS[1]})) >= {"wrong-key"}
    assert kinds_of(changed({"partition": 1 - LAST[0].partition})) == {"misplaced"}


def test_a_table_is_only_said_where_the_order_of_partitions_does_not_matter() -> None:
    text = replace(FLOW, counts=False)
    assert table(FLOW, INPUTS) == table(text, INPUTS) != {}
    elsewhere = [*INPUTS, INPUTS[0]._replace(partition=7)]
    assert table(FLOW, elsewhere) is not None
    assert table(text, elsewhere) is None
