"""`in_order`: makes a copy of a value whose sets are written in the order of their elements' bytes. Python's own order
of a set differs from process to process.

*Guarantees*: the copy is written like the value, except for the order of sets. The value isn't changed. A value without
sets isn't copied.
*Assumes*: encoders iterate over sets as Python does; those of msgspec and pydantic do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import msgspec

from milestones.common.copies import UNCHANGEABLE

Encode = Callable[[Any], bytes]


class _InOrder:
    """Makes a set iterate in the order of the list `elements`."""

    elements: list[Any]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.elements)


class _SetInOrder(_InOrder, set[Any]):
    pass


class _FrozenSetInOrder(_InOrder, frozenset[Any]):
    pass


def in_order(value: Any, encode: Encode) -> Any:
    """Return `value`, or a copy of it whose sets iterate in a fixed order. `encode` makes the bytes of an element."""
    kind = value.__class__
    if kind in UNCHANGEABLE:
        return value
    if isinstance(value, set | frozenset):
        return _set(value, encode)
    if isinstance(value, dict):
        changed = {key: in_order(inner, encode) for key, inner in value.items()}
        return changed if any(changed[key] is not inner for key, inner in value.items()) else value
    if isinstance(value, list | tuple):
        inner = [in_order(one, encode) for one in value]
        if all(new is one for new, one in zip(inner, value, strict=True)):
            return value
        return tuple.__new__(kind, inner) if isinstance(value, tuple) else inner
    return _object(value, encode)


def _set(value: set[Any] | frozenset[Any], encode: Encode) -> _InOrder:
    ordered = _SetInOrder(value) if isinstance(value, set) else _FrozenSetInOrder(value)
    ordered.elements = sorted((in_order(one, encode) for one in value), key=encode)
    return ordered


def _object(value: Any, encode: Encode) -> Any:
    changed = {}
    for name in written_fields(value.__class__):
        inner = getattr(value, name, None)
        new = in_order(inner, encode)
        if new is not inner:
            changed[name] = new
    if not changed:
        return value
    copied = copy(value)
    set_field = msgspec.structs.force_setattr if isinstance(value, msgspec.Struct) else object.__setattr__
    for name, new in changed.items():
        set_field(copied, name, new)
    return copied


@cache
def written_fields(kind: Any) -> tuple[str, ...]:
    """Returns the names of the fields that are written for objects of a class. The class may be a dataclass, a Struct,
    a pydantic model or an attrs class."""
    if (names := getattr(kind, "__pydantic_fields__", None)) is not None:
        return (*names, "__pydantic_extra__")
    if (names := getattr(kind, "__struct_fields__", None)) is not None:
        return tuple(names)
    found = fields(kind) if is_dataclass(kind) else getattr(kind, "__attrs_attrs__", ())
    return tuple(field.name for field in found)
