"""Chooses the serde of a node or store.

The serde of an operator is the first of these that exists: the one given to the operator, the one inherited from
upstream by Kafka Streams' rules, the application's default. If none of them exists, Kafka Streams has no serde: the
operator may have changed the type, and the application has no default. In this case, the nearest serde upstream is used
here. If there is none, BYTES is used.

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
    """The serde that a value had before an operator that may have changed its type. This serde is used if there is no
    default."""

    serde: Serde[Any] | WindowedOf


class ChangeOf(NamedTuple):
    """Stands for the serde of a table's updates (new value, old value) until the serde of the values is known."""

    values: Choice


class WindowedOf(NamedTuple):
    """Stands for the serde of windowed keys until the serde of the keys is known. `size_ms`: the size of the windows,
    None if they have no end."""

    keys: Choice
    size_ms: int | None = None
    session: bool = False


class KeyOf(NamedTuple):
    """Stands for the serde of keys that are part of a value. The default of such keys is the application's default for
    keys."""

    keys: Choice


class MadeOf(NamedTuple):
    """Stands for the serde that `make` returns when it gets the serdes of `parts`."""

    make: Callable[..., Serde[Any]]
    parts: tuple[Choice, ...]


Choice: TypeAlias = "Serde[Any] | Upstream | ChangeOf | WindowedOf | KeyOf | MadeOf | None"


def check_serde(given: Any, what: str) -> Serde[Any] | None:
    """Return the given serde, or the serde of the given type, or None for None. Raises `TopologyError` for anything
    else."""
    try:
        return None if given is None else serde_of(given)
    except TypeError as error:
        raise TopologyError(f"{what} must be a Serde, or a type that has one: {error}") from error


def as_fallback(choice: Choice) -> Choice:
    """Return the choice that remains after an operator that may change the type."""
    return Upstream(choice) if isinstance(choice, Serde | WindowedOf) else choice


def settle(choice: Choice, default: Serde[Any] | None, key_default: Serde[Any] | None = None) -> Serde[Any]:
    """Make the serde that a choice stands for. `default`: the application's default. `key_default`: its default for
    keys, which a value that contains keys needs."""
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
