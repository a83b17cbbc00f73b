"""Caches of decoded values by key, which save stores a read and a decoding. All caches of an instance have one bound.

A cache has two generations. A value that is read or put joins the younger generation. A value that is found in the
older generation moves to the younger one. When the younger generation exceeds half of the cache's share, all its values
are appended to the older one. When both together exceed the share, the older generation drops its first values. So the
value used least recently is dropped first, and a hit in the younger generation costs only one look into a dict.

*Guarantees*: the shares of all caches together are at most `max_bytes`, whatever stores are opened and closed. A key is
in one generation at most. If a value isn't in the cache, the store reads it from its layers. So any thread may drop
values at any time.
*Assumes*: one thread at a time keeps and finds values: the thread that has the task.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Final
from weakref import WeakSet

from milestones.common.state.layers import ABSENT

DEFAULT_BYTES: Final = 64 << 20

ENTRY_OVERHEAD_BYTES: Final = 260
"""Memory of a value besides the bytes of its key and of its serialised form: object headers and a dict's slot."""


class ReadCaches:
    """The bound of an instance, and the caches that share it.

    *Concurrency*: the lock guards the set of caches. `share` is an int, replaced as a whole, which any thread reads.
    """

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self.max_bytes = max_bytes
        self.share: int = max_bytes
        """The bytes that a cache may take for each of its shares."""
        self._lock = threading.Lock()
        self._caches: WeakSet[ReadCache] = WeakSet()

    def join(self, cache: ReadCache) -> None:
        """Add a cache, which makes each share smaller. A cache whose values exceed the new share is emptied."""
        with self._lock:
            self._caches.add(cache)
            self._divide()
            for other in self._caches:
                if other.memory_bytes() > self.share * other.shares:
                    other.clear()

    def leave(self, cache: ReadCache) -> None:
        """Remove a cache. A second call does nothing."""
        with self._lock:
            self._caches.discard(cache)
            self._divide()

    def memory_bytes(self) -> int:
        """Estimate the memory of the values of all caches."""
        with self._lock:
            return sum(cache.memory_bytes() for cache in self._caches)

    def _divide(self) -> None:
        self.share = self.max_bytes // max(1, sum(cache.shares for cache in self._caches))


class ReadCache:
    """The remembered values of one store. `values` is the younger generation: the store looks a key up in `values`
    before it calls `find`. `shares`: how many equal parts of the instance's bound the cache has."""

    __slots__ = ("__weakref__", "_bytes", "_caches", "_older", "_older_bytes", "shares", "values")

    shares: int

    def __init__(self, caches: ReadCaches, shares: int = 1) -> None:
        self.shares = shares
        self.values: dict[bytes, Any] = {}
        self._older: OrderedDict[bytes, Any] = OrderedDict()
        self._bytes = self._older_bytes = 0
        self._caches = caches
        caches.join(self)

    def memory_bytes(self) -> int:
        """Estimate the memory of the values."""
        return self._bytes + self._older_bytes

    def find(self, key: bytes) -> Any:
        """Return the value of `key` from the older generation, and move it to the younger one. `ABSENT` if there is
        none. The caller has looked into `values` before."""
        older = self._older
        value = older.pop(key, ABSENT)
        if value is not ABSENT:
            self._bytes += self._left_older()
            self.values[key] = value
        return value

    def _left_older(self) -> int:
        """Subtract a value that has just left the older generation. Returns the value's bytes, estimated as the
        average."""
        size = self._older_bytes // (len(self._older) + 1)
        self._older_bytes -= size
        return size

    def keep(self, key: bytes, value: Any, size: int) -> None:
        """Remember `value`, whose serialised size is `size`. Only for a key that has no remembered value, or the value
        None. A caller that replaces another value writes it into `values` directly."""
        values = self.values
        if key in values:
            self._bytes += size  # `values` has None for the key, and the key's bytes are counted
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
        """Drop all that is remembered of `key`."""
        self.forget_value(key)

    def forget_value(self, key: bytes) -> None:
        """Drop the value of `key`."""
        if self.values.pop(key, ABSENT) is not ABSENT:
            self._bytes -= self._bytes // (len(self.values) + 1)
        elif self._older.pop(key, ABSENT) is not ABSENT:
            self._left_older()

    def clear(self) -> None:
        """Drop all values. Any thread may call this."""
        self.values.clear()
        self._older = OrderedDict()
        self._bytes = self._older_bytes = 0

    def leave(self) -> None:
        """Drop all values, and leave the shared bound. A second call does nothing."""
        self.clear()
        self._caches.leave(self)
