"""Recovery after which what a transaction held is resent.

The decisions are those of `InPlaceRecovery`. Here they are steps, and tasks are processed between them. After a
recovery in place the intervals are resent. At least once there is nothing to abort. What the old producer has queued is
dropped, and the new one resends it, behind the part that Kafka has already.

*Guarantees*: no call waits, except the making of a client. A producer that looks for a refused output sends small
batches. Only the outputs of a refused batch are sent one by one. Outputs that were left out of an interval aren't
looked for.
*Assumes*: as `InPlaceRecovery`; the collector keeps all that isn't confirmed.
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
"""Records: four fifths of the records/s of whole batches, and few suspects."""

MOST_SUSPECTS = 1_000
"""With more it isn't the records that are too large, but the batches."""


class ResendingRecovery(InPlaceRecovery):
    """*Owns*: the steps of the recovery under way."""

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
        """An interval may have more outputs than could be sent one by one in the time of a transaction."""
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
