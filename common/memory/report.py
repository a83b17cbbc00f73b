"""`MemoryReport`: the memory of a process, by account, at one moment.

*Guarantees*: `resident = sum of all accounts + other`. A report never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from milestones.common.memory.accounts import Account

if TYPE_CHECKING:
    from milestones.common.memory.budget import MemoryBudget


class AccountReport(NamedTuple):
    """One account: its bytes by the last count of its owners, and its limit in bytes. None: it has no limit."""

    bytes: int
    limit: int | None


class MemoryReport(NamedTuple):
    """The memory of a process, in bytes.

    `accounts`: each use of memory, by name. `resident`: what the operating system says about the process. `other`: the
    resident memory that is in no account, such as that of the user's objects and of unused memory which the allocator
    keeps, and of the queues of Kafka's clients. It is negative if the accounts' estimates are too high.
    `client_queues_max`: the bytes that these queues may have, by the clients' settings."""

    accounts: Mapping[str, AccountReport]
    resident: int
    other: int
    client_queues_max: int


def report(budget: MemoryBudget, resident: int) -> MemoryReport:
    """Make the report of an instance with this budget. `resident`: the resident memory of the process."""
    held, limits = budget.held(), budget.limits()
    accounts = {account.value: AccountReport(held[account], limits.get(account)) for account in Account}
    other = resident - sum(account.bytes for account in accounts.values())
    return MemoryReport(accounts, resident, other, budget.client_queues_max())
