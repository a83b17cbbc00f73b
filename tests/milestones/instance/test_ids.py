"""The ids of an instance: written down, and retired by a start that doesn't use them any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Set
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.clock import SystemClock
from milestones.common.config import StreamsConfig
from milestones.common.errors import KafkaUnreachableError
from milestones.common.kafka.embedded import EmbeddedKafka
from milestones.common.state.directory import StateDirectory
from milestones.instance import ids as module
from milestones.instance.ids import AT_ONCE, InstanceIds
from tests.topics import new_topic

EXACT = "exactly_once_v2"
DOWN = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no coordinator"))


class FakeCoordinators:
    """Kafka's coordinators of transactions and of the group. `did`: what they have done, in order; `tried`: the number
    of producers, `most` at once.

    `members`: the static ids that the instance has in the group. `refused`: transactional ids without an answer.
    `group_error`: of the group's coordinator. `gate`: a producer waits until so many are initialised at once.
    """

    def __init__(self) -> None:
        self.did: list[str] = []
        self.members: set[str] = set()
        self.refused: set[str] = set()
        self.group_error: Exception | None = None
        self.gate: threading.Barrier | None = None
        self._lock = threading.Lock()
        self._now = self.most = self.tried = 0

    @property
    def initialised(self) -> set[str]:
        return {what.removeprefix("init ") for what in self.did if what.startswith("init ")}

    def producer(self, settings: dict[str, Any]) -> FakeProducer:
        return FakeProducer(self, settings["transactional.id"])

    def enter(self) -> None:
        with self._lock:
            self._now, self.tried = self._now + 1, self.tried + 1
            self.most = max(self.most, self._now)
        if self.gate is not None:
            self.gate.wait(30)

    def exit(self) -> None:
        with self._lock:
            self._now -= 1

    # as `StaticMembers`

    def static_members(self, *_: Any, **__: Any) -> FakeCoordinators:
        return self

    def of(self, process_id: str, known: Set[str]) -> frozenset[str]:
        self.did.append(f"describe with {', '.join(sorted(known))}")
        if self.group_error is not None:
            raise self.group_error
        return frozenset(self.members)

    def remove(self, instance_ids: Set[str]) -> None:
        self.did.append(f"leave {', '.join(sorted(instance_ids))}")
        self.members -= instance_ids

    def close(self) -> None:
        pass


class FakeProducer:
    def __init__(self, coordinators: FakeCoordinators, id: str) -> None:
        self._coordinators, self._id = coordinators, id

    def init_transactions(self, timeout_ms: int) -> None:
        self._coordinators.enter()
        if self._id in self._coordinators.refused:
            raise DOWN
        self._coordinators.did.append(f"init {self._id}")

    def close(self) -> None:
        self._coordinators.exit()


@pytest.fixture
def kafka_side(monkeypatch: pytest.MonkeyPatch) -> FakeCoordinators:
    coordinators = FakeCoordinators()
    monkeypatch.setattr(module, "OutputProducer", coordinators.producer)
    monkeypatch.setattr(module, "StaticMembers", coordinators.static_members)
    return coordinators


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StateDirectory]:
    with closing(StateDirectory(tmp_path, "app")) as directory:
        yield directory


def made(directory: StateDirectory, servers: str = "localhost:1", **settings: Any) -> InstanceIds:
    defaults = {"processing_guarantee": EXACT, "group_instance_id": "one"}
    config = StreamsConfig(application_id="app", bootstrap_servers=servers, **{**defaults, **settings})
    return InstanceIds(config, directory, f"app-{directory.process_id}", SystemClock())


def transactional(directory: StateDirectory, numbers: Iterable[int]) -> set[str]:
    return {f"app-{directory.process_id}-{number}" for number in numbers}


def recorded(directory: StateDirectory) -> tuple[set[str], set[str]]:
    """What the next start reads."""
    directory.close()
    with closing(StateDirectory(directory.path.parent, "app")) as again:
        return set(again.transactional_ids), set(again.static_ids)


def used(directory: StateDirectory, numbers: Iterable[int], **settings: Any) -> None:
    """Have an earlier start use the ids of these numbers."""
    made(directory, **settings).record(numbers)


def test_ids_are_written_down_before_their_first_use(directory: StateDirectory, kafka_side: FakeCoordinators) -> None:
    made(directory).retire_others(range(1, 3))
    made(directory).record([5])
    assert recorded(directory) == (transactional(directory, (1, 2, 5)), {"one-1", "one-2", "one-5"})
    assert kafka_side.initialised == set()


def test_a_start_with_fewer_threads_retires_the_ids_of_the_others_and_forgets_them(
    directory: StateDirectory, kafka_side: FakeCoordinators
) -> None:
    used(directory, range(1, 5))
    kafka_side.members = {"one-1", "one-2", "one-4"}
    made(directory).retire_others((1,))
    assert kafka_side.initialised == transactional(directory, (2, 3, 4))
    assert kafka_side.members == {"one-1"}
    assert recorded(directory) == (transactional(directory, (1,)), {"one-1"})


def test_transactions_are_ended_before_static_members_leave_which_all_do_at_once(
    directory: StateDirectory, kafka_side: FakeCoordinators
) -> None:
    used(directory, range(1, 4))
    kafka_side.members = {"one-1", "one-2", "one-3"}
    made(directory).retire_others((1,))
    kinds = [what.split()[0] for what in kafka_side.did]
    assert kinds == ["init", "init", "describe", "leave"]
    assert kafka_side.did[-1] == "leave one-2, one-3"


def test_a_start_with_more_threads_retires_nothing(directory: StateDirectory, kafka_side: FakeCoordinators) -> None:
    used(directory, (1,))
    kafka_side.members = {"one-1"}
    made(directory).retire_others(range(1, 5))
    assert kafka_side.did == ["describe with one-1, one-2, one-3, one-4"]
    assert recorded(directory)[1] == {f"one-{number}" for number in range(1, 5)}


@pytest.mark.parametrize("now", [None, "two"])
def test_members_of_a_former_group_instance_id_leave_when_it_is_changed_or_taken_away(
    now: str | None, directory: StateDirectory, kafka_side: FakeCoordinators
) -> None:
    used(directory, (1, 2))
    kafka_side.members = {"one-1", "one-2"}
    made(directory, group_instance_id=now).retire_others((1,))
    assert kafka_side.members == set()
    assert recorded(directory)[1] == (set() if now is None else {"two-1"})


def test_members_of_a_version_that_wrote_no_static_ids_down_leave_too(
    directory: StateDirectory, kafka_side: FakeCoordinators
) -> None:
    kafka_side.members = {"one-1", "one-2"}
    made(directory).retire_others((1,))
    assert kafka_side.members == {"one-1"}


def test_a_dynamic_member_that_never_was_static_asks_the_group_nothing(
    directory: StateDirectory, kafka_side: FakeCoordinators
) -> None:
    made(directory, group_instance_id=None).retire_others((1,))
    assert kafka_side.did == []


def test_at_least_once_leaves_transactional_ids_to_a_later_start(
    directory: StateDirectory, kafka_side: FakeCoordinators
) -> None:
    used(directory, (1, 2))
    made(directory, processing_guarantee="at_least_once").retire_others((1,))
    assert kafka_side.initialised == set()
    assert recorded(directory)[0] == transactional(directory, (1, 2))


def test_two_hundred_ids_are_initialised_several_at_a_time(
    directory: StateDirectory, kafka_side: FakeCoordinators
) -> None:
    used(directory, range(1, 202))
    kafka_side.gate = threading.Barrier(AT_ONCE)
    made(directory).retire_others((1,))
    assert kafka_side.initialised == transactional(directory, range(2, 202))
    assert kafka_side.most == AT_ONCE
    assert recorded(directory)[0] == transactional(directory, (1,))


def test_while_the_transaction_coordinator_is_away_no_id_is_forgotten_and_no_member_leaves(
    directory: StateDirectory, kafka_side: FakeCoordinators
) -> None:
    used(directory, range(1, 202))
    kafka_side.members = {"one-2"}
    kafka_side.refused = transactional(directory, range(1, 202))
    with pytest.raises(KafkaUnreachableError, match=r"transactional id app-.*no coordinator.*start again"):
        made(directory).retire_others((1,))
    assert kafka_side.did == []
    assert kafka_side.tried <= AT_ONCE
    assert len(recorded(directory)[0]) == 201


def test_an_id_that_cannot_be_initialised_is_remembered_and_those_that_were_are_not(
    directory: StateDirectory, kafka_side: FakeCoordinators
) -> None:
    used(directory, range(1, 12))
    kafka_side.refused = transactional(directory, (7,))
    with pytest.raises(KafkaUnreachableError):
        made(directory).retire_others((1,))
    done = kafka_side.initialised
    assert recorded(directory)[0] == transactional(directory, range(1, 12)) - done


def test_while_the_group_s_coordinator_is_away_no_static_id_is_forgotten(
    directory: StateDirectory, kafka_side: FakeCoordinators
) -> None:
    used(directory, (1, 2))
    kafka_side.group_error = KafkaUnreachableError("the group can't be described")
    with pytest.raises(KafkaUnreachableError):
        made(directory).retire_others((1,))
    assert recorded(directory) == (transactional(directory, (1,)), {"one-1", "one-2"})


@pytest.mark.parametrize("point", ["ids.retired", "static.left"])
def test_a_process_that_dies_in_the_middle_has_forgotten_no_id_and_the_next_start_retires_it(
    point: str, directory: StateDirectory, kafka_side: FakeCoordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    used(directory, (1, 2))
    kafka_side.members = {"one-1", "one-2"}

    def die(reached: str) -> None:
        if reached == point:
            raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(module, "reach", die)
        with pytest.raises(SystemExit):
            made(directory).retire_others((1,))
    assert directory.static_ids == {"one-1", "one-2"}
    assert (directory.transactional_ids == transactional(directory, (1, 2))) == (point == "ids.retired")
    made(directory).retire_others((1,))
    assert kafka_side.members == {"one-1"}
    assert recorded(directory) == (transactional(directory, (1,)), {"one-1"})


def test_the_static_id_of_a_member_that_has_left_is_forgotten_its_transactional_id_is_not(
    directory: StateDirectory, kafka_side: FakeCoordinators
) -> None:
    ids = made(directory)
    ids.record((1, 2))
    ids.forget_static(2)
    assert recorded(directory) == (transactional(directory, (1, 2)), {"one-1"})


@pytest.mark.kafka
def test_two_hundred_ids_are_retired_on_a_broker_in_a_bounded_time(directory: StateDirectory, kafka: str) -> None:
    used(directory, range(1, 202))
    began = time.monotonic()
    made(directory, kafka, request_timeout_ms=60_000).retire_others((1,))
    print(f"200 transactional ids were retired in {time.monotonic() - began:.1f} s")
    assert time.monotonic() - began < 60
    assert recorded(directory) == (transactional(directory, (1,)), {"one-1"})


@pytest.mark.kafka
def test_without_a_broker_the_retirement_ends_in_time_and_forgets_nothing(
    directory: StateDirectory, tmp_path: Path
) -> None:
    used(directory, range(1, 202))
    with EmbeddedKafka(tmp_path / "kafka") as broker:
        new_topic(broker.bootstrap_servers)
        broker.kill()
        began = time.monotonic()
        with pytest.raises(KafkaUnreachableError) as caught:
            made(directory, broker.bootstrap_servers, request_timeout_ms=2_000).retire_others((1,))
        print(f"without a broker the retirement of 200 ids ended after {time.monotonic() - began:.1f} s")
        assert caught.value.exit_code == 3
        assert time.monotonic() - began < 20
    assert len(recorded(directory)[0]) == 201
