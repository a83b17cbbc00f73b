"""`ConfigKey`, a row of the table of keys, and the errors about unusable values.

*Guarantees*: a `ConfigKey` in a class body is a typed, read-only attribute of its instances.
*Assumes*: the owner keeps its values in `_values`, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, overload

from milestones.common.config.value_types import ValueType
from milestones.common.errors import ConfigError

T = TypeVar("T")
Importance = Literal["high", "medium", "low"]


class HasValues(Protocol):
    """A class with `ConfigKey`s."""

    _values: Mapping[str, Any]


class Required:
    """The default of a key that has none."""


REQUIRED: Final = Required()


@dataclass(frozen=True)
class Derived(Generic[T]):
    """A default that follows from other values: `of(values)`, and `text` for the documentation."""

    of: Callable[[Mapping[str, Any]], T]
    text: str


class ConfigKey(Generic[T]):
    """A row of the table: a key's name, type and meaning.

    `stage`: the first stage in which the key has an effect. `settle`: turns a name into the named object, once all
    other values are known.
    """

    kind: ValueType[T]
    default: T | Derived[T] | Required
    doc: str
    stage: str

    name: str

    def __init__(
        self,
        kind: ValueType[T],
        default: T | Derived[T] | Required,
        importance: Importance,
        *,
        doc: str,
        stage: str = "baseline",
        settle: Callable[[T, Mapping[str, Any]], T] | None = None,
    ) -> None:
        self.kind, self.default, self.importance, self.doc = kind, default, importance, doc
        self.stage = stage
        self.settle: Callable[[T, Mapping[str, Any]], T] | None = settle

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> ConfigKey[T]: ...
    @overload
    def __get__(self, instance: HasValues, owner: type) -> T: ...
    def __get__(self, instance: HasValues | None, owner: type) -> ConfigKey[T] | T:
        if instance is None:
            return self
        value: T = instance._values[self.name]
        return value

    def __set__(self, instance: HasValues, value: T) -> None:
        raise AttributeError(f"config {self.name} can't be changed; make another config with config.replace(...)")


class ConfigErrors(ConfigError):
    """Several config values that can't be used, each with its reason; `errors`: one error per value."""

    def __init__(self, errors: Iterable[ConfigError]) -> None:
        self.errors: tuple[ConfigError, ...] = tuple(errors)
        first = self.errors[0]
        super().__init__(first.key, first.value, first.reason)
        self.args = (f"{len(self.errors)} config values can't be used:\n" + "\n".join(f"- {e}" for e in self.errors),)


def raise_all(errors: list[ConfigError]) -> None:
    """Raise the only error, or all in one `ConfigErrors`; do nothing without errors."""
    if errors:
        raise errors[0] if len(errors) == 1 else ConfigErrors(errors)
