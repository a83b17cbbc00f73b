"""Values that stores keep by key instead of reading and decoding them again: one bound for all stores of an instance.

A cache has two generations. A value that is read or put joins the younger one; a value that is found in the older one
moves to the younger one. A younger generation that has grown to half of the cache's share joins the end of the older
one; beyond the share the older one loses its values from the beginning. So the value used least recently goes first,
and a hit in the younger generation costs only a look into a dict.

*Guarantees*: the shares of all caches together are at most `max_bytes`, whatever stores come and go. A key is in one
generation at most. A store reads a value again that isn't found, so that any thread may drop values at any time.
*Assumes*: one thread at a time keeps and finds values, the one that has the task.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Final
from weakref import WeakSet

from milestones.common.state.layers import ABSENT

DEFAULT_BYTES: Final = 64 << 20

ENTRY_OVERHEAD_BYTES: Final = 260
"""Memory of a value besides the bytes of its key and of its serialised self: objects' headers and a dict's slot."""


class ReadCaches:
    """The bound of an instance, and the caches that share it.

    *Concurrency*: the lock guards the set of caches; `share` is an int that is swapped, which any thread reads.
    """

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self.max_bytes = max_bytes
        self.share: int = max_bytes
        """Bytes that each cache may hold."""
        self._lock = threading.Lock()
        self._caches: WeakSet[ReadCache] = WeakSet()

    def join(self, cache: ReadCache) -> None:
        """Add a cache; one that holds more than the new share is emptied."""
        with self._lock:
            self._caches.add(cache)
            self._divide()
            for other in self._caches:
                if other.memory_bytes() > self.share:
                    other.clear()

    def leave(self, cache: ReadCache) -> None:
        """Remove a cache. Harmless when repeated."""
        with self._lock:
            self._caches.discard(cache)
            self._divide()

    def memory_bytes(self) -> int:
        """Memory of all remembered values, about."""
        with self._lock:
            return sum(cache.memory_bytes() for cache in self._caches)

    def _divide(self) -> None:
        self.share = self.max_bytes // max(1, len(self._caches))


class ReadCache:
    """The remembered values of one store. `values` is the younger generation, in which the store looks by itself."""

    __slots__ = ("__weakref__", "_bytes", "_caches", "_older", "_older_bytes", "values")

    def __init__(self, caches: ReadCaches) -> None:
        self.values: dict[bytes, Any] = {}
        self._older: OrderedDict[bytes, Any] = OrderedDict()
        self._bytes = self._older_bytes = 0
        self._caches = caches
        caches.join(self)

    def memory_bytes(self) -> int:
        """Memory of the values, about."""
        return self._bytes + self._older_bytes

    def find(self, key: bytes) -> Any:
        """The value of a key that the younger generation doesn't have; `ABSENT` when the older one lacks it, too."""
        older = self._older
        value = older.pop(key, ABSENT)
        if value is not ABSENT:
            self._bytes += self._left_older()
            self.values[key] = value
        return value

    def _left_older(self) -> int:
        """The bytes of a value that has just left the older generation, by the average."""
        size = self._older_bytes // (len(self._older) + 1)
        self._older_bytes -= size
        return size

    def keep(self, key: bytes, value: Any, size: int) -> None:
        """Keep `value`, whose serialised size is `size`. For a key without a value so far: a present value is replaced
        in `values`."""
        values = self.values
        if key in values:
            self._bytes += size  # absence was kept, which has counted the key
        elif not self._older or self.find(key) is ABSENT:
            self._bytes += size + len(key) + ENTRY_OVERHEAD_BYTES
        values[key] = value
        if self._older or self._bytes > self._caches.share // 2:
            self._make_room()

    def _make_room(self) -> None:
        share, older = self._caches.share, self._older
        if self._bytes > share // 2:
            older.update(self.values)
            self._older_bytes += self._bytes
            self.values.clear()
            self._bytes = 0
        while older and self._bytes + self._older_bytes > share:
            older.popitem(last=False)
            self._left_older()

    def forget(self, key: bytes) -> None:
        """Drop the value of `key`."""
        if self.values.pop(key, ABSENT) is not ABSENT:
            self._bytes -= self._bytes // (len(self.values) + 1)
        elif self._older.pop(key, ABSENT) is not ABSENT:
            self._left_older()

    def clear(self) -> None:
        """Drop all. Any thread may call it."""
        self.values.clear()
        self._older = OrderedDict()
        self._bytes = self._older_bytes = 0

    def leave(self) -> None:
        """Drop all, for good. Harmless when repeated."""
        self.clear()
        self._caches.leave(self)
