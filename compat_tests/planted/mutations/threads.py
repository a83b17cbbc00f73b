"""Processing threads: halves of records, results that are void, tasks that nobody gives back, commits that wait.

*Guarantees*: as `mutations/__init__.py`.
*Assumes*: a record's work is merged by `Runner`, and void if its task was rolled back meanwhile; processing threads
give tasks back by `Scheduler.give_back`.
"""

from __future__ import annotations

import threading
from typing import Any

from compat_tests.planted.mutations import around, mutation
from milestones.common.task.runner import Runner
from milestones.common.task.task import Task
from milestones.m2_processing_threads.processing import ThreadedProcessing
from milestones.m2_processing_threads.scheduler import Scheduler

WAIT_S = 1.0


@mutation
def half_a_record_is_committed() -> None:
    """A commit takes what the record in work has done so far."""

    @around(Task, "commit_needed")
    def commit_needed(original: Any, task: Any) -> bool:
        return bool(task._runner.scope) or bool(original(task))

    @around(Task, "freeze_if_flushed")
    def freeze(original: Any, task: Any) -> Any:
        with task._boundary.lock:
            task._runner.scope.merge(task._boundary.outputs)
        return original(task)


@mutation
def a_void_result_is_sent_after_all() -> None:
    """What a record did whose task was rolled back meanwhile is sent once the task goes on."""
    kept: dict[int, list[Any]] = {}

    @around(Runner, "_void")
    def void(original: Any, runner: Any) -> None:
        kept[id(runner)] = list(runner.scope.outputs)
        original(runner)

    @around(Task, "start")
    def start(original: Any, task: Any, *arguments: Any, **named: Any) -> None:
        original(task, *arguments, **named)
        task._boundary.outputs += kept.pop(id(task._runner), [])


@mutation
def a_task_that_failed_is_never_given_back() -> None:
    """The lease of a task whose user code raises never ends."""

    @around(Scheduler, "give_back")
    def give_back(original: Any, scheduler: Any, lease: Any, error: Any = None, removed: Any = None) -> None:
        if error is None:
            original(scheduler, lease, error, removed)


@mutation
def commits_wait_for_user_code() -> None:
    """Before each commit the stream thread waits for a task that is in a long call; a second at most."""

    @around(ThreadedProcessing, "prepare_commit")
    def prepare_commit(original: Any, processing: Any, now_ms: int, *arguments: Any, **named: Any) -> Any:
        in_calls = [scheduled for scheduled in processing._scheduler._scheduled.values() if scheduled.lease is not None]
        if any(now_ms >= scheduled.lease.deadline_ms for scheduled in in_calls):
            threading.Event().wait(WAIT_S)
        return original(processing, now_ms, *arguments, **named)


@mutation
def commits_forget_the_caches() -> None:
    """Boundaries are committed whose updates still wait in a cache."""
    Runner.unflushed = False  # type: ignore[assignment,method-assign]
