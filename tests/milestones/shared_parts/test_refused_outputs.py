"""Outputs that weren't taken: what the production exception handler is asked, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError

from milestones.baseline.collection import ROOM_MS, DirectCollection
from milestones.common.errors import (
    ProcessingError,
    ProductionError,
    RefusedTogetherError,
    TaskCorruptedError,
    TimeoutExceededError,
)
from milestones.common.kafka.batch_isolation import BatchIsolation, suspects
from milestones.common.kafka.membership import CommitRetriableError
from milestones.common.kafka.refusals import Refused
from milestones.common.records import Emitted, Headers, Output, TaskId, emitted_of, output_of
from milestones.common.steps import to_the_end
from milestones.common.topology.handlers import Action, ErrorContext, Response, send_to_dead_letter_topic
from milestones.m2_processing_threads.collection import BufferedCollection
from milestones.shared_parts.refused_outputs import describe
from tests.milestones.fakes import CHANGELOG, A, FakeProducer, World

GUARANTEES = pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])


class Refusing(FakeProducer):
    """Refuses at once what is longer than `longest`, and what goes to a topic of `refusals`."""

    def __init__(self, *, transactional: bool = True) -> None:
        super().__init__(transactional=transactional)
        self.longest = 100
        self.refusals: dict[str, int] = {}

    def send(
        self, task: TaskId, outputs: Sequence[Emitted], changelogs: Collection[str] = (), **how: Any
    ) -> Sequence[Emitted]:
        for index, output in enumerate(map(output_of, outputs)):
            code = self.refusals.get(output.topic)
            if code is None and len(output.value or b"") > self.longest:
                code = KafkaError.MSG_SIZE_TOO_LARGE
            if code is None:
                if super().send(task, outputs[index : index + 1], changelogs, wait_ms=how.get("wait_ms", 0)):
                    return outputs[index:]
            else:
                self.refused.append(Refused(task, KafkaError(code), output, how.get("dead_letters", False)))
        return ()

    def topics(self) -> list[str]:
        return [output.topic for _, output in self.sent]


class Handler:
    """Notes what it is asked; says `action`."""

    def __init__(self, action: Action, *letters: Output) -> None:
        self.response = Response(action, letters)
        self.asked: list[tuple[ErrorContext, Exception]] = []

    def __call__(self, context: ErrorContext, error: Exception) -> Response:
        self.asked.append((context, error))
        return self.response


def output(topic: str = "out", value: bytes = b"v", node: str = "sink") -> Output:
    return Output(topic, 0, b"k", value, 5, [("h", b"1")], node)


BIG = output(value=b"x" * 101)
LETTER = output("letters")


class Task:
    """As much of a task as collecting needs."""

    def __init__(self, *outputs: Output) -> None:
        self.id, self.outputs, self.changelog_topics = A, list(outputs), frozenset({CHANGELOG})
        self.committable, self.cached = True, False

    def take_outputs(self) -> list[Emitted]:
        taken, self.outputs = self.outputs, []
        return [*map(emitted_of, taken)]

    def put_back(self, outputs: Sequence[Emitted]) -> None:
        self.outputs = [*map(output_of, outputs), *self.outputs]


def made(
    handler: Any, guarantee: str = "at_least_once", parts: Any = DirectCollection, **settings: Any
) -> tuple[World, Refusing, Any]:
    """A collection of a producer that refuses outputs, and what surrounds it."""
    world = World(settings={"production_exception_handler": handler, "processing_guarantee": guarantee, **settings})
    producer = world.clients.producer = Refusing(transactional=world.config.exactly_once)
    producer.clock = world.clock
    return world, producer, parts(world.context, world.clients)


def collected(
    handler: Any, *outputs: Output, guarantee: str = "at_least_once", **refusals: int
) -> tuple[Refusing, DirectCollection]:
    """What a producer got of these outputs, flushed."""
    _, producer, collection = made(handler, guarantee)
    producer.refusals.update(refusals)
    collection.collect([Task(*outputs)])
    to_the_end(collection.flush())
    return producer, collection


@GUARANTEES
def test_an_output_that_a_handler_skips_takes_no_other_with_it(guarantee: str) -> None:
    handler = Handler(Action.CONTINUE)
    producer, collection = collected(handler, output(), BIG, output("other"), guarantee=guarantee)
    assert producer.topics() == ["out", "other"]
    assert collection.dropped == {A: 1}


def test_a_handler_is_told_the_task_the_node_and_the_whole_output() -> None:
    handler = Handler(Action.CONTINUE)
    collected(handler, BIG)
    ((context, error),) = handler.asked
    assert (context.task_id, context.processor_node_id, context.output) == (A, "sink", BIG)
    assert (context.topic, context.partition, context.offset, context.timestamp) == (None, -1, -1, 5)
    assert (context.headers, context.retriable) == ([("h", b"1")], False)
    assert isinstance(error, ProductionError)
    assert "out-0" in str(error)
    assert "101 bytes" in str(error)


def test_the_node_of_an_output_that_kafka_refused_is_found_by_its_topic() -> None:
    handler = Handler(Action.CONTINUE)
    collected(handler, output(node="", value=b"x" * 101))
    assert handler.asked[0][0].processor_node_id == "sink"


def test_a_handler_that_fails_ends_the_thread_with_what_to_do() -> None:
    with pytest.raises(ProductionError, match=r"task 0_0: Kafka refused a record .* set production_exception_handler"):
        collected(Handler(Action.FAIL), BIG)


def test_a_handler_that_raises_is_named() -> None:
    with pytest.raises(ProcessingError, match=r"production_exception_handler itself failed .*no idea"):
        collected(Mock(side_effect=ValueError("no idea")), BIG)


@GUARANTEES
def test_dead_letters_of_a_refused_output_are_sent(guarantee: str) -> None:
    producer, _ = collected(Handler(Action.CONTINUE, LETTER), BIG, guarantee=guarantee)
    assert producer.topics() == ["letters"]
    assert producer.calls.count("flush") == 1


def test_no_dead_letter_is_sent_when_the_handler_fails() -> None:
    _, producer, collection = made(Handler(Action.FAIL, LETTER))
    with pytest.raises(ProductionError):
        collection.collect([Task(BIG)])
    assert producer.topics() == []


# -- no room for dead letters


def full(guarantee: str, **settings: Any) -> tuple[World, Refusing, Any]:
    """A client that refuses what is too large, takes nothing else, and a handler that writes a letter for each."""
    world, producer, collection = made(Handler(Action.CONTINUE, LETTER), guarantee, **settings)
    producer.room = 0
    return world, producer, collection


@GUARANTEES
def test_a_dead_letter_that_finds_no_room_waits_and_nothing_is_sent_before_it(guarantee: str) -> None:
    world, producer, collection = full(guarantee)
    collection.collect([Task(BIG)])
    began = world.clock.monotonic_ms()
    collection.collect([late := Task(output("later"))])
    assert world.clock.monotonic_ms() - began <= ROOM_MS, "the thread answers its group meanwhile"
    assert (collection.client_queue_full, producer.sent, late.outputs) == (True, [], [output("later")])
    producer.room = None
    collection.collect([late])
    assert (collection.client_queue_full, producer.topics()) == (False, ["letters", "later"])


@GUARANTEES
def test_a_commit_takes_a_dead_letter_that_waits_along_or_fails(guarantee: str) -> None:
    _, producer, collection = full(guarantee)
    collection.collect([Task(BIG)])
    assert not to_the_end(collection.send({}, 1_000))
    producer.room = 1
    assert to_the_end(collection.send({}, 1_000))
    to_the_end(collection.flush())
    assert producer.topics() == ["letters"]


@GUARANTEES
@pytest.mark.parametrize("collecting", [DirectCollection, BufferedCollection])
def test_a_flush_that_makes_no_room_for_a_dead_letter_fails_the_commit_and_ends_no_thread(
    guarantee: str, collecting: Any
) -> None:
    _, producer, collection = full(guarantee, parts=collecting)
    collection.collect([Task(BIG)])
    with pytest.raises(TaskCorruptedError if producer.transactional else CommitRetriableError, match="letters"):
        to_the_end(collection.flush())


@GUARANTEES
def test_a_flush_that_makes_room_for_one_dead_letter_after_the_other_goes_on_until_all_are_flushed(
    guarantee: str,
) -> None:
    _, producer, collection = full(guarantee)
    producer.while_full = lambda: setattr(producer, "room", len(producer.sent) + 1)
    collection.collect([Task(BIG, BIG, BIG)])
    to_the_end(collection.flush())
    assert producer.topics() == ["letters"] * 3
    assert producer.calls[-1] == "flush"


@GUARANTEES
def test_a_dead_letter_without_room_for_task_timeout_ends_the_thread_and_not_before(guarantee: str) -> None:
    world, _, collection = full(guarantee, task_timeout_ms=60_000)
    collection.collect([Task(BIG)])
    while world.clock.monotonic_ms() < 60_000:
        collection.collect([])
    with pytest.raises(TimeoutExceededError, match=r"task_timeout_ms \(60000\): without a leader: letters"):
        collection.collect([])


def test_a_dead_letter_that_waits_ends_with_its_transaction() -> None:
    """Its record is processed again, and the output refused again."""
    _, producer, collection = full("exactly_once_v2")
    collection.collect([Task(BIG)])
    producer.abort(1_000)
    producer.room = None
    collection.collect([Task(BIG)])
    to_the_end(collection.flush())
    assert producer.topics() == ["letters"]


def test_dead_letters_of_what_a_transaction_failed_of_wait_for_room_like_others() -> None:
    producer, collection, _ = given_up(handler=Handler(Action.CONTINUE, LETTER))
    producer.room = 0
    task = Task(output("bad"), output("other"))
    collection.collect([task])  # type: ignore[list-item]
    assert (producer.sent, task.outputs, collection.dropped) == ([], [output("other")], {A: 1})
    producer.room = None
    collection.collect([task])  # type: ignore[list-item]
    assert producer.topics() == ["letters", "other"]


def test_a_dead_letter_that_is_too_large_goes_without_its_value() -> None:
    producer, collection = collected(send_to_dead_letter_topic("letters"), BIG)
    ((_, letter),) = producer.sent
    assert (letter.topic, letter.key, letter.value) == ("letters", b"k", None)
    assert b"ProductionError" in (dict(letter.headers or [])["__streams.errors.exception"] or b"")
    assert collection.dropped == {A: 1}


def test_a_dead_letter_that_is_refused_ends_the_thread_and_asks_nobody() -> None:
    handler = Handler(Action.CONTINUE, LETTER)
    with pytest.raises(ProductionError, match="Kafka refused a dead letter for letters-0"):
        collected(handler, BIG, letters=KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert len(handler.asked) == 1


UNKNOWN = [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION]


@GUARANTEES
@pytest.mark.parametrize("code", UNKNOWN)
def test_records_for_an_internal_topic_that_a_broker_does_not_know_are_made_again_and_no_handler_skips_them(
    guarantee: str, code: int
) -> None:
    """The housekeeper finds out whether it was just made or deleted."""
    handler = Handler(Action.CONTINUE)
    with pytest.raises(TaskCorruptedError, match=f"{CHANGELOG}: .* made again") as caught:
        collected(handler, output(CHANGELOG), guarantee=guarantee, **{CHANGELOG: code})
    assert (caught.value.tasks, handler.asked) == ({A}, [])


@pytest.mark.parametrize("code", UNKNOWN)
def test_a_sink_topic_that_a_broker_does_not_know_is_its_handlers_business(code: int) -> None:
    collected(handler := Handler(Action.CONTINUE), output(), out=code)
    assert len(handler.asked) == 1


@pytest.mark.parametrize("action", [Action.CONTINUE, Action.FAIL])
@pytest.mark.parametrize(
    "codes",
    [(KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD), [KafkaError.MSG_SIZE_TOO_LARGE] * 2], ids=str,
)  # fmt: skip
def test_a_batch_that_the_broker_refuses_for_a_record_in_it_is_made_again_before_a_handler_is_asked(
    action: Action, codes: Sequence[int]
) -> None:
    _, producer, collection = made(handler := Handler(action))
    producer.refused = [Refused(A, KafkaError(code), output(), sent=True) for code in codes]
    with pytest.raises(RefusedTogetherError, match=r"batch of records for out .* to find out which one") as caught:
        to_the_end(collection.flush())
    assert caught.value.tasks == {A}
    assert suspects(caught.value.suspects) == suspects([output()])
    assert handler.asked == []


def test_a_dead_letter_without_a_timestamp_gets_the_present() -> None:
    producer, _ = collected(Handler(Action.CONTINUE, LETTER._replace(timestamp=-1)), BIG)
    assert producer.sent[0][1].timestamp > 0


@pytest.mark.parametrize(
    ("refused", "refusals", "why"),
    [
        (output(CHANGELOG, b"x" * 101), {}, "the store would differ from what is restored"),
        (output(), {"out": KafkaError.TOPIC_AUTHORIZATION_FAILED}, "rights"),
    ],
    ids=["a changelog record, which is never skipped", "missing rights"],
)
def test_is_not_the_handlers_business(refused: Output, refusals: dict[str, int], why: str) -> None:
    handler = Handler(Action.CONTINUE)
    with pytest.raises(ProductionError, match=why):
        collected(handler, refused, **refusals)
    assert handler.asked == []


@pytest.mark.parametrize("topic", ["out", CHANGELOG])
def test_a_handler_that_wants_to_retry_what_may_pass_has_the_records_processed_again(topic: str) -> None:
    with pytest.raises(TaskCorruptedError) as caught:
        collected(Handler(Action.RETRY), output(topic), **{topic: KafkaError._MSG_TIMED_OUT})
    assert caught.value.tasks == {A}


def test_a_retry_of_what_cannot_pass_is_a_failure() -> None:
    with pytest.raises(ProductionError):
        collected(Handler(Action.RETRY), BIG)


def test_the_default_handler_retries_what_may_pass_and_fails_else() -> None:
    with pytest.raises(TaskCorruptedError):
        collected("retry_or_fail", output(), out=KafkaError._MSG_TIMED_OUT)
    with pytest.raises(ProductionError):
        collected("retry_or_fail", BIG)


# -- told apart in a transaction: what the broker refused of one that has failed


def refused_in_a_transaction(handler: Any, code: int = KafkaError.INVALID_RECORD) -> tuple[Refusing, DirectCollection]:
    """The broker has refused one of two outputs; the thread has heard of it."""
    _, producer, collection = made(handler, "exactly_once_v2")
    collection.collect([Task(output(), output("bad"))])
    producer.refused = [Refused(A, KafkaError(code), output("bad"), sent=True)]
    return producer, collection


def given_up(
    code: int = KafkaError.INVALID_RECORD, handler: Any = None
) -> tuple[Refusing, DirectCollection, Callable[..., list[Output]]]:
    """The transaction has failed of the refused output, and its handler gives that up. With a function that collects
    outputs of the next transaction: what is sent of them."""
    producer, collection = refused_in_a_transaction(handler or Handler(Action.CONTINUE), code)
    with pytest.raises(TaskCorruptedError):
        to_the_end(collection.flush())
    producer.sent.clear()

    def collect(*outputs: Output) -> list[Output]:
        collection.collect([Task(*outputs)])  # type: ignore[list-item]
        return [sent for _, sent in producer.sent]

    return producer, collection, collect


def test_an_output_that_fails_its_transaction_and_is_given_up_is_left_out_of_the_next_one() -> None:
    producer, collection = refused_in_a_transaction(handler := Handler(Action.CONTINUE, LETTER))
    with pytest.raises(TaskCorruptedError, match="its transaction is made again without it") as caught:
        to_the_end(collection.flush())
    assert caught.value.tasks == {A}
    assert collection.dropped == {}
    producer.sent.clear()
    collection.collect([Task(output(), output("bad"), output("other"))])  # type: ignore[list-item]
    to_the_end(collection.flush())
    assert sorted(producer.topics()) == ["letters", "other", "out"]
    assert collection.dropped == {A: 1}
    assert len(handler.asked) == 1


def test_an_output_that_is_given_up_counts_once_however_often_its_transaction_is_made_again() -> None:
    _, collection, collect = given_up()
    for _ in range(3):
        collect(output("bad"))
    assert collection.dropped == {A: 1}


def test_what_was_given_up_is_known_until_the_transaction_is_committed_and_no_longer() -> None:
    _, collection, collect = given_up()
    task: Any = Task()
    task.subtopology = World().context.application.subtopology(0)
    collection.take_changelog_offsets(task)
    assert collect(output("bad")) == [output("bad")]


def test_an_output_that_fails_its_transaction_and_is_not_given_up_ends_the_thread_and_is_named() -> None:
    _, collection = refused_in_a_transaction(Handler(Action.FAIL))
    with pytest.raises(ProductionError, match="Kafka refused a record for bad-0"):
        to_the_end(collection.flush())


def test_an_output_that_is_too_large_for_the_broker_is_the_handlers_business_where_it_is_told_apart() -> None:
    producer, collection = refused_in_a_transaction(handler := Handler(Action.CONTINUE), KafkaError.MSG_SIZE_TOO_LARGE)
    producer.isolation = BatchIsolation()
    with pytest.raises(TaskCorruptedError):
        to_the_end(collection.flush())
    assert len(handler.asked) == 1


def test_a_refusal_that_shows_while_sending_is_decided_before_the_transactions_own_error() -> None:
    producer, collection = refused_in_a_transaction(Handler(Action.CONTINUE))
    producer.fail("send", ProductionError("the transaction has failed"))
    with pytest.raises(TaskCorruptedError):
        collection.collect([Task(output())])  # type: ignore[list-item]


BAD = output("bad")


@pytest.mark.parametrize(
    ("code", "again", "sent"),
    [
        (KafkaError.INVALID_TIMESTAMP, [BAD, BAD._replace(timestamp=6)], [BAD._replace(timestamp=6)]),
        (KafkaError.INVALID_RECORD, [BAD._replace(timestamp=6)], []),
        (KafkaError.INVALID_RECORD, [BAD._replace(headers=[("h", b"2")])], [BAD._replace(headers=[("h", b"2")])]),
    ],
    ids=[
        "a twin is sent when only the timestamp was refused",
        "what was given up for its content is known whatever the clock says",
        "what differs in its headers is another output",
    ],
)
def test_what_was_given_up_is_told_from_what_is_like_it(code: int, again: list[Output], sent: list[Output]) -> None:
    *_, collect = given_up(code)
    assert collect(*again) == sent


def test_a_time_that_was_refused_is_told_with_its_topic_and_the_setting_that_takes_it() -> None:
    bad = Output("far", 0, b"k", b"v", 9_000_000_000_000, None, "sink")
    told = describe(Refused(A, KafkaError(KafkaError.INVALID_TIMESTAMP), bad, sent=True), changelog=False)
    assert "for far-0 (key b'k', value of 1 bytes, time 9000000000000)" in told
    assert "--entity-name far --add-config message.timestamp.after.max.ms=9223372036854775807" in told


def test_a_dead_letter_does_not_get_the_timestamp_that_was_refused() -> None:
    letter = LETTER._replace(timestamp=BAD.timestamp)
    *_, collect = given_up(KafkaError.INVALID_TIMESTAMP, Handler(Action.CONTINUE, letter))
    (sent,) = collect(BAD)
    assert sent.timestamp != letter.timestamp


@pytest.mark.parametrize(
    ("key", "code", "said"),
    [(None, KafkaError.INVALID_RECORD, True), (b"k", KafkaError.INVALID_RECORD, False),
     (None, KafkaError.MSG_SIZE_TOO_LARGE, False)],
)  # fmt: skip
def test_a_refused_record_without_a_key_is_told_of_compacted_topics(
    key: bytes | None, code: int, said: bool
) -> None:
    refused = Refused(A, KafkaError(code), Output("out", 0, key, b"v", 1, None, "sink"), sent=True)
    assert ("cleanup.policy=compact takes no record without a key" in describe(refused, changelog=False)) == said


def test_a_dead_letter_that_is_too_large_is_told_of_what_its_topic_must_take() -> None:
    headers: Headers = [("__streams.errors.exception", b"ValueError")]
    letter = Output("letters", 0, b"k", b"v", 1, headers, "sink")
    told = describe(Refused(A, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), letter), changelog=False)
    assert "Kafka refused a dead letter for letters" in told
    assert "must take what the input topic takes" in told
