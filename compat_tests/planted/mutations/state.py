"""What stores hold: uncommitted, forgotten, short, lost.

*Guarantees*: as `mutations/__init__.py`.
*Assumes*: every store is written by `TaskStorage.apply`, and restored up to `Task.restoration_ends`.
"""

from __future__ import annotations

import shutil
import time
from typing import Any

from compat_tests.planted.mutations import Once, around, around_each, mutation, mutations_by
from milestones.common.config.streams import StreamsConfig
from milestones.common.state.engines.rocksdict_engine import _RocksdictCursor
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.task_storage import LocalTaskStorage
from milestones.common.task.task import Task, TaskState
from milestones.common.task.task_stores import TaskStores
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.task_storage import RangeTaskStorage
from milestones.shared_parts.opening_by_message import OpeningByMessage
from milestones.stream_thread.task_removal import TaskRemoval

STORAGES = (LocalTaskStorage, RangeTaskStorage)
MANAGERS = (LocalStateManager, RangeStateManager)
"""Before m6, and from m6 on."""
SHORT = 5
"""Offsets that are left out: more than the control records at a changelog's end."""

AGAIN = 20
"""More than a task commits in a short life."""


@mutation
def what_is_frozen_is_applied_before_the_commit() -> None:
    """Engines get the writes of a boundary while its transaction is still open."""

    @around(TaskStores, "freeze")
    def freeze(original: Any, stores: Any) -> None:
        original(stores)
        for store in stores._stores.values():
            stores.storage.apply({store.spec.name: store.layers.frozen() or {}}, {})


@mutation
def what_is_committed_is_not_applied() -> None:
    """One commit's writes never reach the engines, their offset does."""
    due = Once()

    @around_each(STORAGES, "apply")
    def apply(original: Any, storage: Any, batches: Any, offsets: Any) -> None:
        original(storage, {} if any(batches.values()) and due() else batches, offsets)


@mutation
def a_commit_logs_its_keys_again_and_again() -> None:
    """Of each key so many changelog records, the same ones."""

    @around(TaskStores, "log_frozen")
    def log_frozen(original: Any, stores: Any) -> Any:
        for record in original(stores):
            yield from [record] * AGAIN


@mutation
def a_store_loses_a_key_at_its_close() -> None:
    """The first key of each store is gone when the store is closed."""

    @around_each(STORAGES, "close")
    def close(original: Any, storage: Any) -> None:
        for name in storage.offsets():
            for key, _ in list(storage.namespace(name).scan(None, None))[:1]:
                storage.apply({name: {key: None}}, {})
        original(storage)


def keeping(change: Any) -> None:
    """Stores remember `change(offset)` in place of a changelog offset."""

    @around_each(STORAGES, "apply")
    def apply(original: Any, storage: Any, batches: Any, offsets: Any) -> None:
        kept = {name: change(offset) for name, offset in offsets.items()}
        original(storage, batches, {name: offset for name, offset in kept.items() if offset is not None})


mutations_by(
    keeping,
    {
        "stores-do-not-say-up-to-where": lambda offset: None,
        "stores-say-more-than-they-have": lambda offset: offset + 1_000_000,
        "stores-say-less-than-they-have": lambda offset: max(0, offset - SHORT),
    },
)


@mutation
def stores_are_gone_after_the_end() -> None:
    """Stores are removed from the disk when the instance ends."""

    @around_each(MANAGERS, "release")
    def release(original: Any, manager: Any) -> None:
        original(manager)
        for path in manager.directory.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)


@mutation
def restoration_stops_short() -> None:
    """The last changelog records aren't restored."""

    @around(Task, "restoration_ends")
    def restoration_ends(original: Any, *arguments: Any) -> Any:
        return {partition: max(0, end - SHORT) for partition, end in original(*arguments).items()}


@mutation
def restoration_reads_what_was_aborted() -> None:
    """The restore consumer reads uncommitted."""

    @around(StreamsConfig, "restore_consumer_settings")
    def settings(original: Any, *arguments: Any) -> Any:
        return {**original(*arguments), "isolation.level": "read_uncommitted"}


@mutation
def a_program_is_kept_over_a_roll_back() -> None:
    """A task that was rolled back goes on with the processors that it had."""

    @around(Task, "initialise")
    def initialise(original: Any, task: Any) -> None:
        if task.initialised or not task._program.made:
            original(task)
        else:
            task._initialised = True
            task.lifecycle.move(TaskState.READY)


@mutation
def a_roll_back_leaves_its_changelog_records() -> None:
    """What was logged before a roll-back isn't taken back."""

    @around(TaskStores, "log_again")
    def log_again(original: Any, *_: Any) -> None:
        """Nothing is logged."""


@mutation
def scans_end_somewhere() -> None:
    """The memory of a scan's upper bound is given back while the scan goes on."""

    @around(_RocksdictCursor, "__init__")
    def opened(original: Any, cursor: Any, *arguments: Any) -> None:
        original(cursor, *arguments)
        del cursor._options


@mutation
def a_recycled_task_opens_its_stores_anew() -> None:
    """A task that changes its role closes its stores, and opens them again a second later."""

    @around(TaskRemoval, "_take_task")
    def anew(original: Any, removal: Any, entry: Any, task: Any, stores: Any) -> None:
        if stores is not None and entry.role is not None:
            task.reusable = False
            time.sleep(1.1)
        original(removal, entry, task, stores)


@mutation
def the_disk_is_read_at_each_join() -> None:
    """What lies closed on the disk is looked for when the group asks."""

    @around_each(MANAGERS, "closed_offsets")
    def closed_offsets(original: Any, manager: Any, *arguments: Any) -> Any:
        manager.directory.tasks()
        return original(manager, *arguments)


@mutation
def stores_are_closed_by_the_thread_that_polls() -> None:
    """An opener finds the stores closed that it is to close."""

    @around(OpeningByMessage, "close_stores")
    def close_stores(original: Any, opening: Any, task: Any, stores: Any) -> None:
        stores.close()
        opening.context.state.directory.tasks()
        original(opening, task, stores)
