"""What a stepped application's clients and stores do at a crash, and after a fatal error."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException

from milestones import StreamsBuilder
from milestones.common import serdes
from milestones.common.assignment.model import Subscription
from milestones.common.errors import StateLockedError
from milestones.common.kafka.membership import Assigned
from milestones.common.records import Emitted, OffsetAndMetadata, TaskId, TopicPartition
from milestones.common.state.spec import StoreSpec
from milestones.common.state.storage import TaskStorage
from milestones.instance.admin_thread import Purge
from milestones.instance.states import ThreadState
from milestones.stepped.application import SteppedApplication
from milestones.stepped.clients import AnsweredRequests, LedgerProducer, SteppedClients
from milestones.stepped.consumer import LogConsumer
from milestones.stepped.kafka import FENCED, SteppedKafka
from milestones.stepped.process import ProcessCrashed, SteppedProcess
from milestones.stepped.state import KeptStores, SteppedState
from tests.outputs import emitted

TASK, IN = TaskId(0, 0), TopicPartition("in", 0)
OFFSETS = {IN: OffsetAndMetadata(1, "")}
OUTPUT = emitted("out")


@pytest.fixture
def kafka() -> SteppedKafka:
    return SteppedKafka(lambda _: 1)


def ends(transaction: LedgerProducer) -> None:
    transaction.begin_commit(1)
    transaction.returned(1)


CALLS: dict[str, Callable[[SteppedClients], object]] = {
    "a send": lambda clients: clients.producer.send(TASK, [OUTPUT]),
    "a commit": lambda clients: ends(clients.producer),
    "a commit of offsets": lambda clients: (
        clients.member.begin_commit(OFFSETS, 1), clients.member.commit_returned(1)
    ),
    "a new producer": lambda clients: [*clients.renew_producer()],
}  # fmt: skip


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("call", CALLS)
def test_a_crashed_process_changes_nothing_in_kafka(kafka: SteppedKafka, call: str, transactional: bool) -> None:
    process = SteppedProcess()
    clients = SteppedClients(kafka, process, {}, transactional=transactional)
    clients.producer.send(TASK, [OUTPUT])
    before = (list(kafka.calls), dict(kafka.committed), kafka.logs.bounds([TopicPartition("out", 0)]))
    with pytest.raises(ProcessCrashed):
        process.crash()
    with pytest.raises(ProcessCrashed):
        CALLS[call](clients)
    assert (kafka.calls, kafka.committed, kafka.logs.bounds([TopicPartition("out", 0)])) == before


def test_a_producer_with_a_fatal_error_makes_no_further_call(kafka: SteppedKafka) -> None:
    producer = LedgerProducer(kafka, SteppedProcess(), transactional=True)
    kafka.fail("commit", FENCED)
    producer.send(TASK, [OUTPUT])
    with pytest.raises(KafkaException, match="_FENCED"):
        ends(producer)
    for call in (lambda: ends(producer), lambda: producer.abort(1), lambda: producer.send(TASK, [OUTPUT])):
        with pytest.raises(KafkaException, match="_FENCED"):
            call()
    assert kafka.calls == ["begin", "send", "commit"]
    assert kafka.unread == {}


def test_a_purge_deletes_records_once(kafka: SteppedKafka) -> None:
    kafka.logs[IN].add("a", "b", "c")
    requests = AnsweredRequests(kafka, SteppedProcess())
    for offset in (2, 1):
        assert requests.try_put(Purge({IN: offset}))
    assert kafka.logs.bounds([IN]) == {IN: (2, 3)}


@pytest.mark.parametrize(("persistent", "left"), [(True, b"v"), (False, None)])
def test_a_store_outlives_its_process_if_it_is_persistent(persistent: bool, left: bytes | None) -> None:
    spec = StoreSpec("rows", key_serde=serdes.BYTES, value_serde=serdes.BYTES, persistent=persistent)
    disk = KeptStores()
    SteppedState(disk, SteppedProcess()).open(TASK, [spec]).apply({"rows": {b"k": b"v"}}, {"rows": 1})
    opened = SteppedState(disk, SteppedProcess()).open(TASK, [spec])
    assert opened.namespace("rows").get(b"k") == left
    assert opened.offsets() == {"rows": 1 if persistent else None}


WRITES: dict[str, Callable[[TaskStorage], object]] = {
    "a commit": lambda storage: storage.apply({"rows": {b"k": b"later"}}, {"rows": 2}),
    "rows that expire": lambda storage: storage.expire("rows", [(b"", None)]),
    "a store that is emptied": lambda storage: storage.clear("rows"),
    "a store that is set aside": lambda storage: storage.clear("rows", "damaged"),
    "a snapshot": lambda storage: [*storage.ingest("rows", [])],
    "ids of changelogs": lambda storage: storage.keep_changelog_ids({"rows": "later"}),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_crashed_process_writes_nothing_to_its_disk(write: str) -> None:
    spec = StoreSpec("rows", key_serde=serdes.BYTES, value_serde=serdes.BYTES)
    disk, process = KeptStores(), SteppedProcess()
    storage = SteppedState(disk, process).open(TASK, [spec])
    storage.apply({"rows": {b"k": b"v"}}, {"rows": 1})
    storage.keep_changelog_ids({"rows": "id"})
    with pytest.raises(ProcessCrashed):
        process.crash()
    with pytest.raises(ProcessCrashed):
        WRITES[write](storage)
    left = SteppedState(disk, SteppedProcess()).open(TASK, [spec])
    assert left.namespace("rows").get(b"k") == b"v"
    assert (left.offsets(), left.changelog_ids()) == ({"rows": 1}, {"rows": "id"})


LOG, OTHER_LOG = TopicPartition("app-rows-changelog", 0), TopicPartition("app-others-changelog", 0)


def record(at: TopicPartition) -> Emitted:
    return emitted(at.topic, partition=at.partition)


@pytest.mark.parametrize("transactional", [True, False])
def test_the_end_of_a_changelog_is_known_as_soon_as_its_records_are_sent(
    kafka: SteppedKafka, transactional: bool
) -> None:
    kafka.logs[LOG].add("earlier")
    producer = LedgerProducer(kafka, SteppedProcess(), transactional=transactional)
    logs = [LOG.topic, OTHER_LOG.topic]
    producer.send(TASK, [record(LOG), OUTPUT, record(LOG), record(OTHER_LOG)], logs)
    assert producer.acknowledged == {LOG: 3, OTHER_LOG: 1}
    producer.acknowledged.clear()  # as the runtime does, which takes them
    producer.send(TASK, [OUTPUT, record(LOG)], logs)
    assert producer.acknowledged == {LOG: 4}
    if transactional:
        ends(producer)
    assert kafka.logs.bounds([LOG, OTHER_LOG]) == {LOG: (0, 4), OTHER_LOG: (0, 1)}


def test_an_aborted_transaction_leaves_no_output_no_end_of_a_changelog_and_no_contributor(kafka: SteppedKafka) -> None:
    producer = LedgerProducer(kafka, SteppedProcess(), transactional=True)
    producer.send(TASK, [record(LOG)], [LOG.topic])
    producer.abort(1)
    assert (producer.acknowledged, producer.in_transaction) == ({}, False)
    producer.send(TaskId(0, 1), [OUTPUT])
    assert producer.contributors == {TaskId(0, 1)}
    ends(producer)
    assert (kafka.logs[LOG].end, kafka.logs[TopicPartition("out", 0)].end) == (0, 1)


def test_a_replaced_producer_leaves_no_output(kafka: SteppedKafka) -> None:
    clients = SteppedClients(kafka, SteppedProcess(), {}, transactional=True)
    replaced = clients.producer
    replaced.send(TASK, [OUTPUT])
    assert [*clients.renew_producer()] == []
    assert clients.producer is not replaced
    ends(replaced)
    assert kafka.unread == {}


def test_each_join_begins_a_generation(kafka: SteppedKafka) -> None:
    member = SteppedClients(kafka, SteppedProcess(), {}, transactional=True).member
    generations = []
    for _ in range(2):
        member.join(Subscription("process", "baseline", 1, ("in",), "fingerprint"))
        generations += [event.generation for event in member.poll() if isinstance(event, Assigned)]
    assert generations == [1, 2]
    assert member.metadata() == b"2"


def test_a_task_is_open_once_and_the_offsets_of_closed_tasks_are_known() -> None:
    spec = StoreSpec("rows", key_serde=serdes.BYTES, value_serde=serdes.BYTES)
    state = SteppedState(KeptStores(), SteppedProcess())
    storage = state.open(TASK, [spec])
    storage.apply({"rows": {b"k": b"v"}}, {"rows": 1})
    with pytest.raises(StateLockedError):
        state.open(TASK, [spec])
    assert (state.closed_offsets(), state.closed_offsets([TASK])) == ({}, {TASK: {"rows": 1}})
    storage.close()
    assert state.closed_offsets() == {TASK: {"rows": 1}}
    state.open(TASK, [spec])


def test_a_paused_partition_is_read_once_it_is_resumed(kafka: SteppedKafka) -> None:
    kafka.logs[IN].add("a")
    consumer = LogConsumer(kafka.logs)
    consumer.assign({IN: 0})
    consumer.pause([IN])
    assert consumer.fetch(10, 0).records == {}
    consumer.resume([IN])
    assert consumer.fetch(10, 0).records.keys() == {IN}


def test_a_crash_that_something_catches_is_a_crash_all_the_same() -> None:
    class Catching:
        def run_once(self, now_ms: int) -> bool:
            with suppress(BaseException):
                app._process.crash()
            return True

    builder = StreamsBuilder()
    builder.stream("in", value=str).to("out", value=str)
    with SteppedApplication(builder) as app:
        app._loop = cast(Any, Catching())
        app.step()
        assert (app.crashed, app.state, app._loop) == (True, ThreadState.DEAD, None)
