"""`HelperProcess` is the state thread's side of the process that makes snapshots: it starts, watches and ends it.

*Guarantees*: no call waits for the helper process, except `kill`. The helper ends when this process does.
*Assumes*: one thread makes all calls.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

from milestones.m6_state_manager.processes import begin
from milestones.m6_state_manager.snapshots.jobs import TROUBLE, WARNING, CheckpointJob, SnapshotResult, results

MODULE = "milestones.m6_state_manager.snapshots.process"


class SnapshotHelper(Protocol):
    """A helper process that works on one job."""

    def ended(self) -> bool: ...

    def results(self) -> Iterator[SnapshotResult]:
        """Return the results that the helper has reported so far."""
        ...

    def warnings(self) -> list[str]:
        """Return the warnings that the helper has written so far."""
        ...

    def trouble(self) -> str:
        """Say why the helper reports no more results."""
        ...

    def kill(self) -> None: ...


class HelperProcess:
    """See `SnapshotHelper`. *Owns*: the process, and its input."""

    def __init__(self, job: CheckpointJob) -> None:
        """Start the process, and send it the job. Raises `OSError`."""
        self._job, line = job, job.write()
        with (job.directory / TROUBLE).open("wb") as trouble:
            self._process = begin(MODULE, stdout=subprocess.DEVNULL, stderr=trouble)
        with suppress(BrokenPipeError):  # the process has ended already, and its results say so
            assert self._process.stdin is not None
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def ended(self) -> bool:
        ended = self._process.poll() is not None
        if ended:
            self.let_go()
        return ended

    def let_go(self) -> None:
        """Close the input of the process, which makes it end. Harmless when repeated."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def results(self) -> Iterator[SnapshotResult]:
        return results(self._job.directory)

    def warnings(self) -> list[str]:
        return [line.removeprefix(WARNING) for line in self._said() if line.startswith(WARNING)]

    def trouble(self) -> str:
        *_, said = "", *self._said()
        return f"the helper process ended with {self._process.poll()}: {said or 'it said nothing'}"

    def _said(self) -> list[str]:
        with suppress(OSError):
            return (self._job.directory / TROUBLE).read_text(errors="replace").strip().splitlines()
        return []

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.let_go()


def launch(job: CheckpointJob) -> SnapshotHelper:
    return HelperProcess(job)
