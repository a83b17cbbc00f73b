"""What an instance looks for before it starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from milestones.common.clock import SystemClock
from milestones.common.config import StreamsConfig
from milestones.common.errors import SourceTopicError
from milestones.common.kafka.topic_metadata import Described, TopicsSeen
from milestones.common.kafka.topics import Cluster
from milestones.common.memory import Account
from milestones.common.state.engine import EngineMemory, summed
from milestones.common.topology.builder import StreamsBuilder
from milestones.common.topology.topology import Topology
from milestones.instance.application import Application
from milestones.instance.context import ThreadContext
from milestones.instance.identity import StreamThreadIdentity
from milestones.instance.ids import InstanceIds
from milestones.instance.instance import Instance, by_account
from milestones.instance.listeners import Listeners
from milestones.instance.thread_registry import ThreadRegistry
from milestones.m6_state_manager.conversion.all_tasks import folder_state_manager
from tests.milestones.fakes import counting


def config(folder: Path, **settings: Any) -> StreamsConfig:
    return StreamsConfig(application_id="app", bootstrap_servers="localhost:1", state_dir=str(folder), **settings)


@contextmanager
def made(topology: Topology, folder: Path, **settings: Any) -> Iterator[Instance]:
    """An instance, which is closed at the end."""
    of = config(folder, **settings)
    instance = Instance(of, Application.of(topology, of), "baseline", SystemClock(), folder_state_manager)
    try:
        yield instance
    finally:
        instance.close()


def thread_context(instance: Instance, number: int, registry: ThreadRegistry) -> ThreadContext:
    nothing: Any = None
    identity = StreamThreadIdentity(instance._config, instance.client_id, registry, number)
    return instance.thread_context(identity, nothing, nothing, nothing, nothing, registry, Listeners())


Prepare = Callable[..., Instance]


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Prepares an instance of an application on a Kafka that has these topics, and closes it."""

    def prepared(topology: Topology, existing: set[str], **settings: Any) -> Instance:
        monkeypatch.setattr(Cluster, "partition_counts", lambda *_, **__: dict.fromkeys(existing, 1))
        monkeypatch.setattr(Cluster, "seen", lambda *_: TopicsSeen({}, frozenset()))
        monkeypatch.setattr(Cluster, "all_committed", lambda *_: {})
        with made(topology, tmp_path, **settings) as instance:
            instance.prepare([1])
        return instance

    return prepared


def test_a_start_writes_down_which_topics_of_its_own_the_application_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start knows by that which are gone."""
    monkeypatch.setattr(Cluster, "partition_counts", lambda *_, **__: {"in": 1, "out": 1})
    monkeypatch.setattr(Cluster, "all_committed", lambda *_: {})
    monkeypatch.setattr(
        Cluster, "seen", lambda _, topics: TopicsSeen({topic: Described(1, "id") for topic in topics}, frozenset())
    )
    with made(counting(), tmp_path) as instance:
        instance.prepare([1])
        own = instance._application.internal_topics
        assert own
        assert instance._directory.internal_ids == dict.fromkeys(own, "id")


LETTERS = {"errors_dead_letter_queue_topic_name": "letters"}


@pytest.mark.parametrize(
    ("existing", "settings", "missing"),
    [
        ({"in"}, {}, "output topics don't exist: out; create them, then start again"),
        ({"out"}, {}, "source topics don't exist: in; create them, then start again"),
        (set(), {}, "source topics don't exist: in; output topics don't exist: out; create them"),
        ({"in", "out"}, LETTERS, "dead letter topics don't exist: letters; create them"),
    ],
)
def test_topics_that_are_read_or_written_and_do_not_exist_are_named_at_the_start(
    existing: set[str], settings: dict[str, str], missing: str, prepare: Prepare
) -> None:
    """A dead letter topic not at the first poison record, and at each start after it."""
    with pytest.raises(SourceTopicError, match=missing):
        prepare(counting(), existing, **settings)


@pytest.mark.parametrize("handler", ["deserialization", "processing", "production", None])
def test_a_dead_letter_topic_that_nothing_is_written_to_is_warned_of(
    handler: str | None, prepare: Prepare, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {} if handler is None else {f"{handler}_exception_handler": "log_and_continue"}
    prepare(counting(), {"in", "out", "letters"}, **LETTERS, **settings)
    assert ("errors_dead_letter_queue_topic_name='letters' has no effect" in caplog.text) == (handler is None)


def test_an_applications_own_repartition_topics_need_not_exist(prepare: Prepare, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda _, value: value).count("counts").to_stream().to("out")
    assert Application.of(builder.build(), config(tmp_path)).repartition_topics
    prepare(builder.build(), {"in", "out"})


def test_topics_that_a_pattern_matches_are_known_before_the_group_is_joined(prepare: Prepare) -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("sensor-.*")).to("out")
    instance = prepare(builder.build(), {"sensor-1", "sensor-2", "other", "out"})
    assert instance.sources == {"sensor-1", "sensor-2"}


def test_the_transactional_id_of_a_thread_that_is_added_is_written_down_so_that_a_later_start_ends_its_transactions(
    tmp_path: Path,
) -> None:
    with made(counting(), tmp_path, processing_guarantee="exactly_once_v2") as instance:
        context = thread_context(instance, 5, ThreadRegistry(1))
        assert context.transactional_id == f"app-{instance.process_id}-5"
        assert context.transactional_id in instance._directory.transactional_ids


def test_a_thread_s_static_id_is_written_down_before_the_thread_joins_and_forgotten_once_its_member_has_left(
    tmp_path: Path,
) -> None:
    with made(counting(), tmp_path, group_instance_id="one") as instance:
        thread_context(instance, 2, ThreadRegistry(2))
        assert instance._directory.static_ids == {"one-2"}
        instance.left_group(2)
        assert instance._directory.static_ids == frozenset()


def test_ids_are_retired_but_those_of_the_threads_that_poll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "partition_counts", lambda *_, **__: {"in": 1, "out": 1})
    seen: list[list[int]] = []
    monkeypatch.setattr(InstanceIds, "retire_others", lambda _, numbers: seen.append(list(numbers)))
    monkeypatch.setattr(Cluster, "seen", lambda *_: TopicsSeen({}, frozenset()))
    monkeypatch.setattr(Cluster, "all_committed", lambda *_: {})
    with made(counting(), tmp_path, num_stream_threads=3) as instance:
        instance.prepare((1,))
    assert seen == [[1]]


def test_the_threads_of_an_instance_share_its_memory_and_their_clients_queues_count(tmp_path: Path) -> None:
    sizes = {
        "input_buffer_max_bytes": 1_000, "statestore_cache_max_bytes": 1_000,
        "consumer_queued_max_messages_kbytes": 1_024, "producer_queue_buffering_max_kbytes": 2_048,
    }  # fmt: skip
    with made(counting(), tmp_path, **sizes) as instance:
        registry = ThreadRegistry(2)
        one, other = (thread_context(instance, number, registry) for number in registry.numbers())
        assert one.memory.part(Account.INPUT) == other.memory.part(Account.INPUT) == 500
        assert one.memory.record_caches is other.memory.record_caches
        limits, held = instance.memory.limits(), instance.memory.held()
        assert instance.memory.client_queues_max() == 2 * (2 + 2 + 2) * 1024 * 1024
        assert limits[Account.BLOCK_CACHE] == instance._config.rocksdb_block_cache_bytes
        assert held[Account.BLOCK_CACHE] == instance.state.memory().block_cache
        assert held[Account.PROGRAM] > 1_000_000
        other.memory.leave()
        assert one.memory.part(Account.INPUT) == 1_000


def test_the_consumer_of_global_tables_counts_with_the_clients_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StreamsBuilder()
    rates = builder.global_table("rates")
    builder.stream("in").left_join(rates, lambda value, _: value, on=lambda key, _: key).to("out")
    monkeypatch.setattr(Cluster, "partition_counts", lambda *_, **__: {"in": 1, "rates": 1, "out": 1})
    monkeypatch.setattr(Cluster, "topic_settings", lambda *_: {"rates": {"cleanup.policy": "compact"}})
    sizes = {"global_consumer_queued_max_messages_kbytes": 3_072, "producer_queue_buffering_max_kbytes": 2_048}
    with made(builder.build(), tmp_path, **sizes) as instance:
        assert instance.memory.client_queues_max() == 0
        instance.prepare([1])
        of_the_consumer = instance.memory.client_queues_max()
        assert of_the_consumer == (3 + 3) * 1024 * 1024
        thread_context(instance, 1, ThreadRegistry(1))
        assert instance.memory.client_queues_max() > of_the_consumer


def test_each_kind_of_memory_of_the_engines_is_in_its_own_account() -> None:
    memory = EngineMemory(block_cache=1, memtables=2, table_readers=3, content=4, changed_keys=5)
    assert memory.all_bytes == 15
    assert by_account(memory) == {
        Account.BLOCK_CACHE: 1, Account.MEMTABLES: 2, Account.TABLE_READERS: 3, Account.STORES_IN_MEMORY: 4,
        Account.CHANGED_KEYS: 5,
    }  # fmt: skip
    assert summed([memory, EngineMemory(), memory]) == EngineMemory(2, 4, 6, 8, 10)
    assert summed([]) == EngineMemory()
