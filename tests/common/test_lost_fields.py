"""What a user may rely on when a value has more fields than its type: they aren't lost without a word."""

from __future__ import annotations

import dataclasses
import pickle
import re
from typing import Any, Generic, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
import pydantic.dataclasses
import pytest
import typing_extensions

from milestones import SerializationError, StreamsBuilder, serdes
from milestones.testing import TopologyTestDriver


@dataclasses.dataclass
class Item:
    name: str


@dataclasses.dataclass
class Book(Item):
    pages: int = 0


@dataclasses.dataclass
class Rare(Item):
    """Has no field of its own."""


@dataclasses.dataclass
class Order:
    item: Item
    more: list[Item] = dataclasses.field(default_factory=list)
    by_name: dict[str, Item] = dataclasses.field(default_factory=dict)
    anything: Any = None
    price: float = 0.0


class Shape(msgspec.Struct, rename="camel"):
    name: str


class Square(Shape):
    side_length: int = 1


@attrs.define
class Animal:
    name: str


@attrs.define
class Cat(Animal):
    lives: int = 9


class Place(TypedDict):
    city: str


class Home(msgspec.Struct):
    at: Place


class Model(pydantic.BaseModel):
    name: str


class Wider(Model):
    width: int = 1


class Same(Model):
    def shout(self) -> str:
        return self.name.upper()


class Holder(pydantic.BaseModel):
    model: Model
    hidden: int = pydantic.Field(1, exclude=True)


class HoldsAny(pydantic.BaseModel):
    model: pydantic.SerializeAsAny[Model]


class Either(pydantic.BaseModel):
    model: Model | Wider


class Loose(pydantic.BaseModel, extra="allow"):
    name: str


class LooseHolder(pydantic.BaseModel):
    loose: pydantic.SerializeAsAny[Loose]


class LooseAndMore(Loose):
    more: int = 2


@pydantic.dataclasses.dataclass
class Checked:
    name: str


@pydantic.dataclasses.dataclass
class CheckedAndMore(Checked):
    more: int = 2


class Town(typing_extensions.TypedDict):
    name: str


class Map(pydantic.BaseModel):
    town: Town


class Tagged(msgspec.Struct, tag=True):
    name: str


class TaggedAndMore(Tagged, tag=True):
    more: int = 2


T = TypeVar("T")


class Box(pydantic.BaseModel, Generic[T]):
    inside: T


def with_a_key() -> Map:
    """pydantic looks at a dict when the model is made, not when the dict is changed."""
    town = Map(town={"name": "Rome"})
    town.town["people"] = 3  # type: ignore[typeddict-unknown-key]
    return town


LOSSES = [
    (Item, Book("b", 9), "$.pages (of a Book)"),
    (Order, Order(Book("b", 9)), "$.item.pages (of a Book)"),
    (Order, Order(Item("a"), [Item("a"), Book("b")]), "$.more[1].pages (of a Book)"),
    (Order, Order(Item("a"), by_name={"x": Book("b")}), "$.by_name.x.pages (of a Book)"),
    (Order, Order({"name": "a", "pages": 5}), "$.item.pages (of a dict)"),  # type: ignore[arg-type]
    (dict[str, Item], {"x": Book("b")}, "$.x.pages (of a Book)"),
    (tuple[Item, int], (Book("b"), 5), "$[0].pages (of a Book)"),
    (Shape, Square("a"), "$.sideLength (of a Square)"),
    (Animal, Cat("a"), "$.lives (of a Cat)"),
    (Place, {"city": "Rome", "people": 3}, "$.people (of a dict)"),
    (Home, Home({"city": "Rome", "people": 3}), "$.at.people (of a dict)"),  # type: ignore[typeddict-unknown-key]
    (Model, Wider(name="a"), "$.width (of a Wider)"),
    (Holder, Holder(model=Wider(name="a")), "$.model.width (of a Wider)"),
    (HoldsAny, HoldsAny(model=Wider(name="a")), "$.model.width (of a Wider)"),
    (Checked, CheckedAndMore("a"), "$.more (of a CheckedAndMore)"),
    (Box[Model], Box[Model](inside=Wider(name="a")), "$.inside.width (of a Wider)"),
    (Map, with_a_key(), "$.town.people (of a dict)"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "lost"), LOSSES, ids=[lost for _, _, lost in LOSSES])
def test_a_value_with_fields_that_its_type_lacks_is_refused_with_their_names(kind: Any, value: Any, lost: str) -> None:
    serde = serdes.json(kind)
    for one in (serde, pickle.loads(pickle.dumps(serde))):
        with pytest.raises(SerializationError, match=re.escape(f"doesn't have {lost}, and a reader would")) as caught:
            one.serialize("t", value)
        assert "give the class that the type names these fields" in str(caught.value)


KEPT = [
    (Item, Rare("r"), Item("r")),
    (Order, Order(Rare("r"), price=2), Order(Item("r"), price=2.0)),
    (Order, Order(Item("a"), anything=Book("b", 9)), Order(Item("a"), anything={"name": "b", "pages": 9})),
    (Holder, Holder(model=Same(name="a"), hidden=1), Holder(model=Model(name="a"))),
    (Either, Either(model=Wider(name="a")), Either(model=Wider(name="a"))),
    (LooseHolder, LooseHolder(loose=LooseAndMore(name="a", b=5)), LooseHolder(loose=Loose(name="a", b=5, more=2))),
    (Box[int], Box[int](inside=1), Box[int](inside=1)),
    (Tagged | TaggedAndMore, TaggedAndMore("a"), TaggedAndMore("a")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "read"), KEPT, ids=[f"{type(value).__name__}" for _, value, _ in KEPT])
def test_a_value_that_loses_nothing_is_written(kind: Any, value: Any, read: Any) -> None:
    serde = serdes.json(kind)
    assert serde.deserialize("t", serde.serialize("t", value)) == read


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (Order, Order(Book("b", 9)), b'"item":{"name":"b","pages":9}'),
        (Place, {"city": "Rome", "people": 3}, b'"people":3'),
        (HoldsAny, HoldsAny(model=Wider(name="a")), b'{"model":{"name":"a","width":1}}'),
    ],
    ids=["dataclass", "TypedDict", "pydantic"],
)
def test_without_the_check_it_is_written_whole_for_readers_of_another_type(kind: Any, value: Any, data: bytes) -> None:
    assert data in serdes.json(kind, check=False).serialize("t", value)


def test_what_pydantic_would_leave_out_is_refused_also_without_the_check() -> None:
    with pytest.raises(SerializationError, match=r"\$\.model\.width \(of a Wider\)"):
        serdes.json(Holder, check=False).serialize("t", Holder(model=Wider(name="a")))


def test_a_class_that_is_derived_after_the_serde_was_made_is_seen() -> None:
    ours, models = serdes.json(Item), serdes.json(Model)

    @dataclasses.dataclass
    class Late(Item):
        late: bool = True

    class LateModel(Model):
        late: bool = True

    for serde, value in ((ours, Late("a")), (models, LateModel(name="a"))):
        with pytest.raises(SerializationError, match=r"\$\.late"):
            serde.serialize("t", value)  # type: ignore[arg-type]


def test_a_field_that_would_be_lost_fails_its_record_and_none_after_it() -> None:
    builder = StreamsBuilder()
    builder.stream("i", key=str, value=int).map_values(lambda n: Book("b", n) if n == 2 else Item(str(n))).to(
        "o", key=str, value=Item
    )
    with TopologyTestDriver(builder, production_exception_handler="log_and_continue") as driver:
        topic = driver.create_input_topic("i", key=str, value=int)
        for number in (1, 2, 3):
            topic.pipe("k", number)
        assert driver.create_output_topic("o", key=str, value=Item).read_values() == [Item("1"), Item("3")]
