"""Faults planted in what a process went through."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from compat_tests.oracles.findings import kinds
from compat_tests.oracles.in_place import Standing, in_place, kept, no_more_than

NOON = datetime(2026, 1, 1, 12)
BEFORE = Standing(3, 2, {"0_0/counts": "a", "0_1/counts": "b"}, {"0_0/counts": NOON, "0_1/counts": NOON})


def test_a_process_to_which_nothing_happened_passes() -> None:
    assert in_place(BEFORE, replace(BEFORE)) == []
    assert in_place(replace(BEFORE, stores={}, opened={}), BEFORE) == []


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("rejoined", {"generation": 4}),
        ("restored", {"restorations": 3}),
        ("reopened", {"opened": {**BEFORE.opened, "0_1/counts": NOON + timedelta(milliseconds=1)}}),
        ("wiped", {"stores": {**BEFORE.stores, "0_1/counts": "c"}}),
        ("wiped", {"stores": {"0_0/counts": "a"}}),
    ],
)
def test_whatever_happened_to_it_is_found(kind: str, change: dict[str, Any]) -> None:
    assert kinds(in_place(BEFORE, replace(BEFORE, **change))) == {kind}


def test_a_store_that_was_made_anew_is_found_after_a_crash_too() -> None:
    assert kept(BEFORE.stores, BEFORE.stores) == []
    assert kinds(kept(BEFORE.stores, {"0_0/counts": "a", "0_1/counts": "c"})) == {"wiped"}


def test_a_restoration_of_more_than_the_disk_could_lack_is_found() -> None:
    lacking = Counter({"0_0": 40, "0_1": 0})
    assert no_more_than(lacking, Counter({"0_0": 40})) == no_more_than(lacking, Counter()) == []
    assert kinds(no_more_than(lacking, Counter({"0_0": 41}))) == {"restored-more"}
    assert kinds(no_more_than(lacking, Counter({"0_1": 1}))) == {"restored-more"}
