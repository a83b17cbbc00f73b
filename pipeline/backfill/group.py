"""The application's consumer group during a backfill: it must be empty at the beginning, and no live instance may join.

*Guarantees*: offsets are set only while the group has no other member.
*Assumes*: client ids of live instances don't begin with `<client id>-spark-`, as those of runs on Spark do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Position

from milestones.common.clock import Clock, SystemClock
from milestones.common.config import StreamsConfig
from milestones.common.errors import MilestonesError
from milestones.common.kafka.clients import text_of
from milestones.common.kafka.groups import GroupReader
from milestones.common.records import TopicPartition

TIMEOUT_MS = 60_000

PAUSE_MS = 100
"""The pause between two looks at the group, or at its open transactions."""

MARGIN_MS = 5_000
"""The time that a coordinator may take to notice that a session is over."""


class Group:
    """*Owns*: a connection to the coordinator, until `close`."""

    def __init__(self, config: StreamsConfig, clock: Clock | None = None) -> None:
        self._config, self._clock, self._id = config, clock or SystemClock(), config.application_id
        self._reader = GroupReader(config.admin_settings(f"{self._id}-backfill"), self._id, timeout_ms=TIMEOUT_MS)
        self._ours = f"{config.client_id or self._id}-spark-"

    def close(self) -> None:
        self._reader.close()

    def members(self) -> list[str]:
        """Client ids."""
        return sorted(member.client_id for member in self._reader.describe().members)

    def live(self) -> list[str]:
        """Return the members that aren't runs on Spark."""
        return self._live(self.members())

    def _live(self, members: Iterable[str]) -> list[str]:
        return [name for name in members if not name.startswith(self._ours)]

    def come_to_rest(self) -> None:
        """Wait until the group has no members: a killed run on Spark stays a member until its session ends. Raises a
        `MilestonesError` immediately if a live instance is a member, or another run is active.
        """
        patience_ms = self._config.session_timeout_ms + MARGIN_MS
        until_ms = self._clock.monotonic_ms() + patience_ms
        while members := self.members():
            if live := self._live(members):
                raise MilestonesError(
                    f"instances of {self._id} are running ({', '.join(live)}): stop them first; where they begin with "
                    "an input is theirs to say, and they would be given tasks whose history is still to come"
                )
            if self._clock.monotonic_ms() > until_ms:
                raise MilestonesError(
                    f"{self._id} runs on Spark already ({', '.join(members)}): let it end, or stop it first"
                )
            self._clock.sleep_ms(PAUSE_MS)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets, when no open transaction contains offsets of these partitions."""
        return {at: found.offset for at, found in self._reader.stable(partitions).items()}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set committed offsets while the group has no members. `MilestonesError` when it isn't."""
        if not offsets:
            return
        consumer = Consumer(self._config.restore_consumer_settings(f"{self._id}-backfill"))
        try:
            consumer.commit(offsets=[Position(*at, offset) for at, offset in offsets.items()], asynchronous=False)
        except KafkaException as exception:
            why = text_of(exception)
            raise MilestonesError(
                f"the offsets of the group {self._id} can't be set: {why}; is an instance running?"
            ) from exception
        finally:
            consumer.close()
