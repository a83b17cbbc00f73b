"""`CompactionWatch` lets brokers compact changelog records that versioned stores no longer need, while the application
runs.

    each hour: committed times of the group, settings ---> how old records must be ---> settings of the changelogs

Brokers compare the times of records with their clock. A changelog is created with an infinite `min.compaction.lag.ms`.
The watch sets it to the age, by the clock, of the oldest version that the store of any partition needs, plus
`MARGIN_MS`.

*Guarantees*: brokers don't compact away a record that a store needs by its committed time, while an instance watches
and for `MARGIN_MS` after a crash. After a clean end they compact no record. If a partition of a changelog has no
committed time, the setting isn't changed. Nothing waits.
*Assumes*: committed times only rise.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError
from milestones.common.kafka.answers import settings_in
from milestones.common.kafka.clients import text_of
from milestones.common.kafka.failures import caught
from milestones.common.kafka.topics import ALL
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.state.stores.kinds import LONGEST_LAG
from milestones.common.state.times import observed_time
from milestones.common.task.metadata import OffsetMetadata, highest

if TYPE_CHECKING:
    from milestones.common.kafka.admin import Answers, Begin
    from milestones.common.kafka.topics import Cluster
    from milestones.common.topology.nodes import SubTopology

log: Final = logging.getLogger(__name__)

LAG: Final = "min.compaction.lag.ms"

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
FIRST_MS, LOOK_MS = 60_000, HOUR_MS
"""`FIRST_MS`: the time from the start to the first look. `LOOK_MS`: the time between two looks."""

MARGIN_MS: Final = 7 * DAY_MS
"""How much longer than needed versions are kept. After all instances of an application have died, this is the time in
which the application must be restarted."""

GROUP: Final = "the group"
"""The key of an answer about committed offsets; no topic can be called so."""

Committed = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True)
class KeptHistory:
    """The records that a versioned store's changelog must keep. `time`: the entry of the committed metadata that has
    the store's time. `own`: True if the application sets the lag itself, so that the lag is only compared.
    """

    topic: str
    time: str
    history_ms: int
    own: bool

    def first_needed(self, partitions: int, times: Mapping[tuple[int, str], int]) -> int | None:
        """Return the time of the oldest version that the store of any partition needs, or None if it isn't known for
        all partitions.
        """
        found = [times.get((partition, self.time)) for partition in range(partitions)]
        known = [time for time in found if time is not None]
        return min(known) - self.history_ms if known and len(known) == partitions else None


def histories(subtopologies: Iterable[SubTopology]) -> list[KeptHistory]:
    """Return the histories of all versioned stores that have a changelog of their own."""
    return [
        KeptHistory(
            sub.changelogs[spec.name], observed_time(spec.name), spec.retention_ms, own=LAG in spec.changelog_config
        )
        for sub in subtopologies
        for spec in sub.stores
        if spec.kind == "versioned" and spec.logged and spec.source_topic is None
    ]


def committed_times(committed: Committed) -> dict[tuple[int, str], int]:
    """Return the times in the committed metadata, by partition and name of the time."""
    by_partition: defaultdict[int, list[Mapping[str, int]]] = defaultdict(list)
    for at, offset in committed.items():
        by_partition[at.partition].append(OffsetMetadata.decode(offset.metadata).others)
    return {(number, name): time for number, found in by_partition.items() for name, time in highest(found).items()}


class CompactionWatch:
    """*Owns*: the open question and change, and the topics whose lag isn't `LONGEST_LAG`. `group`: that of the
    application.
    """

    def __init__(self, watched: Iterable[KeptHistory], group: str) -> None:
        self._watched = {one.topic: one for one in watched}
        self._group = group
        self._next_ms: int | None = None
        self._asked: Answers[str, Any] | None = None
        self._changing: tuple[dict[str, dict[str, str]], Answers[str, None]] | None = None
        self._lowered: set[str] = set()
        self._warned: set[str] = set()

    @property
    def waits(self) -> bool:
        """Whether an answer is due."""
        return self._asked is not None or self._changing is not None

    def run_once(self, ask: Callable[[Begin[str, Any]], Answers[str, Any]], now_ms: int, wall_ms: int) -> None:
        """1. note how a change went; 2. take what a look has found, and begin the changes; 3. look, when it is time."""
        if self._changing is not None and self._changing[1].done():
            self._note()
        if self._asked is not None and self._asked.done() and self._changing is None:
            asked, self._asked = self._asked, None
            changes = self._changes(asked, wall_ms)
            if changes:
                self._changing = changes, ask(lambda cluster: cluster.start_changing_settings(changes))
        if self._next_ms is None:
            self._next_ms = now_ms + FIRST_MS
        if self._watched and now_ms >= self._next_ms and not self.waits:
            self._next_ms = now_ms + LOOK_MS
            self._asked = ask(self._look)

    def _look(self, cluster: Cluster) -> dict[str, Any]:
        topics, committed = list(self._watched), cluster.start_reading_committed(self._group)
        return {GROUP: committed, **cluster.start_looking(topics), **cluster.start_reading_settings(topics)}

    def _changes(self, asked: Answers[str, Any], wall_ms: int) -> dict[str, dict[str, str]]:
        """Return the new settings, by topic."""
        try:
            answers = asked.result()
            times = committed_times(answers[GROUP].result())
            described = answers[ALL].result()
            actual = {topic: settings_in(answers[topic].result()) for topic in self._watched}
        except (KafkaException, MilestonesError) as error:
            log.info("what changelogs of versioned stores need can't be looked at now: %s", error)
            return {}
        changes: dict[str, dict[str, str]] = {}
        for topic, one in self._watched.items():
            if topic not in described or LAG not in actual[topic]:
                continue
            lag_ms = int(actual[topic][LAG])
            first = one.first_needed(described[topic].partitions, times)
            if one.own:
                self._compare(topic, lag_ms, first, wall_ms)
            elif (wanted := wanted_lag(lag_ms, first, wall_ms)) is not None:
                changes[topic] = {LAG: wanted}
            elif lag_ms != int(LONGEST_LAG):
                self._lowered.add(topic)
        return changes

    def _compare(self, topic: str, lag_ms: int, first: int | None, wall_ms: int) -> None:
        """Log a warning, once, if brokers may compact away records that the store needs."""
        if first is None or wall_ms - first <= lag_ms or topic in self._warned:
            return
        self._warned.add(topic)
        log.warning(
            "changelog %s: its versioned store needs versions of the last %d ms by the clock, as its time is that of "
            "its records, and the topic's own setting %s=%d lets brokers compact them away sooner: after a crash or a "
            "move, versions may be missing. Leave %s out of the store's changelog_config, and the changelog keeps what "
            "the store needs",
            topic, wall_ms - first, LAG, lag_ms, LAG,
        )  # fmt: skip

    def _note(self) -> None:
        assert self._changing is not None
        (changes, answers), self._changing = self._changing, None
        error = answers.exception()
        for topic, change in changes.items():
            failed = error or caught(lambda topic=topic: answers.result()[topic].result(), Exception)  # type: ignore[misc]
            if failed is None:
                self._lowered.add(topic)
                log.info("changelog %s has %s=%s now, by its store's time", topic, LAG, change[LAG])
            else:
                text = text_of(failed) if isinstance(failed, KafkaException) else failed
                log.info("changelog %s can't be given %s=%s now: %s", topic, LAG, change[LAG], text)

    def end(self, ask: Callable[[Begin[str, Any]], object]) -> None:
        """Set the lags so that brokers compact no record while no instance watches. Kafka's answer isn't awaited."""
        changes = {topic: {LAG: LONGEST_LAG} for topic in self._lowered}
        if changes:
            ask(lambda cluster: cluster.start_changing_settings(changes))


def wanted_lag(lag_ms: int, first: int | None, wall_ms: int) -> str | None:
    """Return the new lag of a changelog, or None if the present one can stay. `first`: the time of the oldest version
    that is needed, or None if it isn't known.
    """
    if first is None:
        return LONGEST_LAG if lag_ms != int(LONGEST_LAG) else None
    wanted = min(max(0, wall_ms - first + MARGIN_MS), int(LONGEST_LAG))
    return str(wanted) if not wanted - HOUR_MS <= lag_ms <= wanted + DAY_MS else None
