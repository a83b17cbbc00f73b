"""All folders of an instance taken in, with the table files written by helper processes where there is much to write.

    take_all_in --FolderJob, a line of JSON--> helper process --StoreFiles, a line of JSON--> take_all_in --> ranges

*Guarantees*: a helper reads folders and writes table files, nothing else: what is durable, and what is removed then, is
decided by `take_in`, task by task. A helper ends with its parent, however that ends. A job of a helper that has ended
is done by the parent.
*Assumes*: as `layouts.py`. The start waits for all tasks, so their order is that of their ids.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from milestones.common.errors import StateCorruptError, StateError, StateFormatError, StateLockedError
from milestones.common.state.directory import DATABASES
from milestones.common.state.disk import remove_tree
from milestones.common.state.task_storage import ROCKSDB
from milestones.m6_state_manager.conversion.layouts import INCOMING, FolderJob, StoreFiles, folders, jobs, store_files
from milestones.m6_state_manager.processes import begin

if TYPE_CHECKING:
    from milestones.common.records import TaskId
    from milestones.common.state.directory import StateDirectory
    from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine

log: Final = logging.getLogger(__name__)

MUCH_BYTES: Final = 32 * 1024 * 1024
"""From which size of all stores on helpers are worth their start."""
MOST: Final = 4
"""Helpers."""
PROGRAM: Final = "milestones.m6_state_manager.conversion.process"
AHEAD: Final = 4
"""Tasks whose files are written, or are being written, before they are taken in: what the disk needs twice."""
ERRORS: Final = {kind.__name__: kind for kind in (StateCorruptError, StateFormatError, StateLockedError, StateError)}

TakeIn = Callable[["TaskId", Callable[[FolderJob], StoreFiles] | None], None]
"""`take_in` of a task, with the files of its jobs, where helpers write them."""


def take_all_in(directory: StateDirectory, database: Callable[[TaskId], SubtopologyEngine], take_in: TakeIn) -> None:
    """Take the stores of all tasks that are in folders into their ranges. `database`: of a task. `StateError`."""
    tasks = folders(directory)
    size = sum(_bytes(directory.task_path(task) / ROCKSDB) for task in tasks)
    if size < MUCH_BYTES:
        for task in tasks:
            take_in(task, None)
    else:
        count = min(MOST, os.cpu_count() or 1)
        log.info("stores of %d tasks, %d MB, are taken over by %d processes", len(tasks), size // 1_000_000, count)
        with Helpers(count) as helpers:
            _take_in_by(helpers, directory, tasks, database, take_in)
    for task in tasks:
        remove_tree(database(task).path / INCOMING)


def _take_in_by(
    helpers: Helpers,
    directory: StateDirectory,
    tasks: Sequence[TaskId],
    database: Callable[[TaskId], SubtopologyEngine],
    take_in: TakeIn,
) -> None:
    under_way: dict[FolderJob, Future[StoreFiles]] = {}
    begun = iter(tasks)

    def begin_one() -> None:
        for task in begun:
            if task.partition not in database(task).rows:
                path = directory.path / DATABASES / str(task.subtopology)
                under_way.update((job, helpers.submit(job)) for job in jobs(directory, task, path))
                return

    for _ in range(AHEAD):
        begin_one()
    for done, task in enumerate(tasks, 1):
        begin_one()
        take_in(task, lambda job: under_way.pop(job).result())
        log.info("%d of %d tasks are taken over", done, len(tasks))


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.*") if file.is_file())


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

    def submit(self, job: FolderJob) -> Future[StoreFiles]:
        """Have one of them do it, in the order of the calls."""
        return self._pool.submit(self._do, job)

    def _do(self, job: FolderJob) -> StoreFiles:
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

    def do(self, job: FolderJob) -> StoreFiles:
        """The job's files. `StateError`."""
        line = self._ask(written(job))
        if line:
            return answered(line)
        if self._ended:
            raise StateError(f"{job.folder} isn't read any more: the conversion has ended")
        log.warning("a helper process has ended with exit code %d, its work is done here", self._process.wait())
        return store_files(job)

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


def written(job: FolderJob) -> str:
    """The job as a line."""
    return json.dumps([str(job.folder), job.engine, job.prefix.hex(), str(job.target)]) + "\n"


def read(line: str) -> FolderJob:
    """The job in a line."""
    folder, engine, prefix, target = json.loads(line)
    return FolderJob(Path(folder), engine, bytes.fromhex(prefix), Path(target))


def answer(job: FolderJob) -> str:
    """Do the job; what came of it, as a line."""
    told: dict[str, Any]
    try:
        files, offset = store_files(job)
        told = {"files": {str(file): count for file, count in files.items()}, "offset": offset}
    except StateError as error:
        kind = next(name for name, kind in ERRORS.items() if isinstance(error, kind))
        told = {"error": kind, "text": str(error)}
    return json.dumps(told) + "\n"


def answered(line: str) -> StoreFiles:
    """What came of a job. `StateError`."""
    told = json.loads(line)
    if "error" in told:
        raise ERRORS[told["error"]](told["text"])
    return StoreFiles({Path(file): count for file, count in told["files"].items()}, told["offset"])
