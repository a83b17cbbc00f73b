"""The application's own topics: made whatever Kafka answers at first, watched as long as it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT_BY_VALUE
from compat_tests.cases.steps import proxy_of
from compat_tests.cases.test_input_topics import BAD_TOPIC, assert_says, running_count
from compat_tests.harness.instance import Instance
from compat_tests.harness.judge import judge
from compat_tests.harness.world import World, stop_all
from compat_tests.network.faults import Fault, Side
from compat_tests.network.frames import Api
from compat_tests.network.proxy import KafkaProxy
from milestones import Streams, StreamsBuilder, StreamsState, serdes
from milestones.common.errors import SourceTopicError
from milestones.common.kafka.embedded import EmbeddedKafka
from milestones.testing import KafkaProbe, NotYet, until

pytestmark = pytest.mark.full

PARTITIONS, STORES = 1_000, 11
"""More partitions than Kafka makes in one request."""
STARTED_S = 600.0
"""The broker takes half a minute to have so many partitions, and ten times as long on two slow cores that are busy."""
CHANGELOG = "app-counts-0-changelog"
LOST = re.compile("membership lost|unknown_member_id")
"""What a member logs that its group has given up."""
LATE_S = 40.0
"""Longer than a request of the leader may take, and than six sessions of the suite's applications."""


def group(world: World) -> list[Instance]:
    world.input("in", 4, out=3).send(world.records(500, keys=100, value=lambda n: f"g{n % 50}"))
    servers = proxy_of(world).bootstrap_servers
    return [world.instance("count-by-value", name, bootstrap_servers=servers) for name in ("one", "two")]


def finish(world: World, members: list[Instance]) -> None:
    world.processed([BY_VALUE_REPARTITION])
    world.group_is(*members)
    stop_all(members)
    for member in members:
        assert not LOST.search(member.log()), member.log_tail()
    judge(world, COUNT_BY_VALUE, repartitions=[BY_VALUE_REPARTITION])


@pytest.mark.broker_faults
@pytest.mark.parametrize(
    ("strike", "hits"),
    [
        (lambda proxy: proxy.lose(Api.CREATE_TOPICS, Side.REQUEST, times=3), 3),
        (lambda proxy: proxy.delay(LATE_S, Api.CREATE_TOPICS, times=1), 1),
    ],
    ids=["three lost requests", "a very late answer"],
)
def test_internal_topics_that_are_made_with_trouble_end_no_thread_and_cost_no_member_its_place(
    world: World, strike: Callable[[KafkaProxy], Fault], hits: int
) -> None:
    members = group(world)
    fault = strike(proxy_of(world))
    for member in members:
        member.start()
    fault.wait(hits, timeout_s=60)
    finish(world, members)


def test_a_changelog_that_is_deleted_under_a_running_application_stops_it_by_name(world: World) -> None:
    app = running_count(world)
    world.cluster.delete([world.topic("counts-changelog")])
    app.dies(BAD_TOPIC)
    assert_says(app, f"internal topic {world.topic('counts-changelog')} was deleted", "milestones reset")


@pytest.mark.parametrize("topic", ["counts-changelog", BY_VALUE_REPARTITION])
def test_an_internal_topic_that_is_deleted_while_it_is_written_to_stops_the_application_by_name(
    world: World, topic: str
) -> None:
    """Whatever the producer is told first: it can't know whether the topic was just made or is gone."""
    lines = world.input("in", 2, out=2)
    lines.send(world.records(500, keys=100, value=lambda n: f"g{n % 50}"))
    app = world.instance("count-by-value" if topic == BY_VALUE_REPARTITION else "count").start()
    world.processed([topic] if topic == BY_VALUE_REPARTITION else [])
    world.cluster.delete([world.topic(topic)])
    lines.send(world.records(500, keys=100, value=lambda n: f"g{n % 50}"))
    app.dies(BAD_TOPIC)
    assert_says(app, f"internal topic {world.topic(topic)} was deleted", "milestones reset")


# -- on brokers with settings of their own


def counting(stores: int) -> StreamsBuilder:
    builder = StreamsBuilder()
    lines = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
    for number in range(stores):
        lines.group_by_key().count(f"counts-{number}", in_memory=True)
    return builder


@contextmanager
def running(kafka: EmbeddedKafka, stage: str, state: Path, stores: int) -> Iterator[Streams]:
    settings: dict[str, Any] = {"milestones": stage, "commit_interval_ms": 500, "state_dir": str(state)}
    streams = Streams(
        counting(stores).build(), application_id="app", bootstrap_servers=kafka.bootstrap_servers, **settings
    )
    streams.start()
    try:
        yield streams
    finally:
        streams.close()


def write(producer: Producer) -> None:
    for number in range(1_000):
        producer.produce("in", b"value", f"k{number % 50}".encode())
    assert producer.flush(20) == 0


def await_state(streams: Streams, state: StreamsState, timeout_s: float) -> None:
    until(lambda: streams.state is state or NotYet(f"{streams.state}: {streams.error}"), f"it is {state}", timeout_s)


@pytest.mark.last_stage
@pytest.mark.timeout(2 * STARTED_S)
def test_an_application_with_more_internal_partitions_than_kafka_makes_at_once_starts(
    stage: str, tmp_path: Path
) -> None:
    with EmbeddedKafka(tmp_path / "kafka") as kafka:
        KafkaProbe(kafka.bootstrap_servers).create({"in": PARTITIONS})
        with running(kafka, stage, tmp_path / "state", STORES) as streams:
            await_state(streams, StreamsState.RUNNING, STARTED_S)


def test_a_changelog_that_a_broker_would_make_anew_by_itself_ends_the_application_before_its_state_is_lost(
    stage: str, tmp_path: Path
) -> None:
    with EmbeddedKafka(tmp_path / "kafka", properties={"auto.create.topics.enable": "true"}) as kafka:
        servers: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers}
        admin, producer = AdminClient(servers), Producer(servers)
        KafkaProbe(kafka.bootstrap_servers).create({"in": 1})
        with running(kafka, stage, tmp_path / "state", 1) as streams:
            await_state(streams, StreamsState.RUNNING, 60)
            write(producer)
            admin.delete_topics([CHANGELOG], operation_timeout=20)[CHANGELOG].result()
            write(producer)
            await_state(streams, StreamsState.ERROR, 60)
            assert isinstance(streams.error, SourceTopicError), streams.error
            assert re.search(f"internal topic {CHANGELOG} was deleted", str(streams.error))
        assert CHANGELOG not in admin.list_topics(timeout=10).topics, "no client of ours made it"
