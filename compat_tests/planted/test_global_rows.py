"""Planted: a record that is joined with an older row than one before it."""

from __future__ import annotations

from compat_tests.oracles.global_rows import backwards
from compat_tests.oracles.rows import Row, origin_header


def out(value: bytes, input_partition: int, offset: int) -> Row:
    header = origin_header("in", input_partition, offset)
    return Row("out", 0, offset, b"key", value, 1_700_000_000_000, (header,))


def test_versions_that_go_on_are_none() -> None:
    assert backwards([out(b"a=1", 0, 0), out(b"b=0", 0, 1), out(b"a=1", 0, 2), out(b"a=2", 0, 3)]) == []


def test_other_inputs_may_be_behind() -> None:
    assert backwards([out(b"a=2", 0, 0), out(b"a=1", 1, 1)]) == []


def test_an_older_row_is_found() -> None:
    (found,) = backwards([out(b"a=2", 0, 0), out(b"a=1", 0, 1)])
    assert found.kind == "older-row"
