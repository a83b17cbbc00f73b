"""`of` and `json`: make the serde of a type, such as `of(str)`, `of(Order)`, `json(list[Order])`.

| type | bytes |
|---|---|
| `str`, `int`, `float`, `bool`, `bytes`, `uuid.UUID`, `list` of any type in this table | those of Kafka's own serdes |
| a pydantic model | JSON by pydantic |
| a dataclass, an attrs class, `msgspec.Struct`, `TypedDict`, `NamedTuple`, enum, `dict`, a union... | JSON by msgspec |

*Guarantees*: a value that is read has the type. Otherwise an error names the wrong part of the value. Unless
`check=False`, a value that can't be read back is refused when it is written. Equal values have equal bytes: a set is
written in the order of its elements' bytes. With the check, a whole number in a field of floats is written as a float.
A serde is marked as `immutable` if its type is frozen and the types of its fields are, so that stores may share values.
*Assumes*: if a serde is sent to another process, that process can import the class from the module that defines it.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Final, SupportsIndex, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import inspect as kinds

from milestones.common import serdes
from milestones.common.copies import all_kinds, is_mutable
from milestones.common.lost_fields import has_derived, refuse_loss
from milestones.common.serdes import Serde, check_finite, list_serde
from milestones.common.sets_in_order import in_order

T = TypeVar("T")

SerdeLike: TypeAlias = "Serde[T] | type[T]"
"""A serde, or a type for which `of` makes a serde."""

_KAFKAS: Final[Mapping[Any, Serde[Any]]] = {
    str: serdes.STRING,
    int: serdes.LONG,
    float: serdes.DOUBLE,
    bool: serdes.BOOLEAN,
    bytes: serdes.BYTES,
    uuid.UUID: serdes.UUID,
    Any: serdes.JSON,
    object: serdes.JSON,
    dict: serdes.JSON,
    list: serdes.JSON,
    NoneType: serdes.VOID,
}


def of(kind: SerdeLike[T]) -> Serde[T]:
    """Return the serde of a type: Kafka's own if Kafka has one, else a JSON serde. A serde is returned as it is.

    `int` is `LONG`, `float` is `DOUBLE`, `dict` is `JSON`, and `list[T]` is Kafka's list format with the serde of `T`.
    `T | None` has the serde of `T`, because every serde takes None. Raises `TypeError` for a type that can't be written
    as JSON.
    """
    return kind if isinstance(kind, Serde) else _of(kind)


def json(kind: type[T], *, check: bool = True) -> Serde[T]:
    """Make a JSON serde of a type, even if Kafka has a format of its own for it, such as `json(list[Order])`.

    `check`: each value that is written is read back immediately, and refused if that fails. `check=False` saves that
    time, but also writes values that aren't of the type. Use it only for topics that this application never reads."""
    return _PydanticSerde(kind, check) if _is_pydantic(kind) else _MsgspecSerde(kind, check)


def _of(kind: Any) -> Serde[Any]:
    given = get_args(kind)
    if get_origin(kind) in (Union, UnionType) and NoneType in given:
        rest = tuple(each for each in given if each is not NoneType)
        return _of(Union[rest])  # noqa: UP007  # of a tuple
    if get_origin(kind) is list:
        return list_serde(_of(given[0]))
    try:
        known = _KAFKAS.get(kind)
    except TypeError:  # not hashable: not a type either
        known = None
    return known or json(kind)


def _is_pydantic(kind: Any) -> bool:
    """True if the class is a model or a dataclass of pydantic. If it is, pydantic has already been imported."""
    return "pydantic" in sys.modules and isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


class JsonSerde(Serde[Any]):
    """A serde that writes and reads JSON of one type, with msgspec or pydantic."""

    __slots__ = ("_check", "_kind")

    def __init__(
        self, kind: Any, dump: Callable[[Any], bytes], load: Callable[[bytes], Any], *,
        again: Callable[[Any, bytes], bytes], plain: Callable[[Any], Any], immutable: bool, check: bool, floats: bool,
    ) -> None:  # fmt: skip
        """`dump` writes a value, and `load` reads it. `again(read, data)` writes the value that was read from `data`.
        `plain` makes a value of plain dicts and lists. `floats`: the type has fields of floats."""
        of_class = kind if isinstance(kind, type) and get_origin(kind) is None and _is_record(kind) else object

        def write(value: Any) -> bytes:
            if not isinstance(value, of_class):
                raise TypeError(f"expected {_name(kind)}")
            data = dump(value)
            if data.partition(b"null")[1]:
                check_finite(plain(value))
            return data

        def write_readable(value: Any) -> bytes:
            data = write(value)
            try:
                read = load(data)
            except Exception as error:
                raise TypeError(f"it couldn't be read again: {error}") from error
            written_again = again(read, data)
            if written_again != data:
                refuse_loss(value, data, written_again)
            return written_again if floats else data  # in a field of floats, 1 becomes 1.0

        super().__init__(
            write_readable if check else write, load, name=f"JSON({_name(kind)})", immutable=immutable
        )
        self._kind, self._check = kind, check

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _json, (self._kind, self._check)


class _MsgspecSerde(JsonSerde):
    __slots__ = ()

    def __init__(self, kind: Any, check: bool) -> None:
        try:
            seen = all_kinds(kinds.type_info(kind))
            decoder = msgspec.json.Decoder(kind)
        except Exception as error:
            raise _no_serde(kind, str(error)) from error
        for each in seen:
            if isinstance(each, kinds.CustomType):
                raise _no_serde(kind, f"JSON doesn't know {_name(each.cls)}")
        encode = msgspec.json.Encoder().encode
        ordered = any(isinstance(each, _MAY_HAVE_SETS) for each in seen)
        records = [each.cls for each in seen if isinstance(each, kinds.StructType | kinds.DataclassType)]

        def encode_in_order(value: Any) -> bytes:
            return encode(in_order(value, encode))

        def encode_any(value: Any) -> bytes:
            """Write sets in order if a class has subclasses, because a subclass may have fields with sets."""
            return encode_in_order(value) if any(map(type.__subclasses__, records)) else encode(value)

        def encode_again(read: Any, _: bytes) -> bytes:
            """Write a value that was read. Such a value contains no object of a subclass."""
            return encode_in_order(read) if ordered else encode(read)

        super().__init__(
            kind, encode_in_order if ordered else encode_any if records else encode, decoder.decode, again=encode_again,
            plain=msgspec.to_builtins, immutable=not any(map(is_mutable, seen)), check=check,
            floats=any(isinstance(each, kinds.FloatType) for each in seen),
        )  # fmt: skip


class _PydanticSerde(JsonSerde):
    __slots__ = ()

    def __init__(self, kind: Any, check: bool) -> None:
        from pydantic import TypeAdapter  # an extra
        from pydantic_core import to_json

        adapter = TypeAdapter(kind)
        schema = str(adapter.core_schema)
        ordered = any(text in schema for text in _MAY_HAVE_SETS_IN_SCHEMA)
        floats, typed_dicts = "'type': 'float'" in schema, "'type': 'typed-dict'" in schema
        classes = frozenset(_classes_in(adapter.core_schema))

        def dump_plainly(value: Any) -> bytes:
            return adapter.dump_json(in_order(value, to_json) if ordered else value)

        def dump(value: Any) -> bytes:
            """Write a value. Refuse it if pydantic leaves out fields that the declared type doesn't have."""
            data = dump_plainly(value)
            if typed_dicts or (any(map(type.__subclasses__, classes)) and has_derived(value, classes)):
                refuse_loss(value, adapter.dump_json(value, serialize_as_any=True), data)
            return data

        def dump_again(read: Any, data: bytes) -> bytes:
            return dump_plainly(read) if floats or any(map(type.__subclasses__, classes)) else data

        super().__init__(
            kind, dump, adapter.validate_json, again=dump_again, plain=adapter.dump_python, immutable=False,
            check=check, floats=floats,
        )  # fmt: skip


def _json(kind: Any, check: bool) -> Serde[Any]:
    """Call `json` with positional arguments. Pickle calls this function."""
    return json(kind, check=check)


_MAY_HAVE_SETS = kinds.SetType, kinds.FrozenSetType, kinds.AnyType
_MAY_HAVE_SETS_IN_SCHEMA = (
    "'type': 'set'", "'type': 'frozenset'", "'type': 'any'", "'extra_fields_behavior': 'allow'",
)  # fmt: skip


def _classes_in(schema: Any) -> Iterator[type]:
    """Yields the classes that a schema of pydantic describes."""
    if isinstance(schema, dict):
        if isinstance(schema.get("cls"), type):
            yield schema["cls"]
        for key, inner in schema.items():
            if key != "metadata":
                yield from _classes_in(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            yield from _classes_in(inner)


def _no_serde(kind: Any, why: str) -> TypeError:
    return TypeError(
        f"there is no serde of {kind!r}: {why}; give a Serde (see milestones.serdes), or a type such as str, int, "
        "a dataclass, a msgspec.Struct, a pydantic model or a list of these"
    )


def _name(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) and get_origin(kind) is None else str(kind)


def _is_record(kind: type) -> bool:
    """True if values must be instances of the class itself, because JSON writes their fields."""
    return issubclass(kind, msgspec.Struct) or is_dataclass(kind) or _is_pydantic(kind)
