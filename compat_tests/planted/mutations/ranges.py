"""Ranges of keys: read where another task's are.

*Guarantees*: as `mutations/__init__.py`.
*Assumes*: committed entries are read by `RangeNamespace`, and written without it.
"""

from __future__ import annotations

from typing import Any

from compat_tests.planted.mutations import around, mutation
from milestones.m6_state_manager.ranges import RangeNamespace


@mutation
def a_range_is_read_with_the_prefix_of_its_neighbour() -> None:
    """Of two tasks each finds the other one's entries."""

    @around(RangeNamespace, "__init__")
    def opened(original: Any, namespace: Any, name: Any, family: Any, partition: Any, *rest: Any) -> None:
        original(namespace, name, family, partition ^ 1, *rest)
