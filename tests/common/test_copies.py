"""A copy has all that the value has, and nothing that can be changed is in both."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import enum
import threading
from collections import OrderedDict, defaultdict, namedtuple
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milestones.common.copies import copy_of
from milestones.common.records import StaleChange

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=12,
)


@dataclasses.dataclass
class Order:
    customer: str
    lines: list[int]


@dataclasses.dataclass(frozen=True)
class Basket:
    lines: list[int]


@dataclasses.dataclass(frozen=True)
class Point:
    x: int


@dataclasses.dataclass(slots=True)
class Narrow:
    lines: list[int]


class Struct(msgspec.Struct):
    lines: list[int]


class Model(pydantic.BaseModel):
    lines: list[int]


class Pair(NamedTuple):
    key: str
    lines: list[int]


class Plain:
    def __init__(self, lines: list[int]) -> None:
        self.lines = lines


class Colour(enum.Enum):
    RED = "r"


@given(VALUES)
def test_a_copy_equals_its_value(value: Any) -> None:
    assert copy_of(value) == value


@given(VALUES)
def test_what_is_changed_in_a_copy_is_not_changed_in_the_value(value: Any) -> None:
    before = copy.deepcopy(value)
    _spoil(copy_of(value))
    assert value == before


def _spoil(value: Any) -> None:
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        _spoil(inner)
    if isinstance(value, dict | list):
        value.clear()


@pytest.mark.parametrize(
    "value",
    [Order("c", [1]), Basket([1]), Narrow([1]), Struct([1]), Model(lines=[1]), Pair("k", [1]), Plain([1])],
    ids=lambda value: type(value).__name__,
)
def test_an_object_with_a_list_in_it_has_copies_with_lists_of_their_own(value: Any) -> None:
    copied = copy_of(value)
    assert type(copied) is type(value)
    copied.lines.append(2)
    assert value.lines == [1]


@pytest.mark.parametrize("value", [OrderedDict(a=[1]), defaultdict(list, a=[1]), {"a": [1]}], ids=repr)
def test_a_dict_of_another_class_stays_one(value: Any) -> None:
    copied = copy_of(value)
    copied["a"].append(2)
    assert type(copied) is type(value)
    assert value["a"] == [1]


@pytest.mark.parametrize(
    "value",
    [1, "text", b"bytes", None, Decimal("1.5"), datetime.date(2024, 1, 1), Colour.RED, Point(1), (1, ("a", b"b")),
     namedtuple("Two", "a b")(1, 2), frozenset({1}), Order],
    ids=repr,
)  # fmt: skip
def test_what_can_not_be_changed_is_its_own_copy(value: Any) -> None:
    assert copy_of(value) is value


def test_an_update_that_is_not_the_latest_stays_one() -> None:
    copied = copy_of(StaleChange(([1], None)))
    assert type(copied) is StaleChange
    assert copied == ([1], None)


def test_an_object_that_can_not_be_copied_is_shared() -> None:
    lock = threading.Lock()
    copied = copy_of({"lock": lock, "list": [1]})
    assert copied["lock"] is lock


def test_an_object_that_is_in_itself_has_a_copy_that_is_in_itself() -> None:
    value: list[Any] = [1]
    value.append(value)
    copied = copy_of(value)
    assert copied is not value
    assert copied[1] is copied
