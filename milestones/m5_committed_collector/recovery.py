"""`ResendingRecovery` recovers from an error, and then has the outputs of the failed transaction resent.

The decisions are those of `InPlaceRecovery`. Here they are made in steps, and tasks process records between the steps.
After a recovery in place the intervals are resent. Under `at_least_once` there is no transaction to abort. The queue of
the old producer is dropped, and the new one sends these outputs once more, behind those that Kafka has already.

*Guarantees*: no call waits, except the one that makes a client. To find a refused output, a producer first sends small
batches. Then it sends only the outputs of a refused batch one by one. Outputs that were left out of an interval aren't
in this search.
*Assumes*: everything that `InPlaceRecovery` assumes; the collector keeps all unconfirmed outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milestones.common.errors import LeftOutError, OwnershipError, RefusedTogetherError
from milestones.common.kafka.batch_isolation import BatchIsolation, suspects
from milestones.m3_fencing_tolerance.recovery import InPlaceRecovery
from milestones.parts import Recovered

if TYPE_CHECKING:
    from milestones.common.steps import Steps
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients


SMALL_BATCH = 100
"""The most records in a small batch. With small batches a producer sends four fifths of its usual records/s, and a
refused batch has few suspects."""

MOST_SUSPECTS = 1_000
"""The most suspects that are sent one by one. If there are more, no single record is too large: the batches are."""


class ResendingRecovery(InPlaceRecovery):
    """*Owns*: the steps of the recovery that is under way."""

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        super().__init__(context, clients)
        self._steps: Steps[bool] | None = None
        self._begun = False

    def begin(self, error: Exception) -> None:
        if self._steps is not None:
            raise OwnershipError("a recovery is under way. This is a bug")
        self._steps = self.recovery(error)
        self._begun = False

    def isolation(self, error: Exception, before: BatchIsolation | None) -> BatchIsolation:
        """Return how the outputs are sent next: in small batches, suspects alone. Sent one by one, all outputs of an
        interval might take longer than a transaction may last."""
        alone = before.alone if before is not None else frozenset()
        if isinstance(error, RefusedTogetherError):
            alone |= suspects(error.suspects)
        return BatchIsolation(SMALL_BATCH, alone) if len(alone) <= MOST_SUSPECTS else BatchIsolation()

    def identifies_rejected(self, error: Exception) -> bool:
        return super().identifies_rejected(error) or isinstance(error, LeftOutError)

    def run_once(self, wait_ms: int) -> Recovered | None:
        if self._steps is None:
            raise OwnershipError("no recovery is under way. This is a bug")
        try:
            if self._begun:
                self._steps.send(wait_ms)
            else:
                self._begun = True
                next(self._steps)
        except StopIteration as end:
            self._steps = None
            return Recovered.SEND_AGAIN if end.value else Recovered.LOST
        except BaseException:
            self._steps = None
            raise
        return None

    def abandon(self) -> None:
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()
