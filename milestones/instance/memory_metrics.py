"""Publishes the accounts of an instance's `MemoryBudget`, and the resident memory of the process, as metrics.

*Guarantees*: publishing waits for no thread. An account shows its owner's last report.
*Assumes*: one thread at a time publishes.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milestones.common.memory import Account
from milestones.common.memory.report import report
from milestones.common.metrics import MemoryAccountMetrics, MemoryMetrics

if TYPE_CHECKING:
    from milestones.common.memory import MemoryBudget, MemoryReport
    from milestones.common.metrics import Metrics

INTERVAL_MS: Final = 5_000
"""The time between two publications. Each publication asks the engine of every store, which takes a few microseconds
per engine."""

NO_LIMIT: Final = -1
"""The metric of an account's limit if the account has none."""

_STATUS = Path("/proc/self/status")


def resident_bytes() -> int:
    """Return the resident memory of the process. If the operating system doesn't report it, return its maximum so far.
    """
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS counts it in bytes
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


class MemoryMeasures:
    """*Owns*: the metrics of the instance's memory."""

    def __init__(
        self, budget: MemoryBudget, metrics: Metrics, client_id: str, resident: Callable[[], int] = resident_bytes
    ) -> None:
        """`resident`: returns the memory of the process. Tests pass another function."""
        self._budget, self._metrics, self._resident = budget, metrics, resident
        self._scope = metrics.add(MemoryMetrics, client_id=client_id)
        self._accounts = {
            account.value: metrics.add(MemoryAccountMetrics, client_id=client_id, account=account.value)
            for account in Account
        }

    def report(self) -> MemoryReport:
        """Return the memory of the process now. Any thread may call it."""
        return report(self._budget, self._resident())

    def run_once(self, now_ms: int) -> None:
        """Publish when that is due. The process' memory comes last, and goes first: a reader who finds it finds all
        accounts, too."""
        if self._scope.published.values and now_ms - self._scope.published.at_ms < INTERVAL_MS:
            return
        told = self.report()
        self._scope.resident_bytes.value, self._scope.other_bytes.value = told.resident, told.other
        self._scope.client_queues_max_bytes.value = told.client_queues_max
        for name, scope in self._accounts.items():
            account = told.accounts[name]
            scope.bytes.value = account.bytes
            scope.limit_bytes.value = NO_LIMIT if account.limit is None else account.limit
            scope.publish(now_ms)
        self._scope.publish(now_ms)

    def close(self) -> None:
        for scope in (self._scope, *self._accounts.values()):
            self._metrics.remove(scope)
