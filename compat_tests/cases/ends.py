"""What a failure for good ends: a process, or from M4 on one task of it."""

from __future__ import annotations

from compat_tests.harness.instance import Instance
from compat_tests.harness.world import World

ENDED = "has failed and is ended"
"""What the log says of a task."""


def ends_alone(world: World) -> bool:
    """Whether a task that fails for good ends alone."""
    return world.has("polling_thread")


def fails_for_good(world: World, app: Instance, exit_code: int, *texts: str) -> None:
    """Wait until the process has died of a task's failure; where the task ends alone, stop the process then. Its log
    has these texts."""
    if not ends_alone(world):
        app.dies(exit_code, *texts)
        return
    app.says(ENDED)
    for text in texts:
        assert text in app.log(), app.log_tail()
    app.stop()
