"""`Account`: the purposes for which an instance uses memory.

*Guarantees*: each byte that the runtime counts is in one account. docs/memory.md has the same table, compared by a
test.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class Account(enum.Enum):
    """A purpose for which an instance uses memory. Its value is its name in metrics, JSON and reports."""

    PROGRAM = "program"
    """Python, the libraries and the user's program: the resident memory of the process before the instance was made."""
    CACHES = "caches"
    """Updates that wait in the caches of stores."""
    REMEMBERED = "remembered"
    """Values that stores remember, to save reading them from the engine."""
    INPUT = "input"
    """Records in the input buffers of tasks."""
    OUTPUTS = "outputs"
    """Outputs of tasks that wait to be sent, and from m5 on those that wait for their commit."""
    UNCOMMITTED = "uncommitted"
    """State that isn't in the engines yet."""
    WAITING = "waiting"
    """State of confirmed commits that isn't in the engines yet."""
    KEPT_BACK = "kept_back"
    """The index of the updates that suppress operators haven't emitted yet."""
    BLOCK_CACHE = "block_cache"
    """Blocks of table files that RocksDB has read, with their indexes and filters."""
    MEMTABLES = "memtables"
    """Entries that RocksDB hasn't written to a table file yet."""
    TABLE_READERS = "table_readers"
    """What RocksDB keeps in memory of each open table file, besides the block cache."""
    STORES_IN_MEMORY = "stores_in_memory"
    """The content of stores that aren't persistent."""
    CHANGED_KEYS = "changed_keys"
    """The keys that have changed since the last snapshot, on m6."""


LIMITS: Final[Mapping[Account, str]] = {
    Account.CACHES: "statestore_cache_max_bytes",
    Account.REMEMBERED: "statestore_read_cache_max_bytes",
    Account.INPUT: "input_buffer_max_bytes",
    Account.OUTPUTS: "output_buffer_max_bytes",
    Account.UNCOMMITTED: "statestore_uncommitted_max_bytes",
    Account.WAITING: "statestore_waiting_max_bytes",
}
"""The setting that limits an account of which the budget gives out parts. Engines keep limits of their own, and each
suppress operator has one, in records or bytes."""
