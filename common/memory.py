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

import enum
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from milestones.common.state.read_cache import ReadCaches
from milestones.common.state.record_caches import RecordCaches
from milestones.common.state.write_behind import WaitingCommits

if TYPE_CHECKING:
    from milestones.common.config import StreamsConfig


class Account(enum.Enum):
    """The purposes for which an instance uses memory."""

    CACHES = "caches"
    """Updates that wait in the caches of stores."""
    REMEMBERED = "remembered"
    """Values that stores remember, to save reading them from the engine."""
    INPUT = "input"
    """Records in the input buffers of tasks."""
    OUTPUTS = "outputs"
    """Outputs of tasks that wait to be sent."""
    UNCOMMITTED = "uncommitted"
    """State that isn't in the engines yet."""
    WAITING = "waiting"
    """State of confirmed commits that isn't in the engines yet."""
    KEPT_BACK = "kept back"
    """The index of the updates that suppress operators haven't emitted yet."""
    ENGINES = "engines"
    """Block cache, memtables and readers of table files, the content of stores in memory, and the keys that changed
    since a snapshot."""
    CLIENT_QUEUES = "client queues"
    """The largest size that the queues of the Kafka clients may have. The clients don't report the actual size."""


BOUNDS: Final[Mapping[Account, str]] = {
    Account.CACHES: "statestore_cache_max_bytes",
    Account.REMEMBERED: "statestore_read_cache_max_bytes",
    Account.INPUT: "input_buffer_max_bytes",
    Account.OUTPUTS: "output_buffer_max_bytes",
    Account.UNCOMMITTED: "statestore_uncommitted_max_bytes",
    Account.WAITING: "statestore_waiting_max_bytes",
}
"""The setting that limits each account. Engines and clients have limits of their own, which their libraries enforce.
Each suppress operator has a limit of its own, in records or bytes."""


UNBOUNDED: Final = 1 << 62
"""The part of a thread if the account has no limit."""


class MemoryBudget:
    """The memory limits and the memory use of one instance. Each instance has one `MemoryBudget`. `record_caches`,
    `read_caches`, `waiting`: pools that all tasks share.

    *Concurrency*: the lock guards changes of the tuple of shares. The tuple is replaced as a whole, so any thread may
    read it without the lock.
    """

    def __init__(self, config: StreamsConfig) -> None:
        self._bounds: Mapping[Account, int] = {account: getattr(config, key) for account, key in BOUNDS.items()}
        self.record_caches: RecordCaches = RecordCaches(self._bounds[Account.CACHES])
        self.read_caches: ReadCaches = ReadCaches(self._bounds[Account.REMEMBERED])
        self.waiting: WaitingCommits = WaitingCommits(self._bounds[Account.WAITING], config.state_write_interval_ms)
        self._lock = threading.Lock()
        self._shares: tuple[MemoryShare, ...] = ()
        self._own: dict[Account, int] = {}
        self._counts: dict[Account, Callable[[], int]] = {
            Account.CACHES: lambda: self.record_caches.taken,
            Account.REMEMBERED: self.read_caches.memory_bytes,
            Account.WAITING: self.waiting.memory_bytes,
        }

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

    def count(self, account: Account, held: Callable[[], int]) -> None:
        """Let `held` return the bytes of this account from now on. The reports of shares no longer count. Any thread
        may call `held`."""
        self._counts[account] = held

    def say(self, account: Account, held: int) -> None:
        """Report the bytes that the instance itself uses for this account, without the bytes of its shares."""
        self._own[account] = held

    def part(self, account: Account, among: int = 1) -> int:
        """Returns the bytes that one share may use for this account. With `among`, returns an equal part of these
        bytes, such as for one of `among` tasks."""
        bound = self._bounds[account]
        if bound < 0:
            return UNBOUNDED
        return min(bound, max(1, bound // (max(1, len(self._shares)) * max(1, among))))

    def held(self) -> dict[Account, int]:
        """Returns the bytes in use for each account, by the last reports of the owners. Any thread may call it."""
        return {account: self._counts.get(account, partial(self._said, account))() for account in Account}

    def _said(self, account: Account) -> int:
        return self._own.get(account, 0) + sum(share.held(account) for share in self._shares)


class MemoryShare:
    """The part of the memory limits that belongs to one owner, such as a stream thread, and the bytes that it uses.

    *Concurrency*: only the owner calls `say`. Any thread may call the other methods.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._held: dict[Account, int] = {}

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
        """Report the bytes that the owner uses for this account. The owner calls it about once a second, not for each
        record."""
        self._held[account] = held

    def held(self, account: Account) -> int:
        """Returns the bytes that the owner has reported last for this account."""
        return self._held.get(account, 0)

    def leave(self) -> None:
        """Return this share to the budget. The owner must use no memory any more. A second call does nothing."""
        self._budget.leave(self)
