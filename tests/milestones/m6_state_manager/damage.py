"""Databases that a test damages: the tasks' ranges lie in table files of their own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from milestones.common.errors import StateCorruptError
from milestones.common.records import TaskId
from milestones.common.state.directory import DATABASES, StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.spec import StoreSpec
from milestones.m6_state_manager.mending.mender import Mending
from tests.milestones.m6_state_manager.states import COUNTS, NEIGHBOUR, OTHER, TASK, found, reopened

ENTRIES = 300
ALL = (TASK, NEIGHBOUR, OTHER)


def random_entries() -> dict[bytes, bytes | None]:
    """So many that they take several blocks."""
    return {b"key-%06d" % number: os.urandom(60) for number in range(ENTRIES)}


def table_files(directory: StateDirectory, number: int = 0) -> set[Path]:
    return set((directory.path / DATABASES / str(number)).rglob("*.sst"))


def written(
    directory: StateDirectory, tasks: Sequence[TaskId], specs: Sequence[StoreSpec], **changed: Any
) -> tuple[dict[tuple[TaskId, str], Path], dict[tuple[TaskId, str], dict[bytes, bytes | None]]]:
    """Ranges at offset 7, each written in a life of its own: the table file of each, and its entries."""
    files, contents = {}, {}
    for task in tasks:
        for spec in specs:
            before = table_files(directory, task.subtopology)
            manager = reopened(directory, **changed)
            storage = manager.open(task, [spec])
            contents[task, spec.name] = random_entries()
            storage.apply({spec.name: contents[task, spec.name]}, {spec.name: 7} if spec.logged else {})
            storage.close()
            manager.release()
            reopened(directory, **changed).release()  # one of the engines writes table files when it is opened
            new = table_files(directory, task.subtopology) - before
            files[task, spec.name] = max(new, key=lambda file: file.stat().st_size)
    return files, contents


def flip(path: Path) -> None:
    """Change the bytes in the middle of the file."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    for place in range(middle, middle + 50):
        data[place] ^= 0xFF
    path.write_bytes(bytes(data))


def mend(manager: Any, number: int = 0) -> None:
    Mending(manager._databases[number], manager.engines).run()


class Damaged:
    """A manager of the next process, with a flipped bit in the range of one store; its tasks, open."""

    def __init__(self, directory: StateDirectory, *specs: Any, engine: str = "rocksdict", hit: str = "counts") -> None:
        engines = {"engines": open_engines(engine)}
        self.specs = specs or (COUNTS,)
        files, self.contents = written(directory, ALL, self.specs, **engines)
        self.directory = directory
        flip(files[TASK, hit])
        self.manager = reopened(directory, engines=open_engines(engine))
        self.damaged, self.neighbour, self.other = (self.manager.open(task, self.specs) for task in ALL)
        self.database: Any = self.manager._databases[0]

    def meet(self) -> StateCorruptError:
        """Read what is damaged."""
        with pytest.raises(StateCorruptError) as raised:
            found(self.damaged)
        return raised.value

    def end(self) -> None:
        for storage in list(self.manager._open.values()):
            storage.close()
        self.manager.release()
