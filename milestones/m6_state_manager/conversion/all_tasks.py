"""Converts all tasks of an instance, the most important ones first, by helper processes when there is much to convert.

    take_all_in --FolderJob--> helper process --table files--> take_in --link--> ranges, then the folder is removed
    give_all_out --RangeJob--> helper process --store's folder--> give_out --rename--> folders, then the database goes

*Guarantees*: everything that `layouts.py` guarantees, for each task. A helper process only reads one layout and writes
files of the other one. This process decides which layout counts, and removes the other one.
*Assumes*: everything that `layouts.py` assumes. The start waits until all tasks are converted. Their order matters only
if the start is interrupted: then the most important ones are done.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final, TypeVar

from milestones.common.state.directory import DATABASES
from milestones.common.state.disk import exists, names, remove_tree
from milestones.common.state.manifest import FOLDERS
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.task_storage import ROCKSDB
from milestones.common.testing.faults import reach
from milestones.m6_state_manager.conversion.helpers import Helpers
from milestones.m6_state_manager.conversion.layouts import (
    INCOMING,
    Convert,
    Converter,
    FolderJob,
    Job,
    RangeJob,
    RangesOnDisk,
    folder_jobs,
    folders,
    give_out,
    is_whole,
    range_jobs,
    ranges_on_disk,
)
from milestones.m6_state_manager.mending.database_folder import CORRUPT, set_aside
from milestones.m6_state_manager.snapshots.schedule import by_importance
from milestones.m6_state_manager.subtopology_engine import LINKING

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from milestones.common.records import TaskId
    from milestones.common.state.directory import StateDirectory
    from milestones.common.state.engine import Engines
    from milestones.m6_state_manager.conversion.layouts import Converted
    from milestones.m6_state_manager.subtopology_engine import SubtopologyEngine

log: Final = logging.getLogger(__name__)

MUCH_BYTES: Final = 32 * 1024 * 1024
"""If all stores together have this size, or more, helper processes are started."""
MOST: Final = 4
"""The largest number of helper processes."""
AHEAD: Final = 4
"""The number of tasks whose files are written before it is their turn. The disk has these tasks twice."""

J = TypeVar("J", FolderJob, RangeJob)
Jobs = Callable[["TaskId"], Sequence[J]]
"""Returns the jobs of a task. Called once for each task."""
Each = Callable[["TaskId", Sequence[J], Convert], None]
"""Converts a task, once its jobs are done."""


def in_order(tasks: Iterable[TaskId], weights: Mapping[int, int]) -> list[TaskId]:
    """Sort the tasks by the importance of their sub-topologies. `weights`: `task_priorities`."""
    of: dict[int, list[TaskId]] = {}
    for task in sorted(tasks):
        of.setdefault(task.subtopology, []).append(task)
    return [task for number in by_importance(of, weights) for task in of[number]]


def take_all_in(
    directory: StateDirectory,
    database: Callable[[TaskId], SubtopologyEngine],
    take_in: Callable[[TaskId, Convert], None],
    weights: Mapping[int, int],
) -> None:
    """Convert all tasks that are in folders to ranges. `database` returns the database of a task. `weights`:
    `task_priorities`. Raises `StateError`."""
    tasks = in_order(folders(directory), weights)

    def jobs(task: TaskId) -> Sequence[FolderJob]:
        if task.partition in database(task).rows:
            return []
        return folder_jobs(directory, task, directory.path / DATABASES / str(task.subtopology))

    def each(task: TaskId, _: Sequence[FolderJob], convert: Convert) -> None:
        take_in(task, convert)

    _convert("converted to ranges", tasks, jobs, each, [directory.task_path(task) / ROCKSDB for task in tasks])
    for task in tasks:
        remove_tree(database(task).path / INCOMING)


def folder_state_manager(
    directory: StateDirectory,
    engines: Engines,
    stage: str,
    static_id: str | None = None,
    weights: Mapping[int, int] | None = None,
) -> LocalStateManager:
    """Convert what m6 has left to folders, and return the state manager of the earlier stages. Raises `StateError`."""
    give_all_out(directory, engines, weights or {})
    directory.write_layout(FOLDERS)
    return LocalStateManager(directory, engines, stage, static_id)


def give_all_out(directory: StateDirectory, engines: Engines, weights: Mapping[int, int]) -> None:
    """Convert all tasks that are in ranges to folders. `weights`: `task_priorities`. Raises `StateError`."""
    path = directory.path / DATABASES
    numbers = by_importance((int(name) for name in names(path) if name.isdigit()), weights)
    found = {number: ranges_on_disk(path / str(number), engines) for number in numbers}

    def jobs(task: TaskId) -> Sequence[RangeJob]:
        return range_jobs(directory, task, found[task.subtopology])

    def each(task: TaskId, of: Sequence[RangeJob], convert: Convert) -> None:
        ranges = found[task.subtopology]
        give_out(directory, task, ranges, of, convert)
        if task == ranges.tasks[-1]:
            _end(directory, ranges)

    for ranges in found.values():
        if not ranges.rows:
            _end(directory, ranges)
    tasks = [task for ranges in found.values() for task in ranges.tasks]
    places = [ranges.database for ranges in found.values() if ranges.rows]
    # Helper processes can't read a database that only one process at a time may open: this process reads it.
    helped = all(ranges.engine in LINKING for ranges in found.values())
    _convert("converted to folders", tasks, jobs, each, places, helped=helped)


def _end(directory: StateDirectory, ranges: RangesOnDisk) -> None:
    """Remove a database whose tasks are all in folders. Files that couldn't be read, now or earlier, are set aside."""
    reach("conversion.all-given")
    damaged = ranges.path / CORRUPT if is_whole(directory, ranges) else ranges.path
    if exists(damaged):
        kept = set_aside(damaged, ranges.path.with_name(f"{ranges.number}-{CORRUPT}"))
        log.error("the files of sub-topology %d, some of which can't be read, are kept in %s", ranges.number, kept)
    remove_tree(ranges.path)


# -- in turn


def _convert(
    done: str, tasks: Sequence[TaskId], jobs: Jobs[J], each: Each[J], places: Sequence[Path], *, helped: bool = True
) -> None:  # fmt: skip
    """Convert the tasks in their order. `done`: the word for a converted task in the log. `places`: the folders that
    are read. `helped`: False if other processes can't read them."""
    size = sum(_bytes(place) for place in places)
    if size < MUCH_BYTES or not helped:
        with closing(Converter()) as converter:
            for task in tasks:
                each(task, jobs(task), converter.convert)
        return
    count = min(MOST, os.cpu_count() or 1)
    log.info("stores of %d tasks, %d MB, are %s by %d processes", len(tasks), size // 1_000_000, done, count)
    with Helpers(count) as helpers:
        _convert_by(helpers, done, tasks, jobs, each)


def _convert_by(helpers: Helpers, done: str, tasks: Sequence[TaskId], jobs: Jobs[J], each: Each[J]) -> None:
    begun: dict[TaskId, Sequence[J]] = {}
    under_way: dict[Job, Future[Converted]] = {}
    following = iter(tasks)

    def begin_one() -> None:
        for task in following:
            begun[task] = jobs(task)
            under_way.update((job, helpers.submit(job)) for job in begun[task])
            if begun[task]:
                return

    for _ in range(AHEAD):
        begin_one()
    for count, task in enumerate(tasks, 1):
        begin_one()
        each(task, begun.pop(task), lambda job: under_way.pop(job).result())
        log.info("%d of %d tasks are %s", count, len(tasks), done)


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.*") if file.is_file())
