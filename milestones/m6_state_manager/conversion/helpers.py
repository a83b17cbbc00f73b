"""The helper processes of a conversion, and what passes between them and the starting instance.

    Helpers --a job, a line of JSON--> helper process --Converted, a line of JSON--> Helpers

*Guarantees*: a helper ends with its parent, however that ends. A job of a helper that has ended, or that the system
gave no process or thread for, is done by the parent. Nothing of a helper is left behind.
*Assumes*: as `layouts.py`.
"""

from __future__ import annotations

import json
import logging
import subprocess
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
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
    """A context manager. *Owns*: the helper processes, and a thread for each that asks it; those that can't be
    started are left out. *Sends*: jobs, in the order of the calls; without any helper, a job is done by its caller."""

    def __init__(self, count: int) -> None:
        self._jobs: SimpleQueue[tuple[Job, Future[Converted]] | None] = SimpleQueue()
        self._all: list[tuple[ConversionHelper, threading.Thread]] = []
        try:
            for number in range(1, count + 1):
                self._begin_one(number)
        except (OSError, RuntimeError) as error:  # of a process, of a thread
            log.warning("a conversion has %d of %d helper processes: %s", len(self._all), count, error)
        except BaseException:
            self._end()
            raise

    def _begin_one(self, number: int) -> None:
        helper = ConversionHelper()
        try:
            thread = threading.Thread(target=self._ask, args=(helper,), name=f"conversion-{number}", daemon=True)
            thread.start()
        except BaseException:
            helper.end()
            helper.close()
            raise
        self._all.append((helper, thread))

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        """What no helper has begun is cancelled."""
        with suppress(Empty):
            while waiting := self._jobs.get_nowait():
                waiting[1].cancel()
        for helper, _ in self._all:
            self._jobs.put(None)
            helper.end()
        for helper, thread in self._all:
            thread.join()
            helper.close()

    def submit(self, job: Job) -> Future[Converted]:
        """Have one of them do it, in the order of the calls."""
        converted: Future[Converted] = Future()
        if self._all:
            self._jobs.put((job, converted))
        else:
            _fulfil(converted, at_once, job)
        return converted

    def _ask(self, helper: ConversionHelper) -> None:
        while waiting := self._jobs.get():
            job, converted = waiting
            _fulfil(converted, helper.do, job)


def _fulfil(converted: Future[Converted], do: Convert, job: Job) -> None:
    try:
        converted.set_result(do(job))
    except BaseException as error:
        converted.set_exception(error)


class ConversionHelper:
    """*Owns*: the process. One thread at a time asks it, any may end it."""

    def __init__(self) -> None:
        """`OSError` when the system gives no process."""
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
