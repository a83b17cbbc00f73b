"""`Mailbox`: a queue of limited size through which threads send messages. A mailbox can be closed. If its owner thread
dies, `put` and `get` raise the error that ended the thread.

*Guarantees*: each item is taken out once. Items are taken out in the order in which they were put in, except those put
in with `first`. No call waits without a deadline. After `close` no item can be put in. Items that are still in the
mailbox can be taken out, and after them `get` raises the error of the close. `close` wakes up waiting threads.
*Assumes*: nothing. Any number of threads may put and get.
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
    """The mailbox was closed without an error, because its owner has ended as planned."""


class MailboxFullError(MilestonesError):
    """The mailbox stayed full until the deadline. Its reader is too slow, or hangs."""


class Mailbox(Generic[T]):
    """A bounded queue of messages to one owner.

    *Concurrency*: fields are changed only under the lock of `_changed`. The lock is never held while user code or I/O
    runs. Waits are in real time, whatever clock the owner of the mailbox uses.
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
        """Add `item`, waiting up to `timeout_ms` for room. `first`: put it before all waiting items.

        Raises `MailboxFullError` if no room came. If the mailbox is closed, raises the error of the close.
        """
        with self._changed:
            if not self._wait(lambda: self._closed or len(self._items) < self._capacity, timeout_ms):
                raise MailboxFullError(f"{self.name}: no room for {timeout_ms} ms ({self._capacity} waiting)")
            if self._closed:
                raise self._closing_error()
            (self._items.appendleft if first else self._items.append)(item)
            self._changed.notify_all()

    def take_back(self, item: T) -> bool:
        """Remove a waiting item that is equal to `item`. Returns False if there is none any more."""
        with self._changed:
            try:
                self._items.remove(item)
            except ValueError:
                return False
            self._changed.notify_all()
            return True

    def try_put(self, item: T) -> bool:
        """Add `item` if there is room. Returns False if there is none. If the mailbox is closed, raises the error of
        the close."""
        with self._changed:
            if self._closed:
                raise self._closing_error()
            if len(self._items) >= self._capacity:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def get(self, timeout_ms: int) -> T | None:
        """Return the next item, or None if none came within `timeout_ms`.

        If the mailbox is closed and empty, raises the error of the close.
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
        """Wait up to `timeout_ms` until there is an item, or the mailbox is closed. Returns False if neither
        happened."""
        with self._changed:
            return self._wait(lambda: self._closed or bool(self._items), timeout_ms)

    def drain(self) -> list[T]:
        """Take all waiting items out and return them. If the mailbox is closed and empty, raises the error of the
        close."""
        if not (self._items or self._closed):
            return []  # the usual case, without the lock; an item that comes now is taken by the next call
        with self._changed:
            if not self._items and self._closed:
                raise self._closing_error()
            items = list(self._items)
            self._items.clear()
            self._changed.notify_all()
            return items

    def close(self, error: BaseException | None = None) -> None:
        """Refuse all further items, with `error` as the reason. Only the first call counts. Later ones do nothing."""
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
        """Returns the error of the close, as a new object for each caller. If several threads raised the same object,
        its traceback would mix their frames. The cause of the new error is the original error, with the traceback of
        the owner's end."""
        if self._error is None:
            return MailboxClosedError(f"{self.name} is closed")
        return like(self._error)
