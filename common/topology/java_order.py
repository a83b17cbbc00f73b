"""Computes the order in which Java iterates over its hash sets and trees. The text that Kafka Streams prints for a
topology depends on it.

*Guarantees*: the order is that of OpenJDK's `TreeSet` and `HashMap`, except for bins that Java has turned into trees.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

_SMALLEST_TABLE = 16


def hash_code(text: str) -> int:
    """Compute Java's `String.hashCode`, as an unsigned number of 32 bits."""
    result = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        result = (31 * result + (high << 8 | low)) & 0xFFFFFFFF
    return result


def hash_order(texts: Iterable[str], copied: bool = False) -> list[str]:
    """Return the strings in the order of a `HashSet` to which they were added one by one. With `copied`, return them in
    the order of a `HashSet` that was made from a collection."""
    unique = list(dict.fromkeys(texts))
    table = _SMALLEST_TABLE
    wanted = int(len(unique) / 0.75) + 1 if copied else 0
    while table < wanted or len(unique) > table * 3 // 4:
        table *= 2

    def bin_of(text: str) -> int:
        code = hash_code(text)
        return (code ^ code >> 16) & (table - 1)

    return sorted(unique, key=bin_of)


class _Tree(NamedTuple, Generic[T]):
    black: bool
    left: _Tree[T] | None
    value: T
    right: _Tree[T] | None


class TreeSet(Generic[T]):
    """A red-black tree. The shape matters because sort keys may change after an element was added."""

    def __init__(self, compare: Callable[[T, T], int]) -> None:
        self._compare = compare
        self._root: _Tree[T] | None = None

    def __iter__(self) -> Iterator[T]:
        return self._walk(self._root)

    def _walk(self, tree: _Tree[T] | None) -> Iterator[T]:
        if tree is not None:
            yield from self._walk(tree.left)
            yield tree.value
            yield from self._walk(tree.right)

    def add(self, value: T) -> None:
        self._root = self._with(self._root, value)._replace(black=True)

    def _with(self, tree: _Tree[T] | None, value: T) -> _Tree[T]:
        if tree is None:
            return _Tree(False, None, value, None)
        order = self._compare(value, tree.value)
        if order < 0:
            return _balanced(tree._replace(left=self._with(tree.left, value)))
        return _balanced(tree._replace(right=self._with(tree.right, value))) if order else tree


def _balanced(tree: _Tree[T]) -> _Tree[T]:
    """Return `tree` as `java.util.TreeMap` repairs it if a red child has a red child. If both children of the top are
    red, they become black. Otherwise the middle one of the three values moves up."""
    match tree:
        case (True, (False, a, x, b), y, (False, c, z, d)) if any(each and not each.black for each in (a, b, c, d)):
            return _Tree(False, _Tree(True, a, x, b), y, _Tree(True, c, z, d))
        case (
            (True, (False, (False, a, x, b), y, c), z, d)
            | (True, (False, a, x, (False, b, y, c)), z, d)
            | (True, a, x, (False, (False, b, y, c), z, d))
            | (True, a, x, (False, b, y, (False, c, z, d)))
        ):
            return _Tree(True, _Tree(False, a, x, b), y, _Tree(False, c, z, d))
    return tree
