"""The memory of an instance: who uses how much of it, and the limits of these uses. `README.md` says what is where."""

from milestones.common.memory.accounts import LIMITS, Account
from milestones.common.memory.budget import UNBOUNDED, MemoryBudget, MemoryShare
from milestones.common.memory.report import AccountReport, MemoryReport

__all__ = ["LIMITS", "UNBOUNDED", "Account", "AccountReport", "MemoryBudget", "MemoryReport", "MemoryShare"]
