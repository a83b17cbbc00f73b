"""An input topic that is deleted, or made anew, while it is archived: the archive ends with exit code 2 and names the
topic, and no file of it has records of two topics. On a real broker; a range is archived as a Spark task does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from milestones import StreamsBuilder, StreamsConfig, serdes
from milestones.common.errors import MilestonesError, SourceTopicError
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TopicPartition
from milestones.instance.application import Application
from milestones.pipeline import reading
from milestones.pipeline.backfill import archiving
from milestones.pipeline.backfill.archive import Archive, ArchiveError, OtherTopicError, Stored
from milestones.pipeline.backfill.archiving import ArchiveJob, add, archive_inputs, planned
from milestones.pipeline.driving.kafka import KafkaView
from milestones.testing import KafkaProbe, until
from tests.topics import named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka

FORMER = 12
COUNTS = {"fewer": 3, "some fewer": 9, "more": 20}
"""Records of each partition of the new topic, beside those that the former one had. Five were read when it comes."""
ONE_BY_ONE = {"fetch.message.max.bytes": 1, "queued.min.messages": 1, "queued.max.messages.kbytes": 1}
"""Settings by which a client has few records that it hasn't given out."""


class Archived:
    """An application whose input, of two partitions, is archived."""

    def __init__(self, kafka: str, folder: Path) -> None:
        self.id, self.probe, self.url = named("archive"), KafkaProbe(kafka), f"file://{folder}/history"
        self.topic, self.archive = f"{self.id}-in", Archive(self.url)
        self.places = [TopicPartition(self.topic, number) for number in range(2)]
        self.config = StreamsConfig(application_id=self.id, bootstrap_servers=kafka, state_dir=str(folder))
        builder = StreamsBuilder()
        builder.stream(self.topic, key=serdes.STRING, value=serdes.STRING).to(f"{self.id}-out")
        self.topology = builder.build()
        self.probe.create({self.topic: 2, f"{self.id}-out": 2})
        self.send("former", FORMER)

    def send(self, what: str, count: int) -> None:
        """Records, each in a batch of its own, to each partition."""
        for place in self.places:
            for number in range(count):
                self.probe.write(self.topic, f"{what}-{number}".ljust(2_000), partition=place.partition)

    def make_anew(self, count: int) -> None:
        self.probe.make_anew({self.topic: 2})
        self.send("new", count)

    def delete(self) -> None:
        for future in self.probe.admin.delete_topics([self.topic]).values():
            future.result(20)
        until(lambda: self.topic not in self.probe.topics(), "the broker has forgotten the topic")

    def jobs(self) -> list[ArchiveJob]:
        application = Application.of(self.topology, self.config)
        jobs = planned(application, self.archive, Cluster(self.config.admin_settings(self.id)), self.config)
        return [
            replace(job, range=replace(job.range, consumer={**job.range.consumer, **ONE_BY_ONE})) for job in jobs
        ]

    def refused(self, call: Callable[[], object], why: str = "deleted") -> None:
        """A call ends with an error that names the topic, and leaves no file that has records of another one."""
        with pytest.raises(MilestonesError, match=f"{self.topic}.*{why}") as raised:
            call()
        assert (raised.value.exit_code, isinstance(raised.value, SourceTopicError)) == (2, True), repr(raised.value)
        self.has_one_topic()

    def has_one_topic(self) -> None:
        assert len(self.archive.topic_ids([self.topic]).get(self.places[0], ())) <= 1
        for place in self.places:
            for records in self.archive.read(place, 0):
                assert all((record.value() or b"").startswith(b"former") for record in records)


@pytest.fixture
def app(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archived:
    monkeypatch.setattr(reading, "SILENCE_S", 1.0)
    return Archived(kafka, tmp_path)


def amid(monkeypatch: pytest.MonkeyPatch, at: int, happens: Callable[[], object]) -> None:
    """Have something happen while a range is read, before the record at this offset is written."""

    def read(
        settings: Mapping[str, Any], partition: TopicPartition, first: int, end: int
    ) -> Iterator[Sequence[Any]]:
        done = False
        for batch in reading.read(settings, partition, first, end):
            for message in batch:
                if message.offset() >= at and not done:
                    done = True
                    happens()
                yield [message]
        if not done:
            happens()

    monkeypatch.setattr(reading, "BATCH", 1)
    monkeypatch.setattr(archiving, "read", read)


@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_a_topic_made_anew_before_its_range_is_read_is_not_archived(app: Archived, count: int) -> None:
    job, _ = app.jobs()
    app.make_anew(count)
    app.refused(lambda: add(app.url, job), "made anew")
    assert app.archive.ranges([app.topic]) == {}


@pytest.mark.parametrize("at", [0, 5, FORMER], ids=["at its first record", "amid", "after its last record"])
@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_nor_is_one_that_is_made_anew_while_its_range_is_read(
    app: Archived, count: int, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = app.jobs()
    amid(monkeypatch, at, lambda: app.make_anew(count))
    app.refused(lambda: add(app.url, job), "made anew")
    assert app.archive.ranges([app.topic]) == {}


def test_of_a_topic_made_anew_between_two_ranges_the_archive_has_the_former_ones_only_and_is_refused_from_then_on(
    app: Archived
) -> None:
    one, other = app.jobs()
    assert add(app.url, one).records == FORMER
    app.make_anew(COUNTS["more"])
    app.refused(lambda: add(app.url, other), "made anew")
    assert app.archive.ranges([app.topic]) == {one.range.partition: (0, FORMER)}
    app.refused(app.jobs, "made anew")


@pytest.mark.parametrize("at", [0, 5, FORMER], ids=["at its first record", "amid", "after its last record"])
def test_a_topic_that_is_deleted_while_its_range_is_read_is_named(
    app: Archived, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = app.jobs()
    amid(monkeypatch, at, app.delete)
    app.refused(lambda: add(app.url, job), "deleted")
    assert app.archive.ranges([app.topic]) == {}


def test_a_topic_that_is_made_anew_while_the_archive_is_planned_is_not_archived_as_the_former_one(
    app: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_first(monkeypatch, "bounds", lambda: app.make_anew(COUNTS["more"]))
    job, _ = app.jobs()
    app.refused(lambda: add(app.url, job), "made anew")


def before_first(monkeypatch: pytest.MonkeyPatch, look: str, happens: Callable[[], object]) -> None:
    """Have something happen before a cluster is first asked this."""
    ask, waiting = getattr(Cluster, look), [happens]

    def asked(self: Cluster, *args: Any, **options: Any) -> Any:
        while waiting:
            waiting.pop()()
        return ask(self, *args, **options)

    monkeypatch.setattr(Cluster, look, asked)


def test_a_run_that_begins_with_an_archive_of_a_former_topic_ends_before_it_reads_anything(app: Archived) -> None:
    for job in app.jobs():
        add(app.url, job)
    run = KafkaView(app.config, Application.of(app.topology, app.config), "test", batch=True, history=app.url)
    run.prepare()
    app.make_anew(FORMER)
    app.refused(run.prepare, "made anew")
    run.close()


def test_a_file_that_is_not_finished_is_removed(app: Archived, tmp_path: Path) -> None:
    def rows() -> Iterable[Sequence[Stored]]:
        yield [(0, 1, b"k", b"v", None)]
        raise OtherTopicError("the topic was made anew")

    with pytest.raises(ArchiveError):
        app.archive.write(app.places[0], 0, 5, rows())
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.spark
def test_spark_hands_on_what_a_range_ends_with(
    app: Archived, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_each = archiving.run_each

    def made_anew_before(*args: Any) -> Any:
        app.make_anew(FORMER)
        return run_each(*args)

    monkeypatch.setattr(archiving, "run_each", made_anew_before)
    app.refused(lambda: archive_inputs(app.topology, spark, app.url, config=app.config), "made anew")
