"""How threads talk: bounded mailboxes that close, and fail with the error of a dead owner.

*Guarantees*: items come out in the order they went in, except those that are put `first`, each once. No call waits
without a deadline. After `close` nothing goes in; what was in it still comes out, then the error of the close is
raised. A waiting thread wakes up at the close.
*Assumes*: nothing; any number of threads may put and get.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition
from typing import Generic, TypeVar

from milestones.common.errors import MilestonesError
from milestones.common.last_words import like

T = TypeVar("T")


class MailboxClosedError(MilestonesError):
    """The mailbox was closed without an error: its owner has ended as planned."""


class MailboxFullError(MilestonesError):
    """The mailbox had no room in time: its reader is too slow, or hangs."""


class Mailbox(Generic[T]):
    """A bounded queue of messages to one owner.

    *Concurrency*: every field is changed under `_changed`'s lock only; the lock is never held while user code or
    I/O runs. Waits are in real time, whatever clock the owner of the mailbox runs on.
    """

    def __init__(self, capacity: int, name: str = "mailbox") -> None:
        if capacity < 1:
            raise ValueError(f"{name}: capacity is {capacity}, it must be at least 1")
        self.name = name
        self._capacity = capacity
        self._items: deque[T] = deque()
        self._changed = Condition()
        self._closed = False
        self._error: BaseException | None = None

    def put(self, item: T, timeout_ms: int, *, first: bool = False) -> None:
        """Add `item`, waiting up to `timeout_ms` for room. `first`: before all items that wait.

        `MailboxFullError` when there was none; the error of the close when it is closed.
        """
        with self._changed:
            if not self._wait(lambda: self._closed or len(self._items) < self._capacity, timeout_ms):
                raise MailboxFullError(f"{self.name}: no room for {timeout_ms} ms ({self._capacity} waiting)")
            if self._closed:
                raise self._closing_error()
            (self._items.appendleft if first else self._items.append)(item)
            self._changed.notify_all()

    def take_back(self, item: T) -> bool:
        """Take an item equal to `item` out again, unless none waits any more. Whether one did."""
        with self._changed:
            try:
                self._items.remove(item)
            except ValueError:
                return False
            self._changed.notify_all()
            return True

    def try_put(self, item: T) -> bool:
        """Add `item` if there is room; the error of the close when it is closed."""
        with self._changed:
            if self._closed:
                raise self._closing_error()
            if len(self._items) >= self._capacity:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def get(self, timeout_ms: int) -> T | None:
        """The next item, or None when none came within `timeout_ms`.

        The error of the close once it is closed and empty.
        """
        with self._changed:
            self._wait(lambda: self._closed or bool(self._items), timeout_ms)
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            if self._closed:
                raise self._closing_error()
            return None

    def wait(self, timeout_ms: int) -> bool:
        """Whether there is something to `get`, or it is closed; waits up to `timeout_ms` for that."""
        with self._changed:
            return self._wait(lambda: self._closed or bool(self._items), timeout_ms)

    def drain(self) -> list[T]:
        """All items that are waiting, at once; the error of the close when it is closed and empty."""
        if not (self._items or self._closed):
            return []  # as most of the time; what comes now comes out the next time
        with self._changed:
            if not self._items and self._closed:
                raise self._closing_error()
            items = list(self._items)
            self._items.clear()
            self._changed.notify_all()
            return items

    def close(self, error: BaseException | None = None) -> None:
        """Refuse what comes from now on, with `error` as the reason. The first close counts, the rest are harmless."""
        with self._changed:
            if not self._closed:
                self._closed, self._error = True, error
                self._changed.notify_all()

    @property
    def closed(self) -> bool:
        with self._changed:
            return self._closed

    def __len__(self) -> int:
        with self._changed:
            return len(self._items)

    def _wait(self, ready: Callable[[], bool], timeout_ms: int) -> bool:
        return self._changed.wait_for(ready, max(timeout_ms, 0) / 1000)

    def _closing_error(self) -> BaseException:
        """An error of the caller's own: one that several threads raise would gather the frames of them all, and lose
        those of the owner's end, which its cause has."""
        if self._error is None:
            return MailboxClosedError(f"{self.name} is closed")
        return like(self._error)
