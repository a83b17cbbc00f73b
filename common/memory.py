"""The memory of one instance: how much its threads and tasks may hold, and how much they do hold.

    MemoryBudget ---- pools: the caches of all stores, the values that all stores remember, commits that wait
        |
        +---- MemoryShare of each stream thread: its part of a bound, what the thread says that it holds

*Guarantees*: the parts of a bound together are at most the bound, also while sharers come and go. One exception: each
part of a bound above 0 is at least one byte. Nothing is counted for each record: about once a second, owners report how
much they hold.
*Assumes*: a sharer leaves when it holds no memory any more.
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
    """The order of the updates that suppressions keep back."""
    ENGINES = "engines"
    """Block cache, memtables and readers of table files, the content of stores in memory, and the keys that changed
    since a snapshot."""
    CLIENT_QUEUES = "client queues"
    """The most that the Kafka clients may hold. They don't report how much they do hold."""


BOUNDS: Final[Mapping[Account, str]] = {
    Account.CACHES: "statestore_cache_max_bytes",
    Account.REMEMBERED: "statestore_read_cache_max_bytes",
    Account.INPUT: "input_buffer_max_bytes",
    Account.OUTPUTS: "output_buffer_max_bytes",
    Account.UNCOMMITTED: "statestore_uncommitted_max_bytes",
    Account.WAITING: "statestore_waiting_max_bytes",
}
"""The setting that bounds an account. Engines and clients have bounds of their own, which their libraries enforce. Each
suppression has a bound of its own, in records or bytes."""


UNBOUNDED: Final = 1 << 62
"""The part of a sharer if the account has no bound."""


class MemoryBudget:
    """The memory of one instance. There is one object per instance. `record_caches`, `read_caches`, `waiting`: pools
    that all tasks share.

    *Concurrency*: the lock guards changes of the shares. Their tuple is replaced as a whole, so any thread may read it
    at any time.
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
        """Add a sharer, and return its share."""
        share = MemoryShare(self)
        with self._lock:
            self._shares = (*self._shares, share)
        return share

    def leave(self, share: MemoryShare) -> None:
        """Remove a sharer. A second call for it does nothing."""
        with self._lock:
            self._shares = tuple(other for other in self._shares if other is not share)

    def count(self, account: Account, held: Callable[[], int]) -> None:
        """Count an account by calling `held`, and no longer by what sharers report. Any thread may call `held`."""
        self._counts[account] = held

    def say(self, account: Account, held: int) -> None:
        """Report the bytes that the instance itself holds, without those of its sharers."""
        self._own[account] = held

    def part(self, account: Account, among: int = 1) -> int:
        """The bytes that one sharer may hold for this account. With `among`, the bytes for one of that many things of
        the sharer."""
        bound = self._bounds[account]
        if bound < 0:
            return UNBOUNDED
        return min(bound, max(1, bound // (max(1, len(self._shares)) * max(1, among))))

    def held(self) -> dict[Account, int]:
        """The bytes held for each account, by the last reports of the owners. Any thread may call this."""
        return {account: self._counts.get(account, partial(self._said, account))() for account in Account}

    def _said(self, account: Account) -> int:
        return self._own.get(account, 0) + sum(share.held(account) for share in self._shares)


class MemoryShare:
    """How much memory one sharer, such as a stream thread, may hold, and how much it does hold.

    *Concurrency*: only the owner calls `say`. Any thread may call the other methods.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._held: dict[Account, int] = {}

    @property
    def record_caches(self) -> RecordCaches:
        """The pool of the instance."""
        return self._budget.record_caches

    @property
    def read_caches(self) -> ReadCaches:
        """The pool of the instance."""
        return self._budget.read_caches

    @property
    def waiting(self) -> WaitingCommits:
        """The pool of the instance."""
        return self._budget.waiting

    def part(self, account: Account, among: int = 1) -> int:
        """The bytes that the sharer may hold now. With `among`, the bytes for one of that many things of the sharer."""
        return self._budget.part(account, among)

    def say(self, account: Account, held: int) -> None:
        """Report the bytes that the sharer holds. Called by a timer, not for each record."""
        self._held[account] = held

    def held(self, account: Account) -> int:
        """The bytes that the sharer reported last."""
        return self._held.get(account, 0)

    def leave(self) -> None:
        """Remove the sharer, which must hold no memory any more. A second call does nothing."""
        self._budget.leave(self)
