"""Records as processors see them."""

from __future__ import annotations

from typing import Any

import pytest

from milestones.common.records import FixedKeyRecord, Record

HEADERS = [("h", b"1")]


@pytest.mark.parametrize("kind", [Record, FixedKeyRecord])
def test_a_record_with_something_else_is_another_one_of_its_kind(kind: Any) -> None:
    record = kind("k", "v", 5)
    changed = record.with_value("w").with_timestamp(6).with_headers(HEADERS)
    assert type(changed) is kind
    assert (changed, record) == (kind("k", "w", 6, HEADERS), kind("k", "v", 5, []))
    assert changed.headers is not HEADERS


def test_only_a_record_whose_key_isn_t_fixed_can_get_another_key() -> None:
    assert Record("k", "v", 5).with_key("l") == Record("l", "v", 5)
    assert not hasattr(FixedKeyRecord, "with_key")
