"""An ordinary consumer whose group id is the application's: it takes no record away without a word."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError

from compat_tests.cases.flows import COUNT
from compat_tests.cases.test_input_topics import assert_says, running_count
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from milestones.testing import NotYet

FAILED = 1

pytestmark = pytest.mark.full

KINDS: dict[str, dict[str, str]] = {
    **{
        name: {"group.protocol": "classic", "partition.assignment.strategy": name}
        for name in ("range", "roundrobin", "cooperative-sticky")
    },
    "new protocol": {"group.protocol": "consumer"},
}
"""Settings of consumers. The broker assigns partitions to those of the new protocol (KIP-848)."""
REFUSALS = {KafkaError.INCONSISTENT_GROUP_PROTOCOL, KafkaError._FATAL}
"""Of a consumer of the old protocol, and of one of the new."""


class Foreigner:
    """A consumer of the input, in the application's group. Whoever holds it polls it."""

    def __init__(self, world: World, kind: str) -> None:
        self._consumer = Consumer({
            "bootstrap.servers": world.cluster.bootstrap_servers, "group.id": world.application_id,
            "client.id": "foreigner", "enable.auto.commit": False, **KINDS[kind],
        })  # fmt: skip
        self._consumer.subscribe([world.topic("in")])
        self._errors: set[int] = set()
        self.values: list[bytes | None] = []

    def poll(self) -> None:
        message = self._consumer.poll(0.1)
        if message is None:
            return
        if (error := message.error()) is not None:
            self._errors.add(error.code())
        else:
            self.values.append(message.value())

    def has_partitions(self) -> object:
        self.poll()
        return bool(self._consumer.assignment()) or NotYet(f"errors {self._errors}")

    def is_refused(self) -> object:
        self.poll()
        return bool(self._errors & REFUSALS) or NotYet(f"errors {self._errors}")

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_that_no_instance_is_stays_out_of_the_group_of_a_running_application(
    world: World, kind: str
) -> None:
    """Kafka refuses it; the application goes on, and counts every record."""
    running_count(world)
    generations = len(world.history().generations)
    with closing(Foreigner(world, kind)) as consumer:
        world.wait(consumer.is_refused, "Kafka refuses the consumer")
        world.feeds["in"].send(world.records(500, keys=100))
        world.processed()
        assert consumer.values == []
    assert len(world.history().generations) == generations
    end_and_judge(world, COUNT)


@pytest.mark.parametrize("kind", KINDS)
def test_an_application_whose_group_has_such_a_consumer_ends_and_says_so_and_loses_nothing(
    world: World, kind: str
) -> None:
    """Else it would run without tasks, or with some, and what the consumer is given would be nobody's."""
    feed = world.input("in", 4, out=2)
    feed.send(world.records(500, keys=100))
    app = world.instance("count")
    with closing(Foreigner(world, kind)) as consumer:
        world.wait(consumer.has_partitions, "the consumer has the group")
        app.start()
        app.dies(FAILED)
        told = "another program assigns its partitions" if kind == "new protocol" else "INCONSISTENT_GROUP_PROTOCOL"
        assert_says(app, world.application_id, told)
    feed.send(world.records(500, keys=100))
    app.start()
    end_and_judge(world, COUNT)
