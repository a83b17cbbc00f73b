"""An instance to which anything happens at any time: a task is in one place, no lease and no store leaks, each input
counts. Each check finds the fault that it is for."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

import pytest

from milestones.common.errors import StateBusyError
from milestones.common.task.task_stores import TaskStores
from milestones.instance.context import ThreadContext
from milestones.m1_state_updater.restoration import UpdaterRestoration
from milestones.m2_processing_threads.pool import WorkerPool
from milestones.m2_processing_threads.scheduler import Scheduler
from milestones.parts import RemovedTask
from milestones.stream_thread.task_removal import TaskRemoval
from milestones.stream_thread.tasks import ThreadTasks
from tests.milestones.chaos.campaign import play
from tests.milestones.chaos.world import INTOLERANT
from tests.milestones.planted import keep_programs

SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(12, 100))]
FAULTY_SEEDS = range(60)


@pytest.mark.parametrize("stage", ["m4", INTOLERANT, "m5"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_task_is_in_one_place_nothing_leaks_and_every_input_counts(seed: int, stage: str) -> None:
    """Thousands of other seeds: `python -m tests.milestones.chaos.campaign 0 3000 m5`."""
    play(seed, stage)


# -- planted faults


def found(*words: str, seeds: Iterable[int] = FAULTY_SEEDS, stage: str = "m4") -> str:
    """The first finding of the campaign that has one of these words."""
    others = set[str]()
    for seed in seeds:
        try:
            play(seed, stage)
        except Exception as error:
            if any(word in str(error) for word in words):
                return str(error)
            others.add(f"{type(error).__name__}: {error}")
    raise AssertionError(f"the campaign doesn't find it, but: {others}")


def test_the_campaign_sees_a_task_that_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(self: Any, removed: RemovedTask) -> None:
        self._in_transit -= 1

    monkeypatch.setattr(Scheduler, "_give", lose)
    assert "with {}" in found("leaves, and is with", "returning, and with")


def test_the_campaign_sees_a_task_in_two_places(monkeypatch: pytest.MonkeyPatch) -> None:
    take_back = UpdaterRestoration._take_back

    def keep(self: Any, task: Any, then: Any) -> None:
        pending = self._pending[task.id]
        take_back(self, task, then)
        self._pending[task.id] = pending

    monkeypatch.setattr(UpdaterRestoration, "_take_back", keep)
    assert "restoration" in found("and with")


def test_the_campaign_sees_a_lease_that_isnt_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    give_back = Scheduler.give_back

    def forget(self: Any, lease: Any, error: Any = None, removed: Any = None) -> bool:
        return error is not None or give_back(self, lease, error, removed)

    monkeypatch.setattr(Scheduler, "give_back", forget)
    assert "at work: " in found("leases of")


def test_the_campaign_sees_a_processing_thread_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> bool:
        raise RuntimeError("of a bug")

    monkeypatch.setattr(Scheduler, "_settle", die)
    assert "of a bug" in found("a processing thread died")


def test_the_campaign_sees_stores_that_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskRemoval, "close_stores", lambda self, entry, stores: self._closed(entry))
    found("its stores are open", "no task owns the open stores")


def test_the_campaign_sees_stores_that_are_closed_under_their_task(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_with = TaskRemoval._wait_with

    def close(self: Any, entry: Any, stores: Any) -> None:
        stores.close()
        wait_with(self, entry, stores)

    monkeypatch.setattr(TaskRemoval, "_wait_with", close)
    found("its stores are closed", "of a closed store")


def test_the_campaign_sees_stores_that_are_closed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    close_stores = TaskRemoval.close_stores

    def twice(self: Any, entry: Any, stores: Any) -> None:
        stores.close()
        close_stores(self, entry, stores)

    monkeypatch.setattr(TaskRemoval, "close_stores", twice)
    found("close of a closed store")


def test_the_campaign_sees_open_state_of_which_the_group_isnt_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskRemoval, "_leave_with_state", TaskRemoval.leave)
    found("the group isn't told of")


def test_the_campaign_sees_a_wait_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadContext, "longest_wait_ms", property(lambda self: self.config.max_poll_interval_ms))
    found("waits of more than a quarter")


def test_the_campaign_sees_a_commit_that_a_busy_engine_never_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    applied = TaskStores.applied

    def pass_over(self: Any, offsets: Any, **told: Any) -> None:
        def write(batches: Any, at: Any) -> None:
            with suppress(StateBusyError):
                self.storage.apply(batches, at)

        applied(self, offsets, write, **told)

    monkeypatch.setattr(TaskStores, "applied", pass_over)
    found("punctuation 1 of", " closes Counter()", stage="m5")


def test_the_campaign_sees_a_thread_that_stays_though_it_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    have = WorkerPool.have

    def keep(self: Any, numbers: Collection[int]) -> None:
        have(self, {*numbers, *self._at_work})

    monkeypatch.setattr(WorkerPool, "have", keep)
    found("wanted: ")


def test_the_campaign_sees_threads_that_outlive_the_polling_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def close(self: Any, timeout_ms: int) -> bool:
        return True

    monkeypatch.setattr(Scheduler, "close", close)
    found("processing threads that haven't ended")


def test_the_campaign_sees_a_task_that_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milestones.m1_state_updater.opening.OPENERS", 0)
    found("doesn't come to an end")


def test_the_campaign_sees_a_program_that_is_kept_over_a_roll_back(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_programs(monkeypatch)
    found("changelog", "out")


def test_the_campaign_sees_input_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    positioned = ThreadTasks._positioned

    def further(self: Any, entry: Any, task: Any, committed: Any) -> None:
        positioned(self, entry, task, {p: at._replace(offset=at.offset + 1) for p, at in committed.items()})

    monkeypatch.setattr(ThreadTasks, "_positioned", further)
    found("changelog", "is lost", "doesn't come to an end")


def test_the_campaign_sees_a_polling_thread_that_dies_of_what_it_mustnt(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise RuntimeError("of a task's failure")

    monkeypatch.setattr("milestones.ended_tasks.task_failure_policy.TaskEndingPolicy.fail", die)
    assert "of a task's failure" in found("the polling thread died of")
