"""The program of a task. A program is made when the task's processors are initialised. The program ends with a
roll-back or with the task.

*Guarantees*: a program is closed once, and is never used after a roll-back. Writes and outputs that processors make
while they are closed are dropped.
*Assumes*: only the thread that calls user code calls the methods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from milestones.common.records import TaskId
from milestones.common.task.scope import RecordScope
from milestones.common.topology.compiled import Program, compile_program

if TYPE_CHECKING:
    from milestones.common.task.counters import TaskCounters
    from milestones.common.task.task_context import TaskContext, TaskSettings
    from milestones.common.topology.nodes import SubTopology

log: Final = logging.getLogger(__name__)


class TaskProgram:
    """*Owns*: the program. `scope`: the scope of the task's record in work."""

    def __init__(self, task: TaskId, scope: RecordScope, compiled: Callable[[], Program]) -> None:
        """`compiled` makes a program with new processors."""
        self._task, self._scope, self._compiled = task, scope, compiled
        self._program: Program | None = None

    @property
    def made(self) -> bool:
        """True if there is a program. A rolled-back program counts until it is closed."""
        return self._program is not None

    def make(self) -> Program:
        """Make a program. The program before it must have ended. Raises `TopologyError`, and the errors of suppliers.
        """
        self._program = self._compiled()
        return self._program

    def end_former(self) -> None:
        """End the rolled-back program. Errors of its processors are only logged, as their work is void."""
        try:
            self.end()
        except Exception:
            log.warning("task %s: a processor that was rolled back didn't close cleanly", self._task, exc_info=True)

    def end(self) -> None:
        """Close the processors, unless they are closed. Raises their errors."""
        program, self._program = self._program, None
        try:
            if program is not None:
                program.close()
        finally:
            self._scope.drop()


def compiled(
    sub: SubTopology, context: TaskContext, settings: TaskSettings, counters: TaskCounters, topics: Iterable[str]
) -> Program:
    """Return a program of a task. The program's nodes are counted and timed if the settings say so."""
    observe = counters.counting if settings.count_nodes else None
    compiling = compile_program if settings.profile is None else settings.profile.compiled
    return compiling(sub, context, topics, observe)
