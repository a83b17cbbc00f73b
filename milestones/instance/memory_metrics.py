"""What an instance's memory is for, as metrics: the accounts of its `MemoryBudget`, and the whole process beside them.

*Guarantees*: nobody is waited for; an account is as old as what its owner said last.
*Assumes*: one thread at a time publishes.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milestones.common.memory import Account
from milestones.common.metrics import MemoryMetrics

if TYPE_CHECKING:
    from milestones.common.memory import MemoryBudget
    from milestones.common.metrics import Metrics

INTERVAL_MS: Final = 5_000
"""Every store's engine is asked: a few microseconds each."""

_STATUS = Path("/proc/self/status")


def resident_bytes() -> int:
    """Memory that the process has now; where the system doesn't tell, the most that it has had."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # of macOS, in bytes
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


class MemoryMeasures:
    """*Owns*: the metrics of the instance's memory."""

    def __init__(
        self, budget: MemoryBudget, metrics: Metrics, client_id: str, resident: Callable[[], int] = resident_bytes
    ) -> None:
        """`resident`: memory of the process; another one is for tests."""
        self._budget, self._metrics, self._resident = budget, metrics, resident
        self._scope = metrics.add(MemoryMetrics, client_id=client_id)

    def run_once(self, now_ms: int) -> None:
        """Publish when it is time to."""
        if self._scope.published.values and now_ms - self._scope.published.at_ms < INTERVAL_MS:
            return
        scope, held = self._scope, self._budget.held()
        scope.caches_bytes.value = held[Account.CACHES]
        scope.remembered_bytes.value = held[Account.REMEMBERED]
        scope.input_bytes.value = held[Account.INPUT]
        scope.outputs_bytes.value = held[Account.OUTPUTS]
        scope.uncommitted_bytes.value = held[Account.UNCOMMITTED]
        scope.engines_bytes.value = held[Account.ENGINES]
        scope.client_queues_max_bytes.value = held[Account.CLIENT_QUEUES]
        scope.resident_bytes.value = self._resident()
        scope.publish(now_ms)

    def close(self) -> None:
        """Its metrics are gone."""
        self._metrics.remove(self._scope)
