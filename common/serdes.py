"""Serialisers and deserialisers with the bytes of Kafka's own `org.apache.kafka.common.serialization`.

A serde consists of two functions: one makes bytes from a value, the other makes a value from bytes. They never get
None, because None is written and read as Kafka's null. Operators call the two functions directly (`serializer`,
`deserializer`), which is fast because many of them are C functions. `serialize` and `deserialize` do the same, but take
None, too, and raise clear errors.

*Guarantees*: built-in serdes write and read Kafka's bytes, with two exceptions. STRING refuses bytes that aren't UTF-8,
where Java would insert replacement characters. JSON refuses NaN and infinities, which JSON doesn't have. Java's Jackson
would write strings, such as "NaN". Equal values have equal bytes, but two `dict`s only if their keys were added in the
same order. Every NaN is written with the bytes of Java's. JSON reads and writes whole numbers of any size exactly. A
serde has no state, so threads may share it.
*Assumes*: user functions are pure.
"""

from __future__ import annotations

import math
import re
import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final, Generic, NoReturn, SupportsIndex, TypeVar

import msgspec
import orjson

from milestones.common.errors import SerializationError
from milestones.common.functions import AWAITED_BY_NOBODY, is_coroutine_function

__all__ = [
    "BOOLEAN",
    "BYTES",
    "DOUBLE",
    "FLOAT",
    "INT",
    "INTEGER",
    "JSON",
    "LONG",
    "SHORT",
    "STRING",
    "UUID",
    "VOID",
    "Serde",
    "list_serde",
]

T = TypeVar("T")


class Serde(Generic[T]):
    """Makes bytes from values of one kind, and values from bytes.

    `serialize` and `deserialize` are functions of one argument that never get None. `immutable`: the values that are
    read can't be changed, so a store may remember and share them. `fixed_size`: the number of bytes that every value
    has. Kafka's list format then omits the length of each element. If the topic matters, as with a schema registry,
    write a subclass that overrides `serializer` and `deserializer`.
    """

    __slots__ = ("_deserialize", "_serialize", "fixed_size", "immutable", "name")

    def __init__(
        self,
        serialize: Callable[[T], bytes],
        deserialize: Callable[[bytes], T],
        *,
        name: str | None = None,
        immutable: bool = False,
        fixed_size: int | None = None,
    ) -> None:
        for role, function in (("serialize", serialize), ("deserialize", deserialize)):
            if not callable(function):
                raise TypeError(f"a Serde's {role} must be a function of one argument, not {function!r}")
            if is_coroutine_function(function):
                raise TypeError(f"the Serde's {role} {function!r} {AWAITED_BY_NOBODY}")
        self._serialize, self._deserialize = serialize, deserialize
        self.name: str = name or str(getattr(serialize, "__qualname__", type(serialize).__qualname__))
        self.immutable: bool = immutable
        self.fixed_size: int | None = fixed_size

    def __repr__(self) -> str:
        return f"Serde({self.name})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickle a built-in serde by its name."""
        return (_built_in, (self.name,)) if _built_in(self.name) is self else super().__reduce_ex__(protocol)

    def serializer(self, topic: str) -> Callable[[T], bytes]:
        """Returns the function that makes bytes from a value (never None) for records of `topic`. The function may
        raise any error."""
        return self._serialize

    def deserializer(self, topic: str) -> Callable[[bytes], T]:
        """Returns the function that makes a value from bytes (never None) of `topic`. The function may raise any
        error."""
        return self._deserialize

    def serialize(self, topic: str, value: T | None) -> bytes | None:
        """Returns the bytes of `value`, or None for None. Raises `SerializationError` if this serde can't write the
        value."""
        if value is None:
            return None
        try:
            return self.serializer(topic)(value)
        except Exception as error:
            raise unwritable(self, topic, value, error) from error

    def deserialize(self, topic: str, data: bytes | None) -> T | None:
        """Returns the value in `data`, or None for None. Raises `SerializationError` if this serde can't read the
        bytes."""
        if data is None:
            return None
        try:
            return self.deserializer(topic)(data)
        except Exception as error:
            raise unreadable(self, topic, data, error) from error


def unwritable(serde: Serde[Any], topic: str, value: object, error: Exception) -> SerializationError:
    """Returns the error for a value that `serde` refused to write to `topic`."""
    return SerializationError(
        f"serde {serde.name} can't write a {type(value).__qualname__} for topic {topic}: {error}. "
        "Give the operator or sink a serde for its keys and values (key=..., value=...)"
    )


def unreadable(serde: Serde[Any], topic: str, data: bytes, error: Exception) -> SerializationError:
    """Returns the error for bytes of `topic` that `serde` refused to read."""
    return SerializationError(
        f"serde {serde.name} can't read {len(data)} bytes of topic {topic}: {error}. "
        "Give the source the serde with which the topic was written (key=..., value=...)"
    )


def _identity(data: bytes) -> bytes:
    return data


def _only_bytes(value: bytes) -> bytes:
    if value.__class__ is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError("expected bytes")


def _number(name: str, layout: str) -> Serde[Any]:
    packing = struct.Struct(layout)
    unpack = packing.unpack

    def deserialize(data: bytes) -> Any:
        (value,) = unpack(data)
        return value

    return Serde(packing.pack, deserialize, name=name, immutable=True, fixed_size=packing.size)


def _floating(name: str, layout: str) -> Serde[float]:
    """Make a serde of floats. It writes every NaN with the bytes of Java's NaN."""
    serde = _number(name, layout)
    pack, nan = serde._serialize, serde._serialize(math.nan)
    return Serde(
        lambda value: pack(value) if value == value else nan,
        serde._deserialize, name=name, immutable=True, fixed_size=serde.fixed_size,
    )  # fmt: skip


def _write_boolean(value: bool) -> bytes:
    if value is True:
        return b"\x01"
    if value is False:
        return b"\x00"
    raise TypeError("expected a bool")


def _read_boolean(data: bytes) -> bool:
    if data == b"\x01":
        return True
    if data == b"\x00":
        return False
    raise ValueError("expected one byte, 0 or 1")


def _write_uuid(value: uuid.UUID) -> bytes:
    if not isinstance(value, uuid.UUID):
        raise TypeError("expected a uuid.UUID")
    return str(value).encode()


_UUID = re.compile("-".join([r"(\+?[0-9a-fA-F]+)"] * 5))
_UUID_TEXT, _LARGEST_PART = 36, (1 << 63) - 1
_PART_BITS = 32, 16, 16, 16, 48


def _read_uuid(data: bytes) -> uuid.UUID:
    """Read a UUID as Java's `UUID.fromString` does: five numbers of up to 63 bits each, of which only the lowest bits
    count."""
    text = data.decode()
    found = _UUID.fullmatch(text) if len(text) <= _UUID_TEXT else None
    if found is None:
        raise ValueError(f"{text[: 2 * _UUID_TEXT]!r} isn't a UUID of five hexadecimal numbers with dashes between")
    number = 0
    for part, bits in zip(found.groups(), _PART_BITS, strict=True):
        value = int(part, 16)
        if value > _LARGEST_PART:
            raise ValueError(f"{text!r} has a number that is too large for a UUID")
        number = number << bits | value & ((1 << bits) - 1)
    return uuid.UUID(int=number)


def _void(_: object) -> NoReturn:
    raise TypeError("VOID has only absent keys or values (None)")


def _write_json(value: Any, dumps: Callable[[Any], bytes] = orjson.dumps) -> bytes:
    try:
        data = dumps(value)
    except orjson.JSONEncodeError as error:
        if "64-bit" not in str(error):
            raise
        data = dumps(_with_large_numbers(value))
    # orjson writes null for NaN and infinities, too. `partition` is the fastest search: `find` takes twice as long.
    if data.partition(b"null")[1]:
        check_finite(value)
    return b"%b" % data  # a copy of just the needed size: the bytes that orjson returns occupy 4 KB


_LEAST_INT, _BEYOND_INT = -(1 << 63), 1 << 64
"""The range of whole numbers that orjson can write."""


def _with_large_numbers(value: Any) -> Any:
    """Returns a copy of `value` in which whole numbers that orjson can't write are replaced by their digits."""
    kind = value.__class__
    if kind is int:
        return value if _LEAST_INT <= value < _BEYOND_INT else orjson.Fragment(str(value))
    if isinstance(value, dict):
        return {key: _with_large_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_large_numbers(inner) for inner in value]
    if is_dataclass(value):
        shown = [field.name for field in fields(value) if not field.name.startswith("_")]
        return {name: _with_large_numbers(getattr(value, name)) for name in shown}
    return _with_large_numbers(value.value) if isinstance(value, Enum) else value


def check_finite(value: Any) -> None:
    """Raise `ValueError` if a float in `value` is NaN or infinite. JSON would have null in its place."""
    if not _is_finite(value):
        where, number = next(_odd_numbers(value))
        raise ValueError(f"JSON has no {number}{f' (at {where})' if where else ''}: give None or a string for it")


_WHOLE = frozenset({str, int, bool, type(None)})


def _is_finite(value: Any) -> bool:
    """True if no float in `value` is NaN or infinite. It is called for each record that has a None, so to be fast it
    doesn't keep track of places."""
    kind = value.__class__
    if kind in _WHOLE:
        return True
    if kind is float:
        return math.isfinite(value)
    if kind is dict:
        return all(map(_is_finite, value.values()))
    if kind is list or kind is tuple:
        return all(map(_is_finite, value))
    return next(_odd_numbers(value), None) is None


def _odd_numbers(value: Any, where: str = "") -> Iterator[tuple[str, float]]:
    """Yields the floats in `value` that are NaN or infinite, each with its place in `value`."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield where, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _odd_numbers(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _odd_numbers(inner, f"{where}[{index}]")
    elif isinstance(value, Enum):
        yield from _odd_numbers(value.value, where)
    elif is_dataclass(value):
        yield from _odd_numbers({field.name: getattr(value, field.name, None) for field in fields(value)}, where)


STRING: Serde[str] = Serde(str.encode, bytes.decode, name="STRING", immutable=True)
BYTES: Serde[bytes] = Serde(_only_bytes, _identity, name="BYTES", immutable=True)
BOOLEAN: Serde[bool] = Serde(_write_boolean, _read_boolean, name="BOOLEAN", immutable=True)
SHORT: Serde[int] = _number("SHORT", ">h")
INTEGER: Serde[int] = _number("INTEGER", ">i")
INT: Serde[int] = INTEGER
LONG: Serde[int] = _number("LONG", ">q")
FLOAT: Serde[float] = _floating("FLOAT", ">f")
DOUBLE: Serde[float] = _floating("DOUBLE", ">d")
UUID: Serde[uuid.UUID] = Serde(
    _write_uuid,
    _read_uuid,
    name="UUID",
    immutable=True,
    fixed_size=36,
)
JSON: Serde[Any] = Serde(_write_json, msgspec.json.Decoder().decode, name="JSON")
VOID: Serde[None] = Serde(_void, _void, name="VOID", immutable=True)

EXACT: Final[tuple[Serde[Any], ...]] = (STRING, BYTES, BOOLEAN, SHORT, INTEGER, LONG, UUID)
"""Serdes that return exactly the value that was written, if it had their type. FLOAT and DOUBLE may lose digits. Other
serdes may round a number, or return a float for a whole number."""

_INT32 = struct.Struct(">i")
_CONSTANT_SIZE, _VARIABLE_SIZE = 0, 1
_NULL_ENTRY = -1


def list_serde(inner: Serde[T]) -> Serde[list[T | None]]:
    """Make a serde of lists of `inner`, in the format of Kafka's `ListSerializer` (KIP-466). Elements may be None.

    The first byte names the format: 0 has the indexes of the nulls, for inner serdes of fixed size; 1 has the length of
    each element.
    """
    return _ListSerde(inner)


def _built_in(name: object) -> object:
    return globals().get(str(name))


class _ListSerde(Serde[Any]):
    __slots__ = ("inner",)

    def __init__(self, inner: Serde[Any]) -> None:
        super().__init__(_identity, _identity, name=f"LIST({inner.name})")
        self.inner = inner

    def serializer(self, topic: str) -> Callable[[Any], bytes]:
        write = self.inner.serializer(topic)
        fixed = self.inner.fixed_size is not None
        return lambda values: (_write_fixed if fixed else _write_variable)(write, values)

    def deserializer(self, topic: str) -> Callable[[bytes], Any]:
        read, size = self.inner.deserializer(topic), self.inner.fixed_size
        return lambda data: _read_list(read, size, data)


def _write_fixed(write: Callable[[Any], bytes], values: list[Any]) -> bytes:
    nulls = [index for index, value in enumerate(values) if value is None]
    head = struct.pack(f">b{len(nulls) + 2}i", _CONSTANT_SIZE, len(nulls), *nulls, len(values))
    return head + b"".join([write(value) for value in values if value is not None])


def _write_variable(write: Callable[[Any], bytes], values: list[Any]) -> bytes:
    parts = [struct.pack(">bi", _VARIABLE_SIZE, len(values))]
    for value in values:
        data = None if value is None else write(value)
        parts.append(_INT32.pack(_NULL_ENTRY if data is None else len(data)))
        if data is not None:
            parts.append(data)
    return b"".join(parts)


def _read_list(read: Callable[[bytes], Any], size: int | None, data: bytes) -> list[Any]:
    strategy = data[0] if data else -1
    if strategy == _VARIABLE_SIZE:
        return _read_variable(read, data)
    if strategy == _CONSTANT_SIZE and size is not None:
        return _read_fixed(read, size, data)
    raise ValueError(
        "a list of constant-size entries needs an inner serde of fixed size"
        if strategy == _CONSTANT_SIZE
        else f"{strategy} is no list format"
    )


def _read_fixed(read: Callable[[bytes], Any], size: int, data: bytes) -> list[Any]:
    count = _count(data, 1)
    nulls = set(struct.unpack_from(f">{count}i", data, 5))
    length = _count(data, 5 + 4 * count)
    position = 9 + 4 * count
    values: list[Any] = []
    for index in range(length):
        if index in nulls:
            values.append(None)
            continue
        values.append(read(_slice(data, position, size)))
        position += size
    return values


def _read_variable(read: Callable[[bytes], Any], data: bytes) -> list[Any]:
    length, position = _count(data, 1), 5
    values: list[Any] = []
    for _ in range(length):
        (size,) = _INT32.unpack_from(data, position)
        position += 4
        if size == _NULL_ENTRY:
            values.append(None)
            continue
        values.append(read(_slice(data, position, size)))
        position += size
    return values


def _count(data: bytes, position: int) -> int:
    (count,) = _INT32.unpack_from(data, position)
    if not 0 <= count <= len(data):
        raise ValueError(f"a count of {count} in {len(data)} bytes")
    return int(count)


def _slice(data: bytes, position: int, size: int) -> bytes:
    if size < 0 or position + size > len(data):
        raise ValueError(f"an entry of {size} bytes at {position} in {len(data)} bytes")
    return data[position : position + size]
