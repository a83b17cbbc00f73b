"""Audits of applications on a real Kafka, by a real Spark: what is planted is found, and nothing else is."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from milestones import Streams, StreamsBuilder, StreamsConfig, StreamsState, Topology, serdes
from milestones.common.clock import SystemClock
from milestones.common.errors import MilestonesError
from milestones.common.kafka.topics import Cluster
from milestones.common.partitioner import partition_of
from milestones.common.records import TopicPartition as Partition
from milestones.testing import KafkaProbe, until
from tests.topics import commit, named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from milestones.pipeline.audit import AuditReport

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TIMEOUT_S = 60
NOW_MS = SystemClock().wall_ms()
PARTITIONS = 2
KEYS = 20


@dataclass(frozen=True)
class Sent:
    """A record with its place."""

    partition: int
    key: str
    value: bytes | None
    time: int


class App:
    """An application `in -> out`, and what there is of it in Kafka."""

    def __init__(self, kafka: str, directory: Path, spark: SparkSession) -> None:
        self.kafka, self.directory, self.spark = kafka, directory, spark
        self.name = named("audit")
        self.probe = KafkaProbe(kafka)
        self.create("in", "out")
        self.config = StreamsConfig(
            application_id=self.name, bootstrap_servers=kafka, processing_guarantee="exactly_once_v2",
            state_dir=str(directory / "state"), milestones="m1",
        )  # fmt: skip

    def topic(self, name: str) -> str:
        return f"{self.name}-{name}"

    def create(self, *names: str, **settings: str) -> None:
        self.probe.create({self.topic(name): PARTITIONS for name in names}, settings)

    def send(self, name: str, records: list[Sent]) -> None:
        producer = Producer({"bootstrap.servers": self.kafka, "linger.ms": 5})
        for sent in records:
            producer.produce(self.topic(name), sent.value, sent.key.encode(), sent.partition, timestamp=sent.time)
        assert producer.flush(TIMEOUT_S) == 0

    def commit(self, **ends: int) -> None:
        """What the group has committed of `in`, by partition as p0, p1."""
        consumer = Consumer({"bootstrap.servers": self.kafka, "group.id": self.name})
        positions = [TopicPartition(self.topic("in"), int(name[1:]), end) for name, end in ends.items()]
        commit(consumer, positions)
        consumer.close()

    def forget(self, *ends: int) -> None:
        """Retention: the input's partitions begin at these offsets now."""
        positions = [TopicPartition(self.topic("in"), number, end) for number, end in enumerate(ends)]
        for future in self.probe.admin.delete_records(positions).values():
            future.result(TIMEOUT_S)

    def audit(self, topology: Topology, **options: Any) -> AuditReport:
        from milestones.pipeline.audit import audit

        return audit(topology, self.spark, config=self.config, **options)

    def counting(self, *, upserts: bool = False) -> Topology:
        """The count per key, one output per record."""
        builder = StreamsBuilder()
        stream = builder.stream(self.topic("in"), key=serdes.STRING, value=serdes.STRING)
        counts = stream.group_by_key().count("counts").to_stream()
        counts.to(self.topic("out"), value=serdes.LONG, upserts=upserts)
        return builder.build()

    def words(self) -> Topology:
        """Words of lines, repartitioned, and counted."""
        builder = StreamsBuilder()
        (
            builder.stream(self.topic("in"), key=serdes.STRING, value=serdes.STRING)
            .flat_map_values(str.split)
            .group_by(lambda _, word: word, key=serdes.STRING)
            .count("counts")
            .to_stream()
            .to(self.topic("out"), value=serdes.LONG)
        )
        return builder.build()

    @contextmanager
    def running(self, topology: Topology, **settings: Any) -> Iterator[Streams]:
        streams = Streams(topology, self.config.replace(state_dir=str(self.directory / named("state")), **settings))
        streams.start()
        try:
            until(lambda: streams.state is StreamsState.RUNNING, "it runs")
            yield streams
        finally:
            assert streams.close(TIMEOUT_S)


@pytest.fixture
def app(kafka: str, tmp_path: Path, spark: SparkSession) -> App:
    return App(kafka, tmp_path, spark)


def inputs(count: int) -> list[Sent]:
    """Records of a few keys, each in its key's partition."""
    keys = [f"key-{number % KEYS}" for number in range(count)]
    return [Sent(partition_of(k.encode(), PARTITIONS), k, b"v", NOW_MS + number) for number, k in enumerate(keys)]


def counted(records: list[Sent]) -> list[Sent]:
    """What the count gives."""
    seen: Counter[str] = Counter()
    found = []
    for sent in records:
        seen[sent.key] += 1
        found.append(replace(sent, value=seen[sent.key].to_bytes(8, "big")))
    return found


def processed(streams: Streams, records: int) -> None:
    until(lambda: streams.status().records >= records, f"{records} records are processed")


# -- planted


Change = Callable[[list[Sent]], list[Sent]]


def planted(app: App, outputs: Change, changelog: Change) -> None:
    """A count of 400 records that went as `outputs` and `changelog` make it."""
    app.create("counts-changelog", **{"cleanup.policy": "compact"})
    records = inputs(400)
    right = counted(records)
    app.send("in", records)
    app.send("out", outputs(right))
    app.send("counts-changelog", changelog(right))
    app.commit(**{f"p{number}": sum(one.partition == number for one in records) for number in range(PARTITIONS)})


def same(records: list[Sent]) -> list[Sent]:
    return records


def lost(records: list[Sent]) -> list[Sent]:
    return records[:111] + records[112:]


def twice(records: list[Sent]) -> list[Sent]:
    return [*records[:112], records[111], *records[112:]]


def swapped(records: list[Sent]) -> list[Sent]:
    one = next(n for n in range(100, 200) if records[n].partition == records[n + 1].partition)
    return [*records[:one], records[one + 1], records[one], *records[one + 2 :]]


def wrong(records: list[Sent]) -> list[Sent]:
    return [*records[:111], replace(records[111], value=(99).to_bytes(8, "big")), *records[112:]]


def stray(records: list[Sent]) -> list[Sent]:
    return [*records, Sent(0, "nobody", (1).to_bytes(8, "big"), NOW_MS)]


def elsewhere(records: list[Sent]) -> list[Sent]:
    return [*records[:111], replace(records[111], partition=1 - records[111].partition), *records[112:]]


OUTPUTS: dict[str, Change] = {
    "lost": lost,
    "duplicate": twice,
    "reordered": swapped,
    "wrong": wrong,
    "unexpected": stray,
    "misplaced": elsewhere,
}


def test_where_nothing_is_wrong_nothing_is_found(app: App) -> None:
    planted(app, same, same)
    found = app.audit(app.counting())
    assert (found.ok, found.doubtful, found.records, found.live) == (True, 0, 400, False)
    assert [(one.expected, one.actual, one.counts) for one in found.topics] == [(400, 400, {})]
    assert [(one.name, one.expected, one.actual) for one in found.stores] == [("counts", KEYS, KEYS)]
    assert sum(count for _, count in found.topics[0].timeline) == 400


@pytest.mark.parametrize("problem", OUTPUTS)
def test_one_planted_problem_of_an_output_is_found_and_no_other(app: App, problem: str) -> None:
    from milestones.pipeline.audit import Problem

    planted(app, OUTPUTS[problem], same)
    found = app.audit(app.counting())
    (topic,) = found.topics
    assert dict(topic.counts) == {Problem(problem): 1}
    assert (found.wrong, found.stores[0].counts) == (1, {})
    (example,) = topic.examples
    assert example.problem is Problem(problem)
    assert example.where.startswith(f"{app.name}-out-")
    assert example.key in {*(f"'key-{number}'" for number in range(KEYS)), "'nobody'"}
    if problem in ("lost", "wrong"):
        assert example.source.startswith(f"{app.name}-in-")
        assert (example.expected, example.actual) == ("6", {"lost": "", "wrong": "99"}[problem])


def test_planted_problems_of_a_store_are_found(app: App) -> None:
    from milestones.pipeline.audit import Problem

    def broken(records: list[Sent]) -> list[Sent]:
        last = {sent.key: sent for sent in records}
        return [
            *records,
            replace(last["key-3"], value=(77).to_bytes(8, "big")),
            replace(last["key-4"], value=None),
            replace(last["key-5"], key="nobody"),
        ]

    planted(app, same, broken)
    found = app.audit(app.counting())
    (store,) = found.stores
    assert dict(store.counts) == {Problem.WRONG: 1, Problem.LOST: 1, Problem.UNEXPECTED: 1}
    assert (store.expected, store.actual, found.topics[0].counts) == (KEYS, KEYS, {})
    texts = {example.problem: (example.key, example.expected, example.actual) for example in store.examples}
    assert texts[Problem.WRONG][0] == "'key-3'"
    assert texts[Problem.WRONG][1].startswith("20 of ")
    assert texts[Problem.WRONG][2].startswith("77 of ")


def test_several_problems_at_once_are_told_apart(app: App) -> None:
    from milestones.pipeline.audit import Problem

    planted(app, lambda records: stray(swapped(twice(lost(records)))), same)
    (topic,) = app.audit(app.counting()).topics
    assert topic.counts[Problem.LOST] == topic.counts[Problem.UNEXPECTED] == topic.counts[Problem.DUPLICATE] == 1
    assert topic.counts[Problem.REORDERED] == 1


# -- what counts


def test_what_an_upsert_sink_need_not_send_is_doubtful_and_the_store_is_judged_all_the_same(app: App) -> None:
    """As at M5, where a commit has the last count of each key only."""

    def last_of_each_key(records: list[Sent]) -> list[Sent]:
        return list({sent.key: sent for sent in records}.values())

    planted(app, last_of_each_key, last_of_each_key)
    found = app.audit(app.counting(upserts=True))
    assert (found.wrong, found.doubtful) == (0, 400 - KEYS)
    assert any("upserts=True" in doubt for doubt in found.topics[0].doubts)
    assert (found.stores[0].counts, found.stores[0].doubts) == ({}, [])
    assert app.audit(app.counting()).wrong == 400 - KEYS


def test_input_that_is_not_committed_yet_and_aborted_outputs_do_not_count(app: App) -> None:
    app.create("counts-changelog", **{"cleanup.policy": "compact"})
    records = inputs(100)
    app.send("in", records)
    first = [sum(one.partition == number for one in records) // 2 for number in range(PARTITIONS)]
    seen: Counter[int] = Counter()
    done = []
    for sent, out in zip(records, counted(records), strict=True):
        seen[sent.partition] += 1
        if seen[sent.partition] <= first[sent.partition]:
            done.append(out)
    app.send("out", done)
    app.send("counts-changelog", done)
    out = app.topic("out")
    app.probe.write(out, b"aborted", key=b"key-1", partition=0, transactional_id=app.name, commit=False)
    app.commit(p0=first[0], p1=first[1])
    found = app.audit(app.counting())
    assert (found.ok, found.records, found.topics[0].actual) == (True, sum(first), sum(first))


def test_history_that_is_gone_is_an_error_that_says_what_to_do(app: App) -> None:
    planted(app, same, same)
    app.forget(10)
    with pytest.raises(MilestonesError, match=r"begins at offset 10 now.*--begin"):
        app.audit(app.counting())


def test_an_application_that_began_later_is_audited_from_there(app: App) -> None:
    app.create("counts-changelog", **{"cleanup.policy": "compact"})
    records = inputs(100)
    late = [sent for sent in records if sent.partition == 1]
    early = [sent for sent in records if sent.partition == 0]
    app.send("in", [replace(sent, key="before") for sent in early[:10]] + records)
    app.send("out", counted(early) + counted(late))
    app.send("counts-changelog", counted(early) + counted(late))
    app.commit(p0=10 + len(early), p1=len(late))
    assert not app.audit(app.counting()).ok
    assert app.audit(app.counting(), begin={Partition(app.topic("in"), 0): 10}).ok


def test_a_group_that_committed_nothing_has_nothing_to_audit(app: App) -> None:
    app.create("counts-changelog")
    with pytest.raises(MilestonesError, match="has committed nothing"):
        app.audit(app.counting())


# -- real instances


def test_a_real_application_has_no_problems_at_rest_nor_while_it_runs(app: App) -> None:
    app.send("in", inputs(3_000))
    with app.running(app.counting(), commit_interval_ms=50) as streams:
        processed(streams, 3_000)
        stop, sent = threading.Event(), [3_000]

        def feed() -> None:
            while not stop.wait(0.02):
                app.send("in", inputs(100))
                sent[0] += 100

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            live = app.audit(app.counting())
        finally:
            stop.set()
            feeder.join()
        processed(streams, sent[0])
    assert (live.wrong, live.doubtful) == (0, 0), live
    assert 3_000 <= live.records < sent[0]
    rest = app.audit(app.counting())
    assert (rest.wrong, rest.doubtful, rest.records, rest.live) == (0, 0, sent[0], False), rest


def lines(count: int) -> list[Sent]:
    words = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "and", "the", "cat"]
    text = [" ".join(words[(number * 7 + k) % len(words)] for k in range(4)) for number in range(count)]
    return [Sent(number % PARTITIONS, "line", each.encode(), NOW_MS + number) for number, each in enumerate(text)]


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_changelog_of_the_last_value_of_each_key_and_commit_is_as_right_as_one_of_all(
    app: App, guarantee: str
) -> None:
    app.config = app.config.replace(
        milestones="m5", statestore_cache_max_bytes=1_000_000, processing_guarantee=guarantee
    )
    with app.running(app.counting(), commit_interval_ms=50) as streams:
        for round_ in range(3):
            app.send("in", inputs(400))
            processed(streams, 400 * (round_ + 1))
    changelog = app.probe.read(app.topic("counts-changelog"))
    assert len(changelog) < 1_200, "a commit has several records of a key"
    found = app.audit(app.counting())
    assert (found.ok, found.doubtful, found.records, found.live) == (True, 0, 1_200, False)
    assert [(one.expected, one.actual, one.counts) for one in found.topics] == [(1_200, 1_200, {})]
    assert [(one.name, one.expected, one.actual) for one in found.stores] == [("counts", KEYS, KEYS)]
    assert any("told as lost" in note for note in found.notes)


def test_behind_a_cache_lost_outputs_are_doubtful_only_at_a_stage_that_leaves_out_some(app: App) -> None:
    planted(app, lost, same)
    verdicts = {}
    for stage in ("m4", "m5"):
        app.config = app.config.replace(milestones=stage, statestore_cache_max_bytes=1_000_000)
        verdicts[stage] = app.audit(app.counting())
    assert (verdicts["m4"].wrong, verdicts["m4"].doubtful) == (0, 1)
    assert (verdicts["m5"].wrong, verdicts["m5"].doubtful) == (1, 0)


@pytest.mark.parametrize("purged", [False, True])
def test_a_repartition_topic_is_audited_where_it_is_whole_and_computed_where_it_was_purged(
    app: App, purged: bool
) -> None:
    app.send("in", lines(500))
    repartition = app.topic("counts-repartition")
    interval_ms = 100 if purged else 600_000
    with app.running(app.words(), commit_interval_ms=50, repartition_purge_interval_ms=interval_ms) as streams:
        processed(streams, 2_500)
        if purged:
            cluster, partitions = Cluster({"bootstrap.servers": app.kafka}), app.probe.places([repartition])
            until(lambda: all(first for first, _ in cluster.bounds(partitions, committed=True).values()), "a purge")
    found = app.audit(app.words())
    assert found.wrong == 0, found
    assert found.stores[0].expected == found.stores[0].actual == 10
    names = {one.name: one for one in found.topics}
    assert names[app.topic("out")].expected == 2_000
    if purged:
        assert repartition not in names
        assert any("purged" in doubt for doubt in names[app.topic("out")].doubts)
    else:
        assert names[repartition].expected == 2_000
        assert (found.doubtful, names[app.topic("out")].doubts) == (0, [])
