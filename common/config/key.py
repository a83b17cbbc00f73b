"""`ConfigKey`: a row of the table of keys. `ConfigErrors`: the error about several wrong values.

*Guarantees*: a `ConfigKey` in a class body is a typed, read-only attribute of the class's instances.
*Assumes*: the instance keeps its values in `_values`, by name.
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
    """The interface of a class with `ConfigKey`s."""

    _values: Mapping[str, Any]


class Required:
    """Stands for the default of a key that has no default, so that a value is required."""


REQUIRED: Final = Required()


@dataclass(frozen=True)
class Derived(Generic[T]):
    """A default that depends on other values. `of(values)` computes it. `text` describes it in the documentation."""

    of: Callable[[Mapping[str, Any]], T]
    text: str


class ConfigKey(Generic[T]):
    """A row of the table: a key's name, type and meaning.

    `stage`: the first stage in which the key has an effect. `settle`: a function that replaces a name by the named
    object, after all other values were read.
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
    """Several config values can't be used. `errors`: one error per value, with the reason."""

    def __init__(self, errors: Iterable[ConfigError]) -> None:
        self.errors: tuple[ConfigError, ...] = tuple(errors)
        first = self.errors[0]
        super().__init__(first.key, first.value, first.reason)
        self.args = (f"{len(self.errors)} config values can't be used:\n" + "\n".join(f"- {e}" for e in self.errors),)


def raise_all(errors: list[ConfigError]) -> None:
    """Raise the error if there is one, or a `ConfigErrors` if there are several. Do nothing without errors."""
    if errors:
        raise errors[0] if len(errors) == 1 else ConfigErrors(errors)
