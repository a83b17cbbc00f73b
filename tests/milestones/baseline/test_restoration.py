"""Inline restoration: where it ends, and what it does when a changelog isn't what it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError

from milestones.baseline.restoration import InlineRestoration
from milestones.common import serdes
from milestones.common.errors import KafkaUnreachableError, StateCorruptError, TimeoutExceededError
from milestones.common.kafka.consumers import Fetched
from milestones.common.kafka.membership import JoinNeeded
from milestones.common.kafka.retry import SOONEST_MS
from milestones.common.records import StoreId, TaskId, TopicPartition
from milestones.common.state.spec import StoreSpec
from milestones.common.task.lifecycle import TaskState
from milestones.common.task.task import Task
from milestones.common.topology import Topology
from milestones.restoration.changelog_reader import ChangelogReader
from tests.milestones.fakes import CHANGELOG, IN, LOG, A, B, Counting, Log, Running, World, counting, kafka_error


class Restoring:
    """A restoration of task 0_0."""

    def __init__(
        self, world: World | None = None, make: Callable[[Any, Any], ChangelogReader] = InlineRestoration
    ) -> None:
        self.world = world or World()
        self.restoration = make(self.world.context, self.world.clients)

    def add(self, committed: dict[TopicPartition, int] | None = None) -> Task:
        task = self.world.task()
        self.restoration.add(task, committed or {})
        return task

    def step(self, times: int = 1) -> list[Task]:
        restored: list[Task] = []
        for _ in range(times):
            self.restoration.run_once(self.world.clock.monotonic_ms())
            restored += self.restoration.take_restored()
        return restored


def test_an_empty_changelog_is_complete_at_once_and_nothing_is_fetched() -> None:
    r = Restoring()
    task = r.add()
    assert r.step() == [task]
    assert r.world.restorer.moves == []


@pytest.mark.parametrize(
    ("fill", "content", "offset"),
    [
        (lambda log: log.add("1", key="a").add("2", key="b").add("3", key="a"), {"a": "3", "b": "2"}, 3),
        (lambda log: log.add("1", key="a").control(3), {"a": "1"}, 4),
        (lambda log: log.control(5), {}, 5),
        (lambda log: log.control(5).add("1", key="a").cut_to(4), {"a": "1"}, 6),
    ],
    ids=["all its records", "control records at the end", "nothing but aborted records", "its beginning is compacted"],
)
def test_a_store_gets_all_records_of_its_changelog_and_stands_at_its_end(
    fill: Callable[[Log], object], content: dict[str, str], offset: int
) -> None:
    r = Restoring()
    fill(r.world.logs[LOG])
    task = r.add()
    assert r.step(3) == [task]
    assert (r.world.state.text(), r.world.state.offset(A)) == (content, offset)
    assert r.world.restorer.assigned == frozenset()


def test_restoration_waits_for_the_end_as_it_was_when_it_began_an_open_transaction_included() -> None:
    r = Restoring()
    log = r.world.logs[LOG].add("1", key="a")
    r.world.requests.holds = True
    r.add()
    open_transaction = World().logs[LOG].add("0").add("2", key="a").entries[1:]
    log.entries += open_transaction
    r.step()
    r.world.requests.answer()
    log.entries.pop()
    assert r.step(3) == []
    assert r.restoration.remaining() == {A: 1}
    log.entries += open_transaction
    assert len(r.step(2)) == 1
    assert r.world.state.text() == {"a": "2"}


def test_what_a_store_has_already_is_not_fetched_again() -> None:
    r = Restoring()
    r.world.logs[LOG].add("1", key="a").add("2", key="b")
    r.add()
    r.step(2)
    r.restoration.remove(A) if A in r.restoration.remaining() else None
    r.world.state.tasks[A].close()
    r.world.logs[LOG].add("3", key="c")
    r.add()
    r.step(2)
    assert r.world.restorer.moves[-1] == {LOG: 2}
    assert r.world.state.text() == {"a": "1", "b": "2", "c": "3"}


def restored_to(r: Restoring, *values: str) -> None:
    """A store that an earlier life of the task has restored and closed."""
    r.world.logs[LOG].add(*values, key="old")
    r.add()
    r.step(3)
    r.world.state.tasks[A].close()


def test_a_store_that_is_ahead_of_its_changelog_is_rebuilt() -> None:
    r = Restoring()
    restored_to(r, "1", "2", "3")
    del r.world.logs[LOG]
    r.world.logs[LOG].add("9", key="new")
    r.add()
    assert len(r.step(3)) == 1
    assert r.world.state.text() == {"new": "9"}
    assert r.world.restorer.moves[-1] == {LOG: 0}


def test_a_store_of_a_changelog_that_was_deleted_and_is_longer_again_is_rebuilt_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    r = Restoring()
    r.world.requests.topic_ids = {CHANGELOG: "first"}
    restored_to(r, "1", "2")
    del r.world.logs[LOG]
    r.world.logs[LOG].add("7", "8", "9", key="new")
    r.world.requests.topic_ids = {CHANGELOG: "second"}
    r.add()
    assert len(r.step(3)) == 1
    assert r.world.state.text() == {"new": "9"}
    assert "made anew (topic id first then, second now)" in caplog.text
    assert r.world.state.changelog_ids[A] == {"counts": "second"}


@pytest.mark.parametrize(("ids", "kept"), [({}, {}), ({CHANGELOG: "first"}, {"counts": "first"})])
def test_a_store_that_knows_no_topic_id_keeps_its_content_and_gets_the_id(
    ids: dict[str, str], kept: dict[str, str]
) -> None:
    r = Restoring()
    restored_to(r, "1", "2")
    r.world.requests.topic_ids = ids
    r.add()
    assert len(r.step(2)) == 1
    assert r.world.state.text() == {"old": "2"}
    assert r.world.state.changelog_ids[A] == kept


def test_a_store_whose_changelog_kept_its_id_is_not_rebuilt() -> None:
    r = Restoring()
    r.world.requests.topic_ids = {CHANGELOG: "first"}
    restored_to(r, "1", "2")
    r.world.logs[LOG].add("3", key="new")
    r.add()
    assert len(r.step(2)) == 1
    assert r.world.state.text() == {"old": "2", "new": "3"}


def test_the_topic_id_is_written_down_before_the_first_record_is_restored() -> None:
    r = Restoring()
    r.world.requests.topic_ids = {CHANGELOG: "first"}
    r.world.logs[LOG].add("1", key="a")
    r.world.restorer.next.append(Fetched())
    r.add()
    assert r.step() == []
    assert (r.world.state.text(), r.world.state.changelog_ids[A]) == ({}, {"counts": "first"})


def test_a_store_whose_place_in_the_changelog_is_gone_is_rebuilt() -> None:
    r = Restoring()
    restored_to(r, "1")
    r.world.logs[LOG].control(9).add("2", key="new")
    r.world.logs[LOG].cut_to(5)
    r.add()
    assert len(r.step(3)) == 1
    assert r.world.state.text() == {"new": "2"}


def test_a_place_that_goes_while_it_is_being_restored_is_rebuilt_too() -> None:
    r = Restoring()
    restored_to(r, "1")
    r.world.logs[LOG].control(9).add("2", key="new")
    r.world.restorer.next.append(Fetched())
    task = r.add()
    r.step()
    r.world.logs[LOG].cut_to(5)
    assert r.step(4) == [task]
    assert r.world.state.text() == {"new": "2"}


def test_a_changelog_that_one_broker_does_not_know_is_asked_for_again() -> None:
    """Whether it was deleted is the housekeeper's to say, who looks twice."""
    r = Restoring(World().logged("1", key="a"))
    task = r.add()
    r.world.restorer.next.append(Fetched(gone=[LOG]))
    assert r.step(4) == [task]
    assert r.world.state.text() == {"a": "1"}


def two_stores() -> Topology:
    topology = counting(processor=Counting)
    topology.add_state_store(StoreSpec("other", key_serde=serdes.STRING, value_serde=serdes.LONG), "counting")
    return topology


def test_a_task_with_several_stores_is_restored_when_the_last_one_is() -> None:
    r = Restoring(World(two_stores()))
    other = TopicPartition("app-other-changelog", 0)
    r.world.logs[LOG].add("1", key="a")
    r.world.logs[other].add("2", key="b")
    task = r.add()
    r.world.restorer.next.append(Fetched(ends={LOG: 1}, records={LOG: r.world.logs[LOG].entries}))  # type: ignore[dict-item]
    assert r.step() == []
    assert r.restoration.remaining() == {A: 1}
    r.world.restorer.next.append(Fetched())
    assert r.step() == []
    assert r.world.restorer.assigned == {other}
    assert r.step(2) == [task]
    assert (r.world.state.text(), r.world.state.text("other")) == ({"a": "1"}, {"b": "2"})


def test_only_the_store_whose_changelog_is_not_what_it_was_is_rebuilt() -> None:
    r = Restoring(World(two_stores()))
    other = TopicPartition("app-other-changelog", 0)
    r.world.logs[other].add("2", key="b")
    restored_to(r, "1", "2")
    del r.world.logs[LOG]
    r.add()
    r.step(2)
    assert (r.world.state.text(), r.world.state.text("other")) == ({}, {"b": "2"})


@pytest.mark.parametrize(
    ("fill", "committed", "content"),
    [
        (lambda log: log.add("1", key="a").add("2", key="b").add("3", key="c"), {IN: 2}, {"a": "1", "b": "2"}),
        (lambda log: log.control(2).add("3", key="c"), {IN: 2}, {}),
        (lambda log: log.add("1", key="a"), {}, {}),
    ],
    ids=["not a record further", "with nothing but control records before it", "not at all without one"],
)
def test_a_source_topic_as_changelog_is_restored_up_to_the_committed_offset(
    fill: Callable[[Log], object], committed: dict[TopicPartition, int], content: dict[str, str]
) -> None:
    r = Restoring(World(counting(source_topic="in")))
    fill(r.world.logs[IN])
    r.add(committed)
    assert len(r.step(3)) == 1
    assert (r.world.state.text(), r.world.state.offset(A) or 0) == (content, committed.get(IN, 0))


def test_ends_that_cannot_be_learned_now_are_asked_for_again() -> None:
    r = Restoring()
    r.world.requests.error = KafkaUnreachableError("no broker")
    task = r.add()
    assert r.step(3) == []
    r.world.requests.error = None
    r.world.clock.advance(SOONEST_MS)
    assert r.step(2) == [task]


def test_ends_that_cannot_be_learned_within_task_timeout_end_the_thread() -> None:
    r = Restoring(World(settings={"task_timeout_ms": 1_000}))
    r.world.requests.error = kafka_error(KafkaError._TRANSPORT)
    r.add()
    r.step()
    r.world.clock.advance(1_001)
    r.step()
    with pytest.raises(TimeoutExceededError, match="0_0"):
        r.step()


def test_an_answer_that_an_earlier_restoration_of_the_task_asked_for_does_not_end_this_one_too_soon() -> None:
    r = Restoring()
    r.world.requests.holds = True
    task = r.add()
    (asked_then,) = r.world.requests.questions
    r.restoration.remove(A)
    assert r.restoration.take_removed() == [task]
    task.close()
    r.world.requests.answer()  # the changelog is empty now
    r.world.logs[LOG].add("1", key="a")
    r.add()
    assert r.step(2) == []
    r.world.requests.answer()
    assert len(r.step(2)) == 1
    assert r.world.state.text() == {"a": "1"}
    assert asked_then.task == A


def test_a_task_that_is_complete_but_not_taken_yet_can_be_removed() -> None:
    r = Restoring()
    task = r.add()
    r.restoration.run_once(0)
    r.restoration.remove(A)
    assert r.restoration.take_removed() == [task]
    assert r.restoration.take_restored() == []


def test_a_task_that_is_removed_half_way_keeps_what_is_restored() -> None:
    r = Restoring()
    r.world.logs[LOG].add("1", key="a").add("2", key="b")
    r.add()
    r.world.restorer.next.append(Fetched(records={LOG: r.world.logs[LOG].entries[:1]}))  # type: ignore[dict-item]
    r.step()
    r.restoration.remove(A)
    (task,) = r.restoration.take_removed()
    assert r.world.restorer.assigned == frozenset()
    task.close()
    assert r.world.state.offset(A) == 1


def test_without_tasks_nothing_is_fetched() -> None:
    r = Restoring()
    assert not r.restoration.run_once(0)
    assert r.world.restorer.waits == []


def test_restoration_never_waits_for_records() -> None:
    r = Restoring(World().logged("1"))
    r.add()
    r.step(3)
    assert set(r.world.restorer.waits) == {0}


def test_the_records_that_are_still_to_come_are_told_by_task() -> None:
    r = Restoring(World().logged("1", "2", "3"))
    r.world.restorer.next.append(Fetched())
    r.add()
    assert r.restoration.remaining() == {A: 0}
    r.step()
    assert r.restoration.remaining() == {A: 3}


def damaged(r: Restoring | Running, store: str = "counts", of: TaskId = A) -> None:
    """The first call about changelogs finds damage of this task's store, until the store of 0_0 is set aside."""
    state = r.world.state
    broken, storage = state.stores[A][store], (state.standbys.get(A) or state.tasks[A])._stores.storage
    keep = storage.keep_changelog_ids

    def kept(ids: Mapping[str, str]) -> None:
        if storage.stores[store] is broken:
            raise StateCorruptError("a block is damaged", {StoreId(of, store)})
        keep(ids)

    storage.keep_changelog_ids = kept  # type: ignore[method-assign]


def test_a_store_whose_damage_shows_when_its_restoration_begins_is_rebuilt() -> None:
    r = Restoring()
    restored_to(r, "1", "2")
    r.world.requests.holds = True
    task = r.add()
    damaged(r)
    r.world.requests.answer()
    r.world.requests.holds = False
    assert r.step(5) == [task]
    assert r.world.state.text() == {"old": "2"}
    assert r.world.restorer.moves[-1] == {LOG: 0}


def test_a_standby_whose_damage_shows_when_it_begins_is_rebuilt() -> None:
    r = Restoring()
    restored_to(r, "1", "2")
    r.world.requests.holds = True
    r.restoration.add_standby(r.world.state.create_standby(A))
    damaged(r)
    r.world.requests.answer()
    r.world.requests.holds = False
    r.step(5)
    assert (r.world.state.text(), r.restoration.lags()) == ({"old": "2"}, {A: 0})


def test_damage_of_another_tasks_store_is_not_this_tasks_matter() -> None:
    r = Restoring()
    restored_to(r, "1")
    r.world.requests.holds = True
    task = r.add()
    damaged(r, of=B)
    r.world.requests.answer()
    with pytest.raises(StateCorruptError):
        r.step()
    assert task.state is TaskState.RESTORING


def test_a_task_whose_damage_shows_when_its_restoration_begins_processes_soon_and_costs_no_other_task() -> None:
    r = Running().run(1)
    r.world.logs[LOG].add("1", "2", key="old")
    r.rebalance(0, 1)
    r.step(10)
    r.rebalance(1)
    r.step(10)
    r.world.requests.holds = True
    r.rebalance(0, 1)
    r.step(5)
    damaged(r)
    epoch = r.world.state.tasks[B].epoch
    r.world.requests.answer()
    r.world.requests.holds = False
    r.step(10)
    assert r.tasks.processing.keys() == {A, B}
    assert r.world.state.tasks[B].epoch == epoch
    assert r.world.state.text() == {"old": "2"}


def test_a_member_joins_although_a_store_that_is_to_be_restored_is_damaged() -> None:
    r = Running()
    r.world.requests.holds = True
    r.rebalance(0, steps=3)

    def offset() -> int | None:
        raise StateCorruptError("a block is damaged", {StoreId(A, "counts")})

    r.world.state.stores[A]["counts"].namespace.offset = offset  # type: ignore[method-assign]
    joins = len(r.world.member.joins)
    r.hear(JoinNeeded("a test"))
    assert [joined.positions for joined in r.world.member.joins[joins:]] == [{A: 0}]
