"""`RecoveryAtOnce`: a recovery that takes all its steps in one call.

*Guarantees*: `recover` is called once for each error.
*Assumes*: the thread that owns the tasks and the producer makes all calls.
"""

from __future__ import annotations

from milestones.parts import Recovered


class RecoveryAtOnce:
    """Takes all steps of a recovery in one call, for a thread that rolls its tasks back."""

    def __init__(self) -> None:
        self._follows = Recovered.ROLL_BACK

    def recover(self, error: Exception) -> bool:
        """Recover from the error. Returns True if all processing tasks must be rolled back in place, False if the tasks
        are lost."""
        raise NotImplementedError

    def begin(self, error: Exception) -> None:
        self._follows = Recovered.ROLL_BACK if self.recover(error) else Recovered.LOST

    def run_once(self, wait_ms: int) -> Recovered | None:
        return self._follows

    def abandon(self) -> None:
        """Do nothing: no recovery is under way between two calls."""
