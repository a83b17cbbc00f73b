"""What a user may rely on when a type is given where a serde is asked."""

from __future__ import annotations

import dataclasses
import enum
import os
import pickle
import subprocess
import sys
import uuid
from collections import namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple, Optional, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milestones import (
    Processor,
    ProcessorContext,
    Record,
    Serde,
    SerializationError,
    StoreSpec,
    StreamsBuilder,
    TopologyError,
    serdes,
)
from milestones.testing import TopologyTestDriver


@dataclasses.dataclass
class Order:
    customer: str
    amount: float
    note: str | None = None


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int


class Trade(msgspec.Struct, frozen=True):
    price: float
    at: Point | None = None


class Basket(msgspec.Struct, frozen=True):
    items: list[str]


class Tree(msgspec.Struct):
    children: list[Tree] = []


class Customer(pydantic.BaseModel):
    name: str
    age: int = 0
    score: float = 0.0


class Color(enum.Enum):
    RED = "red"


class Place(TypedDict):
    city: str


class Pair(NamedTuple):
    left: int
    right: int


class Last(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.store = context.get_state_store("last")

    def process(self, record: Record) -> None:
        self.store.put(record.key, record.value)


class Opaque:
    """A class that JSON doesn't know."""


KAFKAS = {
    str: serdes.STRING,
    int: serdes.LONG,
    float: serdes.DOUBLE,
    bool: serdes.BOOLEAN,
    bytes: serdes.BYTES,
    uuid.UUID: serdes.UUID,
    dict: serdes.JSON,
    Any: serdes.JSON,
    Optional[int]: serdes.LONG,  # noqa: UP045  # users write it
}


@pytest.mark.parametrize("kind", KAFKAS, ids=str)
def test_a_type_that_kafka_has_a_serde_of_is_that_serde(kind: Any) -> None:
    assert serdes.of(kind) is KAFKAS[kind]
    assert serdes.of(kind | None if kind is not Any else Any) is KAFKAS[kind]


def test_a_serde_is_its_own() -> None:
    assert serdes.of(serdes.SHORT) is serdes.SHORT


def test_a_list_has_the_bytes_of_kafkas_list_and_as_json_those_of_an_array() -> None:
    assert serdes.of(list[int]).serialize("t", [1]) == serdes.list_serde(serdes.LONG).serialize("t", [1])
    assert serdes.json(list[int]).serialize("t", [1]) == b"[1]"
    inner = serdes.of(list[Order])
    assert inner.deserialize("t", inner.serialize("t", [Order("a", 1.0), None])) == [Order("a", 1.0), None]  # type: ignore[list-item]


VALUES = [
    Order("ada", 2.5), Point(1, 2), Trade(1.0, Point(3, 4)), Basket(["a"]), Tree([Tree()]), Customer(name="ada"),
    Color.RED, Pair(1, 2), datetime(2026, 1, 2, tzinfo=UTC),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_an_object_comes_back_as_it_was_also_through_a_pickled_serde(value: Any) -> None:
    serde = serdes.of(type(value))
    again = pickle.loads(pickle.dumps(serde))
    assert again.deserialize("t", serde.serialize("t", value)) == value
    assert again.name == serde.name


def test_a_typed_dict_and_a_union_are_json() -> None:
    assert serdes.of(Place).deserialize("t", b'{"city": "Rome"}') == {"city": "Rome"}
    assert serdes.of(int | str).deserialize("t", b'"a"') == "a"  # type: ignore[arg-type]  # a type form


@given(st.builds(Order, st.text(), st.floats(allow_nan=False, allow_infinity=False), st.none() | st.text()))
def test_any_order_comes_back(order: Order) -> None:
    serde = serdes.of(Order)
    assert serde.deserialize("t", serde.serialize("t", order)) == order


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        (Order, b'{"customer": 5, "amount": 1}', r"Expected `str`, got `int` - at `\$.customer`"),
        (Order, b'{"customer": "a"}', "amount"),
        (Customer, b'{"name": "a", "age": "x"}', "age"),
        (Color, b'"blue"', "blue"),
        (bool, b"\x02", "0 or 1"),
    ],
)
def test_bytes_of_another_shape_are_an_error_that_says_where(kind: Any, data: bytes, text: str) -> None:
    with pytest.raises(SerializationError, match=text):
        serdes.of(kind).deserialize("orders", data)


@pytest.mark.parametrize("wrong", [{"customer": "a", "amount": 1.0}, Point(1, 2), 5])
def test_a_value_of_another_class_is_refused(wrong: Any) -> None:
    with pytest.raises(SerializationError, match="expected Order"):
        serdes.of(Order).serialize("orders", wrong)


def test_numbers_that_json_lacks_are_refused() -> None:
    for value in (Order("a", float("nan")), Customer(name="a", score=float("inf"))):
        with pytest.raises(SerializationError, match=r"JSON has no (nan|inf)"):
            serdes.of(type(value)).serialize("orders", value)


@pytest.mark.parametrize(
    ("kind", "immutable"),
    [(Point, True), (Trade, True), (Color, True), (Pair, True), (tuple[int, str], True), (datetime, True),
     (Order, False), (Basket, False), (Tree, False), (Customer, False), (Place, False), (tuple[list[int]], False)],
    ids=str,
)  # fmt: skip
def test_values_are_shared_only_when_nothing_in_them_can_be_changed(kind: Any, immutable: bool) -> None:
    assert serdes.of(kind).immutable is immutable


@pytest.mark.parametrize("kind", [Opaque, list[Opaque], 5, "str", dict[str, Opaque]], ids=str)
def test_a_type_without_a_serde_is_refused_when_the_topology_is_built(kind: Any) -> None:
    with pytest.raises(TopologyError, match="value must be a Serde, or a type that has one: there is no serde of"):
        StreamsBuilder().stream("orders", value=kind)


def test_types_stand_for_serdes_in_the_whole_language_and_in_its_test_driver() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(StoreSpec("last", key_serde=str, value_serde=Order))
    orders = builder.stream("orders", key=str, value=Order)
    orders.process(Last, "last")
    spent = orders.group_by(lambda _, order: order.customer, key=str).aggregate(
        lambda: 0.0, lambda _key, order, total: total + order.amount, "spent", key=str, value=float
    )
    customers = builder.table("customers", key=str, value=Customer)
    spent.join(customers, lambda total, customer: Trade(total, Point(customer.age, 0)), value=Trade).to_stream().to(
        "out", value=Trade
    )
    with TopologyTestDriver(builder, default_key_serde=str) as driver:
        driver.create_input_topic("customers", value=Customer).pipe("ada", Customer(name="Ada", age=36))
        driver.create_input_topic("orders", value=Order).pipe("o1", Order("ada", 2.5))
        assert driver.store("last").get("o1") == Order("ada", 2.5)
        assert driver.create_output_topic("out", value=Trade).read_key_values() == [
            ("ada", Trade(2.5, Point(36, 0)))
        ]


def test_a_namedtuple_without_types_is_json() -> None:
    kind = namedtuple("kind", "a b")
    assert serdes.of(kind).serialize("t", kind(1, "x")) == b'[1,"x"]'


@dataclasses.dataclass
class Tagged:
    name: str
    tags: frozenset[str]
    more: dict[str, set[int]] = dataclasses.field(default_factory=dict)


class Crate(msgspec.Struct, frozen=True):
    points: frozenset[Point]


class Tags(pydantic.BaseModel):
    tags: set[str]
    frozen: frozenset[int] = frozenset()


class Noted(NamedTuple):
    notes: frozenset[str]


class Open(pydantic.BaseModel, extra="allow"):
    name: str


@dataclasses.dataclass
class Named:
    name: str


@dataclasses.dataclass
class NamedAndTagged(Named):
    tags: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    KNOWN: ClassVar[set[str]] = {"a", "b"}
    tags: frozenset[str]


SETS = """
from tests.common.test_typed_serdes import *
TEXTS = [f"text {n}" for n in range(20)]
for kind, value in [
    (frozenset[str], frozenset(TEXTS)),
    (Tagged, Tagged("x", frozenset(TEXTS), {"b": {10, 9, 1}, "a": set()})),
    (Crate, Crate(frozenset(Point(n % 3, n) for n in range(9)))),
    (Tags, Tags(tags=set(TEXTS), frozen=frozenset({2, 1}))),
    (Noted, Noted(frozenset(TEXTS))),
    (frozenset[frozenset[str]], frozenset({frozenset(TEXTS[:5]), frozenset(TEXTS[3:])})),
    (frozenset[int | str], frozenset([*TEXTS, 1, 2])),
    (frozenset[Colour], frozenset(Colour)),
    (dict[int, set[str]], {2: set(TEXTS), 1: set()}),
    (serdes.list_serde(serdes.of(frozenset[str])), [frozenset(TEXTS)]),
    (Slotted, Slotted(frozenset(TEXTS))),
]:
    serde = serdes.of(kind)
    data = serde.serialize("t", value)
    assert serde.deserialize("t", data) == value
    print(data)
print(serdes.of(Open).serialize("t", Open(name="x", tags=set(TEXTS))))
print(serdes.json(Named, check=False).serialize("t", NamedAndTagged("x", set(TEXTS))))
"""


class Colour(enum.Enum):
    RED = "r"
    GREEN = "g"
    BLUE = "b"


def test_equal_sets_have_equal_bytes_in_every_process() -> None:
    def written(seed: int) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        command = [sys.executable, "-W", "error", "-c", SETS]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    first = written(1)
    assert first.count("\n") == 13
    assert written(2) == written(3) == first


def test_a_value_with_sets_is_not_changed_by_being_written() -> None:
    value = Tagged("x", frozenset("cab"), {"a": {2, 1}})
    serdes.of(Tagged).serialize("t", value)
    assert value == Tagged("x", frozenset("cab"), {"a": {2, 1}})
    assert type(value.tags) is frozenset


@dataclasses.dataclass(frozen=True)
class Height:
    metres: float


class Weight(pydantic.BaseModel):
    grams: float


@pytest.mark.parametrize(
    ("kind", "value", "equal"),
    [
        (Height, Height(1), Height(1.0)),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (tuple[float, int], (1, 2), (1.0, 2)),
        (Weight, Weight.model_construct(grams=1), Weight(grams=1.0)),
    ],
)
def test_a_whole_number_is_written_as_the_equal_number_of_a_field_of_floats(kind: Any, value: Any, equal: Any) -> None:
    serde = serdes.of(kind)
    assert value == equal
    assert serde.serialize("t", value) == serde.serialize("t", equal)


@dataclasses.dataclass(frozen=True)
class Sum:
    n: int = 0
    total: float = 0.0
    note: str | None = None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Sum(1.0), r"Expected `int`, got `float` - at `\$.n`"),  # type: ignore[arg-type]
        (Sum(True), r"Expected `int`, got `bool` - at `\$.n`"),  # type: ignore[arg-type]
        (Sum(1, None), r"Expected `float`, got `null` - at `\$.total`"),  # type: ignore[arg-type]
        (Sum(1, Decimal("1.5")), r"Expected `float`, got `str` - at `\$.total`"),  # type: ignore[arg-type]
        (Sum(1, 1.0, 5), r"Expected `str \| null`, got `int` - at `\$.note`"),  # type: ignore[arg-type]
    ],
)
def test_what_could_not_be_read_again_is_not_written(value: Sum, says: str) -> None:
    with pytest.raises(SerializationError, match=r"JSON\(Sum\) can't write a Sum .*couldn't be read again: " + says):
        serdes.of(Sum).serialize("t", value)


def test_a_pydantic_model_that_was_not_checked_is_not_written() -> None:
    with pytest.raises(SerializationError, match="couldn't be read again"):
        serdes.of(Customer).serialize("t", Customer.model_construct(name=None))  # type: ignore[arg-type]


def test_a_serde_without_the_check_writes_what_it_could_not_read_also_after_a_pickle() -> None:
    serde = pickle.loads(pickle.dumps(serdes.json(Sum, check=False)))
    assert serde.serialize("t", Sum(1.0)) == b'{"n":1.0,"total":0.0,"note":null}'  # type: ignore[arg-type]


def _summing(value: Any) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("i", key=str, value=dict).group_by_key().aggregate(
        Sum, lambda _, given, sum_: Sum(sum_.n + given["n"]), "sums", value=value
    ).to_stream().to("o", key=str, value=value)
    return builder


def test_a_row_that_could_not_be_read_fails_the_record_that_makes_it_and_none_after_it() -> None:
    with TopologyTestDriver(_summing(Sum), processing_exception_handler="log_and_continue") as driver:
        topic = driver.create_input_topic("i", key=str, value=dict)
        for number in (1, 1.5, 2):
            topic.pipe("k", {"n": number})
        assert driver.create_output_topic("o", key=str, value=Sum).read_values() == [Sum(1), Sum(3)]


def test_rows_that_can_not_be_read_are_mended_by_a_serde_of_the_user() -> None:
    written, strict = serdes.json(Sum, check=False), serdes.of(Sum)

    def read(data: bytes) -> Sum:
        try:
            return strict.deserializer("")(data)
        except msgspec.ValidationError:
            return Sum(int(msgspec.json.decode(data)["n"]))

    for reader, expected in [(strict.deserializer(""), 1), (read, 2)]:
        serde = Serde(written.serializer(""), reader)
        with TopologyTestDriver(_summing(serde), processing_exception_handler="log_and_continue") as driver:
            topic = driver.create_input_topic("i", key=str, value=dict)
            topic.pipe("k", {"n": 2.0})
            topic.pipe("k", {"n": 1})
            values = driver.create_output_topic("o", key=str, value=bytes).read_values()
        assert len(values) == expected
    assert strict.deserialize("o", values[-1]) == Sum(3)
