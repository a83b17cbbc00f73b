"""What the models of stores are made of: values, how user code is shown them, and what all models have.

*Guarantees*: a value that is given is another object each time.
*Assumes*: keys are texts; times are 1 or later.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from milestones.common.records import Headers
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.state.stores.stores_with_headers import AggregationWithHeaders, ValueTimestampHeaders

SIZE_MS, RETENTION_MS, HISTORY_MS, TTL_MS, GRACE_MS, MOST = 40_000, 150_000, 100, 50, 20, 3
SEGMENT_MS, HISTORY_SEGMENT_MS = RETENTION_MS // 2, 30


class Value(NamedTuple):
    """A value that is put, a list of one number, with its own time. `headers`: of stores that have them."""

    number: int
    time: int
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def list(self) -> list[int]:
        """Another object each time: user code may change it."""
        return [self.number]

    @property
    def raw(self) -> tuple[list[int], int]:
        return self.list, self.time

    @property
    def bare(self) -> Value:
        """Operators give no headers."""
        return self._replace(headers=())


As: TypeAlias = Callable[[Value], Any]
Rows: TypeAlias = dict[tuple[str, int, int], Value]


def plain(value: Value) -> Any:
    return value.list


def timed(value: Value) -> Any:
    return ValueAndTimestamp(*value.raw)


def with_headers(value: Value) -> Any:
    return ValueTimestampHeaders(*value.raw, [*value.headers])


def aggregation(value: Value) -> Any:
    return AggregationWithHeaders(value.list, [*value.headers])


class Model:
    """`shown`: what user code puts and gets for a value. `in_memory`: whether the store is; some have another order."""

    shown: As = staticmethod(plain)
    in_memory = False

    def __init__(self) -> None:
        self.now = 1
        """The time of the record in work."""

    def copy(self) -> Model:
        return copy.deepcopy(self)

    def approximate(self) -> bool:
        return True


def listed(value: Value | None) -> Any:
    return None if value is None else value.list


def headers_for(number: int) -> Headers:
    """Among them none, one without a value, and one name twice."""
    return ([], [("n", b"%d" % number)], [("é", None), ("n", b""), ("n", b"2")])[number % 3]


def between(key: str, low: str | None, high: str | None) -> bool:
    data = key.encode()
    return (low is None or low.encode() <= data) and (high is None or data <= high.encode())
