"""Ways in which a store could be broken: what the model must find.

*Guarantees*: a fault is in the product for as long as its `MonkeyPatch` isn't undone.
*Assumes*: applied before any store is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from milestones.common.state import rocksdict_engine, stores
from milestones.common.state.emit_buffer import EmitBuffer
from milestones.common.state.layers import Layer, StoreLayers
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.stores import KeyValueStore
from milestones.common.task import task_stores
from milestones.common.task.runner import Runner
from milestones.common.task.task_stores import TaskStores

Plant = Callable[[pytest.MonkeyPatch], None]

FAULTS: dict[str, Plant] = {}
"""By name, with spaces. The docstrings say how."""


def fault(plant: Plant) -> Plant:
    """Enter a function into the table, under its own name."""
    FAULTS[plant.__name__.replace("_", " ")] = plant
    return plant


def scanning(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any, Any, bool], tuple[Any, Any, bool]]) -> None:
    """Scans of all layers together go by what `change` makes of start, end, reverse."""
    original = StoreLayers.scan

    def scan(layers: Any, start: Any = None, end: Any = None, *, reverse: bool = False) -> Iterator[Any]:
        start, end, reverse = change(start, end, reverse)
        return original(layers, start, end, reverse=reverse)

    monkeypatch.setattr(StoreLayers, "scan", scan)


@fault
def a_bound_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range ends before its last key."""
    scanning(monkeypatch, lambda start, end, reverse: (start, end and end.removesuffix(b"\x00"), reverse))


@fault
def a_bound_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range goes on to the key behind its last one."""
    scanning(monkeypatch, lambda start, end, reverse: (start, end and end + b"\x00", reverse))


@fault
def a_start_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range leaves out its first key."""
    scanning(monkeypatch, lambda start, end, reverse: (start and start + b"\x00", end, reverse))


@fault
def a_reversed_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reverse range goes forward."""
    scanning(monkeypatch, lambda start, end, reverse: (start, end, False))


@fault
def a_tombstone_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that was deleted since the last commit is still in scans."""
    original = Layer.keys_between

    def keys_between(layer: Any, start: Any, end: Any) -> list[bytes]:
        return [key for key in original(layer, start, end) if layer[key] is not None]

    monkeypatch.setattr(Layer, "keys_between", keys_between)


@fault
def an_uncommitted_row_after_an_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    """A roll-back leaves a row of the overlay."""
    original = StoreLayers.abort

    def abort(layers: Any) -> None:
        kept = dict(list(layers._overlay.items())[:1])
        original(layers)
        layers._overlay = Layer(kept)

    monkeypatch.setattr(StoreLayers, "abort", abort)


@fault
def a_row_of_a_failed_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a record wrote that was skipped becomes part of the boundary."""
    monkeypatch.setattr(StoreLayers, "drop_scope", StoreLayers.merge)


@fault
def a_row_of_the_neighbour_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that a store doesn't have is read from that of another task."""
    original = LocalStateManager.open

    def open_(local: Any, *arguments: Any) -> Any:
        state = original(local, *arguments)
        others = [other for other in local._open if other.complete and other.task != state.task]
        for name, store in state._stores.items():
            for other in others:
                _read_from(store.namespace, other.namespace(name))
                _read_from(other.namespace(name), store.namespace)
        return state

    monkeypatch.setattr(LocalStateManager, "open", open_)


def _read_from(namespace: Any, other: Any) -> None:
    own, its = namespace.get, other.get
    namespace.get = lambda key: own(key) or its(key)


@fault
def a_prefix_one_byte_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last byte of a prefix isn't looked at for where it ends."""
    original = stores._after_prefix
    monkeypatch.setattr(stores, "_after_prefix", lambda prefix: original(prefix[:-1] or prefix))


@fault
def a_prefix_that_ends_with_the_highest_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a prefix is the prefix and one more of the highest byte."""
    monkeypatch.setattr(stores, "_after_prefix", lambda prefix: prefix + b"\xff")


@fault
def a_stale_remembered_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed record has written is forgotten, but for its decoded value."""

    def drop_scope(layers: Any) -> None:
        layers._scope = {}

    monkeypatch.setattr(StoreLayers, "drop_scope", drop_scope)


@fault
def a_deleted_row_that_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was read, then deleted, is read as it was."""

    def delete(store: Any, data: bytes) -> None:
        store._log(data, None, store._record.timestamp)
        store._layers.put(data, None)

    monkeypatch.setattr(KeyValueStore, "_delete", delete)


@fault
def a_scan_that_misses_the_overlay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans see the record in work and the engine, not what lies in between."""
    original = StoreLayers.scan

    def scan(layers: Any, *bounds: Any, reverse: bool = False) -> Iterator[Any]:
        overlay, layers._overlay = layers._overlay, Layer()
        try:
            return original(layers, *bounds, reverse=reverse)
        finally:
            layers._overlay = overlay

    monkeypatch.setattr(StoreLayers, "scan", scan)


@fault
def a_scan_that_goes_with_later_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan looks at the store when its first entry is asked for, not when it is called."""
    original = StoreLayers.scan

    def scan(layers: Any, *bounds: Any, reverse: bool = False) -> Iterator[Any]:
        yield from original(layers, *bounds, reverse=reverse)

    monkeypatch.setattr(StoreLayers, "scan", scan)


@fault
def a_deleted_row_after_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changelog's deletions aren't restored."""
    original = task_stores.restored

    def restored(*arguments: Any) -> dict[bytes, bytes | None]:
        return {key: value for key, value in original(*arguments).items() if value is not None}

    monkeypatch.setattr(task_stores, "restored", restored)


@fault
def a_thawed_commit_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writes of a commit that failed don't go with the next one."""
    monkeypatch.setattr(StoreLayers, "thaw", StoreLayers.applied)


@fault
def a_write_that_is_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delete is in the store, and not in its changelog."""

    def delete(store: Any, data: bytes) -> None:
        store._layers.put(data, None)
        store._remembered[data] = None

    monkeypatch.setattr(KeyValueStore, "_delete", delete)


@fault
def an_upper_bound_that_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's iterator points at a bound whose memory is given back: scans end somewhere."""
    original = rocksdict_engine._RocksdictCursor.__init__

    def __init__(cursor: Any, *arguments: Any) -> None:  # noqa: N807
        original(cursor, *arguments)
        del cursor._options

    monkeypatch.setattr(rocksdict_engine._RocksdictCursor, "__init__", __init__)


@fault
def a_row_of_init_that_is_gone_after_a_roll_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Processor.init writes counts once per task, not once per program."""
    original = Runner.run_alone

    def run_alone(runner: Any, call: Callable[[], None], node: str) -> None:
        def dropped() -> None:
            call()
            runner.scope.drop()

        original(runner, dropped if node == "Processor.init" and runner._boundary.epoch else call, node)

    monkeypatch.setattr(Runner, "run_alone", run_alone)


@fault
def a_changelog_that_is_not_mended_after_a_roll_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """At least once, the changelog keeps what was sent of records that were rolled back."""
    monkeypatch.setattr(TaskStores, "log_again", lambda *_: None)


@fault
def a_write_to_the_key_that_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a flush listener writes to the key that it is told of waits for a flush that doesn't come."""
    original = EmitBuffer.mark

    def mark(buffer: Any, *arguments: Any) -> None:
        flushing, buffer._flushing = buffer._flushing, None
        try:
            original(buffer, *arguments)
        finally:
            buffer._flushing = flushing

    monkeypatch.setattr(EmitBuffer, "mark", mark)


ON_DISK = ("an upper bound that is freed",)
"""Faults that only stores on disk can have, by the default engine."""
