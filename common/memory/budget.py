"""`MemoryBudget`: divides the memory limits of an instance among its threads, and counts the memory that is in use.

    MemoryBudget ---- pools: the caches of all stores, the values that all stores remember, commits that wait
        |
        +---- MemoryShare of each stream thread: its part of each limit, and the bytes that the thread has reported

*Guarantees*: the parts of a limit together are at most the limit, also while threads come and go. One exception: each
part of a limit above 0 is at least one byte. Memory isn't counted per record. Owners report about once a second how
much they use.
*Assumes*: a thread returns its share only when it uses no memory any more.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from milestones.common.memory.accounts import LIMITS, Account
from milestones.common.state.read_cache import ReadCaches
from milestones.common.state.record_caches import RecordCaches
from milestones.common.state.write_behind import WaitingCommits

if TYPE_CHECKING:
    from milestones.common.config import StreamsConfig


UNBOUNDED: Final = 1 << 62
"""The part of a thread if the account has no limit."""


class MemoryBudget:
    """The memory limits and the memory use of one instance. Each instance has one `MemoryBudget`. `record_caches`,
    `read_caches`, `waiting`: pools that all tasks share.

    *Concurrency*: the lock guards changes of the tuple of shares. The tuple is replaced as a whole, so any thread may
    read it without the lock.
    """

    def __init__(self, config: StreamsConfig) -> None:
        self._limits: dict[Account, int] = {account: getattr(config, key) for account, key in LIMITS.items()}
        self.record_caches: RecordCaches = RecordCaches(self._limits[Account.CACHES])
        self.read_caches: ReadCaches = ReadCaches(self._limits[Account.REMEMBERED])
        self.waiting: WaitingCommits = WaitingCommits(self._limits[Account.WAITING], config.state_write_interval_ms)
        self._lock = threading.Lock()
        self._shares: tuple[MemoryShare, ...] = ()
        self.own: MemoryShare = MemoryShare(self)
        """What the instance itself uses. It has no part of a limit."""
        self._counts: list[Callable[[], Mapping[Account, int]]] = [self._pools]

    def join(self) -> MemoryShare:
        """Add a share, such as for a new stream thread, and return it. The parts of the other shares become smaller."""
        share = MemoryShare(self)
        with self._lock:
            self._shares = (*self._shares, share)
        return share

    def leave(self, share: MemoryShare) -> None:
        """Remove a share. A second call for the same share does nothing."""
        with self._lock:
            self._shares = tuple(other for other in self._shares if other is not share)

    def count(self, held: Callable[[], Mapping[Account, int]]) -> None:
        """Ask `held` for the bytes of some accounts, in addition to what shares report. Any thread may call `held`."""
        self._counts.append(held)

    def limit(self, account: Account, most: int) -> None:
        """Say that a library keeps the account of the whole instance below `most` bytes."""
        self._limits[account] = most

    def part(self, account: Account, among: int = 1) -> int:
        """Returns the bytes that one share may use for this account. With `among`, returns an equal part of these
        bytes, such as for one of `among` tasks."""
        limit = self._limits[account]
        if limit < 0:
            return UNBOUNDED
        return min(limit, max(1, limit // (max(1, len(self._shares)) * max(1, among))))

    def held(self) -> dict[Account, int]:
        """Returns the bytes in use for each account, by the last reports of the owners. Any thread may call it."""
        found = Counter(dict.fromkeys(Account, 0))
        for held in (*self._counts, self.own.held, *(share.held for share in self._shares)):
            found.update(held())
        return dict(found)

    def limits(self) -> dict[Account, int]:
        """Returns the limit of each account that has one, in bytes. Any thread may call it."""
        return {account: limit for account, limit in self._limits.items() if limit >= 0}

    def client_queues_max(self) -> int:
        """Returns the bytes that the queues of all Kafka clients may have, by their settings. Any thread may call it.
        The clients don't say how many bytes they have."""
        return sum(share.client_queues_max for share in (self.own, *self._shares))

    def _pools(self) -> Mapping[Account, int]:
        return {
            Account.CACHES: self.record_caches.taken,
            Account.REMEMBERED: self.read_caches.memory_bytes(),
            Account.WAITING: self.waiting.memory_bytes(),
        }


class MemoryShare:
    """The part of the memory limits that belongs to one owner, such as a stream thread, and the bytes that it uses.

    `client_queues_max`: the bytes that the queues of the owner's Kafka clients may have.
    *Concurrency*: any thread may call all methods. The lock guards changes of what was reported. The mapping is
    replaced as a whole, so it is read without the lock.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._held: Mapping[Account, int] = {}
        self._lock = threading.Lock()
        self.client_queues_max: int = 0

    @property
    def record_caches(self) -> RecordCaches:
        """The record caches of all stores of the instance."""
        return self._budget.record_caches

    @property
    def read_caches(self) -> ReadCaches:
        """The remembered values of all stores of the instance."""
        return self._budget.read_caches

    @property
    def waiting(self) -> WaitingCommits:
        """The confirmed commits of the instance that aren't in the engines yet."""
        return self._budget.waiting

    def part(self, account: Account, among: int = 1) -> int:
        """Returns the bytes that the owner may use now (see `MemoryBudget.part`)."""
        return self._budget.part(account, among)

    def say(self, account: Account, held: int) -> None:
        """Report the bytes that the owner uses for this account now: every few seconds, not for each record."""
        with self._lock:
            self._held = {**self._held, account: held}

    def held(self) -> Mapping[Account, int]:
        """Returns the bytes that were reported last, by account."""
        return self._held

    def leave(self) -> None:
        """Return this share to the budget. The owner must use no memory any more. A second call does nothing."""
        self._budget.leave(self)
