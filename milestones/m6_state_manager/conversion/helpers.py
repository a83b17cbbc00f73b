"""The helper processes of a conversion, and the messages between them and the starting instance.

    Helpers --a job, a line of JSON--> helper process --Converted, a line of JSON--> Helpers

*Guarantees*: a helper process ends with its parent, whatever ends the parent. The parent does a job itself if the
system can't start a helper process or its thread, or if the helper process ends early. No helper process and no pipe is
left open at the end.
*Assumes*: everything that `layouts.py` assumes.
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
"""The fields of a job that are paths."""


class Helpers:
    """A context manager. *Owns*: the helper processes, and a thread for each that sends it jobs. A process that can't
    be started is left out. *Sends*: jobs, in the order of the calls. If no process could be started, the caller does
    its job itself."""

    def __init__(self, count: int) -> None:
        self._jobs: SimpleQueue[tuple[Job, Future[Converted]] | None] = SimpleQueue()
        self._all: list[tuple[ConversionHelper, threading.Thread]] = []
        try:
            for number in range(1, count + 1):
                self._begin_one(number)
        except (OSError, RuntimeError) as error:  # the first if there is no process, the second if there is no thread
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
        """Cancel the jobs that no helper process has begun, and end all processes."""
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
        """Give a job to the next free helper process, in the order of the calls."""
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
    """*Owns*: one helper process. One thread at a time sends jobs to the process, and any thread may end the
    process."""

    def __init__(self) -> None:
        """Start the process. Raises `OSError`."""
        self._ended = False
        self._process = begin(PROGRAM, stdout=subprocess.PIPE, text=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    def do(self, job: Job) -> Converted:
        """Do the job, and return its result. Raises `StateError`."""
        line = self._ask(written(job))
        if line:
            return answered(line)
        if self._ended:
            raise StateError(f"{job.target} isn't written any more: the conversion has ended")
        log.warning("a helper process has ended with exit code %d, its work is done here", self._process.wait())
        return at_once(job)

    def _ask(self, line: str) -> str:
        """Send a line, and return the answer; an empty one if the process has ended."""
        asked, told = self._process.stdin, self._process.stdout
        assert asked is not None
        assert told is not None
        try:
            asked.write(line)
            asked.flush()
            answered: str = told.readline()
            return answered
        except (OSError, ValueError):  # `ValueError` if the pipe is closed
            return ""

    def end(self) -> None:
        """Kill the process. A thread that waits for an answer gets an empty one."""
        self._ended = True
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close the pipes. No thread may send a job after that."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # the process can't take what is still in the pipe's buffer
                pipe.close()


# -- what passes between the processes


def written(job: Job) -> str:
    """Encode the job as a line."""
    fields = {name: value.hex() if isinstance(value, bytes) else value for name, value in job._asdict().items()}
    return json.dumps([type(job).__name__, fields], default=str) + "\n"


def read(line: str) -> Job:
    """Decode the job in a line."""
    kind, fields = json.loads(line)
    paths = {name: Path(value) for name, value in fields.items() if name in PATHS}
    prefix = {"prefix": bytes.fromhex(fields["prefix"])} if "prefix" in fields else {}
    return KINDS[kind](**{**fields, **paths, **prefix})


def answer(job: Job, convert: Convert) -> str:
    """Do the job, and encode its result, or its error, as a line."""
    told: dict[str, Any]
    try:
        told = convert(job)._asdict()
    except StateError as error:
        kind = next(name for name, kind in ERRORS.items() if isinstance(error, kind))
        told = {"error": kind, "text": str(error)}
    return json.dumps(told, default=str) + "\n"


def answered(line: str) -> Converted:
    """Decode the result of a job. Raises the `StateError` that ended the job."""
    told = json.loads(line)
    if "error" in told:
        raise ERRORS[told["error"]](told["text"])
    return Converted(told["entries"], [Path(file) for file in told["files"]], told["offset"])
