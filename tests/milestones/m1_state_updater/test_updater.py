"""The state updater under a step clock: every way a task can go, and what happens when something fails on it."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from milestones.common.errors import KafkaUnreachableError, MilestonesError, StateCorruptError, StateError
from milestones.common.kafka.consumers import Fetched
from milestones.common.records import OffsetAndMetadata, StoreId, TopicPartition
from milestones.common.task.lifecycle import TaskState
from milestones.common.task.task import Task
from milestones.common.topology import StreamsBuilder
from milestones.restoration.changelog_reader import ChangelogReader
from tests.milestones.fakes import LOG, LOG_B, A, B
from tests.milestones.stepped import UpdaterWorld, Updating


@pytest.fixture
def u() -> Updating:
    return Updating()


# -- coming and going


def test_without_a_task_that_has_state_there_is_no_updater(u: Updating) -> None:
    u.restoration.pause(frozenset())
    u.restoration.close(1_000)
    assert u.world.updaters.all == []


def test_a_task_that_is_added_comes_back_restored_up_to_the_end_of_its_changelog(u: Updating) -> None:
    u.world.logs[LOG].add("1", key="a").add("2", key="b").control(2)
    task = u.add()
    assert task.state is TaskState.IN_TRANSIT
    u.step(4)
    assert u.restoration.take_restored() == [task]
    assert task.state is TaskState.RESTORING
    assert u.world.state.text() == {"a": "1", "b": "2"}
    assert u.world.restorer.assigned == frozenset()


def test_the_stream_thread_cannot_touch_a_task_that_is_away(u: Updating) -> None:
    task = u.add()
    with pytest.raises(MilestonesError, match="in transit"):
        task.restore("counts", [], 1)


def test_asking_for_anything_never_waits_for_an_updater_that_hangs(u: Updating) -> None:
    u.world.restorer.next.append(Fetched())
    u.add(0, "1")
    u.step()
    u.updater.hangs = True
    u.add(1)
    u.restoration.pause(frozenset({0}))
    u.restoration.limit({LOG: OffsetAndMetadata(3, "")})
    u.restoration.remove(A)
    assert not u.restoration.run_once(0)
    assert u.restoration.take_removed() == []
    assert u.restoration.positions().keys() == {A, B}


def test_a_task_that_is_removed_while_it_restores_comes_back_open_with_what_it_has(u: Updating) -> None:
    u.world.logs[LOG].add("1", key="a").add("2", key="b")
    u.world.restorer.next.append(Fetched(records={LOG: u.world.logs[LOG].entries[:1]}))  # type: ignore[dict-item]
    task = u.add()
    u.step()
    u.restoration.remove(A)
    assert u.restoration.take_removed() == []
    u.step()
    assert u.restoration.take_removed() == [task]
    assert (task.state, u.world.state.held) == (TaskState.IN_TRANSIT, {A})
    assert u.world.state.text() == {"a": "1"}


def test_a_task_that_is_removed_for_its_other_role_comes_back_open(u: Updating) -> None:
    standby = u.add_standby()
    u.step()
    u.restoration.remove(A, recycled=True)
    u.step()
    assert u.restoration.take_removed() == [standby]
    assert (standby.state, u.world.state.held) == (TaskState.IN_TRANSIT, {A})


def test_a_task_that_is_removed_before_the_updater_has_seen_it_is_back_at_its_next_round(u: Updating) -> None:
    task = u.add()
    u.restoration.remove(A)
    u.step()
    assert u.restoration.take_removed() == [task]
    assert u.restoration.take_restored() == []


def test_a_task_that_is_removed_while_it_is_on_its_way_back_is_removed_and_not_restored(u: Updating) -> None:
    task = u.add()
    u.world.updaters.step()
    u.restoration.remove(A)
    u.step()
    assert u.restoration.take_removed() == [task]
    assert u.restoration.take_restored() == []


@pytest.mark.parametrize("standby", [False, True])
def test_a_removal_that_crosses_a_restored_task_leaves_the_next_stay_of_the_task_alone(
    u: Updating, standby: bool
) -> None:
    u.add()
    u.world.updaters.step()
    u.restoration.remove(A)
    u.restoration.run_once(u.world.clock.monotonic_ms())
    for removed in u.restoration.take_removed():
        removed.close()
    again = u.add_standby() if standby else u.add()
    u.step(3)
    assert u.updater.is_alive()
    assert u.restoration.take_removed() == []
    assert u.restoration.take_restored() == ([] if standby else [again])


def test_a_task_that_is_removed_when_it_is_back_but_not_taken_yet_is_removed_at_once(u: Updating) -> None:
    task = u.add()
    u.step()
    u.restoration.remove(A)
    assert u.restoration.take_removed() == [task]
    assert u.restoration.take_restored() == []


def test_a_task_may_come_again_and_what_was_published_about_its_first_stay_is_not_told_of_the_second(
    u: Updating,
) -> None:
    u.world.restorer.next.append(Fetched())
    u.add(0, "1", "2", "3")
    u.step()
    assert u.restoration.remaining() == {A: 3}
    u.restoration.remove(A)
    u.step()
    for removed in u.restoration.take_removed():
        removed.close()
    u.add()
    assert u.restoration.remaining() == {A: 0}


# -- pauses


def test_paused_tasks_are_not_restored_until_they_are_resumed(u: Updating) -> None:
    u.restoration.pause(frozenset({0}))
    task = u.add(0, "1")
    u.step(5)
    assert u.world.state.text() == {}
    u.restoration.pause(frozenset())
    u.step(3)
    assert u.restoration.take_restored() == [task]


def test_a_task_that_is_paused_can_be_removed(u: Updating) -> None:
    task = u.add(0, "1")
    u.restoration.pause(frozenset({0}))
    u.step(2)
    u.restoration.remove(A)
    u.step()
    assert u.restoration.take_removed() == [task]


# -- standbys


def test_a_standby_follows_its_changelog_and_its_lag_is_published(u: Updating) -> None:
    u.world.logs[LOG].add("1", key="a")
    u.add_standby()
    assert u.restoration.lags() == {}
    u.step(3, ms=200)
    assert u.restoration.lags() == {A: 0}
    u.world.logs[LOG].add("2", key="a")
    u.updater.hangs = True
    u.step(ms=200)
    assert u.restoration.lags() == {A: 0}
    u.updater.hangs = False
    u.step(2, ms=200)
    assert (u.world.state.text(), u.restoration.positions()) == ({"a": "2"}, {A: 2})


def test_a_standby_advances_while_an_active_task_has_much_to_restore(u: Updating) -> None:
    u.world.logs[LOG_B].add(*map(str, range(100_000)))
    task = u.add(0, *map(str, range(600_000)))
    u.add_standby(1)
    lags: list[int] = []
    rounds = 0
    while not u.restoration.take_restored():
        u.step(ms=100)
        rounds += 1
        lags += u.restoration.lags().values()
        assert rounds < 1_000, "the active task isn't restored"
    assert task.counters.restored == 600_000
    assert max(lags) >= 90_000
    assert min(lags) <= 100_000 - 600_000 // 4 * 0.6


# -- sub-topologies of different weights


def restored_first(priorities: dict[int, int]) -> tuple[str, int]:
    """Which of two tasks of different sub-topologies, with equally much to restore, is restored first, and how many
    records the other one has then."""
    builder = StreamsBuilder()
    for name in ("counts", "sums"):
        builder.stream(f"{name}-in").group_by_key().count(name)
    world = UpdaterWorld(topology=builder.build(), settings={"task_priorities": priorities})
    u, tasks = Updating(world), [world.task(subtopology=number) for number in (0, 1)]
    for task, name in zip(tasks, ("counts", "sums"), strict=True):
        world.logs[TopicPartition(f"app-{name}-changelog", 0)].add(*map(str, range(400_000)))
        u.restoration.add(task, {})
    for _ in range(2_000):
        u.step(ms=7)
        if restored := u.restoration.take_restored():
            others = [task for task in tasks if task not in restored]
            return str(restored[0].id), others[0].counters.restored if others else 400_000
    raise AssertionError("no task is restored")


def test_what_is_more_important_is_restored_first_and_the_others_get_their_share() -> None:
    assert restored_first({})[1] >= 390_000
    for number in (0, 1):
        first, others = restored_first({number: 4})
        assert first == f"{number}_0"
        assert 50_000 <= others <= 250_000


# -- failures


def doomed(u: Updating, error: BaseException | None = None) -> Task:
    """A task whose first record raises this, else what kills an updater."""
    task = u.add(0, "1")
    task.restore = Mock(side_effect=error or RuntimeError("a bug"))  # type: ignore[method-assign]
    return task


def test_a_damaged_store_is_rebuilt_and_nothing_else_happens(u: Updating) -> None:
    task = u.add(0, "1")
    damaged, real = [StateCorruptError("damaged", [StoreId(A, "counts")])], task.restore

    def once(*args: Any) -> None:
        if damaged:
            raise damaged.pop()
        real(*args)

    task.restore = once  # type: ignore[method-assign]
    u.step(6)
    assert u.restoration.take_restored() == [task]
    assert u.world.state.text() == {"k": "1"}
    assert u.restoration.take_failed() == []


def test_a_store_whose_offset_cannot_be_read_is_rebuilt_though_the_ends_take_time(u: Updating) -> None:
    """The updater publishes positions meanwhile."""
    u.world.requests.holds = True
    task = u.add(0, "1")

    def offset() -> int | None:
        raise StateCorruptError("a block is damaged", {StoreId(A, "counts")})

    u.world.state.stores[A]["counts"].namespace.offset = offset  # type: ignore[method-assign]
    u.step(3)
    u.world.requests.holds = False
    u.world.requests.answer()
    u.step(6)
    assert u.restoration.take_restored() == [task]
    assert u.world.state.text() == {"k": "1"}


def test_an_error_of_one_task_is_its_own_and_the_others_are_restored(u: Updating) -> None:
    error = StateError("disk full")
    bad, good = doomed(u, error), u.add(1, "1")
    u.step(5)
    assert u.restoration.take_restored() == [good]
    (failed,) = u.restoration.take_failed()
    assert (failed.task, failed.error, failed.again) == (bad, error, False)
    assert u.updater.is_alive()


def test_a_task_that_failed_while_it_was_to_be_removed_counts_as_removed(u: Updating) -> None:
    task = doomed(u, StateError("disk full"))
    u.world.updaters.step(3)
    u.restoration.remove(A)
    u.step()
    assert u.restoration.take_removed() == [task]
    assert u.restoration.take_failed() == []


def test_a_task_whose_ends_cannot_be_learned_fails_alone_after_task_timeout() -> None:
    u = Updating(UpdaterWorld(settings={"task_timeout_ms": 1_000}))
    u.world.requests.error = KafkaUnreachableError("no broker")
    u.add()
    u.step()
    u.step(2, ms=1_001)
    (failed,) = u.restoration.take_failed()
    assert "0_0" in str(failed.error)
    assert u.updater.is_alive()


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyboardInterrupt()])
def test_an_updater_that_dies_fails_everything_it_had_and_the_next_task_gets_a_new_one(
    u: Updating, error: BaseException
) -> None:
    task, standby = doomed(u, error), u.add_standby(1)
    u.step(3)
    assert not u.updater.is_alive()
    found = {failed.task.id: failed for failed in u.restoration.take_failed()}
    assert found.keys() == {A, B}
    assert all(failed.error is error and failed.again for failed in found.values())
    task.close()
    standby.close()
    again = u.add()
    u.step(3)
    assert len(u.world.updaters.all) == 2
    assert u.restoration.take_restored() == [again]


def test_what_was_asked_of_a_dead_updater_is_answered(u: Updating) -> None:
    first, second = doomed(u), u.add_standby(1)
    u.step()
    u.world.updaters.step(3)
    u.restoration.remove(A)
    u.restoration.remove(B)
    u.step()
    assert set(u.restoration.take_removed()) == {first, second}
    assert u.restoration.take_failed() == []


def test_a_task_that_is_added_after_the_updater_has_died_unnoticed_goes_to_a_new_one_that_knows_of_pauses(
    u: Updating,
) -> None:
    doomed(u)
    u.world.updaters.step(3)
    u.restoration.pause(frozenset({0}))
    u.add(1, "1")
    u.step(4)
    assert u.world.state.text(id=B) == {}
    u.restoration.pause(frozenset())
    u.step(3)
    assert [task.id for task in u.restoration.take_restored()] == [B]


def test_an_updater_that_dies_of_the_first_of_several_requests_loses_none_of_the_others(
    u: Updating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChangelogReader, "add", Mock(side_effect=RuntimeError("a bug")))
    u.add()
    u.add_standby(1)
    u.step()
    assert {failed.task.id for failed in u.restoration.take_failed()} == {A, B}


def test_an_updater_that_dies_again_and_again_is_the_end(u: Updating) -> None:
    agains = []
    for _ in range(3):
        task = doomed(u)
        u.step(3)
        (failed,) = u.restoration.take_failed()
        agains.append(failed.again)
        task.close()
    assert agains == [True, True, False]


def test_an_updater_that_cannot_be_started_has_died_and_the_task_is_not_lost(u: Updating) -> None:
    u.world.updaters.refusing = True
    first = u.add()
    u.restoration.run_once(u.world.clock.monotonic_ms())
    (failed,) = u.restoration.take_failed()
    assert (failed.task, failed.again, str(failed.error)) == (first, True, "can't start new thread")
    first.close()
    u.world.updaters.refusing = False
    again = u.add()
    u.step(3)
    assert u.restoration.take_restored() == [again]


def test_deaths_that_are_far_apart_have_nothing_to_do_with_each_other(u: Updating) -> None:
    for _ in range(5):
        task = doomed(u)
        u.step(3)
        (failed,) = u.restoration.take_failed()
        assert failed.again
        task.close()
        u.world.clock.advance(60_000)


def test_a_lasting_error_of_the_consumer_is_the_end_at_once(u: Updating) -> None:
    u.world.restorer.next.append(MilestonesError("the consumer can't read"))
    u.add(0, "1")
    u.step(2)
    (failed,) = u.restoration.take_failed()
    assert not failed.again


# -- the end


def test_the_end_gives_back_what_the_updater_has_and_closes_the_consumer(u: Updating) -> None:
    u.world.logs[LOG].add("1", key="a")
    u.add_standby()
    u.step(2)
    u.restoration.remove(A)
    u.restoration.close(5_000)
    assert [task.id for task in u.restoration.take_removed()] == [A]
    assert (u.world.state.held, u.world.restorer.closed, u.updater.joined) == ({A}, True, [5.0])


def test_a_task_that_comes_back_after_the_end_is_closed_by_the_updater(u: Updating) -> None:
    u.world.restorer.next.append(Fetched())
    u.add(0, "1")
    u.step()
    u.restoration.remove(A)
    u.updater.hangs = True
    u.restoration.close(5_000)
    assert u.restoration.take_removed() == []
    assert u.world.state.held == {A}
    u.updater.hangs = False
    u.world.updaters.step()
    assert (u.world.state.held, u.world.restorer.closed) == (set(), True)


def test_an_updater_that_has_died_does_not_keep_the_thread_from_its_end(u: Updating) -> None:
    doomed(u)
    u.world.updaters.step(3)
    u.restoration.remove(A)
    u.restoration.close(5_000)
    (task,) = u.restoration.take_removed()
    task.close()
    assert u.world.state.held == set()


def test_the_end_waits_for_an_updater_that_has_died_and_still_closes_too(u: Updating) -> None:
    doomed(u)
    u.step(3)
    dead = u.updater
    dead.ended = False  # its consumer isn't closed yet
    u.add(1)
    assert u.updater is not dead
    u.restoration.close(5_000)
    assert (dead.joined, u.updater.joined) == ([5.0], [5.0])


# -- what is shown


def test_metrics_tell_of_the_updater_and_of_each_store_that_restores(u: Updating) -> None:
    u.world.restorer.next.append(Fetched())
    u.add(0, *map(str, range(20_000)))
    u.step(2)
    u.step(ms=1_000)
    shown = u.world.context.metrics.snapshot()
    (updater,) = shown["stream-state-updater-metrics"]
    assert updater["metrics"]["active-restoring-tasks"] == 1
    (store,) = shown["stream-state-metrics"]
    assert store["tags"]["state-id"] == "counts"
    assert 0 < store["metrics"]["restore-remaining-records-total"] < 20_000
    assert store["metrics"]["restore-remaining-bytes-total"] > 0
    u.step(20, ms=1_000)
    assert u.world.context.metrics.snapshot().get("stream-state-metrics", []) == []
    u.restoration.close(1)
    assert u.world.context.metrics.snapshot().get("stream-state-updater-metrics", []) == []


def test_one_line_in_ten_seconds_tells_how_far_restoration_is(u: Updating, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    u.add(0, *map(str, range(200_000)))
    u.step(21, ms=1_000)
    lines = [record.message for record in caplog.records if "to go" in record.message]
    assert len(lines) == 2
    assert "app-StateUpdater-1: restoring 1 stores of 1 tasks" in lines[0]
    assert "0_0 counts" in lines[0]
