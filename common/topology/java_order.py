"""The order in which Java iterates its hash sets and its trees, where Kafka Streams' printed text depends on it.

*Guarantees*: the order of OpenJDK's `HashMap` (bins that turned into trees excepted) and `TreeSet`.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

_SMALLEST_TABLE = 16


def hash_code(text: str) -> int:
    """Java's `String.hashCode`, without its sign."""
    result = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        result = (31 * result + (high << 8 | low)) & 0xFFFFFFFF
    return result


def hash_order(texts: Iterable[str], copied: bool = False) -> list[str]:
    """The strings in the order of a `HashSet` to which they were added one by one, or (`copied`) as a collection."""
    unique = list(dict.fromkeys(texts))
    table = _SMALLEST_TABLE
    wanted = int(len(unique) / 0.75) + 1 if copied else 0
    while table < wanted or len(unique) > table * 3 // 4:
        table *= 2

    def bin_of(text: str) -> int:
        code = hash_code(text)
        return (code ^ code >> 16) & (table - 1)

    return sorted(unique, key=bin_of)


class _Entry(Generic[T]):
    __slots__ = ("black", "left", "parent", "right", "value")

    def __init__(self, value: T, parent: _Entry[T] | None) -> None:
        self.value, self.parent = value, parent
        self.left: _Entry[T] | None = None
        self.right: _Entry[T] | None = None
        self.black = False


class TreeSet(Generic[T]):
    """A red-black tree. The shape matters because sort keys may change after an element was added."""

    def __init__(self, compare: Callable[[T, T], int]) -> None:
        self._compare = compare
        self._root: _Entry[T] | None = None

    def __iter__(self) -> Iterator[T]:
        return self._walk(self._root)

    def _walk(self, entry: _Entry[T] | None) -> Iterator[T]:
        if entry is not None:
            yield from self._walk(entry.left)
            yield entry.value
            yield from self._walk(entry.right)

    def add(self, value: T) -> None:
        parent, entry, order = None, self._root, 0
        while entry is not None:
            order = self._compare(value, entry.value)
            if order == 0:
                return
            parent, entry = entry, entry.left if order < 0 else entry.right
        new = _Entry(value, parent)
        if parent is None:
            self._root = new
        elif order < 0:
            parent.left = new
        else:
            parent.right = new
        self._rebalance(new)

    def _rebalance(self, entry: _Entry[T]) -> None:
        while (parent := entry.parent) is not None and not parent.black:
            grandparent = parent.parent
            assert grandparent is not None  # a red entry is never the root
            is_left = parent is grandparent.left
            uncle = grandparent.right if is_left else grandparent.left
            if uncle is not None and not uncle.black:
                parent.black = uncle.black = True
                grandparent.black = False
                entry = grandparent
                continue
            if entry is (parent.right if is_left else parent.left):
                self._rotate(parent, left=is_left)
                parent = entry
            parent.black, grandparent.black = True, False
            self._rotate(grandparent, left=not is_left)
            break
        if self._root is not None:
            self._root.black = True

    def _rotate(self, entry: _Entry[T], left: bool) -> None:
        child = entry.right if left else entry.left
        assert child is not None
        inner = child.left if left else child.right
        if left:
            entry.right, child.left = inner, entry
        else:
            entry.left, child.right = inner, entry
        if inner is not None:
            inner.parent = entry
        parent = entry.parent
        child.parent, entry.parent = parent, child
        if parent is None:
            self._root = child
        elif parent.left is entry:
            parent.left = child
        else:
            parent.right = child
