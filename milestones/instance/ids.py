"""`InstanceIds` has the transactional and static ids of an instance, which end with the numbers of its polling threads.

Ids of an earlier start may be obsolete: the instance was on another stage then, or had more threads, or another
`group_instance_id`. A transaction of an obsolete transactional id may be open. A static member with an obsolete id
keeps its tasks until its session ends, although no thread processes them.

*Guarantees*: the state directory records an id before its first use and until it is retired. So if a start is killed or
fails, the next start retires the remaining ids. Retirement takes a bounded time.
*Assumes*: `retire_others` ends before a thread joins the group. Other methods may be called by any thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from milestones.common.errors import KafkaUnreachableError
from milestones.common.kafka.failures import error_of, refuse_forbidden_id
from milestones.common.kafka.producer import OutputProducer
from milestones.common.kafka.static_members import StaticMembers
from milestones.common.testing.faults import reach

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.common.config import StreamsConfig
    from milestones.common.state.directory import StateDirectory

log: Final = logging.getLogger(__name__)

AT_ONCE = 8
"""The number of transactional ids that are initialised at a time: each takes a producer with threads and connections of
its own. 200 ids take some five seconds on two cores."""


class InstanceIds:
    """The ids of one instance. The state directory keeps the ids that the instance has used."""

    def __init__(self, config: StreamsConfig, directory: StateDirectory, client_id: str, clock: Clock) -> None:
        self._config, self._directory, self._client_id, self._clock = config, directory, client_id, clock

    def transactional(self, number: int) -> str:
        return f"{self._config.application_id}-{self._directory.process_id}-{number}"

    def record(self, numbers: Iterable[int]) -> None:
        """Record the ids of the threads with these numbers."""
        transactional, static = self._of(numbers)
        self._directory.record_ids(transactional=transactional, static=static)

    def _of(self, numbers: Iterable[int]) -> tuple[Set[str], Set[str]]:
        """Return the transactional and the static ids that these threads use."""
        numbers, config = list(numbers), self._config
        transactional = set(map(self.transactional, numbers)) if config.exactly_once else set()
        return transactional, {id for number in numbers if (id := config.static_id(number)) is not None}

    def forget_static(self, number: int) -> None:
        """Forget the static id of a thread whose member has left the group."""
        self._directory.forget_ids(static=self._of([number])[1])

    def retire_others(self, numbers: Iterable[int]) -> None:
        """Record the ids of the threads with which the instance starts, and retire all others that it has used.
        Transactional ids come first, because the next owner of a static member's task can begin only when no open
        transaction contains the task's offsets.

        Raises `KafkaUnreachableError` when a coordinator doesn't answer. Ids that aren't retired by then stay recorded,
        so that the next start retires them.
        """
        transactional, static = self._of(numbers)
        self._directory.record_ids(transactional=transactional, static=static)
        if self._config.exactly_once:
            self._initialise(self._directory.transactional_ids - transactional)
        if self._config.group_instance_id is not None or self._directory.static_ids:
            self._leave(static)

    def _initialise(self, obsolete: Set[str]) -> None:
        """Initialise obsolete transactional ids, several at a time. An id is removed from the record as soon as it is
        initialised. After the first error no other initialisation begins."""
        waiting = deque(sorted(obsolete))

        def initialise() -> None:
            for transactional_id in iter(partial(_next, waiting), None):
                try:
                    self._initialise_one(transactional_id)
                except BaseException:
                    waiting.clear()
                    raise

        with ThreadPoolExecutor(AT_ONCE, f"{self._client_id}-retire") as pool:
            for outcome in [pool.submit(initialise) for _ in range(min(AT_ONCE, len(waiting)))]:
                outcome.result()

    def _initialise_one(self, transactional_id: str) -> None:
        try:
            settings = self._config.producer_settings(f"{self._client_id}-retire", transactional_id)
            with closing(OutputProducer(settings)) as producer:
                producer.init_transactions(self._config.request_timeout_ms)
        except KafkaException as exception:
            refuse_forbidden_id(transactional_id, exception)
            raise KafkaUnreachableError(
                f"the obsolete transactional id {transactional_id} can't be initialised, so that a transaction of it "
                f"may be open still: {error_of(exception)}; check that the transaction coordinator is up, and start "
                "again: the state directory remembers the id"
            ) from exception
        reach("ids.retired")
        self._directory.forget_ids(transactional={transactional_id})
        log.info("retired transactional id %s", transactional_id)

    def _leave(self, current: Set[str]) -> None:
        """Have the members of this instance with other static ids leave the group, and forget these ids. An id that
        isn't a member of this instance any more has left, or belongs to another instance by now."""
        config, known = self._config, self._directory.static_ids
        settings = config.consumer_settings(f"{self._client_id}-retire")
        timeout_ms = config.request_timeout_ms
        with closing(
            StaticMembers(settings, config.application_id, timeout_ms=timeout_ms, clock=self._clock)
        ) as members:
            obsolete = members.of(self._directory.process_id, known) - current
            if obsolete:
                members.remove(obsolete)
                reach("static.left")
                log.info("obsolete static members have left the group: %s", ", ".join(sorted(obsolete)))
        self._directory.forget_ids(static=known - current)


def _next(waiting: deque[str]) -> str | None:
    """Return the next id, for one of several threads, or None if none is left."""
    with suppress(IndexError):
        return waiting.popleft()
    return None
