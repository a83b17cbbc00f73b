"""The choice of the serde of a node or store.

An operator's serde is the one given to it, else the one inherited from upstream as Kafka Streams inherits it, else
the application's default. Where Kafka Streams would have none at all (the operator may have changed the type and the
application has no default), the nearest upstream serde is tried, and last BYTES.

*Guarantees*: pure functions of immutable values.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from milestones.common import serdes
from milestones.common.errors import TopologyError
from milestones.common.serdes import Serde
from milestones.common.topology.change import ChangeSerde
from milestones.common.typed_serdes import of as serde_of
from milestones.common.windowed import SessionWindowedSerde, WindowedSerde


class Upstream(NamedTuple):
    """The serde of a value before an operator that may have changed its type: used when there is no default."""

    serde: Serde[Any] | WindowedOf


class ChangeOf(NamedTuple):
    """The serde of a table's updates (new, old), once the serde of its values is known."""

    values: Choice


class WindowedOf(NamedTuple):
    """The serde of windowed keys, once the serde of the keys is known. `size_ms`: of the windows, None for no end."""

    keys: Choice
    size_ms: int | None = None
    session: bool = False


class KeyOf(NamedTuple):
    """The serde of keys that are part of a value: the application's default is that of keys."""

    keys: Choice


class MadeOf(NamedTuple):
    """The serde that `make` gives, once the serdes of `parts` are known."""

    make: Callable[..., Serde[Any]]
    parts: tuple[Choice, ...]


Choice: TypeAlias = "Serde[Any] | Upstream | ChangeOf | WindowedOf | KeyOf | MadeOf | None"


def check_serde(given: Any, what: str) -> Serde[Any] | None:
    """The serde that was given, or that of the type that was given; None for None. `TopologyError` for others."""
    try:
        return None if given is None else serde_of(given)
    except TypeError as error:
        raise TopologyError(f"{what} must be a Serde, or a type that has one: {error}") from error


def as_fallback(choice: Choice) -> Choice:
    """The serde behind an operator that may change the type."""
    return Upstream(choice) if isinstance(choice, Serde | WindowedOf) else choice


def settle(choice: Choice, default: Serde[Any] | None, key_default: Serde[Any] | None = None) -> Serde[Any]:
    """The serde to use, `default` being the application's. `key_default`: that of keys, for a value that has some."""
    if isinstance(choice, ChangeOf):
        return ChangeSerde(settle(choice.values, default))
    if isinstance(choice, WindowedOf):
        keys = settle(choice.keys, default)
        return SessionWindowedSerde(keys) if choice.session else WindowedSerde(keys, choice.size_ms)
    if isinstance(choice, KeyOf):
        return settle(choice.keys, key_default)
    if isinstance(choice, MadeOf):
        return choice.make(*(settle(part, default, key_default) for part in choice.parts))
    if isinstance(choice, Upstream):
        return default or settle(choice.serde, default)
    return check_serde(choice or default, "a store's serde") or serdes.BYTES
