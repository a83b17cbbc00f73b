"""One attempt of a Spark task: makes the clients and the stores, runs the task of the topology, and returns the
outcome.

| what happened | what the attempt does |
|---|---|
| the generation is over, before it begins or amid its work | returns: the driver plans anew |
| fenced by a later attempt, a broker away, a damaged store | raises: Spark makes another attempt, then the driver |
| the user's code, a bad record, damaged settings | returns the error: no other attempt could do better |
| a commit that failed, or that the client can't vouch for, the group being as it was | works once more |
| a second attempt under at least once | returns: see below |

Under exactly once attempts fence each other by their transactional id. Under `at_least_once` an earlier attempt that
only seems dead isn't fenced, and could write its old counts behind newer ones. So only a first attempt does any work.
After its loss, the driver waits for a session and continues in a new generation. By then, attempts under the old
generation have ended.

*Guarantees*: all clients and stores are closed when the attempt returns or raises an error.
*Assumes*: called in a Spark task.
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Final

from confluent_kafka import KafkaException
from pyspark import TaskContext

from milestones.common.clock import SystemClock
from milestones.common.config import StreamsConfig
from milestones.common.errors import (
    KafkaUnreachableError,
    MilestonesError,
    RefusedTogetherError,
    StateCorruptError,
    StateError,
    StateLockedError,
    TaskCorruptedError,
    TaskMigratedError,
    TimeoutExceededError,
)
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.failures import ErrorClass, classify, is_stale_member
from milestones.common.kafka.membership import StaleGenerationError
from milestones.instance.application import Application
from milestones.pipeline.hosting.hosted_task import Done, HostedTask
from milestones.pipeline.hosting.payload import Payload, unpack
from milestones.pipeline.hosting.ranges import RangeEnd, RangeOutcome, TaskRange
from milestones.pipeline.hosting.surroundings import HostedClients
from milestones.pipeline.hosting.worker_globals import WorkerGlobals, worker_globals

log: Final = logging.getLogger(__name__)

PASSING = (
    KafkaUnreachableError,
    StateCorruptError,
    StateLockedError,
    TaskCorruptedError,
    TaskMigratedError,
    TimeoutExceededError,
)


def run_attempt(payload: Payload, work: TaskRange) -> RangeOutcome:
    """Run an attempt; Spark calls this function in its worker process."""
    began = perf_counter()
    spark_task = TaskContext.get()
    first = spark_task is None or spark_task.attemptNumber() == 0
    outcome = attempt(payload, work, first=first)
    return replace(outcome, seconds=perf_counter() - began, where=f"{socket.gethostname()}/{os.getpid()}")


def attempt(payload: Payload, work: TaskRange, *, first: bool) -> RangeOutcome:
    """Process the records of the range, and return the outcome that the module's docstring lists.
    `first`: True if no other attempt at this range was ever started.
    """
    ended = partial(RangeOutcome, work.task)
    try:
        topology, config = unpack(payload)
        if not (first or config.exactly_once):
            return ended(RangeEnd.TOO_LATE)
        application = Application.of(topology, config)
        everyone = worker_globals(payload.topology, application, config, SystemClock())
        return _run(application, config, work, payload.history, everyone)
    except StaleGenerationError as error:
        log.info("task %s: %s", work.task, error)
        return ended(RangeEnd.STALE, error=str(error))
    except KafkaException as exception:
        if is_stale_member(exception):
            return ended(RangeEnd.STALE, error=str(exception))
        raise
    except PASSING:
        raise
    except MilestonesError as error:
        return ended(RangeEnd.FAILED, error=f"{type(error).__name__}: {error}", exit_code=error.exit_code)


def _run(
    application: Application,
    config: StreamsConfig,
    work: TaskRange,
    history: str | None,
    everyone: WorkerGlobals | None,
) -> RangeOutcome:
    try:
        return _run_once(application, config, work, history, everyone)
    except RefusedTogetherError as error:
        log.info("task %s: %s", work.task, error)
        return _run_once(application, config, work, history, everyone, isolation=BatchIsolation())
    except KafkaException as error:
        if is_stale_member(error) or classify(error) is not ErrorClass.ABORTABLE:
            raise
        log.info("task %s: %s", work.task, error)
        return _run_once(application, config, work, history, everyone)


def _run_once(
    application: Application,
    config: StreamsConfig,
    work: TaskRange,
    history: str | None,
    everyone: WorkerGlobals | None,
    *,
    isolation: BatchIsolation | None = None,
) -> RangeOutcome:
    """Run the range once. `everyone`: the global stores of this process. `isolation`: decides how outputs are divided
    into batches, so that it becomes known which output Kafka refuses.
    """
    clients = HostedClients(config, application, work, SystemClock(), history, everyone, isolation=isolation)
    try:
        done: Done = HostedTask(clients, work).run()
    except StateError as error:
        damage = None if everyone is None else everyone.stores.damage
        if damage is None:
            raise
        raise damage from error
    finally:
        clients.close()
    return RangeOutcome(
        work.task, RangeEnd.DONE, done.records, clients.restored.records, done.commits, done.dropped, done.punctuations,
        schedule=done.schedule, due_ms=done.due_ms, gone=done.gone,
    )  # fmt: skip
