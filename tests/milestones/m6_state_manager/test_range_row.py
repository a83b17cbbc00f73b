"""A task's row is read as it was written, or refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from milestones.common.errors import StateFormatError
from milestones.m6_state_manager.range_row import RangeRow

ROW = RangeRow({"s": 5}, {"s": "obhTq6PlRMu5u8bLARRRYQ"}, {"s": "b1"}, 7, {"in-0": 2}, {"in-0": -1}, "p", "app-1")
WRITTEN = json.loads(ROW.encode())


@pytest.mark.parametrize("row", [RangeRow(), ROW])
def test_a_row_is_read_as_it_was_written(row: RangeRow) -> None:
    read = RangeRow.decode(row.encode(), "the row")
    assert (read, read.encode()) == (row, row.encode())


def test_fields_that_a_newer_version_added_to_a_row_are_ignored() -> None:
    assert RangeRow.decode(json.dumps({**WRITTEN, "more": 1}).encode(), "the row") == ROW


@pytest.mark.parametrize("missing", WRITTEN)
def test_a_row_in_which_a_field_is_missing_is_refused_by_name(missing: str) -> None:
    written = {name: value for name, value in WRITTEN.items() if name != missing}
    with pytest.raises(StateFormatError, match=f"the row can't be read .*{missing}"):
        RangeRow.decode(json.dumps(written).encode(), "the row")


CHANGES: list[dict[str, Any]] = [
    {"offsets": {"s": "x"}}, {"offsets": []}, {"commit": None}, {"positions": {"in-0": None}}, {"stream_times": 5},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_row_with_other_content_than_expected_is_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(StateFormatError, match="the row can't be read"):
        RangeRow.decode(json.dumps(WRITTEN | change).encode(), "the row")


def test_a_row_of_another_format_is_refused_with_the_way_out() -> None:
    with pytest.raises(StateFormatError, match=r"the row has format 2, .* knows 1: run the version that wrote it, or"):
        RangeRow.decode(json.dumps(WRITTEN | {"format": 2}).encode(), "the row")
