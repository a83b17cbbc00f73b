"""What a process leaves behind: threads, handles, connections, objects, a wrong exit code.

*Guarantees*: as `mutations/__init__.py`.
*Assumes*: nothing.
"""

from __future__ import annotations

import threading
from typing import Any

from compat_tests.planted.mutations import around, mutation, mutations_by
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


def holding(call: tuple[object, str]) -> None:
    """The call isn't made: its object is held."""
    around(*call)(lambda _original, held: HELD.append(held))


mutations_by(
    holding,
    {"a-task-stays-locked": (TaskDirectory, "unlock"), "a-consumer-stays-open": (AssignedConsumer, "close")},
)


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
    def run(original: Any, streams: Any, *, workers: Any = None) -> int:
        return 0 if original(streams, workers=workers) else 1
