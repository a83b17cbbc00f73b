"""`ChangelogTrim`: deletes the records of changelogs whose rows are gone by their store's time.

    Trim ---> too old? a warning ---> first record that may be needed? ---answer---> what the housekeeper purges to

*Guarantees*: a record is deleted only when its store's committed time is later than the record's time by more than the
store's retention and `windowstore_changelog_additional_retention_ms`. The clock's time doesn't matter. Nothing waits.
*Assumes*: the record of a row isn't older than the row's window, or session, by more than that setting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException

from milestones.common.kafka.answers import told
from milestones.common.records import TopicPartition
from milestones.common.state.spec import is_trimmed

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import ListOffsetsResultInfo  # type: ignore[attr-defined]

    from milestones.common.kafka.admin import Answers
    from milestones.common.kafka.topics import Cluster
    from milestones.common.topology.nodes import SubTopology

log: Final = logging.getLogger(__name__)

STEP_MS: Final = 600_000
"""Changelogs are trimmed to multiples of this time. So if a store's time follows the clock, its changelog is trimmed
every ten minutes."""

Ask = Callable[[Callable[["Cluster"], Mapping[Any, Any]]], "Answers[Any, Any]"]


@dataclass(frozen=True)
class Trim:
    """*From the thread that commits.* The times (ms) up to which rows are gone, by changelog partition."""

    gone: Mapping[TopicPartition, int]


class ChangelogTrim:
    """*Owns*: the times up to which partitions are trimmed, and the open question to Kafka. `own_limits`: see
    `own_limits`.
    """

    def __init__(self, additional_ms: int, own_limits: Mapping[str, int]) -> None:
        self._additional_ms, self._limits = additional_ms, own_limits
        self._warned: set[str] = set()
        self._wanted: dict[TopicPartition, int] = {}
        self._trimmed: dict[TopicPartition, int] = {}
        self._searching: tuple[dict[TopicPartition, int], Answers[Any, Any]] | None = None

    def take(self, trim: Trim, wall_ms: int) -> None:
        for partition, gone in trim.gone.items():
            self._compare(partition.topic, gone, wall_ms)
            until = trimmed_to(gone, self._additional_ms)
            if until > self._trimmed.get(partition, 0):
                self._wanted[partition] = until

    def _compare(self, topic: str, gone: int, wall_ms: int) -> None:
        """Log a warning, once, if the broker may delete records that the store needs."""
        limit = self._limits.get(topic)
        if limit is not None and wall_ms - gone > limit and topic not in self._warned:
            self._warned.add(topic)
            log.warning(
                "changelog %s: its store needs records of the last %d ms by the clock, as its time is that of its "
                "records, and the topic's own setting retention.ms=%d lets brokers delete them sooner: after a crash "
                "or a move, rows may be missing. Leave retention.ms out of the store's changelog_config, and the "
                "changelog keeps what the store needs",
                topic, wall_ms - gone, limit,
            )  # fmt: skip

    @property
    def waits(self) -> bool:
        """Whether an answer is due."""
        return self._searching is not None

    def run_once(self, ask: Ask) -> dict[TopicPartition, int]:
        """Return the offsets up to which to purge, when they are found. Begins the next search."""
        found: dict[TopicPartition, int] = {}
        if self._searching is not None and self._searching[1].done():
            (times, answers), self._searching = self._searching, None
            error = answers.exception()
            if error is None:
                found = self.found(times, answers.result())
            else:
                _tell(error)
        if self._searching is None and (times := self.due()):
            self._searching = times, ask(lambda cluster: cluster.start_searching(times, committed=False))
        return found

    def due(self) -> dict[TopicPartition, int]:
        """Return the times whose first records must be looked up."""
        times, self._wanted = self._wanted, {}
        return times

    def found(
        self, times: Mapping[TopicPartition, int], answers: Mapping[TopicPartition, Future[ListOffsetsResultInfo]]
    ) -> dict[TopicPartition, int]:
        """Return the offsets to purge to. If Kafka has given no answer, the next `Trim` asks once more.
        """
        offsets: dict[TopicPartition, int] = {}
        for partition, future in answers.items():
            try:
                offset = told(partition, future)
            except KafkaException as error:
                _tell(error)
                continue
            self._trimmed[partition] = times[partition]
            if offset > 0:  # -1 if all records are older: they stay until a later record has come
                offsets[partition] = offset
        return offsets


def _tell(error: BaseException) -> None:
    log.info("the search for what changelogs no longer need has failed, and is repeated: %s", error)


def trimmed_to(gone: int, additional_ms: int) -> int:
    """Return the time before which changelog records may be deleted, for a store whose rows have expired up to a time.
    0 means that none may be deleted.
    """
    return max(0, (gone - additional_ms) // STEP_MS * STEP_MS)


def own_limits(subtopologies: Iterable[SubTopology]) -> dict[str, int]:
    """Return, for each changelog of a store whose rows expire, the retention (ms) that the application itself sets."""
    found: dict[str, int] = {}
    for sub in subtopologies:
        for spec in sub.stores:
            limit = int(spec.changelog_config.get("retention.ms", -1))
            if is_trimmed(spec) and limit >= 0:
                found[sub.changelogs[spec.name]] = limit
    return found
