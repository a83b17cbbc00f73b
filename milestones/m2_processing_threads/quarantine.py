"""Rules of the quarantine: a task that fails is retried after growing pauses, until it has failed for too long.

*Guarantees*: the pause before the next try doubles from `FIRST_MS` to `LONGEST_MS`. A record that succeeds in between
resets the pause. The task has its last try when it has failed for `task_timeout_ms`. If the task couldn't be tried at
that time, because its sub-topology was paused, the last try comes later. The stream thread ends only when that try
fails.
*Assumes*: a task isn't retried after an error that `is_permanent`: an error of state or files, a bug, a lost
membership, an error that ends more than the task, an error of the interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass

from milestones.common.task.failures import UNHANDLED
from milestones.parts import DecidedError

FIRST_MS, LONGEST_MS = 100, 5_000
NEVER = 2**62


def is_permanent(error: BaseException) -> bool:
    """Return True if another try would be useless."""
    return not isinstance(error, Exception) or isinstance(error, (DecidedError, *UNHANDLED))


@dataclass(frozen=True)
class TaskFailure:
    """The last error of a task in quarantine, and the number of its tries. Also three times, in monotonic ms: since
    when the task fails, when it is retried, and when it will have failed for too long."""

    error: BaseException
    since_ms: int
    tries: int
    again_ms: int
    end_ms: int

    @property
    def first(self) -> bool:
        return self.tries == 1

    @property
    def final(self) -> bool:
        """True if the task isn't retried any more. Then its stream thread ends."""
        return self.again_ms == NEVER


def failed(
    error: BaseException, before: TaskFailure | None, now_ms: int, timeout_ms: int, *, permanent: bool
) -> TaskFailure:
    """Make the failure of a task that has just failed. `before`: the failure of the previous try, or None if a record
    or a turn succeeded since."""
    since_ms = now_ms if before is None else before.since_ms
    tries = 1 if before is None else before.tries + 1
    end_ms = since_ms + timeout_ms
    if permanent or now_ms >= end_ms:
        return TaskFailure(error, since_ms, tries, NEVER, now_ms)
    pause_ms = min(FIRST_MS << min(tries - 1, 30), LONGEST_MS)
    return TaskFailure(error, since_ms, tries, min(now_ms + pause_ms, end_ms), end_ms)
