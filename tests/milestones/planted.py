"""Faults planted in the product, which more than one suite of seeds must see."""

from __future__ import annotations

import pytest

from milestones.common.task.task import Task, TaskState


def keep_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is rolled back goes on with the processors that it had."""
    initialise = Task.initialise

    def keep(task: Task) -> None:
        if not task._program.made:
            initialise(task)
        elif not task.initialised:
            task._initialised = True
            task.lifecycle.move(TaskState.READY)

    monkeypatch.setattr(Task, "initialise", keep)
