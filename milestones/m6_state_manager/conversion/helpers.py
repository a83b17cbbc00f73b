"""The helper processes of a conversion, and what passes between them and the starting instance.

    Helpers --a job, a line of JSON--> helper process --Converted, a line of JSON--> Helpers

*Guarantees*: a helper ends with its parent, however that ends. A job of a helper that has ended is done by the parent.
*Assumes*: as `layouts.py`.
"""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from milestones.common.errors import StateCorruptError, StateError, StateFormatError, StateLockedError
from milestones.m6_state_manager.conversion.layouts import Convert, Converted, FolderJob, Job, RangeJob, at_once
from milestones.m6_state_manager.processes import begin

log: Final = logging.getLogger(__name__)

PROGRAM: Final = "milestones.m6_state_manager.conversion.process"
ERRORS: Final = {kind.__name__: kind for kind in (StateCorruptError, StateFormatError, StateLockedError, StateError)}

KINDS: Final[Mapping[str, type[Job]]] = {kind.__name__: kind for kind in (FolderJob, RangeJob)}
PATHS: Final = frozenset({"folder", "database", "target"})
"""The fields of jobs that are paths."""


class Helpers:
    """A context manager. *Owns*: so many helper processes, and as many threads that ask them."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, "conversion")
        self._all = [ConversionHelper() for _ in range(count)]
        self._free: SimpleQueue[ConversionHelper] = SimpleQueue()
        for helper in self._all:
            self._free.put(helper)

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for helper in self._all:
            helper.end()
        self._pool.shutdown()
        for helper in self._all:
            helper.close()

    def submit(self, job: Job) -> Future[Converted]:
        """Have one of them do it, in the order of the calls."""
        return self._pool.submit(self._do, job)

    def _do(self, job: Job) -> Converted:
        helper = self._free.get()
        try:
            return helper.do(job)
        finally:
            self._free.put(helper)


class ConversionHelper:
    """*Owns*: the process. One thread at a time asks it, any may end it."""

    def __init__(self) -> None:
        self._ended = False
        self._process = begin(PROGRAM, stdout=subprocess.PIPE, text=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    def do(self, job: Job) -> Converted:
        """What came of the job. `StateError`."""
        line = self._ask(written(job))
        if line:
            return answered(line)
        if self._ended:
            raise StateError(f"{job.target} isn't written any more: the conversion has ended")
        log.warning("a helper process has ended with exit code %d, its work is done here", self._process.wait())
        return at_once(job)

    def _ask(self, line: str) -> str:
        """The answer; nothing when the process has ended."""
        asked, told = self._process.stdin, self._process.stdout
        assert asked is not None
        assert told is not None
        try:
            asked.write(line)
            asked.flush()
            answered: str = told.readline()
            return answered
        except (OSError, ValueError):  # the second of a pipe that is closed
            return ""

    def end(self) -> None:
        """It is dead when this returns; a thread that waits for its answer gets none."""
        self._ended = True
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close the pipes. No thread may ask any more."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # what wasn't read
                pipe.close()


# -- what passes between the processes


def written(job: Job) -> str:
    """The job as a line."""
    fields = {name: value.hex() if isinstance(value, bytes) else value for name, value in job._asdict().items()}
    return json.dumps([type(job).__name__, fields], default=str) + "\n"


def read(line: str) -> Job:
    """The job in a line."""
    kind, fields = json.loads(line)
    paths = {name: Path(value) for name, value in fields.items() if name in PATHS}
    prefix = {"prefix": bytes.fromhex(fields["prefix"])} if "prefix" in fields else {}
    return KINDS[kind](**{**fields, **paths, **prefix})


def answer(job: Job, convert: Convert) -> str:
    """Do the job; what came of it, as a line."""
    told: dict[str, Any]
    try:
        told = convert(job)._asdict()
    except StateError as error:
        kind = next(name for name, kind in ERRORS.items() if isinstance(error, kind))
        told = {"error": kind, "text": str(error)}
    return json.dumps(told, default=str) + "\n"


def answered(line: str) -> Converted:
    """What came of a job. `StateError`."""
    told = json.loads(line)
    if "error" in told:
        raise ERRORS[told["error"]](told["text"])
    return Converted(told["entries"], [Path(file) for file in told["files"]], told["offset"])
