"""How outputs get to Kafka's client: many by one call, each once and in order, whatever the client refuses of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milestones.common.config import StreamsConfig
from milestones.common.errors import ProductionError
from milestones.common.kafka import outputs as handing_over
from milestones.common.kafka.admin import OwnAdmin
from milestones.common.kafka.outputs import AT_ONCE
from milestones.common.kafka.producer import OutputProducer
from milestones.common.kafka.topics import Cluster
from milestones.common.records import VALUE, Emitted, TaskId, TopicPartition, output_of
from milestones.common.testing import StepClock
from milestones.common.testing.kafka import KafkaProbe
from tests.outputs import emitted
from tests.topics import new_topic

TASK, TIMEOUT_MS, NOWHERE = TaskId(0, 0), 20_000, "127.0.0.1:1"

PLACES = [0, 1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 2 * AT_ONCE, 2 * AT_ONCE + 499]
"""The first and last output of a call, those around the edges of chunks, and one in between."""

MANY = 2 * AT_ONCE + 500


class Failing:
    """Kafka's client, which raises an error the first `times` times that it is given the output with this value."""

    def __init__(self, client: Any, value: bytes, error: Exception, times: int = 1) -> None:
        self._client, self._value, self._error, self._times = client, value, error, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __len__(self) -> int:
        return len(self._client)

    def produce(self, topic: str, value: Any, *others: Any) -> None:
        if value == self._value and self._times:
            self._times -= 1
            raise self._error
        self._client.produce(topic, value, *others)


Make = Callable[..., OutputProducer]


@pytest.fixture(params=[False, True], ids=["at least once", "exactly once"])
def made(request: pytest.FixtureRequest, kafka: str) -> Iterator[Make]:
    """Makes producers of a guarantee, which are closed at the end."""
    with ExitStack() as closing:

        def make(topic: str) -> OutputProducer:
            config = StreamsConfig(application_id="app", bootstrap_servers=kafka, variables={})
            ours = topic if request.param else None
            admin = OwnAdmin(lambda: Cluster(config.admin_settings("test")))
            producer = OutputProducer(config.producer_settings("test", ours), admin=admin)
            closing.callback(producer.close)
            if request.param:
                producer.init_transactions(TIMEOUT_MS)
            return producer

        yield make


def numbered(topic: str, count: int = MANY) -> list[Emitted]:
    return [emitted(topic, b"%d" % number, node=f"node {number}") for number in range(count)]


def written(kafka: str, producer: OutputProducer, topic: str) -> list[bytes | None]:
    """What is in the topic, once the producer has committed all that it was given."""
    producer.flush(TIMEOUT_MS)
    if producer.transactional:
        producer.commit(TIMEOUT_MS)
    return [record.value for record in KafkaProbe(kafka).read(topic)]


def values(outputs: Sequence[Emitted]) -> list[bytes | None]:
    return [output[VALUE] for output in outputs]


@pytest.mark.kafka
def test_many_outputs_are_written_once_and_in_order_and_their_changelogs_end_is_known(made: Make, kafka: str) -> None:
    topic = new_topic(kafka)
    producer, outputs = made(topic), numbered(topic)
    assert producer.send(TASK, outputs, [topic]) == ()
    assert written(kafka, producer, topic) == values(outputs)
    assert producer.acknowledged == {TopicPartition(topic, 0): MANY}


def without_room(made: Make, kafka: str, place: int, times: int) -> tuple[str, OutputProducer, list[Emitted]]:
    """A topic, outputs for it, and a producer that has no room for one of them, this number of times."""
    topic = new_topic(kafka)
    producer, outputs = made(topic), numbered(topic)
    producer._producer = Failing(producer._producer, b"%d" % place, BufferError("Local: Queue full"), times=times)  # type: ignore[assignment]
    return topic, producer, outputs


@pytest.mark.kafka
@pytest.mark.parametrize("place", PLACES)
def test_an_output_that_finds_no_room_is_sent_when_there_is_some_and_all_others_once(
    made: Make, kafka: str, place: int
) -> None:
    topic, producer, outputs = without_room(made, kafka, place, times=3)
    assert producer.send(TASK, outputs, [topic], wait_ms=TIMEOUT_MS) == ()
    assert written(kafka, producer, topic) == values(outputs)
    assert producer.acknowledged == {TopicPartition(topic, 0): MANY}


@pytest.mark.kafka
@pytest.mark.parametrize("place", PLACES)
def test_what_finds_no_room_comes_back_as_it_was_and_is_sent_once_by_the_next_call(
    made: Make, kafka: str, place: int
) -> None:
    topic, producer, outputs = without_room(made, kafka, place, times=2)
    left = producer.send(TASK, outputs, [topic])
    assert left == numbered(topic)[place:]
    assert producer.send(TASK, left, [topic]) == ()
    assert written(kafka, producer, topic) == values(outputs)
    assert producer.acknowledged == {TopicPartition(topic, 0): MANY}


@pytest.mark.kafka
@pytest.mark.parametrize("place", PLACES)
def test_an_output_too_large_for_the_client_is_refused_once_with_its_node_and_all_others_are_sent(
    made: Make, kafka: str, place: int
) -> None:
    topic = new_topic(kafka)
    producer, outputs = made(topic), numbered(topic)
    outputs[place] = large = emitted(topic, b"v" * 2_000_000, node="the sink")
    assert producer.send(TASK, outputs) == ()
    assert [(one.task, one.output, one.sent) for one in producer.refused] == [(TASK, output_of(large), False)]
    assert written(kafka, producer, topic) == values([*outputs[:place], *outputs[place + 1 :]])


@pytest.mark.kafka
@pytest.mark.parametrize("place", PLACES)
def test_an_output_that_the_client_cannot_take_ends_the_call_with_its_node_and_those_before_it_are_sent_once(
    made: Make, kafka: str, place: int
) -> None:
    topic = new_topic(kafka)
    producer, outputs = made(topic), numbered(topic)
    outputs[place] = emitted(topic, 5.5, node="the sink")  # type: ignore[arg-type]
    with pytest.raises(ProductionError, match=r"task 0_0: Kafka's client can't take .*of the sink, with"):
        producer.send(TASK, outputs, [topic])
    assert producer.refused == []
    assert written(kafka, producer, topic) == values(outputs[:place])


@pytest.mark.kafka
@pytest.mark.parametrize("place", PLACES)
def test_an_error_of_the_client_itself_ends_the_call_and_those_before_it_are_sent_once(
    made: Make, kafka: str, place: int
) -> None:
    topic, error = new_topic(kafka), KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))
    producer, outputs = made(topic), numbered(topic)
    producer._producer = Failing(producer._producer, b"%d" % place, error, times=2)  # type: ignore[assignment]
    with pytest.raises(KafkaException) as caught:
        producer.send(TASK, outputs, [topic])
    assert caught.value is error
    assert producer.refused == []
    assert written(kafka, producer, topic) == values(outputs[:place])


class Queue:
    """A client that takes what it is given until it is full. It never takes values of `large`, and finds no room for
    those of `late` at first."""

    def __init__(self, room: int, large: set[bytes], late: set[bytes]) -> None:
        self.room, self.waiting, self.taken = room, 0, list[tuple[bytes, Any]]()
        self._large, self._late = large, late

    def __len__(self) -> int:
        return self.waiting

    def produce(self, topic: str, value: bytes, key: Any, partition: Any, report: Any, *_: Any) -> None:
        if value in self._large:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if self.waiting >= self.room or value in self._late:
            self._late.discard(value)
            raise BufferError("Local: Queue full")
        self.waiting += 1
        self.taken.append((value, report))

    def poll(self, timeout: float) -> int:
        self.waiting = 0
        return 0


SOME = st.sets(st.sampled_from([b"%d" % number for number in range(14)]))


@pytest.mark.parametrize("transactional", [False, True])
def test_each_output_is_taken_once_in_order_or_refused_or_comes_back_with_all_behind_it(
    transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing_over, "AT_ONCE", 4)
    ours = {"transactional.id": "ours"} if transactional else {}
    clock = StepClock()
    producer = OutputProducer({"bootstrap.servers": NOWHERE, "log_level": 0, **ours}, clock)
    monkeypatch.setattr(producer, "begin", lambda: None)

    @settings(deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 14), st.integers(1, 6), st.sampled_from([0, 1_000]), SOME, SOME, SOME)
    def check(count: int, room: int, wait_ms: int, large: set[bytes], late: set[bytes], logged: set[bytes]) -> None:
        outputs = [emitted("log" if value in logged else "out", value) for value in [b"%d" % at for at in range(count)]]
        queue = Queue(room, large, set(late))
        producer._producer, producer.refused = queue, []  # type: ignore[assignment]
        left: Sequence[Emitted] = outputs
        for _ in range(2 * count + 1):
            before, left = left, producer.send(TASK, left, ["log"], wait_ms=wait_ms)
            assert list(left) == list(before[len(before) - len(left) :]), "what comes back is as it was"
            queue.poll(0)
        assert left == ()
        refused = [one.output.value for one in producer.refused]
        assert refused == [value for value in values(outputs) if value in large]
        assert [value for value, _ in queue.taken] == [value for value in values(outputs) if value not in large]
        if not transactional:
            assert all(report is not None for _, report in queue.taken), "each has a report"
        elif (logs := [value for value in values(outputs) if value in logged]) and logs[-1] not in large:
            assert dict(queue.taken)[logs[-1] or b""] is not None, "the last one of a changelog has a report"

    check()
    producer._producer = Producer({"bootstrap.servers": NOWHERE, "log_level": 0})


@pytest.mark.parametrize("report", [None, lambda *_: None])
def test_the_client_ignores_the_node_in_the_place_of_its_second_name_for_a_report(report: Any) -> None:
    """`Producer.produce` has two arguments for a delivery report. If the first is given, even None, the second one is
    never called: a text there would raise an error with the report."""
    client = Producer({"bootstrap.servers": NOWHERE, "message.timeout.ms": 1, "linger.ms": 0, "log_level": 0})
    client.produce("topic", b"v", b"k", 0, report, "node", 5, None)  # type: ignore[arg-type]
    assert client.flush(20) == 0
