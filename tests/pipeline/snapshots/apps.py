"""An application whose changelog's snapshots are made on a real Spark, from a real Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from milestones import StreamsConfig, Topology, serdes
from milestones.common.clock import SystemClock
from milestones.common.records import TopicPartition
from milestones.common.state.snapshots.repository import SnapshotRepository
from milestones.common.state.spec import StoreSpec
from milestones.testing import KafkaProbe, until
from tests.milestones.fakes import Counting
from tests.topics import named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from milestones.pipeline.snapshots import CompactionRun
    from milestones.pipeline.snapshots.making import MadeSnapshot

TIMEOUT_S = 40
NOW_MS = SystemClock().wall_ms()
"""The records' time: what is old would be compacted at once."""
COMPACTED = {"cleanup.policy": "compact"}
Entries = dict[bytes, bytes]


class App:
    """An application of which there is only the changelog, with two partitions, and an input without records."""

    def __init__(self, kafka: str, directory: Path, spark: SparkSession) -> None:
        self.kafka, self.directory, self.spark = kafka, directory, spark
        self.name, self.probe, self._left_open = named("snap"), KafkaProbe(kafka), False
        self.url = f"file://{directory}/snapshots"
        self.topology = self._topology()
        self.config = StreamsConfig(
            application_id=self.name, bootstrap_servers=kafka, processing_guarantee="exactly_once_v2",
            state_dir=str(directory / "state"), snapshot_timeout_ms=3_000,
        )  # fmt: skip
        self.changelog = f"{self.name}-counts-changelog"
        self.probe.create({f"{self.name}-in": 2})
        self.probe.create({self.changelog: 2}, COMPACTED)

    def _topology(self, **spec: Any) -> Topology:
        topology = Topology()
        topology.add_source("source", f"{self.name}-in", key=serdes.STRING, value=serdes.STRING)
        topology.add_processor("counting", Counting, "source")
        store = StoreSpec("counts", key_serde=serdes.STRING, value_serde=serdes.STRING, **spec)
        return topology.add_state_store(store, "counting")

    def delete_changelog(self) -> None:
        """Once the broker has forgotten it: that may be later than Kafka's controller says so."""
        for future in self.probe.admin.delete_topics([self.changelog]).values():
            future.result(TIMEOUT_S)
        until(lambda: self.changelog not in self.probe.topics(), "the broker has forgotten the changelog", TIMEOUT_S)

    def make_changelog_anew(self) -> None:
        self.probe.make_anew({self.changelog: 2}, COMPACTED)

    def write(self, *records: tuple[str, str | None], partition: int = 0, end: str = "commit") -> None:
        """Write one transaction; `end`: what becomes of it. Wait until readers see its end, unless one was left open:
        Kafka answers `commit_transaction` before it has written the end into the partitions."""
        producer = Producer({"bootstrap.servers": self.kafka, "transactional.id": named(self.name)})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for key, value in records:
            data = None if value is None else value.encode()
            producer.produce(self.changelog, data, key.encode(), partition, timestamp=NOW_MS)
        assert producer.flush(TIMEOUT_S) == 0
        if end == "commit":
            producer.commit_transaction(TIMEOUT_S)
        elif end == "abort":
            producer.abort_transaction(TIMEOUT_S)
        self._left_open |= end == "nothing"
        at = [TopicPartition(self.changelog, partition)]
        if not self._left_open:
            until(lambda: self.probe.ends(at, stable=True) == self.probe.ends(at), "its end is written", TIMEOUT_S)

    def compact(self, url: str | None = None, **options: Any) -> CompactionRun:
        from milestones.pipeline.snapshots import compact_changelog

        url = self.url if url is None else url
        return compact_changelog(self.topology, self.spark, url, config=self.config, **options)

    def made(self, **options: Any) -> MadeSnapshot:
        """What became of partition 0."""
        return next(made for made in self.compact(**options).snapshots if made.manifest.partition == 0)

    def content(self, partition: int = 0) -> Entries:
        """Of the newest snapshot."""
        from milestones.common.state.engines.sst import entries

        repository = SnapshotRepository(self.url, self.name)
        newest = repository.newest(TopicPartition(self.changelog, partition), "counts")
        assert newest is not None
        return dict(entries(repository.fetch(newest, self.directory / "fetched").files, newest.key_prefix))
