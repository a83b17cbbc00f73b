"""Attempts of Spark tasks, without Spark: what they commit, and who fences whom. On a real broker."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from milestones import StreamsBuilder, StreamsConfig, serdes
from milestones.application import Application
from milestones.common.clock import SystemClock
from milestones.common.errors import StateLockedError
from milestones.common.kafka.failures import Failure, classify
from milestones.common.kafka.groups import DescribedMember, GroupReader
from milestones.common.kafka.membership import Loan, StaleGenerationError
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.directory import StateDirectory
from milestones.common.state.places import spark_attempts_folder, spark_directories
from milestones.pipeline.driving.seat import Seat
from milestones.pipeline.hosting.attempt import attempt
from milestones.pipeline.hosting.hosted_task import HostedTask
from milestones.pipeline.hosting.payload import pack
from milestones.pipeline.hosting.ranges import Fate, Outcome, TaskRange
from milestones.pipeline.hosting.surroundings import HostedClients, state_folder

pytestmark = pytest.mark.kafka

TASK = TaskId(0, 0)
SLOW = {"commit_interval_ms": 50_000, "transaction_timeout_ms": 60_000}
"""Nothing is committed before the end of a range."""
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once_v2", "at_least_once"


meanwhile: list[Callable[[], object]] = []
"""What happens while a record is processed; `clients` run it in this process."""


def shout(value: str) -> str:
    while meanwhile:
        meanwhile.pop()()
    if value == "poison":
        raise ValueError("not this")
    return value.upper()


class Ahead(SystemClock):
    """A clock that a test sets forward."""

    by_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.by_ms


class Bench:
    """An application of one task, `in` -> count -> `out`, and a seat in its group."""

    def __init__(
        self, servers: str, folder: Path, guarantee: str, store: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        self.id = f"attempts-{uuid.uuid4().hex[:8]}"
        self.input, self.output = TopicPartition(f"{self.id}-in", 0), f"{self.id}-out"
        self.config = StreamsConfig(
            application_id=self.id, bootstrap_servers=servers, processing_guarantee=guarantee, state_dir=str(folder),
            session_timeout_ms=6_000, heartbeat_interval_ms=500,
            **{"transaction_timeout_ms": 5_000, "commit_interval_ms": 100, **settings}, variables={},
        )  # fmt: skip
        self.servers, self.cluster = servers, Cluster({"bootstrap.servers": servers})
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.create_topics([NewTopic(t, 1, 1) for t in (self.input.topic, self.output)]).values():
            future.result()
        builder = StreamsBuilder()
        records = builder.stream(self.input.topic, key=serdes.STRING, value=serdes.STRING).map_values(shout)
        records.group_by_key().count("counts", **(store or {})).to_stream().to(self.output, value=serdes.LONG)
        self.topology = builder.build()
        self.application = Application.of(self.topology, self.config)
        self.clock = Ahead()
        self.seat = Seat(self.config, self.application, self.id, 1, SystemClock())
        self.seat.start()
        self.loan = self.next_generation()

    def next_generation(self) -> Loan:
        """Join; what to commit under from now on."""
        before = self.seat.loan
        if before is not None:
            self.seat.ask_for_generation("a test")
        while self.seat.loan in (None, before):
            self.seat.run_once()
            if self.seat.wanted is not None:
                self.seat.join()
                before = None
            threading.Event().wait(0.01)
        assert self.seat.loan is not None
        return self.seat.loan

    def send(self, *values: str) -> int:
        """Records of one key; where the input ends then."""
        producer = Producer({"bootstrap.servers": self.servers})
        for value in values:
            producer.produce(self.input.topic, value.encode(), b"k")
        producer.flush()
        return self.cluster.bounds([self.input], committed=True)[self.input][1]

    def range(self, end: int, **more: Any) -> TaskRange:
        return TaskRange(TASK, {}, {self.input: end}, **{"loan": self.loan, **more})

    def attempt(self, work: TaskRange, *, first: bool = True) -> Outcome:
        return attempt(pack(self.topology, self.config, near=True), work, first=first)

    def clients(self, work: TaskRange) -> HostedClients:
        return HostedClients(self.config, self.application, work, self.clock)

    def overtake(self) -> None:
        """The next generation, and an attempt's next heartbeat is due."""
        self.loan = self.next_generation()
        self.clock.by_ms += self.config.heartbeat_interval_ms

    def members(self) -> Sequence[DescribedMember]:
        group = GroupReader({"bootstrap.servers": self.servers}, self.id, timeout_ms=10_000)
        try:
            return group.describe().members
        finally:
            group.close()

    def committed(self) -> int | None:
        return self.cluster.committed(self.id, [self.input]).get(self.input)

    def counts(self) -> list[int]:
        """The committed outputs."""
        reader = Consumer(
            {
                "bootstrap.servers": self.servers, "group.id": f"{self.id}-reader", "enable.partition.eof": True,
                "isolation.level": "read_committed", "auto.offset.reset": "earliest",
            }
        )  # fmt: skip
        reader.assign([Position(self.output, 0, 0)])
        found = []
        while (message := reader.poll(10)) is not None and message.error() is None:
            found.append(int.from_bytes(message.value() or b""))
        reader.close()
        return found


Make = Callable[..., Bench]


@pytest.fixture
def bench(kafka: str, tmp_path: Path) -> Iterator[Make]:
    made: list[Bench] = []

    def make(guarantee: str = EXACTLY_ONCE, **settings: Any) -> Bench:
        made.append(Bench(kafka, tmp_path, guarantee, **settings))
        return made[-1]

    yield make
    for one in made:
        one.seat.close(leave=True)


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_a_range_is_processed_to_its_end_and_no_further(bench: Make, guarantee: str) -> None:
    b = bench(guarantee)
    b.send(*"abcde")
    done = b.attempt(b.range(3))
    assert (done.fate, done.records, b.committed(), b.counts()) == (Fate.DONE, 3, 3, [1, 2, 3])
    done = b.attempt(b.range(5))
    assert (done.records, done.restored, b.committed(), b.counts()) == (2, 0, 5, [1, 2, 3, 4, 5])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_what_waits_in_caches_is_emitted_with_the_commit_as_in_a_live_instance(bench: Make, guarantee: str) -> None:
    b = bench(guarantee, **SLOW, statestore_cache_max_bytes=1_000_000)
    done = b.attempt(b.range(b.send(*"abc")))
    assert (done.fate, b.committed(), b.counts()) == (Fate.DONE, 3, [3])
    b.attempt(b.range(b.send(*"de")))
    assert b.counts() == [3, 5]


def test_what_is_committed_already_isnt_processed_again(bench: Make) -> None:
    b = bench()
    end = b.send(*"abc")
    b.attempt(b.range(end))
    again = b.attempt(b.range(end), first=False)
    assert (again.fate, again.records, again.rhythm, b.counts()) == (Fate.DONE, 0, None, [1, 2, 3])


def test_without_local_state_it_is_restored_from_the_changelog(bench: Make, tmp_path: Path) -> None:
    b = bench()
    b.attempt(b.range(b.send(*"abc")))
    elsewhere = b.config.replace(state_dir=str(tmp_path / "elsewhere"))
    b.config = elsewhere
    done = b.attempt(b.range(b.send("d")))
    assert (done.records, done.restored, b.counts()) == (1, 3, [1, 2, 3, 4])


def test_a_limit_ends_a_range_early(bench: Make) -> None:
    b = bench()
    done = b.attempt(b.range(b.send(*"abcde"), limit=2))
    assert (done.fate, done.records, b.committed()) == (Fate.DONE, 2, 2)


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_under_a_generation_that_is_over_nothing_is_committed(bench: Make, guarantee: str) -> None:
    b = bench(guarantee)
    old = b.loan
    b.loan = b.next_generation()
    end = b.send(*"abc")
    stale = b.attempt(b.range(end, loan=old))
    assert (stale.fate, b.committed()) == (Fate.STALE, None)
    done = b.attempt(b.range(end))
    assert (done.fate, b.committed()) == (Fate.DONE, 3)
    if guarantee == EXACTLY_ONCE:
        assert b.counts() == [1, 2, 3]


def test_a_generation_that_ends_amid_a_range_takes_what_isnt_committed_yet(bench: Make) -> None:
    b = bench(**SLOW)
    end = b.send(*"abc")
    work = b.range(end)
    clients = b.clients(work)
    hosted = HostedTask(clients, work)
    clients.member.check = lambda: None  # type: ignore[method-assign]  # its commit comes before its next heartbeat
    b.loan = b.next_generation()
    with pytest.raises(KafkaException) as raised:
        hosted.run()
    clients.close()
    assert classify(raised.value) is Failure.ABORTABLE
    assert b.committed() is None
    b.attempt(b.range(end))
    assert b.counts() == [1, 2, 3]


def test_a_run_has_a_static_id_that_no_thread_of_an_instance_has(bench: Make) -> None:
    b = bench(group_instance_id="one")
    assert {member.instance_id for member in b.members()} == {"one-spark"}
    assert b.attempt(b.range(b.send(*"abc"))).records == 3


def test_an_attempt_that_begins_under_a_generation_that_is_over_fences_nobody(bench: Make) -> None:
    b = bench()
    old, end = b.loan, b.send(*"abc")
    b.loan = b.next_generation()
    work = b.range(end)
    rightful = b.clients(work)
    assert b.attempt(b.range(end, loan=old)).fate is Fate.STALE
    assert HostedTask(rightful, work).run().records == 3
    rightful.close()
    assert b.counts() == [1, 2, 3]


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_a_restoration_ends_with_its_generation(bench: Make, guarantee: str, tmp_path: Path) -> None:
    b = bench(guarantee)
    b.attempt(b.range(b.send(*"abc")))
    b.config = b.config.replace(state_dir=str(tmp_path / "elsewhere"))
    work = b.range(b.send("d"))
    clients = b.clients(work)
    b.overtake()
    with pytest.raises(StaleGenerationError):
        HostedTask(clients, work).run()
    clients.close()
    assert (clients.restored.records, b.committed()) == (0, 3)


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_a_range_ends_with_its_generation_and_what_was_committed_stays(bench: Make, guarantee: str) -> None:
    b = bench(guarantee, **SLOW)
    b.attempt(b.range(b.send("a", "b")))
    work = b.range(b.send(*["x"] * 3_000))
    clients = b.clients(work)
    hosted = HostedTask(clients, work)
    meanwhile.append(b.overtake)
    with pytest.raises(StaleGenerationError):
        hosted.run()
    clients.close()
    assert (hosted.records < 3_000, b.committed()) == (True, 2)
    assert b.attempt(b.range(3_002)).records == 3_000


def test_a_producer_that_lost_a_connection_makes_no_further_transaction(bench: Make) -> None:
    b = bench(commit_interval_ms=1)
    end = b.send(*["x"] * 20_000)
    work = b.range(end)
    clients = b.clients(work)
    clients.producer._connections.lost = True
    done = HostedTask(clients, work).run()
    clients.close()
    assert (done.commits, done.records < end, b.committed()) == (1, True, done.records)
    assert done.rhythm is not None
    assert b.attempt(b.range(end)).records == end - done.records
    assert b.counts() == list(range(1, end + 1))


def test_a_later_attempt_fences_an_earlier_one(bench: Make) -> None:
    b = bench()
    end = b.send(*"abc")
    slow = b.clients(b.range(end))
    quick = b.attempt(b.range(end), first=False)
    assert (quick.fate, quick.records) == (Fate.DONE, 3)
    with suppress(KafkaException):
        assert HostedTask(slow, b.range(end)).run().records == 0
    slow.close()
    assert b.counts() == [1, 2, 3]


def test_an_earlier_attempt_in_the_middle_of_its_work_is_fenced_too(bench: Make) -> None:
    b = bench(**SLOW)
    end = b.send(*"abc")
    slow = b.clients(b.range(end))
    task = HostedTask(slow, b.range(end))
    results: list[Outcome] = []

    def meanwhile(*_: object) -> None:
        results.append(b.attempt(b.range(end), first=False))

    before_commit = slow.member.metadata
    slow.member.metadata = lambda: (meanwhile(), before_commit())[1]  # type: ignore[method-assign]
    with pytest.raises(KafkaException) as raised:
        task.run()
    slow.close()
    assert classify(raised.value) is Failure.FATAL
    assert (results[0].fate, results[0].records, b.counts()) == (Fate.DONE, 3, [1, 2, 3])


def test_at_least_once_a_second_attempt_leaves_the_first_alone(bench: Make) -> None:
    b = bench(AT_LEAST_ONCE)
    late = b.attempt(b.range(b.send("a")), first=False)
    assert (late.fate, b.committed()) == (Fate.TOO_LATE, None)


def test_an_attempt_whose_state_is_held_restores_anew(bench: Make) -> None:
    b = bench()
    b.attempt(b.range(b.send(*"abc")))
    holder = b.clients(b.range(3))
    done = b.attempt(b.range(b.send("d")), first=False)
    holder.close()
    assert (done.records, done.restored, b.counts()) == (1, 3, [1, 2, 3, 4])
    assert [path.parent for path in spark_directories(b.config.state_dir, b.id)] == [state_folder(b.config, TASK)]


def test_what_an_attempt_that_was_killed_has_left_on_the_disk_goes_with_the_next_one(bench: Make) -> None:
    b = bench()
    left = spark_attempts_folder(b.config.state_dir, b.id) / "0_0-killed"
    StateDirectory(left, b.id).close()
    end = b.send("a")
    holder = b.clients(b.range(end))
    b.attempt(b.range(end), first=False)
    holder.close()
    assert not left.exists()


def test_an_attempt_waits_for_state_that_no_changelog_has_instead_of_beginning_without_it(bench: Make) -> None:
    b = bench(store={"logging": False})
    b.attempt(b.range(b.send(*"abc")))
    holder = b.clients(b.range(3))
    end = b.send("d")
    with pytest.raises(StateLockedError, match="counts have no changelog"):
        b.attempt(b.range(end), first=False)
    assert b.committed() == 3
    holder.close()
    done = b.attempt(b.range(end), first=False)
    assert (done.records, b.counts()) == (1, [1, 2, 3, 4])


def test_an_error_of_the_users_code_is_told_and_nothing_of_the_record_is_committed(bench: Make) -> None:
    b = bench()
    end = b.send("a", "poison", "b")
    failed = b.attempt(b.range(end))
    assert (failed.fate, failed.exit_code) == (Fate.FAILED, 1)
    assert "not this" in failed.error
    assert b.counts() in ([], [1])


def test_what_a_handler_skips_is_told(bench: Make) -> None:
    b = bench(processing_exception_handler="log_and_continue")
    done = b.attempt(b.range(b.send("a", "poison", "b")))
    assert (done.fate, done.records, done.dropped, b.counts()) == (Fate.DONE, 3, 1, [1, 2])


def test_where_latest_begins_is_settled_by_the_first_range(bench: Make) -> None:
    b = bench(auto_offset_reset="latest")
    end = b.send(*"abc")
    done = b.attempt(b.range(end))
    assert (done.records, b.committed()) == (0, 3)
    done = b.attempt(b.range(b.send("d")))
    assert (done.records, b.counts()) == (1, [1])
