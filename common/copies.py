"""`copy_of`: copies values, so that a user's function can change its copy without an effect on other functions.

| value | its copy |
|---|---|
| numbers, texts, bytes, times, enums, frozen classes whose fields can't be changed | the same object |
| `dict`, `list`, `tuple`, `set`, `bytearray` | a new container with copies of the elements |
| any other object | the result of `copy.deepcopy`; the same object, if that fails (a lock, a connection) |

*Guarantees*: a copy is equal to the value. The two share no mutable object, except objects that `copy.deepcopy` can't
copy. Each class is checked once for mutable fields.
*Assumes*: the elements of a set and the keys of a dict can't be changed.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import is_dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any, Final

from msgspec import inspect as kinds

UNCHANGEABLE: Final[frozenset[type]] = frozenset({
    NoneType, bool, int, float, complex, str, bytes, decimal.Decimal, uuid.UUID, datetime.date, datetime.datetime,
    datetime.time, datetime.timedelta, datetime.timezone, type, FunctionType, BuiltinFunctionType, MethodType,
    ModuleType,
})  # fmt: skip
"""Classes whose objects can't be changed, so that they needn't be copied. Code that runs for every record checks this
set first, because this is faster than a call of `copy_of`."""


def copy_of(value: Any) -> Any:
    """Returns a copy of `value` (see the table above)."""
    kind = value.__class__
    if kind in UNCHANGEABLE:
        return value
    try:
        return (_COPIERS.get(kind) or _copier_of(kind))(value)
    except RecursionError:  # the value contains itself
        return _deep(value)


def _copied(value: Any) -> Any:
    """Returns a copy of a value inside another value. Unlike `copy_of`, it doesn't catch `RecursionError`."""
    kind = value.__class__
    return (_COPIERS.get(kind) or _copier_of(kind))(value)


def _copier_of(kind: type) -> Callable[[Any], Any]:
    return _COPIERS.setdefault(kind, _copier(kind))


def _dict(value: dict[Any, Any]) -> dict[Any, Any]:
    copied = value.copy()
    for key, one in value.items():
        if one.__class__ not in UNCHANGEABLE:
            copied[key] = _copied(one)
    return copied


def _list(value: list[Any]) -> list[Any]:
    return [one if one.__class__ in UNCHANGEABLE else _copied(one) for one in value]


def _tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns a copy of a tuple, also of a named tuple or another subclass."""
    copied = _list(value)  # type: ignore[arg-type]  # any iterable
    same = all(one is other for one, other in zip(value, copied, strict=True))
    return value if same else tuple.__new__(value.__class__, copied)


def _same(value: Any) -> Any:
    return value


def _deep(value: Any) -> Any:
    try:
        return deepcopy(value)
    except Exception:
        return value


_COPIERS: Final[dict[type, Callable[[Any], Any]]] = {
    dict: _dict, list: _list, tuple: _tuple, set: set, frozenset: _same, bytearray: bytearray,
}  # fmt: skip
"""The function that copies objects of a class, for each class met so far."""


def _copier(kind: type) -> Callable[[Any], Any]:
    if issubclass(kind, Enum | type) or is_unchangeable(kind):
        return _same
    if issubclass(kind, tuple) and not kind.__dictoffset__:
        return _tuple
    return _object if _is_plain(kind) else _deep


def _object(value: Any) -> Any:
    copied = object.__new__(value.__class__)
    copied.__dict__.update(_dict(value.__dict__))
    return copied


def _is_plain(kind: type) -> bool:
    """True if the class is a dataclass whose objects consist of their dictionaries only. `deepcopy` would find this,
    too, but takes ten times as long."""
    return (
        is_dataclass(kind)
        and all(base is object or (base.__flags__ & _HEAP_TYPE and not vars(base).get("__slots__"))
                for base in kind.__mro__)
        and all(getattr(kind, name) is getattr(object, name) for name in _OWN)
        and not any(hasattr(kind, name) for name in _HOOKS)
    )  # fmt: skip


_HEAP_TYPE: Final = 1 << 9
_OWN: Final = ("__reduce_ex__", "__reduce__", "__getstate__")
_HOOKS: Final = ("__deepcopy__", "__setstate__", "__getnewargs_ex__", "__getnewargs__")


def is_unchangeable(kind: Any) -> bool:
    """True if a class is frozen and its fields can't be changed. False if this isn't known."""
    try:
        return not any(map(is_mutable, all_kinds(kinds.type_info(kind))))
    except Exception:  # msgspec can't describe the class: it can't be written as JSON
        return False


def all_kinds(root: kinds.Type) -> list[kinds.Type]:
    """Returns a type and the types of all its elements and fields, recursively."""
    seen: dict[int, kinds.Type] = {}
    waiting = [root]
    while waiting:
        each = waiting.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            waiting += _parts(each)
    return list(seen.values())


def _parts(kind: kinds.Type) -> Iterator[kinds.Type]:
    for name in ("item_type", "key_type", "value_type"):
        if (one := getattr(kind, name, None)) is not None:
            yield one
    yield from getattr(kind, "item_types", ())
    yield from getattr(kind, "types", ())
    yield from (field.type for field in getattr(kind, "fields", ()))


_MUTABLE = (
    kinds.AnyType, kinds.RawType, kinds.ByteArrayType, kinds.MemoryViewType, kinds.ListType, kinds.SetType,
    kinds.DictType, kinds.TypedDictType, kinds.CustomType,
)  # fmt: skip


def is_mutable(kind: kinds.Type) -> bool:
    """True if values of this type can be changed. The types of elements and fields aren't checked."""
    if isinstance(kind, kinds.StructType):
        return not kind.cls.__struct_config__.frozen
    if isinstance(kind, kinds.DataclassType):
        return not getattr(getattr(kind.cls, "__dataclass_params__", None), "frozen", False)
    return isinstance(kind, _MUTABLE)
