"""What a failure for good ends: a process, or one task of it, as `task_failed` says."""

from __future__ import annotations

ENDED = "has failed and is ended"
"""What the log says of a task."""

ALONE = "end_task"
"""As `task_failed`: a task that fails for good ends alone."""
