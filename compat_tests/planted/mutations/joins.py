"""Joins: what they keep for later, forgotten.

*Guarantees*: as `mutations/__init__.py`.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compat_tests.planted.mutations import around, mutation
from milestones.common.topology.operators.stream_joins import Waiting


@mutation
def who_waits_is_forgotten_at_a_restart() -> None:
    """A left join sends only those records without a partner that this process has seen itself."""
    seen = set[Any]()

    @around(Waiting, "add")
    def add(original: Any, waiting: Any, row: Any, value: Any) -> None:
        seen.add(tuple(row))
        original(waiting, row, value)

    @around(Waiting, "_each")
    def each(original: Any, waiting: Any) -> Iterator[Any]:
        return (found for found in original(waiting) if tuple(found[0]) in seen)
