"""What a process leaves behind: threads, handles, connections, objects, a wrong exit code.

*Guarantees*: as `mutations/__init__.py`.
*Assumes*: nothing.
"""

from __future__ import annotations

import threading
from typing import Any

from compat_tests.planted.mutations import around, mutation
from milestones import Streams
from milestones.common.kafka.consumers import AssignedConsumer
from milestones.common.state.directory import TaskDirectory
from milestones.common.task.task import Task

HELD: list[object] = []
"""What this process never lets go."""


@mutation
def a_thread_is_left() -> None:
    """A thread of the runtime's waits for ever."""

    @around(Task, "end")
    def end(original: Any, task: Any) -> None:
        original(task)
        threading.Thread(target=threading.Event().wait, name=f"left-by-{task.id}", daemon=True).start()


@mutation
def a_task_stays_locked() -> None:
    """The lock of a task's directory is never released."""

    @around(TaskDirectory, "unlock")
    def unlock(original: Any, directory: Any) -> None:
        HELD.append(directory)


@mutation
def a_consumer_stays_open() -> None:
    """Consumers are never closed."""

    @around(AssignedConsumer, "close")
    def close(original: Any, consumer: Any) -> None:
        HELD.append(consumer)


@mutation
def a_closed_task_is_still_held() -> None:
    """Somebody holds a task that was closed, with its buffers."""

    @around(Task, "end")
    def end(original: Any, task: Any) -> None:
        original(task)
        HELD.append(task)


@mutation
def the_exit_code_is_wrong() -> None:
    """A clean end looks like a failure, and a failure like a clean end."""

    @around(Streams, "run")
    def run(original: Any, streams: Any) -> int:
        return 0 if original(streams) else 1
