"""What has failed for good, as the thread that polls would learn of it."""

from __future__ import annotations

from milestones.m2_processing_threads.quarantine import TaskFailure
from milestones.m2_processing_threads.scheduler import Scheduler


def final_failure(scheduler: Scheduler) -> TaskFailure | None:
    """The final failure of a task, if there is one; no processing thread has ended of a bug."""
    assert scheduler.dead is None
    return next((failure for failure in scheduler.failures().values() if failure.final), None)
