"""History, from Kafka and from archives, in a batch on a real Spark; then live instances go on."""

from __future__ import annotations

import importlib
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from milestones import StreamsBuilder, Topology, serdes
from milestones.common.clock import SystemClock
from milestones.common.errors import MilestonesError
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TopicPartition as Partition
from milestones.testing import until
from tests.pipeline.audit.test_audit import App, Sent, counted, inputs, processed
from tests.topics import named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from milestones.pipeline import SparkRun
    from milestones.pipeline.backfill import HandOver

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TIMEOUT_S = 60


class Backfilled(App):
    def __init__(self, kafka: str, directory: Path, spark: SparkSession) -> None:
        super().__init__(kafka, directory, spark)
        self.history = f"file://{directory}/history"
        self.config = self.config.replace(commit_interval_ms=200)

    def archive(self) -> int:
        from milestones.pipeline.backfill import archive_inputs

        return archive_inputs(self.counting(), self.spark, self.history, config=self.config).records

    def backfill(self, topology: Topology | None = None, **options: Any) -> HandOver:
        from milestones.pipeline.backfill import backfill

        return backfill(topology or self.counting(), self.spark, config=self.config, **options)

    def cluster(self) -> Cluster:
        return Cluster(self.config.admin_settings(self.name))

    def members(self) -> list[str]:
        from milestones.pipeline.backfill.group import Group

        with closing(Group(self.config)) as group:
            return group.members()

    def sizes(self, records: list[Sent]) -> tuple[int, ...]:
        seen = Counter(sent.partition for sent in records)
        return tuple(seen[number] for number in range(2))

    def outputs(self) -> list[tuple[str, int]]:
        """Key and count of all outputs, committed, by partition and offset."""
        found = self.probe.read(self.topic("out"), stable=True)
        return [((record.key or b"").decode(), int.from_bytes(record.value or b"")) for record in found]

    def check(self, records: list[Sent]) -> None:
        """Every output once: exactly the counts of these inputs."""
        wanted = [(sent.key, int.from_bytes(sent.value or b"", "big")) for sent in counted(records)]
        assert sorted(self.outputs()) == sorted(wanted)


@pytest.fixture
def app(kafka: str, tmp_path: Path, spark: SparkSession) -> Backfilled:
    return Backfilled(kafka, tmp_path, spark)


@pytest.mark.parametrize("stage", ["baseline", "m1"])
def test_live_instances_process_exactly_what_came_after_the_backfill(app: Backfilled, stage: str) -> None:
    old, new = inputs(2_000), inputs(300)
    app.send("in", old)
    url = f"file://{app.directory}/snapshots"
    done = app.backfill(snapshot_url=url)
    assert (done.records, done.snapshots is not None and done.snapshots.entries) == (2_000, 20)
    assert app.backfill().records == 0
    app.send("in", new)
    with app.running(app.counting(), milestones=stage, snapshot_url=url) as streams:
        processed(streams, 300)
        assert streams.status().records == 300
    app.check(old + new)
    assert app.audit(app.counting()).ok


def test_history_that_kafka_no_longer_has_comes_from_the_archive(app: Backfilled) -> None:
    old, kept, new = inputs(2_000), inputs(500), inputs(100)
    app.send("in", old)
    assert app.archive() == 2_000
    app.send("in", kept[:200])
    assert app.archive() == 200
    assert app.archive() == 0
    app.forget(*app.sizes(old))
    app.send("in", kept[200:])
    done = app.backfill(history=app.history)
    assert (done.records, done.archived) == (2_500, 2_200)
    assert [done.offsets[at] for at in sorted(done.offsets)] == list(app.sizes(old + kept))
    assert app.backfill(history=app.history).records == 0
    app.send("in", new)
    with app.running(app.counting()) as streams:
        processed(streams, 100)
        assert streams.status().records == 100
    app.check(old + kept + new)


def test_what_cannot_end_well_does_not_begin(app: Backfilled) -> None:
    records = inputs(200)
    app.send("in", records)
    app.archive()
    app.send("in", records)
    app.forget(*(2 * size for size in app.sizes(records)))
    with pytest.raises(MilestonesError, match="are in neither"):
        app.backfill(history=app.history)
    with pytest.raises(MilestonesError, match="are in neither"):
        app.archive()
    with app.running(app.counting()), pytest.raises(MilestonesError, match="are running"):
        app.backfill(history=app.history)
    assert app.outputs() == []


# -- where history begins


def test_a_reset_policy_that_begins_at_the_end_skips_no_history(app: Backfilled) -> None:
    old, new = inputs(400), inputs(100)
    app.config = app.config.replace(auto_offset_reset="latest")
    app.send("in", old)
    assert app.backfill().records == 400
    app.send("in", new)
    with app.running(app.counting()) as streams:
        processed(streams, 100)
    app.check(old + new)


def test_a_topic_between_two_parts_of_the_application_is_read_from_its_beginning_too(app: Backfilled) -> None:
    app.create("mid")
    app.config = app.config.replace(auto_offset_reset="latest")
    builder = StreamsBuilder()
    builder.stream(app.topic("in"), key=serdes.STRING, value=serdes.STRING).to(app.topic("mid"))
    stream = builder.stream(app.topic("mid"), key=serdes.STRING, value=serdes.STRING)
    stream.group_by_key().count("counts").to_stream().to(app.topic("out"), value=serdes.LONG)
    records = inputs(400)
    app.send("in", records)
    assert app.backfill(builder.build()).records == 800
    app.check(records)


def test_history_that_is_gone_before_its_processing_ends_fails_the_run(
    app: Backfilled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention strikes once all was looked at, and before Spark reads."""
    module = importlib.import_module("milestones.pipeline.backfill.backfill")

    records = inputs(400)
    app.send("in", records)
    begin = module.run_on_spark

    def late(*arguments: Any, **options: Any) -> SparkRun:
        app.forget(*(size - 5 for size in app.sizes(records)))
        return begin(*arguments, **options)

    monkeypatch.setattr(module, "run_on_spark", late)
    with pytest.raises(MilestonesError, match="no longer has"):
        app.backfill()
    assert app.outputs() == []
    monkeypatch.undo()
    with pytest.raises(MilestonesError, match="is at 0, and Kafka begins at"):
        app.backfill()


def test_history_whose_beginning_nobody_has_is_processed_and_told(app: Backfilled) -> None:
    records = inputs(400)
    app.send("in", records)
    app.forget(10, 0)
    done = app.backfill()
    assert done.records == 390
    assert {at.partition: offset for at, offset in done.missing.items()} == {0: 10}


def test_an_input_without_an_archive_whose_beginning_is_gone_is_refused(app: Backfilled) -> None:
    app.send("in", [sent for sent in inputs(200) if sent.partition == 0])
    app.archive()
    app.send("in", inputs(200))
    app.forget(0, 10)
    with pytest.raises(MilestonesError, match=r"has no archive of .*-in-1"):
        app.backfill(history=app.history)
    assert app.outputs() == []


def test_a_live_instance_that_joins_and_leaves_meanwhile_ends_a_backfill_from_an_archive(app: Backfilled) -> None:
    records = inputs(400)
    app.send("in", records)
    app.archive()
    app.forget(*app.sizes(records))
    gate = app.directory / "gate"

    def held(value: str) -> str:
        while not gate.exists():
            threading.Event().wait(0.05)
        return value

    builder = StreamsBuilder()
    stream = builder.stream(app.topic("in"), key=serdes.STRING, value=serdes.STRING).map_values(held)
    stream.group_by_key().count("counts").to_stream().to(app.topic("out"), value=serdes.LONG)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(app.backfill, builder.build(), history=app.history)
        until(lambda: app.members() != [], "the backfill is in the group")
        with app.running(app.counting()):
            pass
        gate.touch()
        with pytest.raises(MilestonesError, match=r"joined while its history was processed \(.*StreamThread"):
            running.result(TIMEOUT_S)


def open_transaction(app: Backfilled, log: Partition) -> Producer:
    """A producer whose transaction has a record in a changelog that it makes."""
    app.probe.create({log.topic: 2}, {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": app.kafka, "transactional.id": named("open")})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(log.topic, b"1", b"key", partition=log.partition)
    producer.flush(TIMEOUT_S)
    return producer


def test_snapshots_are_made_once_kafka_has_told_changelogs_of_their_commits(app: Backfilled) -> None:
    """Kafka answers a commit, then tells the partitions of it: a snapshot made in between would lack their records."""
    from milestones.pipeline.backfill.decisions import until_decided

    log = Partition(f"{app.name}-counts-changelog", 0)
    producer = open_transaction(app, log)
    looks: list[bool] = []

    class Commits(SystemClock):
        def sleep_ms(self, ms: int) -> None:
            if not looks:
                producer.commit_transaction(TIMEOUT_S)
            looks.append(True)
            super().sleep_ms(ms)

    until_decided(app.cluster(), [log], 60_000, Commits())
    assert looks
    assert [row.value for row in app.probe.read(log.topic, stable=True)] == [b"1"]


def test_a_transaction_that_stays_open_holds_snapshots_up_as_long_as_transactions_may_last(
    app: Backfilled, caplog: pytest.LogCaptureFixture
) -> None:
    from milestones.pipeline.backfill.decisions import until_decided

    log = Partition(f"{app.name}-counts-changelog", 1)
    producer = open_transaction(app, log)

    class Hurries(SystemClock):
        def __init__(self) -> None:
            self.slept_ms = 0

        def monotonic_ms(self) -> int:
            return self.slept_ms

        def sleep_ms(self, ms: int) -> None:
            self.slept_ms += 100 * ms

    clock = Hurries()
    until_decided(app.cluster(), [log], app.config.transaction_timeout_ms, clock)
    producer.abort_transaction(TIMEOUT_S)
    assert clock.slept_ms > app.config.transaction_timeout_ms
    assert f"snapshots end where a transaction is open: {log}" in caplog.text
