"""A running application with global stores on a real broker: complete before any task, followed, kept, restored."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from milestones import (
    KafkaUnreachableError,
    ProcessingError,
    SourceTopicError,
    StateRestoreListener,
    Streams,
    StreamsBuilder,
    StreamsState,
    ThreadState,
    TopicPartition,
    TopologyError,
    UncaughtExceptionResponse,
    serdes,
)
from milestones.common.records import GLOBAL
from milestones.testing import until
from tests.milestones.app import WAIT_S, App

pytestmark = pytest.mark.kafka

BY_NIGHT = [pytest.param(stage, marks=pytest.mark.nightly) for stage in ("m1", "m2", "m3", "m4")]
STAGES = pytest.mark.parametrize("stage", ["baseline", *BY_NIGHT, "m5"])
TEXT = {"key": serdes.STRING, "value": serdes.STRING}


@pytest.fixture
def topics(app: App) -> App:
    """in, out, and rates, which has the rows a, b and c in four partitions."""
    app.create({"in": 2, "out": 1}).create({"rates": 4}, **{"cleanup.policy": "compact"})
    for row in "abc":
        app.write(row.upper(), to="rates", key=row)
    return app


def joining(app: App, **options: Any) -> StreamsBuilder:
    """in, joined with the row of rates that a record's value names -> out."""
    builder = StreamsBuilder()
    rates = builder.global_table(app["rates"], "rates", **{**TEXT, **options})
    joined = builder.stream(app["in"], **TEXT).left_join(rates, lambda row, rate: f"{row}{rate}", on=lambda _, row: row)
    joined.to(app["out"], **TEXT)
    return builder


def admin(app: App) -> AdminClient:
    return AdminClient({"bootstrap.servers": app.kafka})


def delete(app: App, name: str) -> None:
    """Delete a topic, and wait until Kafka has forgotten it."""
    client = admin(app)
    client.delete_topics([app[name]])[app[name]].result()
    until(lambda: app[name] not in app.probe.topics(), "the topic is gone", WAIT_S)


def values(app: App, count: int) -> list[str]:
    return [(record.value or b"").decode() for record in app.take("out", count)]


class Restored(StateRestoreListener):
    """What a listener is told, by partition: from, to, records."""

    def __init__(self) -> None:
        self.began: dict[TopicPartition, tuple[int, int]] = {}
        self.ended: dict[TopicPartition, int] = {}

    def on_restore_start(self, partition: TopicPartition, store: str, starting_offset: int, ending_offset: int) -> None:
        self.began[partition] = starting_offset, ending_offset

    def on_restore_end(self, partition: TopicPartition, store: str, total_restored: int) -> None:
        self.ended[partition] = total_restored


def restored_by(app: App, builder: StreamsBuilder, name: str = "one", **settings: Any) -> tuple[Streams, Restored]:
    """A started instance, and what its listener is told."""
    streams, listener = app.streams(builder, name, **settings), Restored()
    streams.set_global_state_restore_listener(listener)
    streams.start()
    return streams, listener


@STAGES
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_the_first_record_finds_all_rows_that_were_there_and_later_ones_what_came(
    topics: App, stage: str, guarantee: str
) -> None:
    topics.write("a", "b", "c", "d")
    with topics.running(joining(topics), milestones=stage, processing_guarantee=guarantee) as streams:
        assert values(topics, 4) == ["aA", "bB", "cC", "dNone"]
        topics.write("D", to="rates", key="d")
        topics.until(lambda: streams.status().lags.get(TopicPartition(topics["rates"], 0)) == 0, "it follows")
        topics.until(lambda: _joined(topics, "d") == "dD", "the new row is joined")
        name = next(name for name in streams.status().threads if name.endswith("-GlobalStreamThread"))
        assert streams.status().threads[name] is ThreadState.RUNNING
        assert streams.status().tasks[GLOBAL] == "global"
    assert streams.state is StreamsState.NOT_RUNNING
    assert streams.status().threads[name] is ThreadState.DEAD


def _joined(app: App, row: str) -> str:
    app.write(row)
    return values(app, 1)[0]


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_restart_continues_at_the_store_s_positions_a_store_in_memory_begins_anew(
    topics: App, in_memory: bool
) -> None:
    builder = joining(topics, in_memory=in_memory)
    with topics.running(builder):
        topics.write("a")
        assert values(topics, 1) == ["aA"]
    topics.write("B2", to="rates", key="b")
    streams, listener = restored_by(topics, builder)
    topics.write("b", "c")
    assert values(topics, 2) == ["bB2", "cC"]
    assert sum(listener.ended.values()) == (4 if in_memory else 1)
    assert len(listener.began) == len(listener.ended) == 4
    streams.close()


def test_every_instance_has_all_rows(topics: App) -> None:
    builder = joining(topics)
    one, two = topics.start(builder, "one"), topics.start(builder, "two")
    topics.until(lambda: all(len(each.status().tasks) == 2 for each in (one, two)), "a task each")
    topics.write("a", "b", "c", partition=0)
    topics.write("a", "b", "c", partition=1)
    assert sorted(values(topics, 6)) == ["aA", "aA", "bB", "bB", "cC", "cC"]


def test_a_topic_made_anew_is_read_from_its_beginning(topics: App) -> None:
    builder = joining(topics)
    with topics.running(builder):
        topics.write("a")
        assert values(topics, 1) == ["aA"]
    delete(topics, "rates")
    topics.create({"rates": 1}).write("other", to="rates", key="b")
    topics.start(builder)
    topics.write("a", "b")
    assert values(topics, 2) == ["aNone", "bother"]


def test_a_store_with_damaged_files_is_restored(topics: App, tmp_path: Path) -> None:
    builder = joining(topics)
    with topics.running(builder):
        topics.write("a")
        assert values(topics, 1) == ["aA"]
    files = tmp_path / "one" / topics.id / "global" / "rocksdb" / "rates"
    (files / "CURRENT").write_text("nonsense")
    _, listener = restored_by(topics, builder)
    topics.write("a", "b")
    assert values(topics, 2) == ["aA", "bB"]
    assert sum(listener.ended.values()) == 3
    assert (files.parent.parent / "corrupt" / "rates").exists()


def test_partitions_that_are_added_end_the_client_and_the_next_start_reads_them(topics: App) -> None:
    builder = joining(topics)
    streams = topics.start(builder)
    topics.runs(streams, tasks=2, threads=2)
    client = admin(topics)
    client.create_partitions([NewPartitions(topics["rates"], 5)])[topics["rates"]].result()
    assert streams.wait(WAIT_S)
    assert isinstance(streams.error, SourceTopicError)
    assert "of a global store had 4 partitions and has 5 now" in str(streams.error)
    topics.write("N", to="rates", key="new", partition=4)
    topics.start(builder, "one")
    topics.write("new", "a")
    assert values(topics, 2) == ["newN", "aA"]


def test_a_record_that_can_t_be_read_ends_the_client_and_names_itself(topics: App) -> None:
    topics.write(b"\xff\xfe", to="rates", key="poison", partition=0)
    streams = topics.start(joining(topics))
    assert streams.wait(WAIT_S)
    assert streams.state is StreamsState.ERROR
    assert isinstance(streams.error, ProcessingError)
    assert f"task global, node KSTREAM-SOURCE-0000000000, record {topics['rates']}-0@" in str(streams.error)
    assert "set deserialization_exception_handler" in str(streams.error)
    streams.close()
    topics.start(joining(topics), deserialization_exception_handler="log_and_continue")
    topics.write("poison", "a")
    assert values(topics, 2) == ["poisonNone", "aA"]


def test_the_user_s_handler_hears_of_the_global_thread_which_can_t_be_replaced(topics: App) -> None:
    told: list[BaseException] = []
    streams = topics.streams(joining(topics))

    def handler(error: BaseException) -> UncaughtExceptionResponse:
        told.append(error)
        streams.close()
        return UncaughtExceptionResponse.REPLACE_THREAD

    streams.set_uncaught_exception_handler(handler)
    streams.start()
    topics.runs(streams, tasks=2, threads=2)
    topics.write(b"\xff\xfe", to="rates", key="poison")
    assert streams.wait(WAIT_S)
    assert [type(error) for error in told] == [ProcessingError]


@pytest.mark.parametrize("stage", ["baseline", "m5"])
def test_an_error_of_the_global_thread_may_end_all_instances(topics: App, stage: str) -> None:
    builder, instances = joining(topics), []
    for name in ("one", "two"):
        streams = topics.streams(builder, name, milestones=stage)
        streams.set_uncaught_exception_handler(lambda _: UncaughtExceptionResponse.SHUTDOWN_APPLICATION)
        streams.start()
        instances.append(streams)
    topics.until(lambda: all(len(each.status().tasks) == 2 for each in instances), "a task each")
    topics.write(b"\xff\xfe", to="rates", key="poison")
    for streams in instances:
        assert streams.wait(WAIT_S)
        assert streams.state is StreamsState.ERROR


def test_a_client_may_be_closed_while_it_restores(topics: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    streams = topics.start(joining(topics))
    assert streams.close()
    assert streams.state is StreamsState.NOT_RUNNING


def test_a_missing_topic_is_named_at_the_start(app: App) -> None:
    app.create({"in": 1, "out": 1})
    with pytest.raises(SourceTopicError, match=f"global topics don't exist: {app['rates']}"):
        app.start(joining(app))


def test_an_unreachable_broker_is_an_error_of_the_start(app: App) -> None:
    app.kafka = "localhost:1"
    with pytest.raises(KafkaUnreachableError):
        app.start(joining(app), task_timeout_ms=1_000)


def test_a_topology_of_global_tables_alone_has_nothing_to_do(app: App) -> None:
    builder = StreamsBuilder()
    builder.global_table(app["rates"])
    with pytest.raises(TopologyError, match="nothing reads these stores: add a source"):
        app.streams(builder)
