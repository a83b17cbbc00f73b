"""The thread that calls Spark for the driver, one job at a time: the call returns only when the job has ended.

*Guarantees*: for each job that was begun, the thread sends `Finished` once.
*Assumes*: a classic session; a Spark Connect session has no `sparkContext`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyspark import SparkContext

from milestones.common.last_words import report
from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.pipeline.hosting.attempt import run_attempt
from milestones.pipeline.hosting.payload import Payload
from milestones.pipeline.hosting.ranges import RangeOutcome, TaskRange
from milestones.pipeline.spark_jobs import SparkJobError, reason_in

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class Begin:
    """*Driver to Spark thread.*"""

    number: int
    ranges: Sequence[TaskRange]
    title: str


@dataclass(frozen=True)
class Finished:
    """*Spark thread to driver.* The job has ended. `error`: the reason if Spark gave the job up."""

    number: int
    outcomes: Sequence[RangeOutcome] = ()
    error: SparkJobError | None = None


class SparkThread(threading.Thread):
    """*Owns*: the calls into Spark. *Receives*: `Begin`. *Sends*: `Finished`. If an error ends the thread, it closes
    the driver's mailbox with that error.
    """

    def __init__(self, context: SparkContext, payload: Payload, group: str, done: Mailbox[Finished]) -> None:
        super().__init__(name=f"{group}-calls", daemon=True)
        self._spark, self._group, self._done = context, group, done
        self._call = partial(run_attempt, payload)
        self._orders: Mailbox[Begin] = Mailbox(1, f"{group} jobs")

    def begin(self, order: Begin) -> None:
        """Start a job. The job before must have ended."""
        self._orders.put(order, timeout_ms=10_000)

    def cancel(self) -> None:
        """Ask Spark to kill the tasks of the running job."""
        self._spark.cancelJobGroup(self._group)

    def close(self) -> None:
        """Accept no more jobs. The thread ends after the running job."""
        self._orders.close()

    def run(self) -> None:
        try:
            while True:
                order = self._orders.get(timeout_ms=60_000)
                if order is not None:
                    self._done.put(self._run(order), timeout_ms=60_000)
        except MailboxClosedError:
            return
        except BaseException as error:
            self._done.close(error)
            report(log, "%s dies", self.name, error=error)

    def _run(self, order: Begin) -> Finished:
        try:
            self._spark.setJobGroup(self._group, order.title)
            rows = self._spark.parallelize(order.ranges, len(order.ranges))
            return Finished(order.number, rows.map(self._call).collect())
        except Exception as error:  # Spark may raise anything
            return Finished(order.number, error=SparkJobError(f"{order.title}: {reason_in(error)}"))
