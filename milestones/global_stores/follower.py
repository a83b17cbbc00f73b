"""`GlobalFollower` reads the topics of one process's global stores: first up to their ends, then as records come.

    open --> begin (ends, topic ids known) --restore up to the ends--> complete --follow--> ...

*Guarantees*: a store is read from the beginning if its topic was deleted and made anew, or no longer has the next
offset. The stores are complete when they have all records that were committed when `begin` got the ends. A transaction
that was open then isn't awaited.
*Assumes*: one thread makes all calls; records are read committed. Once tasks read the stores, no store may be emptied:
if a topic loses records that are next, this is an error from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from milestones.common.errors import StateError, TimeoutExceededError
from milestones.common.records import TopicPartition
from milestones.common.testing.faults import reach

if TYPE_CHECKING:
    from confluent_kafka import Message

    from milestones.common.clock import Clock
    from milestones.common.kafka.consumers import AssignedConsumer, Fetched
    from milestones.common.task.global_task import GlobalTask
    from milestones.instance.listeners import Listeners
    from milestones.instance.partition_offsets import Bounds

log: Final = logging.getLogger(__name__)

WAIT_MS = 100
"""The longest wait for the first record of a batch. A request to end may have to wait as long."""

BATCH = 2_000
"""The number of records in a round. Those of one store are one write to its engine, which holds Python's lock."""


class GlobalFollower:
    """*Owns*: the task with the stores, the consumer. `restored`: the number of records taken before the stores were
    complete."""

    def __init__(
        self, task: GlobalTask, consumer: Callable[[], AssignedConsumer], listeners: Listeners, clock: Clock
    ) -> None:
        self.task, self._make_consumer = task, consumer
        self._listeners, self._clock = listeners, clock
        self._consumer: AssignedConsumer | None = None
        self._stores = {topic: store for store, topic in task.topics.items()}
        self._ends: dict[TopicPartition, int] | None = None
        self._counts: dict[TopicPartition, int] = {}
        self.restored: int = 0

    # -- the beginning

    def begin(self, answer: Bounds) -> None:
        """Begin at the stores' positions, with these bounds of all partitions. Raises `StateError`, and errors of
        processors."""
        self._leave_other_topics(answer.topic_ids)
        self._leave_lost_positions(answer.bounds)
        known = self.task.positions()
        positions = {at: known.get(at, first) for at, (first, _) in answer.bounds.items()}
        self.task.start(positions)
        self._ends = {at: end for at, (_, end) in answer.bounds.items()}
        self._counts = dict.fromkeys(positions, 0)
        missing = self.missing()
        if missing:
            log.info("global stores lack %s", {str(at): count for at, count in missing.items()})
        for at, position in positions.items():
            self._tell(self._listeners.restore.on_restore_start, at, position, self._ends[at])
        self._note_ends(self._ends.keys() - missing.keys())
        self._consumer = self._make_consumer()
        self._consumer.assign(positions)

    def fits(self, answer: Bounds) -> bool:
        """Return whether the stores can be continued up to these bounds: no topic was deleted and made anew, and all
        topics still have the next offsets."""
        known, reached = self.task.storage.changelog_ids(), self.task.reached
        same = all(
            known.get(store, id) == id
            for store, topic in self.task.topics.items()
            if (id := answer.topic_ids.get(topic)) is not None
        )
        return same and answer.bounds.keys() == reached.keys() and all(
            first <= reached[at] <= end for at, (first, end) in answer.bounds.items()
        )

    def aim(self, answer: Bounds) -> None:
        """Take these ends in place of those from `begin`: `complete` uses the new ends from now on."""
        self._ends = {at: end for at, (_, end) in answer.bounds.items()}
        missing = self.missing()
        if missing and self._consumer is None:
            self._consumer = self._make_consumer()
            self._consumer.assign({at: self.task.reached[at] for at in missing})

    def _leave_other_topics(self, topic_ids: Mapping[str, str]) -> None:
        """Empty the stores of deleted topics, then write down the ids of the present topics. In this order a crash
        between the two does no harm."""
        known, ids = self.task.storage.changelog_ids(), {}
        for store, topic in self.task.topics.items():
            id = topic_ids.get(topic)
            if id is None:
                continue
            ids[store] = id
            if known.get(store, id) != id:
                self._clear(store, f"topic {topic} was deleted and made anew (topic id {known[store]} then, {id} now)")
        self.task.storage.keep_changelog_ids(ids)

    def _leave_lost_positions(self, bounds: Mapping[TopicPartition, tuple[int, int]]) -> None:
        lost: dict[str, str] = {}
        for at, position in self.task.positions().items():
            first, end = bounds.get(at, (0, -1))
            if not first <= position <= end:
                there_is = f"offsets {first} to {end}" if at in bounds else "no such partition"
                lost[self._stores[at.topic]] = f"{at} has {there_is}, the store is at {position}"
        for store, why in lost.items():
            self._clear(store, why)

    def _clear(self, store: str, why: str) -> None:
        log.warning("global store %s is read from the beginning of its topic: %s", store, why)
        self.task.clear(store, why)

    # -- on the way

    def missing(self) -> dict[TopicPartition, int]:
        """Return the number of records up to the known end, for each partition that hasn't reached its end."""
        reached = self.task.reached
        return {at: end - reached[at] for at, end in (self._ends or {}).items() if reached[at] < end}

    @property
    def complete(self) -> bool:
        """True if the stores have all records up to the known ends."""
        return self._ends is not None and not self.missing()

    def lags(self) -> dict[TopicPartition, int]:
        """Return, by partition, the number of records that aren't in the stores yet, at the time of its last fetch."""
        consumer, ends = self._consumer, self._ends or {}
        if consumer is None:
            return {}
        return {
            at: max(0, max(consumer.known_end(at) or 0, ends[at]) - position)
            for at, position in self.task.reached.items()
        }

    def read_to_the_ends(self, go_on: Callable[[], object], timeout_ms: int) -> None:
        """Read until the stores are complete, or until `go_on`, which is called before each batch, returns False.
        Raises `TimeoutExceededError` when no record came for `timeout_ms`."""
        moved_ms = self._clock.monotonic_ms()
        while not self.complete and go_on():
            now_ms = self._clock.monotonic_ms()
            if self.run_once(WAIT_MS):
                moved_ms = now_ms
            elif now_ms - moved_ms > timeout_ms:
                raise TimeoutExceededError(
                    f"nothing came of {', '.join(map(str, sorted(self.missing())))}, which global stores need, within "
                    f"task_timeout_ms ({timeout_ms}): its brokers may be away"
                )

    def run_once(self, wait_ms: int = WAIT_MS) -> bool:
        """Take one step: 1. fetch a batch; 2. process it, and write its entries and positions to the stores; 3. report
        to the listener, while stores are restored. Returns True if there was a record."""
        if self._consumer is None:
            return False
        fetched = self._consumer.fetch(BATCH, wait_ms).allowed()
        self._check(fetched)
        before = self.missing().keys()
        now_ms = self._clock.monotonic_ms()
        for at, messages in fetched.records.items():
            self.task.input.add(at, messages)
        for at, end in fetched.ends.items():
            self.task.input.reached_end(at, end, now_ms)
        self.task.process(now_ms)
        if fetched.records:
            reach("global.batch")
        for at in before & fetched.records.keys():
            self._took(at, fetched.records[at])
        self._note_ends(before - self.missing().keys())
        return bool(fetched.records)

    def _check(self, fetched: Fetched) -> None:
        for at in [*fetched.out_of_range, *fetched.gone]:
            raise StateError(
                f"{at} no longer has the offset {self.task.reached[at]}, where global store {self._stores[at.topic]} "
                "stands: its topic was truncated, or made anew. Tasks can't be given an empty store; the next start "
                "reads it from the beginning"
            )

    def _took(self, at: TopicPartition, messages: list[Message]) -> None:
        self._counts[at] += len(messages)
        self.restored += len(messages)
        self._tell(self._listeners.restore.on_batch_restored, at, messages[-1].offset() or 0, len(messages))

    def _note_ends(self, complete: set[TopicPartition]) -> None:
        for at in complete:
            self._tell(self._listeners.restore.on_restore_end, at, self._counts[at])

    def _tell(self, call: Callable[..., None], at: TopicPartition, *numbers: int) -> None:
        self._listeners.tell(call, at, self._stores[at.topic], *numbers)

    def stop_fetching(self) -> None:
        """Close the consumer. The stores stay open."""
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            consumer.close()

    def close(self) -> None:
        """Close the consumer, the processors and the stores. No task may read them any more."""
        try:
            self.stop_fetching()
        finally:
            self.task.close()
