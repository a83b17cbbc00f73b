"""The stateless operators on streams. Each is an immutable description that is bound to a task as a closure.

The semantics are those of Kafka Streams. Predicates and mappers get null keys and values like any others. A repartition
drops records without a key, and doesn't count them.

*Guarantees*: a closure makes no objects other than those that the user's function returns.
*Assumes*: user functions keep no state of a task in variables outside of them.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TextIO

from milestones.common.topology.program import OperatorContext, Process

log: Final = logging.getLogger(__name__)

Predicate = Callable[[Any, Any], Any]
KeyValueMapper = Callable[[Any, Any], Any]
ValueMapper = Callable[[Any], Any]
ForeachAction = Callable[[Any, Any], Any]
Make = Callable[[Any, Process], Process]


@dataclass(frozen=True)
class Stateless:
    """An operator with one function of the user. `make(function, forward)` makes its closure."""

    make: Make
    function: Callable[..., Any]

    def bind(self, context: OperatorContext) -> Process:
        # A function that returns several records may use the same object in all of them.
        forward = context.forward_own if self.make in _GIVE_SEVERAL else context.forward
        return self.make(self.function, forward)


@dataclass(frozen=True)
class PassThrough:
    """Forwards each record: for merges and branches."""

    passes_on: ClassVar[bool] = True

    def bind(self, context: OperatorContext) -> Process:
        return context.forward


def filter_(predicate: Predicate, forward: Process) -> Process:
    def process(key: Any, value: Any, timestamp: int) -> None:
        if predicate(key, value):
            forward(key, value, timestamp)

    return process


def filter_not(predicate: Predicate, forward: Process) -> Process:
    def process(key: Any, value: Any, timestamp: int) -> None:
        if not predicate(key, value):
            forward(key, value, timestamp)

    return process


@dataclass(frozen=True)
class DropNullKeys:
    """Drops records without a key before a repartition topic: such a record belongs to no partition."""

    def bind(self, context: OperatorContext) -> Process:
        forward = context.forward

        def process(key: Any, value: Any, timestamp: int) -> None:
            if key is not None:
                forward(key, value, timestamp)

        return process


def map_(mapper: Callable[[Any, Any], tuple[Any, Any]], forward: Process) -> Process:
    def process(key: Any, value: Any, timestamp: int) -> None:
        key, value = mapper(key, value)
        forward(key, value, timestamp)

    return process


def select_key(mapper: KeyValueMapper, forward: Process) -> Process:
    def process(key: Any, value: Any, timestamp: int) -> None:
        forward(mapper(key, value), value, timestamp)

    return process


def map_values(mapper: ValueMapper, forward: Process) -> Process:
    def process(key: Any, value: Any, timestamp: int) -> None:
        forward(key, mapper(value), timestamp)

    return process


def map_values_with_key(mapper: KeyValueMapper, forward: Process) -> Process:
    def process(key: Any, value: Any, timestamp: int) -> None:
        forward(key, mapper(key, value), timestamp)

    return process


def flat_map(mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]], forward: Process) -> Process:
    def process(key: Any, value: Any, timestamp: int) -> None:
        for new_key, new_value in mapper(key, value):
            forward(new_key, new_value, timestamp)

    return process


def flat_map_values(mapper: Callable[[Any], Iterable[Any]], forward: Process) -> Process:
    def process(key: Any, value: Any, timestamp: int) -> None:
        for each in mapper(value):
            forward(key, each, timestamp)

    return process


def flat_map_values_with_key(mapper: Callable[[Any, Any], Iterable[Any]], forward: Process) -> Process:
    def process(key: Any, value: Any, timestamp: int) -> None:
        for each in mapper(key, value):
            forward(key, each, timestamp)

    return process


_GIVE_SEVERAL: Final = (flat_map, flat_map_values, flat_map_values_with_key)


def peek(action: ForeachAction, forward: Process) -> Process:
    def process(key: Any, value: Any, timestamp: int) -> None:
        action(key, value)
        forward(key, value, timestamp)

    return process


def for_each(action: ForeachAction, _forward: Process) -> Process:
    def process(key: Any, value: Any, _timestamp: int) -> None:
        action(key, value)

    return process


@dataclass(frozen=True)
class Print:
    """Prints `[label]: key, value`, one line per record. If `file` is None, it prints to standard output. Characters
    that the file can't write are escaped. If writing fails, as with a closed file or a pipe without a reader, that is
    no error of the record. It is logged once."""

    label: str
    file: TextIO | None = None
    mapper: KeyValueMapper | None = None

    def bind(self, context: OperatorContext) -> Process:
        label, file, mapper, node, told = self.label, self.file, self.mapper, context.node, False

        def process(key: Any, value: Any, _timestamp: int) -> None:
            nonlocal told
            text = f"{key}, {value}" if mapper is None else mapper(key, value)
            try:
                _write_line(sys.stdout if file is None else file, f"[{label}]: {text}\n")
            except (OSError, ValueError, AttributeError) as error:  # full, gone, closed, or there is none
                if not told:
                    told = True
                    log.warning("%s can't print: %s: %s. Records pass without it", node, type(error).__name__, error)

        return process


def _write_line(out: TextIO, line: str) -> None:
    try:
        out.write(line)
    except UnicodeEncodeError:
        encoding = out.encoding or "ascii"
        out.write(line.encode(encoding, "backslashreplace").decode(encoding))
    out.flush()


@dataclass(frozen=True)
class Branch:
    """Sends a record to the child of the first predicate that is true (KIP-418). If none is, it goes to the default
    branch, if there is one."""

    predicates: tuple[Predicate, ...]
    children: tuple[str, ...]
    default: str | None = None

    def bind(self, context: OperatorContext) -> Process:
        ways = tuple(
            (predicate, context.forward_to(child))
            for predicate, child in zip(self.predicates, self.children, strict=True)
        )
        otherwise = None if self.default is None else context.forward_to(self.default)

        def process(key: Any, value: Any, timestamp: int) -> None:
            for predicate, forward in ways:
                if predicate(key, value):
                    forward(key, value, timestamp)
                    return
            if otherwise is not None:
                otherwise(key, value, timestamp)

        return process
