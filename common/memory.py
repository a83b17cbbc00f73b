"""The memory of one instance: the bounds of its threads and tasks, and the bytes that they hold.

    MemoryBudget ---- pools: the caches of all stores, the values that all stores remember, commits that wait
        |
        +---- MemoryShare of each stream thread: its part of a bound, what the thread says that it holds

*Guarantees*: the parts of a bound are together at most the bound, also while sharers come and go; but each part of a
bound above 0 is at least a byte. Nothing is counted per record: owners say about once a second how much they hold.
*Assumes*: a sharer leaves once it holds nothing any more.
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
    """What an instance's memory is for."""

    CACHES = "caches"
    """Updates that wait in the caches of stores."""
    REMEMBERED = "remembered"
    """Values that stores keep so as not to read them again."""
    INPUT = "input"
    """Records in the input buffers of tasks."""
    OUTPUTS = "outputs"
    """Outputs of tasks that wait to be sent."""
    UNCOMMITTED = "uncommitted"
    """State that isn't in the engines yet."""
    WAITING = "waiting"
    """Confirmed commits that aren't in the engines yet."""
    KEPT_BACK = "kept back"
    """The order of the updates that suppressions keep back."""
    ENGINES = "engines"
    """Block cache, memtables, readers of table files; content of stores in memory; keys changed since a snapshot."""
    CLIENT_QUEUES = "client queues"
    """What the Kafka clients may hold, at most: they don't tell what they hold."""


BOUNDS: Final[Mapping[Account, str]] = {
    Account.CACHES: "statestore_cache_max_bytes",
    Account.REMEMBERED: "statestore_read_cache_max_bytes",
    Account.INPUT: "input_buffer_max_bytes",
    Account.OUTPUTS: "output_buffer_max_bytes",
    Account.UNCOMMITTED: "statestore_uncommitted_max_bytes",
    Account.WAITING: "statestore_waiting_max_bytes",
}
"""The setting that bounds an account. Engines and clients have bounds of their own, which their libraries keep; each
suppression has one of its own, in records or bytes."""


UNBOUNDED: Final = 1 << 62
"""The part of no bound."""


class MemoryBudget:
    """One object per instance. `record_caches`, `read_caches`: the pools that all tasks share.

    *Concurrency*: the lock guards the shares. Their tuple is swapped whole: any thread reads it at any time.
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
        """Share with one more, from now on."""
        share = MemoryShare(self)
        with self._lock:
            self._shares = (*self._shares, share)
        return share

    def leave(self, share: MemoryShare) -> None:
        """Share with one less. Harmless when repeated."""
        with self._lock:
            self._shares = tuple(other for other in self._shares if other is not share)

    def count(self, account: Account, held: Callable[[], int]) -> None:
        """Have an account counted by `held`, which any thread may call, instead of by what sharers say."""
        self._counts[account] = held

    def say(self, account: Account, held: int) -> None:
        """Note the bytes that the instance holds, without those of its sharers."""
        self._own[account] = held

    def part(self, account: Account, among: int = 1) -> int:
        """Bytes of the account's bound for one of `among` things of one sharer."""
        bound = self._bounds[account]
        if bound < 0:
            return UNBOUNDED
        return min(bound, max(1, bound // (max(1, len(self._shares)) * max(1, among))))

    def held(self) -> dict[Account, int]:
        """Bytes by account, as of what owners said last. From any thread."""
        return {account: self._counts.get(account, partial(self._said, account))() for account in Account}

    def _said(self, account: Account) -> int:
        return self._own.get(account, 0) + sum(share.held(account) for share in self._shares)


class MemoryShare:
    """What one sharer, such as a stream thread, may have and has.

    *Concurrency*: only the owner calls `say`; any thread calls the other methods.
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
        """Bytes of the bound that the sharer may have now; or each of `among` things of the sharer."""
        return self._budget.part(account, among)

    def say(self, account: Account, held: int) -> None:
        """Note the bytes that the sharer holds. On a timer, never per record."""
        self._held[account] = held

    def held(self, account: Account) -> int:
        """What the sharer said last."""
        return self._held.get(account, 0)

    def leave(self) -> None:
        """The sharer holds nothing any more. Harmless when repeated."""
        self._budget.leave(self)
