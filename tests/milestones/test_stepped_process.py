"""What a stepped application's clients and stores do at a crash, and after a fatal error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException

from milestones.common import serdes
from milestones.common.records import OffsetAndMetadata, Output, TaskId, TopicPartition
from milestones.common.state.spec import StoreSpec
from milestones.common.state.storage import TaskStorage
from milestones.instance.admin_thread import Purge
from milestones.stepped.clients import AnsweredRequests, LedgerProducer, SteppedClients
from milestones.stepped.kafka import FENCED, SteppedKafka
from milestones.stepped.process import ProcessCrashed, SteppedProcess
from milestones.stepped.state import KeptStores, SteppedState

TASK, IN = TaskId(0, 0), TopicPartition("in", 0)
OFFSETS = {IN: OffsetAndMetadata(1, "")}
OUTPUT = Output("out", 0, b"k", b"v", 1, None, "node")


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
