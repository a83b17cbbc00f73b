"""The clients of one thread: made together or not at all, closed together."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from milestones.baseline.committing import Transaction
from milestones.common.errors import KafkaUnreachableError, MilestonesError, SecurityError
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.steps import to_the_end
from milestones.shared_parts.clients import ThreadClients
from milestones.shared_parts.offset_commit import OffsetCommit
from tests.milestones.fakes import TIMED_OUT, FakeConsumer, FakeMember, FakeProducer, World, kafka_error


class Making:
    """A client factory: what it has made, in order; `producer_errors` are raised by `init_transactions`,
    `construction_error` instead of making a producer."""

    def __init__(self, **settings: Any) -> None:
        self.world = World(settings=settings)
        self.consumers: list[FakeConsumer] = []
        self.producers: list[FakeProducer] = []
        self.members: list[FakeMember] = []
        self.producer_errors: list[Exception] = []
        self.construction_error: Exception | None = None
        self.closed: list[str] = []
        self.member_error: Exception | None = None

    def consumer(self) -> FakeConsumer:
        self.consumers.append(FakeConsumer(self.world.logs))
        return self.consumers[-1]

    def restore_consumer(self) -> FakeConsumer:
        return self.consumer()

    def producer(self, *, isolation: BatchIsolation | None = None) -> FakeProducer:
        if self.construction_error is not None:
            raise self.construction_error
        made = FakeProducer(transactional=self.world.config.exactly_once)
        made.init_transactions = self.init  # type: ignore[attr-defined]
        self.producers.append(made)
        return made

    def init(self, timeout_ms: int) -> None:
        self.world.clock.advance(100)
        if self.producer_errors:
            raise self.producer_errors.pop(0)

    def member(self, tell: Any) -> FakeMember:
        if self.member_error is not None:
            raise self.member_error
        self.members.append(FakeMember())
        return self.members[-1]

    def make(self) -> ThreadClients:
        factory: Any = self
        return ThreadClients(self.world.context, factory)

    @property
    def all_closed(self) -> bool:
        return all(client.closed for client in [*self.consumers, *self.producers])


def test_a_transactional_producer_is_initialised_before_anything_is_sent() -> None:
    making = Making()
    making.producer_errors = [TIMED_OUT]
    assert making.make().producer is making.producers[0]
    assert making.producer_errors == []


def test_at_least_once_needs_no_transactional_id() -> None:
    making = Making(processing_guarantee="at_least_once")
    making.producer_errors = [TIMED_OUT]
    assert not making.make().producer.transactional
    assert making.producer_errors == [TIMED_OUT]


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (KafkaError._TIMED_OUT, KafkaUnreachableError, "transactional id app-tx can't be initialised"),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, SecurityError, "id app-tx.*grant it WRITE"),
    ],
    ids=["late", "forbidden"],
)
def test_a_producer_that_cannot_be_initialised_is_an_error_and_no_client_is_left(
    code: int, kind: type[MilestonesError], text: str
) -> None:
    making = Making(task_timeout_ms=1_000)
    late = code == KafkaError._TIMED_OUT
    making.producer_errors = [kafka_error(code, retriable=late, fatal=not late)] * 100
    with pytest.raises(kind, match=text) as raised:
        making.make()
    assert raised.value.exit_code == (3 if late else 2)
    assert making.all_closed
    assert making.world.clock.monotonic_ms() <= 1_100


def test_a_member_that_cannot_be_made_leaves_no_client() -> None:
    making = Making()
    making.member_error = ValueError("group_id")
    with pytest.raises(ValueError, match="group_id"):
        making.make()
    assert making.all_closed


def test_a_renewed_producer_replaces_the_one_before_which_is_closed() -> None:
    making = Making()
    made = making.make()
    to_the_end(made.renew_producer())
    first, second = making.producers
    assert (first.closed, second.closed, made.producer) == (True, False, second)


NO_THREADS = kafka_error(KafkaError._CRIT_SYS_RESOURCE)


@pytest.mark.parametrize("disconnected", [True, False])
def test_a_commit_that_was_made_stays_made_when_no_other_producer_can_be_made(
    disconnected: bool, caplog: pytest.LogCaptureFixture
) -> None:
    making = Making()
    made, world = making.make(), making.world
    (first,) = making.producers
    first.disconnected, first.isolation = disconnected, None if disconnected else BatchIsolation()
    making.construction_error = NO_THREADS
    offsets = {TopicPartition("in", 0): OffsetAndMetadata(1)}
    transaction = Transaction(world.context, made, lambda stage: None)
    to_the_end(transaction.hand_over(offsets))
    to_the_end(transaction.end(offsets))
    assert first.committed == offsets
    assert "no new producer can be made" in caplog.text
    assert first.closed, "it makes no other transaction"


def test_without_transactions_a_producer_that_cannot_be_replaced_is_used_on() -> None:
    making = Making(processing_guarantee="at_least_once")
    made, world = making.make(), making.world
    (first,) = making.producers
    first.isolation = BatchIsolation()
    making.construction_error = NO_THREADS
    to_the_end(OffsetCommit(world.context, made).end({}))
    assert (made.producer, first.closed) == (first, False)


@pytest.mark.parametrize("leave", [True, False])
def test_all_clients_are_closed_the_producer_before_the_group_is_left(
    leave: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    making = Making()
    made = making.make()
    order: list[str] = []
    monkeypatch.setattr(making.producers[0], "close", lambda: order.append("producer"))
    monkeypatch.setattr(making.members[0], "close", lambda leave: order.append(f"member, leaves: {leave}"))
    made.close(leave_group=leave)
    assert order == ["producer", f"member, leaves: {leave}"]
    assert all(consumer.closed for consumer in making.consumers)


def test_a_client_that_does_not_close_cleanly_keeps_no_other_open(caplog: pytest.LogCaptureFixture) -> None:
    making = Making()
    made = making.make()
    making.producers[0].fail("close", RuntimeError("already closed"))
    made.close(leave_group=True)
    assert making.members[0].closed is True
    assert all(consumer.closed for consumer in making.consumers)
    assert "didn't close cleanly" in caplog.text
