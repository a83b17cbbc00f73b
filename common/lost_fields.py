"""Finds fields of a value that its declared type doesn't have. A program that reads the written value wouldn't get
these fields.

| the value is | the declared type is | the lost field |
|---|---|---|
| a `Sub` with a field `b` | the base class of `Sub`, which has no `b` | `$.item.b (of a Sub)` |
| a dict with a key `b` | a `TypedDict` or a class without `b` | `$.item.b (of a dict)` |

*Guarantees*: a subclass that adds no field loses nothing. Neither does a value in a field of type `Any` or `dict`.
*Assumes*: a field is lost if the written JSON contains it, and the JSON of the value that was read doesn't.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from milestones.common.copies import UNCHANGEABLE
from milestones.common.sets_in_order import written_fields

Path: TypeAlias = tuple[str | int, ...]


def refuse_loss(value: Any, written: bytes, read: bytes) -> None:
    """Raise `TypeError` if fields of the value are lost. `written`: the JSON of the value. `read`: the JSON of the
    value that was read from `written`."""
    lost = [_named(value, path) for path in _lost(msgspec.json.decode(written), msgspec.json.decode(read), ())]
    if lost:
        raise TypeError(
            f"its type doesn't have {', '.join(lost)}, and a reader would get the value without it: give the class "
            "that the type names these fields, or let the type name each class (a union of pydantic models, or of "
            "Structs with tags)"
        )


def has_derived(value: Any, known: frozenset[type]) -> bool:
    """True if the value contains an object whose class derives from one of `known`, but isn't itself one of them."""
    kind = value.__class__
    if kind in UNCHANGEABLE:
        return False
    if kind not in known and not known.isdisjoint(kind.__mro__):
        return True
    if isinstance(value, dict):
        inner: Any = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    else:
        inner = [getattr(value, name, None) for name in written_fields(kind)]
    return any(has_derived(one, known) for one in inner)


def _lost(written: Any, read: Any, at: Path) -> Iterator[Path]:
    """Yields the paths of the names that `written` contains and `read` doesn't."""
    if isinstance(written, dict) and isinstance(read, dict):
        for name, inner in written.items():
            if name in read:
                yield from _lost(inner, read[name], (*at, name))
            else:
                yield (*at, name)
    elif isinstance(written, list) and isinstance(read, list):
        for number, (inner, other) in enumerate(zip(written, read, strict=False)):
            yield from _lost(inner, other, (*at, number))


def _named(value: Any, path: Path) -> str:
    """Returns a path as in errors of JSON libraries, such as `$.item.b`. If the class with this field can be found, its
    name follows in brackets."""
    text = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    for step in path[:-1]:
        if isinstance(value, dict | list | tuple):
            by_name: Any = dict(enumerate(value)) if not isinstance(value, dict) else value
            value = by_name.get(step)
        else:
            value = getattr(value, str(step), None)
    return text if value is None else f"{text} (of a {type(value).__qualname__})"
